"""The second question: how fast does a deployment that fits serve, and what holds it back.

:func:`speed` is the front door for Python, and the command line calls it too. It asks
:func:`tokenroom.fitting.fit` for the deployment, so that the token budget of a step, the requests
that run at once and the division over GPUs are the engine's own, and hands them to
:func:`tokenroom.performance.load.speed`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, TokenroomError, shown
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.idle import ttft
from tokenroom.performance.load import Load, Speed
from tokenroom.performance.load import speed as load_speed
from tokenroom.performance.step_time import StepTime, operator_times
from tokenroom.profiles import Applied, Profile, Served, applied
from tokenroom.serving_terms import Terms, check_engine, models_speed, replica_of, terms_of
from tokenroom.step_ledger import LIMITERS, StepLedger, step_ledger
from tokenroom.units import MAX_TOKENS

MAX_CONCURRENCY: Final = 1_000_000
MAX_NUM_PROMPTS: Final = 1_000_000_000
_TOKENS: Final = 1_000_000  # the unit that output is priced by
_SECONDS_AN_HOUR: Final = 3600
_USUAL_TOKENS: Final = 1024 + 256
USUAL_CLIENTS: Final = 32
"""Clients where none are asked for, as far as they all run at once."""


class DoesNotFitError(DeploymentError):
    """The engine would not start, so there is no speed; ``fit`` says why."""

    def __init__(self, result: FitResult) -> None:
        node = result.deployment.node
        super().__init__(
            f"{result.deployment.spec.name} does not fit on {node.count} x "
            f"{node.accelerator.name}, so it has no speed; tokenroom fit says what would fit"
        )
        self.fit = result


class Range(NamedTuple):
    """A figure and the range that is predicted for measurements of it.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def divided(self, by: float) -> Range:
        """Each figure over ``by``."""
        return Range(self.value / by, self.low / by, self.high / by)

    def over(self, dividend: float) -> Range:
        """``dividend`` over each figure, which turns the ends around."""
        return Range(dividend / self.value, dividend / self.high, dividend / self.low)


class TokenParts(NamedTuple):
    """What the mean time of a further token is made of, in seconds; the parts add up to it.

    Attributes:
        decode: The accelerators' part of the steps that yield it, without prompts.
        host: The host's part of those steps.
        prompts: What prompts of other requests add, in the same steps or between them.
    """

    decode: float
    host: float
    prompts: float


class FirstParts(NamedTuple):
    """What the mean time to the first token is made of, in seconds; the parts add up to it.

    Attributes:
        arrival: What comes before the first step: HTTP, tokenising.
        prompt: Its own prompt, as alone on the accelerators.
        others: What shares its steps, and prompts that go before it.
        progress: Waiting for the step in progress, those prepared ahead and what the scheduler
            holds back.
        room: Waiting until another request ends.
        burst: Its share of a benchmark's first requests, which all come at once.
    """

    arrival: float
    prompt: float
    others: float
    progress: float
    room: float
    burst: float


class Arrivals(NamedTuple):
    """Requests that come at a rate, independently of answers (Poisson).

    Attributes:
        requests_per_second: The rate.
        capacity: Requests a second that the deployment serves at most.
    """

    requests_per_second: float
    capacity: float

    @property
    def falls_behind(self) -> bool:
        """More come than are served, so that the queue grows for as long as they do."""
        return self.requests_per_second > self.capacity


