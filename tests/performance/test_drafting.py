"""Speculative decoding: tokens a step yields, and what drafting and verifying cost."""

from dataclasses import replace

import pytest

from tokenroom.errors import DeploymentError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.hf_config import read_config
from tokenroom.models.resolve import load_model
from tokenroom.performance.acceptance import usual_acceptance
from tokenroom.performance.drafters import eagle3_drafter, eagle_drafter, mtp_drafter
from tokenroom.performance.drafting import (
    Acceptance,
    Drafting,
    acceptance_of,
    draft_operators,
    expected_tokens,
    verifying,
)
from tokenroom.performance.load import Load, speed
from tokenroom.performance.operators import step_operators
from tokenroom.performance.replica import Replica
from tokenroom.performance.step_time import step_time
from tokenroom.performance.work import Chunk, Layout, StepWork

TARGET = load_model("llama-3.1-8b")
H100 = find_accelerator("h100")
SERVED = Replica(spec=TARGET, layout=Layout(), accelerator=H100)
HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "float16",
}


def head(architecture: str = "LlamaForCausalLMEagle3"):
    return read_config(HEAD | {"architectures": [architecture]}, "head")


def drafting(rate: float = 0.7, *, depth: int = 3, **given: object) -> Drafting:
    values = {
        "method": "eagle3",
        "depth": depth,
        "verified": depth + 1,
        "branches": 1,
        "acceptance": Acceptance(rate, rate, rate, ""),
        "drafter": eagle3_drafter(head()),
        "layout": Layout(),
    }
    return Drafting(**(values | given))


def test_expected_tokens_are_those_of_leviathan() -> None:
    """(1 - a^(k+1)) / (1 - a), one without acceptance and k + 1 when all is kept."""
    for rate in (0.3, 0.7, 0.95):
        for depth in (1, 3, 8):
            assert expected_tokens(rate, depth) == pytest.approx(
                (1 - rate ** (depth + 1)) / (1 - rate)
            )
    assert expected_tokens(0, 5) == 1
    assert expected_tokens(1, 5) == 6


def test_a_mean_length_is_turned_into_the_rate_that_gives_it() -> None:
    assert acceptance_of(0.8, 3).rate == 0.8
    assert expected_tokens(acceptance_of(2.6, 3).rate, 3) == pytest.approx(2.6)
    for wrong in (-0.1, 4.5, float("nan"), True, "most"):
        with pytest.raises(DeploymentError, match=r"acceptance is .*; give the share"):
            acceptance_of(wrong, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "depth", "branches", "measured"),
    [
        ("eagle3", 2, 1, 2.36),
        ("eagle3", 3, 1, 2.79),
        ("eagle3", 7, 1, 3.54),
        ("eagle3", 3, 1, 2.26),
        ("eagle", 2, 1, 2.10),
        ("eagle", 7, 1, 2.47),
        ("eagle3", 8, 4, 5.39),
        ("eagle", 8, 4, 3.76),
        ("mtp", 1, 1, 1.85),
        ("mtp", 2, 1, 2.28),
        ("mtp", 2, 1, 2.15),
        ("draft_model", 3, 1, 2.86),
        ("ngram", 10, 1, 1.73),
        ("block", 15, 1, 4.24),
    ],
)
def test_measured_lengths_lie_in_the_range(
    method: str, depth: int, branches: int, measured: float
) -> None:
    found = usual_acceptance(method, branches)
    assert expected_tokens(found.low, depth) <= measured <= expected_tokens(found.high, depth)
    assert found.source


def test_verifying_brings_rows_but_reads_the_cache_once() -> None:
    """Four rows a request: four times the FLOPs, logits of each, the same keys and values read."""
    plain = StepWork(decode_sequences=8, decode_context_tokens=4000)
    work = verifying(plain, drafting())
    assert (work.tokens, work.outputs, work.sequences) == (32, 32, 8)
    before = {op.name: op for op in step_operators(TARGET, Layout(), plain)}
    after = {op.name: op for op in step_operators(TARGET, Layout(), work)}
    assert after["lm_head"].flops == 4 * before["lm_head"].flops
    assert after["attention_decode"].flops == pytest.approx(
        4 * before["attention_decode"].flops, rel=1e-3
    )
    assert after["attention_decode"].num_bytes == pytest.approx(
        before["attention_decode"].num_bytes, rel=1e-2
    )


def test_the_drafter_runs_once_over_all_rows_and_once_a_further_token() -> None:
    work = verifying(StepWork(decode_sequences=8, decode_context_tokens=500), drafting())
    heads = [op for op in draft_operators(drafting(), work) if op.name == "draft.lm_head"]
    assert [(op.times, op.shape[0]) for op in heads] == [(1, 8), (2, 8)]
    inputs = [op for op in draft_operators(drafting(), work) if op.name.endswith("qkv_proj")]
    assert [op.shape[0] for op in inputs] == [32, 8]
    tree = drafting(branches=4, verified=12)
    inputs = [op for op in draft_operators(tree, work) if op.name.endswith("qkv_proj")]
    assert [op.shape[0] for op in inputs] == [32, 32]
    block = draft_operators(drafting(at_once=True), work)
    assert [op.shape[0] for op in block if op.name.endswith("lm_head")] == [24]
    assert draft_operators(drafting(drafter=None), work) == ()


