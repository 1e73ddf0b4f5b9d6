"""Whether a replica keeps the objectives when its share of the load is simulated.

The closed form is of means of a steady load. Queues, bursts and requests of many lengths decide
what the slowest see, so nothing is proposed that its own simulation fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from tokenroom.planning.demand import BURST_SHARE, Demand
from tokenroom.planning.judging import Proposal
from tokenroom.planning.splits import split_fleet
from tokenroom.serving.arrivals import Arrivals, OpenLoop
from tokenroom.serving.distribution import Distribution, distribution
from tokenroom.serving.fleet_description import Transfer
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving.record import RequestRecord
from tokenroom.serving.request import Request
from tokenroom.serving.roomy import RoomyServing
from tokenroom.serving.workloads import arrivals, distributions
from tokenroom.serving.workloads.conversations import Talk
from tokenroom.serving.workloads.synthetic import SyntheticWorkload

_LEAST_REQUESTS: Final[Mapping[str, int]] = {
    "mean": 200,
    "p50": 200,
    "p90": 200,
    "p95": 400,
    "p99": 2000,
}
"""By the statistic that is promised: so many that 20 lie beyond the percentile."""

_MOST_REQUESTS: Final = 4000
_MOST_TOKENS: Final = 4_000_000
"""Of all their answers: what takes some seconds to simulate."""

_FEWEST: Final = 50
_TURNS: Final = 6
"""Times each request in flight is replaced, on average."""

_WARM_UP: Final = 0.2
"""Of all requests, the first, which find the server emptier than it will be."""

_DRAIN: Final = 0.05
"""Of all requests, the last, which find it emptier again."""

_BURST_EVERY_SECONDS: Final = 60.0
_BURSTS: Final = 4

_COMPILED_FROM: Final = 3000
"""Requests from which on the compiled engine is sooner done, starting it included."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """One replica under its share of the demand, simulated.

    Attributes:
        load: Its users, or requests a second.
        requests: Requests that the figures are of.
        running: Requests in flight while they came, on average.
        ttft: Of those.
        tpot: Of those.
        kept: All objectives are, by the demand's statistic, and no request was refused.
        refused: Requests of the whole run that are longer than the deployment takes.
        max_running: Requests that ran at once, of the whole run, its warm-up included.
        mean_waiting: Requests that waited, likewise.
        max_waiting: The most of them.
        max_pool_share: Of the KV pool that was used.
        preemptions: How often a request lost its KV.
    """

    load: float
    requests: int
    running: float
    ttft: Distribution
    tpot: Distribution
    kept: bool
    refused: int
    max_running: int
    mean_waiting: float
    max_waiting: int
    max_pool_share: float
    preemptions: int


def verified(proposal: Proposal, demand: Demand, *, seed: int = 0) -> Verification:
    """Simulate one replica of a proposal.

    Raises:
        DeploymentError: The deployment is not simulated.
    """
    load = share_of(demand, proposal.replicas)
    users = 0 if demand.users is None else int(load)
    if demand.requests is None:
        count = requests_of(proposal, demand, load) + users
    else:
        count = -(-len(demand.requests) // proposal.replicas)

    def coming() -> Arrivals:
        if demand.requests is None:
            return drawn(demand, load, count, seed)
        return OpenLoop(replayed(demand.requests, proposal.replicas))

    served = _served(
        *_replica(proposal, demand), coming, count, waits_for_answers=demand.users is not None
    )
    records = served.records
    seen = records if demand.requests is not None else _steady(records, users)
    ttft = distribution((record.ttft_seconds, 1) for record in seen)
    tpot = distribution((found, 1) for record in seen if (found := record.tpot_seconds) is not None)
    refused = sum(record.refused is not None for record in records)
    return Verification(
        load=load,
        requests=len(seen),
        running=min(_in_flight(seen), users or math.inf),
        ttft=ttft,
        tpot=tpot,
        kept=not refused and not _missed(demand, ttft, tpot),
        refused=refused,
        max_running=served.max_running,
        mean_waiting=served.mean_waiting,
        max_waiting=served.max_waiting,
        max_pool_share=served.max_pool_share,
        preemptions=served.preemptions,
    )


class _Served(NamedTuple):
    """What became of a workload; names are those of :class:`Verification`."""

    records: list[RequestRecord]
    max_running: int
    mean_waiting: float
    max_waiting: int
    max_pool_share: float
    preemptions: int


def _replica(proposal: Proposal, demand: Demand) -> tuple[list[Pool], Transfer]:
    """The servers of one replica, and how KV moves between them, where there are several."""
    if proposal.candidate.split is None:
        return [pool_of(proposal.fit)], Transfer()
    return split_fleet(proposal.candidate, demand)


def _served(
    pools: list[Pool],
    transfer: Transfer,
    coming: Callable[[], Arrivals],
    count: int,
    *,
    waits_for_answers: bool,
) -> _Served:
    """Serve a workload: steps found sooner where pools have room for all who run, else one by one.

    The records are the same. Servers are taken in turn.
    """
    usable = pools[0].engine.usable_blocks
    roomy = RoomyServing(pools, transfer=transfer)
    records = roomy.serve(coming())
    if records is not None:
        return _Served(
            records,
            roomy.max_running,
            roomy.mean_waiting,
            roomy.max_waiting,
            roomy.max_used_blocks / usable,
            0,
        )
    from tokenroom.serving.run import Run  # with figures that few plans need

    run = Run(pools, transfer=transfer, compiled=count > _COMPILED_FROM)
    records = list(run.serve(coming(), waits_for_answers=waits_for_answers))
    metrics = run.outcome().metrics
    return _Served(
        records,
        metrics.max_running,
        metrics.mean_waiting,
        metrics.max_waiting,
        metrics.max_used_blocks / usable,
        metrics.preemptions,
    )


def share_of(demand: Demand, replicas: int) -> float:
    """The load of the replica that has most of it: whole users, or requests a second."""
    share = demand.amount / replicas
    return share if demand.users is None else float(math.ceil(share))


def requests_of(proposal: Proposal, demand: Demand, load: float) -> int:
    """Requests to be drawn: each in flight is replaced a few times, long answers less often.

    Where requests come in bursts there are as many as come from the first to the fourth of them.
    """
    wanted = max(_LEAST_REQUESTS[demand.statistic], min(_MOST_REQUESTS, _TURNS * proposal.clients))
    count = max(_FEWEST, min(wanted, _MOST_TOKENS // demand.output_tokens))
    if demand.burst > 1:
        count = max(count, math.ceil(_BURSTS * _BURST_EVERY_SECONDS * load))
    return count


def drawn(demand: Demand, load: float, requests: int, seed: int) -> Arrivals:
    """Requests of a replica whose load is ``load``: users or requests a second."""
    talk = Talk(lengths=demand.lengths)
    if demand.users is not None:
        think = distributions.Exponential(mean=demand.think_seconds)
        return SyntheticWorkload(
            talk=talk, users=int(load), think=think, requests=requests, seed=seed
        ).start()
    process: arrivals.ArrivalProcess = arrivals.Renewal(rate=load)
    if demand.burst > 1:
        process = arrivals.bursts(
            rate=load,
            factor=demand.burst,
            every_seconds=_BURST_EVERY_SECONDS,
            lasting_seconds=_BURST_EVERY_SECONDS * BURST_SHARE,
        )
    workload = SyntheticWorkload(talk=talk, process=process, requests=requests, seed=seed)
    return workload.start()


def described(
    proposal: Proposal, demand: Demand, *, prompt: str, output: str, seed: int = 0
) -> str:
    """The load that :func:`verified` simulates as the description of a drawn workload.

    Args:
        proposal: A proposal that was verified.
        demand: What it was verified for; no trace.
        prompt: Lengths of prompts, as descriptions write them.
        output: Of answers, likewise.
        seed: That of the verification.
    """
    load = share_of(demand, proposal.replicas)
    count = requests_of(proposal, demand, load)
    lengths = f"input={prompt},output={output}"
    if demand.users is not None:
        users, think = int(load), f"exponential({demand.think_seconds!r}s)"
        return f"users:count={users},think={think},{lengths},requests={count + users},seed={seed}"
    coming = f"poisson:rate={load!r}"
    if demand.burst > 1:
        lasting = _BURST_EVERY_SECONDS * BURST_SHARE
        coming = (
            f"bursts:rate={load!r},factor={demand.burst!r},every={_BURST_EVERY_SECONDS!r}s,"
            f"lasting={lasting!r}s"
        )
    return f"{coming},{lengths},requests={count},seed={seed}"


def replayed(requests: Sequence[Request], replicas: int) -> Iterator[Request]:
    """What the first of ``replicas`` gets of a trace when they take turns."""
    for number, request in enumerate(islice(requests, 0, None, replicas)):
        yield replace(request, id=number, block_hashes=())


def statistic_of(demand: Demand, found: Distribution) -> float | None:
    """The figure of a distribution that the demand's promises are about; None of no request."""
    value: float | None = getattr(found, f"{demand.statistic}_seconds")
    return value


