"""Commands inside systemd units and Dockerfiles, as shell text and launches; Modelfiles known."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Final

from tokenroom.engines.containers import Launch
from tokenroom.engines.shell import expand
from tokenroom.errors import CommandLineError

_EXEC: Final = re.compile(r"^[ \t]*ExecStart[ \t]*=[ \t]*[-@:+!|]*(.*)$", re.M)
_ENVIRONMENT: Final = re.compile(r"^[ \t]*Environment[ \t]*=[ \t]*(.*)$", re.M)
_DOCKERFILE: Final = re.compile(r"^[ \t]*FROM[ \t]+\S", re.M | re.I)
_INSTRUCTION: Final = re.compile(r"^[ \t]*(FROM|ENV|CMD|ENTRYPOINT)[ \t]+(.*)$", re.M | re.I)
_STARTS: Final = re.compile(r"^[ \t]*(CMD|ENTRYPOINT)[ \t]+\S", re.M | re.I)
_MODELFILE: Final = re.compile(
    r"^(FROM|PARAMETER|TEMPLATE|SYSTEM|LICENSE|MESSAGE|ADAPTER|DRAFT|REQUIRES|RENDERER|PARSER)$"
)
_FROM_LINE: Final = re.compile(r"^[ \t]*FROM[ \t]+\S", re.M)
_PYTHON_IMPORT: Final = re.compile(r"from\s+\S+\s+import\b")
_HEREDOC: Final = re.compile(
    r"<<-?[ \t]*['\"]?(\w+)['\"]?[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S
)
_CONTINUED: Final = re.compile(r"\\[ \t]*\n")


def is_unit(text: str) -> bool:
    """Whether a text is a systemd unit that starts something."""
    return _EXEC.search(text) is not None


def unit_command(text: str) -> str:
    """The shell text that a systemd unit's ``ExecStart=`` lines stand for.

    The variables of ``Environment=`` lines come before it (systemd.exec(5), systemd.service(5)).
    """
    text = _CONTINUED.sub(" ", text)
    variables = [f"export {match}" for match in _ENVIRONMENT.findall(text)]
    return "\n".join([*variables, *_EXEC.findall(text)])


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile that starts something (a Modelfile has FROM alone)."""
    return _DOCKERFILE.search(text) is not None and _STARTS.search(text) is not None


def is_modelfile(text: str) -> bool:
    """Whether a text is a Modelfile of Ollama, with or without the FROM line that it needs."""
    if is_dockerfile(text):
        return False
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    word = first.split(None, 1)[0] if first else ""
    if _PYTHON_IMPORT.match(first):
        return False
    return _MODELFILE.match(word.upper() if word.lower() == "from" else word) is not None or (
        re.fullmatch(r"[A-Z]{2,}", word) is not None and _FROM_LINE.search(text) is not None
    )


def inner_modelfile(text: str) -> str | None:
    """The Modelfile that a shell text writes with ``cat > Modelfile <<EOF``, if it does."""
    found = (match[2] for match in _HEREDOC.finditer(text))
    return next((inner for inner in found if is_modelfile(inner)), None)


def read_dockerfile(text: str, variables: Mapping[str, str]) -> Launch:
    """What a Dockerfile's last stage starts: its ENTRYPOINT with its CMD behind it.

    Raises:
        CommandLineError: A list is not JSON, or quotes do not close.
    """
    image, entrypoint, command = "", tuple[str, ...](), tuple[str, ...]()
    environment: dict[str, str] = {}
    for name, rest in _INSTRUCTION.findall(_CONTINUED.sub(" ", text)):
        known = {**variables, **environment}
        match name.upper():
            case "FROM":
                image = next(word for word in rest.split() if not word.startswith("--"))
                entrypoint, command, environment = (), (), {}
            case "ENV":
                words = _split(rest, "ENV")
                pairs = words if "=" in words[0] else [f"{words[0]}={' '.join(words[1:])}"]
                environment |= {
                    key: expand(value, known)
                    for key, _, value in (pair.partition("=") for pair in pairs)
                }
            case "ENTRYPOINT":
                entrypoint = _words(rest, "ENTRYPOINT", known)
            case _:
                command = _words(rest, "CMD", known)
    return Launch(
        words=(*entrypoint, *command),
        image=image,
        image_entrypoint=not entrypoint,
        environment=environment,
    )


def _words(text: str, name: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The words of the list form, or of the form that a shell splits."""
    if not text.lstrip().startswith("["):
        return tuple(expand(word, variables) for word in _split(text, name))
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandLineError(
            f"{name} of the Dockerfile is not a JSON list; correct it"
        ) from error
    return tuple(str(word) for word in words)


def _split(text: str, name: str) -> list[str]:
    try:
        return shlex.split(text) or [""]
    except ValueError as error:
        raise CommandLineError(f"{name} of the Dockerfile cannot be read: {error}") from error
