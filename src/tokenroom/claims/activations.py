"""Activations: tensors of a layer, what FlashAttention removes, peaks of engines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import (
    A100,
    CONFIGURATION,
    LLAMA_2_7B,
    LLAMA_3_70B,
    attention,
    deployed,
    layer_weights,
    the_case,
)
from tokenroom.fitting import FitResult
from tokenroom.units import GIB

_TOKENS: Final = 4096
_WIDTH: Final = 8192
_BSD: Final = _TOKENS * _WIDTH
"""B x S x D of the handbook's example: one request of 4,096 tokens, Llama-3-70B."""
_MODELING: Final = "transformers 5.24 models/llama/modeling_llama.py, counted on recorded passes"


def plain(attention_kernel: str, tokens: int, requests: int = 1) -> FitResult:
    """Llama-3-70B under plain transformers on four B200, by the kernel of attention."""
    return deployed(
        LLAMA_3_70B,
        "b200",
        gpus=4,
        engine="transformers",
        context=tokens,
        concurrency=requests,
        attn_implementation=attention_kernel,
    )


def peak(attention_kernel: str, tokens: int, requests: int = 1) -> int:
    """Its peak of activations in prefill, in bytes."""
    return plain(attention_kernel, tokens, requests).governing_stage.activation.num_bytes


def _tensors() -> Iterator[Claim]:
    """The handbook's table of one layer, for Llama-3-70B, one request of 4,096 tokens in FP16."""
    square = 2 * 64 * _TOKENS**2

    def heads(count: int) -> Cases:
        return one(2 * _TOKENS * count * attention(LLAMA_3_70B).head_dim)

    def wide() -> Cases:
        return one(2 * _TOKENS * layer_weights(LLAMA_3_70B, "gate_proj")[0].shape[0])

    def queries() -> Cases:
        return heads(attention(LLAMA_3_70B).num_heads)

    def keys() -> Cases:
        return heads(attention(LLAMA_3_70B).num_kv_heads)

    def scores() -> Cases:
        return one(2 * attention(LLAMA_3_70B).num_heads * _TOKENS**2)

    grouped = Text("K and V have 8 heads for 64 of Q.", "Q 有 64 个头，K、V 只有 8 个。")
    narrower = Text(
        "intermediate_size is 28,672, which is 3.5 D.", "intermediate_size 为 28,672，即 3.5D。"
    )
    for key, english, chinese, printed, figure, ours, reason in (
        ("q", "Q", "Q", "2BSD", 2 * _BSD, queries, None),
        ("k", "K", "K", "2BSD", 2 * _BSD, keys, grouped),
        ("v", "V", "V", "2BSD", 2 * _BSD, keys, grouped),
        ("score", "Attention scores", "注意力分数", "2BHS²", square, scores, None),
        ("softmax", "Their softmax", "Softmax 输出", "2BHS²", square, scores, None),
        ("context", "Context", "Context", "2BSD", 2 * _BSD, queries, None),
        ("gate", "FFN gate", "FFN gate", "8BSD", 8 * _BSD, wide, narrower),
        ("up", "FFN up", "FFN up", "8BSD", 8 * _BSD, wide, narrower),
        ("down", "Input of FFN down", "FFN down 输入", "8BSD", 8 * _BSD, wide, narrower),
    ):
        yield Claim(
            id=f"activation-{key}",
            article="handbook",
            section="4.2",
            text=Text(
                f"{english} of a layer (Llama-3-70B, B=1, S=4096)",
                f"单层 {chinese}（Llama-3-70B，B=1，S=4096）",
            ),
            unit="bytes",
            printed=printed,
            published=exactly(figure),
            ours=ours,
            reason=reason,
            source=CONFIGURATION,
        )


