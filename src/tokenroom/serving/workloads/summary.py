"""What a workload is like: lengths, rate over time, burstiness, and what a prefix cache could save.

One pass, in memory that does not grow with the number of requests, except for the names of shared
blocks: an infinite cache remembers every one.

- Percentiles lie at place share x (n - 1) of n sorted values, between two by proportion, in whole
  tokens (rounded down).
- Rate is one over the mean gap between arrivals.
- Burstiness: the coefficient of variation of the gaps between arrivals (standard deviation over
  mean; 1 for a Poisson process), and the Fano factor of the counts by minute (variance over mean; 1
  for a Poisson process), which sees slow changes that the gaps do not; of whole minutes only.
- Hit ratio: tokens of prompts in full blocks that were in an earlier prompt or answer, over all
  tokens of prompts. An engine computes at least the last token of a prompt, whatever is cached.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import WorkloadError
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.limits import TooLong, too_long

MINUTE_SECONDS: Final = 60.0
_MOST_BINS: Final = 120
_PERCENTILES: Final = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long prompts or answers are, in tokens.

    Attributes:
        mean: Mean.
        smallest: The shortest.
        p50: Half are no longer.
        p90: 90% are no longer.
        p95: 95% are no longer.
        p99: 99% are no longer.
        largest: The longest.
        total: Of all requests.
    """

    mean: float
    smallest: int
    p50: int
    p90: int
    p95: int
    p99: int
    largest: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests come.

    Attributes:
        span_seconds: From the first to the last.
        request_rate: Requests a second over the span; None when all come at once.
        peak_minute_rate: Requests a second in the fullest minute; None below two minutes.
        gap_cv: Coefficient of variation of the gaps; None when there is nothing to vary.
        fano_minute: Variance over mean of the counts by minute; None below two minutes.
        fano_all_minutes: The same with the last minute, however little of it the workload covers,
            as some published statistics of traces count.
        same_time_share: Share of the gaps that are 0.
        bin_seconds: Width of the bins of ``counts``.
        counts: Requests by bin, from the first arrival on.
    """

    span_seconds: float
    request_rate: float | None
    peak_minute_rate: float | None
    gap_cv: float | None
    fano_minute: float | None
    fano_all_minutes: float | None
    same_time_share: float
    bin_seconds: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What an infinite prefix cache would find.

    Attributes:
        block_tokens: Tokens in a block.
        hit_blocks: Full blocks of prompts that were there before.
        prompt_tokens: Tokens of all prompts.
    """

    block_tokens: int
    hit_blocks: int
    prompt_tokens: int

    @property
    def hit_ratio(self) -> float:
        """Share of the tokens of prompts that were there before."""
        return self.hit_blocks * self.block_tokens / self.prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """A workload in figures.

    Attributes:
        requests: How many.
        prompt: Lengths of prompts.
        output: Lengths of answers.
        longest_tokens: Most tokens of a prompt and its answer together.
        longest_id: The request that has them.
        arrivals: When they come; None when that depends on how fast they are served.
        sessions: Sessions or users that are named; None when none is.
        sharing: What an infinite prefix cache finds; None when no block has a name.
        max_model_len: What requests were held against; None for nothing.
        long_prompts: Requests whose prompt alone leaves no room within it.
        long_answers: Requests that exceed it with their answer.
    """

    requests: int
    prompt: Lengths
    output: Lengths
    longest_tokens: int
    longest_id: int
    arrivals: Arrivals | None
    sessions: int | None
    sharing: Sharing | None
    max_model_len: int | None
    long_prompts: int
    long_answers: int


class _Times:
    """Running figures of arrivals."""

    __slots__ = (
        *("_bins", "_first", "_gaps", "_in_minute", "_last", "_mean", "_minute", "_minute_squares"),
        *("_squares", "_width", "peak", "same"),
    )

    def __init__(self) -> None:
        self._first: float | None = None
        self._last: float | None = None
        self._gaps = 0
        self._mean = self._squares = 0.0
        self._minute = self._in_minute = 0
        self._minute_squares = self.peak = self.same = 0
        self._width = 1.0
        self._bins: list[int] = []

    def add(self, seconds: float) -> None:
        if self._last is not None:
            gap = seconds - self._last
            if gap < 0:
                raise WorkloadError("the requests are not in order of arrival; sort them by time")
            self._gaps += 1
            off = gap - self._mean
            self._mean += off / self._gaps
            self._squares += off * (gap - self._mean)
            self.same += not gap
        else:
            self._first = seconds
        self._last = seconds
        minute = int(seconds / MINUTE_SECONDS)
        if minute != self._minute:
            self._close_minute()
            self._minute = minute
        self._in_minute += 1
        at = int(seconds / self._width)
        while at >= _MOST_BINS:
            self._bins = [sum(self._bins[low : low + 2]) for low in range(0, len(self._bins), 2)]
            self._width *= 2
            at = int(seconds / self._width)
        if at >= len(self._bins):
            self._bins.extend([0] * (at + 1 - len(self._bins)))
        self._bins[at] += 1

    def _close_minute(self) -> None:
        self._minute_squares += self._in_minute**2
        self.peak = max(self.peak, self._in_minute)
        self._in_minute = 0

    def figures(self, requests: int) -> Arrivals:
        whole = int((self._last or 0.0) / MINUTE_SECONDS)
        fano = _fano(self._minute_squares, requests - self._in_minute, whole)
        self._close_minute()
        span = (self._last or 0.0) - (self._first or 0.0)
        short = span < 2 * MINUTE_SECONDS
        deviation = math.sqrt(self._squares / self._gaps) if self._gaps else 0.0
        return Arrivals(
            span_seconds=span,
            request_rate=self._gaps / span if span else None,
            peak_minute_rate=None if short else self.peak / MINUTE_SECONDS,
            gap_cv=deviation / self._mean if self._mean else None,
            fano_minute=None if short else fano,
            fano_all_minutes=None if short else _fano(self._minute_squares, requests, whole + 1),
            same_time_share=self.same / self._gaps if self._gaps else 0.0,
            bin_seconds=self._width,
            counts=tuple(self._bins),
        )


