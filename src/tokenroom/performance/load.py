"""What clients of a server see at a steady load: TTFT, TPOT and throughput, in closed form.

``concurrency`` clients each keep one request in flight. In the time a request takes for its
``output_tokens`` steps, every other client's request is replaced once on average, so each step
carries concurrency / output_tokens prompts beside the decoding requests. Engines that mix prompts
with decoding run them in one step within a token budget (chunked prefill, arXiv:2308.16369);
others run prompts alone and decoding waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from typing import Final, NamedTuple

from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.admission import AT_ONCE, Admission, held
from tokenroom.performance.drafting import Drafting, verifying
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import arrival_seconds, first_token_ends, host_cost
from tokenroom.performance.step_time import StepTime, step_time
from tokenroom.performance.work import Chunk, Layout, StepWork

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
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
    decode: StepTime
    prefill: StepTime
    prefill_share: float
    decode_share: float
    first_token: FirstTokenParts
    prompts_bound: bool


def ttft(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    input_tokens: int,
    *,
    engine: str = "any",
    max_num_batched_tokens: int = 8192,
    kv_dtype: str | None = None,
) -> float:
    """Seconds to the first token of one request on an idle server.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    return ttft_range(
        spec,
        layout,
        accelerator,
        input_tokens,
        engine=engine,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_dtype=kv_dtype,
    )[0]


def ttft_range(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    input_tokens: int,
    *,
    engine: str = "any",
    max_num_batched_tokens: int = 8192,
    kv_dtype: str | None = None,
) -> tuple[float, float, float]:
    """What :func:`ttft` gives, with the lower and the upper end of its range.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    size, steps = prompt_chunks(input_tokens, max_num_batched_tokens)
    work = StepWork(prefill=(Chunk(size, (input_tokens - size) // 2),))
    one = _range(step_time(spec, layout, accelerator, work, engine=engine, kv_dtype=kv_dtype))
    arrival = arrival_seconds(host_cost(engine), input_tokens)
    value, low, high = (steps * seconds + arrival for seconds in one)
    return value, *first_token_ends(host_cost(engine), low, high, steps * one[1])


def tpot(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    context_tokens: float,
    sequences: int,
    *,
    engine: str = "any",
    kv_dtype: str | None = None,
) -> float:
    """Seconds of one decode step of ``sequences`` requests, with no prompts beside them.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    return tpot_range(
        spec, layout, accelerator, context_tokens, sequences, engine=engine, kv_dtype=kv_dtype
    )[0]


def tpot_range(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    context_tokens: float,
    sequences: int,
    *,
    engine: str = "any",
    kv_dtype: str | None = None,
) -> tuple[float, float, float]:
    """What :func:`tpot` gives, with the lower and the upper end of its range.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    work = StepWork(
        decode_sequences=sequences,
        decode_context_tokens=context_tokens,
        other_tokens=sequences * (layout.data_parallel_size - 1),
    )
    return _range(step_time(spec, layout, accelerator, work, engine=engine, kv_dtype=kv_dtype))


def prompt_chunks(tokens: int, budget: int) -> tuple[int, int]:
    """Mean size of a prompt's chunks, and how many there are."""
    steps = max(1, ceil(tokens / budget))
    return ceil(tokens / steps), steps


