"""A server in this process, with its workers, on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tokenroom.web.app import create_app
from tokenroom.web.server_settings import ServerSettings


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("server")
    settings = ServerSettings(database=folder / "jobs.sqlite3", max_queued_jobs=4)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client
