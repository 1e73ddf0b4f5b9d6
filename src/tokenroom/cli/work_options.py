"""Who works on the runs of a command that makes many, and where their outcomes are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tokenroom.cli.options import POSITIVE, Command
from tokenroom.reports.messages import Language, message, printable

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tokenroom.execution.store import Store
    from tokenroom.execution.tasks import Outcome

WORKERS_SECTION: Final = ("jobs", "ray_address")
WORK_SECTION: Final = (*WORKERS_SECTION, "store_folder")


def work_options(command: Command) -> Command:
    """The options that :func:`working` reads."""
    command = click.option(
        "--store",
        "store_folder",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Keep the outcome of each run in FOLDER; what is there already is not run again.",
    )(command)
    return worker_options(command)


def worker_options(command: Command) -> Command:
    """Those of them that say who works."""
    for decorate in (
        click.option("--ray", "ray_address", help="Work on the Ray cluster at this address."),
        click.option(
            "--jobs", type=POSITIVE, help="Processes that work.  [default: as many as CPUs]"
        ),
    ):
        command = decorate(command)
    return command


class Work(NamedTuple):
    """Who works.

    Attributes:
        executor: What calls functions elsewhere.
        workers: How many runs it works on at once.
        store: Where outcomes are kept; None where they are not.
    """

    executor: Executor
    workers: int
    store: Store | None


@contextmanager
def working(options: Mapping[str, Any]) -> Iterator[Work]:
    """Who works, until the end.

    Raises:
        ExecutionError: The workers cannot be had.
        StoreError: The folder cannot be used.
    """
    from tokenroom.execution.workers import workers

    with ExitStack() as stack:
        store = None
        if options.get("store_folder") is not None:
            from tokenroom.execution.store import Store

            store = stack.enter_context(closing(Store(options["store_folder"])))
        executor, count = stack.enter_context(workers(options["jobs"], options["ray_address"]))
        yield Work(executor, count, store)


@contextmanager
def counted_runs(runs: int, language: Language) -> Iterator[Callable[[Outcome], None]]:
    """What counts runs on a terminal, and names the ones whose worker was lost."""
    from tokenroom.reports.progress import progress

    done = 0
    with progress(runs, least=2) as on_run:

        def hear(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            if outcome.lost:
                key = "compare.run_again" if outcome.problem is None else "compare.run_lost"
                run = printable(outcome.task.name)
                click.echo(message(key, language, run=run), err=True)
            if on_run is not None:
                on_run(done, runs)

        yield hear
