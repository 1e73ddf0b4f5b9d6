"""``tokenroom.speed``: known relations between what clients see, and the ledger of a step."""

from dataclasses import replace
from itertools import pairwise

import pytest

import tokenroom
from tokenroom import find_accelerator, fit
from tokenroom.errors import DeploymentError
from tokenroom.serving_speed import (
    DoesNotFitError,
    ServingSpeed,
    UsualSpeed,
    speed,
    usual_speed,
)

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


def served(**changes: object) -> ServingSpeed:
    return speed("llama-3.1-8b", "h100", **({"context": 8192} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_more_clients_make_each_slower_and_all_together_faster(engine: str) -> None:
    first = served(engine=engine, concurrency=1)
    points = [first.at(clients) for clients in (1, 4, 16, 64, 256, 1024, 4096)]
    tpots = [point.tpot_seconds.value for point in points]
    rates = [point.output_tokens_per_second.value for point in points]
    assert tpots == sorted(tpots)
    assert all(later > 0.99 * before for before, later in pairwise(rates))
    assert rates[-1] == pytest.approx(rates[-2], rel=0.02)  # the pool is full: the rest waits
    assert points[-1].requests_waiting > 0
    assert points[-1].ttft_seconds.value > 2 * points[-2].ttft_seconds.value


def test_two_gpus_serve_each_user_faster_at_less_a_gpu() -> None:
    one, two = served(), served(tp=2)
    assert two.gpus == 2
    assert two.tokens_per_second_per_user.value > 1.2 * one.tokens_per_second_per_user.value
    ours = two.output_tokens_per_second_per_gpu.value
    assert ours < one.output_tokens_per_second_per_gpu.value
    assert 2 * ours == pytest.approx(two.output_tokens_per_second.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("concurrency", [1, 32])
def test_operators_add_up_to_the_step(engine: str, concurrency: int) -> None:
    result = served(engine=engine, concurrency=concurrency)
    for ledger in (result.prefill, result.decode):
        assert sum(line.seconds for line in ledger.lines) == pytest.approx(ledger.time.seconds)
        assert sum(ledger.shares.values()) == pytest.approx(1)
        assert sum(line.share for line in ledger.lines) == pytest.approx(1)
        assert ledger.shares[ledger.limiter] == max(ledger.shares.values())
        for line in ledger.lines:
            assert bool(line.sources) == (line.name != "host")


def test_the_models_own_figures_are_kept() -> None:
    result = served(dp=2, concurrency=64)
    found = result.predicted
    assert result.output_tokens_per_second.value == pytest.approx(found.output_tokens_per_second)
    per_gpu = result.output_tokens_per_second_per_gpu.value
    assert per_gpu == pytest.approx(found.tokens_per_second_per_accelerator)
    assert result.tokens_per_second_per_user.value == pytest.approx(
        found.tokens_per_second_per_user
    )


def test_ranges_hold_their_estimate() -> None:
    result = served(price_per_gpu_hour=2.0, concurrency=1000)
    for figures in (
        result.ttft_seconds,
        result.tpot_seconds,
        result.tokens_per_second_per_user,
        result.output_tokens_per_second,
        result.requests_per_second,
        result.usd_per_million_output_tokens,
    ):
        assert figures is not None
        assert figures.low <= figures.value <= figures.high


def test_the_price_is_gpu_time_over_output() -> None:
    result = served(tp=2, price_per_gpu_hour=3.6)
    cost = result.usd_per_million_output_tokens
    assert cost is not None
    # 2 GPUs at 3.6 USD an hour are 0.002 USD a second
    assert cost.value == pytest.approx(0.002 * 1e6 / result.output_tokens_per_second.value)
    assert cost.low == pytest.approx(0.002 * 1e6 / result.output_tokens_per_second.high)
    assert served().usd_per_million_output_tokens is None


def test_copies_of_sglang_share_the_clients() -> None:
    one = served(engine="sglang", concurrency=16)
    two = served(engine="sglang", concurrency=32, dp=2)
    assert two.tpot_seconds == one.tpot_seconds
    assert two.output_tokens_per_second.value == pytest.approx(
        2 * one.output_tokens_per_second.value
    )


def test_the_budget_and_room_are_the_engines() -> None:
    result = served(concurrency=4096)
    settings = result.fit.deployment.settings
    assert result.terms.token_budget == settings["max_num_batched_tokens"].value
    assert result.fit.request_tokens == 1024 + 256
    assert result.requests_running == result.fit.requests_running


def test_a_first_look_is_the_speed_of_the_requests_asked_about() -> None:
    plain = usual_speed(fit("llama-3.1-8b", "h100", context=8192)).speed
    assert plain is not None
    assert plain.output_tokens_per_second == served().output_tokens_per_second
    asked = usual_speed(
        fit("llama-3.1-8b", "h100", context=8192, request_tokens=5000, concurrency=7)
    ).speed
    assert asked is not None
    assert (asked.load.input_tokens, asked.load.output_tokens, asked.concurrency) == (4000, 1000, 7)
    assert asked.requests_waiting == 0
    long = fit("llama-3.1-70b", "4x4090", weights="awq", context=8192, concurrency=64)
    verdict_of = usual_speed(long).speed
    assert verdict_of is not None
    assert verdict_of.load.input_tokens + verdict_of.load.output_tokens == 8192
    assert verdict_of.concurrency == long.requests_running < 64
    full = usual_speed(fit("llama-3.1-8b", "h100", context=8192, concurrency=10**5)).speed
    assert full is not None
    assert full.requests_waiting == 0
    assert full.at(full.concurrency + 1).requests_waiting == 1


@pytest.mark.parametrize(("name", "own"), [("input", "input_tokens"), ("output", "output_tokens")])
def test_the_name_of_an_option_is_put_right(name: str, own: str) -> None:
    with pytest.raises(DeploymentError, match=f"{name} is no argument.*called {own}"):
        speed("llama-3.1-8b", "h100", **{name: 1024})


def test_a_first_look_where_there_is_no_speed() -> None:
    for engine in ("transformers", "paged"):
        assert usual_speed(fit("llama-3.1-8b", "h100", engine=engine)) == UsualSpeed(None)
    assert usual_speed(fit("llama-3.1-70b", "4090")) == UsualSpeed(None)
    unknown = replace(find_accelerator("h100"), key="x", flops_per_second={})
    found = usual_speed(fit("llama-3.1-8b", unknown, context=8192))
    assert found.speed is None
    assert "flops_per_second of x" in str(found.reason)


def test_what_does_not_fit_is_raised_with_its_fit() -> None:
    with pytest.raises(DoesNotFitError, match="does not fit") as caught:
        tokenroom.speed("llama-3.1-70b", "4090")
    assert caught.value.fit.verdict == "does_not_fit"


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": True},
        {"concurrency": 1.5},
        {"input_tokens": 0},
        {"output_tokens": "9"},
        {"price_per_gpu_hour": "2"},
        {"price_per_gpu_hour": -1},
        {"engine": "contiguous"},
        {"engine": 3},
    ],
)
def test_wrong_arguments_are_one_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(DeploymentError) as caught:
        served(**wrong)
    assert "\n" not in str(caught.value)


def test_attention_copies_are_made_of_the_tensor_parallel_ranks() -> None:
    """SGLang's DP attention and TensorRT-LLM's: one replica, whose ranks each hold whole heads."""
    sglang = speed(
        "deepseek-v3", "h200", gpus=8, engine="sglang", tp=8, dp_size=8, enable_dp_attention=True
    ).terms
    assert (sglang.layout.tensor_parallel_size, sglang.layout.data_parallel_size) == (1, 8)
    assert sglang.replicas == 1
    tensorrt = speed(
        "deepseek-v3", "h200", gpus=8, engine="tensorrt-llm", tp=8, enable_attention_dp=True
    ).terms
    assert (tensorrt.layout.tensor_parallel_size, tensorrt.layout.data_parallel_size) == (1, 8)
    copies = speed("llama-3.1-8b", "h200", gpus=4, engine="sglang", tp=1, dp_size=4).terms
    assert (copies.replicas, copies.layout.data_parallel_size) == (4, 1)


def test_stages_are_those_of_the_engine() -> None:
    """What does not divide goes before the last stage in vLLM, to the last ones in SGLang."""
    vllm = speed("qwen2.5-7b", "h200", gpus=3, tp=1, pp=3).terms.layout
    assert vllm.stage_layers == (9, 10, 9)
    sglang = speed("qwen2.5-7b", "h200", gpus=3, tp=1, pp=3, engine="sglang").terms.layout
    assert sglang.stage_layers == (9, 9, 10)


def test_old_vllm_runs_prompts_alone_and_copies_offloaded_weights() -> None:
    old = speed("llama-3.1-8b", "h100", engine="vllm@0.6.3", context=8192, cpu_offload_bytes=2**30)
    assert old.terms.mixes is False
    assert old.terms.layout.copies_host_weights
    new = speed("llama-3.1-8b", "h100", context=8192, cpu_offload_bytes=2**30)
    assert new.terms.mixes is None
    assert not new.terms.layout.copies_host_weights
    assert new.terms.layout.host_weight_bytes == 2**30
    assert new.decode.lines[0].name == "host_weights"
    chunked = speed("llama-3.1-8b", "h100", engine="vllm@0.6.3", enable_chunked_prefill=True)
    assert chunked.terms.mixes is None


def test_llama_cpp_needs_the_hosts_bandwidth_for_what_it_leaves_there() -> None:
    given = {"engine": "llama.cpp", "context": 8192, "concurrency": 1, "fit": False}
    with pytest.raises(DeploymentError, match=r"host_bandwidth is not given; give the peak"):
        speed("gpt-oss-120b", "rtx-3090", n_cpu_moe=26, **given)
    found = speed("gpt-oss-120b", "rtx-3090", n_cpu_moe=26, host_bandwidth=90e9, **given)
    part = found.terms.layout.host
    assert part is not None
    assert (sum(part.layers), sum(part.experts), part.output) == (0, 26, False)
    assert found.decode.lines[0].name == "host_layers"
    assert found.prefill.lines[0].name == "host_weights"
    for wrong in (0, -5.0, float("nan"), float("inf"), True, "90"):
        with pytest.raises(DeploymentError, match=r"host_bandwidth is .*; give bytes a second"):
            speed("gpt-oss-120b", "rtx-3090", n_cpu_moe=26, host_bandwidth=wrong, **given)
    half = speed("llama-3.1-8b", "rtx-3090", n_gpu_layers=17, host_bandwidth=90e9, **given)
    assert half.terms.layout.host is not None
    assert sum(half.terms.layout.host.layers) == 16
    with pytest.raises(DeploymentError, match="on the processor alone"):
        speed("llama-3.1-8b", "rtx-3090", n_gpu_layers=0, host_bandwidth=90e9, **given)


def test_one_client_meets_no_prompts_but_its_own() -> None:
    """While its request decodes nobody else's prompt shares a step."""
    found = speed("llama-3.1-8b", "h100", input_tokens=4096, output_tokens=128, concurrency=1)
    assert found.tpot_seconds.value == pytest.approx(found.decode.time.seconds)
