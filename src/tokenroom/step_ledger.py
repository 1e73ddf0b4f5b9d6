"""One step as an account: what each operator and the host take of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.performance.efficiency import Beyond
from tokenroom.performance.step_time import StepTime, TimedOperator
from tokenroom.performance.work import Kind

LIMITERS: Final = ("compute", "bandwidth", "communication", "overhead")
"""What may hold most of a step; overhead is starting kernels and the host together."""

_OVERHEADS: Final = frozenset({"launch", "host"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLine:
    """What operators of one name take of a step on one rank, all their runs together.

    Attributes:
        name: What it does; ``"host"`` is scheduling, launching and reading results.
        seconds: Their time.
        share: Of the whole step.
        flops: Multiplications and additions.
        num_bytes: Bytes of memory moved.
        message_bytes: Bytes of the messages of collectives.
        limiter: One of :data:`LIMITERS`, that which holds the most of it.
        sources: Measured tables behind the time; none for the host.
        kind: Of the operators; None for the host.
        beyond: Extents outside of what those tables hold.
    """

    name: str
    seconds: float
    share: float
    flops: float
    num_bytes: float
    message_bytes: float
    limiter: str
    sources: tuple[str, ...]
    kind: Kind | None
    beyond: tuple[Beyond, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLedger:
    """One step, operator by operator; the lines add up to ``time.seconds``.

    Attributes:
        time: The step as the model gives it.
        lines: Operators and the host, longest first.
        shares: Of the step by limiter, all of :data:`LIMITERS`.
    """

    time: StepTime
    lines: tuple[OperatorLine, ...]
    shares: Mapping[str, float]

    @property
    def limiter(self) -> str:
        """What holds the most of the step."""
        return max(self.shares, key=self.shares.__getitem__)


class _Sum:
    """A line of a ledger while operators are added to it."""

    def __init__(self, kind: Kind | None) -> None:
        self.kind = kind
        self.by_limiter: dict[str, float] = {}
        self.flops = self.num_bytes = self.message_bytes = 0.0
        self.sources: set[str] = set()
        self.beyond: dict[str, Beyond] = {}

    def add(self, limiter: str, seconds: float) -> None:
        self.by_limiter[limiter] = self.by_limiter.get(limiter, 0.0) + seconds

    def closed(self, name: str, step_seconds: float) -> OperatorLine:
        seconds = sum(self.by_limiter.values())
        return OperatorLine(
            name=name,
            seconds=seconds,
            share=seconds / step_seconds,
            flops=self.flops,
            num_bytes=self.num_bytes,
            message_bytes=self.message_bytes,
            limiter=max(self.by_limiter, key=self.by_limiter.__getitem__),
            sources=tuple(sorted(self.sources)),
            kind=self.kind,
            beyond=tuple(self.beyond.values()),
        )


def step_ledger(step: StepTime, operators: Iterable[TimedOperator]) -> StepLedger:
    """The account of ``step``, whose operators are these."""
    lines: dict[str, _Sum] = {}
    totals = dict.fromkeys(LIMITERS, 0.0)
    for operator, duration, tables, beyond in operators:
        limiter = "overhead" if duration.limiter in _OVERHEADS else duration.limiter
        totals[limiter] += duration.seconds
        line = lines.setdefault(operator.name, _Sum(operator.kind))
        line.add(limiter, duration.seconds)
        line.flops += operator.times * operator.flops
        line.num_bytes += operator.times * operator.num_bytes
        line.message_bytes += operator.times * operator.message_bytes
        line.sources |= {f"{tables.accelerator}: {name}" for name in tables.names}
        for out in beyond:
            known = line.beyond.get(out.extent)
            if known is None or out.widening > known.widening:
                line.beyond[out.extent] = out
    totals["overhead"] += step.host_seconds
    host = _Sum(None)
    host.add("overhead", step.host_seconds)
    lines["host"] = host
    return StepLedger(
        time=step,
        lines=tuple(
            sorted(
                (line.closed(name, step.seconds) for name, line in lines.items()),
                key=lambda line: -line.seconds,
            )
        ),
        shares={name: seconds / step.seconds for name, seconds in totals.items()},
    )
