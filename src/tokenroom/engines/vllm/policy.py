"""vLLM's memory policy: from resolved settings to the ledger of every pipeline stage.

budget = ceil(total x gpu_memory_utilization); what weights, the profile run, memory outside
PyTorch and (from 0.20 on) the CUDA-graph estimate leave of it becomes the KV pool
(v1/worker/gpu_worker.py ``determine_available_memory``, v1/worker/utils.py ``request_memory``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from math import ceil
from typing import Any, Final

from tokenroom.engines.policy import (
    Change,
    Deployment,
    Estimate,
    KVGroup,
    Notice,
    Refusal,
    StageMemory,
)
from tokenroom.engines.vllm.checks import check
from tokenroom.engines.vllm.defaults import ResolvedSettings, resolve
from tokenroom.engines.vllm.expert_padding import expert_padding
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.kv_cache import KVCachePlan, max_model_len_that_fits, plan_kv_cache
from tokenroom.engines.vllm.kv_pool import PoolLayout, pool_layout
from tokenroom.engines.vllm.kv_rules import kv_cache_rules
from tokenroom.engines.vllm.kv_settings import KVCacheSettings
from tokenroom.engines.vllm.lora import lora_slot_bytes
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.profile_run import decode_peak, profile_run
from tokenroom.engines.vllm.reserves import RESERVES
from tokenroom.engines.vllm.rules import NEWEST, VersionRules, rules_for
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.engines.vllm.v0_cache import V0_CACHE_RULES, as_cached
from tokenroom.engines.vllm.v0_rules import v0_rules
from tokenroom.engines.vllm.weights import Ranks, rank_weights, stage_layers
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.ledger import Line
from tokenroom.models.spec import Layer, ModelSpec

_MOST_SEARCHES: Final = 8
"""Rounds in which the longest length may still grow; two are the rule."""

_SETTING_NAMES: Final = frozenset(item.name for item in fields(VLLMSettings))


@dataclass(frozen=True, kw_only=True)
class VLLMPlan:
    """How vLLM divides the memory of every rank; see :class:`tokenroom.engines.policy.MemoryPlan`.

    Attributes:
        deployment: What was planned.
        rules: The version's decisions.
        stages: Memory of each pipeline stage.
        layout: How the pool is cut up.
        kv: What the engine makes of the memory it has for the cache.
        refusal: Why it would not start, None when it does.
    """

    deployment: Deployment
    rules: VersionRules
    stages: tuple[StageMemory, ...]
    layout: PoolLayout
    kv: KVCachePlan
    refusal: Refusal | None

    @property
    def _resolved(self) -> ResolvedSettings:
        resolved: ResolvedSettings = self.deployment.resolved
        return resolved

    @property
    def _available(self) -> list[int]:
        return [stage.available_bytes for stage in self.stages]

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens."""
        return self.kv.bounds.max_model_len

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at once at most, over all data-parallel copies."""
        return self._resolved.max_num_seqs * self._resolved.data_parallel_size

    @property
    def kv_block_size(self) -> int:
        """Tokens of a block."""
        return self.kv.block_size

    @property
    def kv_blocks(self) -> int:
        """Blocks of one data-parallel copy."""
        return self.kv.num_blocks

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the pool of one data-parallel copy ("GPU KV cache size"), as printed."""
        return self.kv.kv_tokens

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that one copy's pool holds, as printed."""
        return self.kv.max_concurrency

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Layers that share a block table."""
        return self.kv.groups

    @property
    def pool_is_exact(self) -> bool:
        """The pool's size was given, so that it rests on no estimate."""
        resolved = self._resolved
        return (
            resolved.kv_cache_memory_bytes is not None
            or resolved.num_gpu_blocks_override is not None
        )

    @cached_property
    def governing(self) -> int:
        """Index of the stage with the least room."""
        room = [
            stage.available_bytes / block if block else float("inf")
            for stage, block in zip(self.stages, self.layout.stage_block_bytes, strict=True)
        ]
        return room.index(min(room))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        found = []
        resolved = self._resolved
        stage = self.stages[self.governing]
        if self.refusal is None and stage.free_bytes < 0:
            found.append(
                Notice(key="tight_at_runtime", values={"missing_bytes": -stage.free_bytes})
            )
        if resolved.data_parallel_size > 1:
            found.append(
                Notice(key="per_replica", values={"replicas": resolved.data_parallel_size})
            )
        return tuple(found)

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the pools of all data-parallel copies hold at once."""
        return self.kv.requests_of(tokens) * self._resolved.data_parallel_size

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing stage: whole blocks."""
        pages = self.layout.pages_per_request(self.kv.bounds._replace(max_model_len=tokens))
        return pages * self.layout.stage_block_bytes[self.governing]

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests, on the governing stage."""
        inputs = _profile_inputs(self.deployment, self.governing)
        seqs = max(1, min(requests, inputs.max_num_seqs))
        return decode_peak(
            self._resolved.engine,
            self.deployment.spec,
            replace(inputs, max_num_seqs=seqs),
            self.rules,
        ).num_bytes

    def max_model_len_that_fits(self) -> int:
        """The longest max_model_len for which the engine starts; 0 when none does.

        Never beyond what the model allows. A shorter length leaves more room (smaller block
        tables, and a smaller token budget where prefill is not chunked), so the pool is searched
        again under each length found until it does not grow.
        """
        if self.refusal is not None and self.refusal.cause not in (
            "kv_below_one_request",
            "no_room_for_kv",
        ):
            return 0
        longest = _longest(self.deployment, self.layout, self._available)
        for _ in range(_MOST_SEARCHES):
            if longest in (0, self.max_model_len):
                break
            asked = replace(self.deployment.asked, max_model_len=longest)
            old = self.deployment
            try:
                shorter = VLLM.plan(VLLM.deploy(old.spec, old.node, asked, old.draft))
            except DeploymentError:  # refused for another reason than memory, such as block sizes
                break
            found = _longest(shorter.deployment, shorter.layout, shorter._available)
            if found <= longest:
                break
            longest = found
        return longest

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, line by line."""
        from tokenroom.engines.vllm.explain import explain_plan

        return explain_plan(self)


