"""The Doctor tab: a log is pasted, chosen or dropped, and its failure explained and corrected."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from conftest import AXE, ROOT, Visit

pytestmark = pytest.mark.browser

SAMPLES = ROOT / "page" / "src" / "doctor" / "samples"
POOL = (SAMPLES / "kv_pool.log").read_text()
HOST = (SAMPLES / "host_ram.log").read_text()
SERIOUS = {"serious", "critical"}
PATIENCE_MS = 60_000
PHONE = {"viewport": {"width": 390, "height": 844}}


def doctor(visit: Visit, query: str = "") -> Page:
    page = visit.page
    page.goto(f"{visit.address}?tab=doctor{query}")
    page.wait_for_selector(".doctor")
    return page


def sample(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()
    expect(finding(page)).to_be_visible()


def finding(page: Page) -> Locator:
    return page.locator(".finding")


def choose(page: Page, *files: Path) -> None:
    page.get_by_label("Or choose files").set_input_files(files)
    expect(page.locator(".doctor-answer[aria-busy=false]")).to_be_visible(timeout=PATIENCE_MS)


def drop(page: Page, name: str, text: str) -> None:
    page.evaluate(
        """([name, text]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], name));
            document.querySelector("h1").dispatchEvent(
                new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }""",
        [name, text],
    )


def test_a_log_is_explained_corrected_and_opened_in_the_calculator(visit: Visit) -> None:
    page = doctor(visit)
    sample(page, "long context on an RTX 4090")
    expect(page.locator(".finding-cause h2")).to_contain_text("The KV pool is too small")
    expect(finding(page)).to_contain_text("sure")
    expect(page.locator(".phases [aria-current=step]")).to_have_text("KV pool")
    marked = page.locator(".log li.marked")
    expect(marked).to_have_count(1)
    expect(marked.locator(".line-number")).to_have_text("11")
    expect(marked).to_contain_text("16.0 GiB KV cache is needed")
    expect(page.locator(".log li")).to_have_count(4)  # two before, one after
    page.get_by_role("button", name="More lines around").click()
    expect(page.locator(".log li")).to_have_count(12)
    recovered = page.locator(".recovered")
    expect(recovered).to_contain_text("1 × NVIDIA GeForce RTX 4090")
    expect(recovered).to_contain_text("max_model_len=131072")
    fixes = page.locator(".fix")
    expect(fixes.first).to_contain_text("--max-model-len 39552")
    expect(fixes.first).to_contain_text("would start")
    expect(fixes.filter(has_text="--kv-cache-dtype fp8")).to_contain_text("would not start")
    expect(page.locator(".ledger > .ledger-verdict")).to_contain_text("Does not fit")
    corrected = page.locator(".corrected")
    expect(corrected).to_contain_text("Fits by the ledger")
    expect(corrected.locator(".launch code")).to_contain_text("--max-model-len 39552")
    corrected.get_by_role("button", name="Copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct ")
    fixes.nth(1).get_by_role("button", name="Show it corrected").click()
    expect(corrected.locator(".launch code")).to_contain_text("--tensor-parallel-size 2")
    fixes.first.get_by_role("button", name="Open in the calculator").click()
    visit.settled()
    expect(page.locator(".verdict strong")).to_have_text(re.compile("^Fits"))
    expect(page.locator(".subject")).to_contain_text("RTX 4090")
    expect(page.get_by_role("textbox", name="Longest request, tokens")).to_have_value("39,552")
    page.wait_for_timeout(300)
    assert "context=39552" in page.url
    assert "kv_cache_utils" not in page.url
    page.go_back()
    expect(page.locator(".finding-cause h2")).to_contain_text("The KV pool is too small")


def test_what_works_and_what_tells_nothing_are_told_so(visit: Visit) -> None:
    page = doctor(visit)
    sample(page, "A server that works")
    expect(page.locator(".finding-healthy h2")).to_have_text(
        "Nothing wrong here: the engine serves."
    )
    expect(page.locator(".fixes, .evidence, .phases")).to_have_count(0)
    page.get_by_text("No log at hand?").click()
    sample(page, "A log that is too short")
    expect(page.locator(".finding-unknown h2")).to_contain_text("tells no cause")
    expect(page.locator(".fixes, .evidence, .ledger")).to_have_count(0)
    expect(page.locator(".recovered .missing")).to_contain_text("Engine, Model, GPU")


def test_pasting_asks_and_typing_waits_for_the_button(visit: Visit) -> None:
    page = doctor(visit)
    explain = page.get_by_role("button", name="Explain", exact=True)
    expect(explain).to_be_disabled()
    page.evaluate("text => navigator.clipboard.writeText(text)", HOST)
    field = page.get_by_role("textbox", name="The log")
    field.focus()
    page.keyboard.press("ControlOrMeta+v")
    expect(page.locator(".finding-cause h2")).to_contain_text("host's memory ran out")
    field.fill("RuntimeError: no memory is spoken of here")
    expect(page.locator(".finding-cause h2")).to_contain_text("host's memory ran out")
    explain.click()
    expect(page.locator(".finding-cause")).to_have_count(0)


def test_several_files_are_read_whatever_they_are(visit: Visit, tmp_path: Path) -> None:
    page = doctor(visit)
    healthy = tmp_path / "healthy.log"
    healthy.write_bytes((SAMPLES / "healthy.log").read_bytes())
    packed = tmp_path / "engine.log.gz"
    packed.write_bytes(gzip.compress(POOL.encode()))
    wide = tmp_path / "pod.txt"
    wide.write_bytes(HOST.encode("utf-16"))
    squeezed = tmp_path / "pool.xz"
    squeezed.write_bytes(lzma.compress(POOL.encode()))
    archive = tmp_path / "logs.zip"
    archive.write_bytes(b"PK\x03\x04 and more")
    image = tmp_path / "core"
    image.write_bytes(b"\x7fELF\0\0\0")
    choose(page, healthy, packed, wide, squeezed, archive, image)
    expect(page.locator(".which button")).to_have_count(4)
    expect(page.locator(".which [aria-pressed=true]")).to_contain_text("engine.log.gz cause found")
    expect(page.locator(".finding-cause h2")).to_contain_text("KV pool")
    expect(page.get_by_role("alert")).to_have_text(
        [re.compile(r"logs\.zip is packed; .* zip"), "core is no text. "]
    )
    page.get_by_role("button", name="pool.xz").click()
    expect(page.locator(".log li.marked .line-number")).to_have_text("11")
    page.get_by_role("button", name="pod.txt").click()
    expect(page.locator(".finding-cause h2")).to_contain_text("host's memory")
    page.get_by_role("button", name="healthy.log").click()
    expect(page.locator(".finding-healthy")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as JSON").click()
    assert json.loads(Path(download.value.path()).read_text())["healthy"] is True
    damaged = tmp_path / "cut.log.gz"
    damaged.write_bytes(gzip.compress(POOL.encode(), mtime=0)[:-9])
    choose(page, damaged)
    expect(page.locator(".doctor-answer")).to_contain_text("damaged or cut off")
    expect(page.locator(".finding-cause h2")).to_contain_text("KV pool")


def test_a_memory_snapshot_is_shown_by_what_holds_it(visit: Visit, tmp_path: Path) -> None:
    def block(size: int, *names: str) -> dict[str, Any]:
        frames = [{"filename": "/env/a.py", "line": 1, "name": name} for name in names]
        held = {"size": size, "requested_size": size, "state": "active_allocated"}
        return held | {"frames": frames}

    blocks = [block(14 * 2**30, "load_model"), block(2 * 2**30, "forward")]
    segment = {"device": 0, "address": 1, "total_size": 17 * 2**30, "segment_type": "large"}
    failed = {"action": "oom", "size": 2**31, "device_free": 0} | {"frames": blocks[1]["frames"]}
    snapshot = {
        "segments": [segment | {"segment_pool_id": (0, 0), "blocks": blocks}],
        "device_traces": [[failed]],
    }
    page = doctor(visit)
    for pack in (bytes, gzip.compress):
        file = tmp_path / "snapshot.pickle"
        file.write_bytes(pack(pickle.dumps(snapshot)))
        choose(page, file)
        expect(page.locator(".finding-cause h2")).to_contain_text("activations")
        held = page.locator(".snapshot")
        expect(held).to_contain_text("17.00 GiB reserved")
        expect(held.locator(".keys li").first).to_contain_text("weights 14.00 GiB")
        expect(held.get_by_role("row").first).to_contain_text("load_model")
    file.write_bytes(pickle.dumps({"no": "snapshot"}))
    choose(page, file)
    expect(page.get_by_role("alert")).to_contain_text("snapshot")


def test_of_a_long_log_what_tells_is_sent_and_lines_keep_their_numbers(
    visit: Visit, tmp_path: Path
) -> None:
    page = doctor(visit)
    access = 'INFO:     10.0.0.7:40112 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    many = 16 * 2**20 // len(access)
    start, end = POOL.splitlines(keepends=True)[:6], POOL.splitlines(keepends=True)[6:]
    lines = [*start, *[access] * many, *end, *[access] * many]
    file = tmp_path / "long.log"
    file.write_text("".join(lines))
    choose(page, file)
    expect(page.locator(".finding-cause h2")).to_contain_text("KV pool")
    expect(page.locator(".diagnosis > .caption")).to_contain_text(f"of {len(lines):,} lines")
    line = next(number for number, text in enumerate(lines, 1) if "16.0 GiB" in text)
    expect(page.locator(".log li.marked .line-number")).to_have_text(str(line))
    expect(page.locator(".recovered")).to_contain_text("RTX 4090")


def test_what_the_log_leaves_out_is_told(visit: Visit) -> None:
    page = doctor(visit)
    drop(page, "sglang.log", (SAMPLES / "sglang_share.log").read_text())
    expect(finding(page)).to_be_visible()
    expect(page.locator(".no-ledger")).to_contain_text("names no GPU")
    expect(page.locator(".ledger")).to_have_count(0)
    page.get_by_role("button", name="Say what the log leaves out").click()
    page.get_by_role("combobox", name="GPU").click()
    page.keyboard.type("h100 80gb hbm3")
    page.wait_for_selector("[role=listbox] [role=option]")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator(".ledger")).to_be_visible()
    expect(page.locator(".fix").first).to_contain_text("KV pool 0 →")
    page.get_by_label("The command that started it").fill("sleep 9")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("sleep")


def test_an_answer_is_asked_for_in_the_other_language(visit: Visit) -> None:
    page = doctor(visit)
    sample(page, "long context on an RTX 4090")
    page.get_by_role("button", name="中文").click()
    expect(page.locator(".finding-cause h2")).to_contain_text("KV 池过小")
    page.wait_for_selector(".corrected")
    shown = page.get_by_role("tabpanel").inner_text()
    own = page.locator("code, .log, textarea").all_inner_texts()
    for text in sorted((*own, POOL), key=len, reverse=True):
        shown = shown.replace(text, "")
    english = set(re.findall(r"[A-Za-z]{4,}", shown)) - {
        *("CUDA", "Graph", "PyTorch", "token", "JSON", "NVIDIA", "GeForce", "vllm", "vLLM"),
        *("Llama", "meta", "llama", "Instruct", "gzip", "SGLang", "cudaMalloc", "failed"),
        *("NCCL", "unhandled", "system", "error", "enough", "memory", "model"),
    }
    assert english == set()


@pytest.mark.parametrize(
    "visit",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    page = doctor(visit)
    source = AXE.read_text(encoding="utf-8")
    for name in (None, "long context on an RTX 4090", "exit code 137", "too short"):
        if name is not None:
            samples = page.locator(".samples")
            if samples.get_attribute("open") is None:
                samples.locator("summary").click()
            sample(page, name)
            page.wait_for_timeout(600)
        page.evaluate(source)
        found: dict[str, Any] = page.evaluate("axe.run()")
        serious = [
            (item["id"], [node["html"][:200] for node in item["nodes"]])
            for item in found["violations"]
            if item["impact"] in SERIOUS
        ]
        assert serious == [], name
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name


def test_a_log_that_fills_the_calculator_is_taken_along(visit: Visit) -> None:
    page = visit.go()
    drop(page, "engine.log", POOL)
    told = page.locator(".told")
    expect(told).to_contain_text("ends in a failure")
    told.get_by_role("button", name="Explain this log in the Doctor").click()
    expect(page.locator(".finding-cause h2")).to_contain_text("KV pool")


def test_a_refused_deployment_does_not_hide_the_tab(visit: Visit) -> None:
    page = visit.go("?model=no-such-model")
    expect(page.get_by_role("tab", name="Growth")).to_have_count(0)
    page.get_by_role("tab", name="Doctor").click()
    expect(page.locator(".doctor")).to_be_visible()
    expect(page.get_by_role("tab", name="Growth")).to_be_visible()
