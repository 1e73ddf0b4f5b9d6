"""Write docs/simulator_accuracy.md: the serving simulator against what clients of real servers saw.

    python scripts/compare_simulator.py SPEEDS [SAMPLE]

Of SPEEDS, a file of rows of speeds (docs/validation.md), every row is served that states a rate of
requests or a number of clients, lengths, and a mean TTFT or TPOT. SAMPLE is a large file
(aiconfigurator's silicon sample), of whose rows of vLLM every twelfth is served: those whose
deployment is known in full, of at most 64 clients and answers of 1024 tokens. Rows of SAMPLE that
coefficients were set on are left out.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from host_range import known_only

from tokenroom.errors import TokenroomError
from tokenroom.validation.circumstances import is_fitted
from tokenroom.validation.measurements import Measurement, batches, measurement
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.simulated_load import LoadSimulator, SimulatedLoad
from tokenroom.validation.speed_prediction import SpeedPredictor

TARGET = Path(__file__).resolve().parent.parent / "docs/simulator_accuracy.md"
EVERY, MOST_CLIENTS, LONGEST_ANSWER = 12, 64, 1024
FIRST_GOAL, FURTHER_GOAL = 0.30, 0.20
MIDDLE = (None, "mean", "median")
ALIKE = 0.12  # errors of simulator and closed form that differ by less are of their steps
FRONT_SECONDS = 0.012

INTRODUCTION = """# The simulator against measured servers

