"""Contiguous, paged and hybrid allocation of one pool, without any engine's further habits.

The pool is what weights, the CUDA context and the activations of a prefill step leave of the GPU
(or a size that is given); :mod:`tokenroom.memory.allocation` passes a workload through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import floor
from typing import Any, Final

from tokenroom.engines.abstract.settings import AbstractSettings
from tokenroom.engines.abstract.workload import draw_lengths
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
    Setting,
    StageMemory,
)
from tokenroom.engines.setting_checks import check_count, check_share, check_switch, renamed
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.activations import Terms, terms_bytes, widest_moment
from tokenroom.memory.allocation import (
    TABLE_ENTRY_BYTES,
    Allocator,
    Occupancy,
    Sharing,
    largest_batch,
    occupancy,
)
from tokenroom.memory.kv_cache import (
    attention_bytes_per_token,
    element_bytes,
    indexer_bytes_per_token,
    latent_bytes_per_token,
    mixer_bytes,
)
from tokenroom.memory.ledger import Line
from tokenroom.memory.process_context import communicator_bytes, cuda_context_bytes
from tokenroom.memory.rank_weights import Place, rank_weights, split_layers
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, MoEFFN, Recurrent

_NAMES: Final = frozenset(item.name for item in fields(AbstractSettings))
_PREFILL_TOKENS: Final = 8192
_LONGEST_UNBOUNDED: Final = 4096
_ACTIVATION_RANGE: Final = 0.25
"""The tensors of a layer are counted, kernels' workspaces are not."""
_SOURCE: Final = "memory/allocation.py"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Every setting with its value.

    Attributes:
        allocator: How room is given.
        lengths: Lengths of the workload's requests.
        describes_lengths: They differ, so that the batch is that of the workload.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_seqs: int | None
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    kv_cache_dtype: str
    dtype: str
    allocator: Allocator
    lengths: tuple[int, ...]
    describes_lengths: bool


@dataclass(frozen=True, kw_only=True)
class AbstractPlan:
    """How a policy shares out the pool; see :class:`tokenroom.engines.policy.MemoryPlan`."""

    deployment: Deployment
    stages: tuple[StageMemory, ...]
    refusal: Refusal | None

    @property
    def _resolved(self) -> Resolved:
        resolved: Resolved = self.deployment.resolved
        return resolved

    @cached_property
    def governing(self) -> int:
        """Index of the stage whose pool holds the fewest longest requests."""
        rooms = [
            stage.available_bytes / max(1, self._cost(index)(self.max_model_len))
            for index, stage in enumerate(self.stages)
        ]
        return rooms.index(min(rooms))

    def _cost(self, stage: int) -> Callable[[int], int]:
        return request_cost(self.deployment, stage)

    @property
    def _pool_bytes(self) -> int:
        return max(0, self.stages[self.governing].available_bytes)

    @property
    def max_model_len(self) -> int:
        """The longest request in tokens."""
        return self._resolved.allocator.max_tokens

    @property
    def max_num_seqs(self) -> int:
        """Most requests at once."""
        held = self.requests_of(min(self._resolved.lengths, default=1))
        return self._resolved.max_num_seqs or max(1, held)

    @property
    def kv_block_size(self) -> int:
        """Tokens of a block; of the one piece a request gets, when it is contiguous."""
        allocator = self._resolved.allocator
        if allocator.sharing is Sharing.CONTIGUOUS:
            return allocator.max_tokens
        return allocator.block_size

    @property
    def kv_blocks(self) -> int:
        """Blocks that the pool would hold of one request."""
        return self.kv_pool_tokens // self.kv_block_size

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the pool: requests of full length times that length."""
        return floor(self.max_concurrency * self.max_model_len)

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that the pool holds, as a fraction."""
        each = self._cost(self.governing)(self._resolved.allocator.max_tokens)
        return self._pool_bytes / each if each else 0.0

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """All layers share one table."""
        cost = self._cost(self.governing)
        size = self.kv_block_size
        return (
            KVGroup(
                kind=self._resolved.allocator.sharing.value,
                num_layers=self.deployment.spec.num_layers,
                block_size=size,
                page_bytes=cost(size) // max(1, self.deployment.spec.num_layers),
            ),
        )

    @property
    def pool_is_exact(self) -> bool:
        """The pool's size was given."""
        return self._resolved.kv_cache_memory_bytes is not None

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Requests of the workload that the pool can never hold."""
        allocator = self._resolved.allocator
        cost = self._cost(self.governing)
        never = sum(
            cost(allocator.reserved_tokens(tokens)) > self._pool_bytes
            for tokens in self._resolved.lengths
        )
        if never and self.refusal is None:
            return (Notice(key="requests_never_fit", values={"count": never}),)
        return ()

    @cached_property
    def occupancy(self) -> Occupancy:
        """What the workload makes of the pool of the governing stage."""
        return occupancy(
            self._pool_bytes,
            self._resolved.allocator,
            self._resolved.lengths,
            self._cost(self.governing),
            max_batch=self._resolved.max_num_seqs,
        )

    def requests_of(self, tokens: int) -> int:
        """Requests of that length the pool holds; of the workload, where lengths are given."""
        if self._resolved.describes_lengths:
            return self.occupancy.batch
        return largest_batch(
            self._pool_bytes, self._resolved.allocator, tokens, self._cost(self.governing)
        )

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes set aside for one request of that length on the governing stage."""
        return self._cost(self.governing)(self._resolved.allocator.reserved_tokens(tokens))

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests."""
        return terms_bytes(_activation(self.deployment, self.governing, max(1, requests), requests))

    def max_model_len_that_fits(self) -> int:
        """The longest request of which the pool holds one, 0 when the weights do not fit."""
        if self.refusal is not None and self.refusal.cause == "weights_too_big":
            return 0
        spec = self.deployment.spec
        allocator, cost = self._resolved.allocator, self._cost(self.governing)
        low, high = 0, max(spec.max_position_embeddings or _LONGEST_UNBOUNDED, self.max_model_len)
        while low < high:
            middle = (low + high + 1) // 2
            longest = replace(allocator, max_tokens=middle)
            if cost(longest.reserved_tokens(middle)) <= self._pool_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, then what the workload makes of the pool."""
        return tuple(_explain(self))


