"""``tokenroom quality``: what a quantised KV cache costs a model, on a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.options import (
    COUNT,
    NUMBER,
    POSITIVE,
    json_option,
    json_schema_option,
    language_option,
    listed,
    say_written,
)
from tokenroom.cli.written_files import check_written
from tokenroom.errors import CommandLineError, MeasurementError, shown
from tokenroom.reports.messages import Language, message, printable

if TYPE_CHECKING:
    from tokenroom.measuring.kv_coding import Scheme
    from tokenroom.measuring.quality import Quality, Score, Window

_INTERRUPTED = 130
_MOST_TEXT_BYTES = 256 * 2**20


@click.command(
    "quality",
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom quality --model ./my-model --text wiki.txt --kv fp8,int8,int4 "
    "--granularity tensor,channel,head --context 512,2048 --seed 0",
)
@click.option("--model", help="Folder of a causal model with its tokenizer.")
@click.option("--text", type=click.Path(path_type=Path, dir_okay=False), help="A text, UTF-8.")
@click.option(
    "--kv",
    default="fp8,int8,int4",
    show_default=True,
    help="Types: fp8 (e4m3), fp8_e5m2, int8, int4, int3, int2; with -asym a zero point too.",
)
@click.option(
    "--granularity",
    default="tensor,head,channel",
    show_default=True,
    help="What shares a scale: tensor, head, channel, token.",
)
@click.option("--group", type=POSITIVE, help="Tokens (channel) or channels (token) a scale.")
@click.option(
    "--parts",
    type=click.Choice(["both", "keys", "values"]),
    default="both",
    show_default=True,
    help="What is quantised.",
)
@click.option(
    "--fp8-scale",
    type=click.Choice(["amax", "unit", "vllm"]),
    default="amax",
    show_default=True,
    help="Scale of fp8: by the largest magnitude, 1 as engines have without any, or as vLLM's "
    "calculate_kv_scales.",
)
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    help="One scheme instead, as int8/channel or keys+values: int4/channel/32+int4/token/32; may "
    "be repeated.",
)
@click.option("--context", default="512", show_default=True, help="Lengths of windows, as 512,2k.")
@click.option("--stride", type=POSITIVE, help="Scored tokens of a window; half of it by default.")
@click.option(
    "--windows", type=POSITIVE, default=32, show_default=True, help="At most so many a length."
)
@click.option("--seed", type=COUNT, default=0, show_default=True, help="Of windows and weights.")
@click.option(
    "--tolerance",
    type=NUMBER,
    default=0.01,
    show_default=True,
    help="Rise of perplexity that is small enough.",
)
@click.option(
    "--confidence", type=NUMBER, default=0.95, show_default=True, help="Of the error bars."
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    help="Type of weights and full cache; the model's own.",
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@click.option("--attn", "attention", help="attn_implementation; the model's own by default.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw to FILE (png, svg, pdf)."
)
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every window's scores to FILE as they are made.",
)
@json_schema_option
@json_option
@language_option
def command(
    model: str | None,
    text: Path | None,
    schemes: tuple[str, ...],
    plot: Path | None,
    csv_file: Path | None,
    json_schema: bool,
    as_json: bool,
    language: Language,
    **options: Any,
) -> int:
    """What a quantised KV cache costs a model on a text, beside what it saves.

    Windows of the text are scored with the full cache and with each quantised one: perplexity, and
    the divergence of the next token's distribution. Exit code 0: one stays within the tolerance;
    1: none does, or it cannot be told. Needs the extra measure.
    """
    if json_schema:
        from tokenroom.reports.quality_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    if model is None or text is None:
        raise CommandLineError("--model and --text are needed; name a model's folder and a text")
    check_written({"--plot": plot, "--csv": csv_file}, [text])
    if plot is not None:
        from tokenroom.reports.plots import check_plot_file

        check_plot_file(plot)
    found = _scored(model, text, _schemes(schemes, options), csv_file, options)
    from tokenroom.measuring.quality import verdict_of

    verdict = verdict_of(found, options["tolerance"])
    if plot is not None and found.results:
        from tokenroom.reports.quality_plot import plot_quality

        say_written(plot, language, plot_quality(found, plot, language))
    if csv_file is not None:
        click.echo(message("quality.written", language, file=printable(str(csv_file))), err=True)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.quality_json import quality_json

        print_json(quality_json(found, verdict, options["tolerance"], language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.quality_text import print_quality

        print_quality(console(), found, verdict, options["tolerance"], language)
    if found.interrupted:
        return _INTERRUPTED
    return 0 if verdict.key == "keeps" else 1


def _schemes(written: tuple[str, ...], options: dict[str, Any]) -> tuple[Scheme, ...]:
    from tokenroom.measuring.kv_coding import FULL, Fp8Scale, parse_scheme, schemes_of

    scale = Fp8Scale(options["fp8_scale"])
    if not written:
        return schemes_of(
            listed(options["kv"], "--kv"),
            listed(options["granularity"], "--granularity"),
            parts=options["parts"],
            group=options["group"],
            fp8_scale=scale,
        )
    found = tuple(dict.fromkeys(parse_scheme(text, scale) for text in written))
    if FULL in found:
        raise CommandLineError("--scheme is 'full', which all are compared with; leave it out")
    return found


def _windows(text_tokens: int, options: dict[str, Any]) -> list[Window]:
    from tokenroom.measuring.quality import windows_of
    from tokenroom.units import parse_tokens

    found: list[Window] = []
    for length in listed(options["context"], "--context"):
        found += windows_of(
            text_tokens,
            parse_tokens(length, "--context"),
            stride=options["stride"],
            most=options["windows"],
            seed=options["seed"],
        )
    return found


def _scored(
    name: str,
    text: Path,
    schemes: tuple[Scheme, ...],
    csv_file: Path | None,
    options: dict[str, Any],
) -> Quality:
    if not 0 < options["confidence"] < 1:
        raise CommandLineError(
            f"--confidence is {options['confidence']}; give a share between 0 and 1"
        )
    content = _read(text)
    from tokenroom.measuring.libraries import require_torch

    require_torch("transformers")
    from tokenroom.measuring.in_torch.models import device_named, is_random, load
    from tokenroom.measuring.in_torch.readings import library_versions
    from tokenroom.measuring.in_torch.scoring import Scorer, tokens_of
    from tokenroom.measuring.model_files import find_model_files
    from tokenroom.measuring.quality import Quality
    from tokenroom.reports.progress import progress

    files = find_model_files(name)
    device = device_named(options["device"])
    made: Any = load(
        files,
        device=device,
        dtype=options["dtype"],
        attention=options["attention"],
        seed=options["seed"],
        causal_only=True,
    )
    config = made.config.get_text_config(decoder=True)
    ids = tokens_of(content, files.folder, config.vocab_size)
    windows = _windows(len(ids), options)
    longest = getattr(config, "max_position_embeddings", None)
    most = max(window.context_tokens for window in windows)
    if isinstance(longest, int) and most > longest:
        raise MeasurementError(
            f"--context {most} is more than the {longest} positions of the model; give less"
        )
    scorer = Scorer(made, ids)
    scores: list[Score] = []
    interrupted = False
    with _written(csv_file) as keep, progress(len(windows), least=2) as on_window:
        try:
            for of_window in scorer.scores(windows, schemes, on_window):
                scores += of_window
                keep(of_window)
        except KeyboardInterrupt:
            if not scores:
                raise
            interrupted = True
    return Quality(
        model=files.name,
        random_weights=is_random(files, layers=None, random=False),
        device=device,
        dtype=str(made.dtype).removeprefix("torch."),
        text=text.name,
        text_tokens=len(ids),
        seed=options["seed"],
        confidence=options["confidence"],
        scores=tuple(scores),
        windows_asked=len(windows),
        interrupted=interrupted,
        identical=scorer.identical,
        unquantised=scorer.unquantised,
        versions=library_versions(),
    )


def _read(text: Path) -> str:
    from tokenroom.files import read_bounded_text

    what = f"--text {text}"
    content = read_bounded_text(text, _MOST_TEXT_BYTES, what=what, error=MeasurementError)
    if not content.strip():
        raise MeasurementError(f"{what} holds {shown(content[:20])}, no text; give a longer one")
    return content


def _written(file: Path | None) -> Any:
    """What keeps scores in a file as they come; nothing without one."""
    from contextlib import nullcontext

    if file is None:
        return nullcontext(lambda scores: None)
    from tokenroom.reports.quality_csv import score_file

    return score_file(file)