class VLLMPolicy:
    """vLLM, every version from 0.4 to the newest known, on the V0 or the V1 engine."""

    name: Final = "vllm"
    reserves: Final = RESERVES

    def settings(self, base: VLLMSettings | None, changes: Mapping[str, Any]) -> VLLMSettings:
        """VLLM's settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        unknown = sorted(set(changes) - _SETTING_NAMES)
        if unknown:
            from difflib import get_close_matches  # only needed to help after a mistake

            near = get_close_matches(unknown[0], _SETTING_NAMES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DeploymentError(f"vLLM has no setting {unknown[0]!r}{hint}")
        for name, value in changes.items():
            _check_value(name, value)
        if base is None:
            return VLLMSettings(**changes)
        return replace(base, **changes) if changes else base

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: VLLMSettings,
        used_bytes: int = 0,
    ) -> Node:
        """The node: as many accelerators as the parallel sizes need, when not said.

        Raises:
            DeploymentError: There are fewer than the parallel sizes need.
        """
        sizes = {
            "tensor_parallel_size": settings.tensor_parallel_size or 1,
            "pipeline_parallel_size": settings.pipeline_parallel_size or 1,
            "data_parallel_size": settings.data_parallel_size or 1,
            "prefill_context_parallel_size": settings.prefill_context_parallel_size or 1,
        }
        needed = 1
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise DeploymentError(
                    f"{name} is {size!r}; it must be a whole number of at least 1"
                )
            needed *= size
        if count is not None and count < needed:
            shape = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
            raise DeploymentError(
                f"{shape} needs {needed} GPUs and there are {count}; lower the parallel sizes or "
                f"give more GPUs"
            )
        return Node(accelerator=accelerator, count=needed, used_bytes=used_bytes)

    def draft_model(self, settings: VLLMSettings) -> str | None:
        """The draft model that speculative decoding loads beside the model."""
        return settings.speculative.model if settings.speculative is not None else None

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: VLLMSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting and check it as vLLM does.

        Raises:
            DeploymentError: vLLM would refuse the settings.
        """
        recognised = spec.quantization is None or spec.quantization_named
        if not recognised:
            spec = _loaded_plain(spec)
        if settings.quantization is not None:
            spec = _loaded_as(spec, settings.quantization)
        resolved = resolve(settings, spec, node)
        check(resolved, spec, node)
        return Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=draft,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
            notices=_notices(settings, resolved, node.accelerator, recognised=recognised),
        )

    def plan(self, deployment: Deployment) -> VLLMPlan:
        """Divide the memory of every pipeline stage."""
        resolved: ResolvedSettings = deployment.resolved
        rules = rules_for(resolved.version)
        layout = _layout(deployment)
        figures = [
            _stage_figures(deployment, rules, rank)
            for rank in range(resolved.pipeline_parallel_size)
        ]
        available = [stage["available_bytes"] for stage in figures]
        length = resolved.max_model_len
        if resolved.fits_max_model_len:
            length = _longest(deployment, layout, available) or 1
        kv = plan_kv_cache(
            layout,
            available,
            max_model_len=length,
            max_in_flight_tokens=resolved.max_in_flight_tokens,
            max_encoder_tokens=_encoder_tokens(deployment),
            num_gpu_blocks_override=resolved.num_gpu_blocks_override,
        )
        stages = tuple(
            StageMemory(
                **stage,
                kv_pool_bytes=kv.pool_bytes(rank) if available[rank] > 0 else 0,
                kv_bytes_per_token=_growth(layout, kv, rank),
            )
            for rank, stage in enumerate(figures)
        )
        return VLLMPlan(
            deployment=deployment,
            rules=rules,
            stages=stages,
            layout=layout,
            kv=kv,
            refusal=_refusal(deployment, stages, kv),
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.vllm.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


VLLM: Final = VLLMPolicy()

_COUNTS: Final = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "block_size",
        "max_loras",
        "max_lora_rank",
        "max_model_len",
    }
)


