"""The host's memory: killed by the kernel or a container's limit, leaks, /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase, phase_of
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting

_LEFTOVERS: Final = 3
"""Segments of NCCL in /dev/shm, from which on they are those of runs before."""

_LITTLE: Final = 0.05
"""Of the host's memory, under which it is used up."""

_FULL_PCT: Final = 95

_EARLY_SECONDS: Final = 600.0
"""Of a container's life, in which an engine still reads its model and nothing leaks to a limit."""

_BESIDE_LINES: Final = 4
"""Between the reason for which a container ended and when it began and ended."""

_RISES: Final = 4
"""Figures that each exceed the one before, from which on memory grows."""


class HostMemory:
    """The host had no memory left, or a container's limit was reached."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """The kernel's, Kubernetes' or Ray's own words, or an allocation that failed there."""
        sure = report.of(
            *("dmesg_oom", "ray_oom", "ollama_system", "cpu_alloc", "host_request"),
            "ggml_host_alloc",
        )
        killed = report.of("oomkilled")
        limit, cache = report.of("memory_limit"), report.of("prompt_cache")
        if sure:
            yield Finding(
                cause=CauseName.HOST_RAM,
                phase=phase_of(report, sure),
                weight=0.95,
                evidence=(sure[0],),
                reason="host_ram",
            )
        elif killed:
            served = report.phases and report.phases[-1][0] == "runtime"
            lived = None if served or cache else _lived_seconds(report, killed[0])
            early = lived is not None and lived < _EARLY_SECONDS
            loading = early or (report.phases and report.phases[-1][0] == "load")
            yield Finding(
                cause=CauseName.HOST_RAM,
                phase=Phase.LOAD if loading else Phase.RUNTIME,
                weight=0.8 if early else 0.9 if cache or loading else 0.7,
                evidence=(killed[0], *limit[:1], *cache[:1]),
                reason="prompt_cache"
                if cache
                else "container_limit_early"
                if early
                else "container_limit",
                values={"seconds": f"{lived:,.0f}"} if early else {},
            )
            if not loading and not cache:
                yield Finding(
                    cause=CauseName.LEAK,
                    phase=Phase.RUNTIME,
                    weight=0.72 if served or report.has("restarts") else 0.6,
                    evidence=(killed[0], *limit[:1]),
                    reason="limit_after_running",
                )
        elif report.has("killed"):
            found = report.of("killed")
            probe = report.of("probe_failed")
            full = [one for one in report.of("free_memory") if _nearly_used(one)]
            if probe:
                yield Finding(
                    cause=CauseName.NOT_MEMORY,
                    phase=phase_of(report, found),
                    weight=0.5,
                    evidence=(probe[0], found[0]),
                    reason="probe",
                )
            yield Finding(
                cause=CauseName.HOST_RAM,
                phase=phase_of(report, found),
                weight=0.75 if full else 0.4,
                evidence=(found[0], *full[-1:]),
                reason="killed_full" if full else "killed",
            )


def _lived_seconds(report: Report, killed: Sighting) -> float | None:
    """How long a container ran before it was killed; None where its description does not say."""
    began = [
        one for one in report.of("container_began") if 0 < one.line - killed.line <= _BESIDE_LINES
    ]
    ended = [
        one for one in report.of("container_ended") if abs(one.line - killed.line) <= _BESIDE_LINES
    ]
    if not began or not ended:
        return None
    first, last = _moment(began[0].values["at"]), _moment(ended[0].values["at"])
    return None if first is None or last is None else (last - first).total_seconds()


def _moment(text: str) -> datetime | None:
    """A moment as Kubernetes writes it: RFC 1123 with an offset, or RFC 3339."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except ValueError:
            continue
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return None


def _nearly_used(found: Sighting) -> bool:
    """Whether ``free`` shows hardly anything available."""
    total, available = found.size_bytes("total"), found.size_bytes("available")
    return bool(total) and available is not None and available < _LITTLE * (total or 0.0)


class Growth:
    """A process holds ever more of the host's memory."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """Resident sizes that rise from line to line."""
        by_process: dict[str, list[Sighting]] = {}
        for found in report.of("rss"):
            by_process.setdefault(found.process, []).append(found)
        for several in by_process.values():
            sizes = [found.size_bytes("size") or 0.0 for found in several]
            rises = sum(later > earlier for earlier, later in pairwise(sizes))
            if rises >= _RISES and rises == len(sizes) - 1 and sizes[-1] > 1.2 * sizes[0]:
                yield Finding(
                    cause=CauseName.LEAK,
                    phase=Phase.RUNTIME,
                    weight=0.9,
                    evidence=(several[0], several[-1]),
                    reason="growth",
                )


class DeviceGrowth:
    """What a GPU holds rises from one reading of nvidia-smi to the next."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """Readings of one GPU, or of GPUs that are alike, taken again and again."""
        found = report.of("smi")
        used = [one.number("used") or 0.0 for one in found]
        alike = len({one.values.get("total") for one in found}) == 1
        rises = all(later > earlier for earlier, later in pairwise(used))
        if alike and rises and len(used) > _RISES + 1 and used[-1] > 1.2 * used[0]:
            yield Finding(
                cause=CauseName.LEAK,
                phase=Phase.RUNTIME,
                weight=0.7,
                evidence=(found[0], found[-1]),
                reason="device_growth",
            )


class SharedMemory:
    """``/dev/shm`` is too small, or full of what earlier runs left there."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """NCCL keeps a segment of some MB a pair of ranks there (src/misc/shmutils.cc)."""
        segment, system = report.of("nccl_shm"), report.of("nccl_system")
        left = report.of("shm_file")
        mounted = [
            one for one in report.of("shm_mount") if (one.number("percent") or 0) >= _FULL_PCT
        ]
        if segment:
            yield Finding(
                cause=CauseName.SHM,
                phase=Phase.LOAD,
                weight=0.95,
                evidence=(segment[0], *system[:1]),
                reason="shm_small",
            )
        elif len(left) >= _LEFTOVERS:
            yield Finding(
                cause=CauseName.SHM,
                phase=Phase.LOAD,
                weight=0.9,
                evidence=(*system[:1], *left[:2]),
                reason="shm_left",
                values={"count": len(left)},
            )
        elif report.has("bus_error"):
            found = report.of("bus_error")
            yield Finding(
                cause=CauseName.SHM,
                phase=phase_of(report, found),
                weight=0.85 if mounted else 0.7,
                evidence=(found[0], *mounted[-1:]),
                reason="bus_error",
            )
        elif mounted:
            yield Finding(
                cause=CauseName.SHM,
                phase=Phase.LOAD if system else Phase.RUNTIME,
                weight=0.8 if system else 0.56,
                evidence=(*system[:1], mounted[-1]),
                reason="shm_full",
            )
        elif system:
            yield Finding(
                cause=CauseName.SHM,
                phase=Phase.LOAD,
                weight=0.35,
                evidence=(system[0],),
                reason="nccl_system",
            )


CAUSES: Final[tuple[Cause, ...]] = (
    HostMemory(),
    Growth(),
    DeviceGrowth(),
    SharedMemory(),
)
