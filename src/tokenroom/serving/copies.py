"""The data-parallel copies of one server: how many, what chooses among them, who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenroom.fitting import FitResult
from tokenroom.models.spec import ModelSpec, MoEFFN
from tokenroom.serving.routers.by_load import LeastLoad, VllmBalancer
from tokenroom.serving.routers.by_turn import RoundRobin
from tokenroom.serving.routers.router import Router
from tokenroom.serving_terms import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The data-parallel copies of one server.

    Attributes:
        count: How many there are.
        lockstep: Each of their steps waits for those of the others.
        new_balancer: Makes what chooses among them.
    """

    count: int
    lockstep: bool
    new_balancer: Callable[[], Router]


def copies_of(result: FitResult, terms: Terms) -> Copies:
    """The copies that a fitted deployment is.

    - vLLM: ranks of a model with experts step together; those of others are independent from 0.14
      on, and before it they agreed on every step as well (``DPEngineCoreProc`` of
      ``vllm/v1/engine/core.py``, 0.13 and 0.14).
    - SGLang: with attention data parallelism ranks step together, otherwise they are independent;
      requests go to them in turn (``--load-balance-method auto``: ``handle_load_balance_method``
      of ``srt/arg_groups/serving_hook.py``, 0.5.23).
    - TensorRT-LLM: ranks step together; a request goes to the one with the fewest.
    """
    ranks = terms.layout.data_parallel_size
    match result.deployment.engine:
        case "vllm":
            from tokenroom.engines.vllm.rules import version_number  # loaded with the engine

            version = version_number(result.deployment.version)
            return Copies(
                count=ranks,
                lockstep=_has_experts(result.deployment.spec) or version < (0, 14, 0),
                new_balancer=lambda: VllmBalancer(counts_in_flight=version >= (0, 27, 0)),
            )
        case "tensorrt-llm":
            return Copies(count=ranks, lockstep=True, new_balancer=lambda: LeastLoad(1.0))
        case _:
            return Copies(count=ranks * terms.replicas, lockstep=ranks > 1, new_balancer=RoundRobin)


def _has_experts(spec: ModelSpec) -> bool:
    return any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds)
