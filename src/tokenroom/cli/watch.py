"""``tokenroom watch``: what servers and GPUs hold now, beside what was predicted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.deployment_options import SECTIONS, deployment_options
from tokenroom.cli.options import (
    SECONDS,
    Quantity,
    SectionedCommand,
    json_schema_option,
    language_option,
)
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import parse_count, parse_number, parse_seconds

if TYPE_CHECKING:
    from tokenroom.watching.observation import Observation
    from tokenroom.watching.watcher import Watcher, WatchSettings

_LEAST_INTERVAL_SECONDS = 0.2
_MOST_SECONDS = 86_400.0


def _parse_span(text: str, field: str, *, least: float) -> float:
    seconds = parse_seconds(text, field)
    if not least <= seconds <= _MOST_SECONDS:
        raise CommandLineError(
            f"{field} is {shown(text)}; give a time of {least:g}s to 24h, such as 2s"
        )
    return seconds


def _parse_waterline(text: str, field: str) -> float:
    percent = text.strip().endswith("%")
    share = parse_number(text.strip().rstrip("%"), field) / (100 if percent else 1)
    if not 0 < share <= 1:
        raise CommandLineError(f"{field} is {shown(text)}; give a share up to 1, such as 0.8")
    return share


_INTERVAL = Quantity("TIME", partial(_parse_span, least=_LEAST_INTERVAL_SECONDS))
_WINDOW = Quantity("TIME", partial(_parse_span, least=1.0))
_WATERLINE = Quantity("SHARE", _parse_waterline)
_PORT = Quantity("PORT", partial(parse_count, least=0, most=65535))


class _Command(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Watching": (
            *("interval", "window", "timeout", "duration", "once", "waterline", "leak_window"),
            *("gpus_watched", "api_key"),
        ),
        "Plan": ("commands",),
        **SECTIONS,
    }


@click.command(
    "watch",
    cls=_Command,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom watch http://127.0.0.1:8000 --as 'vllm serve MODEL -tp 2' --gpu h100",
)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--interval",
    type=_INTERVAL,
    default=2.0,
    help="How often to look; 2s by default.",
)
@click.option(
    "--window",
    type=_WINDOW,
    default=30.0,
    help="Latencies and hit rates are of so long; 30s by default.",
)
@click.option(
    "--timeout",
    type=_INTERVAL,
    default=5.0,
    help="Longest to wait for a page; 5s by default.",
)
@click.option("--duration", type=SECONDS, help="Stop after it; watch until Ctrl-C by default.")
@click.option("--once", is_flag=True, help="Look once; exit code 1 where a server is down.")
@click.option(
    "--waterline",
    type=_WATERLINE,
    default=0.8,
    show_default=True,
    help="Share of the KV pool from which on to warn.",
)
@click.option(
    "--leak-window",
    type=Quantity("TIME", partial(_parse_span, least=60.0)),
    default=600.0,
    help="How long memory must grow to be called a leak; 10m by default.",
)
@click.option(
    "--gpus-of-this-machine/--no-gpus", "gpus_watched", default=True, help="Watch GPUs by NVML."
)
@click.option(
    "--api-key",
    envvar="TOKENROOM_WATCH_KEY",
    help="Key that the servers want; also TOKENROOM_WATCH_KEY, which others do not see.",
)
@click.option(
    "--as",
    "commands",
    multiple=True,
    metavar="COMMAND",
    help="What started the server, as 'vllm serve MODEL ...', or its model; may be repeated, one "
    "for each server.",
)
@deployment_options()
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append what is seen to a file, for tokenroom replay.",
)
@click.option("--exporter", type=_PORT, help="Serve figures for Prometheus on this port.")
@click.option(
    "--exporter-host",
    default="127.0.0.1",
    show_default=True,
    help="Address to serve them on.",
)
@click.option("--lines", is_flag=True, help="Print lines on a terminal, too.")
@json_schema_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@language_option
def command(
    urls: tuple[str, ...],
    commands: tuple[str, ...],
    interval: float,
    window: float,
    timeout: float,
    duration: float | None,
    once: bool,
    waterline: float,
    leak_window: float,
    gpus_watched: bool,
    api_key: str | None,
    record: Path | None,
    exporter: int | None,
    exporter_host: str,
    lines: bool,
    json_schema: bool,
    as_json: bool,
    language: Language,
    **options: Any,
) -> int:
    """What servers and GPUs hold now, beside what was predicted.

    URL is where vLLM, SGLang, TensorRT-LLM or llama-server answers, as http://127.0.0.1:8000 or
    :8000; without one only this machine's GPUs are watched. Servers that go away are looked for
    again. Exit code 0; with --once 1 where one is down.
    """
    if json_schema:
        from tokenroom.reports.watch_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if not urls and not gpus_watched:
        raise CommandLineError("nothing is to be watched; name a server, or leave --no-gpus out")
    from tokenroom.cli.watched_servers import watched
    from tokenroom.watching.alerts import AlertSettings
    from tokenroom.watching.endpoint_watch import LookSettings
    from tokenroom.watching.requirements import check_requirements
    from tokenroom.watching.watcher import Watcher, WatchSettings

    check_requirements()
    settings = WatchSettings(
        look=LookSettings(
            interval_seconds=interval,
            window_seconds=window,
            timeout_seconds=timeout,
            api_key=api_key,
        ),
        alerts=AlertSettings(
            waterline=waterline, leak_seconds=leak_window, queue_seconds=max(60.0, 20 * interval)
        ),
        gpus=gpus_watched,
    )
    watcher = Watcher(watched(urls, commands, options), settings)
    with contextlib.ExitStack() as stack:
        sinks = _Sinks(stack, record, exporter, exporter_host, language)
        if once:
            seen = sinks.take(watcher.look_once())
            print_once(seen, as_json=as_json, language=language)
            return 1 if any(one.status == "down" for one in seen.endpoints) else 0
        stack.callback(watcher.stop)
        with contextlib.suppress(KeyboardInterrupt):  # the usual end
            watcher.start()
            told = _taken(watcher, sinks, settings, duration)
            _print_each(told, as_json=as_json, lines=lines, notes=sinks.notes, language=language)
    if record is not None:
        click.echo(
            message("watch.recorded", language, count=sinks.count, file=printable(str(record))),
            err=True,
        )
    return 0


class _Sinks:
    """Where observations go beside the screen: a recording, figures for Prometheus."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        record: Path | None,
        exporter: int | None,
        host: str,
        language: Language,
    ) -> None:
        from tokenroom.watching.recording import Recorder

        self.notes: list[str] = []
        self._recorder = None if record is None else stack.enter_context(Recorder(record))
        self._exporter = None
        if record is not None:
            self.notes.append(message("watch.recording", language, file=printable(str(record))))
        if exporter is not None:
            from tokenroom.watching.exporter import Exporter

            self._exporter = stack.enter_context(Exporter(host=host, port=exporter))
            self.notes.append(
                message("watch.exporting", language, host=host, port=str(self._exporter.port))
            )

    @property
    def count(self) -> int:
        """Observations that were recorded."""
        return 0 if self._recorder is None else self._recorder.count

    def take(self, seen: Observation) -> Observation:
        """Pass an observation on."""
        if self._recorder is not None:
            self._recorder.write(seen)
        if self._exporter is not None:
            self._exporter.take(seen)
        return seen


