"""Scores of windows as rows of a CSV file, written as they are made so that none is lost."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tokenroom.errors import MeasurementError
from tokenroom.measuring.quality import Score

COLUMNS: Final = (
    "context_tokens",
    "start",
    "scored_tokens",
    "scheme",
    "loss_nats",
    "kl_nats",
    "top1_agreement",
    "kv_bytes_per_token",
)


@contextmanager
def score_file(file: Path) -> Iterator[Callable[[Sequence[Score]], None]]:
    """A function that appends a window's scores to a file, opened anew.

    Raises:
        MeasurementError: It cannot be written.
    """
    try:
        stream = file.open("w", encoding="utf-8", newline="")
    except OSError as problem:
        raise MeasurementError(f"--csv {file} cannot be written: {problem.strerror}") from problem
    with stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)

        def keep(scores: Sequence[Score]) -> None:
            writer.writerows(_row(score) for score in scores)
            stream.flush()

        yield keep


def _row(score: Score) -> tuple[object, ...]:
    return (
        score.window.context_tokens,
        score.window.start,
        score.window.scored_tokens,
        score.scheme,
        score.loss,
        score.divergence,
        score.agreement,
        score.bytes_per_token,
    )
