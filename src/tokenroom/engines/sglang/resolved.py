"""SGLang's settings with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenroom.engines.policy import Setting
from tokenroom.engines.sglang.rules import VersionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSettings:
    """What holds for one deployment; names are SGLang's.

    Attributes:
        rules: The version's decisions.
        settings: Each setting with its origin, for the report.
        dtype: Type the model runs in.
        quantization: Method forced by a flag, None for the checkpoint's own.
        tp_size: Tensor-parallel ranks.
        pp_size: Pipeline stages.
        dp_size: As the engine holds it.
        replicas: Whole copies of the engine (``dp_size`` without DP attention).
        attention_dp_size: Copies of attention inside a tensor-parallel group.
        attention_cp_size: Ranks that share the tokens of a prefill, each with whole weights of
            attention for its heads.
        ep_size: Ranks that experts are dealt to.
        dense_tp_size: Ranks that dense blocks are divided over.
        head_tp_size: Ranks that the head is divided over.
        moe_a2a_backend: How experts on other ranks are reached, ``"none"`` for plain collectives.
        moe_runner_backend: Kernels of experts, ``"auto"`` where none were chosen.
        context_length: Longest sequence.
        mem_fraction_static: Share for weights and pools.
        chunked_prefill_size: Tokens of a chunk in one copy of attention, -1 when not chunked.
        max_prefill_tokens: Tokens of a prefill batch.
        max_running_requests: As given or set for speculative decoding, None otherwise.
        max_total_tokens: Upper bound of the pool, None without.
        page_size: Tokens of a page.
        kv_cache_dtype: Type of the pool, ``"auto"`` resolved.
        raw_latents: Sparse attention reads FP8 latents without scales.
        swa_full_tokens_ratio: Tokens of window layers against those of full layers.
        hybrid_swa: Window layers may have a pool of their own.
        mamba_full_memory_ratio: Memory of states against memory of the KV pool.
        max_mamba_cache_size: As given.
        mamba_ssm_dtype: Type of recurrent states, None for the checkpoint's.
        extra_buffer: States of prefixes are tracked in further slots.
        radix_cache: Prefixes are kept.
        overlap: The overlap scheduler runs.
        attention_backend: Kernel family of attention.
        decode_bs: Batch sizes of decode graphs, empty when there are none.
        prefill_tokens: Token counts of prefill graphs, empty when there are none.
        speculative_algorithm: ``"EAGLE"``, ..., None without.
        draft_steps: Steps that are drafted.
        draft_topk: Branches of a draft.
        draft_tokens: Tokens verified at once, None without.
        max_lora_rank: Largest adapter rank, 0 without adapters.
        max_loras_per_batch: Adapter slots.
        hicache_bytes: Host pool of HiCache a rank, None without.
        hicache_ratio: Host pool against the device pool, 0 without.
        cpu_offload_bytes: Weights kept in host memory a rank.
        towers: Vision and audio encoders are loaded.
        disaggregation_mode: ``"null"``, ``"prefill"`` or ``"decode"``.
        environment: SGLANG_* variables.
    """

    rules: VersionRules
    settings: Mapping[str, Setting]
    dtype: str
    quantization: str | None
    tp_size: int
    pp_size: int
    dp_size: int
    replicas: int
    attention_dp_size: int
    attention_cp_size: int
    ep_size: int
    dense_tp_size: int
    head_tp_size: int
    moe_a2a_backend: str
    moe_runner_backend: str
    context_length: int
    mem_fraction_static: float
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_running_requests: int | None
    max_total_tokens: int | None
    page_size: int
    kv_cache_dtype: str
    raw_latents: bool
    swa_full_tokens_ratio: float
    hybrid_swa: bool
    mamba_full_memory_ratio: float
    max_mamba_cache_size: int | None
    mamba_ssm_dtype: str | None
    extra_buffer: bool
    radix_cache: bool
    overlap: bool
    attention_backend: str
    decode_bs: tuple[int, ...]
    prefill_tokens: tuple[int, ...]
    speculative_algorithm: str | None
    draft_steps: int
    draft_topk: int
    draft_tokens: int | None
    max_lora_rank: int
    max_loras_per_batch: int
    hicache_bytes: int | None
    hicache_ratio: float
    cpu_offload_bytes: int
    towers: bool
    disaggregation_mode: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def attention_tp_size(self) -> int:
        """Ranks that attention heads are divided over (``compute_dp_attention_world_info``)."""
        return self.tp_size // self.attention_dp_size // self.attention_cp_size

    @property
    def drafts_with_model(self) -> bool:
        """Drafting runs a model with a KV pool of its own."""
        return self.speculative_algorithm in ("EAGLE", "EAGLE3", "STANDALONE")
