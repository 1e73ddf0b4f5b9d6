"""The answer of ``fit`` for a person: verdict first, then the ledger, then the way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokenroom.borderline import borderline, longest_at_best
from tokenroom.engines.policy import Estimate, Notice, StageMemory, copies_of
from tokenroom.fitting import FitResult
from tokenroom.growth import SweepPoint
from tokenroom.memory.ledger import Line
from tokenroom.reports.console import Paragraph, draw_bar, print_trimmed, segment_mark
from tokenroom.reports.device_text import cell_lines, print_device, remarks_of
from tokenroom.reports.figures import Bar, BarSegment
from tokenroom.reports.formula_messages import formula_text
from tokenroom.reports.messages import (
    Language,
    change_price,
    engine_text,
    message,
    model_title,
    notice_text,
    printable,
    refusal_text,
    written_flags,
)
from tokenroom.units import (
    GIB,
    format_bytes,
    format_figure,
    format_parameters,
    format_seconds,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tokenroom.serving_speed import UsualSpeed

_TOLD = frozenset({"measured_memory", "measured_context"})
"""Notices that warn of nothing."""

_DECISIVE = frozenset(
    {
        "unknown_flag",
        "unknown_flag_said",
        "unknown_key",
        "quantization_not_recognised",
        "version_newer",
        "vendor_unmeasured",
        "may_not_start",
        "build_may_not_start",
        "max_seq_len_lowered",
        "per_replica",
        "overridden",
    }
)
"""Notices that bear on the verdict itself and stand beside it."""

_COMMON_NAMES = ("max_model_len", "max_num_seqs")
_OWN_NAMES = {
    "tensorrt-llm": ("max_seq_len", "max_batch_size"),
    "sglang": ("context_length", "max_running_requests"),
    "transformers": ("max_length", "batch_size"),
    "llama.cpp": ("n_ctx", "n_parallel"),
}
"""What an engine calls the longest request and the most requests, where not by the common names."""

_FIGURE_COLUMNS = 7 + 2 + 15 + 2 + 2
"""Cells that a size, its range and the gaps around them take."""

_NARROWEST_NAME = 10

_SHOWN_BYTES = round(0.005 * GIB)
"""Parts that would show as 0.00 are left to ``--explain``."""

_VERDICT_STYLES = {
    "fits": "bold green",
    "fits_with_less": "bold yellow",
    "does_not_fit": "bold red",
}


def print_fit(
    out: Console,
    result: FitResult,
    language: Language,
    *,
    explain: bool = False,
    speed: UsualSpeed | None = None,
) -> None:
    """Write the whole report to ``out``, with a line on speed where it is given."""
    from rich.text import Text

    out.print(Paragraph(fit_title(result, language), style="bold"))
    out.print(Paragraph(_model_line(result, language), style="dim"))
    out.print()
    verdict = Text(
        message(f"fit.verdict.{result.verdict}", language), style=_VERDICT_STYLES[result.verdict]
    )
    colon = message("fit.colon", language)
    out.print(Paragraph(verdict + Text(colon + verdict_reason(result, language))))
    if (doubt := _borderline_line(result, language)) is not None:
        out.print(Paragraph(doubt))
    for remark in remarks_of(result):
        out.print(Paragraph(notice_text(remark, language)))
    for line in _room_lines(result, language):
        out.print(Paragraph(line))
    decisive = [notice for notice in result.notices if notice.key in _DECISIVE]
    _print_notices(out, decisive, language)
    for stage in distinct_stages(result):
        out.print()
        if stage.device:
            print_device(out, stage, language)
        else:
            _print_stage(out, result, stage, language)
    if result.plan.refusal is None:
        out.print()
        for line in (*_pool_lines(result, language), *_occupancy_lines(result, language)):
            indent = " " * (len(line) - len(line.lstrip()))
            out.print(Paragraph(line.lstrip(), first=indent, rest=indent + indent))
    if speed is not None:
        for line in _speed_lines(speed, language):
            out.print(Paragraph(line))
    if result.verdict != "fits":
        out.print()
        _print_changes(out, result, language)
    if explain:
        out.print()
        _print_explanation(out, result, language)
    later = [notice for notice in result.notices if notice.key not in _DECISIVE]
    if later:
        out.print()
        _print_notices(out, later, language)


def _print_notices(out: Console, notices: Sequence[Notice], language: Language) -> None:
    from rich.text import Text

    for notice in notices:
        if notice.key in _TOLD:
            label = Text(message("fit.note", language), style="dim")
        else:
            label = Text(message("fit.warning", language), style="yellow")
        hang = " " * label.cell_len
        out.print(Paragraph(label + Text(notice_text(notice, language)), rest=hang))


def print_sweep(
    out: Console,
    result: FitResult,
    points: Sequence[SweepPoint],
    parameter: str,
    language: Language,
    *,
    left_out: Sequence[int] = (),
) -> None:
    """Write a sweep to ``out``: what it is about, one line a point, the values left out."""
    out.print(Paragraph(fit_title(result, language), style="bold"))
    out.print(Paragraph(message("sweep.unit", language), style="dim"))
    print_trimmed(out, _sweep_table(points, parameter, language))
    if left_out:
        values = ", ".join(f"{value:,}" for value in left_out)
        out.print(Paragraph(message("sweep.left_out", language, values=values), style="dim"))


def _sweep_table(points: Sequence[SweepPoint], parameter: str, language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names: tuple[str, ...]
    if parameter == "concurrency":
        names = ("running", "waiting", "weights", "kv", "activation", "other", "total")
    elif parameter == "block_size" and any(point.occupancy for point in points):
        names = ("batch", "used", "internal", "external", "table")
    else:
        names = ("starts", "request", "held", "pool_tokens", "weights", "kv")
    table.add_column(message(f"sweep.{parameter}", language), justify="right", no_wrap=True)
    for name in names:
        table.add_column(message(f"sweep.{name}", language), justify="right", no_wrap=True)
    for point in points:
        cells = {
            "running": f"{point.requests_running:,}",
            "waiting": f"{point.requests_waiting:,}",
            "weights": _gib(point.weights_bytes),
            "kv": _gib(point.kv_used_bytes),
            "activation": _gib(point.activation_bytes),
            "other": _gib(point.other_bytes),
            "total": _gib(point.in_use_bytes),
            "request": format_bytes(point.request_bytes),
            "held": f"{point.requests_running:,}",
            "pool_tokens": f"{point.kv_pool_tokens:,}",
            "starts": message("sweep.yes" if point.starts else "sweep.no", language),
        }
        if (filled := point.occupancy) is not None:
            cells |= {
                "batch": f"{filled.batch:,}",
                "used": f"{100 * filled.used_share:.2f}",
                "internal": format_bytes(filled.internal_waste_bytes),
                "external": format_bytes(filled.external_waste_bytes),
                "table": format_bytes(filled.table_bytes),
            }
        table.add_row(f"{point.value:,}", *(cells[name] for name in names))
    return table


def stage_bar(result: FitResult, stage: StageMemory, language: Language, title: str = "") -> Bar:
    """One rank's memory as a stacked bar; what is missing is shown beyond the card's end."""
    wanted = stage.kv_pool_bytes
    refusal = result.plan.refusal
    if refusal is not None and refusal.cause == "kv_below_one_request":
        wanted = refusal.needed_bytes
    parts = (
        ("context", stage.context_bytes),
        ("weights", stage.weights_bytes),
        ("activation", stage.activation.num_bytes),
        ("graphs", stage.cuda_graphs.num_bytes),
        ("reserve", stage.non_torch.num_bytes + stage.buffers_bytes),
        ("kv", wanted),
    )
    used = sum(num_bytes for _, num_bytes in parts)
    segments = [
        BarSegment(label=message(f"segment.{kind}", language), num_bytes=num_bytes, kind=kind)
        for kind, num_bytes in parts
        if num_bytes > 0
    ]
    if used < stage.total_bytes:
        segments.append(
            BarSegment(
                label=message("segment.free", language),
                num_bytes=stage.total_bytes - used,
                kind="free",
            )
        )
    fitting = None
    if wanted > stage.kv_pool_bytes:  # the engine keeps to its budget, whatever the card has
        fitting = used - wanted + stage.kv_pool_bytes
    return Bar(
        title=title,
        segments=segments,
        capacity_bytes=stage.total_bytes,
        fitting_bytes=fitting,
    )


def fit_title(result: FitResult, language: Language) -> str:
    """What the report is about, in one line."""
    deployment = result.deployment
    title = message(
        "fit.title",
        language,
        model=model_title(deployment.spec, language),
        count=deployment.node.count,
        gpu=deployment.node.accelerator.name,
        engine=engine_text(deployment.engine, language),
        version=deployment.version,
    )
    return printable(title)


def _model_line(result: FitResult, language: Language) -> str:
    spec = result.deployment.spec
    dense = spec.parameters_active == spec.text_parameters
    return message(
        "fit.model_dense" if dense else "fit.model",
        language,
        architecture=spec.architecture or spec.model_type,
        parameters=format_parameters(spec.parameters_total),
        weights_bytes=result.weights_bytes,
        **({} if dense else {"active": format_parameters(spec.parameters_active)}),
    )


def pool_text(tokens: int, copies: int) -> str:
    """Tokens of the pools of all data-parallel copies, as requests count all of them."""
    return f"{tokens:,}" if copies == 1 else f"{copies} x {tokens:,}"


def verdict_reason(result: FitResult, language: Language) -> str:
    """Why the verdict is what it is, in one sentence."""
    refusal = result.plan.refusal
    if refusal is not None:
        return refusal_text(refusal, language)
    workload = result.occupancy is not None and result.request_tokens == result.plan.max_model_len
    if result.verdict == "fits_with_less":
        if workload:
            return message(
                "fit.holds_workload_less",
                language,
                asked=result.requests_wanted,
                requests=result.requests_running,
                waiting=result.requests_wanted - result.requests_running,
            )
        if not result.requests_running and _is_refused_for_length(result):
            return message(
                "fit.refuses_longer",
                language,
                longest=result.plan.max_model_len,
                length=result.request_tokens,
            )
        if not result.requests_running:
            return message(
                "fit.holds_none",
                language,
                tokens=pool_text(result.plan.kv_pool_tokens, copies_of(result.plan)),
                length=result.request_tokens,
            )
        return message(
            "fit.holds_less",
            language,
            asked=result.requests_wanted,
            length=result.request_tokens,
            requests=result.requests_running,
            waiting=result.requests_wanted - result.requests_running,
        )
    if workload:
        return message("fit.holds_workload", language, requests=result.requests_running)
    if not result.plan.kv_blocks:
        return message(
            "fit.holds_batch",
            language,
            asked=result.requests_wanted,
            length=result.request_tokens,
            requests=result.requests_running,
        )
    asked = {} if result.concurrency is None else {"asked": result.concurrency}
    return message(
        "fit.holds_asked" if asked else "fit.holds",
        language,
        tokens=pool_text(result.plan.kv_pool_tokens, copies_of(result.plan)),
        requests=result.requests_running,
        length=result.request_tokens,
        **asked,
    )


def _borderline_line(result: FitResult, language: Language) -> str | None:
    """What else the verdict may be within the range of the estimates."""
    end = borderline(result)
    if end is None:
        return None
    if result.plan.refusal is not None:
        tokens = _about(end.kv_pool_tokens)
        return message("fit.borderline.may_start", language, tokens=tokens)
    if end.verdict == "does_not_fit":
        return message("fit.borderline.may_not_start", language)
    asked = result.requests_wanted
    if end.verdict == "fits_with_less":
        running = end.requests_running
        return message("fit.borderline.may_run_less", language, requests=running, asked=asked)
    return message("fit.borderline.may_run_all", language, asked=asked)


def _about(tokens: int) -> int:
    """Tokens rounded down to two figures."""
    unit = int(10.0 ** max(0, len(str(tokens)) - 2))
    return tokens // unit * unit


def _is_refused_for_length(result: FitResult) -> bool:
    """The pool would hold the request; the engine does not take one of that length."""
    plan = result.plan
    return plan.max_model_len < result.request_tokens <= plan.kv_pool_tokens


def _room_lines(result: FitResult, language: Language) -> Iterator[str]:
    plan = result.plan
    length_name, requests_name = _OWN_NAMES.get(result.deployment.engine, _COMMON_NAMES)
    if plan.refusal is None and result.requests_running < result.requests_held:
        yield message(
            "fit.limited_by_seqs",
            language,
            name=requests_name,
            max_num_seqs=plan.max_num_seqs,
            held=result.requests_held,
        )
    longest = result.max_model_len_that_fits
    kind = "device" if plan.stages[0].device else "fit"  # in the words of engines with devices
    if kind == "fit" and (most := longest_at_best(result)) is not None:
        values = {"name": length_name, "longest": longest, "most": _about(most)}
        yield message("fit.longest_at_best", language, **values)
    elif longest:
        yield message(f"{kind}.longest", language, name=length_name, longest=longest)
    else:
        yield message(f"{kind}.longest_none", language, name=length_name)


def distinct_stages(result: FitResult) -> Iterator[StageMemory]:
    """The stages that differ, so that equal ones are not repeated."""
    seen: set[tuple[int, int]] = set()
    for stage in result.plan.stages:
        figures = (stage.weights_bytes, stage.available_bytes)
        if stage.device:  # named devices are shown one by one
            figures = (len(seen), -1)
        if figures not in seen:
            seen.add(figures)
            yield stage


def _print_stage(out: Console, result: FitResult, stage: StageMemory, language: Language) -> None:
    from rich.table import Table
    from rich.text import Text

    heading = message("fit.ledger", language)
    if len(result.plan.stages) > 1:
        heading = message("fit.ledger_stage", language, stage=stage.pipeline_parallel_rank)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = max(_NARROWEST_NAME, out.width - _FIGURE_COLUMNS)
    table.add_column(heading, no_wrap=True, overflow="ellipsis", max_width=names)
    # Names may be cut on a narrow terminal, figures never.
    table.add_column(
        message("fit.column.bytes", language), justify="right", no_wrap=True, min_width=7
    )
    table.add_column(
        message("fit.column.range", language), justify="right", no_wrap=True, min_width=15
    )

    def add(kind: str, label: str, num_bytes: int, note: str = "", style: str = "") -> None:
        mark = segment_mark(kind, out.encoding) if kind else Text(" ")
        table.add_row(mark + Text(f" {label}", style=style), Text(_gib(num_bytes), style), note)

    def line(name: str) -> str:
        return message(f"fit.line.{name}", language)

    add("context", line("context"), stage.context_bytes)
    add("weights", line("weights"), stage.weights_bytes, message("fit.exact", language))
    parts = sorted(stage.weights.items(), key=lambda part: part[1], reverse=True)
    for component, num_bytes in parts if len(parts) > 1 else ():
        if num_bytes >= _SHOWN_BYTES:
            add("", "  " + message(f"fit.component.{component}", language), num_bytes, "", "dim")
    phase = message(f"fit.phase.{stage.activation.phase}", language)
    label = message("fit.line.activation", language, phase=phase)
    add("activation", label, stage.activation.num_bytes, _range(stage.activation))
    for kind, name, estimate in (
        ("graphs", "cuda_graphs", stage.cuda_graphs),
        ("reserve", "non_torch", stage.non_torch),
    ):
        if estimate.high_bytes >= _SHOWN_BYTES:
            add(kind, line(name), estimate.num_bytes, _range(estimate))
    if stage.buffers_bytes >= _SHOWN_BYTES:
        add("reserve", line("buffers"), stage.buffers_bytes)
    add(
        "kv",
        line("kv_pool" if result.plan.kv_blocks or result.plan.refusal else "kv_batch"),
        stage.kv_pool_bytes,
        _pool_range(result, stage, language),
        "bold",
    )
    if stage.free_bytes >= 0:
        add("free", line("free"), stage.free_bytes)
    else:
        add("", line("short"), -stage.free_bytes, "", "bold red")
    add("", line("total"), stage.total_bytes, "", "bold")
    print_trimmed(out, table)
    bar = stage_bar(result, stage, language)
    # The table above is the legend: only the bar itself is drawn here.
    out.print(
        draw_bar(bar, width=out.width, language=language, encoding=out.encoding)[0], no_wrap=True
    )


def _pool_range(result: FitResult, stage: StageMemory, language: Language) -> str:
    """The pool of the governing rank at the ends of the estimates' ranges."""
    if not result.plan.kv_blocks and result.plan.refusal is None:
        return message("fit.exact", language)
    tokens = result.plan.kv_pool_tokens
    if not tokens or stage is not result.governing_stage:
        return ""
    ends = (stage.kv_pool_bytes * end / tokens for end in result.kv_pool_tokens_range)
    return " … ".join(f"{end / GIB:.2f}" for end in ends)