@dataclass(frozen=True, kw_only=True, repr=False)
class ServingSpeed:
    """What clients of a deployment see.

    Attributes:
        fit: The deployment and its memory.
        terms: What its settings mean for speed.
        load: Requests of one replica.
        concurrency: Clients that each keep one request in flight, over all replicas.
        predicted: The step-time model's answer for one replica.
        price_per_gpu_hour: In USD, None when not given.
        calibration: What a profile of the machine means for it, None without one.
        num_prompts: Requests of a benchmark in all, whose first come at once, one of each client;
            None for a steady load.
        arrivals: The rate at which requests come, where one was asked about; ``concurrency`` is
            then the mean number in flight, or where they fall behind as many as run at once.
        assumed: ``concurrency`` was not asked for.
    """

    fit: FitResult
    terms: Terms
    load: Load
    concurrency: int
    predicted: Speed
    price_per_gpu_hour: float | None = None
    calibration: Applied | None = None
    num_prompts: int | None = None
    arrivals: Arrivals | None = None
    assumed: bool = False

    @property
    def factors(self) -> Factors:
        """Those of the machine, where it was calibrated."""
        return UNCALIBRATED if self.calibration is None else self.calibration.factors

    def __repr__(self) -> str:
        """What was asked and the answer, short enough for a prompt."""
        deployment = self.fit.deployment
        return (
            f"<ServingSpeed {deployment.spec.name} on {self.gpus} x "
            f"{deployment.node.accelerator.key}, {deployment.engine} {deployment.version}, "
            f"{self.concurrency:,} clients: {self.output_tokens_per_second.value:,.0f} tokens/s>"
        )

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        return self.fit.deployment.node.count

    @property
    def requests_running(self) -> int:
        """Requests of this length that run at once at most, of those asked for."""
        return min(self.concurrency, self.fit.requests_running)

    @property
    def requests_waiting(self) -> int:
        """Requests that wait until another ends."""
        return self.concurrency - self.requests_running

    @property
    def ttft_seconds(self) -> Range:
        """Mean time to the first token, waiting included."""
        found = self.predicted
        return Range(found.ttft_seconds, found.ttft_low_seconds, found.ttft_high_seconds)

    @property
    def has_further_tokens(self) -> bool:
        """Whether requests get tokens after their first, without which none has a TPOT."""
        return self.load.output_tokens > 1

    @property
    def tpot_seconds(self) -> Range:
        """Mean time of each further token; of one token of output, of one that would follow."""
        found = self.predicted
        return Range(found.tpot_seconds, found.tpot_low_seconds, found.tpot_high_seconds)

    @property
    def tokens_per_second_per_user(self) -> Range:
        """What one client sees while its request decodes."""
        return self.tpot_seconds.over(1)

    @property
    def requests_per_second(self) -> Range:
        """Of all GPUs: clients over the time a request takes, or the rate at which they come."""
        if self.arrivals is not None and not self.arrivals.falls_behind:
            return Range(*(self.arrivals.requests_per_second,) * 3)
        further = self.load.output_tokens - 1
        pairs = zip(self.ttft_seconds, self.tpot_seconds, strict=True)
        return Range(*(first + further * each for first, each in pairs)).over(self.concurrency)

    @property
    def output_tokens_per_second(self) -> Range:
        """Of all GPUs."""
        return self.requests_per_second.divided(1 / self.load.output_tokens)

    @property
    def output_tokens_per_second_per_gpu(self) -> Range:
        """The same for one of them."""
        return self.output_tokens_per_second.divided(self.gpus)

    @property
    def usd_per_million_output_tokens(self) -> Range | None:
        """Price of the GPUs' time over their output; None without a price."""
        if self.price_per_gpu_hour is None:
            return None
        hourly = self.price_per_gpu_hour * self.gpus
        return self.output_tokens_per_second.over(hourly * _TOKENS / _SECONDS_AN_HOUR)

    @cached_property
    def prefill(self) -> StepLedger:
        """A step with a prompt, and the decoding requests where the engine mixes them."""
        return self._ledger(self.predicted.prefill)

    @cached_property
    def decode(self) -> StepLedger:
        """A step without prompts."""
        return self._ledger(self.predicted.decode)

    @property
    def tpot_parts(self) -> TokenParts:
        """What the TPOT is made of."""
        whole, found = self.predicted.tpot_seconds, self.predicted
        steps = whole * found.decode_share
        host = steps * found.decode.host_seconds / found.decode.seconds
        return TokenParts(decode=steps - host, host=host, prompts=whole - steps)

    @cached_property
    def ttft_parts(self) -> FirstParts:
        """What the TTFT is made of."""
        parts = self.predicted.first_token
        own = min(parts.steps, self._own_prompt_seconds())
        return FirstParts(
            arrival=parts.arrival,
            prompt=own,
            others=parts.steps - own + parts.gathered + parts.prompts,
            progress=parts.progress,
            room=parts.room,
            burst=parts.burst,
        )

    @cached_property
    def tpot_shares(self) -> Mapping[str, float]:
        """Of the TPOT by limiter: steps with prompts and those without, each by what it takes."""
        part = self.predicted.prefill_share
        return _weighted((part, self.prefill), (1 - part, self.decode))

    @property
    def tpot_limiter(self) -> str:
        """What holds the most of the TPOT, one of :data:`tokenroom.step_ledger.LIMITERS`."""
        return max(self.tpot_shares, key=self.tpot_shares.__getitem__)

    @cached_property
    def tpot_operators(self) -> Mapping[str, float]:
        """Of the TPOT by operator, the largest first, both kinds of steps together."""
        part = self.predicted.prefill_share
        shares: dict[str, float] = {}
        for weight, ledger in ((part, self.prefill), (1 - part, self.decode)):
            for line in ledger.lines:
                shares[line.name] = shares.get(line.name, 0.0) + weight * line.share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    @property
    def ttft_limiter(self) -> str:
        """What holds the most of the TTFT.

        One of :data:`tokenroom.step_ledger.LIMITERS`, or where most of it is waiting until another
        request ends, what lets no more run: ``"kv_pool"`` or ``"max_num_seqs"``.
        """
        parts, whole = self.predicted.first_token, self.predicted.ttft_seconds
        if parts.room > whole / 2:
            return self.room_limiter
        shares = dict(
            _weighted(
                (parts.steps + parts.gathered + parts.prompts + parts.burst, self.prefill),
                (parts.progress * self.predicted.prefill_share, self.prefill),
                (parts.progress * (1 - self.predicted.prefill_share), self.decode),
            )
        )
        shares["overhead"] += parts.arrival
        return max(shares, key=shares.__getitem__)

    @property
    def room_limiter(self) -> str:
        """What lets no more requests run: ``"kv_pool"`` or ``"max_num_seqs"``."""
        held, allowed = self.fit.requests_held, self.fit.plan.max_num_seqs
        return "kv_pool" if held <= allowed else "max_num_seqs"

    @property
    def tables(self) -> tuple[str, ...]:
        """Every measured table that the two steps rest on, as ``accelerator: table``."""
        lines = (*self.prefill.lines, *self.decode.lines)
        return tuple(sorted({source for line in lines for source in line.sources}))

    def at(self, concurrency: int) -> ServingSpeed:
        """The same deployment and requests with other clients.

        Raises:
            DeploymentError: ``concurrency`` is not a positive whole number.
        """
        return _served(
            self.fit,
            self.terms,
            self.load,
            concurrency,
            self.price_per_gpu_hour,
            self.calibration,
            self.num_prompts,
        )

    def at_rate(self, requests_per_second: float) -> ServingSpeed:
        """The same deployment and requests, which come at a rate independently of answers.

        By Little's law as many are in flight on average as of the fewest clients who send as many,
        each after its last was answered. Arrivals that bunch have more in flight at times, which is
        left out. Where more come than are served, the answer is that of as many as run at once.

        Raises:
            DeploymentError: ``requests_per_second`` is not a positive number.
        """
        rate = requests_per_second
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not number or not 0 < rate < math.inf:
            raise DeploymentError(
                f"requests_per_second is {shown(rate)}; give a number of requests above 0"
            )
        steady = replace(self, num_prompts=None)
        full = steady.at(min(MAX_CONCURRENCY, self.fit.requests_running))
        capacity = full.requests_per_second.value
        if rate > capacity:
            return replace(full, arrivals=Arrivals(rate, capacity))
        low, high = 0, full.concurrency
        while high - low > 1:
            middle = (low + high) // 2
            if steady.at(middle).requests_per_second.value < rate:
                low = middle
            else:
                high = middle
        return replace(steady.at(high), arrivals=Arrivals(rate, capacity))

    def _own_prompt_seconds(self) -> float:
        """Steps of one request's prompt alone on the accelerators."""
        replica = replica_of(self.fit, self.terms._replace(drafting=None), factors=self.factors)
        return ttft(replica, self.load.input_tokens)[0] - replica.arrival_seconds(
            self.load.input_tokens
        )

    def _ledger(self, step: StepTime) -> StepLedger:
        deployment, terms = self.fit.deployment, self.terms
        return step_ledger(
            step,
            operator_times(
                deployment.spec,
                terms.layout,
                deployment.node.accelerator,
                step.work,
                engine=terms.engine,
                kv_dtype=terms.kv_dtype,
                cuda_graphs=terms.cuda_graphs,
                drafting=terms.drafting,
                factors=self.factors,
            ),
        )


