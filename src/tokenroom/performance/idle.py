"""What requests see of an idle replica: one alone, or several that come together."""

from __future__ import annotations

from math import ceil

from tokenroom.performance.host import first_token_ends
from tokenroom.performance.replica import Replica, range_of, stage_range
from tokenroom.performance.step_time import StepTime
from tokenroom.performance.work import Chunk, StepWork

Times = tuple[float, float, float]
"""Seconds, and the ends of their range."""


def ttft(replica: Replica, input_tokens: int) -> Times:
    """Seconds to the first token of one request, and the ends of their range.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    size, steps = replica.chunks(input_tokens)
    one = range_of(replica.step(StepWork(prefill=(Chunk(size, (input_tokens - size) // 2),))))
    arrival = replica.arrival_seconds(input_tokens)
    value, low, high = (steps * seconds + arrival for seconds in one)
    return value, *first_token_ends(replica.host, low, high, steps * one[1])


def tpot(replica: Replica, context_tokens: float, sequences: int) -> Times:
    """Seconds of one decode step of ``sequences`` requests without prompts, and their range.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    others = sequences * (replica.layout.data_parallel_size - 1)
    return range_of(
        replica.step(
            StepWork(
                decode_sequences=sequences,
                decode_context_tokens=context_tokens,
                other_tokens=others,
            )
        )
    )


def burst_ttft(replica: Replica, input_tokens: int, prompts: int) -> Times:
    """Seconds until the last of ``prompts`` that come at once has its first token, and their range.

    Steps are filled up to the token budget one after another (chunked prefill), so what counts is
    the tokens of all prompts of one data-parallel rank. In a pipeline they follow each other as
    the slowest stage lets them.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    copies, stages = replica.layout.data_parallel_size, replica.layout.pipeline_parallel_size
    own = ceil(prompts / copies)
    size, pieces = replica.chunks(input_tokens)
    together = min(own * pieces, max(1, replica.max_num_batched_tokens // size))
    steps, left = divmod(own * pieces, together)

    def step(chunks: int) -> StepTime:
        return replica.step(
            StepWork(
                prefill=(Chunk(size, (input_tokens - size) // 2),) * chunks,
                other_tokens=chunks * size * (copies - 1),
            )
        )

    full = step(together)
    last = stage_range(step(left), stages) if left else (0.0, 0.0, 0.0)
    arrival = replica.arrival_seconds(input_tokens)
    value, low, high = (
        first + (steps - 1) * further + rest + arrival
        for first, further, rest in zip(
            range_of(full), stage_range(full, stages), last, strict=True
        )
    )
    return value, *first_token_ends(replica.host, low, high, low - arrival)
