"""Pipelines, weights in host memory and prompts that run alone."""

from dataclasses import replace

import pytest

from tokenroom.errors import DeploymentError, HardwareError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.resolve import load_model
from tokenroom.performance.efficiency import HOST_LINK_SHARE, HOST_MEMORY_SHARE
from tokenroom.performance.floor import step_floor
from tokenroom.performance.load import Load, Speed, speed
from tokenroom.performance.operators import host_share, model_plan, step_operators
from tokenroom.performance.replica import Replica
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import HostPart, Kind, Layout, Operator, StepWork

H100 = find_accelerator("h100")
LLAMA = load_model("llama-3.3-70b")
MIXTRAL = load_model("mixtral-8x7b")
DEEPSEEK = load_model("deepseek-v3")
DECODE = StepWork(decode_sequences=16, decode_context_tokens=1000)


def served(layout: Layout, clients: int, **given: object) -> Speed:
    load = Load(input_tokens=1000, output_tokens=300, concurrency=clients)
    replica = Replica(spec=LLAMA, layout=layout, accelerator=H100, engine="vllm")
    return speed(replace(replica, **given), load)  # type: ignore[arg-type]


def test_stages_hold_all_blocks_and_the_slowest_is_known() -> None:
    even = Layout(tensor_parallel_size=2, pipeline_parallel_size=4)
    assert [sum(stage) for stage in model_plan(LLAMA, even).stages] == [20, 20, 20, 20]
    step = step_time(LLAMA, even, H100, DECODE)
    assert step.device_seconds / 4 < step.stage_seconds < step.device_seconds / 3
    skewed = Layout(tensor_parallel_size=2, pipeline_parallel_size=4, stage_layers=(10, 10, 10, 50))
    slower = step_time(LLAMA, skewed, H100, DECODE)
    assert slower.seconds == pytest.approx(step.seconds)
    assert slower.stage_seconds > 2 * step.stage_seconds
    alone = step_time(LLAMA, Layout(tensor_parallel_size=2), H100, DECODE)
    assert alone.stage_seconds == alone.device_seconds


def test_wrong_stages_are_refused() -> None:
    with pytest.raises(DeploymentError, match="give one for each of the 2 stages"):
        Layout(pipeline_parallel_size=2, stage_layers=(80,))
    layout = Layout(pipeline_parallel_size=2, stage_layers=(40, 41))
    with pytest.raises(DeploymentError, match=r"adds up to 81 blocks; .* has 80"):
        step_time(LLAMA, layout, H100, DECODE)


def test_the_slowest_stage_limits_only_a_full_pipeline() -> None:
    """One request passes all stages; with many each waits for the others at the slowest."""
    even = Layout(tensor_parallel_size=2, pipeline_parallel_size=4)
    skewed = Layout(tensor_parallel_size=2, pipeline_parallel_size=4, stage_layers=(10, 10, 10, 50))
    one = served(even, 1), served(skewed, 1)
    assert one[1].tpot_seconds == pytest.approx(one[0].tpot_seconds, rel=0.01)
    many = served(even, 64), served(skewed, 64)
    assert many[1].tpot_seconds > 2 * many[0].tpot_seconds
    assert many[1].output_tokens_per_second < 0.6 * many[0].output_tokens_per_second


def test_chunks_of_a_prompt_follow_each_other_where_the_engine_lets_them() -> None:
    layout = Layout(pipeline_parallel_size=8)
    load = Load(input_tokens=32_000, output_tokens=10, concurrency=1)
    vllm, tensorrt = (
        speed(Replica(spec=LLAMA, layout=layout, accelerator=H100, engine=engine), load)
        for engine in ("vllm", "tensorrt_llm")
    )
    assert tensorrt.ttft_seconds > 2 * vllm.ttft_seconds


def test_stages_in_other_hosts_are_reached_over_the_network() -> None:
    inside = Layout(tensor_parallel_size=4, pipeline_parallel_size=2)
    outside = Layout(tensor_parallel_size=8, pipeline_parallel_size=4, per_node=16)

    def sends(layout: Layout) -> list[tuple[int, int]]:
        found = step_operators(LLAMA, layout, DECODE)
        return [(op.times, op.ranks) for op in found if op.kind is Kind.SEND]

    assert sends(inside) == [(1, 2)]
    assert sends(outside) == [(2, 2), (1, 32)]
    near, far = (
        step_time(LLAMA, layout, H100, DECODE).operators["send"].seconds
        for layout in (
            Layout(tensor_parallel_size=8, pipeline_parallel_size=2, per_node=16),
            Layout(tensor_parallel_size=8, pipeline_parallel_size=2, per_node=8),
        )
    )
    assert far > near


def test_weights_in_host_memory_cross_the_link_each_step() -> None:
    kept = 20 * 2**30
    layout = Layout(tensor_parallel_size=2, host_weight_bytes=kept)
    step = step_time(LLAMA, layout, H100, DECODE)
    assert H100.pcie_bytes_per_second is not None
    moved = step.operators["host_weights"].seconds * H100.pcie_bytes_per_second * HOST_LINK_SHARE
    assert moved == pytest.approx(kept, rel=1e-3)
    assert step.limiter == "communication"
    plain = step_time(LLAMA, Layout(tensor_parallel_size=2), H100, DECODE)
    assert step.seconds == pytest.approx(
        plain.seconds + step.operators["host_weights"].seconds, rel=1e-6
    )
    everything = Layout(tensor_parallel_size=2, host_weight_bytes=2**40)
    assert host_share(model_plan(LLAMA, everything), everything) == 1


