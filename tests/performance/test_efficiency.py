"""Operators never beat the hardware, coefficients are found or borrowed, and gaps are errors."""

import json
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom import Accelerator, find_accelerator, load_model, speed
from tokenroom.errors import HardwareError
from tokenroom.models.quantization.schemes import fp8_block, fp8_channel, fp8_tensor
from tokenroom.performance.efficiency import (
    Beyond,
    Efficiency,
    bandwidth_of,
    beyond_fit,
    efficiency_of,
    kernel_shares,
    operator_duration,
    peak_flops,
    sent_bytes,
    supported_arithmetic,
    tables_of_operator,
)
from tokenroom.performance.matrices import experts_arithmetic_of
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import EXTENTS, Chunk, Kind, Layout, Operator, StepWork

FITTED = json.loads(
    files("tokenroom.performance").joinpath("data/efficiency.json").read_text("utf-8")
)
ENGINES = ("vllm", "sglang", "tensorrt_llm", "any")


def all_reduce(message_bytes: float, ranks: int) -> Operator:
    return Operator(
        name="all_reduce",
        kind=Kind.ALL_REDUCE,
        arithmetic="bf16",
        times=1,
        flops=0,
        num_bytes=0,
        message_bytes=message_bytes,
        ranks=ranks,
    )


