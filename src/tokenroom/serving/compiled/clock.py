"""How long a step takes: :class:`tokenroom.serving.step_table.StepTable` over its nodes as arrays.

Every sum is made in the same order, so that the result is the same to the last bit. Nodes that are
not computed yet make the result NaN and are written down in ``wanted``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tokenroom.performance.efficiency import joined, kernel_parts
from tokenroom.serving.compiled.jit import called, merged
from tokenroom.serving.compiled.state import Core, StepNodes
from tokenroom.serving.step_table import REPLAYED, STARTED

TOKENS: Final = 1
OUTPUTS: Final = 2
DECODING: Final = 3
LOADS: Final = 4

_LOAD: Final = 4  # numbers of a Load
COEFFICIENTS: Final = 15
"""Numbers of a kernel: of its Shares, and what else a PromptKernel has."""
PRODUCTS: Final = 14
"""Which of them says that it is a product over all prompts' rows."""

_kernel_parts = merged(kernel_parts)
_joined = merged(joined)


@merged
def at(axis: Any, value: float) -> int:
    """The node at or below a value."""
    low, high = 0, len(axis) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@merged
def missing(engine: Any, nodes: StepNodes, kind: int, row: int, column: int) -> float:
    """Write down a node that has to be computed; as many as there is room for."""
    if engine.wanted < len(nodes.wanted):
        wanted = nodes.wanted[engine.wanted]
        wanted[0], wanted[1], wanted[2] = kind, row, column
        engine.wanted += 1
    return np.nan


@merged
def on_line(engine: Any, nodes: StepNodes, seconds: Any, count: int, kind: int) -> float:
    """Seconds by a count, between two nodes."""
    axis = nodes.counts
    low = at(axis, count)
    share = (count - axis[low]) / (axis[low + 1] - axis[low])
    below = seconds[low]
    if below != below:
        missing(engine, nodes, kind, low, 0)
    if share == 0.0:
        return float(below)
    above = seconds[low + 1]
    if above != above:
        missing(engine, nodes, kind, low + 1, 0)
    return float(below + (above - below) * share)


@merged
def decoded_at(engine: Any, nodes: StepNodes, way: int, row: int, context: float) -> float:
    """Seconds of so many decoding requests, by their node, between two contexts."""
    axis, seconds = nodes.contexts, nodes.decoding[way, row]
    low = at(axis, context)
    share = (context - axis[low]) / (axis[low + 1] - axis[low])
    below = seconds[low]
    if below != below:
        missing(engine, nodes, DECODING, row, low)
    if share == 0.0:
        return float(below)
    above = seconds[low + 1]
    if above != above:
        missing(engine, nodes, DECODING, row, low + 1)
    return float(below + (above - below) * share)


@called
def decoded(engine: Any, nodes: StepNodes, way: int, count: int, context: float) -> float:
    """Seconds of what depends on decoding requests and their mean context."""
    axis = nodes.counts
    low = at(axis, count)
    share = (count - axis[low]) / (axis[low + 1] - axis[low])
    below = decoded_at(engine, nodes, way, low, context)
    if share == 0.0:
        return float(below)
    above = decoded_at(engine, nodes, way, low + 1, context)
    return float(below + (above - below) * share)


@merged
def load_at(engine: Any, nodes: StepNodes, row: int, context: float, number: int) -> float:
    """One number of a load, of so many tokens by their node, between two contexts."""
    axis, loads = nodes.before_chunks, nodes.loads[row]
    low = at(axis, context)
    share = (context - axis[low]) / (axis[low + 1] - axis[low])
    below = loads[low, number]
    if below != below:
        missing(engine, nodes, LOADS, row, low)
    if share == 0.0:
        return float(below)
    above = loads[low + 1, number]
    if above != above:
        missing(engine, nodes, LOADS, row, low + 1)
    return float(below + (above - below) * share)


