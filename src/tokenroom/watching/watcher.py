"""Everything that is watched, together: a thread for each server and one for the GPUs.

Nobody waits for anybody: what is observed is what each of them saw last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tokenroom.watching.addresses import Address
from tokenroom.watching.alerts import AlertBook, AlertSettings
from tokenroom.watching.endpoint_watch import EndpointWatch, LookSettings
from tokenroom.watching.gpus import GpuReader
from tokenroom.watching.helps import helps
from tokenroom.watching.observation import Alert, Endpoint, Gpu, Help, Observation
from tokenroom.watching.planned import Prediction

_JOIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A server to watch.

    Attributes:
        address: Where it answers.
        prediction: What predicts for it; None where nothing is to be predicted.
    """

    address: Address
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """How it is watched.

    Attributes:
        look: How servers are looked at.
        alerts: From where on something is alarming.
        gpus: Whether this machine's GPUs are watched.
    """

    look: LookSettings = field(default_factory=LookSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    gpus: bool = True


class Watcher:
    """Watches servers and GPUs until it is stopped.

    Args:
        servers: The servers.
        settings: How they are watched.
        reader: Reads the GPUs.
    """

    def __init__(
        self,
        servers: Sequence[Watched],
        settings: WatchSettings,
        reader: GpuReader | None = None,
    ) -> None:
        self._settings = settings
        self._predictions = {one.address.url: one.prediction for one in servers}
        self._endpoints = [
            EndpointWatch(one.address, settings.look, one.prediction) for one in servers
        ]
        self._reader = (reader or GpuReader()) if settings.gpus else None
        self._gpus: tuple[Gpu, ...] = ()
        self._gpus_error: str | None = None
        self._book = AlertBook(settings.alerts, self._helps)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to look."""
        for endpoint in self._endpoints:
            self._thread(endpoint.run, f"watch {endpoint.state().url}")
        if self._reader is not None:
            self._thread(self._read_gpus, "watch GPUs")

    def stop(self) -> None:
        """Look no more; a look under way is left to its deadline."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def look_once(self) -> Observation:
        """Look at everything now, each server in a thread of its own."""
        threads = [threading.Thread(target=one.look, daemon=True) for one in self._endpoints]
        for thread in threads:
            thread.start()
        if self._reader is not None:
            self._look_at_gpus(self._reader)
        for thread in threads:
            thread.join()
        return self.observe()

    def observe(self) -> Observation:
        """What was seen last."""
        look = self._settings.look
        return self._book.take(
            Observation(
                time=time.time(),
                interval_seconds=look.interval_seconds,
                window_seconds=look.window_seconds,
                gpus_error=self._gpus_error,
                gpus=self._gpus,
                endpoints=tuple(endpoint.state() for endpoint in self._endpoints),
            )
        )

    def observations(self, duration_seconds: float | None = None) -> Iterator[Observation]:
        """What is seen, once an interval, until the time is over or the watch is stopped."""
        began = due = time.monotonic()
        while not self._stop.is_set():
            yield self.observe()
            due = max(due + self._settings.look.interval_seconds, time.monotonic())
            if duration_seconds is not None and due - began > duration_seconds:
                self._stop.wait(max(0.0, began + duration_seconds - time.monotonic()))
                return
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _thread(self, target: Callable[[threading.Event], None], name: str) -> None:
        thread = threading.Thread(target=target, args=(self._stop,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read_gpus(self, stop: threading.Event) -> None:
        assert self._reader is not None
        while not stop.is_set():
            self._look_at_gpus(self._reader)
            stop.wait(self._settings.look.interval_seconds)
        self._reader.close()

    def _look_at_gpus(self, reader: GpuReader) -> None:
        self._gpus = reader.read()
        self._gpus_error = reader.error

    def _helps(self, alert: Alert, endpoint: Endpoint | None) -> tuple[Help, ...]:
        prediction = None if endpoint is None else self._predictions.get(endpoint.url)
        facts = None if endpoint is None else endpoint.facts
        return helps(
            alert,
            None if facts is None else facts.engine,
            None if prediction is None else prediction.result,
            waterline=self._settings.alerts.waterline,
        )
