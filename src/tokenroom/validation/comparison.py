"""Predicted against observed: every figure of a row, and whether the engine started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.units import GIB
from tokenroom.validation.architecture import architecture_class
from tokenroom.validation.explanations import Explanations
from tokenroom.validation.figures import Figure, figure, numbers, numeric
from tokenroom.validation.occupied import is_source
from tokenroom.validation.prediction import Prediction
from tokenroom.validation.quantities import (
    FROM_AVAILABLE,
    FROM_KV,
    FROM_LOADED,
    predicted_figure,
    rests_on_cache,
)
from tokenroom.validation.rows import COUNTED_GRADES, Row

_ROUNDING: Final = 0.005
"""Half of the last digit of a size printed with two decimals."""
_SMALL_GIB: Final = 0.1
_STARTED: Final = "ok"
_NO_ROOM: Final = "fails"
_OTHER: Final = "fails_other"
_REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure.

    Attributes:
        id: Of the row.
        engine: Its engine.
        engine_version: The version whose rules were applied.
        quantity: Name in the row's ``reported``, or ``kv_tokens_from_kv_gib``.
        architecture_class: Kind of the model.
        grade: Of the row.
        predicted: In the quantity's own unit.
        observed: In the same unit.
        half_digit: Half of the last digit of an observed figure that its writer rounded, 0 of one
            as it was printed.
        explained_by: Cause of a large error in the engine, None when none is recorded.
        repeats: The row repeats another's configuration, so that it does not count again.
    """

    id: str
    engine: str
    engine_version: str
    quantity: str
    architecture_class: str
    grade: str
    predicted: float
    observed: float
    half_digit: float = 0
    explained_by: str | None = None
    repeats: bool = False

    @property
    def counts(self) -> bool:
        """Grade A or B, and the first of its configuration."""
        return self.grade in COUNTED_GRADES and not self.repeats

    @property
    def error_pct(self) -> float | None:
        """Signed error in percent of the observed; None when that is not above 0.

        Of a figure that was rounded, from the nearest value that it stands for: none within them.
        """
        if self.observed <= 0:
            return None
        low, high = self.observed - self.half_digit, self.observed + self.half_digit
        return (self.predicted - min(max(self.predicted, low), high)) / self.observed * 100

    @property
    def is_small(self) -> bool:
        """A size in GiB so small that a percentage of it says little; its difference counts."""
        return self.quantity.endswith("_gib") and abs(self.observed) < _SMALL_GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCheck:
    """Whether the engine started.

    Attributes:
        id: Of the row.
        engine: Its engine.
        grade: Of the row.
        observed: ``"ok"`` or ``"fails"``; of a log also ``"fails_other"``.
        verdict: The fit's word; ``"refused"`` where the settings do not go together.
        cause: Why it would not start, None when it would.
        warnings: Keys of warnings that the memory is short later on.
        explained_by: Cause of a disagreement, None when none is recorded.
        repeats: As in :class:`Comparison`.
    """

    id: str
    engine: str
    grade: str
    observed: str
    verdict: str
    cause: str | None
    warnings: tuple[str, ...]
    explained_by: str | None = None
    repeats: bool = False

    @property
    def counts(self) -> bool:
        """Grade A or B, and the first of its configuration."""
        return self.grade in COUNTED_GRADES and not self.repeats

    @property
    def agrees(self) -> bool:
        """A start predicted as one, a failure as a failure or with a warning.

        One that was not for want of memory is foreseen where the settings are refused.
        """
        if self.observed == _OTHER:
            return self.verdict == _REFUSED
        starts = self.cause is None
        return starts if self.observed == _STARTED else not starts or bool(self.warnings)

    @property
    def by_warning(self) -> bool:
        """A failure that the verdict does not tell, but a warning beside it."""
        return self.observed == _NO_ROOM and self.cause is None and bool(self.warnings)


#: Warnings that say that memory runs out although the engine's own rule lets it start.
_SHORT_OF_MEMORY: Final = frozenset({"tight_at_runtime", "may_not_start", "build_may_not_start"})


