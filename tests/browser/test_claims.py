"""The Claims tab: rows are filtered, searched, simulated anew and saved, in both languages."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from conftest import AXE, Visit

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000
SERIOUS = {"serious", "critical"}
PHONE = {"viewport": {"width": 390, "height": 844}}
ROWS = ".claim-rows tbody tr:not(.claim-section)"


def opened(visit: Visit, fields: str = "", language: str = "en") -> Page:
    page = visit.page
    page.goto(f"{visit.address}?tab=claims&language={language}&claims={quote(fields)}")
    expect(page.locator(".claim-rows")).to_be_visible(timeout=PATIENCE_MS)
    return page


def test_every_claim_is_listed_and_counted(visit: Visit) -> None:
    page = opened(visit)
    answer = page.request.get(f"{visit.address}v1/claims").json()
    expect(page.locator(ROWS)).to_have_count(len(answer["claims"]))
    for word in answer["verdicts"].values():
        button = page.get_by_role("button", name=f"{word['count']} {word['en']}", exact=True)
        expect(button).to_be_visible()


def test_rows_are_filtered_by_verdict_and_words_and_a_link_keeps_both(visit: Visit) -> None:
    page = opened(visit)
    button = page.locator(".verdict-counts .claim-corrected")
    count = int(button.locator("b").inner_text())
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(ROWS)).to_have_count(count)
    page.get_by_label("Search").fill("activation peak")
    page.wait_for_timeout(400)
    found = page.locator(ROWS).count()
    assert 0 < found < count
    expect(page.get_by_role("status").filter(has_text="claims")).to_contain_text(f"{found} /")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator(ROWS)).to_have_count(found, timeout=PATIENCE_MS)
    page.get_by_label("Search").fill("激活")  # words of either language
    assert page.locator(ROWS).count() > 0
    page.get_by_label("Search").fill("nothing has this")
    expect(page.locator(".claim-rows")).to_have_count(0)
    expect(page.get_by_role("button", name="Download")).to_be_disabled()


def test_a_recorded_row_is_simulated_anew(visit: Visit) -> None:
    page = opened(visit, "words=pools-apart")
    row = page.locator(ROWS).first
    before = row.locator("td").nth(1).inner_text().splitlines()[0]
    row.get_by_role("button", name="simulate anew").click()
    expect(row).to_contain_text("simulated just now", timeout=PATIENCE_MS)
    assert row.locator("td").nth(1).inner_text().splitlines()[0] == before


def test_what_is_shown_is_saved(visit: Visit) -> None:
    page = opened(visit, "verdict=depends", "zh")
    page.get_by_role("button", name="下载").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == page.locator(ROWS).count()
    assert {row["verdict"] for row in rows} == {"视情况"}


@pytest.mark.parametrize(
    "visit",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    page = opened(visit, "verdict=depends", "zh")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    serious = [
        (item["id"], [node["html"][:200] for node in item["nodes"]])
        for item in found["violations"]
        if item["impact"] in SERIOUS
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_it_is_in_chinese(visit: Visit) -> None:
    page = opened(visit, "verdict=equal", "zh")
    claims = page.locator(f"{ROWS} th").all_inner_texts()
    assert all(re.search(r"[\u4e00-\u9fff]", text.splitlines()[0]) for text in claims)
    heads = page.locator(".claim-rows thead th").all_inner_texts()
    assert heads == ["说法", "原文", "此处", "结论", "原因与来源"]
