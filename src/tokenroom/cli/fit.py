"""``tokenroom fit``: does a model fit on GPUs, and what takes the memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.options import (
    COUNT,
    NUMBER,
    TOKENS,
    Quantity,
    SectionedCommand,
    gpu_file_option,
    json_option,
    language_option,
    say_written,
)
from tokenroom.cli.question import question
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language
from tokenroom.units import MIB, parse_bytes, parse_rate

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult

_MAX_SECONDS = 86_400


def _parse_size(text: str, field: str) -> int:
    """Bytes of at least a MiB: less is a slip of the unit (``1B`` for a billion)."""
    num_bytes = parse_bytes(text, field)
    if num_bytes < MIB:
        raise CommandLineError(f"{field} is {shown(text)}; give at least 1MiB, such as 4GiB")
    return num_bytes


def _parse_size_or_nothing(text: str, field: str) -> int:
    return 0 if re.fullmatch(r"\s*0+(\.0*)?\s*[a-zA-Z]{0,3}\s*", text) else _parse_size(text, field)


def _parse_seconds(text: str, field: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:  # nan, too, fails this
        raise CommandLineError(
            f"{field} is {shown(text)}; give seconds above 0 and at most {_MAX_SECONDS:,}"
        )
    return seconds


_SIZE = Quantity("SIZE", _parse_size)
_SIZE_OR_NOTHING = Quantity("SIZE", _parse_size_or_nothing)
_RATE = Quantity("RATE", parse_rate)
_SECONDS = Quantity("SECONDS", _parse_seconds)


class _FitCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Hardware": ("gpu", "gpus", "gpu_memory", "bandwidth", "used", "ram", "gpu_file"),
        "Model": ("weights", "dtype", "assume_architecture", "revision", "offline", "hub_timeout"),
        "Load": ("context", "concurrency", "request_tokens", "lengths", "seed"),
        "Engine": (
            *("engine", "tp", "pp", "dp", "ep", "kv", "util", "max_num_seqs"),
            *("max_num_batched_tokens", "block_size", "kv_cache_memory", "cpu_offload"),
            *("enforce_eager", "usage", "from_file", "service", "assignments"),
        ),
    }


@click.command(
    "fit",
    cls=_FitCommand,
    context_settings={"ignore_unknown_options": False, "max_content_width": 100},
    epilog="After -- comes an engine's own command: tokenroom fit --gpu h100 -- vllm serve MODEL "
    "--max-model-len 32768. Options before it replace what it says.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL] [-- COMMAND...]")
@click.option("--gpu", help="GPU: a name such as h100, l40s, 4090 (see: tokenroom gpus).")
@click.option("--gpus", type=COUNT, help="How many GPUs; as many as the parallel sizes need.")
@click.option("--gpu-memory", type=_SIZE, help="Memory of a GPU that is not listed, as 96GiB.")
@click.option("--bandwidth", type=_RATE, help="Its memory bandwidth, as 3.35TB/s.")
@click.option("--used", type=_SIZE_OR_NOTHING, help="Memory that other processes hold on each GPU.")
@click.option(
    "--engine", help="vllm (the default), or vllm@0.19.0; others: tensorrt-llm, transformers, ..."
)
@click.option("--tp", type=COUNT, help="Tensor-parallel size.")
@click.option("--pp", type=COUNT, help="Pipeline-parallel size.")
@click.option("--dp", type=COUNT, help="Data-parallel size.")
@click.option("--ep", is_flag=True, default=None, help="Expert parallelism.")
@click.option("--context", type=TOKENS, help="max_model_len, as 32k (k is 1024).")
@click.option("--concurrency", type=COUNT, help="Requests wanted at once.")
@click.option(
    "--request", "request_tokens", type=TOKENS, help="Length of one request; --context by default."
)
@click.option(
    "--weights",
    help="What if the weights were stored as bf16, fp8, fp8_block, int8, awq, gptq, w4a16, nf4, "
    "mxfp4, nvfp4, q4_k_m, ... (a wrong name lists all).",
)
@click.option("--kv", help="KV cache type, as fp8.")
@click.option("--util", type=NUMBER, help="gpu_memory_utilization, 0 to 1.")
@click.option("--dtype", help="Type the model runs in, as bfloat16.")
@click.option("--max-num-seqs", type=COUNT, help="Requests in a step.")
@click.option("--max-num-batched-tokens", type=TOKENS, help="Token budget of a step.")
@click.option("--block-size", type=COUNT, help="Tokens of a KV block.")
@click.option("--kv-cache-memory", type=_SIZE, help="KV pool of this size, utilisation ignored.")
@click.option("--cpu-offload", type=_SIZE_OR_NOTHING, help="Weights kept in host memory, a GPU.")
@click.option("--ram", type=_SIZE, help="Memory of the host, of engines that place parts there.")
@click.option("--enforce-eager", is_flag=True, default=None, help="No CUDA graphs.")
@click.option(
    "--usage",
    type=click.Choice(["server", "llm"]),
    help="Defaults of `vllm serve` or of the offline LLM class.",
)
@click.option(
    "--from",
    "from_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="A file with the engine's command: shell, docker, compose or Kubernetes (- for stdin).",
)
@click.option("--service", help="Which service or container of that file.")
@click.option("--assume-architecture", help="Read an unknown model_type as this known one.")
@click.option("--revision", help="Revision on the Hub.")
@click.option("--offline", is_flag=True, help="Never ask the Hub.")
@click.option("--hub-timeout", type=_SECONDS, help="Seconds to wait for the Hub.")
@click.option(
    "--lengths",
    help="Lengths of a workload's requests (contiguous, paged, hybrid): a file of numbers, "
    "lognormal:MEAN,SIGMA or uniform:LOW,HIGH.",
)
@click.option("--seed", type=COUNT, help="Seed of drawn lengths.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting of the engine under its own name, as --set enable_lora=true; may be "
    "repeated.",
)
@click.option("--explain", is_flag=True, help="Show each formula with its numbers and source.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw to FILE (png, svg, pdf).")
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
@click.option("--json-schema", is_flag=True, help="Print the JSON schema of --json and stop.")
@json_option
@gpu_file_option
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
    for name in ("engine", "kv", "weights", "gpu", "service", "dtype", "revision"):
        if options[name] is not None and not options[name].strip():
            raise CommandLineError(f"--{name} is empty; give a value or leave it out")
    if explain and swept is not None:
        raise CommandLineError(
            "--explain shows one answer and --sweep makes many; give one of the two"
        )
    if as_command and (as_json or explain or swept is not None):
        raise CommandLineError(
            "--command prints the command alone; leave out --json, which has it too, --explain and "
            "--sweep"
        )
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
    return fit(
        asked.model,
        asked.accelerator,
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
