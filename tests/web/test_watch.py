"""The live view: what the operator lets the server watch."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from page_server import VLLM_PAGES, PageServer, vllm_page
from starlette.testclient import TestClient

from tokenroom.reports.watch_json import schema_text
from tokenroom.watching.addresses import parse_address
from tokenroom.watching.endpoint_watch import LookSettings
from tokenroom.watching.watcher import Watched, Watcher, WatchSettings
from tokenroom.web.app import create_app
from tokenroom.web.server_settings import ServerSettings


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(VLLM_PAGES) as server:
        server.pages["/metrics"] = vllm_page(running=2, prompt=100)
        yield server


@pytest.fixture
def watching(server: PageServer, tmp_path: Path) -> Iterator[TestClient]:
    watched = [Watched(address=parse_address(server.url))]
    settings = WatchSettings(look=LookSettings(interval_seconds=0.05), gpus=False)
    app = create_app(
        ServerSettings(
            database=tmp_path / "jobs.sqlite3", watcher=lambda: Watcher(watched, settings)
        )
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_a_server_that_watches_nothing_says_so_in_the_same_shape(client: TestClient) -> None:
    found = client.get("/v1/watch").json()
    Draft202012Validator(json.loads(schema_text())).validate(found)
    assert found["endpoints"] == found["gpus"] == found["alerts"] == []


def test_the_latest_observation_and_what_came_since(
    watching: TestClient, server: PageServer
) -> None:
    end = time.monotonic() + 20
    while not (found := watching.get("/v1/watch", params={"since": 0}).json())["endpoints"] or (
        found["endpoints"][0]["status"] != "up" or len(found["history"]) < 3
    ):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    Draft202012Validator(json.loads(schema_text())).validate(found)
    (endpoint,) = found["endpoints"]
    assert endpoint["url"] == server.url
    assert endpoint["replicas"][0]["running"] == 2
    assert found["history"][-1]["replicas"][0]["running"] == 2
    newest = found["history"][-2]["time"]
    later = watching.get("/v1/watch", params={"since": newest}).json()["history"]
    assert all(one["time"] > newest for one in later)
    assert "history" not in watching.get("/v1/watch").json()


def test_alerts_are_worded_in_the_language_asked_for(
    watching: TestClient, server: PageServer
) -> None:
    server.pages["/metrics"] = vllm_page(share=0.9)
    end = time.monotonic() + 20
    while not (found := watching.get("/v1/watch", params={"language": "zh"}).json())["alerts"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert found["alerts"][0]["key"] == "kv_high"
    assert "水位线" in found["alerts"][0]["text"]


def test_no_client_can_name_an_endpoint(watching: TestClient, server: PageServer) -> None:
    other = "http://127.0.0.1:9/metrics"
    answer = watching.get("/v1/watch", params={"url": other, "endpoint": other, "watch": other})
    assert [one["url"] for one in answer.json()["endpoints"]] in ([], [server.url])
    assert watching.post("/v1/watch", json={"urls": [other]}).status_code == 405


@pytest.mark.parametrize("since", ["x", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(client: TestClient, since: str) -> None:
    answer = client.get("/v1/watch", params={"since": since})
    assert answer.status_code == 422
    assert "since" in answer.json()["error"]["message"]
