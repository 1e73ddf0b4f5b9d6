"""TTFT, TPOT and throughput by batch, and the regimes of a load."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import (
    A100,
    LLAMA_3_8B,
    LLAMA_3_70B,
    case_speed,
    deployed,
    model,
)
from tokenroom.lookup.recipe import length_for, percentile, recipe
from tokenroom.objectives import load_limits
from tokenroom.regimes import regimes_of
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving_speed import ServingSpeed, speed_of

_QWEN_7B: Final = "Qwen/Qwen2.5-7B"
_LLAMA_3_1_70B: Final = "meta-llama/Meta-Llama-3.1-70B"
_STEPS: Final = "step-time model over measured operators (docs/speed.md)"
_ARTICLE_TPOT_SECONDS: Final = 43 * 80 * 8192 * 2 / 16e12
"""The handbook's expression for a step of 43 requests: B x N x D x 2 over 8 x 2 TB/s."""


def _case_tpot() -> Iterator[Claim]:
    reads = Text(
        "A step must read the weights (141 GB / 8 cards / 2.04 TB/s = 8.7 ms) and the KV of the "
        "batch, and pays for all-reduces and launches.",
        "一步至少要读取权重（141 GB / 8 卡 / 2.04 TB/s = 8.7 ms）和整批的 KV，还有 all-reduce 与启"
        "动开销。",
    )
    yield Claim(
        id="tpot-expression",
        article="handbook",
        section="6.6",
        text=Text(
            "Step 4: what (43 x 80 x 8192 x 2) / (2 TB/s x 8) is",
            "步骤 4：(43×80×8192×2)/(2 TB/s×8) 的值",
        ),
        unit="seconds",
        printed="56.3 ms",
        published=exactly(0.0563),
        ours=lambda: one(_ARTICLE_TPOT_SECONDS),
        reason=Text(
            "The expression is 3.5 microseconds; it leaves the weights out.",
            "该式实为 3.5 微秒，且漏掉了权重。",
        ),
        source="arithmetic",
    )
    yield Claim(
        id="tpot-floor",
        article="handbook",
        section="6.6",
        text=Text(
            "Step 4: the least a token can take there", "步骤 4：该配置下每 token 的物理下限"
        ),
        unit="seconds",
        published=None,
        ours=lambda: one(
            load_limits(case_speed(1), tpot_seconds=_ARTICLE_TPOT_SECONDS).unmet[0].floor.seconds
        ),
        source=_STEPS,
    )
    yield Claim(
        id="tpot-case",
        article="handbook",
        section="6.6",
        text=Text(
            "Step 4: TPOT of 43 requests at once (3,072 tokens in, 1,024 out)",
            "步骤 4：43 路并发的 TPOT（输入 3072、输出 1024）",
        ),
        unit="seconds",
        printed="56.3 ms",
        published=exactly(0.0563),
        ours=lambda: [
            Case(case_speed(43).decode.time.seconds, Text("a decode step", "一个解码步")),
            Case(
                case_speed(43).tpot_seconds.value,
                Text("with prompts between", "含其间的提示计算"),
            ),
        ],
        reason=reads,
        source=_STEPS,
    )
    yield Claim(
        id="tpot-case-slo",
        article="handbook",
        section="6.6",
        text=Text("It keeps a promise of 100 ms", "满足交互式 SLO（< 100 ms）"),
        unit="truth",
        ours=lambda: holds(case_speed(43).tpot_seconds.value < 0.1),
        source=_STEPS,
    )


