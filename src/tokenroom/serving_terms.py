"""What an engine's settings mean for speed: division, budget of a step, type of the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from tokenroom.engines.llama_cpp.versions import rules_for
from tokenroom.errors import DeploymentError, shown
from tokenroom.fitting import FitResult
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.llama_cpp import Build, engine_of
from tokenroom.performance.replica import Replica
from tokenroom.performance.work import HostPart, Layout
from tokenroom.serving_drafting import drafting_of

_TO_ALL: Final = frozenset({None, "none", "naive", "pplx", "allgather_reducescatter"})
"""Values of vLLM's ``--all2all-backend`` and SGLang's ``--moe-a2a-backend`` by which every rank
gets all tokens (vLLM 0.33 config/parallel.py turns ``naive`` and ``pplx`` into gathering)."""

_OFFLOAD_ROWS: Final = 32
"""ggml-cuda.cu of llama.cpp 0c1e57098: ``GGML_OP_OFFLOAD_MIN_BATCH``."""

_LLAMA_CACHE: Final = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "int8"}


class Terms(NamedTuple):
    """What an engine's settings mean for speed.

    Attributes:
        engine: Its name in :mod:`tokenroom.performance`.
        layout: How one replica is divided.
        replicas: Independent copies that share the clients.
        token_budget: Tokens of a step of one data-parallel rank.
        kv_dtype: Type of the cache, None for the checkpoint's.
        cuda_graphs: Decode steps are replayed from graphs.
        asynchronous: The host prepares a step while the accelerators run the one before.
        drafting: How tokens are drafted, None without speculative decoding.
        mixes: Prompts share steps with decoding requests; what the engine does when None.
    """

    engine: str
    layout: Layout
    replicas: int
    token_budget: int
    kv_dtype: str | None
    cuda_graphs: bool
    asynchronous: bool
    drafting: Drafting | None = None
    mixes: bool | None = None


def terms_of(
    result: FitResult,
    input_tokens: int,
    acceptance: float | None = None,
    host_bandwidth: float | None = None,
) -> Terms:
    """What the settings of a deployment mean for prompts of ``input_tokens``.

    ``acceptance`` is the share of drafted tokens that are kept, or the mean tokens of a step;
    ``host_bandwidth`` is the peak of the host's memory in bytes a second.

    Raises:
        DeploymentError: The engine would refuse such prompts, or its speed is not modelled.
    """
    check_engine(result.deployment.engine)
    engine = result.deployment.engine
    terms = _TERMS[engine](result, input_tokens)
    if engine == "llama.cpp":
        host = _host_part(result, host_bandwidth)
        terms = terms._replace(layout=replace(terms.layout, host=host))
    return terms._replace(drafting=drafting_of(result.deployment, terms.layout, acceptance))


def step_terms_of(result: FitResult) -> Terms:
    """What the settings of a deployment mean for the time of a step, whatever is scheduled.

    Of transformers there is no more than that: who calls ``generate`` with what is not its affair.

    Raises:
        DeploymentError: Its speed is not modelled.
    """
    return (
        _transformers(result) if result.deployment.engine == "transformers" else terms_of(result, 1)
    )


def replica_of(
    result: FitResult,
    terms: Terms,
    *,
    max_num_seqs: int | None = None,
    factors: Factors = UNCALIBRATED,
) -> Replica:
    """One replica of a deployment, as the model of speed takes it.

    Args:
        result: The deployment.
        terms: What its settings mean for speed.
        max_num_seqs: Requests that one data-parallel rank runs at once at most; None for no bound.
        factors: Those of the machine, where it was calibrated.
    """
    deployment = result.deployment
    return Replica(
        spec=deployment.spec,
        layout=terms.layout,
        accelerator=deployment.node.accelerator,
        engine=terms.engine,
        max_num_batched_tokens=terms.token_budget,
        max_num_seqs=max_num_seqs,
        kv_dtype=terms.kv_dtype,
        cuda_graphs=terms.cuda_graphs,
        asynchronous=terms.asynchronous,
        drafting=terms.drafting,
        mixes=terms.mixes,
        factors=factors,
    )


def models_speed(engine: str) -> bool:
    """Whether the speed of an engine is modelled."""
    return engine in _TERMS


def check_engine(name: str) -> None:
    """Refuse an engine whose speed is not modelled.

    Raises:
        DeploymentError: It is none of those.
    """
    if not models_speed(name):
        raise DeploymentError(
            f"the speed of engine {name} is not modelled; it may be {', '.join(_TERMS)}"
        )


def _value(result: FitResult, name: str, default: Any = None) -> Any:
    setting = result.deployment.settings.get(name)
    return default if setting is None else setting.value


def _layout(
    result: FitResult,
    *,
    copies: int = 1,
    attention_copies: int = 1,
    experts: int = 1,
    stage_layers: tuple[int, ...] | None = None,
    copies_host_weights: bool = False,
    sends_chosen_tokens: bool = False,
) -> Layout:
    """The division; ``attention_copies`` are made of the tensor-parallel ranks (DP attention)."""
    return Layout(
        tensor_parallel_size=_value(result, "tensor_parallel_size") // attention_copies,
        pipeline_parallel_size=_value(result, "pipeline_parallel_size"),
        data_parallel_size=copies * attention_copies,
        expert_parallel_size=experts,
        per_node=result.deployment.node.per_node,
        sends_chosen_tokens=sends_chosen_tokens,
        stage_layers=stage_layers,
        host_weight_bytes=getattr(result.deployment.resolved, "cpu_offload_bytes", 0),
        copies_host_weights=copies_host_weights,
    )


def _cache(result: FitResult) -> str | None:
    named: str | None = _value(result, "kv_cache_dtype")
    return None if named == "auto" else named


def _vllm(result: FitResult, _: int) -> Terms:
    from tokenroom.engines.vllm.generation import EngineGeneration  # loaded with the engine
    from tokenroom.engines.vllm.stage import layer_partition_of
    from tokenroom.engines.vllm.weights import stage_layers

    resolved = result.deployment.resolved
    copies, stages = _value(result, "data_parallel_size"), resolved.pipeline_parallel_size
    experts = 1
    if _value(result, "enable_expert_parallel"):
        experts = copies * _value(result, "tensor_parallel_size")
    partition = layer_partition_of(resolved)
    layers = result.deployment.spec.num_layers
    first = resolved.engine is EngineGeneration.V0
    # V0 without chunked prefill schedules prompts first and alone (core/scheduler.py
    # ``_schedule_default``)
    alone = first and not _value(result, "enable_chunked_prefill", False)
    return Terms(
        engine="vllm",
        layout=_layout(
            result,
            copies=copies,
            experts=experts,
            stage_layers=tuple(
                len(stage_layers(layers, stages, stage, partition)) for stage in range(stages)
            ),
            copies_host_weights=first,  # ``uva_offloading`` is V1's
            sends_chosen_tokens=result.deployment.asked.all2all_backend not in _TO_ALL,
        ),
        replicas=1,
        token_budget=_value(result, "max_num_batched_tokens"),
        kv_dtype=_cache(result),
        cuda_graphs=not _value(result, "enforce_eager", False),
        asynchronous=_value(result, "async_scheduling", False),
        mixes=False if alone else None,
    )


def _sglang(result: FitResult, _: int) -> Terms:
    from tokenroom.engines.sglang.stage_weights import layer_partition_of  # loaded with the engine
    from tokenroom.engines.sglang.weights import RankLayout, stage_layers

    chunk, most = _value(result, "chunked_prefill_size"), _value(result, "max_prefill_tokens")
    attention = _value(result, "attn_dp_size", 1)
    ranks = RankLayout(
        pp=_value(result, "pipeline_parallel_size"),
        layer_partition=layer_partition_of(result.deployment.resolved),
    )
    layers = result.deployment.spec.num_layers
    return Terms(
        engine="sglang",
        layout=_layout(
            result,
            attention_copies=attention,
            experts=_value(result, "ep_size"),
            stage_layers=tuple(
                len(stage_layers(layers, replace(ranks, pp_rank=stage)))
                for stage in range(ranks.pp)
            ),
            copies_host_weights=True,
            sends_chosen_tokens=result.deployment.asked.moe_a2a_backend not in _TO_ALL,
        ),
        replicas=1 if attention > 1 else _value(result, "dp_size"),
        token_budget=min(chunk, most) if chunk and chunk > 0 else most,
        kv_dtype=_cache(result),
        cuda_graphs=True,
        asynchronous=_sglang_overlaps(result),
    )


def _sglang_overlaps(result: FitResult) -> bool:
    """Whether SGLang prepares a step while one runs.

    With drafts its second worker does: the default since 0.5.11, of trees since 0.5.14
    (``server_args.py``, ``SGLANG_ENABLE_SPEC_V2``; ``spec_info.py``).
    """
    from tokenroom.engines.sglang.rules import version_numbers  # loaded with the engine

    if _value(result, "disable_overlap_schedule", False):
        return False
    resolved = result.deployment.resolved
    if resolved.speculative_algorithm is None:
        return True
    version = version_numbers(result.deployment.version)
    return version >= ((0, 5, 11) if resolved.draft_topk <= 1 else (0, 5, 14))


def _tensorrt_llm(result: FitResult, input_tokens: int) -> Terms:
    budget, built = _value(result, "max_num_tokens"), result.deployment.resolved.build is not None
    if input_tokens > budget and not _value(result, "enable_chunked_prefill"):
        raise DeploymentError(
            f"input_tokens is {input_tokens:,}; TensorRT-LLM refuses prompts beyond max_num_tokens "
            f"{budget:,} unless they are chunked: shorten the prompt"
        )
    return Terms(
        engine="tensorrt_llm",
        layout=_layout(
            result,
            attention_copies=result.deployment.resolved.copies,
            experts=_value(result, "moe_expert_parallel_size"),
        ),
        replicas=1,
        token_budget=budget,
        kv_dtype=_cache(result),
        # built engines replay graphs only where told to (``cuda_graph_mode``), and never prepare a
        # step while one runs (``enable_trt_overlap`` "doesn't have any effect on the runtime";
        # triton-inference-server/tensorrtllm_backend at f70899bb, docs/model_config.md)
        cuda_graphs=not built,
        asynchronous=not built,
    )


def _llama_cpp(result: FitResult, _: int) -> Terms:
    """Layers split over GPUs run one after another for all requests: one rank with all of them."""
    named = _value(result, "type_k")
    if named not in _LLAMA_CACHE:
        raise DeploymentError(
            f"the speed of a llama.cpp cache of type {named} is not modelled; it may be "
            f"{', '.join(_LLAMA_CACHE)}"
        )
    build = Build(
        flash_attention=_value(result, "flash_attn"),
        int8_products=rules_for(result.deployment.version).int8_products,
    )
    return Terms(
        engine=engine_of(build),
        layout=Layout(per_node=result.deployment.node.per_node),
        replicas=1,
        token_budget=_value(result, "n_ubatch"),
        kv_dtype=_LLAMA_CACHE[named],
        cuda_graphs=True,
        asynchronous=False,
    )


def _transformers(result: FitResult) -> Terms:
    """``generate`` in eager mode; layers spread over GPUs run one after another."""
    return Terms(
        engine="transformers",
        layout=Layout(per_node=result.deployment.node.per_node),
        replicas=1,
        token_budget=result.plan.max_model_len,
        kv_dtype=None,
        cuda_graphs=False,
        asynchronous=False,
        mixes=False,
    )


def _host_part(result: FitResult, bandwidth: float | None) -> HostPart | None:
    """What llama.cpp lets the processor compute, None when all is on GPUs."""
    from tokenroom.engines.llama_cpp.speed import host_blocks, speed_class  # loaded with the engine

    memory: Any = getattr(result.plan, "memory", None)
    placed = speed_class(memory)
    spec = result.deployment.spec
    if placed.name == "all_gpu":
        return None
    if placed.name == "cpu_only":
        raise DeploymentError(
            f"llama.cpp runs {spec.name} on the processor alone, whose speed is not modelled; give "
            f"it a GPU with --n-gpu-layers"
        )
    if bandwidth is not None:
        number = isinstance(bandwidth, int | float) and not isinstance(bandwidth, bool)
        if not number or not 0 < bandwidth < inf:
            raise DeploymentError(
                f"host_bandwidth is {shown(bandwidth)}; give bytes a second above 0, such as 90e9"
            )
    else:
        raise DeploymentError(
            f"llama.cpp places parts of {spec.name} in host memory, and host_bandwidth is not "
            f"given; give the peak of that memory (--host-bandwidth 90GB/s), or use more GPUs"
        )
    away = host_blocks(memory)
    kinds = [id(layer) for layer, _ in spec.layer_kinds]
    numbers = [kinds.index(id(layer)) for layer in spec.layers]

    def counts(blocks: frozenset[int]) -> tuple[int, ...]:
        return tuple(
            sum(number == kind for index, number in enumerate(numbers) if index in blocks)
            for kind in range(len(kinds))
        )

    return HostPart(
        layers=counts(away.layers),
        experts=counts(away.experts),
        output=away.output,
        bandwidth_bytes_per_second=bandwidth,
        copied_from_rows=_OFFLOAD_ROWS if memory.resolved.op_offload else None,
    )


_TERMS: Final[Mapping[str, Callable[[FitResult, int], Terms]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "llama.cpp": _llama_cpp,
}
