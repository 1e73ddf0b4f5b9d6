"""The answer of ``speed`` for a person: what clients see, what holds it back, on what it rests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from tokenroom.engines.registry import engine_title
from tokenroom.errors import HardwareError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.objectives import LoadLimits, Objectives
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.llama_cpp import BUILDS
from tokenroom.regimes import Regimes
from tokenroom.reports.calibration_text import applied_text, difference_text, print_applied
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.fit_text import fit_title, verdict_reason
from tokenroom.reports.messages import Language, message, notice_text
from tokenroom.reports.objectives_text import missed_text, objectives_text, print_limits
from tokenroom.serving_speed import USUAL_CLIENTS, Range, ServingSpeed
from tokenroom.step_ledger import OperatorLine, StepLedger
from tokenroom.units import MIB, format_bytes, format_figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FELT: Final = 0.01
"""Part of a step by which its range must grow for a sentence on it."""

_SHOWN: Final = 0.005
"""Part of a time that is named in what it is made of."""

_LARGEST: Final = 3
"""Operators named beside what limits a step."""


def print_speed(
    out: Console,
    result: ServingSpeed,
    regimes: Regimes,
    language: Language,
    *,
    limits: LoadLimits | None = None,
    explain: bool = False,
) -> None:
    """Write the whole report to ``out``.

    Under objectives (``limits``) what they allow comes first, and ``result`` is that load.
    """
    out.print(Paragraph(fit_title(result.fit, language), style="bold"))
    for line in _load_lines(result, language):
        out.print(Paragraph(line, style="dim"))
    out.print()
    if limits is not None:
        print_limits(out, limits, language)
        out.print()
    if result.arrivals is not None and result.arrivals.falls_behind:
        _print_falls_behind(out, result, language)
        out.print()
    print_trimmed(out, _figures(result, language))
    out.print(Paragraph(regimes_text(result.concurrency, regimes, language)))
    out.print()
    lines = list(_makeup(result, language))
    for name, ledger in (("prefill", result.prefill), ("decode", result.decode)):
        lines += _limits(name, ledger, language)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        out.print(Paragraph(line.lstrip(), first=indent, rest=indent + indent))
    if explain:
        _print_explanation(out, result, language)
    out.print()
    for line in _grounds(result, language):
        out.print(Paragraph(line, style="dim"))
    _print_warnings(out, result, language)


def print_refusal(out: Console, result: FitResult, language: Language) -> None:
    """Write why there is no speed: the engine would not start."""
    from rich.text import Text

    out.print(Paragraph(fit_title(result, language), style="bold"))
    out.print()
    verdict = Text(message("fit.verdict.does_not_fit", language), style="bold red")
    out.print(
        Paragraph(verdict + Text(message("fit.colon", language) + verdict_reason(result, language)))
    )
    out.print(Paragraph(message("speed.what_fits", language)))


def regime_span_text(regimes: Regimes, wanted: str, language: Language) -> str:
    """One regime with the clients it goes from and to."""
    first, last = next((first, last) for name, first, last in regimes.spans if name == wanted)
    return message(
        "speed.regime.from" if last is None else "speed.regime.to",
        language,
        regime=message(f"speed.regime.{wanted}", language),
        first=first,
        last=last,
    )


def regimes_text(concurrency: int, regimes: Regimes, language: Language) -> str:
    """The regime of a load, and where each of them ends, in a line."""
    return message(
        "speed.regime",
        language,
        regime=message(f"speed.regime.{regimes.of(concurrency)}", language),
        spans=message("speed.parts_join", language).join(
            regime_span_text(regimes, name, language) for name, _, _ in regimes.spans
        ),
    )


def print_speed_sweep(
    out: Console,
    points: Sequence[ServingSpeed],
    regimes: Regimes,
    language: Language,
    *,
    objectives: Objectives | None = None,
) -> None:
    """Write a sweep over clients to ``out``, one line a point."""
    from rich.table import Table

    first = points[0]
    out.print(Paragraph(fit_title(first.fit, language), style="bold"))
    about = message(
        "speed.sweep.request",
        language,
        input=first.load.input_tokens,
        output=first.load.output_tokens,
    )
    out.print(Paragraph(about, style="dim"))
    out.print(Paragraph(_deployment_line(first, language), style="dim"))
    out.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = ["concurrency", "running", "ttft", "tpot", "user", "gpu"]
    if first.price_per_gpu_hour is not None:
        names.append("cost")
    names.append("regime")
    if objectives is not None:
        names.append("misses")
    for name in names:
        side: Literal["left", "right"] = "left" if name in ("regime", "misses") else "right"
        table.add_column(message(f"speed.sweep.{name}", language), justify=side, no_wrap=True)
    none = message("speed.none", language)
    for point in points:
        cost = point.usd_per_million_output_tokens
        table.add_row(
            f"{point.concurrency:,}",
            f"{point.requests_running:,}",
            format_figure(point.ttft_seconds.value * 1e3),
            *(
                format_figure(value) if point.has_further_tokens else none
                for value in (
                    point.tpot_seconds.value * 1e3,
                    point.tokens_per_second_per_user.value,
                )
            ),
            format_figure(point.output_tokens_per_second_per_gpu.value),
            *(() if cost is None else (format_figure(cost.value),)),
            message(f"speed.regime.{regimes.of(point.concurrency)}", language),
            *(() if objectives is None else (missed_text(objectives.missed(point), language),)),
        )
    print_trimmed(out, table)
    out.print()
    out.print(Paragraph(message("speed.regime.note", language)))
    if objectives is not None:
        wanted = objectives_text(objectives, language)
        out.print(Paragraph(message("speed.slo.misses_note", language, wanted=wanted)))
    out.print()
    for line in _grounds(first, language):
        out.print(Paragraph(line, style="dim"))
    _print_warnings(out, first, language)


def _print_warnings(out: Console, result: ServingSpeed, language: Language) -> None:
    from rich.text import Text

    for sentence in speed_warnings(result, language):
        label = Text(message("fit.warning", language), style="yellow")
        out.print(Paragraph(label + Text(sentence), rest=" " * label.cell_len))


def speed_warnings(result: ServingSpeed, language: Language) -> list[str]:
    """What makes the figures less sure, then what the fit has to say, as sentences."""
    accelerator = result.fit.deployment.node.accelerator
    found = []
    if not result.has_further_tokens:
        found.append(message("speed.one_token", language))
    differs = None
    if result.calibration is not None:
        differs = difference_text(result.calibration, language)
    if differs is not None:
        found.append(differs)
    main = result.decode.time
    if main.borrowed:
        found.append(
            message(
                "speed.borrowed", language, gpu=accelerator.name, other=_gpu_name(main.tables_of)
            )
        )
    others = sorted({source.split(":")[0] for source in result.tables} - {main.tables_of})
    if others:
        names = message("speed.parts_join", language).join(map(_gpu_name, others))
        found.append(
            message("speed.partly_borrowed", language, gpu=_gpu_name(main.tables_of), other=names)
        )
    found.extend(_outside(result, language))
    if result.terms.layout.host_weight_bytes:
        size = format_bytes(result.terms.layout.host_weight_bytes)
        found.append(message("speed.host_weights", language, size=size))
    reduces = any(line.name == "all_reduce" for line in result.decode.lines)
    if reduces and accelerator.link_bytes_per_second is None:
        found.append(message("speed.pcie_all_reduce", language))
    return found + [notice_text(notice, language) for notice in result.fit.notices]


def _outside(result: ServingSpeed, language: Language) -> Iterator[str]:
    """The extent outside of the tables that widens the range of a step most, if it does at all."""
    found = [
        ((out.widening - 1) * line.share, line.name, out)
        for ledger in (result.prefill, result.decode)
        for line in ledger.lines
        for out in line.beyond
    ]
    if not found:
        return
    most, name, out = max(found, key=lambda item: item[0])
    if most >= _FELT:
        yield message(
            "speed.outside_above" if out.value > out.limit else "speed.outside_below",
            language,
            operator=name,
            extent=message(f"speed.extent.{out.extent}", language),
            value=round(out.value),
            limit=round(out.limit),
            times=format_figure(out.times),
            wider=f"{out.widening:.2f}",
        )


def _gpu_name(key: str) -> str:
    try:
        return find_accelerator(key).name
    except HardwareError:  # a user's file may replace the catalogue's entry
        return key


def _load_lines(result: ServingSpeed, language: Language) -> Iterator[str]:
    of_rate = {}
    key = "speed.request"
    if result.arrivals is not None:
        key = "speed.request_rate"
        of_rate["rate"] = format_figure(result.arrivals.requests_per_second)
    elif result.num_prompts is not None:
        key = "speed.request_benchmark"
        of_rate["num_prompts"] = f"{result.num_prompts:,}"
    text = message(
        key,
        language,
        input=result.load.input_tokens,
        output=result.load.output_tokens,
        concurrency=result.concurrency,
        **of_rate,
    )
    if result.assumed:
        few = result.concurrency < USUAL_CLIENTS and result.num_prompts is None
        text += message("speed.assumed_room" if few else "speed.assumed", language)
    yield text
    if result.arrivals is not None and not result.arrivals.falls_behind:
        share = result.arrivals.requests_per_second / result.arrivals.capacity
        yield message(
            "speed.rate_note",
            language,
            share=f"{share:.0%}",
            capacity=format_figure(result.arrivals.capacity),
        )
    yield _deployment_line(result, language)
    if result.arrivals is None or not result.arrivals.falls_behind:
        key = "speed.some_wait" if result.requests_waiting else "speed.all_run"
        waiting = {"waiting": result.requests_waiting} if result.requests_waiting else {}
        yield message(key, language, running=result.requests_running, **waiting)
    if result.terms.drafting is not None:
        yield _drafting_line(result.terms.drafting, language)


def _drafting_line(drafting: Drafting, language: Language) -> str:
    """How many tokens are drafted, and how many a step yields."""
    rate, low, high, source = drafting.acceptance
    gained, fewest, most = drafting.tokens_per_step
    measured = {"low": f"{low:.0%}", "high": f"{high:.0%}"} if source else {}
    return message(
        "speed.drafts_measured" if source else "speed.drafts_given",
        language,
        method=drafting.method,
        tokens=drafting.depth,
        rows=drafting.verified,
        rate=f"{rate:.0%}",
        gained=f"{gained:.2f}",
        **(measured | ({"fewest": f"{fewest:.2f}", "most": f"{most:.2f}"} if source else {})),
    )


def _deployment_line(result: ServingSpeed, language: Language) -> str:
    plan = result.fit.plan
    return message(
        "speed.deployment",
        language,
        engine=engine_title(result.fit.deployment.engine),
        budget=result.terms.token_budget,
        max_num_seqs=plan.max_num_seqs,
        tokens=plan.kv_pool_tokens,
        held=result.fit.requests_held,
    )


def _figures(result: ServingSpeed, language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("speed.figures", language), no_wrap=True)
    for name in ("estimate", "range"):
        table.add_column(message(f"speed.column.{name}", language), justify="right", no_wrap=True)
    rows: list[tuple[str, Range | None, float, str]] = [
        ("ttft", result.ttft_seconds, 1e3, " ms"),
        ("tpot", result.tpot_seconds, 1e3, " ms"),
        ("user", result.tokens_per_second_per_user, 1, ""),
        ("gpu", result.output_tokens_per_second_per_gpu, 1, ""),
        ("all", result.output_tokens_per_second, 1, ""),
        ("requests", result.requests_per_second, 1, ""),
        ("cost", result.usd_per_million_output_tokens, 1, ""),
    ]
    for name, figures, scale, unit in rows:
        if name in ("tpot", "user") and not result.has_further_tokens:
            table.add_row(message(f"speed.{name}", language), message("speed.none", language), "")
        elif figures is not None:
            table.add_row(
                message(f"speed.{name}", language),
                format_figure(figures.value * scale) + unit,
                f"{format_figure(figures.low * scale)} … {format_figure(figures.high * scale)}",
            )
    return table


def _print_falls_behind(out: Console, result: ServingSpeed, language: Language) -> None:
    from rich.text import Text

    arrivals = result.arrivals
    assert arrivals is not None
    label = Text(message("speed.falls_behind", language), style="bold red")
    sentence = message(
        "speed.falls_behind_why",
        language,
        rate=format_figure(arrivals.requests_per_second),
        capacity=format_figure(arrivals.capacity),
        concurrency=result.concurrency,
    )
    out.print(Paragraph(label + Text(sentence)))


def limiter_text(limiter: str, language: Language) -> str:
    """What holds a speed back, as a phrase."""
    return message(f"speed.limiter.{limiter}", language)


def _makeup(result: ServingSpeed, language: Language) -> Iterator[str]:
    """What a further and a first token's time are made of, and what holds each back."""
    join = message("speed.parts_join", language)
    for name, whole, parts, limiter in (
        ("tpot", result.tpot_seconds.value, result.tpot_parts, result.tpot_limiter),
        ("ttft", result.ttft_seconds.value, result.ttft_parts, result.ttft_limiter),
    ):
        if name == "tpot" and not result.has_further_tokens:
            continue
        pieces = [
            message(
                f"speed.makeup.{name}.{part}",
                language,
                time=f"{format_figure(seconds * 1e3)} ms",
                share=f"{seconds / whole:.0%}",
            )
            for part, seconds in parts._asdict().items()
            if seconds / whole >= _SHOWN
        ]
        yield message(
            "speed.makeup",
            language,
            name=name.upper(),
            time=f"{format_figure(whole * 1e3)} ms",
            parts=join.join(pieces),
            limiter=limiter_text(limiter, language),
        )
        if name == "tpot":
            largest = list(result.tpot_operators.items())[:_LARGEST]
            yield _largest(largest, language)