class AbstractPolicy:
    """One way of sharing out a pool."""

    takes_workload: Final = True

    def __init__(self, sharing: Sharing, reserves: tuple[Reservation, ...]) -> None:
        self.sharing = sharing
        self.reserves = reserves

    @property
    def name(self) -> str:
        """``"contiguous"``, ``"paged"`` or ``"hybrid"``."""
        return self.sharing.value

    def settings(
        self, base: AbstractSettings | None, changes: Mapping[str, Any]
    ) -> AbstractSettings:
        """The settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        given = renamed(changes, {}, _NAMES, self.name)
        for name, value in given.items():
            if name == "gpu_memory_utilization":
                check_share(name, value)
            elif name == "knows_length":
                check_switch(name, value)
            elif name in ("kv_cache_dtype", "dtype", "lengths", "version"):
                if value is not None and not isinstance(value, str):
                    raise DeploymentError(f"{name} is {value!r}; it must be text")
            else:
                check_count(name, value, least=0 if name in ("seed", "first_tokens") else 1)
        return replace(base or AbstractSettings(), **given)

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: AbstractSettings,
        used_bytes: int = 0,
    ) -> Node:
        """As many accelerators as the parallel sizes need.

        Raises:
            DeploymentError: There are fewer.
        """
        needed = (settings.tensor_parallel_size or 1) * (settings.pipeline_parallel_size or 1)
        if count is not None and count < needed:
            raise DeploymentError(
                f"the parallel sizes need {needed} GPUs and there are {count}; lower them or give "
                f"more GPUs"
            )
        return Node(accelerator=accelerator, count=needed, used_bytes=used_bytes)

    def draft_model(self, settings: AbstractSettings) -> str | None:
        """There is none."""
        return None

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: AbstractSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Fill in every setting.

        Raises:
            DeploymentError: The lengths cannot be understood, or a request is longer than allowed.
        """
        known = _resolve(self.sharing, spec, settings)
        resolved = Resolved(
            tensor_parallel_size=known["tensor_parallel_size"].value,
            pipeline_parallel_size=known["pipeline_parallel_size"].value,
            max_num_seqs=known["max_num_seqs"].value,
            max_num_batched_tokens=known["max_num_batched_tokens"].value,
            gpu_memory_utilization=known["gpu_memory_utilization"].value,
            kv_cache_memory_bytes=settings.kv_cache_memory_bytes,
            kv_cache_dtype=known["kv_cache_dtype"].value,
            dtype=known["dtype"].value,
            allocator=Allocator(
                sharing=self.sharing,
                max_tokens=known["max_model_len"].value,
                block_size=known["block_size"].value if "block_size" in known else 1,
                first_tokens=known["first_tokens"].value if "first_tokens" in known else 0,
                knows_length=known["knows_length"].value if "knows_length" in known else False,
            ),
            lengths=_lengths(settings, known["max_model_len"].value),
            describes_lengths=settings.lengths is not None,
        )
        element_bytes(resolved.dtype)
        if resolved.pipeline_parallel_size > spec.num_layers:
            raise DeploymentError(
                f"pipeline_parallel_size is {resolved.pipeline_parallel_size}; the model has "
                f"{spec.num_layers} layers"
            )
        return Deployment(
            engine=self.name,
            version="1",
            spec=spec,
            draft=None,
            node=node,
            settings=known,
            asked=settings,
            resolved=resolved,
        )

    def plan(self, deployment: Deployment) -> AbstractPlan:
        """Divide the memory of every stage."""
        resolved: Resolved = deployment.resolved
        stages = tuple(
            _stage(deployment, index) for index in range(resolved.pipeline_parallel_size)
        )
        plan = AbstractPlan(deployment=deployment, stages=stages, refusal=None)
        return replace(plan, refusal=_refusal(plan))

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        return changes_from(
            self,
            deployment,
            suffices,
            soft=[_shorter, _narrow_cache, _narrow_weights],
            hard=[_wider("tensor_parallel_size"), _wider("pipeline_parallel_size")],
        )


