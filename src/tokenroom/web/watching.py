"""What the operator lets the server watch: the latest observation, and a history of short ones."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tokenroom.reports.messages import Language
from tokenroom.reports.watch_json import watch_json
from tokenroom.watching.observation import Observation
from tokenroom.watching.watcher import Watcher

_MOMENTS: Final = 900
_SHARED: Final = (
    *("running", "waiting", "kv_share"),
    *("prompt_tokens_per_second", "generation_tokens_per_second"),
)


class LiveWatch:
    """Watches in a thread, and keeps what was seen.

    Args:
        make: Makes the watcher; None where nothing is watched.
    """

    def __init__(self, make: Callable[[], Watcher] | None) -> None:
        self._make = make
        self._watcher: Watcher | None = None
        self._seen = Observation(time=time.time(), interval_seconds=0.0, window_seconds=0.0)
        self._moments: deque[dict[str, Any]] = deque(maxlen=_MOMENTS)

    def start(self) -> None:
        """Begin to watch."""
        if self._make is not None:
            self._watcher = self._make()
            self._watcher.start()
            threading.Thread(target=self._keep, args=(self._watcher,), daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        if self._watcher is not None:
            self._watcher.stop()

    def text(self, language: Language, since: float | None) -> str:
        """What ``tokenroom watch --json`` prints, as one object.

        Args:
            language: Of the sentences.
            since: With ``history`` of what was seen after it, in seconds since the epoch; without
                where None.
        """
        found = watch_json(self._seen, language)
        if since is not None:
            found["history"] = [one for one in list(self._moments) if one["time"] > since]
        return json.dumps(found)

    def _keep(self, watcher: Watcher) -> None:
        for seen in watcher.observations():
            self._moments.append(moment(seen))
            self._seen = seen


def moment(seen: Observation) -> dict[str, Any]:
    """An observation in short: what a line over time is drawn from."""
    return {
        "time": seen.time,
        "replicas": [
            {
                "url": endpoint.url,
                "model": replica.model,
                "rank": replica.rank,
                **{name: getattr(replica, name) for name in _SHARED},
                "ttft_p50_seconds": None if replica.ttft is None else replica.ttft.p50_seconds,
                "itl_p50_seconds": None if replica.itl is None else replica.itl.p50_seconds,
            }
            for endpoint in seen.endpoints
            for replica in endpoint.replicas
        ],
        "gpus": [
            {"index": gpu.index, "used_bytes": gpu.used_bytes, "busy_share": gpu.busy_share}
            for gpu in seen.gpus
        ],
    }