def seconds(efficiency: Efficiency, operator: Operator, accelerator: Accelerator) -> float:
    return operator_duration(efficiency, operator, accelerator, 8).seconds


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("key", sorted(FITTED["accelerators"]))
def test_no_operator_beats_the_hardware(key: str, engine: str) -> None:
    accelerator = find_accelerator(key)
    efficiency = efficiency_of(accelerator, engine)
    assert efficiency.spread == 1
    mixed = StepWork(prefill=(Chunk(3000, 500),), decode_sequences=64, decode_context_tokens=2000)
    for name in ("llama-3.1-8b", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3.5-397B-A17B"):
        for operator in step_operators(load_model(name), Layout(), mixed):
            took = operator_duration(efficiency, operator, accelerator, 8)
            arithmetic = operator.arithmetic
            if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
                arithmetic = supported_arithmetic(arithmetic, accelerator)
            floor = max(
                operator.flops / peak_flops(arithmetic, accelerator),
                operator.num_bytes / bandwidth_of(accelerator),
            )
            assert took.seconds >= floor * operator.times
            assert took.low_seconds <= took.high_seconds


@pytest.mark.parametrize("key", sorted(FITTED["accelerators"]))
def test_every_fit_names_its_tables_and_its_residuals(key: str) -> None:
    for rows in FITTED["accelerators"][key]["kernels"].values():
        for row in rows.values():
            assert row["fitted_on"]
            assert row["check"]["rows"] > 0
            assert len(row["coefficients"]) == 8
            assert all(least <= largest for least, largest in row["extents"])
            assert not set(row["fitted_on"]) & set(row["checked_on"]) or len(row["fitted_on"]) == 1
    assert "Apache-2.0" in FITTED["source"]


def test_a_card_without_tables_borrows_from_the_most_alike_with_a_wider_range() -> None:
    card = find_accelerator("rtx-4090")
    efficiency = efficiency_of(card, "vllm")
    assert efficiency.key == "l40s"
    assert efficiency.spread > 1
    own = efficiency_of(find_accelerator("l40s"), "vllm")
    assert efficiency.kernels == own.kernels


def test_an_engine_without_tables_gets_what_fits_all() -> None:
    accelerator = find_accelerator("h100-sxm-80gb")
    assert efficiency_of(accelerator, "llama_cpp") == efficiency_of(accelerator, "any")
    ours, everyones = efficiency_of(accelerator, "vllm"), efficiency_of(accelerator, "any")
    at = (Kind.GROUPED_GEMM, "fp8_block")
    assert ours.kernels[at] != everyones.kernels[at]


def test_types_without_units_or_tables() -> None:
    hopper, ampere = find_accelerator("h100-sxm-80gb"), find_accelerator("a100-sxm-80gb")
    assert supported_arithmetic("fp8", ampere) == "w8a16"
    assert supported_arithmetic("nvfp4", hopper) == "w4a16"
    assert supported_arithmetic("mxfp4", hopper) == "mxfp4"
    assert supported_arithmetic("mxfp4", find_accelerator("b200-sxm-180gb")) == "mxfp4_mxfp8"
    efficiency = efficiency_of(hopper)
    for missing, kin in (("int8", "fp8"), ("w8a16", "bf16")):
        shares, residual, _ = kernel_shares(efficiency, Kind.GEMM, missing)
        own, narrower, _ = kernel_shares(efficiency, Kind.GEMM, kin)
        assert shares == own
        assert residual == narrower.widened(efficiency.kin_spread)
        assert residual.high > narrower.high


def test_messages_take_longer_the_larger_and_the_farther() -> None:
    accelerator = find_accelerator("h100-sxm-80gb")
    efficiency = efficiency_of(accelerator, "vllm")
    times = [seconds(efficiency, all_reduce(2**power, 8), accelerator) for power in range(10, 30)]
    assert times == sorted(times)
    assert 2e-6 < times[0] < 2e-5
    large = 2**28
    moved = sent_bytes(Kind.ALL_REDUCE, large, 8)
    assert moved == 2 * 7 / 8 * large
    assert times[-1] * 2 > moved / 450e9
    inside = operator_duration(efficiency, all_reduce(large, 8), accelerator, 8).seconds
    outside = operator_duration(efficiency, all_reduce(large, 16), accelerator, 8).seconds
    assert outside > inside


def product(rows: int, columns: int, depth: int) -> Operator:
    return Operator(
        name="product",
        kind=Kind.GEMM,
        arithmetic="bf16",
        times=1,
        flops=2 * rows * columns * depth,
        num_bytes=2 * (rows * columns + columns * depth + rows * depth),
        shape=(rows, columns, depth, columns),
    )


def outside(operator: Operator) -> list[Beyond]:
    accelerator = find_accelerator("h100-sxm-80gb")
    efficiency = efficiency_of(accelerator, "vllm")
    return beyond_fit(
        efficiency, operator, tables_of_operator(efficiency, operator, accelerator), 8
    )


def test_extents_outside_of_the_tables_are_named() -> None:
    assert outside(product(16, 4096, 4096)) == []
    (deep,) = outside(product(16, 4096, 4 * 65536))
    assert (deep.extent, deep.value, deep.limit, deep.times) == ("depth", 262144, 65536, 4)
    (narrow, _) = outside(product(16, 32, 4096))
    assert (narrow.extent, narrow.limit, narrow.times) == ("columns", 128, 4)
    (large,) = outside(all_reduce(2**30, 8))
    assert large.extent == "message_bytes"
    assert {out.extent for out in outside(all_reduce(1024, 2**12))} == set()  # inside a host


@given(st.integers(1, 200), st.integers(1, 10))
def test_the_range_grows_with_the_distance_from_the_tables(first: int, further: int) -> None:
    accelerator = find_accelerator("h100-sxm-80gb")
    efficiency = efficiency_of(accelerator, "vllm")
    near, far = (
        operator_duration(efficiency, product(16, 4096, 65536 * times), accelerator, 8)
        for times in (first, first + further)
    )
    assert far.high_seconds / far.seconds > near.high_seconds / near.seconds
    assert far.low_seconds / far.seconds < near.low_seconds / near.seconds


def test_growth_beyond_tables_is_known_for_every_kind_and_extent() -> None:
    growth = efficiency_of(find_accelerator("h100-sxm-80gb")).growth
    for kind, extents in EXTENTS.items():
        if kind is not Kind.SEND:  # timed as a gather
            assert len(growth[kind]) == len(extents)
            assert all(power >= 0 for ends in growth[kind] for power in ends)


def test_unknown_peaks_are_said() -> None:
    accelerator = find_accelerator("h100-sxm-80gb")
    with pytest.raises(HardwareError, match="bandwidth_bytes_per_second"):
        efficiency_of(replace(accelerator, key="x", bandwidth_bytes_per_second=None))
    with pytest.raises(HardwareError, match="flops_per_second"):
        efficiency_of(replace(accelerator, key="x", flops_per_second={}))
    lonely = replace(accelerator, link_bytes_per_second=None, pcie_bytes_per_second=None)
    with pytest.raises(HardwareError, match="link_bytes_per_second"):
        seconds(efficiency_of(accelerator), all_reduce(1024, 2), lonely)


def test_collectives_of_a_host_whose_cards_do_not_reach_each_other_are_left_out() -> None:
    own = efficiency_of(find_accelerator("l40s"), "any")
    other = efficiency_of(find_accelerator("rtx-pro-6000-blackwell-server"), "any")
    assert own.links[Kind.ALL_REDUCE] == other.links[Kind.ALL_REDUCE]
    assert own.kernels != other.kernels


def test_experts_with_computed_scales_do_not_get_the_kernel_of_stored_ones() -> None:
    """On Hopper vLLM's table of 8-bit floats is of a kernel for stored scales alone."""
    assert experts_arithmetic_of(fp8_tensor(static=False)) == "fp8_dynamic"
    assert experts_arithmetic_of(fp8_channel()) == "fp8_dynamic"
    assert experts_arithmetic_of(fp8_tensor(static=True)) == "fp8"
    assert experts_arithmetic_of(fp8_block()) == "fp8_block"
    for gpu, engine, stand_in in (
        ("h100", "vllm", "fp8_block"),
        ("h200", "vllm", "fp8_block"),
        ("h200", "tensorrt_llm", "fp8"),
        ("b200", "vllm", "fp8"),
        ("l40s", "vllm", "fp8"),
    ):
        found = efficiency_of(find_accelerator(gpu), engine)
        dynamic = kernel_shares(found, Kind.GROUPED_GEMM, "fp8_dynamic")
        own = kernel_shares(found, Kind.GROUPED_GEMM, stand_in)
        assert dynamic[0] == own[0]
        assert (dynamic[1] == own[1]) == (stand_in == "fp8")  # else its range is wider


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200"])
def test_quantised_experts_are_no_slower_where_memory_decides(gpu: str) -> None:
    """Half of the bytes of Qwen3-235B-A22B's experts, in decode steps of 32 tokens."""

    def tpot(weights: str | None) -> float:
        served = speed(
            "qwen3-235b-a22b",
            gpu,
            weights=weights,
            gpus=8,
            tp=8,
            input_tokens=2048,
            output_tokens=512,
            concurrency=32,
        )
        return served.tpot_seconds.value

    assert tpot("fp8") < tpot(None)
