"""``tokenroom fit``: does a model fit on GPUs, and what takes the memory."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.options import (
    TOKENS,
    Quantity,
    gpu_file_option,
    json_option,
    language_option,
    named_count,
    say_written,
)
from tokenroom.errors import CommandLineError, HardwareError
from tokenroom.reports.messages import Language
from tokenroom.units import MIB, parse_bytes, parse_rate

if TYPE_CHECKING:
    from tokenroom.engines.command_line import ParsedCommand
    from tokenroom.fitting import FitResult
    from tokenroom.hardware.accelerator import Accelerator
    from tokenroom.models.spec import ModelSpec

_MAX_COMMAND_BYTES = 2**20
_MAX_SECONDS = 86_400


def _parse_size(text: str, field: str) -> int:
    """Bytes of at least a MiB: less is a slip of the unit (``1B`` for a billion)."""
    num_bytes = parse_bytes(text, field)
    if num_bytes < MIB:
        raise CommandLineError(f"{field} is {text!r}; give at least 1MiB, such as 4GiB")
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
            f"{field} is {text!r}; give seconds above 0 and at most {_MAX_SECONDS:,}"
        )
    return seconds


_SIZE = Quantity("SIZE", _parse_size)
_SIZE_OR_NOTHING = Quantity("SIZE", _parse_size_or_nothing)
_RATE = Quantity("RATE", parse_rate)
_SECONDS = Quantity("SECONDS", _parse_seconds)


@click.command(
    "fit",
    context_settings={"ignore_unknown_options": False, "max_content_width": 100},
    epilog="After -- comes an engine's own command: tokenroom fit --gpu h100 -- vllm serve MODEL "
    "--max-model-len 32768",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL] [-- COMMAND...]")
@click.option("--gpu", help="GPU: a name such as h100, l40s, 4090 (see: tokenroom gpus).")
@click.option("--gpus", type=int, help="How many GPUs; as many as the parallel sizes need.")
@click.option("--gpu-memory", type=_SIZE, help="Memory of a GPU that is not listed, as 96GiB.")
@click.option("--bandwidth", type=_RATE, help="Its memory bandwidth, as 3.35TB/s.")
@click.option("--used", type=_SIZE_OR_NOTHING, help="Memory that other processes hold on each GPU.")
@click.option(
    "--engine", help="vllm (the default), or vllm@0.19.0; others: tensorrt-llm, transformers, ..."
)
@click.option("--tp", type=int, help="Tensor-parallel size.")
@click.option("--pp", type=int, help="Pipeline-parallel size.")
@click.option("--dp", type=int, help="Data-parallel size.")
@click.option("--ep", is_flag=True, default=None, help="Expert parallelism.")
@click.option("--context", type=TOKENS, help="max_model_len, as 32k (k is 1024).")
@click.option("--concurrency", type=int, help="Requests wanted at once.")
@click.option(
    "--request", "request_tokens", type=TOKENS, help="Length of one request; --context by default."
)
@click.option("--weights", help="What if the weights were fp8, int8, awq, gptq, nf4, mxfp4, ...")
@click.option("--kv", help="KV cache type, as fp8.")
@click.option("--util", type=float, help="gpu_memory_utilization, 0 to 1.")
@click.option("--dtype", help="Type the model runs in, as bfloat16.")
@click.option("--max-num-seqs", type=int, help="Requests in a step.")
@click.option("--max-num-batched-tokens", type=TOKENS, help="Token budget of a step.")
@click.option("--block-size", type=int, help="Tokens of a KV block.")
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
@click.option("--seed", type=int, help="Seed of drawn lengths.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting of the engine under its own name; may be repeated.",
)
@click.option("--explain", is_flag=True, help="Show each formula with its numbers and source.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw to FILE (png, svg, pdf).")
@click.option(
    "--sweep",
    "sweep_text",
    help="concurrency=1..64, context=4k..128k, block_size=1..128",
)
@click.option("--json-schema", is_flag=True, help="Print the JSON schema of --json and stop.")
@json_option
@gpu_file_option
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
    result = _result(words, options)
    if swept is not None:
        return _show_sweep(result, *swept, as_json=as_json, plot=plot, language=language)
    if plot is not None:
        _plot_memory(result, plot, language)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.fit_json import fit_json

        print_json(fit_json(result, language=language, explain=explain))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.fit_text import print_fit

        print_fit(console(), result, language, explain=explain)
    return 0 if result.verdict == "fits" else 1


def _result(words: tuple[str, ...], options: dict[str, Any]) -> FitResult:
    from tokenroom.fitting import fit

    parsed, model = _command(words, options)
    settings = parsed.settings if parsed is not None else None
    engine = options["engine"] or (parsed.engine if parsed is not None else "vllm")
    if parsed is not None and parsed.version is not None and "@" not in engine:
        engine = f"{engine}@{parsed.version}"
    gpus = options["gpus"]
    if gpus is None and parsed is not None:
        gpus = parsed.gpus
    if options["gpu"] is not None:
        gpus = named_count(options["gpu"], options["gpus"]) or gpus
    extra = {
        "dtype": options["dtype"],
        "max_num_seqs": options["max_num_seqs"],
        "max_num_batched_tokens": options["max_num_batched_tokens"],
        "block_size": options["block_size"],
        "kv_cache_memory_bytes": options["kv_cache_memory"],
        "cpu_offload_bytes": options["cpu_offload"],
        "host_memory_bytes": options["ram"],
        "enforce_eager": options["enforce_eager"],
        "usage": options["usage"],
        "lengths": _lengths(options["lengths"]),
        "seed": options["seed"],
    }
    given = {name: value for name, value in extra.items() if value is not None}
    given |= dict(map(_assignment, options["assignments"]))
    spec = _model(model, options)
    notes = parsed.notes if parsed is not None else ()
    assumed = options["assume_architecture"]
    if assumed is not None and not any(f"read as {assumed}" in said for said in spec.assumptions):
        notes += (
            f"--assume-architecture {assumed} was not needed: {spec.name} is of the known type "
            f"{spec.model_type}",
        )
    result = fit(
        spec,
        _accelerator(options, parsed),
        gpus=gpus,
        engine=engine,
        tp=options["tp"],
        pp=options["pp"],
        dp=options["dp"],
        ep=options["ep"],
        context=options["context"],
        concurrency=options["concurrency"],
        request_tokens=options["request_tokens"],
        weights=options["weights"] or (parsed.weights if parsed is not None else None),
        kv=options["kv"],
        util=options["util"],
        used_bytes=options["used"] or 0,
        settings=settings,
        notes=notes,
        **given,
    )
    return result


def _assignment(text: str) -> tuple[str, Any]:
    """A setting written ``NAME=VALUE``: a number, true, false, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandLineError(f"--set is {text!r}; write NAME=VALUE, such as block_size=32")
    import json  # numbers, booleans and lists as everybody writes them

    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):
        return name.strip().replace("-", "_"), value


