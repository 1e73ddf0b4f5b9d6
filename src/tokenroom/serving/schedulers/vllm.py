"""vLLM V1's scheduler, step for step.

Follows ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py``, vLLM 0.32, for text models
without pipelines, LoRA and transfers of KV: the same requests compute the same tokens in the same
steps, blocks go to the same requests, and the same requests are preempted. What drafts change is in
:mod:`~tokenroom.serving.schedulers.vllm_drafting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.kv_cache_manager import KvCacheManager
from tokenroom.serving.kv_group import STATES, Kind, KvGroup
from tokenroom.serving.prefix_cache import Hit
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue, PriorityQueue, RequestQueue
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.sequence import Sequence, Status

_COUNTS = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmDrafts:
    """How tokens are drafted, as far as the scheduler sees it.

    Source: ``vllm/config/vllm.py`` and ``speculative.py``, vLLM 0.32.

    Attributes:
        tokens: Tokens drafted for a request in a step (``num_speculative_tokens``).
        lookahead_tokens: Slots beyond a request's tokens that the drafter writes to
            (``num_lookahead_tokens``).
        input_slots: Rows that the drafter adds to each request's in the budget of a step
            (``max_num_new_slots_for_drafting``).
        reread_groups: KV groups of which the last block that is found in the cache is computed
            anew, for the model's states of it that the drafter reads (``use_eagle_block_drop``).

    Raises:
        DeploymentError: A count below 0, or no token drafted.
    """

    tokens: int
    lookahead_tokens: int = 0
    input_slots: int = 0
    reread_groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("lookahead_tokens", 0), ("input_slots", 0)):
            if getattr(self, name) < least:
                raise DeploymentError(
                    f"{name} of drafts is {shown(getattr(self, name))}; it must be {least} or more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSchedulerConfig:
    """Settings of vLLM that decide what a step runs, by vLLM's names.

    Attributes:
        num_blocks: Blocks of the KV pool, the null block included (``num_gpu_blocks``).
        groups: KV cache groups of the model.
        max_model_len: The longest context.
        max_num_batched_tokens: Most tokens of a step.
        max_num_scheduled_tokens: Most tokens that the scheduler gives a step; None for as many.
        max_num_seqs: Most requests that run at a time.
        enable_prefix_caching: Blocks are found again by what they hold.
        enable_chunked_prefill: A prompt may be computed over several steps.
        long_prefill_token_threshold: Most tokens of one prompt in a step, while it is not alone;
            0 for no such limit.
        long_prefill_token_threshold_adaptive: That limit is at least an even share of the step.
        policy: ``"fcfs"`` or ``"priority"``.
        scheduler_reserve_full_isl: A request is let in only where its whole prompt fits.
        watermark: Share of the blocks that stay free when another request is let in.
        async_scheduling: A step is decided before the one before it has returned.
        prefix_cache_retention_interval: Tokens between cached windows and states; 0 for only
            where prompts would be read again, None for everywhere.
        drafts: How tokens are drafted; None without speculative decoding.

    Raises:
        DeploymentError: A count below 1, a share outside of 0 to 1, an unknown policy, no group,
            a budget below ``max_model_len`` where prompts are not divided, or drafts beside KV
            groups that they are not simulated with.
    """

    num_blocks: int
    groups: tuple[KvGroup, ...]
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_scheduled_tokens: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    policy: Literal["fcfs", "priority"] = "fcfs"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = True
    prefix_cache_retention_interval: int | None = 0
    drafts: VllmDrafts | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )
        if self.max_num_scheduled_tokens is not None and self.max_num_scheduled_tokens < 1:
            raise DeploymentError(
                f"max_num_scheduled_tokens is {shown(self.max_num_scheduled_tokens)}; it must be "
                "1 or more"
            )
        if not self.groups:
            raise DeploymentError("groups is empty; a model has at least one KV cache group")
        if self.long_prefill_token_threshold < 0:
            raise DeploymentError(
                f"long_prefill_token_threshold is {shown(self.long_prefill_token_threshold)}; "
                "it must be 0 or more"
            )
        if self.policy not in ("fcfs", "priority"):
            raise DeploymentError(
                f"policy is {shown(self.policy)}; it must be 'fcfs' or 'priority'"
            )
        if not 0 <= self.watermark < 1:
            raise DeploymentError(
                f"watermark is {shown(self.watermark)}; it must be 0 or more and below 1"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise DeploymentError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is below max_model_len "
                f"{self.max_model_len}; without chunked prefill the longest prompt must fit in a "
                "step"
            )
        if self.drafts is not None:
            self._check_drafts(self.drafts)

    def _check_drafts(self, drafts: VllmDrafts) -> None:
        kinds = {group.kind for group in self.groups}
        if kinds & set(STATES):
            raise DeploymentError(
                "speculative decoding of models with Mamba states is not simulated; leave it out"
            )
        for index in drafts.reread_groups:
            if not 0 <= index < len(self.groups):
                raise DeploymentError(
                    f"reread_groups of drafts holds {shown(index)}; groups count from 0 to "
                    f"{len(self.groups) - 1}"
                )
            if self.enable_prefix_caching and self.groups[index].kind is Kind.CHUNKED_LOCAL:
                raise DeploymentError(
                    "EAGLE beside chunked local attention is not simulated with prefix caching, "
                    "nor served by vLLM; turn enable_prefix_caching off"
                )
        if self.max_num_batched_tokens <= drafts.input_slots:
            raise DeploymentError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}; drafts take "
                f"{drafts.input_slots} of them for each request, give more"
            )

    @property
    def max_concurrent_batches(self) -> int:
        """Steps that may be decided and not done."""
        return 2 if self.async_scheduling else 1

    @property
    def step_tokens(self) -> int:
        """Most tokens of a step: the scheduler's own limit, where it has one."""
        budget = self.max_num_scheduled_tokens or self.max_num_batched_tokens
        return min(budget, self.max_num_batched_tokens)


