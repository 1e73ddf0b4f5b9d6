"""The Traffic tab: a workload is chosen or dropped, run, looked at and played back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from conftest import AXE, Visit

pytestmark = pytest.mark.browser

CROWDED = (
    "?tab=traffic&context=4096&settings=kv_cache_memory_bytes%3D1073741824"
    "&workload=poisson:rate=20,input=512,output=256,requests=120"
)
SLOW = "?tab=traffic&workload=poisson:rate=50,input=100,output=400,requests=20000"
TRACE = "arrival,input,output\n0,512,64\n0.5,1024,32\n0.75,256,16\n"
SERIOUS = {"serious", "critical"}
PATIENCE_MS = 60_000


def panel(page: Page) -> Locator:
    return page.get_by_role("tabpanel")


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    ran(page)


def ran(page: Page) -> None:
    expect(page.locator("#highway")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator(".traffic.stale")).to_have_count(0, timeout=PATIENCE_MS)


def second(page: Page) -> float:
    match = re.match(r"([\d.]+) s:", page.locator(".told-moment").inner_text())
    assert match
    return float(match[1])


def test_a_preset_is_run_and_its_figures_are_shown(visit: Visit) -> None:
    page = visit.go("?tab=traffic")
    page.get_by_label("Requests in all").fill("40")
    page.get_by_label("First token, at most").fill("2s")
    page.get_by_label("First token, at most").blur()
    run(page)
    expect(panel(page)).to_contain_text("Keeps up")
    expect(panel(page)).to_contain_text("requests served in")
    expect(panel(page)).to_contain_text("TTFT ≤ 2 s")
    for chart in ("#usage-chart", "#requests-chart", "#latency-chart"):
        expect(page.locator(f"{chart} path").first).to_be_visible()
    expect(panel(page).get_by_role("row", name="TTFT")).to_contain_text("ms")
    page.wait_for_timeout(400)
    address = page.url
    assert "workload=chat%3Arequests%3D40" in address
    assert "run=yes" in address
    page.goto("about:blank")
    page.goto(address)
    ran(page)
    expect(page.get_by_label("Requests in all")).to_have_value("40")


def test_it_is_played_paused_and_scrubbed(visit: Visit) -> None:
    page = visit.go(CROWDED)
    run(page)
    moment = page.get_by_role("slider", name="Moment of the run")
    moment.focus()
    page.keyboard.press("Home")
    assert second(page) == 0
    expect(page.locator("path.request")).to_have_count(0)
    page.get_by_label("Speed").select_option("1")
    page.get_by_role("button", name="Play").click()
    expect(page.locator("path.request.decode").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    page.wait_for_timeout(200)  # a picture that was asked for may still come
    paused = second(page)
    assert paused > 0
    page.wait_for_timeout(200)
    assert second(page) == paused
    moment.focus()
    page.keyboard.press("End")
    expect(page.locator(".told-moment")).to_contain_text("0 running, KV pool 0%")
    cursor = page.locator("#usage-chart .cursor")
    late = float(cursor.get_attribute("x1") or 0)
    page.keyboard.press("Home")
    assert second(page) == 0
    assert float(cursor.get_attribute("x1") or 0) < late
    page.get_by_role("button", name="中文").click()
    visit.settled()
    expect(page.locator(".traffic.stale")).to_have_count(0)


def test_preempted_requests_leave_and_come_back(visit: Visit) -> None:
    page = visit.go(CROWDED)
    run(page)
    expect(page.locator("figcaption")).to_contain_text(re.compile(r"Preemptions: [1-9]"))
    moment = page.get_by_role("slider", name="Moment of the run")
    out = page.locator(".road .request.preempted")
    again = page.locator("path.request.again")
    seen_out = seen_again = False
    for position in range(0, 1000, 20):
        moment.fill(str(position))
        seen_out |= out.count() > 0
        seen_again |= again.count() > 0
    assert seen_out
    assert seen_again
    assert "running" in (page.locator("#highway").get_attribute("aria-label") or "")


def test_the_pool_is_drawn_as_full_as_it_is(visit: Visit) -> None:
    page = visit.go(CROWDED)
    run(page)
    measured = page.evaluate(
        """() => {
            const width = box => box.getBoundingClientRect().width;
            const [ground, held] = [".road-level-ground", ".road-level"].map(
                name => width(document.querySelector(name)));
            return held / ground;
        }"""
    )
    told = re.search(r"KV pool (\d+)%", page.locator(".told-moment").inner_text())
    assert told
    assert measured == pytest.approx(int(told[1]) / 100, abs=0.01)


def test_a_run_is_watched_and_cancelled(visit: Visit) -> None:
    page = visit.go(SLOW)
    page.get_by_role("button", name="Run", exact=True).click()
    running = page.locator(".running")
    expect(running).to_contain_text("/ 20,000 requests", timeout=PATIENCE_MS)
    expect(running).to_contain_text("TTFT")
    page.get_by_role("tab", name="Growth").click()
    page.get_by_role("tab", name="Traffic").click()
    expect(running).to_contain_text("/ 20,000 requests")
    with page.expect_request(lambda request: request.method == "DELETE") as ended:
        page.get_by_role("button", name="Cancel").click()
    job = ended.value.url
    events = page.request.get(f"{job}/events")  # which end with the job
    assert "event: cancelled" in events.text()
    expect(running).to_have_count(0)
    page.get_by_role("tab", name="Growth").click()
    page.get_by_role("tab", name="Traffic").click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    expect(running).to_have_count(0)


def test_a_trace_is_chosen_or_dropped(visit: Visit, tmp_path: Path) -> None:
    page = visit.go("?tab=traffic")
    page.get_by_label("Workload").select_option("trace")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    file = tmp_path / "mine.csv"
    file.write_text(TRACE)
    page.get_by_label("CSV or JSON Lines").set_input_files(file)
    expect(panel(page)).to_contain_text("To be replayed: mine.csv")
    run(page)
    expect(panel(page)).to_contain_text("3 requests served in")
    page.evaluate(
        """text => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "bad.csv"));
            document.querySelector(".drop").dispatchEvent(
                new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }""",
        TRACE + "1,many,9\n",
    )
    expect(panel(page)).to_contain_text("To be replayed: bad.csv")
    expect(panel(page)).to_contain_text("figures of an earlier question")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("bad.csv, line 5", timeout=PATIENCE_MS)
    assert page.get_by_role("dialog").count() == 0


def test_what_is_described_by_hand_is_refused_in_a_sentence(visit: Visit) -> None:
    page = visit.go("?tab=traffic")
    page.get_by_label("Workload").select_option("own")
    text = page.get_by_role("textbox", name="Description")
    text.fill("bursts:rate=9,input=many,output=9")
    text.press("Enter")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("input is 'many'")
    text.fill("bursts:rate=9,input=90,output=9,requests=30")
    text.blur()
    run(page)
    expect(panel(page)).to_contain_text("30 requests served in")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_picture_and_the_figures_are_exported(visit: Visit) -> None:
    page = visit.go(CROWDED)
    run(page)
    found: dict[str, bytes] = {}
    for name in ("JSON", "Picture (SVG)"):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        found[name] = Path(download.value.path()).read_bytes()
    assert json.loads(found["JSON"])["simulation"]["requests"]["served"] == 120
    assert b"KV pool" in found["Picture (SVG)"]


def test_users_and_a_changed_deployment(visit: Visit) -> None:
    page = visit.go("?tab=traffic")
    page.get_by_label("Workload").select_option("users")
    page.get_by_label("Requests in all").fill("60")
    page.get_by_label("Requests in all").blur()
    run(page)
    expect(panel(page)).to_contain_text("Users wait for their answers")
    page.get_by_label("Count").select_option("2")
    visit.settled()
    expect(panel(page)).to_contain_text("figures of an earlier question")
    expect(page.locator(".traffic.stale")).to_have_count(1)
    run(page)
    expect(panel(page)).not_to_contain_text("figures of an earlier question")


def test_a_deployment_that_does_not_start_serves_nothing(visit: Visit) -> None:
    page = visit.go("?tab=traffic&model=meta-llama/Llama-3.1-70B-Instruct")
    expect(panel(page)).to_contain_text("serves nothing")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()


@pytest.mark.parametrize("visit", [{"reduced_motion": "reduce"}], ids=str, indirect=True)
def test_less_motion_is_still_pictures(visit: Visit) -> None:
    page = visit.go(CROWDED)
    run(page)
    page.get_by_role("slider", name="Moment of the run").fill("0")
    page.get_by_label("Speed").select_option("1")
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(300)
    assert second(page) == 0
    expect(page.locator(".told-moment")).not_to_contain_text("0.0 s:")
    assert page.locator(".road g.request:is(.prefill, .decode)").count() == 0  # on their way
    page.get_by_role("button", name="Pause").click()


PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.mark.parametrize(
    "visit",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    page = visit.go(CROWDED + "&run=yes&language=zh")
    ran(page)
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
    page = visit.go(CROWDED + "&run=yes&language=zh&ttft=1s")
    ran(page)
    drawn = panel(page).locator("svg text, svg title").all_text_contents()
    shown = " ".join([panel(page).inner_text(), *drawn])
    english = set(re.findall(r"[A-Za-z]{4,}", shown)) - {
        *("TTFT", "TPOT", "token", "ShareGPT", "Azure"),
    }
    assert english == set()
