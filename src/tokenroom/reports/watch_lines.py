"""A watch as lines for a file or a pipe, with alerts as they come and go."""

from __future__ import annotations

from collections.abc import Iterator

from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.reports.watch_words import (
    clock_text,
    count_text,
    help_text,
    median_text,
    rate_text,
    share_text,
    status_text,
    told_text,
)
from tokenroom.units import format_gib
from tokenroom.watching.observation import Alert, Endpoint, Gpu, Observation, Replica


class WatchLines:
    """Writes observations one after another.

    Args:
        language: Of the words.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._open: dict[tuple[str, str], Alert] = {}
        self._gpus_error: str | None = None

    def lines(self, seen: Observation) -> Iterator[str]:
        """The lines of one observation."""
        clock = clock_text(seen.time)
        for endpoint in seen.endpoints:
            for text in endpoint_lines(endpoint, seen.time, self._language):
                yield f"{clock} {text}"
        if seen.gpus_error != self._gpus_error and seen.gpus_error is not None:
            yield f"{clock} {message(f'watch.gpus.{seen.gpus_error}', self._language)}"
        self._gpus_error = seen.gpus_error
        for gpu in seen.gpus:
            yield f"{clock} {gpu_line(gpu, self._language)}"
        yield from self._alerts(seen, clock)

    def _alerts(self, seen: Observation, clock: str) -> Iterator[str]:
        now = {(alert.key, alert.subject): alert for alert in seen.alerts}
        for key, alert in now.items():
            if key not in self._open:
                severity = message(f"watch.severity.{alert.severity}", self._language)
                yield f"{clock} ! {severity}: {told_text(alert, self._language)}"
                for one in alert.helps:
                    flag = f"  {one.flag}" if one.flag else ""
                    yield f"{clock}     {help_text(one, self._language)}{flag}"
        for key, alert in self._open.items():
            if key not in now:
                told = message(
                    "watch.ended", self._language, alert=told_text(alert, self._language)
                )
                yield f"{clock} ! {told}"
        self._open = now


def endpoint_lines(endpoint: Endpoint, now: float, language: Language) -> Iterator[str]:
    """A server, a line a replica."""
    if not endpoint.replicas:
        error = f": {printable(refusal_in(language, endpoint.error))}" if endpoint.error else ""
        yield f"{endpoint.url} {status_text(endpoint, now, language)}{error}"
    for replica in endpoint.replicas:
        rank = "" if replica.rank is None else f"#{printable(replica.rank)}"
        yield f"{endpoint.url}{rank} {replica_text(replica, language)}"


def replica_text(replica: Replica, language: Language) -> str:
    """A replica in a line."""
    return message(
        "watch.line",
        language,
        running=count_text(replica.running),
        waiting=count_text(replica.waiting),
        kv=share_text(replica.kv_share),
        prompt=rate_text(replica.prompt_tokens_per_second),
        output=rate_text(replica.generation_tokens_per_second),
        ttft=median_text(replica.ttft),
        itl=median_text(replica.itl or replica.tpot),
        preempted=count_text(replica.preemptions),
    )


def gpu_line(gpu: Gpu, language: Language) -> str:
    """A GPU in a line."""
    told = [
        message("watch.gpu", language, index=gpu.index) + f" {printable(gpu.name)}",
        message(
            "watch.gpu_line",
            language,
            used=format_gib(gpu.used_bytes),
            total=format_gib(gpu.total_bytes),
            free=format_gib(gpu.free_bytes),
        ),
    ]
    if gpu.busy_share is not None:
        told.append(message("watch.busy", language, share=share_text(gpu.busy_share)))
    return message("speed.parts_join", language).join(told)
