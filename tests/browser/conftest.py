"""A real server and a real browser; without Chromium or the built page these tests are skipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

import tokenroom

ROOT = Path(__file__).parents[2]
PAGE = Path(tokenroom.__file__).parent / "web" / "page" / "index.html"
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
LAPTOP = {"width": 1366, "height": 720}


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of ``tokenroom serve`` in a process of its own."""
    words = [sys.executable, "-m", "tokenroom", "serve", "--port", "0", *options]
    words += ["--database", str(folder / "jobs.sqlite3")]
    environment = os.environ | {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        match = re.search(r"http://\S+/", said)
        assert match, said
        yield match[0]
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that all of these tests ask."""
    if chromium() is None:
        pytest.skip("Chromium is not installed")
    if not PAGE.is_file():
        pytest.skip("the page is not built (scripts/build_page)")
    with serving(tmp_path_factory.mktemp("serve")) as address:
        yield address


@pytest.fixture(scope="session")
def browser(server: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update"),
                "--disable-sync",
            ],
        )
        yield browser
        browser.close()


def english_words(page: Page, *left_out: str) -> set[str]:
    """Words of four letters and more in the panel that is shown, but those of some elements."""
    text = page.get_by_role("tabpanel").evaluate(
        """(panel, names) => {
            const copy = panel.cloneNode(true);
            copy.querySelectorAll(names).forEach(each => each.remove());
            const walker = document.createTreeWalker(copy, NodeFilter.SHOW_TEXT);
            const texts = [];
            while (walker.nextNode()) texts.push(walker.currentNode.data);
            return texts.join(" ");
        }""",
        ", ".join(left_out),
    )
    return set(re.findall(r"[A-Za-z]{4,}", text))


class Visit:
    """A page someone has open, with what went wrong on it and what it asked for."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))

    def _heard(self, message: ConsoleMessage) -> None:
        # a refused question is answered with 422, which the browser writes down as well
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            self.problems.append(message.text)

    def go(self, query: str = "") -> Page:
        """Open the page and wait for its first answer."""
        self.page.goto(self.address + query)
        self.page.wait_for_selector("main[aria-busy=false] .verdict strong")
        return self.page

    def settled(self) -> Page:
        """Wait until the newest question is answered."""
        self.page.wait_for_timeout(80)
        self.page.wait_for_selector("main[aria-busy=false]")
        return self.page


@pytest.fixture
def visit(browser: Browser, server: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A visit that fails when anything was logged as an error or fetched from elsewhere."""
    options: dict[str, Any] = {"viewport": LAPTOP, "locale": "en-US", "accept_downloads": True}
    options |= getattr(request, "param", {})
    context = browser.new_context(**options)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit = Visit(context, server)
    yield visit
    assert visit.problems == []
    elsewhere = [url for url in visit.asked if not url.startswith((server, "blob:", "data:"))]
    assert elsewhere == []
    context.close()
