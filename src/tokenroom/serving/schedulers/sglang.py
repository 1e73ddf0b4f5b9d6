"""SGLang's scheduler, step for step.

Follows ``get_next_batch_to_run`` and the loops of ``managers/scheduler.py``, ``ScheduleBatch``
(``managers/schedule_batch.py``) and ``SchedulerBatchResultProcessor``, SGLang 0.5.23, for text
models with one pool of tokens, without drafts, pipelines, LoRA, host tiers and transfers of KV.
"""

from __future__ import annotations

from typing import Final, cast

from tokenroom.serving.radix_cache import RadixCache, RadixSequence
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.sglang_config import SglangSchedulerConfig
from tokenroom.serving.schedulers.sglang_prefill import PrefillAdder, Verdict
from tokenroom.serving.schedulers.sglang_queue import WaitingRequests
from tokenroom.serving.schedulers.sglang_ratio import RETRACT_STEPS, NewTokenRatio
from tokenroom.serving.sequence import Sequence, Status

_SPARE_INPUT: Final = 5  # max_req_input_len is so much below max_req_len


class SglangPlan(StepPlan):
    """A step of SGLang.

    Attributes:
        rows: The scheduled requests: ``sequences``.
        extends: It computes prompts.
        decoding: Requests of it that go on with their answers beside prompts.
        chunked: The request whose prompt goes on after it.
    """

    __slots__ = ("chunked", "decoding", "extends", "rows")

    def __init__(self) -> None:
        super().__init__()
        self.rows = cast("list[RadixSequence]", self.sequences)
        self.extends = False
        self.decoding: set[RadixSequence] = set()
        self.chunked: RadixSequence | None = None


