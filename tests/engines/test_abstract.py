"""Contiguous, paged and hybrid policies through ``fit``: the articles' comparison."""

import json
from typing import Any

import pytest

from tokenroom import fit, sweep
from tokenroom.cli.main import main
from tokenroom.engines.abstract.workload import draw_lengths, read_lengths
from tokenroom.errors import DeploymentError, TokenroomError
from tokenroom.models.catalogue import find
from tokenroom.units import GIB, KIB, MIB

POOL = {"kv_cache_memory_bytes": 16 * GIB, "context": 8192}
WORKLOAD = {"concurrency": 300, "lengths": "lognormal:1500,0.9"}


def test_paging_beats_pieces_and_pieces_beat_the_longest() -> None:
    answers = {
        "longest": fit("llama-3.1-8b", "h100", engine="contiguous", **POOL, **WORKLOAD),
        "pieces": fit(
            "llama-3.1-8b", "h100", engine="contiguous", knows_length=True, **POOL, **WORKLOAD
        ),
        "pages": fit("llama-3.1-8b", "h100", engine="paged", **POOL, **WORKLOAD),
    }
    shares = {name: answer.occupancy.used_share for name, answer in answers.items()}
    assert shares["longest"] < 0.5 < shares["pieces"] < 0.93 < shares["pages"]
    batches = {name: answer.occupancy.mean_batch for name, answer in answers.items()}
    assert batches["longest"] < batches["pieces"] < batches["pages"]


def test_128_at_2048_are_32_at_8192() -> None:
    """Capacity measured at one length says nothing about another (the articles' 128 and 16)."""
    pool = 128 * 2048 * 128 * KIB
    answer = fit("llama-3.1-8b", "h100", engine="paged", kv_cache_memory_bytes=pool, context=8192)
    assert answer.plan.requests_of(2048) == 128
    assert answer.plan.requests_of(8192) == 32


def test_llama_2_7b_takes_half_a_mebibyte_a_token() -> None:
    answer = fit("llama-2-7b-hf", "a100-80gb", engine="paged", context=4096)
    assert answer.plan.kv_bytes_of(4096) == 2 * GIB
    assert answer.plan.kv_bytes_of(1) == 16 * 512 * KIB


def test_a_sweep_over_block_sizes() -> None:
    answer = fit("llama-3.1-8b", "h100", engine="paged", **POOL, **WORKLOAD)
    points = sweep(answer, "block_size", [1, 8, 32, 128])
    filled = [point.occupancy for point in points]
    assert [item.internal_waste_bytes for item in filled] == sorted(
        item.internal_waste_bytes for item in filled
    )
    assert [item.table_bytes for item in filled] == sorted(
        (item.table_bytes for item in filled), reverse=True
    )


@pytest.mark.parametrize("engine", ["contiguous", "paged", "hybrid"])
@pytest.mark.parametrize("model", ["gemma-3-27b-it", "deepseek-v3", "qwen3-next-80b-a3b-instruct"])
def test_models_of_every_kind(engine: str, model: str) -> None:
    answer = fit(model, "h200", engine=engine, tp=8, context=8192, concurrency=4)
    assert answer.verdict == "fits"
    costs = [answer.plan.kv_bytes_of(tokens) for tokens in (1, 100, 1000, 8192)]
    assert costs == sorted(costs)
    assert {line.key for line in answer.explain} >= {"kv_pool", "used", "internal_waste"}


def test_stages_share_what_the_layers_take() -> None:
    whole = fit("llama-3.1-8b", "h100", engine="paged", context=4096)
    parts = fit("llama-3.1-8b", "h100", engine="paged", context=4096, pp=2)
    assert parts.plan.kv_bytes_of(4096) * 2 == whole.plan.kv_bytes_of(4096)
    assert sum(stage.weights_bytes for stage in parts.plan.stages) == whole.weights_bytes


