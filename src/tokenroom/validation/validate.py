"""Rows in, errors out: every row predicted and compared, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tokenroom.errors import TokenroomError
from tokenroom.units import format_bytes
from tokenroom.validation.comparison import Comparison, OutcomeCheck, check_outcome, compare
from tokenroom.validation.explanations import (
    OUTCOME,
    Explanations,
    completed,
    known_explanations,
    known_facts,
)
from tokenroom.validation.figures import numeric
from tokenroom.validation.measurements import batches, measurement, without_speeds
from tokenroom.validation.prediction import Prediction, Predictor
from tokenroom.validation.quantities import is_known
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_comparison import (
    SpeedComparer,
    SpeedComparison,
    without_prediction,
)
from tokenroom.validation.speed_prediction import SpeedPredictor
from tokenroom.validation.statistics import Group, by_class, by_quantity, by_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpredicted:
    """A row, or a figure of one, without a prediction.

    Attributes:
        id: Of the row.
        engine: Its engine.
        grade: Its grade.
        reason: Why, as a sentence.
    """

    id: str
    engine: str
    grade: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What else is worth saying of a row.

    Attributes:
        id: Of the row.
        key: Which sentence (``facts``, ``taken``, ``overruled``, ``ended``, ``foreseen``,
            ``refused``, ``not_foreseen``, ``other_cause``, ``gpu``, ``differs``, ``held``).
        values: What goes into it.
    """

    id: str
    key: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """A value of a row that nothing is done with.

    Attributes:
        id: Of the row.
        place: File and line.
        reason: The sentence that says what it is and what it may be.
    """

    id: str
    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What became of all rows.

    Attributes:
        num_rows: Rows tried.
        comparisons: Every figure with its prediction.
        outcomes: Whether each engine started, as foreseen or not.
        unpredicted: Rows without a prediction.
        partly: Rows of which only figures of the cache alone have one.
        left_out: Rows that are no truth or state no figure.
        remarks: What else is worth saying of the rows.
        odd: Values that nothing is done with.
        speeds: Every measured speed with its prediction.
        interrupted: The run was stopped before its end.
    """

    num_rows: int
    comparisons: tuple[Comparison, ...]
    outcomes: tuple[OutcomeCheck, ...]
    unpredicted: tuple[Unpredicted, ...]
    partly: tuple[Unpredicted, ...]
    left_out: tuple[Unpredicted, ...]
    remarks: tuple[Remark, ...] = ()
    odd: tuple[Odd, ...] = ()
    speeds: tuple[SpeedComparison, ...] = ()
    interrupted: bool = False

    @property
    def groups(self) -> tuple[Group, ...]:
        """Errors by engine, quantity, kind of model and grade."""
        return by_class(self.comparisons)

    @property
    def versions(self) -> tuple[Group, ...]:
        """Errors by engine, quantity and version, grades A and B."""
        return by_version(self.comparisons)

    @property
    def quantities(self) -> tuple[Group, ...]:
        """Errors by engine and quantity, grades A and B."""
        return by_quantity(self.comparisons)

    @property
    def counted_speeds(self) -> tuple[SpeedComparison, ...]:
        """Speeds that no coefficient was set on, each measurement once."""
        return tuple(item for item in self.speeds if item.counts)


def validate(
    rows: Sequence[Row],
    *,
    predictor: Predictor | None = None,
    explanations: Explanations | None = None,
    on_row: Callable[[int, int], None] | None = None,
) -> Validation:
    """Predict every row and compare.

    Args:
        rows: The rows.
        predictor: How to predict; the plain one when None.
        explanations: Known causes and repetitions; the packaged ones when None.
        on_row: Called with (rows done, rows in all) after each.

    An interruption from the keyboard ends the run early and keeps what is done.
    """
    predictor = predictor if predictor is not None else Predictor()
    known = explanations if explanations is not None else known_explanations()
    comparisons: list[Comparison] = []
    outcomes: list[OutcomeCheck] = []
    unpredicted: list[Unpredicted] = []
    partly: list[Unpredicted] = []
    left_out: list[Unpredicted] = []
    remarks: list[Remark] = []
    odd: list[Odd] = []
    counted: set[tuple[str, str]] = set()
    speeds = _Speeds(rows, predictor)
    done = 0
    interrupted = False
    try:
        for batch in batches(rows):
            scored = []
            for stated in batch:
                row = completed(stated)
                odd += (Odd(id=row.id, place=row.place, reason=reason) for reason in row.odd)
                if row != stated:
                    remarks.append(_completion(row.id))
                if reason := _left_out(row):
                    left_out.append(_without(row, reason))
                else:
                    scored.append(row)
            unpredicted += speeds.compare(scored)
            for row in filter(None, map(without_speeds, scored)):
                prediction = predictor.predict(row)
                odd += (
                    Odd(
                        id=row.id,
                        place=row.place,
                        reason=f"the engine has no flag {flag}, which is passed over",
                    )
                    for flag in prediction.unknown
                )
                before = len(outcomes)
                _try(prediction, known, comparisons, outcomes, unpredicted, partly, counted)
                remarks += _remarks(prediction, outcomes[before:])
            done += len(batch)
            if on_row is not None:
                on_row(done, len(rows))
    except KeyboardInterrupt:
        interrupted = True
    return Validation(
        num_rows=done,
        comparisons=tuple(comparisons),
        outcomes=tuple(outcomes),
        unpredicted=tuple(unpredicted),
        partly=tuple(partly),
        left_out=tuple(left_out),
        remarks=tuple(remarks),
        odd=tuple(odd),
        speeds=tuple(speeds.found),
        interrupted=interrupted,
    )


class _Speeds:
    """Measured speeds compared one run after the other."""

    def __init__(self, rows: Sequence[Row], predictor: Predictor) -> None:
        measured = (measurement(batch) for batch in batches(rows))
        self._comparer = SpeedComparer(tuple(item for item in measured if item is not None))
        self._predictor = SpeedPredictor(predictor)
        self.found: list[SpeedComparison] = []

    def compare(self, rows: Sequence[Row]) -> Iterator[Unpredicted]:
        """Compare the speeds of one run; what has no prediction comes back."""
        measured = measurement(rows)
        if measured is None:
            return
        try:
            prediction = self._predictor.predict(measured)
        except TokenroomError as error:
            for row in dict.fromkeys(one.row.id for one in measured.observed):
                yield _without(replace(measured.row, id=row), str(error))
            return
        self.found += self._comparer.compare(measured, prediction)
        for one in measured.observed:
            if reason := without_prediction(one, prediction):
                yield _without(one.row, reason)


def _try(
    prediction: Prediction,
    known: Explanations,
    comparisons: list[Comparison],
    outcomes: list[OutcomeCheck],
    unpredicted: list[Unpredicted],
    partly: list[Unpredicted],
    counted: set[tuple[str, str]],
) -> None:
    row = prediction.row
    if prediction.result is None and not (prediction.refused and _failed_otherwise(row)):
        unpredicted.append(_without(row, prediction.reason))
        return
    configuration = row.duplicate_of or known.repeats.get(row.id, row.id)
    found = 0
    for item in compare(prediction, known, configuration, counted):
        comparisons.append(item)
        found += 1
    outcome = check_outcome(
        prediction,
        known.cause(row.id, OUTCOME),
        repeats=(configuration, OUTCOME) in counted,
    )
    if outcome is not None:
        counted.add((configuration, OUTCOME))
        outcomes.append(outcome)
    if not found and outcome is None:
        unpredicted.append(_without(row, prediction.note or _nothing_known(row)))
    elif prediction.note:
        partly.append(_without(row, prediction.note))


def _failed_otherwise(row: Row) -> bool:
    """Whether a log says that the start failed, and for another reason than memory."""
    return row.error is not None and row.outcome == "fails_other"


def _remarks(prediction: Prediction, outcomes: Sequence[OutcomeCheck]) -> Iterator[Remark]:
    """What the command left to the log, and how the log's start ended."""
    row = prediction.row
    for what, logged, given in row.differs:
        yield Remark(id=row.id, key="differs", values={"what": what, "log": logged, "given": given})
    if prediction.taken:
        listed = ", ".join(f"{name} {value}" for name, value in prediction.taken.items())
        yield Remark(id=row.id, key="taken", values={"settings": listed})
    for name, own, other in prediction.overruled:
        values = {"name": name, "command": str(own), "log": str(other)}
        yield Remark(id=row.id, key="overruled", values=values)
    if prediction.result is not None and (held := prediction.result.deployment.node.used_bytes):
        yield Remark(id=row.id, key="held", values={"held": format_bytes(held)})
    if row.error is None:
        return
    yield Remark(id=row.id, key="ended", values={"error": row.error})
    for check in outcomes:
        said = check.cause or ", ".join(check.warnings) or check.verdict
        if check.agrees:
            key = "refused" if check.verdict == "refused" else "foreseen"
        else:
            key = "not_foreseen" if check.cause is None else "other_cause"
        yield Remark(id=row.id, key=key, values={"said": said})


