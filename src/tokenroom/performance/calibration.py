"""Finding the factors by which one machine differs from the model, from a few measured points.

The factors are the most probable ones (maximum a posteriori): their logarithms are normal around 0
with the spread seen among deployments that were measured, and what a calibrated model still misses
is normal with the spread seen within them. So one point moves what it speaks of by a sensible part,
many points overrule the prior, and a factor that no point speaks of stays 1 and is said not to be
identified. Solved by Gauss-Newton steps with a line search; large residuals weigh less (Huber's
weights, Annals of Mathematical Statistics 35, 1964), so that a warm-up run does not pull the rest.

``SPREADS`` and ``NOISE`` come from ``scripts/compare_calibration.py`` on serving rows that
``docs/speed.md`` names: expectation-maximisation over deployments, on the part of the rows that
also set the host's costs; all others were kept for checking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tokenroom.performance.factors import Factors

Predict = Callable[[Factors], float]

SPREADS: Final = Factors(compute=0.58, bandwidth=0.29, communication=0.63, host=1.20, arrival=1.09)
"""Standard deviation of each factor's logarithm among deployments."""

NOISE: Final[Mapping[str, float]] = {"ttft": 0.14, "tpot": 0.06}
"""Standard deviation of what a calibrated model misses, as logarithm, by kind of figure: of first
tokens, and of everything that has no queue in it."""

HELD_OUT: Final[Mapping[str, float]] = {"ttft": 0.26, "tpot": 0.08}
"""The same of points that were left out of their deployment's calibration."""

ALONE: Final[Mapping[str, float]] = {"ttft": 0.43, "tpot": 0.145}
"""The same of all other points when a deployment was calibrated on one."""

_AS_MANY: Final = 4
"""Points that ``HELD_OUT`` counts as beside a calibration's own."""

IDENTIFIED: Final = 0.75
"""A factor is identified when its spread falls below this share of its spread before."""

_HUBER: Final = 2.0
_STEP: Final = 1e-3
_ROUNDS: Final = 12
_CLOSE: Final = 1e-4
_LARGEST: Final = 3.0


class Observation(NamedTuple):
    """One measured figure and how the model gives it.

    Attributes:
        point: Number of the measured point it belongs to; figures of a point are left out together.
        kind: ``"ttft"`` for times to a first token, ``"tpot"`` for what has no queue in it.
        measured: What was measured, above 0.
        predict: The model's figure for given factors, in the same unit.
    """

    point: int
    kind: str
    measured: float
    predict: Predict


