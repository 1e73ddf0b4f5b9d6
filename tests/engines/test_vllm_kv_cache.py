"""vLLM's KV cache sizing against recorded runs of its own code and against published logs."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.engines.vllm.kv_cache import (
    KVCachePlan,
    in_flight_tokens,
    max_model_len_that_fits,
    plan_kv_cache,
    printed_gib,
)
from tokenroom.engines.vllm.kv_groups import cache_groups, merged
from tokenroom.engines.vllm.kv_layers import LayerCaches
from tokenroom.engines.vllm.kv_pool import PoolLayout, lay_out, pool_layout
from tokenroom.engines.vllm.kv_rules import NEWEST, NeededBytes, WindowBlock, kv_cache_rules
from tokenroom.engines.vllm.kv_settings import KVCacheSettings
from tokenroom.engines.vllm.kv_specs import (
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestBounds,
    SlidingWindowSpec,
)
from tokenroom.errors import DeploymentError
from tokenroom.models.hf_config import read_config, read_config_file
from tokenroom.models.spec import Indexer, LatentAttention, Layer, ModelSpec
from tokenroom.units import GIB

FIXTURES = Path(__file__).parent.parent / "fixtures"
MODELS: Mapping[str, dict[str, Any]] = json.loads((FIXTURES / "vllm_kv_models.json").read_text())

KINDS = {
    "FullAttentionSpec": "full_attention",
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "chunked_local_attention",
    "MLAAttentionSpec": "mla_attention",
    "SlidingWindowMLASpec": "sliding_window_mla",
    "CrossAttentionSpec": "cross_attention",
    "MambaSpec": "mamba",
}
MIXED = "UniformTypeKVCacheSpecs"


def recorded() -> Iterator[dict[str, Any]]:
    for line in (FIXTURES / "vllm_kv_cases.jsonl").read_text().splitlines():
        yield json.loads(line)


def layout_kinds(plan: KVCachePlan) -> Counter[tuple[str, int]]:
    return Counter(
        (MIXED if group.mixed else group.spec.kind, shown.block_size)
        for group, shown in zip(plan.layout.groups, plan.groups, strict=True)
    )


@cache
def spec_of(name: str) -> ModelSpec:
    return read_config(MODELS[name], name)


def settings_of(case: Mapping[str, Any]) -> KVCacheSettings:
    return KVCacheSettings(
        tensor_parallel_size=case.get("tensor_parallel_size", 1),
        pipeline_parallel_size=case.get("pipeline_parallel_size", 1),
        decode_context_parallel_size=case.get("decode_context_parallel_size", 1),
        block_size=case.get("block_size", 16),
        kv_cache_dtype=case.get("kv_cache_dtype", "auto"),
        model_dtype=case["dtype"],
        mamba_cache_mode=case["mamba_cache_mode"],
        num_speculative_tokens=case.get("num_speculative_tokens", 0),
        hybrid_manager=not case.get("disable_hybrid_kv_cache_manager", False),
    )


@pytest.mark.parametrize("model", MODELS)
def test_recorded_runs_of_vllm(model: str):
    cases = [case for case in recorded() if case["model"] == model]
    assert cases
    for case in cases:
        settings = settings_of(case)
        if not case["needed"]:
            with pytest.raises(DeploymentError):
                pool_layout(spec_of(model), settings)
            continue
        layout = pool_layout(spec_of(model), settings)
        available = case.get("available_bytes", 20 * GIB)
        plan = plan_kv_cache(
            layout,
            available,
            max_model_len=case["max_model_len"],
            max_in_flight_tokens=case["in_flight"],
            max_encoder_tokens=case.get("encoder_tokens", 0),
            num_gpu_blocks_override=case.get("num_gpu_blocks_override"),
        )
        assert plan.block_size == case["effective_block_size"], case
        assert plan.fits == ("refused" not in case), case
        if not plan.fits:
            assert [plan.needed_bytes, plan.checked_bytes] == case["needed"][-1], case
            assert plan.estimated_max_model_len == case.get("estimate", 0), case
            assert printed_gib(plan.needed_bytes) in case["refused"]
            assert printed_gib(plan.checked_bytes) in case["refused"]
            assert printed_gib(plan.checked_bytes) in plan.refusal_sentence()
            continue
        assert plan.num_blocks == case["num_blocks"], case
        assert plan.max_concurrency == case["concurrency"], case
        assert plan.kv_tokens == case["tokens"], case
        assert list(layout.stage_block_bytes) == case["block_bytes"], case
        needed = [layout.needed_bytes(stage, plan.bounds) for stage in range(len(case["needed"]))]
        assert needed == [need for need, _ in case["needed"]], case
        theirs = Counter(
            (
                KINDS.get(kind, kind),
                case["max_model_len"] if size == case["longest"] else size,
            )
            for kind, size in case["groups"]
        )
        assert layout_kinds(plan) == theirs, case


def test_the_length_that_vllm_settles_on():
    fitted = 0
    for case in recorded():
        if case["max_model_len"] == case["longest"] or "num_gpu_blocks_override" in case:
            continue
        fitted += 1
        layout = pool_layout(spec_of(case["model"]), settings_of(case))
        longest = max_model_len_that_fits(
            layout,
            case["available_bytes"],
            longest=case["longest"],
            max_in_flight_tokens=case["in_flight"],
            max_encoder_tokens=case.get("encoder_tokens", 0),
        )
        assert longest == case["max_model_len"], case
    assert fitted > 20


# The quantisation block of these names no method or producer that vLLM recognises, so that it
# builds them, and their caches, in the model's own type.
READ_AS_PLAIN = {
    "Qwen/Qwen3-32B-FP8-Static-PerTensor",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8",
}


def oracle_settings(row: Mapping[str, Any]) -> KVCacheSettings:
    given_settings, note = row["settings"], row["note"]
    raw = "raw CPU platform" in note  # kernel blocks and state type of a CPU
    block_size = given_settings["block_size"]
    if "CPU platform forces MLA block_size" in note:
        block_size = row["block_size_effective"]
    kv_cache_dtype = given_settings["kv_cache_dtype"]
    if kv_cache_dtype == "auto" and row["model"] in READ_AS_PLAIN:
        kv_cache_dtype = "bfloat16"
    return KVCacheSettings(
        tensor_parallel_size=given_settings["tensor_parallel_size"],
        pipeline_parallel_size=given_settings["pipeline_parallel_size"],
        block_size=block_size,
        kv_cache_dtype=kv_cache_dtype,
        mamba_cache_mode=row["mamba_cache_mode"] or "none",
        mamba_ssm_cache_dtype="float32" if raw else "auto",
        kernel_block_size=32 if raw else 16,
    )


def differences(row: Mapping[str, Any], spec: ModelSpec) -> list[tuple[str, Any, Any]]:
    """(what, ours, theirs) wherever a row of the shared oracle is not met."""
    given_settings = row["settings"]
    layout = pool_layout(spec, oracle_settings(row))
    plan = plan_kv_cache(
        layout,
        given_settings["kv_cache_memory_bytes"],
        max_model_len=given_settings["max_model_len"],
        max_in_flight_tokens=row["max_in_flight_tokens"],
    )
    stage = row["rank"]["pp_rank"]
    single = given_settings["pipeline_parallel_size"] == 1
    found = [
        ("block_size", plan.block_size, row["block_size_effective"]),
        ("refused", not plan.fits, row["refused"]),
    ]
    if row["refused"]:
        estimate = plan.estimated_max_model_len or None
        found.append(("estimate", estimate, row["estimated_max_model_len"]))
        if single:
            found += [
                ("needed", plan.needed_bytes, row["needed_bytes"]),
                ("checked", plan.checked_bytes, row["check_available_bytes"]),
                ("needed GiB", printed_gib(plan.needed_bytes), row["needed_gib_printed"]),
                ("available GiB", printed_gib(plan.checked_bytes), row["available_gib_printed"]),
            ]
    else:
        theirs = Counter((KINDS.get(kind, kind), size) for kind, _, size in row["kv_groups"])
        found += [
            ("kinds", layout_kinds(plan), theirs),
            ("bytes_per_block", layout.stage_block_bytes[stage], row["bytes_per_block"]),
            ("num_blocks", plan.num_blocks, row["num_blocks"]),
            ("concurrency", plan.max_concurrency, row["max_concurrency"]),
            ("tokens", plan.kv_tokens, row["kv_tokens_printed"]),
            ("needed", layout.needed_bytes(stage, plan.bounds), row["needed_bytes"]),
        ]
        if single:
            layers = sorted(count for _, count, _ in row["kv_groups"])
            found += [
                ("layers", sorted(group.num_layers for group in plan.groups), layers),
                (
                    "pages",
                    sorted(group.page_bytes for group in plan.groups),
                    sorted(row["group_page_bytes"]),
                ),
            ]
    return [entry for entry in found if entry[1] != entry[2]]


@pytest.mark.shared
def test_every_shared_oracle_row_is_met_exactly(shared: Path):
    specs: dict[str, ModelSpec | None] = {}
    compared, off = 0, []
    with gzip.open(shared / "oracle" / "vllm_oracle.jsonl.gz", "rt") as rows:
        for line in rows:
            row = json.loads(line)
            folder = row["config_dir"]
            if folder not in specs:
                specs[folder] = read_config_file(shared / "zoo" / folder)
            found = differences(row, specs[folder])
            compared += 1
            if found:
                off.append((row["model"], row["settings"], found))
    assert compared == 3488
    assert not off, f"{len(off)} rows are off, the first: {off[0]}"


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
# Published dimensions of models without a configuration in the shared zoo.
DIMENSIONS = {
    "granite-3.1-2b": (2048, 8192, 40, 32, 8, None),
    "granite-3.3-8b": (4096, 12800, 40, 32, 8, None),
    "phi-4": (5120, 17920, 40, 40, 10, None),
    "mistral-small-3.1-24b": (5120, 32768, 40, 32, 8, 128),
}
GEMMA_3_12B = {
    **LLAMA,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
SAME_SHAPE = {
    "llama-3.3-70b": "meta-llama__Llama-3.1-70B-Instruct",
    "llama-3.1-8b": "meta-llama__Llama-3.1-8B-Instruct",
    "qwen2.5-7b": "Qwen__Qwen2.5-7B-Instruct-SYNTH-CTFP8dyn",
    "mixtral-8x7b": "mistralai__Mixtral-8x7B-v0.1",
    "kimi-dev-72b": "Qwen__Qwen2.5-72B-Instruct",
}


def logged_model(name: str, zoo: Path) -> ModelSpec:
    lower = name.lower()
    if "gemma-3-12b" in lower:
        return read_config(GEMMA_3_12B, name)
    for part, (width, inner, layers, heads, kv_heads, head_dim) in DIMENSIONS.items():
        if part in lower:
            config = {
                **LLAMA,
                "hidden_size": width,
                "intermediate_size": inner,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
            }
            return read_config(config | ({"head_dim": head_dim} if head_dim else {}), name)
    for part, folder in SAME_SHAPE.items():
        if part in lower:
            return read_config_file(zoo / folder)
    return read_config_file(zoo / name.replace("/", "__", 1))


@pytest.mark.shared
def test_logs_of_vllm_0_19_on_an_h100(shared: Path):
    """Tokens and concurrency follow from the logged GiB, within the rounding of two decimals.

    With pipeline stages the log shows the first stage's GiB while the last, which holds the
    output head, decides: there ours may only be higher.
    """
    compared = 0
    for line in (shared / "truth" / "engine_memory.jsonl").read_text().splitlines():
        row = json.loads(line)
        reported, flags = row["reported"], row["flags"]
        logged = row["id"].startswith("h100v019") and {"kv_gib", "kv_tokens"} <= reported.keys()
        if row["engine"] != "vllm" or not logged:
            continue
        compared += 1
        settings = KVCacheSettings(
            tensor_parallel_size=flags.get("tensor_parallel_size", 1),
            pipeline_parallel_size=flags.get("pipeline_parallel_size", 1),
            kv_cache_dtype=flags.get("kv_cache_dtype", "auto"),
            model_dtype=flags.get("dtype"),
        )
        spec = logged_model(row["model"], shared / "zoo" / "configs")
        layout = pool_layout(spec, settings, kv_cache_rules(row["engine_version"]))
        low, high = (
            plan_kv_cache(
                layout,
                int((reported["kv_gib"] + rounding) * GIB),
                max_model_len=flags["max_model_len"],
                max_in_flight_tokens=8192,
            )
            for rounding in (-0.005, 0.005)
        )
        assert low.kv_tokens <= high.kv_tokens, row["id"]
        assert reported["kv_tokens"] <= high.kv_tokens, row["id"]
        assert reported["max_concurrency"] <= high.max_concurrency + 0.005, row["id"]
        if settings.pipeline_parallel_size == 1:
            assert low.kv_tokens <= reported["kv_tokens"], row["id"]
            assert low.max_concurrency - 0.005 <= reported["max_concurrency"], row["id"]
    assert compared == 48


FULL = FullAttentionSpec(block_size=16, num_kv_heads=8, cell_bytes=512)
WINDOWED = SlidingWindowSpec(block_size=16, num_kv_heads=8, cell_bytes=512, window=1024)
LATENT = MLAAttentionSpec(block_size=16, num_kv_heads=1, cell_bytes=1152, layout="bfloat16")
STATE = MambaSpec(block_size=0, shapes=((4, 8192),), dtypes=("bfloat16",))


def caches(*specs: Any) -> LayerCaches:
    return LayerCaches(
        caches=dict(enumerate(specs)),
        stages=(frozenset(range(len(specs))),),
        block_size=16,
        block_outermost=False,
    )


def plan(layout: PoolLayout, available_bytes: int, max_model_len: int = 8192) -> KVCachePlan:
    return plan_kv_cache(
        layout, available_bytes, max_model_len=max_model_len, max_in_flight_tokens=2048
    )


def test_groups_are_striped_and_the_short_one_wastes_pages():
    groups = cache_groups(caches(*[WINDOWED] * 5, FULL, FULL).caches, NEWEST)
    assert [group.caches for group in groups] == [(0, 3), (1, 4), (2,), (5, 6)]


def test_buckets_of_about_the_same_size_take_the_larger():
    specs = caches(*[FULL] * 13, *[WINDOWED] * 12).caches
    sizes = [len(group.caches) for group in cache_groups(specs, NEWEST)]
    assert sizes == [13, 12]
    old = [len(group.caches) for group in cache_groups(specs, kv_cache_rules("0.11.0"))]
    assert old == [7, 6, 12]


def test_smaller_pages_take_more_tokens_a_block():
    half = replace(FULL, num_kv_heads=4)
    groups = cache_groups(caches(WINDOWED, half).caches, NEWEST)
    assert [(group.spec.block_size, group.page_bytes) for group in groups] == [
        (16, 65536),
        (32, 65536),
    ]
    with pytest.raises(DeploymentError, match="one size"):
        cache_groups(caches(WINDOWED, half).caches, kv_cache_rules("0.11.0"))


def test_pages_that_do_not_divide_are_padded_from_0_24_on():
    odd = replace(FULL, num_kv_heads=3)
    groups = cache_groups(caches(WINDOWED, odd).caches, NEWEST)
    assert [group.page_bytes for group in groups] == [65536, 65536]
    with pytest.raises(DeploymentError, match="one size"):
        cache_groups(caches(WINDOWED, odd).caches, kv_cache_rules("0.23.0"))


def test_latents_beside_foreign_windows_are_allotted_in_full():
    groups = cache_groups(caches(LATENT, LATENT, WINDOWED).caches, NEWEST)
    assert len(groups) == 1
    assert groups[0].mixed
    assert groups[0].page_bytes == 2 * 16 * 1152 + 65536


def test_latents_beside_chunks_and_states_cannot_be_unified():
    with pytest.raises(DeploymentError, match="one size"):
        cache_groups(
            caches(LATENT, replace(STATE, shapes=((3, 5),))).caches, kv_cache_rules("0.25")
        )


def test_without_the_hybrid_manager_windows_are_full():
    layout = lay_out(caches(FULL, WINDOWED), hybrid_manager=False)
    assert len(layout.groups) == 1
    assert layout.groups[0].spec.kind == "full_attention"
    assert layout.groups[0].spec == replace(FULL, window=1024)
    with pytest.raises(DeploymentError, match="hybrid"):
        lay_out(caches(FULL, STATE), hybrid_manager=False)


def test_full_specs_with_two_windows_do_not_merge():
    assert merged([replace(FULL, window=8), replace(FULL, window=16)]) is None
    assert merged([FULL, replace(FULL, window=16)]) == replace(FULL, window=16)
    assert merged([FULL, replace(FULL, num_kv_heads=4)]) is None
    assert merged([FULL, LATENT]) is None


def test_a_model_without_caches_needs_nothing():
    empty = plan(lay_out(caches()), GIB)
    assert (empty.num_blocks, empty.kv_tokens, empty.fits) == (1, 0, True)
    assert empty.requests_of(100) == 0


def test_the_null_block_is_left_out_of_the_check_from_0_29_on():
    exact = 512 * FULL.page_bytes  # 8192 tokens to the byte
    new, old = (
        plan(lay_out(caches(FULL), kv_cache_rules(version)), exact)
        for version in ("0.29.0", "0.28.0")
    )
    assert (new.fits, old.fits) == (False, True)
    assert new.estimated_max_model_len == 8192 - 16
    assert new.num_blocks == old.num_blocks == 512
    assert new.usable_blocks == 511
    assert plan(lay_out(caches(FULL)), exact + FULL.page_bytes).fits


def test_no_memory_at_all():
    refused = plan(lay_out(caches(FULL)), -5)
    assert not refused.fits
    assert refused.num_blocks == 0
    assert refused.refusal_sentence() == "No available memory for the cache blocks."
    assert plan(lay_out(caches(FULL)), GIB).refusal_sentence() == ""


def test_printed_tokens_before_0_20_1_are_those_of_one_group():
    specs = caches(*[FULL] * 2, *[WINDOWED] * 4)
    available = 100 * 2 * FULL.page_bytes
    old = plan(lay_out(specs, kv_cache_rules("0.19.0")), available, 512)
    new = plan(lay_out(specs, kv_cache_rules("0.20.1")), available, 512)
    assert old.kv_tokens == 100 // 3 * 16
    assert new.kv_tokens == int(100 / (32 + 2 * 33) * 512)
    assert old.max_concurrency == new.max_concurrency


@pytest.mark.parametrize(
    ("version", "needed", "bytes_needed"),
    [
        ("0.11.0", NeededBytes.LAYERS, 2 * 512 * 65536 + 3 * 193 * 65536),
        ("0.16.0", NeededBytes.FIRST_GROUP, 3 * 512 * 65536),
        ("0.19.0", NeededBytes.GROUPS, 3 * (512 + 193) * 65536),
    ],
)
def test_how_versions_add_up_what_a_request_needs(version, needed, bytes_needed):
    rules = replace(kv_cache_rules(version), balance_ratio=2)
    assert rules.needed is needed
    layout = lay_out(caches(FULL, FULL, WINDOWED, WINDOWED, WINDOWED), rules)
    assert layout.needed_bytes(0, RequestBounds(8192, 2048)) == bytes_needed


def test_rules_of_versions():
    assert kv_cache_rules() == kv_cache_rules("0.33.0") == kv_cache_rules("v0.40.1")
    assert kv_cache_rules("0.20.1rc1") == kv_cache_rules("0.20.1+cu129")
    assert not kv_cache_rules("0.20.0").tokens_from_concurrency
    assert kv_cache_rules("0.17.1").balance_ratio == 1.25
    assert kv_cache_rules("0.24.0").window_block is WindowBlock.CACHE
    assert kv_cache_rules("0.29.1").window_block is WindowBlock.SMALLEST
    with pytest.raises(DeploymentError, match="0\\.4\\.0 on"):
        kv_cache_rules("0.3.3")
    with pytest.raises(DeploymentError, match="write it as"):
        kv_cache_rules("latest")


def test_tokens_in_flight():
    assert in_flight_tokens(8192) == 8192
    assert in_flight_tokens(8192, async_scheduling=True) == 16384
    assert in_flight_tokens(8192, pipeline_parallel_size=4) == 4 * 8192
    assert in_flight_tokens(8192, pipeline_parallel_size=4, async_scheduling=True) == 4 * 8192
    assert (
        in_flight_tokens(
            8192, pipeline_parallel_size=4, async_scheduling=True, model_runner_v2=True
        )
        == 5 * 8192
    )
    assert in_flight_tokens(8192, async_scheduling=True, rules=kv_cache_rules("0.25.0")) == 8192


def test_stages_with_memory_of_their_own():
    settings = KVCacheSettings(pipeline_parallel_size=2)
    layout = pool_layout(spec_of("llama-8b-like"), settings)
    small = layout.stage_block_bytes[0] * 700
    uneven = plan_kv_cache(layout, (20 * GIB, small), max_model_len=8192, max_in_flight_tokens=2048)
    assert uneven.num_blocks == 700
    assert uneven.pool_bytes(0) == uneven.pool_bytes(1) == small
    with pytest.raises(DeploymentError, match="2 pipeline stages"):
        plan_kv_cache(layout, (GIB,), max_model_len=8192, max_in_flight_tokens=2048)


def test_mtp_layers_follow_the_models_own():
    spec = spec_of("deepseek-v3")
    plain = pool_layout(spec, KVCacheSettings())
    drafted = pool_layout(spec, KVCacheSettings(), draft_layers=spec.layers[-1:])
    assert drafted.bytes_per_block - plain.bytes_per_block == 16 * 1152


def test_layouts_are_reused():
    spec = spec_of("gemma3")
    assert pool_layout(spec, KVCacheSettings()) is pool_layout(spec, KVCacheSettings())
    assert pool_layout(spec, KVCacheSettings()) is not pool_layout(
        spec, KVCacheSettings(tensor_parallel_size=2)
    )


def test_windows_do_not_go_with_context_parallelism():
    settings = KVCacheSettings(decode_context_parallel_size=2, tensor_parallel_size=2)
    with pytest.raises(DeploymentError, match="sliding windows"):
        pool_layout(spec_of("gemma3"), settings)


def test_qwen2_with_windows_in_some_layers_is_refused():
    config = MODELS["qwen2-no-windows"] | {"use_sliding_window": True}
    with pytest.raises(DeploymentError, match="max_window_layers"):
        pool_layout(read_config(config, "qwen2"), KVCacheSettings())


KIMI_LINEAR_48B = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 163840,
    "torch_dtype": "bfloat16",
    "linear_attn_config": {
        "kda_layers": [n for n in range(1, 28) if n % 4 and n != 27],
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1024,
    "first_k_dense_replace": 1,
}


def test_a_logged_run_of_kimi_linear():
    """vllm-project/vllm issue 28228 (November 2025): 2.3 GiB, 75,840 tokens, 2.48x at 120,000."""
    layout = pool_layout(
        read_config(KIMI_LINEAR_48B, "kimi-linear"),
        KVCacheSettings(tensor_parallel_size=2),
        kv_cache_rules("0.12.0"),
    )
    low, high = (
        plan_kv_cache(layout, int(gib * GIB), max_model_len=120_000, max_in_flight_tokens=64_000)
        for gib in (2.295, 2.305)
    )
    assert layout.block_size == 960
    assert [len(group.caches) for group in layout.groups] == [7, 7, 6, 7]
    assert low.kv_tokens == high.kv_tokens == 75_840
    assert f"{low.max_concurrency:.2f}" == "2.48"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("folder", "version", "gib", "length", "tokens", "drafts", "changes"),
    [
        (
            "nvidia__Qwen3.6-35B-A3B-NVFP4",
            "0.24.0",
            6.01,
            131_072,
            569_878,
            0,
            {"kv_cache_dtype": "fp8"},
        ),
        (
            "Qwen__Qwen3.5-27B",
            "0.20.1",
            11.05,
            262_144,
            623_873,
            3,
            {"kv_cache_dtype": "fp8_e5m2", "tensor_parallel_size": 2, "model_dtype": "float16"},
        ),
    ],
)
def test_logged_runs_of_gated_delta_models(
    shared: Path, folder, version, gib, length, tokens, drafts, changes
):
    spec = read_config_file(shared / "zoo" / "configs" / folder)
    settings = KVCacheSettings(mamba_cache_mode="align", num_speculative_tokens=drafts, **changes)
    layout = pool_layout(
        spec, settings, kv_cache_rules(version), draft_layers=spec.mtp_layers if drafts else ()
    )
    low, high = (
        plan_kv_cache(
            layout, int(around * GIB), max_model_len=length, max_in_flight_tokens=8192
        ).kv_tokens
        for around in (gib - 0.005, gib + 0.005)
    )
    assert low <= tokens <= high
    assert high - low <= 2 * tokens / 400  # one block id more or less


DEEPSEEK_V4_WINDOW = LatentAttention(
    num_heads=64,
    q_lora_rank=1024,
    kv_lora_rank=448,
    qk_nope_head_dim=448,
    qk_rope_head_dim=64,
    v_head_dim=512,
    window=128,
)


def deepseek_v4(ratios: tuple[int, ...]) -> ModelSpec:
    plain = DEEPSEEK_V4_WINDOW
    indexer = Indexer(num_heads=64, head_dim=128, top_k=512)
    kinds = {
        1: plain,
        4: replace(plain, compress_ratio=4, indexer=indexer),
        128: replace(plain, compress_ratio=128),
    }
    layers = {ratio: Layer(mixers=(mixer,), ffn=None, weights=()) for ratio, mixer in kinds.items()}
    spec = spec_of("deepseek-v3")
    return replace(spec, model_type="deepseek_v4", layers=tuple(layers[ratio] for ratio in ratios))


def test_deepseek_v4_packs_pages_of_many_sizes():
    spec = deepseek_v4((1, 1) + (4, 128) * 20 + (4,))
    layout = pool_layout(spec, KVCacheSettings(block_size=256))
    assert [len(group.caches) for group in layout.groups] == [22, 21, 62, 42, 20]
    assert layout.bytes_per_block == 21 * (8640 + 37440) + 20 * 1728
    bf16 = pool_layout(spec, KVCacheSettings(block_size=256, kv_cache_dtype="bfloat16"))
    assert bf16.bytes_per_block == 21 * (8704 + 65536) + 20 * 2048


def test_deepseek_v4_takes_blocks_of_256():
    spec = deepseek_v4((1, 4, 128))
    small, whole = (pool_layout(spec, KVCacheSettings(block_size=size)) for size in (64, 256))
    assert small.block_size == whole.block_size == 256
    assert small.groups == whole.groups


def test_deepseek_v4_before_packed_groups_is_refused():
    spec = deepseek_v4((1, 4, 128))
    with pytest.raises(DeploymentError, match="0\\.27"):
        pool_layout(spec, KVCacheSettings(block_size=256), kv_cache_rules("0.26.0"))


def test_lengths_below_one_are_refused():
    with pytest.raises(DeploymentError, match="max_model_len is 0"):
        plan(lay_out(caches(FULL)), GIB, 0)


def test_a_recurrence_that_vllm_has_not():
    spec = read_config({"model_type": "rwkv", "hidden_size": 64, "num_hidden_layers": 2}, "rwkv")
    with pytest.raises(DeploymentError, match="rwkv"):
        pool_layout(spec, KVCacheSettings())


NAMES = st.sampled_from(
    ["llama-8b-like", "gemma3", "gpt-oss-20b-like", "deepseek-v2", "qwen3-next"]
)
SIZES = st.sampled_from([1, 2, 4])
BYTES = st.integers(0, 200 * GIB)


@given(NAMES, SIZES, BYTES, st.integers(0, 10 * GIB), st.integers(1, 131072))
def test_more_memory_never_holds_less(name, tp, available, more, length):
    layout = pool_layout(spec_of(name), KVCacheSettings(tensor_parallel_size=tp))
    small, large = plan(layout, available, length), plan(layout, available + more, length)
    assert small.num_blocks <= large.num_blocks
    assert small.kv_tokens <= large.kv_tokens
    assert small.fits <= large.fits
    assert small.requests_of(length) <= large.requests_of(length)


@given(NAMES, BYTES, st.integers(1, 131072))
def test_no_block_is_lost_nor_made_up(name, available, length):
    layout = pool_layout(spec_of(name), KVCacheSettings())
    made = plan(layout, available, length)
    assert made.pool_bytes() <= available < made.pool_bytes() + layout.bytes_per_block


@given(NAMES, SIZES, SIZES, st.integers(1, 131072))
def test_more_ranks_never_need_more_of_each(name, few, many, length):
    few, many = sorted((few, many))
    bounds = RequestBounds(length, 2048)
    needs = [
        pool_layout(spec_of(name), KVCacheSettings(tensor_parallel_size=tp)) for tp in (few, many)
    ]
    per_token = [
        layout.bytes_per_block * layout.pages_per_request(bounds) / layout.block_size
        for layout in needs
    ]
    slack = needs[1].bytes_per_block * len(needs[1].groups)
    assert per_token[1] <= per_token[0] + slack


@given(NAMES, BYTES, st.integers(1, 131072))
def test_a_suggested_length_fits_and_one_more_does_not(name, available, length):
    layout = pool_layout(spec_of(name), KVCacheSettings())
    made = plan(layout, available, length)
    if made.fits:
        assert made.estimated_max_model_len is None
        return
    suggested = made.estimated_max_model_len
    assert suggested is not None
    assert suggested < length
    if suggested:
        assert plan(layout, available, suggested).fits
    assert not plan(layout, available, suggested + 1).fits


@given(NAMES, BYTES, st.integers(1, 131072))
def test_the_fitted_length_is_the_longest_that_starts(name, available, longest):
    layout = pool_layout(spec_of(name), KVCacheSettings())
    fitted = max_model_len_that_fits(layout, available, longest=longest, max_in_flight_tokens=2048)
    assert 0 <= fitted <= longest
    if fitted:
        assert plan(layout, available, fitted).fits
    if fitted < longest:
        assert not plan(layout, available, fitted + 1).fits
