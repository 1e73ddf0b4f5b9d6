"""What sparse latent attention allocates in vLLM's profile run, besides its activations.

Sources: model_executor/layers/sparse_attn_indexer.py, v1/attention/backends/mla/indexer.py
``get_max_prefill_buffer_size``, v1/attention/backends/mla/flashmla_sparse.py
``get_prefill_workspace_size`` (0.11 to 0.33), on ROCm v1/attention/ops/rocm_aiter_mla_sparse.py
``rocm_aiter_sparse_attn_indexer`` (gfx942, gfx950; 0.23 to 0.30), models/deepseek_v4/
``forward_mqa`` (0.27 to 0.33).
Buffers come from v1/worker/workspace.py, which keeps one of the largest size asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.models.spec import DTYPE_BITS, LatentAttention, Layer, ModelSpec, Role
from tokenroom.units import MIB

_INDEXED_CONTEXTS: Final = 40
"""Sequences of full length whose index keys one prefill gathers."""
_GATHERED_CONTEXTS: Final = 5
"""Sequences of full length whose packed cache one prefill unpacks."""
_KEY_SCALE_BYTES: Final = 4
_SELECTION_BYTES: Final = MIB  # RADIX_TOPK_WORKSPACE_SIZE
_PREFILL_CHUNK: Final = 4  # PREFILL_CHUNK_SIZE of DeepSeek V4: requests gathered at once
_SCORE_BYTES: Final = 4
_AMD_SCORES_KEPT: Final = (0, 23, 0)
_AMD_SCORES_BOUND_BY_REQUESTS: Final = (0, 30, 0)
_LOGITS_BYTES: Final = 512 * MIB  # VLLM_SPARSE_INDEXER_MAX_LOGITS_MB


def sparse_workspace_bytes(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> int:
    """Bytes of the workspace that stays allocated, 0 without sparse attention."""
    sizes = (
        size
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, LatentAttention)
        for size in _workspaces(mixer, inputs, rules)
    )
    return max(sizes, default=0)


def indexer_logits_bytes(mixer: LatentAttention, rules: VersionRules) -> int:
    """Bytes of scores of queries against keys, which the profile run allocates for their size."""
    known = rules.version >= (0, 19, 0)
    return _LOGITS_BYTES if mixer.indexer is not None and known else 0


def residual_streams(layer: Layer, hidden_size: int) -> int:
    """Residual streams side by side: 1, or more with hyper-connections (DeepSeek V4)."""
    for weight in layer.weights:
        if weight.role is Role.OTHER and weight.name.endswith("_hc.fn"):
            return weight.shape[1] // hidden_size
    return 1


def _workspaces(
    mixer: LatentAttention, inputs: ProfileInputs, rules: VersionRules
) -> Iterator[int]:
    length, indexer = inputs.max_model_len, mixer.indexer
    if indexer is not None:
        keys = _INDEXED_CONTEXTS * length // mixer.compress_ratio
        yield keys * (indexer.head_dim + _KEY_SCALE_BYTES) + _SELECTION_BYTES
        if inputs.accelerator.vendor == "amd" and rules.version >= _AMD_SCORES_KEPT:
            states = length // mixer.compress_ratio
            yield _scored_rows(inputs, rules) * states * _SCORE_BYTES
    packed = inputs.kv_cache_dtype not in ("auto", "bfloat16")
    width = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * DTYPE_BITS["bfloat16"] // 8
    if mixer.window is not None:
        states = -(-length // mixer.compress_ratio) if mixer.compress_ratio > 1 else 0
        rows = states + mixer.window + inputs.max_num_batched_tokens
        yield _PREFILL_CHUNK * rows * width
    elif indexer is not None and packed and inputs.attention_backend == "FLASHMLA_SPARSE":
        yield _GATHERED_CONTEXTS * length * width


def _scored_rows(inputs: ProfileInputs, rules: VersionRules) -> int:
    """Rows of scores that ROCm reserves for a decode step, each as long as the longest sequence.

    Before 0.30 one for each token of a step, of which 16,384 take 16 GiB with a context of 2**20
    tokens and a compression of 4; since then one for each that can be decoded.
    """
    tokens = inputs.max_num_batched_tokens
    if rules.version < _AMD_SCORES_BOUND_BY_REQUESTS:
        return tokens
    return min(tokens, inputs.max_num_seqs * (1 + inputs.speculative_tokens))
