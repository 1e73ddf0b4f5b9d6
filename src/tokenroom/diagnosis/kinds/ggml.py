"""llama.cpp's and Ollama's own words."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import AMOUNT, Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # llama.cpp: ggml-cuda.cu, ggml-alloc.c, llama-context.cpp; Ollama
    kind_of(
        "ggml_alloc",
        (
            *("cudaMalloc failed", "failed to allocate", "unable to allocate", "can't allocate"),
            *("Device memory allocation of size", "ErrorOutOfDeviceMemory"),
            *("OutOfMemory", "OUT_OF_DEVICE_MEMORY", "insufficient VRAM"),
        ),
        rf"allocating (?P<asked>{AMOUNT}) on device (?P<device>\d+): cudaMalloc failed"
        r"|failed to allocate (?P<buffer>\S+) buffer of size (?P<size>\d+)"
        r"|unable to allocate (?P<place>\S+) buffer"
        r"|can't allocate (?P<sycl>\d+) Bytes of memory on device"  # ggml-sycl.cpp
        r"|failed to allocate buffer, size = *(?P<metal>[\d.]+ MiB)"  # ggml-metal
        r"|kIOGPUCommandBufferCallbackErrorOutOfMemory"
        r"|Device memory allocation of size (?P<vulkan>\d+) failed"  # ggml-vulkan.cpp
        r"|allocateMemory: ErrorOutOfDeviceMemory|VK_ERROR_OUT_OF_DEVICE_MEMORY"
        r"|insufficient VRAM to load",
    ),
    kind_of(
        "ggml_host_alloc",  # ggml-backend.cpp, llama-model.cpp: buffers of the host's memory
        ("_cpu_buffer_type_alloc_buffer", "allocate CPU"),
        r"ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size \d+"
        r"|(?:failed|unable) to allocate CPU\w* buffer",
    ),
    kind_of(
        "ggml_device_free",
        "MiB free",
        r"using device \S+ \(.*\) - (?P<free>\d+ MiB) free",
    ),
    kind_of(
        "ggml_compute",
        ("allocate compute", "compute buffer", "graph_reserve", "gallocr_reserve"),
        r"failed to allocate compute(?: \w+)? buffers|graph_reserve: failed"
        r"|gallocr_reserve\w*: failed"
        r"|failed to allocate (?P<buffer>\S+) compute buffer",
    ),
    kind_of(
        "ggml_kv",
        ("for kv cache", "for kv_cache", "the kv cache", "kv cache:"),
        r"failed to (?:allocate|create).{0,30}kv.?cache|kv.?cache.{0,40}failed to allocate",
    ),
    kind_of(
        "ggml_copies", "n_copies", r"pipeline parallelism enabled \(n_copies=(?P<copies>\d+)\)"
    ),
    kind_of(
        "ggml_model_failed",
        ("error loading model", "failed to load model", "unable to load model"),
        r"error loading model|(?:failed|unable) to load model",
    ),
    kind_of(
        "ggml_kv_size",
        ("KV buffer size", "KV self size"),
        rf"KV (?:buffer|self) size\s*=\s*(?P<size>{AMOUNT})",
    ),
    kind_of(
        "ollama_memory",
        "memory.required.allocations",
        r"memory\.available=\"\[?(?P<available>[\d.]+ \w+).*?"
        r"memory\.required\.allocations=\"\[?(?P<required>[\d.]+ \w+)",
    ),
    kind_of(
        "ggml_fit_refused",  # src/llama.cpp llama_params_fit
        "fit params to free device memory",
        r"failed to fit params to free device memory",
    ),
    kind_of(
        "ggml_retry",  # src/llama-context.cpp: it goes on without what did not fit
        "retrying without pipeline parallelism",
        r"retrying without pipeline parallelism",
    ),
    kind_of(
        "ggml_projected",
        "of free device memory",
        r"projected to use (?P<asked>\d+ MiB) of device memory vs\. (?P<free>\d+ MiB) of free",
    ),
    kind_of(
        "ollama_system",
        ("requires more system memory", "too large for system"),
        r"requires more system memory \((?P<needed>[\d.]+ \w+)\) than is available "
        r"\((?P<available>[\d.]+ \w+)\)|model request too large for system",
    ),
    kind_of(
        "offloaded",
        "layers to GPU",
        r"offloaded (?P<layers>\d+)/(?P<all>\d+) layers to GPU",
    ),
    kind_of("output_on_cpu", "output layer to CPU", r"offloading output layer to CPU"),
    kind_of(
        "ollama_ps",
        ("% CPU", "CPU/GPU", "/GPU"),
        r"(?P<cpu>\d+)%(?:/\d+%)? CPU(?:/GPU)?\b",
    ),
    kind_of("num_ctx", "num_ctx", r"num_ctx\D{0,4}(?P<tokens>\d{4,})"),
    kind_of(
        "prompt_cache",
        "cache state:",
        r"cache state: (?P<prompts>\d+) prompts.*?limits?: (?P<limit>[\d.]+ \w+)",
    ),
)
