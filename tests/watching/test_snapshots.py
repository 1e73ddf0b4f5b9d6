"""Pages of every engine, by version (``tests/fixtures/watching/README.md`` says where from)."""

import json
from pathlib import Path

import pytest

from tokenroom.watching.exposition import Exposition, read_exposition
from tokenroom.watching.histograms import latency
from tokenroom.watching.snapshots import (
    Snapshot,
    engine_of,
    host_bytes,
    read_iteration_stats,
    read_snapshots,
    read_torch,
    start_mark,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "watching"


def page(name: str) -> Exposition:
    return read_exposition((FIXTURES / name).read_text("utf-8"))


def snapshots(name: str, engine: str) -> tuple[Snapshot, ...]:
    found = page(name)
    assert engine_of(found) == engine
    return read_snapshots(engine, found)


def test_vllm_as_recorded_under_load() -> None:
    (found,) = snapshots("vllm-0.32.0-loaded.txt", "vllm")
    assert (found.model, found.rank) == ("tiny", None)
    assert (found.running, found.waiting, found.kv_share) == (0, 0, 0.0)
    # What the load generator had sent by then.
    assert found.counters["prompt_tokens"] == 6888
    assert found.counters["generation_tokens"] == 5988
    assert found.counters["requests"] == 60
    assert found.counters["preemptions"] == 31
    assert {name: found.histograms[name].count for name in found.histograms} == {
        "ttft": 60,
        "itl": 5988 - 60,
        "tpot": 60,
        "queue": 60,
        "e2e": 60,
    }
    ttft = latency(found.histograms["ttft"])
    assert ttft is not None
    assert ttft.p50_seconds < ttft.p90_seconds < ttft.p99_seconds
    assert found.histograms["e2e"].total_seconds > found.histograms["ttft"].total_seconds


def test_the_process_behind_the_page() -> None:
    found = page("vllm-0.32.0-loaded.txt")
    assert start_mark(found) == pytest.approx(1796059999.64)
    assert host_bytes(found) == 645259264
    assert start_mark(page("sglang-0.4.6.txt")) is None


def test_vllm_before_its_second_engine() -> None:
    (found,) = snapshots("vllm-0.6.6.txt", "vllm")
    assert (found.running, found.waiting, found.kv_share) == (3, 1, 0.125)
    assert found.prefix_hit_share == 0.4
    assert found.counters["requests"] == 5
    # The time between tokens had another name then.
    assert found.histograms["itl"].count == 445
    assert "tpot" not in found.histograms


def test_vllm_with_two_engines() -> None:
    zero, one = snapshots("vllm-0.8.5-dp2.txt", "vllm")
    assert (zero.rank, one.rank) == ("0", "1")
    assert (zero.running, one.running) == (3, 4)
    assert (zero.kv_share, one.kv_share) == (0.3, 0.4)
    assert one.counters["generation_tokens"] == 400
    assert zero.counters["prefix_hits"] / zero.counters["prefix_queries"] == 0.25
    assert one.histograms["itl"].count == 200


def test_sglang_as_its_own_collectors_write() -> None:
    (found,) = snapshots("sglang-0.4.6.txt", "sglang")
    assert (found.running, found.waiting) == (5, 2)
    assert (found.kv_share, found.kv_used_tokens) == (0.3, 1200)
    assert found.counters["prompt_tokens"] == found.counters["prefix_queries"] == 1000
    assert found.counters["prefix_hits"] == 250
    assert found.counters["requests"] == 10
    assert found.histograms["ttft"].count == 3


def test_sglang_counts_tokens_for_all_ranks_together() -> None:
    whole, zero, one = snapshots("sglang-0.5.23-dp2.txt", "sglang")
    assert [found.rank for found in (whole, zero, one)] == [None, "0", "1"]
    assert (zero.running, one.running, whole.running) == (5, 6, 11)
    assert (zero.kv_share, one.kv_share, whole.kv_share) == (0.3, 0.4, 0.4)
    assert (zero.kv_pool_tokens, whole.kv_pool_tokens) == (4000, 8000)
    assert whole.kv_used_tokens == 2800
    assert whole.counters["prompt_tokens"] == 1000
    assert whole.counters["prefix_hits"] == 250
    assert whole.histograms["ttft"].count == 10
    assert one.counters["preemptions"] == 1
    assert "prompt_tokens" not in zero.counters
    assert zero.histograms["queue"].count == 5


def test_tensorrt_llm_by_its_prometheus_page() -> None:
    (found,) = snapshots("tensorrt-llm-1.3.txt", "tensorrt-llm")
    assert (found.running, found.waiting, found.kv_share) == (4, 2, 0.6)
    assert found.counters["requests"] == 12
    assert found.counters["prefix_hits"] == 30
    assert found.counters["prefix_misses"] == 90
    assert found.histograms["ttft"].count == found.histograms["tpot"].count == 12


def test_tensorrt_llm_by_its_iterations() -> None:
    found = read_iteration_stats(
        json.loads((FIXTURES / "tensorrt-llm-1.0-iterations.json").read_text())
    )
    assert found is not None
    assert (found.running, found.waiting) == (4, 1)  # of the last iteration
    assert found.kv_used_tokens == 101 * 32
    assert found.kv_pool_tokens == 16_000
    assert found.kv_share == pytest.approx(101 / 500)
    assert found.counters == {"prefix_hits": 20.0, "prefix_misses": 60.0}


@pytest.mark.parametrize("stats", [[], {}, None, [1, "x"], "text"])
def test_no_iterations_are_no_snapshot(stats: object) -> None:
    assert read_iteration_stats(stats) is None


def test_llama_server_as_recorded() -> None:
    (found,) = snapshots("llama-server-b11312-loaded.txt", "llama.cpp")
    assert (found.running, found.waiting) == (0, 0)
    assert found.counters["prompt_tokens"] == 6521
    assert found.counters["generation_tokens"] == 6338
    assert found.kv_share is None  # gone from the page since 2025
    assert found.histograms == {}


def test_a_server_that_tells_of_pytorch_alone() -> None:
    found = read_exposition(
        'tokenroom_torch_allocated_bytes{gpu="0"} 5\ntokenroom_torch_reserved_bytes{gpu="0"} 7\n'
        'tokenroom_torch_reserved_bytes{gpu="1"} 7\n'
    )
    assert engine_of(found) == "torch"
    assert read_snapshots("torch", found) == ()
    (memory,) = read_torch(found)
    assert (memory.gpu, memory.allocated_bytes, memory.reserved_bytes) == ("0", 5, 7)


def test_other_pages_are_of_no_engine() -> None:
    assert engine_of(read_exposition("DCGM_FI_DEV_FB_USED 1\n")) is None