class Fitted(NamedTuple):
    """A figure before and after.

    Attributes:
        observation: The measurement.
        before: What the model gives as it is.
        after: What it gives with the factors.
        held_out: Logarithm of measured over predicted when its point is left out of the fit.
        weight: 1, or less where the point contradicts the others.
    """

    observation: Observation
    before: float
    after: float
    held_out: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found.

    Attributes:
        factors: The most probable factors.
        spreads: Standard deviation of the logarithm of each factor, after the data.
        fitted: Every figure before and after.
        remaining: Standard deviation of the logarithm of measured over predicted that remains, by
            kind of figure: residuals held out, joined with those of other deployments while there
            are few.
    """

    factors: Factors
    spreads: Factors
    fitted: tuple[Fitted, ...]
    remaining: Mapping[str, float]

    @property
    def identified(self) -> tuple[str, ...]:
        """Names of the factors that the data speaks of."""
        return tuple(
            name
            for name, before, after in zip(Factors._fields, SPREADS, self.spreads, strict=True)
            if after < IDENTIFIED * before
        )


def calibrate(
    observations: Sequence[Observation],
    *,
    spreads: Factors = SPREADS,
    noise: Mapping[str, float] = NOISE,
    on_round: Callable[[int, int], None] | None = None,
) -> Calibration:
    """The most probable factors for some measured figures.

    Args:
        observations: At least one.
        spreads: Of the logarithms of factors, before the data.
        noise: Of the logarithms of figures.
        on_round: Called with (rounds done, rounds at most), for progress.
    """
    names = range(len(Factors._fields))
    variances = [noise[item.kind] ** 2 for item in observations]
    point = [0.0] * len(names)
    rest = _residuals(observations, point)
    before = [
        item.measured / math.exp(value) for item, value in zip(observations, rest, strict=True)
    ]
    for done in range(_ROUNDS):
        if on_round is not None:
            on_round(done, _ROUNDS)
        slopes = _slopes(observations, point, rest)
        weights = _weights(rest, variances)
        system, pull = _normal_equations(slopes, rest, weights, variances, point, spreads)
        step = _solved(system, pull)
        loss = _loss(rest, variances, point, spreads)
        size = 1.0
        while size > _CLOSE:
            tried = [
                max(-_LARGEST, min(_LARGEST, old + size * by))
                for old, by in zip(point, step, strict=True)
            ]
            new = _residuals(observations, tried)
            if _loss(new, variances, tried, spreads) <= loss:
                break
            size /= 2
        else:
            break
        moved = max(abs(old - by) for old, by in zip(point, tried, strict=True))
        point, rest = tried, new
        if moved < _CLOSE:
            break
    slopes = _slopes(observations, point, rest)
    weights = _weights(rest, variances)
    system, _ = _normal_equations(slopes, rest, weights, variances, point, spreads)
    covariance = [_solved(system, [float(row == column) for row in names]) for column in names]
    held_out = _held_out(observations, slopes, rest, weights, variances, system)
    fitted = tuple(
        Fitted(item, old, item.measured / math.exp(value), without, weight)
        for item, old, value, without, weight in zip(
            observations, before, rest, held_out, weights, strict=True
        )
    )
    found = Calibration(
        factors=Factors(*map(math.exp, point)),
        spreads=Factors(*(math.sqrt(covariance[at][at]) for at in names)),
        fitted=fitted,
        remaining={kind: _remaining(fitted, kind) for kind in HELD_OUT},
    )
    if found.identified:
        return found
    # Nothing was learned, so what the figures are off by is left as it is.
    missed = {
        kind: max(
            (
                abs(math.log(item.observation.measured / item.after))
                for item in fitted
                if item.observation.kind == kind
            ),
            default=0.0,
        )
        for kind in HELD_OUT
    }
    wide = {kind: max(spread, missed[kind]) for kind, spread in found.remaining.items()}
    return replace(found, remaining=wide)


def _remaining(fitted: Sequence[Fitted], kind: str) -> float:
    if len({item.observation.point for item in fitted}) < 2:  # nothing to hold out
        return ALONE[kind]
    rest = [item.held_out for item in fitted if item.observation.kind == kind]
    if not rest:
        return ALONE[kind]
    known = _AS_MANY * HELD_OUT[kind] ** 2
    return math.sqrt((known + sum(value**2 for value in rest)) / (_AS_MANY + len(rest)))


def _residuals(observations: Sequence[Observation], point: Sequence[float]) -> list[float]:
    factors = Factors(*map(math.exp, point))
    return [math.log(item.measured / item.predict(factors)) for item in observations]


def _slopes(
    observations: Sequence[Observation], point: Sequence[float], rest: Sequence[float]
) -> list[list[float]]:
    """How the logarithm of each prediction moves with each factor's, by forward differences."""
    columns = []
    for at in range(len(point)):
        moved = [value + _STEP * (at == other) for other, value in enumerate(point)]
        shifted = _residuals(observations, moved)
        columns.append([(old - new) / _STEP for old, new in zip(rest, shifted, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _weights(rest: Sequence[float], variances: Sequence[float]) -> list[float]:
    return [
        min(1.0, _HUBER * math.sqrt(variance) / abs(value)) if value else 1.0
        for value, variance in zip(rest, variances, strict=True)
    ]


def _loss(
    rest: Sequence[float], variances: Sequence[float], point: Sequence[float], spreads: Factors
) -> float:
    total = sum((value / spread) ** 2 for value, spread in zip(point, spreads, strict=True))
    for value, variance in zip(rest, variances, strict=True):
        size = abs(value) / math.sqrt(variance)
        total += size**2 if size <= _HUBER else _HUBER * (2 * size - _HUBER)
    return total


def _normal_equations(
    slopes: Sequence[Sequence[float]],
    rest: Sequence[float],
    weights: Sequence[float],
    variances: Sequence[float],
    point: Sequence[float],
    spreads: Factors,
) -> tuple[list[list[float]], list[float]]:
    count = len(point)
    system = [[0.0] * count for _ in range(count)]
    pull = [0.0] * count
    for at, spread in enumerate(spreads):
        system[at][at] = 1 / spread**2
        pull[at] = -point[at] / spread**2
    for row, value, weight, variance in zip(slopes, rest, weights, variances, strict=True):
        for first in range(count):
            pull[first] += weight * row[first] * value / variance
            for second in range(count):
                system[first][second] += weight * row[first] * row[second] / variance
    return system, pull


def _held_out(
    observations: Sequence[Observation],
    slopes: Sequence[Sequence[float]],
    rest: Sequence[float],
    weights: Sequence[float],
    variances: Sequence[float],
    system: Sequence[Sequence[float]],
) -> list[float]:
    """Residuals of each point by factors found without it, to first order."""
    members: dict[int, list[int]] = {}
    for number, item in enumerate(observations):
        members.setdefault(item.point, []).append(number)
    found = [0.0] * len(observations)
    for numbers in members.values():
        without = [list(row) for row in system]
        pull = [0.0] * len(system)
        for number in numbers:
            row, share = slopes[number], weights[number] / variances[number]
            for first, slope in enumerate(row):
                pull[first] -= share * slope * rest[number]
                for second, other in enumerate(row):
                    without[first][second] -= share * slope * other
        step = _solved(without, pull)
        for number in numbers:
            along = sum(slope * by for slope, by in zip(slopes[number], step, strict=True))
            found[number] = rest[number] - along
    return found


def _solved(system: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solution of a small positive definite system, by Gauss-Jordan elimination."""
    rows = [[*row, value] for row, value in zip(system, right, strict=True)]
    count = len(rows)
    for at in range(count):
        pivot = max(range(at, count), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        head = rows[at][at]
        rows[at] = [value / head for value in rows[at]]
        for other in range(count):
            if other != at and rows[other][at]:
                share = rows[other][at]
                rows[other] = [a - share * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [row[-1] for row in rows]
