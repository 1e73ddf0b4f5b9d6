"""What SGLang makes of whole deployments: pools, refusals, remedies and their direction."""

from __future__ import annotations

from typing import Any

import pytest

from tokenroom import fit
from tokenroom.engines.sglang.plan import SGLangPlan
from tokenroom.engines.sglang.taken import LOADING_BYTES
from tokenroom.errors import DeploymentError, TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import custom_accelerator
from tokenroom.reports.fit_json import fit_json
from tokenroom.reports.messages import notice_text, refusal_text
from tokenroom.units import GIB, MIB


def _plan(model: str, gpu: str, **given: Any) -> SGLangPlan:
    plan = fit(model, gpu, engine="sglang", **given).plan
    assert isinstance(plan, SGLangPlan)
    return plan


def _texts(result: FitResult) -> str:
    return "\n".join(notice_text(notice, "en") for notice in result.notices)


def test_the_pool_is_what_the_static_share_leaves() -> None:
    plan = _plan("llama-3.1-8b", "h100")
    part = plan.parts[0]
    rest = part.free_after_bytes - part.slack_bytes
    assert plan.resolved.mem_fraction_static == 0.83
    assert plan.kv_pool_tokens == rest // (32 * 8 * 256 * 2)
    assert plan.kv_block_size == 1
    assert plan.kv_blocks == plan.kv_pool_tokens
    assert plan.max_concurrency == plan.kv_pool_tokens / 131072


def test_its_log_figures_add_up() -> None:
    plan = _plan("llama-3.1-8b", "h100")
    figures = plan.log_figures()
    stage = plan.stages[0]
    assert figures.k_bytes == figures.v_bytes == (plan.kv_pool_tokens + 1) * 32 * 8 * 128 * 2
    taken = stage.weights_bytes + LOADING_BYTES
    assert figures.avail_after_load_bytes == figures.avail_before_load_bytes - taken
    assert figures.avail_after_graphs_bytes < figures.avail_after_pool_bytes
    assert plan.engine_figures["max_total_num_tokens"] == plan.kv_pool_tokens


def test_a_larger_fraction_means_more_tokens_and_less_room_beside_them() -> None:
    plans = [_plan("llama-3.1-8b", "h100", util=share) for share in (0.7, 0.8, 0.9)]
    tokens = [plan.kv_pool_tokens for plan in plans]
    free = [plan.stages[0].free_bytes for plan in plans]
    assert tokens == sorted(tokens)
    assert free == sorted(free, reverse=True)


def test_eight_bit_cache_doubles_the_tokens() -> None:
    plain = _plan("llama-3.1-8b", "h100").kv_pool_tokens
    narrow = _plan("llama-3.1-8b", "h100", kv="fp8").kv_pool_tokens
    assert narrow in (2 * plain, 2 * plain + 1)


def test_a_limit_on_tokens_makes_the_pool_exact() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang", max_total_tokens=100_000, page_size=64)
    assert result.plan.kv_pool_tokens == 100_000 // 64 * 64
    assert result.plan.pool_is_exact
    assert result.kv_pool_tokens_range == (result.plan.kv_pool_tokens,) * 2


def test_the_smallest_stage_decides() -> None:
    plan = _plan("llama-3.1-70b", "h100", tp=4, pp=3)
    alone = [part.pools.max_total_num_tokens for part in plan.parts]
    assert len(set(alone)) > 1
    assert plan.kv_pool_tokens == min(alone)


def test_dp_attention_repeats_attention_and_gives_each_copy_a_pool() -> None:
    shared = fit("deepseek-r1", "h200", engine="sglang", tp=8)
    copies = fit("deepseek-r1", "h200", engine="sglang", tp=8, dp=8, enable_dp_attention=True)
    assert copies.deployment.node.count == 8
    one = shared.plan.stages[0].weights
    many = copies.plan.stages[0].weights
    assert many["experts"] == one["experts"]
    assert many["attention"] > 5 * one["attention"]
    assert "one of 8" in _texts(copies)


def test_replicas_need_more_gpus() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang", dp=4)
    assert result.deployment.node.count == 4
    assert result.plan.max_num_seqs == 4 * 2048


def test_too_small_a_share_says_raise_it() -> None:
    result = fit("llama-3.1-70b", "h100", engine="sglang", tp=2)
    refusal = result.plan.refusal
    assert refusal is not None
    assert (refusal.cause, refusal.phase) == ("static_share_too_small", "kv_init")
    sentence = refusal_text(refusal, "en")
    assert "raise --mem-fraction-static" in sentence
    assert "0.848" in sentence
    flags = [change.flags for change in result.changes_that_fit]
    assert all("0.7" not in flag for flag in flags)
    assert any("--tp-size 4" in flag for flag in flags)


