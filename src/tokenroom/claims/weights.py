"""Weights: bytes of each type, parameters by component, quantisation, shares of a card."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import (
    CONFIGURATION,
    DEEPSEEK_V3,
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    deployed,
    layer_weights,
    model,
    short,
    the_case,
    weights,
)
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import DTYPE_BITS, ModelSpec, Role

_SCALES: Final = Text(
    "Scales and zero points come on top, and embedding, head and norms stay 16-bit.",
    "还要加上缩放因子与零点；词嵌入、输出层和归一化层仍为 16 位。",
)
_METHODS: Final = "which weights a method quantises and what it stores: models/quantization"


def _bytes_of(layout: str) -> Cases:
    """Bytes a parameter of the quantised layers, scales among them."""
    spec = what_if(model(LLAMA_2_7B), layout)
    linear = sum(
        count * weight.parameters
        for _, weight, count in spec.all_weights()
        if weight.role is Role.LINEAR
    )
    rest = (spec.parameters_total - linear) * 2
    return one((checkpoint_weights(spec).total_bytes - rest) / linear)


def _types() -> Iterator[Claim]:
    for dtype, name, printed in (
        ("float32", "FP32", 4.0),
        ("float16", "FP16", 2.0),
        ("bfloat16", "BF16", 2.0),
    ):
        yield Claim(
            id=f"bytes-{name.lower()}",
            article="handbook",
            section="2.1",
            text=Text(f"Bytes of a parameter in {name}", f"{name} 每个参数的字节数"),
            unit="count",
            printed=f"{printed:g}",
            published=exactly(printed),
            ours=partial(lambda dtype: one(DTYPE_BITS[dtype] / 8), dtype),
            source="IEEE 754; the width of the type",
        )
    for layout, name, printed in (
        ("int8", "INT8", 1.0),
        ("fp8", "FP8", 1.0),
        ("awq", "INT4", 0.5),
        ("nf4", "NF4", 0.5),
    ):
        yield Claim(
            id=f"bytes-{name.lower()}",
            article="handbook",
            section="2.1",
            text=Text(
                f"Bytes of a parameter in {name} (Llama-2-7B's layers, as a checkpoint)",
                f"{name} 每个参数的字节数（Llama-2-7B 各层，按检查点）",
            ),
            unit="count",
            printed=f"{printed:g}",
            published=exactly(printed),
            ours=partial(_bytes_of, layout),
            reason=_SCALES,
            source=_METHODS,
        )


_REASONS: Final = {
    "7b": Text(
        "A 7B model has 6.74 billion parameters; a 4-bit one has scales and a 16-bit embedding "
        "and head.",
        "7B 模型实有 67.4 亿参数；4 位模型还有缩放因子以及 16 位的词嵌入和输出层。",
    ),
    "70b": Text("70.55 billion parameters.", "参数为 705.5 亿。"),
    "quantised": _SCALES,
}


def _sizes() -> Iterator[Claim]:
    for article, section, name, layout, label, printed in (
        ("ledger", "1.1", LLAMA_2_7B, None, "FP16", 14),
        ("ledger", "4.2", LLAMA_2_7B, "int8", "INT8", 7),
        ("ledger", "4.2", LLAMA_2_7B, "awq", "INT4", 4),
        ("handbook", "2.1", LLAMA_3_70B, None, "FP16", 140),
        ("handbook", "2.1", LLAMA_3_70B, "int8", "INT8", 70),
        ("handbook", "2.1", LLAMA_3_70B, "awq", "INT4", 35),
    ):
        size = "7b" if name == LLAMA_2_7B else "70b"
        yield Claim(
            id=f"weights-{size}-{label.lower()}",
            article="ledger" if article == "ledger" else "handbook",
            section=section,
            text=Text(
                f"Weights of a {size.upper()} model in {label} ({short(name)})",
                f"{size.upper()} 模型的 {label} 权重（{short(name)}）",
            ),
            unit="gigabytes",
            printed=f"{printed} GB",
            published=exactly(printed * 1e9),
            ours=partial(lambda name, layout: one(weights(name, layout)), name, layout),
            reason=_REASONS[size if layout is None or size == "7b" else "quantised"],
            source=_METHODS if layout else CONFIGURATION,
        )


def _linear(spec_name: str, *endings: str) -> float:
    layers = model(spec_name).num_layers
    return layers * sum(
        weight.parameters for ending in endings for weight in layer_weights(spec_name, ending)
    )


def _ends(spec: ModelSpec, role: Role) -> float:
    return sum(weight.parameters for _, weight, _ in spec.all_weights() if weight.role is role)


def _components() -> Iterator[Claim]:
    """The handbook's formulas with N = 32, D = 4096 and a vocabulary of 128,256: Llama-3-8B."""
    layers, width, vocabulary = 32, 4096, 128_256
    wide = Text(
        "The feed-forward width is intermediate_size of the configuration (14,336 here), not 4D.",
        "前馈层宽度是配置中的 intermediate_size（此处为 14,336），而不是 4D。",
    )
    rows: tuple[tuple[str, str, str, str, int, tuple[str, ...], Text | None], ...] = (
        (
            "qkv",
            "Q, K and V projections",
            "QKV 投影",
            "N x D x 3D x 2",
            layers * width * 3 * width * 2,
            ("q_proj", "k_proj", "v_proj"),
            Text(
                "Q is D x heads x head_dim; K and V are D x kv_heads x head_dim each. The factor "
                "2 counts a bias as another matrix; a bias is a vector, and Llama has none.",
                "Q 为 D×heads×head_dim，K、V 各为 D×kv_heads×head_dim。因子 2 把偏置当成又一个"
                "矩阵；"
                "偏置只是向量，且 Llama 没有偏置。",
            ),
        ),
        (
            "output",
            "output projection of attention",
            "注意力输出投影",
            "N x D x D",
            layers * width * width,
            ("o_proj",),
            None,
        ),
        (
            "gate-up",
            "gate and up projections",
            "FFN gate + up 投影",
            "N x D x 4D x 2",
            layers * width * 4 * width * 2,
            ("gate_proj", "up_proj"),
            wide,
        ),
        (
            "down",
            "down projection",
            "FFN down 投影",
            "N x 4D x D",
            layers * 4 * width * width,
            ("down_proj",),
            wide,
        ),
        (
            "norms",
            "norms of the layers",
            "各层归一化",
            "N x D x 2",
            layers * width * 2,
            ("layernorm",),
            None,
        ),
    )
    for key, english, chinese, printed, figure, endings, reason in rows:
        yield Claim(
            id=f"parameters-{key}",
            article="handbook",
            section="2.2",
            text=Text(f"Parameters of {english} (Llama-3-8B)", f"{chinese}的参数量（Llama-3-8B）"),
            unit="count",
            printed=f"{printed} = {figure:,}",
            published=exactly(figure),
            ours=partial(lambda endings: one(_linear(LLAMA_3_8B, *endings)), endings),
            reason=reason,
            source=CONFIGURATION,
        )
    for key, english, chinese, role in (
        ("embedding", "the token embedding", "词嵌入", Role.EMBEDDING),
        ("head", "the LM head", "LM Head", Role.LM_HEAD),
    ):
        yield Claim(
            id=f"parameters-{key}",
            article="handbook",
            section="2.2",
            text=Text(f"Parameters of {english} (Llama-3-8B)", f"{chinese}的参数量（Llama-3-8B）"),
            unit="count",
            printed=f"vocab x D = {vocabulary * width:,}",
            published=exactly(vocabulary * width),
            ours=partial(lambda role: one(_ends(model(LLAMA_3_8B), role)), role),
            source=CONFIGURATION,
        )
    yield Claim(
        id="parameters-ffn-width",
        article="handbook",
        section="2.2",
        text=Text("The feed-forward layer is 4 D wide", "前馈层宽度为 4D"),
        unit="ratio",
        printed="4",
        published=exactly(4),
        ours=lambda: [
            Case(
                prod(layer_weights(name, "down_proj")[0].shape) / model(name).hidden_size ** 2,
                short(name),
            )
            for name in (LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B)
        ],
        reason=wide,
        source=CONFIGURATION,
    )
    yield Claim(
        id="parameters-tied-head",
        article="handbook",
        section="2.2",
        text=Text("The LM head may be the embedding itself", "LM Head 可与词嵌入共享"),
        unit="truth",
        ours=lambda: holds(
            model("Qwen/Qwen2.5-0.5B").tied_embeddings and not model(LLAMA_3_8B).tied_embeddings
        ),
        source=CONFIGURATION,
    )


