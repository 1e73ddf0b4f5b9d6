"""The ``tokenroom`` command: finds the sub-command and turns failures into one line.

A sub-command's module is imported when the command runs, so that ``--help`` and every command pay
only for what they use. Exit codes: 0 yes or done, 1 the honest answer is no, 2 bad input,
74 the output cannot be written, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from tokenroom.cli.options import language_option
from tokenroom.errors import TokenroomError, shown
from tokenroom.reports.messages import Language, language_of, message, printable

_BROKEN_PIPE: Final = 128 + 13  # as a shell reports a process that SIGPIPE ended
_INTERRUPTED: Final = 128 + 2
_OUTPUT_FAILED: Final = 74  # EX_IOERR of sysexits.h

COMMANDS: Final = {
    # name: (module with the click command ``command``, one line of help)
    "fit": (
        "tokenroom.cli.fit",
        "Whether MODEL fits on GPUs, what takes the memory, and how many tokens are left.",
    ),
    "gpus": ("tokenroom.cli.gpus", "The GPUs tokenroom knows, with their figures and sources."),
    "models": ("tokenroom.cli.models", "The models tokenroom knows without any download."),
    "serve": ("tokenroom.cli.serve", "The calculator as a web page, with its HTTP API."),
    "simulate": (
        "tokenroom.cli.simulate",
        "What clients of MODEL see when a workload is served: latencies, queue, KV pool over time.",
    ),
    "compare": (
        "tokenroom.cli.compare",
        "Deployments side by side on the same requests, with how sure the differences are.",
    ),
    "site": (
        "tokenroom.cli.site",
        "The calculator's page as files for any web host, computing in the browser.",
    ),
    "speed": (
        "tokenroom.cli.speed",
        "How fast MODEL serves: TTFT, TPOT, throughput, and what limits them.",
    ),
    "plan": (
        "tokenroom.cli.plan",
        "Which deployments of MODEL hold a demand, the cheapest first, and how to start them.",
    ),
    "pools": (
        "tokenroom.cli.pools",
        "Whether short and long prompts are better served apart, under promises of TTFT and TPOT.",
    ),
    "recipe": (
        "tokenroom.cli.recipe",
        "max_model_len, max_num_seqs and the token budget for MODEL on a GPU, step by step.",
    ),
    "table": (
        "tokenroom.cli.table",
        "A look-up table: params, kv, concurrency, gpus-for-users or reference.",
    ),
    "claims": (
        "tokenroom.cli.claims",
        "What two articles claim on GPU memory, beside what is computed here, and why.",
    ),
    "explain": (
        "tokenroom.cli.explain",
        "Why a server ran out of memory, what speaks for it, and what helps.",
    ),
    "watch": (
        "tokenroom.cli.watch",
        "What servers and GPUs hold now, beside what was predicted.",
    ),
    "replay": (
        "tokenroom.cli.replay",
        "What tokenroom watch --record FILE has seen, at any speed.",
    ),
    "measure": (
        "tokenroom.cli.measure",
        "What a model really holds while it generates, beside what is predicted.",
    ),
    "quality": (
        "tokenroom.cli.quality",
        "What a quantised KV cache costs a model on a text, beside what it saves.",
    ),
    "calibrate": (
        "tokenroom.cli.calibrate",
        "Fit the model of speed to this machine's own benchmarks.",
    ),
    "workload": (
        "tokenroom.cli.workload",
        "What a trace or a drawn workload is like: lengths, rate, bursts, prefix hits.",
    ),
    "validate": (
        "tokenroom.cli.validate",
        "How right the predictions are, on rows of measurements or on an engine's log.",
    ),
}


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # only needed to help after a mistake

            near = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"try {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {shown(args[0])}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"tokenroom {version('tokenroom')}")
        context.exit()


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@language_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and stop.",
)
@click.pass_context
def cli(context: click.Context, language: Language) -> None:
    """How much room for tokens your GPUs have."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no input ends in a traceback."""
    if sys.stderr is None:  # closed by the caller: print() would take standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it is the process's own stream
    if sys.stdout is None:
        return _output_failed("standard output is closed")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        # Not cli.main(): it ends the process with 1, our "no", when a pipe's reader goes away.
        given = sys.argv[1:] if arguments is None else list(arguments)
        with cli.make_context("tokenroom", given) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (TokenroomError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return _fail(text)
    except BrokenPipeError:
        # The reader went away (`| head`): say nothing, not even when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OSError as error:
        if error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _output_failed(error.strerror or str(error))
    except (KeyboardInterrupt, click.Abort):
        _say(message("cli.interrupted", language_of(os.environ)))
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _output_failed(reason: str) -> int:
    """Say that standard output took no text, once, and give the code for it."""
    _say(message("cli.output_failed", language_of(os.environ), reason=reason))
    return _OUTPUT_FAILED


def _fail(reason: str) -> int:
    _say(message("cli.error", language_of(os.environ), reason=printable(" ".join(reason.split()))))
    return 2


def _say(text: str) -> None:
    print(text, file=sys.stderr)
