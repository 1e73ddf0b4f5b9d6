"""The Plan tab: a load is asked about, the front fills in, one plan is looked at and opened."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from conftest import AXE, Visit, english_words

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000
SERIOUS = {"serious", "critical"}
PHONE = {"viewport": {"width": 390, "height": 844}}
PRICED = "gpus=l40s::0.9,h100-sxm-80gb::2.5&users=60&input=512&output=64&most=2&top=3"
EVERY_KIND = "gpus=&users=60&input=512&output=64"


def link(fields: str, language: str = "en") -> str:
    return f"?tab=plan&language={language}&plan={quote(fields)}"


def opened(visit: Visit, query: str) -> Page:
    page = visit.page
    page.goto(visit.address + query)
    expect(page.locator(".plan-asked")).to_be_visible()
    return page


def answer(page: Page) -> Locator:
    return page.locator(".plan-answer")


def searched(page: Page) -> None:
    expect(page.locator(".plan-head")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".plan-answer[aria-busy=false]")).to_be_visible(timeout=PATIENCE_MS)


def test_a_load_is_asked_about_and_a_plan_is_opened(visit: Visit) -> None:
    page = opened(visit, link(PRICED))
    page.get_by_role("button", name="Find deployments").click()
    searched(page)
    expect(page.locator(".plan-head h2")).to_contain_text(re.compile(r"\d deployments? holds? it"))
    rows = page.locator(".plans tbody tr")
    expect(page.locator(".front-point:not(.open)")).to_have_count(rows.count())
    costs = [
        float(re.sub(r"[^\d.]", "", text))
        for text in page.locator(".plans tbody td:nth-child(4)").all_inner_texts()
    ]
    assert costs == sorted(costs)
    second = rows.nth(1).get_by_role("button")
    name = second.inner_text()
    second.focus()
    page.keyboard.press("Enter")
    expect(second).to_have_attribute("aria-pressed", "true")
    detail = page.locator(".plan-detail")
    expect(detail.locator("h3")).to_contain_text(name)
    expect(detail.locator("#memory-bar")).to_be_visible()
    expect(detail).to_contain_text("Each next token")
    command = detail.locator("pre").inner_text()
    assert command.startswith("vllm serve ")
    detail.get_by_text("Kubernetes").click()
    expect(detail.locator("pre")).to_contain_text("kind: Deployment")
    detail.get_by_role("button", name="Copy: Kubernetes").click()
    assert "kind: Deployment" in page.evaluate("navigator.clipboard.readText()")
    detail.get_by_role("button", name="Open in the calculator").click()
    expect(page.locator(".verdict strong")).to_have_text("Fits")
    expect(page.locator("main:not(.stale) .launch code")).to_have_text(command)
    page.get_by_role("tab", name="Plan").click()
    expect(rows.first).to_be_visible()


def test_the_simulation_that_verified_a_plan_is_watched_and_opened_in_traffic(visit: Visit) -> None:
    page = opened(visit, link(PRICED + "&top=1&run=yes"))
    searched(page)
    detail = page.locator(".plan-detail")
    told = detail.locator(".figure", has_text="KV pool").last.inner_text()
    share = re.search(r"(\d+(\.\d)?%)", told)
    assert share
    detail.get_by_role("button", name="Watch it").click()
    expect(page.locator("#highway")).to_be_visible(timeout=PATIENCE_MS)
    expect(detail.locator(".traffic .figure", has_text="KV pool")).to_contain_text(share[1])
    detail.get_by_role("button", name="Open in Traffic").click()
    expect(page.get_by_role("tab", name="Traffic")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("textbox", name="Users")).to_have_value("60")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".figure", has_text="KV pool").last).to_contain_text(
        share[1], timeout=PATIENCE_MS
    )


def test_the_front_fills_in_and_what_is_found_is_kept_when_it_is_stopped(visit: Visit) -> None:
    page = opened(visit, link(EVERY_KIND))
    expect(page.locator(".plan-asked")).to_contain_text("every kind that is known is tried")
    page.get_by_role("button", name="Find deployments").click()
    expect(page.locator(".running")).to_contain_text("layouts judged", timeout=PATIENCE_MS)
    expect(page.locator(".front-point").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".plan-answer[aria-busy=true]")).to_have_count(1)
    with page.expect_request(lambda request: request.method == "DELETE"):
        page.get_by_role("button", name="Stop, keep what is found").click()
    expect(answer(page)).to_contain_text("The search was ended early")
    expect(page.locator(".front-point").first).to_be_visible()
    expect(page.get_by_role("button", name="Find deployments")).to_be_enabled()


def test_a_link_restores_the_question_and_searches_again(visit: Visit) -> None:
    page = opened(visit, link(PRICED))
    page.get_by_text("clients", exact=True).click()
    field = page.get_by_label("Clients, each with a request in flight")
    field.fill("12")
    field.press("Enter")
    page.get_by_role("button", name="Find deployments").click()
    searched(page)
    page.wait_for_timeout(400)
    address = page.url
    found = page.locator(".plans tbody").inner_text()
    page.goto("about:blank")
    page.goto(address)
    searched(page)
    expect(field).to_have_value("12")
    assert page.locator(".plans tbody").inner_text() == found


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_refused_is_said_at_its_field(visit: Visit, language: str) -> None:
    page = opened(visit, link("users=0&gpus=l40s::&input=512&output=64&most=1&top=1", language))
    run = page.locator(".plan-asked button.primary")
    run.click()
    said = page.get_by_role("alert")
    expect(said).to_contain_text("users")
    expect(page.locator("label.field", has=said)).to_contain_text(
        "Users" if language == "en" else "用户数"
    )
    field = page.locator("label.field", has=said).get_by_role("textbox")
    field.fill("5")
    field.press("Enter")
    searched(page)
    expect(said).to_have_count(0)


def test_a_layout_without_a_published_checkpoint_is_looked_at_and_opened(visit: Visit) -> None:
    layout = "models=meta-llama/Llama-3.1-8B-Instruct&weights=fp8&gpus=l40s::&users=20"
    page = opened(visit, link(layout + "&input=512&output=64&most=1&top=1&run=yes"))
    searched(page)
    detail = page.locator(".plan-detail")
    expect(detail).to_contain_text("Weights in fp8")
    expect(detail.locator("#memory-bar")).to_be_visible()
    weights = detail.locator(".legend li", has_text="weights").locator("b").inner_text()
    assert 8 < float(weights) < 9.5
    detail.get_by_role("button", name="Open in the calculator").click()
    visit.settled()
    expect(page.locator("main .legend li", has_text="weights").locator("b")).to_have_text(weights)


def test_prompts_and_answers_apart_are_a_plan(visit: Visit) -> None:
    load = "models=meta-llama/Llama-3.1-8B&load=rate&rate=6/s&input=8000&output=100"
    page = opened(visit, link(load + "&tpot=15ms&gpus=h100-sxm-80gb::&top=1&run=yes"))
    searched(page)
    apart = page.locator(".plans").get_by_role("button", name="2P + 1D")
    apart.click()
    detail = page.locator(".plan-detail")
    expect(detail).to_contain_text("Prompts: 2 x TP1, answers: 1 x TP1")
    expect(detail.locator("pre")).to_contain_text("NixlConnector")
    expect(detail.get_by_role("button", name="Open in the calculator")).to_have_count(0)


def test_what_nothing_holds_is_said_with_the_reasons(visit: Visit) -> None:
    page = opened(visit, link("gpus=l40s::&tpot=1ms&input=512&output=64&most=1&run=yes"))
    searched(page)
    expect(page.locator(".plan-head h2")).to_contain_text("Nothing keeps these promises")
    reasons = page.locator(".rejected details[open]")
    expect(reasons.first).to_contain_text("l40s")
    expect(reasons.first.locator("li").first).to_contain_text("ms")


def test_reports_are_saved(visit: Visit) -> None:
    page = opened(visit, link(PRICED + "&run=yes"))
    searched(page)
    found: dict[str, str] = {}
    for name in ("Report (Markdown)", "Everything that was tried (CSV)", "JSON"):
        page.get_by_role("button", name="Download").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        found[name] = Path(download.value.path()).read_text(encoding="utf-8")
    plan = json.loads(found["JSON"])
    rows = list(csv.DictReader(io.StringIO(found["Everything that was tried (CSV)"])))
    tried = len(plan["plans"]) + len(plan["untried"]) + len(plan["rejected"])
    assert len(rows) == tried >= plan["candidates"]
    assert [row["accelerator"] for row in rows if row["state"] == "proposed"] == [
        one["accelerator"] for one in plan["plans"]
    ]
    for one in plan["plans"]:
        assert one["launch"]["command"] in found["Report (Markdown)"]


@pytest.mark.parametrize(
    "visit",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    page = opened(visit, link(PRICED + "&run=yes", "zh"))
    searched(page)
    expect(page.locator(".plan-detail #memory-bar")).to_be_visible()
    page.get_by_text("类型与限制").click()
    page.get_by_text("要尝试的设置").click()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    serious = [
        (item["id"], [node["html"][:200] for node in item["nodes"]])
        for item in found["violations"]
        if item["impact"] in SERIOUS
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_it_is_whole_in_chinese(visit: Visit) -> None:
    page = opened(visit, link(PRICED + "&run=yes", "zh"))
    searched(page)
    expect(page.locator(".plan-detail #memory-bar")).to_be_visible()
    names = (".plans button", "h3", ".reasons b", ".chips", "select", ".plan-gpus", ".boxes", "pre")
    english = english_words(page, *names) - {
        *("TTFT", "TPOT", "token", "CUDA", "Graph", "PyTorch", "Docker", "Kubernetes", "Markdown"),
        *("JSON", "pcie", "uniform", "lognormal"),
    }
    assert english == set()


def test_the_language_of_a_plan_follows_the_pages(visit: Visit) -> None:
    page = opened(visit, link(PRICED + "&run=yes&top=1"))
    searched(page)
    expect(page.locator(".remarks")).to_contain_text("Each replica serves")
    page.get_by_role("button", name="中文").click()
    expect(page.locator(".remarks")).to_contain_text("每个副本", timeout=PATIENCE_MS)
    searched(page)
    expect(page.locator(".plan-found.stale")).to_have_count(0)
