"""TensorRT-LLM's scheduler, step for step: who may run, and what fits in the step.

Follows ``SimpleScheduler`` and the two schedulers it asks in turn, as
``tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`` has them (``PyCapacityScheduler`` and
``PyMicroBatchScheduler``, aligned with ``capacityScheduler.cpp`` and ``microBatchScheduler.cpp``),
and ``_executor_loop_overlap`` of ``py_executor.py``, NVIDIA/TensorRT-LLM in 2026, for text models
without drafts, beams, LoRA and pipelines.
"""

from __future__ import annotations

from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.request_queue import FcfsQueue
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.tensorrt_llm_blocks import TensorRtLlmBlocks, TensorRtLlmSequence
from tokenroom.serving.schedulers.tensorrt_llm_config import (
    CapacityPolicy,
    ChunkingPolicy,
    TensorRtLlmSchedulerConfig,
)
from tokenroom.serving.sequence import Sequence, Status

_NONE: list[int] = []


class TensorRtLlmScheduler:
    """Which requests compute how many tokens in each step.

    A request's ``max_tokens`` is taken to be the length of its answer: what a policy that reserves
    for the whole answer reserves.

    Attributes:
        config: Its settings.
        blocks: The KV pool.
        active: Requests that were fetched, in that order: at most ``max_batch_size``.
        waiting: Requests that were not.
        queried_tokens: Tokens of prompts looked up in the cache, at first admissions.
        hit_tokens: Those that were there.
    """

    __slots__ = (
        "_added",
        "_names_given",
        "_running",
        "active",
        "blocks",
        "config",
        "hit_tokens",
        "queried_tokens",
        "waiting",
    )

    def __init__(self, config: TensorRtLlmSchedulerConfig) -> None:
        self.config = config
        self.blocks = TensorRtLlmBlocks(config)
        self.active: list[TensorRtLlmSequence] = []
        self.waiting = FcfsQueue()
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._names_given = self._added = self._running = 0

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.active) + len(self.waiting)

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""
        return self.config.overlaps

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would.

        Source: ``_check_arguments`` of ``tensorrt_llm/llmapi/llm.py`` (prompts beyond
        ``max_num_tokens``) and ``_deduce_max_tokens`` of ``executor/base_worker.py`` (no room for
        an answer).
        """
        config, prompt = self.config, request.prompt_tokens
        if prompt >= config.max_seq_len:
            return Refusal.TOO_LONG
        if not config.enable_chunked_prefill and prompt > config.max_num_tokens:
            return Refusal.BEYOND_STEP
        last = min(prompt + request.output_tokens, config.max_seq_len)
        if -(-last // config.tokens_per_block) > config.num_blocks:
            return Refusal.BEYOND_POOL
        return None

    def add(self, request: Request) -> Sequence:
        """Queue a request."""
        sequence = TensorRtLlmSequence(
            request, self.config.max_seq_len, self._added, -1 - self._names_given
        )
        self._added += 1
        self._names_given += sequence.last_tokens
        self.waiting.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands; one that has ended stays so."""
        if sequence.ended:
            return
        assert isinstance(sequence, TensorRtLlmSequence)
        if sequence in self.active:
            self._running -= sequence.status is Status.RUNNING
            self.active.remove(sequence)
            self.blocks.free(sequence)
        else:
            self.waiting.remove([sequence])
        sequence.status = Status.ABORTED

    def schedule(self) -> StepPlan:
        """Decide the next step, and give its requests the blocks they need."""
        active, waiting = self.active, self.waiting
        while waiting and len(active) < self.config.max_batch_size:
            active.append(waiting.pop())  # type: ignore[arg-type]
        plan = StepPlan()
        if self.config.capacity_scheduler_policy is CapacityPolicy.MAX_UTILIZATION:
            fitting = self._fitting_at_most(plan)
        else:
            fitting = self._fitting_to_the_end()
        prompts, decoding = self._micro_batch(fitting)
        for sequence in plan.preempted:
            assert isinstance(sequence, TensorRtLlmSequence)
            self.blocks.free(sequence)
        new = [sequence for sequence, _ in prompts if not sequence.blocks[0]]
        for sequence in new:  # all find theirs before any takes what others could have found
            self.blocks.claim(sequence)
        for sequence in new:
            self.blocks.fill(sequence)
        begins = set(new)
        for sequence, chunk in prompts:
            self._compute_chunk(plan, sequence, chunk, first=sequence in begins)
        plan.sequences += decoding
        plan.tokens += [1] * len(decoding)
        plan.contexts += [sequence.computed for sequence in decoding]
        self.blocks.add_tokens(decoding)
        plan.used_blocks = self.config.num_blocks - self.blocks.tree.num_free
        plan.num_running = self._running
        plan.num_waiting = self.unfinished - self._running
        return plan

    def _compute_chunk(
        self, plan: StepPlan, sequence: TensorRtLlmSequence, chunk: int, *, first: bool
    ) -> None:
        """Schedule a chunk of a prompt; the first starts behind what is in the cache.

        A chunk that is not the last ends with a block (``setPrepopulatedPromptLen``).
        """
        if first:
            start, size = sequence.computed, self.config.tokens_per_block
            if start and start + chunk < sequence.prefill_end:
                chunk = (start + chunk) // size * size - start
            if sequence.hit_tokens is None:
                plan.admitted.append(sequence)
                sequence.hit_tokens = start
                self.queried_tokens += sequence.prefill_end
                self.hit_tokens += start
            else:
                plan.resumed.append(sequence)
            sequence.status = Status.RUNNING
            self._running += 1
        start = sequence.computed
        end = min(start + chunk, sequence.prefill_end)
        plan.sequences.append(sequence)
        plan.tokens.append(end - start)
        plan.contexts.append(start)
        if end < sequence.prefill_end:
            plan.silent.append(sequence)
        sequence.decodes = end == sequence.prefill_end
        sequence.computed = end

    # Who may run: the capacity scheduler.

    def _fitting_to_the_end(self) -> list[TensorRtLlmSequence]:
        """Requests whose blocks up to their last tokens are to be had (``GuaranteedNoEvict``)."""
        blocks = self.blocks
        pending = [sequence for sequence in self.active if not sequence.decodes]
        if not pending:
            return self.active
        fitting = [sequence for sequence in self.active if sequence.decodes]
        static = self.config.capacity_scheduler_policy is CapacityPolicy.STATIC_BATCH
        if static and fitting:
            return fitting
        available = blocks.tree.num_free - sum(map(blocks.remaining, fitting))
        coming = None if static else self._blocks_to_come()
        for sequence in pending:
            held = self._reuse_credit(sequence, coming)
            if held is None:
                continue
            needed = blocks.remaining(sequence) - len(held)
            if needed > available:
                break
            available -= needed
            fitting.append(sequence)
        return fitting

    def _fitting_at_most(self, plan: StepPlan) -> list[TensorRtLlmSequence]:
        """Requests whose next step fits, and who is paused for that (``MaxUtilization``)."""
        blocks, active = self.blocks, self.active
        tree = blocks.tree
        free, taken = tree.num_free, 0
        let_go: dict[int, int] = {}
        kept: set[int] = set()
        coming = self._blocks_to_come()
        fitting: list[TensorRtLlmSequence] = []
        index, end = 0, len(active)
        while index < end:
            sequence = active[index]
            held = _NONE if sequence.decodes else self._reuse_credit(sequence, coming)
            if held is None:
                index += 1
                continue
            needed = blocks.next_step(sequence) - len(held)
            if taken + needed <= free:
                taken += needed
                kept.update(held)
                fitting.append(sequence)
                index += 1
                continue
            victim = next(
                (at for at in range(end - 1, index - 1, -1) if active[at].blocks[0]), None
            )
            if victim is None:
                break
            for block in active[victim].blocks[0]:
                let_go[block] = let_go.get(block, 0) + 1
                free += let_go[block] == tree.holders[block] and block not in kept
            paused = active[victim]
            paused.status = Status.PREEMPTED
            paused.preemptions += 1
            self._running -= 1
            plan.preempted.append(paused)
            end = victim
        return fitting

    def _blocks_to_come(self) -> set[int] | None:
        """The next full blocks of prompts that are under way; None where nobody waits for them."""
        config = self.config
        if not (config.enable_block_reuse and config.enable_prefix_aware_scheduling):
            return None
        coming = set()
        for sequence in self.active:
            if not sequence.decodes and sequence.blocks[0]:
                new = self.blocks.reuse(sequence).first_new
                if new is not None:
                    coming.add(new)
        return coming

    def _reuse_credit(
        self, sequence: TensorRtLlmSequence, coming: set[int] | None
    ) -> list[int] | None:
        """Blocks that a request need not take since others hold them.

        None to let it wait for a block that another is about to compute (``beneficialToSkip``).
        """
        sequence.reusable_tokens = 0
        config = self.config
        if sequence.blocks[0] or not (
            config.enable_block_reuse and config.enable_prefix_aware_scheduling
        ):
            return []
        found = self.blocks.reuse(sequence)
        if coming is not None and found.first_new is not None:
            if found.first_new in coming:
                return None
            coming.add(found.first_new)
        if not config.credits_reuse:
            return []
        sequence.reusable_tokens = found.tokens
        return found.held

    # What fits in the step: the micro-batch scheduler.

    def _micro_batch(
        self, fitting: list[TensorRtLlmSequence]
    ) -> tuple[list[tuple[TensorRtLlmSequence, int]], list[TensorRtLlmSequence]]:
        """Chunks of prompts and decoding requests, of those that may run, in their order."""
        config = self.config
        chunked = config.enable_chunked_prefill
        prompts: list[tuple[TensorRtLlmSequence, int]] = []
        decoding: list[TensorRtLlmSequence] = []
        wanted = 0
        budget = config.max_num_tokens
        whole = True
        for sequence in fitting:
            if sequence.decodes:
                if sequence.computed + 1 >= sequence.last_tokens:
                    continue  # its last token is on its way (GENERATION_TO_COMPLETE)
                if not budget:
                    break
                decoding.append(sequence)
                budget -= 1
            else:
                left = _left(sequence)
                cost = _cost(left, sequence.reusable_tokens, left)
                if chunked:
                    whole = whole and cost <= config.max_num_tokens
                    wanted += min(cost, config.max_num_tokens)
                else:
                    cost = max(1, cost)
                    if cost > budget:
                        break
                    budget -= cost
                prompts.append((sequence, left))
            if len(prompts) + len(decoding) >= config.max_batch_size:
                break
        if not chunked or (whole and wanted <= budget):
            return prompts, decoding
        sequences = [sequence for sequence, _ in prompts]
        if config.context_chunking_policy is ChunkingPolicy.EQUAL_PROGRESS:
            chunks = self._equal_progress(sequences, budget)
        else:
            chunks = self._first_come(sequences, budget)
        shared = [pair for pair in zip(sequences, chunks, strict=True) if pair[1]]
        # Prompts that end come last, so that tokens are sampled from the end of the step.
        shared.sort(key=lambda pair: pair[1] >= _left(pair[0]))
        return shared, decoding

    def _first_come(self, sequences: list[TensorRtLlmSequence], budget: int) -> list[int]:
        """Each takes what is left of the step, in whole blocks unless it ends."""
        config = self.config
        chunks = []
        for sequence in sequences:
            left = _left(sequence)
            reusable = min(sequence.reusable_tokens, left)
            chunk = left
            if budget < _cost(left, reusable, left):
                chunk = budget
            if _cost(chunk, reusable, left) > config.max_num_tokens:
                chunk = min(config.max_num_tokens, left)
            if chunk < left:
                chunk = chunk // config.tokens_per_block * config.tokens_per_block
            chunks.append(chunk)
            budget -= _cost(chunk, reusable, left)
        return chunks

    def _equal_progress(self, sequences: list[TensorRtLlmSequence], budget: int) -> list[int]:
        """All take a block in turn, until the step is full."""
        config = self.config
        chunks = [0] * len(sequences)
        used, grown = 0, True
        while used < budget and grown:
            grown = False
            for index, sequence in enumerate(sequences):
                left = _left(sequence)
                reusable = min(sequence.reusable_tokens, left)
                longer = min(chunks[index] + config.tokens_per_block, left)
                more = _cost(longer, reusable, left) - _cost(chunks[index], reusable, left)
                if used + more > budget or longer > config.max_num_tokens:
                    continue
                grown = grown or longer > chunks[index]
                chunks[index] = longer
                used += more
        return chunks

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step; gives what it finished, in the order of fetching."""
        silent = set(plan.silent)
        finished = False
        for sequence in plan.sequences:
            if silent and sequence in silent:
                continue
            if sequence.status is not Status.ABORTED:
                tokens = sequence.tokens = sequence.tokens + 1
                if tokens >= sequence.last_tokens:
                    finished = True
        for sequence, context in zip(plan.sequences, plan.contexts, strict=True):
            assert isinstance(sequence, TensorRtLlmSequence)
            if context >= sequence.prefill_end:
                break  # prompts come first
            if sequence.status is Status.RUNNING:
                computed = min(sequence.computed, sequence.prefill_end, sequence.tokens - 1)
                self.blocks.store(sequence, computed)
        if not finished:
            return []
        ended: list[Sequence] = []
        for one in self.active:
            if one.tokens >= one.last_tokens:
                self.blocks.free(one)
                self._running -= one.status is Status.RUNNING
                one.status = Status.FINISHED
                ended.append(one)
        self.active = [one for one in self.active if not one.ended]
        return ended


def _left(sequence: TensorRtLlmSequence) -> int:
    """Tokens of its prompt that are not computed."""
    if not sequence.blocks[0]:
        return sequence.tokens
    return sequence.prefill_end - sequence.computed


def _cost(chunk: int, reusable: int, left: int) -> int:
    """Tokens that a chunk computes: what is found moves it, and shortens only the last one.

    Source: ``_reuse_adjusted_compute``.
    """
    if reusable <= 0 or reusable + chunk < left:
        return chunk
    return max(0, left - reusable)
