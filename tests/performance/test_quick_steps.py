"""Quick times of steps are those of the step-time model, to the last digits."""

import pytest

from tokenroom import load_model
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.performance.acceptance import usual_acceptance
from tokenroom.performance.drafting import Drafting
from tokenroom.performance.factors import Factors
from tokenroom.performance.quick_steps import QuickSteps
from tokenroom.performance.replica import Replica
from tokenroom.performance.work import Chunk, Layout, StepWork

WORKS = (
    StepWork(decode_sequences=1, decode_context_tokens=700),
    StepWork(decode_sequences=37, decode_context_tokens=4500.5),
    StepWork(prefill=(Chunk(2048),)),
    StepWork(prefill=(Chunk(700, 1400),) * 3, decode_sequences=19, decode_context_tokens=900),
)
REPLICAS: dict[str, tuple[str, str, str, Layout]] = {
    "dense": ("llama-3.1-8b", "h100", "vllm", Layout()),
    "tensor parallel": ("llama-3.1-70b@fp8", "h200", "sglang", Layout(tensor_parallel_size=4)),
    "stages": (
        "llama-3.1-8b",
        "l40s",
        "vllm",
        Layout(tensor_parallel_size=2, pipeline_parallel_size=2),
    ),
    "stages of unequal sizes": (
        "llama-3.1-8b",
        "l40s",
        "tensorrt_llm",
        Layout(pipeline_parallel_size=3, stage_layers=(12, 12, 8)),
    ),
    "experts": (
        "qwen3-30b-a3b",
        "h100",
        "vllm",
        Layout(tensor_parallel_size=2, expert_parallel_size=2),
    ),
    "attention by rank": (
        "deepseek-v3",
        "h200",
        "vllm",
        Layout(data_parallel_size=8, expert_parallel_size=8),
    ),
    "recurrent": ("qwen3-next-80b-a3b", "h100", "vllm", Layout(tensor_parallel_size=4)),
    "weights in host memory": (
        "llama-3.1-8b",
        "4090",
        "vllm",
        Layout(host_weight_bytes=4 << 30),
    ),
    "llama.cpp": (
        "llama-3.1-8b",
        "4090",
        "llama_cpp",
        Layout(),
    ),
}
SLOWER = Factors(compute=1.1, bandwidth=1.2, communication=1.3, host=1.4, arrival=1.5)


def replica(name: str, **changes: object) -> Replica:
    model, gpu, engine, layout = REPLICAS[name]
    return Replica(
        spec=load_model(model),
        layout=layout,
        accelerator=find_accelerator(gpu),
        engine=engine,
        **changes,  # type: ignore[arg-type]
    )


def assert_alike(one: Replica, work: StepWork) -> None:
    exact, quick = one.step(work), QuickSteps(one)(work)
    assert quick.seconds == pytest.approx(exact.seconds, rel=1e-12)
    assert quick.stage_seconds == pytest.approx(exact.stage_seconds, rel=1e-12)


@pytest.mark.parametrize("name", REPLICAS)
@pytest.mark.parametrize("work", WORKS)
def test_steps_take_as_long(name: str, work: StepWork) -> None:
    assert_alike(replica(name), work)


@pytest.mark.parametrize("name", ["attention by rank"])
def test_other_ranks_count(name: str) -> None:
    work = StepWork(decode_sequences=5, decode_context_tokens=900, other_tokens=7 * 5)
    assert_alike(replica(name), work)
    assert_alike(replica(name), StepWork(decode_sequences=5, other_tokens=3))


@pytest.mark.parametrize(
    "changes",
    [
        {"factors": SLOWER},
        {"cuda_graphs": False},
        {"asynchronous": False},
        {"kv_dtype": "fp8"},
    ],
)
@pytest.mark.parametrize("work", WORKS)
def test_settings_count(changes: dict[str, object], work: StepWork) -> None:
    assert_alike(replica("tensor parallel", **changes), work)


@pytest.mark.parametrize("drafter", [None, "llama-3.2-1b"])
def test_drafts_count(drafter: str | None) -> None:
    drafting = Drafting(
        method="draft_model",
        depth=3,
        verified=4,
        branches=1,
        acceptance=usual_acceptance("draft_model"),
        drafter=None if drafter is None else load_model(drafter),
        layout=Layout(),
    )
    work = StepWork(
        prefill=(Chunk(512),),
        decode_sequences=9,
        decode_context_tokens=900,
        decode_tokens=4,
        decode_outputs=4,
    )
    assert_alike(replica("dense", drafting=drafting), work)


def test_what_is_asked_again_is_the_same() -> None:
    quick = QuickSteps(replica("experts"))
    assert [quick(work) for work in WORKS] == [quick(work) for work in WORKS]
