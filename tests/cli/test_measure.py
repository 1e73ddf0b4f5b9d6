import json
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenroom.cli.main import main
from tokenroom.reports.measure_json import schema_text

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["measure", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_ledger_is_shown_beside_the_prediction(
    capsys: pytest.CaptureFixture[str], folder: Path, language: str
) -> None:
    words = (folder, "--batch", 2, "--prompt", 40, "--new-tokens", 3, "--lang", language)
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.count({"en": "equal", "zh": "相等"}[language]) == 4
    assert "{" not in out
    assert {"en": "drawn at random", "zh": "随机"}[language] in out


def test_json_keeps_its_schema(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = run(capsys, folder, "--prompt", 40, "--new-tokens", 3, "--json")
    answer = json.loads(out)
    jsonschema.validate(answer, json.loads(schema_text()))
    assert code == 0
    assert [done["phase"] for done in answer["passes"]] == ["prefill", "decode", "decode"]
    assert answer["cache"]["allocated_bytes"] == 3 * 42 * 2 * 2 * 16 * 2
    assert answer["allocators"] == []
    assert run(capsys, "--json-schema")[1] == schema_text()


def test_first_layers_of_a_catalogued_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("qwen3-0.6b", "--layers", 1, "--prompt", 16, "--new-tokens", 2, "--json")
    code, out, _ = run(capsys, *words)
    answer = json.loads(out)
    assert code == 0
    assert len(answer["cache"]["layers"]) == 1
    assert {row["key"]: row["difference_bytes"] for row in answer["ledger"]}["weights"] == 0


def test_real_weights_are_loaded_where_there_are_some(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import torch
    import transformers

    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).to(torch.float16)
    made.save_pretrained(tmp_path)
    capsys.readouterr()
    code, out, _ = run(capsys, tmp_path, "--prompt", 16, "--new-tokens", 2, "--json")
    answer = json.loads(out)
    assert (code, answer["random_weights"], answer["dtype"]) == (0, False, "float16")
    words = (tmp_path, "--random", "--prompt", 16, "--new-tokens", 2, "--json")
    assert json.loads(run(capsys, *words)[1])["random_weights"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "no model is given"),
        (("/nowhere/at/all",), "there is no /nowhere/at/all"),
        (("{folder}", "--prompt", "600"), "more than the 512 positions"),
        (("{folder}", "--layers", "4"), "--layers is 4 and the model has 3"),
        (("{folder}", "--device", "tpu"), "--device is 'tpu'"),
        (("{folder}", "--device", "cuda"), "no CUDA device"),
        (("{folder}", "--prompt", "9", "--meter", "allocator"), "no such counters"),
        (("{folder}", "--prompt", "9", "--cache", "offloaded"), "there is none here"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("says what there is none of")
    code, out, err = run(capsys, *(word.format(folder=folder) for word in words))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "no readable config.json"),
        ("[]", "not an object"),
        ('{"model_type": "nonesuch"}', "does not read the configuration"),
        ('{"model_type": "vit"}', "no causal language model"),
        ('{"model_type": "llama", "hidden_size": 65, "vocab_size": 9}', "llama"),
        (json.dumps(CONFIG | {"vocab_size": 10**9, "hidden_size": 10**4}), "--layers"),
    ],
)
def test_a_configuration_that_is_none_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    code, out, err = run(capsys, tmp_path)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