def speed(
    model: str | os.PathLike[str] | ModelSpec,
    gpu: str | Accelerator | Node,
    *,
    input_tokens: int = 1024,
    output_tokens: int = 256,
    concurrency: int | None = None,
    num_prompts: int | None = None,
    request_rate: float | None = None,
    gpus: int | None = None,
    engine: str = "vllm",
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: bool | None = None,
    context: int | str | None = None,
    weights: str | None = None,
    kv: str | None = None,
    util: float | None = None,
    used_bytes: int = 0,
    settings: Any = None,
    notes: Sequence[str] = (),
    acceptance: float | None = None,
    host_bandwidth: float | None = None,
    price_per_gpu_hour: float | None = None,
    profile: Profile | None = None,
    **engine_settings: Any,
) -> ServingSpeed:
    """Time to first token, time per token and throughput of a deployment under a load.

    Args:
        model: Catalogue name, Hub id, path of a config.json, checkpoint folder or GGUF file, or a
            :class:`ModelSpec`.
        gpu: Accelerator name, accelerator or node.
        input_tokens: Prompt of a request.
        output_tokens: Tokens it gets.
        concurrency: Clients that each keep one request in flight; 32, as far as they all run at
            once, when not given.
        num_prompts: Requests of a benchmark in all, whose first come at once, one of each client;
            a steady load when not given.
        request_rate: Requests a second that come independently of answers, in place of
            ``concurrency``.
        gpus: How many GPUs; as many as the parallel sizes need when not given.
        engine: ``"vllm"``, ``"sglang"``, ``"tensorrt-llm"`` or ``"llama.cpp"``, with a version
            after @ when it is not the newest.
        tp: Tensor-parallel size; all ``gpus`` when no parallel size is given.
        pp: Pipeline-parallel size.
        dp: Data-parallel size.
        ep: Expert parallelism.
        context: max_model_len in tokens, or as text: ``"32k"`` is 32 x 1024.
        weights: "What if" weight layout, for example ``"fp8"``.
        kv: KV cache type, for example ``"fp8"``.
        util: Share of each GPU that the engine may take.
        used_bytes: Memory that other processes hold on each GPU.
        settings: The engine's own settings object, as its command-line parser gives it.
        notes: Sentences of whoever read the settings.
        acceptance: Share of drafted tokens that are kept (0 to 1), or the mean tokens of a step
            (above 1); what was measured of the method when not given.
        host_bandwidth: Peak of the host's memory in bytes a second, for llama.cpp's layers there.
        price_per_gpu_hour: USD of one GPU for an hour.
        profile: Calibration of the machine (``tokenroom calibrate``).
        engine_settings: Further engine arguments under the engine's own names.

    Raises:
        DoesNotFitError: The engine would not start.
        TokenroomError: Something is unknown, out of range, refused by the engine, or its speed is
            not modelled; the message says which field, what it held and what it may hold.
    """
    for other, name in _OTHER_NAMES.items():
        if other in engine_settings:
            raise DeploymentError(f"{other} is no argument of speed(); it is called {name}")
    for name, count, most in (
        ("input_tokens", input_tokens, MAX_TOKENS),
        ("output_tokens", output_tokens, MAX_TOKENS),
        ("concurrency", concurrency, MAX_CONCURRENCY),
        ("num_prompts", num_prompts, MAX_NUM_PROMPTS),
    ):
        if count is not None or most == MAX_TOKENS:
            _check_count(name, count, most)
    _check_price(price_per_gpu_hour)
    _check_load(concurrency, num_prompts, request_rate)
    if isinstance(engine, str):
        check_engine(engine_named(engine)[0].name)
    result = fit(
        model,
        gpu,
        gpus=gpus,
        engine=engine,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        context=context,
        weights=weights,
        kv=kv,
        util=util,
        used_bytes=used_bytes,
        settings=settings,
        notes=notes,
        **engine_settings,
    )
    found = speed_of(
        result,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        num_prompts=num_prompts,
        acceptance=acceptance,
        host_bandwidth=host_bandwidth,
        price_per_gpu_hour=price_per_gpu_hour,
        profile=profile,
    )
    if request_rate is not None:
        return found.at_rate(request_rate)
    if concurrency is None:
        clients = min(USUAL_CLIENTS, found.fit.requests_running, num_prompts or USUAL_CLIENTS)
        return replace(found.at(clients), assumed=True)
    return found


