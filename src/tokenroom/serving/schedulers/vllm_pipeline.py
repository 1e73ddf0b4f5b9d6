"""vLLM's scheduler over pipeline stages: several steps are decided before the first is done.

Follows ``step_with_batch_queue`` of ``vllm/v1/engine/core.py`` and ``max_concurrent_batches`` of
``vllm/config/vllm.py``, vLLM 0.32.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPipelineConfig(VllmSchedulerConfig):
    """Settings of a scheduler over several stages.

    Attributes:
        stages: Pipeline stages.
        staggers: The next token of a request is decided when it is not known yet, as many
            decisions later as there are stages (the second model runner, with asynchronous
            scheduling); otherwise when it is.
    """

    stages: int
    staggers: bool

    @property
    def max_concurrent_batches(self) -> int:
        """Steps that may be decided and not done."""
        return self.stages + self.staggers


class VllmPipelineScheduler(VllmScheduler):
    """As many steps are under way as there are stages, or one more; requests take turns in them.

    Chunks of a prompt may follow each other in steps under way.
    """

    __slots__ = ("_decisions", "_from", "_known_first", "_stages")

    def __init__(self, config: VllmPipelineConfig) -> None:
        super().__init__(config)
        self._stages = config.stages
        self._known_first = not config.staggers
        self._decisions = 0
        self._from: dict[Sequence, int] = {}

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""
        return True

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        self._decisions += 1
        return super().schedule()

    def _end_of_step(self, sequence: Sequence, budget: int, threshold: int) -> int:
        if self._known_first:
            waits = sequence.computed >= sequence.tokens
        else:
            waits = self._decisions < self._from.get(sequence, 0)
        return sequence.computed if waits else super()._end_of_step(sequence, budget, threshold)

    def _note_scheduled(self, plan: StepPlan) -> None:
        silent = set(plan.silent)
        for sequence, tokens in zip(plan.sequences, plan.tokens, strict=True):
            sequence.in_flight += tokens
            sequence.quiet_tokens = 0  # whether it may go on is asked each time
            if sequence not in silent:
                self._from[sequence] = self._decisions + self._stages

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step, in the order of scheduling; gives what it finished."""
        if self.config.async_scheduling:
            finished = super().complete(plan)
        else:
            finished = self._complete_known(plan)
            self._take_out(finished)
        for sequence in finished:
            self._from.pop(sequence, None)
        return finished

    def _complete_known(self, plan: StepPlan) -> list[Sequence]:
        silent = set(plan.silent)
        finished = []
        for sequence, scheduled in zip(plan.sequences, plan.tokens, strict=True):
            sequence.in_flight -= scheduled
            if sequence.ended or sequence in silent:
                continue
            sequence.tokens += 1
            if sequence.tokens >= sequence.last_tokens:
                if sequence not in self.running:  # preempted while its last token was under way
                    self.waiting.remove([sequence])
                self.kv.free(sequence)
                finished.append(sequence)
        return finished
