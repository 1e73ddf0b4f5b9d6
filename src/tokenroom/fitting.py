"""The first question: does it fit, what takes the memory, and how many tokens are left.

:func:`fit` is the front door for Python; the command line and everything built later call it too.
It names no engine rule: it resolves the model, the accelerators and the settings, asks the
engine's policy, and judges the answer against what was asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tokenroom.engines.policy import (
    Change,
    Deployment,
    Engine,
    MemoryPlan,
    Notice,
    StageMemory,
)
from tokenroom.engines.registry import engine_named
from tokenroom.engines.setting_checks import MAX_ACCELERATORS, check_bounds
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.hardware.names import split_count
from tokenroom.memory.allocation import Occupancy
from tokenroom.memory.ledger import Line
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.units import MAX_TOKENS, format_bytes, parse_tokens

if TYPE_CHECKING:
    from tokenroom.engines.launch import LaunchCommand

Verdict: TypeAlias = Literal["fits", "fits_with_less", "does_not_fit"]


@dataclass(frozen=True, kw_only=True, repr=False)
class FitResult:
    """The answer for one deployment.

    Attributes:
        engine: The policy that answered.
        deployment: The model, node and every setting with its origin.
        plan: The engine's division of memory.
        concurrency: Requests at once that were asked for, None when not asked.
        request_tokens: Length of one request in tokens (prompt and output), at most
            ``max_model_len``.
        notes: Sentences of whoever read the settings.
        asides: What was noticed about the question itself.
    """

    engine: Engine
    deployment: Deployment
    plan: MemoryPlan
    concurrency: int | None
    request_tokens: int
    notes: tuple[str, ...] = ()
    asides: tuple[Notice, ...] = ()

    def __repr__(self) -> str:
        """What was asked and the answer, short enough for a prompt."""
        deployment = self.deployment
        node = deployment.node
        return (
            f"<FitResult {deployment.spec.name} on {node.count} x {node.accelerator.key}, "
            f"{deployment.engine} {deployment.version}: {self.verdict}, "
            f"{self.plan.kv_pool_tokens:,} tokens>"
        )

    @property
    def verdict(self) -> Verdict:
        """The answer in one word.

        ``"fits"``; ``"fits_with_less"`` when the engine starts but runs fewer requests at once than
        asked, or none where nothing was asked; ``"does_not_fit"`` when it would not start.
        """
        if self.plan.refusal is not None:
            return "does_not_fit"
        if self.requests_running < self.requests_wanted:
            return "fits_with_less"
        return "fits"

    @property
    def requests_wanted(self) -> int:
        """Requests that are to run at once: as many as asked for, otherwise one."""
        return self.concurrency or 1

    @property
    def requests_held(self) -> int:
        """Requests of the asked length that the KV pools of all replicas hold at once."""
        return self.plan.requests_of(self.request_tokens)

    @property
    def requests_running(self) -> int:
        """Requests of the asked length that run at once: held, and at most max_num_seqs."""
        if self.plan.refusal is not None:
            return 0
        return min(self.requests_held, self.plan.max_num_seqs)

    @property
    def occupancy(self) -> Occupancy | None:
        """What the workload makes of the pool, for policies that pass one through it."""
        found: Occupancy | None = getattr(self.plan, "occupancy", None)
        return found

    @property
    def governing_stage(self) -> StageMemory:
        """The rank with the least room, which decides for all."""
        stages = [stage for stage in self.plan.stages if not stage.is_host]
        return min(stages or self.plan.stages, key=lambda stage: stage.available_bytes)

    @property
    def weights_bytes(self) -> int:
        """The whole checkpoint as stored, MTP blocks included."""
        return checkpoint_weights(self.deployment.spec).total_bytes

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Everything the user should know about the answer."""
        of_engine = self.deployment.notices + self.plan.notices
        unknown = [str(found.values["flag"]) for found in of_engine if found.key == "unknown_flag"]
        said = tuple(
            Notice(
                key="unknown_flag_said" if any(flag in text for flag in unknown) else "assumption",
                values={"text": text},
            )
            for text in (*self.notes, *self.deployment.spec.assumptions)
        )
        texts = " ".join(self.notes)
        rest = (
            found
            for found in of_engine
            if found.key != "unknown_flag" or str(found.values["flag"]) not in texts
        )
        return (*self.asides, *self._gpu_notices, *said, *rest)

    @property
    def _gpu_notices(self) -> tuple[Notice, ...]:
        """That the GPU's memory was derived instead of read from such a GPU."""
        gpu = self.deployment.node.accelerator
        if not gpu.memory_assumed:
            return ()
        source = gpu.sources.get("memory_bytes", "no source is named")
        values = {"gpu": gpu.name, "memory_bytes": gpu.memory_bytes, "source": source}
        return (Notice(key="gpu_memory_assumed", values=values),)

    @cached_property
    def kv_pool_tokens_range(self) -> tuple[int, int]:
        """Tokens in the pool if the estimates err together as far as they were measured to."""
        stage = self.governing_stage
        tokens, room = self.plan.kv_pool_tokens, stage.kv_pool_bytes
        if room <= 0 or stage.available_bytes <= 0 or self.plan.pool_is_exact:
            return tokens, tokens
        worse, better = stage.estimate_errors
        available = stage.available_bytes
        return (
            max(0, round(tokens * (available - worse) / available)),
            round(tokens * (available + better) / available),
        )

    @cached_property
    def max_model_len_that_fits(self) -> int:
        """The longest ``max_model_len`` for which the engine starts; 0 when none does."""
        return self.plan.max_model_len_that_fits()

    @cached_property
    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing rank with formulas, values and sources."""
        return self.plan.explain()

    @cached_property
    def changes_that_fit(self) -> tuple[Change, ...]:
        """The smallest changes that make it fit, cheapest first; empty when it fits already."""
        return () if self.verdict == "fits" else tuple(self._changes())

    @cached_property
    def launch(self) -> LaunchCommand | None:
        """The command that starts it; None of an engine without a command line."""
        from tokenroom.engines.launch import launch_command

        return launch_command(self.deployment)

    def with_settings(self, **settings: Any) -> FitResult:
        """The same question with some engine settings changed.

        Raises:
            DeploymentError: The engine refuses them.
        """
        old = self.deployment
        asked = self.engine.settings(old.asked, _frozen(settings))
        check_bounds(asked)
        deployment = self.engine.deploy(old.spec, old.node, asked, old.draft)
        return self._of(deployment)

    def _of(self, deployment: Deployment) -> FitResult:
        plan = self.engine.plan(deployment)
        tokens = self.request_tokens
        if tokens == self.plan.max_model_len:  # "as long as allowed" stays so
            tokens = plan.max_model_len
        return FitResult(
            engine=self.engine,
            deployment=deployment,
            plan=plan,
            concurrency=self.concurrency,
            request_tokens=min(tokens, plan.max_model_len),
            notes=self.notes,
            asides=self.asides,
        )

    def _changes(self) -> Iterator[Change]:
        for change in self.engine.changes(self.deployment, self._suffices):
            changed = self._of(change.deployment)
            yield change.with_result(changed.plan, changed.requests_running, changed.request_tokens)

    def _suffices(self, deployment: Deployment) -> bool:
        changed = self._of(deployment)
        stated = self.request_tokens < self.plan.max_model_len or (
            self.concurrency is not None and self._is_length_asked
        )
        shortened = stated and changed.request_tokens < self.request_tokens
        return changed.verdict == "fits" and not shortened

    @property
    def _is_length_asked(self) -> bool:
        """Whether the longest request was asked for, and is no default."""
        names = ("max_model_len", "context_length", "max_seq_len")
        asked = self.deployment.asked
        return any(getattr(asked, name, None) for name in names)


def fit(
    model: str | os.PathLike[str] | ModelSpec,
    gpu: str | Accelerator | Node,
    *,
    gpus: int | None = None,
    engine: str = "vllm",
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: bool | None = None,
    context: int | str | None = None,
    concurrency: int | None = None,
    request_tokens: int | str | None = None,
    weights: str | None = None,
    kv: str | None = None,
    util: float | None = None,
    used_bytes: int = 0,
    settings: Any = None,
    notes: Sequence[str] = (),
    find_model: Callable[[str], ModelSpec] | None = None,
    **engine_settings: Any,
) -> FitResult:
    """Whether a model fits, what takes the memory, and how many tokens are left.

    Args:
        model: Catalogue name, Hub id, path of a config.json, checkpoint folder or GGUF file, or a
            :class:`ModelSpec`.
        gpu: Accelerator name, accelerator or node.
        gpus: How many of them; as many as the parallel sizes need when not given.
        engine: ``"vllm"``, ``"vllm@VERSION"``, ``"tensorrt-llm"``, ``"transformers"``, ...
        tp: Tensor-parallel size; all ``gpus`` when no parallel size is given.
        pp: Pipeline-parallel size.
        dp: Data-parallel size.
        ep: Expert parallelism.
        context: max_model_len in tokens, or as text: ``"32k"`` is 32 x 1024.
        concurrency: Requests wanted at once.
        request_tokens: Length of one such request, ``context`` when not given.
        weights: "What if" weight layout, for example ``"fp8"`` or ``"awq"``.
        kv: KV cache type, for example ``"fp8"``.
        util: Share of each GPU that the engine may take.
        used_bytes: Memory that other processes hold on each GPU.
        settings: The engine's own settings object, as its command-line parser gives it.
        notes: Sentences of whoever read the settings, passed on in :attr:`FitResult.notices`.
        find_model: What looks up names of models, draft models included; files, catalogue and Hub
            when None.
        engine_settings: Further engine arguments under the engine's own names; lists may be
            lists or tuples.

    Raises:
        TokenroomError: Something is unknown, out of range, or refused by the engine; the message
            says which field, what it held and what it may hold.
    """
    _check_types(locals())
    if isinstance(context, str):
        context = parse_tokens(context, "context")
    if isinstance(request_tokens, str):
        request_tokens = parse_tokens(request_tokens, "request_tokens")
    _check_positive("concurrency", concurrency)
    _check_positive("request_tokens", request_tokens)
    policy, version = engine_named(engine)
    if isinstance(model, ModelSpec):
        spec = model
    else:
        spec = find_model(os.fspath(model)) if find_model is not None else _model(model)
    if weights is not None:
        from tokenroom.models.quantization.hypothetical import what_if  # costs start-up time

        spec = what_if(spec, weights)
    shorthand = {
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        "data_parallel_size": dp,
        "enable_expert_parallel": ep,
        "max_model_len": context,
        "kv_cache_dtype": kv,
        "gpu_memory_utilization": util,
        "version": version,
    }
    if getattr(policy, "takes_workload", False):
        shorthand |= {"concurrency": concurrency, "request_tokens": request_tokens}
    given = {name: value for name, value in shorthand.items() if value is not None}
    count = _node_count(gpu, gpus)
    if (
        settings is None
        and count
        and count > 1
        and not {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"}
        & {*given, *engine_settings}
    ):
        given["tensor_parallel_size"] = count
    if settings is not None and not isinstance(settings, type(policy.settings(None, {}))):
        raise DeploymentError(
            f"settings is {shown(settings)}; give {policy.name}'s own settings object, or single "
            f"settings by name, such as max_model_len=8192"
        )
    _check_once(policy, given, engine_settings)
    asked = policy.settings(settings, given | _frozen(engine_settings))
    check_bounds(asked)
    node = policy.place(_accelerator(gpu), count, asked, used_bytes)
    _check_node(node)
    drafting = policy.draft_model(asked)
    draft = (find_model or load_model)(drafting) if drafting is not None else None
    deployment = policy.deploy(spec, node, asked, draft)
    plan = policy.plan(deployment)
    # TensorRT-LLM shortens what its pool does not hold; the question remains what was asked.
    longest = max(plan.max_model_len, context or 0)
    if request_tokens is not None and request_tokens > longest:
        raise DeploymentError(
            f"request_tokens is {request_tokens}; the engine refuses requests beyond max_model_len "
            f"{longest}: shorten the requests or raise the context"
        )
    return FitResult(
        engine=policy,
        deployment=deployment,
        plan=plan,
        concurrency=concurrency,
        request_tokens=request_tokens or longest,
        notes=tuple(notes),
        asides=tuple(_asides(policy, settings, given | _frozen(engine_settings), count, node)),
    )


def check_setting_names(
    names: Iterable[str], what: str, *, options: bool = False, asks: Callable[..., Any] = fit
) -> None:
    """Refuse settings of an engine whose names are arguments of the question itself.

    Args:
        names: Of the settings.
        what: What held them, for the message: ``"--set"``.
        options: Arguments are options of a command line, which the message names.
        asks: The question: :func:`fit`, or one that takes more.

    Raises:
        DeploymentError: One is.
    """
    own = signature(asks).parameters.keys() & set(names)
    if own:
        name = min(own)
        instead = ""
        if options and name not in _INNER:
            instead = f"; give {_OPTIONS.get(name, f'--{name}')} instead"
        raise DeploymentError(
            f"{what} holds {name}, which is no setting of the engine's own{instead}"
        )


def _model(name: str | os.PathLike[str]) -> ModelSpec:
    """The model; one from the catalogue is kept, so that work on it is not repeated."""
    if isinstance(name, str) and not os.path.exists(name):
        return _known_model(name)
    return load_model(Path(name))


@lru_cache(maxsize=64)
def _known_model(name: str) -> ModelSpec:
    return load_model(name)


def _accelerator(gpu: str | Accelerator | Node) -> Accelerator:
    if isinstance(gpu, Node):
        return gpu.accelerator
    return gpu if isinstance(gpu, Accelerator) else find_accelerator(gpu)


def _node_count(gpu: str | Accelerator | Node, gpus: int | None) -> int | None:
    if gpus is None:
        if isinstance(gpu, str):
            return split_count(gpu)[0]  # "8xh100"
        return gpu.count if isinstance(gpu, Node) else None
    _check_positive("gpus", gpus, MAX_ACCELERATORS)
    return gpus


def _asides(
    policy: Engine, settings: Any, given: Mapping[str, Any], count: int | None, node: Node
) -> Iterator[Notice]:
    """What the user may not have meant: GPUs left idle, options that replace the command's."""
    if count is not None and count > node.count:
        yield Notice(key="gpus_unused", values={"used": node.count, "count": count})
    if settings is not None:
        yield from _replaced(policy, settings, given)
    measured = node.accelerator.measured
    if measured is not None:
        own = policy.name == "transformers"
        yield Notice(
            key="measured_memory" if own else "measured_context",
            values={
                "profile": measured.profile,
                "created": measured.created,
                "context_bytes": measured.context_bytes,
            },
        )