def _shrinks() -> Iterator[Claim]:
    for layout, name, printed, low, high in (
        ("fp8", "FP8", "50%", 0.5, 0.5),
        ("llm_int8", "INT8, LLM.int8()", "50%", 0.5, 0.5),
        ("gptq", "INT4, GPTQ", "75%", 0.75, 0.75),
        ("awq", "INT4, AWQ", "75%", 0.75, 0.75),
        ("nf4", "NF4, bitsandbytes", "75%", 0.75, 0.75),
    ):
        yield Claim(
            id=f"shrinks-{layout.replace('_', '-')}",
            article="handbook",
            section="7.1",
            text=Text(f"What {name} saves of the weights' memory", f"{name} 缩减的参数显存"),
            unit="share",
            printed=printed,
            published=Span(low, high),
            ours=partial(
                lambda layout: [
                    Case(1 - weights(model_name, layout) / weights(model_name), short(model_name))
                    for model_name in (LLAMA_3_8B, LLAMA_3_70B)
                ],
                layout,
            ),
            reason=_SCALES,
            source=_METHODS,
        )


def _mixed(name: str) -> float:
    """Share of the bytes that INT8 feed-forward layers save where the rest stays FP16."""
    spec = model(name)
    wide = sum(
        count * weight.parameters
        for section, weight, count in spec.all_weights()
        if section == "layers" and weight.name.startswith("mlp.")
    )
    return wide / (2 * spec.parameters_total)


