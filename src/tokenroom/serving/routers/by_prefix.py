"""Routers that send a request where the beginning of its prompt has been before.

They remember what they sent where, and do not ask the engines. A prompt is known by the names of
its blocks (``Request.block_hashes``), each of which stands for everything up to its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from tokenroom.serving.request import Request
from tokenroom.serving.routers.by_load import least
from tokenroom.serving.routers.router import Target

_MOST_TOKENS: Final = 2**24
"""Of the prompts remembered of one target: ``max_tree_size`` of SGLang's router, which counts
characters."""


class _Sent:
    """Blocks of prompts that were sent to one target, the latest last."""

    __slots__ = ("_blocks", "_most")

    def __init__(self, most_blocks: int) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._most = most_blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def known(self, names: Sequence[int]) -> int:
        """How many of a prompt's first blocks are among them."""
        for count, name in enumerate(names):
            if name not in self._blocks:
                return count
        return len(names)

    def add(self, names: Sequence[int]) -> None:
        """Remember a prompt; of the oldest ones what is beyond the most is forgotten."""
        for name in reversed(names):  # ends of prompts are forgotten before their beginnings
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)


class _Memory:
    """What was sent to each target."""

    __slots__ = ("_block_tokens", "_sent")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._sent: dict[int, _Sent] = {}

    def of(self, target: Target) -> _Sent:
        """What was sent to one."""
        found = self._sent.get(target.number)
        if found is None:
            found = self._sent[target.number] = _Sent(max(1, _MOST_TOKENS // self._block_tokens))
        return found

    def prompt(self, request: Request) -> Sequence[int]:
        """The names of a prompt's own blocks, without the answer's."""
        return request.block_hashes[: request.prompt_tokens // self._block_tokens]


class CacheAware:
    """SGLang's ``cache_aware`` policy.

    While loads differ by more than ``balance_abs_threshold`` requests and by more than a factor of
    ``balance_rel_threshold``, the target with the fewest requests in flight is chosen. Otherwise
    the one that has seen most of the prompt, if that is more than the share ``cache_threshold``;
    or the one that has been sent the fewest different tokens. Source: ``select_worker`` of
    ``sgl-router/src/policies/cache_aware.rs`` of sgl-project/sglang (026f853), whose tree holds
    characters instead of blocks.

    Args:
        block_tokens: Tokens of a block.
        cache_threshold: See above, as all that follow.
        balance_abs_threshold: Requests.
        balance_rel_threshold: Ratio.
    """

    __slots__ = ("_abs", "_block_tokens", "_memory", "_rel", "_threshold")

    looks_at_load = True

    def __init__(
        self,
        *,
        block_tokens: int,
        cache_threshold: float,
        balance_abs_threshold: int,
        balance_rel_threshold: float,
    ) -> None:
        self._memory = _Memory(block_tokens)
        self._block_tokens = block_tokens
        self._threshold = cache_threshold
        self._abs = balance_abs_threshold
        self._rel = balance_rel_threshold

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The target, by load or by what it has seen."""
        prompt = self._memory.prompt(request)
        chosen = self._chosen(request, prompt, targets)
        self._memory.of(targets[chosen]).add(prompt)
        return chosen

    def _chosen(self, request: Request, prompt: Sequence[int], targets: Sequence[Target]) -> int:
        loads = [target.in_flight for target in targets]
        low, high = min(loads), max(loads)
        if high - low > self._abs and high > low * self._rel:
            return loads.index(low)
        known = [self._memory.of(target).known(prompt) for target in targets]
        best = max(known)
        if best * self._block_tokens > self._threshold * request.prompt_tokens:
            return known.index(best)
        return least(targets, 0, lambda target: len(self._memory.of(target)))

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: it counts what it sent."""


class KvAware:
    """NVIDIA Dynamo's KV router.

    The target with the least ``overlap_weight * prefill blocks + decode blocks``. The first are the
    blocks of prompts that it has not computed yet and those of the new one that it has not seen;
    the others what it holds, and all blocks of the new prompt. Source: "Routing concepts, cost
    calculation" of the documentation of Dynamo 1.2, at a temperature of 0, with the approximate
    indexer (``--no-router-kv-events``) and one target first in turn among equals.

    Args:
        block_tokens: Tokens of a block.
        overlap_weight: ``--kv-overlap-score-weight``.
    """

    __slots__ = ("_block_tokens", "_first", "_memory", "_weight")

    looks_at_load = True

    def __init__(self, *, block_tokens: int, overlap_weight: float) -> None:
        self._memory = _Memory(block_tokens)
        self._block_tokens = block_tokens
        self._weight = overlap_weight
        self._first = 0

    def choose(self, request: Request, targets: Sequence[Target], now: float) -> int:
        """The cheapest target."""
        prompt = self._memory.prompt(request)
        blocks = request.prompt_tokens / self._block_tokens

        def cost(target: Target) -> float:
            ahead = target.prompt_tokens_ahead / self._block_tokens
            new = blocks - self._memory.of(target).known(prompt)
            return self._weight * (ahead + new) + target.used_blocks + blocks

        self._first += 1
        chosen = least(targets, self._first - 1, cost)
        self._memory.of(targets[chosen]).add(prompt)
        return chosen

    def stepped(self, targets: Sequence[Target], now: float) -> None:
        """Nothing: loads are read when they are needed."""