def test_prompts_are_drafted_over_too() -> None:
    """So that the drafter has their cache; without mixing nothing further is drafted then."""
    prompts = StepWork(prefill=(Chunk(1000),))
    rows = [
        op.shape[0]
        for op in draft_operators(drafting(), prompts, drafts_after_prompts=False)
        if op.name.endswith("down_proj")
    ]
    assert rows == [1000]
    both = draft_operators(drafting(), prompts)
    assert [op.shape[0] for op in both if op.name.endswith("down_proj")] == [1000, 1]


def test_heads_have_the_matrices_that_engines_run() -> None:
    """EAGLE-3: two vectors into queries, keys and values, 32,000 rows out; EAGLE: the model's."""
    three = {
        op.name: op.shape[1:3] for op in step_operators(eagle3_drafter(head()), Layout(), STEP)
    }
    assert three["lm_head"] == (32000, 4096)
    assert three["self_attn.qkv_proj"] == (6144, 8192)
    one = {
        op.name: op.shape[1:3]
        for op in step_operators(eagle_drafter(head("LlamaForCausalLM"), TARGET), Layout(), STEP)
    }
    assert one["lm_head"] == (128256, 4096)
    assert one["fc"] == (4096, 8192)
    assert one["self_attn.qkv_proj"] == (6144, 4096)


STEP = StepWork(decode_sequences=1, decode_context_tokens=100)


def test_an_mtp_block_joins_the_state_and_uses_the_models_head() -> None:
    deepseek = load_model("deepseek-v3")
    operators = step_operators(mtp_drafter(deepseek), Layout(tensor_parallel_size=8), STEP)
    found = {op.name: op for op in operators}
    assert found["eh_proj"].shape[1:3] == (7168, 2 * 7168)
    assert found["experts"].times == 1
    assert found["lm_head"].shape[1] == 129280 // 8
    with pytest.raises(DeploymentError, match="has no blocks for multi-token prediction"):
        mtp_drafter(TARGET)


@pytest.mark.parametrize(
    ("method", "tokens", "length", "tpot_ms"),
    [
        # TPOTs of Llama 3.1 8B, one client, H100, vLLM 0.9 (vLLM issue 20780)
        ("eagle", 2, 2.10, 4.37),
        ("eagle", 3, 2.29, 4.29),
        ("eagle", 5, 2.43, 4.71),
        ("eagle", 7, 2.47, 5.20),
        ("eagle3", 2, 2.36, 4.32),
        ("eagle3", 3, 2.79, 4.09),
        ("eagle3", 5, 3.32, 4.13),
        ("eagle3", 7, 3.54, 4.29),
    ],
)
def test_tpot_is_near_what_vllm_took(
    method: str, tokens: int, length: float, tpot_ms: float
) -> None:
    drafter = (
        eagle3_drafter(head())
        if method == "eagle3"
        else eagle_drafter(head("LlamaForCausalLM"), TARGET)
    )
    how = drafting(
        depth=tokens, method=method, drafter=drafter, acceptance=acceptance_of(length, tokens)
    )
    replica = replace(SERVED, engine="vllm", asynchronous=False, drafting=how)
    found = speed(replica, Load(input_tokens=100, output_tokens=256, concurrency=1))
    assert found.tpot_seconds * 1e3 == pytest.approx(tpot_ms, rel=0.2)


def test_acceptance_divides_the_step_and_its_range_widens_tpot() -> None:
    load = Load(input_tokens=1000, output_tokens=500, concurrency=16)
    none = speed(replace(SERVED, drafting=drafting(0.0)), load)
    plain = speed(SERVED, load)
    some = speed(replace(SERVED, drafting=drafting(0.8)), load)
    assert none.tpot_seconds > plain.tpot_seconds > some.tpot_seconds
    assert some.output_tokens_per_second > plain.output_tokens_per_second
    wide = replace(drafting(0.8), acceptance=Acceptance(0.8, 0.5, 0.9, "somebody"))
    ranged = speed(replace(SERVED, drafting=wide), load)
    assert ranged.tpot_seconds == pytest.approx(some.tpot_seconds)
    assert ranged.tpot_low_seconds < some.tpot_low_seconds
    assert ranged.tpot_high_seconds > some.tpot_high_seconds


def test_a_large_batch_gains_less() -> None:
    """Once products are limited by compute, rows that are refused cost as much as others."""

    def gain(sequences: int) -> float:
        work = StepWork(decode_sequences=sequences, decode_context_tokens=1000)
        plain = step_time(TARGET, Layout(), H100, work).seconds
        how = drafting()
        step = step_time(TARGET, Layout(), H100, verifying(work, how), drafting=how).seconds
        return plain * how.tokens_per_step[0] / step

    assert gain(4) > gain(64) > gain(512)
