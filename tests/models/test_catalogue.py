"""The model catalogue: its data is whole, and names find what people mean."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tokenroom.errors import ModelError
from tokenroom.models import catalogue
from tokenroom.models.hf_config import read_config_file

DATA = Path(catalogue.__file__).parent / "data"

ENTRIES = [json.loads(line) for line in (DATA / "catalogue.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("fields", ENTRIES, ids=[fields["name"] for fields in ENTRIES])
def test_every_entry_reads(fields: dict[str, object]) -> None:
    entry = catalogue.entry(str(fields["name"]))
    assert entry.config == fields["config"]
    assert entry.source_kind in {"config", "preset", "published"}
    assert entry.source
    assert entry.checked
    spec = catalogue.specification(entry)
    assert spec.name == fields["name"]
    assert spec.parameters_total > 10**8
    assert spec.source.startswith("catalogue: ")


def test_index_is_whole() -> None:
    assert len(catalogue.names()) == len(ENTRIES) >= 200
    assert set(catalogue.names()) == {fields["name"] for fields in ENTRIES}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B"),
        ("LLAMA_3.1_8B_INSTRUCT", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen3 8B", "Qwen/Qwen3-8B"),
        ("gemma-3-27b", "google/gemma-3-27b-it"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("mixtral-8x7b-instruct-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        (
            "redhatai/Llama-3.3-70B-Instruct-quantized.w8a8",
            "RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8",
        ),
        (
            "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8",
            "RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8",
        ),
        (
            "RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic",
            "RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic",
        ),
    ],
)
def test_names(asked: str, found: str) -> None:
    assert catalogue.find(asked).name == found


def test_unknown_names_list_what_is_near() -> None:
    with pytest.raises(
        ModelError, match=r"'lama-3\.1-8b' is not in the catalogue; near it are .*8B"
    ):
        catalogue.find("lama-3.1-8b")
    with pytest.raises(ModelError, match="give a path"):
        catalogue.find("zzzzzz")
    for name in ("", "///", "-"):
        with pytest.raises(ModelError, match="not in the catalogue"):
            catalogue.find(name)


def test_ambiguous_names_list_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"ab": ("x/a-b", "y/a-b")}
    monkeypatch.setattr(catalogue, "_index", lambda: catalogue._Index(places={}, answers=answers))
    with pytest.raises(ModelError, match=r"may be x/a-b or y/a-b; give the whole name"):
        catalogue.find("A.B")


def test_another_organisation_is_not_taken_for_it() -> None:
    assert catalogue.candidates("someone/Llama-3.1-8B-Instruct") == ()


def test_search() -> None:
    assert "Qwen/Qwen3-8B" in catalogue.search("qwen3")
    assert catalogue.search("no such model") == ()
    assert catalogue.search("") == catalogue.search("-")


@pytest.mark.shared
def test_entries_read_as_the_files_they_came_from(shared: Path) -> None:
    with (shared / "zoo" / "index.csv").open() as file:
        rows = {row["model_id"]: row for row in csv.DictReader(file)}
    compared = 0
    for name in catalogue.names():
        if name in rows:
            whole = read_config_file((shared / "zoo" / rows[name]["file"]).parent)
            ours = catalogue.find(name)
            assert ours.layers == whole.layers
            if catalogue.entry(name).source == rows[name]["source"]:
                assert ours.parameters_total == whole.parameters_total
            else:  # the encoder comes from another file
                assert ours.text_parameters == whole.text_parameters
            assert ours.rotary == whole.rotary
            compared += 1
    assert compared > 100


@pytest.mark.shared
def test_models_of_measured_rows_are_known(shared: Path) -> None:
    rows = (shared / "truth" / "engine_memory.jsonl").read_text().splitlines()
    measured = {row["model"] for row in map(json.loads, rows) if row["id"].startswith("h100v019-")}
    assert len(measured) > 20
    assert {name for name in measured if len(catalogue.candidates(name)) != 1} == set()
