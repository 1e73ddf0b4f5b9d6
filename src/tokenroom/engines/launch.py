"""The command that starts a deployment: the reverse of an engine's ``parse_command``.

Each engine with a command line has a module ``launch`` that says how one setting is written in the
spelling of one version (:class:`Option`); what its command line does not have is named in a notice
and left out. Reading the words back with the engine's parser gives the settings that were asked.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from tokenroom.engines.checkpoints import checkpoint, plain_name
from tokenroom.engines.policy import Deployment, Notice
from tokenroom.engines.registry import engine_title, launch_writer
from tokenroom.models.spec import ModelSpec

_NOT_SETTINGS: Final = frozenset(
    # the version that is installed, what the machine has, what a command held beside settings
    {"version", "environment", "unknown_flags", "ignored_flags", "host_memory_bytes"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one or more settings are written.

    Attributes:
        settings: Their names.
        words: Words of the command line.
        environment: Variables that say it where no flag does.
        keys: Place in the engine's YAML file, from the outermost key; empty when words say it.
        value: What stands there.
    """

    settings: tuple[str, ...]
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    value: Any = None

    @property
    def text(self) -> str:
        """The option alone, as a person writes it."""
        if self.keys:
            return f"{'.'.join(self.keys)}: {_scalar(self.value)}"
        assigned = (f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        return " ".join([*assigned, shlex.join(self.words)] if self.words else assigned)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """What starts an engine: a program with arguments, variables it sees and files it reads.

    Attributes:
        program: Words up to the arguments, which a container's entry point may stand for.
        arguments: The model and the options.
        environment: Variables to set.
        files: Name of a file among the arguments to its text.
        notes: What could not be written, and what has to be there before it starts.
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Notice, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command."""
        return (*self.program, *self.arguments)

    @property
    def shell_text(self) -> str:
        """The command for a POSIX shell, after the files that it reads as here-documents."""
        files = [
            f"cat > {shlex.quote(name)} <<'END'\n{text}END\n" for name, text in self.files.items()
        ]
        assigned = [f"{name}={shlex.quote(value)} " for name, value in self.environment.items()]
        return "".join([*files, *assigned, shlex.join(self.words)])


def launch_command(deployment: Deployment) -> LaunchCommand | None:
    """The command that starts a deployment; None of an engine without a command line."""
    writer = launch_writer(deployment.engine)
    return None if writer is None else writer.launch_command(deployment)


def written_settings(deployment: Deployment, names: Iterable[str]) -> str:
    """Some of the settings as the engine's user writes them; empty when no command line can.

    Args:
        deployment: What they are asked for in.
        names: Fields of the engine's settings.
    """
    writer = launch_writer(deployment.engine)
    if writer is None:
        return ""
    wanted = frozenset(names)
    found = (
        option.text
        for option in writer.options(deployment)
        if not wanted.isdisjoint(option.settings)
    )
    return " ".join(found)


def assembled(
    deployment: Deployment,
    options: Iterable[Option],
    *,
    program: Sequence[str],
    model: Sequence[str],
    notes: Iterable[Notice],
    file: tuple[str, str] | None = None,
) -> LaunchCommand:
    """The command made of options, with a notice for every setting that none of them writes.

    Args:
        deployment: What is to be started.
        options: Those of the settings that were asked for.
        program: Words up to the arguments.
        model: The arguments that name the model.
        notes: What has to be there first.
        file: Flag of the YAML file and the file's name, for engines that read one.
    """
    options = tuple(options)
    words = [word for option in options for word in option.words]
    document = _document(options)
    files = {}
    if document and file is not None:
        flag, name = file
        words += [flag, name]
        files[name] = _yaml(document)
    environment = dict(getattr(deployment.asked, "environment", {}))
    for option in options:
        environment |= option.environment
    return LaunchCommand(
        program=tuple(program),
        arguments=(*model, *words),
        environment=environment,
        files=files,
        notes=(*notes, *_left_out(deployment, options)),
    )


def asked_settings(settings: Any) -> dict[str, Any]:
    """The settings that were asked for, by name, in the order of the engine's own fields."""
    unset = type(settings)()
    return {
        item.name: value
        for item in fields(settings)
        if item.name not in _NOT_SETTINGS
        and (value := getattr(settings, item.name)) != getattr(unset, item.name)
    }


def value_words(flag: str, value: Any) -> tuple[str, ...]:
    """A flag with its value: objects as JSON, lists as words, a switch alone.

    A text that begins with a dash is joined to its flag, as parsers take it for one otherwise.
    """
    if value is True:
        return (flag,)
    if isinstance(value, Mapping):
        return (flag, json.dumps(value))
    if isinstance(value, list | tuple):
        return (flag, *map(str, value))
    text = str(value)
    return (f"{flag}={text}",) if text.startswith("-") and not _is_number(text) else (flag, text)


def model_name(deployment: Deployment) -> str:
    """What the engine is told to load: a folder, a file, a name on the Hub or a placeholder."""
    return checkpoint(deployment.spec).name


def checkpoint_notes(*specs: ModelSpec | None) -> Iterator[Notice]:
    """That checkpoints are needed which no name is known of."""
    for spec in specs:
        if spec is None or not (found := checkpoint(spec)).layout:
            continue
        values = {"model": plain_name(spec), "layout": found.layout}
        yield Notice(key="launch_weights_needed", values=values)
        if found.near:
            yield Notice(key="launch_weights_near", values={"names": ", ".join(found.near)})


def _is_number(text: str) -> bool:
    return text[1:].replace(".", "", 1).isdigit()


def _document(options: Iterable[Option]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for option in options:
        if not option.keys:
            continue
        section = document
        for key in option.keys[:-1]:
            section = section.setdefault(key, {})
        section[option.keys[-1]] = option.value
    return document


def _yaml(document: Mapping[str, Any], indent: str = "") -> str:
    """A mapping as YAML: sections as blocks, everything else as JSON, which YAML contains."""
    lines = []
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    """A value as YAML; a plain word stands without quotes."""
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value)


#: Words that YAML 1.1 reads as something else than a text.
_YAML_WORDS: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})


def _left_out(deployment: Deployment, options: Iterable[Option]) -> Iterator[Notice]:
    """What was asked for and is not written."""
    written = {name for option in options for name in option.settings}
    about = {"engine": engine_title(deployment.engine), "version": deployment.version}
    for name, value in asked_settings(deployment.asked).items():
        if name not in written:
            values = {"name": name, "value": str(value), **about}
            yield Notice(key="launch_left_out", values=values)
    if flags := (*deployment.asked.ignored_flags, *deployment.asked.unknown_flags):
        yield Notice(key="launch_flags_left_out", values={"flags": ", ".join(flags)})