def _taken(
    watcher: Watcher, sinks: _Sinks, settings: WatchSettings, duration: float | None
) -> Iterator[Observation]:
    """What is seen, from the time on that every server has been asked."""
    for number, seen in enumerate(watcher.observations(duration)):
        waiting = any(one.status == "waiting" for one in seen.endpoints)
        if number == 0 and waiting:
            continue  # nobody has been asked yet
        yield sinks.take(seen)


def print_once(seen: Observation, *, as_json: bool, language: Language) -> None:
    """One observation as a JSON object, or as the picture that a terminal shows."""
    if as_json:
        from tokenroom.reports.watch_json import watch_line

        click.echo(watch_line(seen, language))
        return
    from tokenroom.reports.console import console
    from tokenroom.reports.watch_view import WatchView

    out = console()
    view = WatchView(language, width=out.width, blocks="utf" in out.encoding.lower())
    view.take(seen)
    out.print(view.drawn(seen))


def _print_each(
    observations: Iterator[Observation],
    *,
    as_json: bool,
    lines: bool,
    notes: list[str],
    language: Language,
) -> None:
    if as_json or lines or not sys.stdout.isatty():
        for note in notes:
            click.echo(note, err=True)
        print_lines(observations, as_json=as_json, language=language)
        return
    from tokenroom.cli.live_view import show_live

    foot = "  ".join([*notes, message("watch.quit", language)])
    show_live(((seen, None) for seen in observations), foot=foot, language=language)


def print_lines(observations: Iterator[Observation], *, as_json: bool, language: Language) -> None:
    """Each observation as one JSON object a line, or as lines of text."""
    if as_json:
        from tokenroom.reports.watch_json import watch_line

        for seen in observations:
            click.echo(watch_line(seen, language))
        return
    from tokenroom.reports.watch_lines import WatchLines

    writer = WatchLines(language)
    for seen in observations:
        for line in writer.lines(seen):
            click.echo(line)
