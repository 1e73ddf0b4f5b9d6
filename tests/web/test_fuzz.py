"""Bodies no client should send: each gets an answer or a sentence, never a server error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

HEADERS = {"content-type": "application/json"}
PATHS = (
    "/v1/fit",
    "/v1/speed",
    "/v1/sweep",
    "/v1/validate",
    "/v1/read",
    "/v1/jobs",
    "/v1/simulate",
)
QUIETLY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100"}
ROW = {
    "id": "mine",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "Llama-3.1-8B-Instruct",
    "gpu": "H100 80GB",
    "gpus": 1,
    "flags": {"max_model_len": 8192},
    "reported": {"kv_tokens": 434016},
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
WHOLE = [
    ("/v1/fit", LLAMA | {"context": 4096, "concurrency": 4, "util": 0.9, "settings": {"seed": 1}}),
    ("/v1/fit", {"config": CONFIG, "gpu": "l4", "gpus": 1, "engine": "sglang", "kv": "fp8"}),
    ("/v1/speed", LLAMA | {"input": 100, "output": 10, "price": 2.0, "tpot": "50ms"}),
    ("/v1/validate", {"rows": [ROW]}),
    ("/v1/simulate", LLAMA | {"workload": "chat:requests=9", "limit": 5, "seed": 1, "ttft": "1s"}),
    ("/v1/simulate", LLAMA | {"trace": "t,input,output\n0,9,9\n", "columns": "arrival=t"}),
    ("/v1/jobs", {"kind": "sweep", "question": LLAMA | {"sweep": "concurrency=1,2"}}),
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**40, -(10**40), 10**4000]),
    st.floats(),
    st.sampled_from([1e308, -0.0, 5e-324, float("inf"), float("-inf"), float("nan")]),
    st.text(max_size=30),
    st.sampled_from(
        ["", "\x00", "\ud800", "😀" * 50, "x" * 100_000, "../../etc/passwd", "NaN", "1e999"]
    ),
    st.sampled_from(
        ["file:///etc/passwd", "http://127.0.0.1:1/", "<script>", "\x1b[31m", "9" * 5000]
    ),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    st.just({}),
    st.just([[]]),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def answered(client: TestClient, path: str, body: bytes) -> None:
    answer = client.post(path, content=body, headers=HEADERS)
    assert answer.status_code in (200, 202, 400, 413, 422, 429), answer.text[:500]
    if answer.status_code not in (200, 202):
        said = answer.json()["error"]["message"]
        assert said
        assert "\n" not in said
        assert len(said) < 4_000
    elif answer.status_code == 202:
        client.delete(answer.headers["location"])


def inside(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    for key, item in inside(value):
        found += places(item, (*path, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = replaced(value[path[0]], path[1:], new)
    return changed


@QUIETLY
@given(data=st.data())
def test_an_odd_value_in_the_place_of_any_other(client: TestClient, data: st.DataObject) -> None:
    path, body = data.draw(st.sampled_from(WHOLE))
    place = data.draw(st.sampled_from(places(body)))
    answered(client, path, written(replaced(body, place, data.draw(ODD))))


@QUIETLY
@given(
    path=st.sampled_from(PATHS),
    body=st.one_of(st.binary(max_size=200), ODD.map(lambda v: written(v))),
)
def test_what_is_no_question(client: TestClient, path: str, body: bytes) -> None:
    answered(client, path, body)


@QUIETLY
@given(data=st.data())
def test_odd_settings_of_every_engine(client: TestClient, data: st.DataObject) -> None:
    engine = data.draw(st.sampled_from(ENGINES))
    name = data.draw(st.sampled_from(SETTINGS))
    body = LLAMA | {"engine": engine, "settings": {name: data.draw(ODD)}}
    answered(client, "/v1/fit", written(body))


ENGINES = ["vllm", "sglang", "llama.cpp", "tensorrt-llm", "transformers"]
SETTINGS = [
    *("max_model_len", "max_num_seqs", "block_size", "dtype", "kv_cache_dtype", "quantization"),
    *("gpu_memory_utilization", "tensor_parallel_size", "speculative_config", "hf_overrides"),
    *("compilation_config", "cuda_graph_sizes", "limit_mm_per_prompt", "lora_modules"),
    *("context_length", "mem_fraction_static", "page_size", "speculative_draft_model_path"),
    *(
        "ctx_size",
        "parallel",
        "batch_size",
        "n_gpu_layers",
        "mmproj",
        "model_draft",
        "tensor_split",
    ),
    *("max_seq_len", "max_batch_size", "free_gpu_memory_fraction", "device_map", "version"),
]


def written(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except ValueError:  # integers of more digits than Python writes
        return b'{"model": ' + b"9" * 5000 + b"}"


LARGE = 10 * 2**20
TEXTS = ["\x1b[31m", "<b onclick=x>", "\r\n", "\x00", "\ud800", "[", '{"a":', "1.", "GiB, ", "é😀 "]


@pytest.mark.parametrize("piece", TEXTS, ids=ascii)
def test_large_texts_of_one_kind(client: TestClient, piece: str) -> None:
    text = piece * (LARGE // len(piece.encode("utf-8", "surrogatepass")))
    answered(
        client, "/v1/read", json.dumps({"text": text}, ensure_ascii=piece == "\ud800").encode()
    )


def test_numbers_and_nesting_that_json_has_no_room_for(client: TestClient) -> None:
    for text in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 5000 + "]" * 5000):
        for name in ("gpus", "util", "config", "settings", "context"):
            body = f'{{"model": "x", "gpu": "h100", "{name}": {text}}}'
            answered(client, "/v1/fit", body.encode())
        answered(client, "/v1/validate", f'{{"rows": [{{"flags": {{"a": {text}}}}}]}}'.encode())
