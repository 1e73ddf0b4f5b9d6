"""``tokenroom gpus [WORD]``: what is known about GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from tokenroom.cli.options import gpu_file_option, json_option, language_option
from tokenroom.errors import HardwareError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue, load_catalogue
from tokenroom.reports.console import console, print_json, print_trimmed
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

    WORDs narrow the list to the GPUs that have all of them: each begins a word of the name, vendor
    or architecture (rtx 40, a100, hopper nvl). What matches alone, or by its whole key
    (h100-sxm-80gb), is shown with the source of each figure. A MIG slice has the name of its GPU
    and of its profile: "H100 MIG 3g.40gb"; the profiles are among the details of the GPU.
    """
    catalogue = load_catalogue(gpu_file)
    wanted = " ".join(words)
    if as_json:
        found = _named(catalogue, wanted) or catalogue.search(wanted)
        print_json([accelerator_json(gpu, catalogue.slices(gpu)) for gpu in found])
        return 0 if found else 1
    shown, listed = _found(catalogue, wanted)
    if shown is None and not listed:
        console(stderr=True).print(message("gpus.none", language, words=wanted))
        return 1
    out = console()
    if shown is not None:
        out.print(accelerator_details(shown, catalogue.slices(shown), language))
    if listed:
        if shown is not None:
            out.print()
            out.print(message("gpus.others", language))
        print_trimmed(out, accelerator_table(listed, language), whole_rows=True)
        out.print(message("gpus.footer", language), style="dim")
    return 0


def _named(catalogue: Catalogue, words: str) -> tuple[Accelerator, ...]:
    """The one GPU that ``fit`` would take for this name."""
    try:
        return (catalogue.find(words),) if words else ()
    except HardwareError:
        return ()


def _found(catalogue: Catalogue, words: str) -> tuple[Accelerator | None, tuple[Accelerator, ...]]:
    """The GPU to show in full, if there is one, and the others to list.

    A whole key comes before a search, and a search before other ways to write one name: "a100"
    lists the A100s, although the name alone means one of them.
    """
    if not words:
        return None, catalogue.search("")
    shown = catalogue.with_key(words)
    listed = tuple(gpu for gpu in catalogue.search(words) if gpu != shown)
    if shown is None and not listed:
        listed = _named(catalogue, words)
    return (listed[0], ()) if shown is None and len(listed) == 1 else (shown, listed)