def _sums() -> Iterator[Claim]:
    released = Text(
        "Layers are released one by one: the peak is one layer's transient, the sampler's or the "
        "logits, and engines bound it by the token budget of a step, whatever the number of "
        "requests.",
        "激活值逐层释放：峰值是单层的瞬时量、采样器或 logits，并由引擎的单步 token 预算限定，与请"
        "求数无关。",
    )
    for requests, printed, figure in ((1, "53.7 GB", 53.7e9), (64, "3.44 TB", 3.44e12)):
        yield Claim(
            id=f"activation-sum-x{requests}",
            article="handbook",
            section="4.3",
            text=Text(
                f"Activations of Llama-3-70B, B={requests}, S=4096",
                f"Llama-3-70B 的激活值，B={requests}，S=4096",
            ),
            unit="gigabytes",
            printed=printed,
            published=exactly(figure),
            ours=partial(
                lambda requests: [
                    Case(the_case().governing_stage.activation.num_bytes, "vLLM, TP=8"),
                    Case(peak("sdpa", _TOKENS, requests), "transformers"),
                ],
                requests,
            ),
            reason=released,
            source="vLLM 0.33 v1/worker/gpu_model_runner.py profile_run; " + _MODELING,
        )
    yield Claim(
        id="activation-layer-coefficient",
        article="handbook",
        section="4.3",
        text=Text(
            "A layer's activations are 8 to 12 x B x S x D elements: peak over B x S x D "
            "(Llama-3-70B)",
            "单层激活约为 (8 ~ 12)×B×S×D 个元素：峰值除以 B×S×D（Llama-3-70B）",
        ),
        unit="count",
        printed="8 - 12",
        published=Span(8, 12),
        ours=lambda: one(peak("sdpa", _TOKENS) / 2 / _BSD),
        reason=Text(
            "Input, residual and the product of gate and up with both factors: 3 x 3.5 + 4.",
            "层输入、残差、gate 与 up 及其乘积：3×3.5+4。",
        ),
        source=_MODELING,
    )
    yield Claim(
        id="activation-coefficient-batch",
        article="handbook",
        section="6.1",
        text=Text(
            "With FlashAttention all activations are layers x (5 to 8) x B x S x D: peak over B x "
            "S x D",
            "FlashAttention 下总激活 ≈ 层数×(5 ~ 8)×B×S×D：峰值除以 B×S×D",
        ),
        unit="count",
        printed="80 x (5 - 8)",
        published=Span(80 * 5, 80 * 8),
        ours=lambda: one(peak("flash_attention_2", _TOKENS) / 2 / _BSD),
        reason=released,
        source=_MODELING,
    )
    yield Claim(
        id="activation-released",
        article="handbook",
        section="4.3",
        text=Text(
            "Where layers are released the peak is far below their sum (a tenth or less)",
            "逐层释放时峰值远低于总和（不到十分之一）",
        ),
        unit="truth",
        ours=lambda: holds(peak("sdpa", _TOKENS) < 0.1 * 53.7e9),
        source=_MODELING,
    )
    yield Claim(
        id="activation-7b-prefill",
        article="ledger",
        section="1.1",
        text=Text(
            "Prefill of 4K tokens of a 7B model peaks at several GB of activations",
            "7B 模型 4K 上下文 prefill 激活值瞬间冲到几 GB",
        ),
        unit="bytes",
        printed=Text("several GB", "几 GB"),
        published=Span(2 * GIB, 10 * GIB),
        ours=lambda: (
            [
                Case(
                    deployed(
                        LLAMA_2_7B,
                        A100,
                        engine="transformers",
                        context=_TOKENS,
                        attn_implementation=kernel,
                    ).governing_stage.activation.num_bytes,
                    f"transformers, {kernel}",
                )
                for kernel in ("eager", "sdpa")
            ]
            + [
                Case(
                    deployed(
                        LLAMA_2_7B, A100, context=_TOKENS
                    ).governing_stage.activation.num_bytes,
                    "vLLM",
                )
            ]
        ),
        reason=Text(
            "So where scores are a matrix; with fused attention it is a fraction of that.",
            "仅当注意力分数实体化为矩阵时如此；融合注意力下只有其一小部分。",
        ),
        source=_MODELING,
    )
    yield Claim(
        id="activation-decode-small",
        article="ledger",
        section="1.1",
        text=Text(
            "Activations of decode are small: below a twentieth of prefill's (Llama-2-7B, 4K)",
            "decode 阶段激活值很小：不到 prefill 的二十分之一（Llama-2-7B，4K）",
        ),
        unit="truth",
        ours=lambda: holds(
            20 * plain("eager", _TOKENS).governing_stage.activation_decode_bytes
            < peak("eager", _TOKENS)
        ),
        source=_MODELING,
    )
    yield Claim(
        id="growth-activations-32",
        article="ledger",
        section="1",
        text=Text(
            "From 1 to 32 requests activations grow linearly: by",
            "并发从 1 到 32，激活值线性增长：倍数",
        ),
        unit="ratio",
        printed="32",
        published=exactly(32),
        ours=lambda: [
            Case(peak("sdpa", _TOKENS, 32) / peak("sdpa", _TOKENS), "transformers"),
            Case(
                deployed(
                    LLAMA_3_70B, A100, tp=8, context=4096, max_num_seqs=32
                ).governing_stage.activation.num_bytes
                / deployed(
                    LLAMA_3_70B, A100, tp=8, context=4096, max_num_seqs=1
                ).governing_stage.activation.num_bytes,
                "vLLM",
            ),
        ],
        reason=Text(
            "Of whole prompts side by side. Engines with a token budget keep one peak free, "
            "however many requests run.",
            "整段提示并排计算时如此。有 token 预算的引擎只预留一个峰值，与并发无关。",
        ),
        source="vLLM 0.33 v1/worker/gpu_model_runner.py profile_run; " + _MODELING,
    )