Written by `python scripts/compare_simulator.py`, which serves each measured load step by step: the
deployment that the row states, requests of its lengths (of InferenceX from 80 to 100% of them), at
its rate (Poisson, mean of three draws of 500 requests) or by its clients (ten requests each, the
first all at once). Nothing was set on these rows; those of TensorRT-LLM showed that built engines
neither replay graphs nor prepare steps ahead, which Triton's documentation says. Errors are of mean
TTFT and of mean TPOT (in TensorRT-LLM's tables mean ITL, printed in whole milliseconds).

TensorRT-LLM 0.14 was a built engine under Triton, which is not simulated: its requests are taken by
the rules of the newest release without overlapping steps, and its steps take what built ones take.
vLLM's rows are scheduled by vLLM's rules. SGLang's rows of the collection state no lengths.
"""


class Served(NamedTuple):
    """A measured load and what became of it in the simulator."""

    found: Measurement
    simulated: SimulatedLoad
    ttft_seconds: float | None
    tpot_seconds: float | None
    closed: tuple[float | None, float | None]

    @property
    def errors(self) -> tuple[float | None, float | None]:
        """Of TTFT and TPOT, signed, as shares of what was measured."""
        return (
            error(self.simulated.ttft_seconds, self.ttft_seconds),
            error(self.simulated.tpot_seconds, self.tpot_seconds),
        )

    @property
    def counts(self) -> bool:
        """It is a load that the server holds."""
        return not self.simulated.falls_behind

    @property
    def cause(self) -> str:
        """What the misses beyond the goals come from."""
        if self.simulated.falls_behind:
            return "more comes than is served: queue"
        causes = []
        first, further = self.errors
        if first is not None and abs(first) > FIRST_GOAL:
            causes.append(self._first_cause(first))
        if further is not None and abs(further) > FURTHER_GOAL:
            closed = self.closed[1]
            alike = closed is not None and abs(closed - further) < ALIKE
            causes.append("time of steps" if alike else "TPOT: not found")
        return "; ".join(causes)

    def _first_cause(self, share: float) -> str:
        assert self.ttft_seconds is not None
        excess = self.simulated.ttft_seconds - self.ttft_seconds
        if 0 < excess < FRONT_SECONDS:
            return "front end"
        if share > 1 or (share < 0 and self.ttft_seconds > 5):
            return "room of the KV pool"
        closed = self.closed[0]
        if closed is not None and abs(closed - share) < ALIKE:
            return "time of prompts, or before them"
        return "TTFT: not found"


def error(predicted: float | None, observed: float | None) -> float | None:
    if predicted is None or observed is None or math.isnan(predicted):
        return None
    return predicted / observed - 1


def measurements(path: Path) -> Iterator[Measurement]:
    rows = [row for row in read_rows(path) if isinstance(row, Row)]
    for together in batches(rows):
        found = measurement(together)
        if found is not None:
            yield found


def sampled(path: Path) -> list[Measurement]:
    """Every twelfth row of vLLM that is short enough."""
    fit = [
        found
        for found in measurements(path)
        if found.row.engine == "vllm"
        and found.row.engine_version
        and (found.load.dp or 1) == 1
        and (found.load.concurrency or 0) <= MOST_CLIENTS
        and (found.load.output_tokens or 0) <= LONGEST_ANSWER
        and not is_fitted(found.row)
    ]
    return fit[::EVERY]


def served(found: Measurement, simulator: LoadSimulator, predictor: SpeedPredictor) -> Served:
    """One load served.

    Raises:
        TokenroomError: It cannot be.
    """
    told = {item.name: item.value / 1e3 for item in found.observed if item.load.stat in MIDDLE}
    closed = predictor.predict(found).values if found.load.concurrency else {}
    first, further = told.get("ttft_ms"), told.get("tpot_ms", told.get("itl_ms"))

    def closed_error(name: str, observed: float | None) -> float | None:
        return error(closed[name].value / 1e3, observed) if name in closed else None

    return Served(
        found=found,
        simulated=simulator.simulate(found),
        ttft_seconds=first,
        tpot_seconds=further,
        closed=(closed_error("ttft_ms", first), closed_error("tpot_ms", further)),
    )


def is_served(found: Measurement) -> bool:
    """It states a load of a server, and how long its clients waited."""
    load = found.load
    told = {item.name for item in found.observed if item.load.stat in MIDDLE}
    loaded = load.concurrency is not None or load.request_rate not in (None, math.inf)
    answers = (load.output_tokens or 0) > 1
    return loaded and answers and bool(told & {"ttft_ms", "tpot_ms", "itl_ms"})


def percent(shares: Sequence[float | None]) -> str:
    known = sorted(abs(share) for share in shares if share is not None)
    if not known:
        return ""
    tenth = known[min(len(known) - 1, int(0.9 * len(known)))]
    return f"{median(known):.0%} ({tenth:.0%})"


def bias(shares: Sequence[float | None]) -> str:
    known = [1 + share for share in shares if share is not None]
    return f"{median(known):.2f}" if known else ""


def summary(items: Sequence[Served]) -> Iterator[str]:
    yield "| engine | model | GPU | loads | TTFT, median (90%) | bias | TPOT | bias |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, str, str], list[Served]] = defaultdict(list)
    for item in items:
        row = item.found.row
        name = (row.model or "").split("/")[-1]
        groups[(row.engine, name, (row.gpu or "").split("-")[0])].append(item)
        groups[(row.engine, "all", "")].append(item)
    groups[("all", "", "")] = list(items)
    for key, group in sorted(groups.items()):
        first, further = zip(*(item.errors for item in group), strict=True)
        yield (
            f"| {' | '.join(key)} | {len(group)} | {percent(first)} | {bias(first)} | "
            f"{percent(further)} | {bias(further)} |"
        )


def row_line(item: Served) -> str:
    row, load = item.found.row, item.found.load
    sent = f"{load.concurrency} clients" if load.concurrency else f"{load.request_rate:g}/s"
    first, further = item.errors

    def pair(observed: float | None, simulated: float, share: float | None) -> str:
        if observed is None or share is None:
            return ""
        return f"{observed * 1e3:.4g} / {simulated * 1e3:.4g} ms, {share:+.0%}"

    model = (row.model or "").split("/")[-1]
    gpu = (row.gpu or "").split("-")[0]
    return (
        f"| `{row.id}` | {row.engine} {row.engine_version or ''} | {model} on {gpu} | "
        f"{load.input_tokens} / {load.output_tokens} | {sent} | "
        f"{pair(item.ttft_seconds, item.simulated.ttft_seconds, first)} | "
        f"{pair(item.tpot_seconds, item.simulated.tpot_seconds, further)} | {item.cause} |"
    )


CAUSES = """
Causes of misses beyond 30% (TTFT) and 20% (TPOT): **front end**: 10 ms that `trtllm-serve` takes
before a first step (Triton's takes less). **Time of steps**, **time of prompts**: the closed form,
which has the same steps, misses alike. **Room of the KV pool**: requests wait for it in one of the
two, measured and simulated. **Queue**: more comes than is served, so that TTFT grows with the
length of the run; such loads are left out of the medians.
"""


def report(items: Sequence[Served], skipped: int) -> Iterator[str]:
    yield INTRODUCTION
    yield from summary([item for item in items if item.counts])
    yield CAUSES
    behind = sum(not item.counts for item in items)
    yield f"{behind} more loads were beyond what the simulated server serves, and {skipped} rows"
    yield "with a load and a time were not served: a model that is not in the catalogue, no"
    yield "lengths, or settings that are not known."
    yield ""
    yield "## Row by row"
    yield ""
    yield "| row | engine | deployment | lengths | load | TTFT, real / simulated | TPOT | cause |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from map(row_line, items)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    predictor = SpeedPredictor(Predictor(load=known_only))
    simulator = LoadSimulator(predictor)
    asked = [found for found in measurements(Path(sys.argv[1])) if is_served(found)]
    if len(sys.argv) > 2:
        asked += sampled(Path(sys.argv[2]))
    items, skipped = [], 0
    for found in asked:
        try:
            items.append(served(found, simulator, predictor))
        except TokenroomError as told:
            skipped += 1
            print(f"{found.row.id}: {told}", file=sys.stderr)
    TARGET.write_text("\n".join(report(items, skipped)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