@merged
def load(engine: Any, nodes: StepNodes, tokens: int, context: int, number: int) -> float:
    """One number of what a chunk asks of the kernels over prompts."""
    axis = nodes.chunks
    low = at(axis, tokens)
    share = (tokens - axis[low]) / (axis[low + 1] - axis[low])
    below = load_at(engine, nodes, low, context, number)
    if share == 0.0:
        return float(below)
    above = load_at(engine, nodes, low + 1, context, number)
    return float(below + (above - below) * share)


@merged
def kernel_seconds(
    kernel: Any, flops: float, num_bytes: float, rows: float, depth: float, prompts: int
) -> float:
    """What :meth:`tokenroom.performance.step_parts.PromptKernel.seconds` gives."""
    times, flops_per_second, bytes_per_second = kernel[8], kernel[9], kernel[10]
    columns, pieces, shared_bytes, products = kernel[11], kernel[12], kernel[13], kernel[14]
    if not products:
        rows, pieces = rows / prompts, pieces * prompts
    shares = (
        *(kernel[0], kernel[1], kernel[2], kernel[3]),
        *(kernel[4], kernel[5], kernel[6], kernel[7]),
    )
    latency, compute, moved = _kernel_parts(
        shares,
        flops,
        num_bytes - (prompts - 1) * shared_bytes,
        (rows, columns, depth / prompts, pieces),
        flops_per_second,
        bytes_per_second,
    )
    return float(times * (latency + _joined(compute, moved, kernel[6])))


@called
def prompt_seconds(engine: Any, nodes: StepNodes, plan: Any, entries: Any, prompts: int) -> float:
    """Seconds of what depends on the prompts' chunks of a step."""
    seconds = 0.0
    for number in range(len(nodes.kernels)):
        flops = num_bytes = rows = depth = 0.0
        products = nodes.kernels[number, PRODUCTS]
        first = _LOAD * number
        for place in range(plan.entries):
            entry = entries[place]
            if entry.tokens == 1:
                continue
            each = load(engine, nodes, entry.tokens, entry.context, first)
            flops += each if products else each * entry.tokens
            num_bytes += load(engine, nodes, entry.tokens, entry.context, first + 1)
            rows += load(engine, nodes, entry.tokens, entry.context, first + 2)
            depth += load(engine, nodes, entry.tokens, entry.context, first + 3)
        seconds += kernel_seconds(nodes.kernels[number], flops, num_bytes, rows, depth, prompts)
    return seconds


@merged
def by_counts(engine: Any, nodes: StepNodes, way: int, tokens: int, count: int) -> float:
    """Seconds of what depends on a step's tokens and its rows of logits."""
    device = on_line(engine, nodes, nodes.tokens[way], tokens, TOKENS)
    return device + on_line(engine, nodes, nodes.outputs[way], count, OUTPUTS)


@merged
def step_seconds(core: Core, plan: Any, entries: Any) -> float:
    """Seconds of a step; NaN where a node is missing."""
    settings, engine, nodes = core.settings[0], core.engine[0], core.nodes
    count = decoding = plan.entries
    context = 0
    prompts = 0
    for place in range(count):
        entry = entries[place]
        if entry.tokens == 1:
            context += entry.context
        else:
            prompts += 1
    decoding -= prompts
    way = REPLAYED if settings.replays and not prompts else STARTED
    device = by_counts(engine, nodes, way, plan.tokens, count)
    if decoding:
        device += decoded(engine, nodes, way, decoding, context / decoding)
    if prompts:
        device += prompt_seconds(engine, nodes, plan, entries, prompts)
    return hosted(settings, device, way, count, decoding, prompts)


@merged
def hosted(
    settings: Any, device: float, way: int, count: int, decoding: int, prompts: int
) -> float:
    """Seconds of a step from those of its operators."""
    prepare = settings.prepare_seconds
    if way == STARTED:
        prepare += settings.starting_tokens + settings.starting_outputs
        if decoding:
            prepare += settings.starting_decoding
        if prompts:
            prepare += settings.starting_prompts
    if device != device:
        return device
    return float(max(device, prepare) + (settings.step_seconds + count * settings.sequence_seconds))
