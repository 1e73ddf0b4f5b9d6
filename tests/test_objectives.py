"""Loads under objectives: answers keep them and one more does not, tighter is never larger."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenroom
from tokenroom import find_accelerator
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import DeploymentError
from tokenroom.objectives import LoadLimits, Objectives, load_limits
from tokenroom.serving_speed import ServingSpeed, speed

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
MODELS = ("llama-3.1-8b", "Qwen/Qwen3-30B-A3B")
TIMES = st.floats(0.002, 60) | st.floats(0.002, 0.2)


@lru_cache(maxsize=64)
def served(model: str, engine: str, input_tokens: int, output_tokens: int) -> ServingSpeed:
    gpus = 1 if model.startswith("llama") else 2
    return speed(
        model,
        "h100",
        gpus=gpus,
        engine=engine,
        context=16384,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


deployments = st.builds(
    served,
    st.sampled_from(MODELS),
    st.sampled_from(ENGINES),
    st.sampled_from((64, 1000, 7000)),
    st.sampled_from((2, 32, 700)),
)


@settings(max_examples=60, deadline=None)
@given(deployments, TIMES | st.none(), TIMES | st.none())
def test_the_answer_keeps_its_objectives_and_one_more_does_not(
    asked: ServingSpeed, tpot: float | None, ttft: float | None
) -> None:
    if tpot is None and ttft is None:
        return
    limits = load_limits(asked, tpot_seconds=tpot, ttft_seconds=ttft)
    objectives = Objectives(tpot_seconds=tpot, ttft_seconds=ttft)
    load = limits.load
    if load.concurrency:
        assert load.point is not None
        assert load.point.concurrency == load.concurrency
        assert objectives.missed(asked.at(load.concurrency)) == ()
    if load.binds:
        assert objectives.missed(asked.at(load.concurrency + 1)) == load.binds
    else:  # room ends first: more clients would wait
        assert load.concurrency == asked.fit.requests_running
        assert load.bound_by in ("kv_pool", "max_num_seqs")
    assert limits.met == (load.concurrency > 0) == (not limits.unmet)


@settings(max_examples=60, deadline=None)
@given(deployments, TIMES, TIMES, st.floats(0.1, 1), st.floats(0.1, 1))
def test_a_tighter_objective_never_allows_more(
    asked: ServingSpeed, tpot: float, ttft: float, less: float, lesser: float
) -> None:
    loose = load_limits(asked, tpot_seconds=tpot, ttft_seconds=ttft)
    tight = load_limits(asked, tpot_seconds=tpot * less, ttft_seconds=ttft * lesser)
    assert tight.load.concurrency <= loose.load.concurrency
    assert loose.batch is not None
    assert tight.batch is not None
    assert tight.batch.concurrency <= loose.batch.concurrency <= asked.fit.requests_running
    for largest in (loose.load, loose.batch):
        assert largest.cautious <= largest.concurrency <= largest.hopeful


@settings(max_examples=30, deadline=None)
@given(deployments, TIMES)
def test_bursts_end_with_the_objective(asked: ServingSpeed, ttft: float) -> None:
    limits = load_limits(asked, ttft_seconds=ttft)
    times = [burst.ttft_seconds.value for burst in limits.bursts]
    assert times == sorted(times)
    kept = max((b.prompts for b in limits.bursts if b.ttft_seconds.value <= ttft), default=0)
    if kept < asked.fit.requests_running:
        assert limits.burst(kept + 1).ttft_seconds.value > ttft


def limits_of(tpot: float | None, ttft: float | None, **changes: object) -> LoadLimits:
    asked = speed("llama-3.1-8b", "h100", **({"context": 8192} | changes))  # type: ignore[arg-type]
    return load_limits(asked, tpot_seconds=tpot, ttft_seconds=ttft)


def test_what_binds_and_what_bounds_it() -> None:
    decoding = limits_of(0.012, None, output_tokens=4096)
    assert (decoding.load.binds, decoding.load.bound_by) == (("tpot",), "bandwidth")
    prompts = limits_of(0.05, None, input_tokens=4096, output_tokens=64)
    assert (prompts.load.binds, prompts.load.bound_by) == (("tpot",), "compute")
    waiting = limits_of(None, 10)
    assert (waiting.load.binds, waiting.load.bound_by) == (("ttft",), "kv_pool")
    assert waiting.load.concurrency > waiting.asked.fit.requests_running
    roomy = limits_of(5, None)
    assert (roomy.load.binds, roomy.load.bound_by) == ((), "kv_pool")
    few = limits_of(5, None, max_num_seqs=8)
    assert (few.load.concurrency, few.load.bound_by) == (8, "max_num_seqs")


def test_out_of_reach_names_the_floor() -> None:
    (unmet,) = limits_of(0.001, None).unmet
    # every weight but the embedding's is read once a token: 7.5e9 x 2 bytes at 3.35 TB/s
    assert unmet.floor.seconds == pytest.approx(7.5e9 * 2 / 3.35e12, rel=0.02)
    assert (unmet.floor.limiter, unmet.beyond_physics) == ("bandwidth", True)
    assert unmet.floor.seconds < unmet.alone_seconds.low
    (near,) = limits_of(0.006, None).unmet
    assert not near.beyond_physics
    (first,) = limits_of(None, 0.001).unmet
    assert first.floor.seconds == pytest.approx(2 * 7e9 * 1024 / 989.4e12, rel=0.03)
    assert first.floor.limiter == "compute"


@settings(max_examples=40, deadline=None)
@given(deployments)
def test_one_request_alone_never_beats_the_floor(asked: ServingSpeed) -> None:
    for unmet in load_limits(asked, tpot_seconds=1e-6, ttft_seconds=1e-6).unmet:
        assert unmet.alone_seconds.low > unmet.floor.seconds > 0


def test_weights_in_host_memory_are_read_over_its_link() -> None:
    gib = 2**30
    (unmet,) = limits_of(0.001, None, cpu_offload_bytes=4 * gib).unmet
    assert unmet.floor.limiter == "communication"
    link = find_accelerator("h100").pcie_bytes_per_second
    assert link is not None
    assert unmet.floor.seconds == pytest.approx(4 * gib / link, rel=0.15)
    assert unmet.alone_seconds.low > unmet.floor.seconds


def test_drafts_lower_the_floor_of_a_token() -> None:
    plain, drafted = (
        limits_of(0.0001, None, **changes).unmet[0]
        for changes in (
            {},
            {"speculative": SpeculativeSettings(method="ngram", num_speculative_tokens=3)},
        )
    )
    assert drafted.floor.seconds == pytest.approx(plain.floor.seconds / 4)


@pytest.mark.parametrize(
    "wrong", [{}, {"tpot_seconds": 0}, {"ttft_seconds": -1.0}, {"tpot_seconds": True}]
)
def test_objectives_that_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises(DeploymentError) as caught:
        load_limits(served("llama-3.1-8b", "vllm", 1000, 32), **wrong)
    assert "\n" not in str(caught.value)


def test_the_front_door_has_it() -> None:
    asked = tokenroom.speed("llama-3.1-8b", "h100", context=8192)
    assert tokenroom.load_limits(asked, tpot_seconds=0.05).met
