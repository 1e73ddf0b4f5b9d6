"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tokenroom.reports.messages import Language, language_of

Command = TypeVar("Command", bound=Callable[..., Any])


def _language(context: click.Context, _: click.Parameter, value: str | None) -> Language:
    """What ``--lang`` says, here or before the command's name, else what the environment asks."""
    if value is not None:
        return Language(value)
    parent = context.parent
    if parent is not None and isinstance(parent.params.get("language"), Language):
        return parent.params["language"]  # type: ignore[no-any-return]
    return language_of(os.environ)


def language_option(command: Command) -> Command:
    """``--lang en|zh``, passed on as ``language``."""
    return click.option(
        "--lang",
        "language",
        type=click.Choice([language.value for language in Language]),
        callback=_language,
        help="Language of the report; the environment's (LC_ALL, LC_MESSAGES, LANG) by default.",
    )(command)


def json_option(command: Command) -> Command:
    """``--json``, passed on as ``as_json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object, in bytes and counts."
    )(command)


def gpu_file_option(command: Command) -> Command:
    """``--gpu-file FILE``, passed on as ``gpu_file``."""
    return click.option(
        "--gpu-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A TOML, JSON or YAML file with further GPUs (also: TOKENROOM_GPUS).",
    )(command)
