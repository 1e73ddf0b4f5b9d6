"""Pools of servers for a person: what each is, how full it was, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenroom.reports.fit_text import fit_title
from tokenroom.reports.messages import Language, message, printable
from tokenroom.serving.run import PoolOutcome, Simulation
from tokenroom.units import format_figure, format_seconds

if TYPE_CHECKING:
    from rich.table import Table


def pool_titles(done: Simulation, language: Language) -> Iterator[str]:
    """A line for each pool: its servers, and what each of them is."""
    for found in done.pools:
        pool = found.pool
        servers = str(pool.replicas)
        if pool.scaling is not None:
            servers = message(
                "fleet.scaled", language, least=pool.scaling.least, most=pool.scaling.most
            )
        told = {
            "servers": servers,
            "title": fit_title(pool.fit, language),
            "copies": pool.copies.count,
        }
        line = message("fleet.servers", language, **told)
        if pool.copies.count > 1:
            line = message("fleet.servers_of_copies", language, **told)
        if len(done.pools) > 1:
            line = message(f"fleet.{pool.role}", language, name=printable(pool.name), line=line)
        yield line


def pool_table(done: Simulation, language: Language) -> Table:
    """What each pool did; means are of one engine, over the time of its steps."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("fleet.head.pool", language), no_wrap=True)
    for found in done.pools:
        table.add_column(printable(found.pool.name), justify="right")
    for row in zip(*(_cells(found) for found in done.pools), strict=True):
        name = row[0][0]
        if name != "usd" or done.usd is not None:
            table.add_row(message(f"fleet.head.{name}", language), *(cell for _, cell in row))
    return table


def _cells(found: PoolOutcome) -> Iterator[tuple[str, str]]:
    """What there is to say of a pool, by its name."""
    metrics = found.metrics
    yield "servers", str(found.most_replicas)
    yield "requests", f"{metrics.requests:,}"
    for name, of in (("ttft", metrics.ttft), ("tpot", metrics.tpot)):
        yield name, "-" if of.mean_seconds is None else format_seconds(of.mean_seconds)
    yield "running", f"{format_figure(metrics.mean_running)} / {metrics.max_running}"
    yield "waiting", f"{format_figure(metrics.mean_waiting)} / {metrics.max_waiting}"
    blocks = found.pool.engine.usable_blocks
    mean, most = metrics.mean_used_blocks / blocks, metrics.max_used_blocks / blocks
    yield "kv", f"{mean:.1%} / {most:.1%}"
    yield "busy", f"{found.busy_share:.0%}"
    yield "hours", format_figure(found.gpu_hours)
    yield "usd", format_figure(found.usd or 0.0)
