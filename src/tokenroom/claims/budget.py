"""A card's budget: shares, what engines reserve, the case of eight A100, the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, in_decimal, one
from tokenroom.claims.kv_cache import EIGHT_HEADS
from tokenroom.claims.subjects import (
    A100,
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_405B,
    deployed,
    the_case,
)
from tokenroom.engines.policy import StageMemory
from tokenroom.fitting import FitResult
from tokenroom.lookup.recipe import Recipe, length_for, recipe
from tokenroom.units import GIB

_OWN_RULE: Final = Text(
    "Each engine has a rule of its own: vLLM takes a share of TOTAL memory, TensorRT-LLM of what "
    "is FREE after the weights, SGLang keeps a static share for weights and pool, llama.cpp "
    "allocates exact buffers.",
    "各引擎规则不同：vLLM 取总显存的一定比例，TensorRT-LLM 取加载权重后空闲显存的比例，SGLang 为权"
    "重与池保留固定比例，llama.cpp 精确分配缓冲区。",
)
_RULES: Final = (
    "vLLM 0.33 v1/worker/utils.py request_memory; SGLang 0.5.23 "
    "srt/model_executor/pool_configurator.py; TensorRT-LLM _torch/pyexecutor/_util.py; llama.cpp "
    "src/llama-kv-cache.cpp"
)


def _by_engine(share: Callable[[StageMemory], float]) -> Cases:
    """A share of a card's memory under each engine, Llama-3-8B on an A100-80GB."""
    return [
        Case(share(deployed(LLAMA_3_8B, A100, engine=engine).governing_stage), engine)
        for engine in ("vllm", "sglang", "tensorrt-llm")
    ]


def _typical() -> tuple[tuple[str, FitResult], ...]:
    """Deployments as people run them."""
    return (
        ("Llama-2-7B, RTX 4090", deployed(LLAMA_2_7B, "4090", context=4096)),
        ("Llama-3-8B, A100-80GB", deployed(LLAMA_3_8B, A100, context=4096)),
        ("Llama-3-70B, 8 x A100-80GB", the_case()),
        (
            "Llama-3.1-405B FP8, 8 x H200",
            deployed(LLAMA_405B, "h200", "fp8", tp=8, context=8192),
        ),
    )


def _shares() -> Iterator[Claim]:
    def of(part: str) -> Cases:
        found = []
        for name, result in _typical():
            stage = result.governing_stage
            used = stage.total_bytes - stage.free_bytes
            taken = {
                "weights": stage.weights_bytes,
                "kv": stage.kv_pool_bytes,
                "activations": stage.activation.num_bytes,
            }
            taken["rest"] = used - sum(taken.values())
            found.append(Case(taken[part] / used, name))
        return found

    varies = Text(
        "The share follows from model and card: what weights leave becomes the pool.",
        "占比取决于模型与显卡：权重之外的空间都成为 KV 池。",
    )
    for part, english, chinese, low, high in (
        ("weights", "Weights", "模型参数", 0.3, 0.5),
        ("kv", "The KV cache", "KV Cache", 0.3, 0.6),
        ("activations", "Activations", "激活值", 0.05, 0.15),
        ("rest", "The rest", "其他", 0.05, 0.1),
    ):
        yield Claim(
            id=f"share-{part}",
            article="handbook",
            section="1",
            text=Text(f"{english}: share of the memory in use", f"{chinese}：占已用显存的比例"),
            unit="share",
            printed=f"{low:.0%} - {high:.0%}",
            published=Span(low, high),
            ours=partial(of, part),
            reason=varies,
            source="vLLM 0.33",
        )


