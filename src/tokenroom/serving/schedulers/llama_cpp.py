"""llama-server's slots: which takes a request, and what a batch holds.

Follows ``get_available_slot``, ``pre_decode`` and ``post_decode`` of
``tools/server/server-context.cpp`` and ``server-queue.cpp``, llama.cpp 0c1e57098, for text models
with full attention, without drafts, adapters, context shift and requests for several answers.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.llama_cpp_prompts import Prompt, PromptStore
from tokenroom.serving.sequence import Sequence, Status

_COUNTS = ("n_parallel", "n_ctx", "n_ctx_slot", "n_batch", "n_ubatch")
_LEAST_KEPT = 0.5
"""Share of its prompt that a slot must keep for that prompt not to be saved first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSchedulerConfig:
    """Settings of llama-server, by its names.

    Attributes:
        n_parallel: Slots.
        n_ctx: Cells of the cache, of all slots together.
        n_ctx_slot: The longest context of a slot.
        n_batch: Most tokens that are decided at a time.
        n_ubatch: Most tokens of one pass of the model.
        kv_unified: Slots share all cells.
        cache_prompt: What a slot holds of a prompt is not computed again.
        slot_prompt_similarity: A slot is chosen by its prompt if that has more than such a share of
            the new one; 0 for never.
        cache_ram_bytes: Host memory for prompts that left their slots; 0 for none.
        cache_idle_slots: Prompts of idle slots are copied there when another request begins, and
            leave a unified cache.
        token_bytes: Bytes of a token in the cache.

    Raises:
        DeploymentError: A count below 1, or a share outside of 0 to 1.
    """

    n_parallel: int
    n_ctx: int
    n_ctx_slot: int
    n_batch: int = 2048
    n_ubatch: int = 512
    kv_unified: bool = True
    cache_prompt: bool = True
    slot_prompt_similarity: float = 0.1
    cache_ram_bytes: int = 0
    cache_idle_slots: bool = True
    token_bytes: int = 1

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise DeploymentError(
                    f"{name} is {shown(getattr(self, name))}; it must be 1 or more"
                )
        if not 0 <= self.slot_prompt_similarity <= 1:
            raise DeploymentError(
                f"slot_prompt_similarity is {shown(self.slot_prompt_similarity)}; it must be from "
                "0 to 1"
            )


class Slot:
    """One sequence of the context.

    Attributes:
        id: Its number.
        sequence: The request that it works on; None while it is idle.
        prompt: The tokens whose cells it holds; None for none.
        last_used: When it was released last, counted in releases; -1 for never.
    """

    __slots__ = ("id", "last_used", "prompt", "sequence")

    def __init__(self, id: int) -> None:
        self.id = id
        self.sequence: Sequence | None = None
        self.prompt: Prompt | None = None
        self.last_used = -1

    @property
    def tokens(self) -> int:
        """Cells that it holds."""
        return self.prompt.tokens if self.prompt is not None else 0


