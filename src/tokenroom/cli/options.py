"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tokenroom.errors import CommandLineError, HardwareError, TokenroomError, called, shown
from tokenroom.reports.messages import Language, language_of, message, printable
from tokenroom.units import parse_count, parse_number, parse_seconds, parse_tokens

if TYPE_CHECKING:
    from tokenroom.serving.metrics import LatencyLimits

Command = TypeVar("Command", bound=Callable[..., Any])


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """Text that one of the parsers in :mod:`tokenroom.units` turns into a number."""

    def __init__(self, name: str, parse: Callable[[str, str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the parser makes of ``value``; a default is a number already."""
        if not isinstance(value, str):
            return value
        return self.parse(value, param.opts[0] if param is not None else self.name)


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings, and whose errors name its flags.

    ``sections`` holds each heading with the names of its parameters; the rest comes last.
    ``fields`` holds what the library calls what a parameter holds, with the parameters that may
    hold it: errors name the flag that was given.
    """

    sections: Mapping[str, tuple[str, ...]] = {}
    fields: Mapping[str, tuple[str, ...]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse options without a value, as a script's unset variable gives them."""
        valued = {
            flag
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for flag in param.opts
        }
        own = args[: args.index("--")] if "--" in args else args
        for word, following in zip_longest(own, own[1:], fillvalue="-"):
            flag, equals, value = word.partition("=")
            if flag in valued and not (value if equals else following).strip():
                raise CommandLineError(f"{flag} is empty; give a value or leave it out")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command."""
        flags = {param.name: param.opts[0] for param in self.params}
        given = {
            field: flags[name]
            for field, names in self.fields.items()
            for name in names
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        }
        with called(given):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a heading at a time."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for heading, names in self.sections.items():
            if found := [records.pop(name) for name in names if name in records]:
                with formatter.section(heading):
                    formatter.write_dl(found)
        with formatter.section("Answer"):
            formatter.write_dl(list(records.values()))


TOKENS = Quantity("TOKENS", parse_tokens)
SECONDS = Quantity("TIME", parse_seconds)
COUNT = Quantity("INTEGER", parse_count)
POSITIVE = Quantity("INTEGER", partial(parse_count, least=1))
NUMBER = Quantity("NUMBER", parse_number)


def named_count(gpu: str, gpus: int | None) -> int | None:
    """How many GPUs ``--gpu`` (as ``8xh100``) and ``--gpus`` ask for, None when neither says.

    Raises:
        HardwareError: They contradict each other.
    """
    from tokenroom.hardware.names import split_count

    named = split_count(gpu)[0]
    if named is not None and gpus not in (None, named):
        raise HardwareError(f"--gpu {gpu} says {named} and --gpus says {gpus}; give one")
    return named or gpus


def listed(text: str, flag: str) -> list[str]:
    """The parts between commas, each once.

    Raises:
        CommandLineError: There is none.
    """
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise CommandLineError(f"{flag} is {shown(text)}; write names between commas")
    return found


@contextmanager
def of_flag(flag: str) -> Iterator[None]:
    """Have errors that do not name the flag begin with it.

    Raises:
        TokenroomError: What was raised inside, of the same class.
    """
    try:
        yield
    except TokenroomError as error:
        if str(error).startswith(flag):
            raise
        raise type(error)(f"{flag}: {error}") from error


def say_written(path: Path, language: Language, used: Language) -> None:
    """Tell where the picture is, and why it is not in the language asked for."""
    if used is not language:
        click.echo(message("plot.no_cjk_font", language), err=True)
    click.echo(message("plot.written", language, file=printable(str(path))), err=True)


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


def json_schema_option(command: Command) -> Command:
    """``--json-schema``, passed on as ``json_schema``."""
    return click.option(
        "--json-schema", is_flag=True, help="Print the JSON schema of --json and stop."
    )(command)


def profile_options(command: Command) -> Command:
    """``--profile NAME`` and ``--profile-file FILE``, passed on with ``profile_name``."""
    command = click.option(
        "--profile-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The same from a file of your own.",
    )(command)
    return click.option(
        "--profile", "profile_name", help="A calibration of the machine (see: calibrate)."
    )(command)


def trace_options(command: Command) -> Command:
    """How a trace is read: passed on as ``form``, ``columns`` and ``skip_bad``."""
    command = click.option(
        "--skip-bad", is_flag=True, help="Leave rows out that are no requests, and count them."
    )(command)
    command = click.option(
        "--columns",
        help="Names of the trace's columns, as arrival=ts:ms,input=prompt_len,output=gen_len.",
    )(command)
    return click.option(
        "--format", "form", help="The trace's format, where its content does not tell it."
    )(command)


def window_option(command: Command) -> Command:
    """``--window A..B``, passed on as ``window``."""
    return click.option("--window", help="Only requests that arrive in it, as 10m..20m.")(command)


def promise_options(command: Command) -> Command:
    """``--ttft`` and ``--tpot``, which goodput counts, passed on under their names."""
    command = click.option("--tpot", type=SECONDS, help="Promise of its TPOT, as 50ms.")(command)
    return click.option(
        "--ttft", type=SECONDS, help="Promise of each request's TTFT, as 2s, for goodput."
    )(command)


def promised(options: Mapping[str, Any]) -> LatencyLimits | None:
    """What ``--ttft`` and ``--tpot`` promise of requests, None for nothing.

    Raises:
        WorkloadError: One is no positive time.
    """
    if options["ttft"] is None and options["tpot"] is None:
        return None
    from tokenroom.serving.metrics import LatencyLimits

    return LatencyLimits(ttft_seconds=options["ttft"], tpot_seconds=options["tpot"])


def price_option(command: Command) -> Command:
    """``--price USD``, passed on as ``price``."""
    return click.option("--price", type=NUMBER, help="USD of one GPU for an hour.")(command)


def gpu_file_option(command: Command) -> Command:
    """``--gpu-file FILE``, passed on as ``gpu_file``."""
    return click.option(
        "--gpu-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A TOML, JSON or YAML file with further GPUs (also: TOKENROOM_GPUS).",
    )(command)
