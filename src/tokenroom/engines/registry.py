"""Which engines there are, by the name people give them (``vllm`` or ``vllm@0.19.0``).

One row an engine: where its policy is, what programs start it, and who reads its command lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from re import match
from typing import TYPE_CHECKING, Final, Protocol, cast

from tokenroom.engines.policy import Engine
from tokenroom.engines.start_files import inner_modelfile, is_modelfile
from tokenroom.errors import CommandLineError, DeploymentError, shown

if TYPE_CHECKING:
    from tokenroom.engines.command_line import ParsedCommand
    from tokenroom.engines.containers import Launch
    from tokenroom.engines.launch import LaunchCommand, Option
    from tokenroom.engines.policy import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One engine.

    Attributes:
        title: Its name as it writes it itself.
        policy: (module, attribute) of its policy.
        parser: Module whose ``parse_command`` reads its command lines, None when it has none.
        launcher: Module that writes them (:class:`LaunchWriter`), None when it has none.
        programs: Words of a command that start it: a program's file name or a Python module.
        starts: Pattern of a program and its first arguments that start it with a model; other
            commands of those programs are clients, downloads and installations.
        images: What the name of its container image holds.
        own_entry: Its image starts it without a program being named.
    """

    title: str
    policy: tuple[str, str]
    parser: str | None = None
    launcher: str | None = None
    programs: tuple[str, ...] = ()
    starts: str = ""
    images: tuple[str, ...] = ()
    own_entry: bool = False


