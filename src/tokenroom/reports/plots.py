"""Pictures of memory: stacked bars per GPU and curves, as SVG, PNG or PDF.

One accent marks the KV pool, which is what the rest leaves; everything else is grey. Parts and
curves are labelled where they stand, without a legend to look up. What would not fit is hatched.
matplotlib is optional: ``pip install 'tokenroom[plots]'``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tokenroom.errors import TokenroomError, shown
from tokenroom.reports.figures import Bar, Cloud, Curve
from tokenroom.reports.messages import Language, message
from tokenroom.units import GIB, format_gib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("svg", "png", "pdf")
CJK_FONTS: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)

_Label: TypeAlias = tuple[float, str, str]
"""Height, text and colour."""

INK: Final = "#22272e"
QUIET: Final = "#6b7480"
ACCENT: Final = "#0b6e99"
ALARM: Final = "#b3261e"
FILLS: Final = {
    "context": "#4a525c",
    "reserve": "#6f7984",
    "weights": "#9aa3ad",
    "graphs": "#b7bec6",
    "activation": "#d0d5da",
    "kv": ACCENT,
    "free": "#f3f4f6",
}
_LEFT: Final = 0.02
"""Where headings begin, as a share of the picture's width."""

_CURVES: Final = (ACCENT, INK, "#8a929b", "#5aa3c4", "#4a525c", "#b7bec6")


def check_plot_file(file: Path) -> None:
    """Refuse what cannot be drawn to, before long work.

    Raises:
        TokenroomError: matplotlib is missing, or the suffix is unknown.
    """
    _require_matplotlib()
    if file.suffix.lower().lstrip(".") not in FORMATS:
        raise TokenroomError(
            f"the plot file {shown(file.name)} ends in {shown(file.suffix)}; it may end in "
            + ", ".join(f".{name}" for name in FORMATS)
        )


def usable_language(language: Language) -> Language:
    """``language``, or English when its script needs a font that is not installed.

    Raises:
        TokenroomError: matplotlib is not installed.
    """
    if language is Language.CHINESE and _cjk_font() is None:
        return Language.ENGLISH
    return language


