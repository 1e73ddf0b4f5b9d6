"""What a command line asks about: the model, the GPUs, and the engine with its settings.

``fit`` and ``speed`` both read a model's name or an engine's own command, and hand what they read
to :func:`tokenroom.fitting.fit`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenroom.cli.options import named_count
from tokenroom.errors import CommandLineError, HardwareError, shown

if TYPE_CHECKING:
    from tokenroom.engines.command_line import ParsedCommand
    from tokenroom.hardware.accelerator import Accelerator
    from tokenroom.models.spec import ModelSpec

_MAX_COMMAND_BYTES = 2**20

_SETTINGS = {
    # option of the command line: setting of the engine
    "dtype": "dtype",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "block_size": "block_size",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "cpu_offload": "cpu_offload_bytes",
    "ram": "host_memory_bytes",
    "enforce_eager": "enforce_eager",
    "usage": "usage",
    "seed": "seed",
}
_RUNNERS = ("python", "python3", "docker", "podman")
"""Programs that an engine's command may begin with, beside its own."""
_SHORTHAND = ("tp", "pp", "dp", "ep", "context", "kv", "util")


class Question(NamedTuple):
    """What is to be served on what.

    Attributes:
        model: The model.
        accelerator: The kind of GPU.
        settings: Everything else, as :func:`tokenroom.fitting.fit` takes it.
    """

    model: ModelSpec
    accelerator: Accelerator
    settings: dict[str, Any]


def question(words: tuple[str, ...], options: dict[str, Any], *, verb: str) -> Question:
    """What ``words`` (a model's name, or an engine's command) and the options ask about.

    ``verb`` is the command that asks, for the examples of its messages.

    Raises:
        TokenroomError: A word or an option cannot be read, or two contradict each other.
    """
    parsed, model = _command(words, options, verb)
    if parsed is not None and parsed.refusal and verb != "calibrate":  # what was measured, started
        raise CommandLineError(parsed.refusal)
    engine = options["engine"] or (parsed.engine if parsed is not None else "vllm")
    if parsed is not None and parsed.version is not None and "@" not in engine:
        engine = f"{engine}@{parsed.version}"
    gpus = options["gpus"]
    if gpus is None and parsed is not None:
        gpus = parsed.gpus
    if options["gpu"] is not None:
        gpus = named_count(options["gpu"], options["gpus"]) or gpus
    given = engine_settings(options, verb)
    if (lengths := _lengths(options.get("lengths"))) is not None:
        given["lengths"] = lengths
    spec = named_model(model, options)
    notes = parsed.notes if parsed is not None else ()
    if parsed is not None:
        notes += tuple(_replaced(options, parsed))
    assumed = options.get("assume_architecture")
    if assumed is not None and not any(f"read as {assumed}" in said for said in spec.assumptions):
        notes += (
            f"--assume-architecture {assumed} was not needed: {spec.name} is of the known type "
            f"{spec.model_type}",
        )
    return Question(
        spec,
        _accelerator(options, parsed),
        {
            **{name: options.get(name) for name in _SHORTHAND},
            "gpus": gpus,
            "engine": engine,
            "weights": options["weights"] or (parsed.weights if parsed is not None else None),
            "used_bytes": options.get("used") or 0,
            "settings": parsed.settings if parsed is not None else None,
            "notes": notes,
            **given,
        },
    )


def engine_settings(options: dict[str, Any], verb: str) -> dict[str, Any]:
    """Settings of the engine that the options give, beside those of the command itself.

    Raises:
        CommandLineError: ``--set`` cannot be read.
    """
    told = {setting: options.get(name) for name, setting in _SETTINGS.items()}
    given = {name: value for name, value in told.items() if value is not None}
    return given | _assigned(options["assignments"], verb)


def _replaced(options: dict[str, Any], parsed: ParsedCommand) -> Iterator[str]:
    """What options replace of a command beside the engine's settings."""
    version = (options["engine"] or "").partition("@")[2] or None
    gpus = named_count(options["gpu"], options["gpus"]) if options["gpu"] else options["gpus"]
    for name, given, own in (
        ("--weights", options["weights"], parsed.weights),
        ("--gpus", gpus, parsed.gpus),
        ("--engine", version, parsed.version),
        ("--gpu", options["gpu"], parsed.accelerator_hint),
    ):
        if given is not None and own is not None and str(given).lower() != str(own).lower():
            yield f"{name} {given} replaces {own} of the command"


def _assigned(texts: tuple[str, ...], verb: str) -> dict[str, Any]:
    """What ``--set`` sets, none of which may be an argument of the question itself."""
    if not texts:
        return {}
    from tokenroom.fitting import check_setting_names, fit
    from tokenroom.serving_speed import speed

    assigned = dict(map(_assignment, texts))
    check_setting_names(assigned, "--set", options=True, asks=speed if verb == "speed" else fit)
    return assigned


