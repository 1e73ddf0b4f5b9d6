"""llama.cpp's kernels: what moves beyond the counted work, by build, and whose fits a GPU takes."""

import json
from importlib.resources import files

import pytest

from tokenroom import ModelSpec, find_accelerator, load_model
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.efficiency import bandwidth_of, operator_duration, peak_flops
from tokenroom.performance.idle import tpot, ttft
from tokenroom.performance.llama_cpp import (
    BUILDS,
    EXPANDED_ROWS,
    SCORE_BYTES,
    VECTOR_ROWS,
    Build,
    engine_of,
    family_of,
    llama_cpp_efficiency,
    llama_cpp_operators,
)
from tokenroom.performance.operators import step_operators
from tokenroom.performance.replica import Replica
from tokenroom.performance.step_time import operator_times, step_time
from tokenroom.performance.work import Chunk, Kind, Layout, Operator, StepWork

FITTED = json.loads(
    files("tokenroom.performance").joinpath("data/llama_cpp.json").read_text("utf-8")
)
CARD = find_accelerator("rtx-4090")


def quantised(name: str = "meta-llama/Meta-Llama-3-8B") -> ModelSpec:
    return what_if(load_model(name), "q4_k_m")


def operators(
    rows: int, engine: str, card: str = "rtx-4090", spec: ModelSpec | None = None
) -> list[Operator]:
    work = StepWork(prefill=(Chunk(rows, 1000),))
    counted = step_operators(spec or quantised(), Layout(), work, kv_dtype="float16")
    return list(llama_cpp_operators(counted, engine, find_accelerator(card)))


def arithmetic_of(found: list[Operator], kind: Kind) -> set[str]:
    return {
        operator.arithmetic
        for operator in found
        if operator.kind is kind and operator.name != "lm_head"
    }


@pytest.mark.parametrize(
    ("rows", "engine", "expected"),
    [
        (VECTOR_ROWS, "llama_cpp", "mmvq"),
        (VECTOR_ROWS + 1, "llama_cpp", "mmq"),
        (512, "llama_cpp", "mmq"),
        (EXPANDED_ROWS, "llama_cpp_expanding", "mmq"),
        (EXPANDED_ROWS + 1, "llama_cpp_expanding", "f16"),
    ],
)
def test_rows_and_build_choose_the_kernel(rows: int, engine: str, expected: str) -> None:
    assert arithmetic_of(operators(rows, engine), Kind.GEMM) == {expected}


def test_expanding_writes_and_reads_sixteen_bits_a_weight() -> None:
    spec = quantised()
    elements = sum(
        operator.times * operator.flops / (2 * 512)
        for operator in operators(512, "llama_cpp", spec=spec)
        if operator.kind is Kind.GEMM and operator.name != "lm_head"
    )
    assert elements == pytest.approx(6.98e9, rel=0.01)

    def converted(engine: str) -> float:
        found = operators(512, engine, spec=spec)
        return sum(o.times * o.num_bytes for o in found if o.name == "convert")

    plain = operators(512, "llama_cpp_expanding", spec=load_model("meta-llama/Meta-Llama-3-8B"))
    of_sixteen = sum(o.times * o.num_bytes for o in plain if o.name == "convert")
    assert converted("llama_cpp_expanding") - of_sixteen == pytest.approx(4 * elements, rel=0.01)
    assert converted("llama_cpp") < of_sixteen


def test_scores_cross_memory_without_flash_attention() -> None:
    def attention(engine: str) -> Operator:
        found = operators(512, engine)
        return next(o for o in found if o.kind is Kind.ATTENTION_PREFILL)

    flash, plain = attention("llama_cpp"), attention("llama_cpp_plain")
    scores = 32 * 512 * 1512
    assert plain.num_bytes - flash.num_bytes == SCORE_BYTES * scores
    assert plain.flops == 4 * 128 * scores > flash.flops


def test_each_query_head_reads_its_group_anew_without_flash_attention() -> None:
    counted = step_operators(quantised(), Layout(), StepWork.decoding([4000]), kv_dtype="float16")
    plain = llama_cpp_operators(counted, "llama_cpp_plain", CARD)
    before = next(o for o in counted if o.kind is Kind.ATTENTION_DECODE)
    after = next(o for o in plain if o.kind is Kind.ATTENTION_DECODE)
    assert after.num_bytes == 4 * before.num_bytes


