"""Token pools, states and running requests against SGLang's own code (scripts/oracle_sglang.py)."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.sglang.cells import attention_cell, elements_bytes, latent_cell
from tokenroom.engines.sglang.compressed import compressed_costs
from tokenroom.engines.sglang.pools import (
    DEFAULT_WINDOW_RATIO,
    has_window_pool,
    max_running_requests,
    token_pools,
    window_cap,
)
from tokenroom.engines.sglang.rules import rules_for
from tokenroom.engines.sglang.states import StateInputs, state_bytes_per_request, state_pool
from tokenroom.errors import DeploymentError
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import Attention, Indexer, LatentAttention
from tokenroom.units import GIB

_NEWEST = rules_for(None)


@lru_cache(maxsize=1)
def _recorded() -> dict[str, Any]:
    file = Path(__file__).parent.parent / "fixtures" / "sglang_pools.json.gz"
    data: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return data


def _cells(case: dict[str, Any]) -> list[Any]:
    dtype, ranks = case["dtype"], case["ranks"]
    if case["latent"] is not None:
        indexer = Indexer(num_heads=64, head_dim=case["index"], top_k=2048)
        mixer = LatentAttention(
            num_heads=128,
            q_lora_rank=1536,
            kv_lora_rank=case["latent"],
            qk_nope_head_dim=128,
            qk_rope_head_dim=case["rotary"],
            v_head_dim=128,
            indexer=indexer if case["index"] else None,
        )
        kind = "nvfp4" if dtype == "fp4" else dtype
        return [latent_cell(mixer, case["full"], kind, _NEWEST, raw=case["raw"])]
    found = []
    for layers, window in ((case["full"], None), (case["window"], 128)):
        if layers:
            heads = Attention(
                num_heads=64,
                num_kv_heads=case["heads"],
                head_dim=case["head_dim"],
                value_head_dim=case["value_dim"],
                window=window,
            )
            found.append(attention_cell(heads, layers, dtype, ranks, _NEWEST))
    return found


def test_pools_hold_the_tokens_of_the_engines_own_configurators() -> None:
    cases = _recorded()["tokens"]
    assert len(cases) > 250
    wrong = []
    for case in cases:
        cells = _cells(case)
        cell = sum(item.num_bytes for item in cells)
        draft = int(cell * case["draft"] / case["full"]) if case["draft"] else 0
        window_ratio = DEFAULT_WINDOW_RATIO if case["window"] else None
        pools = token_pools(
            case["available_bytes"],
            cells,
            page_size=case["page_size"],
            window_ratio=window_ratio,
            draft_bytes_per_token=draft,
        )
        if pools.max_total_num_tokens != case["max_total"] or (
            case["full"] and pools.window_tokens != case["swa"]
        ):
            wrong.append((case, pools))
    assert not wrong, wrong[0]


def test_window_pools_sized_by_what_may_run_are_the_engines_own() -> None:
    cases = _recorded()["capped"]
    assert len(cases) > 20
    for case in cases:
        slots = window_cap(
            page_size=case["page_size"],
            window=128,
            max_running_requests=case["asked"] // case["copies"],
            chunked_prefill_size=case["chunk"],
            overlap=case["overlap"],
        )
        pools = token_pools(
            case["available_bytes"],
            _cells(case),
            page_size=case["page_size"],
            window_ratio=DEFAULT_WINDOW_RATIO,
            window_tokens=slots,
        )
        found = (pools.max_total_num_tokens, pools.window_tokens)
        assert found == (case["max_total"], case["swa"])


def test_states_take_the_slots_of_the_engines_own_rule() -> None:
    for case in _recorded()["states"]:
        given = case["settings"]
        rest = round(case["rest_gib"] * GIB)
        inputs = StateInputs(
            bytes_per_request=case["bytes_per_request"],
            ratio=given.get("mamba_full_memory_ratio", 0.9),
            max_mamba_cache_size=given.get("max_mamba_cache_size"),
            max_running_requests=given.get("max_running_requests"),
            radix_cache=not given.get("disable_radix_cache", False),
            extra_buffer=given.get("extra_buffer", False),
            overlap=not given.get("disable_overlap_schedule", False),
            draft_tokens=given.get("speculative_num_draft_tokens"),
        )
        pool = state_pool(rest, inputs, _NEWEST)
        assert pool.slots == case["slots"], case
        assert pool.slots_per_request == case["slots_per_request"], case
        assert rest - pool.num_bytes == pytest.approx(case["left_gib"] * GIB, abs=1), case


def test_requests_that_run_are_those_of_the_engines_own_rule() -> None:
    for tokens, context, asked, copies, expected in _recorded()["requests"]:
        found = max_running_requests(
            tokens,
            context,
            _NEWEST,
            asked=asked,
            attention_dp_size=copies,
            state_requests=None,
        )
        assert found == expected


def test_drafting_with_states_needs_a_limit_of_requests() -> None:
    with pytest.raises(DeploymentError, match="max_running_requests"):
        state_pool(GIB, StateInputs(bytes_per_request=1000, draft_tokens=4), _NEWEST)


def test_a_state_is_kept_in_float32_beside_a_bfloat16_convolution() -> None:
    spec = load_model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    # 36 layers: 8192 channels x 3 columns x 2 bytes, 32 heads x 128 x 128 x 4 bytes
    assert state_bytes_per_request(spec.layers, 1, state_dtype=None) == 36 * (
        8192 * 3 * 2 + 32 * 128 * 128 * 4
    )


def test_older_versions_forget_what_sparse_attention_stores() -> None:
    mixer = LatentAttention(
        num_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        indexer=Indexer(num_heads=64, head_dim=128, top_k=2048),
    )
    charged = {}
    for version in ("0.5.3", "0.5.4", "0.5.17"):
        cell = latent_cell(mixer, 61, "fp8_e4m3", rules_for(version), raw=False)
        assert cell.num_bytes == 61 * (656 + 132)
        charged[version] = cell.charged_bytes
    assert charged == {"0.5.3": 61 * 576, "0.5.4": 61 * (576 + 132), "0.5.17": 61 * (656 + 132)}


def test_compressed_pools_cost_what_a_start_up_log_says() -> None:
    """ "DSv4 memory calculation: bytes_per_full_token=15955.85" of DeepSeek-V4-Flash in 0.5.12."""
    spec = load_model("deepseek-ai/DeepSeek-V4-Flash")
    costs = compressed_costs(
        spec.layers,
        rules_for("0.5.12"),
        page_size=256,
        window_ratio=0.1,
        max_running_requests=256,
        draft_tokens=None,
        extra_layers=len(spec.mtp_layers),
    )
    assert costs.bytes_per_token == pytest.approx(15955.85, abs=0.005)


@pytest.mark.parametrize(
    ("architecture", "version", "own"),
    [
        ("GptOssForCausalLM", "0.5.7", False),
        ("GptOssForCausalLM", "0.5.8", True),
        ("Gemma3ForConditionalGeneration", "0.5.23", False),
        ("Gemma4ForCausalLM", "0.5.11", True),
    ],
)
def test_only_some_classes_have_a_pool_for_windows(
    architecture: str, version: str, own: bool
) -> None:
    mixer = Attention(num_heads=8, num_kv_heads=8, head_dim=64, value_head_dim=64, window=128)
    rules = rules_for(version)
    cells = [attention_cell(mixer, 4, "bfloat16", 1, rules)]
    assert has_window_pool(architecture, cells, rules, disabled=False) is own
    assert not has_window_pool(architecture, cells, rules, disabled=True)


def test_values_count_as_wide_as_keys_before_0_5_8() -> None:
    mixer = Attention(num_heads=64, num_kv_heads=4, head_dim=192, value_head_dim=128)
    older = attention_cell(mixer, 1, "bfloat16", 1, rules_for("0.5.7"))
    newer = attention_cell(mixer, 1, "bfloat16", 1, rules_for("0.5.8"))
    assert (older.value_bytes, newer.value_bytes) == (4 * 192 * 2, 4 * 128 * 2)


def test_narrow_types_carry_scales() -> None:
    assert elements_bytes(1024, "bfloat16") == 2048
    assert elements_bytes(1024, "fp8_e4m3") == 1024
    assert elements_bytes(1024, "mxfp8") == 1024 + 32
    assert elements_bytes(1024, "nvfp4") == 512 + 64
