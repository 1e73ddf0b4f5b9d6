"""The KV cache: bytes of a token and a request, heads, turns, types of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import (
    A100,
    CASE_TOKENS,
    CONFIGURATION,
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    attention,
    deployed,
    kv,
    model,
    short,
    the_case,
    weights,
)
from tokenroom.memory.kv_cache import attention_bytes_per_token
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.units import GIB, KIB

EIGHT_HEADS: Final = Text(
    "Keys and values have 8 heads of 128, not the 8,192 of the hidden state: 2 x 80 x 8 x 128 x "
    "tokens x 2 bytes.",
    "K、V 只有 8 个 128 维的头，而不是隐藏维度 8192：2×80×8×128×token 数×2 字节。",
)


def _llama_2() -> Iterator[Claim]:
    yield Claim(
        id="kv-7b-token-layer",
        article="ledger",
        section="2.1",
        text=Text(
            "KV of a token in a layer of Llama-2-7B, FP16",
            "Llama-2-7B 每 token 每层的 KV，FP16",
        ),
        unit="bytes",
        printed="16 KB",
        published=exactly(16 * KIB),
        ours=lambda: one(attention_bytes_per_token(attention(LLAMA_2_7B), "float16")),
        source=CONFIGURATION,
    )
    for key, tokens, printed, figure in (
        ("token", 1, "512 KB", 512 * KIB),
        ("4k", 4096, "2 GB", 2 * GIB),
        ("8k", 8192, "4 GB", 4 * GIB),
        ("32k", 32768, "16 GB", 16 * GIB),
    ):
        yield Claim(
            id=f"kv-7b-{key}",
            article="ledger",
            section="2.1",
            text=Text(
                f"KV of {tokens:,} {'token' if tokens == 1 else 'tokens'} of Llama-2-7B, FP16",
                f"Llama-2-7B {tokens:,} 个 token 的 KV，FP16",
            ),
            unit="bytes",
            printed=printed,
            published=exactly(figure),
            ours=partial(lambda tokens: one(kv(LLAMA_2_7B, tokens)), tokens),
            source=CONFIGURATION,
        )
    yield Claim(
        id="kv-exceeds-weights-at-32k",
        article="ledger",
        section="1.1",
        text=Text(
            "At 32K tokens the KV of one request exceeds the weights of a 7B model",
            "32K 上下文时单请求 KV 超过 7B 模型的权重",
        ),
        unit="truth",
        ours=lambda: holds(kv(LLAMA_2_7B, 32768) > weights(LLAMA_2_7B) > kv(LLAMA_2_7B, 4096)),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-over-int4-weights",
        article="ledger",
        section="4.2",
        text=Text(
            "With INT4 weights and 32K tokens of KV a 7B model still takes a lot: both together",
            "权重压缩到 INT4 后，加上 32K 的 KV，7B 模型总占用依然很高：两者合计",
        ),
        unit="gigabytes",
        printed="16 GB + 4 GB",
        published=exactly(20e9),
        ours=lambda: one(kv(LLAMA_2_7B, 32768) + weights(LLAMA_2_7B, "awq")),
        reason=Text("16 GiB, which are 17.2 GB, and 3.9 GB.", "16 GiB 即 17.2 GB，加 3.9 GB。"),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-meeting-notes",
        article="ledger",
        section="2.2",
        text=Text(
            "A prompt of 5,000 tokens takes as many times the room as 200 tokens of answer",
            "5000 token 的提示所占空间是 200 token 回答的多少倍",
        ),
        unit="ratio",
        printed="5000 / 200",
        published=exactly(25),
        ours=lambda: one(kv(LLAMA_2_7B, 5000) / kv(LLAMA_2_7B, 200)),
        source=CONFIGURATION,
    )


def _llama_3() -> Iterator[Claim]:
    for batch, printed, gib in ((1, "10 GB", 10), (16, "160 GB", 160), (64, "640 GB", 640)):
        yield Claim(
            id=f"kv-70b-4096-x{batch}",
            article="handbook",
            section="3.4",
            text=Text(
                f"KV of {batch} {'request' if batch == 1 else 'requests'} of 4,096 tokens of "
                "Llama-3-70B, FP16",
                f"Llama-3-70B {batch} 个 4096 token 请求的 KV，FP16",
            ),
            unit="bytes",
            printed=printed,
            published=exactly(gib * GIB),
            ours=partial(lambda batch: one(batch * kv(LLAMA_3_70B, CASE_TOKENS)), batch),
            reason=EIGHT_HEADS,
            source=CONFIGURATION,
        )


def _heads() -> Iterator[Claim]:
    def share(*names: str) -> Cases:
        return [
            Case(attention(name).num_kv_heads / attention(name).num_heads, short(name))
            for name in names
        ]

    yield Claim(
        id="kv-mha",
        article="handbook",
        section="3.3",
        text=Text(
            "MHA keeps as many KV heads as query heads", "MHA 的 KV 头数等于查询头数（100%）"
        ),
        unit="share",
        printed="100%",
        published=exactly(1),
        ours=lambda: share(LLAMA_2_7B, "meta-llama/Llama-2-13b-hf"),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-gqa",
        article="handbook",
        section="3.3",
        text=Text(
            "GQA divides the KV cache by 2 to 8 (Llama-2-70B, Llama-3)",
            "GQA 使 KV 缓存缩小到 1/2 ~ 1/8（LLaMA-2-70B、LLaMA-3）",
        ),
        unit="share",
        printed="1/2 - 1/8",
        published=Span(1 / 8, 1 / 2),
        ours=lambda: share("meta-llama/Llama-2-70b-hf", LLAMA_3_8B, LLAMA_3_70B),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-gqa-beyond",
        article="handbook",
        section="3.3",
        text=Text(
            "GQA divides the KV cache by 2 to 8 (models since)",
            "GQA 使 KV 缓存缩小到 1/2 ~ 1/8（此后的模型）",
        ),
        unit="share",
        printed="1/2 - 1/8",
        published=Span(1 / 8, 1 / 2),
        ours=lambda: share("Qwen/Qwen2.5-7B", "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B"),
        reason=Text(
            "Qwen3-235B-A22B has 4 KV heads for 64 query heads.",
            "Qwen3-235B-A22B 的 64 个查询头共用 4 个 KV 头。",
        ),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-falcon-mqa",
        article="handbook",
        section="3.3",
        text=Text("Falcon has one KV head (MQA)", "Falcon 只有一个 KV 头（MQA）"),
        unit="count",
        printed="1",
        published=exactly(1),
        ours=lambda: [
            Case(attention(name).num_kv_heads, short(name))
            for name in ("tiiuae/falcon-7b", "tiiuae/falcon-40b")
        ],
        reason=Text(
            "Falcon-7B has one, Falcon-40B has 8: read the configuration.",
            "Falcon-7B 有 1 个，Falcon-40B 有 8 个：以配置为准。",
        ),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-heads-enter",
        article="ledger",
        section="2.1",
        text=Text(
            "The cache shrinks from the hidden size to KV heads x head width (Llama-3-70B)",
            "KV 从隐藏维度缩水到“KV 头数 × 头维度”（Llama-3-70B）",
        ),
        unit="ratio",
        printed="8 x 128 / 8192",
        published=exactly(1 / 8),
        ours=lambda: one(kv(LLAMA_3_70B, 1000) / (2 * 80 * 8192 * 1000 * 2)),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-formula-hidden-size",
        article="handbook",
        section="3.2",
        text=Text(
            "KV = 2 x layers x D x tokens x bytes: ours over that formula",
            "KV = 2 × 层数 × D × token 数 × 字节数：我们的结果与该公式之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: [
            Case(kv(name, 1024) / (2 * layers * width * 1024 * 2), short(name))
            for name, layers, width in (
                (LLAMA_2_7B, 32, 4096),
                (LLAMA_3_8B, 32, 4096),
                (LLAMA_3_70B, 80, 8192),
                ("google/gemma-2-9b", 42, 3584),
            )
        ],
        reason=Text(
            "Only with as many KV heads as query heads, and heads that together are D wide; "
            "otherwise kv_heads x head_dim of the configuration enters.",
            "仅当 KV 头数等于查询头数且各头合计宽度为 D 时成立；否则应代入配置中的 "
            "kv_heads×head_dim。",
        ),
        source=CONFIGURATION,
    )


def _left_out() -> Iterator[Claim]:
    yield Claim(
        id="kv-other-kinds",
        article="handbook",
        section="3.3",
        text=Text(
            "Attention that the article leaves out (MLA, windows, linear layers): KV of 32,768 "
            "tokens over 2 x layers x D x tokens x bytes",
            "文章未涉及的注意力（MLA、滑动窗口、线性层）：32,768 token 的 KV 与 2×层数×D×token 数×"
            "字节数之比",
        ),
        unit="share",
        published=None,
        ours=lambda: [
            Case(
                kv(name, 32768, "bfloat16")
                / (2 * model(name).num_layers * model(name).hidden_size * 32768 * 2),
                short(name),
            )
            for name in (
                "deepseek-ai/DeepSeek-V3",
                "google/gemma-3-27b-it",
                "mistralai/Mistral-7B-v0.1",
                "Qwen/Qwen3-Next-80B-A3B-Instruct",
            )
        ],
        source=CONFIGURATION,
    )


def _turns() -> Iterator[Claim]:
    def kept_over_formula() -> Cases:
        """Tokens kept after the fifth turn, over prompt + turns x answer."""
        said = parse_workload("constant:rate=1,turns=5,think=1s,input=200,output=300,requests=50")
        last = max(request.prompt_tokens + request.output_tokens for request in said)
        return one(last / (200 + 5 * 300))

    yield Claim(
        id="kv-turns",
        article="handbook",
        section="3.5",
        text=Text(
            "After t turns the KV is that of the first prompt and t answers: tokens kept over "
            "that (5 turns of 200 in, 300 out)",
            "第 t 轮后的 KV 为首个提示加 t 次回答：实际保留的 token 与之比（5 轮，每轮输入 200、输"
            "出 300）",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=kept_over_formula,
        reason=Text(
            "The user's messages of later turns stay as well: input(n) = input(n-1) + output(n-1) "
            "+ message(n).",
            "后续各轮的用户消息同样保留：input(n) = input(n-1) + output(n-1) + message(n)。",
        ),
        source="templates of chat models repeat the whole conversation; serving/workloads",
    )
    yield Claim(
        id="kv-upper-bound",
        article="ledger",
        section="3.2",
        text=Text(
            "Longest context x requests x bytes of a token is the bound of the cache: what a long "
            "request keeps, over it",
            "最大上下文 × 并发 × 单 token 字节是 KV 的上界：长请求实际保留量与之比",
        ),
        unit="ratio",
        printed="1",
        published=Span(0, 1),
        ours=lambda: [
            Case(kv(name, 32768) / (32768 * kv(name, 1)), short(name))
            for name in (LLAMA_3_8B, "google/gemma-3-27b-it")
        ],
        reason=Text(
            "A bound; layers with a window keep less.", "这是上界；带滑动窗口的层保留得更少。"
        ),
        source=CONFIGURATION,
    )
    yield Claim(
        id="kv-fp8-halves",
        article="ledger",
        section="4.2",
        text=Text(
            "An FP8 cache halves the memory of long contexts", "KV 缓存用 FP8 使长上下文显存减半"
        ),
        unit="ratio",
        printed="1/2",
        published=exactly(0.5),
        ours=lambda: [
            Case(kv(LLAMA_2_7B, 32768, "fp8") / kv(LLAMA_2_7B, 32768), "Llama-2-7B"),
            Case(
                kv(LLAMA_2_7B, 32768, "fp8_per_token_head") / kv(LLAMA_2_7B, 32768),
                Text("with a scale for each token and head", "每 token 每头一个缩放因子"),
            ),
        ],
        reason=Text("Scales come on top.", "缩放因子另计。"),
        source="vLLM 0.32 v1/attention/backends/triton_attn.py",
    )


def _growth() -> Iterator[Claim]:
    def pool_per_request(requests: int) -> float:
        return requests * deployed(LLAMA_2_7B, A100, context=4096).plan.kv_bytes_of(4096)

    yield Claim(
        id="growth-kv-32",
        article="ledger",
        section="1",
        text=Text(
            "From 1 to 32 requests the KV cache grows linearly: by",
            "并发从 1 到 32，KV 线性增长：倍数",
        ),
        unit="ratio",
        printed="32",
        published=exactly(32),
        ours=lambda: one(pool_per_request(32) / pool_per_request(1)),
        source="vLLM 0.33, whole blocks",
    )
    yield Claim(
        id="growth-weights-32",
        article="ledger",
        section="1",
        text=Text(
            "From 1 to 32 requests the weights do not grow: by", "并发从 1 到 32，权重不变：倍数"
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            deployed(
                LLAMA_2_7B, A100, engine="transformers", context=4096, concurrency=32
            ).governing_stage.weights_bytes
            / deployed(
                LLAMA_2_7B, A100, engine="transformers", context=4096, concurrency=1
            ).governing_stage.weights_bytes
        ),
        source="transformers 5.24",
    )
    yield Claim(
        id="growth-batch-times-length",
        article="handbook",
        section="6.2",
        text=Text(
            "In a fixed pool B x S is constant: requests x tokens at 16K over those at 2K",
            "固定 KV 预算下 B×S 为常数：16K 与 2K 时“请求数 × 长度”之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            the_case().plan.requests_of(16384) * 16384 / (the_case().plan.requests_of(2048) * 2048)
        ),
        reason=Text("Whole requests.", "请求数取整。"),
        source="vLLM 0.33",
    )
    yield Claim(
        id="capacity-128-to-16",
        article="ledger",
        section="3.2",
        text=Text(
            "128 requests at 2,048 tokens become 16 at 8,000: fewer by",
            "2048 长度可容纳 128 并发，8000 长度降到 16：减少倍数",
        ),
        unit="ratio",
        printed="128 / 16",
        published=exactly(8),
        ours=lambda: one(the_case().plan.requests_of(2048) / the_case().plan.requests_of(8000)),
        reason=Text(
            "In one pool the number falls as the length rises: 8,000 / 2,048 = 3.9. The other "
            "half of that fall is no KV cache: lengths that vary, or room that was reserved.",
            "同一个池中请求数与长度成反比：8000/2048 = 3.9。其余的下降与 KV 无关：长度波动或预留空"
            "间。",
        ),
        source="vLLM 0.33",
    )
    yield Claim(
        id="kv-overtakes-weights",
        article="handbook",
        section="6.7",
        text=Text(
            "The KV cache exceeds the weights from a batch of about 8 on (4,096 tokens)",
            "批大小约超过 8 时 KV 超过权重（4096 token）",
        ),
        unit="count",
        printed="8",
        published=exactly(8),
        ours=lambda: [
            Case(-(-weights(name) // kv(name, CASE_TOKENS)), short(name))
            for name in (LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B)
        ],
        reason=Text(
            "Weights over the KV of a request: about so without GQA, which moves it up by what it "
            "saves.",
            "权重除以单请求 KV：没有 GQA 时大致如此；GQA 节省多少，该值就提高多少。",
        ),
        source=CONFIGURATION,
    )


CLAIMS: Final = (*_llama_2(), *_llama_3(), *_heads(), *_left_out(), *_turns(), *_growth())