def _replaced(policy: Engine, settings: Any, given: Mapping[str, Any]) -> Iterator[Notice]:
    """What options replace of an engine's own command, by the engine's own names.

    One option may set several of them, and under another name than its own.
    """
    unset = policy.settings(None, {})
    for name, value in given.items():
        made = policy.settings(settings, {name: value})
        for part in fields(made):
            before, now = getattr(settings, part.name), getattr(made, part.name)
            if part.name != "version" and before not in (None, now, getattr(unset, part.name)):
                values = {"name": part.name, "value": now, "before": before}
                yield Notice(key="overridden", values=values)


def _check_positive(field: str, value: int | None, largest: int = MAX_TOKENS) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DeploymentError(f"{field} is {shown(value)}; it must be a whole number of at least 1")
    if value > largest:
        raise DeploymentError(f"{field} is {shown(value)}; give at most {largest:,}")


def _frozen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as the tuples that settings hold."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }


def _check_once(
    policy: Engine, given: Mapping[str, Any], engine_settings: Mapping[str, Any]
) -> None:
    """Refuse a setting given twice with different values, be it under two of its names."""
    if not given or not engine_settings:
        return
    ours = _own_names(policy, given)
    for own, (name, value) in _own_names(policy, engine_settings).items():
        if own in ours and ours[own][1] != value:
            other = ours[own][0]
            also = f" and, as {name}," if name != other else " and"
            raise DeploymentError(
                f"{other} is given twice, as {shown(ours[own][1])}{also} as {shown(value)}; "
                f"give one"
            )


