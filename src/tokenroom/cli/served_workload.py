"""The workload that is served, a trace or one that is drawn, and the options that name it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tokenroom.cli.options import COUNT, NUMBER, Command, trace_options, window_option
from tokenroom.errors import CommandLineError, shown

if TYPE_CHECKING:
    from tokenroom.serving.arrivals import Arrivals
    from tokenroom.serving.request import Request


WORKLOAD_SECTION: Final = (
    *("trace", "workload", "limit", "window", "time_scale", "draws_seed", "form"),
    *("columns", "skip_bad"),
)


def workload_options(command: Command) -> Command:
    """The options that :func:`served_workload` reads."""
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


class Served(NamedTuple):
    """A workload that is ready to be served.

    Attributes:
        name: The file's name, or the description.
        arrivals: Its requests.
        waits_for_answers: Whether they depend on how fast they are served.
    """

    name: str
    arrivals: Arrivals
    waits_for_answers: bool


def served_workload(options: dict[str, Any], block_tokens: int) -> Served:
    """What ``--trace`` or ``--workload`` name, in the part and speed that is asked for.

    Args:
        options: Of the command line.
        block_tokens: Tokens in the blocks that shared prefixes are named by.

    Raises:
        CommandLineError: Both are given, neither is, or an option is of the other.
        WorkloadError: It cannot be read or meant.
    """
    trace, drawn = options["trace"], options["workload"]
    if (trace is None) == (drawn is None):
        raise CommandLineError(
            "a workload is served: give --trace FILE, or --workload DESCRIPTION such as "
            "poisson:rate=5,input=1024,output=256 (one of the two; tokenroom workload --presets "
            "lists more)"
        )
    if options["time_scale"] is not None and not 0 < options["time_scale"] < float("inf"):
        raise CommandLineError(
            f"--time-scale is {options['time_scale']:g}; it must be above 0, as 2 or 0.5"
        )
    return _trace(trace, options, block_tokens) if drawn is None else _drawn(options, block_tokens)


def _trace(text: str, options: dict[str, Any], block_tokens: int) -> Served:
    from tokenroom.serving.arrivals import OpenLoop
    from tokenroom.serving.workloads.columns import parse_columns
    from tokenroom.serving.workloads.trace import Trace, TraceOptions

    if options["draws_seed"] is not None:
        raise CommandLineError("--seed is of a drawn workload, and nothing of a trace is; leave it")
    columns = options["columns"]
    trace = Trace(
        Path(text),
        TraceOptions(
            format=options["form"],
            columns=None if columns is None else parse_columns(columns),
            skip_bad=options["skip_bad"],
            block_tokens=block_tokens,
        ),
    )
    return Served(trace.path.name, OpenLoop(_part(trace, options)), False)


def _drawn(options: dict[str, Any], block_tokens: int) -> Served:
    from tokenroom.serving.arrivals import OpenLoop
    from tokenroom.serving.workloads.grammar import parse_workload

    for name, of_trace in (("--format", "form"), ("--columns", "columns")):
        if options[of_trace] is not None:
            raise CommandLineError(f"{name} is of a trace, and --workload is drawn; leave it out")
    if options["skip_bad"]:
        raise CommandLineError("--skip-bad is of a trace, and --workload is drawn; leave it out")
    text = options["workload"]
    workload = parse_workload(text, block_tokens=block_tokens)
    if options["draws_seed"] is not None:
        workload = replace(workload, seed=options["draws_seed"])
    if not workload.waits_for_answers:
        return Served(text, OpenLoop(_part(workload, options)), False)
    for name, key in (("--window", "window"), ("--time-scale", "time_scale")):
        if options[key] is not None:
            raise CommandLineError(
                f"{name} is of arrivals that are known beforehand, and users of {shown(text)} wait "
                "for their answers; leave it out"
            )
    if (limit := options["limit"]) is not None:
        most = limit if workload.requests is None else min(limit, workload.requests)
        workload = replace(workload, requests=most)
    return Served(text, workload.start(), workload.users is not None)


def _part(requests: Iterable[Request], options: dict[str, Any]) -> Iterable[Request]:
    """The part that is asked for, in the speed that is asked for."""
    from tokenroom.serving.workloads.reshaping import limited, sped_up, windowed
    from tokenroom.serving.workloads.written_values import window_of

    if options["window"] is not None:
        requests = windowed(requests, *window_of(options["window"], "--window"))
    if options["time_scale"] is not None:
        requests = sped_up(requests, 1 / options["time_scale"])
    return requests if options["limit"] is None else limited(requests, options["limit"])
