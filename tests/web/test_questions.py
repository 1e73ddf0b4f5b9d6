"""Questions answered at once: the same as the library, and never a file or address named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tokenroom import fit
from tokenroom.reports.fit_json import fit_json, schema_text
from tokenroom.reports.messages import Language

PATH = "speculative_draft_model_path"
SGLANG_DRAFT = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2}
LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100"}


def refusal(client: TestClient, path: str, body: Any) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    message: str = answer.json()["error"]["message"]
    return message


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ({"context": "32k", "concurrency": 64, "changes": True}, {"context": 32768}),
        ({"context": 8192, "kv": "fp8", "util": 0.8}, {"context": 8192, "kv": "fp8", "util": 0.8}),
        ({"engine": "sglang", "tp": 2}, {"engine": "sglang", "tp": 2}),
        ({"gpu": "2xl40s", "weights": "awq"}, {"gpu": "2xl40s", "weights": "awq"}),
        ({"settings": {"enforce_eager": True}}, {"enforce_eager": True}),
    ],
)
def test_an_answer_is_the_library_s(
    client: TestClient, body: dict[str, Any], arguments: dict[str, Any]
) -> None:
    asked = {"concurrency": body.get("concurrency")} | LLAMA | arguments
    mine = fit(**asked)
    changes = body.get("changes", False)
    answer = client.post("/v1/fit", json=LLAMA | body)
    expected = fit_json(mine, language=Language.ENGLISH, changes=changes)
    assert answer.json() == json.loads(json.dumps(expected))
    Draft202012Validator(json.loads(schema_text())).validate(answer.json())


def test_what_was_asked_before_is_answered_alike(client: TestClient) -> None:
    first, second = (client.post("/v1/fit", json=LLAMA).json() for _ in range(2))
    assert first == second


def test_a_pasted_config_and_a_command_are_read(client: TestClient) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384 -tp 2"
    answer = client.post("/v1/fit", json={"command": command, "gpu": "a100"}).json()
    assert answer["deployment"]["max_model_len"] == {"value": 16384, "origin": "user"}
    assert answer["hardware"]["count"] == 2
    config = {
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
    for form in (config, json.dumps(config)):
        answer = client.post("/v1/fit", json={"config": form, "gpu": "l4"}).json()
        assert answer["kv_cache_groups"][0]["layers"] == 2
    answer = client.post(
        "/v1/fit", json={"command": command, "config": config, "gpu": "a100", "context": 2048}
    ).json()
    assert answer["model"]["name"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert answer["kv_cache_groups"][0]["layers"] == 2


def test_no_field_opens_a_file_or_an_address(client: TestClient, tmp_path: Path) -> None:
    secret = tmp_path / "config.json"
    secret.write_text('{"model_type": "llama", "hidden_size": 64}')
    for name in (str(secret), str(tmp_path), "org/unheard-of", "http://127.0.0.1:1/x"):
        said = refusal(client, "/v1/fit", {"model": name, "gpu": "h100"})
        assert "is not in the catalogue" in said
        drafting = json.dumps({"method": "eagle", "model": name, "num_speculative_tokens": 2})
        for body in (
            LLAMA | {"engine": "sglang", "settings": SGLANG_DRAFT | {PATH: name}},
            {
                "gpu": "h100",
                "command": f"vllm serve {LLAMA['model']} --speculative-config '{drafting}'",
            },
            {"gpu": "h100", "command": f"vllm serve {name}"},
        ):
            assert "is not in the catalogue" in refusal(client, "/v1/fit", body)
    options = tmp_path / "options.yaml"
    options.write_text("max-model-len: 4096\n")
    command = f"vllm serve {LLAMA['model']} --config {options}"
    said = refusal(client, "/v1/fit", {"command": command, "gpu": "h100"})
    assert "4096" not in said


def test_settings_may_not_be_arguments_of_speed(client: TestClient) -> None:
    said = refusal(client, "/v1/speed", LLAMA | {"settings": {"input_tokens": 5}})
    assert "settings holds input_tokens, which is no setting of the engine's own" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "no model is given"),
        ({"model": "llama-3.1-8b", "gpu": 3}, "gpu is 3"),
        (LLAMA | {"gpus": 0}, "gpus is 0"),
        (LLAMA | {"colour": "red"}, "colour is no field"),
        (LLAMA | {"a\nb": 1}, "'a\\nb' is no field"),
        (LLAMA | {"x" * 500: 1}, "xxx... is no field"),
        (
            LLAMA | {"engine": "sglang", "settings": {"environment": {"model": "a", "n": 2}}},
            "mapping from names to texts",
        ),
        (LLAMA | {"gpu": "h900"}, "h900"),
        (LLAMA | {"context": "many"}, "context is 'many'"),
        (LLAMA | {"settings": {"notes": ["x"]}}, "no setting of the engine's own"),
        (LLAMA | {"settings": {"concurrency": 1}}, "no setting of the engine's own"),
        (LLAMA | {"settings": {"no_such_setting": 1}}, "no_such_setting"),
        ({"config": "{", "gpu": "h100"}, "config is no JSON"),
        ({"config": "[1]", "gpu": "h100"}, "config is no JSON object"),
        (LLAMA | {"command": "vllm serve x"}, "give one"),
        ({"model": "llama-3.1-8b"}, "no GPU is given"),
    ],
)
def test_bad_questions_get_one_sentence(
    client: TestClient, body: dict[str, Any], words: str
) -> None:
    said = refusal(client, "/v1/fit", body)
    assert words in said
    assert "\n" not in said


def test_what_is_no_json_or_too_much_is_refused(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    assert client.post("/v1/fit", content=b"{", headers=headers).status_code == 422
    deep = b'{"config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert client.post("/v1/fit", content=deep, headers=headers).status_code in (400, 422)
    large = b'{"model": "' + b"x" * (17 * 2**20) + b'"}'
    assert client.post("/v1/fit", content=large, headers=headers).status_code == 413

    def chunks() -> Any:
        for _ in range(17):
            yield b"x" * 2**20

    assert client.post("/v1/fit", content=chunks(), headers=headers).status_code == 413


def test_a_sweep_and_rows_are_answered(client: TestClient) -> None:
    sweep = client.post("/v1/sweep", json=LLAMA | {"sweep": "concurrency=1,2,3,4,8"}).json()
    assert [point["value"] for point in sweep["points"]] == [1, 2, 3, 4, 8]
    row = {
        "id": "one",
        "engine": "vllm",
        "engine_version": "0.19.0",
        "model": "Llama-3.1-8B-Instruct",
        "gpu": "H100 80GB",
        "gpus": 1,
        "flags": {"max_model_len": 8192, "gpu_memory_utilization": 0.9},
        "reported": {"kv_tokens": 430000},
    }
    found = client.post("/v1/validate", json={"rows": [row]}).json()
    assert found["rows"][0]["quantity"] == "kv_tokens"
    assert "rows[0]" in refusal(client, "/v1/validate", {"rows": [{"engine": "vllm"}]})


def test_objectives_are_answered_with_the_load_that_keeps_them(client: TestClient) -> None:
    answer = client.post("/v1/speed", json=LLAMA | {"tpot": "20ms", "ttft": "1s"}).json()
    load = answer["objectives"]["load"]
    assert answer["concurrency"] == load["concurrency"] > 1
    assert (load["binds"], load["bound_by"]) == (["tpot"], "bandwidth")
    swept = LLAMA | {"sweep": "concurrency=1..1024", "tpot": "20ms"}
    points = client.post("/v1/speed", json=swept).json()["points"]
    assert [points[0]["missed"], points[-1]["missed"]] == [[], ["tpot"]]
    assert "with a unit" in refusal(client, "/v1/speed", LLAMA | {"tpot": "20"})


def test_a_rate_and_a_benchmark_are_answered_as_the_command_line_does(client: TestClient) -> None:
    rate = client.post("/v1/speed", json=LLAMA | {"rate": "100/s"}).json()
    assert rate["arrivals"]["falls_behind"]
    few = client.post("/v1/speed", json=LLAMA | {"concurrency": 8, "num_prompts": 16}).json()
    assert few["ttft_parts"]["burst_seconds"] > 0
    assumed = client.post("/v1/speed", json=LLAMA).json()
    assert (assumed["concurrency"], assumed["concurrency_assumed"]) == (32, True)
    assert assumed["tpot_limiter"] == "bandwidth"
    both = LLAMA | {"rate": "5", "tpot": "20ms"}
    assert "give one of the two" in refusal(client, "/v1/speed", both)


def test_accuracy_has_speeds_by_engine_and_quantity(client: TestClient) -> None:
    found = client.get("/v1/accuracy").json()["speeds"]
    by = {(one["engine"], one["quantity"]): one for one in found}
    assert len(by) == len(found)
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        first = by[engine, "ttft_ms"]
        assert first["n"] > 200
        assert 0.75 < first["inside_share"] < 0.95
        assert first["median_abs_pct"] < first["p90_abs_pct"]


def test_lists_and_headers(client: TestClient) -> None:
    assert len(client.get("/v1/models").json()["models"]) > 100
    assert {"h100-sxm-80gb"} <= {gpu["key"] for gpu in client.get("/v1/gpus").json()["gpus"]}
    engines = client.get("/v1/engines")
    assert "vllm" in {engine["name"] for engine in engines.json()["engines"]}
    policy = engines.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "access-control-allow-origin" not in engines.headers


def test_the_document_describes_the_answers(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    answer = document["paths"]["/v1/fit"]["post"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Fit"}
    assert document["components"]["schemas"]["FitQuestion"]["examples"]


def test_the_server_counts(client: TestClient) -> None:
    client.post("/v1/fit", json=LLAMA)
    client.post("/v1/fit", json={})
    text = client.get("/metrics").text
    assert 'tokenroom_http_requests_total{method="POST",path="/v1/fit",status="200"}' in text
    assert 'tokenroom_http_requests_total{method="POST",path="/v1/fit",status="422"}' in text
    assert client.get("/health").json() == {"status": "ok"}
