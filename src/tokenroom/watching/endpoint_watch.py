"""One server, looked at again and again: found, lost, found anew.

At most one request is under way, none while the server answers another; after failures the next
look comes later and later, to :data:`_LONGEST_WAIT_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tokenroom.errors import TokenroomError, WatchError
from tokenroom.watching.addresses import Address
from tokenroom.watching.fetching import Fetcher
from tokenroom.watching.observation import Endpoint, Facts, Planned, Replica
from tokenroom.watching.probing import Scrape, Server, recognise, scrape
from tokenroom.watching.replica_window import ReplicaWindow
from tokenroom.watching.snapshots import (
    Snapshot,
    host_bytes,
    read_snapshots,
    read_torch,
    start_mark,
)

_LONGEST_WAIT_SECONDS: Final = 30.0
_CLOCK_SLACK_SECONDS: Final = 1.0

Planner = Callable[[Facts], Planned | None]
"""What says what was predicted for a server; raises a TokenroomError where it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookSettings:
    """How servers are looked at.

    Attributes:
        interval_seconds: Between two looks.
        window_seconds: Latencies and hit rates are of so long.
        timeout_seconds: Longest that a page may take.
        api_key: Sent as a bearer token; None for none.
    """

    interval_seconds: float = 2.0
    window_seconds: float = 30.0
    timeout_seconds: float = 5.0
    api_key: str | None = None


class EndpointWatch:
    """What is known of one server.

    Args:
        address: Where it answers.
        settings: How it is looked at.
        planner: Who predicts; None where nothing is to be predicted.
    """

    def __init__(
        self, address: Address, settings: LookSettings, planner: Planner | None = None
    ) -> None:
        self._settings = settings
        self._planner = planner
        self._fetcher = Fetcher(
            address, timeout_seconds=settings.timeout_seconds, api_key=settings.api_key
        )
        self._server: Server | None = None
        self._mark: float | None = None
        self._failures = 0
        self._windows: dict[tuple[str | None, str | None], ReplicaWindow] = {}
        self._planned_for: Facts | None = None
        self._looked_at = time.monotonic()
        self._state = Endpoint(url=address.url, status="waiting", since=time.time())

    def state(self) -> Endpoint:
        """The server as it was last seen; down where it leaves a look without an answer."""
        state, settings = self._state, self._settings
        silent = time.monotonic() - self._looked_at
        if state.status == "up" and silent > 3 * (
            settings.interval_seconds + settings.timeout_seconds
        ):
            return replace(
                state,
                status="down",
                since=time.time() - silent,
                error=f"{state.url}: no answer for {silent:.0f} s",
                replicas=(),
                torch=(),
            )
        return state

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        while not stop.is_set():
            began = time.monotonic()
            self.look()
            stop.wait(max(0.0, self.pause_seconds() - (time.monotonic() - began)))

    def pause_seconds(self) -> float:
        """From the beginning of the last look to the next."""
        interval = self._settings.interval_seconds
        if self._failures < 2:
            return interval
        longer = interval * 2.0 ** min(self._failures - 1, 10)
        return max(interval, min(_LONGEST_WAIT_SECONDS, longer))

    def look(self) -> Endpoint:
        """Look once; what goes wrong is part of the answer."""
        began = time.monotonic()
        try:
            if self._server is None:
                self._server = recognise(self._fetcher)
                began = time.monotonic()
            found = scrape(self._fetcher, self._server)
            seconds = time.monotonic() - began
            self._failures = 0
            self._state = replace(self._up(self._server, found), scrape_seconds=seconds)
        except WatchError as error:
            self._server = None  # another version may come back
            self._failures += 1
            self._state = self._down(str(error))
        self._looked_at = time.monotonic()
        return self._state

    def _down(self, error: str) -> Endpoint:
        state = self._state
        since = state.since if state.status == "down" else time.time()
        return replace(
            state, status="down", since=since, error=error, replicas=(), torch=(), host_bytes=None
        )

    def _up(self, server: Server, found: Scrape) -> Endpoint:
        now = time.time()
        mark = found.start_mark
        if mark is None and found.page is not None:
            mark = start_mark(found.page)
        snapshots = _snapshots(server, found, self._state.planned)
        restarted = self._restarted(mark, snapshots)
        self._mark = mark
        replicas = tuple(
            self._taken_up(snapshot, now, restarted=restarted) for snapshot in snapshots
        )
        state = self._state
        planned, no_plan = self._plan(server.facts)
        return replace(
            state,
            status="up",
            since=state.since if state.status == "up" and not restarted else now,
            error=None,
            restarts=state.restarts + restarted,
            facts=server.facts,
            planned=planned,
            no_plan=no_plan,
            host_bytes=None if found.page is None else host_bytes(found.page),
            replicas=replicas,
            torch=() if found.page is None else read_torch(found.page),
        )

    def _restarted(self, mark: float | None, snapshots: tuple[Snapshot, ...]) -> bool:
        """Whether this is another process: by when it began, else by a counter that fell."""
        if mark is not None and self._mark is not None:
            return abs(mark - self._mark) > _CLOCK_SLACK_SECONDS
        return any(
            window.fell(snapshot)
            for snapshot in snapshots
            if (window := self._windows.get((snapshot.model, snapshot.rank))) is not None
        )

    def _taken_up(self, snapshot: Snapshot, now: float, *, restarted: bool) -> Replica:
        key = (snapshot.model, snapshot.rank)
        if key not in self._windows:
            self._windows[key] = ReplicaWindow(self._settings.window_seconds)
        return self._windows[key].add(snapshot, now, restarted=restarted)

    def _plan(self, facts: Facts) -> tuple[Planned | None, str | None]:
        """What was predicted, asked again only when the server tells something else."""
        if self._planner is None:
            return None, None
        if self._planned_for == facts:
            return self._state.planned, self._state.no_plan
        self._planned_for = facts
        try:
            return self._planner(facts), None
        except TokenroomError as error:
            return None, str(error)


