"""A picture of a comparison: how far each deployment is from the first, figure by figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenroom.comparing.comparison import Comparison, Subject
from tokenroom.reports.comparison_text import confidence_text, draws_text
from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.plots import (
    INK,
    QUIET,
    curve_colors,
    dress,
    new_figure,
    plot_style,
    save_figure,
    usable_language,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DRAWN: Final = (
    *("ttft_mean_seconds", "ttft_p50_seconds", "ttft_p99_seconds"),
    *("tpot_mean_seconds", "tpot_p99_seconds", "itl_p99_seconds"),
    *("e2e_mean_seconds", "e2e_p99_seconds", "output_tokens_per_second", "goodput_per_second"),
    *("kv_pool_usage_mean", "usd_per_million_output_tokens"),
)
_WIDE_PERCENT: Final = 300
_LINEAR_PERCENT: Final = 100
_SPREAD: Final = 0.7  # of the distance between two figures, for the deployments of one


def has_differences(found: Comparison) -> bool:
    """Whether there is a difference to draw: two deployments have a figure in common."""
    if not found.complete_draws or len(found.compared) < 2:
        return False
    base, *others = found.compared
    keys = _keys(found, base)
    return any(found.difference(one, key) is not None for one in others for key in keys)


def _keys(found: Comparison, base: Subject) -> list[str]:
    """The figures that a difference in percent can be drawn of."""
    return [key for key in _DRAWN if (mean := found.mean(base, key)) is not None and mean.value]


def plot_comparison(found: Comparison, file: Path, language: Language) -> Language:
    """Draw the differences to the first deployment in percent; returns the labels' language.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    base, *others = found.compared
    keys = _keys(found, base)
    with plot_style(file):
        figure = new_figure(width=8.6, height=1.9 + len(keys) * max(0.42, 0.16 * len(others)))
        axes = figure.add_subplot()
        axes.axvline(0, color=INK, linewidth=1.0)
        for at, (subject, color) in enumerate(zip(others, curve_colors(len(others)), strict=True)):
            offset = ((at + 0.5) / len(others) - 0.5) * _SPREAD
            _draw(axes, found, subject, keys, offset, color)
        if max(map(abs, axes.get_xlim())) > _WIDE_PERCENT:  # what differs by less is to be seen too
            axes.set_xscale("symlog", linthresh=_LINEAR_PERCENT)
        axes.set_yticks(range(len(keys)), [message(f"compare.{key}", language) for key in keys])
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g}%" if value else "0")
        heading = message("compare.plot.title", language, base=printable(base.name))
        detail = message("simulate.workload", language, name=printable(found.workload.name))
        if (draws := draws_text(found, language)) is not None:
            detail += f"\n{draws}"
        dress(axes, title=f"{heading}\n{detail}", y_label="")
        alone = len(found.complete_draws) < 2
        key = "compare.plot.axis_alone" if alone else "compare.plot.axis"
        label = message(key, language, confidence=confidence_text(found.confidence))
        axes.set_xlabel(label, color=QUIET, fontsize=9.5)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.4, -0.9 / figure.get_figheight()),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
            ncols=min(3, len(others)),
        )
        save_figure(figure, file)
    return language


def _draw(
    axes: Axes, found: Comparison, subject: Subject, keys: list[str], offset: float, color: str
) -> None:
    """One deployment's difference in each figure, in percent of the first deployment's mean."""
    label: str | None = printable(subject.name)
    for row, key in enumerate(keys):
        base, difference = found.mean(found.compared[0], key), found.difference(subject, key)
        if base is None or difference is None:
            continue
        percent = 100 / abs(base.value)
        sure = difference.excludes_zero is not False
        axes.errorbar(
            difference.value * percent,
            row + offset,
            xerr=None if difference.half_width is None else difference.half_width * percent,
            fmt="o",
            markersize=4.5,
            color=color,
            markerfacecolor=color if sure else "white",
            elinewidth=1.3,
            capsize=2.5,
            label=label,
            zorder=3,
        )
        label = None  # once in the legend
