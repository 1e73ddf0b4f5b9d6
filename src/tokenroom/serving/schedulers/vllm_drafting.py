"""vLLM V1's scheduler where tokens are drafted: speculative decoding, step for step.

Follows ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py``, vLLM 0.32. A running request
brings its newest token and what was drafted for it; those that the model would not have said are
taken back when the step returns. Under asynchronous scheduling the next step is decided as if all
were kept, and what is taken back then corrects it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tokenroom.serving.prefix_cache import Hit
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.sequence import Sequence, Status

Keeps = Callable[[Request, int], int]
"""How many tokens, drafted to follow a request's first so many, the model would have said too."""


class DraftingSequence(Sequence):
    """A request for which tokens are drafted.

    Attributes:
        asked_tokens: Prompt and answer that were asked for, whatever the context holds.
        promised: Tokens that steps under way may yield, drafted ones among them
            (``num_output_placeholders``); 0 without asynchronous scheduling.
        drafts: Drafted tokens that its next step verifies.
        stale: Tokens of it under way when it was preempted.
        in_prompt: Its last step ended inside of its prompt.
        padded: Its step under way has rows in place of drafts, none of which is kept.
    """

    __slots__ = ("asked_tokens", "drafts", "in_prompt", "padded", "promised", "stale")

    def __init__(
        self, request: Request, max_model_len: int, groups: int, order: int, own_name: int
    ) -> None:
        super().__init__(request, max_model_len, groups, order, own_name)
        self.asked_tokens = request.prompt_tokens + request.output_tokens
        self.promised = self.drafts = self.stale = 0
        self.in_prompt = self.padded = False


