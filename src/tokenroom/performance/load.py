"""What clients of a server see at a steady load: TTFT, TPOT and throughput, in closed form.

``concurrency`` clients each keep one request in flight. In the time from one request of a client to
its next, every other client's request is replaced once on average, so that prompts pass by at an
even rate, beside the decoding requests. Engines that mix prompts
with decoding run them in one step within a token budget (chunked prefill, arXiv:2308.16369);
others run prompts alone and decoding waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from tokenroom.errors import DeploymentError
from tokenroom.performance.admission import held
from tokenroom.performance.drafting import verifying
from tokenroom.performance.host import first_token_ends
from tokenroom.performance.replica import Replica, TimedStep, range_of, scaled, stage_range
from tokenroom.performance.step_time import StepTime
from tokenroom.performance.work import Chunk, StepWork

_ROUNDS: Final = 2
"""Times the share of clients that decode is found anew; it moves by less than 1% after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Alike requests of clients that each keep one in flight.

    Attributes:
        input_tokens: Prompt of a request.
        output_tokens: Tokens it gets.
        concurrency: Clients of one replica (all its data-parallel ranks).
        waves: Requests each client sends; all send their first at once, which then queue. None
            for a server long in use.
        lengths_vary: Requests end at different times, as real ones do. When all are alike, an
            engine that runs prompts alone keeps them in step with each other for good: they all
            begin to decode when the last prompt is done, and end together. One that mixes them
            with decoding keeps them in trains: requests whose prompts filled one step end in one
            step, those of the next step in the next, and their successors' prompts fill steps one
            after another again, each behind the one before.

    Raises:
        DeploymentError: A count is not positive.
    """

    input_tokens: int
    output_tokens: int
    concurrency: int
    waves: int | None = None
    lengths_vary: bool = True

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "concurrency", "waves"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DeploymentError(f"{name} is {value}; it must be 1 or more")


class FirstTokenParts(NamedTuple):
    """What the mean time to the first token is made of, in seconds; the parts add up to it.

    Attributes:
        arrival: What comes before the first step: HTTP, tokenising.
        steps: Steps that hold its own prompt, with all that shares them.
        gathered: Steps of prompts that were let in beside it and go first, on average.
        progress: The step in progress, those prepared ahead, and what holds requests back.
        prompts: Waiting for prompts of others that fill every step.
        room: Waiting until another request ends.
        burst: Its share of the first requests, which all came at once.
    """

    arrival: float
    steps: float
    gathered: float
    progress: float
    prompts: float
    room: float
    burst: float


_Step = TypeVar("_Step", bound=TimedStep)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOf(Generic[_Step]):
    """What a load sees.

    Attributes:
        ttft_seconds: Mean time to the first token.
        ttft_low_seconds: Lower end of its range.
        ttft_high_seconds: Upper end.
        tpot_seconds: Mean time of each further token.
        tpot_low_seconds: Lower end of its range.
        tpot_high_seconds: Upper end.
        output_tokens_per_second: Of the replica.
        tokens_per_second_per_user: What one client sees while it decodes.
        tokens_per_second_per_accelerator: Output over all accelerators.
        requests_per_second: Of the replica.
        running: Requests that run at once, on average, of one data-parallel rank.
        decode: A step without prompts.
        prefill: A step with a prompt, and the decoding requests where the engine mixes them.
        prefill_share: Of the TPOT, what steps with prompts take.
        decode_share: Of the TPOT, what steps would take without prompts of others.
        first_token: What the TTFT is made of.
        prompts_bound: Prompts fill the steps, so that no more requests come to decode: further
            clients wait for their first token.
    """

    ttft_seconds: float
    ttft_low_seconds: float
    ttft_high_seconds: float
    tpot_seconds: float
    tpot_low_seconds: float
    tpot_high_seconds: float
    output_tokens_per_second: float
    tokens_per_second_per_user: float
    tokens_per_second_per_accelerator: float
    requests_per_second: float
    running: float
    decode: _Step
    prefill: _Step
    prefill_share: float
    decode_share: float
    first_token: FirstTokenParts
    prompts_bound: bool


Speed: TypeAlias = SpeedOf[StepTime]


def speed(replica: Replica, load: Load) -> Speed:
    """TTFT, TPOT and throughput of one replica under a load; see :func:`speed_by`.

    Raises:
        DeploymentError: The layout does not divide the model, or it has parts whose speed is not
            modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    return speed_by(replica.step, replica, load)


