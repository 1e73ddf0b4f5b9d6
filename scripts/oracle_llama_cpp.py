"""Record what llama.cpp itself says of its buffers: model, KV, recurrent state, compute, output.

For every recipe below a GGUF file is written - small ones in full, real shapes as a header with
sparse data - loaded by llama.cpp on the CPU with several contexts, and the sizes it logs are kept
beside the recipe's own metadata and tensor table, so that tests need neither. Run with a Python
that has llama-cpp-python and gguf (no weights, no network):
    python scripts/oracle_llama_cpp.py tests/fixtures/llama_cpp/buffers.json.gz
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Tensors = dict[str, tuple[str, tuple[int, ...]]]  # name -> (ggml type, shape, fastest first)
Recipe = tuple[dict[str, Any], Tensors, bool]  # metadata, tensors, loaded in full

QUICK: list[dict[str, Any]] = [
    {"n_ctx": 4096},
    {"n_ctx": 4096, "flash_attn": 0},
    {"n_ctx": 4096, "n_ubatch": 128},
    {"n_ctx": 3000, "n_seq_max": 4},
    {"n_ctx": 3000, "n_seq_max": 4, "kv_unified": True, "n_outputs_max": 4},
    {"n_ctx": 4096, "n_outputs_max": 1, "n_ubatch": 1024},
    {"n_ctx": 4096, "swa_full": True},
]
QUANTISED: list[dict[str, Any]] = (
    [
        {"n_ctx": 4096, "type_k": k, "type_v": v}
        for k, v in (("q8_0", "q8_0"), ("q4_0", "q4_0"), ("bf16", "bf16"), ("f32", "f32"))
    ]
    + [{"n_ctx": 4096, "type_k": k, "type_v": k} for k in ("q4_1", "iq4_nl", "q5_0", "q5_1")]
    + [{"n_ctx": 4096, "type_k": "q8_0", "type_v": "f16", "flash_attn": 0}]
)
LARGE: list[dict[str, Any]] = [
    {"n_ctx": 32768},
    {"n_ctx": 8192, "flash_attn": 0},
    {"n_ctx": 16384, "n_ubatch": 2048},
    {"n_ctx": 65536, "n_seq_max": 4, "kv_unified": True, "n_outputs_max": 4},
]
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}
TYPES |= {"q4_K": 12, "q5_K": 13, "q6_K": 14, "q2_K": 10, "q3_K": 11, "bf16": 30, "mxfp4": 39}


def metadata(arch: str, **keys: Any) -> dict[str, Any]:
    """Keys below the architecture, with what every model has."""
    keys = {"context_length": 32768, "attention.layer_norm_rms_epsilon": 1e-5} | keys
    return {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in keys.items()}


def dense(
    arch: str,
    *,
    layers: int = 6,
    width: int = 256,
    heads: int = 8,
    kv_heads: int = 2,
    head: int = 64,
    ffn: int = 768,
    vocab: int = 4096,
    kind: str = "q8_0",
    head_kind: str = "q6_K",
    tied: bool = False,
    bias: bool = False,
    fused: bool = False,
    norm_bias: bool = False,
    gated: bool = True,
    head_norms: bool = False,
    post_norms: bool = False,
    second_norm: str = "ffn_norm",
    parallel: bool = False,
    sinks: bool = False,
    extra: dict[str, Any] | None = None,
) -> Recipe:
    """A model of softmax attention and dense FFNs."""
    meta = metadata(
        arch,
        embedding_length=width,
        block_count=layers,
        feed_forward_length=ffn,
        **{
            "attention.head_count": heads,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": head,
            "attention.value_length": head,
            "attention.layer_norm_epsilon": 1e-5,
            "rope.dimension_count": head,
            "vocab_size": vocab,
        },
        **(extra or {}),
    )
    found: Tensors = {"token_embd.weight": (kind, (width, vocab))}
    if not tied:
        found["output.weight"] = (head_kind, (width, vocab))
    found["output_norm.weight"] = ("f32", (width,))
    if norm_bias:
        found["output_norm.bias"] = ("f32", (width,))
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width, bias=width if norm_bias else 0)
        if fused:
            rows = (heads + 2 * kv_heads) * head
            add("attn_qkv", kind, width, rows, bias=rows if bias else 0)
        else:
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                rows = count * head
                add(f"attn_{name}", kind, width, rows, bias=rows if bias else 0)
        out_bias = bias and (norm_bias or sinks)
        add("attn_output", kind, heads * head, width, bias=width if out_bias else 0)
        if sinks:
            add("attn_sinks", "f32", heads)
        if head_norms:
            add("attn_q_norm", "f32", head)
            add("attn_k_norm", "f32", head)
        if post_norms:
            add("post_attention_norm", "f32", width)
            add("post_ffw_norm", "f32", width)
        if not parallel:
            add(second_norm, "f32", width, bias=width if norm_bias else 0)
        both = 2 if fused and gated else 1
        if gated and not fused:
            add("ffn_gate", kind, width, ffn)
        add("ffn_up", kind, width, ffn * both, bias=ffn if norm_bias else 0)
        add("ffn_down", kind, ffn, width, bias=width if norm_bias else 0)
    return meta, found, True


def moe(
    recipe: Recipe,
    arch: str,
    *,
    experts: int,
    used: int,
    ffn: int,
    kind: str,
    first: int = 0,
    shared: int = 0,
    gate_bias: bool = False,
    expert_bias: bool = False,
    shared_gate: bool = False,
    extra: dict[str, Any] | None = None,
) -> Recipe:
    """The same with experts instead of FFNs from layer ``first`` on."""
    meta, found, full = recipe
    width = meta[f"{arch}.embedding_length"]
    meta |= {
        f"{arch}.expert_count": experts,
        f"{arch}.expert_used_count": used,
        f"{arch}.expert_feed_forward_length": ffn,
        **{f"{arch}.{key}": value for key, value in (extra or {}).items()},
    }
    for index in range(first, meta[f"{arch}.block_count"]):
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            found.pop(f"blk.{index}.{name}.weight", None)
        add = _adder(found, index)
        add("ffn_gate_inp", "f32", width, experts, bias=experts if expert_bias else 0)
        if gate_bias:
            found[f"blk.{index}.exp_probs_b.bias"] = ("f32", (experts,))
        for name in ("gate", "up"):
            add(
                f"ffn_{name}_exps",
                kind,
                width,
                ffn,
                experts,
                bias=(ffn, experts) if expert_bias else 0,
            )
        add("ffn_down_exps", kind, ffn, width, experts, bias=(width, experts) if expert_bias else 0)
        if shared:
            if shared_gate:
                add("ffn_gate_inp_shexp", "f32", width)
            for name in ("gate", "up"):
                add(f"ffn_{name}_shexp", kind, width, shared)
            add("ffn_down_shexp", kind, shared, width)
    return meta, found, full


def latent(
    *,
    layers: int,
    width: int,
    heads: int,
    rank: int,
    query_rank: int,
    nope: int,
    rope: int,
    value: int,
    ffn: int,
    vocab: int,
    kind: str,
    absorbed: bool = True,
    full: bool = True,
) -> Recipe:
    """DeepSeek's latent attention, dense FFNs (see :func:`moe` for experts)."""
    arch = "deepseek2"
    keys: dict[str, Any] = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "vocab_size": vocab,
        "attention.head_count": heads,
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": rope,
        "leading_dense_block_count": 1,
        "expert_shared_count": 1,
    }
    if query_rank:
        keys["attention.q_lora_rank"] = query_rank
    if absorbed:
        keys |= {
            "attention.head_count_kv": 1,
            "attention.key_length": rank + rope,
            "attention.value_length": rank,
            "attention.key_length_mla": nope + rope,
            "attention.value_length_mla": value,
        }
    else:
        keys |= {
            "attention.head_count_kv": heads,
            "attention.key_length": nope + rope,
            "attention.value_length": value,
        }
    found: Tensors = {
        "token_embd.weight": (kind, (width, vocab)),
        "output.weight": (kind, (width, vocab)),
        "output_norm.weight": ("f32", (width,)),
    }
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width)
        if query_rank:
            add("attn_q_a", kind, width, query_rank)
            add("attn_q_a_norm", "f32", query_rank)
            add("attn_q_b", kind, query_rank, heads * (nope + rope))
        else:
            add("attn_q", kind, width, heads * (nope + rope))
        add("attn_kv_a_mqa", kind, width, rank + rope)
        add("attn_kv_a_norm", "f32", rank)
        if absorbed:
            add("attn_k_b", kind, nope, rank, heads)
            add("attn_v_b", kind, rank, value, heads)
        else:
            add("attn_kv_b", kind, rank, heads * (nope + value))
        add("attn_output", kind, heads * value, width)
        add("ffn_norm", "f32", width)
        for name in ("gate", "up"):
            add(f"ffn_{name}", kind, width, ffn)
        add("ffn_down", kind, ffn, width)
    return metadata(arch, **keys), found, full


