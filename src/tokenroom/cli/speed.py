"""``tokenroom speed``: how fast a deployment serves, and what limits it."""

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
    NUMBER,
    SECONDS,
    TOKENS,
    Quantity,
    SectionedCommand,
    json_option,
    json_schema_option,
    language_option,
    price_option,
    profile_options,
    say_written,
)
from tokenroom.cli.question import question
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language
from tokenroom.units import parse_arrivals, parse_rate

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult
    from tokenroom.serving_speed import ServingSpeed


class _SpeedCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Load": (
            *("input_tokens", "output_tokens", "concurrency", "rate", "num_prompts", "tpot"),
            *("ttft", "acceptance"),
        ),
        **SECTIONS,
        "Speed": ("host_bandwidth", "profile_name", "profile_file", "price"),
    }


@click.command(
    "speed",
    cls=_SpeedCommand,
    context_settings={"max_content_width": 100},
    epilog="After -- comes an engine's own command: tokenroom speed --gpu h100 -- vllm serve MODEL "
    "--max-num-batched-tokens 4096",
)
@words_argument
@click.option(
    "--input",
    "input_tokens",
    type=TOKENS,
    default=1024,
    show_default=True,
    help="Prompt of a request.",
)
@click.option(
    "--output",
    "output_tokens",
    type=TOKENS,
    default=256,
    show_default=True,
    help="Tokens it gets.",
)
@click.option(
    "--concurrency",
    type=COUNT,
    help="Clients that each keep one request in flight.  [default: 32, as far as they run at once]",
)
@click.option(
    "--rate",
    type=Quantity("RATE", parse_arrivals),
    help="Requests that come at a rate instead, whatever is answered, as 5/s or 300/min.",
)
@click.option(
    "--num-prompts",
    type=COUNT,
    help="Requests of a benchmark in all, the first of each client at once; steady without it.",
)
@click.option(
    "--tpot", type=SECONDS, help="Find the largest load of this mean TPOT at most, as 50ms."
)
@click.option("--ttft", type=SECONDS, help="The same of the mean TTFT, as 2s.")
@deployment_options()
@click.option(
    "--acceptance",
    type=NUMBER,
    help="Share of drafted tokens that are kept (0 to 1), or mean tokens of a step (above 1).",
)
@click.option(
    "--host-bandwidth",
    type=Quantity("RATE", parse_rate),
    help="Peak of the host's memory, as 90GB/s, for layers that llama.cpp leaves there.",
)
@profile_options
@price_option
@click.option("--sweep", "sweep_text", help="concurrency=1..256")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw a sweep to FILE (png, svg).",
)
@click.option("--explain", is_flag=True, help="Show every operator of a prefill and a decode step.")
@json_schema_option
@json_option
@language_option
def command(
    words: tuple[str, ...],
    as_json: bool,
    explain: bool,
    plot: Path | None,
    sweep_text: str | None,
    json_schema: bool,
    language: Language,
    **options: Any,
) -> int:
    """How fast MODEL serves: TTFT, TPOT, throughput, and what limits them.

    MODEL is a catalogue name (see: tokenroom models), a config.json, a checkpoint folder, a GGUF
    file or a Hub id.
    """
    if json_schema:
        from tokenroom.reports.speed_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0

    if explain and sweep_text is not None:
        raise CommandLineError(
            "--explain shows one answer and --sweep makes many; give one of the two"
        )
    if plot is not None and sweep_text is None:
        raise CommandLineError("--plot draws a sweep; give --sweep concurrency=1..256 too")
    check_written({"--plot": plot}, read_files(words, options))
    values = None if sweep_text is None else _values(sweep_text)
    wanted = {f"{name}_seconds": options[name] for name in ("tpot", "ttft") if options[name]}
    if wanted and values is None and options["concurrency"] is not None:
        raise CommandLineError(
            "--concurrency sets the load that --tpot and --ttft are to find; leave it out, or give "
            "--sweep to see which loads keep them"
        )
    _check_load(options, searched=bool(wanted), swept=values is not None)

    from tokenroom.serving_speed import DoesNotFitError

    try:
        result = _result(words, options)
    except DoesNotFitError as refused:
        return _show_refusal(refused.fit, as_json=as_json, language=language)
    if values is not None:
        points = _points(result, values)
        return _show_sweep(points, wanted, as_json=as_json, plot=plot, language=language)
    return _show(result, wanted, as_json=as_json, explain=explain, language=language)