def request_cost(deployment: Deployment, stage: int) -> Callable[[int], int]:
    """Bytes that so many tokens of one request take on a stage; never falls with tokens.

    Attention: KV heads x cell a token, as far as the window or chunk reaches; latent attention: the
    latent; recurrent layers: their state, whatever the length.
    """
    resolved: Resolved = deployment.resolved
    spec, tp = deployment.spec, resolved.tensor_parallel_size
    reach: dict[int | None, int] = {}
    fixed = 0
    for index in split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage):
        for mixer in spec.layers[index].mixers:
            if isinstance(mixer, Recurrent):
                fixed += mixer_bytes(
                    mixer, 1, resolved.dtype, tensor_parallel_size=tp, state_dtype=resolved.dtype
                )
            elif isinstance(mixer, Attention):
                if mixer.cross:
                    continue
                each = attention_bytes_per_token(
                    mixer, resolved.kv_cache_dtype, tensor_parallel_size=tp
                )
                limit = mixer.window if mixer.window is not None else mixer.chunk
                reach[limit] = reach.get(limit, 0) + each
            elif isinstance(mixer, LatentAttention):
                each = latent_bytes_per_token(mixer, resolved.kv_cache_dtype)
                index_bytes = indexer_bytes_per_token(mixer.indexer) if mixer.indexer else 0
                if mixer.compress_ratio == 1:
                    reach[mixer.window] = reach.get(mixer.window, 0) + each
                    reach[None] = reach.get(None, 0) + index_bytes
                else:
                    reach[mixer.window] = reach.get(mixer.window, 0) + each
                    reach[None] = reach.get(None, 0) + -(
                        -(each + index_bytes) // mixer.compress_ratio
                    )
    terms = tuple(reach.items())

    def cost(tokens: int) -> int:
        grown = sum(
            each * (tokens if limit is None else min(tokens, limit)) for limit, each in terms
        )
        return fixed + grown if tokens > 0 else 0

    return cost


def _resolve(sharing: Sharing, spec: ModelSpec, settings: AbstractSettings) -> dict[str, Setting]:
    def chosen(name: str, default: Any, origin: str = "engine", reason: str = "") -> None:
        value = getattr(settings, name)
        known[name] = (
            Setting(value=default, origin=origin, reason=reason)
            if value is None
            else Setting(value=value, origin="user")
        )

    known: dict[str, Setting] = {}
    dtype = "bfloat16" if spec.dtype == "float32" else spec.dtype
    longest = spec.max_position_embeddings
    chosen("tensor_parallel_size", 1)
    chosen("pipeline_parallel_size", 1)
    chosen("dtype", dtype, "model")
    chosen("kv_cache_dtype", spec.kv_cache_dtype or known["dtype"].value, "model")
    if longest is None:
        chosen("max_model_len", _LONGEST_UNBOUNDED, "tokenroom", "the model has no bound")
    else:
        chosen("max_model_len", longest, "model")
    chosen("max_num_seqs", None)
    chosen("max_num_batched_tokens", _PREFILL_TOKENS)
    chosen("gpu_memory_utilization", 1.0)
    if sharing is Sharing.CONTIGUOUS:
        chosen("knows_length", False)
    else:
        chosen("block_size", 16)
    if sharing is Sharing.HYBRID:
        lengths = sorted(_lengths(settings, known["max_model_len"].value))
        median = lengths[len(lengths) // 2]
        chosen("first_tokens", median, "tokenroom", "half of the requests need no more")
    for name in ("kv_cache_memory_bytes", "concurrency", "request_tokens", "lengths", "seed"):
        value = getattr(settings, name)
        if value is not None:
            known[name] = Setting(value=value, origin="user")
    return known


def _lengths(settings: AbstractSettings, longest: int) -> tuple[int, ...]:
    if settings.lengths is not None:
        return draw_lengths(
            settings.lengths,
            count=settings.concurrency,
            longest=longest,
            seed=settings.seed or 0,
        )
    return (min(settings.request_tokens or longest, longest),) * (settings.concurrency or 1)


def _activation(deployment: Deployment, stage: int, tokens: int, outputs: int) -> Terms:
    """The widest layer of a stage at a step, and the logits of those that get a token."""
    resolved: Resolved = deployment.resolved
    spec, tp = deployment.spec, resolved.tensor_parallel_size
    width = element_bytes(resolved.dtype)
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, stage)
    kinds = {id(spec.layers[index]): spec.layers[index] for index in layers}
    moments = [
        widest_moment(
            layer,
            tokens,
            spec.hidden_size,
            element_bytes=width,
            tensor_parallel_size=tp,
            expert_shards=tp,
        )
        for layer in kinds.values()
    ]
    if layers.stop == spec.num_layers:
        hidden = tokens * spec.hidden_size * width
        moments.append((("hidden", hidden), ("logits", outputs * spec.vocab_size * 4)))
    return max(moments, key=terms_bytes)


