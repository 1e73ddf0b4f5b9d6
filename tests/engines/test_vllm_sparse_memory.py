"""Workspaces of sparse latent attention in vLLM's profile run."""

from __future__ import annotations

from typing import Any

from tokenroom.engines.vllm.activation import activation_peak
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import rules_for
from tokenroom.engines.vllm.sparse_memory import residual_streams, sparse_workspace_bytes
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models import catalogue
from tokenroom.units import GIB, MIB

_V3 = catalogue.find("deepseek-ai/DeepSeek-V3.2")
_V4 = catalogue.find("deepseek-ai/DeepSeek-V4-Pro")


def _inputs(gpu: str = "H200", **changes: Any) -> ProfileInputs:
    settings: dict[str, Any] = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "max_model_len": 163840,
        "accelerator": find_accelerator(gpu),
        "tensor_parallel_size": 8,
        "attention_backend": "FLASHMLA_SPARSE",
    }
    return ProfileInputs(**settings | changes)


def test_forty_contexts_of_index_keys_are_gathered() -> None:
    # 865,075,200 bytes for DeepSeek-V3.2, as the engine's own comment works out
    size = sparse_workspace_bytes(_V3, _inputs(), rules_for("0.19.0"))
    assert size == 865_075_200 + MIB


def test_a_packed_cache_is_unpacked_for_five_contexts() -> None:
    size = sparse_workspace_bytes(_V3, _inputs(kv_cache_dtype="fp8"), rules_for("0.19.0"))
    assert size == 5 * 163840 * 576 * 2


def test_compressed_keys_are_gathered_for_four_requests() -> None:
    size = sparse_workspace_bytes(_V4, _inputs(max_model_len=1 << 20), rules_for("0.28.0"))
    assert size == max(40 * (1 << 20) // 4 * 132 + MIB, 4 * ((1 << 20) // 4 + 128 + 8192) * 512 * 2)


def test_rocm_reserves_scores_of_every_token_until_0_30() -> None:
    inputs = _inputs("MI300X", max_model_len=1 << 20, max_num_batched_tokens=16384)
    assert sparse_workspace_bytes(_V4, inputs, rules_for("0.28.0")) == 16 * GIB
    assert sparse_workspace_bytes(_V4, inputs, rules_for("0.22.0")) < 2 * GIB
    assert sparse_workspace_bytes(_V4, inputs, rules_for("0.30.0")) < 2 * GIB


def test_dense_models_have_no_such_workspace() -> None:
    spec = catalogue.find("Qwen/Qwen3-8B")
    assert sparse_workspace_bytes(spec, _inputs(), rules_for("0.28.0")) == 0


def test_hyper_connections_carry_four_residuals() -> None:
    assert {residual_streams(layer, _V4.hidden_size) for layer in _V4.layers} == {4}
    assert {residual_streams(layer, _V3.hidden_size) for layer in _V3.layers} == {1}


def test_the_larger_workspace_serves_experts_and_attention() -> None:
    inputs = _inputs("MI300X", max_model_len=1 << 20, max_num_batched_tokens=16384)
    terms = dict(activation_peak(_V4, inputs, rules_for("0.28.0")).terms)
    assert terms["sparse_attention_workspace"] == 16 * GIB
    assert "moe_workspace" not in terms
