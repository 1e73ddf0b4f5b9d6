"""Which engine answers, and what it tells of its start."""

import json
from pathlib import Path

import pytest
from page_server import VLLM_PAGES, PageServer, PageText, vllm_page

from tokenroom.errors import WatchError
from tokenroom.watching.addresses import parse_address
from tokenroom.watching.fetching import Fetcher
from tokenroom.watching.probing import Server, recognise, scrape

FIXTURES = Path(__file__).parents[1] / "fixtures" / "watching"
MIB, GIB = 2**20, 2**30


def text(name: str) -> str:
    return (FIXTURES / name).read_text("utf-8")


def fetcher(server: PageServer) -> Fetcher:
    return Fetcher(parse_address(server.url), timeout_seconds=5)


def recognised(pages: dict[str, PageText]) -> Server:
    with PageServer(pages) as server:
        return recognise(fetcher(server))


def test_vllm_tells_its_pool() -> None:
    found = recognised(VLLM_PAGES | {"/metrics": text("vllm-0.32.0-idle.txt")})
    facts = found.facts
    assert (found.engine, found.path) == ("vllm", "/metrics")
    assert (facts.version, facts.model, facts.max_model_len) == ("0.32.0", "org/model", 1024)
    # --num-gpu-blocks-override 40 --block-size 32
    assert (facts.kv_blocks, facts.kv_block_tokens, facts.kv_pool_tokens) == (40, 32, 1280)
    assert facts.settings["num_gpu_blocks_override"] == 40


def test_old_vllm_tells_blocks_alone() -> None:
    facts = recognised({"/metrics": text("vllm-0.6.6.txt")}).facts
    assert facts.kv_pool_tokens == 27_897 * 16
    assert facts.settings == {
        "gpu_memory_utilization": 0.9,
        "block_size": 16,
        "kv_cache_dtype": "auto",
    }
    assert facts.version is None


def test_engines_side_by_side_are_counted() -> None:
    facts = recognised({"/metrics": text("vllm-0.8.5-dp2.txt")}).facts
    assert facts.settings["data_parallel_size"] == 2
    assert facts.kv_pool_tokens is None  # that version's label says None
    page = vllm_page(engine="0") + vllm_page(engine="1")
    facts = recognised({"/metrics": page}).facts
    assert (facts.kv_blocks, facts.kv_pool_tokens) == (50, 800)  # of one; the label is the sum


INFO = {
    "version": "0.5.23",
    "model_path": "org/model",
    "tp_size": 2,
    "dp_size": 1,
    "mem_fraction_static": 0.88,
    "context_length": None,
    "max_total_num_tokens": 4000,
    "max_running_requests": 512,
    "page_size": 1,
    "kv_cache_dtype": "auto",
    "api_key": "secret",
}


def test_sglang_tells_its_start() -> None:
    facts = recognised(
        {"/metrics": text("sglang-0.5.23-dp2.txt"), "/server_info": json.dumps(INFO)}
    ).facts
    assert (facts.version, facts.model, facts.max_num_seqs) == ("0.5.23", "org/model", 512)
    assert facts.kv_pool_tokens == 4000
    assert facts.weights_bytes == round(14.96 * GIB)
    assert facts.kv_bytes == round(50.5 * GIB)
    assert facts.graphs_bytes is not None
    assert facts.settings["tp_size"] == 2
    assert "api_key" not in facts.settings


def test_sglang_without_metrics_is_known_by_its_info() -> None:
    found = recognised({"/get_server_info": json.dumps(INFO)})
    assert (found.engine, found.path) == ("sglang", "")


def test_tensorrt_llm_with_both_pages_is_read_by_prometheus() -> None:
    iterations = text("tensorrt-llm-1.0-iterations.json")
    with PageServer(
        {
            "/metrics": iterations,
            "/prometheus/metrics": text("tensorrt-llm-1.3.txt"),
            "/version": '{"version": "1.3.0"}',
        }
    ) as server:
        found = recognise(fetcher(server))
        assert found.path == "/prometheus/metrics"
        assert found.facts.kv_pool_tokens == 16_000
        assert found.facts.max_num_seqs == 64
        server.asked.clear()
        assert scrape(fetcher(server), found).page is not None
        assert server.asked == ["/prometheus/metrics"]  # the other would take figures away


def test_tensorrt_llm_with_iterations_alone() -> None:
    with PageServer({"/metrics": text("tensorrt-llm-1.0-iterations.json")}) as server:
        found = recognise(fetcher(server))
        seen = scrape(fetcher(server), found)
        assert seen.stats is not None
        assert seen.stats.running == 4
        server.pages["/metrics"] = "[]"
        assert scrape(fetcher(server), found).stats is None


LLAMA: dict[str, PageText] = {
    "/metrics": text("llama-server-b11312-loaded.txt"),
    "/props": text("llama-server-b11312-props.json"),
    "/slots": text("llama-server-b11312-slots.json"),
}


def test_llama_server_as_recorded() -> None:
    found = recognised(LLAMA)
    assert (found.engine, found.path, found.has_slots) == ("llama.cpp", "/metrics", True)
    assert (found.facts.max_num_seqs, found.facts.max_model_len) == (8, 512)
    assert found.facts.kv_pool_tokens is None  # eight slots share or divide what nobody tells


def test_llama_server_without_metrics_still_has_slots() -> None:
    refused = (501, '{"error": {"message": "Start it with --metrics"}}')
    found = recognised(LLAMA | {"/metrics": refused})
    assert (found.path, found.has_slots) == ("", True)
    with pytest.raises(WatchError, match="--metrics"):
        recognised(LLAMA | {"/metrics": refused, "/slots": refused})


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({"/metrics": (401, "no")}, "--api-key"),
        ({"/metrics": (500, "no")}, "status 500"),
        ({"/metrics": (302, "no")}, "status 302"),
        ({"/metrics": "DCGM_FI_DEV_FB_USED 1\n"}, "no engine that is known"),
        ({"/metrics": "<html>"}, "cannot be read"),
        ({}, "--enable-metrics"),
    ],
)
def test_what_is_no_engine_says_why(pages: dict[str, PageText], said: str) -> None:
    with pytest.raises(WatchError, match=said):
        recognised(pages)


@pytest.mark.parametrize(
    "told",
    [
        "[]",
        '{"data": []}',
        '{"data": [1]}',
        '{"data": {"a": 1}}',
        "text",
        '{"data": [{"root": 7}]}',
    ],
)
def test_facts_of_any_shape_are_taken_or_left(told: str) -> None:
    facts = recognised(VLLM_PAGES | {"/v1/models": told, "/version": told}).facts
    assert (facts.model, facts.version) == (None, None)
