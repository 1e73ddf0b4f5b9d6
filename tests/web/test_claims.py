"""Published claims, asked of a server."""

import json

from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator

from tokenroom.claims.index import all_claims
from tokenroom.reports.claims_text import schema_text


def test_all_claims_in_both_languages(client: TestClient) -> None:
    answer = client.get("/v1/claims")
    assert answer.status_code == 200
    found = answer.json()
    Draft202012Validator(json.loads(schema_text())).validate(found)
    assert len(found["claims"]) == len(all_claims())
    assert all(row["recorded"] is row["simulated"] for row in found["claims"])
    assert client.get("/v1/claims").content == answer.content


def test_some_claims_computed_anew(client: TestClient) -> None:
    asked = {"names": ["batching-static-cap", "kv-70b-4096"], "recorded": False}
    answer = client.post("/v1/claims", json=asked)
    assert answer.status_code == 200
    rows = answer.json()["claims"]
    assert [row["id"] for row in rows] == [
        "batching-static-cap",
        *(f"kv-70b-4096-x{batch}" for batch in (1, 16, 64)),
    ]
    assert not any(row["recorded"] for row in rows)


def test_a_claim_that_is_none(client: TestClient) -> None:
    answer = client.post("/v1/claims", json={"names": ["kv-7b-5k"]})
    assert answer.status_code == 422
    assert "no claim is named 'kv-7b-5k'" in answer.json()["error"]["message"]
