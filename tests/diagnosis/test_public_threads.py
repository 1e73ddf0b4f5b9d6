"""More threads of public trackers, each retold in a few lines: what the lines of each engine tell.

A thread's cause is what its maintainers say or its figures show. Where nobody found out, the cause
is what the lines themselves say, and no more. Numbers of processes and of source lines are made up;
figures that a thread does not give are left out.
"""

import io

import pytest

from tokenroom.diagnosis.explain import explain

LOADED = "INFO 12-20 20:25:46 model_runner.py:1115] Loading model weights took 7.5100 GB"
BLOCKS = (
    "INFO 12-20 20:25:46 distributed_gpu_executor.py:57] # GPU blocks: 3852, # CPU blocks: 4096"
)
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a "
    "total capacity "
    "of {total} of which {free} is free. Process {process} has {own} memory in use. Of the "
    "allocated "
    "memory {allocated} is allocated by PyTorch, and {kept} is reserved by PyTorch but unallocated."
)
SUMMARY = (
    "|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |",
    "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
    "| Allocated memory      |  80469 MiB |  80469 MiB |  80469 MiB |      0 B   |",
    "| GPU reserved memory   |  80470 MiB |  80470 MiB |  80470 MiB |      0 B   |",
)
GATHERED = (
    "llama_kv_cache:      Metal KV buffer size = 11440.00 MiB",
    "llama_context:      Metal compute buffer size =   307.00 MiB",
)

