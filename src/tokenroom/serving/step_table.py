"""Times of steps looked up instead of computed: steps recur by the hundred thousand.

A step's time is put together from its parts (:mod:`tokenroom.performance.step_parts`), each
interpolated between nodes that are computed once, when they are first needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tokenroom.models.spec import Attention, LatentAttention, ModelSpec
from tokenroom.performance.step_parts import (
    Load,
    Part,
    PromptKernel,
    StepParts,
    has_parts,
)
from tokenroom.performance.work import Chunk
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.step_cost import StepCost

_PARTS: Final = 8
"""Nodes lie at most an 8th of their value apart."""
_PARTS_OF_CHUNKS: Final = 4
"""Those of what a chunk asks of kernels lie further apart, since that is nearly linear in its
tokens and its context: of attention the FLOPs of each token are."""
_LEAST_SPACING: Final = 32
"""Between two contexts, in tokens."""
_LARGEST: Final = 1 << 24
"""Tokens that no step and no context has."""
STARTED: Final = 0
"""Kernels are started by the host one by one: the index into a :class:`Part`."""
REPLAYED: Final = 1
"""They are replayed from a graph."""


def _axis(spacing: int, parts: int, marks: Iterable[int] = ()) -> tuple[int, ...]:
    """Nodes from 0 on, ``spacing`` apart at first, then ``parts`` of them in every doubling."""
    nodes = set(marks)
    value = 0
    while value < _LARGEST:
        nodes.add(value)
        while spacing * 2 * parts <= value:
            spacing *= 2
        value += spacing
    return (*sorted(nodes), _LARGEST)


COUNTS: Final = _axis(1, _PARTS)
"""Nodes of counts of tokens and of requests."""
CHUNKS: Final = _axis(1, _PARTS_OF_CHUNKS)
"""Nodes of the tokens of a prompt's chunk."""


def place(axis: tuple[int, ...], value: float) -> tuple[int, float]:
    """The node at or below a value, and how far to the next one it lies."""
    low = bisect_right(axis, value) - 1
    return low, (value - axis[low]) / (axis[low + 1] - axis[low])


