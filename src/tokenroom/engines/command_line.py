"""How people start an engine, in whatever form they have it, unwrapped to programs with arguments.

Shell text, ``docker run``, compose files, Kubernetes and Helm YAML are recognised by themselves
(:func:`read_launches`); what the unwrapped words mean is each engine's own affair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tokenroom.engines.containers import Launch, read_docker_run, read_documents
from tokenroom.engines.shell import files_written, split_shell
from tokenroom.engines.start_files import (
    is_dockerfile,
    is_unit,
    read_dockerfile,
    unit_command,
)
from tokenroom.errors import CommandLineError, shown
from tokenroom.files import parse_yaml, read_bounded_text

_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ash"})
_YAML_KEYS: Final = re.compile(
    r"^(apiVersion|kind|services|spec|servingEngineSpec|modelSpec|containers|version|image"
    r"|x-[\w-]+|name|args|extraArgs|command)\s*:",
    re.M,
)
_MAX_NESTING: Final = 8

MAX_OPTIONS_BYTES: Final = 2**20
"""Largest file of options read; real ones have a few hundred bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """What a command or deployment file says.

    Attributes:
        engine: Which engine it starts, ``"vllm"``.
        model: The model's name or folder.
        version: Version named by an image tag or a pinned package, None when none is.
        settings: The engine's own settings object.
        gpus: Accelerators the process may use, None when the command does not say.
        accelerator_hint: Kind of accelerator a node label asks for, None otherwise.
        notes: Sentences on what was left out or assumed.
        facts: Other settings of the container, such as ``"shm-size"``.
        weights: Layout of the weights that the command names beside the model (``"q4_k_m"``).
        refusal: Why the engine exits on the command instead of starting: a sentence on a flag that
            its version does not have, empty when there is none. Only of commands whose every flag
            is known; whoever reads the log of an engine that did start passes over it.
    """

    engine: str = "vllm"
    model: str
    version: str | None
    settings: Any
    gpus: int | None = None
    accelerator_hint: str | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    weights: str | None = None
    refusal: str = ""


def flag_refusal(engine: str, said: str, *, other_version: str = "") -> str:
    """That an engine exits on a flag, and what to do.

    Args:
        engine: Its name for ``--engine``.
        said: Which flag its version does not have, and what it has instead.
        other_version: A version that has the flag, empty when none does.
    """
    way = (
        f"leave it out, or ask for a version that has it (--engine {engine}@{other_version})"
        if other_version
        else "correct it or leave it out"
    )
    return f"{said}; the engine exits on a flag that it does not have: {way}"


class LaunchWords(tuple[str, ...]):
    """Words of a launch that is unwrapped already, with what else is known of it.

    Attributes:
        launch: The launch itself.
    """

    launch: Launch

    @classmethod
    def of(cls, launch: Launch) -> LaunchWords:
        """The words of a launch, for a reader of one engine's command lines."""
        words = cls(launch.words)
        words.launch = launch
        return words


def read_launches(
    command: str | Sequence[str], environment: Mapping[str, str] | None = None
) -> list[Launch]:
    """Every program a command or a deployment file starts, wrappers removed.

    Args:
        command: Text of any accepted form, or words that a shell has already split.
        environment: Variables known from outside, used for expansion.

    Raises:
        CommandLineError: Quotes do not close, or YAML that looks like a deployment is damaged.
    """
    outer = dict(environment or {})
    if isinstance(command, LaunchWords):
        return [command.launch]
    if not isinstance(command, str):
        words = [str(word) for word in command]
        if len(words) != 1 or not re.search(r"\s", words[0]):
            return unwrap(Launch(words=tuple(words)), outer)
        command = words[0]
    if not command.strip():
        raise CommandLineError("the text is empty; give an engine's command or a deployment file")
    if is_unit(command):
        return _from_shell(unit_command(command), Launch(), outer, 0)
    if is_dockerfile(command):
        return unwrap(read_dockerfile(command, outer), outer)
    if looks_like_yaml(command):
        documents = _load_yaml(command)
        launches = read_documents(documents, outer)
        if not launches:
            raise CommandLineError(
                f"the YAML starts no container{_kinds(documents)}; give the document that does, "
                f"such as a Deployment or a compose file"
            )
        return [inner for launch in launches for inner in unwrap(launch, outer)]
    launches = _from_shell(command, Launch(), outer, 0)
    files = files_written(command)
    return [replace(launch, files=files) for launch in launches] if files else launches


def looks_like_yaml(text: str) -> bool:
    """Whether a text is a deployment document and not a command."""
    return _YAML_KEYS.search(text) is not None or text.lstrip().startswith("---\n")


