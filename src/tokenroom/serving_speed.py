"""The second question: how fast does a deployment that fits serve, and what holds it back.

:func:`speed` is the front door for Python, and the command line calls it too. It asks
:func:`tokenroom.fitting.fit` for the deployment, so that the token budget of a step, the requests
that run at once and the division over GPUs are the engine's own, and hands them to
:func:`tokenroom.performance.load.speed`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, TokenroomError, shown
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.load import Load, Speed
from tokenroom.performance.load import speed as load_speed
from tokenroom.performance.step_time import StepTime, operator_times
from tokenroom.profiles import Applied, Profile, Served, applied
from tokenroom.serving_terms import Terms, check_engine, models_speed, terms_of
from tokenroom.step_ledger import StepLedger, step_ledger
from tokenroom.units import MAX_TOKENS

MAX_CONCURRENCY: Final = 1_000_000
_TOKENS: Final = 1_000_000  # the unit that output is priced by
_SECONDS_AN_HOUR: Final = 3600
_USUAL_TOKENS: Final = 1024 + 256
_USUAL_CLIENTS: Final = 32


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
    """A figure and the range that measured tables support.

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
    """

    fit: FitResult
    terms: Terms
    load: Load
    concurrency: int
    predicted: Speed
    price_per_gpu_hour: float | None = None
    calibration: Applied | None = None

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
    def tpot_seconds(self) -> Range:
        """Mean time of each further token."""
        found = self.predicted
        return Range(found.tpot_seconds, found.tpot_low_seconds, found.tpot_high_seconds)

    @property
    def tokens_per_second_per_user(self) -> Range:
        """What one client sees while its request decodes."""
        return self.tpot_seconds.over(1)

    @property
    def requests_per_second(self) -> Range:
        """Of all GPUs: clients over the time a request takes."""
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
    concurrency: int = 32,
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
    """Time to first token, time per token and throughput of a deployment under a steady load.

    Args:
        model: Catalogue name, Hub id, path of a config.json, checkpoint folder or GGUF file, or a
            :class:`ModelSpec`.
        gpu: Accelerator name, accelerator or node.
        input_tokens: Prompt of a request.
        output_tokens: Tokens it gets.
        concurrency: Clients that each keep one request in flight.
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
    for name, count, most in (
        ("input_tokens", input_tokens, MAX_TOKENS),
        ("output_tokens", output_tokens, MAX_TOKENS),
        ("concurrency", concurrency, MAX_CONCURRENCY),
    ):
        _check_count(name, count, most)
    _check_price(price_per_gpu_hour)
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
    return speed_of(
        result,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        acceptance=acceptance,
        host_bandwidth=host_bandwidth,
        price_per_gpu_hour=price_per_gpu_hour,
        profile=profile,
    )


def speed_of(
    result: FitResult,
    *,
    input_tokens: int,
    output_tokens: int,
    concurrency: int | None = None,
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
    return _served(asked, terms, load, concurrency, price_per_gpu_hour, calibration)


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
    length was not given. As many clients as asked for, otherwise 32, as far as they all run.
    """
    if result.plan.refusal is not None or not models_speed(result.deployment.engine):
        return UsualSpeed(None)
    tokens = result.request_tokens
    if tokens == result.plan.max_model_len:  # no other length was asked for
        tokens = min(tokens, _USUAL_TOKENS)
    running = replace(result, request_tokens=tokens).requests_running
    output_tokens = max(1, tokens // 5)
    if tokens == output_tokens or not running:
        return UsualSpeed(None)
    try:
        found = speed_of(
            result,
            input_tokens=tokens - output_tokens,
            output_tokens=output_tokens,
            concurrency=min(result.concurrency or _USUAL_CLIENTS, running),
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
) -> ServingSpeed:
    _check_count("concurrency", concurrency, MAX_CONCURRENCY)
    load = replace(load, concurrency=-(-concurrency // terms.replicas))
    copies = terms.replicas * terms.layout.data_parallel_size
    deployment = result.deployment
    predicted = load_speed(
        deployment.spec,
        terms.layout,
        deployment.node.accelerator,
        load,
        engine=terms.engine,
        max_num_batched_tokens=terms.token_budget,
        max_num_seqs=max(1, result.requests_running // copies),
        kv_dtype=terms.kv_dtype,
        cuda_graphs=terms.cuda_graphs,
        asynchronous=terms.asynchronous,
        drafting=terms.drafting,
        mixes=terms.mixes,
        factors=UNCALIBRATED if calibration is None else calibration.factors,
    )
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
    )


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


def _check_price(price: object) -> None:
    """Refuse what is no sum of money; None is no price."""
    if price is None:
        return
    number = isinstance(price, int | float) and not isinstance(price, bool)
    if not number or not 0 < price < math.inf:  # type: ignore[operator]
        raise DeploymentError(f"price_per_gpu_hour is {shown(price)}; give USD above 0")
