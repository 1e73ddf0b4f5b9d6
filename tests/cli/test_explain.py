import bz2
import gzip
import io
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tokenroom.cli.main import main
from tokenroom.reports.diagnosis_text import schema_text

LOG = """\
INFO 04-22 [api_server.py] vLLM API server version 0.19.0
INFO 04-22 non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'max_model_len': 131072, \
'gpu_memory_utilization': 0.9}
INFO 04-22 [gpu_worker.py] Available KV cache memory: 9.12 GiB
ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV \
cache is needed, which is larger than the available KV cache memory (9.12 GiB). Based on the \
available memory, the estimated maximum model length is 74704.
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["explain", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_has_cause_evidence_and_remedies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, language: str
) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG)
    code, out, err = run(capsys, str(log), "--lang", language)
    assert (code, err) == (0, "")
    assert "--max-model-len" in out
    assert "131072" in out
    assert "{" not in out.replace("{'model'", "")


def test_json_keeps_its_schema(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG)
    code, out, _ = run(capsys, str(log), "--json")
    answer = json.loads(out)
    jsonschema.validate(answer, json.loads(schema_text()))
    assert code == 0
    assert (answer["cause"], answer["phase"]) == ("kv_pool_too_small", "kv_init")
    assert answer["recovered"]["model"] == "meta-llama/Llama-3.1-8B"
    assert answer["remedies"][0]["flag"] == "--max-model-len 74704"


def test_several_logs_have_an_answer_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "b.log").write_text("nothing of note\n")
    code, out, _ = run(capsys, str(tmp_path / "a.log"), str(tmp_path / "b.log"), "--json")
    assert code == 1
    assert [one["cause"] for one in json.loads(out)] == ["kv_pool_too_small", "unknown"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_logs_are_unpacked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    log = tmp_path / "server.log.packed"
    log.write_bytes(pack(LOG.encode()))
    assert run(capsys, str(log))[0] == 0
    log.write_bytes(pack(LOG.encode())[:-8])  # cut off: what was read before counts
    code, out, _ = run(capsys, str(log))
    assert code in (0, 1)
    assert out


def test_zstd_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "server.log.zst"
    log.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 20)
    code, _, said = run(capsys, str(log))
    assert code == 2
    assert "packed by zstd" in said


def test_memory_snapshots_are_told_and_hostile_ones_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    block = {"size": 2**30, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "total_size": 2**30, "blocks": [block]}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    code, out, _ = run(capsys, str(path), "--json")
    answer = json.loads(out)
    jsonschema.validate(answer, json.loads(schema_text()))
    assert (code, answer["cause"]) == (1, "unknown")
    assert answer["snapshot"][0]["reserved_bytes"] == 2**30
    path.write_bytes(pickle.dumps(print))
    code, _, said = run(capsys, str(path))
    assert code == 2
    assert "more than plain values" in said


def test_standard_input_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    code, out, _ = run(capsys, "-")
    assert code == 0
    assert "KV pool is too small" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no log is given"),
        (["/no/such.log"], "cannot be read"),
        (["-", "-"], "standard input is read once"),
    ],
)
def test_what_cannot_be_read_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_advice_is_the_engines_own_length_and_never_a_share_that_is_no_larger(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG.replace("'gpu_memory_utilization': 0.9", "'gpu_memory_utilization': 0.96"))
    _, out, _ = run(capsys, str(log), "--gpu", "l4", "--json")
    flags = [remedy["flag"] for remedy in json.loads(out)["remedies"]]
    assert "--max-model-len 74704" in flags
    assert not any(flag.startswith("--gpu-memory-utilization") for flag in flags)