def _snapshots(server: Server, found: Scrape, planned: Planned | None) -> tuple[Snapshot, ...]:
    if found.stats is not None:
        return (found.stats,)
    snapshots = () if found.page is None else read_snapshots(server.engine, found.page)
    if server.engine != "llama.cpp" or not found.slots:
        pool = server.facts.kv_pool_tokens
        return tuple(
            one if one.kv_pool_tokens is not None else replace(one, kv_pool_tokens=pool)
            for one in snapshots
        )
    first = snapshots[0] if snapshots else Snapshot(model=None, rank=None)
    return (_with_slots(first, found.slots, server.facts, planned),)


def _with_slots(
    snapshot: Snapshot, slots: tuple[Any, ...], facts: Facts, planned: Planned | None
) -> Snapshot:
    """llama-server's figures with what its slots hold.

    Only slots at work count: what others keep of earlier prompts gives way. Where nobody tells how
    large the cache is, the share is that of the fullest slot.
    """
    busy = [slot for slot in slots if slot.get("is_processing")]
    held = [_tokens(slot) for slot in busy]
    used = sum(tokens for tokens in held if tokens is not None) if None not in held else None
    pool = snapshot.kv_pool_tokens or facts.kv_pool_tokens
    if pool is None and planned is not None:
        pool = planned.kv_pool_tokens
    share = snapshot.kv_share
    if share is None and used is not None:
        share = used / pool if pool else max(map(_share, slots), default=0.0)
    return replace(
        snapshot,
        running=snapshot.running if snapshot.running is not None else len(busy),
        kv_used_tokens=snapshot.kv_used_tokens if snapshot.kv_used_tokens is not None else used,
        kv_pool_tokens=pool,
        kv_share=share,
    )


def _share(slot: Any) -> float:
    tokens, most = _tokens(slot), slot.get("n_ctx")
    busy = slot.get("is_processing") and tokens is not None
    return tokens / most if busy and isinstance(most, int) and most > 0 and tokens else 0.0


def _tokens(slot: Any) -> int | None:
    """Tokens in a slot: prompt and output (``n_prompt_tokens``, the length of its cache)."""
    tokens = slot.get("n_prompt_tokens")
    return tokens if isinstance(tokens, int) else None
