"""An engine in virtual time: requests arrive, the scheduler decides steps, steps take time.

One engine, step by step, with nothing drawn: the same workload gives the same records to the last
bit. Requests are read as they arrive and records are given out as they end, so that memory holds
no more than what is in the engine. Several engines are a :mod:`tokenroom.serving.fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tokenroom.errors import WorkloadError
from tokenroom.serving.arrivals import Arrivals
from tokenroom.serving.engine import Accelerators, Engine, OneByOne, StepSeconds
from tokenroom.serving.events import Events, happen
from tokenroom.serving.host_link import HostLink
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.replica import Replica
from tokenroom.serving.request import Request
from tokenroom.serving.routers.router import Target
from tokenroom.serving.scheduler import Scheduler


def simulate(
    arrivals: Arrivals,
    scheduler: Scheduler,
    step_seconds: StepSeconds,
    *,
    observe: Callable[[StepRecord], object] | None = None,
    delay_seconds: Callable[[Request], float] | None = None,
    transfer_seconds: Callable[[int], float] | None = None,
) -> Iterator[RequestRecord]:
    """Serve a workload; gives each request's record when it ends, in that order.

    A request that arrives during a step waits for the next decision. Under asynchronous
    scheduling that is made when the step before begins, as vLLM's ``step_with_batch_queue``
    (``vllm/v1/engine/core.py``) does: it also waits for the step that is prepared already.

    Args:
        arrivals: The requests.
        scheduler: What decides the steps.
        step_seconds: How long a planned step takes.
        observe: Called with each step when it has ended.
        delay_seconds: What passes between the arrival of a request and its reaching the scheduler.
        transfer_seconds: How long it takes to move so many blocks one way between GPUs and host,
            for a scheduler that moves some.

    Raises:
        WorkloadError: Requests are out of order, a step takes a negative or no finite time, or the
            scheduler holds requests that it never schedules.
    """
    events = Events()
    accelerators: Accelerators = OneByOne(step_seconds)
    if transfer_seconds is not None:
        accelerators = HostLink(accelerators, transfer_seconds)
    engine = Engine(scheduler, accelerators, observe=observe)
    replica = Replica(0, events, (engine,), delay_seconds=delay_seconds)
    yield from happen(events, arrivals, replica.send)
    check_served((engine,))


def check_served(engines: Iterable[Target]) -> None:
    """Refuse to end while engines hold requests that they never schedule.

    Raises:
        WorkloadError: One does.
    """
    for engine in engines:
        if engine.in_flight:
            raise WorkloadError(
                f"{engine.in_flight} requests wait and none can be scheduled; the engine "
                "would hang: give it a larger KV pool or step budget"
            )
