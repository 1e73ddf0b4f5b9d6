"""vLLM's scheduler with a second tier of the prefix cache in the host's memory.

Follows ``OffloadingConnectorScheduler`` (``vllm/distributed/kv_transfer/kv_connector/v1/offloading/
scheduler.py``) and what ``vllm/v1/core/sched/scheduler.py`` does for it, vLLM 0.32, for models with
full attention in every layer. Full chunks are written to the host as they are computed, and what is
found there beyond the GPU's own cache is read into blocks before a request computes the rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.host_tier import HostTier
from tokenroom.serving.kv_group import Kind
from tokenroom.serving.prefix_cache import Hit
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue, PriorityQueue, RequestQueue
from tokenroom.serving.scheduler import StepPlan, Transfer, Transfers
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.sequence import Sequence, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOffloadingConfig(VllmSchedulerConfig):
    """Settings of a scheduler with a second tier in the host's memory.

    Attributes:
        chunks: Chunks that the host has room for.
        blocks_per_chunk: Blocks of the GPU that a chunk holds.
        prompts_only: Chunks of answers are not written (``offload_prompt_only``).

    Raises:
        DeploymentError: A count is out of range, or some layers keep less than the whole context,
            or prefix caching is off, or tokens are drafted.
    """

    chunks: int
    blocks_per_chunk: int = 1
    prompts_only: bool = True

    def __post_init__(self) -> None:
        VllmSchedulerConfig.__post_init__(self)
        if self.blocks_per_chunk < 1:
            raise DeploymentError(
                f"blocks_per_chunk is {shown(self.blocks_per_chunk)}; it must be 1 or more"
            )
        if len(self.groups) > 1 or self.groups[0].kind is not Kind.FULL:
            raise DeploymentError(
                "KV in the host's memory is simulated for models with full attention in every "
                "layer; leave kv_offloading_size out"
            )
        if not self.enable_prefix_caching:
            raise DeploymentError(
                "KV in the host's memory is simulated with prefix caching; turn "
                "enable_prefix_caching on, or leave kv_offloading_size out"
            )
        if self.drafts is not None:
            raise DeploymentError(
                "KV in the host's memory is simulated without speculative decoding; leave one of "
                "the two out"
            )


class OffloadedSequence(Sequence):
    """A request whose KV is also kept in the host's memory.

    Attributes:
        accessed: Chunks that it has read, written or found there, with their place in it.
        given: Its blocks when it was last scheduled.
        shown: How many of them were counted as given out.
        last_step: The last step that computed something of it.
        moving: Transfers of its chunks that are under way.
        stored: Chunks from its start that need not be looked at again for writing.
    """

    __slots__ = ("accessed", "given", "last_step", "moving", "shown", "stored")

    def __init__(
        self, request: Request, max_model_len: int, groups: int, order: int, own_name: int
    ) -> None:
        super().__init__(request, max_model_len, groups, order, own_name)
        self.accessed: dict[int, int] = {}
        self.given: list[int] = []
        self.moving: set[int] = set()
        self.shown = self.last_step = self.stored = 0


class _Job(NamedTuple):
    sequence: OffloadedSequence
    names: list[int]
    blocks: list[int]
    is_store: bool


class OffloadingScheduler(VllmScheduler):
    """Which requests compute how many tokens in each step, and which chunks move meanwhile.

    Each plan has its :class:`~tokenroom.serving.scheduler.Transfers`; who runs it notes there which
    have ended by its end. A request that reads from the host holds its blocks and waits, without
    a place among ``max_num_seqs``; one that finds chunks that are just being written or read, or
    whose own are, waits too, and others pass it by.

    Args:
        config: Its settings.

    Attributes:
        loaded_tokens: Tokens that were read from the host at first admissions.
        tier: What is in the host's memory.
    """

    __slots__ = (
        "_being_read",
        "_chunk_tokens",
        "_done_steps",
        "_ended",
        "_fenced",
        "_filled",
        "_holding",
        "_in_prompt",
        "_jobs",
        "_late",
        "_loading",
        "_loads",
        "_next_job",
        "_per_chunk",
        "_prompts_only",
        "_steps",
        "_touched",
        "loaded_tokens",
        "tier",
    )

    _sequence: ClassVar[type[Sequence]] = OffloadedSequence

    def __init__(self, config: VllmOffloadingConfig) -> None:
        super().__init__(config)
        self.tier = HostTier(config.chunks)
        self.loaded_tokens = 0
        self._per_chunk = config.blocks_per_chunk
        self._prompts_only = config.prompts_only
        self._chunk_tokens = config.groups[0].block_tokens * config.blocks_per_chunk
        self._holding: RequestQueue = (
            PriorityQueue() if config.policy == "priority" else FcfsQueue()
        )
        self._loading: set[Sequence] = set()
        self._filled: set[Sequence] = set()
        self._in_prompt: set[Sequence] = set()
        self._jobs: dict[int, _Job] = {}
        self._next_job = 0
        self._being_read: set[int] = set()
        self._fenced: dict[int, set[int]] = {}
        self._ended: list[OffloadedSequence] = []
        self._loads: list[Transfer] = []
        self._touched: set[int] = set()
        self._steps = self._done_steps = 0
        self._late: deque[tuple[int, OffloadedSequence, list[int]]] = deque()

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return super().unfinished + len(self._holding)

    @property
    def is_moving(self) -> bool:
        """Whether chunks move, or will after the next decision."""
        return bool(self._jobs or self._ended)

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands."""
        assert isinstance(sequence, OffloadedSequence)
        if sequence.ended:
            return
        self._in_prompt.discard(sequence)
        self._end(sequence)
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        elif sequence in self._loading or sequence.computed:
            self._holding.remove([sequence])
        else:
            self.waiting.remove([sequence])
        sequence.status = Status.ABORTED
        if sequence in self._loading and sequence not in self._filled:
            return  # its blocks are given back when they have been written to
        self._loading.discard(sequence)
        self._filled.discard(sequence)
        if self._is_free_at_once(sequence):
            self.kv.free(sequence)
        else:
            self._late.append((self._steps, sequence, sequence.blocks[0]))
            sequence.blocks[0] = []
            self.kv.free(sequence)

    def schedule(self) -> StepPlan:
        """Decide the next step, and which chunks move with it."""
        plan = super().schedule()
        plan.num_waiting += len(self._holding)
        plan.transfers = self._transfers(plan)
        return plan

    def _is_free_at_once(self, sequence: Sequence) -> bool:
        """Whether no step under way may still write to a request's blocks.

        Reads from the host are not ordered with steps, so that blocks are not given to them before.
        """
        assert isinstance(sequence, OffloadedSequence)
        return not self.config.async_scheduling or sequence.last_step <= self._done_steps

    def _preempt_one(self, plan: StepPlan, index: int) -> tuple[Sequence, int, int]:
        victim, returned, before = super()._preempt_one(plan, index)
        self._in_prompt.discard(victim)
        return victim, returned, before

    def _schedule_waiting(self, plan: StepPlan, budget: int, threshold: int) -> None:
        passed: list[Sequence] = []
        held: list[Sequence] = []
        while budget and len(self.running) < self.config.max_num_seqs:
            queue = self._holding or self.waiting
            if not queue:
                break
            sequence = queue.first()
            assert isinstance(sequence, OffloadedSequence)
            if sequence in self._loading:
                if sequence not in self._filled:
                    held.append(queue.pop())
                    continue
                self._take_up(sequence)
            hit = Hit([[]], sequence.computed, sequence.computed)
            if not sequence.computed:
                hit = self.kv.longest_hit(sequence)
                found = self._found(sequence, hit.tokens)
                if found is None:
                    passed.append(queue.pop())
                    continue
                if found:
                    if not self._begin_load(sequence, hit, found):
                        break
                    held.append(queue.pop())
                    continue
            new = sequence.tokens - hit.tokens
            if threshold:
                new = min(new, threshold)
            if new > budget:
                if not self.config.enable_chunked_prefill:
                    break
                new = budget
            if not self._let_in_from(queue, plan, sequence, new, hit):
                break
            budget -= new
        for queue, back in ((self._holding, held), (self.waiting, passed)):
            for sequence in reversed(back):
                queue.put_back(sequence)

    def _let_in_from(
        self, queue: RequestQueue, plan: StepPlan, sequence: Sequence, new: int, hit: Hit
    ) -> bool:
        """Let in the first request of a queue, with what it hit or with blocks that were filled."""
        if queue is self.waiting:
            let_in = self._let_in(plan, sequence, new, hit)
        else:
            let_in = self.kv.admit_filled(
                sequence,
                new,
                whole=self.config.scheduler_reserve_full_isl,
                spare_blocks=self._spare_blocks if self.running else 0,
            )
            if let_in:
                queue.pop()
                (plan.resumed if sequence.preemptions else plan.admitted).append(sequence)
                self._run(plan, sequence, new, hit.tokens)
        if let_in and sequence.computed < sequence.tokens:
            self._in_prompt.add(sequence)
        return let_in

    def _take_up(self, sequence: Sequence) -> None:
        """Let a request whose blocks have been filled go on; its last token is computed here."""
        self._loading.remove(sequence)
        self._filled.remove(sequence)
        if self.kv.prefix_cache is not None and sequence.computed >= sequence.commit_at:
            self.kv.commit(sequence, sequence.computed)
        sequence.computed = min(sequence.computed, sequence.tokens - 1)

    def _name(self, sequence: Sequence, chunk: int) -> int:
        return sequence.block_name((chunk + 1) * self._per_chunk - 1)

    def _found(self, sequence: OffloadedSequence, local_tokens: int) -> int | None:
        """Tokens beyond those in the GPU's cache that the host has; None to ask again later."""
        sequence.given = []
        if sequence.moving:
            return None
        size = self._chunk_tokens
        first, last = local_tokens // size, sequence.tokens // size
        if last * size - local_tokens < size:
            return 0
        pending = False
        end = first
        while end < last and self.tier.has(name := self._name(sequence, end)):
            pending |= not self.tier.is_ready(name)
            end += 1
        if pending:
            return None
        found = end * size - local_tokens
        if end == first or found < size:
            return 0
        if any(self._name(sequence, chunk) in self._being_read for chunk in range(first, end)):
            return None
        return found

    def _begin_load(self, sequence: OffloadedSequence, hit: Hit, tokens: int) -> bool:
        """Give a request blocks for what the host has of it, if enough are left for prompts."""
        kv = self.kv
        if not kv.admit(
            sequence,
            tokens,
            hit,
            whole=self.config.scheduler_reserve_full_isl,
            spare_blocks=self._spare_blocks if self.running else 0,
            reserved_blocks=sum(map(kv.blocks_missing, self._in_prompt)),
            is_computed=False,
        ):
            return False
        if sequence.hit_tokens is None:
            sequence.hit_tokens = hit.tokens + tokens
            self.queried_tokens += sequence.tokens
            self.hit_tokens += hit.tokens
            self.loaded_tokens += tokens
        sequence.computed = hit.tokens + tokens
        self._loading.add(sequence)
        self._in_prompt.add(sequence)
        blocks = sequence.blocks[0]
        self._touched.update(blocks)
        fresh = hit.tokens // self.config.groups[0].block_tokens
        first, end = fresh // self._per_chunk, -(-sequence.computed // self._chunk_tokens)
        names = [self._name(sequence, chunk) for chunk in range(first, end)]
        sequence.stored = end
        self.tier.read(names)
        self._being_read.update(names)
        for chunk, name in enumerate(names, first):
            sequence.accessed.setdefault(name, chunk)
        job = self._new_job(_Job(sequence, names, [], is_store=False))
        self._loads.append(Transfer(job, len(blocks) - fresh))
        return True

    def _new_job(self, job: _Job) -> int:
        number = self._next_job
        self._next_job += 1
        self._jobs[number] = job
        job.sequence.moving.add(number)
        return number

    def _note_scheduled(self, plan: StepPlan) -> None:
        super()._note_scheduled(plan)
        if plan.sequences:
            self._steps += 1
        silent = set(plan.silent)
        for sequence in plan.sequences:
            assert isinstance(sequence, OffloadedSequence)
            sequence.last_step = self._steps
            if sequence not in silent:
                self._in_prompt.discard(sequence)

    def _transfers(self, plan: StepPlan) -> Transfers:
        """Which chunks move with a step, and which must have before it begins."""
        fresh = {*plan.admitted, *plan.resumed}
        for sequence in plan.sequences:
            assert isinstance(sequence, OffloadedSequence)
            blocks = sequence.given = sequence.blocks[0]
            self._touched.update(blocks if sequence in fresh else blocks[sequence.shown :])
            sequence.shown = len(blocks)
        awaited: set[int] = set()
        for sequence in plan.preempted:
            assert isinstance(sequence, OffloadedSequence)
            awaited |= sequence.moving
        if self._fenced:
            for block in self._touched & self._fenced.keys():
                awaited |= self._fenced[block]
        stores: list[Transfer] = []
        for sequence in plan.sequences:
            assert isinstance(sequence, OffloadedSequence)
            self._store(sequence, sequence.computed, stores, awaited)
        for ended in self._ended:
            computed = max(ended.prompt_tokens, ended.tokens - 1)
            aborted = ended.status is Status.ABORTED
            self._store(ended, ended.computed if aborted else computed, stores, awaited)
            self.tier.used(sorted(ended.accessed, key=ended.accessed.__getitem__, reverse=True))
        self._ended = []
        self._touched = set()
        loads, self._loads = self._loads, []
        return Transfers(loads, stores, awaited, waits=bool(self._jobs))

    def _store(
        self,
        sequence: OffloadedSequence,
        computed: int,
        stores: list[Transfer],
        awaited: set[int],
    ) -> None:
        """Write a request's full chunks that the host does not have."""
        known = min(computed, sequence.tokens)
        if self._prompts_only:
            known = min(known, sequence.prompt_tokens)
        end = min(known // self._chunk_tokens, len(sequence.given) // self._per_chunk)
        if end <= sequence.stored:
            return
        places = {self._name(sequence, chunk): chunk for chunk in range(sequence.stored, end)}
        for name, chunk in places.items():
            if self.tier.is_ready(name) or not self.tier.has(name):
                sequence.accessed.setdefault(name, chunk)
        new = self.tier.write(list(places))
        if new is None:
            return  # no room: tried again with the next step
        sequence.stored = end
        if not new:
            return
        per_chunk = self._per_chunk
        blocks = [
            block
            for name in new
            for block in sequence.given[places[name] * per_chunk : (places[name] + 1) * per_chunk]
        ]
        job = self._new_job(_Job(sequence, new, blocks, is_store=True))
        stores.append(Transfer(job, len(blocks)))
        if sequence.ended:
            self._fence(job)
            if not self._touched.isdisjoint(blocks):
                awaited.add(job)

    def _fence(self, job: int) -> None:
        """Let a transfer be awaited before the blocks that it reads are written to."""
        for block in self._jobs[job].blocks:
            self._fenced.setdefault(block, set()).add(job)

    def _end(self, sequence: OffloadedSequence) -> None:
        for job in sequence.moving:
            self._fence(job)
        self._ended.append(sequence)

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step and the transfers that ended with it."""
        if plan.sequences:
            self._done_steps += 1
            while self._late and self._late[0][0] <= self._done_steps:
                self.kv.pool.release(reversed(self._late.popleft()[2]))
        finished = super().complete(plan)
        for sequence in finished:
            assert isinstance(sequence, OffloadedSequence)
            self._in_prompt.discard(sequence)
            self._end(sequence)
        assert plan.transfers is not None
        for job in plan.transfers.ended:
            self._end_job(job)
        return finished

    def _end_job(self, number: int) -> None:
        job = self._jobs.pop(number)
        sequence = job.sequence
        sequence.moving.remove(number)
        for block in job.blocks:
            if (fence := self._fenced.get(block)) is not None:
                fence.discard(number)
                if not fence:
                    del self._fenced[block]
        if job.is_store:
            self.tier.was_written(job.names)
            return
        self.tier.was_read(job.names)
        self._being_read.difference_update(job.names)
        if sequence.ended:
            self._loading.discard(sequence)
            self.kv.free(sequence)
        else:
            self._filled.add(sequence)