def speed_of(
    result: FitResult,
    *,
    input_tokens: int,
    output_tokens: int,
    concurrency: int | None = None,
    num_prompts: int | None = None,
    acceptance: float | None = None,
    host_bandwidth: float | None = None,
    price_per_gpu_hour: float | None = None,
    profile: Profile | None = None,
) -> ServingSpeed:
    """The same of a deployment that :func:`tokenroom.fitting.fit` has answered for.

    Args:
        result: The deployment and its memory.
        input_tokens: Prompt of a request.
        output_tokens: Tokens it gets.
        concurrency: Clients that each keep one request in flight; None for as many as run at once.
        num_prompts: As for :func:`speed`.
        acceptance: As for :func:`speed`.
        host_bandwidth: As for :func:`speed`.
        price_per_gpu_hour: USD of one GPU for an hour.
        profile: As for :func:`speed`.

    Raises:
        DoesNotFitError: The engine would not start.
        TokenroomError: A request is longer than the engine takes or the pool holds, the speed of
            the engine or the model is not modelled, or the profile is of another GPU.
    """
    if result.plan.refusal is not None:
        raise DoesNotFitError(result)
    longest, wanted = result.plan.max_model_len, input_tokens + output_tokens
    if wanted > longest:
        raise DeploymentError(
            f"input and output are {wanted:,} tokens together; the engine refuses requests beyond "
            f"max_model_len {longest:,}: shorten them or raise the context"
        )
    terms = terms_of(result, input_tokens, acceptance, host_bandwidth)
    load = Load(input_tokens=input_tokens, output_tokens=output_tokens, concurrency=1)
    asked = replace(result, request_tokens=wanted)
    if not asked.requests_running:
        raise DeploymentError(
            f"the KV pool of {result.plan.kv_pool_tokens:,} tokens holds no request of {wanted:,}; "
            f"shorten input or output, or use more GPUs"
        )
    if concurrency is None:
        concurrency = asked.requests_running
    calibration = None if profile is None else applied(profile, served_by(result))
    return _served(asked, terms, load, concurrency, price_per_gpu_hour, calibration, num_prompts)


