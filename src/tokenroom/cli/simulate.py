"""``tokenroom simulate``: what clients of a deployment see when a workload is served."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.options import (
    NUMBER,
    SectionedCommand,
    json_option,
    json_schema_option,
    language_option,
    promise_options,
    promised,
    say_written,
)
from tokenroom.cli.served_deployment import SERVED_SECTIONS
from tokenroom.cli.served_fleet import FLEET_SECTION, served_fleet, served_fleet_options
from tokenroom.cli.served_workload import WORKLOAD_SECTION, workload_options, workload_source
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, message, printable

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult
    from tokenroom.reports.gantt import GanttSamples
    from tokenroom.reports.simulation_plot import LatencySamples
    from tokenroom.serving.engine import StepSeconds
    from tokenroom.serving.metrics import LatencyLimits
    from tokenroom.serving.record import RequestRecord, StepRecord
    from tokenroom.serving.run import Run, Simulation

_INTERRUPTED: Final = 128 + 2
_TOLD_EVERY_SECONDS: Final = 0.5


class _SimulateCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Workload": WORKLOAD_SECTION,
        **SERVED_SECTIONS,
        "Servers": FLEET_SECTION,
    }


@click.command(
    "simulate",
    cls=_SimulateCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom simulate llama-3.1-8b --gpu h100 --workload chat:rate=5; after -- "
    "comes an engine's own command: tokenroom simulate --gpu h100 --trace trace.csv -- vllm serve "
    "MODEL",
)
@served_fleet_options
@workload_options
@promise_options
@click.option(
    "--goodput",
    "wanted_share",
    type=NUMBER,
    help="Share of all requests, 0 to 1, that has to keep them: exit code 1 if fewer do.",
)
@click.option(
    "--requests",
    "requests_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write each request's record to FILE (csv, jsonl, parquet).",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the FILE of --requests that an earlier run of the same began.",
)
@click.option(
    "--timeline",
    "timeline_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write steps and requests to FILE.json, for Perfetto or chrome://tracing.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw memory, queue and latencies to FILE (png, svg, pdf).",
)
@click.option(
    "--gantt",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw a bar for each request to FILE (png, svg, pdf), up to 200 of them.",
)
@click.option("--gantt-window", help="Only requests that are there in it, as 10s..20s.")
@click.option(
    "--step-times",
    "step_times_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Measured times of steps instead of the model's: a CSV file with seconds and "
    "prefill_tokens, decode_requests, context_tokens.",
)
@click.option(
    "--step-by-step",
    is_flag=True,
    help="Serve by the scheduler in Python and not by the compiled one; the result is the same.",
)
@json_schema_option
@json_option
@language_option
def command(
    words: tuple[str, ...],
    as_json: bool,
    json_schema: bool,
    language: Language,
    **options: Any,
) -> int:
    """What clients of MODEL see when a workload is served: latencies, queue, KV pool over time.

    The engine's scheduler runs step by step in virtual time; how long a step takes is what
    tokenroom speed computes. MODEL is a catalogue name (see: tokenroom models), a config.json, a
    checkpoint folder or a Hub id. Exit code 1: the deployment does not start, cannot keep up with
    the requests, or keeps --ttft and --tpot for fewer of them than --goodput says.
    """
    if json_schema:
        from tokenroom.reports.simulation_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if options["resume"] and options["requests_file"] is None:
        raise CommandLineError("--resume goes on with a file of requests; give it with --requests")
    if options["gantt_window"] is not None and options["gantt"] is None:
        raise CommandLineError("--gantt-window is of a picture; name its file with --gantt")
    _check_files(words, options)
    limits = _limits(options)
    fleet = served_fleet(words, options, language)
    if fleet.refused is not None:
        return _show_refusal(fleet.refused, as_json=as_json, language=language)
    run = fleet.run(limits, compiled=not options["step_by_step"], step_seconds=_steps(options))
    arrivals = workload_source(options).served(run.engine.block_tokens)
    run.compiled &= not arrivals.are_few
    if options["plot"] is not None:
        from tokenroom.reports.plots import check_plot_file

        check_plot_file(options["plot"])
    gantt = None if options["gantt"] is None else _gantt_samples(options)
    if (timeline := options["timeline_path"]) is not None:
        from tokenroom.reports.timeline_file import check_timeline_file

        check_timeline_file(timeline)
    with ExitStack() as stack:
        hear: list[Callable[[RequestRecord], None]] = [_first_refusals(run, language)]
        watch: list[Callable[[StepRecord], None]] = []
        if (file := options["requests_file"]) is not None:
            from tokenroom.reports.request_file import request_file

            requests = stack.enter_context(request_file(file, resume=options["resume"]))
            hear.append(requests.request)
        if timeline is not None:
            from tokenroom.reports.timeline_file import timeline_file

            writer = stack.enter_context(timeline_file(timeline))
            hear.append(writer.request)
            watch.append(writer.step)
        if options["plot"] is not None:
            from tokenroom.reports.simulation_plot import LatencySamples

            samples = LatencySamples()
            hear.append(samples.request)
            watch.append(samples.step)
        if gantt is not None:
            hear.append(gantt.request)
            watch.append(gantt.step)
        progress = stack.enter_context(_progress(language))
        if not watch:
            _tell_way(run, language)
        try:
            if len(hear) == 1 and not watch:
                run.serve_all(
                    arrivals.arrivals,
                    waits_for_answers=arrivals.waits_for_answers,
                    refused=hear[0],
                    progress=progress,
                )
            else:
                for record in run.serve(
                    arrivals.arrivals,
                    waits_for_answers=arrivals.waits_for_answers,
                    observe=_all_of(watch) if watch else None,
                ):
                    for tell in hear:
                        tell(record)
                    progress(1, record.finish_seconds)
            if file is not None:
                requests.end()
        except KeyboardInterrupt:
            pass  # what is done is shown, and the exit code says so
    done = run.outcome()
    for key, path in (("requests", file), ("timeline", timeline)):
        if path is not None:
            told = message(f"simulate.{key}_written", language, file=printable(str(path)))
            click.echo(told, err=True)
    wanted: float | None = options["wanted_share"]
    try:
        _report(done, arrivals.name, wanted, as_json=as_json, language=language)
    finally:  # neither costs the other: a full disk the report, or `| head` the pictures
        if options["plot"] is not None:
            _draw(samples, done, arrivals.name, options["plot"], language)
        if gantt is not None:
            _draw_gantt(gantt, done, arrivals.name, options["gantt"], language)
    return _exit_code(done, wanted)


def _steps(options: Mapping[str, Any]) -> StepSeconds | None:
    if options["step_times_file"] is None:
        return None
    from tokenroom.serving.step_times import read_step_times

    return read_step_times(options["step_times_file"])


def _check_files(words: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Refuse files to write that would cost one that is read, or another of them."""
    check_written(
        {
            "--requests": options["requests_file"],
            "--timeline": options["timeline_path"],
            "--plot": options["plot"],
            "--gantt": options["gantt"],
        },
        read_files(words, options),
    )


