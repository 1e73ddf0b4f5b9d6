"""What would make an SGLang deployment fit: settings to change, cheapest first.

Load-time and run-time failures need opposite moves: a pool that comes out too small wants
``--mem-fraction-static`` up, graphs or a prefill that find no room want it down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
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
from tokenroom.units import GIB

if TYPE_CHECKING:
    from tokenroom.engines.sglang.policy import SGLangPolicy

_FRACTIONS: Final = (0.85, 0.88, 0.9, 0.92, 0.94)
_LOWER: Final = 0.02
_SMALLEST_CHUNK: Final = 1024
_LAYOUTS: Final = ("fp8", "awq")


def changes_that_suffice(
    policy: SGLangPolicy, deployment: Deployment, suffices: Callable[[Deployment], bool]
) -> Iterator[Change]:
    """The least changes that suffice, cheapest first."""

    def useful(changed: Deployment) -> bool:
        """It starts, and the pool holds a request of the length that is allowed."""
        if not suffices(changed):
            return False
        length: int = changed.resolved.context_length
        return policy.plan(changed).kv_pool_tokens >= length

    refusal = policy.plan(deployment).refusal
    late = refusal is not None and refusal.phase == "graph_capture"
    fractions = _lower_fractions if late else _higher_fractions
    return changes_from(
        policy,
        deployment,
        useful,
        soft=[
            fractions,
            _lengths,
            _graphs,
            _requests,
            _chunks,
            _no_graphs,
            _no_encoder,
            _narrow_cache,
            _narrow_weights,
        ],
        hard=[_wider("tp_size"), _wider("pp_size"), _wider("dp_size"), _offload],
        narrowing=[_narrow_cache, _narrow_weights],
    )


def _step(key: str, name: str, value: Any) -> Step:
    return Step(key=key, settings={name: value})


def _higher_fractions(deployment: Deployment) -> list[Step]:
    now = deployment.resolved.mem_fraction_static
    return [
        _step("gpu_memory_utilization", "mem_fraction_static", value)
        for value in _FRACTIONS
        if value > now
    ]


def _lower_fractions(deployment: Deployment) -> list[Step]:
    now = deployment.resolved.mem_fraction_static
    values = [round(now - _LOWER * count, 3) for count in range(1, 12)]
    return [
        _step("mem_fraction_static", "mem_fraction_static", value) for value in values if value > 0
    ]


def _lengths(deployment: Deployment) -> list[Step]:
    length = deployment.resolved.context_length
    return [_step("max_model_len", "context_length", value) for value in halves(length, 1024)]


def _requests(deployment: Deployment) -> list[Step]:
    running = deployment.resolved.max_running_requests or 2048
    return [_step("max_num_seqs", "max_running_requests", value) for value in halves(running, 1)]


def _chunks(deployment: Deployment) -> list[Step]:
    chunk = deployment.resolved.chunked_prefill_size
    chunk *= deployment.resolved.attention_dp_size
    return [
        _step("max_num_batched_tokens", "chunked_prefill_size", value)
        for value in halves(chunk, _SMALLEST_CHUNK)
    ]


def _graphs(deployment: Deployment) -> list[Step]:
    largest = max(deployment.resolved.decode_bs, default=0)
    name = "cuda_graph_max_bs"
    return [_step("cuda_graph_max_bs", name, value) for value in halves(largest, 4)]


def _no_graphs(deployment: Deployment) -> list[Step]:
    resolved = deployment.resolved
    if not resolved.decode_bs and not resolved.prefill_tokens:
        return []
    return [
        Step(
            key="enforce_eager",
            settings={"decode_graphs": False, "prefill_graphs": False},
        )
    ]


def _no_encoder(deployment: Deployment) -> list[Step]:
    if not deployment.spec.towers or not deployment.resolved.towers:
        return []
    return [_step("language_model_only", "language_only", True)]


def _narrow_cache(deployment: Deployment) -> list[Step]:
    if deployment.resolved.kv_cache_dtype not in ("float16", "bfloat16"):
        return []
    return [_step("kv_cache_dtype", "kv_cache_dtype", "fp8_e4m3")]


def _narrow_weights(deployment: Deployment) -> list[Step]:
    if not takes_fewer_bits(deployment.spec):
        return []
    layouts = _LAYOUTS if deployment.spec.quantization is None else _LAYOUTS[-1:]
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout) for layout in layouts
    ]


def _wider(name: str) -> Ladder:
    keys = {
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "dp_size": "data_parallel_size",
    }

    def ladder(deployment: Deployment) -> list[Step]:
        if name == "dp_size" and deployment.resolved.attention_dp_size > 1:
            return []
        now = getattr(deployment.resolved, name)
        return [_step(keys[name], name, size) for size in doubles(now)]

    return ladder


def _offload(deployment: Deployment) -> list[Step]:
    if deployment.resolved.cpu_offload_bytes:
        return []
    found, gib = [], 4
    while gib * GIB <= 2 * ceil(deployment.node.accelerator.memory_bytes):
        found.append(_step("cpu_offload", "cpu_offload_bytes", gib * GIB))
        gib *= 2
    return found