def mamba(*, second: bool, layers: int = 6, width: int = 256, vocab: int = 4096) -> Recipe:
    """Mamba or Mamba-2."""
    arch = "mamba2" if second else "mamba"
    inner, state, rank, groups = 2 * width, 64 if second else 16, 8 if second else 16, 1
    keys = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": 0,
        "vocab_size": vocab,
        "attention.head_count": 0,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    if second:
        keys["ssm.group_count"] = groups
    found: Tensors = {
        "token_embd.weight": ("q8_0", (width, vocab)),
        "output_norm.weight": ("f32", (width,)),
    }
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width)
        (_mamba2 if second else _mamba1)(add, width, inner, state, rank, groups)
    return metadata(arch, **keys), found, True


def _mamba1(
    add: Any, width: int, inner: int, state: int, rank: int, _: int, norms: bool = False
) -> None:
    add("ssm_in", "q8_0", width, 2 * inner)
    add("ssm_conv1d", "f32", 4, inner, bias=inner)
    add("ssm_x", "q8_0", inner, rank + 2 * state)
    if norms:
        add("ssm_dt_norm", "f32", rank)
        add("ssm_b_norm", "f32", state)
        add("ssm_c_norm", "f32", state)
    add("ssm_dt", "f32", rank, inner, bias=inner)
    add("ssm_a", "f32", state, inner, suffix="")
    add("ssm_d", "f32", inner, suffix="")
    add("ssm_out", "q8_0", inner, width)


