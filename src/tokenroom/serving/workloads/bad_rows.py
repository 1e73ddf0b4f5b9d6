"""What becomes of a row that is no request: an error with its line, or a count by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tokenroom.errors import WorkloadError

REASONS: Final = (
    "text",  # the line is no row or object at all
    "missing",  # a field has no value
    "number",  # a field is no number, not finite, or not whole
    "length",  # a length that no request has
    "no_output",  # no token came out: the request failed
    "time",  # a time that is no time
    "order",  # earlier than rows long past
    "blocks",  # block ids that do not fit the prompt
    "cut",  # the file ends in the middle
)
"""Why a row is left out, as reports name it."""

ADVICE: Final = "--skip-bad leaves such rows out and counts them"


class BadRows:
    """Refuses rows that are no requests, or counts them.

    Attributes:
        name: The file, as messages call it.
        skip: Whether such rows are left out instead of ending the reading.
        counts: Rows left out, by reason.
        first_lines: The first line of each reason.
    """

    __slots__ = ("counts", "first_lines", "name", "skip")

    def __init__(self, name: str, *, skip: bool) -> None:
        self.name = name
        self.skip = skip
        self.counts: dict[str, int] = {}
        self.first_lines: dict[str, int] = {}

    def refuse(self, line: int, reason: str, sentence: str) -> None:
        """Leave a row out, or end the reading.

        Args:
            line: Its line in the file, from 1.
            reason: One of :data:`REASONS`.
            sentence: What is wrong with it: the field and what it held.

        Raises:
            WorkloadError: Rows are not left out.
        """
        if not self.skip:
            raise WorkloadError(f"{self.name}, line {line}: {sentence}; {ADVICE}")
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.first_lines.setdefault(reason, line)

    @contextmanager
    def until_damage(self, line: Callable[[], int]) -> Iterator[None]:
        """Read a file to its end, or to where it is damaged.

        Args:
            line: The line that was read last.

        Raises:
            WorkloadError: The compressed data is damaged or cut, and rows are not left out.
        """
        try:
            yield
        except Exception as problem:
            if not is_damage(problem):
                raise
            self.refuse(
                line() + 1,
                "cut",
                f"the compressed data is damaged or ends early ({problem}); what stands before it "
                "can be read",
            )


def is_damage(problem: Exception) -> bool:
    """Whether an error says that compressed data is damaged, whichever module raised it."""
    import lzma
    import zlib
    from gzip import BadGzipFile

    return isinstance(problem, EOFError | zlib.error | BadGzipFile | lzma.LZMAError) or (
        type(problem).__name__ == "ZstdError"
        or (isinstance(problem, OSError) and problem.errno is None)  # as bz2 says it
    )
