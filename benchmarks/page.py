"""Opens the page in Chromium and drags a slider: times and bytes, as the browser saw them.

    python benchmarks/page.py [--visits 5] [--steps 40]

The first picture is there when the verdict with its figures is shown (a browser that kept nothing);
a step is the time from a slider's key press until the next frame that shows its answer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

READY = "main[aria-busy=false] .verdict strong"
# Moves the slider inside the page, so that no time of the driver is in the figure.
STEP = """async () => {
    const slider = document.querySelector("input[type=range]");
    const main = document.querySelector("main");
    const answered = () => performance.getEntriesByType("resource")
        .some((entry) => entry.name.endsWith("v1/fit"));
    performance.clearResourceTimings();
    const start = performance.now();
    const before = slider.value;
    slider.stepUp(slider.dataset.down ? -1 : 1);
    if (slider.value === before) return null;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    while (!answered() || main.getAttribute("aria-busy") === "true") {
        await new Promise(requestAnimationFrame);
        if (performance.now() - start > 10000) throw new Error("no answer came");
    }
    await new Promise(requestAnimationFrame);
    return performance.now() - start;
}"""


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        words = [sys.executable, "-m", "tokenroom", "serve", "--port", "0"]
        words += ["--database", f"{folder}/jobs.sqlite3"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            found = re.search(r"http://\S+/", server.stderr.readline())
            assert found is not None
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            try:
                load = os.getloadavg()[0]
                visits = [visited(browser, found[0]) for _ in range(wanted.visits)]
                steps = dragged(browser, found[0], wanted.steps)
            finally:
                browser.close()
                server.terminate()
    told = {
        "first_picture_ms": rounded(sorted(visit["ms"] for visit in visits)),
        "transferred_kb": rounded(sorted({visit["bytes"] / 1000 for visit in visits})),
        "requests": visits[0]["requests"],
        "step_ms": rounded(
            [statistics.median(steps), sorted(steps)[int(len(steps) * 0.95)], max(steps)]
        ),
        "load_average": rounded([load, os.getloadavg()[0]]),
    }
    print(json.dumps(told))


def visited(browser: Browser, address: str) -> dict[str, Any]:
    """One visit of a browser that kept nothing."""
    context = browser.new_context(viewport={"width": 1366, "height": 720}, locale="en-US")
    page = context.new_page()
    protocol = context.new_cdp_session(page)
    protocol.send("Network.enable")
    got = {"bytes": 0, "requests": 0}

    def finished(event: dict[str, Any]) -> None:
        got["bytes"] += event["encodedDataLength"]
        got["requests"] += 1

    protocol.on("Network.loadingFinished", finished)
    page.goto(address, wait_until="commit")
    page.wait_for_selector(READY)
    taken = page.evaluate("() => new Promise(requestAnimationFrame)")
    page.wait_for_load_state("networkidle")
    context.close()
    return got | {"ms": taken}


def dragged(browser: Browser, address: str, steps: int) -> list[float]:
    """Milliseconds of each step of a slider."""
    page: Page = browser.new_page(viewport={"width": 1366, "height": 720}, locale="en-US")
    page.goto(address)
    page.wait_for_selector(READY)
    page.wait_for_load_state("networkidle")
    taken = []
    for _ in range(steps):
        found = page.evaluate(STEP)
        if found is None:  # at its end: the other way
            page.evaluate("document.querySelector('input[type=range]').dataset.down = 1")
        else:
            taken.append(found)
        page.wait_for_load_state("networkidle")
    return taken


def rounded(values: list[float]) -> list[float]:
    """To a tenth."""
    return [round(value, 1) for value in values]


if __name__ == "__main__":
    main()
