"""What people do on the page, each by a person's path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from conftest import AXE, Visit

pytestmark = pytest.mark.browser

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
LOG = Path(__file__).parents[1] / "fixtures" / "logs" / "vllm_0.19.log"
TOO_LARGE = "?model=meta-llama/Llama-3.1-70B-Instruct"


def verdict(page: Page) -> str:
    return page.locator(".verdict").inner_text()


def tokens(page: Page) -> int:
    return int(page.locator(".verdict b").inner_text().replace(",", ""))


def choose(page: Page, label: str, typed: str) -> None:
    page.get_by_role("combobox", name=label, exact=True).click()
    page.keyboard.type(typed)
    page.wait_for_selector("[role=listbox] [role=option]")
    page.keyboard.press("Enter")


def test_the_first_screen_shows_it_all_without_scrolling(visit: Visit) -> None:
    page = visit.go()
    for what in (".verdict", "#memory-bar", ".legend", ".figures", "[role=tablist]", ".asked"):
        box = page.locator(what).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 720, what
    assert page.locator(".launch code").inner_text().startswith("vllm serve ")
    page.wait_for_selector(".figure:has-text('First token')")


def test_choosing_by_keyboard_and_sliding_changes_the_answer_and_the_address(visit: Visit) -> None:
    page = visit.go()
    before = tokens(page)
    choose(page, "Model", "qwen3 14b")
    visit.settled()
    assert "Qwen3-14B" in page.locator(".subject").inner_text()
    assert tokens(page) < before
    choose(page, "GPU", "h200")
    visit.settled()
    assert "H200" in page.locator(".subject").inner_text()
    slider = page.get_by_role("slider", name="Longest request")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    visit.settled()
    page.wait_for_timeout(300)
    address = page.url
    assert "model=Qwen" in address
    assert "context=24576" in address
    shown = page.locator("main").inner_text()
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator(".verdict b")).to_be_visible()
    visit.settled()
    assert page.locator(".verdict").inner_text() in shown


def test_lengths_that_do_not_fit_are_said_and_stay_as_asked(visit: Visit) -> None:
    page = visit.go()
    prompt = page.get_by_role("textbox", name="Prompt, tokens")
    longest = page.get_by_role("textbox", name="Longest request, tokens")
    prompt.click()
    page.keyboard.type("30k")
    page.keyboard.press("Enter")
    assert "31,232 > 8,192 tokens" in verdict(page)
    assert longest.input_value() == "8K"
    page.get_by_role("button", name="Raise the longest request to 32K").click()
    visit.settled()
    assert verdict(page).startswith("Fits")
    longest.click()
    page.keyboard.type("4096")
    page.keyboard.press("Enter")
    assert "31,232 > 4,096 tokens" in verdict(page)
    assert prompt.input_value() == "30K"
    page.get_by_role("button", name="Shorten prompt and output to 3,584 + 512").click()
    visit.settled()
    assert verdict(page).startswith("Fits")
    prompt.click()
    page.keyboard.type("many")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    page.get_by_role("slider", name="Prompt").press("ArrowLeft")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_does_not_fit_shows_changes_and_one_click_applies_one(visit: Visit) -> None:
    page = visit.go(TOO_LARGE)
    assert verdict(page).startswith("Does not fit")
    assert page.locator(".seg-missing").count() > 0
    page.get_by_role("tab", name="What would fit").click()
    row = page.get_by_role("row", name="--tensor-parallel-size 4")
    row.first.get_by_role("button", name="Apply").click()
    visit.settled()
    assert verdict(page).startswith("Fits")
    assert "4 ×" in page.locator(".subject").inner_text()
    expect(page.get_by_role("tabpanel")).to_contain_text("nothing needs to change")


def test_every_tab_draws(visit: Visit) -> None:
    page = visit.go()
    expect(page.locator("#growth-chart .limit-label")).to_have_count(2)
    page.get_by_text("longest request", exact=True).click()
    expect(page.locator("#growth-chart .point").first).to_be_visible()
    page.get_by_role("tab", name="Growth").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#pareto-chart .point.chosen")).to_be_visible()
    page.get_by_role("tab", name="Engines").click()
    table = page.get_by_role("tabpanel").get_by_role("table")
    expect(table).to_contain_text("SGLang")
    expect(table.get_by_role("row")).to_have_count(6)
    page.get_by_role("tab", name="Accuracy").click()
    expect(page.get_by_role("tabpanel").get_by_role("table").first).to_contain_text("vLLM")


def test_every_figure_opens_its_formula(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="KV pool").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".wanted .formula")).to_be_visible()
    expect(dialog.locator(".wanted .source").first).to_contain_text("vLLM")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="First token").click()
    expect(dialog.locator(".wanted table").first).to_contain_text("GFLOP")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (json.dumps(TINY), "2K"),
        ("vllm serve Qwen/Qwen3-8B --max-model-len 16384 -tp 2", "Qwen/Qwen3-8B"),
        (LOG.read_text(encoding="utf-8"), "Qwen/Qwen3-8B"),
    ],
    ids=["config", "command", "log"],
)
def test_what_is_pasted_is_read(visit: Visit, text: str, shown: str) -> None:
    page = visit.go()
    page.get_by_role("button", name="Paste or drop …").click()
    page.get_by_role("textbox", name="Paste or drop").fill(text)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.settled()
    assert verdict(page).startswith("Fits")
    assert shown in page.locator("main").inner_text() + page.locator(".asked").inner_html()
    page.wait_for_timeout(300)
    address = page.url
    said = verdict(page)
    page.goto("about:blank")
    visit.page.goto(address)
    expect(page.locator(".verdict b")).to_be_visible()
    visit.settled()
    assert verdict(page) == said


def test_an_old_answer_is_never_shown_as_the_new_one(visit: Visit) -> None:
    page = visit.go()
    page.wait_for_selector(".figure:has-text('First token')")
    page.evaluate(
        """() => {
            const fetched = window.fetch;
            window.fetch = async (...args) => {
                await new Promise(resolve => setTimeout(resolve, 1500));
                return fetched(...args);
            };
        }"""
    )
    page.get_by_label("Count").select_option("8")
    page.wait_for_timeout(400)
    assert page.locator("main.stale").count() == 1
    assert page.get_by_role("button", name="Export").is_disabled()
    assert page.get_by_role("button", name="Copy", exact=True).is_disabled()
    assert page.locator(".speed.stale").count() == 1
    page.wait_for_selector("main:not(.stale) .speed:not(.stale)", state="attached")
    assert page.get_by_role("button", name="Export").is_enabled()


def test_it_works_where_nothing_may_be_remembered(visit: Visit) -> None:
    visit.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked'); }})"
    )
    page = visit.go()
    assert verdict(page).startswith("Fits")


def test_back_undoes_an_applied_change(visit: Visit) -> None:
    page = visit.go(TOO_LARGE + "&tab=changes")
    row = page.get_by_role("row", name="--tensor-parallel-size 4")
    row.first.get_by_role("button", name="Apply").click()
    visit.settled()
    assert verdict(page).startswith("Fits")
    page.wait_for_timeout(400)
    page.go_back()
    page.wait_for_timeout(400)
    visit.settled()
    assert verdict(page).startswith("Does not fit")


def test_what_cannot_be_read_is_said(visit: Visit) -> None:
    page = visit.go()
    page.get_by_text("More settings").click()
    settings = page.get_by_role("textbox", name="One name=value a line")
    settings.fill("--max-num-seqs 8")
    settings.blur()
    expect(page.get_by_role("alert")).to_contain_text("--max-num-seqs 8")
    settings.fill("max_num_seqs=8")
    settings.blur()
    expect(page.get_by_role("alert")).to_have_count(0)
    settings.fill("")
    settings.blur()
    expect(settings).to_be_visible()
    share = page.get_by_role("textbox", name="GPU share")
    share.fill("90%")
    share.blur()
    expect(page.get_by_role("alert")).to_contain_text("share above 0")


def test_a_failed_start_says_so_beside_the_prediction(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="Paste or drop …").click()
    failed = LOG.with_name("vllm_failed.log").read_text(encoding="utf-8")
    page.get_by_role("textbox", name="Paste or drop").fill(failed)
    page.get_by_role("button", name="Use it").click()
    expect(page.locator(".told")).to_contain_text("ends in a failure")


def test_a_pasted_command_fills_the_fields_which_then_drive_the_answer(visit: Visit) -> None:
    page = visit.go()
    model = page.get_by_role("combobox", name="Model", exact=True)
    model.click()
    page.evaluate(
        """text => {
            const transfer = new DataTransfer();
            transfer.setData("text", text);
            document.activeElement.dispatchEvent(new ClipboardEvent(
                "paste", {clipboardData: transfer, bubbles: true, cancelable: true}));
        }""",
        "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 16k --gpu-memory-utilization 0.85",
    )
    expect(model).to_have_value("Qwen/Qwen3-32B")
    visit.settled()
    longest = page.get_by_role("textbox", name="Longest request, tokens")
    assert longest.input_value() == "16,000"
    assert page.get_by_label("Count").input_value() == "2"
    command = page.locator(".launch code")
    expect(command).to_contain_text("--gpu-memory-utilization 0.85")
    page.get_by_label("Count").select_option("4")
    longest.focus()
    page.keyboard.type("4k")
    page.keyboard.press("Enter")
    visit.settled()
    expect(command).to_contain_text("--tensor-parallel-size 4")
    expect(command).to_contain_text("--max-model-len 4096")


def test_a_choice_of_services_is_asked_for(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="Paste or drop …").click()
    text = (
        "services:\n  llm: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-8B}\n"
        "  other: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-14B}\n"
    )
    page.get_by_role("textbox", name="Paste or drop").fill(text)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("alert")).to_contain_text("2 engines are started")
    page.get_by_role("textbox", name="Service").fill("other")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("Qwen/Qwen3-14B")


def test_objectives_give_the_largest_load(visit: Visit) -> None:
    page = visit.go("?tab=speed")
    objective = page.get_by_role("textbox", name="Each next token, at most")
    objective.fill("50ms")
    objective.press("Enter")
    expect(page.get_by_role("tabpanel")).to_contain_text("Largest load")
    objective.fill("1ms")
    objective.press("Enter")
    expect(page.get_by_role("tabpanel")).to_contain_text("Out of reach")


def test_a_dropped_file_is_read(visit: Visit) -> None:
    page = visit.go()
    page.evaluate(
        """text => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "config.json"));
            document.body.dispatchEvent(
                new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
        }""",
        json.dumps(TINY),
    )
    expect(page.get_by_role("combobox", name="Model")).to_have_value("pasted config.json")
    visit.settled()
    page.get_by_role("button", name="Remove").click()
    visit.settled()
    assert "Llama-3.1-8B" in page.locator(".subject").inner_text()


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(TINY | {"_name_or_path": HOSTILE}),
        json.dumps(TINY | {"model_type": HOSTILE}),
        f"vllm serve {HOSTILE!r}",
        HOSTILE * 1000,
        "[" * 100_000,
        '{"model_type": "llama", "hidden_size": ' + "9" * 1000 + "}",
    ],
    ids=["name", "type", "command", "text", "deep", "number"],
)
def test_hostile_text_is_shown_and_never_run(visit: Visit, text: str) -> None:
    page = visit.go()
    page.get_by_role("button", name="Paste or drop …").click()
    page.get_by_role("textbox", name="Paste or drop").fill(text)
    page.get_by_role("button", name="Use it").click()
    page.wait_for_timeout(700)
    assert page.locator("main img, main script, dialog img, dialog script").count() == 0
    said = page.locator(".refusal, .verdict").last.inner_text()
    assert said


def test_a_refusal_is_a_sentence_and_the_page_goes_on(visit: Visit) -> None:
    page = visit.go()
    choose_text = page.get_by_role("combobox", name="Model", exact=True)
    choose_text.click()
    page.keyboard.type("zzzz")
    page.keyboard.press("Enter")
    visit.settled()
    assert "not in the catalogue" in verdict(page)
    choose(page, "Model", "llama-3.2-3b")
    visit.settled()
    assert verdict(page).startswith("Fits")


def test_chinese_is_whole_and_remembered(visit: Visit) -> None:
    page = visit.go(TOO_LARGE)
    page.get_by_role("button", name="中文").click()
    visit.settled()
    assert verdict(page).startswith("放不下")
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    page.get_by_role("tab", name="如何放下").click()
    row = page.get_by_role("row", name="--tensor-parallel-size 4").first
    row.get_by_role("button", name="应用").click()
    visit.settled()
    assert verdict(page).startswith("放得下")
    page.get_by_role("button", name="KV 池").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("每个数字的来历")
    page.keyboard.press("Escape")
    visit.go()
    assert verdict(page).startswith("放得下")


def test_the_theme_is_remembered(visit: Visit) -> None:
    page = visit.go()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.get_by_role("button", name="Theme")
    button.click()
    button.click()
    assert page.evaluate(ground) != light
    visit.go()
    assert page.evaluate(ground) != light


def test_the_answer_is_exported(visit: Visit) -> None:
    page = visit.go()
    page.wait_for_selector("#growth-chart .curve, #growth-chart .seg-kv")
    page.wait_for_selector(".figure:has-text('First token')")
    found: dict[str, bytes] = {}
    for name in ("JSON", "Markdown", "Picture (SVG)", "Picture (PNG)"):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        found[name] = Path(download.value.path()).read_bytes()
    assert json.loads(found["JSON"])["fit"]["verdict"] == "fits"
    assert "| weights | 14.99 |" in found["Markdown"].decode()
    assert found["Picture (SVG)"].startswith(b"<svg")
    assert b"class=" not in found["Picture (SVG)"]
    assert found["Picture (PNG)"].startswith(b"\x89PNG")
    page.get_by_role("button", name="Copy link").click()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


@pytest.mark.parametrize(
    "visit",
    [
        {"viewport": {"width": 375, "height": 740}},
        {"viewport": {"width": 683, "height": 360}},  # a laptop at 200%
    ],
    ids=["phone", "zoom"],
    indirect=True,
)
def test_nothing_runs_over_the_edge(visit: Visit) -> None:
    page = visit.go(TOO_LARGE)
    for name in ("Growth", "Speed", "What would fit", "Engines", "Accuracy"):
        page.get_by_role("tab", name=name).click()
        page.wait_for_timeout(600)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, name


@pytest.mark.parametrize("visit", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_a_phone_shows_changes_whole(visit: Visit) -> None:
    page = visit.go(TOO_LARGE + "&tab=changes")
    row = page.get_by_role("row", name="--tensor-parallel-size 4").first
    expect(row).to_contain_text("more GPUs")
    for cell in row.locator("td, th").all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    covered = page.evaluate(
        """() => {
            const region = document.querySelector(".scroll:has(.stacked)");
            return region.scrollWidth > region.clientWidth;
        }"""
    )
    assert not covered


SERIOUS = {"serious", "critical"}


@pytest.mark.parametrize(
    "visit", [{"color_scheme": "light"}, {"color_scheme": "dark"}], ids=str, indirect=True
)
def test_axe_finds_nothing_serious(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    source = AXE.read_text(encoding="utf-8")

    def found(page: Page) -> list[Any]:
        page.evaluate(source)
        answer = page.evaluate("axe.run()")
        return [
            (item["id"], [node["html"][:200] for node in item["nodes"]])
            for item in answer["violations"]
            if item["impact"] in SERIOUS
        ]

    page = visit.go(TOO_LARGE)
    for name in ("Growth", "Speed", "What would fit", "Engines", "Accuracy"):
        page.get_by_role("tab", name=name).click()
        page.wait_for_timeout(600)
        assert found(page) == [], name
    visit.go("?language=zh")
    assert found(page) == []
    page.get_by_role("button", name="KV 池").first.click()
    page.wait_for_selector("dialog .formula")
    assert found(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="模型").click()
    page.wait_for_selector("[role=option]")
    assert found(page) == []