def test_kernels_read_chosen_experts_only_and_copies_read_all() -> None:
    work = StepWork(decode_sequences=1, decode_context_tokens=100)

    def moved(*, copies: bool) -> float:
        layout = Layout(host_weight_bytes=40 * 2**30, copies_host_weights=copies)
        operators = step_operators(MIXTRAL, layout, work)
        return sum(op.times * op.num_bytes for op in operators if op.kind is Kind.HOST_READ)

    assert moved(copies=True) == pytest.approx(40 * 2**30, rel=1e-3)
    assert moved(copies=False) < 0.35 * moved(copies=True)  # two of eight experts


def test_the_processor_multiplies_few_rows_and_the_gpu_many() -> None:
    """Experts of 10 of 32 blocks away: read in the host's memory, or copied from 32 rows on."""
    part = HostPart(
        layers=(0,),
        experts=(10,),
        output=False,
        bandwidth_bytes_per_second=90e9,
        copied_from_rows=32,
    )
    layout, plain = Layout(host=part), Layout()

    def named(rows: int, layout: Layout) -> dict[str, Operator]:
        work = StepWork(decode_sequences=rows, decode_context_tokens=500)
        return {op.name: op for op in step_operators(MIXTRAL, layout, work)}

    few, all_few = named(1, layout), named(1, plain)
    assert few["experts"].times == 22
    assert few["host_layers"].num_bytes == pytest.approx(10 * all_few["experts"].num_bytes)
    assert "host_weights" not in few
    many = named(64, layout)
    assert many["experts"].times == 32
    assert "host_layers" not in many
    whole = 8 * 3 * 4096 * 14336 * 2
    assert many["host_weights"].num_bytes == pytest.approx(10 * whole, rel=1e-3)
    step = step_time(MIXTRAL, layout, H100, StepWork(decode_sequences=1))
    floor = step_floor(few.values(), H100, 8)
    assert floor.seconds > few["host_layers"].num_bytes / 90e9
    assert floor.num_bytes < 32 * all_few["experts"].num_bytes  # those of the GPU
    seconds = few["host_layers"].num_bytes / 90e9 / HOST_MEMORY_SHARE
    assert step.operators["host_layers"].seconds == pytest.approx(seconds, rel=1e-3)


def test_whole_blocks_and_the_output_may_be_away() -> None:
    part = HostPart(
        layers=(30,),
        experts=(0,),
        output=True,
        bandwidth_bytes_per_second=90e9,
        copied_from_rows=None,
    )
    work = StepWork(decode_sequences=8, decode_context_tokens=500)
    operators = step_operators(LLAMA, Layout(host=part), work)
    found = {op.name: op for op in operators}
    every = {op.name: op for op in step_operators(LLAMA, Layout(), work)}
    assert "lm_head" not in found
    assert found["attention_decode"].times == 50
    assert found["activation"].times + 30 == every["activation"].times
    # eight rows are read twice, four at once
    weights = 30 * every["mlp.down_proj"].num_bytes
    layers, output = (op.num_bytes for op in operators if op.name == "host_layers")
    assert layers > 2 * weights
    assert output == 2 * every["lm_head"].num_bytes


def test_a_link_to_the_host_must_be_known() -> None:
    gpu = replace(H100, pcie_bytes_per_second=None)
    with pytest.raises(HardwareError, match="pcie_bytes_per_second of h100-sxm-80gb is unknown"):
        step_time(MIXTRAL, Layout(host_weight_bytes=2**30), gpu, DECODE)


def test_all_to_all_carries_what_a_rank_sends() -> None:
    """A rank's own tokens, once for each expert they chose, part of them to other hosts."""
    work = StepWork(decode_sequences=32, decode_context_tokens=100, other_tokens=15 * 32)
    layout = Layout(data_parallel_size=16, expert_parallel_size=16)
    found = {op.name: op for op in step_operators(DEEPSEEK, layout, work)}
    exchange = found["all_to_all"]
    assert exchange.message_bytes == 32 * 7168 * 2 * 8
    assert "all_gather" not in found
    within = Layout(data_parallel_size=8, expert_parallel_size=8)
    assert "all_to_all" not in {op.name for op in step_operators(DEEPSEEK, within, work)}
    told = replace(within, sends_chosen_tokens=True)
    assert "all_to_all" in {op.name for op in step_operators(DEEPSEEK, told, work)}
    near, far = (
        step_time(DEEPSEEK, each, H100, work).operators["all_to_all"]
        for each in (replace(layout, per_node=16, sends_chosen_tokens=True), layout)
    )
    assert near.seconds < far.seconds < 4 * near.seconds


def test_prompts_that_run_alone_hold_up_decoding_more() -> None:
    """The same work, but steps with prompts bring nobody a token."""
    layout = Layout(tensor_parallel_size=4)
    mixed, alone = served(layout, 64), served(layout, 64, mixes=False)
    assert alone.tpot_seconds > mixed.tpot_seconds
    assert alone.prefill.work.decode_sequences == 0
    assert mixed.prefill.work.decode_sequences > 0