def test_a_hybrid_needs_one_share_whatever_it_has() -> None:
    def of(fraction: float) -> FitResult:
        return fit("jamba", "h200", engine="sglang@0.4.6", context=1000, util=fraction)

    refusals = [of(fraction).plan.refusal for fraction in (0.3, 0.506, 0.648, 0.686)]
    least = {str(refusal.values["least"]) for refusal in refusals if refusal is not None}
    needed = {refusal.needed_bytes for refusal in refusals if refusal is not None}
    assert len(least) == len(needed) == 1
    assert of(float(least.pop()) + 0.001).verdict == "fits"


def test_pools_that_have_nothing_are_empty_and_not_less() -> None:
    result = fit("jamba", "h200", engine="sglang@0.4.6", context=1000, util=0.3)
    (stage,) = result.plan.stages
    assert result.requests_held == result.requests_running == result.plan.max_num_seqs == 0
    assert stage.buffers_bytes >= 0
    assert stage.kv_pool_bytes == 0


def test_every_remedy_holds_a_request_of_the_allowed_length() -> None:
    result = fit("llama-3.1-70b", "h100", engine="sglang", tp=2)
    assert result.changes_that_fit
    for change in result.changes_that_fit:
        assert change.requests_running >= 1


def test_no_room_for_graphs_says_lower_it() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang", util=0.985)
    refusal = result.plan.refusal
    assert refusal is not None
    assert (refusal.cause, refusal.phase) == ("cuda_graphs", "graph_capture")
    first = result.changes_that_fit[0]
    assert first.flags.startswith("--mem-fraction-static")
    assert float(first.flags.split()[1]) < 0.985


def test_what_nothing_profiles_is_a_warning_with_its_remedy() -> None:
    result = fit(
        "llama-3.1-8b",
        "h100",
        engine="sglang",
        util=0.93,
        chunked_prefill_size=65536,
        enforce_eager=True,
    )
    assert result.plan.refusal is None
    text = _texts(result)
    assert "lower --mem-fraction-static to about 0.89" in text
    assert "may run out of memory while serving" in text


def test_a_pool_shorter_than_the_context_is_a_warning() -> None:
    result = fit("llama-3.1-8b", custom_accelerator(22 * GIB), engine="sglang", util=0.82)
    assert result.plan.refusal is None
    assert 0 < result.plan.kv_pool_tokens < 131072
    assert "longer requests are refused" in _texts(result)
    assert result.max_model_len_that_fits == result.plan.kv_pool_tokens


def test_states_and_tokens_share_by_ratio() -> None:
    plan = _plan("Qwen/Qwen3-Next-80B-A3B-Instruct", "h100", tp=4)
    states = plan.parts[0].states
    assert states is not None
    share = states.num_bytes / (states.num_bytes + plan.parts[0].token_bytes)
    assert share == pytest.approx(0.9 / 1.9, abs=0.01)
    assert plan.running == states.slots // 5
    assert plan.engine_figures["max_mamba_cache_size"] == states.slots


def test_window_layers_have_a_smaller_pool() -> None:
    plan = _plan("openai/gpt-oss-20b", "h100")
    assert plan.pools.window_tokens == int(plan.kv_pool_tokens * 0.8)
    whole = _plan("openai/gpt-oss-20b", "h100", disable_hybrid_swa_memory=True)
    assert whole.pools.window_tokens is None
    assert whole.kv_pool_tokens < plan.kv_pool_tokens


def test_hicache_pins_host_memory() -> None:
    plan = _plan("llama-3.1-8b", "h100", enable_hierarchical_cache=True, hicache_ratio=3.0)
    assert plan.host_pool_bytes == pytest.approx(3 * plan.stages[0].kv_pool_bytes, rel=1e-6)
    sized = _plan("llama-3.1-8b", "h100", enable_hierarchical_cache=True, hicache_size_bytes=10**11)
    assert sized.host_pool_bytes == 10**11


def test_adapters_and_drafts_are_charged_before_the_pool() -> None:
    bare = _plan("deepseek-r1", "h200", tp=8)
    drafting = _plan("deepseek-r1", "h200", tp=8, speculative_algorithm="EAGLE")
    assert drafting.stages[0].weights["draft"] > GIB
    assert drafting.parts[0].draft_bytes_per_token == 576 * 2
    assert drafting.kv_pool_tokens < bare.kv_pool_tokens
    adapters = _plan("llama-3.1-8b", "h100", enable_lora=True, max_lora_rank=64)
    assert adapters.stages[0].weights["lora"] > GIB


def test_weights_may_stay_on_the_host() -> None:
    bare = _plan("llama-3.1-8b", "h100")
    kept = _plan("llama-3.1-8b", "h100", cpu_offload_bytes=4 * GIB)
    moved = bare.stages[0].weights_bytes - kept.stages[0].weights_bytes
    assert 4 * GIB <= moved < 4 * GIB + 200 * MIB


