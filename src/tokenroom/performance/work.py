"""What one step has to do, and the operators it is made of: the words of the step-time model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tokenroom.errors import DeploymentError


class Kind(StrEnum):
    """Kinds of operators, by what limits them and how their time is found."""

    GEMM = "gemm"
    GROUPED_GEMM = "grouped_gemm"  # both matrix products of routed experts, with their routing
    BATCHED_GEMM = "batched_gemm"  # one small matrix a head (absorbed MLA projections)
    ATTENTION_PREFILL = "attention_prefill"
    ATTENTION_DECODE = "attention_decode"
    LATENT_PREFILL = "latent_prefill"  # MLA with keys and values expanded
    LATENT_DECODE = "latent_decode"  # MLA over the latent itself
    SCAN_PREFILL = "scan_prefill"  # linear attention and state spaces over many tokens
    SCAN_DECODE = "scan_decode"  # one token a sequence through its state
    MEMORY = "memory"  # norms, activations, rotary positions, quantising, embedding, sampling
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND = "send"
    HOST_READ = "host_read"  # weights that stay in the host's memory, over the link to it
    HOST_COMPUTE = "host_compute"  # what the processor computes itself, in the host's memory


BEFORE_BLOCKS: Final = -1
AFTER_BLOCKS: Final = -2
BETWEEN_STAGES: Final = -3


_PRODUCT = ("rows", "columns", "depth")
_OF_PROMPTS = ("prompt_tokens", "head_width", "keys", "all_heads")
_OF_TOKENS = ("query_heads", "context_tokens", "steps", "all_kv_heads")

EXTENTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.GEMM: (*_PRODUCT, "columns"),
    Kind.GROUPED_GEMM: ("expert_rows", *_PRODUCT[1:], "expert_columns"),
    Kind.BATCHED_GEMM: (*_PRODUCT, "heads"),
    Kind.ATTENTION_PREFILL: _OF_PROMPTS,
    Kind.LATENT_PREFILL: _OF_PROMPTS,
    Kind.SCAN_PREFILL: _OF_PROMPTS,
    Kind.ATTENTION_DECODE: _OF_TOKENS,
    Kind.LATENT_DECODE: _OF_TOKENS,
    Kind.SCAN_DECODE: _OF_TOKENS,
    Kind.MEMORY: ("num_bytes",),
    Kind.ALL_REDUCE: ("message_bytes", "ranks"),
    Kind.ALL_GATHER: ("message_bytes", "ranks"),
    Kind.REDUCE_SCATTER: ("message_bytes", "ranks"),
    Kind.ALL_TO_ALL: ("message_bytes", "ranks"),
    Kind.SEND: ("message_bytes", "ranks"),
}
"""What decides how much of a peak a kind reaches: the shape of an operator, in words."""


class Operator(NamedTuple):
    """Alike kernels of one step on one rank.

    Attributes:
        name: What it does, for example ``"qkv_proj"``.
        kind: How its time is found.
        arithmetic: Type its products are made in: ``"bf16"``, ``"fp8"``, ``"fp8_block"``,
            ``"fp8_dynamic"`` (of experts), ``"int8"``, ``"w4a16"``, ``"w8a16"``, ``"mxfp4"``,
            ``"nvfp4"``, ``"ggml"``; of decode attention ``"fp8"`` for a cache of 8 bits.
        times: How often it runs in the step.
        flops: Multiplications and additions of one run.
        num_bytes: Bytes of memory one run must move.
        message_bytes: Bytes of the whole message of a collective, of an all-to-all what one rank
            has for all of them; 0 for kernels.
        ranks: Ranks that take part in a collective.
        shape: (m, n, k, w), the extents (:data:`EXTENTS`) that decide how much of the peak is
            reached: rows and columns of a product, steps gone through one after another, and
            independent pieces. GEMM: M, N, K, N. Grouped: rows an expert, N, K, N over all experts
            touched. Batched: rows, N, K, heads. Attention and scans over prompts: tokens a
            sequence, head width, keys (tokens), heads of all sequences. Decode attention: query
            heads a KV head, keys, 1 (keys are split over pieces), KV heads of all sequences. Empty
            for collectives and memory kernels; of the processor its memory's bytes a second.
        block: Which kind of block it belongs to, by its place in the model's plan; or
            :data:`BEFORE_BLOCKS`, :data:`AFTER_BLOCKS`, :data:`BETWEEN_STAGES`.
    """

    name: str
    kind: Kind
    arithmetic: str
    times: int
    flops: float
    num_bytes: float
    message_bytes: float = 0.0
    ranks: int = 1
    shape: tuple[float, ...] = ()
    block: int = -2


class Chunk(NamedTuple):
    """Tokens of one prompt that a step processes.

    Attributes:
        tokens: New tokens.
        context: Tokens of the same request already in the cache.
    """

    tokens: int
    context: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Requests of one step on one data-parallel rank: prefill and decode may be mixed.

    Attributes:
        prefill: Chunks of prompts.
        decode_sequences: Requests that get their next token.
        decode_context_tokens: Mean tokens in their caches.
        decode_tokens: Rows that each of them brings: its newest token, and drafted ones that the
            step verifies.
        decode_outputs: Rows of logits that each of them needs.
        other_tokens: Tokens that the other data-parallel ranks process in the same step, which
            meet this rank's at shared experts.
    """

    prefill: tuple[Chunk, ...] = ()
    decode_sequences: int = 0
    decode_context_tokens: float = 0.0
    decode_tokens: int = 1
    decode_outputs: int = 1
    other_tokens: int = 0

    @classmethod
    def decoding(cls, contexts: Sequence[int]) -> StepWork:
        """A step that gives each of these contexts (tokens in the cache) its next token."""
        return cls(
            decode_sequences=len(contexts),
            decode_context_tokens=sum(contexts) / len(contexts) if contexts else 0.0,
        )

    @property
    def prefill_tokens(self) -> int:
        """New tokens of all prompts."""
        return sum(chunk.tokens for chunk in self.prefill)

    @property
    def tokens(self) -> int:
        """Rows that pass through the matrices."""
        return self.prefill_tokens + self.decode_sequences * self.decode_tokens

    @property
    def sequences(self) -> int:
        """Requests in the step."""
        return len(self.prefill) + self.decode_sequences

    @property
    def outputs(self) -> int:
        """Rows of logits: one a prompt, and those of the decoding requests."""
        return len(self.prefill) + self.decode_sequences * self.decode_outputs


