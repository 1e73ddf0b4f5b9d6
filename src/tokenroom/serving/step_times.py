"""Times of steps that somebody measured, as a table instead of the model of speed."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.scheduler import StepPlan

AXES: Final = ("prefill_tokens", "decode_requests", "context_tokens")
"""Columns that say which step; those that are left out make no difference."""

SECONDS: Final = "seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """How long steps take, by a full grid of measured ones.

    Between its nodes a time is linear in each column, and beyond the last two of a column it goes
    on as between those, at least 0. A column with one value makes no difference.

    Attributes:
        axes: Values of each of :data:`AXES`, rising.
        seconds: The time at each node, by the values.
    """

    axes: tuple[tuple[float, ...], ...]
    seconds: Mapping[tuple[float, ...], float]

    def __call__(self, plan: StepPlan) -> float:
        """Seconds of a step that runs as planned."""
        if plan.passes:
            return sum(map(self, plan.passes))
        contexts = plan.decode_contexts()
        prompts = sum(tokens for tokens, _ in plan.prefills())
        mean = sum(contexts) / len(contexts) if contexts else 0.0
        return self.at(prompts, len(contexts), mean)

    def at(self, prefill_tokens: float, decode_requests: float, context_tokens: float) -> float:
        """Seconds of a step.

        Args:
            prefill_tokens: Tokens of prompts that it computes.
            decode_requests: Requests that compute one token.
            context_tokens: Mean tokens in the caches of those.
        """
        sides = [
            _sides(axis, value)
            for axis, value in zip(
                self.axes, (prefill_tokens, decode_requests, context_tokens), strict=True
            )
        ]
        corners = product(*sides)
        return max(
            0.0,
            math.fsum(
                self.seconds[tuple(value for value, _ in corner)]
                * math.prod(share for _, share in corner)
                for corner in corners
            ),
        )


def _sides(axis: Sequence[float], value: float) -> tuple[tuple[float, float], ...]:
    """The nodes that a value is between, with the share of each; beyond the ends, of the last."""
    if len(axis) == 1:
        return ((axis[0], 1.0),)
    low = min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
    share = (value - axis[low]) / (axis[low + 1] - axis[low])
    return (axis[low], 1.0 - share), (axis[low + 1], share)


def read_step_times(path: Path) -> MeasuredSteps:
    """The table in a CSV file: ``seconds``, and one or more of :data:`AXES`.

    Raises:
        WorkloadError: It cannot be read, has no such columns, a value is no number of 0 or more, a
            step occurs twice, or one of the grid is missing.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            return _table(path.name, csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(
            f"--step-times {path.name} cannot be read: {error}; give a CSV file"
        ) from error


def _table(name: str, rows: csv.DictReader[str]) -> MeasuredSteps:
    columns = list(rows.fieldnames or ())
    if SECONDS not in columns or not set(columns) <= {*AXES, SECONDS} or len(columns) < 2:
        raise WorkloadError(
            f"--step-times {name} has the columns {', '.join(columns) or 'none'}; give {SECONDS} "
            f"and one or more of {', '.join(AXES)}, each once"
        )
    if len(set(columns)) < len(columns):
        raise WorkloadError(f"--step-times {name} names a column twice; give each once")
    seconds: dict[tuple[float, ...], float] = {}
    for row in rows:
        where = f"--step-times {name}, line {rows.line_num}"
        node = tuple(_number(row[key], key, where) if key in columns else 0.0 for key in AXES)
        if node in seconds:
            raise WorkloadError(f"{where} is a step that occurred before; give each once")
        seconds[node] = _number(row[SECONDS], SECONDS, where)
        if None in row:
            raise WorkloadError(f"{where} is longer than the header; give a value a column")
    if not seconds:
        raise WorkloadError(f"--step-times {name} has no step; give one row or more")
    axes = tuple(tuple(sorted(set(values))) for values in zip(*seconds, strict=True))
    _check_grid(name, axes, seconds)
    return MeasuredSteps(axes=axes, seconds=seconds)


def _check_grid(
    name: str, axes: Iterable[Sequence[float]], seconds: Mapping[tuple[float, ...], float]
) -> None:
    for node in product(*axes):
        if node not in seconds:
            told = ", ".join(f"{key} {value:g}" for key, value in zip(AXES, node, strict=True))
            raise WorkloadError(
                f"--step-times {name} has no step of {told}; give one for each combination of the "
                "values of its columns"
            )


def _number(text: str | None, column: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise WorkloadError(f"{where} has {column} {shown(text)}; give a number of 0 or more")
    return value