def _largest(parts: Sequence[tuple[str, float]], language: Language) -> str:
    return message(
        "speed.largest",
        language,
        parts=message("speed.parts_join", language).join(
            message("speed.part", language, name=name, share=f"{share:.0%}")
            for name, share in parts
        ),
    )


def _limits(name: str, ledger: StepLedger, language: Language) -> Iterator[str]:
    yield message(
        "speed.limited",
        language,
        step=message(f"speed.step.{name}", language),
        limiter=limiter_text(ledger.limiter, language),
        share=f"{ledger.shares[ledger.limiter]:.0%}",
        time=f"{format_figure(ledger.time.seconds * 1e3)} ms",
    )
    yield _largest([(line.name, line.share) for line in ledger.lines[:_LARGEST]], language)


def _grounds(result: ServingSpeed, language: Language) -> Iterator[str]:
    """The tables the figures rest on, and how right such figures were."""
    key, join = result.decode.time.tables_of, message("speed.parts_join", language)
    own = [source.split(": ")[1] for source in result.tables if source.startswith(f"{key}: ")]
    if result.terms.engine in BUILDS:
        yield message("speed.timed_steps", language, gpu=_gpu_name(key), count=len(own))
        yield message("speed.llama_cpp", language)
        return
    # folder/engine/version/file: what a reader asks for is whose kernels, and of which version
    named = sorted({" ".join(name.split("/")[1:3]) for name in own})
    yield message("speed.tables", language, gpu=_gpu_name(key), tables=join.join(named))
    if result.calibration is not None:
        yield applied_text(result.calibration, language)
        if result.num_prompts is None:
            yield message("speed.steady", language)
    else:
        yield message("speed.accuracy", language)


