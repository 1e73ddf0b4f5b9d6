"""A part of a workload, faster or slower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tokenroom.errors import WorkloadError
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.values import MAX_SPAN_SECONDS


def windowed(
    requests: Iterable[Request], start_seconds: float, end_seconds: float
) -> Iterator[Request]:
    """The requests that arrive from one time up to before another, counted from the first time.

    Raises:
        WorkloadError: The window ends before it begins, or no request arrives in it.
    """
    if not 0 <= start_seconds < end_seconds:
        raise WorkloadError(
            f"the window {start_seconds:g} s to {end_seconds:g} s holds no time; write the earlier "
            "one first, as in 10m..20m"
        )
    empty = True
    for request in requests:
        if request.arrival_seconds >= end_seconds:
            break
        if request.arrival_seconds >= start_seconds:
            empty = False
            yield replace(request, arrival_seconds=request.arrival_seconds - start_seconds)
    if empty:
        raise WorkloadError(
            f"no request arrives from {start_seconds:g} s to {end_seconds:g} s; give a window "
            "within the workload"
        )


LEAST_SCALE: Final = 1e-12
"""Of times: a century would take milliseconds."""


def sped_up(requests: Iterable[Request], factor: float) -> Iterator[Request]:
    """The same requests with all gaps divided by ``factor``: 2 doubles the rate.

    Raises:
        WorkloadError: The factor is not above 0 and finite, or spreads them over too long a time.
    """
    if not 0 < factor < float("inf"):
        raise WorkloadError(
            f"the speed-up is {factor:g}; it must be above 0 and finite, as 2 or 0.5"
        )
    for request in requests:
        seconds = request.arrival_seconds / factor
        check_span(seconds)
        yield replace(request, arrival_seconds=seconds)


def check_time_scale(scale: float, field: str) -> None:
    """Refuse what times cannot be multiplied by.

    Raises:
        WorkloadError: It is not above 0 and finite, or so small that gaps vanish.
    """
    if not 0 < scale < float("inf"):
        raise WorkloadError(f"{field} is {scale:g}; it must be above 0, as 2 or 0.5")
    if scale < LEAST_SCALE:
        raise WorkloadError(f"{field} is {scale:g}; it may be {LEAST_SCALE:g} at least, as 0.5")


def check_span(seconds: float) -> None:
    """Refuse a time of arrival at which a step is no longer told from the next.

    Raises:
        WorkloadError: It is more than 100 years after the start.
    """
    if seconds > MAX_SPAN_SECONDS:
        raise WorkloadError(
            f"a request arrives {seconds / 86400:,.4g} days after the first; times of a workload "
            "span at most 100 years, so give a higher rate, fewer requests or shorter pauses"
        )


def limited(requests: Iterable[Request], count: int) -> Iterator[Request]:
    """The first ``count`` requests.

    Raises:
        WorkloadError: The count is below 1.
    """
    from itertools import islice

    if count < 1:
        raise WorkloadError(f"the number of requests is {count}; it must be at least 1")
    return islice(requests, count)
