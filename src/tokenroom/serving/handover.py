"""Requests whose prompt one server computes and whose answer another writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from tokenroom.errors import FleetError, shown
from tokenroom.performance.efficiency import NETWORK_BYTES_PER_SECOND
from tokenroom.serving.events import Events, Turn
from tokenroom.serving.fleet_description import Role, Transfer
from tokenroom.serving.pool import Pool
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.replica import Replica
from tokenroom.serving.request import Request

_FIELDS: Final = {"nvlink": "link_bytes_per_second", "pcie": "pcie_bytes_per_second"}


def bytes_per_second(transfer: Transfer, pool: Pool) -> float:
    """What each GPU of a pool's servers sends or takes in at most.

    Raises:
        FleetError: Its GPUs have no such link, or its bandwidth is not known.
    """
    if transfer.bytes_per_second is not None:
        return transfer.bytes_per_second
    assert transfer.link is not None
    if transfer.link == "network":
        return NETWORK_BYTES_PER_SECOND
    accelerator = pool.fit.deployment.node.accelerator
    found: float | None = getattr(accelerator, _FIELDS[transfer.link])
    if transfer.link == "nvlink" and not accelerator.link.startswith("nvlink"):
        found = None
    if found is None:
        raise FleetError(
            f"link of transfer is {transfer.link}, which {accelerator.name} of pool "
            f"{pool.name} has not; give network, or bandwidth, as 50GB/s"
        )
    return found


def _check_alike(pools: Sequence[Pool]) -> None:
    """Refuse servers of answers that cannot read the KV of every server of prompts.

    vLLM 0.33 ``vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py``
    (``compute_nixl_compatibility_hash``): version, model, its type and the cache's are the same on
    both sides; sizes of groups and of blocks may differ.

    Raises:
        FleetError: There are such.
    """
    senders = [pool for pool in pools if pool.role is Role.PREFILL]
    for receiver in pools:
        if receiver.role is not Role.DECODE:
            continue
        for sender in senders:
            for what, here, there in zip(_ALIKE, *map(_kv_of, (sender, receiver)), strict=True):
                if here != there:
                    raise FleetError(
                        f"the {what} of pool {shown(sender.name)} is {shown(here)}, and of pool "
                        f"{shown(receiver.name)} {shown(there)}; servers of prompts and of answers "
                        "have the same, or the one cannot read the other's KV"
                    )


_ALIKE: Final = ("version of vLLM", "model", "dtype", "type of the KV cache")


def _kv_of(pool: Pool) -> tuple[str, ...]:
    """What :data:`_ALIKE` names, of a pool."""
    deployment, terms = pool.fit.deployment, pool.cost.terms
    spec = deployment.spec
    return deployment.version, spec.name, spec.dtype, terms.kv_dtype or "auto"


def _block_bytes(pool: Pool) -> int:
    """Bytes of a KV block on each GPU."""
    plan: Any = pool.fit.plan
    num_bytes: int = plan.layout.bytes_per_block
    return num_bytes


class _Moving(NamedTuple):
    """A request between its servers: as it came, and what became of its prompt."""

    request: Request
    sender: Replica
    receiver: Replica
    prompt: RequestRecord


class Handovers:
    """Takes requests from the servers of their prompts to those of their answers.

    A proxy sends a request to a decoding server when its prompt is done, and that server reads the
    KV when it has blocks for it, as ``NixlConnector`` of vLLM and its proxies do
    (``tests/v1/kv_connector/nixl_integration/toy_proxy_server.py``). A server's GPUs send or read
    one request's KV after another's, each its own share, as fast as the slower of both sides.

    Args:
        events: Where transfers are planned.
        transfer: How KV moves.
        pools: The pools of the fleet.
        place_of: The place of a server's pool, by the server's number.
        choose: The server that writes the answer to a request.
        read: Hears which server's blocks have been read.

    Raises:
        FleetError: The GPUs of a pool have no such link, or two pools cannot hand over.
    """

    __slots__ = (
        "_asked",
        "_block_bytes",
        "_choose",
        "_events",
        "_free",
        "_latency_seconds",
        "_moving",
        "_place_of",
        "_rates",
        "_read",
    )

    def __init__(
        self,
        events: Events,
        transfer: Transfer,
        pools: Sequence[Pool],
        place_of: Callable[[int], int],
        choose: Callable[[Request, float], Replica],
        read: Callable[[Replica, float], object],
    ) -> None:
        _check_alike(pools)
        self._events = events
        self._latency_seconds = transfer.latency_seconds
        self._rates = [bytes_per_second(transfer, pool) for pool in pools]
        self._block_bytes = {
            place: _block_bytes(pool)
            for place, pool in enumerate(pools)
            if pool.role is Role.DECODE
        }
        self._place_of = place_of
        self._choose = choose
        self._read = read
        self._asked: dict[int, Request] = {}
        self._moving: dict[int, _Moving] = {}
        self._free: dict[int, float] = {}

    def ask(self, request: Request) -> Request:
        """What a server of prompts is sent of a request."""
        self._asked[request.id] = request
        return replace(request, output_tokens=1)

    def prompt_done(self, sender: Replica, record: RequestRecord, now: float) -> bool:
        """Hand a request on whose prompt is done; whether there is an answer to come."""
        request = self._asked.pop(record.id)
        if record.refused is not None:
            return False
        receiver = self._choose(request, now)
        self._moving[record.id] = _Moving(request, sender, receiver, record)
        receiver.send(replace(request, arrival_seconds=now), now)
        return True

    def fetch(self, request_id: int, blocks: int) -> None:
        """Begin to move the KV of a request that has been given blocks for it."""
        moving = self._moving[request_id]
        ends = (moving.sender.number, moving.receiver.number)
        from_place, to_place = map(self._place_of, ends)
        rate = min(self._rates[from_place], self._rates[to_place])
        start = max(self._events.now, *(self._free.get(end, 0.0) for end in ends))
        done = start + self._latency_seconds + blocks * self._block_bytes[to_place] / rate
        self._free.update(dict.fromkeys(ends, done))
        self._events.at(done, Turn.ARRIVE, partial(self._arrived, request_id))

    def _arrived(self, request_id: int, now: float) -> tuple[()]:
        moving = self._moving[request_id]
        moving.sender.release(request_id, now)
        self._read(moving.sender, now)
        moving.receiver.deliver(request_id, now)
        return ()

    def answer_done(self, record: RequestRecord, now: float) -> RequestRecord:
        """The record of the whole request, of which a server has written or refused the answer."""
        moving = self._moving.pop(record.id)
        prompt = moving.prompt
        if record.refused is not None:
            moving.sender.release(record.id, now)
            self._read(moving.sender, now)
            return replace(record, arrival_seconds=prompt.arrival_seconds)
        return replace(
            record,
            arrival_seconds=prompt.arrival_seconds,
            scheduled_seconds=prompt.scheduled_seconds,
            cached_tokens=prompt.cached_tokens,
            preemptions=prompt.preemptions + record.preemptions,
        )
