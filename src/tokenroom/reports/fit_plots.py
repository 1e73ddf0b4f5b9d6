"""Pictures of a fit: the stacked bar of each rank, and growth with concurrency or context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokenroom.fitting import FitResult
from tokenroom.growth import SweepPoint
from tokenroom.reports.console import line_spans
from tokenroom.reports.figures import Curve
from tokenroom.reports.fit_text import distinct_stages, stage_bar, verdict_reason
from tokenroom.reports.messages import Language, engine_text, message, model_title
from tokenroom.reports.plots import plot_curves, plot_memory_bar, usable_language

_TITLE_COLUMNS: Final = 72
_ABSCISSAE: Final = {"context": "plot.tokens"}


def plot_fit(result: FitResult, file: Path, language: Language) -> Language:
    """The memory of one GPU of each distinct kind of rank, with the engine's budget.

    Returns the language that the labels could be written in.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    stages = tuple(distinct_stages(result))
    bars = []
    for stage in stages:
        title = message("fit.plot.gpu", language)
        if len(stages) > 1:
            title = message("fit.plot.stage", language, stage=stage.pipeline_parallel_rank)
        bars.append(stage_bar(result, stage, language, title))
    plot_memory_bar(
        bars,
        file,
        title=_title(result, language),
        language=language,
        budget_bytes=stages[0].budget_bytes,
        # What was in use before stands at the foot of the bar and is not in the budget.
        budget_base_bytes=stages[0].context_bytes,
    )
    return language


def plot_sweep(
    result: FitResult,
    points: Sequence[SweepPoint],
    parameter: str,
    file: Path,
    language: Language,
) -> Language:
    """A sweep as curves; returns the language that the labels could be written in.

    Over concurrency: memory in use, stacked from weights up, against the GPU's memory; requests
    beyond the room wait outside, so the total bends where the pool is full. Over context: how many
    requests of that length run at once.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    xs = [point.value for point in points]
    if parameter == "concurrency":
        other = [point.other_bytes + point.weights_bytes for point in points]
        curves = [
            Curve(
                label=message("sweep.total", language),
                xs=xs,
                ys=[point.in_use_bytes for point in points],
            ),
            Curve(
                label=message("sweep.kv", language),
                xs=xs,
                ys=[point.kv_used_bytes for point in points],
            ),
            Curve(label=message("sweep.fixed", language), xs=xs, ys=other),
            Curve(
                label=message("sweep.activation", language),
                xs=xs,
                ys=[point.activation_bytes for point in points],
            ),
        ]
        plot_curves(
            curves,
            file,
            title=_title(result, language),
            x_label=message("plot.requests", language),
            language=language,
            capacity_bytes=result.governing_stage.total_bytes,
        )
        return language
    if parameter == "block_size" and points and points[0].occupancy is not None:
        _plot_waste(result, points, file, language)
        return language
    shown = [point for point in points if point.requests_running] or list(points)
    plot_curves(
        [
            Curve(
                label=message("sweep.held", language),
                xs=[point.value for point in shown],
                ys=[point.requests_running for point in shown],
            )
        ],
        file,
        title=_title(result, language),
        x_label=message(_ABSCISSAE.get(parameter, f"sweep.{parameter}"), language),
        y_label=message("sweep.held", language),
        language=language,
        logarithmic=True,
    )
    return language


def _plot_waste(
    result: FitResult, points: Sequence[SweepPoint], file: Path, language: Language
) -> None:
    """Waste of blocks against the size of the tables that find them, over the size of a block."""
    filled = [(point.value, point.occupancy) for point in points if point.occupancy is not None]
    sizes = [size for size, _ in filled]
    curves = {
        "internal": [item.internal_waste_bytes for _, item in filled],
        "external": [item.external_waste_bytes for _, item in filled],
        "table": [item.table_bytes for _, item in filled],
    }
    plot_curves(
        [
            Curve(label=message(f"sweep.{name}", language), xs=sizes, ys=values)
            for name, values in curves.items()
            if any(values)
        ],
        file,
        title=_title(result, language),
        x_label=message("sweep.block_size", language),
        language=language,
    )


def _title(result: FitResult, language: Language) -> str:
    """What is drawn, and what the answer was."""
    deployment = result.deployment
    title = message(
        "fit.plot.title",
        language,
        model=model_title(deployment.spec, language),
        count=deployment.node.count,
        gpu=deployment.node.accelerator.name,
        engine=engine_text(deployment.engine, language),
        version=deployment.version,
    )
    verdict = message(f"fit.verdict.{result.verdict}", language)
    answer = verdict + message("fit.colon", language) + verdict_reason(result, language)
    return "\n".join((title, *(answer[a:b] for a, b in line_spans(answer, _TITLE_COLUMNS))))
