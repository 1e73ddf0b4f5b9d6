"""The page without a server: the browser's answers are the library's."""

from __future__ import annotations

import base64
import json
import lzma
import math
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser
from starlette.testclient import TestClient

from conftest import Visit
from tokenroom.errors import CommandLineError
from tokenroom.web.app import create_app
from tokenroom.web.server_settings import ServerSettings
from tokenroom.web.site import write_site

pytestmark = pytest.mark.browser

PATIENCE_MS = 180_000
LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100"}
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("fit", LLAMA | {"explain": True, "language": "zh"}),
    ("fit", LLAMA | {"context": "100k", "concurrency": 64, "changes": True}),
    ("fit", LLAMA | {"engine": "sglang", "tp": 2}),
    ("fit", LLAMA | {"engine": "tensorrt-llm", "kv": "fp8"}),
    ("fit", LLAMA | {"engine": "llama.cpp", "context": 8192}),
    ("fit", {"model": "DeepSeek-V3", "gpu": "8xh200", "engine": "vllm@0.11.0"}),
    ("fit", {"command": "services: {a: {image: vllm/vllm-openai, command: --model x}}"}),
    ("fit", {"command": "vllm serve Qwen/Qwen3-8B --max-model-len 8k", "gpu": "l40s"}),
    ("fit", {"model": "unheard-of", "gpu": "h100"}),
    ("speed", LLAMA | {"input": 2048, "output": 128, "concurrency": 16, "explain": True}),
    ("speed", LLAMA | {"sweep": "concurrency=1..8"}),
    ("sweep", LLAMA | {"sweep": "context=4k..64k"}),
    ("claims", {"names": ["table-8.1", "kv-falcon-mqa", "batching-gain"]}),
    ("claims", {"names": ["batching-static-cap"], "recorded": False}),
    ("claims", {"names": ["unheard-of"]}),
    ("read", {"text": "vllm serve Qwen/Qwen3-8B"}),
    ("recipe", LLAMA | {"workload": "chat", "tpot": "50ms", "language": "zh"}),
    ("explain", {"text": "ValueError: No available memory for the cache blocks."} | LLAMA),
    ("explain", {"base64": base64.b64encode(lzma.compress(b"cudaMalloc failed")).decode()}),
]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def site(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site") / "out"
    write_site(folder)
    host = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=host.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{host.server_port}/"
    host.shutdown()
    thread.join()
    host.server_close()


def alike(one: Any, two: Any) -> bool:
    """Equal; what powers and logarithms come to may differ in its last digits."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-12)
    return bool(one == two)


def test_the_browser_answers_as_the_library(browser: Browser, site: str, tmp_path: Path) -> None:
    context = browser.new_context(locale="en-US")
    visit = Visit(context, site)
    visit.page.set_default_timeout(PATIENCE_MS)
    visit.page.goto(site)
    visit.page.wait_for_selector(".verdict b")
    asking = """async questions => {
        const worker = new Worker("worker.js", {type: "module"});
        const answers = [];
        for (const [kind, question] of questions) {
            worker.postMessage({kind, body: JSON.stringify(question)});
            answers.push(await new Promise(resolve => {
                worker.onmessage = event => resolve(event.data);
            }));
        }
        return answers;
    }"""
    answers = visit.page.evaluate(asking, [list(pair) for pair in QUESTIONS])
    settings = ServerSettings(database=tmp_path / "jobs")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        for (kind, question), answer in zip(QUESTIONS, answers, strict=True):
            expected = client.post(f"/v1/{kind}", json=question).json()
            assert alike(json.loads(answer), expected), (kind, question)
    assert visit.problems == []
    assert [url for url in visit.asked if not url.startswith(site)] == []
    context.close()


def test_a_workload_is_simulated_in_the_browser(browser: Browser, site: str) -> None:
    context = browser.new_context(locale="en-US")
    visit = Visit(context, site)
    page = visit.page
    page.set_default_timeout(PATIENCE_MS)
    page.goto(site + "?tab=traffic&workload=poisson:rate=9,input=256,output=32,requests=60")
    run = page.get_by_role("button", name="Run", exact=True)
    run.click()
    page.wait_for_selector(".running progress")
    page.get_by_role("button", name="Cancel").click()
    run.click()
    page.wait_for_selector("#highway")
    said = page.get_by_role("tabpanel").inner_text()
    assert "60 requests served in" in said
    assert "first 2,000 requests" in said
    page.get_by_label("Requests a second").fill("none")
    page.get_by_label("Requests a second").blur()
    run.click()
    page.wait_for_selector("[role=alert]")
    assert "rate is 'none'" in page.get_by_role("alert").inner_text()
    assert visit.problems == []
    context.close()


def test_a_log_is_explained_in_the_browser(browser: Browser, site: str) -> None:
    context = browser.new_context(locale="en-US")
    visit = Visit(context, site)
    page = visit.page
    page.set_default_timeout(PATIENCE_MS)
    page.goto(site + "?tab=doctor")
    page.get_by_role("button", name="long context on an RTX 4090").click()
    page.wait_for_selector(".corrected .launch")
    said = page.get_by_role("tabpanel").inner_text()
    assert "The KV pool is too small" in said
    assert "Fits by the ledger" in said
    assert "stays in this browser" in said
    assert visit.problems == []
    assert [url for url in visit.asked if not url.startswith(site)] == []
    context.close()


def test_a_plan_is_searched_in_the_browser(browser: Browser, site: str) -> None:
    context = browser.new_context(locale="en-US")
    visit = Visit(context, site)
    page = visit.page
    page.set_default_timeout(PATIENCE_MS)
    fields = "gpus=l40s::&users=30&input=256&output=32&most=1&top=1"
    page.goto(site + f"?tab=plan&plan={quote(fields)}")
    page.get_by_role("button", name="Find deployments").click()
    page.wait_for_selector(".plan-answer[aria-busy=false] .plan-head")
    assert "1 deployment holds it" in page.locator(".plan-head").inner_text()
    page.wait_for_selector(".plan-detail #memory-bar")
    assert page.locator("pre").inner_text().startswith("vllm serve ")
    page.get_by_role("tab", name="Tables").click()
    page.wait_for_selector("table.lookup")
    page.get_by_role("tab", name="Claims").click()
    page.wait_for_selector(".claim-rows")
    assert visit.problems == []
    context.close()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(CommandLineError, match=r"not an empty folder|not built"):
        write_site(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