def _pool_lines(result: FitResult, language: Language) -> Iterator[str]:
    plan = result.plan
    if not plan.kv_blocks:
        yield message("fit.no_pool", language, requests=result.requests_held)
        return
    if any(stage.device for stage in plan.stages):
        yield from cell_lines(result, language)
        return
    yield message(
        "fit.pool",
        language,
        blocks=plan.kv_blocks,
        block_size=plan.kv_block_size,
        concurrency=f"{plan.max_concurrency:,.2f}",
        length=plan.max_model_len,
    )
    share = result.deployment.settings.get("gpu_memory_utilization")
    if share is not None and not plan.pool_is_exact:
        budget = result.governing_stage.budget_bytes
        yield message("fit.budget", language, share=f"{share.value:g}", budget_bytes=budget)
    if len(plan.kv_groups) > 1:
        for group in plan.kv_groups:
            yield message(
                "fit.group",
                language,
                layers=group.num_layers,
                kind=group.kind,
                block_size=group.block_size,
                page=format_bytes(group.page_bytes),
            )


def _occupancy_lines(result: FitResult, language: Language) -> Iterator[str]:
    filled = result.occupancy
    if filled is None:
        return
    if filled.all_at_once:
        yield message("occupancy.all", language, batch=filled.batch)
    else:
        mean = f"{filled.mean_batch:.1f}"
        yield message("occupancy.batch", language, batch=filled.batch, mean_batch=mean)
    yield message(
        "occupancy.pool",
        language,
        used_bytes=filled.used_bytes,
        used_share=f"{100 * filled.used_share:.1f}",
        internal_waste_bytes=filled.internal_waste_bytes,
        external_waste_bytes=filled.external_waste_bytes,
    )
    yield message("occupancy.table", language, table=format_bytes(filled.table_bytes))


