"""Short retold reports of public trackers: the cause that their maintainers or figures name."""

import io

import pytest

from tokenroom.diagnosis.explain import explain
from tokenroom.diagnosis.remedies import remedies

SAMPLER = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with {} dummy requests. "
    "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)
WORKER = "(VllmWorker rank=0 pid=17) ERROR 03-16 06:12:38 [multiproc_executor.py:375] "

REPORTS: list[tuple[str, str, str | None, tuple[str, ...]]] = [
    # where it was reported, cause, phase, lines
    (
        "vllm-project/vllm#14452: the sampler at 1,024 requests, after the graphs",
        "activation_peak",
        "profile",
        (
            "INFO 03-16 [kv_cache_utils.py:537] GPU KV cache size: 64,112 tokens",
            "INFO 03-16 [gpu_model_runner.py:1442] Graph capturing finished in 20 secs",
            WORKER + 'File "gpu_model_runner.py", line 1292, in _dummy_sampler_run',
            WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 502.00 MiB.",
            WORKER + SAMPLER.format(1024),
        ),
    ),
    (
        "vllm-project/vllm#27508: the last line alone",
        "activation_peak",
        "profile",
        (WORKER + SAMPLER.format(1024),),
    ),
    (
        "vllm-project/vllm#29049: likewise, with adapters",
        "activation_peak",
        "profile",
        (
            "(EngineCore_DP0 pid=270) ERROR [core.py:842] in compile_or_warm_up_model",
            "(EngineCore_DP0 pid=270) ERROR [core.py:842] " + SAMPLER.format(256),
        ),
    ),
    (
        "vllm-project/vllm#15105: while serving; what graphs hold privately is not the cause",
        "activation_peak",
        "prefill",
        (
            "INFO:     Application startup complete.",
            WORKER + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU "
            "1 has a total capacity of 23.57 GiB of which 605.88 MiB is free. Of the allocated "
            "memory 20.21 GiB is allocated by PyTorch, with 128.00 MiB allocated in private pools "
            "(e.g., CUDA Graphs), and 185.98 MiB is reserved by PyTorch but unallocated.",
        ),
    ),
    (
        "sgl-project/sglang#5285: graphs of DeepEP",
        "cuda_graphs",
        "graph_capture",
        (
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 "
            "MiB. GPU 7 has a total capacity of 95.00 GiB",
        ),
    ),
    (
        "sgl-project/sglang#9706: the capture failed in custom all-reduce",
        "not_memory",
        None,
        (
            "[2025-08-27 06:31:49 TP0] Capture cuda graph begin. avail mem=20.0 GB",
            "Exception: Capture cuda graph failed: invalid argument",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        ),
    ),
    (
        "sgl-project/sglang#5389: the capture failed to compile a kernel",
        "not_memory",
        None,
        (
            "Exception: Capture cuda graph failed: Ninja build failed. fatal error: cuda_fp8.h: "
            "No such file or directory",
        ),
    ),
    (
        "ggml-org/llama.cpp#20431: the model's buffer",
        "weights_too_big",
        "load",
        (
            "load_tensors: loading model tensors, this can take a while... (mmap = true)",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144817.04 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "alloc_tensor_range: failed to allocate CUDA0 buffer of size 151851674624",
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        ),
    ),
    (
        "ggml-org/llama.cpp#11476: the compute buffer, behind compose's prefix",
        "compute_buffer",
        "kv_init",
        (
            "deep-seek-1  | ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on "
            "device 1: cudaMalloc failed: out of memory",
            "deep-seek-1  | llama_kv_cache_update_impl: failed to allocate compute buffers",
        ),
    ),
    (
        "ollama/ollama#9782: the runner's scratch memory",
        "compute_buffer",
        "load",
        (
            "load_tensors: offloaded 62/62 layers to GPU",
            "CUDA error: out of memory",
            "Error: llama runner process has terminated: CUDA error: out of memory",
        ),
    ),
    (
        "huggingface/text-generation-inference#1067: the warm-up",
        "activation_peak",
        "profile",
        (
            "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease "
            "`--max-batch-prefill-tokens`",
        ),
    ),
    (
        "huggingface/text-generation-inference#1374: after the warm-up, 1.57 GiB in pieces",
        "fragmentation",
        "prefill",
        (
            "2023-12-22T00:21:35Z ERROR batch{batch_size=1}:prefill:prefill{id=1 size=1}: "
            "text_generation_client: router/client/src/lib.rs:33: Server error: CUDA out of "
            "memory. Tried to allocate 222.00 MiB. GPU 0 has a total capacty of 39.39 GiB of which "
            "217.94 MiB is free. Of the allocated memory 37.10 GiB is allocated by PyTorch, and "
            "1.57 GiB is reserved by PyTorch but unallocated.",
        ),
    ),
    (
        "NVIDIA/TensorRT-LLM#2398: PyTorch holds 0 bytes of a full GPU",
        "other_process",
        "load",
        (
            "[TensorRT-LLM] TensorRT-LLM version: 0.12.0",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a "
            "total capacity of 22.19 GiB of which 1.50 MiB is free. Of the allocated memory 0 "
            "bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
        ),
    ),
    (
        "NVIDIA/TensorRT-LLM#5872: the executor names the KV cache",
        "kv_preallocation",
        "kv_init",
        (
            "[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: "
            "Executor creation failed due to insufficient GPU memory.",
            "The following component could not be created: KV cache",
        ),
    ),
]


@pytest.mark.parametrize(("where", "cause", "phase", "lines"), REPORTS)
def test_the_first_cause_is_the_reported_one(
    where: str, cause: str, phase: str | None, lines: tuple[str, ...]
) -> None:
    found = explain(io.BytesIO("\n".join(lines).encode()))
    assert str(found.cause) == cause, where
    assert (None if found.phase is None else str(found.phase)) == phase, where


def test_a_sampler_without_room_is_helped_by_fewer_requests() -> None:
    found = explain(io.BytesIO(SAMPLER.format(1024).encode()))
    assert found.first is not None
    flags = [one.flag for one in remedies(found.first, "vllm", None)]
    assert flags[0] == "--max-num-seqs 512"
    assert not any("batched-tokens" in flag for flag in flags)


@pytest.mark.parametrize(
    ("component", "cause"),
    [
        ("Model", "weights_too_big"),
        ("Initial KV cache (temporary for KV cache size estimation)", "kv_preallocation"),
        ("Model resources created during usage", "activation_peak"),
    ],
)
def test_each_component_of_an_executor_is_told(component: str, cause: str) -> None:
    line = f"[TRT-LLM] [E] The following component could not be created: {component}"
    assert str(explain(io.BytesIO(line.encode())).cause) == cause


def test_an_executor_that_does_not_say_what_failed_is_told_with_doubt() -> None:
    found = explain(io.BytesIO(b"[TRT-LLM] [E] Executor creation: insufficient GPU memory"))
    assert (str(found.cause), found.confidence) == ("weights_too_big", "low")


def test_a_cache_that_takes_too_large_a_share_is_helped_by_a_smaller_one() -> None:
    line = b"[TRT-LLM] [E] The following component could not be created: KV cache"
    found = explain(io.BytesIO(line))
    assert found.first is not None
    flags = [one.flag for one in remedies(found.first, "tensorrt-llm", None)]
    assert flags[0] == "--kv_cache_free_gpu_memory_fraction 0.85"