class VllmScheduler:
    """Which requests compute how many tokens in each step.

    Without ``async_scheduling`` each plan is completed before the next is made; with it, a plan
    is made while the one before it runs, and plans are completed in order.

    Attributes:
        config: Its settings.
        kv: The blocks.
        running: Requests that run, in the order in which they are served.
        waiting: Requests that wait.
        queried_tokens: Tokens of prompts looked up in the cache, at first admissions.
        hit_tokens: Those that were there.
    """

    __slots__ = (
        "_added",
        "_budget",
        "_largest_chunk",
        "_names_given",
        "_spare_blocks",
        "_state_tokens",
        "config",
        "hit_tokens",
        "kv",
        "queried_tokens",
        "running",
        "waiting",
    )

    _sequence: ClassVar[type[Sequence]] = Sequence
    _manager: ClassVar[type[KvCacheManager]] = KvCacheManager

    def __init__(self, config: VllmSchedulerConfig) -> None:
        drafts = config.drafts
        self.config = config
        self.kv = self._manager(
            num_blocks=config.num_blocks,
            groups=config.groups,
            max_model_len=config.max_model_len,
            max_in_flight_tokens=config.max_concurrent_batches * config.max_num_batched_tokens,
            enable_prefix_caching=config.enable_prefix_caching,
            retention_interval_tokens=config.prefix_cache_retention_interval,
            lookahead_tokens=drafts.lookahead_tokens if drafts is not None else 0,
            reread_groups=drafts.reread_groups if drafts is not None else (),
        )
        self.running: list[Sequence] = []
        self.waiting: RequestQueue = PriorityQueue() if config.policy == "priority" else FcfsQueue()
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._spare_blocks = int(config.watermark * config.num_blocks)
        self._names_given = self._added = 0
        self._state_tokens = next(
            (group.block_tokens for group in config.groups if group.kind is Kind.ALIGNED_MAMBA),
            0,
        )
        budget = config.max_num_scheduled_tokens or config.max_num_batched_tokens
        self._budget = config.step_tokens
        self._largest_chunk = min(budget, config.long_prefill_token_threshold or budget)

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.running) + len(self.waiting)

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""
        return self.config.async_scheduling

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would.

        Source: ``_validate_prompt_len`` of ``vllm/v1/engine/input_processor.py`` for prompts as
        long as the context. vLLM does not start with a pool below one request of
        ``max_model_len``, except for a number of blocks that was given.
        """
        if request.prompt_tokens >= self.config.max_model_len:
            return Refusal.TOO_LONG
        tokens = request.prompt_tokens + request.output_tokens
        if self.kv.blocks_held_at_most(tokens) >= self.config.num_blocks:
            return Refusal.BEYOND_POOL
        return None

    def add(self, request: Request) -> Sequence:
        """Queue a request."""
        sequence = self._sequence(
            request,
            self.config.max_model_len,
            len(self.config.groups),
            self._added,
            -1 - self._names_given,
        )
        self._added += 1
        self._names_given += sequence.last_tokens
        self.waiting.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands; one that has ended stays so."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        elif sequence.status in (Status.WAITING, Status.PREEMPTED):
            self.waiting.remove([sequence])
        else:
            return
        sequence.status = Status.ABORTED
        self.kv.free(sequence)

    def schedule(self) -> StepPlan:
        """Decide the next step: running requests first, then waiting ones, as tokens remain."""
        plan = StepPlan()
        config = self.config
        self.kv.start_step()
        threshold = config.long_prefill_token_threshold
        if threshold and self.unfinished == 1:
            threshold = 0  # nobody else to starve
        elif threshold and config.long_prefill_token_threshold_adaptive and self.unfinished:
            threshold = max(threshold, config.max_num_batched_tokens // self.unfinished)
        budget = self._schedule_running(plan, self._budget, threshold)
        if not plan.preempted and budget and self.unfinished > len(self.running):
            self._schedule_waiting(plan, budget, threshold)
        self._note_scheduled(plan)
        plan.used_blocks = config.num_blocks - 1 - self.kv.pool.num_free
        plan.num_running = len(self.running)
        plan.num_waiting = len(self.waiting)
        return plan

    def _note_scheduled(self, plan: StepPlan) -> None:
        """Count what a decided step computes as under way."""
        if self.config.async_scheduling:
            for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True):
                sequence.in_flight += tokens

    def _schedule_running(self, plan: StepPlan, budget: int, threshold: int) -> int:
        """Schedule running requests; returns the tokens that remain."""
        running = self.running
        scheduled, tokens, contexts = (
            plan.sequences.append,
            plan.tokens.append,
            plan.contexts.append,
        )
        index = 0
        while index < len(running) and budget:
            sequence = running[index]
            context = sequence.computed
            end = context + 1
            if end > sequence.quiet_tokens:
                end = self._end_of_step(sequence, budget, threshold)
                if end <= context:
                    index += 1
                    continue
                while not self.kv.extend(sequence, end):
                    if not self._is_free_at_once(self._victim()):
                        return budget
                    victim, returned, before = self._preempt_one(plan, index)
                    index -= before
                    budget += returned
                    if victim is sequence:
                        return budget
                if end < sequence.tokens:
                    plan.silent.append(sequence)
            scheduled(sequence)
            tokens(end - context)
            contexts(context)
            sequence.computed = end
            budget -= end - context
            index += 1
        return budget

    def _end_of_step(self, sequence: Sequence, budget: int, threshold: int) -> int:
        """Up to where a running request computes: its prompt, or one token more.

        The last token of an answer is never computed, nor is anything beyond the context. Under
        asynchronous scheduling the token to compute may not be known yet.
        """
        context = sequence.computed
        new = min(max(sequence.tokens, context + 1), sequence.last_tokens - 1) - context
        if threshold:
            new = min(new, threshold)
        end = context + min(new, budget)
        return self._end_at_state(sequence, context, end) if self._state_tokens else end

    def _end_at_state(self, sequence: Sequence, start: int, end: int) -> int:
        """Where a chunk ends so that the states to be cached are written: at ends of blocks.

        It also ends at the last block that a later prompt could reuse, and where this prompt
        parts from others. Source: ``_mamba_block_aligned_split``.
        """
        prefill_end = max(sequence.prompt_tokens, sequence.tokens - 1)
        if start >= prefill_end:
            return end
        size = self._state_tokens
        if end < prefill_end:
            aligned = end // size * size
            if aligned > start or size <= self._largest_chunk:
                end = aligned
        stops = [(sequence.tokens - 1) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        if start < sequence.junction < end:
            stops.append(start + (sequence.junction - start) // size * size)
        return max(start, min((stop for stop in stops if start < stop < end), default=end))

    def _victim(self) -> Sequence:
        """Who is preempted next."""
        if self.config.policy == "fcfs":
            return self.running[-1]
        return max(self.running, key=_urgency)

    def _is_free_at_once(self, sequence: Sequence) -> bool:
        """Whether the blocks of a request can be given to others as soon as it gives them back."""
        return True

    def _preempt_one(self, plan: StepPlan, index: int) -> tuple[Sequence, int, int]:
        """Take the blocks of the request that is served last or is least urgent.

        Returns it, the tokens that this step had given it, and 1 where it stood before ``index``.
        """
        running = self.running
        returned = before = 0
        victim = self._victim()
        if self.config.policy == "fcfs":
            running.pop()
        else:
            position = running.index(victim)
            del running[position]
            if position < index:
                before = 1
                if victim in plan.sequences:
                    given = plan.sequences.index(victim)
                    del plan.sequences[given], plan.contexts[given]
                    returned = plan.tokens.pop(given)
                    if victim in plan.silent:
                        plan.silent.remove(victim)
        self.kv.free(victim)
        victim.status = Status.PREEMPTED
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.put_back(victim)
        plan.preempted.append(victim)
        return victim, returned, before

    def _schedule_waiting(self, plan: StepPlan, budget: int, threshold: int) -> None:
        config, kv, waiting, running = self.config, self.kv, self.waiting, self.running
        aside = []
        while budget and waiting and len(running) < config.max_num_seqs:
            sequence = waiting.first()
            if sequence.in_flight:  # preempted in a pipeline, where tokens of it are still to come
                aside.append(waiting.pop())
                continue
            hit = kv.longest_hit(sequence)
            new = sequence.tokens - hit.tokens
            if threshold and new > threshold:
                new = threshold
            if new > budget:
                if not config.enable_chunked_prefill:
                    break
                new = budget
            if self._state_tokens:
                new = self._end_at_state(sequence, hit.tokens, hit.tokens + new) - hit.tokens
                if not new:
                    break
            if not self._let_in(plan, sequence, new, hit):
                break
            budget -= new
        for sequence in reversed(aside):
            waiting.put_back(sequence)

    def _let_in(self, plan: StepPlan, sequence: Sequence, new: int, hit: Hit) -> bool:
        """Give the request that is next its blocks and so many tokens, if there are blocks."""
        if not self.kv.admit(
            sequence,
            new,
            hit,
            whole=self.config.scheduler_reserve_full_isl,
            spare_blocks=self._spare_blocks if self.running else 0,
        ):
            return False
        self.waiting.pop()
        if sequence.status is Status.PREEMPTED:
            plan.resumed.append(sequence)
        else:
            plan.admitted.append(sequence)
            sequence.hit_tokens = hit.tokens
            self.queried_tokens += sequence.tokens
            self.hit_tokens += hit.tokens
        self._run(plan, sequence, new, hit.tokens)
        return True

    def _run(self, plan: StepPlan, sequence: Sequence, new: int, context: int) -> None:
        """Let a request that was let in compute so many tokens."""
        self.running.append(sequence)
        sequence.status = Status.RUNNING
        sequence.computed = context + new
        plan.sequences.append(sequence)
        plan.tokens.append(new)
        plan.contexts.append(context)
        if sequence.computed < sequence.tokens:
            plan.silent.append(sequence)

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step, in the order of scheduling; gives what it finished."""
        silent = set(plan.silent)
        if self.config.async_scheduling:
            finished = self._complete_in_flight(plan, silent)
        else:
            finished = []
            running = Status.RUNNING
            for sequence in plan.sequences:
                if sequence.status is not running or (silent and sequence in silent):
                    continue
                tokens = sequence.tokens = sequence.tokens + 1
                if tokens >= sequence.last_tokens:
                    self.kv.free(sequence)
                    finished.append(sequence)
        self._take_out(finished)
        return finished

    def _take_out(self, finished: list[Sequence]) -> None:
        if finished:
            for sequence in finished:
                sequence.status = Status.FINISHED
            self.running = [
                sequence for sequence in self.running if sequence.status is Status.RUNNING
            ]

    def _complete_in_flight(self, plan: StepPlan, silent: set[Sequence]) -> list[Sequence]:
        finished = []
        for sequence, scheduled in zip(plan.sequences, plan.tokens, strict=True):
            sequence.in_flight -= scheduled
            if sequence.ended or sequence in silent:
                continue
            tokens = sequence.tokens = sequence.tokens + 1
            last = tokens >= sequence.last_tokens
            if sequence.status is Status.RUNNING:
                # Blocks are cached when their tokens are known, not when they are scheduled.
                if tokens > sequence.commit_at:
                    self.kv.commit(sequence, tokens - 1)
            elif last:  # preempted while its last token was in flight, which returns all the same
                self.waiting.remove([sequence])
            if last:
                self.kv.free(sequence)
                finished.append(sequence)
        return finished


def _urgency(sequence: Sequence) -> tuple[int, float, int]:
    return sequence.priority, sequence.arrival_seconds, sequence.order