def _stage(deployment: Deployment, index: int) -> StageMemory:
    resolved: Resolved = deployment.resolved
    spec, node = deployment.spec, deployment.node
    tp = resolved.tensor_parallel_size
    total = node.accelerator.memory_bytes
    layers = split_layers(spec.num_layers, resolved.pipeline_parallel_size, index)
    weights = rank_weights(
        spec, Place(tp=tp, expert_tp=tp, layers=layers), dtype=resolved.dtype, mtp=False
    )
    tokens = min(resolved.max_num_batched_tokens, resolved.allocator.max_tokens)
    terms = _activation(deployment, index, tokens, 1)
    peak = terms_bytes(terms)
    activation = Estimate(
        num_bytes=peak,
        low_bytes=round(peak * (1 - _ACTIVATION_RANGE)),
        high_bytes=round(peak * (1 + _ACTIVATION_RANGE)),
        phase="layers",
        terms=terms,
        source="memory/activations.py widest_moment",
    )
    nothing = Estimate(num_bytes=0, low_bytes=0, high_bytes=0)
    experts = any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds)
    context = cuda_context_bytes(node.accelerator) + communicator_bytes(
        node.accelerator,
        ranks=tp * resolved.pipeline_parallel_size,
        tensor_ranks=tp,
        expert_group=tp > 1 and experts,
    )
    budget = floor(total * resolved.gpu_memory_utilization)
    held = weights.total_bytes + peak + context + node.used_bytes
    available = budget - held
    if resolved.kv_cache_memory_bytes is not None:
        available = resolved.kv_cache_memory_bytes
    return StageMemory(
        pipeline_parallel_rank=index,
        total_bytes=total,
        budget_bytes=budget,
        context_bytes=context + node.used_bytes,
        weights={component.value: size for component, size in weights.components.items()},
        activation=activation,
        activation_decode_bytes=terms_bytes(_activation(deployment, index, 1, 1)),
        cuda_graphs=nothing,
        cuda_graph_actual_bytes=0,
        non_torch=nothing,
        buffers_bytes=0,
        available_bytes=available,
        kv_pool_bytes=max(0, available),
        kv_bytes_per_token=float(_growth(request_cost(deployment, index), resolved)),
    )


def _growth(cost: Callable[[int], int], resolved: Resolved) -> int:
    longest = resolved.allocator.max_tokens
    return cost(longest + 1) - cost(longest)


def _refusal(plan: AbstractPlan) -> Refusal | None:
    for stage in plan.stages:
        held = stage.weights_bytes + stage.context_bytes
        if held > stage.total_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
    stage = plan.stages[plan.governing]
    if stage.available_bytes <= 0:
        return Refusal(
            cause="no_room_for_kv",
            phase="kv_init",
            needed_bytes=stage.budget_bytes - stage.available_bytes,
            available_bytes=stage.budget_bytes,
        )
    resolved: Resolved = plan.deployment.resolved
    needed = plan.kv_bytes_of(resolved.allocator.max_tokens)
    if needed > stage.available_bytes:
        return Refusal(
            cause="kv_below_one_request",
            phase="kv_init",
            needed_bytes=needed,
            available_bytes=stage.available_bytes,
            values={
                "max_model_len": plan.max_model_len,
                "longest": plan.max_model_len_that_fits(),
            },
        )
    return None


