"""Every run of a comparison as a table: CSV, a line a run."""

from __future__ import annotations

import csv
from pathlib import Path

from tokenroom.comparing.comparison import Comparison
from tokenroom.comparing.figures import FIGURES
from tokenroom.errors import TokenroomError, shown


def write_comparison(found: Comparison, path: Path) -> None:
    """Write the figures of every run; seconds, shares from 0 to 1, USD; empty where unknown.

    Raises:
        TokenroomError: The file's name does not end in .csv.
        OSError: It cannot be written.
    """
    check_comparison_file(path)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        keys = [figure.key for figure in FIGURES]
        writer.writerow(["deployment", "draw", "arrived", "served", "falls_behind", *keys])
        for subject in found.subjects:
            for draw, answer in found.answers[subject.name].items():
                about = [answer["arrived"], answer["served"], answer["falls_behind"]]
                values = [answer["figures"][key] for key in keys]
                writer.writerow([subject.name, draw, *about, *values])


def check_comparison_file(path: Path) -> None:
    """Refuse a name of another form, before long work.

    Raises:
        TokenroomError: It does not end in .csv.
    """
    if path.suffix.lower() != ".csv":
        raise TokenroomError(
            f"the file of runs {shown(path.name)} ends in {shown(path.suffix)}; it may end in .csv"
        )
