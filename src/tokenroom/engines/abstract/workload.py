"""Lengths that the requests of a workload reach: written out, or drawn from a distribution."""

from __future__ import annotations

import re
from math import isfinite, log
from random import Random
from typing import Final

from tokenroom.errors import DeploymentError, shown

_MOST_REQUESTS: Final = 100_000
_DRAWN: Final = 256
_FORMS: Final = "lognormal:MEAN,SIGMA, uniform:LOW,HIGH, or whole numbers separated by commas"


def read_lengths(text: str) -> tuple[int, ...]:
    """Lengths written out, one a line or separated by commas or spaces.

    Raises:
        DeploymentError: There are none, too many, or one is no positive whole number.
    """
    words = re.split(r"[\s,]+", text.strip())
    if len(words) > _MOST_REQUESTS:
        raise DeploymentError(f"lengths holds {len(words)} requests; give at most {_MOST_REQUESTS}")
    lengths = []
    for word in words:
        if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) < 1:
            raise DeploymentError(f"lengths holds {word[:40]!r}; give {_FORMS}")
        lengths.append(int(word))
    return tuple(lengths)


def draw_lengths(text: str, *, count: int | None, longest: int, seed: int) -> tuple[int, ...]:
    """The lengths that a setting describes, none longer than ``longest``.

    ``"lognormal:800,0.9"`` draws from a log-normal distribution of that mean in tokens and that
    sigma of the logarithm; ``"uniform:100,4000"`` evenly; anything else is lengths written out.

    Args:
        text: The description.
        count: Requests to draw; 256 when None. Written lengths are taken as they are.
        longest: Longer draws are cut to it, as an engine cuts a generation at its longest length.
        seed: Of the random numbers.

    Raises:
        DeploymentError: The description is not understood.
    """
    match = re.fullmatch(r"(lognormal|uniform):([^,]+),([^,]+)", text.strip())
    if match is None:
        return tuple(min(tokens, longest) for tokens in read_lengths(text))
    try:
        first, second = float(match.group(2)), float(match.group(3))
    except ValueError:
        raise DeploymentError(f"lengths is {shown(text)}; give {_FORMS}") from None
    if not (isfinite(first) and isfinite(second)) or first < 1 or second < 0:
        raise DeploymentError(f"lengths is {shown(text)}; give {_FORMS}, numbers from 1 and 0 up")
    if match.group(1) == "uniform" and second < first:
        raise DeploymentError(f"lengths is {shown(text)}; put the smaller number first")
    if count is not None and count > _MOST_REQUESTS:
        raise DeploymentError(f"concurrency is {count}; at most {_MOST_REQUESTS} lengths are drawn")
    random = Random(seed)
    drawn = []
    for _ in range(_DRAWN if count is None else count):
        if match.group(1) == "lognormal":
            tokens = random.lognormvariate(log(first) - second**2 / 2, second)
        else:
            tokens = random.uniform(first, second)
        drawn.append(max(1, min(longest, round(min(tokens, float(longest))))))
    return tuple(drawn)