def _by_batch() -> Iterator[Claim]:
    rises = Text(
        "The weights are read once for the whole batch, so throughput rises with it until KV "
        "reads, computing or prompts dominate.",
        "一批只读一次权重，因此吞吐随批增大，直到 KV 读取、计算或提示占主导。",
    )
    yield Claim(
        id="throughput-independent-of-batch",
        article="handbook",
        section="6.4",
        text=Text(
            "Tokens a second are bandwidth / (D x N), whatever the batch: throughput of 64 over "
            "that of 1",
            "吞吐 ≈ 带宽/(D×N)，与 B 无关：64 路与 1 路吞吐之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            case_speed(64).output_tokens_per_second.value
            / case_speed(1).output_tokens_per_second.value
        ),
        reason=rises,
        source=_STEPS,
    )
    yield Claim(
        id="tpot-proportional-to-batch",
        article="handbook",
        section="6.4",
        text=Text(
            "TPOT is proportional to the batch: that of 64 over that of 1",
            "TPOT 与 B 成正比：64 路与 1 路 TPOT 之比",
        ),
        unit="ratio",
        printed="64",
        published=exactly(64),
        ours=lambda: one(case_speed(64).tpot_seconds.value / case_speed(1).tpot_seconds.value),
        reason=rises,
        source=_STEPS,
    )
    yield Claim(
        id="tpot-rises-with-batch",
        article="handbook",
        section="6.4",
        text=Text("TPOT rises with the batch", "TPOT 与 decode batch 正相关"),
        unit="truth",
        ours=lambda: holds(
            case_speed(1).tpot_seconds.value
            < case_speed(16).tpot_seconds.value
            < case_speed(64).tpot_seconds.value
        ),
        source=_STEPS,
    )
    yield Claim(
        id="ttft-proportional-to-prompt",
        article="handbook",
        section="6.4",
        text=Text(
            "TTFT is proportional to the prompt: that of 32K over that of 4K (Llama-3.1-8B, A100)",
            "TTFT 与提示长度成正比：32K 与 4K 之比（Llama-3.1-8B，A100）",
        ),
        unit="ratio",
        printed="8",
        published=exactly(8),
        ours=lambda: one(_ttft(32768) / _ttft(4096)),
        reason=Text(
            "Attention grows with the square of the prompt.", "注意力随提示长度的平方增长。"
        ),
        source=_STEPS,
    )
    yield Claim(
        id="throughput-rises",
        article="handbook",
        section="6.4",
        text=Text(
            "Throughput rises with the batch, and flattens: of 8, 64 and 256 over that of 1",
            "吞吐随 B 增大并趋于饱和：8、64、256 路与 1 路之比",
        ),
        unit="ratio",
        published=None,
        ours=lambda: [
            Case(
                case_speed(batch).output_tokens_per_second.value
                / case_speed(1).output_tokens_per_second.value,
                str(batch),
            )
            for batch in (8, 64, 256)
        ],
        source=_STEPS,
    )
    yield Claim(
        id="slo-largest-batch",
        article="handbook",
        section="6.4",
        text=Text(
            "The largest batch within a TPOT of 50 ms is 50 ms / C, C being that of one: ours "
            "over that",
            "TPOT 50ms 下最大批 = 50ms / C（C 为单请求 TPOT）：实际值与之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            load_limits(case_speed(1), tpot_seconds=0.05).load.concurrency
            / (0.05 / case_speed(1).tpot_seconds.value)
        ),
        reason=rises,
        source=_STEPS,
    )


def _ttft(tokens: int) -> float:
    found = speed_of(
        deployed("llama-3.1-8b", A100, context=40960),
        input_tokens=tokens,
        output_tokens=16,
        concurrency=1,
    )
    return found.ttft_seconds.value


def _deployments() -> tuple[tuple[str, ServingSpeed], ...]:
    def of(name: str, gpu: str, **settings: int) -> ServingSpeed:
        return speed_of(
            deployed(name, gpu, context=4096, **settings),
            input_tokens=1024,
            output_tokens=256,
            concurrency=1,
        )

    return (
        ("Llama-3-8B, L40S", of(LLAMA_3_8B, "l40s")),
        ("Llama-3-8B, A100", of(LLAMA_3_8B, A100)),
        ("Llama-3-70B, 8 x A100", of(LLAMA_3_70B, A100, tp=8)),
        ("Llama-3-70B, 8 x H100", of(LLAMA_3_70B, "h100", tp=8)),
    )