def _print_explanation(out: Console, result: ServingSpeed, language: Language) -> None:

    numbers: dict[tuple[str, ...], int] = {}
    for name, ledger in (("prefill", result.prefill), ("decode", result.decode)):
        out.print()
        work = ledger.time.work
        heading = message(
            "speed.explain",
            language,
            step=message(f"speed.step.{name}", language),
            time=f"{format_figure(ledger.time.seconds * 1e3)} ms",
            prompts=work.prefill_tokens,
            decoding=work.decode_sequences,
        )
        out.print(Paragraph(heading, style="bold"))
        print_trimmed(out, _ledger_table(ledger, numbers, language))
    out.print(Paragraph(message("speed.explain_note", language), style="dim"))
    out.print()
    out.print(Paragraph(message("speed.sources", language), style="bold"))
    for sources, number in numbers.items():
        for position, source in enumerate(sources):
            out.print(Paragraph(f" {f'[{number}]' if not position else '':>4} {source}"))
    out.print(Paragraph(message("speed.host_source", language)))
    drafting = result.terms.drafting
    if drafting is not None and drafting.acceptance.source:
        text = message("speed.draft_source", language, source=drafting.acceptance.source)
        out.print(Paragraph(text))
    if result.calibration is not None:
        print_applied(out, result.calibration, language)