def _mixes() -> Iterator[Claim]:
    yield Claim(
        id="shrinks-mixed",
        article="handbook",
        section="7.1",
        text=Text(
            "What mixed FP16 and INT8 save of the weights' memory (feed-forward layers in INT8)",
            "混合精度（FP16 + INT8）缩减的参数显存（前馈层用 INT8）",
        ),
        unit="share",
        printed="30% - 40%",
        published=Span(0.3, 0.4),
        ours=lambda: [Case(_mixed(name), short(name)) for name in (LLAMA_3_8B, LLAMA_3_70B)],
        source=CONFIGURATION,
    )


def _case_shares() -> Iterator[Claim]:
    yield Claim(
        id="weights-70b-on-8",
        article="handbook",
        section="2.3",
        text=Text("FP16 weights of a 70B model on each of 8 cards", "70B-FP16 在 8 卡上每卡的权重"),
        unit="gigabytes",
        printed="17.5 GB",
        published=exactly(17.5e9),
        ours=lambda: one(the_case().governing_stage.weights_bytes),
        reason=Text(
            "70.55 billion parameters, and norms are on every card.",
            "参数为 705.5 亿，且归一化层每卡都有一份。",
        ),
        source="vLLM 0.33, weights as its loader divides them",
    )
    yield Claim(
        id="weights-divided-by-tp",
        article="handbook",
        section="2.3",
        text=Text(
            "A card's weights are all weights over TP, as a share of that quotient",
            "单卡参数显存 = 总参数显存 / TP（与该商之比）",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: [
            Case(
                deployed(LLAMA_3_70B, "h200", tp=tp, context=4096).governing_stage.weights_bytes
                * tp
                / weights(LLAMA_3_70B),
                f"TP={tp}",
            )
            for tp in (2, 4, 8)
        ],
        source="vLLM 0.33, weights as its loader divides them",
    )
    yield Claim(
        id="moe-holds-active-only",
        article="handbook",
        section="12",
        text=Text(
            "A mixture of experts holds only its active experts in memory (DeepSeek-V3, 16 bits)",
            "MoE 的参数显存仅为活跃专家部分（DeepSeek-V3，16 位）",
        ),
        unit="gigabytes",
        printed=Text("74 GB (37B active)", "74 GB（激活 37B）"),
        published=exactly(74e9),
        ours=lambda: one(model(DEEPSEEK_V3).parameters_total * 2),
        reason=Text(
            "Any token may be routed to any expert, so all are resident; only reads and "
            "multiplications follow the active ones.",
            "任何 token 都可能被路由到任何专家，因此全部常驻；只有读取量与计算量取决于活跃专家。",
        ),
        source=CONFIGURATION,
    )
    yield Claim(
        id="moe-reads-active",
        article="handbook",
        section="9.1",
        text=Text(
            "37 of DeepSeek-V3's 671 billion parameters are active",
            "DeepSeek-V3 的 671B 参数中 37B 被激活",
        ),
        unit="parameters",
        printed="37B",
        published=exactly(37e9),
        ours=lambda: one(model(DEEPSEEK_V3).parameters_active),
        reason=Text(
            "37.5 with the embedding, which the usual figure leaves out in part.",
            "含词嵌入为 37.5B，通常的数字没有全部计入。",
        ),
        source=CONFIGURATION,
    )


CLAIMS: Final = (
    *_sizes(),
    *_types(),
    *_components(),
    *_case_shares(),
    *_shrinks(),
    *_mixes(),
)
