"""Prefill chunk, graph sizes and static fraction that SGLang derives from the card.

``server_args.py`` ``_handle_gpu_memory_settings`` (to 0.5.18), ``arg_groups/memory_hook.py``
``handle_gpu_memory_settings`` (from 0.5.19); before 0.5.3 the same in ``__post_init__``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.engines.sglang.graph_sizes import decode_sizes, prefill_sizes
from tokenroom.engines.sglang.mem_fraction import ReserveInputs, default_fraction, with_vision
from tokenroom.engines.sglang.rules import FractionRule, VersionRules

_LLAMA_2_PREFILL_TOKENS = 4096
_OLDEST_CHUNK = 8192
_PIPELINE_PREFILL_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What the user and the model say; None where the engine decides.

    Attributes:
        memory_mib: The card as the driver's tool reports it.
        tp_size: Tensor-parallel ranks.
        pp_size: Pipeline stages.
        dp_size: Data-parallel copies.
        attention_dp_size: Copies of attention, 1 without DP attention.
        chunked_prefill_size: As given.
        max_prefill_tokens: As given or the engine's default.
        max_total_tokens: As given.
        max_running_requests: As given or set for speculative decoding.
        context_length: As given.
        decode_graphs: Decode graphs are captured.
        decode_max_bs: As given.
        decode_bs: As given.
        padding: Batches may be padded to a captured size.
        prefill_graphs: Prefill graphs are captured.
        prefill_max_tokens: As given.
        prefill_tokens: As given.
        latent: Attention is latent.
        llama_2: The model's path holds "llama-2".
        speculative_algorithm: None without.
        draft_tokens: Tokens verified at once.
        disaggregation_mode: ``"null"``, ``"prefill"`` or ``"decode"``.
        deepep: Experts exchange tokens through DeepEP.
        vision: The model is multimodal and its tower is used.
        vision_layers: Blocks of the tower as the configuration has them.
        vision_width: Its width as the configuration has it.
        mem_fraction_static: As given.
    """

    memory_mib: float
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    attention_dp_size: int = 1
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    context_length: int | None = None
    decode_graphs: bool = True
    decode_max_bs: int | None = None
    decode_bs: tuple[int, ...] | None = None
    padding: bool = True
    prefill_graphs: bool = False
    prefill_max_tokens: int | None = None
    prefill_tokens: tuple[int, ...] | None = None
    latent: bool = False
    llama_2: bool = False
    speculative_algorithm: str | None = None
    draft_tokens: int | None = None
    disaggregation_mode: str = "null"
    deepep: bool = False
    vision: bool = False
    vision_layers: int | None = None
    vision_width: int | None = None
    mem_fraction_static: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDefaults:
    """What the engine makes of it.

    Attributes:
        chunked_prefill_size: Tokens of a chunk, before DP attention divides it.
        decode_max_bs: Largest decode graph, None where a version captures its whole list.
        decode_bs: Batch sizes of decode graphs.
        prefill_max_tokens: Largest prefill graph, 0 where the version has none.
        prefill_tokens: Token counts of prefill graphs.
        mem_fraction_static: Share of memory for weights and KV cache.
    """

    chunked_prefill_size: int
    decode_max_bs: int | None
    decode_bs: tuple[int, ...]
    prefill_max_tokens: int
    prefill_tokens: tuple[int, ...]
    mem_fraction_static: float


