"""What engines do and do not: reuse, batching, formats, techniques that change memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from tokenroom.claims.claim import Case, Cases, Claim, Span, Text, exactly, holds, one
from tokenroom.claims.subjects import A100, DEEPSEEK_V3, LLAMA_3_8B, LLAMA_3_70B, deployed, model
from tokenroom.engines.registry import command_parser
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.serving.metrics import ServingMetrics
from tokenroom.serving.run import Run
from tokenroom.serving.workloads.grammar import parse_workload

_EIGHT: Final = "llama-3.1-8b"
_SHARED: Final = "constant:rate=0.5,system=2048,input=64,output=16,requests=8"
_OVERLAPPING: Final = "constant:rate=4,input=64,output=200,requests=8"


def _on(engine: str) -> FitResult:
    settings: dict[str, Any] = {"n_parallel": 4} if engine == "llama.cpp" else {}
    return deployed(_EIGHT, A100, engine=engine, context=16384, **settings)


def _figures(engine: str, workload: str) -> ServingMetrics:
    run = Run(_on(engine))
    drawn = parse_workload(workload, block_tokens=run.engine.block_tokens)
    for _ in run.serve(drawn.start()):
        pass
    return run.outcome().metrics


def _reuses(engine: str) -> Cases:
    """Whether prompts that begin alike are partly found again, with default settings."""
    return holds(_figures(engine, _SHARED).hit_rate > 0)


def _joins(engine: str) -> Cases:
    """Whether a request that comes while another is answered runs beside it."""
    return holds(_figures(engine, _OVERLAPPING).max_running > 1)


def _comparison() -> Iterator[Claim]:
    rows = (
        (
            "reuse-vllm",
            "vllm",
            "vLLM reuses KV of equal prefixes",
            "vLLM 支持前缀 KV 复用",
            True,
            _reuses,
            None,
            "vLLM 0.33 config/cache.py enable_prefix_caching",
        ),
        (
            "reuse-sglang",
            "sglang",
            "SGLang reuses KV of equal prefixes (radix tree)",
            "SGLang 自动复用前缀 KV（Radix Tree）",
            True,
            _reuses,
            None,
            "SGLang 0.5.23 srt/mem_cache/radix_cache.py",
        ),
        (
            "reuse-tensorrt",
            "tensorrt-llm",
            "TensorRT-LLM has KV reuse only by hand",
            "TensorRT-LLM 的 KV 复用需手动实现",
            False,
            _reuses,
            Text("Block reuse is built in, and on by default.", "块复用为内置功能，默认开启。"),
            "TensorRT-LLM llmapi/llm_args.py KvCacheConfig.enable_block_reuse = True",
        ),
        (
            "reuse-llama-cpp",
            "llama.cpp",
            "llama.cpp reuses no KV",
            "llama.cpp 无 KV 复用",
            False,
            _reuses,
            Text(
                "Its server keeps the cache of each slot and continues a prompt that begins alike.",
                "其 server 保留每个 slot 的缓存，并从相同前缀处继续。",
            ),
            "llama.cpp tools/server/server-context.cpp (cache_prompt, on by default)",
        ),
        (
            "batching-vllm",
            "vllm",
            "vLLM batches continuously",
            "vLLM 支持连续批处理",
            True,
            _joins,
            None,
            "vLLM 0.33 v1/core/sched/scheduler.py",
        ),
        (
            "batching-sglang",
            "sglang",
            "SGLang batches continuously",
            "SGLang 支持连续批处理",
            True,
            _joins,
            None,
            "SGLang 0.5.23 srt/managers/scheduler.py",
        ),
        (
            "batching-tensorrt",
            "tensorrt-llm",
            "TensorRT-LLM batches continuously",
            "TensorRT-LLM 支持连续批处理",
            True,
            _joins,
            None,
            "TensorRT-LLM _torch/pyexecutor/scheduler/scheduler.py",
        ),
        (
            "batching-llama-cpp",
            "llama.cpp",
            "llama.cpp does not batch continuously",
            "llama.cpp 不支持连续批处理",
            False,
            _joins,
            Text(
                "Its server does (--parallel, --cont-batching on by default): a request joins at "
                "the next step.",
                "其 server 支持（--parallel，--cont-batching 默认开启）：新请求在下一步加入。",
            ),
            "llama.cpp tools/server/server-context.cpp, common/arg.cpp --cont-batching",
        ),
    )
    for key, engine, english, chinese, positive, asks, reason, source in rows:
        yield Claim(
            id=f"engine-{key}",
            article="handbook",
            section="10",
            text=Text(english, chinese),
            unit="truth",
            ours=_answering(asks, engine, positive=positive),
            reason=reason,
            source=source,
            simulated=True,
        )
    for engine, share in (
        ("vllm", 0.95),
        ("tensorrt-llm", 0.9),
        ("sglang", 0.95),
        ("llama.cpp", 0.85),
    ):
        yield Claim(
            id=f"engine-utilisation-{engine.replace('.', '-')}",
            article="handbook",
            section="10",
            text=Text(
                f"Share of a card's memory that {engine} makes use of: weights, pool and what it "
                "computes with (Llama-3.1-8B, A100)",
                f"{engine} 的显存利用率：权重、KV 池与计算缓冲（Llama-3.1-8B，A100）",
            ),
            unit="share",
            printed=f"{share:.0%}",
            published=exactly(share),
            ours=_used_share(engine),
            reason=Text(
                "vLLM, SGLang and TensorRT-LLM take what their rule gives; llama.cpp only what "
                "its context asks for.",
                "vLLM、SGLang、TensorRT-LLM 按各自规则占用；llama.cpp 只占上下文所需。",
            ),
            source="the engines' rules (docs/engines.md)",
        )


def _formats() -> Iterator[Claim]:
    for key, engine, printed, layouts in (
        ("vllm", "vllm", "AWQ, GPTQ, FP8", ("awq", "gptq", "fp8")),
        ("tensorrt", "tensorrt-llm", "FP8, INT4, INT8", ("fp8", "awq", "int8")),
        ("sglang", "sglang", "AWQ, GPTQ, FP8", ("awq", "gptq", "fp8")),
        ("llama-cpp", "llama.cpp", "GGUF, 2 - 8 bit", ("q2_k", "q4_k_m", "q5_k_m", "q8_0")),
    ):
        yield Claim(
            id=f"engine-formats-{key}",
            article="handbook",
            section="10",
            text=Text(f"{engine} loads {printed}", f"{engine} 支持 {printed}"),
            unit="truth",
            ours=partial(
                lambda engine, layouts: [
                    Case(float(_loads(engine, layout)), layout) for layout in layouts
                ],
                engine,
                layouts,
            ),
            source="what each engine's loader takes (docs/engines.md)",
        )


def _loads(engine: str, layout: str) -> bool:
    try:
        return deployed(_EIGHT, A100, layout, engine=engine, context=4096).verdict == "fits"
    except TokenroomError:
        return False


def _answering(asks: Callable[[str], Cases], engine: str, *, positive: bool) -> Callable[[], Cases]:
    def answer() -> Cases:
        (case,) = asks(engine)
        return holds(bool(case.value) is positive)

    return answer


def _used_share(engine: str) -> Callable[[], Cases]:
    def answer() -> Cases:
        stage = _on(engine).governing_stage
        return one(1 - stage.free_bytes / stage.total_bytes)

    return answer


def _techniques() -> Iterator[Claim]:
    yield Claim(
        id="speculative-lowers-kv",
        article="handbook",
        section="7.4",
        text=Text(
            "Speculative decoding lowers the peak of the KV cache: the pool holds more tokens "
            "with it (DeepSeek-V3 with MTP, 8 x H200)",
            "推测解码降低 KV 峰值：启用后池可容纳更多 token（DeepSeek-V3 MTP，8×H200）",
        ),
        unit="truth",
        ours=lambda: holds(
            _drafted().plan.kv_pool_tokens
            > deployed(DEEPSEEK_V3, "h200", tp=8, context=8192).plan.kv_pool_tokens
        ),
        reason=Text(
            "It adds the draft's weights and KV, and slots for tokens that are tried.",
            "会增加草稿模型的权重与 KV，以及待验证 token 的槽位。",
        ),
        source="vLLM 0.33 v1/spec_decode, config/speculative.py",
    )
    yield Claim(
        id="speculative-adds-weights",
        article="handbook",
        section="7.4",
        text=Text(
            "What speculative decoding adds to the weights of a card (the article leaves it out)",
            "推测解码为每卡增加的权重（文章未考虑）",
        ),
        unit="bytes",
        published=None,
        ours=lambda: one(
            _drafted().governing_stage.weights_bytes
            - deployed(DEEPSEEK_V3, "h200", tp=8, context=8192).governing_stage.weights_bytes
        ),
        source="vLLM 0.33 v1/spec_decode",
    )
    yield Claim(
        id="lora-near-zero",
        article="handbook",
        section="7.2",
        text=Text(
            "Multi-LoRA adds almost nothing (below 1% of the weights): adapters in memory over "
            "base weights (Llama-3.1-8B, rank 16)",
            "多 LoRA 场景显存近乎零增长（不到权重的 1%）：适配器与基座权重之比（Llama-3.1-8B，"
            "rank 16）",
        ),
        unit="share",
        printed=Text("near 0", "近乎零"),
        published=Span(0, 0.01),
        ours=lambda: [
            Case(
                (
                    deployed(
                        _EIGHT,
                        A100,
                        context=8192,
                        enable_lora=True,
                        max_loras=count,
                        max_lora_rank=16,
                    ).governing_stage.weights_bytes
                    - deployed(_EIGHT, A100, context=8192).governing_stage.weights_bytes
                )
                / deployed(_EIGHT, A100, context=8192).governing_stage.weights_bytes,
                f"{count}",
            )
            for count in (1, 8, 32)
        ],
        reason=Text(
            "Each slot holds both matrices of every layer: half a percent a slot at rank 16, more "
            "at higher ranks.",
            "每个槽位都保存各层的两个低秩矩阵：rank 16 时每槽约 0.5%，rank 更高则更多。",
        ),
        source="vLLM 0.33 lora/layers, max_loras x max_lora_rank",
    )
    yield Claim(
        id="offload-beyond-gpu",
        article="handbook",
        section="7.2",
        text=Text(
            "Offloading weights to the CPU goes beyond a GPU's memory (Llama-3-8B in 16 bits on "
            "16 GB with llama.cpp)",
            "参数卸载到 CPU 可突破 GPU 显存上限（llama.cpp，Llama-3-8B 16 位，16 GB 卡）",
        ),
        unit="truth",
        ours=lambda: holds(
            deployed(LLAMA_3_8B, "t4", engine="llama.cpp", context=4096, n_gpu_layers=20).verdict
            == "fits"
            and deployed(LLAMA_3_8B, "t4", context=4096, dtype="float16").verdict == "does_not_fit"
        ),
        source="llama.cpp src/llama-model.cpp (n_gpu_layers)",
    )
    yield Claim(
        id="quantise-doubles",
        article="ledger",
        section="4",
        text=Text(
            "Quantised weights and cache together more than double what a card holds (Llama-2-7B, "
            "RTX 4090)",
            "权重量化与 KV 量化组合可使容量翻一倍以上（Llama-2-7B，RTX 4090）",
        ),
        unit="ratio",
        printed="> 2",
        published=Span(2),
        ours=lambda: one(
            deployed(
                "meta-llama/Llama-2-7b-hf", "4090", "awq", context=4096, kv="fp8"
            ).requests_held
            / deployed("meta-llama/Llama-2-7b-hf", "4090", context=4096).requests_held
        ),
        source="vLLM 0.33",
    )
    yield Claim(
        id="moe-kv-total-width",
        article="handbook",
        section="12",
        text=Text(
            "The KV cache of a mixture of experts depends on attention alone: Mixtral-8x7B's over "
            "Mistral-7B's",
            "MoE 的 KV Cache 与专家数无关：Mixtral-8x7B 与 Mistral-7B 之比",
        ),
        unit="ratio",
        printed="1",
        published=exactly(1),
        ours=lambda: one(
            request_bytes(model("mistralai/Mixtral-8x7B-v0.1"), 4096)
            / request_bytes(model("mistralai/Mistral-7B-v0.1"), 4096)
        ),
        source="config.json of both",
    )
    yield Claim(
        id="vllm-status",
        article="handbook",
        section="11.2",
        text=Text("vLLM has a command `vllm status`", "vLLM 提供命令 `vllm status`"),
        unit="truth",
        ours=lambda: holds(_parses("vllm status")),
        reason=Text(
            "It has none (it has serve, chat, complete, bench, run-batch and others); a server's "
            "state is at /metrics.",
            "没有该命令（有 serve、chat、complete、bench、run-batch 等）；运行状态见 /metrics。",
        ),
        source="vLLM 0.33 entrypoints/cli/main.py",
    )


def _parses(words: str) -> bool:
    try:
        return command_parser("vllm")(words.split()).refusal is None
    except TokenroomError:
        return False


def _drafted() -> FitResult:
    return fit(
        model(DEEPSEEK_V3),
        "h200",
        tp=8,
        context=8192,
        speculative=SpeculativeSettings(method="mtp", num_speculative_tokens=1),
    )


def _remedies() -> Iterator[Claim]:
    """The handbook's decision tree: does each remedy leave more tokens in the pool?"""
    base = {"tp": 4, "context": 8192}

    def is_more(gpu: str, layout: str | None = None, **settings: Any) -> bool:
        changed = deployed(LLAMA_3_70B, gpu, layout, **{**base, **settings})
        return (
            changed.plan.kv_pool_tokens
            > 1.02 * deployed(LLAMA_3_70B, gpu, **base).plan.kv_pool_tokens
        )

    def more(layout: str | None = None, **settings: Any) -> Cases:
        return holds(is_more(A100, layout, **settings))

    for key, english, chinese, layout, settings, reason in (
        ("int8", "Lower precision, FP16 to INT8", "更低精度：FP16 → INT8", "int8", {}, None),
        ("int4", "Lower precision, INT8 to INT4", "更低精度：INT8 → INT4", "awq", {}, None),
        ("tp", "More GPUs (TP)", "增加 GPU（TP）", None, {"tp": 8}, None),
        ("pp", "More GPUs (PP)", "增加 GPU（PP）", None, {"pp": 2}, None),
        (
            "max-num-seqs",
            "A smaller max_num_seqs (256 to 16)",
            "减小 max_num_seqs（256 → 16）",
            None,
            {"max_num_seqs": 16},
            Text(
                "It lowers the sampler's peak and the graphs a little; the pool is what is left, "
                "however many requests run.",
                "只略微降低采样器峰值与图占用；池等于剩余显存，与并发上限几乎无关。",
            ),
        ),
        (
            "max-model-len",
            "A smaller max_model_len (8K to 2K)",
            "减小 max_model_len（8K → 2K）",
            None,
            {"context": 2048},
            Text(
                "The pool does not depend on it; it only lets a pool start that is smaller than "
                "one longest request, and bounds what a request may take.",
                "池的大小与之无关；它只使小于单个最长请求的池得以启动，并限制单请求占用。",
            ),
        ),
        ("kv-fp8", "An FP8 cache", "KV 缓存 FP8", None, {"kv": "fp8"}, None),
    ):
        yield Claim(
            id=f"remedy-{key}",
            article="handbook",
            section="11.1",
            text=Text(
                f"{english} leaves more tokens in the pool (over 2%; Llama-3-70B, 4 x A100-80GB)",
                f"{chinese} 可容纳更多 token（超过 2%；Llama-3-70B，4×A100-80GB）",
            ),
            unit="truth",
            ours=(lambda layout=layout, settings=settings: more(layout, **settings)),  # type: ignore[misc]
            reason=reason,
            source="vLLM 0.33",
        )
    yield Claim(
        id="remedy-chunk",
        article="handbook",
        section="11.1",
        text=Text(
            "Smaller chunks of prefill (512 tokens) leave more tokens in the pool (over 2%; "
            "Llama-3-70B on four cards)",
            "更小的 prefill 分块（512 token）可容纳更多 token（超过 2%；Llama-3-70B，四卡）",
        ),
        unit="truth",
        ours=lambda: [
            Case(float(is_more(gpu, max_num_batched_tokens=512)), gpu) for gpu in (A100, "h100")
        ],
        reason=Text(
            "Where a step has 8,192 tokens by default (cards of 70 GiB and more that are no A100); "
            "on A100 it has 2,048, and the sampler holds the peak.",
            "默认单步 8192 token 的卡（70 GiB 以上且非 A100）如此；A100 默认 2048 token，峰值已由"
            "采样器决定。",
        ),
        source="vLLM 0.33 engine/arg_utils.py, v1/worker/gpu_model_runner.py profile_run",
    )


CLAIMS: Final = (*_comparison(), *_formats(), *_techniques(), *_remedies())
