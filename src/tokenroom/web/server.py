"""What the endpoints of one server share."""

from __future__ import annotations

import asyncio

from fastapi import Request

from tokenroom.web import catalogues
from tokenroom.web.guards import Figures
from tokenroom.web.jobs import JobStore
from tokenroom.web.questioner import Questioner
from tokenroom.web.runner import JobRunner
from tokenroom.web.server_settings import ServerSettings


class Server:
    """Its workers, jobs and figures."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.figures = Figures()
        self.store = JobStore(settings.database)
        self.runner = JobRunner(self.store, settings)
        self.questioner = Questioner(settings)
        self._warming: list[asyncio.Future[str]] = []

    def start(self) -> None:
        """Open the jobs and begin to work; lists that take a second are made meanwhile."""
        self.store.open()
        self.questioner.start()
        self.runner.start()
        for text in (catalogues.engines_text, catalogues.gpus_text, catalogues.models_text):
            self._warming.append(asyncio.ensure_future(asyncio.to_thread(text)))

    async def stop(self) -> None:
        """End every worker; what was running is queued again at the next start."""
        await asyncio.gather(*self._warming, return_exceptions=True)
        await self.runner.stop()
        await self.questioner.stop()


def server_of(request: Request) -> Server:
    """The server that got a request."""
    server: Server = request.app.state.server
    return server