def _explain(plan: AbstractPlan) -> Iterator[Line]:
    resolved: Resolved = plan.deployment.resolved
    stage = plan.stages[plan.governing]
    allocator = resolved.allocator
    yield exact(
        "weights",
        stage.weights_bytes,
        "sum of the parts the rank holds, as stored",
        {"tensor_parallel_size": resolved.tensor_parallel_size, "dtype": resolved.dtype},
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield estimated("activation_peak", stage.activation, "widest layer of a prefill step")
    yield exact("context", stage.context_bytes, "CUDA context and communicators", {}, "measured")
    yield exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "kv_cache_memory_bytes"
        if plan.pool_is_exact
        else "total x gpu_memory_utilization - context - weights - activation_peak",
        {"total": stage.total_bytes, "gpu_memory_utilization": resolved.gpu_memory_utilization},
        _SOURCE,
    )
    reserved = {
        Sharing.CONTIGUOUS: "length" if allocator.knows_length else "max_model_len",
        Sharing.PAGED: "ceil(length / block_size) x block_size",
        Sharing.HYBRID: "first_tokens + ceil((length - first_tokens) / block_size) x block_size",
    }[allocator.sharing]
    filled = plan.occupancy
    yield exact(
        "used",
        filled.used_bytes,
        "sum over the running requests of bytes(length)",
        {"requests": len(resolved.lengths), "running": round(filled.mean_batch, 2)},
        _SOURCE,
    )
    yield exact(
        "reserved",
        filled.reserved_bytes,
        f"sum over the running requests of bytes({reserved})",
        {"block_size": plan.kv_block_size, "max_model_len": allocator.max_tokens},
        _SOURCE,
    )
    yield exact("internal_waste", filled.internal_waste_bytes, "reserved - used", {}, _SOURCE)
    yield exact(
        "external_waste",
        filled.external_waste_bytes,
        "pool - reserved while a request waits",
        {},
        _SOURCE,
    )
    yield exact(
        "block_table",
        filled.table_bytes,
        "running requests x entries of the longest x 4 bytes",
        {"entries": allocator.table_entries(), "entry_bytes": TABLE_ENTRY_BYTES},
        "vLLM v1/worker/block_table.py",
    )


def _shorter(deployment: Deployment) -> list[Step]:
    longest = deployment.resolved.allocator.max_tokens
    return [
        Step(
            key="max_model_len",
            flags=f"max_model_len={value}",
            settings={"max_model_len": value},
        )
        for value in halves(longest, max(1024, longest // 4))
    ]


def _narrow_cache(deployment: Deployment) -> list[Step]:
    if deployment.resolved.kv_cache_dtype not in ("float16", "bfloat16", "float32"):
        return []
    return [
        Step(key="kv_cache_dtype", flags="kv_cache_dtype=fp8", settings={"kv_cache_dtype": "fp8"})
    ]


def _narrow_weights(deployment: Deployment) -> list[Step]:
    if deployment.spec.quantization is not None:
        return []
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout)
        for layout in ("fp8", "awq")
    ]


def _wider(name: str) -> Callable[[Deployment], list[Step]]:
    def ladder(deployment: Deployment) -> list[Step]:
        return [
            Step(key=name, flags=f"{name}={size}", settings={name: size})
            for size in doubles(getattr(deployment.resolved, name))
        ]

    return ladder


CONTIGUOUS: Final = AbstractPolicy(
    Sharing.CONTIGUOUS,
    (
        Reservation(
            what="KV cache",
            when="when a request starts, until it ends",
            of_what="max_model_len tokens in one piece, whatever the request will need; only its "
            "own length with knows_length",
            default="max_model_len of the model",
            source="the rule of early servers, as in arXiv:2309.06180, section 3",
        ),
    ),
)
PAGED: Final = AbstractPolicy(
    Sharing.PAGED,
    (
        Reservation(
            what="KV cache",
            when="block by block as a request grows",
            of_what="whole blocks anywhere in the pool, and a row of the block table",
            default="block_size 16",
            source="PagedAttention, arXiv:2309.06180, section 4",
        ),
    ),
)
HYBRID: Final = AbstractPolicy(
    Sharing.HYBRID,
    (
        Reservation(
            what="KV cache",
            when="one piece when a request starts, blocks as it outgrows it",
            of_what="first_tokens in one piece, then whole blocks from the same pool",
            default="first_tokens the median length, block_size 16",
            source="memory/allocation.py",
        ),
    ),
)
