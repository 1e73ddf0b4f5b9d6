"""``tokenroom explain``: why a server ran out of memory, by its log."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from tokenroom.cli.options import (
    gpu_file_option,
    json_option,
    json_schema_option,
    language_option,
)
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, printable

if TYPE_CHECKING:
    from tokenroom.diagnosis.explain import Diagnosis
    from tokenroom.diagnosis.recovered import Recovered
    from tokenroom.diagnosis.remedies import Remedy


@click.command(
    "explain",
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom explain server.log; kubectl logs POD --previous | tokenroom explain -",
)
@click.argument(
    "logs",
    nargs=-1,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="LOG...",
)
@click.option("--gpu", help="The GPU, where the log does not name it, as l40s.")
@click.option("--model", help="The model, where the log does not name it.")
@click.option("--offline", is_flag=True, help="Never ask the Hub for the model of a log.")
@gpu_file_option
@json_schema_option
@json_option
@language_option
def command(
    logs: tuple[Path, ...],
    gpu: str | None,
    model: str | None,
    offline: bool,
    gpu_file: Path | None,
    json_schema: bool,
    as_json: bool,
    language: Language,
) -> int:
    """Why a server ran out of memory, what speaks for it, and what helps.

    LOG is what was printed (- for stdin): vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama, TGI or
    transformers; PyTorch errors and memory snapshots; nvidia-smi, dmesg, kubectl describe; plain or
    packed by gzip, bzip2 or xz. Exit code
    0: a cause was found, or nothing is wrong; 1: the log does not tell.
    """
    if json_schema:
        from tokenroom.reports.diagnosis_text import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if not logs:
        raise CommandLineError("no log is given; name a file, or - for standard input")
    if sum(str(log) == "-" for log in logs) > 1:
        raise CommandLineError("- is named twice, and standard input is read once; name it once")
    code = 0
    answers: list[dict[str, Any]] = []
    for number, log in enumerate(logs):
        found, recovered, helps = _explained(log, gpu, model, gpu_file, offline=offline)
        if as_json:
            from tokenroom.reports.diagnosis_text import diagnosis_json

            answers.append(diagnosis_json(found, recovered, helps, language))
        else:
            from tokenroom.reports.console import console
            from tokenroom.reports.diagnosis_text import print_diagnosis

            if len(logs) > 1:
                click.echo(("\n" if number else "") + f"== {printable(str(log))}")
            print_diagnosis(console(), found, recovered, helps, language)
        if found.first is None and not found.healthy and found.other_error is None:
            code = 1
    if as_json:
        from tokenroom.reports.console import print_json

        print_json(answers[0] if len(answers) == 1 else answers)
    return code


def _explained(
    log: Path, gpu: str | None, model: str | None, gpu_file: Path | None, *, offline: bool
) -> tuple[Diagnosis, Recovered, list[Remedy]]:
    from functools import partial

    from tokenroom.diagnosis.explain import explain
    from tokenroom.diagnosis.recovered import Told, recover
    from tokenroom.diagnosis.remedies import remedies
    from tokenroom.files import check_regular
    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.models.hub import HubOptions
    from tokenroom.models.resolve import load_model
    from tokenroom.validation.reading import unpacked

    if str(log) == "-":
        if sys.stdin is None:
            raise CommandLineError("standard input is closed; name a file")
        stream = io.BufferedReader(cast("Any", sys.stdin.buffer))
        found = explain(unpacked(stream, "standard input"))
    else:
        try:
            check_regular(log, what=str(log), error=CommandLineError, streams=True)
            with log.open("rb") as file:
                found = explain(unpacked(file, str(log)))
        except OSError as error:
            raise CommandLineError(
                f"{log} cannot be read: {error.strerror or error}; name a log"
            ) from error
    find = partial(load_model, hub=HubOptions(offline=True)) if offline else load_model
    catalogue = load_catalogue(gpu_file)
    recovered = recover(
        found.report,
        catalogue,
        name=log.name,
        find_model=find,
        told=Told(model=model, gpu=None if gpu is None else catalogue.find(gpu)),
    )
    helps: list[Remedy] = []
    if found.first is not None:
        helps = remedies(
            found.first, found.report.engine, recovered.result, found.report.facts.flags
        )
    return found, recovered, helps
