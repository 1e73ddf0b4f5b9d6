"""The handbook's look-up tables, a row for each cell."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.kv_cache import EIGHT_HEADS
from tokenroom.claims.subjects import (
    A100,
    CASE_TOKENS,
    CONFIGURATION,
    DEEPSEEK_V3,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_405B,
    QWEN_72B,
    deployed,
    kv,
    model,
    short,
    weights,
)
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.objectives import Objectives
from tokenroom.planning.candidates import candidates
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Proposal, judged
from tokenroom.planning.lengths import of_means
from tokenroom.units import GIB

_METHODS: Final = "which weights a method quantises and what it stores: models/quantization"
_SCALES: Final = Text(
    "Scales come on top, and embedding, head and norms stay 16-bit.",
    "还要加上缩放因子；词嵌入、输出层和归一化层仍为 16 位。",
)
_PRECISE: Final = Text(
    "The exact number of parameters, embedding and head counted.",
    "按准确参数量计算，含词嵌入与输出层。",
)


def _sizes() -> Iterator[Claim]:
    """Table 9.1."""
    rows: tuple[tuple[str, float, float, float | None, float | None], ...] = (
        (LLAMA_3_8B, 8.0, 16, 8, 4),
        (LLAMA_3_70B, 70.6, 141, 70, 35),
        (LLAMA_405B, 405, 810, 405, 203),
        (QWEN_72B, 72.7, 145, 73, 36),
        (DEEPSEEK_V3, 671, 1342, None, None),
        ("mistralai/Mistral-7B-v0.1", 7.3, 14.6, 7.3, 3.7),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 93, 47, 23),
    )
    for name, parameters, *sizes in rows:
        key = short(name).lower().replace("meta-", "")
        yield Claim(
            id=f"table-9.1-{key}-parameters",
            article="handbook",
            section="9.1",
            text=Text(f"Parameters of {short(name)}", f"{short(name)} 的参数量"),
            unit="parameters",
            printed=f"{parameters}B",
            published=exactly(parameters * 1e9),
            ours=partial(lambda name: one(model(name).parameters_total), name),
            reason=_PRECISE,
            source=CONFIGURATION,
        )
        for label, layout, printed in zip(
            ("FP16", "INT8", "INT4"), ("bf16", "int8", "awq"), sizes, strict=True
        ):
            if printed is None:
                continue
            yield Claim(
                id=f"table-9.1-{key}-{label.lower()}",
                article="handbook",
                section="9.1",
                text=Text(f"Weights of {short(name)} in {label}", f"{short(name)} 的 {label} 权重"),
                unit="gigabytes",
                printed=f"{printed:g} GB",
                published=exactly(printed * 1e9),
                ours=partial(_size, name, layout),
                reason=_PRECISE if layout == "bf16" else _SCALES,
                source=_METHODS if layout != "bf16" else CONFIGURATION,
            )


def _size(name: str, layout: str) -> Cases:
    if layout == "bf16":
        return one(model(name).parameters_total * 2)
    return one(weights(name, layout))


def _kv_cells() -> Iterator[Claim]:
    """Table 9.2."""
    for batch in (1, 4, 16, 64):
        for tokens in (2048, 4096, 8192, 32768):
            gib = 10 * batch * tokens / 4096
            printed = f"{gib:g} GB" if gib < 1280 else f"{gib / 1000:g} TB"
            yield Claim(
                id=f"table-9.2-{batch}x{tokens}",
                article="handbook",
                section="9.2",
                text=Text(
                    f"KV of {batch} x {tokens:,} tokens, Llama-3-70B, FP16",
                    f"{batch} × {tokens:,} token 的 KV，Llama-3-70B，FP16",
                ),
                unit="bytes",
                printed=printed,
                published=exactly(gib * GIB),
                ours=partial(
                    lambda batch, tokens: one(batch * kv(LLAMA_3_70B, tokens)), batch, tokens
                ),
                reason=EIGHT_HEADS,
                source=CONFIGURATION,
            )


@lru_cache(maxsize=16)
def _row(name: str, layout: str | None, tp: int) -> FitResult:
    """A row of table 8.1: vLLM on A100-80GB, in hosts of eight."""
    stages = max(1, tp // 8)
    return deployed(
        name,
        A100,
        layout,
        tp=min(tp, 8),
        context=4096,
        **({"pp": stages} if stages > 1 else {}),
    )


def _concurrency() -> Iterator[Claim]:
    """Table 8.1."""
    rows: tuple[tuple[str, str, str | None, int, float, float, float, int, int | None], ...] = (
        # name, key, layout, cards, weights, pool, request (GB a card), at once, on 8 cards
        (LLAMA_3_8B, "8b", None, 1, 16, 56, 1.1, 50, None),
        (LLAMA_3_70B, "70b", None, 8, 17.5, 54.5, 1.25, 43, 43),
        (LLAMA_3_70B, "70b-int4", "awq", 4, 8.75, 63.25, 2.5, 25, 100),
        (QWEN_72B, "qwen-72b", None, 8, 18.2, 53.8, 1.3, 41, 41),
        (LLAMA_405B, "405b-fp8", "fp8", 16, 25.3, 46.7, 0.6, 77, 77),
    )
    for name, key, layout, cards, held, pool, request, most, of_eight in rows:
        label = f"{short(name)}{f' {layout}' if layout else ''}, {cards} x A100-80GB"
        heads = EIGHT_HEADS if name in (LLAMA_3_70B,) else _GROUPED
        for column, english, chinese, figure, ours, reason in (
            (
                "weights",
                "weights a card",
                "每卡权重",
                held,
                lambda row: one(row.governing_stage.weights_bytes),
                Text(
                    "As the engine loads them; a 4-bit layout keeps scales and a 16-bit embedding "
                    "and head.",
                    "按引擎实际加载计算；4 位格式还含缩放因子与 16 位词嵌入、输出层。",
                ),
            ),
            (
                "pool",
                "KV pool a card",
                "每卡可用 KV",
                pool,
                lambda row: one(row.governing_stage.kv_pool_bytes),
                Text(
                    "vLLM takes 92% of the card; context, graphs and the activation peak go off.",
                    "vLLM 取显存的 92%，再减去上下文、图与激活峰值。",
                ),
            ),
            (
                "request",
                "KV of a request of 4,096 tokens, a card",
                "4096 token 请求每卡 KV",
                request,
                lambda row: one(row.plan.kv_bytes_of(4096)),
                heads,
            ),
        ):
            yield Claim(
                id=f"table-8.1-{key}-{column}",
                article="handbook",
                section="8.1",
                text=Text(f"{label}: {english}", f"{label}：{chinese}"),
                unit="gigabytes" if column == "weights" else "bytes",
                printed=f"{figure:g} GB",
                published=exactly(figure * (1e9 if column == "weights" else GIB)),
                otherwise=None if column == "weights" else exactly(figure * 1e9),
                ours=partial(lambda ours, *row: ours(_row(*row)), ours, name, layout, cards),
                reason=reason,
                source="vLLM 0.33",
            )
        yield Claim(
            id=f"table-8.1-{key}-requests",
            article="handbook",
            section="8.1",
            text=Text(
                f"{label}: requests of 4,096 tokens at once", f"{label}：4096 token 最大并发"
            ),
            unit="count",
            printed=f"{most}",
            published=exactly(most),
            ours=partial(lambda *row: one(_row(*row).requests_held), name, layout, cards),
            reason=heads,
            source="vLLM 0.33",
        )
        if of_eight is not None and cards == 4:
            yield Claim(
                id=f"table-8.1-{key}-eight",
                article="handbook",
                section="8.1",
                text=Text(
                    f"{short(name)} {layout}, two replicas on 8 x A100-80GB: requests at once",
                    f"{short(name)} {layout}，8×A100-80GB 上两个副本：最大并发",
                ),
                unit="count",
                printed=f"{of_eight}",
                published=exactly(of_eight),
                ours=partial(lambda *row: one(2 * _row(*row).requests_held), name, layout, cards),
                reason=Text(
                    "25 on four cards are 50 on eight, not 100; with 8 KV heads it is more.",
                    "4 卡 25 路在 8 卡上应为 50 路而非 100；按 8 个 KV 头则更多。",
                ),
                source="vLLM 0.33",
            )


_GROUPED: Final = Text(
    "GQA: the configuration has 8 KV heads of 128.", "GQA：配置中只有 8 个 128 维的 KV 头。"
)


def _users() -> Iterator[Claim]:
    """Table 8.2: GPUs for users without pauses, TPOT below 100 ms, 4,096 tokens with 1,024 out."""
    columns: tuple[tuple[str, str, str | None, tuple[int, ...]], ...] = (
        (LLAMA_3_8B, "8b-int4", "awq", (1, 1, 2, 4, 8)),
        (LLAMA_3_8B, "8b", None, (1, 2, 4, 8, 16)),
        (LLAMA_3_70B, "70b", None, (4, 4, 8, 32, 64)),
        (LLAMA_405B, "405b-fp8", "fp8", (8, 16, 32, 64, 128)),
    )
    for name, key, layout, counts in columns:
        label = f"{short(name)} {layout}" if layout else short(name)
        for users, count in zip((10, 50, 100, 500, 1000), counts, strict=True):
            gpu = "h100" if layout == "fp8" else A100
            if key.startswith("8b") and users == 10:
                gpu = "4090"
            yield Claim(
                id=f"table-8.2-{key}-{users}",
                article="handbook",
                section="8.2",
                text=Text(
                    f"GPUs ({gpu}) for {users:,} users of {label}, TPOT below 100 ms",
                    f"{users:,} 并发用户所需 GPU（{gpu}），{label}，TPOT < 100 ms",
                ),
                unit="count",
                printed=f"{count}",
                published=exactly(count),
                ours=partial(_gpus, name, layout, gpu, users),
                reason=Text(
                    "Users who wait for each answer without a pause; the fewest GPUs by exact "
                    "memory and step time. The article counts KV eight times (GQA), and leaves "
                    "out weights and prompts when it counts time.",
                    "用户无停顿地等待每个回答；按精确显存与步时求最少 GPU。文章把 KV 多算 8 倍（"
                    "GQA），计时又漏掉权重读取与提示计算。",
                ),
                source="tokenroom plan, closed form (docs/plan.md)",
            )


def _gpus(name: str, layout: str | None, gpu: str, users: int) -> Cases:
    lengths = of_means(3072, 1024)
    demand = Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(tpot_seconds=0.1),
        users=users,
    )
    tried = candidates([model(name, layout)], [find_accelerator(gpu)], engines=["vllm"])
    found = (judged(candidate, demand) for candidate in tried)
    return one(min(each.gpus for each in found if isinstance(each, Proposal)))


def _deployments() -> Iterator[Claim]:
    """Table 9.3."""
    rows: tuple[tuple[str, str, str | None, str, str, str, int, int], ...] = (
        (LLAMA_3_8B, "8b", None, "FP16", "4090", "vllm", 1, 1),
        (LLAMA_3_8B, "8b-int4", "q4_k_m", "INT4", "rtx-3070", "llama.cpp", 1, 1),
        (LLAMA_3_70B, "70b", None, "FP16", A100, "vllm", 4, 8),
        (LLAMA_3_70B, "70b-int4", "awq", "INT4", A100, "vllm", 1, 2),
        (LLAMA_405B, "405b-fp8", "fp8", "FP8", "h100", "vllm", 8, 16),
        (DEEPSEEK_V3, "deepseek-v3", None, "FP8", "h100", "vllm", 4, 8),
    )
    for name, key, layout, label, gpu, engine, least, recommended in rows:
        yield Claim(
            id=f"table-9.3-{key}-least",
            article="handbook",
            section="9.3",
            text=Text(
                f"GPUs ({gpu}) for {short(name)} in {label}: the fewest that start with 4,096 "
                f"tokens",
                f"{short(name)} {label} 所需 GPU（{gpu}）：能启动（4096 token）的最少数量",
            ),
            unit="count",
            printed=f"{least}",
            published=exactly(least),
            ours=partial(_fewest, name, layout, gpu, engine, (1,)),
            reason=_FEWEST[key],
            source=_OF_ENGINE[engine],
        )
        yield Claim(
            id=f"table-9.3-{key}-recommended",
            article="handbook",
            section="9.3",
            text=Text(
                f"GPUs ({gpu}) recommended for {short(name)} in {label}: the fewest, by "
                f"requests of "
                "4,096 tokens at once",
                f"{short(name)} {label} 推荐 GPU 数（{gpu}）：按同时运行的 4096 token 请求数求最少",
            ),
            unit="count",
            printed=f"{recommended}",
            published=exactly(recommended),
            ours=partial(
                _fewest, name, layout, gpu, engine, (1, 4) if engine == "llama.cpp" else (4, 16, 64)
            ),
            reason=_FEWEST[key],
            source=_OF_ENGINE[engine],
        )
    yield Claim(
        id="table-9.3-kv-on-top",
        article="handbook",
        section="9.3",
        text=Text(
            "30 to 50% more than the weights are needed for KV: KV of 16 requests of 4,096 tokens "
            "over the weights",
            "实际需要在参数之外 +30-50% 给 KV：16 个 4096 token 请求的 KV 与权重之比",
        ),
        unit="share",
        printed="30% - 50%",
        published=Span(0.3, 0.5),
        ours=lambda: [
            Case(16 * kv(name, CASE_TOKENS) / weights(name, layout), label)
            for label, name, layout in (
                ("Llama-3-8B", LLAMA_3_8B, None),
                ("Llama-3-70B", LLAMA_3_70B, None),
                ("Llama-3-70B awq", LLAMA_3_70B, "awq"),
                ("Llama-3.1-405B fp8", LLAMA_405B, "fp8"),
                ("DeepSeek-V3", DEEPSEEK_V3, None),
            )
        ],
        reason=Text(
            "Requests, lengths and KV heads decide, not the size of the weights.",
            "取决于请求数、长度与 KV 头数，而非权重大小。",
        ),
        source=CONFIGURATION,
    )
    yield Claim(
        id="deepseek-v3-weights",
        article="handbook",
        section="9.3",
        text=Text(
            "DeepSeek-V3 in FP8 is on four cards of 80 GB, so that it has 320 GB at most",
            "DeepSeek-V3 FP8 可放在 4×80GB，即不超过 320 GB",
        ),
        unit="gigabytes",
        printed="4 x 80 GB",
        published=Span(0, 320e9),
        ours=lambda: one(weights(DEEPSEEK_V3)),
        reason=_FEWEST["deepseek-v3"],
        source=CONFIGURATION,
    )
    for cards in (4, 8):
        yield Claim(
            id=f"deepseek-v3-on-{cards}",
            article="handbook",
            section="9.3",
            text=Text(
                f"DeepSeek-V3 in FP8 fits on {cards} x 80 GB",
                f"DeepSeek-V3 FP8 放得进 {cards}×80GB",
            ),
            unit="truth",
            ours=partial(
                lambda cards: holds(
                    deployed(DEEPSEEK_V3, "h100", tp=cards).verdict != "does_not_fit"
                ),
                cards,
            ),
            reason=_FEWEST["deepseek-v3"],
            source=CONFIGURATION,
        )
    yield Claim(
        id="405b-fp8-kv-on-8",
        article="handbook",
        section="9.3",
        text=Text(
            "405B in FP8 on 8 x 80 GB holds weights only: KV pool a card",
            "405B FP8 在 8×80GB 上仅能容纳参数：每卡 KV 池",
        ),
        unit="bytes",
        printed="0",
        published=Span(0, 1 * GIB),
        ours=lambda: one(
            deployed(LLAMA_405B, "h100", "fp8", tp=8, context=8192).governing_stage.kv_pool_bytes
        ),
        reason=_FEWEST["405b-fp8"],
        source="vLLM 0.33",
    )


_OF_ENGINE: Final = {"vllm": "vLLM 0.33", "llama.cpp": "llama.cpp b11312"}
_FEWEST: Final = {
    "8b": Text(
        "A card of 24 GB leaves room for a few requests; more run on two.",
        "24 GB 单卡只剩少量并发空间，更多并发需要两卡。",
    ),
    "8b-int4": Text(
        "4.9 GB of weights and 0.5 GiB a request on 8 GB.",
        "权重 4.9 GB，每请求 0.5 GiB，卡为 8 GB。",
    ),
    "70b": Text(
        "Two cards of 80 GB start it with a little room for KV; four run dozens of requests.",
        "两张 80GB 卡即可启动，但 KV 空间很小；四卡可运行数十路。",
    ),
    "70b-int4": Text(
        "40 GB of weights leave half of one card for KV.", "权重 40 GB，单卡仍有近一半用于 KV。"
    ),
    "405b-fp8": Text(
        "About 406 GB of weights, 47 GiB a card of eight, which leaves above 15 GiB a card for "
        "KV; let the objectives decide on more.",
        "权重约 406 GB，8 卡每卡 47 GiB，仍有 15 GiB 以上用于 KV；是否加卡取决于目标。",
    ),
    "deepseek-v3": Text(
        "671 GB of weights (688 as stored, with scales and the MTP block): neither on 4 nor on 8 "
        "cards of 80 GB; every expert is resident.",
        "权重 671 GB（含缩放因子与 MTP 层存储为 688 GB）：4 张或 8 张 80GB 卡都放不下；所有专家常"
        "驻。",
    ),
}


def _fewest(name: str, layout: str | None, gpu: str, engine: str, wanted: tuple[int, ...]) -> Cases:
    """The fewest GPUs on which so many requests of 4,096 tokens run; 0 when 32 are too few."""
    found = []
    for requests in wanted:
        count = next(
            (
                count
                for count in (1, 2, 4, 8, 16, 32)
                if _running_on(name, layout, gpu, engine, count, requests) >= requests
            ),
            0,
        )
        found.append(
            Case(count, "" if wanted == (1,) else Text(f"{requests} at once", f"{requests} 路"))
        )
    return found


def _running_on(
    name: str, layout: str | None, gpu: str, engine: str, count: int, requests: int
) -> int:
    settings: dict[str, Any] = {"tp": min(count, 8)}
    if count > 8:
        settings["pp"] = count // 8
    if engine == "llama.cpp":  # its cache is as large as it is told to be
        settings = {"gpus": count, "n_parallel": requests, "n_gpu_layers": 99, "fit": False}
    context = CASE_TOKENS * (requests if engine == "llama.cpp" else 1)
    try:
        result = deployed(
            name,
            gpu,
            layout,
            engine=engine,
            context=context,
            request_tokens=CASE_TOKENS,
            **settings,
        )
    except TokenroomError:
        return 0  # the engine does not divide the model so
    return result.requests_running


CLAIMS: Final = (*_concurrency(), *_users(), *_sizes(), *_kv_cells(), *_deployments())