def _check_value(name: str, value: Any) -> None:
    """Refuse numbers that no engine could mean; names and types are checked where they are used."""
    if name in _COUNTS and value is not None:
        auto = name == "max_model_len" and value == -1
        if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and not auto):
            or_auto = ", or -1 for the longest that fits" if name == "max_model_len" else ""
            raise DeploymentError(
                f"{name} is {value!r}; it must be a whole number of at least 1{or_auto}"
            )
    elif name == "gpu_memory_utilization" and value is not None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= 1:
            raise DeploymentError(f"{name} is {value!r}; it must be above 0 and at most 1")
    elif (
        name == "cpu_offload_bytes"
        and value is not None
        and (isinstance(value, bool) or not isinstance(value, int) or value < 0)
    ):
        raise DeploymentError(f"{name} is {value!r}; it must be a whole number of bytes")


@lru_cache(maxsize=64)
def _loaded_plain(spec: ModelSpec) -> ModelSpec:
    """The model as vLLM builds it when it does not recognise the quantisation block."""
    from tokenroom.models.quantization import dequantized

    return dequantized(spec)


@lru_cache(maxsize=64)
def _loaded_as(spec: ModelSpec, quantization: str) -> ModelSpec:
    """The model in the layout that ``--quantization`` turns it into while loading."""
    from tokenroom.engines.vllm.online import with_quantization

    return with_quantization(spec, quantization)


def _notices(
    settings: VLLMSettings,
    resolved: ResolvedSettings,
    accelerator: Accelerator,
    *,
    recognised: bool,
) -> tuple[Notice, ...]:
    found = [Notice(key="unknown_flag", values={"flag": flag}) for flag in settings.unknown_flags]
    number = tuple(int(part) for part in resolved.version.split("."))
    if number > NEWEST.version:
        newest = ".".join(map(str, NEWEST.version))
        found.append(
            Notice(key="version_newer", values={"version": resolved.version, "newest": newest})
        )
    if accelerator.vendor not in ("nvidia", "unknown"):
        found.append(Notice(key="vendor_unmeasured", values={"vendor": accelerator.vendor}))
    if not recognised:
        found.append(Notice(key="quantization_not_recognised", values={"dtype": resolved.dtype}))
    if settings.ignored_flags:
        found.append(
            Notice(key="ignored_flags", values={"flags": ", ".join(settings.ignored_flags)})
        )
    if (accelerator.vendor == "nvidia" and accelerator.compute_capability is None) or (
        accelerator.custom and accelerator.vendor == "unknown"
    ):
        found.append(Notice(key="gpu_capability_unknown", values={"gpu": accelerator.name}))
    method = resolved.speculative.method if resolved.speculative is not None else None
    if method is not None and settings.speculative is not None:
        needs_model = method in ("draft_model", "eagle", "eagle3", "medusa")
        if needs_model and settings.speculative.model is None:
            found.append(Notice(key="draft_not_counted", values={"method": method}))
    return tuple(found)


