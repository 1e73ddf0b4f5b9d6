"""The live view: servers that the operator named, watched while their recorded pages change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from observations import OBSERVATION
from page_server import PageServer
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from conftest import AXE, LAPTOP, Visit, serving
from tokenroom.reports.messages import Language
from tokenroom.reports.watch_json import watch_json
from tokenroom.web.watching import moment

pytestmark = pytest.mark.browser

RECORDED = Path(__file__).parents[1] / "fixtures" / "watching"
IDLE = (RECORDED / "vllm-0.32.0-idle.txt").read_text()
LOADED = (RECORDED / "vllm-0.32.0-loaded.txt").read_text()
MODELS = {"data": [{"id": "tiny", "root": "Qwen/Qwen3-8B", "max_model_len": 8192}]}
PATIENCE_MS = 30_000
SERIOUS = {"serious", "critical"}
PHONE = {"viewport": {"width": 390, "height": 844}}


def with_gauges(page: str, *, running: int, waiting: int, share: float) -> str:
    """A recorded page with other values of what goes up and down."""
    gauges = {
        "num_requests_running": running,
        "num_requests_waiting": waiting,
        "kv_cache_usage_perc": share,
    }
    for name, value in gauges.items():
        page = re.sub(rf"(?m)^(vllm:{name}\{{.*\}}) .*", rf"\g<1> {value}", page)
    return page


@pytest.fixture(scope="module")
def engine() -> Iterator[PageServer]:
    pages = {
        "/metrics": IDLE,
        "/version": '{"version": "0.32.0"}',
        "/v1/models": json.dumps(MODELS),
    }
    with PageServer(pages) as engine:
        yield engine


@pytest.fixture(scope="module")
def watching(
    server: str, engine: PageServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server that watches the engine, and one that is not there."""
    with PageServer({}) as gone:
        pass
    options = ["--watch", engine.url, "--watch", gone.url, "--watch-gpu", "l40s"]
    with serving(tmp_path_factory.mktemp("watching"), *options) as address:
        yield address


@pytest.fixture
def context(browser: Browser, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    options: dict[str, Any] = {"viewport": LAPTOP, "locale": "en-US"}
    context = browser.new_context(**options | getattr(request, "param", {}))
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


def live(visit: Visit, query: str = "") -> Page:
    visit.page.goto(f"{visit.address}?tab=live{query}")
    visit.page.wait_for_selector(".live")
    return visit.page


def test_what_a_server_does_is_shown_as_it_changes(
    context: BrowserContext, watching: str, engine: PageServer
) -> None:
    visit = Visit(context, watching)
    engine.pages["/metrics"] = with_gauges(IDLE, running=3, waiting=0, share=0.42)
    page = visit.go()
    page.get_by_role("tab", name="Live").click()
    section = page.get_by_role("region", name=engine.url)
    expect(section).to_contain_text("Qwen/Qwen3-8B · vllm 0.32.0")
    expect(section).to_contain_text("3 running", timeout=PATIENCE_MS)
    expect(section.locator(".kv-fine")).to_have_text("42%")
    engine.pages["/metrics"] = with_gauges(LOADED, running=18, waiting=7, share=0.885)
    expect(section).to_contain_text("18 running", timeout=PATIENCE_MS)
    expect(section).to_contain_text("7 waiting")
    expect(section.locator(".kv-high")).to_have_text(re.compile("8[89]%"))
    expect(section).to_contain_text("60 requests served")
    preempted = section.locator(".tile", has_text="Preempted")
    expect(preempted).to_contain_text("31")
    ttft = section.get_by_role("row", name="TTFT")
    expect(ttft).to_contain_text("60")
    assert section.locator(".sparkline .curve").count() == 4
    drawn = section.locator(".sparkline .curve").first.get_attribute("d") or ""
    assert len(re.findall(r"[ML]", drawn)) >= 1
    said = section.locator(".sparkline").first.get_attribute("aria-label") or ""
    assert re.search(r"at most 8[89]%", said)
    alerts = page.get_by_role("region", name="Alerts")
    expect(alerts).to_contain_text("31 requests lost their KV blocks")
    high = alerts.locator(".alert-warning", has_text="waterline of 80%")
    high.get_by_text("What helps").click()
    high.get_by_role("button", name="Copy").first.click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("--")
    memory = section.locator(".planned")
    expect(memory.get_by_role("row", name="weights")).to_contain_text("15.27 GiB")
    expect(memory.get_by_role("row", name="tokens of the pool")).to_contain_text("1,280")
    expect(page.locator(".gpus, .live > .caption")).to_have_count(1)
    assert visit.problems == []


def test_who_is_gone_is_told_and_comes_back(
    context: BrowserContext, watching: str, engine: PageServer
) -> None:
    visit = Visit(context, watching)
    page = live(visit)
    expect(page.locator(".endpoint-down")).to_have_count(1)
    expect(page.locator(".endpoint-down")).to_contain_text("refused")
    expect(page.locator(".alert-critical")).to_contain_text("no answer")
    before = engine.pages["/metrics"]
    engine.pages["/metrics"] = (503, "restarting")
    expect(page.locator(".endpoint-down")).to_have_count(2, timeout=PATIENCE_MS)
    expect(page.get_by_role("region", name=engine.url)).to_contain_text("No figures while")
    engine.pages["/metrics"] = before
    expect(page.locator(".endpoint-down")).to_have_count(1, timeout=PATIENCE_MS)


def test_a_lost_connection_and_a_standstill_are_told(
    context: BrowserContext, watching: str
) -> None:
    visit = Visit(context, watching)
    page = live(visit)
    status = page.locator(".live-head [role=status]")
    expect(status).to_have_text("Up to date")
    page.route("**/v1/watch*", lambda route: route.abort())
    expect(status).to_contain_text("connection to this page's server is lost", timeout=PATIENCE_MS)
    expect(page.locator(".live.old")).to_be_visible()
    page.unroute("**/v1/watch*")
    expect(status).to_have_text("Up to date", timeout=PATIENCE_MS)
    found = page.evaluate("fetch('v1/watch').then(answer => answer.json())")
    page.route("**/v1/watch*", lambda route: route.fulfill(json=found | {"history": []}))
    expect(status).to_contain_text("has seen nothing new", timeout=PATIENCE_MS)


def test_it_asks_only_while_it_is_looked_at(context: BrowserContext, watching: str) -> None:
    visit = Visit(context, watching)
    page = live(visit)

    def asked() -> int:
        return sum("/v1/watch" in url for url in visit.asked)

    def hide(hidden: str) -> None:
        page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    def stands_still() -> bool:
        page.wait_for_timeout(300)  # an answer that was asked for may still come
        before = asked()
        page.wait_for_timeout(2600)
        return asked() == before

    hide("true")
    assert stands_still()
    before = asked()
    hide("false")
    page.wait_for_timeout(500)
    assert asked() == before + 1
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".live-head")).to_contain_text("Paused")
    assert stands_still()
    page.get_by_role("button", name="Go on").click()
    page.wait_for_timeout(500)
    assert asked() > before + 1
    page.get_by_role("tab", name="Doctor").click()
    assert stands_still()


