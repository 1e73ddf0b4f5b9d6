"""Prompts and answers apart: servers of one host that hand KV on over the links of its GPUs.

As vLLM does it with ``NixlConnector`` in its pull mode: a server of prompts computes a prompt, a
server of answers reads its KV, computes the last token of the prompt again and goes on: no
prompt lengthens any step of answers, at the price of a transfer and of GPUs that do not help each
other.
vLLM 0.33: ``docs/features/nixl_connector_usage.md``; a server of answers has one stage
(``NixlBaseConnectorWorker``), as those that are simulated have.

In closed form a group of servers is two queues one after another. Prompts come to each of its
servers in turn and wait there as Kingman's formula says (The single server queue in heavy traffic,
1961: of P servers that take turns, arrivals vary by 1/P), then for the link likewise, and then for
half of a step of the server of answers and one whole. An answer takes a step for each token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.objectives import largest_that
from tokenroom.performance.idle import burst_ttft, tpot, ttft
from tokenroom.planning.candidates import Candidate, Split
from tokenroom.planning.demand import Demand
from tokenroom.planning.layout_memory import settings_of
from tokenroom.planning.load_curve import Means
from tokenroom.serving.fleet_description import Role, Transfer
from tokenroom.serving.pool import Pool, pool_of
from tokenroom.serving_speed import ServingSpeed, speed_of
from tokenroom.serving_terms import replica_of, terms_of

CONNECTOR: Final = "NixlConnector"
PROMPTS: Final = "prompts"
ANSWERS: Final = "answers"

_MANY: Final = 64
_FEWER: Final = 32
"""Prompts in a row, of which the time of one more is taken."""

_FETCH_STEPS: Final = 1.5
"""Steps of the server of answers from the arrival of KV to the first token: half of the one in
progress, and its own."""


def link_bytes_per_second(accelerator: Accelerator) -> float | None:
    """What each GPU sends another of its host at most; None where it is not known."""
    if accelerator.link == "pcie":
        return accelerator.pcie_bytes_per_second
    return accelerator.link_bytes_per_second


def server_of(candidate: Candidate, role: Role) -> Candidate:
    """One server of prompts or of answers, by itself."""
    assert candidate.split is not None
    size = candidate.tensor_parallel_size
    if role is Role.PREFILL:
        size = candidate.split.prompt_tensor_parallel_size
    return replace(candidate, split=None, tensor_parallel_size=size)


def server_fit(server: Candidate, demand: Demand) -> FitResult:
    """The memory of one such server, which has the connector.

    Raises:
        TokenroomError: The engine refuses it.
    """
    node = Node(accelerator=server.accelerator, count=server.gpus, per_node=server.gpus)
    return fit(server.spec, node, **settings_of(server, demand), kv_connector=CONNECTOR)


def split_fleet(candidate: Candidate, demand: Demand) -> tuple[list[Pool], Transfer]:
    """One replica: its servers, which a proxy takes in turn, and how KV moves between them.

    Raises:
        DeploymentError: Servers do not start, or are not simulated with those roles.
    """
    split = candidate.split
    assert split is not None
    counts = {
        Role.PREFILL: (PROMPTS, split.prompt_servers),
        Role.DECODE: (ANSWERS, split.answer_servers),
    }
    pools = [
        pool_of(
            server_fit(server_of(candidate, role), demand), name=name, replicas=count, role=role
        )
        for role, (name, count) in counts.items()
    ]
    transfer = Transfer(link=None, bytes_per_second=link_bytes_per_second(candidate.accelerator))
    return pools, transfer


class PromptServer:
    """How fast a server computes prompts.

    Args:
        result: The server.
        demand: Its requests.

    Attributes:
        alone_seconds: Until the first token of one prompt on an idle server.
        each_seconds: Of a prompt where they follow each other without a pause.

    Raises:
        TokenroomError: Its speed is not modelled.
    """

    def __init__(self, result: FitResult, demand: Demand) -> None:
        replica = replica_of(result, terms_of(result, demand.input_tokens))
        self.alone_seconds = ttft(replica, demand.input_tokens)[0]
        many, fewer = (
            burst_ttft(replica, demand.input_tokens, count)[0] for count in (_MANY, _FEWER)
        )
        self.each_seconds = (many - fewer) / (_MANY - _FEWER)


class AnswerServer:
    """How fast a server writes answers.

    Args:
        result: The server.
        demand: Its requests.

    Attributes:
        room: Requests that run at once at most.
        arrival_seconds: What a request spends in its front end.
        kv_bytes: Of a prompt on each GPU, whole blocks.

    Raises:
        TokenroomError: Its speed is not modelled.
    """

    def __init__(self, result: FitResult, demand: Demand) -> None:
        self._replica = replica_of(result, terms_of(result, demand.input_tokens))
        self._context_tokens = demand.input_tokens + demand.output_tokens / 2
        self._steps: dict[int, float] = {}
        self.room = result.requests_running
        self.arrival_seconds = self._replica.arrival_seconds(demand.input_tokens)
        plan: Any = result.plan
        blocks = -(-demand.input_tokens // result.plan.kv_block_size)
        self.kv_bytes = blocks * int(plan.layout.bytes_per_block)

    def step_seconds(self, requests: int) -> float:
        """Of a step in which so many requests get a token."""
        found = self._steps.get(requests)
        if found is None:
            found = self._steps[requests] = tpot(self._replica, self._context_tokens, requests)[0]
        return found


class SplitCurve:
    """Speed of a group of servers by clients whose answers are written.

    Args:
        split: How many servers of each kind.
        prompts: One of prompts.
        answers: One of answers.
        demand: What is to be served.
        bytes_per_second: What each GPU sends or reads.
    """

    def __init__(
        self,
        split: Split,
        prompts: PromptServer,
        answers: AnswerServer,
        demand: Demand,
        bytes_per_second: float,
    ) -> None:
        self._split = split
        self._prompts = prompts
        self._answers = answers
        self._demand = demand
        self._transfer_seconds = answers.kv_bytes / bytes_per_second

    def at(self, clients: int) -> Means:
        """What clients see while so many answers are written, the TTFT infinite beyond prompts."""
        split, output = self._split, self._demand.output_tokens
        step = self._answers.step_seconds(-(-clients // split.answer_servers))
        rate = clients / (output * step)
        each = rate / split.prompt_servers
        waits = _wait(each, self._prompts.each_seconds, split.prompt_servers)
        busiest = max(each, rate / split.answer_servers)
        waits += _wait(busiest, self._transfer_seconds, 1)
        first = (
            self._prompts.alone_seconds
            + self._transfer_seconds
            + self._answers.arrival_seconds
            + _FETCH_STEPS * step
        )
        return Means(first + waits, step, rate)

    def keeps(self, clients: int) -> bool:
        """Whether the objectives hold on average and prompts keep up."""
        found = self.at(clients)
        kept = self._demand.objectives.kept(found.ttft_seconds, found.tpot_seconds)
        return kept and math.isfinite(found.ttft_seconds)

    @cached_property
    def most(self) -> int:
        """The most clients who keep the objectives while all their answers are written."""
        return largest_that(self._answers.room * self._split.answer_servers, self.keeps)

    @property
    def largest(self) -> int:
        """The same, of users no more than there are."""
        users = self._demand.users
        return self.most if users is None else min(self.most, users)

    def served(self, clients: int) -> float:
        """The part of the demand that they make, with those whose prompts are computed."""
        found = self.at(clients)
        rate = found.requests_per_second
        before = 0.0 if math.isinf(found.ttft_seconds) else rate * found.ttft_seconds
        demand = self._demand
        return rate if demand.users is None else clients + before + rate * demand.think_seconds

    def fewest(self, share: float, most: int) -> int:
        """The fewest clients, ``most`` at most, by whom so much of the demand is served."""
        return largest_that(most - 1, lambda clients: self.served(clients) < share) + 1

    def speed(self, candidate: Candidate, demand: Demand, clients: int) -> ServingSpeed:
        """All that is known of how fast one server of answers is, without prompts in its steps."""
        means = self.at(clients)
        found = speed_of(
            server_fit(server_of(candidate, Role.DECODE), demand),
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            concurrency=-(-clients // candidate.servers),
        )
        decode = found.predicted.decode
        predicted = replace(
            found.predicted,
            ttft_seconds=means.ttft_seconds,
            ttft_low_seconds=means.ttft_seconds,
            ttft_high_seconds=means.ttft_seconds,
            tpot_seconds=means.tpot_seconds,
            tpot_low_seconds=decode.low_seconds,
            tpot_high_seconds=decode.high_seconds,
            prefill_share=0.0,
            decode_share=1.0,
        )
        return replace(found, predicted=predicted)


def _wait(rate: float, service_seconds: float, turns: int) -> float:
    """Mean wait of what comes at a rate as one of so many that take turns; infinite if too fast."""
    load = rate * service_seconds
    return load / (1 - load) * service_seconds / (2 * turns) if load < 1 else math.inf


def splits(most_gpus: int, gpus_of_answers: int) -> list[Split]:
    """Every split over at most so many GPUs of a host, those of few GPUs first."""
    found = [
        Split(prompt_servers=servers, prompt_tensor_parallel_size=size, answer_servers=answers)
        for size in (1, 2, 4)
        for servers in range(1, most_gpus // size)
        for answers in range(1, (most_gpus - servers * size) // gpus_of_answers + 1)
    ]
    return sorted(found, key=lambda each: each.prompt_gpus + each.answer_servers * gpus_of_answers)
