"""The recipe and the tables: chosen, read, applied and saved."""

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
NAMES = ["params", "kv", "concurrency", "gpus-for-users", "reference"]
FEW = "&models=meta-llama/Meta-Llama-3-8B&gpus=l40s,rtx-4090&users=10,50"


def tables(name: str, language: str = "en", more: str = FEW) -> str:
    return f"?tab=tables&language={language}&table={quote(f'name={name}{more}')}"


def shown(visit: Visit, query: str) -> Page:
    page = visit.page
    page.goto(visit.address + query)
    expect(page.locator("table.lookup")).to_be_visible(timeout=PATIENCE_MS)
    return page


def recipe(visit: Visit, query: str = "") -> Page:
    page = visit.go("?tab=recipe" + query)
    expect(page.locator(".chain")).to_be_visible(timeout=PATIENCE_MS)
    return page


def figure(page: Page, label: str) -> int:
    label_of = page.locator(".label", has_text=label)
    return number(page.locator(".chain .figure", has=label_of).locator(".value"))


def number(place: Locator) -> int:
    return int(re.sub(r"\D", "", place.inner_text()))


def serious(page: Page) -> list[Any]:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        (item["id"], [node["html"][:200] for node in item["nodes"]])
        for item in found["violations"]
        if item["impact"] in SERIOUS
    ]


def test_a_recipe_leads_to_flags_and_into_the_calculator(visit: Visit) -> None:
    page = recipe(visit, "&tpot=50ms")
    chat = figure(page, "max_model_len")
    ceiling, waterline = figure(page, "Ceiling"), figure(page, "Waterline")
    assert waterline == int(ceiling * 0.8)
    page.get_by_label("Lengths of requests").select_option("code-completion")
    expect(page.locator(".recipe-found[aria-busy=false]")).to_be_visible()
    expect(page.locator(".steps li").first).not_to_contain_text(f"{chat:,}")
    length, most = figure(page, "max_model_len"), figure(page, "max_num_seqs")
    assert length != chat
    command = page.locator(".recipe .launch code").inner_text()
    assert f"--max-model-len {length} --max-num-seqs {most}" in command
    assert "80%" in (page.locator(".pool-bar").get_attribute("aria-label") or "")
    page.get_by_role("button", name="Put into the calculator").click()
    expect(page.locator(".launch code").first).to_contain_text(f"--max-num-seqs {most}")
    visit.settled()
    assert (
        page.get_by_role("textbox", name="Longest request, tokens").input_value() == f"{length:,}"
    )


def test_a_length_of_ones_own_and_what_is_refused(visit: Visit) -> None:
    page = recipe(visit)
    page.get_by_label("Lengths of requests").select_option("own")
    field = page.get_by_label("95% keep within, tokens")
    field.fill("8000")
    field.press("Enter")
    expect(page.locator(".chain")).to_contain_text("9,600")
    field.fill("999999")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("131,072")
    page.wait_for_timeout(400)
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("131,072")
    expect(field).to_have_value("999999")


def test_every_scenario_is_set_beside_the_others(visit: Visit) -> None:
    page = recipe(visit, "&tpot=50ms")
    page.get_by_text("Every scenario on this deployment").click()
    rows = page.locator(".recipe tbody tr")
    expect(rows).to_have_count(9)
    expect(rows.locator("td.number")).to_have_count(9 * 8, timeout=PATIENCE_MS)
    agents = rows.filter(has_text="Coding agents")
    most = number(agents.locator("td").nth(3))
    agents.get_by_role("button").click()
    expect(page.locator(".recipe-found[aria-busy=false]")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_label("Lengths of requests")).to_have_value("agents")
    page.wait_for_function(
        "most => document.querySelector('.chain .result').textContent === String(most)", arg=most
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_shown_and_saved(visit: Visit, name: str) -> None:
    page = shown(visit, tables(name))
    heading = page.locator(".tables h2").inner_text()
    found: dict[str, str] = {}
    for kind in ("CSV", "Markdown", "JSON"):
        page.get_by_role("button", name="Download").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=kind).click()
        found[kind] = Path(download.value.path()).read_text(encoding="utf-8")
    table = json.loads(found["JSON"])
    assert table["name"] == name
    assert table["title"] == heading
    rows = list(csv.reader(io.StringIO(found["CSV"])))
    assert len(rows) == 1 + len(table["rows"])
    assert rows[0] == [column["name"] for column in table["columns"]]
    cells = page.locator("table.lookup tbody tr").first.locator("th, td").all_inner_texts()
    assert f"| {' | '.join(cells[:3])} |"[:-2] in found["Markdown"]
    expect(page.locator("table.lookup tbody tr")).to_have_count(len(table["rows"]))


