import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import saved_writer  # noqa: E402

from tokenroom.cli.main import main  # noqa: E402
from tokenroom.measuring.in_torch.scoring import Scorer  # noqa: E402
from tokenroom.reports.quality_json import schema_text  # noqa: E402


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("writer")
    text = folder / "text.txt"
    text.write_text(saved_writer(folder))
    yield folder, text
    torch.set_num_threads(threads)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["quality", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def asked(files: tuple[Path, Path], *words: object) -> tuple[object, ...]:
    return ("--model", files[0], "--text", files[1], "--context", "32,64", "--windows", 4, *words)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_cache_is_shown_beside_what_it_saves(
    capsys: pytest.CaptureFixture[str], files: tuple[Path, Path], language: str
) -> None:
    words = asked(files, "--kv", "int8,int2", "--granularity", "head", "--lang", language)
    code, out, err = run(capsys, *words, "--tolerance", "0.05")
    assert (code, err) == (0, "")
    assert out.count("int8/head") == 3
    assert out.count("int2/head") == 2
    assert "{" not in out
    assert {"en": "bit by bit", "zh": "逐位"}[language] in out


def test_json_keeps_its_schema_and_repeats(
    capsys: pytest.CaptureFixture[str], files: tuple[Path, Path]
) -> None:
    words = asked(files, "--scheme", "int4/channel/16+int4/token/8", "--json", "--seed", 3)
    code, out, _ = run(capsys, *words)
    answer = json.loads(out)
    jsonschema.validate(answer, json.loads(schema_text()))
    assert code == 1
    assert answer["verdict"]["key"] == "none_keeps"
    assert [one["context_tokens"] for one in answer["results"]] == [32, 64]
    assert answer["results"][0]["windows"] == 4
    assert run(capsys, *words)[1] == out
    assert run(capsys, "--json-schema")[1] == schema_text()


def test_files_are_written(
    capsys: pytest.CaptureFixture[str], files: tuple[Path, Path], tmp_path: Path
) -> None:
    table, picture = tmp_path / "scores.csv", tmp_path / "picture.svg"
    words = asked(files, "--kv", "fp8", "--granularity", "tensor", "--fp8-scale", "unit")
    _, _, err = run(capsys, *words, "--csv", table, "--plot", picture)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 2 * 4 * 2
    assert {row["scheme"] for row in rows} == {"full", "fp8_e4m3/tensor"}
    assert float(rows[0]["kl_nats"]) == 0
    assert "fp8_e4m3/tensor, 128 B" in picture.read_text()
    assert err.count("\n") == 2


def test_an_interrupted_run_keeps_what_was_done(
    capsys: pytest.CaptureFixture[str],
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Scorer.scores

    def stopped(self: Scorer, *given: Any) -> Iterator[Any]:
        for number, scores in enumerate(whole(self, *given)):
            if number == 3:
                raise KeyboardInterrupt
            yield scores

    monkeypatch.setattr(Scorer, "scores", stopped)
    table = tmp_path / "scores.csv"
    words = asked(files, "--kv", "int8", "--granularity", "head", "--csv", table)
    code, out, _ = run(capsys, *words)
    assert code == 130
    assert "Ended early: 3 of 8 windows" in out
    assert len(table.read_text().splitlines()) == 1 + 3 * 2
    assert json.loads(run(capsys, *words, "--json")[1])["interrupted"]


def test_random_weights_are_no_verdict(
    capsys: pytest.CaptureFixture[str], files: tuple[Path, Path], tmp_path: Path
) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((files[0] / name).read_bytes())
    words = ("--model", tmp_path, "--text", files[1], "--context", "32", "--windows", 2)
    code, out, _ = run(capsys, *words, "--kv", "int8", "--granularity", "head")
    assert code == 1
    assert "weights are random" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--model and --text are needed"),
        (("--model", "/no/where", "--text", "{text}"), "there is no /no/where"),
        (("--model", "{folder}", "--text", "/no/text"), "--text /no/text"),
        (("--model", "{folder}", "--text", "{empty}"), "no text"),
        (("--model", "{folder}", "--text", "{text}", "--context", "1k"), "330 tokens"),
        (("--model", "{folder}", "--text", "{text}", "--kv", "int7"), "type is 'int7'"),
        (("--model", "{folder}", "--text", "{text}", "--granularity", "row"), "is 'row'"),
        (("--model", "{folder}", "--text", "{text}", "--scheme", "full"), "leave it out"),
        (("--model", "{folder}", "--text", "{text}", "--confidence", "1"), "between 0 and 1"),
        (("--model", "{folder}", "--text", "{text}", "--csv", "{text}"), "which is read"),
        (("--model", "{folder}", "--text", "{text}", "--plot", "x.bmp"), "x.bmp"),
        (("--model", "{encoder}", "--text", "{text}"), "no causal language model"),
        (("--model", "{masked}", "--text", "{text}", "--context", "32"), "is_decoder false"),
        (
            (
                "--model",
                "{folder}",
                "--text",
                "{text}",
                "--context",
                "32",
                "--scheme",
                "int4/token/5",
            ),
            "does not divide",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    files: tuple[Path, Path],
    tmp_path: Path,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text('{"model_type": "t5"}')
    shutil.copytree(files[0], tmp_path / "masked", ignore=shutil.ignore_patterns("*.safetensors"))
    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    (tmp_path / "masked" / "config.json").write_text(
        json.dumps({"model_type": "bert", "num_hidden_layers": 1, "vocab_size": 64, **small})
    )
    names = {
        "folder": files[0],
        "text": files[1],
        "empty": tmp_path / "empty",
        "encoder": tmp_path / "encoder",
        "masked": tmp_path / "masked",
    }
    code, out, err = run(capsys, *(word.format(**names) for word in words))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
