"""llama.cpp's memory policy: buffers of exact size on every device, all allocated at start.

Nothing is a share of a card. The model's tensors, the caches of the whole context and the compute
buffers each take what they need where the placement puts them; what cannot be allocated is an
error, unless ``--fit`` (on by default) lowered the context and the offloaded layers before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from tokenroom.engines.llama_cpp.auto_fit import FitOutcome, auto_fit
from tokenroom.engines.llama_cpp.caches import padded_cells
from tokenroom.engines.llama_cpp.compute import ComputeBuffers
from tokenroom.engines.llama_cpp.defaults import ALL_LAYERS, ResolvedSettings, resolve
from tokenroom.engines.llama_cpp.devices import context_memory, runtime_memory
from tokenroom.engines.llama_cpp.memory import (
    Decisions,
    Memory,
    initial_decisions,
    measure,
)
from tokenroom.engines.llama_cpp.reserves import RESERVES
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.engines.llama_cpp.speed import SpeedClass, speed_class
from tokenroom.engines.policy import (
    Change,
    Deployment,
    Estimate,
    KVGroup,
    Notice,
    Refusal,
    Setting,
    StageMemory,
)
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.ledger import Line
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.spec import ModelSpec, MoEFFN

_SETTING_NAMES: Final = frozenset(item.name for item in fields(LlamaCppSettings))
#: Common names of settings -> llama.cpp's.
_ALIASES: Final[Mapping[str, str]] = {
    "max_model_len": "n_ctx",
    "max_num_seqs": "n_parallel",
    "max_num_batched_tokens": "n_ubatch",
    "tensor_parallel_size": "gpus",
    "pipeline_parallel_size": "gpus",
}
_NOT_HERE: Final[Mapping[str, str]] = {
    "gpu_memory_utilization": "llama.cpp takes no share of a card; give --fit-target as a setting",
    "data_parallel_size": "start one llama-server a copy",
    "enable_expert_parallel": "use override_tensor to place experts",
    "block_size": "llama.cpp's cache has single cells",
    "kv_cache_memory_bytes": "give n_ctx; its bytes follow",
    "cpu_offload_bytes": "give n_gpu_layers or n_cpu_moe",
    "enforce_eager": "llama.cpp reserves nothing for CUDA graphs",
    "dtype": "the types are those of the GGUF file; give --weights",
    "usage": "give program",
}
_NONE: Final = Estimate(num_bytes=0, low_bytes=0, high_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a deployment comes to: settings, what fitting made of them, and the memory."""

    resolved: ResolvedSettings
    fitted: FitOutcome
    memory: Memory
    pipeline_given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class LlamaCppPlan:
    """How llama.cpp fills every device; see :class:`tokenroom.engines.policy.MemoryPlan`.

    Attributes:
        deployment: What was planned.
        outcome: Decisions and memory.
        stages: The accelerators, then the host.
        refusal: Why it would not start, None when it does.
    """

    deployment: Deployment
    outcome: Outcome
    stages: tuple[StageMemory, ...]
    refusal: Refusal | None

    pool_is_exact: Final = True
    kv_block_size: Final = 1

    @property
    def memory(self) -> Memory:
        """Every buffer of every device."""
        return self.outcome.memory

    @property
    def max_model_len(self) -> int:
        """Tokens that one slot may hold ("n_ctx_slot")."""
        return self.memory.decisions.n_ctx_seq

    @property
    def max_num_seqs(self) -> int:
        """Slots."""
        return self.outcome.resolved.n_seq_max

    @property
    def kv_blocks(self) -> int:
        """Cells of all streams ("n_ctx")."""
        return self.memory.decisions.n_ctx

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens that the cells of all streams hold."""
        return self.memory.decisions.n_ctx

    @property
    def max_concurrency(self) -> float:
        """Slots, which share the cells when the cache is unified."""
        return float(self.outcome.resolved.n_seq_max)

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Layers that cache alike; the page is a cell of one layer, or a sequence's state."""
        groups: dict[tuple[str, int], int] = {}
        for cache in self.memory.caches.layers:
            page = cache.num_bytes // max(1, cache.cells * cache.streams)
            groups[cache.kind, page] = groups.get((cache.kind, page), 0) + 1
        return tuple(
            KVGroup(kind=kind, num_layers=count, block_size=1, page_bytes=page)
            for (kind, page), count in groups.items()
        )

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """What to say under the verdict: where the model lies and how fast that is."""
        found = [self._speed.notice] if self.refusal is None else []
        fitted = self.outcome.fitted
        if fitted.context_lowered:
            found.append(
                Notice(
                    key="context_fitted_first" if self._layers_make_room else "context_fitted",
                    values={
                        "asked": self.outcome.resolved.n_ctx,
                        "asked_flag": str(self.outcome.resolved.n_ctx),
                        "tokens": self.memory.decisions.n_ctx,
                    },
                )
            )
        if fitted.layers_lowered:
            found.append(Notice(key="layers_fitted", values={"flags": fitted_flags(self.memory)}))
        return tuple(found)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        found = []
        if self.outcome.pipeline_given_up:
            found.append(Notice(key="pipeline_given_up"))
        resolved = self.outcome.resolved
        asked = self.deployment.asked.n_ctx
        if resolved.program == "ollama" and asked and asked > resolved.n_ctx:
            found.append(
                Notice(
                    key="ollama_context_cut",
                    values={
                        "tokens": asked // resolved.n_seq_max,
                        "trained": resolved.n_ctx_train,
                    },
                )
            )
        if self.max_model_len > resolved.n_ctx_train:
            found.append(
                Notice(
                    key="beyond_trained_context",
                    values={"tokens": self.max_model_len, "trained": resolved.n_ctx_train},
                )
            )
        if self.refusal is None:
            found += [
                Notice(
                    key="libraries_short",
                    values={"device": stage.device, "missing_bytes": -stage.free_bytes},
                )
                for stage in self.stages[:-1]
                if stage.free_bytes < 0
            ]
        placement = self.memory.placement
        limit = resolved.host_memory_bytes
        host = self.stages[-1]
        if limit is not None and self.refusal is None and host.weights_bytes > limit:
            found.append(
                Notice(
                    key="paged_from_disk",
                    values={"mapped_bytes": placement.mapped_bytes, "host_bytes": limit},
                )
            )
        return tuple(found)

    @cached_property
    def _speed(self) -> SpeedClass:
        return speed_class(self.memory)

    @cached_property
    def governing(self) -> int:
        """Index of the accelerator with the least room; the host when there is none."""
        devices = self.stages[:-1] or self.stages
        return min(range(len(devices)), key=lambda index: devices[index].free_bytes)

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the cells hold at once."""
        caches = self.memory.caches
        if all(cache.kind == "recurrent" for cache in caches.layers):
            return caches.sequences
        if tokens > self.max_model_len:
            return 0
        if caches.streams > 1:
            return caches.streams
        return caches.cells // max(1, tokens)

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing device."""
        held = 0
        for cache in self.memory.caches.layers:
            if self.memory.cache_device(cache.layer) != self.governing:
                continue
            each = cache.num_bytes // max(1, cache.cells * cache.streams)
            held += each * (1 if cache.kind == "recurrent" else min(tokens, cache.cells))
        return held

    def activation_bytes_of(self, requests: int) -> int:
        """The compute buffer of the governing device, which is there whatever runs."""
        return self.memory.compute.sizes[self.governing]

    def max_model_len_that_fits(self) -> int:
        """The longest context of a slot with which it starts, at most the trained length.

        Layers that were left to ``--fit`` make room for any context.
        """
        resolved = self.outcome.resolved
        longest = max(padded_cells(resolved.n_ctx_train), self.max_model_len)
        if self._layers_make_room:
            return longest if self.refusal is None else 0
        return _longest(self.deployment, self.memory.decisions, longest)

    @property
    def _layers_make_room(self) -> bool:
        """Whether ``--fit`` moves layers to the CPU for a context that is asked for."""
        resolved = self.outcome.resolved
        return resolved.fit and resolved.layers_are_free and not resolved.overrides

    def explain(self) -> tuple[Line, ...]:
        """The ledger of every device, line by line."""
        from tokenroom.engines.llama_cpp.explain import explain_plan

        return explain_plan(self)


