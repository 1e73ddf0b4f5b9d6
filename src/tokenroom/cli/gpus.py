"""``tokenroom gpus [WORD]``: what is known about GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from tokenroom.cli.options import gpu_file_option, json_option, language_option
from tokenroom.errors import HardwareError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue, load_catalogue
from tokenroom.reports.console import console, print_json
from tokenroom.reports.messages import Language, message
from tokenroom.reports.text import accelerator_details, accelerator_json, accelerator_table


@click.command("gpus")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@json_option
@gpu_file_option
@language_option
def command(
    words: tuple[str, ...], as_json: bool, gpu_file: Path | None, language: Language
) -> int:
    """The GPUs tokenroom knows, with their figures and sources.

    WORDs narrow the list; a GPU's name shows that one alone, with the source of each figure.
    """
    found = _found(load_catalogue(gpu_file), " ".join(words))
    if as_json:
        print_json([accelerator_json(gpu) for gpu in found])
        return 0 if found else 1
    if not found:
        console(stderr=True).print(message("gpus.none", language, words=" ".join(words)))
        return 1
    out = console()
    if len(found) == 1:
        out.print(accelerator_details(found[0], language))
    else:
        out.print(accelerator_table(found, language))
        out.print(message("gpus.footer", language), style="dim")
    return 0


def _found(catalogue: Catalogue, words: str) -> tuple[Accelerator, ...]:
    """The one GPU that has this name, else those that hold the words."""
    if words:
        try:
            return (catalogue.find(words),)
        except HardwareError:
            pass  # not a name: a search
    return catalogue.search(words)
