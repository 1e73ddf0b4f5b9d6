"""SGLang command lines and deployment files as :class:`SGLangSettings`.

``sglang serve MODEL``, ``python -m sglang.launch_server --model-path MODEL`` and their wrappers
(docker, compose, Kubernetes), by the flags of the version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokenroom.engines.command_line import (
    ParsedCommand,
    brought_file,
    chosen_call,
    flag_refusal,
    read_launches,
    read_options_file,
)
from tokenroom.engines.containers import Launch
from tokenroom.engines.sglang.flags import (
    nearest_version,
    parse_flags,
    unknown_sentence,
    version_with,
)
from tokenroom.engines.sglang.policy import SGLANG
from tokenroom.engines.sglang.rules import NEWEST_VERSION, version_numbers
from tokenroom.engines.sglang.setting_names import fields_of
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.engines.shell import hole_in, hole_sentence
from tokenroom.errors import CommandLineError, DeploymentError, shown

_MODULES: Final = frozenset(
    {
        "sglang.launch_server",
        "sglang.bench_one_batch",
        "sglang.bench_offline_throughput",
        "sglang.srt.server",
    }
)
_TEXT_SETTINGS: Final = ("SGLANG_", "SGL_")
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def parse_command(
    command: str | Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    allow_files: bool = False,
    service: str | None = None,
    version: str | None = None,
) -> ParsedCommand:
    """Understand how someone starts SGLang.

    Args:
        command: Shell text, words, ``docker run``, a compose or Kubernetes document.
        environment: Variables for ``$NAME`` in the text; they are not taken as settings.
        allow_files: ``--config FILE`` may be read.
        service: Name of the service or container to take when several run it.
        version: Version whose flags apply; the image's tag or the newest known otherwise.

    Raises:
        CommandLineError: Nothing runs SGLang, several do, or a flag holds what SGLang refuses.
    """
    launches = read_launches(command, environment)
    launch, words = chosen_call(launches, _words, service, "SGLang", example="sglang serve MODEL")
    return _parse(launch, words, allow_files, version)


def _words(launch: Launch) -> tuple[str, ...] | None:
    """The words behind the program, None when the launch does not run it."""
    for index, word in enumerate(launch.words):
        if word == launch.image:
            continue
        rest = launch.words[index + 1 :]
        if word == "-m" and rest and rest[0] in _MODULES:
            return rest[1:]
        base = word.rsplit("/", 1)[-1]
        if base in ("sglang", "sglang.exe") and rest[:1] == ("serve",):
            return rest[1:]
        if base == "launch_server.py" and "sglang" in word:
            return rest
    image = (launch.image or "").lower()
    if "sglang" in image and launch.words and launch.words[0].startswith("--"):
        return launch.words
    return None


def _parse(
    launch: Launch, words: Sequence[str], allow_files: bool, version: str | None
) -> ParsedCommand:
    notes: list[str] = []
    version = version or _version_of(launch)
    known = nearest_version(version)
    if version is not None and version_numbers(version) > version_numbers(NEWEST_VERSION):
        notes.append(f"SGLang {version} is newer than any read here; the flags of {known} apply")
    parsed = parse_flags(words, known)
    values = dict(parsed.values)
    path = values.pop("config", None)
    if path is not None:
        text = brought_file(path, launch)
        if text is None and not allow_files:
            raise CommandLineError(f"--config {shown(path)} names a file, which is not read here")
        values = {**parse_flags(_config_words(path, text), known).values, **values}
    model = values.pop("model_path", None) or next(iter(parsed.positional), None)
    if model is None:
        raise CommandLineError("the command names no model; give it as sglang serve MODEL")
    if hole := hole_in(model):
        raise CommandLineError(hole_sentence("the model", hole))
    found, ignored = _settings(values)
    environment = {
        key: value
        for key, value in launch.environment.items()
        if key.startswith(_TEXT_SETTINGS) and not hole_in(value)
    }
    try:
        settings = SGLANG.settings(
            SGLangSettings(
                version=version,
                environment=environment,
                unknown_flags=parsed.unknown,
                ignored_flags=tuple(ignored),
            ),
            found,
        )
    except DeploymentError as error:
        raise CommandLineError(str(error)) from error
    return ParsedCommand(
        engine="sglang",
        model=model,
        version=version,
        settings=settings,
        gpus=_visible_gpus(launch),
        accelerator_hint=launch.accelerator,
        notes=tuple(notes),
        refusal=_refusal(parsed.unknown, version),
        facts=launch.facts,
    )


def _refusal(unknown: Sequence[str], version: str | None) -> str:
    """That the server's parser exits on a flag; a version that was not read may have it."""
    if not unknown:
        return ""
    known, other = nearest_version(version), version_with(unknown[0])
    if version is not None and (
        version_numbers(version) > version_numbers(NEWEST_VERSION) or (other and version != known)
    ):
        return ""
    return flag_refusal("sglang", unknown_sentence(unknown[0], known), other_version=other)


def _settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields of the settings, and the flags that have no influence on memory."""
    found: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in values.items():
        if name == "device" and value not in (None, "cuda", "auto"):
            raise CommandLineError(
                f"--device is {shown(value)}; only SGLang on GPUs (cuda) is planned here"
            )
        own = fields_of(name, value)
        if own is None:
            ignored.append("--" + name.replace("_", "-"))
        else:
            found |= own
    return found, ignored


def _config_words(path: str, text: str | None) -> list[str]:
    """``--config FILE`` as the words it stands for (``utils/config_merger``)."""
    config = read_options_file(path, text)
    if not config:
        raise CommandLineError(
            f"--config {shown(path)} holds no options; write lines of NAME: VALUE"
        )
    words: list[str] = []
    for name, value in config.items():
        flag = "--" + str(name).replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None and value is not False:
            words.append(f"{flag}={value}")
    return words


def _version_of(launch: Launch) -> str | None:
    for text in (launch.image or "", *launch.words[:12]):
        match = re.search(r"sglang[^:=]*(?:==|:)v?(\d+\.\d+\.\d+(?:\.post\d+)?)", text)
        if match:
            return match.group(1)
    return None


def _visible_gpus(launch: Launch) -> int | None:
    """Accelerators the process sees: the fewest of what container and variables allow."""
    counts = [] if launch.gpus is None else [launch.gpus]
    for name in _VISIBLE:
        text = launch.environment.get(name)
        if text is not None and not hole_in(text):
            counts.append(len([item for item in text.split(",") if item.strip()]))
    return min(counts) if counts else None
