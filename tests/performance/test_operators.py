"""FLOPs, bytes and messages of a step against formulas done by hand and PyTorch's own counter."""

import json
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom import load_model
from tokenroom.errors import DeploymentError
from tokenroom.models.hf_config import read_config
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.performance.attention_work import causal_pairs
from tokenroom.performance.operators import busiest_share, step_operators
from tokenroom.performance.work import Chunk, Kind, Layout, Operator, StepWork

COUNTED = json.loads(
    (Path(__file__).parents[1] / "fixtures/performance/flop_counts.json").read_text("utf-8")
)


def of(operators: tuple[Operator, ...], name: str) -> Operator:
    (found,) = (operator for operator in operators if operator.name.endswith(name))
    return found


@pytest.mark.parametrize(
    "row", COUNTED["rows"], ids=lambda row: f"{row['model']}-{row['sequences']}x{row['new_tokens']}"
)
def test_flops_are_those_pytorch_counts(row: dict[str, Any]) -> None:
    config = COUNTED["configs"][row["model"]]
    spec = read_config(config, name="tiny")
    new, cached = row["new_tokens"], row["cached_tokens"]
    chunks = tuple(Chunk(new, cached) for _ in range(row["sequences"]))
    work = StepWork(prefill=chunks)
    if new == 1:
        work = StepWork.decoding([cached] * row["sequences"])
    operators = step_operators(spec, Layout(), work)
    flops = sum(operator.times * operator.flops for operator in operators)
    # eager attention also computes the pairs that the mask hides
    (mixer,) = spec.layers[0].mixers
    hidden = row["sequences"] * (new * (new + cached) - causal_pairs(Chunk(new, cached)))
    flops += len(spec.layers) * 2 * mixer.num_heads * 2 * mixer.head_dim * hidden  # type: ignore[union-attr]
    assert flops == row["flops"]


@given(st.integers(1, 60), st.integers(0, 90), st.none() | st.integers(1, 40), st.booleans())
def test_pairs_are_those_a_mask_leaves(
    tokens: int, context: int, span: int | None, chunked: bool
) -> None:
    window, local = (None, span) if chunked else (span, None)
    expected = 0
    for position in range(context, context + tokens):
        for key in range(position + 1):
            if window is not None and position - key >= window:
                continue
            if local is not None and key // local != position // local:
                continue
            expected += 1
    assert causal_pairs(Chunk(tokens, context), window, local) == expected


def test_decode_of_llama_by_hand() -> None:
    spec = load_model("llama-3.1-8b")
    operators = step_operators(spec, Layout(), StepWork.decoding([999] * 4))
    qkv = of(operators, "qkv_proj")
    assert qkv.shape == (4, 6144, 4096, 6144)
    assert qkv.flops == 2 * 4 * 6144 * 4096
    assert qkv.num_bytes == 2 * (6144 * 4096 + 4 * (6144 + 4096))
    assert qkv.times == 32
    assert of(operators, "gate_up_proj").shape[:3] == (4, 28672, 4096)
    attention = of(operators, "attention_decode")
    assert attention.flops == 4 * 1000 * 4 * 32 * 128
    assert attention.num_bytes == 4 * (1000 * 4096 + 32 * 256 * 2)
    assert of(operators, "lm_head").shape[:3] == (4, 128256, 4096)
    weights = sum(o.times * 2 * o.shape[1] * o.shape[2] for o in operators if o.kind is Kind.GEMM)
    assert weights == 2 * (spec.parameters_total - 128256 * 4096 - 65 * 4096)


