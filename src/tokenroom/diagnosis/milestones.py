"""Lines by which a phase begins, and words by which an engine is known."""

from __future__ import annotations

from typing import Final

MILESTONES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # phase that begins with it, words of the line (each engine's own)
    (
        "load",
        (
            "Starting to load model",
            "Loading safetensors",
            "Loading checkpoint shards",
            "Loading pt checkpoint",
            "Load weight begin",
            "load_tensors:",
            "llm_load_tensors",
            "Loading weights",
            "Runai Model Streamer",
            "Initializing an LLM engine",
            "Initializing a V1 LLM engine",
            "from_pretrained",
            "Loaded engine size",
        ),
    ),
    (
        "profile",
        (
            "odel loading took",
            "model weights take",
            "Load weight end",
            "Encoder cache will be initialized",
            "warmup",
            "Warming up model",
            "emory profiling",
            "Starting profile run",
            "execution context memory",
        ),
    ),
    (
        "kv_init",
        (
            "Available KV cache memory",
            "GPU KV cache size",
            "# GPU blocks",
            "KV Cache is allocated",
            "Memory pool end",
            "KV buffer size",
            "KV self size",
            "tokens in paged KV cache",
        ),
    ),
    (
        "graph_capture",
        ("Capturing CUDA graph", "Capturing the model for CUDA", "Capture cuda graph begin"),
    ),
    (
        "runtime",
        (
            "Application startup complete",
            "Uvicorn running on",
            "fired up and ready",
            "server is listening",
            "Graph capturing finished",
            "Capture cuda graph end",
            "GPU KV cache usage",
            "srv  update",
            "Setting max batch total tokens",
            "Executor instance created",
            "llama runner started",
        ),
    ),
)
"""What a log holds when a phase begins."""

ENGINE_WORDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "vllm",
        (
            "vllm",
            "vLLM",
            "EngineCore",
            "gpu_worker.py",
            "gpu_model_runner.py",
            "kv_cache_utils.py",
            "llm_engine.py",
            "VllmWorker",
            "cache_engine.py",
            "Sequence group",
            "max_num_batched_tokens",
        ),
    ),
    (
        "sglang",
        (
            "sglang",
            "mem_fraction_static",
            "mem-fraction-static",
            "SGLang",
            "server_args=ServerArgs",
            "Capture cuda graph",
            "fired up and ready",
        ),
    ),
    ("tensorrt-llm", ("TensorRT-LLM", "tensorrt_llm", "trtllm", "[TRT]", "TRT-LLM")),
    (
        "ollama",
        (
            "ollama",
            "OLLAMA",
            "memory.required",
            "num_ctx",
            "llama runner process",
            "CPU/GPU",
            "source=ggml.go",
            "source=server.go",
            "source=sched.go",
            "source=memory.go",
        ),
    ),
    ("tgi", ("text_generation", "max-batch-prefill", "max_prefill_tokens")),
    (
        "llama.cpp",
        (
            "ggml_",
            "llama_",
            "llama-server",
            "load_tensors:",
            "srv  ",
            "common_init_from",
            "llm_load",
        ),
    ),
    ("transformers", ("transformers", "from_pretrained", "Loading checkpoint shards")),
)
"""Words by which an engine is known, the surest first."""
