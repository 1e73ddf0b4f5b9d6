"""What to deploy, asked of a server: plans and pools as jobs, recipes and tables at once."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tokenroom.reports import plan_json
from tokenroom.reports.lookup_text import schema_text

PLAN = {
    "models": ["Llama-3.1-8B-Instruct"],
    "users": 100,
    "think_time": "10s",
    "input": 512,
    "output": 64,
    "ttft": "2s",
    "tpot": "50ms",
    "gpus_from": ["l40s"],
    "max_gpus": 2,
    "top": 1,
}
SERVER = {"model": "Llama-3.1-8B-Instruct", "gpu": "l40s", "context": 8192}
PATIENCE_SECONDS = 60


def ended(client: TestClient, kind: str, question: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"/v1/{kind}", json=question)
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        stand: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
        if stand["state"] == "failed":
            return stand
        if stand["state"] == "done":
            found: dict[str, Any] = client.get(f"/v1/jobs/{job}/result").json()
            return found
        time.sleep(0.05)
    raise AssertionError(stand)


def refusal(client: TestClient, path: str, question: dict[str, Any]) -> str:
    answer = client.post(f"/v1/{path}", json=question)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["error"]["message"])


def test_a_plan_is_what_the_command_line_prints(client: TestClient) -> None:
    found = ended(client, "plan", PLAN)
    Draft202012Validator(json.loads(plan_json.schema_text())).validate(found)
    (plan,) = found["plans"]
    assert plan["accelerator"] == "l40s"
    assert plan["launch"]["command"].startswith("vllm serve")
    assert plan["launch"]["command"] in found["markdown"]


@pytest.mark.parametrize(
    "load",
    [
        {},
        {"users": None, "think_time": None, "concurrency": 20, "seed": 3},
        {"users": None, "think_time": None, "rate": "3/s"},
        {"users": None, "think_time": None, "rate": "2/s", "burst": 2.5, "input": "uniform(9,900)"},
    ],
    ids=["users", "clients", "rate", "bursts"],
)
def test_the_workload_that_verified_a_plan_is_simulated_again(
    client: TestClient, load: dict[str, Any]
) -> None:
    (plan,) = ended(client, "plan", PLAN | load)["plans"]
    question = {
        "command": plan["launch"]["command"],
        "gpu": f"{plan['gpus_per_replica']}x{plan['accelerator']}",
        "workload": plan["simulated"]["workload"],
    }
    run, seen = ended(client, "simulate", question), plan["simulated"]
    assert run["kv_pool_usage"]["max"] == seen["kv_pool_usage_max"]
    assert run["running"]["max"] == seen["running"]["max"]
    assert run["waiting"] == seen["waiting"]


def test_what_a_plan_has_found_is_told_and_kept_when_it_is_ended(client: TestClient) -> None:
    job = client.post("/v1/plan", json=PLAN | {"top": 3, "gpus_from": []}).json()["id"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not client.get(f"/v1/jobs/{job}").json()["partials"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.delete(f"/v1/jobs/{job}")
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert client.get(f"/v1/jobs/{job}/result").status_code == 409
    found = client.get(f"/v1/jobs/{job}/partial").json()
    Draft202012Validator(json.loads(plan_json.schema_text())).validate(found)
    assert not found["complete"]
    assert found["judged"] > 0


def test_a_job_that_has_found_nothing_says_so(client: TestClient) -> None:
    asked = {"kind": "sweep", "question": SERVER | {"sweep": "concurrency=1..4"}}
    job = client.post("/v1/jobs", json=asked).json()["id"]
    answer = client.get(f"/v1/jobs/{job}/partial")
    assert answer.status_code in (200, 409)  # it may have ended
    assert client.get("/v1/jobs/none/partial").status_code == 404


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": ["no-such-model"]}, "not in the catalogue"),
        ({"gpus_from": ["no-such-gpu"]}, "no-such-gpu"),
        ({"input": "empirical(/etc/passwd)"}, "no files are read here"),
        ({"users": None}, "the load is given by nothing"),
        ({"rate": "2/s"}, "the load is given by users and rate"),
        ({"users": None, "rate": "1e300"}, "think_time belongs to users"),
        ({"users": None, "think_time": None, "rate": "1e300"}, "rate is 1e+300"),
        ({"users": None, "think_time": None, "concurrency": 2, "have": {"l4": 1}}, "give one"),
        ({"think_time": "1e9s"}, "think_time is"),
        ({"context": 10}, "context is 10, below the mean request"),
        ({"ttft": None, "tpot": None}, "nothing is promised"),
        ({"ttft": "2"}, "ttft is '2'"),
        ({"budget": 3.0}, "a budget needs prices"),
        ({"kv": ["auto", "foo"]}, "kv is 'foo', which none of the engines knows"),
        ({"weights": ["foo"]}, "weights is 'foo'"),
        ({"settings": {"draft": ["foo"]}}, "settings.draft is 'foo'"),
        ({"engines": ["vllm@0.0.1"]}, "engine is 'vllm@0.0.1'"),
        ({"engines": ["transformers"]}, "engine is 'transformers'"),
        ({"prices": {"h100": 1}}, "which is not tried"),
        ({"prices": {"l40s": 1, "L40S": 2}}, "give one of them"),
        ({"burst": 2}, "burst belongs to a rate"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_at_once(
    client: TestClient, changes: dict[str, Any], said: str
) -> None:
    assert said in refusal(client, "plan", PLAN | changes)
    assert said in refusal(client, "jobs", {"kind": "plan", "question": PLAN | changes})


def test_fields_of_a_plan_are_checked_at_once(client: TestClient) -> None:
    assert "users" in refusal(client, "plan", PLAN | {"users": 0})
    assert "max_gpus" in refusal(client, "plan", PLAN | {"max_gpus": 64})


def test_a_recipe_is_answered_at_once(client: TestClient) -> None:
    answer = client.post("/v1/recipe", json=SERVER | {"workload": "chat", "tpot": "50ms"})
    found = answer.json()
    Draft202012Validator(json.loads(schema_text("recipe"))).validate(found)
    assert f"--max-num-seqs {found['max_num_seqs']}" in found["command"]
    assert "give one" in refusal(client, "recipe", SERVER)
    assert "kv is 'foo'" in refusal(client, "recipe", SERVER | {"p95": 2000, "kv": "foo"})
    path = {"workload": "poisson:rate=1,input=empirical(/etc/passwd),output=1"}
    assert "no files are read here" in refusal(client, "recipe", SERVER | path)


def test_pools_are_searched_as_a_job(client: TestClient) -> None:
    mixed = "poisson:rate=8,input=quantiles(0:50,80:400,90:6000,100:7000),output=20"
    asked = {"servers": 2, "workload": mixed, "limit": 60, "ttft": "1s", "draws": 2}
    found = ended(client, "pools", SERVER | asked)
    Draft202012Validator(json.loads(schema_text("pools"))).validate(found)
    assert found["gain"]["runs"] == 2
    assert "nothing is promised" in refusal(client, "pools", SERVER | asked | {"ttft": None})
    assert "workload is 'foo'" in refusal(client, "pools", SERVER | asked | {"workload": "foo"})
    assert "kv is 'foo'" in refusal(client, "pools", SERVER | asked | {"kv": "foo"})
    assert "does not start" in refusal(client, "pools", SERVER | asked | {"util": 0.1})


@pytest.mark.parametrize("name", ["params", "kv", "concurrency", "gpus-for-users", "reference"])
def test_every_table_is_answered_at_once(client: TestClient, name: str) -> None:
    asked = {"name": name, "models": ["Meta-Llama-3-8B"], "gpus": ["l40s"], "users": [10]}
    answer = client.post("/v1/tables", json=asked)
    assert answer.status_code == 200, answer.text
    Draft202012Validator(json.loads(schema_text("table"))).validate(answer.json())


def test_tables_have_bounds(client: TestClient) -> None:
    asked = {"name": "gpus-for-users", "models": ["Meta-Llama-3-8B"] * 50, "gpus": ["l40s"] * 9}
    assert "ask for at most" in refusal(client, "tables", asked)
    assert "needs at least one" in refusal(
        client, "tables", {"name": "concurrency", "models": ["Meta-Llama-3-8B"]}
    )
