"""Where the requests of a run come from: a trace or a description, and the part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from tokenroom.errors import WorkloadError, shown
from tokenroom.execution.canonical import file_digest
from tokenroom.serving.arrivals import Arrivals, OpenLoop
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving.workloads.reshaping import limited, sped_up, windowed
from tokenroom.serving.workloads.synthetic import SyntheticWorkload
from tokenroom.serving.workloads.trace import Trace, TraceOptions

_FEW: Final = 2000
"""Requests that are served step by step in two seconds."""
_FEW_BYTES: Final = 32 << 10
"""Size of a file with about as many."""


class Served(NamedTuple):
    """A workload that is ready to be served.

    Attributes:
        name: The file's name, or the description.
        arrivals: Its requests.
        waits_for_answers: Whether they depend on how fast they are served.
        are_few: They are so few that serving them step by step takes no longer than to load
            what serves faster.
    """

    name: str
    arrivals: Arrivals
    waits_for_answers: bool
    are_few: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a workload that is served.

    Attributes:
        window_seconds: Only requests that arrive in it.
        time_scale: What all times of arrival are multiplied by.
        limit: Only the first so many requests.
    """

    window_seconds: tuple[float, float] | None = None
    time_scale: float | None = None
    limit: int | None = None

    @property
    def is_few(self) -> bool:
        """Whether it says that there are only few requests."""
        return self.limit is not None and self.limit <= _FEW

    def of(self, requests: Iterable[Request]) -> Iterable[Request]:
        """These requests of the whole."""
        if self.window_seconds is not None:
            requests = windowed(requests, *self.window_seconds)
        if self.time_scale is not None:
            requests = sped_up(requests, 1 / self.time_scale)
        return requests if self.limit is None else limited(requests, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """A trace that is replayed.

    Attributes:
        path: Its file.
        options: How it is read.
        part: What of it is served.
    """

    path: Path
    options: TraceOptions = field(default_factory=TraceOptions)
    part: Part = field(default_factory=Part)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def served(self, block_tokens: int) -> Served:
        """Its requests.

        Args:
            block_tokens: Tokens in the blocks that shared prefixes are named by.

        Raises:
            WorkloadError: It cannot be read.
        """
        trace = Trace(self.path, replace(self.options, block_tokens=block_tokens))
        _, num_bytes = trace.progress
        few = num_bytes is not None and num_bytes <= _FEW_BYTES
        return Served(self.name, OpenLoop(self.part.of(trace)), False, few or self.part.is_few)

    def identity(self) -> Any:
        """Everything that its requests depend on.

        Raises:
            WorkloadError: It cannot be read.
        """
        try:
            return [file_digest(self.path), self.options, self.part]
        except OSError as error:
            raise WorkloadError(f"{self.path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSource:
    """A workload that is drawn.

    Attributes:
        description: As :func:`tokenroom.serving.workloads.grammar.parse_workload` reads it.
        part: What of it is served.
        seed: Of its draws; None for the description's own.
    """

    description: str
    part: Part = field(default_factory=Part)
    seed: int | None = None

    @property
    def name(self) -> str:
        """The description."""
        return self.description

    def drawn(self, block_tokens: int) -> SyntheticWorkload:
        """The whole workload.

        Raises:
            WorkloadError: The description cannot be meant.
        """
        workload = parse_workload(self.description, block_tokens=block_tokens)
        return workload if self.seed is None else replace(workload, seed=self.seed)

    def served(self, block_tokens: int) -> Served:
        """Its requests.

        Args:
            block_tokens: Tokens in the blocks that shared prefixes are named by.

        Raises:
            WorkloadError: The description cannot be meant, or the part is of arrivals that are
                known beforehand and these are not.
        """
        workload = self.drawn(block_tokens)
        part = self.part
        if not workload.waits_for_answers:
            few = part.is_few or (workload.requests is not None and workload.requests <= _FEW)
            return Served(self.name, OpenLoop(part.of(workload)), False, few)
        for name, value in (("window", part.window_seconds), ("time scale", part.time_scale)):
            if value is not None:
                raise WorkloadError(
                    f"a {name} is of arrivals that are known beforehand, and users of "
                    f"{shown(self.description)} wait for their answers; leave it out"
                )
        if part.limit is not None:
            most = part.limit if workload.requests is None else min(part.limit, workload.requests)
            workload = replace(workload, requests=most)
        few = workload.requests is not None and workload.requests <= _FEW
        return Served(self.name, workload.start(), workload.users is not None, few)

    def identity(self) -> Any:
        """Everything that its requests depend on, the numbers of files that it names too.

        Raises:
            WorkloadError: The description cannot be meant.
        """
        return [self.drawn(1), self.part]


WorkloadSource = TraceSource | DrawnSource
"""A workload as it is asked for: nothing is read yet, and it can be served many times."""
