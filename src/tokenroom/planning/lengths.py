"""Lengths of requests: means, the longest, and what each is drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads.distributions import (
    Apart,
    Constant,
    Distribution,
    Observed,
    Pairs,
    Uniform,
)
from tokenroom.serving.workloads.written_values import WrittenValues, tokens_of

SPREAD: Final = 0.2
"""Lengths that are given as one number vary by so much either way: alike requests never get out
of step with each other, which real ones do."""

USUAL_TOKENS: Final = (3072, 1024)
"""Prompt and answer of a request where nobody says how long they are: 4,096 tokens together, what
the tables of GPUs for users and the articles they regenerate count with."""

_DRAWS: Final = 20_000


class Lengths(NamedTuple):
    """Lengths of requests, in tokens.

    Attributes:
        pairs: What each request's are drawn from.
        input_tokens: Mean prompt.
        output_tokens: Mean answer.
        longest_tokens: The longest request, prompt and answer together.
    """

    pairs: Pairs
    input_tokens: int
    output_tokens: int
    longest_tokens: int


def around(tokens: int) -> Distribution:
    """Lengths around a mean."""
    spread = math.floor(tokens * SPREAD)
    return Uniform(low=tokens - spread, high=tokens + spread)


def of_means(prompt: int, output: int) -> Lengths:
    """Lengths around two means."""
    highest = (tokens + math.floor(tokens * SPREAD) for tokens in (prompt, output))
    return Lengths(
        Apart(prompt=around(prompt), output=around(output)), prompt, output, sum(highest)
    )


def of_texts(prompt: str, output: str, *, allow_files: bool = True) -> Lengths:
    """Lengths as people write them: a mean each, or a distribution as of drawn workloads.

    Args:
        prompt: Of prompts.
        output: Of answers.
        allow_files: Whether they may name files to draw from; not when others wrote them.

    Raises:
        WorkloadError: One is neither.
    """
    texts = {"input": prompt, "output": output}
    reader = WrittenValues("plan", texts, allow_files=allow_files)
    drawn = [reader.distribution(key, tokens_of) for key in texts]
    means = {
        key: round(each.value)
        for key, each in zip(texts, drawn, strict=True)
        if isinstance(each, Constant) and "(" not in texts[key]  # constant(1024) is meant as it is
    }
    if len(means) == len(texts):
        return of_means(*means.values())
    return of_distributions(
        *(
            around(means[key]) if key in means else each
            for key, each in zip(texts, drawn, strict=True)
        )
    )


def written(text: str) -> str:
    """Lengths of :func:`of_texts` as a drawn workload writes what they are drawn from."""
    mean = WrittenValues("plan", {"input": text}, allow_files=False).distribution(
        "input", tokens_of
    )
    if not isinstance(mean, Constant) or "(" in text:
        return text
    drawn = around(round(mean.value))
    assert isinstance(drawn, Uniform)
    return f"uniform({drawn.low:g},{drawn.high:g})"


def of_distributions(prompt: Distribution, output: Distribution) -> Lengths:
    """Lengths of prompts and answers that know nothing of each other.

    Means and the longest are those of 20,000 draws.
    """
    pairs = Apart(prompt=prompt, output=output)
    random = Random(0)
    return _of([pairs.draw_pair(random) for _ in range(_DRAWS)], pairs)


def of_requests(lengths: Iterable[tuple[int, int]]) -> Lengths:
    """Lengths that were observed, each as often as it was.

    Raises:
        WorkloadError: There is none.
    """
    seen = list(lengths)
    if not seen:
        raise WorkloadError("the trace holds no request; give one with at least one")
    return _of(seen, Observed(pairs=seen))


def _of(seen: Sequence[tuple[int, int]], pairs: Pairs) -> Lengths:
    return Lengths(
        pairs=pairs,
        input_tokens=max(1, round(sum(prompt for prompt, _ in seen) / len(seen))),
        output_tokens=max(1, round(sum(output for _, output in seen) / len(seen))),
        longest_tokens=max(prompt + output for prompt, output in seen),
    )
