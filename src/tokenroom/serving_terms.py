"""What an engine's settings mean for speed: division, budget of a step, type of the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tokenroom.engines.sglang.rules import version_numbers
from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.work import Layout
from tokenroom.serving_drafting import drafting_of

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
    """

    engine: str
    layout: Layout
    replicas: int
    token_budget: int
    kv_dtype: str | None
    cuda_graphs: bool
    asynchronous: bool
    drafting: Drafting | None = None


def terms_of(result: FitResult, input_tokens: int, acceptance: float | None = None) -> Terms:
    """What the settings of a deployment mean for prompts of ``input_tokens``.

    ``acceptance`` is the share of drafted tokens that are kept, or the mean tokens of a step.

    Raises:
        DeploymentError: The engine would refuse such prompts, or its speed is not modelled.
    """
    check_engine(result.deployment.engine)
    terms = _TERMS[result.deployment.engine](result, input_tokens)
    return terms._replace(drafting=drafting_of(result.deployment, terms.layout, acceptance))


def check_engine(name: str) -> None:
    """Refuse an engine whose speed is not modelled.

    Raises:
        DeploymentError: It is none of those.
    """
    if name not in _TERMS:
        raise DeploymentError(
            f"the speed of engine {name} is not modelled; it may be {', '.join(_TERMS)}"
        )


def _value(result: FitResult, name: str, default: Any = None) -> Any:
    setting = result.deployment.settings.get(name)
    return default if setting is None else setting.value


def _layout(result: FitResult, *, copies: int = 1, experts: int = 1) -> Layout:
    return Layout(
        tensor_parallel_size=_value(result, "tensor_parallel_size"),
        pipeline_parallel_size=_value(result, "pipeline_parallel_size"),
        data_parallel_size=copies,
        expert_parallel_size=experts,
        per_node=result.deployment.node.per_node,
    )


def _cache(result: FitResult) -> str | None:
    named: str | None = _value(result, "kv_cache_dtype")
    return None if named == "auto" else named


def _vllm(result: FitResult, _: int) -> Terms:
    copies = _value(result, "data_parallel_size")
    experts = 1
    if _value(result, "enable_expert_parallel"):
        experts = copies * _value(result, "tensor_parallel_size")
    return Terms(
        engine="vllm",
        layout=_layout(result, copies=copies, experts=experts),
        replicas=1,
        token_budget=_value(result, "max_num_batched_tokens"),
        kv_dtype=_cache(result),
        cuda_graphs=not _value(result, "enforce_eager", False),
        asynchronous=_value(result, "async_scheduling", False),
    )


def _sglang(result: FitResult, _: int) -> Terms:
    chunk, most = _value(result, "chunked_prefill_size"), _value(result, "max_prefill_tokens")
    return Terms(
        engine="sglang",
        layout=_layout(result, experts=_value(result, "ep_size")),
        replicas=_value(result, "dp_size"),
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
    if _value(result, "disable_overlap_schedule", False):
        return False
    resolved = result.deployment.resolved
    if resolved.speculative_algorithm is None:
        return True
    version = version_numbers(result.deployment.version)
    return version >= ((0, 5, 11) if resolved.draft_topk <= 1 else (0, 5, 14))


def _tensorrt_llm(result: FitResult, input_tokens: int) -> Terms:
    budget = _value(result, "max_num_tokens")
    if input_tokens > budget and not _value(result, "enable_chunked_prefill"):
        raise DeploymentError(
            f"input_tokens is {input_tokens:,}; TensorRT-LLM refuses prompts beyond max_num_tokens "
            f"{budget:,} unless they are chunked: shorten the prompt"
        )
    return Terms(
        engine="tensorrt_llm",
        layout=_layout(result, experts=_value(result, "moe_expert_parallel_size")),
        replicas=1,
        token_budget=budget,
        kv_dtype=_cache(result),
        cuda_graphs=True,
        asynchronous=True,
    )


def _llama_cpp(result: FitResult, _: int) -> Terms:
    """Layers split over GPUs run one after another for all requests: one rank with all of them."""
    remarks = getattr(result.plan, "remarks", ())
    if any(remark.key != "placement_all_gpu" for remark in remarks):
        raise DeploymentError(
            f"llama.cpp places parts of {result.deployment.spec.name} in host memory, whose speed "
            f"is not modelled; use more GPUs or smaller weights"
        )
    named = _value(result, "type_k")
    if named not in _LLAMA_CACHE:
        raise DeploymentError(
            f"the speed of a llama.cpp cache of type {named} is not modelled; it may be "
            f"{', '.join(_LLAMA_CACHE)}"
        )
    return Terms(
        engine="llama_cpp",
        layout=Layout(per_node=result.deployment.node.per_node),
        replicas=1,
        token_budget=_value(result, "n_ubatch"),
        kv_dtype=_LLAMA_CACHE[named],
        cuda_graphs=True,
        asynchronous=False,
    )


_TERMS: Final[Mapping[str, Callable[[FitResult, int], Terms]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "llama.cpp": _llama_cpp,
}
