"""Routers that look at requests alone: in turn, and by session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenroom.serving.request import Request
from tokenroom.serving.routers.router import Target

_MASK: Final = 2**64 - 1


class RoundRobin:
    """One target after the other."""

    __slots__ = ("_next",)

    looks_at_load = False

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The one whose turn it is."""
        chosen = self._next % len(targets)
        self._next = chosen + 1
        return chosen

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: it does not matter."""


class Sticky:
    """All requests of a session go to one target; those without a session, in turn.

    The target is the one with the highest hash of both (rendezvous hashing: Thaler and
    Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
    Networking 6(1), 1998), so that a target that comes or goes moves only the sessions that it has.
    """

    __slots__ = ("_in_turn",)

    looks_at_load = False

    def __init__(self) -> None:
        self._in_turn = RoundRobin()

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The session's target."""
        session = request.session
        if session is None:
            return self._in_turn.choose(request, targets, now)
        return max(range(len(targets)), key=lambda at: _mixed(session, targets[at].number))

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: it does not matter."""


def _mixed(session: int, number: int) -> int:
    """Bits of two numbers, well mixed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    value = 0
    for part in (session, number):
        value = (value + part + 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value
