"""Requests that wait for SGLang, in the order in which they are looked at.

Follows ``SchedulePolicy`` of ``managers/schedule_policy.py``, SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tokenroom.serving.radix_cache import RadixCache, RadixSequence
from tokenroom.serving.radix_tree import RadixTree
from tokenroom.serving.schedulers.sglang_config import SchedulePolicy

_MATCHED_AT_MOST: Final = 128  # WAITING_QUEUE_PREFIX_MATCH_MAX
_REFRESHED_EVERY: Final = 32  # WAITING_PREFIX_REFRESH_INTERVAL
_SHORT_PREFIX: Final = 32  # IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD and ..._DEPRIORITIZE_THRESHOLD


class WaitingRequests:
    """A queue that a policy puts in order before each step of prompts.

    Args:
        cache: Where prefixes are looked up.
        policy: ``schedule_policy``; without cached prefixes those that need them are ``fcfs``.
        name_tokens: Tokens that one name of ``Request.block_hashes`` stands for.
    """

    __slots__ = ("_cache", "_name_tokens", "_policy", "_refreshes", "_waiting")

    def __init__(self, cache: RadixCache, policy: SchedulePolicy, name_tokens: int) -> None:
        self._cache = cache
        self._policy = policy
        if not cache.enabled and policy in ("lpm", "dfs-weight"):
            self._policy = "fcfs"
        self._name_tokens = name_tokens
        self._waiting: list[RadixSequence] = []
        self._refreshes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RadixSequence]:
        return iter(self._waiting)

    def add(self, sequences: Iterable[RadixSequence]) -> None:
        """Queue requests at the end, those that were retracted too."""
        self._waiting.extend(sequences)

    def remove(self, sequence: RadixSequence) -> None:
        """Take one out, wherever it stands."""
        self._waiting.remove(sequence)

    def pop(self, count: int) -> None:
        """Take out so many from the front."""
        del self._waiting[:count]

    def order(self) -> None:
        """Bring them into the order of the policy (``calc_priority``).

        With more than 128 of them ``lpm`` leaves them as they are.
        """
        waiting, policy = self._waiting, self._policy
        if policy == "dfs-weight":
            self._match()
            root = self._cache.tree.root
            order = self._cache.tree.order_by_weight(
                sequence.last_node or root for sequence in waiting
            )
            self._waiting = [waiting[index] for index in order]
        elif policy == "lpm" and len(waiting) <= _MATCHED_AT_MOST:
            late = self._match()
            waiting.sort(
                key=lambda sequence: (
                    1 if sequence in late else -min(sequence.prefix, sequence.tokens - 1)
                )
            )
        else:
            if policy == "lof":
                waiting.sort(key=lambda sequence: -sequence.max_new_tokens)
            self._refresh()

    def _match(self) -> set[RadixSequence]:
        """Look everybody up; gives those whose prefix another one is about to compute.

        Of several that share a prefix which is not cached, all but the first are put off, so that
        they find it (``_compute_prefix_matches``).
        """
        late: set[RadixSequence] = set()
        tree = RadixTree(1, self._name_tokens)
        for sequence in self._waiting:
            self._cache.look_up(sequence, sequence.tokens)
            if sequence.prefix > _SHORT_PREFIX:
                continue
            if tree.match(sequence, sequence.tokens).end >= _SHORT_PREFIX:
                late.add(sequence)
            else:
                tree.insert(sequence, sequence.tokens, 0)
        return late

    def _refresh(self) -> None:
        """Keep what the first of them would find from being dropped, now and then.

        Source: ``_touch_waiting_prefixes``, with ``SGLANG_ENABLE_WAITING_PREFIX_REFRESH`` on.
        """
        if not self._waiting or not self._cache.enabled:
            return
        due = not self._refreshes % _REFRESHED_EVERY
        self._refreshes += 1
        if due:
            for sequence in reversed(self._waiting[:_MATCHED_AT_MOST]):
                self._cache.tree.match(sequence, sequence.tokens)
