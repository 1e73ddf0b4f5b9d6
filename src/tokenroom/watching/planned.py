"""What was predicted for a server, from its command or from what it tells itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tokenroom.errors import DeploymentError, WatchError
from tokenroom.fitting import FitResult, fit
from tokenroom.watching.observation import Facts, Planned

if TYPE_CHECKING:
    from tokenroom.hardware.accelerator import Accelerator
    from tokenroom.models.spec import ModelSpec

_ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
_UNTOLD: Final = ("max_num_batched_tokens", "max_num_seqs")
"""What vLLM's pages do not tell, and its pool depends on."""
_UNVERSIONED: Final = ("llama.cpp", "torch")
_ARGUMENTS: Final = {
    # settings that servers tell: arguments of tokenroom.fitting.fit
    "tp_size": "tp",
    "pp_size": "pp",
    "dp_size": "dp",
    "data_parallel_size": "dp",
    "context_length": "context",
    "gpu_memory_utilization": "util",
    "mem_fraction_static": "util",
    "kv_cache_dtype": "kv",
}


class Prediction:
    """Predicts for one server, and keeps the whole answer for what helps.

    Args:
        ask: Gives the answer for what the server tells; raises a TokenroomError where it cannot.
        told_by: What it rests on.
    """

    def __init__(
        self,
        ask: Callable[[Facts], tuple[FitResult, tuple[str, ...]]],
        told_by: Literal["command", "endpoint"],
    ) -> None:
        self._ask = ask
        self._told_by = told_by
        self.result: FitResult | None = None

    def __call__(self, facts: Facts) -> Planned:
        """What was predicted.

        Raises:
            TokenroomError: There is no prediction.
        """
        self.result = None
        result, assumed = self._ask(facts)
        self.result = result
        return planned(result, told_by=self._told_by, assumed=assumed)


def given(result: FitResult) -> Prediction:
    """The prediction of a deployment that was described; its version is the server's own.

    What asks it raises a WatchError where another engine answers.
    """

    def ask(facts: Facts) -> tuple[FitResult, tuple[str, ...]]:
        deployment = result.deployment
        if facts.engine not in (deployment.engine, "torch"):
            raise WatchError(
                f"--as describes {deployment.engine}, and {facts.engine} answers; describe what "
                f"was started"
            )
        named = getattr(deployment.asked, "version", None)
        if facts.version is None or named is not None or facts.engine in _UNVERSIONED:
            return result, ()
        try:
            return result.with_settings(version=facts.version), ()
        except DeploymentError:  # a build of their own; the newest rules are taken
            return result, (f"version={deployment.version}",)

    return Prediction(ask, "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a server runs on, as far as it is known.

    Attributes:
        gpu: The kind of GPU.
        gpus: How many.
        counted: Nobody says how many: that many are at work, or one where that is not known either.
    """

    gpu: Accelerator
    gpus: int = 1
    counted: bool = False


def told(
    hardware: Callable[[], Hardware],
    find_model: Callable[[str], ModelSpec],
    given: Mapping[str, Any] | None = None,
) -> Prediction:
    """The prediction by what a server tells of its own start.

    Args:
        hardware: Finds what it runs on; raises a TokenroomError where nobody says.
        find_model: Finds a model by its name.
        given: What somebody says beside, as :func:`tokenroom.fitting.fit` takes it.
    """
    known = dict(given or {})

    def ask(facts: Facts) -> tuple[FitResult, tuple[str, ...]]:
        if facts.engine not in _ENGINES:
            raise WatchError(f"what {facts.engine} servers hold is not predicted from a page")
        if facts.model is None:
            raise WatchError("the server does not tell its model; describe it with --as")
        found = hardware()
        settings = _settings(facts) | known
        assumed: list[str] = []
        gpus: int | None = found.gpus
        if "tp" in settings:  # SGLang tells all of its sizes
            gpus = None if found.counted else gpus
        elif facts.engine != "llama.cpp":
            others = int(settings.get("dp") or 1) * int(settings.get("pp") or 1)
            settings["tp"] = max(1, found.gpus // others)
            gpus = None
            assumed.append(f"tensor_parallel_size={settings['tp']}")
        elif found.counted:
            assumed.append(f"gpus={gpus}")
        engine = facts.engine
        if facts.version is not None and engine not in _UNVERSIONED:
            engine = f"{engine}@{facts.version}"
        if facts.engine == "vllm":
            assumed += [name for name in _UNTOLD if name not in known]
        if facts.engine == "llama.cpp" and (facts.max_num_seqs or 1) > 1:
            assumed.append("kv_unified=false")
        result = fit(
            find_model(facts.model),
            found.gpu,
            gpus=gpus,
            engine=engine,
            **settings,
        )
        return result, tuple(assumed)

    return Prediction(ask, "endpoint")


def _settings(facts: Facts) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in facts.settings.items():
        if value not in (None, "", "auto", "None"):
            settings[_ARGUMENTS.get(name, name)] = value
    if facts.max_model_len is not None and facts.engine != "llama.cpp":
        settings["context"] = facts.max_model_len
    if facts.engine == "llama.cpp" and facts.max_model_len is not None:
        slots = facts.max_num_seqs or 1
        settings |= {"context": facts.max_model_len * slots, "max_num_seqs": slots}
    elif facts.max_num_seqs is not None and facts.engine == "sglang":
        settings["max_num_seqs"] = facts.max_num_seqs
    return settings


def planned(
    result: FitResult, *, told_by: Literal["command", "endpoint"], assumed: Sequence[str] = ()
) -> Planned:
    """A prediction in the shape of what is observed: the GPU with the least room."""
    stage, plan = result.governing_stage, result.plan
    low, high = result.kv_pool_tokens_range
    other = stage.context_bytes + stage.non_torch.num_bytes + stage.buffers_bytes
    return Planned(
        told_by=told_by,
        assumed=tuple(assumed),
        model=result.deployment.spec.name,
        gpu=result.deployment.node.accelerator.key,
        gpus=result.deployment.node.count,
        engine=result.deployment.engine,
        version=result.deployment.version,
        starts=plan.refusal is None,
        weights_bytes=stage.weights_bytes,
        activation_bytes=stage.activation.num_bytes,
        graphs_bytes=stage.cuda_graphs.num_bytes,
        other_bytes=other,
        kv_pool_bytes=stage.kv_pool_bytes,
        peak_bytes=stage.total_bytes - stage.free_bytes,
        kv_pool_tokens=plan.kv_pool_tokens,
        kv_pool_tokens_low=low,
        kv_pool_tokens_high=high,
        max_num_seqs=plan.max_num_seqs,
        max_model_len=plan.max_model_len,
    )