def _fano(squares: int, requests: int, minutes: int) -> float | None:
    """Variance over mean of the counts of so many minutes, from the sum of their squares."""
    if not requests or not minutes:
        return None
    mean = requests / minutes
    return (squares / minutes - mean**2) / mean


def summarise(
    requests: Iterable[Request],
    *,
    block_tokens: int | None = None,
    max_model_len: int | None = None,
    timed: bool = True,
) -> WorkloadSummary:
    """The figures of a workload.

    Args:
        requests: In order of arrival.
        block_tokens: Tokens in the blocks that ``block_hashes`` name; None when none is named.
        max_model_len: The longest request that a deployment takes, prompt and answer together.
        timed: Whether the times of arrival mean anything.

    Raises:
        WorkloadError: There is no request, or they are out of order.
    """
    prompts: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    times = _Times()
    seen: set[int] = set()
    sessions: set[int] = set()
    hits = longest = longest_id = count = 0
    beyond: Counter[TooLong | None] = Counter()
    for request in requests:
        prompt, output = request.prompt_tokens, request.output_tokens
        prompts[prompt] += 1
        outputs[output] += 1
        count += 1
        if prompt + output > longest:
            longest, longest_id = prompt + output, request.id
        if timed:
            times.add(request.arrival_seconds)
        if request.session is not None:
            sessions.add(request.session)
        if block_tokens is not None:
            names = request.block_hashes
            # equal names mean equal blocks from the start on, so those seen before come first
            known = bisect_left(names, True, key=lambda name: name not in seen)
            hits += min(known, prompt // block_tokens)
            seen.update(names[known:])
        if max_model_len is not None:
            beyond[too_long(request, max_model_len)] += 1
    if not count:
        raise WorkloadError("the workload has no request; give one with at least one")
    return WorkloadSummary(
        requests=count,
        prompt=_lengths(prompts, count),
        output=_lengths(outputs, count),
        longest_tokens=longest,
        longest_id=longest_id,
        arrivals=times.figures(count) if timed else None,
        sessions=len(sessions) or None,
        sharing=None
        if block_tokens is None or not seen
        else Sharing(
            block_tokens=block_tokens,
            hit_blocks=hits,
            prompt_tokens=sum(length * times for length, times in prompts.items()),
        ),
        max_model_len=max_model_len,
        long_prompts=beyond[TooLong.PROMPT],
        long_answers=beyond[TooLong.ANSWER],
    )


def _lengths(counts: Counter[int], requests: int) -> Lengths:
    values = sorted(counts)
    ranks = _percentiles(values, counts, requests)
    total = sum(value * count for value, count in counts.items())
    return Lengths(
        mean=total / requests,
        smallest=values[0],
        p50=ranks[0],
        p90=ranks[1],
        p95=ranks[2],
        p99=ranks[3],
        largest=values[-1],
        total=total,
    )


def _percentiles(values: Sequence[int], counts: Counter[int], requests: int) -> list[int]:
    """Whole tokens, computed in integers: hundredths of a place between two neighbours."""
    places = [(requests - 1) * share for share in _PERCENTILES]  # in hundredths
    wanted = sorted({rank for place in places for rank in (place // 100, -(-place // 100))})
    at_rank: dict[int, int] = {}
    below = number = 0
    for value in values:
        below += counts[value]
        while number < len(wanted) and wanted[number] < below:
            at_rank[wanted[number]] = value
            number += 1
    found = []
    for place in places:
        low, high = at_rank[place // 100], at_rank[-(-place // 100)]
        found.append(low + (high - low) * (place % 100) // 100)
    return found
