"""A picture of a sweep: what all users get together against what each one gets, by regime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenroom.engines.registry import engine_title
from tokenroom.regimes import Regimes
from tokenroom.reports.messages import Language, message, model_title
from tokenroom.reports.plots import plot_tradeoff, usable_language
from tokenroom.reports.speed_text import regime_span_text
from tokenroom.serving_speed import ServingSpeed


def plot_speed_sweep(
    points: Sequence[ServingSpeed], regimes: Regimes, file: Path, language: Language
) -> Language:
    """Throughput of a GPU against tokens a second of a user; returns the labels' language.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    first, deployment = points[0], points[0].fit.deployment
    title = message(
        "fit.plot.title",
        language,
        model=model_title(deployment.spec, language),
        count=deployment.node.count,
        gpu=deployment.node.accelerator.name,
        engine=engine_title(deployment.engine),
        version=deployment.version,
    )
    detail = message(
        "speed.plot.detail",
        language,
        input=first.load.input_tokens,
        output=first.load.output_tokens,
    )
    plot_tradeoff(
        [
            (
                f"{point.concurrency:,}",
                point.tokens_per_second_per_user.value,
                point.output_tokens_per_second_per_gpu.value,
                regime_span_text(regimes, regimes.of(point.concurrency), language),
            )
            for point in points
        ],
        file,
        title=title + "\n" + detail,
        x_label=message("speed.plot.x", language),
        y_label=message("speed.plot.y", language),
        alarm=regime_span_text(regimes, "overload", language),
    )
    return language
