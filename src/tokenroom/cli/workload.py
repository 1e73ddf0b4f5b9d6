"""``tokenroom workload``: what a trace or a drawn workload is like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.options import (
    COUNT,
    NUMBER,
    TOKENS,
    json_option,
    json_schema_option,
    language_option,
    trace_options,
    window_option,
)
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.reports.workload_text import Described
    from tokenroom.serving.request import Request
    from tokenroom.serving.workloads.trace import Trace

_STEP_BYTES: Final = 2**15
_STEP_REQUESTS: Final = 2000


@click.command(
    "workload",
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom workload trace.jsonl.gz; tokenroom workload "
    "'gamma:rate=5,cv=2,input=lognormal(1024,0.8),output=256'; tokenroom workload chat:rate=2",
)
@click.argument("workload", required=False, metavar="[FILE|DESCRIPTION]")
@trace_options
@click.option(
    "--block-size",
    type=COUNT,
    help="Tokens in a KV block of the deployment, for the prefix cache: 16, or a trace's own.",
)
@window_option
@click.option("--speed-up", type=NUMBER, help="Divide all gaps by it: 2 doubles the rate.")
@click.option("--requests", type=COUNT, help="Only the first so many.")
@click.option(
    "--max-model-len", type=TOKENS, help="Count the requests that exceed it, as 32k (k is 1024)."
)
@click.option("--presets", is_flag=True, help="List the presets with their sources and stop.")
@json_schema_option
@json_option
@language_option
def command(
    workload: str | None,
    as_json: bool,
    language: Language,
    presets: bool,
    json_schema: bool,
    **options: Any,
) -> int:
    """What a trace or a drawn workload is like: lengths, rate, bursts, prefix hits.

    A FILE is a trace: Azure's, BurstGPT's, Vidur's, Mooncake's or Bailian's, a log of an
    OpenAI-style API, detailed output of vLLM's or SGLang's benchmark, or any CSV, JSON Lines or
    Parquet whose columns are named. A DESCRIPTION is a process (poisson, gamma, constant, diurnal,
    bursts, batch, users) or a preset, with its parts.
    """
    if json_schema:
        from tokenroom.reports.workload_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if presets:
        _print_presets(as_json=as_json, language=language)
        return 0
    if workload is None:
        raise CommandLineError(
            "no workload is given; name a trace, or describe one, as in: tokenroom workload "
            "poisson:rate=5,input=1024,output=256 (tokenroom workload --presets lists more)"
        )
    found = _described(workload, options, language)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.workload_json import workload_json

        print_json(workload_json(found, language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.workload_text import print_workload

        print_workload(console(), found, language)
    return 0


def _print_presets(*, as_json: bool, language: Language) -> None:
    from tokenroom.reports.console import console, print_json
    from tokenroom.reports.workload_json import presets_json
    from tokenroom.reports.workload_text import print_presets
    from tokenroom.serving.workloads.presets import load_presets

    presets = list(load_presets().values())
    if as_json:
        print_json(presets_json(presets, language))
    else:
        print_presets(console(), presets, language)


def _described(text: str, options: dict[str, Any], language: Language) -> Described:
    """The workload and its figures."""
    from tokenroom.serving.workloads.grammar import is_description

    if _exists(text) or not is_description(text):
        return _trace(text, options)
    for name, given in (("--format", options["form"]), ("--columns", options["columns"])):
        if given is not None:
            raise CommandLineError(
                f"{name} is of a trace, and {shown(text)} is drawn; leave it out"
            )
    from tokenroom.reports.workload_text import Described, sources_of
    from tokenroom.serving.workloads.grammar import parse_workload
    from tokenroom.serving.workloads.presets import load_presets
    from tokenroom.serving.workloads.summary import summarise

    block_tokens = _block_size(options) or 16
    drawn = parse_workload(text, block_tokens=block_tokens)
    preset = load_presets().get(text.partition(":")[0].strip())
    summary = summarise(
        _reshaped(drawn, options),
        block_tokens=block_tokens,
        max_model_len=options["max_model_len"],
        timed=not drawn.waits_for_answers,
    )
    return Described(
        name=text,
        title=None,
        summary=summary,
        sources=() if preset is None else sources_of(preset, language),
    )


def _trace(text: str, options: dict[str, Any]) -> Described:
    from tokenroom.reports.workload_text import Described
    from tokenroom.serving.workloads.columns import parse_columns
    from tokenroom.serving.workloads.grammar import PROCESSES
    from tokenroom.serving.workloads.presets import load_presets
    from tokenroom.serving.workloads.summary import summarise
    from tokenroom.serving.workloads.trace import FORMATS, Trace, TraceOptions

    if not _exists(text):
        raise CommandLineError(
            f"{shown(text)} is neither a file nor a description; a description begins with "
            f"{', '.join(PROCESSES)}, or a preset ({', '.join(load_presets())})"
        )
    trace = Trace(
        text,
        TraceOptions(
            format=options["form"],
            columns=None if options["columns"] is None else parse_columns(options["columns"]),
            skip_bad=options["skip_bad"],
            block_tokens=_block_size(options),
            count_ids=True,
        ),
    )
    with _progress(trace) as watched:
        summary = summarise(
            _reshaped(watched, options),
            block_tokens=trace.block_tokens,
            max_model_len=options["max_model_len"],
        )
    whole = options["window"] is None and options["requests"] is None
    return Described(
        name=trace.path.name,
        title=FORMATS[trace.format],
        summary=summary,
        moved=trace.order.moved,
        left_out=trace.bad.counts,
        first_lines=trace.bad.first_lines,
        trace_block_tokens=trace.trace_block_tokens,
        trace_hit_ratio=trace.ids.hit_ratio if whole and trace.ids is not None else None,
    )


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # longer than names of files may be
        return False


def _block_size(options: dict[str, Any]) -> int | None:
    size: int | None = options["block_size"]
    if size is not None and size < 1:
        raise CommandLineError(f"--block-size is {size}; it must be at least 1 token")
    return size


def _reshaped(requests: Iterable[Request], options: dict[str, Any]) -> Iterable[Request]:
    """The part that is asked for, in the speed that is asked for."""
    from tokenroom.serving.workloads.reshaping import limited, sped_up, windowed
    from tokenroom.serving.workloads.written_values import window_of

    if options["window"] is not None:
        requests = windowed(requests, *window_of(options["window"], "--window"))
    if options["speed_up"] is not None:
        requests = sped_up(requests, options["speed_up"])
    if options["requests"] is not None:
        requests = limited(requests, options["requests"])
    return requests


@contextmanager
def _progress(trace: Trace) -> Iterator[Iterable[Request]]:
    """The trace's requests, with a bar on a terminal while a large one is read."""
    from tokenroom.reports.progress import progress

    _, total = trace.progress
    steps = (total or 0) // _STEP_BYTES
    with progress(steps) as step:
        yield trace if step is None else _stepped(trace, step, steps)


def _stepped(trace: Trace, step: Callable[[int, int], None], steps: int) -> Iterator[Request]:
    for number, request in enumerate(trace):
        if not number % _STEP_REQUESTS:
            step(trace.progress[0] // _STEP_BYTES, steps)
        yield request