def test_the_answer_keeps_its_json_form() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang@0.5.9")
    data = fit_json(result, language="en", explain=True)
    assert data["engine"] == {"name": "sglang", "version": "0.5.9"}
    assert data["engine_figures"]["max_total_num_tokens"] == data["kv_pool_tokens"]
    assert data["deployment"]["mem_fraction_static"]["value"] == 0.835
    assert "max_total_num_tokens" in data["remarks"][0]
    keys = [line["key"] for line in data["explain"]]
    assert keys.index("free_before_load") < keys.index("token_budget") < keys.index("kv_pool")


def test_longer_contexts_can_be_swept() -> None:
    result = fit("llama-3.1-8b", "h100", engine="sglang")
    shorter = result.with_settings(max_model_len=8192)
    assert shorter.plan.max_model_len == 8192
    assert shorter.requests_held == shorter.plan.kv_pool_tokens // 8192


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kv_cache_memory_bytes": GIB}, "takes no size for its KV cache"),
        ({"mem_fraction": 0.9}, "did you mean mem_fraction_static"),
        ({"util": 1.5}, "mem_fraction_static is 1.5"),
        ({"tp": 0}, "tp_size is 0"),
        ({"page_size": -1}, "page_size is -1"),
        ({"gpus": 2, "tp": 4}, "needs 4 GPUs and there are 2"),
    ],
)
def test_impossible_settings_get_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TokenroomError, match=sentence) as caught:
        fit("llama-3.1-8b", "h100", engine="sglang", **given)
    assert isinstance(caught.value, DeploymentError)
    assert "\n" not in str(caught.value)


def test_window_layers_keep_what_may_run_when_nothing_is_cached_for_later() -> None:
    given: dict[str, Any] = {"disable_radix_cache": True, "max_running_requests": 256}
    plan = _plan("openai/gpt-oss-20b", "h100", **given)
    by_ratio = _plan("openai/gpt-oss-20b", "h100")
    assert plan.pools.window_tokens == (127 + 128 + 1 + 1) * 256 + 2 * 8192 + 1
    assert plan.kv_pool_tokens > 1.7 * by_ratio.kv_pool_tokens
    limited = _plan("openai/gpt-oss-20b", "h100", max_total_tokens=500_000, **given)
    assert limited.kv_pool_tokens == 500_000
    assert limited.pools.window_tokens == plan.pools.window_tokens


def test_compressed_layers_print_no_more_than_their_pools() -> None:
    plan = _plan("deepseek-ai/DeepSeek-V4-Flash", "h200", tensor_parallel_size=8)
    figures, memory = plan.log_figures(), plan.stages[0]
    assert figures.k_bytes + figures.v_bytes == memory.kv_pool_bytes < memory.total_bytes


def test_a_model_named_as_its_own_draft_brings_its_blocks_only() -> None:
    """As deployments of DeepSeek write it: the checkpoint itself as the draft model."""
    given = {"gpus": 8, "engine": "sglang", "tp": 8, "speculative_algorithm": "NEXTN"}
    named = fit("deepseek-v3", "h200", speculative_draft_model_path="deepseek-v3", **given)
    alone = fit("deepseek-v3", "h200", **given)
    assert named.deployment.draft is None
    assert named.governing_stage.weights == alone.governing_stage.weights


@pytest.mark.parametrize(
    ("version", "moved", "keys"),
    [("0.5.13", False, 78), ("0.5.17", False, 78), ("0.5.18", False, 21), ("0.5.18", True, 78)],
)
def test_layers_that_reuse_a_selection_had_its_keys_too(
    version: str, moved: bool, keys: int
) -> None:
    """GLM-5.2: 21 of 78 layers select keys, and all store 656 bytes a token."""
    result = fit(
        "zai-org/GLM-5.2-FP8",
        "h200",
        engine=f"sglang@{version}",
        tp=8,
        kv_cache_dtype="fp8_e4m3",
        enable_hierarchical_cache=moved,
    )
    assert result.plan.stages[0].kv_bytes_per_token == 78 * 656 + keys * 132


def test_layers_that_reuse_a_selection_had_its_weights_too() -> None:
    def attention(version: str) -> int:
        result = fit("zai-org/GLM-5.2-FP8", "h200", engine=f"sglang@{version}", tp=8)
        return result.plan.stages[0].weights["attention"]

    queries = 32 * 128 * 2048 + 4 * 32 * 16  # FP8, a scale for 128 x 128
    plain = 2 * (128 + 32) * 6144  # wk and weights_proj in one, in bfloat16
    assert attention("0.5.17") - attention("0.5.18") == (78 - 21) * (queries + plain)


def test_grok_2_keeps_a_rotary_table_a_block() -> None:
    """64 MiB each, beside the one that get_rope shares (``models/grok.py``)."""
    weights = fit("xai-org/grok-2", "h100", engine="sglang", tp=8).plan.stages[0].weights
    assert weights["positions"] == (64 + 1) * 131072 * 128 * 4
