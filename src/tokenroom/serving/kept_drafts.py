"""How many drafted tokens a model keeps, drawn for each place of each request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.serving.request import Request

_WORD: Final = (1 << 64) - 1
_STEPS: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Of the generator SplitMix64 (Steele, Lea and Flood, doi:10.1145/2714064.2660195)."""
_DIGITS: Final = 53
"""Bits of a draw between 0 and 1."""


class KeptDrafts:
    """How many of the tokens drafted in a row a model keeps: up to the first it would not say.

    What is drawn depends on the seed, the request's id and the number of its tokens alone, so that
    no other request, and no way of scheduling, changes it.

    Args:
        rates: The chance of each drafted token in a row, where those before it were kept.
        seed: Of the draws.

    Raises:
        DeploymentError: A chance is not one, or there is none.
    """

    __slots__ = ("_falling", "_longest", "_seed")

    def __init__(self, rates: Sequence[float], seed: int = 0) -> None:
        if not rates:
            raise DeploymentError("rates of kept drafts is empty; give the chance of each token")
        for rate in rates:
            if not 0 <= rate <= 1:
                raise DeploymentError(f"a rate of kept drafts is {shown(rate)}; give 0 to 1")
        self._longest = len(rates)
        # Chances that so many are kept, the least first, so that a draw is looked up among them.
        self._falling = sorted(accumulate(rates, mul))
        self._seed = _mixed(seed & _WORD)

    def __call__(self, request: Request, tokens: int) -> int:
        """How many tokens, drafted to follow a request's first so many, are kept."""
        word = _mixed(self._seed ^ _mixed(request.id & _WORD) ^ (tokens * _STEPS[0] & _WORD))
        draw = (word >> 64 - _DIGITS) / (1 << _DIGITS)
        return self._longest - bisect_right(self._falling, draw)


def _mixed(word: int) -> int:
    word = (word + _STEPS[0]) & _WORD
    word = (word ^ word >> 30) * _STEPS[1] & _WORD
    word = (word ^ word >> 27) * _STEPS[2] & _WORD
    return word ^ word >> 31