def _speed_lines(usual: UsualSpeed, language: Language) -> Iterator[str]:
    """How fast it serves, in a sentence, or why that is not known."""
    if usual.reason is not None:
        yield message("fit.speed_unknown", language, reason=printable(usual.reason))
    if (speed := usual.speed) is None:
        return
    user, ttft = speed.tokens_per_second_per_user, speed.ttft_seconds
    yield message(
        "fit.speed",
        language,
        clients=speed.concurrency,
        input=speed.load.input_tokens,
        output=speed.load.output_tokens,
        user=format_figure(user.value),
        user_range=f"{format_figure(user.low)} … {format_figure(user.high)}",
        all=format_figure(speed.output_tokens_per_second.value),
        ttft=format_seconds(ttft.value),
        ttft_range=f"{format_seconds(ttft.low)} … {format_seconds(ttft.high)}",
        limiter=message(f"speed.limiter.{speed.tpot_limiter}", language),
    )


def _print_changes(out: Console, result: FitResult, language: Language) -> None:
    from rich.text import Text

    if not result.changes_that_fit:
        out.print(Paragraph(message("fit.no_changes", language)))
        return
    heading = message("fit.changes", language)
    if result.requests_wanted > 1 and result.verdict == "fits_with_less":
        heading = message("fit.changes_concurrency", language, asked=result.requests_wanted)
    out.print(Paragraph(heading, style="bold"))
    hang = " " * 6
    for change in result.changes_that_fit:
        gpus = change.deployment.node.count
        entry = Text(written_flags(change.flags, language), style="cyan")
        if gpus != result.deployment.node.count:
            entry.append(message("fit.gpus", language, gpus=gpus), style="default")
        brings = message(
            "fit.change",
            language,
            tokens=pool_text(change.kv_pool_tokens, change.copies),
            requests=change.requests_running,
            length=change.request_tokens,
        )
        out.print(Paragraph(entry, first="  ", rest=hang))
        out.print(Paragraph(brings, first=hang, rest=hang))
        out.print(Paragraph(change_price(change, language), first=hang, rest=hang, style="dim"))


