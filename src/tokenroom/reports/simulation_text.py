"""A simulated workload for a person: latencies, throughput, queue and KV pool over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.fleet_text import pool_table, pool_titles
from tokenroom.reports.messages import Language, message, notice_text, printable
from tokenroom.reports.workload_text import bars, duration, print_warnings
from tokenroom.serving.distribution import Distribution
from tokenroom.serving.metrics import LatencyLimits, Point
from tokenroom.serving.run import Simulation
from tokenroom.units import format_figure, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS: Final = 60
_LONG_WAIT_SECONDS: Final = 5.0
_MANY_WAITING: Final = 8
LATENCIES: Final = ("ttft", "tpot", "itl", "e2e", "queue")


def print_simulation(
    out: Console,
    done: Simulation,
    workload: str,
    language: Language,
    wanted_share: float | None = None,
) -> None:
    """Write what became of a workload."""
    metrics = done.metrics
    for title in pool_titles(done, language) if done.is_fleet else (fit_title(done.fit, language),):
        out.print(Paragraph(title, style="bold"))
    name = printable(message("simulate.workload", language, name=workload))
    out.print(Paragraph(name, style="dim"))
    if (scheduler := done.engine.settings.get("scheduler")) is not None:
        under = message(f"simulate.scheduler.{scheduler}", language)
        out.print(Paragraph(under, style="dim"))
    told = {"count": metrics.requests, "steps": metrics.steps}
    span = duration(metrics.duration_seconds)
    out.print(Paragraph(message("simulate.served", language, span=span, **told), style="dim"))
    if done.interrupted:
        ended = metrics.requests + metrics.refused
        told = {"count": ended, "left": done.unfinished}
        out.print(Paragraph(message("simulate.interrupted", language, **told), style="yellow"))
    if done.falls_behind:
        out.print()
        out.print(Paragraph(message("simulate.falls_behind", language), style="bold red"))
    elif done.falls_behind is not None and not done.interrupted and metrics.requests:
        out.print()
        _print_verdict(out, done, language)
    out.print()
    print_trimmed(out, _latencies(done, language))
    out.print()
    for line in _lines(done, language, wanted_share):
        out.print(Paragraph(line))
    if done.is_fleet:
        out.print()
        print_trimmed(out, pool_table(done, language))
        out.print(Paragraph(message("fleet.each", language), style="dim"))
    columns = [] if done.is_fleet else _pool_over_time(done)
    if len(columns) > 1:
        out.print()
        width = duration(metrics.duration_seconds / len(columns))
        out.print(Paragraph(message("simulate.over_time", language, width=width)))
        out.print(bars(out, columns, highest=done.engine.usable_blocks), style="cyan")
    if metrics.refused:
        out.print()
        out.print(Paragraph(refused_text(done, language), style="yellow"))
    if warnings := simulation_warnings(done, language):
        out.print()
        print_warnings(out, warnings, language)


def _print_verdict(out: Console, done: Simulation, language: Language) -> None:
    """Whether requests that come by themselves were served as they came."""
    metrics = done.metrics
    longest = metrics.queue.max_seconds or 0.0
    overloaded = longest > _LONG_WAIT_SECONDS and metrics.max_waiting > _MANY_WAITING
    told = message(
        "simulate.overloaded" if overloaded else "simulate.keeps_up",
        language,
        most=metrics.max_waiting,
        longest=format_seconds(longest),
    )
    out.print(Paragraph(told, style="bold yellow" if overloaded else "bold green"))


def simulation_warnings(done: Simulation, language: Language) -> list[str]:
    """What the fits of the deployments have to say, as sentences."""
    told = [
        notice_text(notice, language) for pool in done.pools for notice in pool.pool.fit.notices
    ]
    if any(pool.pool.step_seconds is not None for pool in done.pools):
        told.append(message("simulate.own_step_times", language))
    return list(dict.fromkeys(told))


def refused_text(done: Simulation, language: Language) -> str:
    """How many requests were refused, and why."""
    reasons = [
        message(
            f"simulate.refused.{why}",
            language,
            count=count,
            length=found.pool.engine.max_model_len,
            tokens=found.pool.pool_tokens,
        )
        for found in done.pools
        for why, count in found.refusals.items()
    ]
    joined = message("speed.parts_join", language).join(reasons)
    return message("simulate.refused", language, count=done.metrics.refused, reasons=joined)


def limits_text(limits: LatencyLimits) -> str:
    """The promises, as ``TTFT 2.00 s, TPOT 50.0 ms``."""
    told = (("TTFT", limits.ttft_seconds), ("TPOT", limits.tpot_seconds))
    return ", ".join(
        f"{name} {format_seconds(seconds)}" for name, seconds in told if seconds is not None
    )


def _latencies(done: Simulation, language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("simulate.latency", language), no_wrap=True)
    heads = (message("simulate.mean", language), "50%", "90%", "95%", "99%")
    for head in (*heads, message("simulate.longest", language)):
        table.add_column(head, justify="right", no_wrap=True)
    for name in LATENCIES:
        values = _row(getattr(done.metrics, name))
        table.add_row(message(f"simulate.{name}", language), *values)
    return table


def _row(of: Distribution) -> Iterator[str]:
    for name in ("mean", "p50", "p90", "p95", "p99", "max"):
        seconds = getattr(of, f"{name}_seconds")
        yield "-" if seconds is None else format_seconds(seconds)


def _lines(done: Simulation, language: Language, wanted_share: float | None) -> Iterator[str]:
    metrics = done.metrics
    yield message(
        "simulate.throughput",
        language,
        requests=format_figure(metrics.requests_per_second),
        output=format_figure(metrics.output_tokens_per_second),
        total=format_figure(metrics.total_tokens_per_second),
    )
    if done.limits is not None:
        rate, share = metrics.goodput_per_second, metrics.goodput_share
        assert rate is not None
        assert share is not None
        line = message(
            "simulate.goodput",
            language,
            rate=format_figure(rate),
            share=f"{share:.1%}",
            limits=limits_text(done.limits),
        )
        if wanted_share is not None and share < wanted_share:
            wanted = f"{wanted_share:.1%}"
            line += " " * (language is Language.ENGLISH)
            line += message("simulate.goodput_missed", language, wanted=wanted)
        yield line
    if done.is_fleet:
        yield message("fleet.work", language, preemptions=metrics.preemptions)
    else:
        yield from _engine_lines(done, language)
    if done.prefix_hit_rate is not None:
        yield message("simulate.hits", language, share=f"{done.prefix_hit_rate:.1%}")
    if metrics.duration_seconds and not done.is_fleet:
        busy = f"{metrics.busy_seconds / metrics.duration_seconds:.0%}"
        yield message("simulate.busy", language, share=busy)
    told = {"hours": format_figure(done.gpu_hours)}
    if done.usd is None or done.usd_per_million_output_tokens is None:
        yield message("simulate.hours", language, **told)
    else:
        told |= {
            "cost": format_figure(done.usd),
            "each": format_figure(done.usd_per_million_output_tokens),
        }
        yield message("simulate.cost", language, **told)


def _engine_lines(done: Simulation, language: Language) -> Iterator[str]:
    """How full the engine was, where there is one."""
    metrics = done.metrics
    yield message(
        "simulate.running",
        language,
        mean=format_figure(metrics.mean_running),
        most=metrics.max_running,
        waiting_mean=format_figure(metrics.mean_waiting),
        waiting_most=metrics.max_waiting,
    )
    blocks = done.engine.usable_blocks
    yield message(
        "simulate.pool",
        language,
        mean=f"{metrics.mean_used_blocks / blocks:.1%}",
        most=f"{metrics.max_used_blocks / blocks:.1%}",
        tokens=done.pool_tokens,
        preemptions=metrics.preemptions,
    )


def _pool_over_time(done: Simulation) -> list[float]:
    """Blocks that were held, on average over each of equal parts of the time."""
    points = done.metrics.timeline
    count = min(_COLUMNS, len(points))
    if count < 2:
        return []
    start = points[0].start_seconds
    span = _end(points[-1]) - start
    if not span:
        return []
    held = [0.0] * count
    for point in points:
        at = min(count - 1, int((point.start_seconds - start) / span * count))
        held[at] = max(held[at], point.used_blocks)
    return held


def _end(point: Point) -> float:
    return point.start_seconds + point.seconds