def _assignment(text: str) -> tuple[str, Any]:
    """A setting written ``NAME=VALUE``: a number, true, false, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandLineError(f"--set is {shown(text)}; write NAME=VALUE, such as block_size=32")
    import json  # numbers, booleans and lists as everybody writes them

    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):
        return name.strip().replace("-", "_"), value


def _lengths(text: str | None) -> str | None:
    """The text itself, or what the file of that name holds.

    Raises:
        CommandLineError: It names a file that is not there.
    """
    if text is None or not os.path.isfile(text):
        if text is not None and re.fullmatch(r"[0-9\s,]+|\w+:.*", text) is None:
            raise CommandLineError(
                f"--lengths is {shown(text)}, and no such file is there; give one, or "
                f"lognormal:MEAN,SIGMA, uniform:LOW,HIGH, or whole numbers separated by commas"
            )
        return text
    return _read_text(Path(text), "--lengths")


def _command(
    words: tuple[str, ...], options: dict[str, Any], verb: str
) -> tuple[ParsedCommand | None, str]:
    """The engine's own command, when there is one, and the model's name."""
    from tokenroom.engines.registry import chosen_start, command_parser, program_names

    from_file: Path | None = options.get("from_file")
    named, _, version = (options["engine"] or "").strip().lower().partition("@")
    if from_file is not None:
        if words:
            raise CommandLineError(
                f"--from reads the whole command from {from_file}; leave out "
                f"{shown(' '.join(words))}"
            )
        text: str | tuple[str, ...] = _read_text(from_file, "--from")
    elif len(words) == 1 and (not any(char.isspace() for char in words[0]) or _is_path(words[0])):
        if options.get("service") is not None:
            raise CommandLineError(
                f"--service is {shown(options['service'])}, which chooses in a deployment "
                f"file; give "
                f"that with --from, or leave --service out"
            )
        if words[0] in program_names() and not _is_path(words[0]):
            raise CommandLineError(
                f"{shown(words[0])} alone names no model; give the engine's whole command, or the "
                f"model's name"
            )
        return None, words[0]
    elif words:
        if _names_a_model(words[0]) and any(
            PurePath(word).name in {*program_names(), *_RUNNERS} for word in words[1:2]
        ):
            raise CommandLineError(
                f"the model is given twice, as {shown(words[0])} and by the command after --; "
                f"leave {shown(words[0])} out"
            )
        text = words
    else:
        raise CommandLineError(
            f"no model is given; name one (tokenroom {verb} llama-3.1-8b --gpu h100), or an "
            f"engine's command after -- (tokenroom {verb} --gpu h100 -- vllm serve MODEL)"
        )
    started, chosen = chosen_start(
        text, os.environ, service=options.get("service"), engine=named or None
    )
    if options["engine"] is not None and named != started:
        raise CommandLineError(
            f"--engine is {shown(options['engine'])} and the command starts {started}; leave "
            f"--engine "
            f"out, or give only its version ({started}@VERSION)"
        )
    parsed = command_parser(started)(
        chosen,
        environment=os.environ,
        allow_files=True,
        version=version or None,
    )
    return parsed, parsed.model


def _names_a_model(word: str) -> bool:
    """Whether a word before a command is a model, and no program that starts the command."""
    from tokenroom.models.catalogue import candidates

    return (
        re.fullmatch(r"[\w.-]+/[\w.@-]+|.*\.(json|gguf)", word) is not None
        or bool(candidates(word.partition("@")[0]))
        or (_is_path(word) and not os.access(word, os.X_OK))
    )


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


def named_model(name: str, options: dict[str, Any]) -> ModelSpec:
    """The model of a name, by the options of ``Model``.

    Raises:
        TokenroomError: There is none, or it cannot be read.
    """
    from tokenroom.models.resolve import load_model

    hub = None
    if options.get("revision") or options.get("offline") or options.get("hub_timeout"):
        from tokenroom.models.hub import HubOptions

        given = {
            "revision": options.get("revision"),
            "offline": options.get("offline") or None,
            "timeout_seconds": options.get("hub_timeout"),
        }
        hub = HubOptions(**{name: value for name, value in given.items() if value is not None})
    return load_model(name, assume_architecture=options.get("assume_architecture"), hub=hub)


def _accelerator(options: dict[str, Any], parsed: ParsedCommand | None) -> Accelerator:
    from tokenroom.hardware.catalogue import custom_accelerator, load_catalogue

    name = options["gpu"] or (parsed.accelerator_hint if parsed is not None else None)
    catalogue = load_catalogue(options["gpu_file"])
    base = catalogue.find(name) if name else None
    memory, bandwidth = options.get("gpu_memory"), options.get("bandwidth")
    if memory is not None:
        return custom_accelerator(memory, bandwidth=bandwidth, base=base)
    if base is None:
        raise HardwareError(
            "no GPU is given; name one with --gpu (see: tokenroom gpus), or describe it with "
            "--gpu-memory 96GiB"
        )
    if bandwidth is not None:
        return custom_accelerator(base.memory_bytes, bandwidth=bandwidth, base=base)
    return base
