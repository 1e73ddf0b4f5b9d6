"""Plain transformers through ``fit``: placement, batches, lengths, and bad input."""

import json

import pytest

from tokenroom import fit, sweep
from tokenroom.cli.main import main
from tokenroom.engines.transformers.caches import CacheKind, CacheSettings, quantized_bytes
from tokenroom.errors import DeploymentError, TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.units import GIB, KIB, MIB


def hf(model: str, gpu: str, **settings: object) -> FitResult:
    return fit(model, gpu, engine="transformers", **settings)  # type: ignore[arg-type]


def test_the_ledger_is_that_of_the_batch_asked_for() -> None:
    answer = hf("llama-3.1-8b", "h100", context=4096, concurrency=8)
    stage = answer.plan.stages[0]
    assert stage.kv_pool_bytes == 8 * 4096 * 128 * KIB
    assert answer.plan.kv_blocks == 0
    assert answer.verdict == "fits"


def test_llama_2_7b_at_32k_holds_more_cache_than_weights() -> None:
    stage = hf("llama-2-7b-hf", "a100-80gb", context=32768, concurrency=1).plan.stages[0]
    assert stage.kv_pool_bytes == 16 * GIB > stage.weights_bytes


@pytest.mark.parametrize("tokens", [512, 4096])
def test_the_largest_batch_fits_and_one_more_does_not(tokens: int) -> None:
    plan = hf("llama-3.1-8b", "4090", context=tokens).plan
    most = plan.requests_of(tokens)
    assert plan.fits(most, tokens)
    assert not plan.fits(most + 1, tokens)


def test_the_longest_length_fits_and_one_more_does_not() -> None:
    answer = hf("llama-3.1-8b", "4090", context=4096, concurrency=4)
    longest = answer.max_model_len_that_fits
    assert answer.plan.fits(4, longest)
    assert not answer.plan.fits(4, longest + 1)


def test_a_batch_beyond_the_card_runs_smaller() -> None:
    answer = hf("llama-3.1-8b", "4090", context=4096, concurrency=12)
    assert answer.verdict == "fits_with_less"
    assert 0 < answer.requests_running < 12
    assert answer.plan.stages[0].free_bytes < 0
    keys = [change.key for change in answer.changes_that_fit]
    assert keys == ["kv_cache_dtype", "weights", "num_gpus"]


def test_eager_attention_pays_for_scores_and_the_cache_does_not_change() -> None:
    fused = hf("llama-3.1-8b", "h200", context=8192).plan.stages[0]
    eager = hf("llama-3.1-8b", "h200", context=8192, attn_implementation="eager").plan.stages[0]
    assert eager.kv_pool_bytes == fused.kv_pool_bytes
    scores = 32 * 8192**2 * 10
    assert eager.activation.num_bytes - fused.activation.num_bytes > 0.8 * scores


def test_logits_of_the_whole_prompt() -> None:
    last = hf("llama-3.1-8b", "h100", context=8192).plan.stages[0].activation
    every = hf("llama-3.1-8b", "h100", context=8192, logits_to_keep=0).plan.stages[0].activation
    assert every.num_bytes >= 8192 * 128256 * 2 > last.num_bytes


def test_a_static_cache_is_laid_out_at_full_length() -> None:
    settings = {"context": 8192, "request_tokens": 8192}
    dynamic = hf("gemma-3-27b-it", "h100", **settings).plan.stages[0]
    static = hf("gemma-3-27b-it", "h100", cache_implementation="static", **settings).plan.stages[0]
    assert static.kv_pool_bytes == dynamic.kv_pool_bytes
    # Sliding layers keep a view of the whole prompt until the next step; static ones never do.
    assert static.activation.num_bytes < dynamic.activation.num_bytes


@pytest.mark.parametrize(
    ("kv", "bits"), [("fp8", 8), ("int8", 8 + 0.5), ("int4", 4 + 0.5), ("int2", 2 + 0.5)]
)
def test_quantised_caches(kv: str, bits: float) -> None:
    plain = hf("llama-3.1-8b", "h100", context=8192).plan.stages[0].kv_pool_bytes
    narrow = hf("llama-3.1-8b", "h100", context=8192, kv=kv).plan.stages[0].kv_pool_bytes
    assert narrow == pytest.approx(plain * bits / 16, rel=0.001)


