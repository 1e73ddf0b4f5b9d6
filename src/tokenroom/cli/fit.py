"""``tokenroom fit``: does a model fit on GPUs, and what takes the memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.deployment_options import (
    SECTIONS,
    deployment_options,
    words_argument,
)
from tokenroom.cli.options import (
    COUNT,
    TOKENS,
    SectionedCommand,
    json_option,
    json_schema_option,
    language_option,
    profile_options,
    say_written,
)
from tokenroom.cli.question import question
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult


class _FitCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Hardware": (*SECTIONS["Hardware"], "profile_name", "profile_file"),
        "Model": SECTIONS["Model"],
        "Load": ("context", "concurrency", "request_tokens", "lengths", "seed"),
        "Engine": SECTIONS["Engine"],
    }


@click.command(
    "fit",
    cls=_FitCommand,
    context_settings={"ignore_unknown_options": False, "max_content_width": 100},
    epilog="After -- comes an engine's own command: tokenroom fit --gpu h100 -- vllm serve MODEL "
    "--max-model-len 32768. Options before it replace what it says.",
)
@words_argument
@deployment_options(
    engine="vllm (the default), or vllm@0.19.0; others: tensorrt-llm, transformers, ...",
    weights="What if the weights were stored as bf16, fp8, fp8_block, int8, awq, gptq, w4a16, nf4, "
    "mxfp4, nvfp4, q4_k_m, ... (a wrong name lists all).",
    assignments="Any other setting of the engine under its own name, as --set enable_lora=true; "
    "may be repeated.",
)
@click.option("--concurrency", type=COUNT, help="Requests wanted at once.")
@click.option(
    "--request", "request_tokens", type=TOKENS, help="Length of one request; --context by default."
)
@click.option(
    "--lengths",
    help="Lengths of a workload's requests (contiguous, paged, hybrid): a file of numbers, "
    "lognormal:MEAN,SIGMA or uniform:LOW,HIGH.",
)
@click.option("--seed", type=COUNT, help="Seed of drawn lengths.")
@click.option("--explain", is_flag=True, help="Show each formula with its numbers and source.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw to FILE (png, svg, pdf)."
)
@click.option(
    "--sweep",
    "sweep_text",
    help="concurrency=1..64, context=4k..128k, block_size=1..128",
)
@click.option(
    "--command",
    "as_command",
    is_flag=True,
    help="Print only the engine's command that starts it, with the files that it reads.",
)
@profile_options
@json_schema_option
@json_option
@language_option
def command(
    words: tuple[str, ...],
    as_json: bool,
    as_command: bool,
    explain: bool,
    plot: Path | None,
    sweep_text: str | None,
    json_schema: bool,
    language: Language,
    **options: Any,
) -> int:
    """Whether MODEL fits on GPUs, what takes the memory, and how many tokens are left.

    MODEL is a catalogue name (see: tokenroom models), a config.json, a checkpoint folder, a GGUF
    file or a Hub id.
    """
    if json_schema:
        from tokenroom.reports.fit_json import schema_text

        click.echo(schema_text(sweep=sweep_text is not None))
        return 0
    swept = None
    if sweep_text is not None:
        from tokenroom.growth import parse_sweep

        swept = parse_sweep(sweep_text)

    if explain and swept is not None:
        raise CommandLineError(
            "--explain shows one answer and --sweep makes many; give one of the two"
        )
    if as_command and (as_json or explain or swept is not None):
        raise CommandLineError(
            "--command prints the command alone; leave out --json, which has it too, --explain and "
            "--sweep"
        )
    check_written({"--plot": plot}, read_files(words, options))
    result = _result(words, options)
    if swept is not None:
        return _show_sweep(result, *swept, as_json=as_json, plot=plot, language=language)
    if plot is not None:
        _plot_memory(result, plot, language)
    if as_command:
        _print_command(result, language)
        return 0 if result.verdict == "fits" else 1
    from tokenroom.serving_speed import usual_speed

    speed = usual_speed(result)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.fit_json import fit_json

        print_json(fit_json(result, language=language, explain=explain, speed=speed.speed))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.fit_text import print_fit

        print_fit(console(), result, language, explain=explain, speed=speed)
    return 0 if result.verdict == "fits" else 1


def _result(words: tuple[str, ...], options: dict[str, Any]) -> FitResult:
    from tokenroom.fitting import fit

    asked = question(words, options, verb="fit")
    accelerator = asked.accelerator
    if options["profile_name"] is not None or options["profile_file"] is not None:
        from tokenroom.cli.hardware_profile import with_memory

        accelerator = with_memory(accelerator, options["profile_name"], options["profile_file"])
    return fit(
        asked.model,
        accelerator,
        concurrency=options["concurrency"],
        request_tokens=options["request_tokens"],
        **asked.settings,
    )


def _print_command(result: FitResult, language: Language) -> None:
    """The command that starts it; what it cannot say goes to stderr."""
    from tokenroom.engines.registry import engine_title
    from tokenroom.reports.messages import notice_text

    launch = result.launch
    if launch is None:
        raise CommandLineError(
            f"--command: {engine_title(result.deployment.engine)} has no command of its own; "
            f"choose an engine that is started by one, such as --engine vllm"
        )
    click.echo(launch.shell_text)
    for notice in launch.notes:
        click.echo(notice_text(notice, language), err=True)


def _show_sweep(
    result: FitResult,
    parameter: str,
    values: tuple[int, ...],
    *,
    as_json: bool,
    plot: Path | None,
    language: Language,
) -> int:
    from tokenroom.growth import sweep
    from tokenroom.reports.progress import progress

    with progress(len(values)) as on_point:
        points = sweep(result, parameter, values, on_point)
    if plot is not None:
        from tokenroom.reports.fit_plots import plot_sweep

        say_written(plot, language, plot_sweep(result, points, parameter, plot, language))
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.fit_json import sweep_json

        print_json(sweep_json(result, points, parameter, language=language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.fit_text import print_sweep

        left_out = sorted(set(values) - {point.value for point in points})
        print_sweep(console(), result, points, parameter, language, left_out=left_out)
    return 0 if any(point.starts for point in points) else 1


def _plot_memory(result: FitResult, path: Path, language: Language) -> None:
    from tokenroom.reports.fit_plots import plot_fit

    say_written(path, language, plot_fit(result, path, language))
