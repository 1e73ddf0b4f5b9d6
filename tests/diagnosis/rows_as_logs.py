"""Rows of measurements written as the logs that their engines print.

Forms: vLLM v1/core/kv_cache_utils.py, worker/worker.py and v1/worker/gpu_worker.py (0.5.4 to 0.33),
SGLang model_executor/model_runner.py (0.4), TensorRT-LLM cpp/tensorrt_llm/batch_manager (1.0),
llama.cpp ggml-cuda.cu, ggml-alloc.c and llama-context.cpp (b8117), PyTorch's allocator (2.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def as_log(row: Mapping[str, Any]) -> str:
    """The log of a start that failed, as far as a row's figures tell it."""
    lines = {
        "vllm": _vllm,
        "sglang": _sglang,
        "tensorrt-llm": _tensorrt_llm,
        "llama.cpp": _llama_cpp,
        "ik_llama.cpp": _llama_cpp,
    }[row["engine"]]
    return "\n".join(lines(row, row["reported"], row["flags"]))


def _vllm(
    row: Mapping[str, Any], told: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[str]:
    model = row["model"] or "a/model"
    yield f"INFO 01-01 [api_server.py:1289] vLLM API server version {row['engine_version']}"
    printed = {"model": model, **flags}
    yield f"INFO 01-01 [utils.py:233] non-default args: {printed!r}"
    yield f"INFO 01-01 [gpu_model_runner.py:1595] Starting to load model {model}..."
    tried = "oom_tried_gib" in told
    profile = "profile run" in row["note"] or "in the multimodal" in row["note"]
    if tried and not profile and "kv_tokens" not in told and "graph_private_pool_mib" not in told:
        yield '  File "vllm/model_executor/model_loader/loader.py", line 400, in load_model'
        yield _torch_oom(told)
        return
    if "weights_gib" in told:
        yield (
            f"INFO 01-01 [gpu_model_runner.py:1347] Model loading took "
            f"{told['weights_gib']} GiB and 30.1 seconds"
        )
    if profile or "at defaults even with" in row["note"]:
        yield '  File "vllm/worker/enc_dec_model_runner.py", line 359, in profile_run'
        yield _torch_oom(told) if tried else "torch.OutOfMemoryError: CUDA out of memory."
        return
    if "graph_est_gib" in told:
        yield (
            f"INFO 01-01 [gpu_worker.py:440] Estimated CUDA graph memory: "
            f"{told['graph_est_gib']} GiB total"
        )
    if "activation_gib" in told and "budget_gib" in told:
        yield (
            f"INFO 01-01 worker.py:267] the current vLLM instance can use total_gpu_memory "
            f"({told['total_gpu_gib']}GiB) x gpu_memory_utilization "
            f"({flags['gpu_memory_utilization']}) = {told['budget_gib']}GiB"
        )
        yield (
            f"INFO 01-01 worker.py:267] model weights take {told['weights_gib']}GiB; "
            f"non_torch_memory takes {told['non_torch_gib']}GiB; PyTorch activation peak memory "
            f"takes {told['activation_gib']}GiB; the rest of the memory reserved for KV Cache is "
            f"{told['kv_gib']}GiB."
        )
    if "kv_gib" in told:
        yield f"INFO 01-01 [gpu_worker.py:227] Available KV cache memory: {told['kv_gib']} GiB"
    if "blocks" in told:
        yield (
            f"INFO 01-01 distributed_gpu_executor.py:56] # GPU blocks: {told['blocks']}, "
            f"# CPU blocks: {told['cpu_blocks']}"
        )
    length = _length(told, flags)
    capacity = told.get("kv_tokens") or told.get("blocks", 0) * told.get("block_size", 0)
    if (told.get("kv_gib") or 0) < 0 or "graph_est_gib" in told:
        yield (
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine."
        )
    elif "kv_needed_gib" in told:
        yield (
            f"ValueError: To serve at least one request with the models's max seq len ({length}), "
            f"({told['kv_needed_gib']} GiB KV cache is needed, which is larger than the available "
            f"KV cache memory ({told['kv_gib']} GiB). Based on the available memory, the estimated "
            f"maximum model length is {told.get('est_max_model_len', length - 16)}. Try increasing "
            f"`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    elif capacity and length and capacity < length:
        yield (
            f"ValueError: The model's max seq len ({length}) is larger than the maximum number of "
            f"tokens that can be stored in KV cache ({capacity}). Try increasing "
            f"`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    elif "sampler" in row["note"]:
        yield "INFO 01-01 [gpu_model_runner.py:1686] Graph capturing finished in 26 secs"
        yield (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
            "requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`."
        )
    else:
        if "kv_tokens" in told:
            yield (
                f"INFO 01-01 [kv_cache_utils.py:634] GPU KV cache size: "
                f"{told['kv_tokens']:,} tokens"
            )
        if row["outcome"] == "fails at run time" or tried:
            yield "INFO:     Application startup complete."
        yield _torch_oom(told) if tried else "torch.OutOfMemoryError: CUDA out of memory."


def _length(told: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """The longest request, of settings that may say more than the number."""
    known = flags.get("max_model_len") or told.get("max_concurrency_len") or 16_384
    return int(str(known).split()[0])


def _torch_oom(told: Mapping[str, Any]) -> str:
    free = told.get("free_gib")
    left = f"{free} GiB" if free is not None else f"{told['free_mib']} MiB"
    kept = told.get("reserved_unallocated_mib", 100.0)
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{told['oom_tried_gib']} GiB. "
        f"GPU 0 has a total capacity of {told['total_gpu_gib']} GiB of which {left} is free. "
        f"Including non-PyTorch memory, this process has {told['in_use_gib']} GiB memory in "
        f"use. Of "
        f"the allocated memory {told['torch_allocated_gib']} GiB is allocated by PyTorch, "
    )
    if "graph_private_pool_mib" in told:
        text += (
            f"with {told['graph_private_pool_mib']} MiB allocated in private pools (e.g., CUDA "
            f"Graphs), "
        )
    return f"{text}and {kept} MiB is reserved by PyTorch but unallocated."


def _sglang(
    row: Mapping[str, Any], told: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[str]:
    settings = ", ".join(f"{name}={value!r}" for name, value in flags.items())
    yield f"[2026-01-01 00:00:00] server_args=ServerArgs(model_path={row['model']!r}, {settings})"
    weights, share = told.get("weights_gib", 73.2), told.get("weights_fraction")
    total = 78.81 if share is None else weights / share
    left = told.get("avail_after_weights_gib", 4.2 if share is None else total - weights)
    yield f"[2026-01-01 00:00:01 TP0] Load weight begin. avail mem={total:.2f} GB"
    if "oom_tried_gib" in told:
        yield '  File "sglang/srt/model_loader/loader.py", line 381, in load_model'
        yield _torch_oom(told)
        return
    yield (
        f"[2026-01-01 00:01:00 TP0] Load weight end. type=Model, dtype=torch.bfloat16, avail mem="
        f"{left:.2f} GB, mem usage={weights} GB."
    )
    yield (
        f"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        f"value: self.server_args.mem_fraction_static={flags.get('mem_fraction_static', 0.88)}"
    )


def _tensorrt_llm(
    row: Mapping[str, Any], told: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[str]:
    yield "[TensorRT-LLM] TensorRT-LLM version: 0.12.0"
    if "blocks_per_seq" in told:
        needed = told["block_size"] * told["blocks_per_seq"]
        yield (
            f"[TensorRT-LLM][INFO] Allocated {told['kv_bytes'] / 2**30:.2f} GiB for max tokens in "
            f"paged KV cache ({told['kv_tokens']})."
        )
        yield (
            f"[TensorRT-LLM][ERROR] Assertion failed: maxTokensInPagedKvCache "
            f"({told['kv_tokens']}) must be large enough to process at least 1 sequence to "
            f"completion (i.e. must be larger than beam_width ({1}) * tokensPerBlock "
            f"({told['block_size']}) * maxBlocksPerSeq ({told['blocks_per_seq']})) = {needed}"
        )
    elif "process_gib" in told:
        yield (
            f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate "
            f"{told['oom_alloc_mib']} MiB. GPU 0 has a total capacty of "
            f"{told['total_gpu_gib']} GiB "
            f"of which {told['total_gpu_gib'] - told['process_gib']:.2f} GiB is free. Process "
            f"1 has "
            f"{told['process_gib']} GiB memory in use. Of the allocated memory "
            f"{told['torch_alloc_gib']} GiB is allocated by PyTorch, and 100.00 MiB is reserved by "
            f"PyTorch but unallocated."
        )
    else:
        yield (
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.02 GiB for max tokens in paged "
            "KV cache"
        )
        yield "[TensorRT-LLM][INFO] Executor instance created by worker"
        yield (
            "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: out of memory, cudaMalloc "
            "failed"
        )


def _llama_cpp(
    row: Mapping[str, Any], told: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[str]:
    yield (
        "llama_model_loader: loaded meta data with 40 key-value pairs and 700 tensors from "
        "/m.gguf (version"
    )
    yield "load_tensors: loading model tensors, this can take a while... (mmap = true)"
    ollama = flags.get("frontend") == "ollama" or "ollama" in row["url"]
    backend = (
        "Vulkan0"
        if "Vulkan" in str(row["gpu"])
        else "ROCm0"
        if "ROCm" in str(row["gpu"])
        else "CUDA0"
    )
    if ollama:
        yield 'time=2026-01-01 level=INFO source=server.go:105 msg="system memory" total="62 GiB"'
    if "gpu_free_mib" in told:
        yield (
            f"llama_model_load_from_file_impl: using device {backend} (AMD Radeon Graphics) - "
            f"{told['gpu_free_mib']} MiB free"
        )
        yield from _refused(backend, told["model_mib"][backend])
        yield f"llama_model_load: error loading model: unable to allocate {backend} buffer"
        return
    if "required_full_gib" in told:
        yield (
            f'time=2026-01-01 level=INFO source=memory.go:309 msg="offload to rocm" '
            f"layers.requested=-1 "
            f'layers.model=28 layers.offload=23 memory.available="[{told["available_gib"]} GiB]" '
            f'memory.required.full="{told["required_full_gib"]} GiB" '
            f'memory.required.allocations="[{told["required_partial_gib"]} GiB]"'
        )
        yield (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 700.00 MiB on device 0: "
            "cudaMalloc failed: out of memory"
        )
        return
    for device, size in told.get(
        "model_mib", {"CUDA0": told.get("cuda0_model_mib", 9000.0)}
    ).items():
        yield f"load_tensors: {device:>12} model buffer size = {size:.2f} MiB"
    if "first inference" in row["note"]:
        yield "llama_context: graph splits = 2"
        yield "CUDA error: out of memory"
        return
    if "KV allocation" in row["note"]:
        yield from _refused(backend, told["oom_alloc_mib"])
        yield "llama_kv_cache_init: failed to allocate buffer for kv cache"
        return
    if "kv_total_mib" in told:
        yield f"llama_kv_cache_init: {backend:>10} KV buffer size = {told['kv_total_mib']:.2f} MiB"
    copies = flags.get("n_copies") or ("pipeline parallelism" in row["note"] and 4)
    if copies:
        yield f"llama_new_context_with_model: pipeline parallelism enabled (n_copies={copies})"
    size = told.get("oom_alloc_mib") or told.get("oom_alloc_bytes", 900 * 2**20) / 2**20
    if backend == "Vulkan0":
        yield "ggml_vulkan: Device memory allocation of size 4757131264 failed."
        yield (
            "ggml_vulkan: Requested buffer size exceeds device buffer size limit: "
            "ErrorOutOfDeviceMemory"
        )
        yield "ggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 4757131264"
    else:
        yield from _refused(backend, size)
    yield "graph_reserve: failed to allocate compute buffers"


def _refused(backend: str, size_mib: float) -> Iterator[str]:
    yield (
        f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {size_mib:.2f} MiB on device 0: "
        f"cudaMalloc failed: out of memory"
    )
    yield f"alloc_tensor_range: failed to allocate {backend} buffer of size {int(size_mib * 2**20)}"
