"""Long and short prompts in one pool or two, and sizes of blocks in a full one; by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text
from tokenroom.claims.subjects import A100, LLAMA_3_8B, deployed
from tokenroom.comparing.splitting import Split, fleet_of
from tokenroom.serving.metrics import LatencyLimits, ServingMetrics
from tokenroom.serving.run import Run
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.workloads.grammar import parse_workload

_LENGTHS: Final = (
    "poisson:rate=10,input=quantiles(0:100,90:800,90.1:8000,100:30000),"
    "output=lognormal(200,0.5,1k),requests=600"
)
"""A tenth of the prompts are of 8,000 to 30,000 tokens, the rest of up to 800."""
_PROMISED: Final = LatencyLimits(ttft_seconds=1.0, tpot_seconds=0.05)
_FULL: Final = (
    "users:count=64,input=lognormal(400,0.9,2k),output=lognormal(200,0.6,1k),requests=300"
)


@lru_cache(maxsize=4)
def _served(short: int, long: int) -> ServingMetrics:
    """Four A100 with Llama-3.1-8B, some of them for prompts of up to 1,024 tokens alone."""
    server = ServedDeployment(fit=deployed("llama-3.1-8b", A100, context=32768))
    split = Split(threshold_tokens=1024 if short else None, short=short, long=long)
    run = fleet_of(server, split).run(_PROMISED)
    for _ in run.serve(parse_workload(_LENGTHS).start()):
        pass
    return run.outcome().metrics


def _apart() -> Cases:
    mixed, split = _served(0, 4), _served(2, 2)

    def gain(one: float | None, other: float | None) -> float:
        assert one is not None
        assert other is not None
        return one / other

    return [
        Case(
            gain(split.goodput_share, mixed.goodput_share),
            Text("requests that keep both promises", "满足两项要求的请求"),
        ),
        Case(
            gain(mixed.ttft.p50_seconds, split.ttft.p50_seconds),
            Text("TTFT, 50%: shorter by", "TTFT 50%：缩短倍数"),
        ),
        Case(
            gain(mixed.ttft.p99_seconds, split.ttft.p99_seconds),
            Text("TTFT, 99%: shorter by", "TTFT 99%：缩短倍数"),
        ),
        Case(
            gain(split.output_tokens_per_second, mixed.output_tokens_per_second),
            Text("output tokens a second", "输出 token/s"),
        ),
    ]


def _by_block() -> Cases:
    found = {}
    for block in (1, 16, 32, 128):
        result = deployed(
            LLAMA_3_8B, "l4", engine="sglang", util=0.85, context=4096, page_size=block
        )
        run = Run(result)
        drawn = parse_workload(_FULL, block_tokens=run.engine.block_tokens)
        for _ in run.serve(drawn.start(), waits_for_answers=True):
            pass
        found[block] = run.outcome().metrics.output_tokens_per_second
    return [Case(1 - found[block] / found[1], str(block)) for block in (16, 32, 128)]


def _claims() -> Iterator[Claim]:
    yield Claim(
        id="pools-apart",
        article="ledger",
        section="5",
        text=Text(
            "Short and long prompts are better served apart, over 10% better (four A100, a tenth "
            "of the prompts long; TTFT 1 s, TPOT 50 ms promised): factors",
            "长短提示拆分部署更好，高出一截即 10% 以上（四张 A100，十分之一为长提示；要求 TTFT "
            "1 s、"
            "TPOT 50 ms）：倍数",
        ),
        unit="ratio",
        printed="> 1.1",
        published=Span(1.1),
        ours=_apart,
        reason=Text(
            "Short ones gain, long ones share fewer GPUs and lose; all together no more is served "
            "(docs/compare.md has intervals over ten draws, tokenroom pools the split that pays).",
            "短请求受益，长请求可用的 GPU 变少而变慢，总吞吐并不增加（docs/compare.md 给出十次抽样"
            "的区间，tokenroom pools 搜索划算的拆分）。",
        ),
        source="vLLM 0.33 v1/core/sched/scheduler.py, stepped in virtual time; one draw",
        simulated=True,
    )
    yield Claim(
        id="blocks-throughput",
        article="ledger",
        section="3",
        text=Text(
            "What larger pages cost a full pool of its throughput, over pages of one token (64 "
            "users, SGLang, Llama-3-8B on an L4)",
            "池满时较大的页相对单 token 页损失的吞吐（64 用户，SGLang，L4 上的 Llama-3-8B）",
        ),
        unit="share",
        published=None,
        ours=_by_block,
        source="SGLang 0.5.23 srt/managers/scheduler.py, stepped in virtual time; one draw",
        simulated=True,
    )


CLAIMS: Final = tuple(_claims())
