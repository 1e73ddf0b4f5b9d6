"""``tokenroom models [WORD]``: the models known without files or network."""

from __future__ import annotations

import click

from tokenroom.cli.options import json_option, language_option
from tokenroom.models import catalogue
from tokenroom.reports.console import console, print_json, print_trimmed
from tokenroom.reports.messages import Language, message
from tokenroom.reports.text import model_details, model_json, model_table


@click.command("models")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@json_option
@language_option
def command(words: tuple[str, ...], as_json: bool, language: Language) -> int:
    """The models tokenroom knows without any download.

    WORDs narrow the list; a model's name shows that one alone, with the source of its figures.
    Any other model can be given as a config.json, a folder, a GGUF file or a Hub id.
    """
    wanted = " ".join(words)
    found = [catalogue.entry(name) for name in _found(wanted)]
    if as_json:
        print_json([model_json(model, catalogue.specification(model)) for model in found])
        return 0 if found else 1
    if not found:
        notes = console(stderr=True)
        notes.print(message("models.none", language, words=wanted))
        near = catalogue.nearest(wanted)
        if near:
            notes.print(message("models.near", language, names=", ".join(near)))
        return 1
    out = console()
    specs = [catalogue.specification(model) for model in found]
    if len(found) == 1:
        out.print(model_details(found[0], specs[0], language))
    else:
        print_trimmed(out, model_table(specs, language), whole_rows=True)
        out.print(message("models.footer", language), style="dim")
    return 0


def _found(words: str) -> tuple[str, ...]:
    """The one model that has this name, else those that hold every word."""
    if not words:
        return catalogue.names()
    exact = catalogue.candidates(words)
    if len(exact) == 1:
        return exact
    matches = [set(catalogue.search(word)) for word in words.split()]
    return tuple(sorted(set.intersection(*matches), key=str.lower))
