"""How far ranges of TTFT have to reach beyond those of their steps, from rows kept for fitting.

    python scripts/first_token_range.py SPEEDS...

SPEEDS are files of rows of speeds (docs/validation.md). Of the rows that coefficients were set on,
observed over either end of the range without it is taken, each model on each kind of GPU counting
alike: a tenth may lie below and a tenth above. An engine has the wider of its own and that of all
engines together (``first_token_range`` of src/tokenroom/performance/host.py). Printed with it is
the share of rows inside, of those fitted and of those kept for checking, which take no part.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from host_range import known_only

from tokenroom.performance.host import COSTS
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_quantities import TTFT
from tokenroom.validation.validate import validate


def kind(item: SpeedComparison) -> tuple[str, str, str]:
    return item.engine, item.model, item.gpu


def weighted_quantile(pairs: Sequence[tuple[float, float]], share: float) -> float:
    """The value up to which ``share`` of the weights lie."""
    total, passed = sum(weight for _, weight in pairs), 0.0
    for value, weight in sorted(pairs):
        passed += weight
        if passed >= share * total:
            return value
    return max(pairs)[0]


def factors(items: Sequence[SpeedComparison]) -> tuple[float, float]:
    """What the low and the high end are multiplied by."""
    rows = Counter(map(kind, items))
    low = weighted_quantile([(one.observed / one.low, 1 / rows[kind(one)]) for one in items], 0.1)
    high = weighted_quantile([(one.observed / one.high, 1 / rows[kind(one)]) for one in items], 0.9)
    return min(1.0, low), max(1.0, high)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = [row for name in sys.argv[1:] for row in read_rows(Path(name)) if isinstance(row, Row)]
    plain = {name: cost._replace(first_token_range=(1.0, 1.0)) for name, cost in COSTS.items()}
    with patch.dict(COSTS, plain):
        found = validate(rows, predictor=Predictor(load=known_only)).speeds
    times = [item for item in found if item.quantity == TTFT and not item.repeats]
    fitted = [item for item in times if item.fitted]
    common = factors(fitted)
    for engine in sorted({item.engine for item in fitted}):
        own = factors([item for item in fitted if item.engine == engine])
        low, high = min(own[0], common[0]), max(own[1], common[1])
        print(f"{engine:14} x{low:.2f} below, x{high:.2f} above")
        for name, used in (("fit", True), ("check", False)):
            group = [item for item in times if item.fitted == used and item.engine == engine]
            inside = [low * item.low <= item.observed <= high * item.high for item in group]
            print(f"  {name:6} {len(group):5,} rows, in range {sum(inside) / len(group):.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
