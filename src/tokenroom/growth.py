"""How an answer grows with concurrency or with context: the curves behind one fit.

``concurrency`` holds the deployment fixed and asks how much of each GPU is in use with that many
requests (requests beyond the room or ``max_num_seqs`` wait outside and hold no memory);
``context`` gives the engine each ``max_model_len`` in turn and asks how many such requests fit;
``block_size`` each size of a block, and asks what the pool then wastes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import DeploymentError, TokenroomError, shown
from tokenroom.fitting import FitResult
from tokenroom.memory.allocation import Occupancy
from tokenroom.units import parse_tokens

PARAMETERS: Final = ("concurrency", "context", "block_size")
_SETTINGS: Final = {"context": "max_model_len", "block_size": "block_size"}
_MAX_POINTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One point of a sweep; sizes in bytes on the governing rank.

    Attributes:
        value: Concurrent requests, tokens of context or tokens of a block.
        weights_bytes: Weights.
        kv_used_bytes: KV that the running requests hold at their full length.
        kv_pool_bytes: The pool they live in.
        activation_bytes: Transient peak of a step with that many requests.
        other_bytes: CUDA graphs, context, buffers and everything outside PyTorch.
        request_bytes: KV of one request.
        requests_running: Requests that run at once.
        requests_waiting: Requests that wait outside and hold no memory.
        kv_pool_tokens: Tokens in the pool.
        starts: Whether the engine starts with this value.
        occupancy: What the workload makes of the pool, None where the engine has no such account.
    """

    value: int
    weights_bytes: int
    kv_used_bytes: int
    kv_pool_bytes: int
    activation_bytes: int
    other_bytes: int
    request_bytes: int
    requests_running: int
    requests_waiting: int
    kv_pool_tokens: int
    starts: bool
    occupancy: Occupancy | None = None

    @property
    def in_use_bytes(self) -> int:
        """Everything that is in use at this point."""
        return self.weights_bytes + self.kv_used_bytes + self.activation_bytes + self.other_bytes


def parse_sweep(text: str) -> tuple[str, tuple[int, ...]]:
    """``"concurrency=1..64"``, ``"context=4k,8k,32k"`` or ``"block_size=1..128"``.

    ``A..B`` doubles from A and ends with B; ``A..B:STEP`` counts by STEP.

    Raises:
        TokenroomError: The parameter is unknown, a value is no positive whole number, the range is
            empty or holds more than 10,000 points.
    """
    name, _, values = text.partition("=")
    name = name.strip()
    if name not in PARAMETERS or not values:
        raise TokenroomError(
            f"--sweep is {shown(text)}; give {' or '.join(PARAMETERS)} with values, "
            f"such as concurrency=1..64 or context=4k,8k,32k"
        )
    match = re.fullmatch(r"(.+?)\.\.(.+?)(?::(.+))?", values.strip())
    if match is None:
        return name, tuple(
            sorted({parse_tokens(part, f"--sweep {name}") for part in values.split(",")})
        )
    low = parse_tokens(match.group(1), f"--sweep {name}")
    high = parse_tokens(match.group(2), f"--sweep {name}")
    if low > high:
        raise TokenroomError(f"--sweep {name} runs from {low} to {high}; put the smaller first")
    if match.group(3) is not None:
        step = parse_tokens(match.group(3), f"--sweep {name} step")
        if (high - low) // step >= _MAX_POINTS:
            raise TokenroomError(
                f"--sweep {name} has {(high - low) // step + 1} points; give a larger step "
                f"(at most {_MAX_POINTS} points)"
            )
        points = set(range(low, high + 1, step))
    else:
        points = set()
        value = low
        while value < high:
            points.add(value)
            value *= 2
    return name, tuple(sorted(points | {high}))


def sweep(
    result: FitResult,
    parameter: str,
    values: Sequence[int],
    on_point: Callable[[int, int], None] | None = None,
) -> tuple[SweepPoint, ...]:
    """The answer at every value.

    Args:
        result: The fit that the sweep starts from.
        parameter: ``"concurrency"``, ``"context"`` or ``"block_size"``.
        values: The points, ascending; over concurrency the number of requests that just fills
            the room is added when it lies between them.
        on_point: Called with (points done, points in all), for progress.

    Raises:
        TokenroomError: The parameter is unknown.
        DeploymentError: The engine refuses the very settings (not the memory) at every point.
    """
    if parameter not in PARAMETERS:
        raise TokenroomError(f"a sweep over {shown(parameter)} is unknown; use one of {PARAMETERS}")
    if parameter == "concurrency":
        values = _with_room(values, result.requests_running)
    points = []
    refused: DeploymentError | None = None
    for done, value in enumerate(values, 1):
        if parameter == "concurrency":
            points.append(_point(result, value, value))
        else:
            try:
                changed = result.with_settings(**{_SETTINGS[parameter]: value})
            except DeploymentError as error:
                refused = error
            else:
                points.append(_point(changed, value, changed.concurrency))
        if on_point is not None:
            on_point(done, len(values))
    if not points and refused is not None:
        raise refused
    return tuple(points)


def _with_room(values: Sequence[int], room: int) -> Sequence[int]:
    """The values, and where the room is just full when that lies between two of them."""
    if room in values or not values or not values[0] < room < values[-1]:
        return values
    return sorted((*values, room))


def _point(result: FitResult, value: int, concurrency: int | None) -> SweepPoint:
    plan = result.plan
    stage = result.governing_stage
    room = result.requests_running
    running = room if concurrency is None else min(room, concurrency)
    request_bytes = plan.kv_bytes_of(result.request_tokens)
    used_bytes = running * request_bytes
    if plan.kv_blocks:  # a pool bounds it; without one the cache is what the batch needs
        used_bytes = min(used_bytes, stage.kv_pool_bytes)
    return SweepPoint(
        value=value,
        weights_bytes=stage.weights_bytes,
        kv_used_bytes=used_bytes,
        kv_pool_bytes=stage.kv_pool_bytes,
        activation_bytes=plan.activation_bytes_of(running),
        other_bytes=stage.context_bytes
        + stage.non_torch.num_bytes
        + stage.buffers_bytes
        + stage.cuda_graphs.num_bytes,
        request_bytes=request_bytes,
        requests_running=running,
        requests_waiting=max(0, (concurrency or 0) - running),
        kv_pool_tokens=plan.kv_pool_tokens,
        starts=plan.refusal is None,
        occupancy=result.occupancy,
    )