def memory_defaults(request: MemoryRequest, rules: VersionRules) -> MemoryDefaults:
    """Everything the card decides."""
    tier = next(tier for tier in rules.tiers if request.memory_mib < tier.below_mib)
    chunk = request.chunked_prefill_size
    if not rules.since(0, 4):
        chunk = _OLDEST_CHUNK if chunk is None else chunk
        if tier is rules.tiers[0]:
            chunk //= 4
    elif chunk is None:
        chunk = tier.chunk
        if rules.fraction is FractionRule.BY_RANKS_OR_18_GIB and _larger_chunk(request, tier.chunk):
            chunk = 16384
    max_bs = _decode_max_bs(request, rules)
    if request.decode_bs is not None:
        sizes = request.decode_bs
        max_bs = max(sizes) if rules.since(0, 5, 3) else max_bs
    else:
        sizes = decode_sizes(
            rules,
            max_bs=max_bs,
            memory_mib=request.memory_mib,
            speculative=request.speculative_algorithm is not None,
            padding=request.padding,
            data_parallel=request.dp_size > 1,
        )
    longest, tokens = _prefill(request, rules, chunk)
    fraction = request.mem_fraction_static
    if fraction is None:
        inputs = ReserveInputs(
            memory_mib=request.memory_mib,
            tp_size=request.tp_size,
            pp_size=request.pp_size,
            attention_dp_size=request.attention_dp_size,
            chunked_prefill_size=chunk,
            max_prefill_tokens=request.max_prefill_tokens,
            decode_max_bs=max_bs,
            decode_graphs=request.decode_graphs,
            prefill_graphs=request.prefill_graphs,
            prefill_max_tokens=longest,
            prefill_graph_count=len(tokens),
            latent=request.latent,
            speculative_algorithm=request.speculative_algorithm,
            draft_tokens=request.draft_tokens,
            max_running_requests=request.max_running_requests,
            disaggregation_mode=request.disaggregation_mode,
            deepep=request.deepep,
        )
        fraction = default_fraction(inputs, rules)
        if request.vision and not (
            request.disaggregation_mode == "decode" and rules.since(0, 5, 17)
        ):
            fraction = with_vision(fraction, rules, request.vision_layers, request.vision_width)
    return MemoryDefaults(
        chunked_prefill_size=chunk,
        decode_max_bs=max_bs,
        decode_bs=sizes,
        prefill_max_tokens=longest,
        prefill_tokens=tokens,
        mem_fraction_static=fraction,
    )


def _larger_chunk(request: MemoryRequest, chunk: int) -> bool:
    """0.4.7 doubles the chunk of a disaggregated server on middling cards."""
    return request.disaggregation_mode != "null" and chunk == 8192


def _decode_max_bs(request: MemoryRequest, rules: VersionRules) -> int | None:
    if request.decode_max_bs is not None and rules.since(0, 4):
        return request.decode_max_bs
    tier = next(tier for tier in rules.tiers if request.memory_mib < tier.below_mib)
    default = tier.graphs_few_ranks if request.tp_size < 4 else tier.graphs_many_ranks
    if not rules.since(0, 4):
        given = request.decode_max_bs
        return default if given is None or tier is rules.tiers[0] else given
    running = request.max_running_requests
    if rules.since(0, 5, 22) and running is not None and default is not None:
        return min(default, running)
    return default


def _prefill(
    request: MemoryRequest, rules: VersionRules, chunk: int
) -> tuple[int, tuple[int, ...]]:
    """Largest prefill graph and all of them; none where the version has no such graphs."""
    if not rules.since(0, 5, 4):
        return 0, ()
    longest = request.prefill_max_tokens
    if longest is None:
        if not rules.since(0, 5, 7):
            longest = 4096
        elif not request.latent or not rules.since(0, 5, 8):
            longest = chunk
        elif rules.since(0, 5, 23):
            longest = min(8192, chunk)
        else:
            longest = 2048
        if request.pp_size > 1 and request.prefill_graphs and rules.since(0, 5, 19):
            longest = min(longest, _PIPELINE_PREFILL_TOKENS)
        if rules.since(0, 5, 10):
            if request.max_total_tokens is not None:
                longest = min(longest, request.max_total_tokens)
            if request.llama_2:
                longest = min(longest, _LLAMA_2_PREFILL_TOKENS)
    if request.context_length is not None and rules.since(0, 5, 13) and not rules.since(0, 5, 17):
        longest = min(longest, request.context_length)
    if request.prefill_tokens is not None:
        return longest, request.prefill_tokens
    return longest, prefill_sizes(rules, longest)
