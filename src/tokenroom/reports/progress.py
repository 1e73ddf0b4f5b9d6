"""Progress of long work on standard error, when that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WORTH_SHOWING = 200
"""Points below which a sweep is done before a bar could be read."""


@contextmanager
def progress(
    total: int, least: int = _WORTH_SHOWING
) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total) that moves a bar; None when there is nobody to watch one.

    Args:
        total: Points of the work.
        least: So many are worth a bar.
    """
    if total < least or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)
