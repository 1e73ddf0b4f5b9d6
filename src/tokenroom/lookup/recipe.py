"""From the lengths of requests to the settings of an engine, a step at a time.

The length that nearly all requests keep sets ``max_model_len``; bytes of a request of that length
set how many the pool holds; a share of those is left free for what varies; the promise of a time
per token sets the largest batch and the largest step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.fitting import FitResult
from tokenroom.objectives import largest_that
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Chunk, StepWork
from tokenroom.serving_speed import ServingSpeed, speed_of

MARGIN: Final = 0.2
"""Above the length that 95% of requests keep."""

WATERLINE: Final = 0.8
"""Of the requests that the pool holds, as many run."""

_ROUNDED: Final = 128
STALL: Final = 4
"""A step with prompts may take as long as so many tokens are promised to take."""

ENGINES: Final = ("vllm", "sglang", "tensorrt-llm")
"""Engines whose pool is what the GPU leaves. llama.cpp's is as large as it is told to be."""

_BUDGETS: Final = (16384, 8192, 4096, 2048, 1024, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings with the steps that lead to them.

    Attributes:
        p95_tokens: Length that 95% of requests keep, prompt and answer together.
        max_model_len: A fifth longer, rounded up to a multiple of 128.
        fit: The deployment with it.
        request_bytes: KV cache of a request of that length on one GPU.
        ceiling: Requests of that length that the pool holds.
        waterline: Four fifths of them.
        largest_batch: Requests at once whose mean TPOT keeps the promise; None without one.
        max_num_seqs: The smaller of the two, and of what the engine allows.
        token_budget: Tokens of a step: the most by which none takes longer than four promised
            tokens, or the engine's own without a promise.
        step_seconds: A step of that many tokens of prompts beside all decoding requests.
        speed: That many clients with mean requests.
        final: The deployment with these settings.
    """

    p95_tokens: int
    max_model_len: int
    fit: FitResult
    request_bytes: int
    ceiling: int
    waterline: int
    largest_batch: int | None
    max_num_seqs: int
    token_budget: int
    step_seconds: float
    speed: ServingSpeed
    final: FitResult


def length_for(p95_tokens: int) -> int:
    """``max_model_len`` for requests of which 95% keep a length."""
    return math.ceil(p95_tokens * (1 + MARGIN) / _ROUNDED) * _ROUNDED


def percentile(lengths: Sequence[int], share: float = 0.95) -> int:
    """The length that a share of all keep.

    Raises:
        DeploymentError: There is none.
    """
    if not lengths:
        raise DeploymentError("there are no lengths; give at least one request")
    ordered = sorted(lengths)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def means_within(
    p95_tokens: int, input_tokens: int | None, output_tokens: int | None
) -> tuple[int, int]:
    """Mean prompt and answer beside the length that 95% of requests keep: half and a tenth of it.

    Raises:
        DeploymentError: Together they are longer.
    """
    prompt, output = input_tokens or max(1, p95_tokens // 2), output_tokens
    answer = output or max(1, p95_tokens // 10)
    if p95_tokens > 1 and prompt + answer > p95_tokens:
        raise DeploymentError(
            f"the mean request has {prompt:,} tokens in and {answer:,} out, above the "
            f"{p95_tokens:,} that 95% of the requests keep; give shorter ones"
        )
    return prompt, answer


def recipe(
    result: FitResult,
    *,
    p95_tokens: int,
    input_tokens: int,
    output_tokens: int,
    tpot_seconds: float | None = None,
) -> Recipe:
    """Settings for requests of known lengths.

    Args:
        result: The deployment; its ``max_model_len`` and ``max_num_seqs`` are found anew.
        p95_tokens: Length that 95% of requests keep, prompt and answer together.
        input_tokens: Mean prompt.
        output_tokens: Mean answer.
        tpot_seconds: Promise of the time per token; None for none.

    Raises:
        TokenroomError: It does not start so, holds no request, or its speed is not modelled.
    """
    engine = result.deployment.engine
    if engine not in ENGINES:
        raise DeploymentError(
            f"engine {engine} takes as large a pool as it is told to, so there is no ceiling to "
            f"find; it may be {', '.join(ENGINES)}"
        )
    if p95_tokens < 2:
        raise DeploymentError(f"p95_tokens is {shown(p95_tokens)}; give 2 tokens or more")
    length = length_for(p95_tokens)
    own = result.deployment.spec.max_position_embeddings
    if own is not None:
        if p95_tokens > own:
            raise DeploymentError(
                f"95% of the requests keep within {p95_tokens:,} tokens, and the model takes "
                f"{own:,} at most; leave longer requests out"
            )
        length = min(length, own)
    fitted = result.with_settings(max_model_len=length)
    ceiling = fitted.plan.requests_of(length)
    if fitted.plan.refusal is not None or not ceiling:
        raise DeploymentError(
            f"the deployment holds no request of {length:,} tokens; tokenroom fit --context "
            f"{length} says what would fit"
        )
    waterline = max(1, int(ceiling * WATERLINE))
    allowed = fitted.plan.max_num_seqs
    mean = _within(fitted, input_tokens, output_tokens)
    batch = None
    if tpot_seconds is not None:
        batch = _largest_batch(mean, min(allowed, ceiling), tpot_seconds)
    most = max(1, min(allowed, waterline if batch is None else min(waterline, batch)))
    limited = fitted.with_settings(max_num_seqs=most)
    final, seconds = _with_budget(limited, mean, most, tpot_seconds)
    quick = _within(final, input_tokens, output_tokens)
    return Recipe(
        p95_tokens=p95_tokens,
        max_model_len=length,
        fit=fitted,
        request_bytes=fitted.plan.kv_bytes_of(length),
        ceiling=ceiling,
        waterline=waterline,
        largest_batch=batch,
        max_num_seqs=most,
        token_budget=quick.terms.token_budget,
        step_seconds=seconds,
        speed=quick.at(most),
        final=final,
    )


def _within(result: FitResult, input_tokens: int, output_tokens: int) -> ServingSpeed:
    """One client whose requests are of the mean lengths, cut to what the engine takes."""
    longest = result.plan.max_model_len
    prompt = min(input_tokens, longest - 1)
    return speed_of(
        result,
        input_tokens=prompt,
        output_tokens=max(1, min(output_tokens, longest - prompt)),
        concurrency=1,
    )


def _largest_batch(mean: ServingSpeed, most: int, tpot_seconds: float) -> int:
    """Requests at once whose mean TPOT keeps a promise; 0 when not even one alone does."""
    return largest_that(most, lambda count: mean.at(count).tpot_seconds.value <= tpot_seconds)


def _with_budget(
    result: FitResult, mean: ServingSpeed, decoding: int, wanted: float | None
) -> tuple[FitResult, float]:
    """The largest budget of a step that keeps a promise, and the time of a full one.

    Where none does it is the smallest; budgets that the engine would not serve such prompts with
    are passed over.
    """
    own = mean.terms.token_budget
    last = result, _step_seconds(mean, decoding, own)
    if wanted is None or last[1] <= STALL * wanted:
        return last
    for budget in _BUDGETS:
        if not decoding < budget < own:
            continue
        try:
            changed = result.with_settings(max_num_batched_tokens=budget)
            _within(changed, mean.load.input_tokens, mean.load.output_tokens)
        except DeploymentError:
            break  # prompts are not divided, and smaller steps hold none either
        last = changed, _step_seconds(mean, decoding, budget)
        if last[1] <= STALL * wanted:
            break
    return last


def _step_seconds(mean: ServingSpeed, decoding: int, budget: int) -> float:
    deployment, terms, load = mean.fit.deployment, mean.terms, mean.load
    work = StepWork(
        prefill=(Chunk(max(1, budget - decoding), 0),),
        decode_sequences=decoding,
        decode_context_tokens=load.input_tokens + load.output_tokens / 2,
    )
    return step_time(
        deployment.spec,
        terms.layout,
        deployment.node.accelerator,
        work,
        engine=terms.engine,
        kv_dtype=terms.kv_dtype,
        cuda_graphs=terms.cuda_graphs,
        asynchronous=terms.asynchronous,
    ).seconds