def _profile_inputs(deployment: Deployment, rank: int) -> ProfileInputs:
    resolved: ResolvedSettings = deployment.resolved
    mode = resolved.cudagraph_mode
    environment = resolved.environment
    return ProfileInputs(
        dtype=resolved.dtype,
        tensor_parallel_size=resolved.tensor_parallel_size,
        pipeline_parallel_size=resolved.pipeline_parallel_size,
        pipeline_rank=rank,
        data_parallel_size=resolved.data_parallel_size,
        enable_expert_parallel=resolved.enable_expert_parallel,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_num_seqs=resolved.max_num_seqs,
        max_model_len=resolved.max_model_len,
        block_size=resolved.block_size,
        accelerator=deployment.node.accelerator,
        attention_backend=resolved.attention_backend,
        kv_cache_dtype=resolved.kv_cache_dtype,
        capture_sizes=resolved.cudagraph_capture_sizes,
        piecewise_graphs="PIECEWISE" in mode,
        full_graphs="FULL" in mode,
        enforce_eager=resolved.enforce_eager,
        speculative_tokens=resolved.num_speculative_tokens,
        max_loras=resolved.max_loras if resolved.enable_lora else 0,
        mm_limits=resolved.limit_mm_per_prompt,
        language_model_only=resolved.language_model_only,
        skip_mm_profiling=resolved.skip_mm_profiling,
        disable_custom_all_reduce=resolved.disable_custom_all_reduce,
        second_runner=resolved.second_runner,
        flashinfer_sampler=_switch(environment, "VLLM_USE_FLASHINFER_SAMPLER"),
        quantization=deployment.asked.quantization,
    )


def _switch(environment: Mapping[str, str], name: str) -> bool | None:
    value = environment.get(name)
    return None if value is None else value.strip().lower() in ("1", "true")


def _stage_figures(deployment: Deployment, rules: VersionRules, rank: int) -> dict[str, Any]:
    """Every field of a :class:`StageMemory` but the pool itself."""
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    inputs = _profile_inputs(deployment, rank)
    total = deployment.node.accelerator.memory_bytes
    budget = ceil(total * resolved.gpu_memory_utilization)
    weights = _weights(deployment, rules, rank)
    profile = profile_run(resolved.engine, spec, inputs, rules)
    activation, graphs, non_torch = profile.activation, profile.graphs, profile.non_torch
    buffers = profile.buffers_bytes
    charged_graphs = graphs.charged_bytes
    if resolved.environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS") in ("0", "1"):
        asked = resolved.environment["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"] == "1"
        charged_graphs = graphs.estimated_bytes if asked else 0
    if resolved.kv_cache_memory_bytes is not None:
        available = resolved.kv_cache_memory_bytes
    else:
        available = (
            budget
            - sum(weights.values())
            - activation.num_bytes
            - non_torch.num_bytes
            - charged_graphs
            - (buffers if rules.counts_persistent_buffers else 0)
        )
    if graphs.estimated_bytes:
        shown = Estimate(
            num_bytes=graphs.estimated_bytes,
            low_bytes=graphs.estimated_low_bytes,
            high_bytes=graphs.estimated_high_bytes,
            phase="estimate",
            source=graphs.source,
        )
    else:
        shown = Estimate(
            num_bytes=graphs.actual_bytes,
            low_bytes=graphs.low_bytes,
            high_bytes=graphs.high_bytes,
            phase="capture",
            source=graphs.source,
        )
    return {
        "pipeline_parallel_rank": rank,
        "total_bytes": total,
        "budget_bytes": budget,
        "context_bytes": profile.context_bytes + deployment.node.used_bytes,
        "weights": weights,
        "activation": activation,
        "activation_decode_bytes": decode_peak(resolved.engine, spec, inputs, rules).num_bytes,
        "cuda_graphs": shown,
        "cuda_graph_actual_bytes": graphs.actual_bytes,
        "non_torch": non_torch,
        "buffers_bytes": buffers,
        "available_bytes": available,
    }