def _check_load(options: dict[str, Any], *, searched: bool, swept: bool) -> None:
    """Refuse what says the load twice."""
    others = {"--concurrency": options["concurrency"] is not None}
    others |= {"--tpot and --ttft": searched, "--sweep": swept}
    if options["rate"] is not None:
        others["--num-prompts"] = options["num_prompts"] is not None
        for name, given in others.items():
            if given:
                raise CommandLineError(f"--rate and {name} both set the load; give one of the two")
    elif options["num_prompts"] is not None and (searched or swept):
        raise CommandLineError(
            "--num-prompts is of one benchmark, and --tpot, --ttft and --sweep try many steady "
            "loads; give --concurrency with it"
        )


def _values(text: str) -> tuple[int, ...]:
    from tokenroom.growth import parse_sweep

    parameter, values = parse_sweep(text)
    if parameter != "concurrency":
        raise CommandLineError(
            f"--sweep is {shown(text)}; speed varies concurrency only, such as concurrency=1..256"
        )
    return values


def _points(result: ServingSpeed, values: tuple[int, ...]) -> list[ServingSpeed]:
    from tokenroom.reports.progress import progress

    points = []
    with progress(len(values)) as on_point:
        for done, value in enumerate(values, start=1):
            points.append(result.at(value))
            if on_point is not None:
                on_point(done, len(values))
    return points


def _result(words: tuple[str, ...], options: dict[str, Any]) -> ServingSpeed:
    from tokenroom.serving_speed import speed

    profile = None
    if options["profile_name"] is not None or options["profile_file"] is not None:
        from tokenroom.cli.calibrate import named_profile

        _, profile = named_profile(options["profile_name"], options["profile_file"])
    asked = question(words, options, verb="speed")
    return speed(
        asked.model,
        asked.accelerator,
        input_tokens=options["input_tokens"],
        output_tokens=options["output_tokens"],
        concurrency=options["concurrency"],
        num_prompts=options["num_prompts"],
        request_rate=options["rate"],
        acceptance=options["acceptance"],
        host_bandwidth=options["host_bandwidth"],
        price_per_gpu_hour=options["price"],
        profile=profile,
        **asked.settings,
    )


def _show_refusal(result: FitResult, *, as_json: bool, language: Language) -> int:
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.speed_json import refusal_json

        print_json(refusal_json(result, language=language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.speed_text import print_refusal

        print_refusal(console(), result, language)
    return 1


def _show(
    result: ServingSpeed,
    wanted: dict[str, float],
    *,
    as_json: bool,
    explain: bool,
    language: Language,
) -> int:
    """One load: the one asked for, or the largest that keeps what is wanted."""
    from tokenroom.regimes import regimes_of

    limits = None
    regimes = regimes_of(result)
    if wanted:
        from tokenroom.objectives import load_limits

        limits = load_limits(result, **wanted)
        result = limits.load.point or limits.alone
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.speed_json import speed_json

        print_json(speed_json(result, regimes, language=language, limits=limits, explain=explain))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.speed_text import print_speed

        print_speed(console(), result, regimes, language, limits=limits, explain=explain)
    behind = result.arrivals is not None and result.arrivals.falls_behind
    return 1 if behind or (limits is not None and not limits.met) else 0


def _show_sweep(
    points: list[ServingSpeed],
    wanted: dict[str, float],
    *,
    as_json: bool,
    plot: Path | None,
    language: Language,
) -> int:
    from tokenroom.objectives import Objectives
    from tokenroom.regimes import regimes_of

    objectives = Objectives(**wanted) if wanted else None
    regimes = regimes_of(points[0])
    if plot is not None:
        from tokenroom.reports.speed_plot import plot_speed_sweep

        say_written(plot, language, plot_speed_sweep(points, regimes, plot, language))
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.speed_json import speed_sweep_json

        print_json(speed_sweep_json(points, regimes, language=language, objectives=objectives))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.speed_text import print_speed_sweep

        print_speed_sweep(console(), points, regimes, language, objectives=objectives)
    return 0