THREADS: list[tuple[str, str, str | None, tuple[str, ...]]] = [
    # where, cause, phase, lines
    (
        "huggingface/text-generation-inference#563: the warm-up on one GPU of 22 GiB",
        "activation_peak",
        "profile",
        (
            "INFO text_generation_router: router/src/main.rs:210: Warming up model",
            "thread 'main' panicked at 'Unable to warmup model: Generation(\"Allocation on "
            "device 0 "
            "would exceed allowed memory. (out of memory)",
            "Currently allocated     : 16.08 GiB",
            "Requested               : 4.83 GiB",
        ),
    ),
    (
        "huggingface/text-generation-inference#1769: prompts of 10,000 tokens",
        "activation_peak",
        "profile",
        (
            "2024-04-19T11:06:25Z ERROR text_generation_launcher: Method Warmup encountered "
            "an error.",
            "Traceback (most recent call last):",
            '  File "/opt/conda/lib/text_generation_server/models/flash_causal_lm.py", in warmup',
            "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "huggingface/text-generation-inference#2744: within the budget that the warm-up found",
        "activation_peak",
        "prefill",
        (
            "INFO text_generation_router: Warming up model",
            "INFO text_generation_router: Setting max batch total tokens to 30816",
            "ERROR text_generation_launcher: Method Prefill encountered an error.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "NVIDIA/TensorRT-LLM#542: without its figures",
        "kv_pool_too_small",
        "kv_init",
        (
            "[TensorRT-LLM][ERROR] maxTokensInPagedKvCache must be large enough to process "
            "at least 1 "
            "sequence to completion (i.e. must be larger than beam_width * tokensPerBlock * "
            "maxBlocksPerSeq)",
        ),
    ),
    (
        "NVIDIA/TensorRT-LLM#494: a fraction of 0.2 leaves 693 tokens",
        "kv_pool_too_small",
        "kv_init",
        (
            "[TensorRT-LLM][INFO] Using 693 tokens in paged KV cache.",
            "E1128 16:31:49.479096 227 backend_model.cc:634] ERROR: Failed to create instance: "
            "unexpected error when creating modelInstanceState: maxTokensInPagedKvCache must "
            "be large "
            "enough to process at least 1 sequence to completion",
        ),
    ),
    (
        "janhq/cortex.cpp#981: 128 tokens in the pool",
        "kv_pool_too_small",
        "kv_init",
        (
            "[TensorRT-LLM][INFO] Max tokens in paged KV cache: 128. Allocating 16777216 bytes.",
            "20240806 UTC ERROR Unhandled exception in loadmodel, what(): [TensorRT-LLM][ERROR] "
            "Assertion failed: maxTokensInPagedKvCache (128) must be large enough to process "
            "at least 1 "
            "sequence to completion",
        ),
    ),
    (
        "NVIDIA/TensorRT-LLM#2857: logits of answers, under traffic",
        "activation_peak",
        "runtime",
        (
            "[ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mMemPool->getPool(), "
            "mCudaStream->get()): out of memory (/app/tensorrt_llm/cpp/tensorrt_llm/runtime/"
            "tllmBuffers.h:125)",
            "2 0x1 tensorrt_llm::runtime::BufferManager::gpu(nvinfer1::Dims64) const + 515",
            "3 0x1 tensorrt_llm::batch_manager::RuntimeBuffers::reshape(ModelConfig const&) + 2033",
        ),
    ),
    (
        "ggml-org/llama.cpp#11044: SYCL, a prompt of 40,000 words",
        "compute_buffer",
        "prefill",
        (
            "llama_new_context_with_model: graph nodes  = 1030",
            "main: server is listening on http://127.0.0.1:8080",
            "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 568000000 Bytes of "
            "memory on "
            "device",
        ),
    ),
    (
        "ggml-org/llama.cpp#15256: Vulkan, more layers than the GPU holds",
        "weights_too_big",
        "load",
        (
            "ggml_vulkan: Device memory allocation of size 118497280 failed.",
            "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        ),
    ),
    (
        "mlc-ai/mlc-llm#974: Vulkan on a GPU of 2 GB",
        "weights_too_big",
        "load",
        (
            "InternalError: Check failed: (__e == VK_SUCCESS) is false: Vulkan Error, code=-2: "
            "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        ),
    ),
    (
        "mozilla-ai/llamafile#881: Metal, model and cache of 11 GB in unified memory",
        "compute_buffer",
        "kv_init",
        (
            *GATHERED,
            "ggml_metal_synchronize: error: command buffer 0 failed with status 5",
            "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        ),
    ),
    (
        "ollama/ollama#9782: qwen3 on a GPU of 4 GB",
        "compute_buffer",
        "load",
        (
            "Error: llama runner process has terminated: cudaMalloc failed: out of memory",
            "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 838447104",
        ),
    ),
    (
        "ollama/ollama#9322: 128 GB of weights in fp16 on a host of 128 GB",
        "host_ram",
        "load",
        (
            "Feb 24 11:16:31 adl systemd[1]: ollama.service: A process of this unit has been "
            "killed by "
            "the OOM killer.",
            "Feb 24 11:16:32 adl systemd[1]: ollama.service: Failed with result 'oom-kill'.",
        ),
    ),
    (
        "ollama/ollama#11231: the unit's result alone",
        "host_ram",
        "load",
        (
            "Jun 28 08:05:25 nixos ollama[1300]: load_tensors: loading model tensors (mmap = "
            "false)",
            "Jun 28 08:06:02 nixos systemd[1]: ollama.service: Failed with result 'oom-kill'.",
        ),
    ),
    (
        "ollama/ollama#9934: the kernel's line",
        "host_ram",
        "load",
        (
            "load_tensors: loading model tensors",
            "kernel: Out of memory: Killed process 1 (ollama)",
        ),
    ),
    (
        "vllm-project/vllm#57475: the graphs' estimate fell short at 0.98",
        "cuda_graphs",
        "graph_capture",
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 "
            "has a total "
            "capacity of 22.36 GiB of which 120.88 MiB is free. If this problem persists, "
            "try setting "
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
        ),
    ),
    (
        "vllm-project/vllm#11251: graphs on V100s, which a lower share helped",
        "cuda_graphs",
        "graph_capture",
        (
            LOADED,
            BLOCKS,
            "INFO 12-20 20:25:49 model_runner.py:1413] Capturing cudagraphs for decoding. "
            "This may lead "
            "to unexpected consequences if the model is not static.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "vllm-project/vllm#17631: Llama 3.3 70B over eight A10s",
        "activation_peak",
        "profile",
        (
            "(VllmWorker rank=4 pid=555) ERROR 05-04 12:38:38 [multiproc_executor.py:380] File "
            '"gpu_worker.py", line 157, in determine_available_memory',
            "(VllmWorker rank=4 pid=555) ERROR 05-04 12:38:38 [multiproc_executor.py:380] "
            "self.model_runner.profile_run()",
            "(VllmWorker rank=4 pid=555) ERROR 05-04 12:38:38 [multiproc_executor.py:380] "
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "vllm-project/vllm#10034: 11B with vision over two A10s",
        "encoder_budget",
        "profile",
        (
            "INFO 11-05 04:16:47 model_runner.py:1025] Loading model weights took 10.0714 GB",
            "INFO 11-05 04:16:47 enc_dec_model_runner.py:297] Starting profile run for multi-modal "
            "models.",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 "
            "has a total "
            "capacity of 22.09 GiB of which 758.44 MiB is free. Including non-PyTorch memory, this "
            "process has 21.35 GiB memory in use. Of the allocated memory 20.90 GiB is "
            "allocated by "
            "PyTorch",
        ),
    ),
    (
        "vllm-project/vllm#1765: Ray's memory monitor",
        "host_ram",
        "load",
        (
            "INFO llm_engine.py:70] Initializing an LLM engine with config: model='a'",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
            "memory.",
        ),
    ),
    (
        "TideDra/lmm-r1#71: Ray's advice after its workers had used up the host",
        "host_ram",
        "load",
        (
            "95412   14.05   ray::LLMRayActor",
            "Refer to the documentation on how to address the out of memory issue: "
            "https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html.",
        ),
    ),
    (
        "vllm-project/vllm#586: Ray lists what may have ended a worker",
        "host_ram",
        "load",
        (
            "INFO llm_engine.py:70] Initializing an LLM engine with config: model='vicuna'",
            "There are some potential root causes. (1) The process is killed by SIGKILL by "
            "OOM killer "
            "due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed "
            "unexpectedly due to SIGSEGV or other unexpected errors.",
        ),
    ),
    (
        "kvcache-ai/ktransformers#637: the kernel's list of processes",
        "host_ram",
        "load",
        (
            "loading blk.7.ffn_norm.weight",
            "[Thu Mar 20 21:01:25 2025] [ 269574]     0 python",
            "[Thu Mar 20 21:01:25 2025] Out of memory: Killed process 1 (python)",
        ),
    ),
    (
        "huggingface/transformers#26203: a summary in which nothing was freed yet",
        "weights_too_big",
        "load",
        SUMMARY,
    ),
    (
        "oobabooga/text-generation-webui#1274: accelerate moves the layers to the GPU",
        "weights_too_big",
        "load",
        (
            'File "text-generation-webui/server.py", line 85, in load_model_wrapper',
            'File "accelerate/big_modeling.py", line 370, in dispatch_model',
            "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "sgl-project/sglang#1533: a process on one of the GPUs",
        "other_process",
        "load",
        (
            "[TP0] Init torch distributed begin.",
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
            "processes.",
        ),
    ),
    (
        "sgl-project/sglang#11970: a release that loses tokens",
        "leak",
        "runtime",
        (
            "[2025-10-22 10:00:00] The server is fired up and ready to roll!",
            "ValueError: token_to_kv_pool_allocator memory leak detected! "
            "self.max_total_num_tokens=270331, available_size=644, evictable_size=269628",
        ),
    ),
    (
        "sgl-project/sglang#6888: the same, and the shell's last word",
        "leak",
        "runtime",
        (
            "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3189424",
            "[2025-06-06 01:56:27] Received sigquit from a child process. It usually means "
            "the child "
            "failed.",
            "./run.sh: line 22: 103525 Killed                  python -m sglang.launch_server",
        ),
    ),
    (
        "NVIDIA/nccl#290: segments in a container",
        "shm",
        "load",
        (
            "gpu2-ru7:2143:2561 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate "
            "failed : No space "
            "left on device",
            "gpu2-ru7:2143:2561 [1] include/shm.h:48 NCCL WARN Error while creating shared memory "
            "segment nccl-shm-recv-250a7cc850ba9298-0-1-3 (size 9637888)",
        ),
    ),
    (
        "llm-d/llm-d#352: full after several crashes",
        "shm",
        "load",
        (
            "vllm-deepseek-ep-decode-0:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error while "
            "creating shared memory segment /dev/shm/nccl-Ewjreo (size 33030528), error: No "
            "space left "
            "on device (28)",
        ),
    ),
    (
        "vllm-project/vllm#50135: processes of earlier starts hold the GPU",
        "other_process",
        "load",
        (
            "ValueError: Free memory on device xpu:0 (0.22/30.3 GiB) on startup is less than "
            "desired GPU "
            "memory utilization (0.7, 21.21 GiB). Decrease GPU memory utilization or reduce "
            "GPU memory "
            "used by other processes.",
        ),
    ),
    (
        "pytorch/pytorch#175666: two gigabytes are taken at the start",
        "other_process",
        "load",
        (
            "(EngineCore_DP0 pid=6940) ray.exceptions.RayTaskError(ValueError): "
            "ray::RayWorkerWrapper.execute_method()",
            "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less "
            "than desired "
            "GPU memory utilization (0.9, 19.84 GiB).",
        ),
    ),
    (
        "Ksuriuri/index-tts-vllm#99: swap space as large as the host's memory",
        "host_ram",
        "load",
        (
            "ValueError: Too large swap space. 4.00 GiB out of the 4.30 GiB total CPU memory is "
            "allocated for the swap space.",
        ),
    ),
    (
        "vllm-project/vllm#588: sequences that find no place to be swapped to",
        "kv_pool_too_small",
        "decode",
        (
            "RuntimeError: Aborted due to the lack of CPU swap space. Please increase the "
            "swap space to "
            "avoid this error.",
        ),
    ),
    (
        "vllm-project/vllm#31273: fp8 made while loading, by a release that makes all layers first",
        "wrong_dtype_load",
        "load",
        (
            "INFO [core.py:93] Initializing a V1 LLM engine (v0.13.0) with config: "
            "model='Qwen2.5-72B', "
            "quantization=fp8, enforce_eager=False",
            "Loading safetensors checkpoint shards:   3% Completed | 1/37 [00:02<01:39,  2.77s/it]",
            TORCH.format(
                asked="80.00 MiB",
                total="139.72 GiB",
                free="60.69 MiB",
                process="691170",
                own="139.65 GiB",
                allocated="139.21 GiB",
                kept="12.81 MiB",
            ),
        ),
    ),
    (
        "huggingface/text-generation-inference#1374: in its first trace the process alone "
        "fills the GPU",
        "activation_peak",
        "prefill",
        (
            "INFO text_generation_router: Setting max batch total tokens to 7000",
            "ERROR Server error: "
            + TORCH.format(
                asked="42.00 MiB",
                total="39.39 GiB",
                free="31.94 MiB",
                process="7529",
                own="39.23 GiB",
                allocated="37.21 GiB",
                kept="10.00 MiB",
            ).replace("capacity", "capacty"),
        ),
    ),
]


@pytest.mark.parametrize(("where", "cause", "phase", "lines"), THREADS)
def test_the_first_cause_is_the_reported_one(
    where: str, cause: str, phase: str | None, lines: tuple[str, ...]
) -> None:
    found = explain(io.BytesIO("\n".join(lines).encode()))
    assert str(found.cause) == cause, where
    assert (None if found.phase is None else str(found.phase)) == phase, where


FURTHER: list[tuple[str, str, str | None, tuple[str, ...]]] = [
    # where, cause, phase, lines
    (
        "vllm-project/vllm#22173: ten images and a video a request",
        "encoder_budget",
        "profile",
        (
            "WARNING 08-04 16:54:49 [profiling.py:247] The sequence length used for profiling "
            "(max_num_batched_tokens / max_num_seqs = 8192) is too short to hold the multi-modal "
            "embeddings in the worst case (180224 tokens in total).",
            "(VllmWorkerProcess pid=42878) ERROR 08-04 16:54:59 [multiproc_worker_utils.py:238] "
            "Exception in worker VllmWorkerProcess while processing method "
            "determine_num_available_blocks.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
    ),
    (
        "vllm-project/vllm#12095: whisper for 256 requests at once on 8 GiB",
        "encoder_budget",
        "kv_init",
        (
            "INFO 01-15 11:06:43 model_runner.py:1102] Loading model weights took 0.0713 GB",
            "INFO 01-15 11:06:43 enc_dec_model_runner.py:278] Starting profile run for multi-modal "
            "models.",
            "INFO 01-15 11:06:48 worker.py:240] the current vLLM instance can use total_gpu_memory "
            "(8.00GiB) x gpu_memory_utilization (0.90) = 7.20GiB",
            "INFO 01-15 11:06:48 worker.py:240] model weights take 0.07GiB; non_torch_memory takes "
            "0.04GiB; PyTorch activation peak memory takes 7.09GiB; the rest of the memory "
            "reserved "
            "for KV Cache is -0.00GiB.",
            "ValueError: No available memory for the cache blocks.",
        ),
    ),
    (
        "vllm-project/vllm#546: sequences that are swapped out",
        "kv_pool_too_small",
        "decode",
        (
            "INFO 10-28 11:16:39 metrics.py:349] Avg prompt throughput: 0.0 tokens/s, Avg "
            "generation "
            "throughput: 7154.5 tokens/s, Running: 2 reqs, Swapped: 0 reqs, Pending: 98 "
            "reqs, GPU KV "
            "cache usage: 86.1%, CPU KV cache usage: 0.0%.",
            "WARNING 10-28 11:16:41 scheduler.py:1483] Sequence group chat-7e63 is preempted by "
            "PreemptionMode.SWAP mode because there is not enough KV cache space.",
        ),
    ),
    (
        "GAIR-NLP/LIMO#29: the warning alone",
        "kv_pool_too_small",
        "decode",
        (
            " Sequence group 221 is preempted by PreemptionMode.RECOMPUTE mode because there "
            "is not "
            "enough KV cache space. total_num_cumulative_preemption=101",
        ),
    ),
    (
        "sgl-project/sglang#37712: logits of several long prompts in one tensor",
        "activation_peak",
        "runtime",
        (
            "    logits = deep_gemm.fp8_mqa_logits(",
            "tvm.error.InternalError: CUDA out of memory. Tried to allocate 73.65 GiB. GPU 1 ... "
            "50.40 GiB is free.",
        ),
    ),
    (
        "xorbitsai/inference#1036: scratch memory of a longer context",
        "compute_buffer",
        "prefill",
        (
            "CUDA error: out of memory",
            "  current device: 0, in function ggml_cuda_pool_malloc_vmm at /ggml-cuda.cu:7812",
            "  cuMemCreate(&handle, reserve_size, &prop, 0)",
        ),
    ),
    (
        "ikawrakow/ik_llama.cpp#235: fifteen GPUs and four copies",
        "compute_buffer",
        "kv_init",
        (
            "llama_kv_cache_init:     CUDA14 KV buffer size =   180.00 MiB",
            "llama_new_context_with_model: pipeline parallelism enabled (n_copies=4)",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8900.01 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9332334592",
            "llama_new_context_with_model: failed to allocate compute buffers",
        ),
    ),
    (
        "abetlen/llama-cpp-python#1944: a cache of 200 GiB on one of four GPUs",
        "kv_preallocation",
        "kv_init",
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 204800.00 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "llama_kv_cache_init: failed to allocate buffer for kv cache",
            "llama_init_from_model: llama_kv_cache_init() failed for self-attention cache",
            "ValueError: Failed to create llama_context",
        ),
    ),
]


@pytest.mark.parametrize(("where", "cause", "phase", "lines"), FURTHER)
def test_threads_that_were_read_last_are_told(
    where: str, cause: str, phase: str | None, lines: tuple[str, ...]
) -> None:
    test_the_first_cause_is_the_reported_one(where, cause, phase, lines)


def test_a_buffer_that_was_done_without_is_no_failure() -> None:
    """ggml-org/llama.cpp#26297: it goes on with one copy of the inputs instead of several."""
    lines = (
        "load_tensors: offloaded 63/63 layers to GPU",
        "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on device 1: "
        "cudaMalloc failed: out of memory",
        "E graph_reserve: failed to allocate compute buffers",
        "W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 50176, kv_unified = 'false'",
        "main: server is listening on http://127.0.0.1:8080",
    )
    found = explain(io.BytesIO("\n".join(lines).encode()))
    assert found.first is None


RUNNING = (
    "INFO 02-20 18:36:10 [kv_cache_utils.py:1319] GPU KV cache size: 150,745 tokens",
    "INFO:     Application startup complete.",
)

HARMLESS = [
    # where, a line that only sounds like it
    (
        "kubeai-project/kubeai#418",
        "WARNING 02-20 18:36:00 config.py:1148] Possibly too large swap space. 4.00 GiB out "
        "of the 7.75 "
        "GiB total CPU memory is allocated for the swap space.",
    ),
    (
        "abetlen/llama-cpp-python#254",
        "warning: failed to mlock 1258291200-byte buffer (after previously locking 0 bytes): "
        "Cannot "
        "allocate memory",
    ),
    (
        "vllm-project/vllm#7768",
        "| 30%   26C    P8              16W / 450W |  14214MiB / 24564MiB |      0%      Default |",
    ),
    ("docker inspect of any container that ran", '        "OOMKilled": false,'),
    (
        "ggml-cuda.cu: pinned memory that was not to be had is done without",
        "ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory",
    ),
]


@pytest.mark.parametrize(("where", "line"), HARMLESS)
def test_lines_that_only_sound_like_it_are_no_failure(where: str, line: str) -> None:
    assert explain(io.BytesIO("\n".join((*RUNNING, line)).encode())).healthy, where


def test_a_probe_that_failed_explains_the_signal_as_well() -> None:
    lines = (
        "Warning  Unhealthy  2m  kubelet  Liveness probe failed: Get http://10.0.0.7:8000/health",
        "    Reason:       Error",
        "    Exit Code:    137",
    )
    found = explain(io.BytesIO("\n".join(lines).encode()))
    assert [str(one.cause) for one in found.findings] == ["not_memory", "host_ram"]
    assert found.confidence == "low"


def test_free_and_df_speak_for_what_they_show() -> None:
    free = "Mem:           62Gi        61Gi       0.2Gi       1.0Gi       0.8Gi       0.4Gi"
    killed = explain(io.BytesIO(f"Loading safetensors\n{free}\nKilled".encode()))
    assert (str(killed.cause), killed.confidence) == ("host_ram", "medium")
    mount = "shm              64M   64M     0 100% /dev/shm"
    full = explain(io.BytesIO(f"{mount}\nunhandled system error, NCCL version 2.21.5".encode()))
    assert (str(full.cause), full.confidence) == ("shm", "high")