def _print_explanation(out: Console, result: FitResult, language: Language) -> None:
    from rich.text import Text

    out.print(Text(message("fit.explain", language), style="bold"))
    for line in result.explain:
        _print_line(out, line, language, 0)
    out.print(Text(message("fit.settings", language), style="bold"))
    for name, setting in result.deployment.settings.items():
        origin = message(f"fit.origin.{setting.origin}", language)
        given = "fit.setting_reason" if setting.reason else "fit.setting"
        reason = {"reason": setting.reason} if setting.reason else {}
        text = message(given, language, value=str(setting.value), origin=origin, **reason)
        _print_wrapped(out, f"{name} = {text}", "  ")


def _print_line(out: Console, line: Line, language: Language, depth: int) -> None:
    indent = "  " * (depth + 1)
    figure = format_bytes(line.num_bytes)
    if line.low_bytes != line.high_bytes:
        figure += f" [{format_bytes(line.low_bytes)} … {format_bytes(line.high_bytes)}]"
    _print_wrapped(out, f"{line.key} = {figure}", indent)
    if line.formula:
        _print_wrapped(out, f"= {formula_text(line.formula, language)}", indent + "  ")
    if line.values:
        values = ", ".join(f"{name} = {_value(value)}" for name, value in line.values.items())
        _print_wrapped(out, values, indent + "  ", "dim")
    if line.source:
        source = message("fit.explain.source", language, source=line.source)
        _print_wrapped(out, source, indent + "  ", "dim")
    for part in line.parts:
        _print_line(out, part, language, depth + 1)


def _print_wrapped(out: Console, text: str, indent: str, style: str = "") -> None:
    """Print a paragraph whose lines after the first stand two cells further in."""
    out.print(Paragraph(text, first=indent, rest=indent + "  ", style=style))


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _range(estimate: Estimate) -> str:
    return f"{estimate.low_bytes / GIB:.2f} … {estimate.high_bytes / GIB:.2f}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f}"