def speed(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    load: Load,
    *,
    engine: str = "any",
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int | None = None,
    admission: Admission = AT_ONCE,
    kv_dtype: str | None = None,
    cuda_graphs: bool = True,
    asynchronous: bool = True,
    drafting: Drafting | None = None,
    mixes: bool | None = None,
    factors: Factors = UNCALIBRATED,
) -> Speed:
    """TTFT, TPOT and throughput of one replica under a load.

    A request decodes at a mean context of its prompt and half its output. While it decodes, the
    prompts of all others pass by: they lengthen the steps they are in. A request whose
    predecessor ends waits for the step in progress, and for the one that an asynchronous scheduler
    has prepared meanwhile; then its prompt shares a step with those that
    ended in the same step. Requests beyond ``max_num_seqs`` wait until another ends.

    Args:
        spec: The model, as it is loaded.
        layout: How it is divided.
        accelerator: The kind of GPU.
        load: The requests.
        engine: ``"vllm"``, ``"sglang"``, ``"tensorrt_llm"``, ``"llama_cpp"`` or any other.
        max_num_batched_tokens: Token budget of a step of one data-parallel rank.
        max_num_seqs: Requests that one data-parallel rank runs at once at most, by setting or by
            its KV pool; None for no bound.
        admission: What holds new requests back.
        kv_dtype: Type of the cache, None for the checkpoint's.
        cuda_graphs: Decode steps are replayed from graphs.
        asynchronous: The host prepares a step while the accelerators run the one before.
        drafting: How tokens are drafted, so that a step yields several of a request; None for one.
        mixes: Prompts share steps with decoding requests; what the engine does when None.
        factors: Those of the machine, where it was calibrated.

    Raises:
        DeploymentError: The layout does not divide the model, or it has parts whose speed is not
            modelled.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    host = host_cost(engine).scaled(factors)
    mixed = host.mixes if mixes is None else mixes
    copies, stages = layout.data_parallel_size, layout.pipeline_parallel_size
    isl, osl = load.input_tokens, load.output_tokens
    clients = load.concurrency / copies
    admitted = clients if max_num_seqs is None else min(clients, max_num_seqs)
    gains = drafting.tokens_per_step if drafting is not None else (1.0, 1.0, 1.0)
    rows = drafting.verified if drafting is not None else 1
    turns = osl / gains[0]  # decode steps of a request
    context = isl + osl / 2
    arrival = arrival_seconds(host, isl)
    ahead = 1.5 if asynchronous else 0.5  # half the step in progress, and the one prepared

    def step(prompts: float, decoding: float) -> StepTime:
        """A step of one of the ``stages`` groups of requests that follow each other."""
        size, _ = prompt_chunks(isl, max_num_batched_tokens)
        tokens = round(min(prompts * size, max_num_batched_tokens))
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
        if drafting is not None:
            work = verifying(work, drafting)
        return step_time(
            spec,
            layout,
            accelerator,
            work,
            engine=engine,
            kv_dtype=kv_dtype,
            cuda_graphs=cuda_graphs,
            asynchronous=asynchronous,
            drafting=drafting,
            factors=factors,
        )

    _, pieces = prompt_chunks(isl, max_num_batched_tokens)
    most = max(1.0, max_num_batched_tokens * pieces / isl)  # chunks that one step holds
    trains = mixed and not load.lengths_vary
    bound = most * turns * stages / pieces if mixed else admitted  # prompts keep no more busy
    decoding = min(admitted, bound)
    prompts_bound = False
    for _ in range(_ROUNDS):
        # others' prompts a step, on average: one's own is behind when one decodes
        rate = max(0.0, decoding - 1) / stages / turns
        late = held(admission, rate, copies)
        arrivals = rate * pieces
        group = _met(rate * late.window_steps)  # prompts that are let in at once
        together = min(_met(arrivals * late.window_steps), most)
        if trains:
            group = together = max(1.0, min(admitted, float(int(most))))
        batches = max(1.0, group / max(1.0, most / pieces))  # that the budget divides them into
        decode = step(0, decoding)
        prefill = step(together, decoding if mixed else 0)
        extra = arrivals / together
        groups = min(float(stages), decoding)  # of requests, in the pipeline at once
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
            for own, between in zip(_range(prefill), times, strict=True)
        ]
        prefill_share = extra * _cycle(prefill, groups)[0] / times[0]
        decoding = max(1.0, admitted * (turns * times[0]) / (turns * times[0] + waits[0]))
        parts = FirstTokenParts(
            arrival=arrival,
            steps=passes * prefill.seconds,
            gathered=passes * (batches - 1) / 2 * prefill.seconds,
            progress=late.wait_steps * times[0] + ahead * (prefill.seconds if trains else times[0]),
            prompts=0.0,
            room=0.0,
            burst=0.0,
        )
        prompts_bound = decoding > bound
        if prompts_bound:  # prompts are the narrow place, and the others wait for them
            decoding = bound
            waits = [
                max(own, turns * between * (admitted / bound - 1))
                for own, between in zip(waits, times, strict=True)
            ]
            parts = parts._replace(prompts=waits[0] - sum(parts))
    in_step = not (mixed or load.lengths_vary)
    alone = step(1, 0) if in_step or load.waves is not None else prefill
    if in_step:
        queue = (admitted - 1) / 2  # prompts before and after one's own, on average
        times = [
            plain + queue * pieces * each / turns
            for each, plain in zip(_stage_range(alone, stages), _cycle(decode, groups), strict=True)
        ]
        waits = [
            own + ((queue + 1) * pieces - 1) * each + arrival
            for own, each in zip(_range(alone), _stage_range(alone, stages), strict=True)
        ]
        prefill_share = queue * pieces * _stage_range(alone, stages)[0] / turns / times[0]
        decoding = admitted
        own_steps = alone.seconds + (pieces - 1) * _stage_range(alone, stages)[0]
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
    first = (clients - 1) / 2 * pieces * _stage_range(alone, stages)[0]
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
    return Speed(
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


def burst_ttft(
    spec: ModelSpec,
    layout: Layout,
    accelerator: Accelerator,
    input_tokens: int,
    prompts: int,
    *,
    engine: str = "any",
    max_num_batched_tokens: int = 8192,
    kv_dtype: str | None = None,
) -> tuple[float, float, float]:
    """Seconds until the last of ``prompts`` that reach an idle server at once has its first token.

    Steps are filled up to the token budget one after another (chunked prefill), so what counts is
    the tokens of all prompts of one data-parallel rank. In a pipeline they follow each other as
    the slowest stage lets them.

    Returns:
        The estimate and the ends of its range.

    Raises:
        DeploymentError: The layout does not divide the model.
        HardwareError: A peak or bandwidth that it needs is not known.
    """
    own = ceil(prompts / layout.data_parallel_size)
    size, pieces = prompt_chunks(input_tokens, max_num_batched_tokens)
    together = min(own * pieces, max(1, max_num_batched_tokens // size))
    steps, left = divmod(own * pieces, together)

    def step(chunks: int) -> StepTime:
        work = StepWork(
            prefill=(Chunk(size, (input_tokens - size) // 2),) * chunks,
            other_tokens=chunks * size * (layout.data_parallel_size - 1),
        )
        return step_time(spec, layout, accelerator, work, engine=engine, kv_dtype=kv_dtype)

    full, stages = step(together), layout.pipeline_parallel_size
    last = _stage_range(step(left), stages) if left else (0.0, 0.0, 0.0)
    arrival = arrival_seconds(host_cost(engine), input_tokens)
    value, low, high = (
        first + (steps - 1) * further + rest + arrival
        for first, further, rest in zip(_range(full), _stage_range(full, stages), last, strict=True)
    )
    return value, *first_token_ends(host_cost(engine), low, high, low - arrival)


def _met(arrivals: float) -> float:
    """How many arrive together where any do, when they arrive independently."""
    return arrivals / (1 - exp(-arrivals)) if arrivals else 1.0


def _range(step: StepTime) -> tuple[float, float, float]:
    return step.seconds, step.low_seconds, step.high_seconds


def _cycle(step: StepTime, groups: float) -> tuple[float, float, float]:
    """Seconds from one step of a group of requests to its next, in a pipeline of such groups.

    The group passes every stage; where ``groups`` follow each other, the slowest stage lets each of
    them through once in that time. Engines keep as many as there are stages (vLLM 0.33
    ``max_concurrent_batches``, SGLang 0.5.23 ``pp_loop_size``, TensorRT-LLM ``num_micro_batches``).
    """
    return _scaled(step, max(1.0, groups * step.stage_seconds / step.seconds))


def _stage_range(step: StepTime, stages: int) -> tuple[float, float, float]:
    """Seconds until the next group may follow: the whole step, or the slowest stage's part."""
    return _scaled(step, step.stage_seconds / step.seconds if stages > 1 else 1.0)


def _scaled(step: StepTime, factor: float) -> tuple[float, float, float]:
    value, low, high = _range(step)
    return value * factor, low * factor, high * factor