def test_a_table_follows_what_is_chosen(visit: Visit) -> None:
    page = shown(visit, tables("kv"))
    cell = page.locator("table.lookup tbody td").first
    assert cell.inner_text() == "0.25"  # 2,048 tokens of 131,072 bytes
    field = page.get_by_label("Lengths, tokens")
    field.fill("4096")
    field.press("Enter")
    expect(cell).to_have_text("0.50")
    expect(cell).to_have_class(re.compile("heat-1"))
    page.get_by_label("Colour by size").uncheck()
    expect(cell).not_to_have_class(re.compile("heat-"))
    page.get_by_role("combobox", name="Models").click()
    page.keyboard.type("qwen3 14b")
    page.keyboard.press("Enter")
    expect(page.locator("table.lookup")).to_contain_text("Qwen3-14B")
    page.get_by_role("button", name="Remove meta-llama/Meta-Llama-3-8B").click()
    expect(page.locator("table.lookup")).not_to_contain_text("Llama")
    page.wait_for_timeout(400)
    address = page.url
    said = page.locator("table.lookup").inner_text()
    page.goto("about:blank")
    assert (
        shown(visit, address.removeprefix(visit.address)).locator("table.lookup").inner_text()
        == said
    )


def test_a_table_that_cannot_be_made_says_why(visit: Visit) -> None:
    page = shown(visit, tables("kv"))
    field = page.get_by_label("Type of the cache")
    field.fill("nothing")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("nothing")


@pytest.mark.parametrize("visit", [PHONE], ids=["phone"], indirect=True)
@pytest.mark.parametrize("name", ["concurrency", "reference"])
def test_on_a_phone_no_figure_lies_out_of_sight(visit: Visit, name: str) -> None:
    page = shown(visit, tables(name))
    assert page.locator(".scroll").evaluate("place => place.scrollWidth - place.clientWidth") <= 0
    expect(page.locator("table.lookup td.number").first).to_be_visible()


@pytest.mark.parametrize("visit", [PHONE], ids=["phone"], indirect=True)
def test_on_a_phone_the_command_has_a_line_of_its_own(visit: Visit) -> None:
    page = recipe(visit)
    code = page.locator(".recipe .launch code")
    wide = page.locator(".recipe .launch").evaluate("place => place.clientWidth")
    assert code.evaluate("place => place.offsetWidth") == wide


@pytest.mark.parametrize(
    "visit",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}],
    ids=["light", "dark", "phone", "dark phone"],
    indirect=True,
)
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(visit: Visit) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in page/)")
    page = shown(visit, tables("reference", "zh"))
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page = recipe(visit, "&tpot=50ms&language=zh")
    page.get_by_text("各场景在此部署上的配置").click()
    expect(page.locator(".recipe tbody td.number")).to_have_count(9 * 8, timeout=PATIENCE_MS)
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_whole_in_chinese(visit: Visit, name: str) -> None:
    page = shown(visit, tables(name, "zh", "&models=meta-llama/Llama-3.1-405B&gpus=l40s,t4"))
    allowed = {"token", "TPOT", "TTFT", "bfloat", "vllm", "vLLM", "SGLang", "TensorRT", "Copy"}
    names = (".chips", "tbody th", "code", "thead th", "select")
    assert english_words(page, *names) - allowed - {"Llama", "Meta", "meta", "llama"} == set()


def test_the_recipe_is_whole_in_chinese(visit: Visit) -> None:
    page = recipe(visit, "&tpot=50ms&language=zh")
    page.get_by_text("各场景在此部署上的配置").click()
    expect(page.locator(".recipe tbody td.number")).to_have_count(9 * 8, timeout=PATIENCE_MS)
    allowed = {"token", "TPOT", "TTFT", "Azure", "ShareGPT", "model", "seqs"}
    assert english_words(page, "code") - allowed == set()