class SglangScheduler:
    """Which requests compute how many tokens in each step.

    A step computes prompts or goes on with answers; only ``enable_mixed_chunk`` joins them.
    Without ``overlap_schedule`` each plan is completed before the next is made; with it, a plan
    is made while the one before it runs, and plans are completed in order.

    Attributes:
        config: Its settings.
        cache: The pool and what is cached.
        running: Requests that go on with their answers, in order.
        waiting: Requests that wait, in the order in which they were last looked at.
        chunked: The request whose prompt is being computed chunk by chunk.
        ratio: Share of the rest of answers that room is kept for.
        full: Nobody is let in before somebody leaves (``batch_is_full``).
    """

    __slots__ = (
        "_added",
        "_come",
        "_free_rows",
        "_in_flight",
        "_last",
        "_live",
        "_some_ended",
        "_steps_unreceived",
        "cache",
        "chunked",
        "config",
        "full",
        "ratio",
        "running",
        "waiting",
    )

    def __init__(self, config: SglangSchedulerConfig) -> None:
        self.config = config
        self.cache = RadixCache(
            pool_tokens=config.max_total_num_tokens,
            page_tokens=config.page_size,
            name_tokens=config.name_tokens,
            enabled=not config.disable_radix_cache,
        )
        self.running: list[RadixSequence] = []
        self.waiting = WaitingRequests(self.cache, config.schedule_policy, config.name_tokens)
        self.chunked: RadixSequence | None = None
        self.ratio = NewTokenRatio(config.schedule_conservativeness)
        self.full = self._some_ended = False
        self._free_rows = config.max_running_requests
        self._in_flight: SglangPlan | None = None
        self._last: SglangPlan | None = None
        self._come: list[RadixSequence] = []
        self._added = self._live = self._steps_unreceived = 0

    @property
    def unfinished(self) -> int:
        """Requests that wait or run."""
        return self._live

    @property
    def plans_ahead(self) -> bool:
        """Whether a step is decided before the one before it has returned."""
        return self.config.overlap_schedule

    @property
    def used_tokens(self) -> int:
        """Tokens of the pool that requests hold, cached ones included."""
        total = self.config.max_total_num_tokens // self.config.page_size * self.config.page_size
        return total - self.cache.obtainable_tokens

    def refusal(self, request: Request) -> Refusal | None:
        """Why a request would not be served at all; None if it would.

        Source: ``validate_input_length`` of ``managers/utils.py``; answers that would not fit are
        cut, not refused. A prompt of which nothing but the last page would be left is accepted by
        SGLang, and waits for ever.
        """
        config, prompt = self.config, request.prompt_tokens
        if prompt >= config.context_length - 1 - _SPARE_INPUT:
            return Refusal.TOO_LONG
        pool = config.max_total_num_tokens // config.page_size * config.page_size
        if prompt >= config.max_req_len - _SPARE_INPUT or prompt + config.page_size >= pool:
            return Refusal.BEYOND_POOL
        return None

    def add(
        self, request: Request, *, max_new_tokens: int | None = None, ignore_eos: bool | None = None
    ) -> RadixSequence:
        """Queue a request.

        Args:
            request: What arrived.
            max_new_tokens: What it asks for at most; that of the settings when not given.
            ignore_eos: It forbids its answer to end earlier; as the settings say when not given.
        """
        config = self.config
        if max_new_tokens is None:
            max_new_tokens = (
                request.output_tokens if config.max_new_tokens is None else config.max_new_tokens
            )
        paged = self.cache.pages(request.prompt_tokens)
        most = min(
            max_new_tokens,
            config.max_req_len - request.prompt_tokens - 1,
            config.max_total_num_tokens - paged - config.page_size - 1,
        )
        sequence = RadixSequence(
            request,
            self._added,
            max_new_tokens=max(0, most),
            ignore_eos=config.ignore_eos if ignore_eos is None else ignore_eos,
        )
        self._added += 1
        self._live += 1
        self._come.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """End a request early; one that runs ends with the next result, as in SGLang."""
        assert isinstance(sequence, RadixSequence)
        if sequence in self._come or sequence in self.waiting:
            (self._come if sequence in self._come else self.waiting).remove(sequence)
            sequence.status = Status.ABORTED
            self._live -= 1
        elif not sequence.ended:
            sequence.aborted = True

    # -- the next step ----------------------------------------------------------------------------

    def schedule(self) -> SglangPlan:
        """Decide the next step: prompts as long as any can be let in, answers otherwise."""
        self._receive()
        self._merge()
        plan = self._new_prefill() or self._decode() or SglangPlan()
        plan.used_blocks = self.used_tokens // self.config.page_size
        plan.num_waiting = len(self.waiting) + len(self._come)
        plan.num_running = self._live - plan.num_waiting
        self._last = plan if plan.sequences else None
        if plan.sequences and self.config.overlap_schedule:
            self._in_flight = plan
        return plan

    def _receive(self) -> None:
        """Queue who has come, if it is time to look (``SchedulerRecvSkipper``).

        It is after a step of prompts, and while there is nothing else to do.
        """
        last = self._last
        self._steps_unreceived += 1
        idle = self._live == len(self._come) and self._in_flight is None
        if idle:
            self.ratio.reset()  # an idle loop turned meanwhile (on_idle)
        if (
            idle
            or (last is not None and last.extends)
            or self._steps_unreceived >= self.config.scheduler_recv_interval
        ):
            self._steps_unreceived = 0
            self.waiting.add(self._come)
            self._come = []

    def _merge(self) -> None:
        """Let those whose prompts the last step computed run on, and drop those that have ended."""
        chunked = self.chunked
        if chunked is not None and chunked.aborted:
            self._end_chunked(chunked)
            chunked = None
        if chunked is not None and chunked.extend_end > chunked.prefix:
            self._checkpoint(chunked)
        last = self._last
        if last is not None and last.extends:
            stay = [
                sequence
                for sequence in last.rows
                if not sequence.ended and sequence is not chunked and sequence is not last.chunked
            ]
            if len(stay) < len(last.rows):
                self.full = False
            if stay and not self.running:
                self.full = False
            self.running = self.running + stay
        if self._some_ended:
            self._some_ended = False
            self._run_on([sequence for sequence in self.running if not sequence.ended])

    def _run_on(self, stay: list[RadixSequence]) -> None:
        """Let only these run on; where somebody leaves, others may be let in."""
        if len(stay) < len(self.running):
            self.running = stay
            self.full = False

    def _end_chunked(self, sequence: RadixSequence) -> None:
        sequence.status = Status.ABORTED
        self._release(sequence)
        self.chunked = None
        self._live -= 1

    def _checkpoint(self, sequence: RadixSequence) -> None:
        """Cache what a step computed of a prompt; the next step of it starts there."""
        self.cache.checkpoint(sequence, sequence.extend_end)
        sequence.prefix = sequence.extend_end

    def _release(self, sequence: RadixSequence) -> None:
        self.cache.release(sequence)
        self._free_rows += 1

    # -- steps of prompts -------------------------------------------------------------------------

    def _new_prefill(self) -> SglangPlan | None:
        config, running, chunked = self.config, self.running, self.chunked
        if not running:
            self.full = False
        if chunked is None and (self.full or not self.waiting):
            return None
        if chunked is None and self._places(0) <= 0:
            self.full = True
            return None
        self.waiting.order()
        adder = PrefillAdder(
            self.cache,
            running,
            new_token_ratio=self.ratio.value,
            max_prefill_tokens=config.max_prefill_tokens,
            chunked_prefill_size=config.chunked_prefill_size,
            prefill_max_requests=config.prefill_max_requests,
            mixed_tokens=len(running) if self._mixes else 0,
        )
        if chunked is not None:
            self.chunked = adder.go_on(chunked)
        held = len(adder.admitted)
        for sequence in self.waiting:
            if adder.verdict() is Verdict.OTHER:
                break
            if len(adder.admitted) >= self._places(held):
                self.full = True
            if self.full:
                break
            self.cache.look_up(sequence, sequence.tokens - 1)
            verdict = adder.add(sequence)
            if verdict is Verdict.NO_TOKEN:
                self.full = bool(adder.admitted or running)
            if verdict is not Verdict.CONTINUE:
                break
        if not adder.admitted:
            return None
        self.waiting.pop(len(adder.admitted) - held)
        if adder.chunked is not None:
            self.chunked = adder.chunked
        if self.chunked is not None:
            self.chunked.middle_chunks += 1
        plan = self._plan_prefill(adder, held)
        if self._mixes and running:
            self._mix(plan)
        return plan

    @property
    def _mixes(self) -> bool:
        return self.config.enable_mixed_chunk and self.config.chunked_prefill_size is not None

    def _places(self, held: int) -> int:
        """Requests that a step of prompts may have; ``held`` of them have their row already."""
        return min(
            self.config.max_running_requests - len(self.running),
            max(self._free_rows + held, 0),
        )

    def _plan_prefill(self, adder: PrefillAdder, held: int) -> SglangPlan:
        cache, page = self.cache, self.config.page_size
        plan = SglangPlan()
        plan.extends = True
        plan.chunked = self.chunked
        new = paged = 0
        for index, sequence in enumerate(adder.admitted):
            start, end = sequence.prefix, sequence.extend_end
            new += end - start
            paged += cache.pages(end) - cache.pages(start)
            plan.sequences.append(sequence)
            plan.tokens.append(end - start)
            plan.contexts.append(start)
            if index >= held:
                self._free_rows -= 1
                if sequence.status is Status.PREEMPTED:
                    plan.resumed.append(sequence)
                else:
                    plan.admitted.append(sequence)
                    sequence.hit_tokens = start
                sequence.status = Status.RUNNING
            sequence.allocated = end
        cache.make_free(new if page == 1 else new + page * len(adder.admitted))
        cache.take(paged)
        if self.chunked is not None:
            plan.silent.append(self.chunked)
        return plan

    def _mix(self, plan: SglangPlan) -> None:
        """Let running requests go on beside the prompts, where they have room."""
        self._run_on(self._not_ending())
        if self.running and self._has_room(self.running):
            plan.decoding.update(self.running)
            self._go_on(plan)
            self.running = []

    # -- steps of answers -------------------------------------------------------------------------

    def _decode(self) -> SglangPlan | None:
        if not any(sequence.max_new_tokens for sequence in self.running):
            return None  # nobody, or none that goes on after its prompt
        stay = self._not_ending()
        some_end = len(stay) < len(self.running)
        self._run_on(stay)
        if not stay:
            return None
        plan = SglangPlan()
        if self._has_room(stay):
            self.ratio.decay()
        elif some_end:
            return None  # what ends makes room with the next result
        else:
            self._retract(plan)
        self._go_on(plan)
        return plan

    def _not_ending(self) -> list[RadixSequence]:
        """Running requests without those whose last token by length is in flight."""
        if self._in_flight is None:
            return self.running
        ending = [
            sequence for sequence in self.running if sequence.tokens + 1 >= sequence.most_tokens
        ]
        if not ending:
            return self.running
        gone = set(ending).intersection(self._in_flight.rows)
        return [sequence for sequence in self.running if sequence not in gone]

    def _has_room(self, sequences: list[RadixSequence]) -> bool:
        """Whether each can have one more token, cached runs dropped if need be."""
        page = self.config.page_size
        pages = len(sequences)
        if page > 1:
            pages = sum(1 for sequence in sequences if not sequence.allocated % page)
        return self.cache.make_free(pages * page)

    def _go_on(self, plan: SglangPlan) -> None:
        """Let running requests compute a token each."""
        page, running = self.config.page_size, self.running
        contexts = [sequence.allocated for sequence in running]
        for sequence in running:
            sequence.allocated += 1
        plan.rows += running
        plan.tokens += [1] * len(running)
        plan.contexts += contexts
        self.cache.make_free(page * len(running))  # as if each needed a new page
        new = len(running)
        if page > 1:
            new = page * sum(1 for context in contexts if not context % page)
        self.cache.take(new)

    def _retract(self, plan: SglangPlan) -> None:
        """Take the tokens of those with the shortest answers until the others can go on.

        Source: ``retract_decode`` of ``managers/schedule_batch.py``.
        """
        stay = sorted(
            range(len(self.running)),
            key=lambda index: (self.running[index].answered, -self.running[index].prompt_tokens),
            reverse=True,
        )
        retracted: list[RadixSequence] = []
        while not retracted or not self._has_room([self.running[index] for index in stay]):
            if len(stay) == 1:
                break
            victim = self.running[stay.pop()]
            self._release(victim)
            self.cache.make_free(len(stay) * RETRACT_STEPS)
            victim.prefix = 0
            victim.last_node = None
            victim.middle_chunks = 0
            victim.status = Status.PREEMPTED
            victim.preemptions += 1
            retracted.append(victim)
        self._run_on([self.running[index] for index in stay])
        plan.preempted += retracted
        self.ratio.retracted(self.running)
        self.waiting.add(retracted)

    # -- results ----------------------------------------------------------------------------------

    def complete(self, plan: StepPlan) -> list[Sequence]:
        """Take in the tokens of a step, in its order; gives what it finished."""
        assert isinstance(plan, SglangPlan)
        if plan is self._in_flight:
            self._in_flight = None
        finished: list[Sequence] = []
        running = Status.RUNNING
        for sequence in plan.rows:
            if sequence.middle_chunks > 0:
                sequence.middle_chunks -= 1
                continue
            if sequence.status is not running:
                plan.silent.append(sequence)  # it was computed in vain
                continue
            sequence.tokens += 1
            if sequence.tokens >= sequence.last_tokens or sequence.aborted:
                self._finish(sequence)
                finished.append(sequence)
            elif plan.extends and sequence not in plan.decoding:
                self._checkpoint(sequence)
        return finished

    def _finish(self, sequence: RadixSequence) -> None:
        sequence.status = Status.FINISHED
        self._some_ended = True
        self.cache.checkpoint(sequence, min(sequence.allocated, sequence.tokens))
        self._release(sequence)
        self._live -= 1
