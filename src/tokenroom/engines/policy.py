"""What every engine policy answers with, and the contract it keeps.

An engine policy turns a model, a node and the user's settings into a :class:`MemoryPlan`: how the
memory of each rank is divided, how many tokens the KV pool holds, and whether the engine would
start. It reads no files and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, NamedTuple, Protocol

from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.ledger import Line
from tokenroom.models.spec import ModelSpec


class Setting(NamedTuple):
    """One resolved setting (a tuple, as a fit makes about forty of them).

    Attributes:
        value: What holds.
        origin: ``"user"``, ``"engine"`` (its default), ``"gpu"`` (a default that depends on the
            accelerator), ``"model"`` (read from its files) or ``"tokenroom"`` (assumed here).
        reason: Why, when it is not plain; empty otherwise.
    """

    value: Any
    origin: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the user should know; worded by :mod:`tokenroom.reports.messages`.

    Attributes:
        key: Message key, for example ``"gpu_capability_unknown"``.
        values: What the message names.
    """

    key: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A modelled size with the range that measured residuals predict.

    Attributes:
        num_bytes: The modelled value.
        low_bytes: Lower end of the range that the validation rows support.
        high_bytes: Upper end.
        phase: What sets it, for example ``"sampler"``, ``"forward"``, ``"encoder"``.
        terms: What lives at once at that moment, as (name, bytes).
        source: Where the rule was read.
    """

    num_bytes: int
    low_bytes: int
    high_bytes: int
    phase: str = ""
    terms: tuple[tuple[str, int], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of every tensor-parallel rank of one pipeline stage (they are alike), in bytes.

    Attributes:
        pipeline_parallel_rank: The stage.
        total_bytes: What PyTorch sees of the accelerator.
        budget_bytes: What the engine allows itself.
        context_bytes: Taken before the engine looks: CUDA context, other processes.
        weights: Component to bytes.
        activation: Transient peak of profiling, which the engine keeps free for prefill.
        activation_decode_bytes: Transient peak of a decode-only step.
        cuda_graphs: What the engine estimates for its CUDA graphs.
        cuda_graph_actual_bytes: What capturing really takes.
        non_torch: Outside the allocator: NCCL, workspaces, kernels.
        buffers_bytes: The runner's own tables and staging buffers, kept for good.
        available_bytes: What the engine's rule leaves for the KV pool; negative when nothing.
        kv_pool_bytes: What the pool really takes (whole blocks, the smallest rank's count).
        kv_bytes_per_token: Growth of one long request per token on this rank.
        device: Name of the device where an engine places parts on devices by name (``"CUDA0"``,
            ``"CPU"``); empty otherwise.
        is_host: Host memory; ``total_bytes`` is then what is needed when its size is not known.
    """

    pipeline_parallel_rank: int
    total_bytes: int
    budget_bytes: int
    context_bytes: int
    weights: Mapping[str, int]
    activation: Estimate
    activation_decode_bytes: int
    cuda_graphs: Estimate
    cuda_graph_actual_bytes: int
    non_torch: Estimate
    buffers_bytes: int
    available_bytes: int
    kv_pool_bytes: int
    kv_bytes_per_token: float
    device: str = ""
    is_host: bool = False

    @property
    def weights_bytes(self) -> int:
        """All weights of the rank."""
        return sum(self.weights.values())

    @property
    def free_bytes(self) -> int:
        """What nobody takes; negative when the plan does not fit the card."""
        return (
            self.total_bytes
            - self.context_bytes
            - self.weights_bytes
            - self.kv_pool_bytes
            - self.activation.num_bytes
            - self.cuda_graphs.num_bytes
            - self.non_torch.num_bytes
            - self.buffers_bytes
        )

    @property
    def estimate_errors(self) -> tuple[int, int]:
        """Bytes that the estimates may be (too low, too high) by, all told.

        The errors of activation, graphs and memory outside PyTorch are independent, and are added
        in quadrature.
        """
        estimates = (self.activation, self.cuda_graphs, self.non_torch)
        worse = sqrt(sum((item.high_bytes - item.num_bytes) ** 2 for item in estimates))
        better = sqrt(sum((item.num_bytes - item.low_bytes) ** 2 for item in estimates))
        return round(worse), round(better)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroup:
    """Layers that share a block table.

    Attributes:
        kind: ``"full_attention"``, ``"sliding_window"``, ``"mla"``, ``"mamba"``, ...
        num_layers: How many layers.
        block_size: Tokens a block of this group.
        page_bytes: Bytes of one layer's page.
    """

    kind: str
    num_layers: int
    block_size: int
    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the engine would not start (or would die while starting).

    Attributes:
        cause: ``"weights_too_big"``, ``"free_below_budget"``, ``"profile_peak"``,
            ``"pass_peak"`` (while serving, in engines that measure nothing at start),
            ``"no_room_for_kv"``, ``"kv_below_one_request"``, ``"cuda_graphs"``.
        phase: ``"load"``, ``"profile"``, ``"pass"``, ``"kv_init"`` or ``"graph_capture"``.
        needed_bytes: What was wanted on the governing rank.
        available_bytes: What there was.
        values: Further figures for the sentence.
    """

    cause: str
    phase: str
    needed_bytes: int
    available_bytes: int
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model on a node under an engine with every setting resolved.

    Attributes:
        engine: ``"vllm"``.
        version: Version whose rules apply.
        spec: The model, quantised as it will be loaded.
        draft: The draft model of speculative decoding, None without one.
        node: The accelerators.
        settings: Setting name to value and origin.
        asked: The engine's own settings object as the user gave it.
        resolved: The engine's own typed form with every default filled in.
        notices: What the user should know.
    """

    engine: str
    version: str
    spec: ModelSpec
    draft: ModelSpec | None
    node: Node
    settings: Mapping[str, Setting]
    asked: Any
    resolved: Any
    notices: tuple[Notice, ...] = ()


