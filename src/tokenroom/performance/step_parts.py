"""A step's time in parts that depend on different things, so that each can be looked up.

The operators of a step depend either on how many tokens it has, or on its prompts' chunks, or on
its decoding requests and their contexts, or on how many rows of logits it gives. What the host
takes to start them depends on which there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.efficiency import (
    Shares,
    bandwidth_of,
    efficiency_of,
    joined,
    kernel_parts,
    kernel_shares,
    operator_seconds,
    peak_flops,
)
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import host_cost
from tokenroom.performance.llama_cpp import BUILDS
from tokenroom.performance.operators import (
    mixing_operators,
    output_operators,
    token_operators,
)
from tokenroom.performance.step_time import starting_seconds
from tokenroom.performance.work import Chunk, Kind, Layout, Operator, StepWork


class Part(NamedTuple):
    """Operators of a step that depend on one thing.

    Attributes:
        started_seconds: Their time where the host starts each of them.
        replayed_seconds: Their time where they are replayed from a graph.
        starting_seconds: What the host takes to start each of them.
    """

    started_seconds: float
    replayed_seconds: float
    starting_seconds: float


class Load(NamedTuple):
    """What one prompt's chunk, or several together, ask of a kernel.

    Attributes:
        flops: Multiplications and additions.
        num_bytes: Bytes that move.
        rows: First extent of its shape: tokens, or the keys that are expanded.
        depth: Its third extent, what is gone through one after another.
    """

    flops: float
    num_bytes: float
    rows: float
    depth: float


class PromptKernel(NamedTuple):
    """An operator over prompts, whose work adds up over their chunks and whose time does not.

    Attributes:
        times: How often it runs in a step.
        shares: Its coefficients.
        flops_per_second: Peak that they are shares of.
        bytes_per_second: Bandwidth that they are shares of.
        columns: Second extent of its shape.
        pieces: Fourth extent, of one prompt.
        shared_bytes: What it reads once for all prompts: weights.
        products: It is a product over all prompts' rows; otherwise each prompt is on its own, and
            its shape is that of the mean one.
    """

    times: int
    shares: Shares
    flops_per_second: float
    bytes_per_second: float
    columns: float
    pieces: float
    shared_bytes: float
    products: bool

    def seconds(self, load: Load, prompts: int) -> float:
        """Time of all its runs for so many prompts, their loads added up."""
        rows, pieces = load.rows, self.pieces
        if not self.products:
            rows, pieces = rows / prompts, pieces * prompts
        latency, compute, moved = kernel_parts(
            self.shares,
            load.flops,
            load.num_bytes - (prompts - 1) * self.shared_bytes,
            (rows, self.columns, load.depth / prompts, pieces),
            self.flops_per_second,
            self.bytes_per_second,
        )
        return float(self.times * (latency + joined(compute, moved, self.shares.sharpness)))


def has_parts(engine: str, layout: Layout) -> bool:
    """Whether steps fall into parts: not where the processor computes some of their blocks."""
    return layout.host is None and engine not in BUILDS


class StepParts:
    """The parts of the steps of one deployment without drafted tokens.

    Args:
        spec: The model, as it is loaded.
        layout: How it is divided.
        accelerator: The kind of GPU.
        engine: Whose kernels and host, as of
            :func:`~tokenroom.performance.step_time.step_time`.
        kv_dtype: Type of the cache, None for the checkpoint's.
        cuda_graphs: Decode steps are replayed from graphs.
        asynchronous: The host prepares a step while the accelerators run the one before.
        factors: Those of the machine, where it was calibrated.

    Raises:
        HardwareError: A peak or bandwidth that it needs is not known.
    """

    __slots__ = (
        "_accelerator",
        "_efficiency",
        "_factors",
        "_host",
        "_kv_dtype",
        "_layout",
        "_spec",
        "cuda_graphs",
        "prepare_seconds",
        "sequence_seconds",
        "step_seconds",
    )

    def __init__(
        self,
        spec: ModelSpec,
        layout: Layout,
        accelerator: Accelerator,
        *,
        engine: str = "any",
        kv_dtype: str | None = None,
        cuda_graphs: bool = True,
        asynchronous: bool = True,
        factors: Factors = UNCALIBRATED,
    ) -> None:
        host = host_cost(engine).scaled(factors)
        self._spec = spec
        self._layout = layout
        self._accelerator = accelerator
        self._kv_dtype = kv_dtype
        self._factors = factors
        self._efficiency = efficiency_of(accelerator, engine)
        self._host = host
        self.cuda_graphs = cuda_graphs
        self.prepare_seconds = host.prepare_seconds
        self.sequence_seconds = host.sequence_seconds
        self.step_seconds = host.step_seconds + (0.0 if asynchronous else host.prepare_seconds)

    def of_tokens(self, tokens: int) -> Part:
        """What depends on how many tokens a step has, other data-parallel ranks having as many.

        Raises:
            DeploymentError: The layout does not divide the model, or it has parts whose speed is
                not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        others = self._layout.data_parallel_size - 1
        work = StepWork(decode_sequences=tokens, other_tokens=others * tokens)
        return self._timed(token_operators(self._spec, self._layout, work))

    def of_outputs(self, rows: int) -> Part:
        """What depends on how many rows of logits it gives; raises as :meth:`of_tokens`."""
        return self._timed(output_operators(self._spec, self._layout, rows))

    def prompt_kernels(self) -> tuple[PromptKernel, ...]:
        """The operators over its prompts, where the host starts them; raises as :meth:`of_tokens`.

        They are in the order of :meth:`prompt_loads`.
        """
        return tuple(
            self._prompt_kernel(one, two)
            for one, two in zip(self._over(Chunk(1)), self._over(Chunk(2)), strict=True)
        )

    def _prompt_kernel(self, one: Operator, two: Operator) -> PromptKernel:
        shares, _, _ = kernel_shares(self._efficiency, one.kind, one.arithmetic)
        peak = peak_flops(one.arithmetic, self._accelerator)
        products = one.kind in (Kind.GEMM, Kind.BATCHED_GEMM)
        return PromptKernel(
            times=one.times,
            shares=shares,
            flops_per_second=peak / self._factors.compute,
            bytes_per_second=bandwidth_of(self._accelerator) / self._factors.bandwidth,
            columns=one.shape[1],
            pieces=one.shape[3],
            shared_bytes=2 * one.num_bytes - two.num_bytes if products else 0.0,
            products=products,
        )

    def prompt_loads(self, chunk: Chunk) -> tuple[Load, ...]:
        """What a chunk asks of each of :meth:`prompt_kernels`; loads of chunks add up.

        Raises as :meth:`of_tokens`.
        """
        return tuple(
            Load(operator.flops, operator.num_bytes, operator.shape[0], operator.shape[2])
            for operator in self._over(chunk)
        )

    def _over(self, chunk: Chunk) -> Iterator[Operator]:
        work = StepWork(prefill=(chunk,))
        return mixing_operators(self._spec, self._layout, work, kv_dtype=self._kv_dtype)

    def of_decoding(self, sequences: int, context: float) -> Part:
        """What depends on its decoding requests and their mean context in tokens.

        Raises as :meth:`of_tokens`.
        """
        work = StepWork(decode_sequences=sequences, decode_context_tokens=context)
        return self._timed(
            mixing_operators(self._spec, self._layout, work, kv_dtype=self._kv_dtype)
        )

    def prompts_starting_seconds(self) -> float:
        """What the host takes to start the operators over prompts; raises as :meth:`of_tokens`."""
        return starting_seconds(tuple(self._over(Chunk(1))), self._host)

    def _timed(self, operators: Iterable[Operator]) -> Part:
        every = tuple(operators)
        started = replayed = 0.0
        per_node, factors = self._layout.per_node, self._factors
        efficiency, accelerator = self._efficiency, self._accelerator
        overlap = self._host.overlap_seconds
        for operator in every:
            latency, busy = operator_seconds(efficiency, operator, accelerator, per_node, factors)
            started += latency + busy
            replayed += max(0.0, latency - operator.times * overlap) + busy
        return Part(started, replayed, starting_seconds(every, self._host))
