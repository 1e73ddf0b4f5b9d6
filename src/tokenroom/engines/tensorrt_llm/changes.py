"""What would make a TensorRT-LLM deployment fit: settings to change, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tokenroom.engines.change_search import (
    Ladder,
    Step,
    changes_from,
    doubles,
    halves,
    takes_fewer_bits,
)
from tokenroom.engines.policy import Change, Deployment

if TYPE_CHECKING:
    from tokenroom.engines.tensorrt_llm.policy import TensorRTPolicy

_FRACTIONS: Final = (0.93, 0.95, 0.97)
_SMALLEST_BUDGET: Final = 1024
_LAYOUTS: Final = ("fp8", "awq")


def changes_that_suffice(
    policy: TensorRTPolicy, deployment: Deployment, suffices: Callable[[Deployment], bool]
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first."""
    return changes_from(
        policy,
        deployment,
        suffices,
        soft=[_lengths, _fractions, _batches, _budgets, _narrow_cache, _narrow_weights],
        hard=[_wider("tensor_parallel_size"), _wider("pipeline_parallel_size")],
        narrowing=[_narrow_cache, _narrow_weights],
    )


def _lengths(deployment: Deployment) -> list[Step]:
    length = deployment.resolved.max_seq_len
    return [_step("max_model_len", "max_seq_len", value) for value in halves(length, length // 4)]


def _fractions(deployment: Deployment) -> list[Step]:
    now = deployment.resolved.free_gpu_memory_fraction
    return [
        _step("gpu_memory_utilization", "free_gpu_memory_fraction", value)
        for value in _FRACTIONS
        if value > now
    ]


def _batches(deployment: Deployment) -> list[Step]:
    return [
        _step("max_num_seqs", "max_batch_size", value)
        for value in halves(deployment.resolved.max_batch_size, 1)
    ]


def _budgets(deployment: Deployment) -> list[Step]:
    return [
        _step("max_num_batched_tokens", "max_num_tokens", value)
        for value in halves(deployment.resolved.max_num_tokens, _SMALLEST_BUDGET)
    ]


def _narrow_cache(deployment: Deployment) -> list[Step]:
    if deployment.resolved.kv_cache_dtype not in ("float16", "bfloat16"):
        return []
    return [_step("kv_cache_dtype", "kv_cache_dtype", "fp8")]


def _narrow_weights(deployment: Deployment) -> list[Step]:
    if not takes_fewer_bits(deployment.spec):
        return []
    layouts = _LAYOUTS if deployment.spec.quantization is None else _LAYOUTS[-1:]
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout) for layout in layouts
    ]


def _wider(name: str) -> Ladder:
    def ladder(deployment: Deployment) -> list[Step]:
        return [_step(name, name, size) for size in doubles(getattr(deployment.resolved, name))]

    return ladder


def _step(key: str, name: str, value: Any) -> Step:
    return Step(key=key, settings={name: value})
