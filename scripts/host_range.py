"""What engines' hosts spare and add to their shortest steps, and how many steps lie in their range.

    python scripts/host_range.py SPEEDS...

SPEEDS are files of rows of speeds (docs/validation.md). Steps are TPOTs, and llama-bench's tokens;
counted are rows that no coefficient was set on. Errors of operators and of the host join by the
root of their squares, so each row asks for the root of what its error's square is beyond that of
the range without a host's; nine of ten rows of the shortest fifth ask for no more on their side
(``spare_seconds`` of src/tokenroom/performance/host.py).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tokenroom.models.hub import HubOptions
from tokenroom.models.resolve import load_model
from tokenroom.performance.host import COSTS
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_quantities import DECODE, TPOT
from tokenroom.validation.validate import validate


class Step(NamedTuple):
    """One step in seconds."""

    engine: str
    predicted: float
    low: float
    high: float
    observed: float


def known_only(name: str):  # type: ignore[no-untyped-def]
    return load_model(name, hub=HubOptions(offline=True))


def steps_of(rows: Sequence[Row]) -> list[Step]:
    """Steps that count, as they are predicted now."""
    found = []
    for item in validate(rows, predictor=Predictor(load=known_only)).counted_speeds:
        if item.quantity == TPOT:
            values = (item.predicted, item.low, item.high, item.observed)
            found.append(Step(item.engine, *(value / 1e3 for value in values)))
        elif item.quantity == DECODE:
            values = (item.predicted, item.high, item.low, item.observed)
            found.append(Step(item.engine, *(1 / value for value in values)))
    return found


def shortest_fifth(steps: Sequence[Step]) -> list[Step]:
    """Of each engine those that are predicted to be the shortest."""
    found = []
    for engine in dict.fromkeys(step.engine for step in steps):
        own = sorted(
            (step for step in steps if step.engine == engine), key=lambda step: step.predicted
        )
        found += own[: len(own) // 5]
    return found


def asked(step: Step) -> tuple[float, float]:
    """What a step asks of its host below and above the estimate."""
    error = step.observed - step.predicted
    end = step.low if error < 0 else step.high
    beyond = max(0.0, error**2 - (end - step.predicted) ** 2) ** 0.5
    return (beyond, 0.0) if error < 0 else (0.0, beyond)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = [row for name in sys.argv[1:] for row in read_rows(Path(name)) if isinstance(row, Row)]
    plain = {name: cost._replace(spare_seconds=(0.0, 0.0)) for name, cost in COSTS.items()}
    with patch.dict(COSTS, plain):
        bare = shortest_fifth(steps_of(rows))
    for engine in sorted({step.engine for step in bare}):
        sides = zip(*(asked(step) for step in bare if step.engine == engine), strict=True)
        less, more = (sorted(side)[int(0.9 * len(side))] for side in sides)
        print(f"{engine:14} {less * 1e3:.2f} ms less, {more * 1e3:.2f} ms more")
    steps = steps_of(rows)
    shortest = shortest_fifth(steps)
    others = [step for step in steps if step not in shortest]
    for name, group in (("all", steps), ("shortest fifth", shortest), ("others", others)):
        below = sum(step.observed < step.low for step in group) / len(group)
        above = sum(step.observed > step.high for step in group) / len(group)
        print(f"{name:14} in range {1 - below - above:.0%}, below {below:.0%}, above {above:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