def _kinds(documents: Sequence[Any]) -> str:
    """What Kubernetes documents are, for a message."""
    kinds = [
        shown(document["kind"])
        for document in documents
        if isinstance(document, Mapping) and isinstance(document.get("kind"), str)
    ]
    return f" (kind {', '.join(kinds[:3])})" if kinds else ""


def _load_yaml(text: str) -> list[Any]:
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise CommandLineError(f"the YAML cannot be read ({error}); correct it") from error


def brought_file(path: str, launch: Launch) -> str | None:
    """The text of a file that is written beside a launch; None when it lies elsewhere."""
    return launch.files.get(path, launch.files.get(path.rsplit("/", 1)[-1]))


def read_options_file(path: str, text: str | None = None) -> dict[str, Any]:
    """The options of the YAML file that ``--config`` names; empty when it holds nothing.

    Args:
        path: The file.
        text: What it holds, where that is known.

    Raises:
        CommandLineError: It cannot be read, is not YAML, or holds no mapping.
    """
    what = f"--config {shown(path)}"
    if text is None:
        text = read_bounded_text(path, MAX_OPTIONS_BYTES, what=what, error=CommandLineError)
    try:
        documents = parse_yaml(text)
    except ValueError as error:
        raise CommandLineError(f"{what} is not valid YAML ({error}); correct it") from error
    if len(documents) > 1 or (documents and not isinstance(documents[0], dict | None)):
        raise CommandLineError(f"{what} holds no options; write lines of NAME: VALUE")
    return {str(key): value for key, value in (documents[0] or {}).items()} if documents else {}


def unwrap(launch: Launch, outer: Mapping[str, str], depth: int = 0) -> list[Launch]:
    """Look through ``docker run`` and ``sh -c`` until a program with its arguments is left."""
    if depth > _MAX_NESTING:
        raise CommandLineError(
            f"the command wraps another more than {_MAX_NESTING} times; give the inner one"
        )
    known = {**outer, **launch.environment}
    inner = read_docker_run(launch.words, known) if not launch.image_entrypoint else None
    if inner is not None:
        return unwrap(inner, outer, depth + 1)
    script = _shell_script(launch.words)
    if script is not None:
        return _from_shell(script, launch, known, depth + 1)
    return [launch]


def _shell_script(words: Sequence[str]) -> str | None:
    """The text that ``sh -c TEXT`` or ``bash -lc TEXT`` runs, wrappers before it skipped."""
    for index, word in enumerate(words[:-1]):
        if word.rsplit("/", 1)[-1] in _SHELLS:
            for place in range(index + 1, len(words) - 1):
                if re.fullmatch(r"-[a-z]*c", words[place]):
                    return words[place + 1]
                if not words[place].startswith("-"):
                    break
    return words[0] if len(words) == 1 and re.search(r"\s", words[0].strip()) else None


def _from_shell(text: str, outside: Launch, known: Mapping[str, str], depth: int) -> list[Launch]:
    launches = []
    for shell_command in split_shell(text, known):
        launch = replace(
            outside,
            words=shell_command.words,
            image_entrypoint=False,
            environment={**outside.environment, **shell_command.environment},
        )
        launches += unwrap(launch, known, depth)
    return launches


def chosen_call(
    launches: Sequence[Launch],
    words_of: Callable[[Launch], tuple[str, ...] | None],
    service: str | None,
    engine: str,
    *,
    example: str,
) -> tuple[Launch, tuple[str, ...]]:
    """The one launch that starts an engine, with the words behind its program.

    Args:
        launches: Everything a command or file starts.
        words_of: The words behind the engine's program, None when a launch does not run it.
        service: Name of the service or container to take when several run it.
        engine: The engine's name, for the errors.
        example: A command that starts it, for the errors.

    Raises:
        CommandLineError: Nothing runs the engine, or several launches do with different words.
    """
    calls = [(launch, words) for launch in launches if (words := words_of(launch)) is not None]
    if service is not None:
        calls = [call for call in calls if service in (call[0].name, call[0].name.split("/")[-1])]
    if not calls:
        started = " ".join(launches[0].words)[:80] if launches else "nothing"
        raise CommandLineError(
            f"the command runs {shown(started)}, not {engine}; give one such as {example}"
        )
    if any(words != calls[0][1] for _, words in calls):
        names = ", ".join(launch.name or " ".join(words)[:40] for launch, words in calls)
        raise CommandLineError(
            f"{engine} is started {len(calls)} times ({names}); choose one by its name"
        )
    return calls[0]