def test_the_longest_length_fits_and_one_more_does_not() -> None:
    answer = fit("llama-3.1-8b", "h100", engine="paged", kv_cache_memory_bytes=GIB, context=4096)
    longest = answer.max_model_len_that_fits
    assert answer.with_settings(max_model_len=longest).plan.refusal is None
    assert answer.with_settings(max_model_len=longest + 1).plan.refusal is not None


def test_drawn_lengths_are_the_same_for_a_seed_and_have_the_mean() -> None:
    lengths = draw_lengths("lognormal:800,0.5", count=4000, longest=10**6, seed=3)
    assert lengths == draw_lengths("lognormal:800,0.5", count=4000, longest=10**6, seed=3)
    assert sum(lengths) / len(lengths) == pytest.approx(800, rel=0.05)
    even = draw_lengths("uniform:10,20", count=200, longest=15, seed=0)
    assert min(even) >= 10
    assert max(even) == 15


def test_written_lengths() -> None:
    assert read_lengths("10, 20\n30") == (10, 20, 30)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"lengths": "ten"}, "lengths holds 'ten'"),
        ({"lengths": "lognormal:0,1"}, "lengths is"),
        ({"lengths": "uniform:a,b"}, "lengths is"),
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 1.5}, "block_size is 1.5"),
        ({"util": 2.0}, "gpu_memory_utilization is 2.0"),
        ({"blok_size": 3}, "did you mean block_size?"),
        ({"pp": 99}, "pipeline_parallel_size is 99"),
        ({"kv": "fp3"}, "the cache type is 'fp3'"),
    ],
)
def test_bad_input_is_one_sentence(setting: dict[str, object], words: str) -> None:
    with pytest.raises(TokenroomError) as caught:
        fit("llama-3.1-8b", "h100", engine="paged", context=4096, **setting)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_lengths_are_refused() -> None:
    with pytest.raises(DeploymentError, match="at most 100000"):
        draw_lengths("uniform:1,2", count=10**6, longest=10, seed=0)


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    file = tmp_path / "lengths.txt"  # type: ignore[operator]
    file.write_text("100\n2000\n300\n")
    words = ["fit", "llama-3.1-8b", "--gpu", "h100", "--engine", "paged", "--context", "4k"]
    assert main([*words, "--concurrency", "3", "--lengths", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["occupancy"]["batch"] == 3
    assert data["occupancy"]["used_bytes"] == 2400 * 128 * KIB
    assert main([*words, "--lengths", str(file), "--sweep", "block_size=1..64"]) == 0
    assert "block tables" in capsys.readouterr().out
    assert main([*words, "--set", "block_size=many"]) == 2
    assert "block_size is 'many'" in capsys.readouterr().err


def test_windows_bound_what_a_request_takes() -> None:
    spec = find("gemma-3-27b-it")
    answer = fit(spec, "h100", engine="paged", context=32768, block_size=1)
    growth = answer.plan.kv_bytes_of(32768) - answer.plan.kv_bytes_of(16384)
    full = sum(mixer.window is None for layer in spec.layers for mixer in layer.mixers)
    assert growth == 16384 * full * 16 * 256 * 2


def test_the_longest_context_of_a_hybrid_pool_is_one_that_starts() -> None:
    small: dict[str, Any] = {"engine": "hybrid", "kv_cache_memory_bytes": 200 * MIB}
    longest = 1600  # of 128 KiB a token
    refused = fit("llama-3.1-8b", "h100", context="8k", request_tokens=4096, **small)
    assert refused.verdict == "does_not_fit"
    assert refused.max_model_len_that_fits == longest
    assert fit("llama-3.1-8b", "h100", context=longest, **small).verdict == "fits"
    assert fit("llama-3.1-8b", "h100", context=longest + 1, **small).verdict == "does_not_fit"
    drawn = fit("llama-3.1-8b", "h100", lengths="uniform:100,4000", **small)
    assert drawn.max_model_len_that_fits == longest
    piece = fit("llama-3.1-8b", "h100", first_tokens=4096, **small)
    assert piece.max_model_len_that_fits == 0, "a piece that was asked for stays"