def plot_memory_bar(
    bars: Sequence[Bar],
    file: Path,
    *,
    title: str,
    language: Language = Language.ENGLISH,
    budget_bytes: int | None = None,
    budget_base_bytes: int = 0,
) -> None:
    """One stacked bar a GPU, with a line at its memory and at the engine's budget.

    Args:
        bars: At least one; GPUs that are alike are best drawn once.
        file: Where to; the suffix decides the format.
        title: What the picture says.
        language: Of the axis; see :func:`usable_language`. Labels of the bars are used as given.
        budget_bytes: What the engine allows itself, None to draw no such line.
        budget_base_bytes: What stands below it and is not part of it; the line is that much
            higher and says so.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    with plot_style(file):
        figure = new_figure(width=2.2 + 3.2 * len(bars), height=5.2)
        axes = figure.add_subplot()
        capacity = max(bar.capacity_bytes for bar in bars)
        top = max(capacity, *(bar.total_bytes for bar in bars)) / GIB * 1.04
        axes.set_ylim(0, top)
        for position, bar in enumerate(bars):
            _draw_bar(axes, position, bar, language)
        axes.set_xticks(range(len(bars)), [bar.title for bar in bars])
        axes.set_xlim(-0.35, len(bars) - 0.25)
        marks = [(capacity / GIB, message("plot.capacity", language, capacity_bytes=capacity), INK)]
        if budget_bytes is not None:
            text = message(
                "plot.budget_above" if budget_base_bytes else "plot.budget",
                language,
                budget_bytes=budget_bytes,
                **({"before_bytes": budget_base_bytes} if budget_base_bytes else {}),
            )
            marks.append(((budget_base_bytes + budget_bytes) / GIB, text, QUIET))
        for height, _, color in marks:
            style = "solid" if color == INK else "dashed"
            axes.axhline(height, color=color, linewidth=1.1, linestyle=style, zorder=4)
        label_ends(axes, marks)
        dress(axes, title=title, y_label=message("plot.memory", language))
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
        save_figure(figure, file)


def plot_curves(
    curves: Sequence[Curve],
    file: Path,
    *,
    title: str,
    x_label: str,
    y_label: str | None = None,
    language: Language = Language.ENGLISH,
    capacity_bytes: int | None = None,
    logarithmic: bool = False,
) -> None:
    """Curves over one axis, each labelled at its end.

    Args:
        curves: At least one; the first has the accent.
        file: Where to; the suffix decides the format.
        title: What the picture says.
        x_label: Of the axis of ``xs``.
        y_label: Of the axis of ``ys``; None when they are bytes, which are drawn as GiB.
        language: Of what this module writes itself.
        capacity_bytes: A line at that memory, with what lies above it hatched.
        logarithmic: Both axes double at equal steps, where nothing is zero; for what falls as one
            over something.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    with plot_style(file):
        figure = new_figure(width=7.6, height=4.6)
        axes = figure.add_subplot()
        unit = GIB if y_label is None else 1
        ends: list[_Label] = []
        for curve, color in zip(curves, curve_colors(len(curves)), strict=True):
            heights = [y / unit for y in curve.ys]
            axes.plot(
                curve.xs,
                heights,
                color=color,
                linewidth=2.0,
                marker="o" if len(curve.xs) == 1 else None,  # one point makes no line
                solid_capstyle="round",
                zorder=3,
            )
            ends.append((heights[-1], curve.label, color))
        first, last = min(curve.xs[0] for curve in curves), max(curve.xs[-1] for curve in curves)
        axes.set_xlim(first, last) if first < last else axes.set_xlim(first / 2, first * 2)
        if logarithmic and all(y > 0 for curve in curves for y in curve.ys):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks(sorted({x for curve in curves for x in curve.xs}))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.minorticks_off()
        else:
            axes.set_ylim(0, None)
        if capacity_bytes is not None:
            _draw_capacity(axes, capacity_bytes / unit, capacity_bytes, language)
        dress(axes, title=title, y_label=y_label or message("plot.memory", language))
        axes.set_xlabel(x_label, color=QUIET, fontsize=9.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.canvas.draw()
        label_ends(axes, ends)
        save_figure(figure, file)


def plot_tradeoff(
    points: Sequence[tuple[str, float, float, str]],
    file: Path,
    *,
    title: str,
    x_label: str,
    y_label: str,
    alarm: str | None = None,
) -> None:
    """Points joined in their order, each labelled where it stands and coloured by its group.

    Args:
        points: (label, abscissa, ordinate, group), at least one; a label that would lie on the one
            before it is left out. Groups are named in the order they come in.
        file: Where to; the suffix decides the format.
        title: What the picture says.
        x_label: Of the abscissae.
        y_label: Of the ordinates.
        alarm: The group to stay away from.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    with plot_style(file):
        figure = new_figure(width=7.6, height=4.6)
        axes = figure.add_subplot()
        xs = [x for _, x, _, _ in points]
        ys = [y for _, _, y, _ in points]
        axes.plot(xs, ys, color="#c7ccd1", linewidth=1.6, zorder=2)
        groups = list(dict.fromkeys(group for *_, group in points))
        for group, color in zip(groups, curve_colors(len(groups)), strict=True):
            members = [(x, y) for _, x, y, name in points if name == group]
            axes.plot(
                *zip(*members, strict=True),
                color=ALARM if group == alarm else color,
                linestyle="none",
                marker="o",
                markersize=6,
                label=group,
                zorder=3,
            )
        axes.legend(loc="upper right", frameon=False, fontsize=9, labelcolor=INK)
        axes.set_xlim(0, max(xs) * 1.08)
        axes.set_ylim(0, max(ys) * 1.1)
        shown: tuple[float, float] | None = None
        for label, x, y, _ in points:
            place = x / max(xs), y / max(ys)
            if shown is not None and max(abs(place[0] - shown[0]), abs(place[1] - shown[1])) < 0.03:
                continue
            shown = place
            axes.annotate(
                label,
                (x, y),
                xytext=(6, 5),
                textcoords="offset points",
                fontsize=9,
                color=INK,
            )
        dress(axes, title=title, y_label=y_label)
        axes.set_xlabel(x_label, color=QUIET, fontsize=9.5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        save_figure(figure, file)


def plot_scatter(
    panels: Sequence[tuple[str, Sequence[Cloud]]],
    file: Path,
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> None:
    """Clouds of points on logarithmic axes, the line where both are equal and 10% around it.

    Args:
        panels: Pictures side by side, each with its title and clouds; none draws empty axes.
        file: Where to; the suffix decides the format.
        title: What the picture says.
        x_label: Of the axis of abscissae.
        y_label: Of the axis of ordinates.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    with plot_style(file):
        figure = new_figure(width=1.2 + 4.8 * max(1, len(panels)), height=5.2)
        drawn = panels or (("", ()),)
        for place, (name, clouds) in enumerate(drawn, start=1):
            axes = figure.add_subplot(1, len(drawn), place)
            _draw_clouds(axes, clouds)
            dress(axes, title=f"{title}\n{name}", y_label=y_label)
            axes.set_xlabel(x_label, color=QUIET, fontsize=9.5)
        save_figure(figure, file)


def _draw_clouds(axes: Axes, clouds: Sequence[Cloud]) -> None:
    values = [value for cloud in clouds for point in cloud.points for value in point]
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = (min(values) / 1.3, max(values) * 1.3) if values else (1.0, 10.0)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    edge = [low, high]
    axes.fill_between(
        edge,
        [value * 0.9 for value in edge],
        [value * 1.1 for value in edge],
        color="#e6eef2",
        linewidth=0,
        zorder=1,
    )
    axes.plot(edge, edge, color=QUIET, linewidth=0.9, zorder=2)
    for cloud, color, mark in zip(
        clouds, curve_colors(len(clouds)), _marks(len(clouds)), strict=True
    ):
        axes.plot(
            [x for x, _ in cloud.points],
            [y for _, y in cloud.points],
            linestyle="none",
            marker=mark,
            markersize=4.5,
            markerfacecolor="none",
            markeredgecolor=color,
            label=cloud.label,
            zorder=3,
        )
    if len(clouds) > 1:
        axes.legend(loc="upper left", frameon=False, fontsize=9, labelcolor=INK)


def _marks(count: int) -> list[str]:
    """Shapes of points, so that kinds differ without colour too."""
    return ["osD^vP"[index % 6] for index in range(count)]


def _draw_bar(axes: Axes, position: int, bar: Bar, language: Language) -> None:
    """The parts of one bar with their labels to the right; above the capacity, hatched."""
    bottom = 0
    labels: list[_Label] = []
    for segment in bar.segments:
        pieces = _split(bottom, bottom + segment.num_bytes, bar.limit_bytes)
        for low, high, fits in pieces:
            axes.bar(
                position - 0.06,
                (high - low) / GIB,
                width=0.36,
                bottom=low / GIB,
                color=FILLS[segment.kind] if fits else "white",
                edgecolor="white" if fits else ALARM,
                hatch=None if fits else "////",
                linewidth=0.8,
                zorder=2,
            )
        if pieces:
            low, high, _ = pieces[0]
            text = f"{segment.label}  {format_gib(segment.num_bytes)}"
            labels.append(((low + high) / 2 / GIB, text, _text_color(segment.kind)))
        bottom += segment.num_bytes
    if bar.missing_bytes:
        text = f"{message('segment.missing', language)}  {format_gib(bar.missing_bytes)}"
        labels.append(((bar.limit_bytes + bar.total_bytes) / 2 / GIB, text, ALARM))
    edge, start = position + 0.12, position + 0.17
    distance = axes.get_ylim()[1] * 0.044
    labels.sort()
    heights = _spread([height for height, _, _ in labels], distance, least=distance / 2)
    for height, (middle, text, color) in zip(heights, labels, strict=True):
        axes.plot([edge, start], [middle, height], color=QUIET, linewidth=0.6, zorder=3)
        axes.annotate(
            text,
            (start, height),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.8,
            color=color,
            fontweight="normal" if color == INK else "bold",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.6},
            zorder=5,
        )


