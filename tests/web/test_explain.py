"""A log that is sent is diagnosed as on the command line."""

import base64
import bz2
import gzip
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tokenroom.reports.diagnosis_text import schema_text


def test_a_log_is_diagnosed(client: TestClient) -> None:
    text = "INFO 01-01 vllm\nValueError: No available memory for the cache blocks."
    found = client.post("/v1/explain", json={"text": text, "language": "zh"}).json()
    Draft202012Validator(json.loads(schema_text())).validate(found)
    assert (found["cause"], found["phase"]) == ("kv_pool_too_small", "kv_init")
    assert "KV" in found["verdict"]


def test_what_tells_nothing_is_unknown(client: TestClient) -> None:
    found = client.post("/v1/explain", json={"text": "hello"}).json()
    assert (found["cause"], found["evidence"]) == ("unknown", [])


def test_an_empty_log_is_refused(client: TestClient) -> None:
    assert client.post("/v1/explain", json={"text": ""}).status_code == 422


def test_what_the_log_leaves_out_may_be_told(client: TestClient) -> None:
    text = (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: self.server_args.mem_fraction_static=0.2"
    )
    alone = client.post("/v1/explain", json={"text": text}).json()
    assert alone["ledger"] is None
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.2"
    found = client.post(
        "/v1/explain", json={"text": text, "gpu": "l40s", "command": command}
    ).json()
    assert found["ledger"]["verdict"] == "does_not_fit"
    assert found["recovered"]["flags"] == {"mem_fraction_static": 0.2}
    before, after = found["remedies"][0]["effect"]["pool_tokens"]
    assert (before, after > 100_000) == (0, True)
    named = client.post(
        "/v1/explain", json={"text": text, "gpu": "l40s", "model": "Qwen/Qwen3-8B"}
    ).json()
    assert named["ledger"]["model"]["name"] == "Qwen/Qwen3-8B"


def test_the_log_counts_before_the_command(client: TestClient) -> None:
    text = (
        "INFO 01-02 [entrypoints/utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', "
        "'max_model_len': 8192}\nValueError: No available memory for the cache blocks."
    )
    command = "vllm serve Qwen/Qwen3-8B --max-model-len 4096 --enforce-eager"
    found = client.post(
        "/v1/explain", json={"text": text, "gpu": "l40s", "command": command}
    ).json()
    assert found["recovered"]["flags"] == {"max_model_len": 8192, "enforce_eager": True}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"gpu": "no-such-gpu"}, "no-such-gpu"),
        ({"command": "sleep 9"}, "command"),
        ({"command": "vllm serve --config /etc/passwd"}, "/etc/passwd"),
    ],
)
def test_what_is_told_is_checked(client: TestClient, told: dict[str, str], said: str) -> None:
    answer = client.post("/v1/explain", json={"text": "hello", **told})
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


SAMPLES = Path(__file__).parents[2] / "page" / "src" / "doctor" / "samples"


@pytest.mark.parametrize(
    ("name", "beside", "cause", "phase", "first"),
    [
        ("kv_pool", {}, "kv_pool_too_small", "kv_init", "--max-model-len 39552"),
        ("activations", {}, "activation_peak", "profile", "--max-num-batched-tokens 32768"),
        (
            "sglang_share",
            {"gpu": "h100"},
            "kv_pool_too_small",
            "kv_init",
            "--mem-fraction-static 0.83",
        ),
        ("other_process", {}, "other_process", "load", "nvidia-smi"),
        ("host_ram", {}, "host_ram", None, None),
        ("shm", {}, "shm", "load", "--ipc=host"),
        ("healthy", {}, None, None, None),
        ("too_short", {}, "unknown", None, None),
    ],
)
def test_the_logs_that_the_page_offers(
    client: TestClient,
    name: str,
    beside: dict[str, str],
    cause: str | None,
    phase: str | None,
    first: str | None,
) -> None:
    text = (SAMPLES / f"{name}.log").read_text("utf-8")
    found = client.post("/v1/explain", json={"text": text} | beside).json()
    assert found["cause"] == cause
    assert phase is None or found["phase"] == phase
    if first is not None:
        assert found["remedies"][0]["flag"] == first


def test_questions_ask_for_the_deployment_and_each_remedy(client: TestClient) -> None:
    text = (SAMPLES / "compute_buffer.log").read_text("utf-8")
    model = "meta-llama/Llama-3.1-8B-Instruct@q8_0"
    found = client.post("/v1/explain", json={"text": text, "model": model}).json()
    question = found["question"]
    assert (question["engine"], question["context"], question["weights"]) == (
        "llama.cpp",
        65536,
        "q8_0",
    )
    shorter = next(one for one in found["remedies"] if one["key"] == "length")
    assert shorter["question"] == question | {"context": shorter["value"]}
    layers = next(one for one in found["remedies"] if one["key"] == "layers")
    assert f"n-gpu-layers {layers['value']}" in layers["question"]["settings"].replace(
        "_", "-"
    ).replace("=", " ")
    text = (SAMPLES / "kv_pool.log").read_text("utf-8")
    found = client.post("/v1/explain", json={"text": text}).json()
    more = next(one for one in found["remedies"] if one["key"] == "gpus")
    assert more["question"] == found["question"] | {"gpus": 2}


def test_what_others_hold_is_in_the_ledger(client: TestClient) -> None:
    text = (SAMPLES / "other_process.log").read_text("utf-8")
    found = client.post("/v1/explain", json={"text": text}).json()
    assert found["ledger"]["hardware"]["used_bytes"] > 27 * 2**30


OOM = {"action": "oom", "size": 2**30, "device_free": 0, "frames": []}
SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 1,
            "total_size": 3 * 2**30,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [
                {
                    "size": 3 * 2**30,
                    "requested_size": 3 * 2**30,
                    "state": "active_allocated",
                    "frames": [{"filename": "/env/loader.py", "line": 9, "name": "load_model"}],
                }
            ],
        }
    ],
    "device_traces": [[OOM]],
}


def sent(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_bytes_are_unpacked(client: TestClient, pack: Callable[[bytes], bytes]) -> None:
    text = (SAMPLES / "kv_pool.log").read_bytes()
    found = client.post("/v1/explain", json=sent(pack(text))).json()
    assert found["cause"] == "kv_pool_too_small"
    assert found["evidence"][0]["line"] == 11


def test_a_memory_snapshot_is_read(client: TestClient) -> None:
    found = client.post("/v1/explain", json=sent(pickle.dumps(SNAPSHOT))).json()
    Draft202012Validator(json.loads(schema_text())).validate(found)
    (device,) = found["snapshot"]
    assert device["by_taker"] == {"weights": 3 * 2**30}
    assert device["sites"][0]["bytes"] == 3 * 2**30


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ({}, "text or as base64"),
        ({"text": "a", "base64": "YQ=="}, "text or as base64"),
        ({"base64": "?"}, "no base64"),
        (sent(b"\x28\xb5\x2f\xfd0123"), "zstd"),
        (sent(pickle.dumps([print])), "pickle"),
    ],
)
def test_what_is_no_log_is_refused(client: TestClient, log: dict[str, str], said: str) -> None:
    answer = client.post("/v1/explain", json=log)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]
