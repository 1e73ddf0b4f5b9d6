"""A watch as a picture in characters: what a terminal shows, over and over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tokenroom.reports.console import Paragraph
from tokenroom.reports.messages import Language, engine_text, message, printable
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.reports.watch_plan import most_used_bytes, plan_lines
from tokenroom.reports.watch_words import (
    NONE,
    clock_text,
    count_text,
    help_text,
    rate_text,
    seconds_text,
    share_text,
    span_text,
    status_text,
    told_text,
)
from tokenroom.units import format_gib
from tokenroom.watching.observation import (
    Alert,
    Endpoint,
    Gpu,
    Latency,
    Observation,
    Replica,
)

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

_SEVERE: Final = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}
_LATENCIES: Final = ("ttft", "itl", "tpot", "queue", "e2e")
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_HISTORY: Final = 120
_BAR: Final = 24
_SPARK: Final = 24
_WIDE: Final = 100
_HELPS: Final = 3


class WatchView:
    """Draws observations, and remembers the last of them for the lines of history.

    Args:
        language: Of the words.
        width: Columns there are.
        blocks: Whether the terminal shows block characters.
    """

    def __init__(self, language: Language, *, width: int, blocks: bool = True) -> None:
        self._language = language
        self._blocks = blocks
        self.width = width
        self._rates: dict[tuple[str, str | None, str | None], deque[float]] = {}

    def take(self, seen: Observation) -> None:
        """Remember an observation."""
        for endpoint in seen.endpoints:
            for replica in endpoint.replicas:
                key = (endpoint.url, replica.model, replica.rank)
                kept = self._rates.setdefault(key, deque(maxlen=_HISTORY))
                kept.append(replica.generation_tokens_per_second or 0.0)

    def drawn(
        self,
        seen: Observation,
        *,
        title: str | None = None,
        foot: str = "",
        compact: bool = False,
    ) -> Group:
        """The picture of an observation.

        Args:
            seen: The observation.
            title: The first line; by default that of a watch.
            foot: The last line.
            compact: Without the plans' tables and what helps, for low terminals.
        """
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [
            Text(title if title is not None else self._title(seen), style="bold"),
            *self._alerts(seen, compact=compact),
        ]
        for endpoint in seen.endpoints:
            parts.append(self._endpoint(endpoint, seen, compact=compact))
        if seen.gpus_error is not None:
            told = message(f"watch.gpus.{seen.gpus_error}", self._language)
            parts.append(Paragraph(told, style="dim"))
        if seen.gpus:
            parts.append(self._gpus(seen))
        if foot:
            parts.append(Text(foot, style="dim"))
        return Group(*parts)

    def _title(self, seen: Observation) -> str:
        return message(
            "watch.title",
            self._language,
            time=clock_text(seen.time),
            interval=f"{seen.interval_seconds:g}s",
            window=span_text(seen.window_seconds),
        )

    def _alerts(self, seen: Observation, *, compact: bool) -> Iterator[RenderableType]:
        if not seen.alerts:
            yield Paragraph(message("watch.no_alerts", self._language), style="green")
        for alert in seen.alerts:
            yield from self._alert(alert, seen.time, compact=compact)

    def _alert(self, alert: Alert, now: float, *, compact: bool) -> Iterator[RenderableType]:
        from rich.text import Text

        style = _SEVERE[alert.severity]
        severity = message(f"watch.severity.{alert.severity}", self._language)
        line = message(
            "watch.alert_line",
            self._language,
            severity=severity,
            since=span_text(now - alert.since),
            told=told_text(alert, self._language),
        )
        yield Paragraph(line, rest="  ", style=style)
        for one in () if compact else alert.helps[:_HELPS]:
            yield Paragraph(f"- {help_text(one, self._language)}", first="    ", rest="      ")
            if one.flag:
                yield Text(f"      {one.flag}", no_wrap=True, overflow="ellipsis", style="bold")

    def _endpoint(self, endpoint: Endpoint, seen: Observation, *, compact: bool) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        parts: list[RenderableType] = []
        if endpoint.error:
            parts.append(Paragraph(refusal_in(self._language, endpoint.error), style="red"))
        for replica in endpoint.replicas:
            parts += self._replica(endpoint, replica)
        parts += plan_lines(endpoint, most_used_bytes(seen), self._language, compact=compact)
        return Panel(
            Group(*parts),
            title=Text(self._heading(endpoint, seen.time), overflow="ellipsis", no_wrap=True),
            title_align="left",
            box=box.ROUNDED if self._blocks else box.ASCII,
            border_style="red" if endpoint.status == "down" else "",
        )

    def _heading(self, endpoint: Endpoint, now: float) -> str:
        facts = endpoint.facts
        told = [printable(endpoint.url)]
        if facts is not None:
            name = (
                "PyTorch" if facts.engine == "torch" else engine_text(facts.engine, self._language)
            )
            told.append(f"{name} {printable(facts.version or '')}".strip())
        told.append(status_text(endpoint, now, self._language))
        if endpoint.restarts:
            told.append(message("watch.restarts", self._language, count=endpoint.restarts))
        return "  ".join(told)

    def _replica(self, endpoint: Endpoint, replica: Replica) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        name = printable(replica.model or "")
        if replica.rank is not None:
            name = f"{name} {message('watch.rank', self._language, rank=printable(replica.rank))}"
        if name.strip():
            yield Text(name.strip(), style="bold", no_wrap=True, overflow="ellipsis")
        figures = self._figures(endpoint, replica)
        latencies = self._latencies(replica)
        if latencies is None:
            yield figures
        elif self.width >= _WIDE:
            beside = Table.grid(padding=(0, 3))
            beside.add_row(figures, latencies)
            yield beside
        else:
            yield figures
            yield latencies

    def _figures(self, endpoint: Endpoint, replica: Replica) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")

        def word(key: str, **values: object) -> str:
            return message(f"watch.{key}", self._language, **values)

        table.add_row(
            word("requests"),
            word(
                "running_waiting",
                running=count_text(replica.running),
                waiting=count_text(replica.waiting),
            ),
        )
        pool = Text()
        if replica.kv_share is not None:
            pool.append_text(self._bar(replica.kv_share))
            pool.append(f" {share_text(replica.kv_share)}  ")
        if replica.kv_pool_tokens is not None:
            pool.append(
                word(
                    "kv_tokens",
                    used=count_text(replica.kv_used_tokens),
                    pool=count_text(replica.kv_pool_tokens),
                )
            )
        if pool:
            table.add_row(word("kv"), pool)
        rates = Text(
            word(
                "token_rates",
                prompt=rate_text(replica.prompt_tokens_per_second),
                output=rate_text(replica.generation_tokens_per_second),
            )
        )
        kept = self._rates.get((endpoint.url, replica.model, replica.rank))
        if kept is not None and self._blocks:
            rates.append(f" {_spark(kept)}", style="cyan")
        table.add_row(word("tokens"), rates)
        more = []
        if replica.prefix_hit_share is not None:
            more.append(word("hits", share=share_text(replica.prefix_hit_share)))
        if replica.preemptions is not None:
            more.append(word("preempted", count=count_text(replica.preemptions)))
        if more:
            table.add_row(word("more"), message("speed.parts_join", self._language).join(more))
        totals = replica.totals
        table.add_row(
            "",
            Text(
                word(
                    "done",
                    requests=count_text(totals.requests),
                    prompt=count_text(totals.prompt_tokens),
                    output=count_text(totals.generation_tokens),
                ),
                style="dim",
            ),
        )
        return table

    def _latencies(self, replica: Replica) -> Table | None:
        from rich.table import Table

        found: list[tuple[str, Latency]] = [
            (name, latency)
            for name in _LATENCIES
            if (latency := getattr(replica, name)) is not None
        ]
        if not found:
            return None
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
        table.add_column(message("watch.latency", self._language))
        for name in ("p50", "p90", "p99", message("watch.mean", self._language)):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column(message("watch.count", self._language), justify="right", no_wrap=True)
        for name, latency in found:
            table.add_row(
                message(f"watch.latency.{name}", self._language),
                seconds_text(latency.p50_seconds),
                seconds_text(latency.p90_seconds),
                seconds_text(latency.p99_seconds, beyond=latency.beyond),
                seconds_text(latency.mean_seconds),
                count_text(latency.count),
            )
        return table

    def _gpus(self, seen: Observation) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for gpu in seen.gpus:
            line = Text()
            if gpu.total_bytes:
                line.append_text(self._bar(gpu.used_bytes / gpu.total_bytes))
                line.append(" ")
            line.append(self._gpu_text(gpu))
            table.add_row(message("watch.gpu", self._language, index=gpu.index), line)
            processes = "  ".join(
                message(
                    "watch.process",
                    self._language,
                    pid=str(one.pid),
                    name=printable(one.name or ""),
                    used=NONE if one.used_bytes is None else format_gib(one.used_bytes),
                )
                for one in gpu.processes or ()
            )
            if processes:
                table.add_row("", Text(processes, style="dim"))
        return table

    def _gpu_text(self, gpu: Gpu) -> str:
        told = [
            message(
                "watch.gpu_line",
                self._language,
                used=format_gib(gpu.used_bytes),
                total=format_gib(gpu.total_bytes),
                free=format_gib(gpu.free_bytes),
            )
        ]
        if gpu.busy_share is not None:
            told.append(message("watch.busy", self._language, share=share_text(gpu.busy_share)))
        if gpu.mig:
            told.append(message("watch.mig", self._language))
        told.append(printable(gpu.name))
        return message("speed.parts_join", self._language).join(told)

    def _bar(self, share: float) -> Text:
        from rich.text import Text

        full = max(0, min(_BAR, round(share * _BAR)))
        style = "red" if share >= 0.95 else "yellow" if share >= 0.8 else "green"
        line = Text("█" * full if self._blocks else "#" * full, style=style)
        line.append("░" * (_BAR - full) if self._blocks else "." * (_BAR - full), style="dim")
        return line


def _spark(values: deque[float]) -> str:
    """The last values as heights, the highest of them full."""
    last = list(values)[-_SPARK:]
    most = max(last, default=0.0)
    if most <= 0:
        return _SPARKS[0] * len(last)
    return "".join(_SPARKS[min(7, int(8 * value / most))] for value in last)