def _mamba2(add: Any, width: int, inner: int, state: int, heads: int, groups: int) -> None:
    conv = inner + 2 * groups * state
    add("ssm_in", "q8_0", width, 2 * inner + 2 * groups * state + heads)
    add("ssm_conv1d", "f32", 4, conv, bias=conv)
    add("ssm_dt", "f32", heads, suffix=".bias")
    add("ssm_a", "f32", 1, heads, suffix="")
    add("ssm_d", "f32", 1, heads, suffix="")
    add("ssm_norm", "f32", inner // groups, groups)
    add("ssm_out", "q8_0", inner, width)


def jamba(layers: int = 8, width: int = 256, vocab: int = 4096) -> Recipe:
    """Mamba and attention in turn, every second FFN with experts."""
    heads, kv, ffn, inner, state, rank = 8, 2, 768, 512, 16, 16
    kv_heads = [kv if index % 8 == 4 else 0 for index in range(layers)]
    keys = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "vocab_size": vocab,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
        "expert_count": 4,
        "expert_used_count": 2,
    }
    found: Tensors = {
        "token_embd.weight": ("q8_0", (width, vocab)),
        "output.weight": ("q8_0", (width, vocab)),
        "output_norm.weight": ("f32", (width,)),
    }
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width)
        if kv_heads[index]:
            for name, count in (("q", heads), ("k", kv), ("v", kv)):
                add(f"attn_{name}", "q8_0", width, count * width // heads)
            add("attn_output", "q8_0", width, width)
        else:
            _mamba1(add, width, inner, state, rank, 1, norms=True)
        add("ffn_norm", "f32", width)
        if index % 2:
            add("ffn_gate_inp", "f32", width, 4)
            add("ffn_gate_exps", "q8_0", width, ffn, 4)
            add("ffn_up_exps", "q8_0", width, ffn, 4)
            add("ffn_down_exps", "q8_0", ffn, width, 4)
        else:
            add("ffn_gate", "q8_0", width, ffn)
            add("ffn_up", "q8_0", width, ffn)
            add("ffn_down", "q8_0", ffn, width)
    return metadata("jamba", **keys), found, True


def delta(
    arch: str,
    *,
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    head: int,
    key_heads: int,
    value_heads: int,
    state: int,
    vocab: int,
    experts: int,
    used: int,
    ffn: int,
    kind: str,
    full: bool = True,
) -> Recipe:
    """Gated delta rules with an attention layer in four (Qwen3-Next, Qwen3.5)."""
    inner = value_heads * state
    key_dim = key_heads * state
    keys: dict[str, Any] = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "vocab_size": vocab,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head // 4,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": value_heads,
        "ssm.group_count": key_heads,
        "full_attention_interval": 4,
    }
    if arch != "qwen3next":
        keys["rope.dimension_sections"] = [head // 16] * 3 + [0]
    if experts:
        keys |= {
            "expert_count": experts,
            "expert_used_count": used,
            "expert_feed_forward_length": ffn,
            "expert_shared_feed_forward_length": ffn,
        }
    found: Tensors = {
        "token_embd.weight": (kind, (width, vocab)),
        "output.weight": (kind, (width, vocab)),
        "output_norm.weight": ("f32", (width,)),
    }
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width)
        add("post_attention_norm", "f32", width)
        if index % 4 == 3:
            add("attn_q", kind, width, 2 * heads * head)
            add("attn_k", kind, width, kv_heads * head)
            add("attn_v", kind, width, kv_heads * head)
            add("attn_output", kind, heads * head, width)
            add("attn_q_norm", "f32", head)
            add("attn_k_norm", "f32", head)
        else:
            if arch == "qwen3next":
                add("ssm_in", kind, width, 2 * key_dim + 2 * inner)
                add("ssm_ba", kind, width, 2 * value_heads)
            else:
                add("attn_qkv", kind, width, 2 * key_dim + inner)
                add("attn_gate", kind, width, inner)
                add("ssm_beta", kind, width, value_heads)
                add("ssm_alpha", kind, width, value_heads)
            add("ssm_conv1d", "f32", 4, 2 * key_dim + inner)
            add("ssm_dt", "f32", value_heads, suffix=".bias")
            add("ssm_a", "f32", value_heads, suffix="")
            add("ssm_norm", "f32", state)
            add("ssm_out", kind, inner, width)
        if experts:
            add("ffn_gate_inp", "f32", width, experts)
            add("ffn_gate_exps", kind, width, ffn, experts)
            add("ffn_up_exps", kind, width, ffn, experts)
            add("ffn_down_exps", kind, ffn, width, experts)
            add("ffn_gate_inp_shexp", "f32", width)
            add("ffn_gate_shexp", kind, width, ffn)
            add("ffn_up_shexp", kind, width, ffn)
            add("ffn_down_shexp", kind, ffn, width)
        else:
            add("ffn_gate", kind, width, ffn)
            add("ffn_up", kind, width, ffn)
            add("ffn_down", kind, ffn, width)
    return metadata(arch, **keys), found, full