class LlamaCppPolicy:
    """llama.cpp: llama-server, llama-cli, bindings, and Ollama, which runs llama-server."""

    name: Final = "llama.cpp"
    reserves: Final = RESERVES

    def settings(
        self, base: LlamaCppSettings | None, changes: Mapping[str, Any]
    ) -> LlamaCppSettings:
        """Settings with some fields set, under llama.cpp's names or the common ones.

        Raises:
            DeploymentError: A field is unknown here.
        """
        named: dict[str, Any] = {}
        for name, value in changes.items():
            if name in _NOT_HERE:
                raise DeploymentError(f"llama.cpp has no {name}: {_NOT_HERE[name]}")
            if name == "kv_cache_dtype":
                named["type_k"] = named["type_v"] = _cache_type(value)
                continue
            own = _ALIASES.get(name, name)
            if own not in _SETTING_NAMES:
                from difflib import get_close_matches  # only needed to help after a mistake

                near = get_close_matches(name, _SETTING_NAMES, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise DeploymentError(f"llama.cpp has no setting {name!r}{hint}")
            if own == "gpus" and named.get("gpus", value) != value:
                value = max(value, named["gpus"])
            named[own] = value
        settings = base or LlamaCppSettings()
        return replace(settings, **named) if named else settings

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: LlamaCppSettings,
        used_bytes: int = 0,
    ) -> Node:
        """The node: one accelerator when not said otherwise.

        Raises:
            DeploymentError: There are fewer than asked for.
        """
        wanted = settings.gpus
        if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int)):
            raise DeploymentError(f"gpus is {wanted!r}; it must be a whole number from 0")
        if wanted is not None and count is not None and wanted > count:
            raise DeploymentError(f"gpus is {wanted} and there are {count}; give as many")
        return Node(
            accelerator=accelerator, count=max(1, wanted or count or 1), used_bytes=used_bytes
        )

    def draft_model(self, settings: LlamaCppSettings) -> str | None:
        """The draft model of speculative decoding."""
        return settings.draft_model

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: LlamaCppSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting, let ``--fit`` lower what is free, and check.

        Raises:
            DeploymentError: llama.cpp would refuse the settings or the model.
        """
        outcome = _outcome(spec, node, settings)
        resolved, decisions = outcome.resolved, outcome.memory.decisions
        found = dict(resolved.settings)
        layers = len(outcome.memory.placement.layer_devices) + 1
        on_gpu = min(decisions.n_gpu_layers, layers)
        asked = found.get("n_gpu_layers")
        if asked is None or asked.origin != "user" or asked.value < 0:
            reason = f"{on_gpu} of {layers} layers, by --fit" if resolved.fit else ""
            found["n_gpu_layers"] = Setting(value=on_gpu, origin="gpu", reason=reason)
        if outcome.fitted.context_lowered:
            found["n_ctx"] = Setting(value=decisions.n_ctx, origin="gpu", reason="by --fit")
        found["gpus"] = Setting(
            value=resolved.gpus, origin="user" if settings.gpus is not None else "tokenroom"
        )
        return Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=draft,
            node=node,
            settings=found,
            asked=settings,
            resolved=outcome,
            notices=_notices(settings, draft),
        )

    def plan(self, deployment: Deployment) -> LlamaCppPlan:
        """Fill the devices."""
        outcome: Outcome = deployment.resolved
        stages = _stages(deployment, outcome)
        return LlamaCppPlan(
            deployment=deployment,
            outcome=outcome,
            stages=stages,
            refusal=_refusal(outcome, stages, deployment.node),
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.llama_cpp.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


LLAMA_CPP: Final = LlamaCppPolicy()


def _cache_type(value: object) -> object:
    """Common spellings of cache types: ``fp16`` is f16, ``int8`` and ``q8`` are q8_0."""
    known = {"fp16": "f16", "float16": "f16", "bfloat16": "bf16", "fp32": "f32", "auto": "f16"}
    known |= {"int8": "q8_0", "q8": "q8_0", "int4": "q4_0", "q4": "q4_0"}
    return known.get(value.lower(), value) if isinstance(value, str) else value


def _outcome(spec: ModelSpec, node: Node, settings: LlamaCppSettings) -> Outcome:
    resolved = resolve(settings, spec, node)
    start = initial_decisions(resolved)
    fitted = FitOutcome(decisions=start)
    measured: dict[Decisions, Memory] = {}
    known: dict[object, ComputeBuffers] = {}

    def measure_once(decisions: Decisions) -> Memory:
        if decisions not in measured:
            measured[decisions] = measure(
                spec, node, resolved, decisions, known=None if decisions == start else known
            )
        return measured[decisions]

    if resolved.fit:
        fitted = auto_fit(
            resolved,
            start,
            measure_once,
            [_free_bytes(node)] * resolved.gpus,
            layers=spec.num_layers + len(spec.mtp_layers),
            experts=any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds),
        )
    memory = measure_once(start)
    if fitted.decisions != start:
        memory = measure(spec, node, resolved, fitted.decisions)
    given_up = False
    if memory.copies > 1 and any(
        memory.total_of(device) > _free_bytes(node) for device in range(memory.host)
    ):
        # "compute buffer allocation failed, retrying without pipeline parallelism"
        memory = measure(spec, node, resolved, fitted.decisions, pipeline=False)
        given_up = True
    return Outcome(resolved=resolved, fitted=fitted, memory=memory, pipeline_given_up=given_up)


def _free_bytes(node: Node) -> int:
    """Memory that an accelerator reports as free before anything is loaded."""
    context = context_memory(node.accelerator).num_bytes
    return node.accelerator.memory_bytes - context - node.used_bytes


def _notices(settings: LlamaCppSettings, draft: ModelSpec | None) -> tuple[Notice, ...]:
    found = [Notice(key="unknown_flag", values={"flag": flag}) for flag in settings.unknown_flags]
    if settings.ignored_flags:
        found.append(
            Notice(key="ignored_flags", values={"flags": ", ".join(settings.ignored_flags)})
        )
    if draft is not None:
        size = checkpoint_weights(draft).total_bytes
        values = {"model": draft.name, "weights_bytes": size}
        found.append(Notice(key="draft_left_out", values=values))
    if settings.mmproj is not None:
        found.append(Notice(key="projector_not_counted", values={"file": settings.mmproj}))
    return tuple(found)


def _stages(deployment: Deployment, outcome: Outcome) -> tuple[StageMemory, ...]:
    memory, node = outcome.memory, deployment.node
    context = context_memory(node.accelerator)
    runtime = runtime_memory(node.accelerator)
    stages = []
    for device, backend in enumerate(memory.backends):
        total = node.accelerator.memory_bytes
        taken = context.num_bytes + node.used_bytes
        stages.append(
            _stage(
                memory,
                device,
                name=backend.name,
                total_bytes=total,
                context_bytes=taken,
                non_torch=replace(
                    runtime,
                    low_bytes=runtime.low_bytes + context.low_bytes - context.num_bytes,
                    high_bytes=runtime.high_bytes + context.high_bytes - context.num_bytes,
                ),
                buffers_bytes=0,
            )
        )
    stages.append(_host_stage(outcome))
    return tuple(stages)


def _stage(
    memory: Memory,
    device: int,
    *,
    name: str,
    total_bytes: int,
    context_bytes: int,
    non_torch: Estimate,
    buffers_bytes: int,
) -> StageMemory:
    weights = memory.placement.weights[device]
    kv = memory.kv_bytes[device]
    prompt, generation = memory.compute.sizes[device], memory.compute.generation[device]
    held = sum(weights.values()) + buffers_bytes + non_torch.num_bytes
    cells = max(1, memory.decisions.n_ctx)
    growing = sum(
        cache.num_bytes
        for cache in memory.caches.layers
        if memory.cache_device(cache.layer) == device
        and cache.kind not in ("recurrent", "sliding_window")
    )
    return StageMemory(
        pipeline_parallel_rank=device,
        total_bytes=total_bytes,
        budget_bytes=total_bytes - context_bytes,
        context_bytes=context_bytes,
        weights=weights,
        activation=Estimate(
            num_bytes=prompt,
            low_bytes=prompt,
            high_bytes=prompt,
            phase="compute_graph",
            source="llama.cpp src/llama-context.cpp sched_reserve, ggml/src/ggml-alloc.c",
        ),
        activation_decode_bytes=generation,
        cuda_graphs=_NONE,
        cuda_graph_actual_bytes=0,
        non_torch=non_torch,
        buffers_bytes=buffers_bytes,
        available_bytes=total_bytes - context_bytes - held - prompt,
        kv_pool_bytes=kv,
        kv_bytes_per_token=growing / cells,
        device=name,
    )


def _host_stage(outcome: Outcome) -> StageMemory:
    """Host memory; what it needs stands for its size when that is not known."""
    memory, resolved = outcome.memory, outcome.resolved
    host = memory.host
    # Saved prompts and snapshots of windowed and recurrent states come with use.
    snapshot = sum(
        cache.num_bytes // max(1, cache.streams if cache.streams > 1 else resolved.n_seq_max)
        for cache in memory.caches.layers
        if cache.kind in ("sliding_window", "recurrent")
    )
    later = resolved.cache_ram_bytes + snapshot * resolved.ctx_checkpoints * resolved.n_seq_max
    saved = Estimate(
        num_bytes=0,
        low_bytes=0,
        high_bytes=later,
        phase="prompt_cache",
        source="llama.cpp common/common.h cache_ram_mib, n_ctx_checkpoints",
    )
    output = memory.output_bytes
    needed = (
        memory.weights_bytes[host] + memory.kv_bytes[host] + memory.compute.sizes[host] + output
    )
    stage = _stage(
        memory,
        host,
        name="CPU",
        total_bytes=resolved.host_memory_bytes or needed,
        context_bytes=0,
        non_torch=saved,
        buffers_bytes=output,
    )
    return replace(stage, is_host=True)


def _refusal(outcome: Outcome, stages: tuple[StageMemory, ...], node: Node) -> Refusal | None:
    """The first buffer that cannot be had, in the order llama.cpp allocates them."""
    resolved, memory = outcome.resolved, outcome.memory
    steps: tuple[tuple[str, str, Callable[[StageMemory], int]], ...] = (
        ("weights_too_big", "load", lambda stage: stage.weights_bytes),
        ("kv_buffer", "kv_init", lambda stage: stage.kv_pool_bytes),
        ("compute_buffer", "reserve", lambda stage: stage.activation.num_bytes),
    )
    for stage in stages[:-1]:
        held = stage.context_bytes
        for cause, phase, part in steps:
            held += part(stage)
            if held > stage.total_bytes:
                return Refusal(
                    cause=cause,
                    phase=phase,
                    needed_bytes=held,
                    available_bytes=stage.total_bytes,
                    values={"device": stage.device, "buffer_bytes": part(stage)}
                    if cause != "weights_too_big"
                    else {},
                )
    limit = resolved.host_memory_bytes
    if limit is not None:
        host = stages[-1]
        # Mapped weights can be read from disk again and again; all else has to be there.
        needed = (
            host.weights_bytes
            - memory.placement.mapped_bytes
            + host.kv_pool_bytes
            + host.activation.num_bytes
            + host.buffers_bytes
        )
        if needed > limit:
            return Refusal(
                cause="host_memory",
                phase="load",
                needed_bytes=needed,
                available_bytes=limit,
            )
    return None


def _longest(deployment: Deployment, decisions: Decisions, longest: int) -> int:
    """The longest context of a slot that fits with the same placement, in cells of 256."""
    outcome: Outcome = deployment.resolved
    resolved, node = outcome.resolved, deployment.node
    streams = 1 if resolved.kv_unified else resolved.n_seq_max

    def fits(cells: int) -> bool:
        tried = replace(decisions, n_ctx=cells * streams, n_ctx_seq=cells)
        memory = measure(deployment.spec, node, resolved, tried, pipeline=outcome.memory.copies > 1)
        room = all(memory.total_of(device) <= _free_bytes(node) for device in range(memory.host))
        limit = resolved.host_memory_bytes
        if not room or limit is None:
            return room
        host = memory.host
        held = memory.weights_bytes[host] - memory.placement.mapped_bytes + memory.output_bytes
        return held + memory.kv_bytes[host] + memory.compute.sizes[host] <= limit

    low, high = 0, longest // 256
    if fits(high * 256):
        return high * 256
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * 256):
            low = middle
        else:
            high = middle
    return low * 256


def fitted_flags(memory: Memory) -> str:
    """What llama.cpp decided, as the flags that would say so."""
    layers = len(memory.placement.layer_devices)
    decisions = memory.decisions
    flags = [f"-ngl {min(decisions.n_gpu_layers, layers + 1)}"]
    if decisions.n_gpu_layers >= ALL_LAYERS:
        flags = ["-ngl all"]
    moved = [
        pattern for pattern, device in decisions.overrides if device >= memory.host or device < 0
    ]
    if moved:
        layers_moved = "1 layer" if len(moved) == 1 else f"{len(moved)} layers"
        flags.append(f"with parts of {layers_moved} on the CPU (-ot)")
    if len(memory.backends) > 1:
        flags.append("-ts " + ",".join(f"{share:g}" for share in decisions.tensor_split))
    return " ".join(flags)
