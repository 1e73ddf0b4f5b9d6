"""A picture of what quantised caches cost: the change of perplexity, smallest cache first."""

from __future__ import annotations

from pathlib import Path

from tokenroom.measuring.quality import Quality
from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.plots import (
    curve_colors,
    dress,
    new_figure,
    plot_style,
    save_figure,
    usable_language,
)
from tokenroom.units import format_bytes


def plot_quality(found: Quality, file: Path, language: Language) -> Language:
    """A row a scheme with what it takes, a point with its interval a length of windows.

    Returns the labels' language.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    results = sorted(found.results, key=lambda result: result.bytes_per_token)
    sizes: dict[str, float] = {}
    for result in results:
        sizes.setdefault(result.scheme, result.bytes_per_token)
    rows = {scheme: number for number, scheme in enumerate(sizes)}
    lengths = sorted({result.context_tokens for result in results})
    with plot_style(file):
        figure = new_figure(width=8.0, height=1.9 + 0.16 * len(rows) * (1 + len(lengths)))
        axes = figure.add_subplot()
        axes.axvline(0, color="#8a9099", linewidth=1.0, zorder=1)
        for number, (length, color) in enumerate(
            zip(lengths, curve_colors(len(lengths)), strict=True)
        ):
            own = [result for result in results if result.context_tokens == length]
            place = (number + 1) / (len(lengths) + 1) - 0.5
            ends = [result.change_range or (result.change, result.change) for result in own]
            axes.errorbar(
                [result.change * 100 for result in own],
                [rows[result.scheme] + place for result in own],
                xerr=[
                    [
                        (result.change - low) * 100
                        for result, (low, _) in zip(own, ends, strict=True)
                    ],
                    [
                        (high - result.change) * 100
                        for result, (_, high) in zip(own, ends, strict=True)
                    ],
                ],
                fmt="o",
                color=color,
                capsize=2.5,
                markersize=5,
                linewidth=1.4,
                zorder=3,
                label=message("quality.plot.length", language, context=length),
            )
        axes.set_yticks(
            list(rows.values()),
            [f"{scheme}, {format_bytes(size)}" for scheme, size in sizes.items()],
        )
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+,g}%" if value else "0")
        dress(
            axes,
            title=message("quality.plot.title", language, model=printable(found.model))
            + "\n"
            + message("quality.plot.detail", language, text=printable(found.text)),
            y_label="",
        )
        axes.grid(axis="x", color="#e9ebee", linewidth=0.8, zorder=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(message("quality.plot.x", language), fontsize=9.5)
        if len(lengths) > 1:
            axes.legend(fontsize=8.5, frameon=False, loc="best")
        save_figure(figure, file)
    return language
