"""Regimes come from the curve itself: elasticities at their ends, overload where requests wait."""

from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.regimes import REGIMES, Regimes, regimes_of
from tokenroom.serving_speed import ServingSpeed, speed


def served(**changes: object) -> ServingSpeed:
    return speed("llama-3.1-8b", "h100", **({"context": 8192} | changes))  # type: ignore[arg-type]


def slope(asked: ServingSpeed, low: int, high: int) -> float:
    first, second = (asked.at(clients).output_tokens_per_second.value for clients in (low, high))
    return log(second / first) / log(high / low)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_slopes_within_and_beyond_the_ends(engine: str) -> None:
    asked = served(engine=engine)
    found = regimes_of(asked)
    assert 1 < found.latency < found.balanced < found.throughput
    assert slope(asked, found.latency // 2, found.latency) > 2 / 3
    assert 1 / 3 < slope(asked, found.latency, found.balanced) < 2 / 3
    assert slope(asked, found.balanced, found.throughput) < 1 / 3
    assert asked.at(found.throughput).requests_waiting == 0
    assert asked.at(found.throughput + 1).requests_waiting == 1


def test_longer_prompts_end_every_regime_earlier() -> None:
    short, long = (regimes_of(served(input_tokens=tokens)) for tokens in (512, 4096))
    assert long.latency < short.latency
    assert long.balanced < short.balanced
    assert long.throughput < short.throughput


def test_prompts_that_fill_every_step_are_overload_before_the_pool_is_full() -> None:
    asked = served(input_tokens=7000, output_tokens=8)
    found = regimes_of(asked)
    assert found.throughput < asked.fit.requests_running
    assert asked.at(found.throughput + 1).predicted.prompts_bound
    assert not asked.at(found.throughput).predicted.prompts_bound


def test_room_for_one() -> None:
    found = regimes_of(served(max_num_seqs=1))
    assert [found.of(clients) for clients in (1, 2)] == ["latency", "overload"]
    assert found.spans == (("latency", 1, 1), ("overload", 2, None))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp"]),
    st.integers(16, 7000),
    st.integers(1, 1000),
)
def test_regimes_follow_each_other_without_gaps(engine: str, prompt: int, output: int) -> None:
    found = regimes_of(served(engine=engine, input_tokens=prompt, output_tokens=output))
    assert 0 <= found.latency <= found.balanced <= found.throughput
    assert found.throughput >= 1
    assert found.spans[0][1] == 1
    for (_, _, end), (_, start, _) in zip(found.spans, found.spans[1:], strict=False):
        assert end is not None
        assert start == end + 1
    assert found.spans[-1] == ("overload", found.throughput + 1, None)
    for name, first, _ in found.spans:
        assert found.of(first) == name


def test_the_words_are_in_order() -> None:
    found = Regimes(latency=2, balanced=4, throughput=8)
    assert tuple(found.of(clients) for clients in (2, 4, 8, 9)) == REGIMES