def _completion(row_id: str) -> Remark:
    """What is known beyond a published row, and from where."""
    facts = known_facts()[row_id]
    stated = {
        **facts.get("flags", {}),
        **{name: facts[name] for name in ("engine_version", "outcome") if name in facts},
        **facts.get("reported", {}),
    }
    listed = ", ".join(f"{name} {value}" for name, value in stated.items())
    return Remark(id=row_id, key="facts", values={"facts": listed, "source": facts["source"]})


def _left_out(row: Row) -> str:
    if not row.score:
        return "score is false: its figures are no truth"
    if row.grade == "D" and row.error is None:
        return "grade D: it states no figure"
    return ""


def _nothing_known(row: Row) -> str:
    figures = [name for name, value in row.reported.items() if numeric(value) is not None]
    unknown = [name for name in figures if not is_known(row.engine, name)]
    if not figures:
        return "the row reports no figure"
    return f"no prediction is made of {', '.join(unknown or figures)}"


def _without(row: Row, reason: str) -> Unpredicted:
    return Unpredicted(id=row.id, engine=row.engine, grade=row.grade, reason=reason)


def unique_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows in their order, a row given twice (same id and figures) taken once."""
    seen: dict[tuple[str, str], None] = {}
    kept = []
    for row in rows:
        key = (row.id, repr(sorted(row.reported.items())))
        if key not in seen:
            seen[key] = None
            kept.append(row)
    return tuple(kept)
