"""Fitted deployments as the simulator runs them: one module an engine, loaded when needed."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Final

from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult
from tokenroom.serving.deployments.simulated_engine import Scheduling, SimulatedEngine

_MODULES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "llama.cpp": "llama_cpp",
    "transformers": "transformers",
}


def engine_of(result: FitResult, scheduling: Scheduling = MappingProxyType({})) -> SimulatedEngine:
    """How a fitted deployment is simulated.

    Args:
        result: The deployment.
        scheduling: Settings that change what steps run but no memory, under the engine's names.

    Raises:
        DeploymentError: It does not start, is not simulated, or has no such setting.
    """
    engine = result.deployment.engine
    if engine not in _MODULES:
        raise DeploymentError(f"engine {engine} is not simulated; it may be {', '.join(_MODULES)}")
    if result.plan.refusal is not None:
        raise DeploymentError(
            "the deployment does not start, so it serves nothing; tokenroom fit says why"
        )
    module = import_module(f"{__name__}.{_MODULES[engine]}")
    simulated: SimulatedEngine = module.simulated_engine(result, scheduling)
    return simulated