def served_by(result: FitResult) -> Served:
    """What makes a deployment like another, as profiles compare it.

    Raises:
        DeploymentError: Its speed is not modelled.
    """
    deployment, terms = result.deployment, terms_of(result, 1)
    layout = terms.layout
    return Served(
        model=deployment.spec.name,
        quantization=deployment.spec.quantization,
        engine=deployment.engine,
        engine_version=deployment.version,
        gpu=deployment.node.accelerator.key,
        gpus=deployment.node.count,
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
        data_parallel_size=layout.data_parallel_size * terms.replicas,
        expert_parallel_size=layout.expert_parallel_size,
        kv_dtype=terms.kv_dtype,
        drafting=None if terms.drafting is None else terms.drafting.method,
    )


_OTHER_NAMES: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "price": "price_per_gpu_hour",
}
"""What options of the command line are called in Python, where their name says less."""


class UsualSpeed(NamedTuple):
    """A first look at the speed of a deployment.

    Attributes:
        speed: For requests as long as those its fit was asked about; None where there is none.
        reason: Why not, as a sentence; None where nobody would expect it (the engine does not
            start, or its speed is not modelled).
    """

    speed: ServingSpeed | None
    reason: str | None = None


def usual_speed(result: FitResult) -> UsualSpeed:
    """The speed of a fitted deployment under a load like the one asked about.

    A fifth of a request is output, as of the 1,024 and 256 tokens that stand for requests whose
    length was not given; where a number of requests was asked for, they are those that the verdict
    is about. As many clients as asked for, otherwise 32, as far as they all run.
    """
    if result.plan.refusal is not None or not models_speed(result.deployment.engine):
        return UsualSpeed(None)
    tokens = result.request_tokens
    if result.concurrency is None and tokens == result.plan.max_model_len:
        tokens = min(tokens, _USUAL_TOKENS)  # nobody said how long requests are
    running = replace(result, request_tokens=tokens).requests_running
    output_tokens = max(1, tokens // 5)
    if tokens == output_tokens or not running:
        return UsualSpeed(None)
    try:
        found = speed_of(
            result,
            input_tokens=tokens - output_tokens,
            output_tokens=output_tokens,
            concurrency=min(result.concurrency or USUAL_CLIENTS, running),
        )
    except TokenroomError as error:
        return UsualSpeed(None, str(error))
    return UsualSpeed(found)


def _served(
    result: FitResult,
    terms: Terms,
    load: Load,
    concurrency: int,
    price: float | None,
    calibration: Applied | None,
    num_prompts: int | None = None,
) -> ServingSpeed:
    _check_count("concurrency", concurrency, MAX_CONCURRENCY)
    waves = None if num_prompts is None else waves_of(num_prompts, concurrency)
    load = replace(load, concurrency=-(-concurrency // terms.replicas), waves=waves)
    copies = terms.replicas * terms.layout.data_parallel_size
    replica = replica_of(
        result,
        terms,
        max_num_seqs=max(1, result.requests_running // copies),
        factors=UNCALIBRATED if calibration is None else calibration.factors,
    )
    predicted = load_speed(replica, load)
    if calibration is not None:
        predicted = _within(predicted, calibration, drafted=terms.drafting is not None)
    return ServingSpeed(
        fit=replace(result, concurrency=concurrency),
        terms=terms,
        load=load,
        concurrency=concurrency,
        predicted=predicted,
        price_per_gpu_hour=price,
        calibration=calibration,
        num_prompts=num_prompts,
    )


def waves_of(num_prompts: int, clients: int) -> int:
    """Requests that each client of a benchmark sends, to the nearest whole one."""
    return max(1, round(num_prompts / clients))


def _weighted(*parts: tuple[float, StepLedger]) -> Mapping[str, float]:
    """Shares by limiter of several ledgers, each by its weight."""
    return {
        name: sum(weight * ledger.shares[name] for weight, ledger in parts) for name in LIMITERS
    }


def _within(predicted: Speed, calibration: Applied, *, drafted: bool) -> Speed:
    """The ranges that a calibration leaves; what is drafted keeps those of its acceptance, too."""
    first = calibration.around(predicted.ttft_seconds, "ttft")
    further = calibration.around(predicted.tpot_seconds, "tpot")
    if drafted:
        further = (
            min(further[0], predicted.tpot_low_seconds),
            max(further[1], predicted.tpot_high_seconds),
        )
    return replace(
        predicted,
        ttft_low_seconds=first[0],
        ttft_high_seconds=first[1],
        tpot_low_seconds=further[0],
        tpot_high_seconds=further[1],
    )


def _check_count(name: str, count: object, most: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
        raise DeploymentError(f"{name} is {shown(count)}; give a whole number from 1 to {most:,}")


def _check_load(concurrency: int | None, num_prompts: int | None, rate: float | None) -> None:
    """Refuse two loads at once, and a benchmark with fewer requests than clients."""
    if rate is not None and concurrency is not None:
        raise DeploymentError(
            "concurrency and request_rate are two loads; give clients that wait for answers, or a "
            "rate of requests that do not"
        )
    if rate is not None and num_prompts is not None:
        raise DeploymentError(
            "num_prompts is of a benchmark whose first requests come at once and request_rate "
            "spreads them; give one of the two"
        )
    if num_prompts is not None and concurrency is not None and num_prompts < concurrency:
        raise DeploymentError(
            f"num_prompts is {num_prompts:,} and concurrency {concurrency:,}; give at least a "
            f"request for each client"
        )


def _check_price(price: object) -> None:
    """Refuse what is no sum of money; None is no price."""
    if price is None:
        return
    number = isinstance(price, int | float) and not isinstance(price, bool)
    if not number or not 0 < price < math.inf:  # type: ignore[operator]
        raise DeploymentError(f"price_per_gpu_hour is {shown(price)}; give USD above 0")
