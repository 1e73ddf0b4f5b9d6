"""A picture of a simulated workload: memory, queue and latencies."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenroom.reports.fit_text import distinct_stages, fit_title, stage_bar
from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.plots import (
    ACCENT,
    ALARM,
    FILLS,
    INK,
    QUIET,
    dress,
    label_ends,
    new_figure,
    plot_style,
    save_figure,
    set_subtitle,
    usable_language,
)
from tokenroom.serving.metrics import Point
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.run import Simulation
from tokenroom.units import GIB, format_gib, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNUSED_POOL: Final = "#d9eaf1"
_MOST_POINTS: Final = 500
"""Points of a curve of a distribution; more would not be seen."""


class LatencySamples:
    """Latencies of requests and tokens as they end, for the picture's distributions."""

    __slots__ = ("_gaps", "_times")

    def __init__(self) -> None:
        self._times = {name: array("d") for name in ("ttft", "tpot", "e2e")}
        self._gaps: dict[float, int] = {}

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        if record.refused is not None:
            return
        for name, times in self._times.items():
            seconds = getattr(record, f"{name}_seconds")
            if seconds is not None:
                times.append(seconds)

    def step(self, step: StepRecord) -> None:
        """Take in the times between tokens that a step ended."""
        for seconds, count in step.gaps:
            self._gaps[seconds] = self._gaps.get(seconds, 0) + count

    def curves(self) -> list[tuple[str, list[float], list[float]]]:
        """Name, rising seconds, and the share of all that is at or below each; empty ones not."""
        found = [("itl", self._gaps.items())]
        found += [(name, ((value, 1) for value in of)) for name, of in self._times.items()]  # type: ignore[misc]
        drawn = [(name, *_cumulative(values)) for name, values in found]
        return [curve for curve in drawn if curve[1]]


def _cumulative(values: Iterable[tuple[float, int]]) -> tuple[list[float], list[float]]:
    ordered = sorted(values)
    total = sum(count for _, count in ordered)
    xs: list[float] = []
    ys: list[float] = []
    seen = 0
    for at, (seconds, count) in enumerate(ordered):
        seen += count
        if not ys or seen / total - ys[-1] >= 1 / _MOST_POINTS or at == len(ordered) - 1:
            xs.append(seconds)
            ys.append(seen / total)
    return xs, ys


def plot_simulation(
    done: Simulation, samples: LatencySamples, workload: str, file: Path, language: Language
) -> Language:
    """Draw a GPU's memory, requests and latencies; returns the language of the labels.

    Memory and requests are means over stretches of time, idle time included; of several engines,
    of one of them.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    with plot_style(file):
        figure = new_figure(width=8.6, height=9.6)
        memory, queue, latency = figure.subplots(3, 1, height_ratios=(1.25, 1, 1))
        end = max((_end(point) for point in done.metrics.timeline), default=0.0)
        unit, seconds = _unit(end, language)
        xs = [point.start_seconds / seconds for point in done.metrics.timeline] + [end / seconds]
        _draw_memory(memory, xs, done, language)
        _draw_queue(queue, xs, done, language)
        for axes in (memory, queue):
            axes.set_xlim(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1)
            axes.set_xlabel(unit, color=QUIET, fontsize=9.5)
        _draw_latencies(latency, samples, done, language)
        heading = fit_title(done.fit, language)
        dress(memory, title=heading, y_label=message("plot.memory", language))
        dress(queue, title=heading, y_label=message("simulate.plot.requests", language))
        dress(latency, title=heading, y_label=message("simulate.plot.share", language))
        name = printable(message("simulate.workload", language, name=workload))
        set_subtitle(memory, name if len(name) <= 110 else name[:109] + "…")
        figure.align_ylabels()
        save_figure(figure, file)
    return language


def _end(point: Point) -> float:
    return point.start_seconds + point.seconds


def _unit(end: float, language: Language) -> tuple[str, float]:
    """The axis of time: its label and the seconds of its unit."""
    for name, seconds in (("hours", 3600.0), ("minutes", 60.0)):
        if end >= 2 * seconds:
            return message(f"simulate.plot.{name}", language), seconds
    return message("simulate.plot.seconds", language), 1.0


def _over_time(done: Simulation, column: str) -> list[float]:
    """Means of a column over stretches of time; the last value stands twice, for its end."""
    points = done.metrics.timeline
    found = []
    for at, point in enumerate(points):
        after = points[at + 1].start_seconds if at + 1 < len(points) else _end(point)
        span = after - point.start_seconds
        share = min(1.0, point.seconds / span / done.engines) if span > 0 else 1.0
        found.append(getattr(point, column) * share)
    return found + found[-1:]


def _draw_memory(axes: Axes, xs: Sequence[float], done: Simulation, language: Language) -> None:
    """What a GPU holds, from the bottom: what stays the same, then the KV pool as it fills."""
    bar = stage_bar(done.fit, next(iter(distinct_stages(done.fit))), language)
    bottom = 0.0
    labels: list[tuple[float, str, str]] = []
    edge = [xs[0], xs[-1]]
    for segment in bar.segments:
        height = segment.num_bytes / GIB
        if segment.kind == "kv":
            blocks = done.engine.usable_blocks
            used = [bottom + height * held / blocks for held in _over_time(done, "used_blocks")]
            axes.fill_between(edge, bottom, bottom + height, color=_UNUSED_POOL, linewidth=0)
            axes.fill_between(xs, bottom, used, step="post", color=ACCENT, linewidth=0)
        else:
            axes.fill_between(edge, bottom, bottom + height, color=FILLS[segment.kind], linewidth=0)
        color = ACCENT if segment.kind == "kv" else INK
        label = f"{segment.label}  {format_gib(segment.num_bytes)}"
        if segment.kind == "kv":
            label += f" {message('simulate.plot.held', language)}"
        labels.append((bottom + height / 2, label, color))
        bottom += height
    capacity = bar.capacity_bytes / GIB
    axes.axhline(capacity, color=INK, linewidth=1.1)
    axes.set_ylim(0, capacity * 1.02)
    label_ends(axes, labels)


def _draw_queue(axes: Axes, xs: Sequence[float], done: Simulation, language: Language) -> None:
    """Requests that run, and those that wait."""
    ends = []
    for column, color in (("running", ACCENT), ("waiting", ALARM)):
        heights = _over_time(done, column)
        axes.step(xs, heights, where="post", color=color, linewidth=1.4, zorder=3)
        ends.append((heights[-1], message(f"simulate.plot.{column}", language), color))
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    label_ends(axes, ends)


def _draw_latencies(
    axes: Axes, samples: LatencySamples, done: Simulation, language: Language
) -> None:
    """The share of requests, or of tokens, whose latency is at or below each value."""
    colors = {"ttft": ACCENT, "tpot": INK, "itl": "#8a929b", "e2e": "#5aa3c4"}
    for name, seconds, shares in samples.curves():
        label = message(f"simulate.{name}", language)
        axes.step(seconds, shares, where="post", color=colors[name], linewidth=1.6, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    if done.limits is not None:
        for name in ("ttft", "tpot"):
            limit = getattr(done.limits, f"{name}_seconds")
            if limit is not None:
                axes.axvline(limit, color=colors[name], linewidth=1.0, linestyle="dashed")
    key = "simulate.plot.latency" if done.limits is None else "simulate.plot.latency_limits"
    axes.set_xlabel(message(key, language), color=QUIET, fontsize=9.5)
    axes.legend(
        loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9, labelcolor=INK
    )
