"""Plain transformers as an engine: weights placed, one static batch, a cache that grows.

Nothing is set aside for requests to come: what a batch does not need stays free, and what it needs
beyond the card is an out-of-memory error in the middle of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tokenroom.engines.change_search import Step, changes_from, doubles, halves
from tokenroom.engines.ledger_lines import estimated, exact, weight_parts
from tokenroom.engines.policy import (
    Change,
    Deployment,
    Estimate,
    KVGroup,
    Notice,
    Refusal,
    Reservation,
    StageMemory,
)
from tokenroom.engines.transformers.memory import Use, activation_estimate, kernels, use_of
from tokenroom.engines.transformers.placement import Placement, modules_of, place
from tokenroom.engines.transformers.resolve import Resolved, resolve
from tokenroom.engines.transformers.settings import TransformersSettings, changed
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.caching_allocator import allocated_bytes
from tokenroom.memory.ledger import Line
from tokenroom.memory.process_context import context_source, cuda_context_bytes
from tokenroom.models.spec import ModelSpec

_LARGEST_BATCH: Final = 2**20


@dataclass(frozen=True, kw_only=True)
class TransformersPlan:
    """What a batch takes; see :class:`tokenroom.engines.policy.MemoryPlan`.

    There is no pool: ``kv_blocks`` is 0, and tokens and requests are what fits.

    Attributes:
        deployment: What was planned.
        stages: Memory of each GPU.
        placement: Modules by device.
        refusal: Why not even one sequence runs, None when one does.
    """

    deployment: Deployment
    stages: tuple[StageMemory, ...]
    placement: Placement
    refusal: Refusal | None

    @property
    def _resolved(self) -> Resolved:
        resolved: Resolved = self.deployment.resolved
        return resolved

    @cached_property
    def governing(self) -> int:
        """Index of the GPU with the least room."""
        rooms = [stage.available_bytes - stage.kv_pool_bytes for stage in self.stages]
        return rooms.index(min(rooms))

    @property
    def max_model_len(self) -> int:
        """Tokens of a sequence at its end."""
        return self._resolved.max_model_len

    @property
    def max_num_seqs(self) -> int:
        """The largest batch that fits; nothing else bounds it."""
        return max(1, self._resolved.batch, self.requests_of(self._resolved.tokens))

    @property
    def kv_block_size(self) -> int:
        """A cache is not cut into blocks."""
        return 1

    @property
    def kv_blocks(self) -> int:
        """There is no pool."""
        return 0

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the largest batch that fits, of the length asked for."""
        return self.requests_of(self._resolved.tokens) * self._resolved.tokens

    @property
    def max_concurrency(self) -> float:
        """Sequences of full length that fit."""
        return float(self.requests_of(self.max_model_len))

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """A cache is not cut into blocks."""
        return ()

    @property
    def pool_is_exact(self) -> bool:
        """What fits rests on the estimate of a pass."""
        return False

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this placement makes worth knowing."""
        found = []
        away = sum(module.num_bytes for module in (*self.placement.host, *self.placement.disk))
        if away and self.refusal is None:
            found.append(Notice(key="weights_offloaded", values={"weights_bytes": away}))
        if self._resolved.kernel.keeps_scores:
            found.append(Notice(key="eager_attention"))
        if self.refusal is None:
            found.append(Notice(key="static_batch"))
        return tuple(found)

    def fits(self, batch: int, tokens: int) -> bool:
        """Whether that many sequences of that length run on every GPU."""
        return all(
            use.kv_bytes + use.peak <= stage.budget_bytes - _held(stage)
            for use, stage in zip(self.uses(batch, tokens), self.stages, strict=True)
        )

    def uses(self, batch: int, tokens: int) -> tuple[Use, ...]:
        """What that batch takes of each GPU."""
        return tuple(
            use_of(self.deployment, self.placement, gpu, batch, tokens)
            for gpu in range(len(self.stages))
        )

    def requests_of(self, tokens: int) -> int:
        """The largest batch of sequences of that length."""
        known: dict[int, int] = self.__dict__.setdefault("_batches", {})
        if tokens not in known:
            known[tokens] = _largest(lambda batch: self.fits(batch, tokens), _LARGEST_BATCH)
        return known[tokens]

    def kv_bytes_of(self, tokens: int) -> int:
        """The cache of one sequence of that length on the governing GPU."""
        return self.uses(1, tokens)[self.governing].kv_bytes

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of that batch: prompts come together, so it is that of their prefill."""
        return self.uses(max(1, requests), self._resolved.tokens)[self.governing].peak

    def max_model_len_that_fits(self) -> int:
        """The longest length at which the batch asked for runs; 0 when none does."""
        resolved = self._resolved
        longest = max(
            self.deployment.spec.max_position_embeddings or resolved.max_model_len,
            resolved.max_model_len,
        )
        if self.refusal is not None and self.refusal.cause == "weights_too_big":
            return 0
        return _largest(lambda tokens: self.fits(resolved.batch, tokens), longest)

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing GPU, line by line."""
        return tuple(_lines(self))


class TransformersPolicy:
    """Plain transformers."""

    name: Final = "transformers"
    takes_workload: Final = True
    reserves: Final = (
        Reservation(
            what="KV cache (dynamic)",
            when="token by token: each step makes a longer tensor a layer and frees the old one",
            of_what="exactly what the batch has written, and one layer twice while it grows; "
            "sliding layers stop at their window",
            default="cache_implementation not set: DynamicCache",
            source="cache_utils.py DynamicLayer, DynamicSlidingWindowLayer",
        ),
        Reservation(
            what="KV cache (static)",
            when="at the first pass, until the cache is dropped",
            of_what="batch x longest length, whatever is used",
            default="cache_implementation='static'",
            source="cache_utils.py StaticLayer",
        ),
        Reservation(
            what="KV cache (quantized)",
            when="the prompt at once, later tokens in batches of residual_length",
            of_what="few bits a value with a scale and a zero a group; a layer is plain while it "
            "is attended to",
            default="quanto, nbits 4, q_group_size 64, residual_length 128",
            source="cache_utils.py QuantizedLayer",
        ),
        Reservation(
            what="weights",
            when="at load",
            of_what="an even share of the model a GPU; nine tenths of what is free on a single "
            "one; the rest in host memory",
            default="device_map='auto'",
            source="integrations/accelerate.py get_balanced_memory, infer_auto_device_map",
        ),
        Reservation(
            what="activations",
            when="in each pass; nothing is kept free for them",
            of_what="the whole batch of prompts at once",
            default="attn_implementation='sdpa', logits_to_keep 1",
            source="models/llama/modeling_llama.py",
        ),
    )

    def settings(
        self, base: TransformersSettings | None, changes: Mapping[str, Any]
    ) -> TransformersSettings:
        """The settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        return changed(base, changes)

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: TransformersSettings,
        used_bytes: int = 0,
    ) -> Node:
        """The GPUs the modules are spread over.

        Raises:
            DeploymentError: There are fewer than asked for.
        """
        wanted = settings.num_gpus or count or 1
        if count is not None and count < wanted:
            raise DeploymentError(f"num_gpus is {wanted} and there are {count}; lower it")
        return Node(accelerator=accelerator, count=wanted, used_bytes=used_bytes)

    def draft_model(self, settings: TransformersSettings) -> str | None:
        """None; assisted generation is not modelled."""
        return None

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: TransformersSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting.

        Raises:
            DeploymentError: A value is impossible for this model.
        """
        resolved = resolve(settings, spec, node)
        return Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=None,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
        )

    def plan(self, deployment: Deployment) -> TransformersPlan:
        """Place the weights and count what the batch takes of each GPU."""
        resolved: Resolved = deployment.resolved
        node = deployment.node
        limit = node.accelerator.memory_bytes
        context = cuda_context_bytes(node.accelerator) + node.used_bytes
        free = [max(0, limit - context)] * node.count
        placement = place(
            modules_of(deployment.spec, resolved.cache.dtype),
            free,
            resolved.device_map,
            resolved.host_memory_bytes,
        )
        stages = tuple(
            _stage(deployment, placement, gpu, limit, context) for gpu in range(node.count)
        )
        plan = TransformersPlan(
            deployment=deployment, stages=stages, placement=placement, refusal=None
        )
        return TransformersPlan(
            deployment=deployment,
            stages=stages,
            placement=placement,
            refusal=_refusal(plan),
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        return changes_from(
            self,
            deployment,
            suffices,
            soft=[_fused, _shorter, _narrow_cache, _narrow_weights],
            hard=[_more_gpus],
        )


TRANSFORMERS: Final = TransformersPolicy()


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest value for which a condition that only ever stops holding holds, at most."""
    if most < 1 or not holds(1):
        return 0
    low, high = 1, 2
    while high <= most and holds(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _held(stage: StageMemory) -> int:
    """What is taken whatever the batch is."""
    return stage.context_bytes + stage.weights_bytes + stage.non_torch.num_bytes


def _stage(
    deployment: Deployment, placement: Placement, gpu: int, limit: int, context: int
) -> StageMemory:
    resolved: Resolved = deployment.resolved
    weights: dict[str, int] = {}
    sizes: list[int] = []
    for module in placement.gpus[gpu]:
        sizes += module.sizes
        for component, size in module.components.items():
            weights[component.value] = weights.get(component.value, 0) + size
    rounding = allocated_bytes(sizes) - sum(sizes)
    if rounding > 0:
        weights["rounding"] = rounding
    use = use_of(deployment, placement, gpu, resolved.batch, resolved.tokens)
    activation = activation_estimate(deployment.spec, use)
    driver = kernels(deployment.node.accelerator.measured)
    available = limit - context - sum(weights.values()) - driver.num_bytes - use.peak
    longer = use_of(deployment, placement, gpu, 1, resolved.tokens + 1).kv_bytes
    shorter = use_of(deployment, placement, gpu, 1, resolved.tokens).kv_bytes
    return StageMemory(
        pipeline_parallel_rank=gpu,
        total_bytes=deployment.node.accelerator.memory_bytes,
        budget_bytes=limit,
        context_bytes=context,
        weights=weights,
        activation=activation,
        activation_decode_bytes=use.decode_bytes,
        cuda_graphs=Estimate(num_bytes=0, low_bytes=0, high_bytes=0),
        cuda_graph_actual_bytes=0,
        non_torch=driver,
        buffers_bytes=0,
        available_bytes=available,
        kv_pool_bytes=use.kv_bytes,
        kv_bytes_per_token=float(longer - shorter),
    )


def _refusal(plan: TransformersPlan) -> Refusal | None:
    """Why not even one sequence of the length asked for runs."""
    for stage in plan.stages:
        if _held(stage) > stage.budget_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=_held(stage),
                available_bytes=stage.budget_bytes,
            )
    resolved: Resolved = plan.deployment.resolved
    if plan.fits(1, resolved.tokens):
        return None
    uses = plan.uses(1, resolved.tokens)
    short = [
        _held(stage) + use.kv_bytes + use.peak - stage.budget_bytes
        for stage, use in zip(plan.stages, uses, strict=True)
    ]
    index = short.index(max(short))
    stage, use = plan.stages[index], uses[index]
    if _held(stage) + use.peak > stage.budget_bytes:
        return Refusal(
            cause="pass_peak",
            phase="pass",
            needed_bytes=_held(stage) + use.peak,
            available_bytes=stage.budget_bytes,
            values={"phase": use.phase},
        )
    return Refusal(
        cause="kv_below_one_request",
        phase="kv_init",
        needed_bytes=use.kv_bytes,
        available_bytes=stage.budget_bytes - _held(stage) - use.peak,
        values={
            "max_model_len": resolved.tokens,
            "longest": _largest(lambda tokens: plan.fits(1, tokens), resolved.tokens),
        },
    )