def speed_by(step_of: Callable[[StepWork], _Step], replica: Replica, load: Load) -> SpeedOf[_Step]:
    """TTFT, TPOT and throughput of one replica under a load, whose steps ``step_of`` times.

    A request decodes at a mean context of its prompt and half its output, in as many steps as it
    has tokens after its first. While it decodes, the prompts of all others pass by: they lengthen
    the steps they are in. A request whose predecessor ends waits for the step in progress, and for
    the one that an asynchronous scheduler has prepared meanwhile; then its prompt shares a step
    with those that ended in the same step. Requests beyond ``max_num_seqs`` wait until another
    ends. Raises what ``step_of`` raises.
    """
    host, mixed = replica.host, replica.shares_steps
    layout, drafting, budget = replica.layout, replica.drafting, replica.max_num_batched_tokens
    copies, stages = layout.data_parallel_size, layout.pipeline_parallel_size
    isl, osl = load.input_tokens, load.output_tokens
    clients = load.concurrency / copies
    most_running = replica.max_num_seqs
    admitted = clients if most_running is None else min(clients, most_running)
    gains = drafting.tokens_per_step if drafting is not None else (1.0, 1.0, 1.0)
    rows = drafting.verified if drafting is not None else 1
    turns = (osl - 1) / gains[0]  # decode steps of a request
    context = isl + osl / 2
    arrival = replica.arrival_seconds(isl)
    ahead = 1.5 if replica.asynchronous else 0.5  # half the step in progress, and the one prepared
    size, pieces = replica.chunks(isl)

    def step(prompts: float, decoding: float) -> _Step:
        """A step of one of the ``stages`` groups of requests that follow each other."""
        tokens = round(min(prompts * size, budget))
        chunks: tuple[Chunk, ...] = ()
        if tokens:
            whole = max(1, round(tokens / size))
            chunks = (Chunk(ceil(tokens / whole), (isl - size) // 2),) * whole
        sequences = round(decoding / stages)
        work = StepWork(
            prefill=chunks,
            decode_sequences=max(sequences, 0 if chunks else 1),
            decode_context_tokens=context,
            other_tokens=(copies - 1) * (tokens + sequences * rows),
        )
        return step_of(work if drafting is None else verifying(work, drafting))

    most = max(1.0, budget * pieces / isl)  # chunks that one step holds
    trains = mixed and not load.lengths_vary
    # steps from a client's request to its next; prompts that fill every step leave no shorter way
    shortest = admitted * pieces / stages / most if mixed else 0.0
    cycle_steps = max(turns + 1 + ahead, shortest)
    prompts_bound = False
    for _ in range(_ROUNDS):
        decoding = admitted * turns / cycle_steps
        # others' prompts a step, on average: one's own is behind when one decodes
        rate = max(0.0, admitted - 1) / stages / cycle_steps
        late = held(replica.admission, rate, copies)
        arrivals = rate * pieces
        group = _met(rate * late.window_steps)  # prompts that are let in at once
        together = min(_met(arrivals * late.window_steps), most)
        if trains:
            group = together = max(1.0, min(admitted, float(int(most))))
        batches = max(1.0, group / max(1.0, most / pieces))  # that the budget divides them into
        decode = step(0, decoding)
        prefill = step(together, decoding if mixed else 0)
        extra = arrivals / together
        if mixed:
            extra = min(1.0, extra)
        groups = min(float(stages), max(1.0, decoding))  # of requests, in the pipeline at once
        kept = 1 - extra if mixed else 1.0  # decode steps beside those with prompts
        times = [
            extra * with_prompts + kept * plain
            for with_prompts, plain in zip(
                _cycle(prefill, groups), _cycle(decode, groups), strict=True
            )
        ]
        behind = 1.0  # what each further chunk of a prompt adds, of a whole step
        if stages > 1 and host.pipelines_chunks:
            behind = prefill.stage_seconds / prefill.seconds
        passes = 1 + (pieces - 1) * behind  # steps that a prompt takes
        waits = [
            passes * (1 + batches) / 2 * own
            + late.wait_steps * between
            + ahead * (own if trains else between)
            + arrival
            for own, between in zip(range_of(prefill), times, strict=True)
        ]
        prefill_share = extra * _cycle(prefill, groups)[0] / times[0]
        parts = FirstTokenParts(
            arrival=arrival,
            steps=passes * prefill.seconds,
            gathered=passes * (batches - 1) / 2 * prefill.seconds,
            progress=late.wait_steps * times[0] + ahead * (prefill.seconds if trains else times[0]),
            prompts=0.0,
            room=0.0,
            burst=0.0,
        )
        cycle_steps = turns + waits[0] / times[0]
        prompts_bound = cycle_steps < shortest
        if prompts_bound:  # prompts are the narrow place, and the others wait for them
            cycle_steps = shortest
            waits = [
                max(own, (shortest - turns) * between)
                for own, between in zip(waits, times, strict=True)
            ]
            parts = parts._replace(prompts=waits[0] - sum(parts))
    decoding = max(1.0, admitted * turns / cycle_steps)
    in_step = not (mixed or load.lengths_vary)
    alone = step(1, 0) if in_step or load.waves is not None else prefill
    if in_step:
        queue = (admitted - 1) / 2  # prompts before and after one's own, on average
        between_tokens = queue * pieces / max(1.0, turns)
        times = [
            plain + between_tokens * each
            for each, plain in zip(stage_range(alone, stages), _cycle(decode, groups), strict=True)
        ]
        waits = [
            own + ((queue + 1) * pieces - 1) * each + arrival
            for own, each in zip(range_of(alone), stage_range(alone, stages), strict=True)
        ]
        prefill_share = between_tokens * stage_range(alone, stages)[0] / times[0]
        decoding = admitted
        own_steps = alone.seconds + (pieces - 1) * stage_range(alone, stages)[0]
        parts = parts._replace(
            steps=own_steps, gathered=waits[0] - own_steps - arrival, progress=0.0, prompts=0.0
        )
    decode_share = _cycle(decode, groups)[0] / times[0]
    times = [
        between / gained
        for between, gained in zip(times, (gains[0], gains[2], gains[1]), strict=True)
    ]
    cycle = waits[0] + (osl - 1) * times[0]
    rounds = (clients - admitted) / admitted  # of requests that one in the queue waits for
    share = 0.0 if load.waves is None or in_step else 1 / load.waves
    # all first prompts come at once: the mean one waits for half of the others
    first = (clients - 1) / 2 * pieces * stage_range(alone, stages)[0]
    firsts = [
        wait + (wait + (osl - 1) * between) * rounds + share * first
        for wait, between in zip(waits, times, strict=True)
    ]
    first_low, first_high = first_token_ends(
        host, firsts[1], firsts[2], passes * (alone if in_step else prefill).low_seconds
    )
    parts = parts._replace(room=cycle * rounds, burst=share * first)
    requests = load.concurrency / (cycle * (1 + rounds))
    output = requests * osl
    return SpeedOf(
        ttft_seconds=firsts[0],
        ttft_low_seconds=first_low,
        ttft_high_seconds=first_high,
        tpot_seconds=times[0],
        tpot_low_seconds=times[1],
        tpot_high_seconds=times[2],
        output_tokens_per_second=output,
        tokens_per_second_per_user=1 / times[0],
        tokens_per_second_per_accelerator=output / layout.accelerators,
        requests_per_second=requests,
        running=decoding,
        decode=decode,
        prefill=prefill,
        prefill_share=prefill_share,
        decode_share=decode_share,
        first_token=parts,
        prompts_bound=prompts_bound,
    )


def _met(arrivals: float) -> float:
    """How many arrive together where any do, when they arrive independently."""
    return arrivals / (1 - exp(-arrivals)) if arrivals else 1.0


def _cycle(step: TimedStep, groups: float) -> tuple[float, float, float]:
    """Seconds from one step of a group of requests to its next, in a pipeline of such groups.

    The group passes every stage; where ``groups`` follow each other, the slowest stage lets each of
    them through once in that time. Engines keep as many as there are stages (vLLM 0.33
    ``max_concurrent_batches``, SGLang 0.5.23 ``pp_loop_size``, TensorRT-LLM ``num_micro_batches``).
    """
    return scaled(step, max(1.0, groups * step.stage_seconds / step.seconds))
