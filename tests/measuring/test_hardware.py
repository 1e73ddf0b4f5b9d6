from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import LLAMA, built  # noqa: E402

from tokenroom.cli.main import main  # noqa: E402
from tokenroom.errors import MeasurementError  # noqa: E402
from tokenroom.measuring.in_torch.communicators import measure_communicator  # noqa: E402
from tokenroom.measuring.in_torch.hardware import measure_terms  # noqa: E402
from tokenroom.measuring.in_torch.tensor_ledger import TensorLedger  # noqa: E402
from tokenroom.units import MIB  # noqa: E402

CONTEXT, KERNELS, WORKSPACE, SEGMENT = 430 * MIB, 90 * MIB, 32 * MIB, 2 * MIB


class Products(TensorLedger):
    """A ledger in which the first product leaves a workspace behind."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default and not self.ran:
            self.ran = True
            self.alive_bytes += WORKSPACE
        return super().__torch_dispatch__(func, types, args, kwargs)


class PretendedDevice:
    """Counters as a GPU has them, over tensors of the CPU: memory is reserved in segments."""

    told_by = "process"

    def __init__(self) -> None:
        self.ledger = Products()

    def used_bytes(self) -> int:
        return CONTEXT + KERNELS * self.ledger.ran + self.reserved_bytes()

    def reserved_bytes(self) -> int:
        return -(-self.ledger.peak_bytes // SEGMENT) * SEGMENT

    def allocated_bytes(self) -> int:
        return self.ledger.alive_bytes

    def restart(self) -> None:
        self.ledger.restart()

    def peak_bytes(self) -> tuple[int, int]:
        return self.reserved_bytes(), self.ledger.peak_bytes


def terms(build: Any, tokens: list[int], told: list[Any] | None = None) -> Any:
    device = PretendedDevice()
    with device.ledger:
        return measure_terms(
            device,
            "cpu",
            build,
            tokens=tokens,
            dtype=torch.bfloat16,
            on_pass=None if told is None else lambda *done: told.append(done),
        )


def test_each_term_is_told_from_the_others() -> None:
    told: list[Any] = []
    found = terms(lambda: built(LLAMA), [64, 256, 512], told)
    assert found.context_bytes == CONTEXT
    assert found.workspace_bytes == WORKSPACE
    assert found.kernels_bytes == KERNELS
    assert found.left_out == ()
    assert (found.passes.dtype, found.passes.attention) == ("bfloat16", "sdpa")
    assert [done.tokens for done in found.passes.passes] == [64, 256, 512]
    assert all(done.transient_bytes == done.predicted_bytes for done in found.passes.passes)
    assert all(0 <= done.gap_bytes < SEGMENT for done in found.passes.passes)
    assert told == [(1, 3), (2, 3), (3, 3)]


def small_device(most: int) -> Any:
    """A model that has no room for passes of more tokens."""
    model = built(LLAMA)

    def check(module: Any, args: tuple[Any, ...]) -> None:
        if args[0].shape[1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.register_forward_pre_hook(check)
    return model


def test_budgets_that_do_not_fit_are_left_out() -> None:
    found = terms(lambda: small_device(100), [64, 256, 512])
    assert [done.tokens for done in found.passes.passes] == [64]
    assert found.left_out == (256, 512)
    with pytest.raises(MeasurementError, match="a pass of 64 tokens does not fit"):
        terms(lambda: small_device(10), [64])


def grown(rank: int) -> int:
    """What lies outside the allocator of a rank: more with each look."""
    looks = grown.__dict__.setdefault("looks", [0])
    looks[0] += 1
    return looks[0] * (rank + 1) * MIB


def test_ranks_that_speak_to_one_another_tell_what_it_took() -> None:
    assert measure_communicator(2, backend="gloo", outside=grown, device="cpu") == 2 * MIB


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name it with --name"),
        (("--name", "box"), "sees none here; run it on the machine with the GPU"),
        (("--name", "box", "--tokens", "many"), "--tokens"),
        (("--name", "../box"), "name is '../box'"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("says what there is none of")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["measure", "--hardware", *words]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
