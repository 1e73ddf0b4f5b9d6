"""``tokenroom plan``: which deployments hold a demand, what they cost, how to start them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.deployment_options import deployment_options
from tokenroom.cli.options import (
    NUMBER,
    POSITIVE,
    SECONDS,
    Quantity,
    SectionedCommand,
    json_option,
    json_schema_option,
    language_option,
    listed,
    of_flag,
    say_written,
)
from tokenroom.cli.work_options import WORKERS_SECTION, Work, worker_options, working
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError, HardwareError, called, shown
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import parse_arrivals, parse_count

if TYPE_CHECKING:
    from tokenroom.hardware.accelerator import Accelerator
    from tokenroom.hardware.catalogue import Catalogue
    from tokenroom.models.spec import ModelSpec
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.lengths import Lengths
    from tokenroom.planning.search import Plan, Progress, Search

_OBJECTS: Final = 100_000
"""Made since the last look for garbage."""
_INTERRUPTED: Final = 128 + 2
_LOADS: Final = ("users", "concurrency", "rate", "trace")
_TUNED: Final = {
    "token_budgets": "--token-budget",
    "max_num_seqs": "--max-num-seqs",
    "memory_shares": "--util",
    "prefix_caching": "--prefix-caching",
    "kv_offload": "--kv-offload",
    "drafts": "--draft",
}
_STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")


class _PlanCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Load": (
            *("users", "think_seconds", "concurrency", "rate", "burst", "trace", "skip_bad"),
            *("input_text", "output_text", "context", "ttft", "tpot", "keep"),
        ),
        "GPUs": ("gpus_from", "have", "max_gpus", "prices", "budget", "gpu_file"),
        "Deployments": (
            *("engine", "weights", "kv", "offline", "hub_timeout", "revision"),
            *("assume_architecture", "disaggregate"),
        ),
        "Settings of the engine": (
            *("token_budgets", "max_num_seqs", "memory_shares", "prefix_caching"),
            *("kv_offload", "drafts", "own_alone"),
        ),
        "Work": WORKERS_SECTION,
    }
    fields: Mapping[str, tuple[str, ...]] = {
        "longest_tokens": ("context",),
        "requests_per_second": ("rate",),
        "users": ("users", "concurrency"),
        "think_seconds": ("think_seconds",),
        "burst": ("burst",),
        "input": ("input_text",),
        "output": ("output_text",),
        "the budget": ("budget",),
        "a budget": ("budget",),
        "engine": ("engine",),
        "kv": ("kv",),
        "the layout": ("weights",),
        "token_budget": ("token_budgets",),
        "max_num_seqs": ("max_num_seqs",),
        "util": ("memory_shares",),
        "prefix_caching": ("prefix_caching",),
        "kv_offload": ("kv_offload",),
        "drafts": ("drafts",),
    }


@click.command(
    "plan",
    cls=_PlanCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom plan llama-3.1-70b@fp8 --users 1000 --think-time 10s --input 4096 "
    "--output 1024 --ttft 2s --tpot 50ms --gpus-from h100,h200,l40s",
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--users", type=POSITIVE, help="Users who wait for their answers.")
@click.option(
    "--think-time",
    "think_seconds",
    type=SECONDS,
    help="Mean time from an answer to the user's next request, as 10s.",
)
@click.option(
    "--concurrency", type=POSITIVE, help="Instead: clients who each keep one request in flight."
)
@click.option(
    "--rate",
    type=Quantity("RATE", parse_arrivals),
    help="Instead: requests that come at a rate, as 12/s or 300/min.",
)
@click.option(
    "--burst",
    type=NUMBER,
    help="Of a rate: for a tenth of the time so many times as many come.  [default: 1]",
)
@click.option("--trace", help="Instead: a trace, whose lengths and times of arrival count.")
@click.option("--skip-bad", is_flag=True, help="Leave rows of the trace out that are no requests.")
@click.option(
    "--input",
    "input_text",
    metavar="TOKENS",
    help="Prompts: a mean, or a distribution such as lognormal(1024,0.8).  [default: 3072]",
)
@click.option(
    "--output", "output_text", metavar="TOKENS", help="Answers, likewise.  [default: 1024]"
)
@click.option("--ttft", type=SECONDS, help="Promise of the TTFT, as 2s.")
@click.option("--tpot", type=SECONDS, help="Promise of the TPOT, as 50ms.")
@click.option(
    "--keep",
    type=click.Choice(_STATISTICS),
    default="p95",
    show_default=True,
    help="What of all requests has to keep the promises when simulated.",
)
@click.option(
    "--gpus-from",
    "--gpu",
    help="Kinds of GPU to choose from, as h100,l40s,4090.  [default: all known]",
)
@click.option(
    "--have",
    help="GPUs that there are, as 8xa100-80gb,4xl40s; no others are used. Without a load: the most "
    "clients that they hold.",
)
@click.option(
    "--max-gpus",
    type=POSITIVE,
    default=8,
    show_default=True,
    help="The most GPUs of one replica; more than 8 take more hosts.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GPU=USD",
    help="USD of one GPU for an hour, as h100=2.5; may be repeated.",
)
@click.option("--budget", type=NUMBER, help="The most USD an hour that all GPUs may cost.")
@click.option(
    "--engine",
    default="vllm",
    show_default=True,
    help="Engines to choose from, as vllm,sglang, or any.",
)
@click.option(
    "--weights", help="Layouts of the weights to choose from, as fp8,awq.  [default: as named]"
)
@click.option("--kv", help="Types of the KV cache to choose from, as auto,fp8.  [default: auto]")
@deployment_options(
    "context",
    "gpu_file",
    "offline",
    "hub_timeout",
    "revision",
    "assume_architecture",
    context="The longest request, prompt and answer.  [default: the longest that is drawn]",
)
@click.option(
    "--token-budget",
    "token_budgets",
    help="Tokens of a step (vLLM's max_num_batched_tokens, SGLang's chunked_prefill_size), as "
    "auto,4096.  [default: auto and 2048 to 32768]",
)
@click.option(
    "--max-num-seqs", help="Requests at once at most, likewise.  [default: auto and 32 to 1024]"
)
@click.option(
    "--util",
    "memory_shares",
    help="Shares of each GPU's memory, as auto,0.9.  [default: auto and 0.75 to 0.97]",
)
@click.option("--prefix-caching", help="auto, on and off.  [default: auto,off]")
@click.option("--kv-offload", help="Host memory for KV blocks, as none,64GiB.  [default: none]")
@click.option(
    "--draft",
    "drafts",
    help="Speculative decoding, METHOD:TOKENS=MODEL: none,mtp,ngram:3.  [default: none]",
)
@click.option(
    "--engine-defaults", "own_alone", is_flag=True, help="Leave these to the engine, unless given."
)
@click.option(
    "--disaggregate/--no-disaggregate",
    default=True,
    show_default=True,
    help="Also try vLLM's prompts and answers on servers of their own, where it may pay.",
)
@click.option("--top", type=POSITIVE, default=5, show_default=True, help="Plans to look for.")
@click.option("--all", "list_all", is_flag=True, help="A line for each that is not proposed.")
@click.option(
    "--seed",
    type=Quantity("INTEGER", partial(parse_count, least=0)),
    default=0,
    show_default=True,
    help="Of the simulations.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write what starts each plan to DIRECTORY: shell, docker and Kubernetes.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the plans, memory against clients, and length against requests (png, svg, pdf).",
)
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a row for everything that was tried to FILE.",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a report that can be passed on to FILE.",
)
@worker_options
@json_schema_option
@json_option
@language_option
def command(
    models: tuple[str, ...],
    as_json: bool,
    json_schema: bool,
    language: Language,
    **options: Any,
) -> int:
    """Which deployments of MODEL hold a demand, the cheapest first, and how to start them.

    MODEL is a catalogue name (MODEL@fp8 for another layout of its weights), a config.json, a
    checkpoint folder or a Hub id; several are compared. Every kind of GPU, division and type that
    is asked for is judged by its memory and speed, and what is proposed was simulated under the
    load. Exit code 1: nothing meets the promises.
    """
    if json_schema:
        from tokenroom.reports.plan_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    check_written(
        {
            "--plot": options["plot"],
            "--csv": options["csv_file"],
            "--markdown": options["markdown"],
        },
        read_files(models, options),
    )
    if options["plot"] is not None:
        from tokenroom.reports.plots import check_plot_file

        check_plot_file(options["plot"])
    interrupted = False
    with _rare_collections(), working(options) as work, _progress(language) as tell:
        for search in _searches(models, options, work):
            try:
                for step in search.steps():
                    tell(step)
            except KeyboardInterrupt:
                interrupted = True  # what was found is shown, and the exit code says so
            plan = search.plan()
            if interrupted or plan.options:
                break
    _write_files(plan, options, language)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.plan_json import plan_json

        print_json(plan_json(plan, language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.plan_text import print_plan

        print_plan(console(), plan, language, list_all=options["list_all"])
    if interrupted:
        return _INTERRUPTED
    return 0 if plan.options else 1


def _searches(models: tuple[str, ...], options: dict[str, Any], work: Work) -> Iterator[Search]:
    """The search that is asked for; of the most that GPUs at hand take, one for each load."""
    from dataclasses import replace

    from tokenroom.planning.candidates import candidates
    from tokenroom.planning.choices import check_choices, largest_tried
    from tokenroom.planning.most import loads_to_try, most_users
    from tokenroom.planning.prices import prices_by_key
    from tokenroom.planning.search import Search
    from tokenroom.planning.tuned import Verdicts
    from tokenroom.planning.tuning_words import space_of_texts

    space = space_of_texts(
        **{
            name: None if options[name] is None else listed(options[name], flag)
            for name, flag in _TUNED.items()
        },
        own_alone=options["own_alone"],
    )
    demand = _demand(options)
    inventory = _inventory(options)
    accelerators = _accelerators(options, inventory)
    prices = prices_by_key(_prices(options), accelerators)
    specs, engines = _specs(models, options), _engines(options["engine"])
    kv = "auto" if options["kv"] is None else options["kv"]
    kv_types = [None if each == "auto" else each for each in listed(kv, "--kv")]
    with called(_TUNED):
        check_choices(engines, kv_types, space.drafts)
    most = options["max_gpus"]
    found = list(
        candidates(specs, accelerators, engines=engines, kv_types=kv_types, most_gpus=most)
    ) or largest_tried(specs, accelerators, engines=engines, most_gpus=most)
    demands, verdicts = [demand], Verdicts()
    if not any(options[name] is not None for name in _LOADS):
        assert inventory is not None
        users = most_users(found, demand, inventory, space, verdicts)
        demands = [replace(demand, users=each) for each in loads_to_try(users)] or demands
    for each in demands:
        yield Search(
            found,
            each,
            space=space,
            prices=prices,
            inventory=inventory,
            budget_usd_per_hour=options["budget"],
            wanted=options["top"],
            seed=options["seed"],
            split_gpus=options["max_gpus"] if options["disaggregate"] else 0,
            executor=work.executor,
            workers=work.workers,
            verdicts=verdicts if len(demands) > 1 else None,
        )


def _demand(options: dict[str, Any]) -> Demand:
    from tokenroom.objectives import Objectives
    from tokenroom.planning.demand import Demand

    given = [name for name in _LOADS if options[name] is not None]
    if len(given) != 1 and (given or options["have"] is None):
        raise CommandLineError(
            f"the load is given by {' and '.join(f'--{name}' for name in given) or 'nothing'}; "
            "give one of --users, --concurrency, --rate and --trace, or --have alone for the most "
            "clients that those GPUs hold"
        )
    for name, of in (("think_seconds", "users"), ("burst", "rate"), ("skip_bad", "trace")):
        if (
            options[name] not in (None, False)
            and options[of] is None
            and (given or name != "think_seconds")
        ):
            flag = {"think_seconds": "--think-time"}.get(name, "--" + name.replace("_", "-"))
            raise CommandLineError(f"{flag} belongs to --{of}; give that or leave {flag} out")
    if options["ttft"] is None and options["tpot"] is None:
        raise CommandLineError("nothing is promised; give --ttft, --tpot or both")
    requests = None
    if options["trace"] is not None:
        requests, lengths, rate = _traced(options)
    else:
        from tokenroom.planning.lengths import USUAL_TOKENS, of_texts

        given_lengths = (options["input_text"], options["output_text"])
        lengths = of_texts(
            *(
                usual if text is None else text
                for text, usual in zip(given_lengths, map(str, USUAL_TOKENS), strict=True)
            )
        )
        rate = options["rate"]
    longest = options["context"] or lengths.longest_tokens
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=longest,
        lengths=lengths.pairs,
        objectives=Objectives(tpot_seconds=options["tpot"], ttft_seconds=options["ttft"]),
        users=options["users"] or options["concurrency"] or (None if given else 1),
        think_seconds=options["think_seconds"] or 0.0,
        requests_per_second=rate,
        burst=1.0 if options["burst"] is None else options["burst"],
        statistic=options["keep"],
        requests=requests,
    )


def _traced(options: dict[str, Any]) -> tuple[tuple[Any, ...], Lengths, float]:
    """Requests of the trace, their lengths and their mean rate."""
    from tokenroom.planning.lengths import of_requests
    from tokenroom.serving.workloads.trace import Trace, TraceOptions

    for name in ("input_text", "output_text"):
        if options[name] is not None:
            flag = "--" + name.removesuffix("_text")
            raise CommandLineError(f"{flag} is of drawn requests, and --trace has its own")
    trace = Trace(Path(options["trace"]), TraceOptions(skip_bad=options["skip_bad"]))
    requests = tuple(trace)
    lengths = of_requests((each.prompt_tokens, each.output_tokens) for each in requests)
    span = requests[-1].arrival_seconds - requests[0].arrival_seconds
    if not span:
        raise CommandLineError(
            f"--trace {shown(options['trace'])} has all of its requests at one time, so it has no "
            "rate; give --concurrency or a trace with times"
        )
    return requests, lengths, len(requests) / span


def _specs(models: tuple[str, ...], options: dict[str, Any]) -> list[ModelSpec]:
    from tokenroom.cli.question import named_model
    from tokenroom.models.quantization.hypothetical import check_layout
    from tokenroom.planning.candidates import in_each_layout

    layouts = [] if options["weights"] is None else listed(options["weights"], "--weights")
    for layout in layouts:
        check_layout(layout)
    names = in_each_layout(dict.fromkeys(models), layouts)
    return [named_model(name, options) for name in names]


def _accelerators(
    options: dict[str, Any], inventory: Mapping[str, int] | None
) -> list[Accelerator]:
    catalogue = _catalogue(options)
    if inventory is not None:
        return [catalogue.find(key) for key in inventory]
    if options["gpus_from"] is not None:
        with of_flag("--gpus-from"):
            names = listed(options["gpus_from"], "--gpus-from")
            found = [catalogue.find(name) for name in names]
        return list({each.key: each for each in found}.values())
    return list(catalogue)


def _inventory(options: dict[str, Any]) -> dict[str, int] | None:
    if options["have"] is None:
        return None
    if options["gpus_from"] is not None:
        raise CommandLineError("--have and --gpus-from both say which GPUs; give one of them")
    from tokenroom.hardware.names import split_count

    catalogue = _catalogue(options)
    found: dict[str, int] = {}
    for text in filter(None, map(str.strip, options["have"].split(","))):
        count, name = split_count(text)
        if count is None:
            raise HardwareError(
                f"--have says {shown(text)} without a number from 1; write each kind as 8xh100"
            )
        with of_flag("--have"):
            key = catalogue.find(name).key
        found[key] = found.get(key, 0) + count
    if not found:
        raise HardwareError(f"--have is {shown(options['have'])}; write each kind as 8xh100")
    return found


def _catalogue(options: dict[str, Any]) -> Catalogue:
    from tokenroom.hardware.catalogue import load_catalogue

    return load_catalogue(options["gpu_file"])


def _prices(options: dict[str, Any]) -> Iterator[tuple[str, Accelerator, float]]:
    from tokenroom.units import parse_number

    for text in options["prices"]:
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandLineError(f"--price is {shown(text)}; write GPU=USD, as h100=2.5")
        usd = parse_number(value, f"--price {name}")
        if not 0 < usd < float("inf"):
            raise CommandLineError(f"--price {name} is {usd:g}; give USD above 0")
        with of_flag("--price"):
            accelerator = _catalogue(options).find(name)
        yield name, accelerator, usd


def _engines(text: str) -> list[str]:
    if text.strip().lower() == "any":
        return ["vllm", "sglang", "tensorrt-llm", "llama.cpp"]
    return listed(text, "--engine")


def _write_files(plan: Plan, options: dict[str, Any], language: Language) -> None:
    if options["csv_file"] is not None:
        from tokenroom.reports.plan_csv import write_csv

        write_csv(plan, options["csv_file"], language)
    if options["markdown"] is not None:
        from tokenroom.reports.plan_markdown import write_markdown

        write_markdown(plan, options["markdown"], language)
    if options["folder"] is not None and plan.options:
        from tokenroom.reports.plan_files import write_artefacts

        names = write_artefacts(plan, options["folder"])
        told = message(
            "plan.written",
            language,
            folder=printable(str(options["folder"])),
            files=", ".join(names),
        )
        click.echo(told, err=True)
    if options["plot"] is not None and plan.options:
        from tokenroom.reports.plan_plot import plot_plan

        say_written(options["plot"], language, plot_plan(plan, options["plot"], language))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles of garbage less often: what a search makes lives as long as it.

    Going over all of it again and again takes a tenth of the time of a short one.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def _progress(language: Language) -> Iterator[Any]:
    """What shows on a terminal how far the search is, on one line of standard error."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from tokenroom.reports.plan_text import deployment_text

    def tell(step: Progress) -> None:
        line = message(
            "plan.judging" if step.phase == "judge" else "plan.verifying",
            language,
            done=step.done,
            of=step.of,
            subject=deployment_text(step.subject, language),
        )
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
