"""What calibrating a deployment on some of its measured points does for the others.

Serving rows of perf_aic_silicon.jsonl.gz are grouped into deployments (engine, version, model,
precision, GPU, division, file). Half of each deployment's points, or one, calibrate; the others
are predicted. Rows that set the host's part of a step (``part`` fit) gave the spreads and the noise
in ``src/tokenroom/performance/calibration.py``; the rest is the check.

    python scripts/compare_calibration.py FOLDER [--part check|fit] [--spreads] [--transfer]
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from tokenroom import TokenroomError
from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.performance.calibration import (
    NOISE,
    SPREADS,
    Calibration,
    Observation,
    calibrate,
)
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.validation.circumstances import Circumstances, circumstances, is_fitted
from tokenroom.validation.measurements import Measurement, batches, measurement
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.published_room import PublishedRooms
from tokenroom.validation.published_run import published_values
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.speed_prediction import ENGINES, SpeedPrediction, SpeedPredictor

ROOMS = PublishedRooms()
FEWEST = 4  # points of a deployment that takes part
MOST = 12  # points that a deployment is calibrated on for the spreads
ROUNDS = 3  # of expectation-maximisation, from the spreads and the noise as they are
PAIRS = 60  # of deployments by kind of difference
SHARES = (0.0, 0.25, 0.5, 1.0)  # of the factors' logarithms that another deployment takes
ONE_SIGMA = 0.683

Deployment = tuple[object, ...]
Errors = dict[str, list[float]]


class Run(NamedTuple):
    """One measured run, and what its prediction takes."""

    found: Measurement
    predicted: SpeedPrediction
    circumstances: Circumstances

    @property
    def ttft_seconds(self) -> float:
        """As it was measured."""
        return self._observed("ttft_ms")

    @property
    def tpot_seconds(self) -> float:
        """As it was measured."""
        return self._observed("tpot_ms")

    def _observed(self, name: str) -> float:
        return next(item.value for item in self.found.observed if item.name == name) / 1e3


def runs(file: Path) -> Iterator[Run]:
    """Distinct runs with TTFT and TPOT that can be predicted."""
    predictor = SpeedPredictor(Predictor(catalogue=load_catalogue(None)))
    seen: set[tuple[object, ...]] = set()
    rows = [row for row in read_rows(file) if not isinstance(row, BadRow)]
    for together in batches(rows):
        found = measurement(together)
        if found is None or {item.name for item in found.observed} != {"ttft_ms", "tpot_ms"}:
            continue
        row, load = found.row, found.load
        at = (row.engine, row.model, row.gpu, load.precision, *(x.value for x in found.observed))
        if at in seen:
            continue
        seen.add(at)
        try:
            run, predicted = circumstances(row), predictor.predict(found)
        except TokenroomError:  # of more than a host, or faster than the hardware allows
            continue
        if run is None:
            continue
        yield Run(found, predicted, run)


def deployments(folder: Path, part: str) -> dict[Deployment, list[Run]]:
    """Runs of one part (or ``all``) by deployment, those with too few left out."""
    groups: dict[Deployment, list[Run]] = defaultdict(list)
    for run in runs(folder / "truth/perf_aic_silicon.jsonl.gz"):
        row, load = run.found.row, run.found.load
        if part in ("all", "fit" if is_fitted(row) else "check"):
            at = (row.engine, row.engine_version, row.model, load.precision, row.gpu)
            file = re.search(r"source_file=([^;]*)|db-dump/([\d-]+)", row.note or "")
            groups[(*at, run.circumstances.layout, file and file[0])].append(run)
    return {key: group for key, group in groups.items() if len(group) >= FEWEST}


def observations(group: Sequence[Run]) -> list[Observation]:
    """TTFT and TPOT of each run."""
    found = []
    for number, run in enumerate(group):
        first, further = predictors(run)
        found.append(Observation(number, "ttft", run.ttft_seconds, first))
        found.append(Observation(number, "tpot", run.tpot_seconds, further))
    return found


def predictors(run: Run) -> tuple[Callable[[Factors], float], Callable[[Factors], float]]:
    """TTFT and TPOT of a run by factors."""

    @lru_cache(maxsize=128)
    def values(factors: Factors) -> tuple[float, float]:
        found = published_values(
            run.found.load,
            run.circumstances,
            run.predicted.spec,
            run.predicted.accelerator,
            ENGINES[run.found.row.engine],
            factors,
            ROOMS.requests_held(
                run.found.row,
                run.found.load,
                run.circumstances,
                run.predicted.spec,
                run.predicted.accelerator,
            ),
        )
        return found["ttft_ms"].value / 1e3, found["tpot_ms"].value / 1e3

    return lambda factors: values(factors)[0], lambda factors: values(factors)[1]


def held_out(
    groups: dict[Deployment, list[Run]], count: Callable[[int], int], rng: random.Random
) -> Iterator[tuple[Observation, Factors]]:
    """Every point that did not calibrate, with its deployment's factors."""
    for rows in groups.values():
        order = list(rows)
        rng.shuffle(order)
        kept = count(len(order))
        factors = calibrate(observations(order[:kept])).factors
        for item in observations(order[kept:]):
            yield item, factors


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def errors(pairs: Sequence[tuple[Observation, Factors]]) -> Errors:
    """Errors of TTFT and TPOT, as shares of the measured."""
    found: Errors = {"ttft": [], "tpot": []}
    for item, factors in pairs:
        found[item.kind].append(abs(item.predict(factors) / item.measured - 1))
    return found


