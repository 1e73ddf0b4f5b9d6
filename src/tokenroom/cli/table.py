"""``tokenroom table``: look-up tables for any models and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tokenroom.cli.deployment_options import deployment_options
from tokenroom.cli.options import (
    POSITIVE,
    SECONDS,
    TOKENS,
    SectionedCommand,
    json_option,
    language_option,
    listed,
    of_flag,
    say_written,
)
from tokenroom.cli.question import named_model
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError, TokenroomError
from tokenroom.reports.messages import Language, printable
from tokenroom.units import parse_count, parse_tokens

if TYPE_CHECKING:
    from tokenroom.lookup.table import LookupTable
    from tokenroom.planning.demand import Demand

NAMES: Final = ("params", "kv", "concurrency", "gpus-for-users", "reference")
_MODELS: Final[Mapping[str, str]] = {
    # table: models that it shows unless others are asked for
    "params": "llama-3-8b,llama-3-70b,llama-3.1-405b,qwen2.5-72b,deepseek-v3,mistral-7b-v0.1,"
    "mixtral-8x7b-v0.1",
    "kv": "llama-3-70b",
    "concurrency": "llama-3-8b,llama-3-70b,llama-3-70b@awq,qwen2.5-72b,llama-3.1-405b@fp8",
    "gpus-for-users": "llama-3-8b@awq,llama-3-8b,llama-3-70b,llama-3.1-405b@fp8",
    "reference": "llama-2-7b-hf,llama-2-13b-hf,llama-3-70b,llama-3-70b@awq",
}
_GPUS: Final = {
    "concurrency": "a100-sxm-80gb",
    "gpus-for-users": "h100-sxm-80gb",
    "reference": "rtx-4090,l40s,a100-sxm-80gb",
}
_OF_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    # option: tables that it is of; others are of all
    "gpus": ("concurrency", "gpus-for-users", "reference"),
    "gpu_file": ("concurrency", "gpus-for-users", "reference"),
    "engine": ("concurrency", "gpus-for-users", "reference"),
    "tokens": ("concurrency", "reference"),
    "requests": ("reference",),
    "layouts": ("params",),
    **dict.fromkeys(("batches", "lengths", "kv"), ("kv",)),
    **dict.fromkeys(
        ("users", "input_tokens", "output_tokens", "think_seconds", "tpot", "ttft"),
        ("gpus-for-users",),
    ),
}


class _TableCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Rows and columns": (
            *("models", "gpus", "layouts", "batches", "lengths", "users", "tokens", "requests"),
            *("input_tokens", "output_tokens", "think_seconds", "tpot", "ttft", "engine", "kv"),
        ),
    }
    fields: Mapping[str, tuple[str, ...]] = {
        "users": ("users",),
        "engine": ("engine",),
        "input_tokens": ("input_tokens",),
        "output_tokens": ("output_tokens",),
        "think_seconds": ("think_seconds",),
        "the layout": ("layouts",),
        "the cache type": ("kv",),
    }


@click.command(
    "table",
    cls=_TableCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom table kv --models llama-3-70b,qwen2.5-72b --lengths 4k,32k; tokenroom "
    "table gpus-for-users --models llama-3-70b@fp8 --gpus h100,l40s --think-time 10s",
)
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--models",
    help="Models between commas, MODEL@awq for another layout.  [default: a few, of each table]",
)
@click.option(
    "--gpus",
    help="concurrency, gpus-for-users, reference: kinds of GPU between commas.  [default: "
    "a100-sxm-80gb; h100-sxm-80gb; rtx-4090,l40s,a100-sxm-80gb]",
)
@click.option("--layouts", help="params: layouts of the weights.  [default: bf16,fp8,int8,awq]")
@click.option("--batches", help="kv: requests at once.  [default: 1,4,16,64]")
@click.option("--lengths", help="kv: tokens of a request.  [default: 2048,4096,8192,32768]")
@click.option("--users", help="gpus-for-users: users.  [default: 10,50,100,500,1000]")
@click.option(
    "--tokens",
    type=TOKENS,
    default=4096,
    show_default=True,
    help="concurrency, reference: tokens of a request, and the longest context.",
)
@click.option(
    "--requests",
    type=POSITIVE,
    default=16,
    show_default=True,
    help="reference: requests at once that are enough.",
)
@click.option(
    "--input",
    "input_tokens",
    type=TOKENS,
    default=3072,
    show_default=True,
    help="gpus-for-users: mean prompt.",
)
@click.option(
    "--output",
    "output_tokens",
    type=TOKENS,
    default=1024,
    show_default=True,
    help="gpus-for-users: mean answer.",
)
@click.option(
    "--think-time",
    "think_seconds",
    type=SECONDS,
    help="gpus-for-users: between requests, as 10s.  [default: none]",
)
@click.option(
    "--tpot", type=SECONDS, default="100ms", show_default=True, help="gpus-for-users: mean TPOT."
)
@click.option(
    "--ttft", type=SECONDS, help="gpus-for-users: mean TTFT, at most.  [default: not promised]"
)
@click.option(
    "--engine",
    default="vllm",
    show_default=True,
    help="concurrency, gpus-for-users, reference: the engine.",
)
@click.option("--kv", default="bfloat16", show_default=True, help="kv: type of the cache.")
@deployment_options("gpu_file", "offline", "hub_timeout", "revision", "assume_architecture")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: plain numbers, bytes as bytes.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw a heat map to FILE (png, svg, pdf).",
)
@json_option
@language_option
def command(
    name: str,
    as_json: bool,
    as_markdown: bool,
    as_csv: bool,
    plot: Path | None,
    language: Language,
    **options: Any,
) -> int:
    """A look-up table: params, kv, concurrency, gpus-for-users or reference.

    params: parameters and bytes of weights by layout. kv: bytes of the cache by requests and
    length. concurrency: the pool and the requests it holds. gpus-for-users: GPUs that users need
    under promises. reference: the fewest GPUs, and settings that run enough requests.
    """
    if as_json + as_markdown + as_csv > 1:
        raise CommandLineError("--json, --markdown and --csv are three forms; give one of them")
    _check_options(name)
    if plot is not None:
        from tokenroom.reports.plots import check_plot_file

        check_plot_file(plot)
        check_written({"--plot": plot}, read_files((options["models"] or "").split(","), options))
    table = _table(name, options)
    from tokenroom.reports import lookup_text

    if plot is not None:
        say_written(plot, language, lookup_text.plot_table(table, plot, language))
    if as_json:
        from tokenroom.reports.console import print_json

        print_json(lookup_text.table_json(table, language))
    elif as_markdown:
        click.echo(printable(lookup_text.table_markdown(table, language)), nl=False)
    elif as_csv:
        click.echo(lookup_text.table_csv(table), nl=False)
    else:
        from tokenroom.reports.console import console

        lookup_text.print_table(console(), table, language)
    return 0


def _check_options(name: str) -> None:
    """Refuse options of other tables, which would change nothing."""
    context = click.get_current_context()
    for option in context.command.params:
        of = _OF_TABLES.get(option.name or "", NAMES)
        given = context.get_parameter_source(option.name or "")
        if name not in of and given is ParameterSource.COMMANDLINE:
            raise CommandLineError(
                f"{option.opts[0]} is of the table {' or '.join(of)}, and changes nothing of "
                f"{name}; leave it out"
            )


def _table(name: str, options: dict[str, Any]) -> LookupTable:
    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.lookup import tables
    from tokenroom.reports.progress import progress

    models = _MODELS[name] if options["models"] is None else options["models"]
    with of_flag("--models"):
        specs = [named_model(each, options) for each in listed(models, "--models")]
    if name == "params":
        given = options["layouts"]
        layouts = tables.LAYOUTS if given is None else listed(given, "--layouts")
        return tables.parameters(specs, layouts)
    if name == "kv":
        return tables.kv_cache(
            specs,
            options["kv"],
            _numbers(options["batches"], "--batches", tables.BATCHES),
            _numbers(options["lengths"], "--lengths", tables.LENGTHS, parse_tokens),
        )
    catalogue = load_catalogue(options["gpu_file"])
    with of_flag("--gpus"):
        names = _GPUS[name] if options["gpus"] is None else options["gpus"]
        gpus = [catalogue.find(each) for each in listed(names, "--gpus")]
    with progress(len(specs) * len(gpus), least=2) as moved:
        done = 0

        def on_row() -> None:
            nonlocal done
            done += 1
            if moved is not None:
                moved(done, len(specs) * len(gpus))

        if name == "concurrency":
            return tables.concurrency(
                specs, gpus, tokens=options["tokens"], engine=options["engine"], on_row=on_row
            )
        if name == "reference":
            return tables.reference(
                specs,
                gpus,
                tokens=options["tokens"],
                requests=options["requests"],
                engine=options["engine"],
                on_row=on_row,
            )
        return tables.gpus_for_users(
            specs,
            gpus,
            lambda users: _demand(users, options),
            users=_numbers(options["users"], "--users", tables.USERS),
            engine=options["engine"],
            on_row=on_row,
        )


def _demand(users: int, options: dict[str, Any]) -> Demand:
    from tokenroom.objectives import Objectives
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.lengths import of_means

    lengths = of_means(options["input_tokens"], options["output_tokens"])
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(tpot_seconds=options["tpot"], ttft_seconds=options["ttft"]),
        users=users,
        think_seconds=options["think_seconds"] or 0.0,
    )


def _count(text: str, flag: str) -> int:
    return parse_count(text, flag, 1)


def _numbers(
    text: str | None,
    flag: str,
    usual: tuple[int, ...],
    parse: Callable[[str, str], int] = _count,
) -> tuple[int, ...]:
    """Whole numbers between commas: counts, or tokens with their units."""
    if text is None:
        return usual
    try:
        return tuple(parse(part, flag) for part in listed(text, flag))
    except TokenroomError as error:
        raise CommandLineError(str(error)) from error
