"""Predicted against observed as a scatter plot: sizes, tokens, times and rates, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokenroom.engines.registry import engine_title
from tokenroom.reports.figures import Cloud
from tokenroom.reports.messages import Language, message
from tokenroom.reports.plots import plot_scatter, usable_language
from tokenroom.units import GIB
from tokenroom.validation.comparison import Comparison
from tokenroom.validation.quantities import unit_of
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.validate import Validation

_SETTINGS: Final = frozenset({"total_gpu_gib", "budget_gib", "max_concurrency_len"})
"""Sizes that are asked for, not predicted."""


def plot_validation(found: Validation, file: Path, language: Language) -> None:
    """Draw every figure that counts.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    shown = [item for item in found.comparisons if item.counts and item.observed > 0]
    sizes = [
        item for item in shown if unit_of(item.quantity) > 1 and item.quantity not in _SETTINGS
    ]
    tokens = [item for item in shown if "kv_tokens" in item.quantity]
    speeds = [item for item in found.counted_speeds if not item.derived]
    times = [item for item in speeds if item.quantity.endswith("_ms")]
    rates = [item for item in speeds if not item.quantity.endswith("_ms")]
    parts: tuple[tuple[str, Sequence[Comparison | SpeedComparison]], ...] = (
        ("sizes", sizes),
        ("tokens", tokens),
        ("times", times),
        ("rates", rates),
    )
    engines = list(dict.fromkeys(item.engine for _, items in parts for item in items))
    panels = [
        (message(f"validate.plot.{name}", language), _clouds(items, engines))
        for name, items in parts
        if items
    ]
    plot_scatter(
        panels,
        file,
        title=message("validate.plot.title", language),
        x_label=message("validate.plot.observed", language),
        y_label=message("validate.plot.predicted", language),
    )


def _clouds(items: Sequence[Comparison | SpeedComparison], engines: Sequence[str]) -> list[Cloud]:
    """The points of each engine, also of those without any, so that marks mean the same."""
    return [
        Cloud(
            label=engine_title(engine),
            points=tuple(
                point for item in items if item.engine == engine and (point := _point(item))[1] > 0
            ),
        )
        for engine in engines
    ]


def _point(item: Comparison | SpeedComparison) -> tuple[float, float]:
    """Observed and predicted; sizes in GiB."""
    if isinstance(item, SpeedComparison):
        return item.observed, item.predicted
    unit = unit_of(item.quantity)
    scale = unit / GIB if unit > 1 else 1.0
    return item.observed * scale, item.predicted * scale