def _reserves() -> Iterator[Claim]:
    def reserve(result: FitResult) -> int:
        stage = result.governing_stage
        return (
            stage.context_bytes
            + stage.cuda_graphs.num_bytes
            + stage.non_torch.num_bytes
            + stage.buffers_bytes
        )

    yield Claim(
        id="reserve-of-the-engine",
        article="ledger",
        section="1",
        text=Text(
            "Before any request the engine needs a few GB: context, workspaces, graphs, buffers",
            "任何请求之前引擎先占几 GB：CUDA 上下文、工作区、图与缓冲",
        ),
        unit="bytes",
        printed=Text("several GB", "几 GB"),
        published=Span(2 * GIB, 10 * GIB),
        ours=lambda: [Case(reserve(result), name) for name, result in _typical()],
        reason=Text(
            "Below 2 GiB for small models on one card; more with CUDA graphs and NCCL over many.",
            "小模型单卡不足 2 GiB；启用 CUDA Graph 与多卡 NCCL 时更多。",
        ),
        source="vLLM 0.33, measured on start-up logs",
    )
    yield Claim(
        id="reserve-10-percent",
        article="handbook",
        section="8.3",
        text=Text(
            "10% of what weights leave is reserved: share of it that is no KV pool (Llama-3-8B, "
            "A100-80GB)",
            "预留“总显存 - 参数”的 10%：其中不属于 KV 池的比例（Llama-3-8B，A100-80GB）",
        ),
        unit="share",
        printed="10%",
        published=exactly(0.1),
        ours=lambda: _by_engine(
            lambda stage: 1 - stage.kv_pool_bytes / (stage.total_bytes - stage.weights_bytes)
        ),
        reason=_OWN_RULE,
        source=_RULES,
    )
    yield Claim(
        id="reserve-10-to-20-percent",
        article="handbook",
        section="5.2",
        text=Text(
            "Engines leave 10 to 20% of the card beside weights and KV pool",
            "引擎在参数与 KV 池之外预留约 10-20%",
        ),
        unit="share",
        printed="10% - 20%",
        published=Span(0.1, 0.2),
        ours=lambda: _by_engine(
            lambda stage: 1 - (stage.weights_bytes + stage.kv_pool_bytes) / stage.total_bytes
        ),
        reason=_OWN_RULE,
        source=_RULES,
    )
    yield Claim(
        id="reserve-fixed-at-start",
        article="handbook",
        section="5.2",
        text=Text(
            "The pool is fixed when the server starts, whatever requests come",
            "KV 池在服务启动时即固定大小",
        ),
        unit="truth",
        ours=lambda: [
            Case(
                float(
                    deployed(
                        LLAMA_3_8B, A100, engine=engine, context=8192, concurrency=1
                    ).governing_stage.kv_pool_bytes
                    == deployed(
                        LLAMA_3_8B, A100, engine=engine, context=8192, concurrency=64
                    ).governing_stage.kv_pool_bytes
                ),
                engine,
            )
            for engine in ("vllm", "sglang", "tensorrt-llm")
        ],
        source=_RULES,
    )
    yield Claim(
        id="reserve-by-longest",
        article="ledger",
        section="5",
        text=Text(
            "The memory taken for KV at the start follows the longest length that is allowed (2K "
            "against 32K)",
            "启动时的 KV 预分配按允许的最大长度计算（2K 对 32K）",
        ),
        unit="truth",
        ours=lambda: [
            Case(
                float(
                    deployed(
                        "llama-3.1-8b", A100, engine=engine, context=32768
                    ).governing_stage.kv_pool_bytes
                    > 2
                    * deployed(
                        "llama-3.1-8b", A100, engine=engine, context=2048
                    ).governing_stage.kv_pool_bytes
                ),
                engine,
            )
            for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
        ],
        reason=Text(
            "vLLM, SGLang and TensorRT-LLM take what the GPU leaves and hand out blocks on "
            "demand; llama.cpp reserves its context length.",
            "vLLM、SGLang、TensorRT-LLM 占用剩余显存并按需分块；llama.cpp 按上下文长度预留。",
        ),
        source=_RULES,
    )
    yield Claim(
        id="reserve-longest-halves",
        article="ledger",
        section="5",
        text=Text(
            "Raising the longest length from 2K to 32K where it is reserved halves concurrency: "
            "requests left",
            "最大长度由 2K 调到 32K，预留空间使并发直接腰斩：剩余并发比例",
        ),
        unit="ratio",
        printed="1/2",
        published=exactly(0.5),
        ours=lambda: [
            Case(
                deployed(
                    "llama-3.1-8b", A100, engine=engine, context=32768, request_tokens=2048
                ).plan.requests_of(2048)
                / deployed("llama-3.1-8b", A100, engine=engine, context=2048).plan.requests_of(
                    2048
                ),
                engine,
            )
            for engine in ("contiguous", "paged", "vllm")
        ],
        reason=Text(
            "Worse where it is reserved: a sixteenth is left, one halving for each doubling. "
            "Nothing is lost with pages.",
            "按最大长度预留时更糟：每翻一倍减半，只剩十六分之一；分页则毫无损失。",
        ),
        source="memory/allocation.py",
    )


