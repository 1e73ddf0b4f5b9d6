"""Schedulers: static against continuous batching, pages, queues; by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import A100, LLAMA_3_8B, deployed
from tokenroom.fitting import FitResult
from tokenroom.memory.allocation import Allocator, Sharing, occupancy
from tokenroom.serving.metrics import ServingMetrics
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.serving.workloads.presets import load_presets
from tokenroom.serving.workloads.summary import summarise

_SCHEDULER: Final = "vLLM 0.33 v1/core/sched/scheduler.py, stepped in virtual time"
_BLOCK: Final = 16


@lru_cache(maxsize=64)
def served(
    workload: str,
    scheduler: str | None = None,
    name: str = LLAMA_3_8B,
    gpu: str = A100,
    **settings: Any,
) -> ServingMetrics:
    """A workload served by a deployment under vLLM's scheduler, or one that came before."""
    deployment = deployed(name, gpu, **{"context": 4096, **settings})
    run = Run(
        deployment, scheduling={} if scheduler is None else {"scheduler": scheduler}, compiled=True
    )
    drawn = parse_workload(workload, block_tokens=run.engine.block_tokens)
    for _ in run.serve(drawn.start(), waits_for_answers=drawn.users is not None):
        pass
    return run.outcome().metrics


def _batches() -> Iterator[Claim]:
    def gain(output: str) -> float:
        text = f"users:count=64,input=512,output={output},requests=600"
        return (
            served(text).output_tokens_per_second / served(text, "static").output_tokens_per_second
        )

    yield Claim(
        id="batching-gain",
        article="handbook",
        section="6.3",
        text=Text(
            "Continuous batching has 1.5 to 3 times the throughput of static batches (64 users, "
            "Llama-3-8B, A100)",
            "Continuous Batching 有效吞吐为静态的 1.5~3 倍（64 用户，Llama-3-8B，A100）",
        ),
        unit="ratio",
        printed="1.5 - 3",
        published=Span(1.5, 3),
        ours=lambda: [
            Case(gain("256"), Text("answers of 256 tokens", "回答均为 256 token")),
            Case(gain("uniform(1,511)"), Text("1 to 511 tokens, evenly", "1 ~ 511 均匀分布")),
            Case(
                gain("lognormal(256,0.6)"),
                Text("log-normal, spread 0.6", "对数正态，离散度 0.6"),
            ),
        ],
        reason=Text(
            "As much as answers differ in length: nothing when all are equal.",
            "取决于回答长度的差异：长度相同时没有收益。",
        ),
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-static-cap",
        article="handbook",
        section="6.3",
        text=Text(
            "64 users before a static batch of 32: requests that run at once",
            "静态 batching：64 用户、batch 32 时同时运行的请求数",
        ),
        unit="count",
        printed="32",
        published=exactly(32),
        ours=lambda: one(
            served(
                "users:count=64,input=512,output=128,requests=256", "static", max_num_seqs=32
            ).max_running
        ),
        source="serving/schedulers/static.py",
        simulated=True,
    )
    yield Claim(
        id="batching-static-waits",
        article="handbook",
        section="6.3",
        text=Text(
            "Static batches wait longer: mean time until scheduled over that of continuous "
            "batching",
            "静态 batching 排队更久：平均排队时间高于连续批处理",
        ),
        unit="truth",
        ours=lambda: holds(
            _seconds(served(_MIXED, "static", max_num_seqs=32).queue.mean_seconds)
            > 2 * _seconds(served(_MIXED, max_num_seqs=32).queue.mean_seconds)
        ),
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-running",
        article="handbook",
        section="6.3",
        text=Text(
            "running = min(pending, max_num_seqs, slots): simulated over the formula",
            "running = min(pending, max_num_seqs, 显存上限)：模拟结果与公式之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=_running,
        reason=Text(
            "Where each request has a slot of max_model_len. With pages the tokens of running "
            "requests decide, and more run than the formula gives.",
            "每请求占一个 max_model_len 槽位时如此；分页时由运行请求的 token 数决定，可超过公式"
            "值。",
        ),
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-queue-holds-nothing",
        article="handbook",
        section="6.3",
        text=Text(
            "Requests that wait hold no GPU memory: blocks held while half of all wait are those "
            "of the running ones",
            "排队中的请求不占 GPU 显存：一半请求排队时，占用的块只属于运行中的请求",
        ),
        unit="truth",
        ours=_waiting_hold_nothing,
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-peak-kv",
        article="handbook",
        section="6.3",
        text=Text(
            "Peak KV = requests at once x longest x bytes of a token: simulated peak over that",
            "峰值 KV ≈ peak_concurrency × S_max × 单 token KV：模拟峰值与之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            (found := served(_MIXED)).max_used_blocks * _BLOCK / (found.max_running * 4096)
        ),
        reason=Text(
            "With pages a request holds what it has written, so that is an upper bound.",
            "分页时请求只占已写入的部分，因此该式只是上界。",
        ),
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-reserve-refuses",
        article="ledger",
        section="2.2",
        text=Text(
            "Reserve too little and long requests are refused (2K), too much and concurrency "
            "falls (8K): both happen",
            "预留少了，长请求被拒（2K）；预留多了，并发上不去（8K）：两者皆出现",
        ),
        unit="truth",
        ours=_reserving,
        source="serving/schedulers/contiguous.py",
        simulated=True,
    )
    yield Claim(
        id="batching-itl-is-tpot",
        article="handbook",
        section="6.4",
        text=Text(
            "ITL is the same as TPOT: of ITL over TPOT (chat, Llama-3-8B, A100)",
            "ITL 同 TPOT：两者之比（chat，Llama-3-8B，A100）",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=_gaps,
        reason=Text(
            "TPOT is a mean over a request; single gaps that prompts of others make are longer.",
            "TPOT 是单个请求的平均值；其他请求的提示造成的单次停顿更长。",
        ),
        source=_SCHEDULER,
        simulated=True,
    )
    yield Claim(
        id="batching-chunked-ttft",
        article="handbook",
        section="7.4",
        text=Text(
            "Smaller chunks of prefill lower TTFT (rag, Llama-3.1-8B, A100: chunks of 512 against "
            "8,192)",
            "Chunked Prefill 减少 TTFT（rag，Llama-3.1-8B，A100：512 对 8192）",
        ),
        unit="truth",
        ours=_chunked,
        reason=Text(
            "Chunks bound the gaps between others' tokens. A prompt itself takes more steps and "
            "is ready later.",
            "分块限制的是他人 token 之间的停顿；提示本身步数更多，首 token 更晚。",
        ),
        source=_SCHEDULER,
        simulated=True,
    )


_MIXED: Final = "users:count=64,input=512,output=lognormal(200,0.6,1k),requests=400"
_MANY: Final = "users:count=300,input=400,output=100,requests=600"


def _seconds(figure: float | None) -> float:
    """A figure of requests that were served, of which there are some."""
    assert figure is not None
    return figure


_MEAN: Final = Text("mean", "平均")


def _gaps() -> Cases:
    found = served("chat:rate=8,requests=600", context=8192)
    return [
        Case(_seconds(found.itl.mean_seconds) / _seconds(found.tpot.mean_seconds), _MEAN),
        Case(_seconds(found.itl.p50_seconds) / _seconds(found.tpot.p50_seconds), "50%"),
        Case(_seconds(found.itl.p99_seconds) / _seconds(found.tpot.p99_seconds), "99%"),
    ]


def _running() -> Cases:
    found = []
    for context, most, users in ((4096, 16, 200), (32768, 256, 100)):
        result = deployed("llama-3.1-8b", A100, context=context, max_num_seqs=most)
        text = f"users:count={users},input=400,output=100,requests={2 * users}"
        slots = result.plan.kv_pool_tokens // context
        least = min(users, most, slots)
        for scheduler in ("contiguous", None):
            running = served(
                text, scheduler, "llama-3.1-8b", context=context, max_num_seqs=most
            ).max_running
            found.append(Case(running / least, f"{scheduler or 'paged'}, {least}"))
    return found


def _waiting_hold_nothing() -> Cases:
    found = served(_MANY, max_num_seqs=32)
    of_a_request = -(-(400 + 100) // _BLOCK)
    return holds(
        found.max_waiting > 150 and found.max_used_blocks <= found.max_running * of_a_request
    )


def _reserving() -> Cases:
    text = "poisson:rate=1,input=lognormal(400,0.9,7k),output=lognormal(150,0.6,1k),requests=200"
    short, long = (
        served(text, "contiguous", gpu="l4", context=context) for context in (2048, 8192)
    )
    return holds(short.refused > 0 and long.refused == 0 and long.max_running < short.max_running)


def _chunked() -> Cases:
    small, large = (
        served(
            "rag:rate=0.5,requests=150",
            name="llama-3.1-8b",
            context=65536,
            max_num_batched_tokens=tokens,
        )
        for tokens in (512, 8192)
    )
    return holds(_seconds(small.ttft.mean_seconds) < _seconds(large.ttft.mean_seconds))


def _blocks() -> Iterator[Claim]:
    def pool(sharing: Sharing, block: int = _BLOCK, *, knows: bool = False) -> Cases:
        """Share of a full pool that holds tokens, for lengths of the preset chat."""
        used = []
        for seed in (0, 1):
            lengths = [
                min(4096, request.prompt_tokens + request.output_tokens)
                for request in parse_workload(f"chat:requests=1500,seed={seed}")
            ]
            allocator = Allocator(
                sharing=sharing, max_tokens=4096, block_size=block, knows_length=knows
            )
            used.append(occupancy(400_000, allocator, lengths, lambda tokens: tokens).used_share)
        return [Case(sum(used) / len(used))]

    def by_block(part: str) -> Cases:
        found = []
        for block in (1, 8, 16, 32, 64, 128):
            lengths = [
                min(4096, request.prompt_tokens + request.output_tokens)
                for request in parse_workload("chat:requests=1500")
            ]
            state = occupancy(
                400_000,
                Allocator(sharing=Sharing.PAGED, max_tokens=4096, block_size=block),
                lengths,
                lambda tokens: tokens,
            )
            value = (
                state.internal_waste_bytes / state.reserved_bytes
                if part == "waste"
                else float(state.table_bytes)
            )
            found.append(Case(value, f"{block}"))
        return found

    yield Claim(
        id="blocks-use-before",
        article="handbook",
        section="6.7",
        text=Text(
            "Without paging 60% of the pool is used (chat, pieces as long as the longest request, "
            "or as it will become)",
            "未分页时有效利用率 60%（chat；按最大长度或按实际长度连续分配）",
        ),
        unit="share",
        printed="60%",
        published=exactly(0.6),
        ours=lambda: [
            Case(pool(Sharing.CONTIGUOUS)[0].value, Text("longest length", "最大长度")),
            Case(pool(Sharing.CONTIGUOUS, knows=True)[0].value, Text("own length", "实际长度")),
        ],
        reason=Text(
            "A reservation for the longest request is mostly empty; exact pieces leave holes only.",
            "按最大长度预留大多闲置；按实际长度分配只留下碎片。",
        ),
        source="memory/allocation.py; lengths of the preset chat",
    )
    yield Claim(
        id="blocks-use-paged",
        article="handbook",
        section="6.7",
        text=Text(
            "With pages 95% of the pool is used (chat, blocks of 16)",
            "分页后有效利用率 95%（chat，块大小 16）",
        ),
        unit="share",
        printed="95%",
        published=exactly(0.95),
        ours=lambda: pool(Sharing.PAGED),
        reason=Text(
            "Half a block of each request, and what the next one does not fit into.",
            "每请求浪费半个块，以及放不下下一个请求的余量。",
        ),
        source="memory/allocation.py; lengths of the preset chat",
    )
    yield Claim(
        id="blocks-large-waste",
        article="ledger",
        section="3",
        text=Text(
            "Large blocks waste the tail: share of what is held that is never written, by block "
            "size",
            "块太大浪费尾块：已占空间中从未写入的比例（按块大小）",
        ),
        unit="share",
        published=None,
        ours=lambda: by_block("waste"),
        source="memory/allocation.py; lengths of the preset chat",
    )
    yield Claim(
        id="blocks-small-tables",
        article="ledger",
        section="3",
        text=Text(
            "Small blocks swell the tables: bytes of block tables, by block size",
            "块太小则块表膨胀：块表字节数（按块大小）",
        ),
        unit="bytes",
        published=None,
        ours=lambda: by_block("table"),
        source="vLLM 0.33 v1/worker/block_table.py (int32)",
    )
    yield Claim(
        id="blocks-sizes",
        article="ledger",
        section="3",
        text=Text(
            "Blocks have 16 to 32 tokens: defaults of engines",
            "常见 block 大小为 16~32 token：各引擎默认值",
        ),
        unit="count",
        printed="16 - 32",
        published=Span(16, 32),
        ours=lambda: [
            Case(_eight_under(engine).plan.kv_block_size, engine)
            for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
        ],
        reason=Text(
            "SGLang pages are of one token unless a kernel wants more, llama.cpp has cells of one.",
            "SGLang 默认每页一个 token（除非内核要求更大），llama.cpp 以单个 cell 为单位。",
        ),
        source="vLLM 0.33 config/cache.py; SGLang 0.5.23 server_args.py; TensorRT-LLM "
        "llmapi/llm_args.py tokens_per_block; llama.cpp src/llama-kv-cache.cpp",
    )
    yield Claim(
        id="blocks-hybrid-tensorrt",
        article="ledger",
        section="3.1",
        text=Text(
            "TensorRT-LLM gives a request one contiguous piece first: a request of one token "
            "holds more than a block",
            "TensorRT-LLM 先为请求预留连续空间：1 个 token 的请求占用超过一个块",
        ),
        unit="truth",
        ours=lambda: holds(
            (plan := _eight_under("tensorrt-llm").plan).kv_bytes_of(1)
            > plan.kv_bytes_of(plan.kv_block_size)
        ),
        reason=Text(
            "Its pool is of blocks (32 tokens) like the others'.",
            "其 KV 池同样按块（32 token）分配。",
        ),
        source="TensorRT-LLM cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp",
    )


def _eight_under(engine: str) -> FitResult:
    return deployed(LLAMA_3_8B, A100, engine=engine, context=4096)


def _prefixes() -> Iterator[Claim]:
    def saved() -> Cases:
        found = []
        for name in load_presets():
            figures = summarise(
                parse_workload(f"{name}:requests=1000"), block_tokens=_BLOCK, timed=False
            )
            share = figures.sharing.hit_ratio if figures.sharing is not None else 0.0
            found.append(Case(share, name))
        return found

    yield Claim(
        id="prefix-saves",
        article="handbook",
        section="7.2",
        text=Text(
            "Prefix caching saves 30 to 60%: share of prompts that a cache would find, by preset",
            "Prefix Caching 节省 30-60%：各预设负载中缓存可命中的提示比例",
        ),
        unit="share",
        printed="30% - 60%",
        published=Span(0.3, 0.6),
        ours=saved,
        reason=Text(
            "What requests share decides: nothing where they share nothing, over 90% for agents "
            "(tokenroom workload FILE tells yours; Mooncake's traces: 36.6% and 64.0%).",
            "取决于请求间共享的前缀：无共享则为零，智能体可超过 90%（tokenroom workload FILE 可计"
            "算你的负载；Mooncake 轨迹为 36.6% 与 64.0%）。",
        ),
        source="presets and their sources (tokenroom workload --presets)",
        simulated=True,
    )
    yield Claim(
        id="bursts-peak",
        article="handbook",
        section="6.7",
        text=Text(
            "Peaks are 2 to 3 times the mean: the busiest minute over the mean, by preset",
            "峰值为均值的 2~3 倍：最繁忙一分钟与均值之比（按预设）",
        ),
        unit="ratio",
        printed="2 - 3",
        published=Span(2, 3),
        ours=_peaks,
        reason=Text(
            "Independent arrivals hardly have peaks; a service with a day and a night or clients "
            "in bursts has higher ones.",
            "相互独立的到达几乎没有峰值；有昼夜变化或突发客户端的服务更高。",
        ),
        source="presets and their sources (tokenroom workload --presets)",
        simulated=True,
    )


def _peaks() -> Cases:
    found = []
    for name, part in (
        ("chat", "duration=1h"),
        ("code-completion", "duration=1h"),
        ("api-aggregation", "rate=2,duration=24h"),
        ("rag", "duration=1h"),
    ):
        minutes: dict[int, int] = {}
        for request in parse_workload(f"{name}:{part}"):
            minute = int(request.arrival_seconds // 60)
            minutes[minute] = minutes.get(minute, 0) + 1
        mean = sum(minutes.values()) / (max(minutes) + 1)
        found.append(Case(max(minutes.values()) / mean, name))
    return found


CLAIMS: Final = (*_batches(), *_blocks(), *_prefixes())