def _flash() -> Iterator[Claim]:
    def doubled(kernel: str) -> float:
        """What a twice as long prompt makes of the peak, from 16K on."""
        return peak(kernel, 32768) / peak(kernel, 16384)

    yield Claim(
        id="flash-keeps-kv",
        article="ledger",
        section="4.1",
        text=Text(
            "FlashAttention leaves the KV cache as it is: its bytes with it over those without",
            "FlashAttention 不改变 KV 缓存：启用与不启用之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            plain("flash_attention_2", _TOKENS).plan.kv_bytes_of(_TOKENS)
            / plain("eager", _TOKENS).plan.kv_bytes_of(_TOKENS)
        ),
        source=_MODELING,
    )
    yield Claim(
        id="flash-cuts-activations",
        article="ledger",
        section="4.1",
        text=Text(
            "FlashAttention lowers the peak of prefill: by which factor at 4K, Llama-3-70B",
            "FlashAttention 降低 prefill 峰值：Llama-3-70B 在 4K 时的倍数",
        ),
        unit="ratio",
        published=None,
        ours=lambda: one(peak("eager", _TOKENS) / peak("flash_attention_2", _TOKENS)),
        source=_MODELING,
    )
    yield Claim(
        id="flash-linear",
        article="handbook",
        section="6.2",
        text=Text(
            "With FlashAttention activations grow linearly with S: by, from 16K to 32K",
            "标准 FA 下激活值随 S 线性增长：16K 到 32K 的倍数",
        ),
        unit="ratio",
        printed="2",
        published=exactly(2),
        ours=lambda: one(doubled("flash_attention_2")),
        source=_MODELING,
    )
    yield Claim(
        id="flash-without-quadratic",
        article="handbook",
        section="6.2",
        text=Text(
            "Without it they grow with S²: by, from 16K to 32K",
            "无 FA 时随 S² 增长：16K 到 32K 的倍数",
        ),
        unit="ratio",
        printed="4",
        published=exactly(4),
        ours=lambda: one(doubled("eager")),
        source=_MODELING,
    )
    yield Claim(
        id="flash-peak-without",
        article="handbook",
        section="7.3",
        text=Text(
            "A layer without FlashAttention peaks at 10BSD + 4BHS² bytes (Llama-3-70B, S=4096)",
            "标准 Attention 单层峰值 10BSD + 4BHS² 字节（Llama-3-70B，S=4096）",
        ),
        unit="bytes",
        printed="10BSD + 4BHS²",
        published=exactly(10 * _BSD + 4 * 64 * _TOKENS**2),
        ours=lambda: one(peak("eager", _TOKENS)),
        reason=Text(
            "The softmax is computed in FP32 beside the 16-bit scores, and the mask has S² cells "
            "too.",
            "softmax 以 FP32 计算并与 16 位分数并存，掩码也有 S² 个元素。",
        ),
        source=_MODELING,
    )
    yield Claim(
        id="flash-peak-with",
        article="handbook",
        section="7.3",
        text=Text(
            "A layer with FlashAttention peaks at 5BSD bytes (Llama-3-70B, S=4096)",
            "FlashAttention 单层峰值 5BSD 字节（Llama-3-70B，S=4096）",
        ),
        unit="bytes",
        printed="5BSD",
        published=exactly(5 * _BSD),
        ours=lambda: one(peak("flash_attention_2", _TOKENS)),
        reason=Text(
            "The feed-forward block then holds the peak: gate, up and their product, 3.5 D wide "
            "each.",
            "此时峰值出现在前馈层：gate、up 及其乘积，各宽 3.5D。",
        ),
        source=_MODELING,
    )