def _text_color(kind: str) -> str:
    return ACCENT if kind == "kv" else INK


def _split(low: int, high: int, limit: int) -> list[tuple[int, int, bool]]:
    """A part as what lies below the limit and what lies above it, the empty ones left out."""
    pieces = [(low, min(high, limit), True), (max(low, limit), high, False)]
    return [piece for piece in pieces if piece[1] > piece[0]]


def _spread(heights: Sequence[float], distance: float, *, least: float) -> list[float]:
    """Rising heights moved apart to ``distance`` by the least squared shift, none below ``least``.

    Less ``distance`` for each one before it, the wanted heights only have to rise, so runs that
    fall are pooled at their mean.
    """
    pools: list[tuple[float, int]] = []
    for position, height in enumerate(heights):
        mean, count = height - position * distance, 1
        while pools and pools[-1][0] > mean:
            below, members = pools.pop()
            mean = (below * members + mean * count) / (members + count)
            count += members
        pools.append((mean, count))
    levels = [max(mean, least) for mean, count in pools for _ in range(count)]
    return [level + position * distance for position, level in enumerate(levels)]


def _draw_capacity(axes: Axes, height: float, capacity_bytes: int, language: Language) -> None:
    top = max(axes.get_ylim()[1], height * 1.08)
    axes.set_ylim(0, top)
    left, right = axes.get_xlim()
    axes.fill_between(
        [left, right],
        height,
        top,
        facecolor="none",
        edgecolor="#ecd2cf",
        hatch="//",
        linewidth=0,
        zorder=1,
    )
    axes.axhline(height, color=ALARM, linewidth=1.2, zorder=4)
    axes.annotate(
        message("plot.capacity", language, capacity_bytes=capacity_bytes),
        (0, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, -3),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=ALARM,
    )