def _lines(plan: TransformersPlan) -> Iterator[Line]:
    resolved: Resolved = plan.deployment.resolved
    stage = plan.stages[plan.governing]
    cache = resolved.cache
    yield exact(
        "total",
        stage.total_bytes,
        "total memory",
        {"accelerator": plan.deployment.node.accelerator.name},
        plan.deployment.node.accelerator.sources.get("memory_bytes", "accelerator catalogue"),
    )
    yield exact(
        "weights",
        stage.weights_bytes,
        "modules that device_map puts on this GPU, as stored",
        {"device_map": resolved.device_map.value, "gpu": stage.pipeline_parallel_rank},
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield estimated("activation_peak", stage.activation, "what lives at once in the widest pass")
    yield estimated("non_torch", stage.non_torch, "kernels in driver memory")
    yield exact(
        "context",
        stage.context_bytes,
        "CUDA context and other processes",
        {},
        context_source(plan.deployment.node.accelerator, "measured on H100"),
    )
    yield exact(
        "kv_cache",
        stage.kv_pool_bytes,
        "sum over the layers of batch x kept tokens x heads x (key + value width) x bytes",
        {
            "batch": resolved.batch,
            "tokens": resolved.tokens,
            "cache_implementation": cache.kind.value,
            "dtype": cache.dtype,
        },
        "transformers 5.24 cache_utils.py",
    )


def _fused(deployment: Deployment) -> list[Step]:
    if not deployment.resolved.kernel.keeps_scores:
        return []
    return [
        Step(
            key="attn_implementation",
            flags="attn_implementation='sdpa'",
            settings={"attn_implementation": "sdpa"},
        )
    ]


def _shorter(deployment: Deployment) -> list[Step]:
    length = deployment.resolved.tokens
    return [
        Step(
            key="max_model_len",
            flags=f"max_length={value}",
            settings={"max_model_len": value, "request_tokens": value},
        )
        for value in halves(length, max(128, length // 4))
    ]


def _narrow_cache(deployment: Deployment) -> list[Step]:
    if deployment.resolved.cache.kind.value == "quantized":
        return []
    return [
        Step(
            key="kv_cache_dtype",
            flags=f"cache_implementation='quantized' ({name})",
            settings={"kv_cache_dtype": name},
        )
        for name in ("fp8", "int4")
    ]


def _narrow_weights(deployment: Deployment) -> list[Step]:
    if deployment.spec.quantization is not None:
        return []
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout)
        for layout in ("int8", "nf4")
    ]


def _more_gpus(deployment: Deployment) -> list[Step]:
    return [
        Step(key="num_gpus", flags=f"{size} GPUs, device_map='auto'", settings={"num_gpus": size})
        for size in doubles(deployment.node.count)
    ]
