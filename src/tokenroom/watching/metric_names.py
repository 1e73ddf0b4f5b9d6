"""What engines call their figures, by version: the first name that a page has is read.

Sources are the engines' own modules: vLLM ``vllm/engine/metrics.py`` (V0, to 0.10) and
``vllm/v1/metrics/loggers.py``; SGLang ``sglang/srt/metrics/collector.py`` (to 0.5.9) and
``sglang/srt/observability/metrics_collector.py``; TensorRT-LLM
``tensorrt_llm/metrics/collector.py``; llama.cpp ``tools/server/server-task.cpp``
(``server_task_result_metrics::to_metrics``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames:
    """Names of one engine's figures, the newest first; none where it has no such figure.

    Attributes:
        prefix: What all of its names begin with.
        rank: Label of the engine or data-parallel rank.
        running: Requests in the batch.
        waiting: Requests in the queue.
        kv_share: Share of the KV pool in use, 0 to 1.
        kv_used_tokens: Tokens in use.
        kv_pool_tokens: Tokens of the pool.
        prompt_tokens: Prompt tokens, a counter.
        generation_tokens: Generated tokens, a counter.
        requests: Requests that ended, a counter.
        preemptions: Requests put out of the batch, a counter.
        prefix_queries: Tokens looked up in the prefix cache, a counter.
        prefix_hits: Those found, a counter.
        prefix_misses: Those not found, of engines that count them instead of what was looked up.
        prefix_hit_share: The share, of engines that tell it ready-made.
        ttft: Time to the first token, a histogram.
        itl: Time between tokens.
        tpot: Time for each further token, by request.
        queue: Time in the queue.
        e2e: Time of a request.
    """

    prefix: str
    rank: str
    running: Names
    waiting: Names
    prompt_tokens: Names
    generation_tokens: Names
    kv_share: Names = ()
    kv_used_tokens: Names = ()
    kv_pool_tokens: Names = ()
    requests: Names = ()
    preemptions: Names = ()
    prefix_queries: Names = ()
    prefix_hits: Names = ()
    prefix_misses: Names = ()
    prefix_hit_share: Names = ()
    ttft: Names = ()
    itl: Names = ()
    tpot: Names = ()
    queue: Names = ()
    e2e: Names = ()


NAMES: Final[Mapping[str, MetricNames]] = {
    "vllm": MetricNames(
        prefix="vllm:",
        rank="engine",  # from 0.8.3
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        # 0.9.2 renamed it; 0.9.2 to 0.11 have both.
        kv_share=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prompt_tokens=("vllm:prompt_tokens_total",),
        generation_tokens=("vllm:generation_tokens_total",),
        requests=("vllm:request_success_total",),  # from 0.5
        preemptions=("vllm:num_preemptions_total",),  # from 0.5
        # Counters in V1, renamed in 0.9.2; V0 has the share since 0.6.
        prefix_queries=(
            "vllm:prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries_total",
        ),
        prefix_hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        prefix_hit_share=("vllm:gpu_prefix_cache_hit_rate",),
        ttft=("vllm:time_to_first_token_seconds",),
        # To 0.10.1 the time between tokens had the name of the time for each output token.
        itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        tpot=("vllm:request_time_per_output_token_seconds",),  # from 0.11
        queue=("vllm:request_queue_time_seconds",),  # from 0.6.4
        e2e=("vllm:e2e_request_latency_seconds",),
    ),
    "sglang": MetricNames(
        prefix="sglang:",
        rank="dp_rank",  # from 0.4.9
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_share=("sglang:token_usage",),
        kv_used_tokens=("sglang:num_used_tokens",),
        kv_pool_tokens=("sglang:max_total_num_tokens",),  # from 0.5.7
        prompt_tokens=("sglang:prompt_tokens_total",),
        generation_tokens=("sglang:generation_tokens_total",),
        requests=("sglang:num_requests_total",),  # from 0.4.1
        preemptions=("sglang:num_retracted_requests_total",),  # from 0.5.7
        prefix_queries=("sglang:prompt_tokens_total",),
        prefix_hits=("sglang:cached_tokens_total",),  # from 0.4.1
        prefix_hit_share=("sglang:cache_hit_rate",),
        ttft=("sglang:time_to_first_token_seconds",),
        itl=("sglang:inter_token_latency_seconds",),  # from 0.4.2
        # To 0.4.4 one figure a request under this name, from 0.5.17 under the other.
        tpot=(
            "sglang:request_time_per_output_token_seconds",
            "sglang:time_per_output_token_seconds",
        ),
        queue=("sglang:queue_time_seconds", "sglang:queue_time_s"),  # renamed in 0.5.3; from 0.5.1
        e2e=("sglang:e2e_request_latency_seconds",),
    ),
    "tensorrt-llm": MetricNames(
        prefix="trtllm_",
        rank="",
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        kv_share=("trtllm_kv_cache_utilization",),
        prompt_tokens=("trtllm_prompt_tokens_total",),
        generation_tokens=("trtllm_generation_tokens_total",),
        requests=("trtllm_request_success_total",),
        prefix_hits=("trtllm_kv_cache_reused_blocks_total",),
        prefix_misses=("trtllm_kv_cache_missed_blocks_total",),
        prefix_hit_share=("trtllm_kv_cache_hit_rate",),
        ttft=("trtllm_time_to_first_token_seconds",),
        tpot=("trtllm_time_per_output_token_seconds",),
        queue=("trtllm_request_queue_time_seconds",),
        e2e=("trtllm_e2e_request_latency_seconds",),
    ),
    "llama.cpp": MetricNames(
        prefix="llamacpp:",
        rank="",
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_share=("llamacpp:kv_cache_usage_ratio",),  # to b5800, 2025
        kv_used_tokens=("llamacpp:kv_cache_tokens",),  # the same
        prompt_tokens=("llamacpp:prompt_tokens_total",),  # without cached ones
        generation_tokens=("llamacpp:tokens_predicted_total",),
        prefix_hits=("llamacpp:prompt_tokens_cached_total",),  # 2026
        prefix_misses=("llamacpp:prompt_tokens_total",),
    ),
}
