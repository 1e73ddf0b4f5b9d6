"""How good the deployment that is ranked first is, by what was measured.

    python scripts/rank_plans.py SPEEDS...

SPEEDS are files of rows of speeds (docs/validation.md). Rows of one model on one kind of GPU, with
prompts and answers of the same lengths, are a group: deployments (engine, precision, division) at
several numbers of clients. Under a limit of the TPOT each deployment has a largest throughput a GPU
that was measured, and one that is predicted, linear between two numbers of clients. The deployment
that is predicted best is compared with the one that was measured best: the share of the measured
best throughput that it was measured to give.

Limits are the quartiles of the group's measured TPOT. A deployment measured at one number of
clients has no curve, and a group with one deployment nothing to choose: they are left out, and so
is every measurement that a coefficient was set on, unless --fitted is given.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_quantities import PER_GPU
from tokenroom.validation.validate import validate

TPOT = "tpot_ms"
CLOSE = 0.9
LEAST = 2  # measured numbers of clients of a deployment that has a curve


class Point(NamedTuple):
    """A deployment at a number of clients: TPOT in ms and output tokens a second and GPU."""

    deployment: tuple[object, ...]
    tpot: float
    throughput: float
    predicted_tpot: float
    predicted_throughput: float


def points(
    speeds: Iterable[SpeedComparison], rows: dict[str, Row]
) -> dict[tuple[object, ...], list[Point]]:
    """Points of every group."""
    found: dict[tuple[object, ...], dict[str, SpeedComparison]] = defaultdict(dict)
    for item in speeds:
        load = rows[item.id].load
        assert load is not None
        division = (load.tp, load.pp, load.dp, load.ep)
        deployment = (item.engine, item.precision, item.gpus, *division)
        group = (item.model, item.gpu, item.input_tokens, item.output_tokens)
        found[*group, deployment, item.concurrency][item.quantity] = item
    grouped: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for (*group, deployment, _), figures in found.items():
        if TPOT in figures and PER_GPU in figures:
            tpot, throughput = figures[TPOT], figures[PER_GPU]
            grouped[tuple(group)].append(
                Point(
                    deployment,
                    tpot.observed,
                    throughput.observed,
                    tpot.predicted,
                    throughput.predicted,
                )
            )
    return grouped


def frontier(curve: list[tuple[float, float]], limit: float) -> float:
    """The largest throughput within a limit of the TPOT, linear between two numbers of clients.

    0 below the least TPOT there is.
    """
    best, before = 0.0, None
    for tpot, throughput in sorted(curve):
        if tpot <= limit:
            best = max(best, throughput)
            before = tpot, throughput
        elif before is not None:
            share = (limit - before[0]) / (tpot - before[0])
            best = max(best, before[1] + share * (throughput - before[1]))
            break
    return best


def chosen_share(group: list[Point], limit: float) -> float | None:
    """What the deployment predicted best gives, of what the best gives; None of fewer than two."""
    measured: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    predicted: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    counts = Counter(point.deployment for point in group)
    for point in group:
        if counts[point.deployment] < LEAST:
            continue
        measured[point.deployment].append((point.tpot, point.throughput))
        predicted[point.deployment].append((point.predicted_tpot, point.predicted_throughput))
    if not measured:
        return None
    given = {name: frontier(curve, limit) for name, curve in measured.items()}
    if sum(value > 0 for value in given.values()) < 2:
        return None
    first = max(predicted, key=lambda name: frontier(predicted[name], limit))
    return given[first] / max(given.values())


def main() -> None:
    fitted = "--fitted" in sys.argv
    files = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    read = [found for file in files for found in read_rows(file)]
    rows = [found for found in read if not isinstance(found, BadRow)]
    result = validate(rows)
    speeds = result.speeds if fitted else result.counted_speeds
    shares: list[float] = []
    for key, group in sorted(points(speeds, {row.id: row for row in rows}).items(), key=str):
        if len({point.deployment for point in group}) < 2:
            continue
        limits = quantiles([point.tpot for point in group], n=4)
        found = [share for limit in limits if (share := chosen_share(group, limit)) is not None]
        shares += found
        text = ", ".join(f"{share:.0%}" for share in found)
        print(f"{' '.join(map(str, key))}: {len(group)} points, {text}")
    close = sum(share >= CLOSE for share in shares)
    print(
        f"{len(shares)} choices: {close / len(shares):.0%} within 10% of the best measured, ",
        end="",
    )
    print(f"median {median(shares):.0%}")


if __name__ == "__main__":
    main()