def lfm2(layers: int = 6, width: int = 256, vocab: int = 4096) -> Recipe:
    """Short convolutions with an attention layer in three."""
    heads, kv, ffn = 4, 2, 768
    kv_heads = [kv if index % 3 == 2 else 0 for index in range(layers)]
    keys = {
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "vocab_size": vocab,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "shortconv.l_cache": 3,
    }
    found: Tensors = {
        "token_embd.weight": ("q8_0", (width, vocab)),
        "token_embd_norm.weight": ("f32", (width,)),
    }
    for index in range(layers):
        add = _adder(found, index)
        add("attn_norm", "f32", width)
        add("ffn_norm", "f32", width)
        if kv_heads[index]:
            for name, count in (("q", heads), ("k", kv), ("v", kv)):
                add(f"attn_{name}", "q8_0", width, count * width // heads)
            add("attn_output", "q8_0", width, width)
            add("attn_q_norm", "f32", width // heads)
            add("attn_k_norm", "f32", width // heads)
        else:
            add("shortconv.conv", "f32", 3, width)
            add("shortconv.in_proj", "q8_0", width, 3 * width)
            add("shortconv.out_proj", "q8_0", width, width)
        add("ffn_gate", "q8_0", width, ffn)
        add("ffn_up", "q8_0", width, ffn)
        add("ffn_down", "q8_0", ffn, width)
    return metadata("lfm2", **keys), found, True


def _adder(found: Tensors, index: int) -> Any:
    def add(stem: str, kind: str, *shape: int, bias: Any = 0, suffix: str = ".weight") -> None:
        found[f"blk.{index}.{stem}{suffix}"] = (kind, shape)
        if bias:
            sizes = bias if isinstance(bias, tuple) else (bias,)
            found[f"blk.{index}.{stem}.bias"] = ("f32", sizes)

    return add


def large(recipe: Recipe) -> Recipe:
    """Only the header of a recipe is written; llama.cpp reserves without allocating."""
    return recipe[0], recipe[1], False


def recipes() -> dict[str, Recipe]:
    """Every model by name."""
    window = {"attention.sliding_window": 512}
    softcap = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    found = {
        "llama": dense("llama"),
        "llama_q4_0": dense("llama", kind="q4_0", head_kind="q4_0"),
        "llama_q4_K": dense("llama", kind="q4_K"),
        "llama_f16": dense("llama", kind="f16", head_kind="f16", heads=4, kv_heads=4, head=80),
        "llama_tied": dense("llama", tied=True, kind="q6_K"),
        "qwen2": dense("qwen2", head=32, bias=True, tied=True),
        "qwen3": dense("qwen3", head_norms=True),
        "phi3": dense(
            "phi3", head=32, fused=True, extra={"rope.scaling.original_context_length": 32768}
        ),
        "gemma2": dense("gemma2", tied=True, post_norms=True, extra=window | softcap),
        "gemma3": dense(
            "gemma3", layers=7, tied=True, post_norms=True, head_norms=True, extra=window
        ),
        "command-r": dense(
            "command-r", head=32, tied=True, parallel=True, extra={"logit_scale": 0.06}
        ),
        "starcoder2": dense("starcoder2", head=32, bias=True, norm_bias=True, gated=False),
        "gpt2": dense(
            "gpt2",
            fused=True,
            bias=True,
            norm_bias=True,
            gated=False,
            kv_heads=8,
            head=32,
            extra={},
        ),
        "glm4": dense("glm4", fused=False, post_norms=True, extra={}),
        "llama_moe": moe(dense("llama"), "llama", experts=8, used=2, ffn=768, kind="q8_0"),
        "qwen3moe": moe(
            dense("qwen3moe", head_norms=True), "qwen3moe", experts=16, used=4, ffn=256, kind="q4_K"
        ),
        "qwen2moe": moe(
            dense("qwen2moe", head=32, bias=True),
            "qwen2moe",
            experts=16,
            used=4,
            ffn=256,
            kind="q8_0",
            shared=512,
            shared_gate=True,
            extra={"expert_shared_feed_forward_length": 512},
        ),
        "gpt-oss": moe(
            dense(
                "gpt-oss", second_norm="post_attention_norm", bias=True, sinks=True, extra=window
            ),
            "gpt-oss",
            experts=8,
            used=4,
            ffn=256,
            kind="mxfp4",
            expert_bias=True,
        ),
        "deepseek2": moe(
            latent(
                layers=5,
                width=256,
                heads=8,
                rank=128,
                query_rank=96,
                nope=64,
                rope=32,
                value=64,
                ffn=768,
                vocab=4096,
                kind="q8_0",
            ),
            "deepseek2",
            experts=16,
            used=4,
            ffn=128,
            kind="q8_0",
            first=1,
            shared=128,
            gate_bias=True,
            extra={
                "expert_weights_norm": True,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.5,
            },
        ),
        "deepseek2_lite": moe(
            latent(
                layers=27,
                width=256,
                heads=8,
                rank=128,
                query_rank=0,
                nope=64,
                rope=32,
                value=64,
                ffn=768,
                vocab=4096,
                kind="q8_0",
            ),
            "deepseek2",
            experts=16,
            used=4,
            ffn=128,
            kind="q8_0",
            first=1,
            shared=128,
        ),
        "deepseek2_heads": moe(
            latent(
                layers=27,
                width=256,
                heads=8,
                rank=128,
                query_rank=0,
                nope=64,
                rope=32,
                value=64,
                ffn=768,
                vocab=4096,
                kind="q8_0",
                absorbed=False,
            ),
            "deepseek2",
            experts=16,
            used=4,
            ffn=128,
            kind="q8_0",
            first=1,
            shared=128,
        ),
        "mamba": mamba(second=False),
        "mamba2": mamba(second=True),
        "jamba": jamba(),
        "lfm2": lfm2(),
        "qwen3next": delta(
            "qwen3next",
            layers=8,
            width=256,
            heads=4,
            kv_heads=2,
            head=64,
            key_heads=4,
            value_heads=8,
            state=64,
            vocab=4096,
            experts=8,
            used=2,
            ffn=256,
            kind="q8_0",
        ),
        "qwen35": delta(
            "qwen35",
            layers=8,
            width=256,
            heads=4,
            kv_heads=2,
            head=64,
            key_heads=4,
            value_heads=8,
            state=64,
            vocab=4096,
            experts=0,
            used=0,
            ffn=512,
            kind="q8_0",
        ),
        "qwen35moe": delta(
            "qwen35moe",
            layers=8,
            width=256,
            heads=4,
            kv_heads=2,
            head=64,
            key_heads=4,
            value_heads=8,
            state=64,
            vocab=4096,
            experts=8,
            used=2,
            ffn=256,
            kind="q8_0",
        ),
    }
    found["glm4"][1].update(
        {f"blk.{index}.ffn_up.weight": ("q8_0", (256, 1536)) for index in range(6)}
    )
    for index in range(6):
        found["glm4"][1].pop(f"blk.{index}.ffn_gate.weight", None)
    found["gpt2"][1]["position_embd.weight"] = ("f32", (256, 32768))
    found["llama_tied"][1]["rope_freqs.weight"] = ("f32", (32,))
    found |= {
        "Llama-3-8B": large(
            dense(
                "llama",
                layers=32,
                width=4096,
                heads=32,
                kv_heads=8,
                head=128,
                ffn=14336,
                vocab=128256,
                kind="q4_K",
            )
        ),
        "Qwen3-32B": large(
            dense(
                "qwen3",
                layers=64,
                width=5120,
                heads=64,
                kv_heads=8,
                head=128,
                ffn=25600,
                vocab=151936,
                kind="q4_K",
                head_norms=True,
            )
        ),
        "Gemma-3-27B": large(
            dense(
                "gemma3",
                layers=62,
                width=5376,
                heads=32,
                kv_heads=16,
                head=128,
                ffn=21504,
                vocab=262208,
                kind="q4_K",
                tied=True,
                post_norms=True,
                head_norms=True,
                extra={"attention.sliding_window": 1024},
            )
        ),
        "Qwen3-30B-A3B": large(
            moe(
                dense(
                    "qwen3moe",
                    layers=48,
                    width=2048,
                    heads=32,
                    kv_heads=4,
                    head=128,
                    ffn=6144,
                    vocab=151936,
                    kind="q4_K",
                    head_norms=True,
                ),
                "qwen3moe",
                experts=128,
                used=8,
                ffn=768,
                kind="q4_K",
            )
        ),
        "gpt-oss-20b": large(
            moe(
                dense(
                    "gpt-oss",
                    layers=24,
                    width=2880,
                    heads=64,
                    kv_heads=8,
                    head=64,
                    ffn=2880,
                    vocab=201088,
                    kind="q8_0",
                    head_kind="q8_0",
                    bias=True,
                    sinks=True,
                    second_norm="post_attention_norm",
                    extra={"attention.sliding_window": 128},
                ),
                "gpt-oss",
                experts=32,
                used=4,
                ffn=2880,
                kind="mxfp4",
                expert_bias=True,
            )
        ),
        "DeepSeek-V2-Lite": large(
            moe(
                latent(
                    layers=27,
                    width=2048,
                    heads=16,
                    rank=512,
                    query_rank=0,
                    nope=128,
                    rope=64,
                    value=128,
                    ffn=10944,
                    vocab=102400,
                    kind="q8_0",
                ),
                "deepseek2",
                experts=64,
                used=6,
                ffn=1408,
                kind="q8_0",
                first=1,
                shared=2816,
                extra={"expert_shared_count": 2},
            )
        ),
        "DeepSeek-V3": large(
            moe(
                latent(
                    layers=61,
                    width=7168,
                    heads=128,
                    rank=512,
                    query_rank=1536,
                    nope=128,
                    rope=64,
                    value=128,
                    ffn=18432,
                    vocab=129280,
                    kind="q8_0",
                ),
                "deepseek2",
                experts=256,
                used=8,
                ffn=2048,
                kind="q8_0",
                first=3,
                shared=2048,
                gate_bias=True,
                extra={
                    "leading_dense_block_count": 3,
                    "expert_gating_func": 2,
                    "expert_weights_norm": True,
                    "expert_weights_scale": 2.5,
                },
            )
        ),
        "Qwen3-Next-80B": large(
            delta(
                "qwen3next",
                layers=48,
                width=2048,
                heads=16,
                kv_heads=2,
                head=256,
                key_heads=16,
                value_heads=32,
                state=128,
                vocab=151936,
                experts=512,
                used=10,
                ffn=512,
                kind="q4_K",
            )
        ),
    }
    return found


def write(path: Path, recipe: Recipe) -> None:
    """The recipe as a GGUF file; data is a hole of zeros."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.constants import GGML_QUANT_SIZES

    meta, tensors, _ = recipe
    arch = meta["general.architecture"]
    out = GGUFWriter(path, arch)
    for key, value in meta.items():
        if key == "general.architecture":
            continue
        if isinstance(value, bool):
            out.add_bool(key, value)
        elif isinstance(value, int):
            out.add_uint32(key, value)
        elif isinstance(value, float):
            out.add_float32(key, value)
        else:
            out.add_array(key, value)
    out.add_tokenizer_model("no_vocab")
    total = 0
    import numpy as np

    for name, (kind, shape) in tensors.items():
        quant = GGMLQuantizationType(TYPES[kind])
        block, size = GGML_QUANT_SIZES[quant]
        elements = int(np.prod(shape))
        num_bytes = elements // block * size
        sizes = tuple(reversed(shape))
        if block > 1:
            sizes = (*sizes[:-1], sizes[-1] // block * size)
            dtype = np.uint8
        else:
            dtype = {"f32": np.float32, "f16": np.float16, "bf16": np.float16}[kind]
        out.add_tensor_info(name, sizes, np.dtype(dtype), num_bytes, raw_dtype=quant)
        total += -(-num_bytes // 32) * 32
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    out.close()
    start = -(-path.stat().st_size // 32) * 32
    with path.open("r+b") as file:
        file.truncate(start + total)


def run(path: str, full: bool, mmap: bool, contexts: list[dict[str, Any]]) -> None:
    """In a process of its own: load the file and make each context, logging to stderr."""
    import llama_cpp as api

    @api.llama_log_callback
    def log(_level: int, text: bytes, _data: Any) -> None:
        os.write(2, text)

    api.llama_log_set(log, ctypes.c_void_p(0))
    api.llama_backend_init()
    params = api.llama_model_default_params()
    params.load_mode = 1 if mmap else 0
    params.no_alloc = not full
    model = api.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit("the model does not load")
    for context in contexts:
        wanted = api.llama_context_default_params()
        wanted.swa_full = False
        for key, value in context.items():
            if key in ("type_k", "type_v"):
                value = TYPES[value]
            setattr(wanted, "flash_attn_type" if key == "flash_attn" else key, value)
        os.write(2, b"\n==context\n")
        made = api.llama_init_from_model(model, wanted)
        if made:
            api.llama_free(made)
        else:
            os.write(2, b"\n==refused\n")
    api.llama_model_free(model)


def sizes(text: str) -> dict[str, float]:
    """Sizes in MiB by what they are, from a log."""
    found: dict[str, float] = {}
    patterns = {
        "model": r"(\S+) model buffer size = +([\d.]+) MiB",
        "kv_buffer": r"(\S+) KV buffer size = +([\d.]+) MiB",
        "rs_buffer": r"(\S+) RS buffer size = +([\d.]+) MiB",
        "compute": r"(\S+) compute buffer size = +([\d.]+) MiB",
        "output": r"(\S+)  output buffer size = +([\d.]+) MiB",
    }
    for kind, pattern in patterns.items():
        for name, value in re.findall(pattern, text):
            key = f"{kind}.{name}"
            found[key] = round(found.get(key, 0.0) + float(value), 2)
    for total, cells in re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells", text):
        found["cached"] = round(found.get("cached", 0.0) + float(total), 2)
        found[f"cells.{len([key for key in found if key.startswith('cells.')])}"] = float(cells)
    return found


def record(name: str, recipe: Recipe, folder: Path) -> dict[str, Any] | None:
    """What llama.cpp logs for one recipe."""
    meta, tensors, full = recipe
    path = folder / f"{name}.gguf"
    write(path, recipe)
    contexts = QUICK + (QUANTISED if name in ("llama", "gemma3", "qwen3moe") else [])
    if "deepseek2" in name:
        contexts = [*QUICK, {"n_ctx": 4096, "type_k": "q8_0", "type_v": "q8_0"}]
    if not full:
        contexts = LARGE
    result: dict[str, Any] = {"metadata": meta, "tensors": tensors, "full": full, "contexts": []}
    for mmap in (False, True) if full else (False,):
        log = subprocess.run(
            [sys.executable, __file__, "--run", str(path), json.dumps([full, mmap, contexts])],
            capture_output=True,
            check=False,
        )
        text = log.stderr.decode("utf-8", "replace")
        head, *parts = text.split("\n==context\n")
        if log.returncode or not parts:
            print(f"{name}: {head[-800:]}", file=sys.stderr)
            return None
        result["model_mapped" if mmap else "model"] = {
            key.removeprefix("model."): value
            for key, value in sizes(head).items()
            if key.startswith("model.")
        }
        if mmap:
            continue
        for context, part in zip(contexts, parts, strict=True):
            refused = "==refused" in part
            result["contexts"].append(
                {"asked": context, "logged": None if refused else sizes(part)}
            )
    path.unlink()
    return result


def main(target: Path) -> None:
    """Record every recipe."""
    import llama_cpp

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in recipes().items():
            made = record(name, recipe, Path(folder))
            print(name, "recorded" if made else "FAILED")
            if made:
                found[name] = made
    data = {
        "source": f"llama-cpp-python {llama_cpp.__version__} (llama.cpp 0c1e57098), CPU backend",
        "models": found,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)
    target.write_bytes(packed)
    print(target, len(packed))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(sys.argv[2], *json.loads(sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