def _case() -> Iterator[Claim]:
    """The handbook's 8 x A100-80GB with Llama-3-70B, line by line, and its planning steps."""

    def stage() -> StageMemory:
        return the_case().governing_stage

    rows = (
        (
            "case-kv-16",
            "5.3",
            "KV of 16 requests of 4,096 tokens, a card",
            "16 个 4096 token 请求的 KV，每卡",
            "20 GB",
            Span(20 * GIB, 20 * GIB),
            lambda: one(16 * the_case().plan.kv_bytes_of(4096)),
            EIGHT_HEADS,
        ),
        (
            "case-activations",
            "5.3",
            "Peak of activations, a card",
            "激活峰值，每卡",
            "2 GB",
            Span(2 * GIB, 2 * GIB),
            lambda: one(stage().activation.num_bytes),
            Text(
                "The sampler's warm-up holds the peak; steps have 2,048 tokens on this GPU.",
                "峰值出现在采样器预热；该 GPU 上单步为 2048 token。",
            ),
        ),
        (
            "case-reserve",
            "5.3",
            "Reserve of 10%, a card",
            "预留 10%，每卡",
            "4 GB",
            Span(4 * GIB, 4 * GIB),
            lambda: one(stage().total_bytes - stage().budget_bytes),
            Text(
                "10% of 80 GB are 8; vLLM leaves 8% of what PyTorch sees.",
                "80 GB 的 10% 是 8 GB；vLLM 预留 PyTorch 可见显存的 8%。",
            ),
        ),
        (
            "case-total",
            "5.3",
            "In all, a card",
            "合计，每卡",
            "43.5 GB",
            Span(43.5 * GIB, 43.5 * GIB),
            lambda: [
                Case(
                    stage().weights_bytes
                    + 16 * the_case().plan.kv_bytes_of(4096)
                    + stage().activation.num_bytes
                    + stage().total_bytes
                    - stage().budget_bytes,
                    Text("the same lines, computed", "同样各项，重新计算"),
                ),
                Case(
                    stage().total_bytes - stage().free_bytes,
                    Text("what vLLM takes", "vLLM 实际占用"),
                ),
            ],
            Text(
                "KV is an eighth of what was counted; and the engine takes its whole budget at "
                "the start, whatever runs.",
                "KV 只有其八分之一；而引擎启动时就占满全部预算，与运行负载无关。",
            ),
        ),
        (
            "plan-pool-a-card",
            "6.6",
            "Step 1: KV pool a card",
            "步骤 1：每卡可用 KV",
            "54.5 GB",
            exactly(54.5 * GIB),
            lambda: one(stage().kv_pool_bytes),
            Text(
                "80 - 17.5 - 8 comes near; context, graphs, NCCL and buffers are taken too.",
                "80 - 17.5 - 8 相当接近；还要减去上下文、图、NCCL 与缓冲。",
            ),
        ),
        (
            "plan-pool",
            "6.6",
            "Step 1: KV pool of all cards",
            "步骤 1：总可用 KV",
            "436 GB",
            exactly(436 * GIB),
            lambda: one(8 * stage().kv_pool_bytes),
            Text("As for one card.", "同单卡。"),
        ),
        (
            "plan-request",
            "6.6",
            "Step 2: KV of a request of 4,096 tokens",
            "步骤 2：单请求 KV（4096 token）",
            "10 GB",
            Span(10 * GIB, 10 * GIB),
            lambda: one(8 * the_case().plan.kv_bytes_of(4096)),
            EIGHT_HEADS,
        ),
    )
    for key, section, english, chinese, printed, published, ours, reason in rows:
        yield Claim(
            id=key,
            article="handbook",
            section=section,
            text=Text(
                f"8 x A100-80GB, Llama-3-70B. {english}", f"8×A100-80GB，Llama-3-70B。{chinese}"
            ),
            unit="bytes",
            printed=printed,
            published=published,
            otherwise=in_decimal(published),
            ours=ours,
            reason=reason,
            source="vLLM 0.33",
        )
    yield Claim(
        id="plan-concurrency",
        article="handbook",
        section="6.6",
        text=Text(
            "8 x A100-80GB, Llama-3-70B. Step 3: requests of 4,096 tokens at once",
            "8×A100-80GB，Llama-3-70B。步骤 3：最大并发（4096 token）",
        ),
        unit="count",
        printed="43",
        published=exactly(43),
        ours=lambda: one(the_case().requests_held),
        reason=Text(
            "Eight times as many, with 8 of 64 heads in the cache; the pool in tokens decides, "
            "and max_num_seqs.",
            "约八倍：缓存只含 64 个头中的 8 个；由池的 token 数与 max_num_seqs 决定。",
        ),
        source="vLLM 0.33",
    )


@lru_cache(maxsize=1)
def _recipe() -> Recipe:
    length = length_for(6500)
    return recipe(
        deployed("llama-3.1-8b", "l40s", context=length),
        p95_tokens=6500,
        input_tokens=3250,
        output_tokens=650,
    )


