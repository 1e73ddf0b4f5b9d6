"""Alerts and figures of a watch in words."""

from __future__ import annotations

import time
from typing import Final

from tokenroom.reports.messages import Language, message, printable
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.units import format_bytes, format_figure, format_seconds
from tokenroom.watching.observation import Alert, Endpoint, Help, Latency, Value

NONE: Final = "-"
_SHARES: Final = ("share", "waterline", "off", "kv_share")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def alert_text(alert: Alert, language: Language) -> str:
    """What is alarming, without where."""
    values = {name: _value(name, value, language) for name, value in alert.values.items()}
    return message(f"watch.alert.{alert.key}", language, **values)


def subject_text(alert: Alert, language: Language) -> str:
    """Where it is: an endpoint's address, or a GPU."""
    kind, _, index = alert.subject.partition(":")
    if kind == "gpu":
        return message("watch.gpu", language, index=index.partition("/")[0])
    return printable(alert.subject)


def help_text(one: Help, language: Language) -> str:
    """What to do, what it costs and what it changes, in the words of ``explain``."""
    what = message(f"explain.remedy.{one.key}", language, **one.values)
    told = [message(f"explain.cost.{one.cost}", language)]
    if one.starts is False:
        told.append(message("watch.help_starts_not", language))
    before, after = one.pool_tokens_before, one.pool_tokens_after
    if before is not None and after is not None and before != after:
        told.append(message("watch.help_pool", language, before=f"{before:,}", after=f"{after:,}"))
    aside = message("speed.parts_join", language).join(told)
    return message("watch.aside", language, text=what, aside=aside)


def told_text(alert: Alert, language: Language) -> str:
    """Where and what."""
    subject = subject_text(alert, language)
    return message("watch.named", language, name=subject, text=alert_text(alert, language))


def clock_text(seconds: float) -> str:
    """A moment as this machine's clock shows it."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def span_text(seconds: float) -> str:
    """A span of time, as short as a glance needs it: ``45s``, ``12m``, ``3h 5m``, ``2d 4h``."""
    whole = max(0, round(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"


def share_text(share: float | None) -> str:
    """A share in percent."""
    if share is None:
        return NONE
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def count_text(count: float | None) -> str:
    """A count, whole."""
    return NONE if count is None else f"{count:,.0f}"


def rate_text(rate: float | None) -> str:
    """A rate a second."""
    return NONE if rate is None else "0" if rate == 0 else format_figure(rate)


def seconds_text(seconds: float | None, *, beyond: bool = False) -> str:
    """A latency; more than the last bound where it lies beyond that."""
    if seconds is None:
        return NONE
    return f"{'>' if beyond else ''}{format_seconds(seconds)}"


def median_text(latency: Latency | None) -> str:
    """Median and 99th percentile of a latency."""
    if latency is None:
        return NONE
    p99 = seconds_text(latency.p99_seconds, beyond=latency.beyond)
    return f"{format_seconds(latency.p50_seconds)}/{p99}"


def status_text(endpoint: Endpoint, now: float, language: Language) -> str:
    """Whether a server answers, and for how long it has done so."""
    since = span_text(now - endpoint.since)
    if endpoint.status == "waiting":
        return message("watch.status.waiting", language)
    return message(f"watch.status.{endpoint.status}", language, since=since)


def _value(name: str, value: Value, language: Language) -> object:
    if value is None:
        return message("unknown", language)
    if isinstance(value, str):
        return printable(refusal_in(language, value) if name == "error" else value)
    if name in _SHARES:
        return share_text(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name == "seconds":
        return span_text(value)
    return f"{value:,}" if isinstance(value, int) and name != "pid" else str(value)
