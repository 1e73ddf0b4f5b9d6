"""Several cards: what tensor and pipeline parallelism divide, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tokenroom.claims.claim import Case, Claim, Text, exactly, one
from tokenroom.claims.subjects import (
    A100,
    LLAMA_3_8B,
    LLAMA_3_70B,
    attention,
    case_speed,
    deployed,
    kv,
    model,
    short,
)
from tokenroom.memory.kv_cache import attention_bytes_per_token
from tokenroom.performance.work import Kind
from tokenroom.serving_speed import ServingSpeed, speed_of

_COLLECTIVES: Final = frozenset({Kind.ALL_REDUCE, Kind.ALL_GATHER})
_MEASURED: Final = "measured collectives of each link: performance/data/efficiency.json"


def _alone(name: str, gpu: str, tp: int) -> ServingSpeed:
    """One client with prompts of 512 tokens and answers of 128."""
    return speed_of(
        deployed(name, gpu, tp=tp, context=4096),
        input_tokens=512,
        output_tokens=128,
        concurrency=1,
    )


def _collective_seconds(found: ServingSpeed) -> float:
    return sum(line.seconds for line in found.decode.lines if line.kind in _COLLECTIVES)


def _claims() -> Iterator[Claim]:
    yield Claim(
        id="tp-divides-kv",
        article="ledger",
        section="4.3",
        text=Text(
            "TP divides the KV cache by head over cards: TP x a card's share over the whole "
            "(Llama-3-70B)",
            "TP 按头切分 KV 缓存：TP × 单卡占用 / 总量（Llama-3-70B）",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: [
            Case(
                tp
                * attention_bytes_per_token(
                    attention(LLAMA_3_70B), "bfloat16", tensor_parallel_size=tp
                )
                / attention_bytes_per_token(attention(LLAMA_3_70B), "bfloat16"),
                f"TP={tp}",
            )
            for tp in (2, 4, 8, 16)
        ],
        reason=Text(
            "Never below one KV head a card: 8 heads over 16 cards are kept twice.",
            "每卡至少一个 KV 头：8 个头分到 16 卡时各存两份。",
        ),
        source="vLLM 0.33 config/model.py get_num_kv_heads",
    )
    yield Claim(
        id="pp-keeps-whole-kv",
        article="ledger",
        section="4.3",
        text=Text(
            "With PP each layer keeps its whole KV cache, so that a card saves nothing: bytes of a "
            "token in a stage of two, over all",
            "PP 时每层仍保留完整 KV，因此单卡并不节省：两级时单级每 token 字节与总量之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            deployed(LLAMA_3_8B, A100, pp=2, context=8192).governing_stage.kv_bytes_per_token
            / kv(LLAMA_3_8B, 1)
        ),
        reason=Text(
            "A stage keeps KV of its own layers; micro-batches under way share that room.",
            "每级只保留自己各层的 KV；在途的微批共用这部分空间。",
        ),
        source="vLLM 0.33 v1/core/kv_cache_utils.py",
    )
    yield Claim(
        id="tp-all-reduces",
        article="ledger",
        section="4.3",
        text=Text(
            "TP pays an all-reduce after the attention of each layer: all-reduces a layer",
            "TP 在每层 attention 后做一次 all-reduce：每层次数",
        ),
        unit="count",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            round(
                next(
                    line.message_bytes
                    for line in case_speed(1).decode.lines
                    if line.kind is Kind.ALL_REDUCE
                )
                / (model(LLAMA_3_70B).hidden_size * 2)
                / model(LLAMA_3_70B).num_layers
            )
        ),
        reason=Text(
            "Two: after the output projection of attention and after that of the feed-forward "
            "block (and one after the embedding).",
            "两次：注意力输出投影之后与前馈层降维之后各一次（词嵌入之后另有一次）。",
        ),
        source="Megatron-LM (Shoeybi et al., 2019), section 3; vLLM 0.33 layers/linear.py "
        "RowParallelLinear",
    )
    yield Claim(
        id="tp-pcie-dearer",
        article="ledger",
        section="4.3",
        text=Text(
            "Over PCIe the messages of a step take longer than its computing",
            "经 PCIe 互联时单步通信比计算还慢",
        ),
        unit="truth",
        ours=lambda: [
            Case(float(_collective_seconds(found) > found.decode.time.seconds / 2), name)
            for name, found in (
                ("Llama-3-8B, 2 x l40s, 1", _alone(LLAMA_3_8B, "l40s", 2)),
                ("Llama-3-8B, 2 x a100-pcie, 1", _alone(LLAMA_3_8B, "a100-pcie-80gb", 2)),
                ("Llama-3-70B, 8 x a100-pcie, 32", _batch_of_32("a100-pcie-80gb")),
                ("Llama-3-70B, 8 x a100-sxm, 32", _batch_of_32(A100)),
            )
        ],
        reason=Text(
            "Of eight cards it does, of two it takes a part of the step; with NVLink a fifth of "
            "it.",
            "八卡时确实如此；两卡时只占一步的一部分；NVLink 下约占五分之一。",
        ),
        source=_MEASURED,
    )
    yield Claim(
        id="tp-pcie-share",
        article="ledger",
        section="4.3",
        text=Text(
            "Share of a decode step that messages take at TP=8, a batch of 32, Llama-3-70B (the "
            "article gives none)",
            "TP=8、批大小 32、Llama-3-70B 时通信占解码一步的比例（文章未给出）",
        ),
        unit="share",
        published=None,
        ours=lambda: [
            Case(_collective_seconds(found) / found.decode.time.seconds, gpu)
            for gpu in ("a100-pcie-80gb", A100, "h100")
            for found in [_batch_of_32(gpu)]
        ],
        source=_MEASURED,
    )
    yield Claim(
        id="tp-pair-gains-nothing",
        article="ledger",
        section="4.3",
        text=Text(
            "At a small batch two cards may be no faster than one (TPOT of one client)",
            "小 batch 下双卡 TP 可能不比单卡快（单客户端 TPOT）",
        ),
        unit="truth",
        ours=lambda: [
            Case(
                float(
                    _alone(name, gpu, 2).tpot_seconds.value
                    >= _alone(name, gpu, 1).tpot_seconds.value
                ),
                f"{short(name)}, {gpu}",
            )
            for name in ("Qwen/Qwen2.5-0.5B", LLAMA_3_8B)
            for gpu in ("l40s", "h100")
        ],
        reason=Text(
            "Of models so small that the host sets the pace; at 8B reading half the weights saves "
            "more than the messages cost.",
            "模型小到由主机决定速度时如此；8B 时少读一半权重的收益大于通信开销。",
        ),
        source=_MEASURED,
    )


def _batch_of_32(gpu: str) -> ServingSpeed:
    """Llama-3-70B on eight cards with 32 clients."""
    return speed_of(
        deployed(LLAMA_3_70B, gpu, tp=8, context=4096),
        input_tokens=512,
        output_tokens=128,
        concurrency=32,
    )


CLAIMS: Final = tuple(_claims())
