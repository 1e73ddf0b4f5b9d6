"""What vLLM refuses before it loads anything, in its own order of looking.

Sources: ``verify_with_parallel_config`` and ``_verify_with_expert_parallelism``, config/model.py;
``SchedulerConfig.verify_max_model_len``, config/scheduler.py; ``ParallelConfig``,
config/parallel.py; ``get_min_capability``, model_executor/layers/quantization/*.py;
``MambaModelConfig``, model_executor/models/config.py; read in 0.11.0 to 0.33.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tokenroom.engines.vllm.defaults import ResolvedSettings
from tokenroom.engines.vllm.rules import version_number
from tokenroom.engines.vllm.shards import Cut, uneven_shard
from tokenroom.engines.vllm.speculation import draft_refusals
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import Attention, ModelSpec

#: Ranks of adapters with the version that brought each (config/lora.py, config.py before).
_LORA_RANKS: Final = (
    (1, (0, 12)),
    *((rank, (0, 0)) for rank in (8, 16, 32, 64)),
    *((rank, (0, 5, 5)) for rank in (128, 256)),
    *((rank, (0, 8)) for rank in (320, 512)),
)
#: Smallest compute capability of a quantisation method, as (version from, capability) pairs.
_LEAST_CAPABILITY: Final[Mapping[str, tuple[tuple[tuple[int, int], tuple[int, int]], ...]]] = {
    "awq": (((0, 0), (7, 5)),),
    "bitsandbytes": (((0, 0), (7, 0)),),
    "compressed-tensors": (((0, 0), (7, 0)),),
    "experts_int8": (((0, 0), (8, 0)),),
    "fbgemm_fp8": (((0, 0), (8, 0)),),
    "fp8": (((0, 0), (8, 0)), ((0, 16), (7, 5))),
    "gguf": (((0, 0), (6, 0)),),
    "gptq": (((0, 0), (6, 0)),),
    "modelopt": (((0, 0), (8, 9)), ((0, 28), (8, 0))),
    "mxfp4": (((0, 0), (8, 0)),),
    "torchao": (((0, 0), (7, 5)),),
}
_VOCABULARY_PADDING: Final = 64  # DEFAULT_VOCAB_PADDING_SIZE, vocab_parallel_embedding.py
#: Architectures that vLLM took out, with the last version that has them
#: (``_PREVIOUSLY_SUPPORTED_MODELS``, model_executor/models/registry.py 0.11.0 to 0.33.0); only
#: those that its Transformers backend does not run either.
_LAST_VERSIONS: Final[Mapping[str, str]] = {
    "DonutForConditionalGeneration": "0.10.2",
    "MllamaForConditionalGeneration": "0.10.2",
    "Phi3SmallForCausalLM": "0.9.2",
    "QWenLMHeadModel": "0.23.0",
}
_OWN_THRESHOLD: Final = (0, 28, 0)
"""``long_prefill_token_threshold`` is checked by itself; before, with partial prefills alone."""
_CAPTURES_DRAFTS: Final = frozenset({"FLASH_ATTN", "TRITON_ATTN"})
_DTYPES: Final = ("bfloat16", "float16", "float32")


def check(resolved: ResolvedSettings, spec: ModelSpec, node: Node) -> None:
    """Refuse what the engine would refuse, with the first reason it would find.

    Args:
        resolved: Every setting, from :func:`tokenroom.engines.vllm.defaults.resolve`.
        spec: The model.
        node: The accelerators.

    Raises:
        DeploymentError: One sentence: which setting, what it holds and what it may hold.
    """
    for sentence in refusals(resolved, spec, node):
        raise DeploymentError(sentence)


def refusals(resolved: ResolvedSettings, spec: ModelSpec, node: Node) -> Iterator[str]:
    """Every reason the engine has, in its order; empty when it would start to load."""
    yield from _architecture(resolved, spec)
    yield from _dtype(resolved, node.accelerator)
    yield from _scheduler(resolved)
    yield from _parallel(resolved, spec, node)
    yield from _heads(resolved, spec)
    yield from _quantization(resolved, spec, node.accelerator)
    yield from _shards(resolved, spec, node.accelerator)
    yield from _cache(resolved, spec)
    yield from _extras(resolved, spec)
    yield from _draft_graphs(resolved)


def _architecture(resolved: ResolvedSettings, spec: ModelSpec) -> Iterator[str]:
    last = _LAST_VERSIONS.get(spec.architecture)
    if last is not None and version_number(resolved.version) > version_number(last):
        yield (
            f"the model is a {spec.architecture}, which vLLM {resolved.version} no longer runs; "
            f"name version {last} or an older one"
        )


def _dtype(resolved: ResolvedSettings, accelerator: Accelerator) -> Iterator[str]:
    if resolved.dtype not in _DTYPES:
        yield f"dtype is {shown(resolved.dtype)}; choose from auto, {', '.join(_DTYPES)}"
    capability = accelerator.compute_capability
    if resolved.dtype == "bfloat16" and capability is not None and capability < (8, 0):
        yield (
            f"dtype is bfloat16, which needs compute capability 8.0; the {accelerator.name} has "
            f"{capability[0]}.{capability[1]}, so use --dtype half"
        )


def _scheduler(resolved: ResolvedSettings) -> Iterator[str]:
    tokens, seqs = resolved.max_num_batched_tokens, resolved.max_num_seqs
    if tokens < resolved.max_model_len and not resolved.enable_chunked_prefill:
        yield (
            f"max_num_batched_tokens is {tokens}, below max_model_len ({resolved.max_model_len}) "
            f"without chunked prefill; raise it, lower max_model_len or enable chunked prefill"
        )
    if tokens < seqs:
        yield (
            f"max_num_batched_tokens is {tokens}, below max_num_seqs ({seqs}); give at least as "
            f"many tokens as sequences"
        )
    asked = resolved.asked
    threshold = asked.long_prefill_token_threshold or 0
    if threshold > resolved.max_model_len and version_number(resolved.version) >= _OWN_THRESHOLD:
        yield (
            f"long_prefill_token_threshold is {threshold}, above max_model_len "
            f"({resolved.max_model_len}); lower it"
        )
    if asked.max_num_active_seqs is not None and asked.max_num_active_seqs > seqs:
        yield (
            f"max_num_active_seqs is {asked.max_num_active_seqs}, above max_num_seqs ({seqs}); "
            f"lower it"
        )
    drafts = resolved.num_speculative_tokens
    if resolved.enable_lora and drafts and tokens < seqs * (drafts + 1):
        yield (
            f"max_num_batched_tokens is {tokens}, but LoRA with {drafts} drafted tokens needs "
            f"{seqs * (drafts + 1)} for {seqs} sequences; raise it or lower max_num_seqs"
        )
    if resolved.mamba_cache_mode == "align" and not resolved.enable_chunked_prefill:
        yield (
            "enable_chunked_prefill is off, but caching prefixes of recurrent layers needs it; "
            "enable it or disable prefix caching"
        )


def _parallel(resolved: ResolvedSettings, spec: ModelSpec, node: Node) -> Iterator[str]:
    wanted = resolved.world_size * resolved.data_parallel_size
    if wanted > node.count:
        sizes = (
            f"tensor_parallel_size {resolved.tensor_parallel_size} x pipeline_parallel_size "
            f"{resolved.pipeline_parallel_size} x data_parallel_size {resolved.data_parallel_size}"
        )
        if resolved.prefill_context_parallel_size > 1:
            sizes += f" x prefill_context_parallel_size {resolved.prefill_context_parallel_size}"
        yield f"{sizes} needs {wanted} accelerators, but there are {node.count}; lower one of them"
    if resolved.pipeline_parallel_size > spec.num_layers:
        yield (
            f"pipeline_parallel_size is {resolved.pipeline_parallel_size}, but the model has "
            f"{spec.num_layers} layers; use at most that many stages"
        )
    if resolved.enable_expert_parallel and not resolved.traits.has_experts:
        yield "enable_expert_parallel is on, but the model has no experts; leave it out"
    yield from _balancing(resolved)
    dcp, tensor = resolved.decode_context_parallel_size, resolved.tensor_parallel_size
    if tensor % dcp:
        yield (
            f"decode_context_parallel_size is {dcp}, which does not divide tensor_parallel_size "
            f"({tensor}); use a divisor of it"
        )


def _balancing(resolved: ResolvedSettings) -> Iterator[str]:
    """Expert parallelism load balancing (``ParallelConfig.__post_init__``)."""
    asked = resolved.asked
    if not asked.enable_eplb:
        if asked.num_redundant_experts:
            yield (
                f"num_redundant_experts is {asked.num_redundant_experts}, but enable_eplb is "
                f"off; enable it or leave them out"
            )
        return
    if not resolved.enable_expert_parallel:
        yield "enable_eplb is on without enable_expert_parallel; enable that too"
    ranks = resolved.world_size // resolved.pipeline_parallel_size * resolved.data_parallel_size
    if ranks <= 1:
        yield "enable_eplb needs more than one rank; raise tensor_parallel_size or leave it out"


def _heads(resolved: ResolvedSettings, spec: ModelSpec) -> Iterator[str]:
    """Heads over tensor-parallel ranks, and what decode context parallelism asks of them."""
    tensor, dcp = resolved.tensor_parallel_size, resolved.decode_context_parallel_size
    heads = resolved.traits.num_heads
    if heads and heads % tensor:
        fits = [size for size in range(1, tensor) if heads % size == 0]
        yield (
            f"tensor_parallel_size is {tensor}, which does not divide the model's {heads} "
            f"attention heads; use {fits[-1]} or another divisor"
        )
    vocabulary = -(-spec.vocab_size // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
    if vocabulary % tensor:
        yield (
            f"tensor_parallel_size is {tensor}, which does not divide the padded vocabulary of "
            f"{vocabulary}; use a power of two"
        )
    attention = resolved.traits.attention
    if resolved.traits.latent is None and attention is not None:
        for kv_heads in sorted(_kv_head_counts(spec)):
            if max(kv_heads, tensor) % min(kv_heads, tensor):
                yield (
                    f"tensor_parallel_size is {tensor}, which neither divides the model's "
                    f"{kv_heads} KV heads nor is a multiple of them; use one that does"
                )
        if dcp > 1:
            most = tensor // attention.num_kv_heads
            if dcp > most:
                yield (
                    f"decode_context_parallel_size is {dcp}, but {attention.num_kv_heads} KV heads "
                    f"over tensor_parallel_size {tensor} allow at most {max(most, 1)}; lower it"
                )
            elif (attention.num_heads // attention.num_kv_heads) % dcp:
                yield (
                    f"decode_context_parallel_size is {dcp}, which does not divide the "
                    f"{attention.num_heads // attention.num_kv_heads} query heads of a KV head; "
                    f"use a divisor"
                )


def _kv_head_counts(spec: ModelSpec) -> set[int]:
    return {
        mixer.num_kv_heads
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, Attention) and mixer.num_kv_heads
    }


def _quantization(
    resolved: ResolvedSettings, spec: ModelSpec, accelerator: Accelerator
) -> Iterator[str]:
    method = resolved.quantization or spec.quantization
    capability = accelerator.compute_capability
    if method is None or capability is None:
        return
    version = tuple(int(part) for part in resolved.version.split(".")[:2])
    for name in (method, method.replace("_", "-"), method.split("_")[0]):
        steps = _LEAST_CAPABILITY.get(name)
        if steps is not None:
            least = [needed for since, needed in steps if version >= since][-1]
            if capability < least:
                yield (
                    f"quantization is {method}, which needs compute capability {least[0]}."
                    f"{least[1]}; the {accelerator.name} has {capability[0]}.{capability[1]}, so "
                    f"use another checkpoint or accelerator"
                )
            return


def _shards(resolved: ResolvedSettings, spec: ModelSpec, accelerator: Accelerator) -> Iterator[str]:
    """Quantised weights that the ranks would cut through a block or group of scales."""
    if spec.quantization is None:
        return
    sentence = uneven_shard(
        spec,
        Cut(
            version=version_number(resolved.version),
            tensor=resolved.tensor_parallel_size,
            expert_ranks=resolved.tensor_parallel_size
            * resolved.data_parallel_size
            * resolved.prefill_context_parallel_size,
            expert_parallel=resolved.enable_expert_parallel,
            dtype=resolved.dtype,
            capability=accelerator.compute_capability,
            names_moe_backend=resolved.asked.moe_backend not in (None, "auto"),
        ),
    )
    if sentence is not None:
        yield sentence


def _cache(resolved: ResolvedSettings, spec: ModelSpec) -> Iterator[str]:
    if (
        resolved.kv_cache_dtype == "fp8_e5m2"
        and (resolved.quantization or spec.quantization) == "fp8"
    ):
        yield "kv_cache_dtype is fp8_e5m2, which does not go with an FP8 checkpoint; use fp8"


def _extras(resolved: ResolvedSettings, spec: ModelSpec) -> Iterator[str]:
    if resolved.enable_lora:
        version = version_number(resolved.version)
        ranks = [rank for rank, since in _LORA_RANKS if version >= since]
        if resolved.max_lora_rank not in ranks:
            yield (
                f"max_lora_rank is {resolved.max_lora_rank}; choose from "
                f"{', '.join(map(str, ranks))}"
            )
    on_host = resolved.asked.max_cpu_loras
    if resolved.enable_lora and on_host is not None and on_host < resolved.max_loras:
        yield (
            f"max_cpu_loras is {on_host}, below max_loras ({resolved.max_loras}); "
            f"give at least as many, or leave it out"
        )
    if resolved.speculative is not None:
        tensor = resolved.tensor_parallel_size
        yield from draft_refusals(resolved.speculative, spec, resolved.version, tensor)


def _draft_graphs(resolved: ResolvedSettings) -> Iterator[str]:
    """``adjust_cudagraph_sizes_for_spec_decode``: graph sizes are multiples of a drafting step.

    Of the first runner from 0.12 on, where steps of decoding alone have graphs of their own and
    the attention backend captures several tokens a request (``AttentionCGSupport``).
    """
    query = 1 + resolved.num_speculative_tokens
    sizes = resolved.cudagraph_capture_sizes
    if (
        query > 1
        and sizes
        and query > sizes[-1]
        and resolved.cudagraph_mode in ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY")
        and resolved.attention_backend in _CAPTURES_DRAFTS
        and not resolved.second_runner
        and version_number(resolved.version) >= (0, 12, 0)
    ):
        yield (
            f"num_speculative_tokens is {query - 1}, but the largest CUDA graph holds {sizes[-1]} "
            f"tokens and no multiple of {query} is within it; draft at most {sizes[-1] - 1}, or "
            f"raise max_cudagraph_capture_size"
        )