def _partition(resolved: ResolvedSettings) -> tuple[int, ...] | None:
    text = resolved.environment.get("VLLM_PP_LAYER_PARTITION")
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DeploymentError(
            f"VLLM_PP_LAYER_PARTITION is {text!r}; it must hold whole numbers separated by commas"
        ) from None


def _weights(deployment: Deployment, rules: VersionRules, rank: int) -> dict[str, int]:
    """Weights of a rank by component: the model's, the draft's, adapter slots, position tables."""
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    capability = deployment.node.accelerator.compute_capability
    stages = resolved.pipeline_parallel_size
    ranks = Ranks(
        tp=resolved.tensor_parallel_size,
        pp=stages,
        pp_rank=rank,
        dp=resolved.data_parallel_size,
        pcp=resolved.prefill_context_parallel_size,
        expert_parallel=resolved.enable_expert_parallel,
        layer_partition=_partition(resolved),
    )
    own = rank_weights(
        spec,
        ranks=ranks,
        dtype=resolved.dtype,
        towers=not resolved.language_model_only,
        mtp=_drafts_with_mtp(resolved),
        version=rules.version,
        padding=expert_padding(capability, rules.version),
        cpu_offload_bytes=resolved.cpu_offload_bytes,
    )
    found = {component.value: count for component, count in own.components.items()}
    if own.buffer_bytes:
        found["positions"] = own.buffer_bytes
    rounding = own.allocated_bytes - own.total_bytes - own.buffer_bytes
    if rounding:
        found["rounding"] = rounding
    if deployment.draft is not None and rank == stages - 1:
        drafted = replace(ranks, pp=1, pp_rank=0, layer_partition=None)
        speculative = resolved.speculative
        if speculative is not None and speculative.draft_tensor_parallel_size is not None:
            drafted = replace(drafted, tp=speculative.draft_tensor_parallel_size)
        found["draft"] = rank_weights(
            deployment.draft,
            ranks=drafted,
            dtype=resolved.dtype,
            towers=False,
            version=rules.version,
        ).total_bytes
    if resolved.enable_lora:
        layers = stage_layers(spec.num_layers, stages, rank, ranks.layer_partition)
        counted: dict[int, tuple[Layer, int]] = {}
        for index in layers:
            layer = spec.layers[index]
            counted[id(layer)] = (layer, counted.get(id(layer), (layer, 0))[1] + 1)
        found["lora"] = lora_slot_bytes(
            spec,
            counted.values(),
            first_stage=rank == 0,
            last_stage=rank == stages - 1,
            tensor_parallel_size=ranks.tp,
            expert_parallel_size=ranks.expert_ranks if ranks.expert_parallel else 1,
            max_loras=resolved.max_loras,
            max_lora_rank=resolved.max_lora_rank,
            fully_sharded=resolved.fully_sharded_loras,
            lora_dtype=resolved.dtype if resolved.lora_dtype == "auto" else resolved.lora_dtype,
        )
    return found


def _drafts_with_mtp(resolved: ResolvedSettings) -> bool:
    method = resolved.speculative.method if resolved.speculative is not None else ""
    return method.endswith("mtp")


def _layout(deployment: Deployment) -> PoolLayout:
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    draft_layers: tuple[Layer, ...] = ()
    if _drafts_with_mtp(resolved):
        draft_layers = spec.mtp_layers
    elif deployment.draft is not None:
        draft_layers = deployment.draft.layers
    rules = kv_cache_rules(resolved.version)
    if resolved.engine is EngineGeneration.V0:
        spec, rules = as_cached(spec, v0_rules(rules_for(resolved.version).version)), V0_CACHE_RULES
    return pool_layout(
        spec,
        KVCacheSettings(
            tensor_parallel_size=resolved.tensor_parallel_size,
            pipeline_parallel_size=resolved.pipeline_parallel_size,
            decode_context_parallel_size=resolved.decode_context_parallel_size,
            layer_partition=_partition(resolved),
            block_size=resolved.block_size,
            kv_cache_dtype=resolved.kv_cache_dtype,
            model_dtype=resolved.dtype,
            mamba_cache_dtype=resolved.mamba_cache_dtype,
            mamba_ssm_cache_dtype=resolved.mamba_ssm_cache_dtype,
            mamba_cache_mode=resolved.mamba_cache_mode,
            mamba_block_size=resolved.mamba_block_size,
            num_speculative_tokens=resolved.num_speculative_tokens,
            hybrid_manager=resolved.hybrid_manager,
        ),
        rules,
        draft_layers=draft_layers,
    )


