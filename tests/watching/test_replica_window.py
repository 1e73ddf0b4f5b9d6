import math

import pytest

from tokenroom.watching.histograms import Histogram
from tokenroom.watching.replica_window import ReplicaWindow
from tokenroom.watching.snapshots import Snapshot


def snapshot(
    prompt: float = 0,
    output: float = 0,
    *,
    requests: float = 0,
    preemptions: float = 0,
    hits: float | None = None,
    ttft: tuple[float, float] | None = None,
    **figures: float,
) -> Snapshot:
    counters = {
        "prompt_tokens": prompt,
        "generation_tokens": output,
        "requests": requests,
        "preemptions": preemptions,
    }
    if hits is not None:
        counters |= {"prefix_hits": hits, "prefix_queries": prompt}
    histograms = {}
    if ttft is not None:
        below, count = ttft
        histograms["ttft"] = Histogram(
            bounds=(0.1, 1.0, math.inf), counts=(below, count, count), total_seconds=count * 0.2
        )
    return Snapshot(model="m", rank=None, counters=counters, histograms=histograms, **figures)  # type: ignore[arg-type]


def test_the_first_scrape_has_no_rates_and_counts_from_itself() -> None:
    found = ReplicaWindow(30).add(snapshot(500, 100, running=3), 0.0)
    assert found.running == 3
    assert found.generation_tokens_per_second is None
    assert found.preemptions is None
    assert (found.totals.prompt_tokens, found.totals.generation_tokens) == (0, 0)


def test_rates_are_of_the_time_between_two_scrapes() -> None:
    window = ReplicaWindow(30)
    window.add(snapshot(500, 100), 10.0)
    found = window.add(snapshot(700, 140, requests=4, preemptions=2), 14.0)
    assert found.prompt_tokens_per_second == 50
    assert found.generation_tokens_per_second == 10
    assert found.requests_per_second == 1
    assert found.preemptions == 2
    assert found.totals.prompt_tokens == 200


def test_counters_that_fell_count_from_nothing() -> None:
    window = ReplicaWindow(30)
    window.add(snapshot(500, 100), 0.0)
    window.add(snapshot(600, 150), 1.0)
    assert window.fell(snapshot(30, 10))
    found = window.add(snapshot(30, 10), 3.0)
    assert found.prompt_tokens_per_second == 15
    assert found.totals.prompt_tokens == 130
    assert found.totals.generation_tokens == 60


def test_another_process_that_counts_more_by_now_counts_from_nothing_too() -> None:
    window = ReplicaWindow(30)
    window.add(snapshot(500, 100, ttft=(3, 5)), 0.0)
    assert not window.fell(snapshot(900, 300))
    found = window.add(snapshot(900, 300, ttft=(3, 6)), 2.0, restarted=True)
    assert found.totals.prompt_tokens == 900
    assert found.generation_tokens_per_second == 150
    assert found.ttft is not None
    assert found.ttft.count == 6


def test_latencies_are_of_the_window_alone() -> None:
    window = ReplicaWindow(5)
    window.add(snapshot(ttft=(100, 100)), 0.0)
    window.add(snapshot(ttft=(100, 110)), 2.0)
    found = window.add(snapshot(ttft=(104, 114)), 4.0)
    assert found.ttft is not None
    assert found.ttft.count == 14
    found = window.add(snapshot(ttft=(104, 114)), 8.0)
    assert found.ttft is not None
    assert found.ttft.count == 4  # those of 4.0 alone
    assert window.add(snapshot(ttft=(104, 114)), 20.0).ttft is None


def test_the_hit_rate_is_of_the_window_where_the_engine_counts() -> None:
    window = ReplicaWindow(30)
    assert window.add(snapshot(100, hits=90, prefix_hit_share=0.9), 0.0).prefix_hit_share is None
    assert window.add(snapshot(200, hits=115), 1.0).prefix_hit_share == 0.25


def test_hits_beside_misses() -> None:
    def counted(hits: float, misses: float) -> Snapshot:
        return Snapshot(
            model="m", rank=None, counters={"prefix_hits": hits, "prefix_misses": misses}
        )

    window = ReplicaWindow(30)
    window.add(counted(5, 5), 0.0)
    assert window.add(counted(6, 8), 1.0).prefix_hit_share == 0.25


@pytest.mark.parametrize(("told", "share"), [(0.4, 0.4), (-1.0, None)])
def test_the_share_of_engines_that_count_nothing(told: float, share: float | None) -> None:
    assert ReplicaWindow(30).add(snapshot(prefix_hit_share=told), 0.0).prefix_hit_share == share


def test_share_and_tokens_of_the_pool_follow_from_each_other() -> None:
    found = ReplicaWindow(30).add(snapshot(kv_share=0.25, kv_pool_tokens=4000), 0.0)
    assert found.kv_used_tokens == 1000
    found = ReplicaWindow(30).add(snapshot(kv_used_tokens=100, kv_pool_tokens=400), 0.0)
    assert found.kv_share == 0.25


def test_a_scrape_at_the_same_time_makes_no_rates() -> None:
    window = ReplicaWindow(30)
    window.add(snapshot(500), 1.0)
    assert window.add(snapshot(600), 1.0).prompt_tokens_per_second is None