class HostPart(NamedTuple):
    """What of a model the processor computes, since its weights stay in the host's memory.

    Attributes:
        layers: Blocks of each kind of which all but routed experts do, with their caches.
        experts: Blocks of each kind of which the routed experts do.
        output: The output projection does.
        bandwidth_bytes_per_second: Peak of the host's memory.
        copied_from_rows: Rows from which a step's weights are copied to the accelerator instead,
            which then multiplies; None for never.
    """

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    output: bool
    bandwidth_bytes_per_second: float
    copied_from_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is divided over accelerators.

    Attributes:
        tensor_parallel_size: Ranks that one attention layer is divided over.
        pipeline_parallel_size: Stages.
        data_parallel_size: Copies of the attention layers whose tokens share the experts
            ("attention data parallelism"); 1 for a plain replica.
        expert_parallel_size: Ranks that whole experts are dealt to; they are divided by tensor
            parallelism over the rest.
        per_node: Accelerators in one host; wider groups cross the network.
        sends_chosen_tokens: Tokens go to the ranks of their experts only, inside a host too;
            otherwise every rank gets all of them there.
        stage_layers: Blocks of each stage; even ones when None.
        host_weight_bytes: Weights of the blocks that each rank keeps in the host's memory.
        copies_host_weights: They are copied whole before each block, experts that no token
            chose included; otherwise kernels read what they need of them over the link.
        host: What the processor computes (llama.cpp), None for nothing.

    Raises:
        DeploymentError: A size is not positive, the experts' ranks do not divide, or the stages'
            blocks are not as many as there are stages.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    per_node: int = 8
    sends_chosen_tokens: bool = False
    stage_layers: tuple[int, ...] | None = None
    host_weight_bytes: int = 0
    copies_host_weights: bool = False
    host: HostPart | None = None

    def __post_init__(self) -> None:
        for name in (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "expert_parallel_size",
            "per_node",
        ):
            value = getattr(self, name)
            if value < 1:
                raise DeploymentError(f"{name} is {value}; it must be 1 or more")
        if self.expert_ranks % self.expert_parallel_size:
            raise DeploymentError(
                f"expert_parallel_size {self.expert_parallel_size} does not divide the "
                f"{self.expert_ranks} ranks of a stage; choose a divisor"
            )

        if self.stage_layers is not None and len(self.stage_layers) != self.pipeline_parallel_size:
            raise DeploymentError(
                f"stage_layers has {len(self.stage_layers)} counts; give one for each of the "
                f"{self.pipeline_parallel_size} stages"
            )

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the experts of one layer."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def expert_tensor_parallel_size(self) -> int:
        """Ranks that one expert is divided over."""
        return self.expert_ranks // self.expert_parallel_size

    @property
    def accelerators(self) -> int:
        """Accelerators in all."""
        return self.expert_ranks * self.pipeline_parallel_size
