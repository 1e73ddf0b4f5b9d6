"""The counters of a CUDA device, pretended over tensors of the CPU."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import LLAMA, built  # noqa: E402

from tokenroom import find_accelerator  # noqa: E402
from tokenroom.measuring import measure  # noqa: E402
from tokenroom.measuring.beside import Beside, beside  # noqa: E402
from tokenroom.measuring.in_torch import measurement  # noqa: E402
from tokenroom.measuring.in_torch.tensor_ledger import TensorLedger  # noqa: E402
from tokenroom.measuring.record import Meter, Weights  # noqa: E402
from tokenroom.reports.measure_json import measure_json  # noqa: E402
from tokenroom.reports.measure_text import print_measurement  # noqa: E402
from tokenroom.reports.messages import Language  # noqa: E402
from tokenroom.units import MIB  # noqa: E402

TOTAL, OUTSIDE, GAP, BEFORE = 8192 * MIB, 500 * MIB, 6 * MIB, 40 * MIB


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[TensorLedger]:
    """Counters that start at what another model of the process holds."""
    ledger = TensorLedger()
    real = measurement.weights_of

    def on_gpu(model: torch.nn.Module) -> Weights:
        found = real(model)
        return Weights(
            parameter_bytes=found.parameter_bytes,
            buffer_bytes=found.buffer_bytes,
            by_device={"cuda:0": found.by_device["cpu"]},
            by_dtype=found.by_dtype,
        )

    monkeypatch.setattr(measurement, "weights_of", on_gpu)
    counters = {
        "synchronize": lambda device: None,
        "reset_peak_memory_stats": lambda device: ledger.restart(),
        "memory_allocated": lambda device: BEFORE + ledger.alive_bytes,
        "max_memory_allocated": lambda device: BEFORE + ledger.peak_bytes,
        "memory_reserved": lambda device: BEFORE + ledger.alive_bytes + GAP,
        "max_memory_reserved": lambda device: BEFORE + ledger.peak_bytes + GAP,
        "mem_get_info": lambda device: (
            TOTAL - OUTSIDE - BEFORE - ledger.alive_bytes - GAP,
            TOTAL,
        ),
    }
    for name, count in counters.items():
        monkeypatch.setattr(torch.cuda, name, count)
    with ledger:
        yield ledger


@pytest.fixture
def found(device: TensorLedger) -> Beside:
    model = built(LLAMA)
    ids = torch.ones((1, 50), dtype=torch.long)
    with torch.no_grad(), measure(model) as seen:
        cache = model(ids, use_cache=True, logits_to_keep=1).cache
        kept = model(ids[:, :1], cache=cache, use_cache=True)
    assert kept is not None
    return beside(seen.measured, find_accelerator("l4"))


def test_the_allocators_counters_are_the_default_there(found: Beside) -> None:
    assert found.measured.meter is Meter.ALLOCATOR
    assert found.measured.device == "cuda:0"


def test_they_tell_the_same_as_the_tensors_where_blocks_are_tensors(found: Beside) -> None:
    for key in ("prefill", "decode", "kv_cache"):
        row = found.row(key)
        assert row is not None
        assert row.difference_bytes == 0


def test_what_is_outside_and_between_is_told(found: Beside) -> None:
    (state,) = found.measured.allocators
    assert state.gap_bytes == GAP
    assert state.outside_bytes == OUTSIDE
    highest = max(done.peak_bytes for done in found.measured.passes)
    assert state.peak_allocated_bytes >= BEFORE + highest
    assert state.peak_reserved_bytes == state.peak_allocated_bytes + GAP
    outside, gap = found.row("outside"), found.row("allocator_gap")
    assert outside is not None
    assert gap is not None
    assert (outside.measured_bytes, gap.measured_bytes) == (OUTSIDE, GAP)
    assert outside.predicted is not None
    assert [reason.key for reason in outside.reasons] == ["outside_others"]


@pytest.mark.parametrize("language", list(Language))
def test_the_report_shows_both(found: Beside, language: Language) -> None:
    out = io.StringIO()
    print_measurement(Console(file=out, width=100), found, random_weights=True, language=language)
    text = out.getvalue()
    assert "500.00 MiB" in text
    assert "6.00 MiB" in text
    assert "{" not in text
    answer = measure_json(found, random_weights=True, language=language)
    assert answer["allocators"][0]["gap_bytes"] == GAP


def test_tensors_may_be_counted_there_too(device: TensorLedger) -> None:
    model = built(LLAMA)
    with torch.no_grad(), measure(model, meter="tensors") as seen:
        model(torch.ones((1, 8), dtype=torch.long))
    assert seen.measured.meter is Meter.TENSORS
    assert seen.measured.passes[0].peak_bytes > 0