class DraftingScheduler(VllmScheduler):
    """Which requests compute how many tokens in each step, drafted ones among them.

    Args:
        config: Its settings; they have ``drafts``.
        keeps: How many drafted tokens are kept.

    Attributes:
        drafted_tokens: Drafted tokens that were verified.
        kept_tokens: Those that were kept.
    """

    __slots__ = ("_input_left", "_keeps", "_prompt_runs", "drafted_tokens", "kept_tokens")

    _sequence: ClassVar[type[Sequence]] = DraftingSequence

    def __init__(self, config: VllmSchedulerConfig, keeps: Keeps) -> None:
        assert config.drafts is not None
        super().__init__(config)
        self._keeps = keeps
        self._input_left = 0
        self._prompt_runs = False
        self.drafted_tokens = self.kept_tokens = 0

    @property
    def _slots(self) -> int:
        assert self.config.drafts is not None
        return self.config.drafts.input_slots

    @property
    def _drafts(self) -> int:
        assert self.config.drafts is not None
        return self.config.drafts.tokens

    def _schedule_running(self, plan: StepPlan, budget: int, threshold: int) -> int:
        """Schedule running requests with their drafts; returns the tokens that remain."""
        running = self.running
        self._input_left = self.config.max_num_batched_tokens
        self._prompt_runs = False
        index = 0
        while index < len(running) and budget and self._input_left > self._slots:
            sequence = running[index]
            assert isinstance(sequence, DraftingSequence)
            context = sequence.computed
            new = self._new_tokens(sequence, budget, threshold)
            if new <= 0:
                index += 1
                continue
            end = context + new
            while not self.kv.extend(sequence, end):
                victim, returned, before = self._preempt_one(plan, index)
                index -= before
                budget += returned
                if victim is sequence:
                    return budget
            drafted = min(sequence.drafts, end - sequence.tokens - sequence.promised)
            if drafted > 0:
                plan.drafted[sequence] = drafted
            sequence.drafts = 0
            self._prompt_runs |= sequence.in_prompt
            plan.sequences.append(sequence)
            plan.tokens.append(new)
            plan.contexts.append(context)
            if end < sequence.tokens + sequence.promised:
                plan.silent.append(sequence)
            sequence.computed = end
            budget -= new
            self._input_left -= new + self._slots
            index += 1
        return budget

    def _new_tokens(self, sequence: DraftingSequence, budget: int, threshold: int) -> int:
        """Tokens that a running request computes next, 0 or less for none."""
        context, promised = sequence.computed, sequence.promised
        if promised and context + 2 - promised >= sequence.asked_tokens:
            return 0  # the steps under way end its answer whatever is kept of them
        new = sequence.tokens + sequence.drafts + promised - context
        if threshold:
            new = min(new, threshold)
        left = self.config.max_model_len - context - 1
        return min(new, budget, self._input_left - self._slots, left)

    def _preempt_one(self, plan: StepPlan, index: int) -> tuple[Sequence, int, int]:
        victim, returned, before = super()._preempt_one(plan, index)
        assert isinstance(victim, DraftingSequence)
        plan.drafted.pop(victim, None)
        if returned:
            self._input_left += returned + self._slots
        victim.stale = victim.in_flight
        victim.promised = victim.drafts = 0
        return victim, returned, before

    def _schedule_waiting(self, plan: StepPlan, budget: int, threshold: int) -> None:
        config, waiting, running = self.config, self.waiting, self.running
        runs = bool(plan.sequences)
        while budget and waiting and self._input_left > self._slots:
            if len(running) >= config.max_num_seqs:
                break
            sequence = waiting.first()
            assert isinstance(sequence, DraftingSequence)
            hit = self.kv.longest_hit(sequence)
            room = min(budget, self._input_left - self._slots)
            new = sequence.tokens - hit.tokens
            padded = new == 1 and self._pads(hit, runs=runs)
            if padded:
                new += self._drafts
                if new > room:
                    break  # rather not at all than beside rows of other lengths
            if threshold:
                new = min(new, threshold)
            if new > room:
                if not config.enable_chunked_prefill:
                    break
                new = room
            if not self._let_in(plan, sequence, new, hit):
                break
            sequence.padded = padded
            if padded:
                plan.drafted[sequence] = self._drafts
            budget -= new
            self._input_left -= new + self._slots

    def _pads(self, hit: Hit, *, runs: bool) -> bool:
        """Whether a request that computes one token gets rows in place of drafts.

        A step of decoding requests alone is replayed from a graph for equally many rows of each.
        """
        if self._prompt_runs or not (runs or hit.tokens):
            return False
        return hit.tokens + 1 + self._drafts + 1 <= self.config.max_model_len

    def _note_scheduled(self, plan: StepPlan) -> None:
        silent = set(plan.silent)
        for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True):
            assert isinstance(sequence, DraftingSequence)
            sequence.in_flight += tokens
            sequence.in_prompt = sequence in silent
            if self.config.async_scheduling and not sequence.in_prompt:
                sequence.promised += 1 + plan.drafted.get(sequence, 0)
                sequence.drafts = self._drafts

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step, in the order of scheduling; gives what it finished."""
        silent = set(plan.silent)
        finished: list[Sequence] = []
        for sequence, scheduled in zip(plan.sequences, plan.tokens, strict=True):
            assert isinstance(sequence, DraftingSequence)
            stale = sequence.stale > 0
            sequence.in_flight -= scheduled
            if stale:
                sequence.stale -= scheduled
            if sequence.ended or sequence in silent:
                continue
            kept = self._kept(sequence, plan.drafted.get(sequence, 0), stale=stale)
            before = sequence.tokens
            tokens = sequence.tokens = min(before + 1 + kept, sequence.last_tokens)
            last = tokens >= sequence.last_tokens
            if self.config.async_scheduling:
                if not stale:
                    sequence.promised -= tokens - before
                if sequence.status is not Status.RUNNING:
                    if last:
                        self.waiting.remove([sequence])
                elif tokens > sequence.commit_at:
                    self.kv.commit(sequence, tokens - 1)
            if last:
                self.kv.free(sequence)
                finished.append(sequence)
        self._take_out(finished)
        if not self.config.async_scheduling:
            for sequence in plan.sequences:
                assert isinstance(sequence, DraftingSequence)
                sequence.drafts = 0 if sequence.in_prompt else self._drafts
        return finished

    def _kept(self, sequence: DraftingSequence, drafted: int, *, stale: bool) -> int:
        """How many of a request's drafted tokens stay; the others are taken back."""
        if not drafted:
            return 0
        kept = 0
        if sequence.padded:
            sequence.padded = False
        else:
            kept = min(drafted, self._keeps(sequence.request, sequence.tokens))
        self.drafted_tokens += drafted
        self.kept_tokens += kept
        if not stale:
            sequence.computed = max(sequence.computed - (drafted - kept), 0)
            sequence.promised = max(sequence.promised - (drafted - kept), 0)
        return kept