class MemoryPlan(Protocol):
    """How an engine divides memory for one deployment.

    ``kv_blocks``, ``kv_pool_tokens`` and ``max_concurrency`` are the figures that version of the
    engine prints; ``refusal`` is None when it starts; ``pool_is_exact`` is True when the pool does
    not rest on estimates (its bytes or blocks were given).
    """

    @property
    def stages(self) -> tuple[StageMemory, ...]:
        """Memory of each pipeline stage."""
        ...

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Requests that run at once at most, over all copies."""
        ...

    @property
    def kv_block_size(self) -> int:
        """Tokens of a block."""
        ...

    @property
    def kv_blocks(self) -> int:
        """Blocks of the pool."""
        ...

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of the pool."""
        ...

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that the pool holds."""
        ...

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """Layers that share a block table."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """Why the engine would not start, None when it does."""
        ...

    @property
    def pool_is_exact(self) -> bool:
        """The pool's size rests on no estimate."""
        ...

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        ...

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the pool holds at once."""
        ...

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds in the pool of the governing rank."""
        ...

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests, on the governing rank."""
        ...

    def max_model_len_that_fits(self) -> int:
        """The longest max_model_len for which the engine starts with these settings."""
        ...

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing rank, line by line with formula, values and source."""
        ...


def capture_refusal(stages: Sequence[StageMemory]) -> Refusal | None:
    """Why capturing graphs fails after the pool was taken; None where every stage has the room."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of settings that may make a deployment fit.

    Attributes:
        key: ``"max_model_len"``, ``"kv_cache_dtype"``, ``"weights"``, ...: the first setting.
        flags: The engine's own words for all of it.
        prices: Key of every setting changed; each has its price.
        deployment: The deployment with the change made.
        layout: Layout that the weights take, None when they keep theirs.
        kv_pool_tokens: Tokens in the pool after the change; filled by :meth:`with_result`.
        copies: How many such pools there are, one for each data-parallel copy.
        requests_running: Requests of the asked length that run at once after it.
        request_tokens: That length, which a smaller max_model_len may have cut.
    """

    key: str
    flags: str
    prices: tuple[str, ...]
    deployment: Deployment
    layout: str | None = None
    kv_pool_tokens: int = 0
    copies: int = 1
    requests_running: int = 0
    request_tokens: int = 0

    def with_result(self, plan: MemoryPlan, requests_running: int, request_tokens: int) -> Change:
        """The same change with what it brings."""
        return replace(
            self,
            kv_pool_tokens=plan.kv_pool_tokens,
            copies=copies_of(plan),
            requests_running=requests_running,
            request_tokens=request_tokens,
        )


def copies_of(plan: MemoryPlan) -> int:
    """Data-parallel copies, each with a pool of its own of which the plan describes one."""
    for notice in plan.notices:
        if notice.key == "per_replica":
            return int(str(notice.values["replicas"]))
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One thing that an engine sets memory aside for; the engine table is written from these.

    Attributes:
        what: What is set aside (``"KV pool"``).
        when: At which moment, and for how long.
        of_what: Of what: a share of which memory, or the size it follows.
        default: The setting that decides, with its default.
        source: Where the engine says so.
    """

    what: str
    when: str
    of_what: str
    default: str
    source: str


class Engine(Protocol):
    """An engine's memory policy.

    Further attributes are optional. ``reserves``, a tuple of :class:`Reservation`, is what the
    engine table says of it. ``takes_workload``, when true, says that its settings include
    ``concurrency`` and ``request_tokens``: the memory it plans depends on what is asked for.
    ``batches(plan, request_tokens)`` gives what finds the requests that run at once under other
    batch sizes, lengths and shares of memory, or None, and ``same_memory(one, other)`` says whether
    two deployments that differ in prefix caching or KV offloading divide memory alike: a search
    need not plan anew for those.
    """

    @property
    def name(self) -> str:
        """Its name, as ``--engine`` takes it."""
        ...

    def settings(self, base: Any, changes: Mapping[str, Any]) -> Any:
        """The engine's settings object with some fields set; ``base`` None starts from nothing.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        ...

    def place(
        self, accelerator: Accelerator, count: int | None, settings: Any, used_bytes: int = 0
    ) -> Node:
        """The accelerators a deployment runs on; as many as the parallel sizes need by default.

        ``used_bytes`` is what other processes hold on each of them.

        Raises:
            DeploymentError: There are fewer accelerators than the parallel sizes need.
        """
        ...

    def draft_model(self, settings: Any) -> str | None:
        """Name of the draft model that the settings ask for, None when they ask for none."""
        ...

    def deploy(
        self, spec: ModelSpec, node: Node, settings: Any, draft: ModelSpec | None = None
    ) -> Deployment:
        """Resolve every setting and check it as the engine does.

        Raises:
            DeploymentError: The engine would refuse the settings.
        """
        ...

    def plan(self, deployment: Deployment) -> MemoryPlan:
        """Divide the memory."""
        ...

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        ...