def _ledger_table(
    ledger: StepLedger, numbers: dict[tuple[str, ...], int], language: Language
) -> Table:
    """Lines of a step; ``numbers`` takes each new set of sources under the next number."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("operator", "time", "share", "flops", "bytes", "limiter", "source"):
        table.add_column(
            message(f"speed.column.{name}", language),
            justify="left" if name in ("operator", "limiter") else "right",
            no_wrap=True,
        )
    for line in ledger.lines:
        table.add_row(*_cells(line, numbers, language))
    table.add_row(
        message("speed.column.sum", language),
        f"{ledger.time.seconds * 1e3:,.3f}",
        f"{sum(line.share for line in ledger.lines):.1%}",
        f"{sum(line.flops for line in ledger.lines) / 1e9:,.1f}",
        f"{sum(line.num_bytes for line in ledger.lines) / MIB:,.1f}",
        style="bold",
    )
    return table


def _cells(
    line: OperatorLine, numbers: dict[tuple[str, ...], int], language: Language
) -> tuple[str, ...]:
    number = numbers.setdefault(line.sources, len(numbers) + 1) if line.sources else None
    return (
        line.name,
        f"{line.seconds * 1e3:,.3f}",
        f"{line.share:.1%}",
        f"{line.flops / 1e9:,.1f}" if line.flops else "-",
        f"{(line.num_bytes or line.message_bytes) / MIB:,.1f}"
        if line.num_bytes or line.message_bytes
        else "-",
        message(f"speed.short.{line.limiter}", language),
        f"[{number}]" if number is not None else "-",
    )
