"""Whether prompts and answers are better served apart on a kind of GPU, by the closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.planning.candidates import PER_NODE, Candidate, least_gpus
from tokenroom.planning.demand import Demand
from tokenroom.planning.front import beats
from tokenroom.planning.judging import Bounds, Proposal, Rejection, proposed
from tokenroom.planning.splits import (
    AnswerServer,
    PromptServer,
    SplitCurve,
    link_bytes_per_second,
    server_fit,
    split_fleet,
    splits,
)
from tokenroom.planning.tuned import Tuned
from tokenroom.planning.tuning import AS_IT_IS

_SIZES: Final = (1, 2, 4)
"""Ranks of a server; with 8 a host has no room for another."""

_VENDORS: Final = ("nvidia", "amd")
"""GPUs between which NIXL moves KV (vLLM 0.33, docs/features/nixl_connector_usage.md)."""

_RUNGS: Final = 3
"""Proposals of a kind that are simulated at most."""

_Server = TypeVar("_Server")


def splits_of(
    like: Candidate,
    demand: Demand,
    bounds: Bounds,
    *,
    most_gpus: int,
    others: Sequence[Proposal],
) -> list[Proposal] | Rejection | None:
    """Deployments with prompts and answers apart on a kind of GPU that pay, the cheapest first.

    Of those on equally many GPUs the one with the most room; a few, since the first may fail when
    it is simulated.

    Args:
        like: A deployment of the model on those GPUs, whose engine and types are kept.
        demand: What is to be served.
        bounds: What there is of the GPUs.
        most_gpus: GPUs of a replica at most.
        others: Deployments that hold, of servers that do both, of the same model and GPUs.

    Returns:
        The proposals; why none pays; or None where there is nothing of that kind: under another
        engine, for answers of one token, on GPUs without a known link, or where no split keeps the
        objectives.
    """
    if engine_named(like.engine)[0].name != "vllm" or demand.output_tokens < 2:
        return None
    gpu = like.accelerator
    if gpu.vendor not in _VENDORS or link_bytes_per_second(gpu) is None:
        return None
    judged = list(_proposals(like, demand, bounds, min(most_gpus, PER_NODE)))
    found = [each for each in judged if isinstance(each, Proposal)]
    if not found:
        refused = [each for each in judged if isinstance(each, Rejection)]
        return min(refused, key=lambda each: each.nearest, default=None)
    ladder: dict[int, Proposal] = {}
    for each in sorted(found, key=lambda each: (each.gpus, -each.headroom)):
        ladder.setdefault(each.gpus, each)
    paying = [each for each in ladder.values() if pays(each, others)]
    if not paying:
        return in_vain(next(iter(ladder.values())), others)
    try:
        split_fleet(paying[0].candidate, demand)
    except DeploymentError as error:
        return Rejection(
            candidate=paying[0].candidate, reason="refused", details={"text": str(error)}
        )
    return paying[:_RUNGS]


def pays(split: Proposal, others: Sequence[Proposal]) -> bool:
    """Whether it takes fewer GPUs than all others, or beats the cheapest of them in everything."""
    cheapest = _cheapest(others)
    return cheapest is None or split.gpus < cheapest.gpus or beats(split, cheapest)


def in_vain(split: Proposal, others: Sequence[Proposal]) -> Rejection:
    """That it does not pay, and beside what."""
    cheapest = _cheapest(others)
    assert cheapest is not None
    return Rejection(
        candidate=split.candidate,
        reason="split",
        details={"gpus": split.gpus, "by": cheapest},
        nearest=split.gpus / cheapest.gpus,
    )


def _cheapest(others: Sequence[Proposal]) -> Proposal | None:
    return min(others, key=lambda each: (each.gpus, -each.headroom), default=None)


def _proposals(
    like: Candidate, demand: Demand, bounds: Bounds, most_gpus: int
) -> Iterator[Proposal | Rejection]:
    """What becomes of every split that keeps the objectives."""
    servers = {
        size: replace(
            like,
            tensor_parallel_size=size,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            expert_parallel=False,
            tuning=AS_IT_IS,
            split=None,
        )
        for size in _SIZES
        if least_gpus(like.spec, like.accelerator) <= size < most_gpus
    }
    fits = {
        size: fitted
        for size, server in servers.items()
        if (fitted := _made(partial(server_fit, server, demand))) is not None and _holds(fitted)
    }
    of_prompts = {size: _made(partial(PromptServer, fit, demand)) for size, fit in fits.items()}
    of_answers = {size: _made(partial(AnswerServer, fit, demand)) for size, fit in fits.items()}
    rate = link_bytes_per_second(like.accelerator)
    assert rate is not None
    for size, answers in of_answers.items():
        for split in splits(most_gpus, size):
            prompts = of_prompts.get(split.prompt_tensor_parallel_size)
            if answers is None or prompts is None:
                continue
            curve = SplitCurve(split, prompts, answers, demand, rate)
            if curve.largest:
                tuned = Tuned(
                    candidate=replace(servers[size], split=split),
                    clients=curve.largest,
                    served=curve.served(curve.largest),
                    at_most=curve.served(curve.most),
                    curve=curve,
                )
                yield proposed(tuned, demand, bounds=bounds)


def _holds(fitted: FitResult) -> bool:
    """Whether a server starts and holds a request."""
    return fitted.plan.refusal is None and fitted.requests_running > 0


def _made(make: Callable[[], _Server]) -> _Server | None:
    """What is made, or None where the engine refuses it or its speed is not known."""
    try:
        return make()
    except TokenroomError:
        return None