def _own_names(policy: Engine, settings: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """The engine's own field that each setting sets, with the name and value it was given by."""
    unset = policy.settings(None, {})
    found = {}
    for name, value in settings.items():
        made = policy.settings(None, {name: value})
        for field in fields(made):
            held = getattr(made, field.name)
            if held is not None and held != getattr(unset, field.name):
                found[field.name] = (name, held)
    return found


def _check_node(node: Node) -> None:
    """Refuse more accelerators than any machine room has, and more used memory than they have."""
    if node.count > MAX_ACCELERATORS:
        raise DeploymentError(
            f"the parallel sizes need {shown(node.count)} GPUs; at most {MAX_ACCELERATORS:,} are "
            f"planned"
        )
    held, memory = node.used_bytes, node.accelerator.memory_bytes
    if held > memory:
        raise DeploymentError(
            f"used_bytes is {format_bytes(held)}, but {node.accelerator.name} has only "
            f"{format_bytes(memory)}; give what other processes hold on each GPU"
        )


#: Argument of :func:`fit` to the types it may have beside None, and how to write them.
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "model": ((str, os.PathLike, ModelSpec), "a name, a path or a ModelSpec"),
    "gpu": ((str, Accelerator, Node), "a name, an Accelerator or a Node"),
    "engine": ((str,), "a name such as 'vllm' or 'vllm@0.19.0'"),
    "ep": ((bool,), "True or False"),
    "context": ((int, str), "tokens, as 32768 or '32k'"),
    "request_tokens": ((int, str), "tokens, as 8192 or '8k'"),
    "weights": ((str,), "a layout such as 'fp8'"),
    "kv": ((str,), "a type such as 'fp8'"),
    "used_bytes": ((int,), "a whole number of bytes from 0"),
    "notes": ((list, tuple), "a list of sentences"),
}
#: How the command line writes arguments of :func:`fit` where not by their name.
_OPTIONS: Final = {
    "model": "the model before the options",
    "request_tokens": "--request",
    "used_bytes": "--used",
    "input_tokens": "--input",
    "output_tokens": "--output",
    "host_bandwidth": "--host-bandwidth",
    "price_per_gpu_hour": "--price",
}
_INNER: Final = frozenset({"settings", "notes", "find_model", "engine_settings"})
_NEEDED: Final = frozenset({"model", "gpu", "engine", "used_bytes", "notes"})


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of :func:`fit` of a wrong type, with what they may be."""
    for name, (types, wanted) in _TYPES.items():
        value = arguments[name]
        if value is None and name not in _NEEDED:
            continue
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise DeploymentError(f"{name} is {shown(value)}; give {wanted}")
    if arguments["used_bytes"] < 0:
        raise DeploymentError(
            f"used_bytes is {shown(arguments['used_bytes'])}; give {_TYPES['used_bytes'][1]}"
        )
    if any(not isinstance(note, str) for note in arguments["notes"]):
        raise DeploymentError(f"notes is {shown(arguments['notes'])}; give {_TYPES['notes'][1]}")
