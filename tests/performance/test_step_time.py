"""Steps: sums, limits, laws; and the closed form of a load."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom import find_accelerator, load_model
from tokenroom.errors import DeploymentError
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.host import COSTS
from tokenroom.performance.idle import tpot, ttft
from tokenroom.performance.load import Load, Speed, speed
from tokenroom.performance.replica import Replica
from tokenroom.performance.step_time import StepTime, step_time
from tokenroom.performance.work import Chunk, Layout, StepWork

H100 = find_accelerator("h100-sxm-80gb")
LLAMA = load_model("llama-3.1-8b")
SERVED = Replica(spec=LLAMA, layout=Layout(), accelerator=H100, engine="vllm")


def decode(sequences: int, context: int = 1000, engine: str = "vllm") -> StepTime:
    work = StepWork.decoding([context] * sequences)
    return step_time(LLAMA, Layout(), H100, work, engine=engine)


def served(concurrency: int, engine: str = "vllm", **changes: object) -> Speed:
    load = Load(input_tokens=1024, output_tokens=256, concurrency=concurrency)
    return speed(replace(SERVED, engine=engine, **changes), load)  # type: ignore[arg-type]


def test_one_request_decodes_at_the_speed_of_memory() -> None:
    step = decode(1)
    assert step.limiter == "bandwidth"
    assert step.seconds > 2 * LLAMA.parameters_total / 3.35e12
    assert step.seconds < 1.6 * 2 * LLAMA.parameters_total / 3.35e12
    assert step.low_seconds <= step.seconds <= step.high_seconds
    assert sum(share.seconds for share in step.operators.values()) == pytest.approx(
        step.device_seconds
    )
    assert next(iter(step.operators)).endswith("gate_up_proj")


def test_a_long_prompt_is_limited_by_arithmetic() -> None:
    step = step_time(LLAMA, Layout(), H100, StepWork(prefill=(Chunk(8192),)), engine="vllm")
    assert step.limiter == "compute"
    assert step.seconds > 2 * 7e9 * 8192 / 989.4e12


def test_many_cards_and_one_request_wait_for_each_other() -> None:
    layout = Layout(tensor_parallel_size=8)
    step = step_time(LLAMA, layout, H100, StepWork.decoding([100]), engine="vllm")
    assert step.operators["all_reduce"].limiter == "communication"
    assert step.operators["all_reduce"].seconds > 0.15 * step.device_seconds


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 30000), st.integers(0, 30000))
def test_more_work_never_takes_less_time(few: int, more: int, context: int, longer: int) -> None:
    small, large = decode(few, context), decode(few + more, context + longer)
    assert large.device_seconds >= small.device_seconds


def test_fewer_bits_decode_faster() -> None:
    work = StepWork.decoding([500])
    times = [
        step_time(spec, Layout(), H100, work).seconds
        for spec in (LLAMA, what_if(LLAMA, "fp8"), what_if(LLAMA, "awq"))
    ]
    assert times == sorted(times, reverse=True)


def test_without_graphs_or_asynchronous_scheduling_a_step_is_longer() -> None:
    work = StepWork.decoding([500])
    usual = step_time(LLAMA, Layout(), H100, work, engine="vllm")
    eager = step_time(LLAMA, Layout(), H100, work, engine="vllm", cuda_graphs=False)
    waiting = step_time(LLAMA, Layout(), H100, work, engine="vllm", asynchronous=False)
    assert eager.seconds >= usual.seconds
    assert waiting.seconds > usual.seconds


@pytest.mark.parametrize(
    ("engine", "model", "starting_seconds"),
    [
        ("sglang", "deepseek-r1", 61 * COSTS["sglang"].latent_seconds),
        ("tensorrt_llm", "deepseek-r1", 61 * COSTS["tensorrt_llm"].latent_seconds),
        ("sglang", "qwen3.5-397b-a17b", 45 * COSTS["sglang"].scan_seconds),
    ],
)
def test_short_prompts_wait_for_the_host_that_starts_their_kernels(
    engine: str, model: str, starting_seconds: float
) -> None:
    spec, layout = load_model(model), Layout(tensor_parallel_size=8)

    def prompt(tokens: int) -> StepTime:
        work = StepWork(prefill=(Chunk(tokens, 0),))
        return step_time(spec, layout, find_accelerator("b200"), work, engine=engine)

    short, longer = prompt(64), prompt(512)
    assert short.limiter == "host"
    assert longer.seconds == pytest.approx(short.seconds, rel=1e-3)
    assert starting_seconds < short.seconds < 1.2 * starting_seconds
    decode = StepWork(decode_sequences=4, decode_context_tokens=1024)
    replayed = step_time(spec, layout, find_accelerator("b200"), decode, engine=engine)
    assert replayed.seconds < starting_seconds / 4


def test_load_keeps_little_s_law() -> None:
    for concurrency in (1, 16, 128):
        found = served(concurrency)
        cycle = found.ttft_seconds + 255 * found.tpot_seconds
        assert found.requests_per_second * cycle == pytest.approx(concurrency)
        assert found.output_tokens_per_second == pytest.approx(256 * found.requests_per_second)
        assert found.tpot_low_seconds <= found.tpot_seconds <= found.tpot_high_seconds
        assert found.ttft_low_seconds <= found.ttft_seconds <= found.ttft_high_seconds
        assert found.running <= concurrency


def test_concurrency_buys_throughput_with_latency() -> None:
    steps = [served(concurrency) for concurrency in (1, 4, 16, 64, 256)]
    throughput = [step.output_tokens_per_second for step in steps]
    assert throughput == sorted(throughput)
    assert [step.tpot_seconds for step in steps] == sorted(step.tpot_seconds for step in steps)


def test_requests_beyond_the_bound_wait_and_throughput_stays() -> None:
    bound, beyond = served(32, max_num_seqs=32), served(64, max_num_seqs=32)
    assert beyond.tpot_seconds == pytest.approx(bound.tpot_seconds, rel=0.02)
    assert beyond.ttft_seconds > 10 * bound.ttft_seconds
    assert beyond.requests_per_second == pytest.approx(bound.requests_per_second, rel=0.02)


def test_prompts_that_fill_every_step_bound_the_throughput() -> None:
    few, many = (
        speed(SERVED, Load(input_tokens=8192, output_tokens=16, concurrency=concurrency))
        for concurrency in (64, 256)
    )
    assert many.requests_per_second == pytest.approx(few.requests_per_second, rel=0.02)
    assert many.requests_per_second * 8192 * 2 * 7e9 < 989.4e12
    assert many.running == few.running == 15  # steps of an answer after its first token
    assert many.ttft_seconds > 3 * few.ttft_seconds


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("output_tokens", [1, 2, 3, 8])
def test_short_answers_are_served_no_slower_by_more_clients(
    engine: str, output_tokens: int
) -> None:
    rates = [
        speed(
            replace(SERVED, engine=engine),
            Load(input_tokens=1024, output_tokens=output_tokens, concurrency=clients),
        ).requests_per_second
        for clients in (1, 4, 16, 64, 256, 1024)
    ]
    for few, many in pairwise(rates):
        assert many > 0.95 * few  # larger products reach a little less of the peak
    prompts = StepWork(prefill=(Chunk(1024),) * 8)
    most = 8 / step_time(LLAMA, Layout(), H100, prompts, engine=engine).seconds
    assert 0.6 * most < rates[-1] < 1.02 * most


def test_prompts_alone_keep_alike_requests_in_step() -> None:
    alike = Load(input_tokens=1024, output_tokens=128, concurrency=64, lengths_vary=False)
    varied = Load(input_tokens=1024, output_tokens=128, concurrency=64)
    together = speed(replace(SERVED, engine="sglang"), alike)
    apart = speed(replace(SERVED, engine="sglang"), varied)
    assert together.ttft_seconds > 5 * apart.ttft_seconds
    assert together.tpot_seconds < apart.tpot_seconds


def test_one_request_alone() -> None:
    first = ttft(SERVED, 4096)[0]
    assert first > 2 * 7e9 * 4096 / 989.4e12
    assert tpot(SERVED, 1000, 8)[0] == decode(8).seconds
    pieces = ttft(replace(SERVED, max_num_batched_tokens=512), 4096)[0]
    assert pieces > first


def test_a_borrowed_card_says_so_and_has_a_wider_range() -> None:
    work = StepWork.decoding([500])
    own = step_time(LLAMA, Layout(), find_accelerator("l40s"), work)
    other = step_time(LLAMA, Layout(), find_accelerator("rtx-4090"), work)
    assert (own.tables_of, own.borrowed) == ("l40s", False)
    assert (other.tables_of, other.borrowed) == ("l40s", True)

    def width(step: StepTime) -> float:
        return (step.high_seconds - step.low_seconds) / step.seconds

    assert width(other) > width(own)


def test_a_step_that_the_host_limits_is_as_unsure_as_the_host() -> None:
    small = load_model("openai-community/gpt2")
    work = StepWork.decoding([500] * 4)
    for engine, host in COSTS.items():
        step = step_time(small, Layout(), H100, work, engine=engine)
        least, most = host.prepare_range_seconds
        assert step.high_seconds >= most + host.step_seconds
        assert step.high_seconds - step.seconds >= host.spare_seconds[1]
        assert step.device_seconds * 0.7 < step.low_seconds < max(step.seconds, least)
        if not most:  # llama.cpp's host, which prepares nothing ahead
            continue
        long = step_time(LLAMA, Layout(), H100, StepWork.decoding([8000] * 32), engine=engine)
        assert step.high_seconds / step.seconds > long.high_seconds / long.seconds


def test_pipeline_stages_follow_each_other() -> None:
    load = Load(input_tokens=512, output_tokens=128, concurrency=64)
    one = speed(SERVED, load)
    two = speed(replace(SERVED, layout=Layout(pipeline_parallel_size=2)), load)
    assert two.tpot_seconds < one.tpot_seconds * 1.2
    assert two.tokens_per_second_per_accelerator < one.tokens_per_second_per_accelerator


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "concurrency", "waves"])
def test_loads_that_cannot_be(name: str) -> None:
    values = {"input_tokens": 10, "output_tokens": 10, "concurrency": 1, name: 0}
    with pytest.raises(DeploymentError, match=f"{name} is 0"):
        Load(**values)