def _lengths(text: str | None) -> str | None:
    """The text itself, or what the file of that name holds."""
    if text is None or not os.path.isfile(text):
        return text
    return _read_text(Path(text), "--lengths")


def _command(words: tuple[str, ...], options: dict[str, Any]) -> tuple[ParsedCommand | None, str]:
    """The engine's own command, when there is one, and the model's name."""
    from tokenroom.engines.registry import chosen_start, command_parser, program_names

    from_file: Path | None = options["from_file"]
    named, _, version = (options["engine"] or "").strip().lower().partition("@")
    if from_file is not None:
        if words:
            raise CommandLineError(
                f"--from reads the whole command from {from_file}; leave out {' '.join(words)!r}"
            )
        text: str | tuple[str, ...] = _read_text(from_file, "--from")
    elif len(words) == 1 and (not any(char.isspace() for char in words[0]) or _is_path(words[0])):
        if options["service"] is not None:
            raise CommandLineError(
                f"--service is {options['service']!r}, which chooses in a deployment file; give "
                f"that with --from, or leave --service out"
            )
        if words[0] in program_names() and not _is_path(words[0]):
            raise CommandLineError(
                f"{words[0]!r} alone names no model; give the engine's whole command, or the "
                f"model's name"
            )
        return None, words[0]
    elif words:
        text = words
    else:
        raise CommandLineError(
            "no model is given; name one (tokenroom fit llama-3.1-8b --gpu h100), or an engine's "
            "command after -- (tokenroom fit --gpu h100 -- vllm serve MODEL)"
        )
    started, chosen = chosen_start(
        text, os.environ, service=options["service"], engine=named or None
    )
    if options["engine"] is not None and named != started:
        raise CommandLineError(
            f"--engine is {options['engine']!r} and the command starts {started}; leave --engine "
            f"out, or give only its version ({started}@VERSION)"
        )
    parsed = command_parser(started)(
        chosen,
        environment=os.environ,
        allow_files=True,
        version=version or None,
    )
    return parsed, parsed.model


def _is_path(word: str) -> bool:
    """Whether a word with blanks names a file or folder, and is no command."""
    try:
        return os.path.exists(os.path.expanduser(word))
    except (OSError, ValueError):
        return False


def _read_text(path: Path, option: str) -> str:
    from tokenroom.files import decoded, read_bounded_text

    what = f"{option} {path}"
    if str(path) != "-":
        return read_bounded_text(
            path, _MAX_COMMAND_BYTES, what=what, error=CommandLineError, streams=True
        )
    if sys.stdin is None:
        raise CommandLineError(f"{what} cannot be read: standard input is closed; name a file")
    try:
        data = sys.stdin.buffer.read(_MAX_COMMAND_BYTES + 1)
    except OSError as error:
        raise CommandLineError(f"{what} cannot be read: {error.strerror}; name a file") from error
    if len(data) > _MAX_COMMAND_BYTES:
        raise CommandLineError(f"{what} is larger than 1 MiB; give less")
    return decoded(data, what=what, error=CommandLineError)


def _model(name: str, options: dict[str, Any]) -> ModelSpec:
    from tokenroom.models.resolve import load_model

    hub = None
    if options["revision"] or options["offline"] or options["hub_timeout"]:
        from tokenroom.models.hub import HubOptions

        given = {
            "revision": options["revision"],
            "offline": options["offline"] or None,
            "timeout_seconds": options["hub_timeout"],
        }
        hub = HubOptions(**{name: value for name, value in given.items() if value is not None})
    return load_model(name, assume_architecture=options["assume_architecture"], hub=hub)


def _accelerator(options: dict[str, Any], parsed: ParsedCommand | None) -> Accelerator:
    from tokenroom.hardware.catalogue import custom_accelerator, load_catalogue

    name = options["gpu"] or (parsed.accelerator_hint if parsed is not None else None)
    catalogue = load_catalogue(options["gpu_file"])
    base = catalogue.find(name) if name else None
    if options["gpu_memory"] is not None:
        return custom_accelerator(options["gpu_memory"], bandwidth=options["bandwidth"], base=base)
    if base is None:
        raise HardwareError(
            "no GPU is given; name one with --gpu (see: tokenroom gpus), or describe it with "
            "--gpu-memory 96GiB"
        )
    if options["bandwidth"] is not None:
        return custom_accelerator(base.memory_bytes, bandwidth=options["bandwidth"], base=base)
    return base


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