def test_a_prompt_is_read_into_logits_once() -> None:
    spec = load_model("llama-3.1-8b")
    operators = step_operators(spec, Layout(), StepWork(prefill=(Chunk(512, 1024), Chunk(512))))
    assert of(operators, "lm_head").shape[0] == 2
    assert of(operators, "qkv_proj").shape[0] == 1024
    pairs = 512 * 1024 + 2 * (512 * 513 // 2)
    assert of(operators, "attention_prefill").flops == 4 * 32 * 128 * pairs


def test_tensor_parallelism_divides_work_and_adds_two_sums_a_layer() -> None:
    spec = load_model("meta-llama/Llama-3.1-70B")
    work = StepWork.decoding([1000] * 16)
    whole = step_operators(spec, Layout(), work)
    rank = step_operators(spec, Layout(tensor_parallel_size=8), work)
    assert of(rank, "o_proj").flops * 8 == of(whole, "o_proj").flops
    assert of(rank, "attention_decode").flops * 8 == of(whole, "attention_decode").flops
    sums = [operator for operator in rank if operator.kind is Kind.ALL_REDUCE]
    assert sum(operator.times for operator in sums) == 160
    assert {operator.message_bytes for operator in sums} == {16 * 8192 * 2}
    assert not any(operator.message_bytes for operator in whole)


def test_sliding_layers_read_their_window_only() -> None:
    spec = load_model("openai/gpt-oss-120b")
    operators = step_operators(spec, Layout(), StepWork.decoding([9999]))
    seen = [o.flops / (4 * 64 * 64) for o in operators if o.kind is Kind.ATTENTION_DECODE]
    assert seen == [128, 10000]


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill() -> None:
    spec = load_model("deepseek-ai/DeepSeek-R1")
    layout = Layout(tensor_parallel_size=8)
    decode = step_operators(spec, layout, StepWork.decoding([4095] * 8))
    attention = next(o for o in decode if o.kind is Kind.LATENT_DECODE)
    assert attention.flops == 8 * 4096 * 2 * 16 * (576 + 512)
    assert attention.num_bytes == 8 * (4096 * 576 * 2 + 16 * (576 + 512) * 2)
    absorb = next(o for o in decode if o.name == "absorb_query")
    assert absorb.shape == (8, 512, 128, 16)
    prefill = step_operators(spec, layout, StepWork(prefill=(Chunk(1000, 24),)))
    expansion = next(o for o in prefill if o.name == "kv_b_proj")
    assert expansion.shape[:3] == (1024, 16 * 256, 512)
    attention = next(o for o in prefill if o.kind is Kind.LATENT_PREFILL)
    assert attention.flops == 2 * 16 * (192 + 128) * causal_pairs(Chunk(1000, 24))


def test_experts_touched_and_their_bytes() -> None:
    spec = load_model("deepseek-ai/DeepSeek-R1")
    operators = step_operators(spec, Layout(tensor_parallel_size=8), StepWork.decoding([100] * 32))
    experts = of(operators, "experts")
    touched = 256 * (1 - (1 - 8 / 256) ** 32)
    per_expert = 3 * 7168 * 256 * (1 + 4 / 128**2)
    assert isclose(experts.shape[3], touched * 256)
    assert experts.flops == 2 * 32 * 8 * 3 * 7168 * 256
    assert isclose(experts.num_bytes, touched * per_expert + 256 * 2 * (2 * 7168 + 3 * 256))


def test_expert_parallel_ranks_hold_whole_experts_and_one_is_busiest() -> None:
    spec = load_model("deepseek-ai/DeepSeek-R1")
    work = StepWork(decode_sequences=16, decode_context_tokens=100, other_tokens=112)
    layout = Layout(data_parallel_size=8, expert_parallel_size=8)
    operators = step_operators(spec, layout, work)
    experts = of(operators, "experts")
    assert experts.flops == 2 * busiest_share(128 * 8, 8) * 3 * 7168 * 2048
    assert experts.shape[3] < 32 * 2048
    kinds = {operator.kind for operator in operators}
    assert {Kind.ALL_GATHER, Kind.REDUCE_SCATTER} <= kinds
    assert Kind.ALL_REDUCE not in kinds
    far = Layout(data_parallel_size=32, expert_parallel_size=32)
    assert Kind.ALL_TO_ALL in {operator.kind for operator in step_operators(spec, far, work)}


def test_quantised_weights_shrink_bytes_and_change_the_type() -> None:
    plain = load_model("llama-3.1-8b")
    work = StepWork.decoding([100])
    types = {}
    for name in ("fp8", "fp8_block", "awq", "nvfp4", "int8", "mxfp4", "w8a16"):
        qkv = of(step_operators(what_if(plain, name), Layout(), work), "qkv_proj")
        types[name] = qkv.arithmetic
        assert qkv.num_bytes < of(step_operators(plain, Layout(), work), "qkv_proj").num_bytes
    assert types == {
        "fp8": "fp8",
        "fp8_block": "fp8_block",
        "awq": "w4a16",
        "nvfp4": "nvfp4",
        "int8": "int8",
        "mxfp4": "mxfp4",
        "w8a16": "w8a16",
    }


def test_recurrent_layers_move_their_state_whatever_the_context() -> None:
    spec = load_model("Qwen/Qwen3.5-397B-A17B")
    near = step_operators(spec, Layout(), StepWork.decoding([10] * 4))
    far = step_operators(spec, Layout(), StepWork.decoding([10**6] * 4))
    assert of(near, "scan_decode") == of(far, "scan_decode")
    state = 64 * 128 * 128
    assert of(near, "scan_decode").flops == 4 * (7 * state + 2 * 4 * 12288)


def test_layouts_that_cannot_be() -> None:
    with pytest.raises(DeploymentError, match="tensor_parallel_size is 0"):
        Layout(tensor_parallel_size=0)
    with pytest.raises(DeploymentError, match="expert_parallel_size 3"):
        Layout(tensor_parallel_size=8, expert_parallel_size=3)
    with pytest.raises(DeploymentError, match="divide"):
        step_operators(
            load_model("llama-3.1-8b"), Layout(tensor_parallel_size=3), StepWork.decoding([1])
        )


def test_an_empty_step_is_no_work() -> None:
    assert step_operators(load_model("llama-3.1-8b"), Layout(), StepWork()) == ()


def test_norms_over_divided_widths_need_one_more_sum() -> None:
    spec = load_model("MiniMaxAI/MiniMax-M2.5")
    work = StepWork.decoding([100] * 16)
    operators = step_operators(spec, Layout(tensor_parallel_size=4), work)
    sums = [operator for operator in operators if operator.kind is Kind.ALL_REDUCE]
    small = [operator for operator in sums if operator.message_bytes == 16 * 2 * 4]
    assert sum(operator.times for operator in small) == len(spec.layers)
    assert of(operators, "inner_norm").times == 2 * len(spec.layers)
    alone = step_operators(spec, Layout(), work)
    assert not any(operator.kind is Kind.ALL_REDUCE for operator in alone)