def test_metal_converts_nothing() -> None:
    for engine in BUILDS:
        found = operators(512, engine, "m2-ultra-192gb")
        assert not [operator for operator in found if operator.name == "convert"]
        assert arithmetic_of(found, Kind.GEMM) == {"mmq"}


def test_experts_are_converted_by_the_tokens_that_reach_them() -> None:
    spec = what_if(load_model("Qwen/Qwen3-30B-A3B"), "q4_k_m")
    found = operators(512, "llama_cpp", spec=spec)
    assert arithmetic_of(found, Kind.GROUPED_GEMM) == {"mmq"}
    experts = next(o for o in found if o.kind is Kind.GROUPED_GEMM)
    convert = next(o for o in found if o.name == "convert")
    pairs = 512 * 8
    for_experts = pairs * (4 * (2 * 2048 + 768) + 2 * (2 * 768 + 2048))
    assert convert.times * convert.num_bytes > experts.times * for_experts


@pytest.mark.parametrize(
    ("card", "family", "own"),
    [
        ("rtx-4090", "ada", True),
        ("l40s", "ada", True),
        ("rtx-a6000", "ampere", True),
        ("t4", "ampere", False),
        ("a100-sxm-80gb", "hbm", True),
        ("b200-sxm-180gb", "hbm", False),
        ("rtx-5090", "blackwell", True),
        ("m3-max-64gb", "apple", True),
        ("rx-7900-xtx", "rdna", True),
        ("mi300x", "rdna", False),
    ],
)
def test_family_of_a_card(card: str, family: str, own: bool) -> None:
    accelerator = find_accelerator(card)
    assert family_of(accelerator) == family
    efficiency = llama_cpp_efficiency(accelerator)
    assert (efficiency.key == accelerator.key) is own
    assert efficiency.spread == (1 if own else FITTED["borrowed_spread"])


@pytest.mark.parametrize("engine", BUILDS)
@pytest.mark.parametrize("card", ["rtx-3090", "rtx-4090", "h100-pcie-80gb", "m2-ultra-192gb"])
def test_no_operator_beats_the_hardware(card: str, engine: str) -> None:
    accelerator = find_accelerator(card)
    efficiency = llama_cpp_efficiency(accelerator)
    for operator in operators(512, engine, card):
        took = operator_duration(efficiency, operator, accelerator, 8)
        work = operator.flops / peak_flops(operator.arithmetic, accelerator)
        floor = max(work, operator.num_bytes / bandwidth_of(accelerator))
        assert took.seconds >= floor * operator.times
        assert took.low_seconds < took.seconds < took.high_seconds


def test_operators_add_up_to_the_step() -> None:
    work = StepWork(prefill=(Chunk(512),), decode_sequences=3, decode_context_tokens=900)
    one = step_time(quantised(), Layout(), CARD, work, engine="llama_cpp")
    parts = operator_times(quantised(), Layout(), CARD, work, engine="llama_cpp")
    assert sum(part.duration.seconds for part in parts) == pytest.approx(one.device_seconds)
    assert one.tables_of == "rtx-4090"
    assert not one.borrowed


def test_newer_builds_are_faster() -> None:
    def seconds(engine: str) -> tuple[float, float]:
        replica = Replica(
            spec=quantised(),
            layout=Layout(),
            accelerator=CARD,
            engine=engine,
            max_num_batched_tokens=512,
        )
        return ttft(replica, 4096)[0], tpot(replica, 4096, 1)[0]

    newest = seconds("llama_cpp")
    for engine in set(BUILDS) - {"llama_cpp"}:
        older = seconds(engine)
        assert older[0] > newest[0]
        assert older[1] >= newest[1]


def test_every_build_has_a_name() -> None:
    for flash in (True, False):
        for int8 in (True, False):
            build = Build(flash_attention=flash, int8_products=int8)
            assert BUILDS[engine_of(build)] == build


def test_every_family_names_its_sources_and_residuals() -> None:
    for family in FITTED["families"].values():
        assert family["fitted_on"]
        low, high = family["check"]["range"]
        assert low < 1 < high
        assert all(len(row) == 8 for row in family["kernels"].values())
