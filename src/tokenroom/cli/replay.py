"""``tokenroom replay``: a recording of ``watch``, at any speed and from any place."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenroom.cli.options import SECONDS, Quantity, language_option
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import parse_number

if TYPE_CHECKING:
    from tokenroom.watching.observation import Observation

_LONGEST_PAUSE_SECONDS = 60.0


def _parse_speed(text: str, field: str) -> float:
    if text.strip().lower() in ("max", "inf"):
        return float("inf")
    speed = parse_number(text.strip().lower().rstrip("x"), field)
    if not 0 < speed <= 1e6:
        raise CommandLineError(f"{field} is {shown(text)}; give a factor such as 10, or max")
    return speed


@click.command("replay", context_settings={"max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--speed",
    type=Quantity("FACTOR", _parse_speed),
    help="How much faster than it was, or max; 1 on a terminal, max otherwise.",
)
@click.option("--from", "start", type=SECONDS, help="Begin so long after its beginning, as 10m.")
@click.option("--to", "end", type=SECONDS, help="End so long after its beginning.")
@click.option("--once", is_flag=True, help="Show only the last observation.")
@click.option("--lines", is_flag=True, help="Print lines on a terminal, too.")
@click.option("--json", "as_json", is_flag=True, help="Print what watch --json printed.")
@language_option
def command(
    file: Path,
    speed: float | None,
    start: float | None,
    end: float | None,
    once: bool,
    lines: bool,
    as_json: bool,
    language: Language,
) -> int:
    """What tokenroom watch --record FILE has seen, at any speed.

    A last line that was cut off is left out.
    """
    from tokenroom.cli.watch import print_lines, print_once
    from tokenroom.watching.recording import Recording

    recording = Recording(file)
    first, last = recording.span()
    if recording.skipped:
        click.echo(
            message("watch.skipped", language, count=recording.skipped, file=printable(str(file))),
            err=True,
        )
    chosen = _between(recording.observations(), first + (start or 0.0), end and first + end)
    on_terminal = sys.stdout.isatty() and not as_json and not lines
    factor = speed if speed is not None else 1.0 if on_terminal else float("inf")
    with contextlib.suppress(KeyboardInterrupt):
        if once:
            seen = None
            for seen in chosen:  # noqa: B007 - the last one is wanted
                pass
            if seen is not None:
                print_once(seen, as_json=as_json, language=language)
        elif on_terminal:
            from tokenroom.cli.live_view import show_live

            shown_speed = "max" if factor == float("inf") else f"{factor:g}"
            show_live(
                (
                    (seen, _title(seen, first, last, shown_speed, language))
                    for seen in _paced(chosen, factor)
                ),
                foot=message("watch.quit", language),
                language=language,
            )
        else:
            print_lines(_paced(chosen, factor), as_json=as_json, language=language)
    return 0


def _between(
    observations: Iterator[Observation], start: float, end: float | None
) -> Iterator[Observation]:
    for seen in observations:
        if seen.time >= start and (end is None or seen.time <= end):
            yield seen


def _paced(observations: Iterator[Observation], factor: float) -> Iterator[Observation]:
    """Each at its time, gaps of a recording that was continued later cut short."""
    before = None
    for seen in observations:
        if before is not None and factor != float("inf"):
            gap = min(max(0.0, seen.time - before), _LONGEST_PAUSE_SECONDS)
            time.sleep(gap / factor)
        before = seen.time
        yield seen


def _title(seen: Observation, first: float, last: float, speed: str, language: Language) -> str:
    from tokenroom.reports.watch_words import clock_text, span_text

    return message(
        "watch.replay_title",
        language,
        time=clock_text(seen.time),
        position=span_text(seen.time - first),
        length=span_text(last - first),
        speed=speed,
    )
