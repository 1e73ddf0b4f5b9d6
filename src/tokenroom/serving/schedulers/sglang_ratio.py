"""How much of the rest of their answers SGLang keeps room for.

Follows ``NewTokenRatioTracker`` (``managers/scheduler_components/new_token_ratio_tracker.py``),
SGLang 0.5.23, with the defaults of its SGLANG_* variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenroom.serving.radix_cache import RadixSequence

_FIRST: Final = 0.7  # SGLANG_INIT_NEW_TOKEN_RATIO
_LEAST_FACTOR: Final = 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY_STEPS: Final = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
RETRACT_STEPS: Final = 20
"""Tokens that those who stay are to get after a retraction (``SGLANG_RETRACT_DECODE_STEPS``)."""


class NewTokenRatio:
    """The share: it shrinks with every step of answers, and grows when somebody is retracted.

    Attributes:
        value: The share.

    Args:
        conservativeness: ``schedule_conservativeness``.
    """

    __slots__ = ("_decay", "_first", "_least", "value")

    def __init__(self, conservativeness: float) -> None:
        self._first = min(_FIRST * conservativeness, 1.0)
        self._least = min(self._first * _LEAST_FACTOR, 1.0)
        self._decay = (self._first - self._least) / _DECAY_STEPS
        self.value = self._first

    def reset(self) -> None:
        """Begin anew, as an idle engine does."""
        self.value = self._first

    def decay(self) -> None:
        """Shrink by one step."""
        self.value = max(self.value - self._decay, self._least)

    def retracted(self, stay: Sequence[RadixSequence]) -> None:
        """Take what has come out of those who stay for what will, and some steps on top."""
        answered = sum(sequence.answered for sequence in stay)
        most = sum(sequence.max_new_tokens for sequence in stay)
        self.value = min(1.0, (answered + RETRACT_STEPS * len(stay)) / (most + 1))
