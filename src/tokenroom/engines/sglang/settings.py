"""What a user may set on SGLang, as far as memory or the simulated scheduler depends on it.

Fields have SGLang's own names; ``None`` means "not set": the engine's default applies, which
:mod:`tokenroom.engines.sglang.defaults` fills in per version, GPU and model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SGLangSettings:
    """Server arguments of SGLang under their own names; ``*_bytes`` in bytes, lengths in tokens.

    ``cuda_graph_max_bs`` and ``cuda_graph_bs`` are those of decode graphs,
    ``prefill_graph_max_tokens`` and ``prefill_graph_tokens`` those of prefill ("piecewise",
    "breakable") graphs, whatever the version calls them; ``prefill_graphs`` and ``decode_graphs``
    say that a phase was switched on or off by hand. ``environment`` holds the SGLANG_* variables
    that were given. ``unknown_flags`` are flags this version does not have, ``ignored_flags`` known
    ones without influence on memory; both are reported, never dropped in silence.
    """

    version: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    tp_size: int | None = None
    pp_size: int | None = None
    dp_size: int | None = None
    ep_size: int | None = None
    attn_dp_size: int | None = None
    attn_cp_size: int | None = None
    enable_dp_attention: bool | None = None
    enable_dp_lm_head: bool | None = None
    enable_ep_moe: bool | None = None
    moe_dense_tp_size: int | None = None
    moe_a2a_backend: str | None = None
    moe_runner_backend: str | None = None
    context_length: int | None = None
    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    chunked_prefill_size: int | None = None  # -1: not chunked
    max_prefill_tokens: int | None = None
    page_size: int | None = None
    kv_cache_dtype: str | None = None
    swa_full_tokens_ratio: float | None = None
    disable_hybrid_swa_memory: bool | None = None
    mamba_full_memory_ratio: float | None = None
    max_mamba_cache_size: int | None = None
    mamba_ssm_dtype: str | None = None
    mamba_radix_cache_strategy: str | None = None
    disable_radix_cache: bool | None = None
    disable_overlap_schedule: bool | None = None
    schedule_policy: str | None = None
    schedule_conservativeness: float | None = None
    enable_mixed_chunk: bool | None = None
    prefill_max_requests: int | None = None
    scheduler_recv_interval: int | None = None
    decode_graphs: bool | None = None
    prefill_graphs: bool | None = None
    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: tuple[int, ...] | None = None
    prefill_graph_max_tokens: int | None = None
    prefill_graph_tokens: tuple[int, ...] | None = None
    disable_cuda_graph_padding: bool | None = None
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    dsa_prefill_backend: str | None = None
    dsa_decode_backend: str | None = None
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    enable_lora: bool | None = None
    max_lora_rank: int | None = None
    max_loras_per_batch: int | None = None
    enable_hierarchical_cache: bool | None = None
    hicache_ratio: float | None = None
    hicache_size_bytes: int | None = None
    cpu_offload_bytes: int | None = None
    torchao_config: str | None = None
    disaggregation_mode: str | None = None
    language_only: bool | None = None
    enable_multimodal: bool | None = None
    is_embedding: bool | None = None
    enable_symm_mem: bool | None = None
    enable_torch_compile: bool | None = None
    enable_two_batch_overlap: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown_flags: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()
