"""The contract of a router: what it is told, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenroom.serving.request import Request


class Target(Protocol):
    """What a request can be sent to: a server, or one of its data-parallel ranks."""

    @property
    def number(self) -> int:
        """Which one it is, for as long as it is there."""

    @property
    def in_flight(self) -> int:
        """Requests that were sent to it and have not ended."""

    @property
    def num_running(self) -> int:
        """Requests that run, as it last said."""

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""

    @property
    def prompt_tokens_ahead(self) -> int:
        """Tokens of prompts that were sent to it and whose first answer token is not out."""

    @property
    def used_blocks(self) -> int:
        """KV blocks that are held."""

    @property
    def used_share(self) -> float:
        """Share of its KV blocks that are held."""


class Router(Protocol):
    """What chooses where a request goes.

    Attributes:
        looks_at_load: Whether its choice depends on what targets do. One that does not gives each
            target the same requests whatever they do.
    """

    looks_at_load: bool

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The place among the targets of the one that gets the request."""

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Hear that a step of one of them has ended."""