def _steady(records: list[RequestRecord], users: int) -> list[RequestRecord]:
    """Those neither of the warm-up nor of the end, in the order of coming.

    Of users each has a last request, which nothing follows: from the first of those answers on
    fewer and fewer are left. Those who think then come late, however many they are.
    """
    ordered = sorted(records, key=lambda record: record.arrival_seconds)
    first = int(_WARM_UP * (len(ordered) - users))
    if not users:
        return ordered[first : math.ceil((1 - _DRAIN) * len(ordered))]
    answers = sorted(record.finish_seconds for record in ordered)
    end = answers[len(answers) - users - 1]
    return [record for record in ordered[first:] if record.arrival_seconds <= end]


def _in_flight(records: list[RequestRecord]) -> float:
    """Requests in flight while these came, by Little's law."""
    served = [record for record in records if record.refused is None]
    if len(served) < 2:
        return float(len(served))
    arrived = [record.arrival_seconds for record in served]
    span = max(arrived) - min(arrived)
    mean = math.fsum(record.e2e_seconds for record in served) / len(served)
    return mean * (len(served) - 1) / span if span else float(len(served))


def _missed(demand: Demand, ttft: Distribution, tpot: Distribution) -> bool:
    promised = demand.objectives
    for wanted, found in ((promised.ttft_seconds, ttft), (promised.tpot_seconds, tpot)):
        seconds = statistic_of(demand, found)
        if wanted is not None and seconds is not None and seconds > wanted:
            return True
    return False
