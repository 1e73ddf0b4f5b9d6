"""``tokenroom recipe``: from the lengths of requests to the settings of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from tokenroom.cli.deployment_options import (
    FIELDS,
    SECTIONS,
    deployment_options,
    words_argument,
)
from tokenroom.cli.options import (
    SECONDS,
    TOKENS,
    SectionedCommand,
    json_option,
    language_option,
)
from tokenroom.cli.question import question
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, message, printable

_DRAWS = 20_000


_Row = tuple[int, int, float | None]
"""Prompt, answer, and when it arrives where that is known."""


class _RecipeCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Requests": (
            "trace",
            "skip_bad",
            "workload",
            "p95",
            "input_tokens",
            "output_tokens",
            "tpot",
        ),
        **SECTIONS,
    }
    fields: Mapping[str, tuple[str, ...]] = {**FIELDS, "the workload": ("workload",)}


class _Asked(NamedTuple):
    """Lengths, what they are called, and how many come a second where that is known."""

    name: str
    p95_tokens: int
    input_tokens: int
    output_tokens: int
    rate: float | None = None


@click.command(
    "recipe",
    cls=_RecipeCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom recipe llama-3.1-8b --gpu l40s --workload chat --tpot 50ms; "
    "tokenroom recipe llama-3.1-70b@fp8 --gpu 2xh100 --p95 6500",
)
@words_argument
@click.option("--trace", help="A trace whose lengths count.")
@click.option("--skip-bad", is_flag=True, help="Leave rows of the trace out that are no requests.")
@click.option(
    "--workload",
    help="A drawn workload or a scenario: chat, code-completion, document-analysis, offline-batch, "
    "api-aggregation, agents, rag (see: tokenroom workload --presets).",
)
@click.option(
    "--p95", type=TOKENS, help="Length that 95% of requests keep within, prompt and answer."
)
@click.option(
    "--input", "input_tokens", type=TOKENS, help="With --p95: mean prompt.  [default: half of it]"
)
@click.option(
    "--output",
    "output_tokens",
    type=TOKENS,
    help="With --p95: mean answer.  [default: a tenth of it]",
)
@click.option("--tpot", type=SECONDS, help="Promise of the mean time per token, as 50ms.")
@deployment_options()
@json_option
@language_option
def command(words: tuple[str, ...], as_json: bool, language: Language, **options: Any) -> int:
    """max_model_len, max_num_seqs and the token budget for MODEL on a GPU, step by step.

    From the length that 95% of requests keep, with a fifth more, to the bytes of a request, how
    many the pool holds, four fifths of those, and what a promise of the time per token allows.
    """
    asked_lengths = _lengths(options, language)
    from tokenroom.fitting import fit
    from tokenroom.lookup.recipe import length_for, recipe

    asked = question(words, options, verb="recipe")
    own = asked.model.max_position_embeddings
    length = length_for(asked_lengths.p95_tokens)
    settings = {**asked.settings, "context": length if own is None else min(length, own)}
    found = recipe(
        fit(asked.model, asked.accelerator, **settings),
        p95_tokens=asked_lengths.p95_tokens,
        input_tokens=asked_lengths.input_tokens,
        output_tokens=asked_lengths.output_tokens,
        tpot_seconds=options["tpot"],
    )
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.lookup_text import recipe_json

        print_json(recipe_json(found, options["tpot"], language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.lookup_text import print_recipe

        print_recipe(
            console(), found, asked_lengths.name, options["tpot"], language, asked_lengths.rate
        )
    return 0 if found.largest_batch != 0 else 1


def _lengths(options: dict[str, Any], language: Language) -> _Asked:
    given = [name for name in ("trace", "workload", "p95") if options[name] is not None]
    if len(given) != 1:
        raise CommandLineError(
            "the lengths of requests are given by "
            f"{' and '.join(f'--{name}' for name in given) or 'nothing'}; give one of "
            "--trace FILE, --workload chat or --p95 6500"
        )
    if options["p95"] is not None:
        tokens: int = options["p95"]
        from tokenroom.lookup.recipe import means_within

        prompt, output = means_within(tokens, options["input_tokens"], options["output_tokens"])
        return _Asked(message("recipe.of.length", language, tokens=tokens), tokens, prompt, output)
    for name in ("input_tokens", "output_tokens"):
        if options[name] is not None:
            flag = "--" + name.removesuffix("_tokens")
            raise CommandLineError(f"{flag} belongs to --p95; requests have their own lengths")
    from tokenroom.lookup.recipe import percentile

    name, rows = _traced(options) if options["trace"] is not None else _drawn(options)
    count = len(rows)
    prompt = round(sum(row[0] for row in rows) / count)
    output = round(sum(row[1] for row in rows) / count)
    told = message(
        "recipe.of.trace", language, count=count, name=printable(name), input=prompt, output=output
    )
    p95 = percentile([row[0] + row[1] for row in rows])
    span = 0.0 if rows[-1][2] is None else rows[-1][2]
    return _Asked(told, p95, max(1, prompt), max(1, output), count / span if span > 0 else None)


def _traced(options: dict[str, Any]) -> tuple[str, list[_Row]]:
    from tokenroom.errors import WorkloadError
    from tokenroom.serving.workloads.trace import Trace, TraceOptions

    trace = Trace(Path(options["trace"]), TraceOptions(skip_bad=options["skip_bad"]))
    try:
        rows: list[_Row] = [(row[2], row[3], row[1]) for row in trace.rows()]
    except WorkloadError:  # without times of arrival lengths are enough
        rows = [(*pair, None) for pair in trace.lengths()]
    if not rows:
        raise WorkloadError(f"--trace {trace.path.name} holds no request; give one with some")
    return trace.path.name, rows


def _drawn(options: dict[str, Any]) -> tuple[str, list[_Row]]:
    from dataclasses import replace

    from tokenroom.serving.workloads.grammar import parse_workload

    workload = parse_workload(options["workload"])
    workload = replace(workload, requests=_DRAWS, duration_seconds=None)
    comes_by_itself = workload.users is None
    return str(options["workload"]), [
        (
            request.prompt_tokens,
            request.output_tokens,
            request.arrival_seconds if comes_by_itself else None,
        )
        for request in workload
    ]
