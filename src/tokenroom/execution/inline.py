"""An executor that answers in the calling process, one task after the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


class Inline(Executor):
    """Calls functions where they are submitted; an interrupt goes through to the caller."""

    def submit(self, fn: Callable[..., _Answer], /, *args: Any, **kwargs: Any) -> Future[_Answer]:
        """Call ``fn``; the future is done when it is returned."""
        future: Future[_Answer] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
