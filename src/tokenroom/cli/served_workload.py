"""The workload that is served, a trace or one that is drawn, and the options that name it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.options import COUNT, NUMBER, Command, trace_options, window_option
from tokenroom.errors import CommandLineError

if TYPE_CHECKING:
    from tokenroom.serving.workloads.source import Part, WorkloadSource

WORKLOAD_SECTION: Final = (
    *("trace", "workload", "limit", "window", "time_scale", "draws_seed", "form"),
    *("columns", "skip_bad"),
)


def workload_options(command: Command) -> Command:
    """The options that :func:`workload_source` reads."""
    for decorate in (
        trace_options,
        click.option("--seed", "draws_seed", type=COUNT, help="Seed of a drawn workload."),
        click.option(
            "--time-scale",
            type=NUMBER,
            help="Multiply all times of arrival by it: 0.5 doubles the rate.",
        ),
        window_option,
        click.option("--limit", type=COUNT, help="Only the first so many requests."),
        click.option(
            "--workload",
            help="A drawn workload, as poisson:rate=5,input=1024,output=256 or a preset.",
        ),
        click.option("--trace", help="A trace file, in any form that tokenroom workload reads."),
    ):
        command = decorate(command)
    return command


def workload_source(options: dict[str, Any]) -> WorkloadSource:
    """What ``--trace`` or ``--workload`` name, in the part and speed that is asked for.

    Raises:
        CommandLineError: Both are given, neither is, or an option is of the other.
        WorkloadError: An option cannot be read.
    """
    trace, drawn = options["trace"], options["workload"]
    if (trace is None) == (drawn is None):
        raise CommandLineError(
            "a workload is served: give --trace FILE, or --workload DESCRIPTION such as "
            "poisson:rate=5,input=1024,output=256 (one of the two; tokenroom workload --presets "
            "lists more)"
        )
    scale = options["time_scale"]
    from tokenroom.serving.workloads.reshaping import check_time_scale

    if scale is not None:
        check_time_scale(scale, "--time-scale")
    from tokenroom.serving.workloads.source import Part
    from tokenroom.serving.workloads.written_values import window_of

    window = options["window"]
    part = Part(
        window_seconds=None if window is None else window_of(window, "--window"),
        time_scale=scale,
        limit=options["limit"],
    )
    return _trace(trace, part, options) if drawn is None else _drawn(drawn, part, options)


def _trace(text: str, part: Part, options: dict[str, Any]) -> WorkloadSource:
    from tokenroom.serving.workloads.columns import parse_columns
    from tokenroom.serving.workloads.source import TraceSource
    from tokenroom.serving.workloads.trace import TraceOptions

    if options["draws_seed"] is not None:
        raise CommandLineError("--seed is of a drawn workload, and nothing of a trace is; leave it")
    columns = options["columns"]
    read = TraceOptions(
        format=options["form"],
        columns=None if columns is None else parse_columns(columns),
        skip_bad=options["skip_bad"],
    )
    return TraceSource(path=Path(text), options=read, part=part)


def _drawn(text: str, part: Part, options: dict[str, Any]) -> WorkloadSource:
    from tokenroom.serving.workloads.source import DrawnSource

    if options["draws_seed"] is not None and options["draws_seed"] < 0:
        raise CommandLineError(f"--seed is {options['draws_seed']}; it must be 0 or more")
    for name, of_trace in (
        ("--format", "form"),
        ("--columns", "columns"),
        ("--skip-bad", "skip_bad"),
    ):
        if options[of_trace]:
            raise CommandLineError(f"{name} is of a trace, and --workload is drawn; leave it out")
    return DrawnSource(description=text, part=part, seed=options["draws_seed"])