def label_ends(axes: Axes, ends: Sequence[_Label]) -> None:
    """Labels right of the frame at their heights, moved apart where those lie close."""
    low, high = axes.get_ylim()
    rising = sorted(ends)
    heights = _spread([end[0] for end in rising], (high - low) * 0.055, least=low)
    for height, (_, text, color) in zip(heights, rising, strict=True):
        axes.annotate(
            text,
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=color,
            annotation_clip=False,
        )


def dress(axes: Axes, *, title: str, y_label: str) -> None:
    """The quiet frame every plot has."""
    heading, _, detail = title.partition("\n")
    set_subtitle(axes, detail)
    axes.figure.suptitle(heading, x=_LEFT, ha="left", fontsize=12, color=INK, fontweight="bold")
    axes.set_ylabel(y_label, color=QUIET, fontsize=9.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#c7ccd1")
    axes.tick_params(colors=QUIET, labelsize=9)
    for label in axes.get_xticklabels():
        label.set_color(INK)
    axes.grid(axis="y", color="#e9ebee", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)


def set_subtitle(axes: Axes, text: str, left: float = 0.0) -> None:
    """A line above a frame, from a share of its width on."""
    axes.set_title(text, loc="left", x=left, fontsize=9, color=QUIET, pad=10, linespacing=1.35)


def curve_colors(count: int) -> list[str]:
    """A colour for each of several curves; they repeat past six."""
    return [_CURVES[index % len(_CURVES)] for index in range(count)]


@contextmanager
def plot_style(file: Path) -> Iterator[None]:
    """Matplotlib with this module's settings, its user's own put back afterwards."""
    check_plot_file(file)
    cjk = _cjk_font()
    from matplotlib import rc_context

    # Many Chinese fonts come in one weight; that headings then use it is no reason to warn.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with rc_context(
        {
            "font.family": ["DejaVu Sans", *([cjk] if cjk else [])],
            "svg.fonttype": "none",
            "svg.hashsalt": "tokenroom",
        }
    ):
        yield


def new_figure(*, width: float, height: float) -> Figure:
    """An empty picture of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save_figure(figure: Figure, file: Path) -> None:
    """Write a picture in the format that the suffix says.

    Raises:
        TokenroomError: The file cannot be written.
    """
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    kind = file.suffix.lower().lstrip(".")
    _align_titles(figure)
    try:
        figure.savefig(file, format=kind, dpi=160, metadata=metadata.get(kind))
    except OSError as error:
        raise TokenroomError(
            f"the plot file {shown(str(file))} cannot be written: {error}"
        ) from None


def _align_titles(figure: Figure) -> None:
    """Let what stands under the heading begin where the heading does."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what was laid out stays where it is
    if len(figure.axes) == 1:
        axes = figure.axes[0]
        place = axes.get_position()
        left = (_LEFT - place.x0) / place.width
        set_subtitle(axes, axes.get_title(loc="left"), left)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TokenroomError(
            "plots need matplotlib, which is not installed: pip install 'tokenroom[plots]'"
        ) from None


def _cjk_font() -> str | None:
    """The first installed font that holds Chinese, None when there is none."""
    _require_matplotlib()
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return next((name for name in CJK_FONTS if name in installed), None)
