"""``tokenroom compare``: deployments side by side on the same requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tokenroom.cli.options import (
    NUMBER,
    POSITIVE,
    SectionedCommand,
    json_option,
    json_schema_option,
    language_option,
    promise_options,
    promised,
    say_written,
)
from tokenroom.cli.served_deployment import SERVED_SECTIONS
from tokenroom.cli.served_fleet import FLEET_SECTION, servers_options
from tokenroom.cli.served_workload import WORKLOAD_SECTION, workload_options, workload_source
from tokenroom.cli.subjects import are_files, subjects
from tokenroom.cli.variations import VARIED_OPTIONS
from tokenroom.cli.work_options import WORK_SECTION, counted_runs, work_options, working
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import ComparisonError
from tokenroom.files import naming
from tokenroom.reports.messages import Language, message, printable

if TYPE_CHECKING:
    from tokenroom.comparing.comparison import Comparison, Subject
    from tokenroom.serving.metrics import LatencyLimits
    from tokenroom.serving.workloads.source import WorkloadSource

_INTERRUPTED: Final = 128 + 2


class _CompareCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Comparison": ("varied", "seeds", "stretches", "confidence", "ttft", "tpot"),
        "Workload": WORKLOAD_SECTION,
        "Work": WORK_SECTION,
        **SERVED_SECTIONS,
        "Servers": FLEET_SECTION,
    }


@click.command(
    "compare",
    cls=_CompareCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom compare one.yaml two.yaml --trace trace.csv; tokenroom compare "
    "llama-3.1-8b --gpu h100 --vary block-size=16,64 --workload chat:rate=5",
)
@servers_options
@workload_options
@promise_options
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="NAME=A,B,...",
    help="Compare variations of one deployment by an option of it (gpu, engine, kv, block-size, "
    "max-num-seqs, ...), prefix-caching=on,off, chunk-size=..., or a setting of the engine; may be "
    "repeated, for all combinations.",
)
@click.option(
    "--seeds",
    type=POSITIVE,
    help="Draw the workload with so many seeds, from --seed on.  [default: 10]",
)
@click.option(
    "--stretches",
    type=POSITIVE,
    help="Cut a trace into so many stretches of equal time, each served for itself.",
)
@click.option(
    "--confidence",
    type=NUMBER,
    default=0.95,
    show_default=True,
    help="Share of the intervals that hold the true value.",
)
@work_options
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every figure of every run to FILE.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the differences with their intervals to FILE (png, svg, pdf).",
)
@json_schema_option
@json_option
@language_option
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    as_json: bool,
    json_schema: bool,
    language: Language,
    **options: Any,
) -> int:
    """Deployments side by side on the same requests, with how sure the differences are.

    A FILE describes a deployment (YAML, docs/compare.md); or MODEL is served in the variations of
    --vary. A drawn workload is drawn with several seeds, each served by every deployment, and
    differences are told with their confidence intervals over seeds. Exit code 1: one of the
    deployments does not start.
    """
    if json_schema:
        from tokenroom.reports.comparison_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if options["trace"] is not None and options["ray_address"] is not None:
        options["trace"] = str(Path(options["trace"]).absolute())  # workers are in other folders
    check_written(
        {"--csv": options["csv_file"], "--plot": options["plot"]}, read_files(words, options)
    )
    workload = workload_source(options)
    limits = promised(options)
    draws = _draws(options)
    if are_files(words):
        _check_files_alone(context)
    compared = tuple(subjects(words, options, options["varied"], language))
    if all(subject.problem is not None for subject in compared):
        raise ComparisonError(f"{compared[0].name}: {compared[0].problem}")
    if options["csv_file"] is not None:
        from tokenroom.reports.comparison_file import check_comparison_file

        check_comparison_file(options["csv_file"])
    if options["plot"] is not None:
        from tokenroom.reports.plots import check_plot_file

        check_plot_file(options["plot"])
    found = _compared(compared, workload, limits, draws, options, language)
    try:
        _report(found, as_json=as_json, language=language)
    finally:  # neither costs the other: a full disk the report, or `| head` the files
        _write(found, options["csv_file"], options["plot"], language)
    if found.interrupted:
        return _INTERRUPTED
    return 0 if len(found.compared) == len(compared) and not found.problems else 1


def _report(found: Comparison, *, as_json: bool, language: Language) -> None:
    if as_json:
        from tokenroom.reports.comparison_json import comparison_json
        from tokenroom.reports.console import print_json

        print_json(comparison_json(found, language))
    else:
        from tokenroom.reports.comparison_text import print_comparison
        from tokenroom.reports.console import console

        print_comparison(console(), found, language)


def _write(found: Comparison, runs: Path | None, plot: Path | None, language: Language) -> None:
    """Write the files that are asked for."""
    if runs is not None:
        from tokenroom.reports.comparison_file import write_comparison

        with naming(runs):
            write_comparison(found, runs)
        written = message("compare.written", language, file=printable(str(runs)))
        click.echo(written, err=True)
    if plot is None:
        return
    from tokenroom.reports.comparison_plot import has_differences, plot_comparison

    if not has_differences(found):
        warning = message("fit.warning", language) + message("compare.plot.empty", language)
        click.echo(warning, err=True)
        return
    say_written(plot, language, plot_comparison(found, plot, language))


def _draws(options: dict[str, Any]) -> int | None:
    """How often the workload is drawn, or into how many stretches it is cut; None if not said."""
    seeds: int | None = options["seeds"]
    stretches: int | None = options["stretches"]
    if seeds is not None and options["trace"] is not None:
        raise ComparisonError(
            "--seeds is of a drawn workload, and nothing of a trace is drawn; leave it out, or cut "
            "the trace by --stretches"
        )
    if stretches is not None and options["trace"] is None:
        raise ComparisonError(
            "--stretches cuts a trace, and --workload is drawn; give --seeds instead"
        )
    return seeds if stretches is None else stretches


def _check_files_alone(context: click.Context) -> None:
    """Refuse options of a deployment beside files, which have their own."""
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name))
        if option.name in VARIED_OPTIONS and given is not ParameterSource.DEFAULT:
            raise ComparisonError(
                f"{option.opts[0]} is of one deployment, and files describe them; write it there, "
                "or vary it (--vary)"
            )


def _compared(
    compared: Sequence[Subject],
    workload: WorkloadSource,
    limits: LatencyLimits | None,
    draws: int | None,
    options: dict[str, Any],
    language: Language,
) -> Comparison:
    from tokenroom.comparing.comparison import compare
    from tokenroom.comparing.draws import USUAL_SEEDS
    from tokenroom.serving.workloads.source import DrawnSource

    usual = USUAL_SEEDS if isinstance(workload, DrawnSource) else 1
    runs = len(compared) * (draws or usual)
    with working(options) as work, counted_runs(runs, language) as on_outcome:
        return compare(
            compared,
            workload,
            work.executor,
            workers=work.workers,
            draws=draws,
            limits=limits,
            confidence=options["confidence"],
            store=work.store,
            on_outcome=on_outcome,
        )
