"""The options that describe a deployment: model, GPUs, engine and its settings.

Each is declared once, so that it means the same in every command that has it;
:func:`tokenroom.cli.question.question` reads what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from tokenroom.cli.options import COUNT, NUMBER, TOKENS, Command, Quantity, gpu_file_option
from tokenroom.errors import CommandLineError, shown
from tokenroom.units import MIB, parse_bytes, parse_rate

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


_SIZE: Final = Quantity("SIZE", _parse_size)
_SIZE_OR_NOTHING: Final = Quantity("SIZE", _parse_size_or_nothing)
_RATE: Final = Quantity("RATE", parse_rate)
_SECONDS: Final = Quantity("SECONDS", _parse_seconds)

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    # heading of a command's help: parameters, in the order of the help
    "Hardware": ("gpu", "gpus", "gpu_memory", "bandwidth", "used", "ram", "gpu_file"),
    "Model": ("weights", "dtype", "assume_architecture", "revision", "offline", "hub_timeout"),
    "Engine": (
        *("engine", "tp", "pp", "dp", "ep", "kv", "context", "util", "max_num_seqs"),
        *("max_num_batched_tokens", "block_size", "kv_cache_memory", "cpu_offload"),
        *("enforce_eager", "usage", "from_file", "service", "assignments"),
    ),
}

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    # what errors begin with: parameters that hold it
    "tensor_parallel_size": ("tp",),
    "pipeline_parallel_size": ("pp",),
    "data_parallel_size": ("dp",),
    "kv_cache_dtype": ("kv",),
    "the KV cache type": ("kv",),
    "gpu_memory_utilization": ("util",),
    "mem_fraction_static": ("util",),
    "free_gpu_memory_fraction": ("util",),
    "max_model_len": ("context",),
    "gpus": ("gpus",),
    "dtype": ("dtype",),
    "block_size": ("block_size",),
    "max_num_seqs": ("max_num_seqs",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
}

_DECLARED: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]]] = {
    # parameter: (what click.option takes: declarations, attributes)
    "gpu": (("--gpu",), {"help": "GPU: a name such as h100, 2xl40s, 4090 (see: tokenroom gpus)."}),
    "gpus": (
        ("--gpus",),
        {"type": COUNT, "help": "How many GPUs; as many as the parallel sizes need."},
    ),
    "gpu_memory": (
        ("--gpu-memory",),
        {"type": _SIZE, "help": "Memory of a GPU that is not listed, as 96GiB."},
    ),
    "bandwidth": (
        ("--bandwidth",),
        {"type": _RATE, "help": "Its memory bandwidth, as 3.35TB/s."},
    ),
    "used": (
        ("--used",),
        {"type": _SIZE_OR_NOTHING, "help": "Memory that other processes hold on each GPU."},
    ),
    "ram": (
        ("--ram",),
        {"type": _SIZE, "help": "Memory of the host, of engines that place parts there."},
    ),
    "weights": (
        ("--weights",),
        {"help": "What if the weights were fp8, int8, awq, gptq, nvfp4, ..."},
    ),
    "dtype": (("--dtype",), {"help": "Type the model runs in, as bfloat16."}),
    "assume_architecture": (
        ("--assume-architecture",),
        {"help": "Read an unknown model_type as this known one."},
    ),
    "revision": (("--revision",), {"help": "Revision on the Hub."}),
    "offline": (("--offline",), {"is_flag": True, "help": "Never ask the Hub."}),
    "hub_timeout": (
        ("--hub-timeout",),
        {"type": _SECONDS, "help": "Seconds to wait for the Hub."},
    ),
    "engine": (
        ("--engine",),
        {
            "help": "vllm (the default), sglang, tensorrt-llm or llama.cpp, with @VERSION for an "
            "older one."
        },
    ),
    "tp": (("--tp",), {"type": COUNT, "help": "Tensor-parallel size."}),
    "pp": (("--pp",), {"type": COUNT, "help": "Pipeline-parallel size."}),
    "dp": (("--dp",), {"type": COUNT, "help": "Data-parallel size."}),
    "ep": (("--ep",), {"is_flag": True, "default": None, "help": "Expert parallelism."}),
    "kv": (("--kv",), {"help": "KV cache type, as fp8."}),
    "context": (("--context",), {"type": TOKENS, "help": "max_model_len, as 32k (k is 1024)."}),
    "util": (("--util",), {"type": NUMBER, "help": "gpu_memory_utilization, 0 to 1."}),
    "max_num_seqs": (("--max-num-seqs",), {"type": COUNT, "help": "Requests in a step."}),
    "max_num_batched_tokens": (
        ("--max-num-batched-tokens",),
        {"type": TOKENS, "help": "Token budget of a step."},
    ),
    "block_size": (("--block-size",), {"type": COUNT, "help": "Tokens of a KV block."}),
    "kv_cache_memory": (
        ("--kv-cache-memory",),
        {"type": _SIZE, "help": "KV pool of this size, utilisation ignored."},
    ),
    "cpu_offload": (
        ("--cpu-offload",),
        {"type": _SIZE_OR_NOTHING, "help": "Weights kept in host memory, a GPU."},
    ),
    "enforce_eager": (
        ("--enforce-eager",),
        {"is_flag": True, "default": None, "help": "No CUDA graphs."},
    ),
    "usage": (
        ("--usage",),
        {
            "type": click.Choice(["server", "llm"]),
            "help": "Defaults of `vllm serve` or of the offline LLM class.",
        },
    ),
    "from_file": (
        ("--from",),
        {
            "type": click.Path(path_type=Path, dir_okay=False, allow_dash=True),
            "help": "A file with the engine's command: shell, docker, compose or Kubernetes (- for "
            "stdin).",
        },
    ),
    "service": (("--service",), {"help": "Which service or container of that file."}),
    "assignments": (
        ("--set",),
        {
            "multiple": True,
            "metavar": "NAME=VALUE",
            "help": "Any other setting of the engine under its own name; may be repeated.",
        },
    ),
}


def words_argument(command: Command) -> Command:
    """A model's name, or an engine's own command after ``--``, passed on as ``words``."""
    return click.argument(
        "words", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL] [-- COMMAND...]"
    )(command)


def deployment_options(*names: str, **helps: str) -> Callable[[Command], Command]:
    """Options of a deployment, passed on under their names; every one when none is named.

    Args:
        names: Which, in the order of the help.
        helps: Words of a command's own for some of them.
    """
    wanted = names or tuple(name for section in SECTIONS.values() for name in section)

    def decorated(command: Command) -> Command:
        for name in reversed(wanted):  # decorators are applied from the last one up
            if name == "gpu_file":
                command = gpu_file_option(command)
                continue
            flags, attributes = _DECLARED[name]
            told = {**attributes, "help": helps.get(name, attributes["help"])}
            command = click.option(*flags, name, **told)(command)
        return command

    return decorated
