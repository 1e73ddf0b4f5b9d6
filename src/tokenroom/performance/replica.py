"""One replica of a model as the step-time model sees it: what is served, by what and under whom."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Protocol

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.admission import AT_ONCE, Admission
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.factors import UNCALIBRATED, Factors
from tokenroom.performance.host import HostCost, arrival_seconds, host_cost
from tokenroom.performance.step_time import StepTime, step_time
from tokenroom.performance.work import Layout, StepWork


class TimedStep(Protocol):
    """How long a step takes, whatever else is known of it."""

    @property
    def seconds(self) -> float:
        """The estimate."""
        ...

    @property
    def low_seconds(self) -> float:
        """Lower end of its range."""
        ...

    @property
    def high_seconds(self) -> float:
        """Upper end."""
        ...

    @property
    def stage_seconds(self) -> float:
        """The slowest stage's part of it, or all of the accelerators' part."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What decides how long a replica's steps take and what they hold.

    Attributes:
        spec: The model, as it is loaded.
        layout: How it is divided.
        accelerator: The kind of GPU.
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
    """

    spec: ModelSpec
    layout: Layout
    accelerator: Accelerator
    engine: str = "any"
    max_num_batched_tokens: int = 8192
    max_num_seqs: int | None = None
    admission: Admission = AT_ONCE
    kv_dtype: str | None = None
    cuda_graphs: bool = True
    asynchronous: bool = True
    drafting: Drafting | None = None
    mixes: bool | None = None
    factors: Factors = UNCALIBRATED

    @property
    def host(self) -> HostCost:
        """The host's part of a step."""
        return host_cost(self.engine).scaled(self.factors)

    @property
    def shares_steps(self) -> bool:
        """Whether prompts and decoding requests run in the same steps."""
        return self.host.mixes if self.mixes is None else self.mixes

    def arrival_seconds(self, prompt_tokens: int) -> float:
        """What a request spends before its first step."""
        return arrival_seconds(self.host, prompt_tokens)

    def chunks(self, prompt_tokens: int) -> tuple[int, int]:
        """Mean size of a prompt's chunks, and how many there are."""
        return prompt_chunks(prompt_tokens, self.max_num_batched_tokens)

    def step(self, work: StepWork) -> StepTime:
        """Time of a step.

        Raises:
            DeploymentError: The layout does not divide the model, or it has parts whose speed is
                not modelled.
            HardwareError: A peak or bandwidth that it needs is not known.
        """
        return step_time(
            self.spec,
            self.layout,
            self.accelerator,
            work,
            engine=self.engine,
            kv_dtype=self.kv_dtype,
            cuda_graphs=self.cuda_graphs,
            asynchronous=self.asynchronous,
            drafting=self.drafting,
            factors=self.factors,
        )


def prompt_chunks(tokens: int, budget: int) -> tuple[int, int]:
    """Mean size of a prompt's chunks, and how many there are."""
    steps = max(1, ceil(tokens / budget))
    return ceil(tokens / steps), steps


def range_of(step: TimedStep) -> tuple[float, float, float]:
    """Seconds of a step, with the ends of their range."""
    return step.seconds, step.low_seconds, step.high_seconds


def stage_range(step: TimedStep, stages: int) -> tuple[float, float, float]:
    """Seconds until the next group may follow: the whole step, or the slowest stage's part."""
    return scaled(step, step.stage_seconds / step.seconds if stages > 1 else 1.0)


def scaled(step: TimedStep, factor: float) -> tuple[float, float, float]:
    """Seconds of a step and the ends of their range, times a factor."""
    value, low, high = range_of(step)
    return value * factor, low * factor, high * factor
