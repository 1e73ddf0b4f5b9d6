"""What the endpoints of one server share."""

from __future__ import annotations

import asyncio
import gc

from fastapi import Request

from tokenroom.web import catalogues
from tokenroom.web.guards import Figures
from tokenroom.web.jobs import JobStore
from tokenroom.web.questioner import Questioner
from tokenroom.web.runner import JobRunner
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.watching import LiveWatch


class Server:
    """Its workers, jobs and figures.

    Attributes:
        ending: Whether it was told to end, and answers that go on for long are to end.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.ending = False
        self.figures = Figures()
        self.store = JobStore(settings.database)
        self.runner = JobRunner(self.store, settings)
        self.questioner = Questioner(settings)
        self.watch = LiveWatch(settings.watcher)
        self._warming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open the jobs and begin to work; lists that take a second are made meanwhile."""
        self.store.open()
        self.questioner.start()
        self.runner.start()
        self.watch.start()
        self._warming = asyncio.ensure_future(_warm())

    async def stop(self) -> None:
        """End every worker; what was running is queued again at the next start."""
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        await asyncio.to_thread(self.watch.stop)
        await self.runner.stop()
        await self.questioner.stop()


async def _warm() -> None:
    """Make what every page asks for, and have the collector leave alone what stays for good."""
    for text in (catalogues.engines_text, catalogues.gpus_text, catalogues.models_text):
        await asyncio.to_thread(text)
    gc.collect()
    gc.freeze()  # a full collection would stop answers for tens of milliseconds


async def server_of(request: Request) -> Server:
    """The server that got a request; not a plain function, which FastAPI calls in a thread."""
    server: Server = request.app.state.server
    return server
