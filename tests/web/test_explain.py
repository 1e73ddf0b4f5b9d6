"""A log that is sent is diagnosed as on the command line."""

import json

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
