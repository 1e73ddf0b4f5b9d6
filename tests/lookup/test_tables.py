import csv
import io
import json

import pytest

from tokenroom import fit, load_model
from tokenroom.cli.main import main
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.lookup import tables
from tokenroom.lookup.table import LookupTable
from tokenroom.reports.lookup_text import remark_text, table_csv, table_json, table_markdown
from tokenroom.reports.messages import Language
from tokenroom.units import GIB

A100 = find_accelerator("a100-80gb")


def column(table: LookupTable, name: str) -> list[object]:
    (at,) = (place for place, each in enumerate(table.columns) if each.name == name)
    return [row[at] for row in table.rows]


def test_weights_of_every_layout_are_those_of_its_checkpoint() -> None:
    table = tables.parameters(
        [load_model("llama-3-8b"), load_model("deepseek-v3")], ["bf16", "awq"]
    )
    assert column(table, "parameters") == [8_030_261_248, 671_026_404_352]
    assert column(table, "active")[1] == pytest.approx(37.5e9, rel=0.01)
    assert column(table, "bf16")[0] == 16_060_522_496
    awq = column(table, "awq")[0]
    assert isinstance(awq, int)
    assert awq == pytest.approx(5.73e9, rel=0.01)


def test_the_cache_grows_with_requests_and_their_length() -> None:
    table = tables.kv_cache([load_model("llama-3-70b")])
    assert column(table, "4,096") == [batch * 1.25 * GIB for batch in (1, 4, 16, 64)]
    assert column(table, "32,768")[0] == 10 * GIB


def test_concurrency_is_what_fit_says() -> None:
    table = tables.concurrency([load_model("llama-3-70b")], [A100], tokens=4096)
    least, twice = table.rows
    result = fit("llama-3-70b", "a100-80gb", gpus=2, context=4096, request_tokens=4096)
    assert least[2] == 2
    assert least[6] == result.requests_held
    assert twice[2] == 4
    assert column(table, "pool")[0] == result.governing_stage.kv_pool_bytes


def test_a_model_that_is_too_large_is_said_to_be() -> None:
    table = tables.concurrency([load_model("llama-3.1-405b")], [find_accelerator("t4")])
    assert table.rows == ()
    (remark,) = table.remarks
    said = remark_text(remark, Language.ENGLISH)
    assert said == "meta-llama/Meta-Llama-3.1-405B: does not start on 64 x t4 or fewer"
    assert "64 张及以下 t4" in remark_text(remark, Language.CHINESE)


def test_a_reference_runs_as_many_as_are_enough() -> None:
    table = tables.reference([load_model("llama-2-7b-hf")], [A100], requests=25)
    ((_, _, least, running, enough, enough_running, command),) = table.rows
    assert (least, enough) == (1, 1)
    assert running == enough_running
    assert isinstance(running, int)
    assert running >= 25
    assert command == "vllm serve meta-llama/Llama-2-7b-hf --max-model-len 4096"


@pytest.mark.parametrize("language", list(Language))
def test_every_form_holds_the_same_figures(language: Language) -> None:
    table = tables.kv_cache([load_model("llama-3-70b")], batches=[1], lengths=[4096])
    assert "| Meta-Llama-3-70B | 1 | 1.25 |" in table_markdown(table, language)
    (line,) = csv.DictReader(io.StringIO(table_csv(table)))
    assert line["4,096"] == str(5 * GIB // 4)
    assert table_json(table, language)["rows"] == [
        ["meta-llama/Meta-Llama-3-70B", "1", 5 * GIB // 4]
    ]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("name", ["params", "kv", "concurrency", "gpus-for-users", "reference"])
def test_the_command_writes_every_table(capsys: pytest.CaptureFixture[str], name: str) -> None:
    asked = ["table", name, "--models", "llama-3-8b"]
    if name not in ("params", "kv"):
        asked += ["--gpus", "h100"]
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    assert "Meta-Llama-3-8B" in out
    code, out, _ = run(capsys, *asked, "--json")
    assert json.loads(out)["name"] == name


def test_a_title_writes_the_engine_as_it_writes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("table", "concurrency", "--models", "llama-3-8b", "--gpus", "h100")
    assert "under vLLM: on" in run(capsys, *asked)[1]
    assert "under SGLang 0.5.0: on" in run(capsys, *asked, "--engine", "sglang@0.5.0")[1]


def test_more_users_need_more_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys,
        *("table", "gpus-for-users", "--models", "llama-3-70b", "--users", "10,200,2000", "--json"),
    )
    _, _, *counts = json.loads(out)["rows"][0]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sizes"], "'sizes' is not one of"),
        (["kv", "--json", "--csv"], "three forms; give one"),
        (["kv", "--lengths", "4k,many"], "--lengths is 'many'"),
        (["kv", "--models", ","], "--models is ','"),
        (["params", "--tpot", "50ms"], "--tpot is of the table gpus-for-users, and changes noth"),
        (["kv", "--gpus", "h100"], "--gpus is of the table concurrency or gpus-for-users or"),
        (["params", "--models", "no-such-model"], "no-such-model"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, out, err = run(capsys, "table", *words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("params", "--models", ""), "--models is empty"),
        (("params", "--models", "llama-3-8b", "--layouts", "foo"), "--layouts is 'foo'"),
        (("gpus-for-users", "--models", "llama-3-8b", "--users", "1k"), "--users is '1k'"),
        (("concurrency", "--models", "llama-3-8b", "--engine", "foo"), "--engine is 'foo'"),
        (("reference", "--models", "llama-3-8b", "--engine", "foo"), "--engine is 'foo'"),
        (("gpus-for-users", "--models", "llama-3-8b", "--engine", "hybrid"), "--engine is 'hyb"),
        (("concurrency", "--models", "llama-3-8b", "--gpus", "foo"), "--gpus: no GPU is called"),
        (("kv", "--models", "llama-3-8b", "--kv", "foo"), "--kv is 'foo'"),
    ],
)
def test_a_table_of_what_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["table", *words]) == 2
    assert said in capsys.readouterr().err
