"""What every request passes: names, packed bodies, methods, caching; and the document's truth."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tokenroom.web.hosts import host_of, is_own, own_names

LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100"}


@pytest.mark.parametrize(
    ("header", "own"),
    [
        ("localhost:8765", True),
        ("127.0.0.1", True),
        ("[::1]:8765", True),
        ("192.0.2.7:80", True),
        ("LOCALHOST.", True),
        ("page.localhost", True),
        ("tokens.example.org", True),
        ("below.example.com:8765", True),
        ("example.com", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8765", False),
        ("localhost.evil.example", False),
    ],
)
def test_only_requests_to_this_server_are_answered(header: str, own: bool) -> None:
    name = host_of(header)
    assert name is not None
    assert is_own(name, own_names(["Tokens.example.org", ".example.com"])) is own
    assert is_own(name, own_names(["*"]))


def test_a_rebound_name_gets_nothing(client: TestClient) -> None:
    for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json"):
        answer = client.get(path, headers={"host": "evil.example:8765"})
        assert answer.status_code == 400
        assert "--allowed-host evil.example" in answer.json()["error"]["message"]


def test_other_origins_may_not_ask(client: TestClient) -> None:
    asking = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.options("/v1/fit", headers=asking)
    assert answer.status_code == 405
    plain = client.post("/v1/fit", content="{}", headers={"content-type": "text/plain"} | asking)
    assert plain.status_code == 422
    for found in (answer, plain):
        assert not [name for name in found.headers if name.startswith("access-control")]


def test_packed_bodies_are_refused(client: TestClient) -> None:
    for packing in ("gzip", "br", "deflate, gzip"):
        answer = client.post("/v1/fit", json=LLAMA, headers={"content-encoding": packing})
        assert answer.status_code == 415
        assert packing in answer.json()["error"]["message"]


def test_methods_and_unknown_paths(client: TestClient) -> None:
    wrong = client.get("/v1/fit")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.put("/v1/fit").status_code == 405
    for path in ("/v1/nothing", "/nothing", "/v1", "/%2e%2e/app.py", "/..%2fapp.py", "/%00"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json() == {"error": {"message": "Not Found"}}
    whole = client.get("/v1/gpus", headers={"accept-encoding": "identity"})
    head = client.head("/v1/gpus", headers={"accept-encoding": "identity"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert client.head("/v1/jobs/nosuch").status_code == 404


def test_answers_are_not_kept_by_caches(client: TestClient) -> None:
    for answer in (client.post("/v1/fit", json=LLAMA), client.get("/v1/models")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/json"


def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_reference_of_the_document_leads_somewhere(client: TestClient) -> None:
    made = document(client)
    for reference in set(re.findall(r'"\$ref": ?"#/([^"]+)"', client.get("/openapi.json").text)):
        node = made
        for part in reference.split("/"):
            node = node[part.replace("~1", "/")]


def test_lists_are_as_documented(client: TestClient) -> None:
    made = document(client)
    for path in ("/v1/models", "/v1/gpus", "/v1/engines", "/v1/accuracy", "/health"):
        content = made["paths"][path]["get"]["responses"]["200"]["content"]
        schema = content["application/json"]["schema"] | {"components": made["components"]}
        Draft202012Validator(schema).validate(client.get(path).json())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/fit", LLAMA | {"explain": True, "changes": True}),
        ("/v1/speed", LLAMA | {"sweep": "concurrency=1..8"}),
        ("/v1/speed", LLAMA | {"explain": True}),
        ("/v1/sweep", LLAMA | {"sweep": "concurrency=1..8"}),
        ("/v1/read", {"text": "vllm serve Qwen/Qwen3-8B"}),
    ],
)
def test_answers_are_as_documented(client: TestClient, path: str, body: dict[str, Any]) -> None:
    made = document(client)
    content = made["paths"][path]["post"]["responses"]["200"]["content"]
    schema = content["application/json"]["schema"] | {"components": made["components"]}
    Draft202012Validator(schema).validate(client.post(path, json=body).json())