def _regimes() -> Iterator[Claim]:
    def end(kind: str) -> Cases:
        found = []
        for name, speed in _deployments():
            ends = {regime: last for regime, _, last in regimes_of(speed).spans}
            found.append(Case(ends.get(kind) or 0, name))
        return found

    varies = Text(
        "Where throughput stops rising with the batch depends on model, card and lengths; "
        "overload begins where requests wait for room.",
        "吞吐何时不再随批增长取决于模型、显卡与长度；请求开始等待空间即进入过载。",
    )
    for kind, english, chinese, last in (
        ("latency", "latency", "延迟优化", 4),
        ("balanced", "balanced", "均衡", 32),
        ("throughput", "throughput", "吞吐优化", 128),
    ):
        yield Claim(
            id=f"regime-{kind}",
            article="handbook",
            section="6.5",
            text=Text(
                f"The largest batch of the regime of {english} (1,024 tokens in, 256 out)",
                f"“{chinese}”区间的最大批（输入 1024、输出 256）",
            ),
            unit="count",
            printed=f"{last}",
            published=exactly(last),
            ours=partial(end, kind),
            reason=varies,
            source="regimes.py",
        )
    yield Claim(
        id="regime-overload-falls",
        article="handbook",
        section="6.5",
        text=Text(
            "Beyond 128 throughput falls: that of 256 below that of 128",
            "批超过 128 后吞吐下降：256 路低于 128 路",
        ),
        unit="truth",
        ours=lambda: [
            Case(
                float(
                    speed.at(256).output_tokens_per_second.value
                    < speed.at(128).output_tokens_per_second.value
                ),
                name,
            )
            for name, speed in _deployments()
        ],
        reason=Text(
            "Requests beyond the pool wait; throughput stays where it is.",
            "超出 KV 池的请求只是排队，吞吐保持不变。",
        ),
        source=_STEPS,
    )


def _scenarios() -> Iterator[Claim]:
    """max_num_seqs of the handbook's scenarios, by the recipe on usual cards."""
    for key, english, chinese, name, layout, workload, gpus, low, high, tpot in (
        (
            "chat",
            "real-time chat, 8B-INT4",
            "实时聊天 8B-INT4",
            LLAMA_3_8B,
            "awq",
            "chat",
            (("4090", 1), ("l40s", 1)),
            4,
            8,
            0.03,
        ),
        (
            "code",
            "code completion, 7B-FP16",
            "代码补全 7B-FP16",
            _QWEN_7B,
            None,
            "code-completion",
            (("l40s", 1), (A100, 1)),
            16,
            32,
            0.05,
        ),
        (
            "documents",
            "document analysis, 70B-FP16",
            "文档分析 70B-FP16",
            LLAMA_3_70B,
            None,
            "document-analysis",
            ((A100, 4), (A100, 8)),
            8,
            16,
            0.1,
        ),
        (
            "offline",
            "offline batches, any model",
            "离线批量推理",
            LLAMA_3_8B,
            None,
            "offline-batch",
            (("l40s", 1), (A100, 1)),
            64,
            128,
            None,
        ),
        (
            "api",
            "API aggregation, 70B-INT4",
            "API 聚合服务 70B-INT4",
            _LLAMA_3_1_70B,
            "awq",
            "api-aggregation",
            ((A100, 2), (A100, 4)),
            32,
            64,
            0.05,
        ),
    ):
        yield Claim(
            id=f"scenario-{key}",
            article="handbook",
            section="6.5",
            text=Text(
                f"max_num_seqs for {english}"
                + (f" (promise: TPOT {tpot * 1e3:g} ms)" if tpot else ""),
                f"{chinese} 的推荐 max_num_seqs"
                + (f"（要求 TPOT {tpot * 1e3:g} ms）" if tpot else ""),
            ),
            unit="count",
            printed=f"{low} - {high}",
            published=Span(low, high),
            ours=partial(_recommended, name, layout, workload, gpus, tpot),
            reason=Text(
                "Lengths, card and promise decide: by the recipe for each (tokenroom recipe).",
                "取决于长度、显卡与延迟要求：按配方逐一计算（tokenroom recipe）。",
            ),
            source=f"preset {workload} (tokenroom workload --presets)",
        )


def _recommended(
    name: str,
    layout: str | None,
    workload: str,
    gpus: tuple[tuple[str, int], ...],
    tpot_seconds: float | None,
) -> Cases:
    drawn = list(parse_workload(f"{workload}:requests=2000"))
    p95 = percentile([each.prompt_tokens + each.output_tokens for each in drawn])
    prompt = round(sum(each.prompt_tokens for each in drawn) / len(drawn))
    output = round(sum(each.output_tokens for each in drawn) / len(drawn))
    found = []
    for gpu, count in gpus:
        length = length_for(p95)
        own = model(name).max_position_embeddings or length
        result = deployed(name, gpu, layout, tp=count, context=min(length, own))
        best = recipe(
            result,
            p95_tokens=p95,
            input_tokens=prompt,
            output_tokens=output,
            tpot_seconds=tpot_seconds,
        )
        found.append(Case(best.max_num_seqs, gpu if count == 1 else f"{count} x {gpu}"))
    return found


CLAIMS: Final = (*_case_tpot(), *_by_batch(), *_regimes(), *_scenarios())