def show(title: str, found: Errors, logarithms: Errors | None = None) -> None:
    """One line: median and 90% of both figures, and the spread that holds 68%."""
    parts = []
    for kind, values in found.items():
        text = f"{kind} {median(values):6.1%} (90% {quantile(values, 0.9):6.1%})"
        if logarithms is not None:
            text += f" sigma {quantile(logarithms[kind], ONE_SIGMA):.3f}"
        parts.append(text)
    print(f"{title:46} {len(found['tpot']):5}  " + "  ".join(parts))


def off(pairs: Sequence[tuple[Observation, Factors]]) -> Errors:
    """Size of the logarithm of measured over predicted."""
    found: Errors = {"ttft": [], "tpot": []}
    for item, factors in pairs:
        found[item.kind].append(abs(math.log(item.measured / item.predict(factors))))
    return found


def spreads(groups: dict[Deployment, list[Run]], rng: random.Random) -> None:
    """Spread of factors among deployments and noise within them, by expectation-maximisation.

    The noise is the middle 68% of residuals, seen and held out together (geometric mean), so that
    rows that nothing explains do not set it.
    """
    chosen = [
        observations(rows if len(rows) <= MOST else rng.sample(rows, MOST))
        for rows in groups.values()
    ]
    prior, noise = SPREADS, dict(NOISE)
    for number in range(ROUNDS):
        found = [calibrate(items, spreads=prior, noise=noise) for items in chosen]
        prior = Factors(
            *(
                math.sqrt(
                    fmean(math.log(each.factors[at]) ** 2 + each.spreads[at] ** 2 for each in found)
                )
                for at in range(len(prior))
            )
        )
        for kind in noise:
            noise[kind] = quantile(_sizes(found, kind), ONE_SIGMA)
        told = ", ".join(f"{name} {value:.2f}" for name, value in prior._asdict().items())
        print(f"{number}: {told}; noise ttft {noise['ttft']:.3f}, tpot {noise['tpot']:.3f}")


def _sizes(found: Sequence[Calibration], kind: str) -> list[float]:
    return [
        math.sqrt(abs(math.log(item.observation.measured / item.after) * item.held_out))
        for each in found
        for item in each.fitted
        if item.observation.kind == kind
    ]


def transfer(groups: dict[Deployment, list[Run]], rng: random.Random) -> None:
    """A deployment's factors on others of the same GPU, by what differs."""
    found = {key: calibrate(observations(rows[:MOST])).factors for key, rows in groups.items()}
    pairs = [(a, b) for a in found for b in found if a != b and a[4] == b[4]]
    kinds: dict[str, Callable[[Deployment, Deployment], bool]] = {
        "layout": lambda a, b: a[0] == b[0] and a[2:4] == b[2:4],
        "model": lambda a, b: a[0] == b[0] and a[2:4] != b[2:4],
        "engine": lambda a, b: a[0] != b[0],
    }
    for kind, test in kinds.items():
        chosen = [pair for pair in pairs if test(*pair)]
        rng.shuffle(chosen)
        tried: dict[str, list[tuple[Observation, Factors]]] = defaultdict(list)
        for one, other in chosen[:PAIRS]:
            sample = rng.sample(groups[other], min(FEWEST, len(groups[other])))
            for item in observations(sample):
                for share in SHARES:
                    factors = Factors(*(value**share for value in found[one]))
                    tried[f"{share:.0%} of the factors"].append((item, factors))
        for name, items in tried.items():
            show(f"other {kind}, {name}", errors(items), off(items))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=("check", "fit"), default="check")
    parser.add_argument("--spreads", action="store_true", help="find spreads and noise anew")
    parser.add_argument("--transfer", action="store_true", help="factors on other deployments")
    arguments = parser.parse_args()
    rng = random.Random(0)
    if arguments.spreads:
        spreads(deployments(arguments.folder, "fit"), rng)
        return
    if arguments.transfer:
        transfer(deployments(arguments.folder, "all"), rng)
        return
    groups = deployments(arguments.folder, arguments.part)
    print(f"{len(groups)} deployments, {sum(map(len, groups.values()))} points")
    for title, count in (("half of the points", lambda size: size // 2), ("one", lambda size: 1)):
        pairs = list(held_out(groups, count, rng))
        plain = [(item, UNCALIBRATED) for item, _ in pairs]
        show(f"as it is, points that {title} leaves", errors(plain), off(plain))
        show(f"calibrated on {title}", errors(pairs), off(pairs))


if __name__ == "__main__":
    main()
