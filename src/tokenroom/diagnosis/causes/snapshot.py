"""A memory snapshot of PyTorch: what failed, and what held the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.diagnosis.finding import Cause, CauseName, Finding, Phase
from tokenroom.diagnosis.report import Report
from tokenroom.diagnosis.sightings import Sighting
from tokenroom.diagnosis.snapshot import DeviceMemory, Failure, Taker
from tokenroom.units import format_bytes

_TAKEN: Final[dict[Taker, tuple[CauseName, Phase]]] = {
    "weights": (CauseName.WEIGHTS_TOO_BIG, Phase.LOAD),
    "kv_cache": (CauseName.KV_PREALLOCATION, Phase.KV_INIT),
    "graphs": (CauseName.CUDA_GRAPHS, Phase.GRAPH_CAPTURE),
    "encoder": (CauseName.ENCODER_BUDGET, Phase.RUNTIME),
    "activations": (CauseName.ACTIVATION_PEAK, Phase.RUNTIME),
}
_PROFILING: Final = frozenset({"profile_run", "_dummy_run", "determine_available_memory", "warmup"})
_DECODING: Final = frozenset({"forward_decode", "decode"})
_LEAST_REPEATS: Final = 16
_LEAST_SHARE: Final = 0.2
"""Of what is allocated, from which on what only grows is a leak that matters."""


class FailedAllocation:
    """The history has an allocation that failed: there was enough in pieces, or there was not."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By what PyTorch kept unused against what was asked for, and by who asked."""
        snapshot = report.snapshot
        device = None if snapshot is None else snapshot.failed
        if device is None:
            return
        failure = device.failures[-1]
        phase = _phase(failure)
        evidence = (_told(device, failure), _held(device))
        kept, asked = device.shared_free_bytes, failure.asked_bytes
        if kept + failure.free_bytes >= asked and kept >= asked / 2:
            yield Finding(
                cause=CauseName.FRAGMENTATION,
                phase=phase,
                weight=0.93 if kept >= asked else 0.75,
                evidence=evidence,
                reason="snapshot_pieces",
                values={
                    "asked": format_bytes(asked),
                    "kept": format_bytes(kept),
                    "pieces": device.free_blocks,
                    "largest": format_bytes(device.largest_free_bytes),
                },
            )
        cause = _TAKEN.get(failure.taker)
        if cause is not None:
            yield Finding(
                cause=cause[0],
                phase=phase,
                weight=0.85,
                evidence=evidence,
                reason="snapshot_asked",
                values={"where": failure.where, "asked": format_bytes(asked)},
            )
        elif device.by_taker:
            taker, size = max(device.by_taker.items(), key=lambda one: one[1])
            if (cause := _TAKEN.get(taker)) is not None:
                yield Finding(
                    cause=cause[0],
                    phase=phase,
                    weight=0.5,
                    evidence=evidence,
                    reason="snapshot_holds",
                    values={"where": device.sites[0].where, "size": format_bytes(size)},
                )


class OnlyGrows:
    """One place in the program allocated again and again, and nothing of it was freed."""

    def weigh(self, report: Report) -> Iterator[Finding]:
        """By the recorded history; weights and pools are allocated once and kept rightly."""
        for device in () if report.snapshot is None else report.snapshot.devices:
            for site in device.growing:
                if site.taker in ("weights", "kv_cache", "graphs") or site.blocks < _LEAST_REPEATS:
                    continue
                if site.num_bytes >= _LEAST_SHARE * device.allocated_bytes:
                    yield Finding(
                        cause=CauseName.LEAK,
                        phase=Phase.RUNTIME,
                        weight=0.86,
                        evidence=(_held(device),),
                        reason="snapshot_grows",
                        values={
                            "where": site.where,
                            "blocks": site.blocks,
                            "size": format_bytes(site.num_bytes),
                        },
                    )
                    return


def _phase(failure: Failure) -> Phase:
    """When it was, by the functions of its stack."""
    names = set(failure.functions)
    if failure.taker in ("encoder", "activations", "other"):
        if names & _PROFILING:
            return Phase.PROFILE
        return Phase.DECODE if names & _DECODING else Phase.RUNTIME
    return _TAKEN[failure.taker][1]


def _told(device: DeviceMemory, failure: Failure) -> Sighting:
    where = f", by {failure.where}" if failure.where else ""
    return Sighting(
        "snapshot",
        0,
        f"GPU {device.device}: {format_bytes(failure.asked_bytes)} asked for{where}; "
        f"{format_bytes(failure.free_bytes)} free",
        "",
        {},
    )


def _held(device: DeviceMemory) -> Sighting:
    return Sighting(
        "snapshot",
        0,
        f"GPU {device.device}: {format_bytes(device.reserved_bytes)} reserved in {device.segments} "
        f"segments, {format_bytes(device.allocated_bytes)} of it allocated; the largest of "
        f"{device.free_blocks} free blocks {format_bytes(device.largest_free_bytes)}",
        "",
        {},
    )


CAUSES: Final[tuple[Cause, ...]] = (FailedAllocation(), OnlyGrows())