def _steps() -> Iterator[Claim]:
    yield Claim(
        id="recipe-margin",
        article="ledger",
        section="5",
        text=Text(
            "The longest length is P95 and a fifth: for 6,500 tokens",
            "max_seq_len = P95 加 20% 余量：P95 为 6500 时",
        ),
        unit="count",
        printed="6,500 x 1.2 = 7,800",
        published=exactly(7800),
        ours=lambda: one(_recipe().max_model_len),
        reason=Text("Rounded up to a multiple of 128.", "向上取整到 128 的倍数。"),
        source="lookup/recipe.py",
    )
    yield Claim(
        id="recipe-ceiling",
        article="ledger",
        section="5",
        text=Text(
            "(Memory - weights - CUDA - activations) / KV of a request is the ceiling: the "
            "engine's over that",
            "（总显存 - 权重 - CUDA 开销 - 激活峰值）/ 单请求 KV 为并发上限：引擎实际值与之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            _recipe().ceiling
            * _recipe().request_bytes
            / (
                (stage := _recipe().fit.governing_stage).total_bytes
                - stage.weights_bytes
                - stage.context_bytes
                - stage.activation.num_bytes
            )
        ),
        reason=Text(
            "An engine also leaves its share of the card, graphs and buffers.",
            "引擎还会预留显存比例、图与缓冲。",
        ),
        source="vLLM 0.33",
    )
    yield Claim(
        id="recipe-waterline",
        article="ledger",
        section="5",
        text=Text("Deployed at 80% of the ceiling: share", "以 80% 水位上线：比例"),
        unit="share",
        printed="80%",
        published=exactly(0.8),
        ours=lambda: one(_recipe().max_num_seqs / _recipe().ceiling),
        reason=Text("Whole requests.", "请求数取整。"),
        source="lookup/recipe.py",
    )


def _single_cards() -> Iterator[Claim]:
    yield Claim(
        id="7b-on-24gb",
        article="ledger",
        section="1",
        text=Text("A 7B model in FP16 fits on a card of 24 GB", "7B FP16 单卡 24GB 放得下"),
        unit="truth",
        ours=lambda: holds(deployed(LLAMA_2_7B, "4090", context=4096).verdict == "fits"),
        source="vLLM 0.33",
    )
    yield Claim(
        id="7b-on-24gb-requests",
        article="ledger",
        section="1",
        text=Text(
            "It runs out of memory at 20 to 30 requests at once: how many the pool holds, by "
            "length",
            "并发跑到二三十路就 OOM：池可容纳的请求数（按长度）",
        ),
        unit="count",
        printed="20 - 30",
        published=Span(20, 30),
        ours=lambda: [
            Case(deployed(LLAMA_2_7B, "4090", context=4096).plan.requests_of(tokens), f"{tokens:,}")
            for tokens in (512, 1024, 2048, 4096)
        ],
        reason=Text(
            "The length decides; and an engine with a pool lets further requests wait instead of "
            "running out of memory.",
            "取决于长度；带 KV 池的引擎会让多余请求排队，而不是 OOM。",
        ),
        source="vLLM 0.33",
    )
    for memory, gpu in ((24, "4090"), (48, "l40s"), (80, A100)):
        for size, name in (
            ("7b", LLAMA_2_7B),
            ("13b", "meta-llama/Llama-2-13b-hf"),
            ("70b", LLAMA_3_70B),
        ):
            yield Claim(
                id=f"reference-{size}-{memory}gb",
                article="ledger",
                section="5",
                text=Text(
                    f"Ready settings for {size.upper()} on one card of {memory} GB ({gpu}): "
                    f"requests "
                    "of 4,096 tokens (the article announces this table and prints none)",
                    f"单卡 {memory}GB（{gpu}）上 {size.upper()} 的配置：4096 token 的并发数"
                    "（文章预告此表但未给出）",
                ),
                unit="count",
                published=None,
                ours=partial(_reference, name, gpu),
                source="vLLM 0.33; tokenroom table reference prints the commands",
            )


def _reference(name: str, gpu: str) -> Cases:
    found = []
    for label, layout, cache in (
        ("FP16", None, None),
        ("AWQ", "awq", None),
        ("AWQ, KV FP8", "awq", "fp8"),
    ):
        result = deployed(name, gpu, layout, context=4096, kv=cache)
        found.append(Case(result.requests_running, label))
    return found


CLAIMS: Final = (*_shares(), *_reserves(), *_case(), *_steps(), *_single_cards())