def test_where_nothing_is_watched_there_is_no_tab(visit: Visit) -> None:
    page = visit.go()
    page.wait_for_timeout(300)
    expect(page.get_by_role("tab", name="Live")).to_have_count(0)
    page.goto(visit.address + "?tab=live")
    expect(page.get_by_role("tabpanel")).to_contain_text("tokenroom serve --watch")


def answer_with_everything(route: Route) -> None:
    """An observation with something in every field, as the server would answer it."""
    language = Language("zh" if "language=zh" in route.request.url else "en")
    route.fulfill(json=watch_json(OBSERVATION, language) | {"history": [moment(OBSERVATION)]})


def test_gpus_are_shown_beside_what_was_predicted(context: BrowserContext, watching: str) -> None:
    visit = Visit(context, watching)
    visit.page.route("**/v1/watch*", answer_with_everything)
    page = live(visit)
    gpu = OBSERVATION.gpus[0]
    tile = page.locator(".gpu").first
    expect(tile).to_contain_text(gpu.name)
    expect(tile).to_contain_text(f"{gpu.used_bytes / 2**30:.2f}")
    expect(page.locator(".endpoint").first).to_contain_text("PyTorch's allocator")
    expect(page.get_by_role("row", name="TTFT").first).to_contain_text("beyond")


@pytest.mark.parametrize(
    "context",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(
    context: BrowserContext, watching: str
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    visit = Visit(context, watching)
    visit.page.route("**/v1/watch*", answer_with_everything)
    page = live(visit, "&language=zh")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    serious = [
        (item["id"], [node["html"][:200] for node in item["nodes"]])
        for item in found["violations"]
        if item["impact"] in SERIOUS
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_it_is_whole_in_chinese(context: BrowserContext, watching: str, engine: PageServer) -> None:
    visit = Visit(context, watching)
    before = engine.pages["/metrics"]
    assert isinstance(before, str)
    engine.pages["/metrics"] = with_gauges(before, running=18, waiting=7, share=0.885)
    page = live(visit, "&language=zh")
    section = page.get_by_role("region", name=engine.url)
    expect(section).to_contain_text("18 运行", timeout=PATIENCE_MS)
    shown = section.inner_text()
    for names in section.locator("code").all_inner_texts():
        shown = shown.replace(names, "")
    english = set(re.findall(r"[A-Za-z]{4,}", shown)) - {
        *("http", "Qwen", "vllm", "token", "TTFT", "TPOT", "CUDA", "Graph"),
    }
    assert english == set()