class LlamaCppScheduler:
    """Slots that decode come first into a batch, then prompts in the order of slots.

    A step is a batch of up to ``n_batch`` tokens, which the model computes in passes of
    ``n_ubatch`` (:func:`passes`); tokens are sampled when all have been computed.

    Attributes:
        config: Its settings.
        slots: The slots.
        store: Prompts in host memory; None without.
        deferred: Requests that found no slot.
    """

    __slots__ = (
        "_added",
        "_failed",
        "_incoming",
        "_releases",
        "config",
        "deferred",
        "slots",
        "store",
    )

    def __init__(self, config: LlamaCppSchedulerConfig) -> None:
        self.config = config
        self.slots = [Slot(id) for id in range(config.n_parallel)]
        self.store = (
            PromptStore(config.cache_ram_bytes, config.token_bytes)
            if config.cache_ram_bytes
            else None
        )
        self.deferred: deque[Sequence] = deque()
        self._incoming: deque[Sequence] = deque()
        self._releases = self._added = 0
        self._failed = False

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.deferred) + len(self._incoming) + sum(1 for _ in self._working())

    @property
    def plans_ahead(self) -> bool:
        """No: the next batch is built from what the last one returned."""
        return False

    def _working(self) -> Iterator[tuple[Slot, Sequence]]:
        for slot in self.slots:
            if slot.sequence is not None:
                yield slot, slot.sequence

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would."""
        return Refusal.TOO_LONG if request.prompt_tokens >= self.config.n_ctx_slot else None

    def add(self, request: Request) -> Sequence:
        """Queue a request."""
        sequence = Sequence(request, self.config.n_ctx_slot, 0, self._added, -1)
        self._added += 1
        self._incoming.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early, wherever it stands; one that has ended stays so."""
        if sequence.ended:
            return
        for queue in (self._incoming, self.deferred):
            if sequence in queue:
                queue.remove(sequence)
        for slot, working in self._working():
            if working is sequence:
                self._release(slot)
        sequence.status = Status.ABORTED

    def schedule(self) -> StepPlan:
        """Give requests to slots, and fill the next batch."""
        while self._incoming:
            sequence = self._incoming.popleft()
            slot = self._available_slot(sequence)
            if slot is None:
                self.deferred.append(sequence)
            else:
                self._launch(slot, sequence)
        plan = StepPlan()
        batch: list[tuple[int, int, int]] = []
        prompts = []
        for slot, sequence in self._working():
            if sequence.status is Status.RUNNING and sequence.computed >= sequence.prompt_tokens:
                batch.append(self._compute(plan, slot, sequence, 1))
            else:
                prompts.append((slot, sequence))
        room = self.config.n_batch - len(batch)
        for slot, sequence in prompts:
            if room <= 0:
                break
            if sequence.status is Status.WAITING:
                self._start(plan, slot, sequence)
            tokens = min(sequence.prompt_tokens - sequence.computed, room)
            batch.append(self._compute(plan, slot, sequence, tokens))
            room -= tokens
        self._make_room(plan)
        plan.passes = tuple(passes(batch, self.config.n_ubatch, kv_unified=self.config.kv_unified))
        # A batch that does not fit has filled the cells that there were when it fails.
        cells = self.config.n_ctx if self.config.kv_unified else sys.maxsize
        plan.used_blocks = min(sum(slot.tokens for slot in self.slots), cells)
        plan.num_running = sum(1 for _ in self._working())
        plan.num_waiting = len(self.deferred)
        return plan

    def _start(self, plan: StepPlan, slot: Slot, sequence: Sequence) -> None:
        """Keep of a slot's cells what the new prompt begins with; its last token is computed."""
        found = 0
        if self.config.cache_prompt and slot.prompt is not None:
            found = slot.prompt.in_common(sequence, sequence.prompt_tokens)
        found = min(found, sequence.prompt_tokens - 1)
        sequence.computed = sequence.hit_tokens = found
        sequence.status = Status.RUNNING
        plan.admitted.append(sequence)

    def _compute(
        self, plan: StepPlan, slot: Slot, sequence: Sequence, tokens: int
    ) -> tuple[int, int, int]:
        """Put tokens of a slot into the batch; gives the slot, how many, and those before them."""
        context = sequence.computed
        plan.sequences.append(sequence)
        plan.tokens.append(tokens)
        plan.contexts.append(context)
        sequence.computed += tokens
        slot.prompt = Prompt(sequence, sequence.computed)
        if sequence.computed < sequence.prompt_tokens:
            plan.silent.append(sequence)
        return slot.id, tokens, context

    def _make_room(self, plan: StepPlan) -> None:
        """Where the batch does not fit a shared cache, clear idle slots, or fail all requests.

        Source: ``decode``, which ends with "Context size has been exceeded.".
        """
        self._failed = False
        if not self.config.kv_unified:
            return
        used = sum(slot.tokens for slot in self.slots)
        for slot in self.slots:
            if used <= self.config.n_ctx:
                return
            if slot.sequence is None and slot.prompt is not None:
                used -= slot.tokens
                slot.prompt = None
        if used > self.config.n_ctx:
            self._failed = True
            plan.silent = list(plan.sequences)

    def _available_slot(self, sequence: Sequence) -> Slot | None:
        """The idle slot whose prompt is most like the new one, else the one unused for longest."""
        config = self.config
        best: Slot | None = None
        most = config.slot_prompt_similarity
        if most:
            for slot in self.slots:
                if slot.sequence is None and slot.prompt is not None and slot.tokens:
                    common = slot.prompt.in_common(sequence, sequence.prompt_tokens)
                    if common / sequence.prompt_tokens > most:
                        best, most = slot, common / sequence.prompt_tokens
        loses = best is not None and most * sequence.prompt_tokens / best.tokens < _LEAST_KEPT
        if best is None:
            for slot in self.slots:
                if slot.sequence is None and (best is None or slot.last_used <= best.last_used):
                    best = slot
            loses = best is not None
        if best is not None and loses and self.store is not None:
            if best.prompt is not None:
                self.store.save(best.prompt)
            best.prompt = self.store.take_better(best.prompt, sequence)
        return best

    def _launch(self, slot: Slot, sequence: Sequence) -> None:
        slot.sequence = sequence
        if self.store is None or not self.config.cache_idle_slots:
            return
        for idle in self.slots:
            if idle.sequence is None and idle.prompt is not None:
                self.store.save(idle.prompt)
                if self.config.kv_unified:
                    idle.prompt = None

    def _release(self, slot: Slot) -> None:
        """Leave a slot idle with its cells; the first request that was deferred is next."""
        slot.sequence = None
        slot.last_used = self._releases
        self._releases += 1
        if self.deferred:
            self._incoming.appendleft(self.deferred.popleft())

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a batch; gives what it finished, in the order of slots."""
        silent = set(plan.silent)
        computed = set(plan.sequences)
        finished = []
        for slot, sequence in list(self._working()):
            if self._failed:
                sequence.status = Status.ABORTED
                self._release(slot)
                slot.prompt = None
                finished.append(sequence)
            elif sequence in computed and sequence not in silent:
                sequence.tokens += 1
                if sequence.tokens >= sequence.last_tokens:
                    sequence.status = Status.FINISHED
                    self._release(slot)
                    finished.append(sequence)
        return finished


def passes(
    batch: Iterable[tuple[int, int, int]], n_ubatch: int, *, kv_unified: bool
) -> Iterator[StepPlan]:
    """A batch as the model computes it, pass by pass.

    A unified cache takes ``n_ubatch`` tokens after ``n_ubatch`` tokens (``split_simple`` of
    ``src/llama-batch.cpp``). Otherwise a pass has equally many tokens of slots with consecutive
    numbers, as they stand in the batch (``split_equal``).

    Args:
        batch: Slot, tokens and the tokens before them, in the order of the batch.
        n_ubatch: Most tokens of a pass.
        kv_unified: Slots share all cells.
    """
    left = [list(entry) for entry in batch]
    while left:
        if kv_unified:
            chosen, most = left, n_ubatch
        else:
            chosen = []
            for entry in left:
                if len(chosen) < n_ubatch and (not chosen or entry[0] == chosen[-1][0] + 1):
                    chosen.append(entry)
            most = min(min(tokens for _, tokens, _ in chosen), n_ubatch // len(chosen))
        part = StepPlan()
        room = n_ubatch
        for entry in chosen:
            tokens = min(entry[1], most, room)
            if not tokens:
                break
            part.tokens.append(tokens)
            part.contexts.append(entry[2])
            entry[1] -= tokens
            entry[2] += tokens
            room -= tokens
        left = [entry for entry in left if entry[1]]
        yield part