def _phases() -> Iterator[Claim]:
    def exceeds(result: FitResult) -> float:
        stage = result.governing_stage
        return float(
            stage.activation.num_bytes > stage.weights_bytes + result.plan.kv_bytes_of(_TOKENS)
        )

    yield Claim(
        id="prefill-exceeds-all",
        article="handbook",
        section="5.1",
        text=Text(
            "Activations of prefill may exceed KV cache and weights together (Llama-3-70B)",
            "Prefill 激活值可能超过 KV Cache + 参数（Llama-3-70B）",
        ),
        unit="truth",
        ours=lambda: [
            Case(exceeds(the_case()), "vLLM"),
            Case(exceeds(plain("sdpa", 32768)), "transformers, sdpa, 32K"),
            Case(exceeds(plain("eager", 32768)), "transformers, eager, 32K"),
        ],
        reason=Text(
            "Only where the matrix of scores is kept and prompts are very long.",
            "仅当保留完整的注意力分数矩阵且提示很长时。",
        ),
        source=_MODELING,
    )
    yield Claim(
        id="decode-kv-dominates",
        article="handbook",
        section="5.1",
        text=Text(
            "In decode the KV cache takes the most (the full pool of 8 x A100, Llama-3-70B)",
            "Decode 阶段 KV Cache 支配显存（8×A100 上 Llama-3-70B 的满池）",
        ),
        unit="truth",
        ours=lambda: holds(
            the_case().governing_stage.kv_pool_bytes > the_case().governing_stage.weights_bytes
        ),
        source="vLLM 0.33",
    )
    yield Claim(
        id="chunked-prefill-memory",
        article="handbook",
        section="7.4",
        text=Text(
            "Chunked prefill holds down memory: the peak of activations falls from a step of "
            "16,384 tokens to one of 512",
            "Chunked Prefill 抑制 OOM：单步 token 由 16384 降至 512 时激活峰值下降",
        ),
        unit="truth",
        ours=lambda: holds(_budget_peak(512) < _budget_peak(16384)),
        source="vLLM 0.33 v1/worker/gpu_model_runner.py profile_run",
    )


def _budget_peak(tokens: int) -> int:
    """Peak of activations of Llama-3-70B under a token budget of a step."""
    result = deployed(LLAMA_3_70B, A100, tp=8, context=4096, max_num_batched_tokens=tokens)
    return result.governing_stage.activation.num_bytes


CLAIMS: Final = (*_tensors(), *_sums(), *_flash(), *_phases())