class StepTable:
    """What :class:`~.step_cost.StepCost` gives, at less work a step.

    Where a step has no parts (the processor computes some of it, or tokens are drafted) only steps
    that decode equally many rows of each request are looked up, and others are computed.

    Attributes:
        parts: The parts that nodes are made of; None where steps have none.
        contexts: Nodes of contexts; windows and numbers of chosen keys among them, at which the
            time bends.
        before_chunks: Nodes of contexts before chunks of prompts.
        kernels: The operators over prompts.
        computes_loads: What a chunk asks of those is computed each time: local chunks begin anew,
            so that it is no smooth function of the context.
        starting_seconds: What the host takes to start what depends on a step's tokens, on its rows
            of logits, on its decoding requests and on its prompts.

    Args:
        cost: How long steps take.

    Raises:
        DeploymentError: The model has parts whose speed is not modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """

    __slots__ = (
        "_cost",
        "_decoding",
        "_loads",
        "_outputs",
        "_tokens",
        "_whole",
        "before_chunks",
        "computes_loads",
        "contexts",
        "kernels",
        "parts",
        "starting_seconds",
    )

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self.parts = _parts(cost)
        bends = set(_bends(cost.spec))
        self.computes_loads = any(local for _, local in bends)
        marks = {place for tokens, local in bends for place in range(tokens - 1, tokens + local)}
        self.contexts = _axis(_LEAST_SPACING, _PARTS, marks)
        self.before_chunks = _axis(_LEAST_SPACING, _PARTS_OF_CHUNKS, marks)
        self.kernels: tuple[PromptKernel, ...] = ()
        self.starting_seconds = (0.0, 0.0, 0.0, 0.0)
        if self.parts is not None:
            self.kernels = self.parts.prompt_kernels()
            self.starting_seconds = (
                self.parts.of_tokens(1).starting_seconds,
                self.parts.of_outputs(1).starting_seconds,
                self.parts.of_decoding(1, 1).starting_seconds,
                self.parts.prompts_starting_seconds(),
            )
        self._tokens: dict[int, Part] = {}
        self._outputs: dict[int, Part] = {}
        self._decoding: dict[tuple[int, int], Part] = {}
        self._loads: dict[tuple[int, int], tuple[Load, ...]] = {}
        self._whole: dict[tuple[int, int, int], float] = {}

    def __call__(self, plan: StepPlan) -> float:
        """Seconds of a step.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        if plan.passes:
            return sum(map(self, plan.passes))
        count = decoding = len(plan.tokens)
        tokens = sum(plan.tokens)
        if plan.drafted:
            rows, alone = divmod(tokens, count)
            if alone or len(plan.drafted) < count:
                return self._cost(plan)
            return self._computed_whole(count, sum(plan.contexts) / count, rows)
        context = sum(plan.contexts)
        chunks: list[tuple[int, int]] = []
        if tokens != count:
            chunks = plan.prefills()
            decoding -= len(chunks)
            context -= sum(before for _, before in chunks)
        mean = context / decoding if decoding else 0.0
        if self.parts is None:
            return self._cost(plan) if chunks else self._computed_whole(count, mean)
        return self._joined(self.parts, tokens, count, decoding, mean, chunks)

    def seconds(self, decoding: int, contexts: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of a step that has parts; to the last bit.

        Args:
            decoding: Requests that compute one token.
            contexts: Tokens in their caches, all together.
            chunks: Tokens and context of chunks of prompts, in the scheduler's order.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        assert self.parts is not None
        tokens = decoding + sum(chunk for chunk, _ in chunks)
        mean = contexts / decoding if decoding else 0.0
        return self._joined(self.parts, tokens, decoding + len(chunks), decoding, mean, chunks)

    def decode_seconds(self, count: int) -> Callable[[float], float]:
        """Seconds of a step that decodes so many requests, by their mean context; to the last bit.

        Of steps that have parts.

        Raises:
            DeploymentError: The model has parts whose speed is not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        parts = self.parts
        assert parts is not None
        way = REPLAYED if parts.cuda_graphs else STARTED
        base = self._between(self.of_tokens, count, way) + self._between(
            self.of_outputs, count, way
        )
        prepare = parts.prepare_seconds
        if way == STARTED:
            of_tokens, of_outputs, of_decoding, _ = self.starting_seconds
            prepare = prepare + (of_tokens + of_outputs) + of_decoding
        wait = parts.step_seconds + count * parts.sequence_seconds
        row, row_share = place(COUNTS, count)
        contexts, nodes = self.contexts, self.of_decoding
        column = -1
        least = most = width = 0.0
        ends = (0.0, 0.0, 0.0, 0.0)

        def seconds(context: float) -> float:
            nonlocal column, least, most, width, ends
            if not least <= context < most or column < 0:
                column = bisect_right(contexts, context) - 1
                least, most = contexts[column], contexts[column + 1]
                width = most - least
                first = nodes(row, column)[way], nodes(row, column + 1)[way]
                second = first
                if row_share:
                    second = nodes(row + 1, column)[way], nodes(row + 1, column + 1)[way]
                ends = (*first, *second)
            share = (context - least) / width
            below = ends[0] + (ends[1] - ends[0]) * share if share else ends[0]
            if row_share:
                above = ends[2] + (ends[3] - ends[2]) * share if share else ends[2]
                below = below + (above - below) * row_share
            return max(base + below, prepare) + wait

        return seconds

    def _joined(
        self,
        parts: StepParts,
        tokens: int,
        count: int,
        decoding: int,
        context: float,
        chunks: Sequence[tuple[int, int]],
    ) -> float:
        """A step put together, as :func:`tokenroom.performance.step_time.step_time` does it."""
        way = REPLAYED if parts.cuda_graphs and not chunks else STARTED
        device = self._between(self.of_tokens, tokens, way)
        device += self._between(self.of_outputs, count, way)
        if decoding:
            device += self._decoded(decoding, context, way)
        if chunks:
            device += self.prompt_seconds(chunks)
        prepare = parts.prepare_seconds
        if way == STARTED:
            of_tokens, of_outputs, of_decoding, of_prompts = self.starting_seconds
            prepare += of_tokens + of_outputs
            if decoding:
                prepare += of_decoding
            if chunks:
                prepare += of_prompts
        return max(device, prepare) + (parts.step_seconds + count * parts.sequence_seconds)

    @staticmethod
    def _between(of: Callable[[int], Part], count: int, way: int) -> float:
        low, share = place(COUNTS, count)
        below = of(low)[way]
        return below + (of(low + 1)[way] - below) * share if share else below

    def _decoded(self, count: int, context: float, way: int) -> float:
        low, share = place(COUNTS, count)
        below = self._decoded_at(low, context, way)
        if not share:
            return below
        return below + (self._decoded_at(low + 1, context, way) - below) * share

    def _decoded_at(self, row: int, context: float, way: int) -> float:
        low, share = place(self.contexts, context)
        below = self.of_decoding(row, low)[way]
        if not share:
            return below
        return below + (self.of_decoding(row, low + 1)[way] - below) * share

    def prompt_seconds(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of what depends on prompts' chunks (tokens and context)."""
        loads = [self._load_of(*chunk) for chunk in chunks]
        seconds = 0.0
        for kernel, asked in zip(self.kernels, zip(*loads, strict=True), strict=True):
            together = Load(*map(sum, zip(*asked, strict=True)))
            seconds += kernel.seconds(together, len(chunks))
        return seconds

    def _load_of(self, tokens: int, context: int) -> tuple[Load, ...]:
        if self.computes_loads:
            assert self.parts is not None
            return self.parts.prompt_loads(Chunk(tokens, context))
        low, share = place(CHUNKS, tokens)
        found = self._load_on(low, context)
        if share:
            found = _shared(found, self._load_on(low + 1, context), share)
        return tuple(
            load if kernel.products else load._replace(flops=load.flops * tokens)
            for load, kernel in zip(found, self.kernels, strict=True)
        )

    def _load_on(self, row: int, context: int) -> tuple[Load, ...]:
        low, share = place(self.before_chunks, context)
        below = self.loads(row, low)
        if not share:
            return below
        return _shared(below, self.loads(row, low + 1), share)

    def of_tokens(self, row: int) -> Part:
        """The part of so many tokens, by their node."""
        found = self._tokens.get(row)
        if found is None:
            assert self.parts is not None
            found = self._tokens[row] = self.parts.of_tokens(COUNTS[row])
        return found

    def of_outputs(self, row: int) -> Part:
        """The part of so many rows of logits, by their node."""
        found = self._outputs.get(row)
        if found is None:
            assert self.parts is not None
            found = self._outputs[row] = self.parts.of_outputs(COUNTS[row])
        return found

    def of_decoding(self, row: int, column: int) -> Part:
        """The part of so many decoding requests at a mean context, by their nodes."""
        found = self._decoding.get((row, column))
        if found is None:
            assert self.parts is not None
            found = self.parts.of_decoding(COUNTS[row], self.contexts[column])
            self._decoding[row, column] = found
        return found

    def loads(self, row: int, column: int) -> tuple[Load, ...]:
        """What a chunk asks of the kernels over prompts, by the nodes of its tokens and context.

        FLOPs are those of each of its tokens, except of products, where all are linear.
        """
        found = self._loads.get((row, column))
        if found is None:
            assert self.parts is not None
            chunk = Chunk(CHUNKS[row], self.before_chunks[column])
            found = self._loads[row, column] = tuple(
                load if kernel.products else load._replace(flops=load.flops / chunk.tokens)
                for load, kernel in zip(self.parts.prompt_loads(chunk), self.kernels, strict=True)
            )
        return found

    def _computed_whole(self, count: int, context: float, rows: int = 1) -> float:
        low, share = place(self.contexts, context)
        below = self._whole_node(count, low, rows)
        if not share:
            return below
        return below + (self._whole_node(count, low + 1, rows) - below) * share

    def _whole_node(self, count: int, column: int, rows: int) -> float:
        found = self._whole.get((count, column, rows))
        if found is None:
            found = self._whole[count, column, rows] = self._cost.seconds(
                self._cost.decoding(count, self.contexts[column], rows, tokens=rows * count)
            )
        return found


def _shared(below: tuple[Load, ...], above: tuple[Load, ...], share: float) -> tuple[Load, ...]:
    return tuple(
        Load(*(least + (most - least) * share for least, most in zip(low, high, strict=True)))
        for low, high in zip(below, above, strict=True)
    )


def _parts(cost: StepCost) -> StepParts | None:
    terms = cost.terms
    if terms.drafting is not None or not has_parts(terms.engine, terms.layout):
        return None
    return StepParts(
        cost.spec,
        terms.layout,
        cost.accelerator,
        engine=terms.engine,
        kv_dtype=terms.kv_dtype,
        cuda_graphs=terms.cuda_graphs,
        asynchronous=terms.asynchronous,
        factors=cost.factors,
    )


def _bends(spec: ModelSpec) -> Iterator[tuple[int, bool]]:
    """Tokens at which the time of attention bends, and whether it falls there (local chunks)."""
    for layer, _ in spec.layer_kinds:
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention | LatentAttention):
                continue
            if mixer.window is not None:
                yield mixer.window, False
            if isinstance(mixer, Attention) and mixer.chunk is not None:
                yield mixer.chunk, True
            if mixer.indexer is not None:
                yield mixer.indexer.top_k, False