def compare(
    prediction: Prediction,
    known: Explanations,
    configuration: str,
    counted: set[tuple[str, str]],
) -> Iterator[Comparison]:
    """Every figure of a row that has a prediction.

    Args:
        prediction: Of a row, with its fit.
        known: Recorded causes of errors.
        configuration: Name of what the row measures; rows of the same one repeat each other.
        counted: (configuration, quantity) pairs that counted before; added to.
    """
    row, result = prediction.row, prediction.result
    if result is None:
        return
    kind = architecture_class(result.deployment.spec)
    for quantity, predicted, observed in _figures(row, result):
        if prediction.cache_only and not rests_on_cache(row.engine, quantity):
            continue
        if result.deployment.node.used_bytes and is_source(row, quantity):
            continue  # what others held was taken from it
        key = (configuration, quantity)
        yield Comparison(
            id=row.id,
            engine=row.engine,
            engine_version=result.deployment.version,
            quantity=quantity,
            architecture_class=kind,
            grade=row.grade,
            predicted=predicted,
            observed=observed.value,
            half_digit=observed.half_digit,
            explained_by=known.cause(row.id, quantity),
            repeats=key in counted,
        )
        counted.add(key)


def check_outcome(
    prediction: Prediction, explanation: str | None = None, *, repeats: bool = False
) -> OutcomeCheck | None:
    """Whether a start or a failure for want of memory was foreseen; None for other outcomes."""
    row, result = prediction.row, prediction.result
    if row.error is not None and row.outcome == _OTHER:
        return _check_other(prediction, explanation, repeats)
    if result is None or row.outcome is None or prediction.cache_only:
        return None
    observed = _STARTED if row.outcome == _STARTED else _NO_ROOM
    if observed == _NO_ROOM and row.outcome.split()[0] != _NO_ROOM:
        return None
    refusal = result.plan.refusal
    return OutcomeCheck(
        id=row.id,
        engine=row.engine,
        grade=row.grade,
        observed=observed,
        verdict=result.verdict,
        cause=None if refusal is None else refusal.cause,
        warnings=tuple(notice.key for notice in result.notices if notice.key in _SHORT_OF_MEMORY),
        explained_by=explanation,
        repeats=repeats,
    )


def _check_other(
    prediction: Prediction, explanation: str | None, repeats: bool
) -> OutcomeCheck | None:
    """Whether a failure that a log explains was foreseen; None without a prediction."""
    row, result = prediction.row, prediction.result
    if result is None and not prediction.refused:
        return None
    refusal = None if result is None else result.plan.refusal
    cause = None if refusal is None else refusal.cause
    return OutcomeCheck(
        id=row.id,
        engine=row.engine,
        grade=row.grade,
        observed=_OTHER,
        verdict=_REFUSED if result is None else result.verdict,
        cause=prediction.reason if result is None else cause,
        warnings=(),
        explained_by=explanation,
        repeats=repeats,
    )


def _figures(row: Row, result: FitResult) -> Iterator[tuple[str, float, Figure]]:
    for quantity, observed in _observed(row):
        asked = result
        if quantity == "max_concurrency":
            asked = _at_length(result, row.reported.get("max_concurrency_len"))
        predicted = predicted_figure(asked, row.engine, quantity)
        if predicted is not None:
            yield quantity, predicted, observed
    from_kv = _tokens_from_kv(row, result)
    if from_kv is not None:
        yield FROM_KV, *from_kv
    from_available = _tokens_from_available(row, result)
    if from_available is not None:
        yield FROM_AVAILABLE, *from_available
    from_loaded = _tokens_from_loaded(row, result)
    if from_loaded is not None:
        yield FROM_LOADED, *from_loaded


def _observed(row: Row) -> Iterator[tuple[str, Figure]]:
    """Every figure of a row; those by device take its name before the quantity's."""
    for quantity, value in row.reported.items():
        by_device = value.items() if isinstance(value, Mapping) else ((None, value),)
        for device, inner in by_device:
            observed = figure(inner)
            name = quantity if device is None else f"{str(device).lower()}_{quantity}"
            if observed is not None:
                yield name, observed


def _at_length(result: FitResult, length: object) -> FitResult:
    """The same deployment at the length a concurrency was printed for."""
    if not isinstance(length, int) or length == result.plan.max_model_len:
        return result
    try:
        return result.with_settings(max_model_len=length)
    except TokenroomError:
        return result