_DEFAULT: Final = "vllm"
_ENGINES: Final[Mapping[str, _Row]] = {
    "vllm": _Row(
        title="vLLM",
        policy=("tokenroom.engines.vllm.policy", "VLLM"),
        parser="tokenroom.engines.vllm.arguments",
        launcher="tokenroom.engines.vllm.launch",
        programs=("vllm",),
        starts=r"(\S*/)?vllm(\.exe)? (serve|run-batch|bench (latency|throughput|startup))( |$)"
        r"|-m vllm(\.entrypoints\.|\.scripts| )|(\S*/)?benchmark_(latency|throughput)\.py( |$)",
        images=("vllm",),
        own_entry=True,
    ),
    "transformers": _Row(
        title="transformers",
        policy=("tokenroom.engines.transformers.policy", "TRANSFORMERS"),
    ),
    "tensorrt-llm": _Row(
        title="TensorRT-LLM",
        policy=("tokenroom.engines.tensorrt_llm.policy", "TENSORRT_LLM"),
        parser="tokenroom.engines.tensorrt_llm.arguments",
        launcher="tokenroom.engines.tensorrt_llm.launch",
        programs=("trtllm-serve", "trtllm-bench", "tensorrt_llm"),
        starts=r"(\S*/)?trtllm-(serve|bench)( |$)|-m tensorrt_llm\.commands\.",
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
        launcher="tokenroom.engines.sglang.launch",
        programs=("sglang",),
        starts=r"(\S*/)?sglang(\.exe)? serve( |$)|\S*sglang\S*/launch_server\.py( |$)"
        r"|-m sglang\.(launch_server|bench_one_batch|bench_offline_throughput|srt\.server)( |$)",
        images=("sglang",),
    ),
    "llama.cpp": _Row(
        title="llama.cpp",
        policy=("tokenroom.engines.llama_cpp.policy", "LLAMA_CPP"),
        parser="tokenroom.engines.llama_cpp.arguments",
        launcher="tokenroom.engines.llama_cpp.launch",
        programs=("llama-server", "llama-cli", "llama-run", "llama-bench", "ollama", "FROM"),
        starts=r"(\S*/)?llama-(server|cli|run|completion|bench|mtmd-cli)(\.exe)?( |$)"
        r"|(\S*/)?ollama(\.exe)? (run|create)( |$)",
        images=("llama.cpp", "ollama"),
        own_entry=True,
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


class LaunchWriter(Protocol):
    """What writes an engine's command lines (its module ``launch``)."""

    def launch_command(self, deployment: Deployment) -> LaunchCommand:
        """The command that starts a deployment."""
        ...

    def options(self, deployment: Deployment) -> tuple[Option, ...]:
        """How the settings that were asked for are written."""
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
            f"--engine is {shown(text)}; Ollama runs llama.cpp: use --engine llama.cpp, or "
            f"give its "
            "command after -- (-- ollama run TAG)"
        )
    if name not in _ENGINES:
        raise DeploymentError(
            f"--engine is {shown(text)}; it may be {', '.join(_ENGINES)}, "
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

    if isinstance(command, str) and is_modelfile(command):
        return "llama.cpp"
    for launch in read_launches(command, environment):
        name = _program_engine(launch)
        if name is not None:
            return name
    return _DEFAULT


def chosen_start(
    command: str | Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    service: str | None = None,
    engine: str | None = None,
) -> tuple[str, str | Sequence[str]]:
    """The engine that a command or deployment file starts, and what its parser is to read.

    Every launch counts, whatever engine it is of; one that is chosen is read alone.

    Args:
        command: Text of any accepted form, or words.
        environment: Variables known from outside.
        service: Name of the service or container to take.
        engine: Name of the engine to take launches of, when some are.

    Raises:
        CommandLineError: The text cannot be taken apart, several launches are left to choose
            from, or none has the name.
    """
    from tokenroom.engines.command_line import LaunchWords, read_launches

    if isinstance(command, str) and is_modelfile(command):
        if service is not None:
            raise CommandLineError(
                f"--service is {shown(service)}, and a Modelfile has no services; leave "
                f"--service out"
            )
        return "llama.cpp", command
    launches = read_launches(command, environment)
    started = [(name, launch) for launch in launches if (name := _started(launch)) is not None]
    if service is not None:
        started = _of_service(service, launches, started)
    elif engine is not None:
        started = [found for found in started if found[0] == engine] or started
    if not started:
        return engine_started_by(command, environment), command
    created = {word for _, launch in started if "create" in launch.words for word in launch.words}
    if created:
        if isinstance(command, str) and (inner := inner_modelfile(command)) is not None:
            return "llama.cpp", inner
        started = [  # "ollama run" of what "ollama create" makes is no second model
            found
            for found in started
            if "create" in found[1].words
            or "run" not in found[1].words
            or found[1].words[-1] not in created
        ]
    name, chosen = started[0]
    different = {(found, launch.words, launch.image): launch for found, launch in started}
    if len(different) > 1:
        seen = ", ".join(
            f"{launch.name or ' '.join(launch.words)[:60]} ({engine_title(found)})"
            for (found, *_), launch in different.items()
        )
        way = "choose one with --service NAME" if chosen.name else "keep one of them"
        raise CommandLineError(f"{len(different)} engines are started: {seen}; {way}")
    if chosen.image_entrypoint and "ollama" in (chosen.image or "").lower():
        chosen = replace(chosen, words=("ollama", *chosen.words))  # its image's entry point
    return name, LaunchWords.of(chosen)


def _of_service(
    service: str, launches: Sequence[Launch], started: Sequence[tuple[str, Launch]]
) -> list[tuple[str, Launch]]:
    """The launches that start an engine and have that name, of which there is at least one."""
    found = [item for item in started if service in _names(item[1])]
    if found:
        return found
    if not any(launch.name for launch in launches):
        raise CommandLineError(
            f"--service is {shown(service)}, which chooses in a deployment file, and this is "
            f"a command "
            f"without services; leave --service out"
        )
    known = ", ".join(f"{launch.name} ({engine_title(name)})" for name, launch in started)
    if any(service in _names(launch) for launch in launches):
        raise CommandLineError(
            f"service {service} starts no engine that is known here; those that do: "
            f"{known or 'none'}"
        )
    names = ", ".join(launch.name for launch in launches if launch.name)
    raise CommandLineError(f"no service {service}; there is {known or names}")


def _names(launch: Launch) -> tuple[str, ...]:
    """What a launch may be called: its whole name, its container's, its workload's."""
    name = launch.name
    return (name, name.rsplit("/", 1)[-1], name.split("/", 1)[0].rsplit(" ", 1)[-1])


def _started(launch: Launch) -> str | None:
    """The engine that a launch starts with a model, by its words or else its image."""
    for index, word in enumerate(launch.words):
        if word != launch.image:
            text = " ".join(launch.words[index : index + 4])
            for name, row in _ENGINES.items():
                if row.starts and match(row.starts, text):
                    return name
    image = (launch.image or "").lower()
    only_flags = any(word.startswith("--") for word in launch.words[:1])
    for name, row in _ENGINES.items():
        if any(part in image for part in row.images):
            return name if only_flags or (row.own_entry and launch.image_entrypoint) else None
    return None


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


def launch_writer(engine: str) -> LaunchWriter | None:
    """What writes the command lines of an engine; None where it has none."""
    module = _ENGINES[engine].launcher if engine in _ENGINES else None
    return None if module is None else cast(LaunchWriter, import_module(module))


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
