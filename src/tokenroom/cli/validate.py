"""``tokenroom validate``: how right the predictions are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.deployment_options import deployment_options
from tokenroom.cli.options import (
    POSITIVE,
    gpu_file_option,
    json_option,
    json_schema_option,
    language_option,
)
from tokenroom.cli.written_files import check_written, read_files
from tokenroom.errors import CommandLineError, RowError, shown
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.hardware.catalogue import Catalogue
    from tokenroom.validation.prediction import Predictor
    from tokenroom.validation.reading import BadRow
    from tokenroom.validation.rows import Row
    from tokenroom.validation.validate import Validation

_INTERRUPTED = 130
_STDIN = Path("/dev/stdin")


@click.command(
    "validate",
    context_settings={"max_content_width": 100},
    epilog="After -- comes the command that wrote the log: tokenroom validate --log vllm.log -- "
    "vllm serve MODEL. Rows: docs/validation.md.",
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[FILE...] | --log LOG [-- COMMAND...]"
)
@click.option("--grade", help="Only rows of these grades, as A,B.")
@click.option(
    "--engine", help="Only rows of these engines, as vllm,sglang; with --log its engine[@version]."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write the report to FILE."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw to FILE (png, svg, pdf)."
)
@click.option("--skip-bad", is_flag=True, help="Rows that cannot be read are named, and no error.")
@click.option(
    "--log", type=click.Path(path_type=Path), metavar="FILE", help="An engine's start-up log."
)
@click.option("--model", help="The log's model, when it names a local folder or none.")
@click.option("--gpu", help="The log's GPU, when its memory alone does not tell.")
@click.option("--gpus", type=POSITIVE, help="How many GPUs ran it.")
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE", help="Write the log's row to FILE."
)
@deployment_options("offline")
@json_schema_option
@json_option
@gpu_file_option
@language_option
def command(
    words: tuple[str, ...],
    as_json: bool,
    language: Language,
    skip_bad: bool,
    json_schema: bool,
    **options: Any,
) -> int:
    """How right the predictions are, on rows of measurements or on an engine's log.

    Each row is predicted from its flags and compared with what the engine printed. FILE holds rows:
    JSON lines, JSON or CSV, plain or gzipped (- for stdin).
    """
    if json_schema:
        from tokenroom.reports.validation_json import schema_text

        click.echo(schema_text())
        return 0
    check_written(
        {f"--{name}": options[name] for name in ("markdown", "plot", "export")},
        [*read_files(words, options), options["log"]],
    )
    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.validation.validate import unique_rows

    catalogue = load_catalogue(options["gpu_file"])
    bad: list[BadRow] = []
    if options["log"] is not None:
        rows: Sequence[Row] = (_log_row(words, catalogue, options),)
    else:
        read, bad = _read(_files(words, options))
        if bad and not read:
            raise RowError(bad[0].reason + _how_many(len(bad)))
        rows = unique_rows(_chosen(read, options["grade"], options["engine"]))
    found = _validate(rows, _predictor(catalogue, options))
    if options["log"] is not None:
        found = _with_grade(found, rows[0], catalogue)
    _write(found, rows, options, language)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.validation_json import validation_json

        print_json(validation_json(found, bad=[item.reason for item in bad]))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.validation_text import print_validation

        print_validation(console(), found, language, bad=[item.reason for item in bad])
    if found.interrupted:
        return _INTERRUPTED
    if bad and not skip_bad:
        raise RowError(bad[0].reason + _how_many(len(bad)))
    if options["log"] is None:
        return 0
    foreseen = any(check.agrees for check in found.outcomes)
    return 1 if found.unpredicted or not (found.comparisons or foreseen) else 0


def _files(words: Sequence[str], options: dict[str, Any]) -> list[Path]:
    for name in ("export", "model", "gpu", "gpus"):
        if options[name] is not None:
            raise CommandLineError(f"--{name} belongs to --log LOG, which is not given")
    if not words:
        raise CommandLineError(
            "no file of rows is given (docs/validation.md describes the form), and no --log"
        )
    return [_STDIN if word == "-" else Path(word) for word in words]


def _how_many(count: int) -> str:
    if count == 1:
        return " (--skip-bad leaves it out)"
    return f" (and {count - 1} more; --skip-bad leaves them out)"


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


def _log_row(words: tuple[str, ...], catalogue: Catalogue, options: dict[str, Any]) -> Row:
    """The row of a log, with what the command and the options say beside it."""
    from tokenroom.validation.logs.read import Started, read_log

    engine, _, version = (options["engine"] or "").strip().lower().partition("@")
    told: dict[str, Any] = {
        "engine": engine or None,
        "version": version or None,
        "model": options["model"],
        "gpu": options["gpu"],
        "gpus": options["gpus"],
    }
    if words:
        told |= _from_command(words, told)
    log: Path = options["log"]
    return read_log(_STDIN if str(log) == "-" else log, catalogue, Started(**told))


def _from_command(words: tuple[str, ...], told: dict[str, Any]) -> dict[str, Any]:
    from tokenroom.engines.registry import chosen_start, command_parser
    from tokenroom.validation.commands import plain_command

    engine, chosen = chosen_start(words, os.environ, engine=told["engine"])
    if told["engine"] not in (None, engine):
        raise CommandLineError(
            f"--engine is {shown(told['engine'])} and the command starts {engine}; leave "
            f"--engine out"
        )
    parsed = command_parser(engine)(chosen, environment=os.environ, version=told["version"])
    return {
        "engine": engine,
        "version": told["version"] or parsed.version,
        "model": told["model"] or parsed.model,
        "gpu": told["gpu"] or parsed.accelerator_hint,
        "gpus": told["gpus"] or parsed.gpus,
        "command": plain_command(words),
    }


def _with_grade(found: Validation, row: Row, catalogue: Catalogue) -> Validation:
    """What was found, with how a log's row would count where only the GPU's name is missing."""
    from dataclasses import replace

    from tokenroom.validation.figures import numeric
    from tokenroom.validation.prediction import by_memory
    from tokenroom.validation.validate import Remark

    total = numeric(row.reported.get("total_gpu_gib"))
    if row.grade != "C" or "gpu" not in row.inferred or total is None or row.gpu is None:
        return found
    names = ", ".join(item.name for item in by_memory(catalogue, total))
    remark = Remark(id=row.id, key="gpu", values={"names": names, "gpu": row.gpu})
    return replace(found, remarks=(*found.remarks, remark))


def _chosen(rows: Sequence[Row], grades: str | None, engines: str | None) -> Iterator[Row]:
    from tokenroom.validation.rows import GRADES

    wanted_grades = _listed(grades, upper=True)
    for grade in wanted_grades:
        if grade not in GRADES:
            raise CommandLineError(f"--grade is {shown(grades)}; it may hold {', '.join(GRADES)}")
    wanted_engines = _listed(engines, upper=False)
    present = {row.engine for row in rows}
    for engine in wanted_engines:
        if engine not in present:
            raise CommandLineError(
                f"--engine is {shown(engines)}; the rows are of "
                f"{', '.join(sorted(present)) or 'none'}"
            )
    for row in rows:
        if (not wanted_grades or row.grade in wanted_grades) and (
            not wanted_engines or row.engine in wanted_engines
        ):
            yield row


def _listed(text: str | None, *, upper: bool) -> list[str]:
    parts = [part.strip() for part in (text or "").split(",")]
    return [part.upper() if upper else part.lower() for part in parts if part]


def _predictor(catalogue: Catalogue, options: dict[str, Any]) -> Predictor:
    from functools import partial

    from tokenroom.models.hub import HubOptions
    from tokenroom.models.resolve import load_model
    from tokenroom.validation.prediction import Predictor

    hub = HubOptions(offline=True) if options["offline"] else None
    return Predictor(catalogue=catalogue, load=partial(load_model, hub=hub))


def _validate(rows: Sequence[Row], predictor: Predictor) -> Validation:
    from tokenroom.reports.progress import progress
    from tokenroom.validation.validate import validate

    with progress(len(rows)) as on_row:
        return validate(rows, predictor=predictor, on_row=on_row)


def _write(
    found: Validation, rows: Sequence[Row], options: dict[str, Any], language: Language
) -> None:
    """The files that were asked for."""
    if options["export"] is not None:
        from tokenroom.validation.rows import row_data

        text = json.dumps(row_data(rows[0]), ensure_ascii=False) + "\n"
        try:
            options["export"].write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandLineError(
                f"--export {options['export']} cannot be written: {error.strerror}"
            ) from error
    if options["markdown"] is not None:
        from tokenroom.reports.validation_markdown import write_markdown

        write_markdown(found, options["markdown"], language)
    if options["plot"] is not None:
        from tokenroom.reports.validation_plot import plot_validation

        plot_validation(found, options["plot"], language)