def _encoder_tokens(deployment: Deployment) -> int:
    """The encoder budget that cross attention is sized by: the token budget of a step."""
    resolved: ResolvedSettings = deployment.resolved
    return resolved.max_num_batched_tokens if deployment.spec.encoder_layers else 0


def _longest(deployment: Deployment, layout: PoolLayout, available: Sequence[int]) -> int:
    resolved: ResolvedSettings = deployment.resolved
    if resolved.num_gpu_blocks_override is not None:
        available = [resolved.num_gpu_blocks_override * block for block in layout.stage_block_bytes]
    return max_model_len_that_fits(
        layout,
        available,
        longest=max(resolved.length.longest or resolved.length.default, resolved.max_model_len),
        max_in_flight_tokens=resolved.max_in_flight_tokens,
        max_encoder_tokens=_encoder_tokens(deployment),
    )


def _growth(layout: PoolLayout, kv: KVCachePlan, rank: int) -> float:
    """Bytes that one more token of a full-length request takes on a stage."""
    length = kv.bounds.max_model_len
    step = max(group.block_size for group in kv.groups) if kv.groups else 0
    if not step:
        return 0.0
    wider = layout.pages_per_request(kv.bounds._replace(max_model_len=length + step))
    pages = wider - kv.pages_per_request
    return pages * layout.stage_block_bytes[rank] / step


def _refusal(
    deployment: Deployment, stages: tuple[StageMemory, ...], kv: KVCachePlan
) -> Refusal | None:
    """Why vLLM would not start, by the phase in which it would find out."""
    resolved: ResolvedSettings = deployment.resolved
    given = resolved.kv_cache_memory_bytes is not None
    rules = rules_for(resolved.version)
    for stage in stages:
        free = stage.total_bytes - stage.context_bytes
        if rules.checks_free_memory and not given and stage.budget_bytes > free:
            return Refusal(
                cause="free_below_budget",
                phase="load",
                needed_bytes=stage.budget_bytes,
                available_bytes=free,
                values={"utilization": resolved.gpu_memory_utilization},
            )
    for stage in stages:
        free = stage.total_bytes - stage.context_bytes
        held = stage.weights_bytes + stage.buffers_bytes
        if held > free:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=held + stage.context_bytes,
                available_bytes=stage.total_bytes,
            )
        peak = held + stage.activation.num_bytes + stage.non_torch.num_bytes
        if peak > free:
            return Refusal(
                cause="profile_peak",
                phase="profile",
                needed_bytes=peak + stage.context_bytes,
                available_bytes=stage.total_bytes,
                values={"phase": stage.activation.phase},
            )
    if not kv.fits:
        tightest = min(stages, key=lambda stage: stage.available_bytes)
        if kv.checked_bytes <= 0:
            return Refusal(
                cause="no_room_for_kv",
                phase="kv_init",
                needed_bytes=tightest.budget_bytes - tightest.available_bytes,
                available_bytes=tightest.budget_bytes,
            )
        return Refusal(
            cause="kv_below_one_request",
            phase="kv_init",
            needed_bytes=kv.needed_bytes,
            available_bytes=kv.checked_bytes,
            values={
                "max_model_len": kv.bounds.max_model_len,
                "longest": kv.estimated_max_model_len or 0,
            },
        )
    for stage in stages:
        held = (
            stage.context_bytes
            + stage.weights_bytes
            + stage.buffers_bytes
            + stage.non_torch.num_bytes
            + stage.kv_pool_bytes
            + stage.cuda_graph_actual_bytes
        )
        if held > stage.total_bytes:
            return Refusal(
                cause="cuda_graphs",
                phase="graph_capture",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
    return None
