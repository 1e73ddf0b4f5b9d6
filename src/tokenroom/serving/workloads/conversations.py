"""Conversations: prompts that begin with everything said before, and what of it is cached.

Turn ``n`` of a conversation sends its system prompt, all earlier messages and answers, and a new
message: ``prompt(n) = prompt(n - 1) + answer(n - 1) + message(n)``. So a prefix cache finds all
full blocks of the turns before it, and without one they are computed anew each turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tokenroom.errors import WorkloadError
from tokenroom.serving.request import Request
from tokenroom.serving.workloads import draws
from tokenroom.serving.workloads.block_names import owned_blocks
from tokenroom.serving.workloads.distributions import Distribution, Pairs, draw_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompts:
    """Prompts that many requests begin with.

    Attributes:
        count: How many there are; each request has one of them, all alike often.
        tokens: Length of each.
    """

    count: int
    tokens: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.tokens < 1:
            raise WorkloadError(
                f"shared({self.count},{self.tokens}) shares nothing; write the number of system "
                "prompts and the tokens of each, both at least 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What conversations are made of.

    Attributes:
        lengths: Each new message and its answer.
        turns: How many messages a conversation has; None for one.
        system: What conversations begin with; None for nothing shared.
        context_tokens: A conversation ends before a turn that would exceed this with its answer;
            None for no limit.
        block_tokens: Tokens in a KV block of the deployment.
        priority: Of every request.
    """

    lengths: Pairs
    turns: Distribution | None = None
    system: SystemPrompts | None = None
    context_tokens: int | None = None
    block_tokens: int = 16
    priority: int = 0


class Conversation:
    """One conversation, as far as it has come.

    It has a generator of its own, so what is said does not depend on how fast answers come.

    Attributes:
        number: Its number, which its requests carry as ``session``.
        random: Its generator, for pauses between its turns.
    """

    __slots__ = (
        "_begun",
        "_names",
        "_owner",
        "_talk",
        "_tokens",
        "_turns_left",
        "number",
        "random",
    )

    def __init__(self, talk: Talk, number: int, random: Random) -> None:
        self.number = number
        self.random = random
        self._talk = talk
        self._begun = False
        self._tokens = 0
        self._turns_left = 1 if talk.turns is None else draw_tokens(talk.turns, random)
        self._names: list[int] = []
        groups = 0
        if talk.system is not None:
            groups = talk.system.count
            self._tokens = talk.system.tokens
            group = int(random.random() * groups)
            self._names = owned_blocks(group, 0, self._tokens, talk.block_tokens)
        self._owner = groups + number

    def turn(self, request_id: int, seconds: float) -> Request | None:
        """The next request; None when the conversation is over.

        Args:
            request_id: Its name.
            seconds: When it arrives.
        """
        talk = self._talk
        if not self._turns_left:
            return None
        message, answer = talk.lengths.draw_pair(self.random)
        prompt = self._tokens + message
        limit = talk.context_tokens
        if self._begun and limit is not None and prompt + answer > limit:
            self._turns_left = 0
            return None
        self._begun = True
        self._turns_left -= 1
        if talk.turns is not None:
            known = len(self._names) * talk.block_tokens
            self._names += owned_blocks(self._owner, known, prompt + answer, talk.block_tokens)
        self._tokens = prompt + answer
        return Request(
            id=request_id,
            arrival_seconds=seconds,
            prompt_tokens=prompt,
            output_tokens=answer,
            priority=talk.priority,
            block_hashes=tuple(self._names),
            session=self.number if talk.turns is not None else None,
        )


def begin(talk: Talk, number: int, seed: int, shared: Random | None) -> Conversation:
    """A new conversation.

    Args:
        talk: What it is made of.
        number: Its number.
        seed: Of the workload.
        shared: The generator of all conversations; None for one of its own.
    """
    random = draws.stream(seed, f"conversation/{number}") if shared is None else shared
    return Conversation(talk, number, random)
