"""How fast one replica is at each number of clients: found once, shared by every size of its pool.

A pool's size, ``max_num_seqs`` and the share of the GPU only say how many clients may run; as long
as all do, their speed depends on the layout, the token budget and the drafts alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tokenroom.fitting import FitResult
from tokenroom.objectives import largest_that
from tokenroom.performance.load import Load, speed_by
from tokenroom.performance.quick_steps import QuickSteps
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.layout_memory import fit_of
from tokenroom.serving_speed import ServingSpeed, speed_of
from tokenroom.serving_terms import replica_of, terms_of


class Means(NamedTuple):
    """What clients see on average at a steady load.

    Attributes:
        ttft_seconds: Time to the first token.
        tpot_seconds: Time of each further one.
        requests_per_second: Of the replica, all its copies together.
    """

    ttft_seconds: float
    tpot_seconds: float
    requests_per_second: float


class Curve(Protocol):
    """Speed of one replica by clients."""

    def at(self, clients: int) -> Means:
        """What so many clients see."""
        ...

    def served(self, clients: int) -> float:
        """The part of the demand that they make."""
        ...

    def fewest(self, share: float, most: int) -> int:
        """The fewest clients, ``most`` at most, by whom so much of the demand is served."""
        ...

    def speed(self, candidate: Candidate, demand: Demand, clients: int) -> ServingSpeed:
        """All that is known of how fast it is."""
        ...


class LoadCurve:
    """Speed by clients who all run at once.

    Args:
        result: A deployment with the settings that speed depends on.
        demand: Its requests and what they are promised.
        shared: The curve of another token budget, whose steps without prompts are the same.

    Raises:
        DeploymentError: The engine would refuse such prompts, or the speed is not modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """

    def __init__(self, result: FitResult, demand: Demand, shared: LoadCurve | None = None) -> None:
        terms = terms_of(result, demand.input_tokens)
        self._demand = demand
        self._replica = replica_of(result, terms)
        self._replicas = terms.replicas
        self.copies = terms.replicas * terms.layout.data_parallel_size
        self._steps: QuickSteps
        if shared is not None and shared._is_of(self):
            self._steps = shared._steps
        else:
            self._steps = QuickSteps(self._replica)
        self._hint = 1
        if shared is not None and shared._limit is not None:
            self._hint = max(1, shared._limit[0])
        self._points: dict[int, Means] = {}
        self._limit: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the times of steps, which are soon found again elsewhere."""
        return {name: value for name, value in vars(self).items() if name != "_steps"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with no times of steps."""
        vars(self).update(state)
        self._steps = QuickSteps(self._replica)

    def _is_of(self, other: LoadCurve) -> bool:
        """Whether the steps of another take the same time, but for what they hold."""
        ours, theirs = self._replica, other._replica
        return ours.spec is theirs.spec and all(
            getattr(ours, name) == getattr(theirs, name)
            for name in (
                *("layout", "accelerator", "engine", "kv_dtype", "cuda_graphs"),
                *("asynchronous", "drafting", "factors"),
            )
        )

    def at(self, clients: int) -> Means:
        """What so many clients see when all of them run; raises as the class does."""
        found = self._points.get(clients)
        if found is None:
            demand = self._demand
            load = Load(
                input_tokens=demand.input_tokens,
                output_tokens=demand.output_tokens,
                concurrency=-(-clients // self._replicas),
            )
            each = speed_by(self._steps, self._replica, load)
            whole = each.ttft_seconds + (demand.output_tokens - 1) * each.tpot_seconds
            found = Means(each.ttft_seconds, each.tpot_seconds, clients / whole)
            self._points[clients] = found
        return found

    def keeps(self, clients: int) -> bool:
        """Whether the objectives hold on average; raises as the class does."""
        found = self.at(clients)
        return self._demand.objectives.kept(found.ttft_seconds, found.tpot_seconds)

    def largest(self, room: int) -> int:
        """The most clients of ``room`` who keep the objectives: one more does not, or has no room.

        Raises as the class does.
        """
        if self._limit is not None:
            limit, of = self._limit
            if limit < of or room <= of:
                if room >= limit:
                    return limit
                return room if self.keeps(room) else largest_that(room - 1, self.keeps)
        found = self._search(room)
        self._limit = found, room
        return found

    def _search(self, room: int) -> int:
        """From what another token budget takes, else from one client: doubling, then halving."""
        low, high = 0, room + 1
        for tried in (self._hint, self._hint * 4 // 3 + 1, self._hint * 3 // 4):
            if low < tried < high:
                low, high = (tried, high) if self.keeps(tried) else (low, tried)
        while low and high > room and 2 * low < high:
            tried = 2 * low
            low, high = (tried, high) if self.keeps(tried) else (low, tried)
        return largest_that(high - 1, self.keeps, least=low)

    def served(self, clients: int) -> float:
        """The part of the demand that so many clients make; see :meth:`Demand.served`."""
        return self._demand.served_by(clients, self.at(clients).requests_per_second)

    def fewest(self, share: float, most: int) -> int:
        """The fewest clients, ``most`` at most, by whom so much of the demand is served."""
        return largest_that(most - 1, lambda clients: self.served(clients) < share) + 1

    def speed(self, candidate: Candidate, demand: Demand, clients: int) -> ServingSpeed:
        """All that is known of how fast it is, with the candidate's own room."""
        return speed_of(
            fit_of(candidate, demand),
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            concurrency=clients,
        )
