"""vLLM's own words."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # vLLM: v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py, v1/core/sched
    kind_of(
        "vllm_kv_below_length",
        ("stored in KV cache", "KV cache is needed", "KV cache memory"),
        r"max seq len \((?P<length>[\d,]+)\).*?(?:stored in KV cache \((?P<tokens>[\d,]+)\)"
        r"|(?P<needed>[\d.]+) ?GiB KV cache is needed.*?available KV cache memory "
        r"\((?P<available>[\d.]+) ?GiB\))",
        r"estimated maximum model length is (?P<longest>[\d,]+)",
    ),
    kind_of(
        "vllm_no_blocks",
        ("available memory for the cache blocks", "serve even a single token"),
        r"No available memory for the cache blocks"
        r"|Cannot auto-fit max_model_len: not enough GPU memory",
    ),
    kind_of(
        "vllm_graph_estimate",
        "Estimated CUDA graph memory",
        r"Estimated CUDA graph memory: (?P<size>[\d.]+ GiB)",
    ),
    kind_of(
        "quantizes_at_load",
        ("torchao_config=", "quantization=", "quantization'", "--quantize ", "quantize:"),
        # methods that read whole weights and make them smaller on the GPU
        r"torchao_config=['\"](?P<torchao>\w[\w-]*)"
        r"|quantization['\"]?[=:]\s*['\"]?(?P<method>fp8|mxfp8|torchao|experts_int8|int8_per_channel"
        r"|fp8_per_tensor|fp8_per_block|w8a8_fp8)['\"]?(?![\w-])"
        r"|--quantize (?P<tgi>eetq|fp8|bitsandbytes\S*)",
    ),
    kind_of(
        "vllm_sampler",
        "warming up sampler",
        r"out of memory occurred when warming up sampler with (?P<requests>\d+)",
    ),
    kind_of(
        "vllm_free_below_budget",
        ("less than desired GPU memory utilization", "on startup is less"),
        r"Free memory on device[^(]*\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less "
        r"than desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
    ),
    kind_of(
        "vllm_profiling_assert",
        "Error in memory profiling",
        r"Error in memory profiling",
        r"Initial free memory (?P<before>[\d.]+ \w+), current free memory (?P<after>[\d.]+ \w+)",
    ),
    kind_of(
        "vllm_no_swap",
        "lack of CPU swap space",  # core/scheduler.py (V0)
        r"Aborted due to the lack of CPU swap space",
    ),
    kind_of(
        "preempted",
        ("preempt", "Preempting request"),
        r"is preempted by|Preempting request "
        r"|num_preemptions_total\{[^}]*\} (?P<counter>[1-9][\d.e+]*)"
        r"|(?P<plain>[1-9]\d*) preemptions",
        r"total_num_cumulative_preemption=(?P<count>\d+)",
    ),
    kind_of(
        "vllm_stats",
        ("GPU KV cache usage", "GPU cache usage"),
        r"Running: (?P<running>\d+) reqs,.*?(?:Waiting|Pending): (?P<waiting>\d+) reqs"
        r".*?GPU (?:KV )?cache usage: (?P<usage>[\d.]+)%",
        r"generation throughput: (?P<rate>[\d.]+) tokens/s",
    ),
    kind_of(
        "vllm_pool",
        ("GPU KV cache size", "GPU blocks"),
        r"GPU KV cache size: (?P<tokens>[\d,]+) tokens|# GPU blocks: (?P<blocks>\d+)",
    ),
    kind_of(
        "vllm_length",
        ("max_model_len=", "max_model_len'", "max model len", "max_seq_len="),
        r"(?:Using max model len |max_model_len['\"]?[=:]\s*|max_seq_len=)(?P<length>\d+)",
    ),
    kind_of(
        "encoder_budget",
        (
            "enc_dec_model_runner",
            "multi-modal embeddings",
            "encoder cache",
            "multimodal",
            "mm_encoder",
            "max_pixels",
            "Encoder cache",
        ),
        r"(?P<enc_dec>enc_dec_model_runner)|Encoder cache will be initialized"
        r"|hold the multi-modal embeddings in the worst case|multimodal (?:data )?budget"
        r"|profile.*multimodal"
        r"|embed_multimodal|get_multimodal_embeddings|_process_(?:image|video)_input",
    ),
    kind_of(
        "encoder_above_budget",
        "max_tokens_per_mm_item",  # v1/core/encoder_cache_manager.py, config/scheduler.py
        r"max_tokens_per_mm_item \((?P<item>\d+)\) is larger than max_num_batched_tokens "
        r"\((?P<budget>\d+)\)",
    ),
    kind_of(
        "tp_heads",
        ("divisible by",),
        r"(?:attention heads|num_(?:key_value_|attention_)?heads|vocab|hidden).{0,40}"
        r"(?:must be|is not|not) divisible by|is not divisible by tensor"
        r"|AssertionError: \d+ is not divisible by \d+",
    ),
    kind_of(
        "wsl",
        ("WSL is detected", "microsoft-standard-WSL"),
        r"(?P<pinned>pin_memory=False).*WSL is detected|WSL is detected|microsoft-standard-WSL",
    ),
    kind_of("mig", "MIG", r"\bMIG (?P<slice>\d+g\.\d+gb)|MIG-[0-9a-f-]{8,}"),
)
