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
ADDITIONS = Path(__file__).parents[2] / "scripts" / "catalogue_additions.json"

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
    with pytest.raises(ModelError, match=r"'my-model-7b' is not in the catalogue; give a path"):
        catalogue.find("my-model-7b")
    for name in ("", "///", "-"):
        with pytest.raises(ModelError, match="not in the catalogue"):
            catalogue.find(name)


def test_ambiguous_names_list_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"ab": ("x/a-b", "y/a-b")}
    monkeypatch.setattr(catalogue, "_index", lambda: catalogue._Index(places={}, answers=answers))
    with pytest.raises(ModelError, match=r"may be x/a-b or y/a-b; give the whole name"):
        catalogue.find("A.B")


def test_the_beginning_of_a_name_finds_models_of_one_shape() -> None:
    spec = catalogue.lookup("mixtral-8x7b")
    assert spec is not None
    assert spec.name == "mistralai/Mixtral-8x7B-Instruct-v0.1"
    assert spec.assumptions[-1] == (
        "'mixtral-8x7b' was taken as mistralai/Mixtral-8x7B-Instruct-v0.1; "
        "mistralai/Mixtral-8x7B-v0.1 has the same shape"
    )
    only = catalogue.lookup("mistral small 24b")
    assert only is not None
    assert only.assumptions[-1].endswith("taken as mistralai/Mistral-Small-24B-Instruct-2501")
    whole = catalogue.lookup("qwen3-8b")
    assert whole is not None
    assert whole.assumptions == ()
    assert catalogue.lookup("mixtral-8x7") is None
    assert catalogue.lookup("someone/mixtral-8x7b") is None
    assert catalogue.lookup("") is None


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("mixtral-8x22b", "Mixtral-8x22B-Instruct-v0.1 or mistralai/Mixtral-8x22B-v0.1"),
        ("mixtral", "mistralai/Mixtral-8x22B-v0.1 or mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("qwen3", r"or \d+ more; give the whole name"),
        ("opt", "'opt' may be facebook/opt-125m; give the whole name"),
        ("glm-5", "'glm-5' may be zai-org/GLM-5-FP8; give the whole name"),
    ],
)
def test_the_beginning_of_a_name_chooses_neither_size_nor_layout(name: str, named: str) -> None:
    with pytest.raises(ModelError, match=named):
        catalogue.lookup(name)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("01-ai/Yi-6B-Chat", 4096),
        ("meta-llama/Llama-2-13b-hf", 4096),
        ("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", 4096),
        ("HuggingFaceTB/SmolLM3-3B", 65536),
        ("CohereForAI/c4ai-command-r7b-12-2024", 132096),
        ("Qwen/QwQ-32B-Preview", 32768),
        ("Qwen/QwQ-32B", 40960),
        ("Qwen/Qwen2-0.5B", 131072),
        ("Qwen/Qwen2-1.5B", 131072),
        ("Qwen/Qwen2.5-1.5B-Instruct", 32768),
        ("Qwen/Qwen2.5-14B-Instruct", 32768),
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", 32768),
        ("Qwen/Qwen2.5-32B-Instruct", 32768),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", 32768),
        ("Qwen/Qwen2.5-72B-Instruct", 32768),
        ("RedHatAI/Qwen2.5-72B-Instruct-FP8-dynamic", 32768),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", 32768),
        ("Qwen/Qwen3-8B-Base", 32768),
        ("Qwen/Qwen3-14B-Base", 32768),
        ("Qwen/Qwen3-8B", 40960),
        ("Qwen/Qwen2.5-1.5B", 131072),
        ("Qwen/Qwen2.5-72B", 131072),
        ("moonshotai/Kimi-Dev-72B", 131072),
    ],
)
def test_lengths_are_the_published_ones(name: str, length: int) -> None:
    """Not those a copy was compiled for, nor those of another model of the family."""
    assert catalogue.find(name).max_position_embeddings == length


def test_corrected_entries_say_so() -> None:
    corrections = json.loads(ADDITIONS.read_text())["corrections"]
    assert corrections
    for name, correction in corrections.items():
        entry = catalogue.entry(name)
        assert entry.source.endswith(f"; {correction['note']}")
        assert {field: entry.config.get(field) for field in correction["set"]} == correction["set"]


def test_positions_and_windows_are_the_published_ones() -> None:
    llama = catalogue.find("meta-llama/Llama-3.1-8B-Instruct")
    assert llama.rotary == catalogue.find("meta-llama/Meta-Llama-3.1-8B").rotary
    assert [table.kind for table in llama.rotary] == ["llama3"]
    (phi,) = catalogue.find("microsoft/Phi-3-medium-128k-instruct").rotary
    assert (phi.kind, phi.original_positions) == ("longrope", 4096)
    mini = catalogue.find("microsoft/Phi-3-mini-4k-instruct")
    assert {mixer.window for layer in mini.layers for mixer in layer.mixers} == {2047}  # type: ignore[union-attr]
    assert len(catalogue.entry("HuggingFaceTB/SmolLM3-3B").config["layer_types"]) == 36  # type: ignore[arg-type]


def test_instruct_models_have_their_own_type() -> None:
    assert catalogue.find("allenai/OLMo-2-1124-7B").dtype == "float32"
    assert catalogue.find("allenai/OLMo-2-1124-7B-Instruct").dtype == "bfloat16"


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
    corrected = json.loads(ADDITIONS.read_text())["corrections"]
    compared = 0
    for name in catalogue.names():
        if name in rows and name not in corrected:
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
