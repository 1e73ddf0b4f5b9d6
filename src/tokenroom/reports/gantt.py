"""A picture of single requests over time: a bar for each, by what it was doing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappush, heappushpop
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.plots import (
    ACCENT,
    ALARM,
    INK,
    QUIET,
    dress,
    new_figure,
    plot_style,
    save_figure,
    set_subtitle,
    usable_language,
)
from tokenroom.serving.record import RequestRecord, StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS: Final = 200
"""Requests of a picture; bars of more would be thinner than a line."""
_NAMED_BARS: Final = 60
"""Up to so many each has its number beside it."""
_LONGEST_NAME: Final = 110

PHASES: Final = ("waiting", "prompt", "answer", "preempted")
_COLORS: Final = {"waiting": "#d0d5da", "prompt": INK, "answer": ACCENT, "preempted": ALARM}


class Phase(NamedTuple):
    """What a request was doing, from when to when (seconds)."""

    name: str
    start_seconds: float
    end_seconds: float


class GanttBar(NamedTuple):
    """One request: its number and its phases, one after another."""

    id: int
    phases: tuple[Phase, ...]


class GanttSamples:
    """The requests of a window, taken in as they end: the first :data:`MOST_BARS` that arrived.

    Attributes:
        present: Requests that were there in the window, drawn or not.

    Args:
        window_seconds: From when to when; None for the whole run.

    Raises:
        TokenroomError: The window holds no time.
    """

    __slots__ = ("_away", "_kept", "_lost_at", "_window", "present")

    def __init__(self, window_seconds: tuple[float, float] | None = None) -> None:
        if window_seconds is not None and not window_seconds[0] < window_seconds[1]:
            raise TokenroomError(
                f"the window of the Gantt picture, {window_seconds[0]:g} s to "
                f"{window_seconds[1]:g} s, holds no time; write the earlier time first"
            )
        self._window = (0.0, math.inf) if window_seconds is None else window_seconds
        self._kept: list[tuple[float, int, RequestRecord, tuple[tuple[float, float], ...]]] = []
        self._lost_at: dict[int, float] = {}
        self._away: dict[int, list[tuple[float, float]]] = {}
        self.present = 0

    def step(self, step: StepRecord) -> None:
        """Take in who lost its blocks in a step, and who got some again."""
        for number in step.preempted_ids:
            self._lost_at[number] = step.start_seconds
        for number in step.resumed_ids:
            lost_at = self._lost_at.pop(number, step.start_seconds)
            self._away.setdefault(number, []).append((lost_at, step.start_seconds))

    def request(self, record: RequestRecord) -> None:
        """Take in what became of a request."""
        away = self._away.pop(record.id, [])
        if (lost_at := self._lost_at.pop(record.id, None)) is not None:
            away.append((lost_at, record.finish_seconds))  # its last token was under way
        start, end = self._window
        if record.refused is not None or record.arrival_seconds >= end:
            return
        if record.finish_seconds <= start:
            return
        self.present += 1
        # The latest arrival is the first that the heap gives up.
        entry = (-record.arrival_seconds, -record.id, record, tuple(away))
        if len(self._kept) < MOST_BARS:
            heappush(self._kept, entry)
        else:
            heappushpop(self._kept, entry)

    def bars(self) -> list[GanttBar]:
        """The requests to draw, in the order of their arrival."""
        ordered = sorted(self._kept, key=lambda entry: (-entry[0], -entry[1]))
        return [GanttBar(record.id, tuple(_phases(record, away))) for _, _, record, away in ordered]

    def span_seconds(self) -> tuple[float, float]:
        """From when to when the picture reaches."""
        start, end = self._window
        if end == math.inf:
            records = [record for _, _, record, _ in self._kept]
            start = min((record.arrival_seconds for record in records), default=0.0)
            end = max((record.finish_seconds for record in records), default=1.0)
        return start, end if end > start else start + 1.0


def _phases(record: RequestRecord, away: tuple[tuple[float, float], ...]) -> Iterator[Phase]:
    """Waiting, prompt and answer, parted where the request had lost its blocks."""
    times = (
        ("waiting", record.arrival_seconds, record.scheduled_seconds),
        ("prompt", record.scheduled_seconds, record.first_token_seconds),
        ("answer", record.first_token_seconds, record.finish_seconds),
    )
    for name, start, end in times:
        for lost_at, again_at in away:
            if lost_at >= end or again_at <= start:
                continue
            if lost_at > start:
                yield Phase(name, start, lost_at)
                start = lost_at
            yield Phase("preempted", start, min(again_at, end))
            start = min(again_at, end)
        if end > start:
            yield Phase(name, start, end)


def plot_gantt(
    samples: GanttSamples, fit: FitResult, workload: str, file: Path, language: Language
) -> Language:
    """Draw each request of a window as a bar; returns the language of the labels.

    Raises:
        TokenroomError: matplotlib is missing, the suffix is unknown or the file cannot be written.
    """
    language = usable_language(language)
    bars = samples.bars()
    start, end = samples.span_seconds()
    with plot_style(file):
        figure = new_figure(width=8.6, height=max(3.0, min(12.0, 1.9 + 0.17 * len(bars))))
        axes = figure.add_subplot()
        _draw_bars(axes, bars)
        axes.set_xlim(start, end)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        if len(bars) <= _NAMED_BARS:
            axes.set_yticks(range(len(bars)), [f"{bar.id:,}" for bar in bars], fontsize=7.5)
        else:
            axes.set_yticks([])
        axes.set_xlabel(message("simulate.plot.seconds", language), color=QUIET, fontsize=9.5)
        _draw_legend(axes, bars, language)
        dress(axes, title=fit_title(fit, language), y_label=message("simulate.gantt.y", language))
        axes.grid(visible=False)
        set_subtitle(axes, _subtitle(samples, len(bars), workload, language))
        save_figure(figure, file)
    return language


def _subtitle(samples: GanttSamples, drawn: int, workload: str, language: Language) -> str:
    name = printable(message("simulate.workload", language, name=workload))
    if samples.present > drawn:
        name = message("simulate.gantt.part", language, drawn=drawn, present=samples.present)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _draw_bars(axes: Axes, bars: list[GanttBar]) -> None:
    for name in PHASES:
        rows, lefts, widths = [], [], []
        for row, bar in enumerate(bars):
            for phase in bar.phases:
                if phase.name == name:
                    rows.append(row)
                    lefts.append(phase.start_seconds)
                    widths.append(phase.end_seconds - phase.start_seconds)
        axes.barh(rows, widths, left=lefts, height=0.8, color=_COLORS[name], linewidth=0)


def _draw_legend(axes: Axes, bars: list[GanttBar], language: Language) -> None:
    from matplotlib.patches import Patch

    drawn = {phase.name for bar in bars for phase in bar.phases}
    patches = [
        Patch(color=_COLORS[name], label=message(f"simulate.gantt.{name}", language))
        for name in PHASES
        if name in drawn
    ]
    axes.legend(
        handles=patches,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
