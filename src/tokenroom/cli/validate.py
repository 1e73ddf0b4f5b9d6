"""``tokenroom validate``: how right the predictions are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.options import gpu_file_option, json_option, language_option
from tokenroom.errors import CommandLineError, RowError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.validation.prediction import Predictor
    from tokenroom.validation.reading import BadRow
    from tokenroom.validation.rows import Row
    from tokenroom.validation.validate import Validation


@click.command(
    "validate",
    context_settings={"max_content_width": 100},
    epilog="Rows: docs/validation.md.",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--grade", help="Only rows of these grades, as A,B.")
@click.option("--engine", help="Only rows of these engines, as vllm,sglang.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables to FILE.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw to FILE (png, svg, pdf).")
@click.option("--skip-bad", is_flag=True, help="Skip rows that cannot be read, and count them.")
@click.option("--offline", is_flag=True, help="Never ask the Hub.")
@json_option
@gpu_file_option
@language_option
def command(
    files: tuple[Path, ...],
    as_json: bool,
    language: Language,
    skip_bad: bool,
    **options: Any,
) -> int:
    """How right the predictions are, on rows of measurements or on an engine's log.

    Each row is predicted from its flags and compared with what the engine printed.
    FILE holds rows of measurements: JSON lines, JSON or CSV, plain or gzipped.
    """
    if not files:
        raise CommandLineError("no file of rows is given; docs/validation.md describes the form")
    from tokenroom.validation.validate import unique_rows

    rows, bad = _read(files)
    if bad and not skip_bad:
        more = f" (and {len(bad) - 1} more; --skip-bad leaves them out)" if len(bad) > 1 else ""
        raise RowError(bad[0].reason + (more or " (--skip-bad leaves it out)"))
    chosen = unique_rows(_chosen(rows, options["grade"], options["engine"]))
    found = _validate(chosen, _predictor(options))
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.validation_json import validation_json

        print_json(validation_json(found, num_skipped=len(bad)))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.validation_text import print_validation

        first = bad[0].reason if bad else ""
        print_validation(console(), found, language, num_skipped=len(bad), first_skipped=first)
    return 130 if found.interrupted else 0


def _read(files: Iterable[Path]) -> tuple[list[Row], list[BadRow]]:
    from tokenroom.validation.reading import BadRow, read_rows

    rows: list[Row] = []
    bad: list[BadRow] = []
    for file in files:
        for item in read_rows(file):
            if isinstance(item, BadRow):
                bad.append(item)
            else:
                rows.append(item)
    return rows, bad


def _chosen(rows: Sequence[Row], grades: str | None, engines: str | None) -> Iterator[Row]:
    from tokenroom.validation.rows import GRADES

    wanted_grades = _listed(grades, upper=True)
    for grade in wanted_grades:
        if grade not in GRADES:
            raise CommandLineError(f"--grade is {grades!r}; it may hold {', '.join(GRADES)}")
    wanted_engines = _listed(engines, upper=False)
    present = {row.engine for row in rows}
    for engine in wanted_engines:
        if engine not in present:
            raise CommandLineError(
                f"--engine is {engines!r}; the rows are of {', '.join(sorted(present)) or 'none'}"
            )
    for row in rows:
        if (not wanted_grades or row.grade in wanted_grades) and (
            not wanted_engines or row.engine in wanted_engines
        ):
            yield row


def _listed(text: str | None, *, upper: bool) -> list[str]:
    parts = [part.strip() for part in (text or "").split(",")]
    return [part.upper() if upper else part.lower() for part in parts if part]


def _predictor(options: dict[str, Any]) -> Predictor:
    from functools import partial

    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.models.hub import HubOptions
    from tokenroom.models.resolve import load_model
    from tokenroom.validation.prediction import Predictor

    hub = HubOptions(offline=True) if options["offline"] else None
    return Predictor(
        catalogue=load_catalogue(options["gpu_file"]), load=partial(load_model, hub=hub)
    )


def _validate(rows: Sequence[Row], predictor: Predictor) -> Validation:
    from tokenroom.reports.progress import progress
    from tokenroom.validation.validate import validate

    with progress(len(rows)) as on_row:
        return validate(rows, predictor=predictor, on_row=on_row)