def test_layers_are_spread_over_gpus_and_what_is_left_goes_to_the_host() -> None:
    two = hf("llama-3.1-70b", "a100-80gb", gpus=2, context=4096)
    assert len(two.plan.stages) == 2
    assert sum(stage.kv_pool_bytes for stage in two.plan.stages) == 4096 * 320 * KIB
    assert not two.plan.placement.host
    one = hf("llama-3.1-70b", "a100-80gb", context=4096)
    assert one.plan.placement.host
    assert "weights_offloaded" in {notice.key for notice in one.notices}
    whole = hf("llama-3.1-70b", "a100-80gb", context=4096, device_map="none")
    assert whole.plan.refusal is not None
    assert whole.plan.refusal.cause == "weights_too_big"


def test_a_prompt_alone_may_be_too_much() -> None:
    answer = hf("llama-3.1-8b", "4090", context=131072, attn_implementation="eager")
    assert answer.plan.refusal is not None
    assert answer.plan.refusal.cause == "pass_peak"
    short = hf(
        "llama-3.1-8b", "4090", context=131072, prompt_tokens=1024, attn_implementation="eager"
    )
    assert short.plan.refusal is not None
    assert short.plan.refusal.cause == "kv_below_one_request"


def test_growth_with_concurrency_is_linear() -> None:
    points = sweep(hf("llama-3.1-8b", "h100", context=4096), "concurrency", [1, 2, 4, 8])
    assert {point.weights_bytes for point in points} == {points[0].weights_bytes}
    used = [point.kv_used_bytes for point in points]
    assert used == [batch * 4096 * 128 * KIB for batch in (1, 2, 4, 8)]
    peaks = [point.activation_bytes - 32 * MIB for point in points]  # less cuBLAS's workspace
    assert peaks[3] == pytest.approx(8 * peaks[0], rel=0.01)


@pytest.mark.parametrize(
    "model", ["deepseek-v3", "qwen3-next-80b-a3b-instruct", "gpt-oss-20b", "mixtral-8x7b-v0.1"]
)
def test_models_of_every_kind(model: str) -> None:
    answer = hf(model, "h200", gpus=8, context=4096, concurrency=2)
    assert answer.verdict == "fits"
    stage = answer.governing_stage
    assert stage.activation.low_bytes < stage.activation.num_bytes < stage.activation.high_bytes
    assert [line.key for line in answer.explain][:2] == ["total", "weights"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"kv": "q4"}, "the KV cache type is 'q4'"),
        ({"nbits": 5, "cache_implementation": "quantized"}, "nbits is 5"),
        ({"attn_implementation": "fast"}, "attn_implementation is 'fast'"),
        ({"device_map": "everywhere"}, "device_map is 'everywhere'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"util": 0.5}, "transformers takes no share of a GPU; leave --util out"),
        ({"enforce_eager": True}, "has no setting 'enforce_eager'"),
        ({"version": "4.40"}, "transformers 5.0 and later"),
    ],
)
def test_bad_input_is_one_sentence(setting: dict[str, object], words: str) -> None:
    with pytest.raises(TokenroomError) as caught:
        hf("llama-3.1-8b", "h100", context=4096, **setting)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_quantised_caches_take_full_attention_only() -> None:
    with pytest.raises(DeploymentError, match="sliding windows"):
        hf("gemma-3-27b-it", "h100", context=4096, kv="int4")
    with pytest.raises(DeploymentError, match="recurrent"):
        hf("qwen3-next-80b-a3b-instruct", "h200", gpus=4, context=4096, kv="int4")


def test_groups_must_divide_the_values() -> None:
    settings = CacheSettings(kind=CacheKind.QUANTIZED, group_size=64)
    with pytest.raises(DeploymentError, match="q_group_size is 64"):
        quantized_bytes(100, settings)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "llama-3.1-8b", "--gpu", "h100", "--engine", "transformers", "--context", "4k"]
    assert main([*words, "--concurrency", "4", "--set", "attn_implementation=eager"]) == 0
    assert "No pool" in capsys.readouterr().out
    assert main([*words, "--kv", "int4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["deployment"]["cache_implementation"]["value"] == "quantized"
