"""vLLM's scheduler where prompts are computed by one engine and answers written by another.

Follows ``NixlConnector`` of vLLM 0.32 in its pull mode
(``vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py``) and what
``vllm/v1/core/sched/scheduler.py`` does for it. Nothing moves while a prompt is computed: when it
is done, its blocks stay held until the other engine has read all of them.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from tokenroom.errors import DeploymentError
from tokenroom.serving.kv_cache_manager import KvCacheManager
from tokenroom.serving.kv_group import Kind
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue, PriorityQueue, RequestQueue
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.sequence import Sequence, Status


class _KeepsFinished(KvCacheManager):
    """Blocks of requests that have ended stay held until they are given back."""

    __slots__ = ()

    def free(self, sequence: Sequence) -> None:
        """Take back the blocks of a request, unless it has ended."""
        if sequence.tokens < sequence.last_tokens:
            super().free(sequence)

    def give_back(self, sequence: Sequence) -> None:
        """Take back the blocks of a request that has ended."""
        super().free(sequence)


class VllmPrefillScheduler(VllmScheduler):
    """Its requests have answers of one token; then their blocks wait to be read."""

    __slots__ = ()

    _manager: ClassVar[type[KvCacheManager]] = _KeepsFinished

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step; gives what it finished.

        What was preempted while its token was under way has no blocks to be read: it goes on anew.
        """
        lost = [one for one in plan.sequences if one.status is Status.PREEMPTED]
        plan.silent += [one for one in lost if one not in plan.silent]
        return super().complete(plan)

    def release(self, sequence: Sequence) -> None:
        """Give back the blocks of a request that has ended: they have been read."""
        assert isinstance(self.kv, _KeepsFinished)
        self.kv.give_back(sequence)


class VllmDecodeScheduler(VllmScheduler):
    """Its requests wait for blocks, then for the KV of their prompts, then for their turn.

    Blocks for a whole prompt are given at once, without a place among ``max_num_seqs`` or tokens of
    a step, where they leave enough for prompts that are being computed here. When the KV has
    arrived, the last token of the prompt is computed, which gives the first of the answer. A
    request that is preempted computes its prompt itself; it is not while a step of it is under way,
    since its blocks could be filled anew before that step has written to them.
    """

    __slots__ = ("_arriving", "_filled", "_is_full", "_remote", "_wanted")

    def __init__(self, config: VllmSchedulerConfig) -> None:
        super().__init__(config)
        self._remote: RequestQueue = PriorityQueue() if config.policy == "priority" else FcfsQueue()
        self._arriving: deque[Sequence] = deque()
        self._filled: set[Sequence] = set()
        self._wanted: list[tuple[Sequence, int]] = []
        self._is_full = False

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return super().unfinished + len(self._remote) + len(self._arriving)

    def add(self, request: Request) -> Sequence:
        """Queue a request whose prompt another engine has computed."""
        sequence = super().add(request)
        self.waiting.remove([sequence])
        self._remote.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands."""
        if sequence in self._arriving:
            self._arriving.remove(sequence)
            self._filled.discard(sequence)
            self.waiting.add(sequence)
        elif sequence.status is Status.WAITING:
            self._remote.remove([sequence])
            self.waiting.add(sequence)
        super().abort(sequence)

    def wanted(self) -> list[tuple[Sequence, int]]:
        """Requests that have been given blocks since the last call, and how many to fill."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def arrived(self, sequence: Sequence) -> None:
        """Hear that the blocks of a request are filled."""
        self._filled.add(sequence)

    def schedule(self) -> StepPlan:
        """Decide the next step, then give blocks to requests whose KV is to come."""
        self._is_full = False
        plan = super().schedule()
        stops = plan.preempted or self.waiting or self._is_full
        if not stops and sum(plan.tokens) < self._budget:
            self._give_blocks()
        plan.used_blocks = self.config.num_blocks - 1 - self.kv.pool.num_free
        plan.num_waiting = len(self.waiting) + len(self._remote) + len(self._arriving)
        return plan

    def _schedule_running(self, plan: StepPlan, budget: int, threshold: int) -> int:
        """Schedule running requests, then those whose KV has arrived; what remains."""
        budget = super()._schedule_running(plan, budget, threshold)
        if plan.preempted:
            return budget
        for sequence in [one for one in self._arriving if one in self._filled]:
            if not budget or len(self.running) >= self.config.max_num_seqs:
                break
            if self.running and self.kv.pool.num_free < self._spare_blocks:
                self._is_full = True  # nobody else is let in before it, either
                return 0
            self._arriving.remove(sequence)
            self._filled.remove(sequence)
            self.running.append(sequence)
            sequence.status = Status.RUNNING
            sequence.computed = sequence.tokens
            self.kv.filled(sequence)
            plan.admitted.append(sequence)
            plan.sequences.append(sequence)
            plan.tokens.append(1)
            plan.contexts.append(sequence.tokens - 1)
            budget -= 1
        return budget

    def _is_free_at_once(self, sequence: Sequence) -> bool:
        return not sequence.in_flight

    def _give_blocks(self) -> None:
        """Give blocks to requests in turn, while there are enough."""
        kv = self.kv
        while self._remote and len(self.running) < self.config.max_num_seqs:
            sequence = self._remote.first()
            hit = kv.longest_hit(sequence)
            reserved = sum(map(kv.blocks_missing, self.running))
            if not kv.admit(
                sequence,
                sequence.tokens - hit.tokens,
                hit,
                whole=self.config.scheduler_reserve_full_isl,
                spare_blocks=reserved + (self._spare_blocks if self.running else 0),
                is_computed=False,
            ):
                return
            self._remote.pop()
            self._arriving.append(sequence)
            sequence.hit_tokens = hit.tokens
            self.queried_tokens += sequence.tokens
            self.hit_tokens += hit.tokens
            new = sum(map(len, sequence.blocks)) - sum(map(len, hit.blocks))
            self._wanted.append((sequence, new))


def check_groups(config: VllmSchedulerConfig) -> None:
    """Refuse KV groups of which transfers are not simulated.

    Raises:
        DeploymentError: There are such.
    """
    if any(group.kind is not Kind.FULL for group in config.groups):
        raise DeploymentError(
            "transfers of KV are simulated for models with full attention in every layer; serve "
            "this one with role both"
        )
