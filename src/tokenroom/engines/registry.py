"""Which engines there are, by the name people give them (``vllm`` or ``vllm@0.19.0``).

One row an engine: where its policy is, what programs start it, and who reads its command lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from tokenroom.engines.policy import Engine
from tokenroom.errors import CommandLineError, DeploymentError

if TYPE_CHECKING:
    from tokenroom.engines.command_line import ParsedCommand
    from tokenroom.engines.containers import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One engine.

    Attributes:
        title: Its name as it writes it itself.
        policy: (module, attribute) of its policy.
        parser: Module whose ``parse_command`` reads its command lines, None when it has none.
        programs: Words of a command that start it: a program's file name or a Python module.
        images: What the name of its container image holds.
    """

    title: str
    policy: tuple[str, str]
    parser: str | None = None
    programs: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


_DEFAULT: Final = "vllm"
_ENGINES: Final[Mapping[str, _Row]] = {
    "vllm": _Row(
        title="vLLM",
        policy=("tokenroom.engines.vllm.policy", "VLLM"),
        parser="tokenroom.engines.vllm.arguments",
        programs=("vllm",),
        images=("vllm",),
    ),
    "transformers": _Row(
        title="transformers",
        policy=("tokenroom.engines.transformers.policy", "TRANSFORMERS"),
    ),
    "tensorrt-llm": _Row(
        title="TensorRT-LLM",
        policy=("tokenroom.engines.tensorrt_llm.policy", "TENSORRT_LLM"),
        parser="tokenroom.engines.tensorrt_llm.arguments",
        programs=("trtllm-serve", "trtllm-bench", "tensorrt_llm"),
        images=("tensorrt-llm", "tensorrt_llm", "trtllm"),
    ),
    "contiguous": _Row(
        title="contiguous allocation",
        policy=("tokenroom.engines.abstract.policy", "CONTIGUOUS"),
    ),
    "paged": _Row(title="paged allocation", policy=("tokenroom.engines.abstract.policy", "PAGED")),
    "hybrid": _Row(
        title="hybrid allocation", policy=("tokenroom.engines.abstract.policy", "HYBRID")
    ),
    "sglang": _Row(
        title="SGLang",
        policy=("tokenroom.engines.sglang.policy", "SGLANG"),
        parser="tokenroom.engines.sglang.arguments",
        programs=("sglang",),
        images=("sglang",),
    ),
    "llama.cpp": _Row(
        title="llama.cpp",
        policy=("tokenroom.engines.llama_cpp.policy", "LLAMA_CPP"),
        parser="tokenroom.engines.llama_cpp.arguments",
        programs=("llama-server", "llama-cli", "llama-run", "llama-bench", "ollama", "FROM"),
        images=("llama.cpp", "ollama"),
    ),
}


class CommandParser(Protocol):
    """What reads an engine's command lines (``parse_command`` of its module)."""

    def __call__(
        self,
        command: str | Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        allow_files: bool = False,
        service: str | None = None,
        version: str | None = None,
    ) -> ParsedCommand:
        """The model, the settings and what else the command says.

        Raises:
            CommandLineError: The command does not run the engine, or a flag cannot be understood.
        """
        ...


def engine_names() -> tuple[str, ...]:
    """Names of all engines."""
    return tuple(_ENGINES)


def program_names() -> frozenset[str]:
    """Words that start an engine."""
    return frozenset(program for row in _ENGINES.values() for program in row.programs)


def engine_title(name: str) -> str:
    """An engine's name as it writes it itself (``vLLM``)."""
    return _ENGINES[name].title if name in _ENGINES else name


@lru_cache(maxsize=64)
def engine_named(text: str) -> tuple[Engine, str | None]:
    """The engine and the version asked for, None when no version is named.

    Raises:
        DeploymentError: The engine is unknown.
    """
    name, _, version = text.strip().lower().partition("@")
    if name == "ollama":
        raise DeploymentError(
            f"--engine is {text!r}; Ollama runs llama.cpp: use --engine llama.cpp, or give its "
            "command after -- (-- ollama run TAG)"
        )
    if name not in _ENGINES:
        raise DeploymentError(
            f"--engine is {text!r}; it may be {', '.join(_ENGINES)}, "
            f"with a version after @ when it is not the newest (vllm@0.19.0)"
        )
    module, attribute = _ENGINES[name].policy
    return cast(Engine, getattr(import_module(module), attribute)), version or None


def engine_started_by(
    command: str | Sequence[str], environment: Mapping[str, str] | None = None
) -> str:
    """Name of the engine that a command or deployment file starts; vLLM when none is recognised.

    Raises:
        CommandLineError: The text cannot be taken apart.
    """
    from tokenroom.engines.command_line import read_launches  # only commands need it

    for launch in read_launches(command, environment):
        name = _program_engine(launch)
        if name is not None:
            return name
    return _DEFAULT


def command_parser(engine: str) -> CommandParser:
    """What reads the command lines of the engine of that name.

    Raises:
        CommandLineError: The engine is not started by a command.
    """
    module = _ENGINES[engine].parser if engine in _ENGINES else None
    if module is None:
        raise CommandLineError(
            f"engine {engine} has no command of its own; name a model and settings instead"
        )
    return cast(CommandParser, import_module(module).parse_command)


def _program_engine(launch: Launch) -> str | None:
    """The engine whose program comes first among the words, else the one the image is of."""
    for word in launch.words:
        if word == launch.image:
            continue
        names = {word.rsplit("/", 1)[-1].removesuffix(".exe"), word.split(".", 1)[0]}
        for name, row in _ENGINES.items():
            if not names.isdisjoint(row.programs):
                return name
    image = (launch.image or "").lower()
    for name, row in _ENGINES.items():
        if any(part in image for part in row.images):
            return name
    return None