def _gantt_samples(options: dict[str, Any]) -> GanttSamples:
    """What takes in the requests of ``--gantt-window``."""
    from tokenroom.reports.gantt import GanttSamples
    from tokenroom.reports.plots import check_plot_file
    from tokenroom.serving.workloads.written_values import window_of

    check_plot_file(options["gantt"])
    window = options["gantt_window"]
    return GanttSamples(None if window is None else window_of(window, "--gantt-window"))


def _report(
    done: Simulation, workload: str, wanted: float | None, *, as_json: bool, language: Language
) -> None:
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.simulation_json import simulation_json

        print_json(simulation_json(done, workload, language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.simulation_text import print_simulation

        print_simulation(console(), done, workload, language, wanted)


def _draw(
    samples: LatencySamples, done: Simulation, workload: str, file: Path, language: Language
) -> None:
    if not done.metrics.timeline:
        warning = message("fit.warning", language) + message("simulate.plot.empty", language)
        click.echo(warning, err=True)
        return
    from tokenroom.reports.simulation_plot import plot_simulation

    say_written(file, language, plot_simulation(done, samples, workload, file, language))


def _draw_gantt(
    gantt: GanttSamples, done: Simulation, workload: str, file: Path, language: Language
) -> None:
    if not gantt.present:
        warning = message("fit.warning", language) + message("simulate.gantt.empty", language)
        click.echo(warning, err=True)
        return
    from tokenroom.reports.gantt import plot_gantt

    used = plot_gantt(gantt, done.fit, workload, file, language)
    say_written(file, language, used)


def _tell_way(run: Run, language: Language) -> None:
    """Say what is worth knowing of how requests will be served, on standard error."""
    from tokenroom.serving.run import Way

    if run.way is Way.NOT_INSTALLED:
        click.echo(message("simulate.not_installed", language), err=True)
    elif run.way is Way.COMPILED:
        from tokenroom.serving.compiled.coverage import is_kept

        if not is_kept():
            click.echo(message("simulate.compiling", language), err=True)


def _all_of(watch: Sequence[Callable[[StepRecord], None]]) -> Callable[[StepRecord], None]:
    def observe(step: StepRecord) -> None:
        for tell in watch:
            tell(step)

    return observe


def _limits(options: dict[str, Any]) -> LatencyLimits | None:
    """What requests are promised, None for nothing."""
    wanted = options["wanted_share"]
    if options["ttft"] is None and options["tpot"] is None:
        if wanted is not None:
            raise CommandLineError("--goodput is a share that keeps --ttft and --tpot; give those")
    elif wanted is not None and not 0 < wanted <= 1:
        raise CommandLineError(f"--goodput is {wanted:g}; give a share above 0 and up to 1")
    return promised(options)


def _exit_code(done: Simulation, wanted: float | None) -> int:
    if done.interrupted:
        return _INTERRUPTED
    share = done.metrics.goodput_share
    missed = wanted is not None and share is not None and share < wanted
    return 1 if done.falls_behind or missed or not done.metrics.requests else 0


def _show_refusal(result: FitResult, *, as_json: bool, language: Language) -> int:
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.simulation_json import refusal_json

        print_json(refusal_json(result, language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.speed_text import print_refusal

        print_refusal(console(), result, language)
    return 1


def _first_refusals(run: Run, language: Language) -> Callable[[RequestRecord], None]:
    """What tells of the first request that is refused for a reason, when it is."""
    told: set[str] = set()

    def hear(record: RequestRecord) -> None:
        if record.refused is None or record.refused in told:
            return
        told.add(record.refused)
        pool = run.pool_of(record)
        reason = message(
            f"simulate.reason.{record.refused}",
            language,
            length=pool.engine.max_model_len,
            tokens=pool.pool_tokens,
        )
        line = message(
            "simulate.first_refused",
            language,
            number=record.id,
            input=record.prompt_tokens,
            reason=reason,
        )
        click.echo(message("fit.warning", language) + line, err=True)

    return hear


@contextmanager
def _progress(language: Language) -> Iterator[Callable[[int, float], None]]:
    """What shows on a terminal how far the run is, on one line of standard error."""
    if not sys.stderr.isatty():
        yield lambda ended, seconds: None
        return
    from tokenroom.reports.workload_text import duration

    started = shown_at = time.monotonic()
    count = 0

    def hear(ended: int, seconds: float) -> None:
        nonlocal count, shown_at
        count += ended
        now = time.monotonic()
        if now - shown_at < _TOLD_EVERY_SECONDS:
            return
        shown_at = now
        line = message(
            "simulate.progress",
            language,
            count=count,
            span=duration(seconds),
            rate=round(count / (now - started)),
        )
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    try:
        yield hear
    finally:
        if shown_at > started:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