def _tokens_from_kv(row: Row, result: FitResult) -> tuple[float, Figure] | None:
    """Tokens that the observed KV memory holds, and the observed ones.

    The memory was printed with two decimals, or rounded by whoever wrote it down, so it stands for
    an interval; of the tokens that interval may hold, the figure nearest to the observed one is
    taken. The rank with the least
    memory decides: where ranks' figures are stated it is the smallest of them, and where only the
    first pipeline stage's is, the others are taken to differ from it as the plan's stages do.
    """
    tokens = figure(row.reported.get("kv_tokens"))
    stated = _cache_memory(row)
    if tokens is None or stated is None:
        return None
    memory, rounding = stated
    if others := numbers(row.reported.get("kv_gib_other_ranks")):
        memory = min(memory, *others)
    else:
        stages = result.plan.stages
        least = min(stage.available_bytes for stage in stages)
        memory += (least - stages[0].available_bytes) / GIB
    if memory <= rounding:
        return None
    low = _pool_tokens(result, memory - rounding)
    high = _pool_tokens(result, memory + rounding)
    if low is None or high is None:
        return None
    return min(max(tokens.value, low), high), tokens


def _tokens_from_available(row: Row, result: FitResult) -> tuple[float, Figure] | None:
    """Tokens that TensorRT-LLM takes of the memory it prints as available, and the observed ones.

    The share is the row's, or the engine's default; the memory stands for an interval as above.
    """
    tokens_of = getattr(result.plan, "tokens_of_free", None)
    free = figure(row.reported.get("avail_for_kv_gib"))
    tokens = figure(row.reported.get("kv_tokens")) or _blocks_as_tokens(row)
    if tokens_of is None or free is None or tokens is None:
        return None
    rounding = free.half_digit or _ROUNDING
    low = tokens_of(int((free.value - rounding) * GIB))
    high = tokens_of(int((free.value + rounding) * GIB))
    return None if low is None else (min(max(tokens.value, low), high), tokens)


def _tokens_from_loaded(row: Row, result: FitResult) -> tuple[float, Figure] | None:
    """Tokens that SGLang takes of what it prints as free before and after its weights.

    Where only the latter is printed, what the weights took is added to it. The share is the row's,
    or the engine's default; each figure stands for an interval as above.
    """
    tokens_of = getattr(result.plan, "tokens_of_loaded", None)
    after = figure(row.reported.get("avail_after_weights_gib"))
    before = figure(row.reported.get("avail_before_weights_gib"))
    weights = figure(row.reported.get("weights_gib"))
    tokens = figure(row.reported.get("kv_tokens"))
    if tokens_of is None or after is None or tokens is None:
        return None
    off = after.half_digit or _ROUNDING
    if before is not None:
        start, off_start = before.value, before.half_digit or _ROUNDING
    elif weights is not None:
        start, off_start = after.value + weights.value, off + (weights.half_digit or _ROUNDING)
    else:
        return None
    low = tokens_of(int((start + off_start) * GIB), int((after.value - off) * GIB))
    high = tokens_of(int((start - off_start) * GIB), int((after.value + off) * GIB))
    return None if low is None else (min(max(tokens.value, low), high), tokens)


def _blocks_as_tokens(row: Row) -> Figure | None:
    blocks, size = figure(row.reported.get("blocks")), numeric(row.reported.get("block_size"))
    if blocks is None or size is None:
        return None
    return replace(blocks, value=blocks.value * size)


def _cache_memory(row: Row) -> tuple[float, float] | None:
    """GiB that a row says the cache has, and half of the last digit printed or written."""
    reported = row.reported
    for quantity in ("kv_gib_true_incl_indexer", "kv_gib"):  # the first where a log leaves it out
        memory = figure(reported.get(quantity))
        if memory is not None:
            return memory.value, memory.half_digit or _ROUNDING
    keys, values = numeric(reported.get("k_gib")), numeric(reported.get("v_gib"))
    if keys is not None and values is not None:
        return keys + values, 2 * _ROUNDING
    exact = numeric(reported.get("kv_bytes"))
    return None if exact is None else (exact / GIB, 1 / GIB)


def _pool_tokens(result: FitResult, memory_gib: float) -> float | None:
    """Tokens of a pool of that memory on every rank, by the engine's own rule.

    Of SGLang's hybrids the states are pooled too, and their size is printed apart.
    """
    num_bytes = int(memory_gib * GIB)
    if hasattr(result.deployment.asked, "kv_cache_memory_bytes"):
        try:
            return result.with_settings(kv_cache_memory_bytes=num_bytes).plan.kv_pool_tokens
        except TokenroomError:
            return None
    printed: Mapping[str, int] = getattr(result.plan, "engine_figures", {})
    pool_bytes = result.plan.stages[0].kv_pool_bytes - printed.get("mamba_state_size", 0)
    if pool_bytes <= 0 or result.plan.kv_pool_tokens <= 0:
        return None
    return num_bytes / (pool_bytes / result.plan.kv_pool_tokens)
