"""Lines that say something about memory: what each kind looks like, and the figures in it.

Sources are named beside each pattern: the file of the program that prints the line, or the manual
of the tool. Sizes are read with their unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tokenroom.units import GIB, KIB, MIB

_UNITS: Final = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "kb": KIB,
    "kib": KIB,
    "ki": KIB,
    "mb": MIB,
    "mib": MIB,
    "mi": MIB,
    "gb": GIB,
    "gib": GIB,
    "gi": GIB,
}
_SIZE: Final = r"([\d.,]+)\s*([KMG]i?B?|bytes|B)?"


class Sighting(NamedTuple):
    """A line that says something.

    Attributes:
        kind: What, one of :data:`KINDS`.
        line: Its number, from 1; 0 when unknown.
        text: The line without what terminals and runtimes added.
        process: Which process wrote it, empty when the line does not say.
        values: Figures and words in it by name.
    """

    kind: str
    line: int
    text: str
    process: str
    values: dict[str, str]

    def number(self, name: str) -> float | None:
        """A figure; None when the line has none of that name."""
        text = self.values.get(name)
        if text is None:
            return None
        try:
            return float(text.replace(",", ""))
        except ValueError:
            return None

    def size_bytes(self, name: str) -> float | None:
        """A size with its unit, in bytes; None when the line has none of that name."""
        text = self.values.get(name)
        found = None if text is None else re.fullmatch(_SIZE, text.strip(), re.I)
        if found is None:
            return None
        try:
            return float(found[1].replace(",", "")) * _UNITS[(found[2] or "").lower()]
        except (ValueError, KeyError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a kind of line looks like.

    Attributes:
        name: What it is called.
        words: Words, one of which is in every such line; they are searched for first.
        pattern: The line; its named groups become values.
        more: Further patterns looked for in such a line.
        warned_of: A line may also advise against it or warn of it, which is not it.
    """

    name: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    more: tuple[re.Pattern[str], ...] = field(default=())
    warned_of: bool = False


def _kind(
    name: str,
    words: str | tuple[str, ...],
    pattern: str,
    *more: str,
    warned_of: bool = False,
) -> Kind:
    return Kind(
        name=name,
        words=(words,) if isinstance(words, str) else words,
        pattern=re.compile(pattern, re.I),
        more=tuple(re.compile(one, re.I) for one in more),
        warned_of=warned_of,
    )


ADVICE: Final = re.compile(
    r"\b(?:if|in case of|avoid\w*|prevent\w*|risk of|reduc\w+|potential\w*|possible|likely to"
    r"|to fix|(?:may|might|can|could)\s+(?:\w+\s+)?(?:cause|lead|result|run|trigger|get|hit))\b"
    r"[^.:;!]{0,60}$",
    re.I,
)
"""What stands before an error in a line that only speaks of it."""

_OUT: Final = re.compile(r"(?:CUDA )?out of memory|(?:[\w.]+\.)?OutOfMemory", re.I)


def is_aside(text: str) -> bool:
    """Whether a line only warns of running out of memory."""
    found = _OUT.search(text)
    return found is not None and ADVICE.search(text[: found.start()]) is not None


_AMOUNT: Final = r"[\d.,]+\s*(?:[KMG]i?B|bytes)"

KINDS: Final[tuple[Kind, ...]] = (
    # --- PyTorch: c10/cuda/CUDACachingAllocator.cpp
    _kind(
        "torch_oom",
        ("out of memory", "OutOfMemoryError"),
        r"(?:CUDA|HIP|XPU|NPU) out of memory|(?:torch(?:\.cuda)?\.)OutOfMemoryError",
        rf"Tried to allocate (?P<asked>{_AMOUNT})",
        rf"(?P<total>{_AMOUNT}) total capacity|total capacity of (?P<capacity>{_AMOUNT})",
        rf"of which (?P<free>{_AMOUNT}) is free|;\s*(?P<left>{_AMOUNT}) (?:is )?free"
        rf"|(?:^|\s)(?P<alone>{_AMOUNT}) is free",
        rf"(?P<already>{_AMOUNT}) already allocated"
        rf"|(?P<allocated>{_AMOUNT}) is allocated by PyTorch",
        rf"(?P<held>{_AMOUNT}) (?:is )?reserved (?:in total )?by PyTorch(?! but)"
        rf"|(?P<unallocated>{_AMOUNT}) is reserved by PyTorch but unallocated",
        rf"this process has (?P<own>{_AMOUNT}) memory in use",
        rf"(?P<private>{_AMOUNT}) allocated in private pools",
        r"(?P<graphs>VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)",
        warned_of=True,
    ),
    _kind(
        "other_process_memory",
        "memory in use",
        rf"Process (?P<pid>\d+) has (?P<used>{_AMOUNT}) memory in use",
    ),
    _kind("nvml_assert", "NVML_SUCCESS == r", r"NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
    _kind("cuda_oom", "CUDA error: out of memory", r"CUDA error: out of memory", warned_of=True),
    _kind(
        "cublas_alloc",
        "CUBLAS_STATUS_ALLOC_FAILED",
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        warned_of=True,
    ),
    _kind(
        "cpu_alloc",
        ("DefaultCPUAllocator", "std::bad_alloc", "MemoryError", "Cannot allocate memory"),
        r"DefaultCPUAllocator: can't allocate memory"
        r"(?:: you tried to allocate (?P<asked>\d+ bytes))?"
        r"|std::bad_alloc|\bMemoryError\b|(?:unable to mmap (?P<mapped>\d+ bytes).*)?"
        r"Cannot allocate memory",
        warned_of=True,
    ),
    # --- NCCL: src/misc/shmutils.cc, src/debug.cc
    _kind(
        "nccl_shm",
        ("shared memory segment", "/dev/shm"),
        r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+)"
        r"|No space left on device.*?(?P<file>/dev/shm\S*)|(?P<whole>/dev/shm\S*).*No space left",
    ),
    _kind(
        "nccl_cuda_oom",
        ("Cuda failure", "ncclUnhandledCudaError"),
        r"Cuda failure (?:2 )?'out of memory'",
    ),
    _kind(
        "nccl_system",
        ("ncclSystemError", "unhandled system error"),
        r"ncclSystemError|unhandled system error",
    ),
    _kind("shm_file", "nccl-", r"^\S*[-rwx]{9}.*\s0\s.*\bnccl-\w{6}\b|/dev/shm/nccl-\w{6}\b"),
    _kind(
        "bus_error",
        ("Bus error", "SIGBUS"),
        r"Bus error(?:.*insufficient shared memory)?|SIGBUS",
        warned_of=True,
    ),
    # --- the kernel, containers and schedulers
    _kind(
        "dmesg_oom",
        ("Killed process", "oom-kill:", "cgroup out of memory"),
        r"Out of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<program>[^)]*)\)"
        r"|oom-kill:constraint|Memory cgroup out of memory",
        r"anon-rss:(?P<rss>\d+kB)",
        r"(?P<scope>global_oom|CONSTRAINT_MEMCG|Memory cgroup)",
    ),
    _kind("oomkilled", "OOMKilled", r"OOMKilled", warned_of=True),
    _kind(
        "killed",
        (" 137", "=137", "(137", "Killed", "SIGKILL", "ode -9", "ode: -9", "signal: killed"),
        r"\bexit(?:ed)?\W{0,4}(?:with|code|status|was|is|of|\W){0,9}137\b(?!\.\d)"
        r"|\b(?:exit)?code\W{0,8}137\b(?!\.\d)"
        r"|\bKilled\s*$|\bSIGKILL\b|(?:exit ?)?code:? -9\b|signal: killed",
        warned_of=True,
    ),
    _kind(
        "memory_limit",
        ("memory:", "memory limit", "mem_limit"),
        r"^\s*memory:\s+(?P<limit>\d+(?:\.\d+)?\s*[KMG]i?)\s*$",
    ),
    _kind(
        "ray_oom",
        "low on memory",
        r"killed due to the node running low on memory|node running low on memory",
    ),
    _kind("restarts", "Restart Count", r"Restart Count:\s+(?P<count>\d+)"),
    # --- vLLM: v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py, v1/core/sched
    _kind(
        "vllm_kv_below_length",
        ("stored in KV cache", "KV cache is needed", "KV cache memory"),
        r"max seq len \((?P<length>[\d,]+)\).*?(?:stored in KV cache \((?P<tokens>[\d,]+)\)"
        r"|(?P<needed>[\d.]+) ?GiB KV cache is needed.*?available KV cache memory "
        r"\((?P<available>[\d.]+) ?GiB\))",
        r"estimated maximum model length is (?P<longest>[\d,]+)",
    ),
    _kind(
        "vllm_no_blocks",
        ("available memory for the cache blocks", "no GPU blocks"),
        r"No available memory for the cache blocks",
    ),
    _kind(
        "vllm_sampler",
        "warming up sampler",
        r"out of memory occurred when warming up sampler with (?P<requests>\d+)",
    ),
    _kind(
        "vllm_free_below_budget",
        ("less than desired GPU memory utilization", "on startup is less"),
        r"Free memory on device[^(]*\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less "
        r"than desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
    ),
    _kind(
        "vllm_profiling_assert",
        "Error in memory profiling",
        r"Error in memory profiling",
        r"Initial free memory (?P<before>[\d.]+ \w+), current free memory (?P<after>[\d.]+ \w+)",
    ),
    _kind(
        "preempted",
        ("preempted by", "preempt"),
        r"is preempted by|num_preemptions_total\{[^}]*\} (?P<counter>[1-9][\d.e+]*)"
        r"|(?P<plain>[1-9]\d*) preemptions",
        r"total_num_cumulative_preemption=(?P<count>\d+)",
    ),
    _kind(
        "vllm_stats",
        ("GPU KV cache usage", "GPU cache usage"),
        r"Running: (?P<running>\d+) reqs,.*?(?:Waiting|Pending): (?P<waiting>\d+) reqs"
        r".*?GPU (?:KV )?cache usage: (?P<usage>[\d.]+)%",
        r"generation throughput: (?P<rate>[\d.]+) tokens/s",
    ),
    _kind(
        "vllm_pool",
        ("GPU KV cache size", "GPU blocks"),
        r"GPU KV cache size: (?P<tokens>[\d,]+) tokens|# GPU blocks: (?P<blocks>\d+)",
    ),
    _kind(
        "vllm_length",
        ("max_model_len=", "max_model_len'", "max model len", "max_seq_len="),
        r"(?:Using max model len |max_model_len['\"]?[=:]\s*|max_seq_len=)(?P<length>\d+)",
    ),
    _kind(
        "encoder_budget",
        ("encoder cache", "multimodal", "mm_encoder", "max_pixels", "Encoder cache"),
        r"Encoder cache will be initialized|multimodal (?:data )?budget|profile.*multimodal"
        r"|embed_multimodal|get_multimodal_embeddings|_process_(?:image|video)_input",
    ),
    _kind(
        "tp_heads",
        ("divisible by",),
        r"(?:attention heads|num_(?:key_value_|attention_)?heads|vocab|hidden).{0,40}"
        r"(?:must be|is not|not) divisible by|is not divisible by tensor"
        r"|AssertionError: \d+ is not divisible by \d+",
    ),
    _kind(
        "wsl",
        ("WSL is detected", "microsoft-standard-WSL"),
        r"(?P<pinned>pin_memory=False).*WSL is detected|WSL is detected|microsoft-standard-WSL",
    ),
    _kind("mig", "MIG", r"\bMIG (?P<slice>\d+g\.\d+gb)|MIG-[0-9a-f-]{8,}"),
    # --- SGLang: srt/managers/scheduler.py, srt/model_executor/model_runner.py
    _kind(
        "sglang_not_enough",
        "Please try to increase --mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        r"mem_fraction_static=(?P<share>[\d.]+)",
    ),
    _kind(
        "sglang_oom",
        ("Prefill out of memory", "Decode out of memory", "Capture cuda graph failed"),
        r"(?P<phase>Prefill|Decode) out of memory"
        r"|(?P<capture>Capture cuda graph failed)(?=\s*:?\s*$|.*memory)",
    ),
    _kind(
        "sglang_retract",
        ("Retract requests", "KV cache pool is full"),
        r"KV cache pool is full\. Retract requests",
        r"#retracted_reqs: (?P<count>\d+)",
    ),
    # --- TGI: server warmup, router/client
    _kind(
        "tgi_warmup",
        ("Not enough memory to handle",),
        r"Not enough memory to handle (?P<tokens>\d+) (?:prefill )?tokens",
    ),
    # --- TensorRT-LLM: batch_manager, _torch/pyexecutor/_util.py
    _kind(
        "trt_oom",
        ("TensorRT-LLM", "tensorrt_llm", "[TRT]", "TRT-LLM", "insufficient GPU memory"),
        r"\[(?:TensorRT-LLM|TRT|TRT-LLM)\].*(?:out of memory|OutOfMemory|cudaMalloc\w*.*fail)"
        r"|Executor creation failed due to insufficient GPU memory"
        r"|insufficient GPU memory|Failed to allocate.*KV cache",
        warned_of=True,
    ),
    _kind(
        "trt_component",
        "could not be created",
        r"following component could not be created: (?P<component>\S.*\S)",
    ),
    # --- llama.cpp: ggml-cuda.cu, ggml-alloc.c, llama-context.cpp; Ollama
    _kind(
        "ggml_alloc",
        ("cudaMalloc failed", "failed to allocate", "unable to allocate"),
        rf"allocating (?P<asked>{_AMOUNT}) on device (?P<device>\d+): cudaMalloc failed"
        r"|failed to allocate (?P<buffer>\S+) buffer of size (?P<size>\d+)"
        r"|unable to allocate (?P<place>\S+) buffer",
    ),
    _kind(
        "ggml_compute",
        ("allocate compute", "compute buffer", "graph_reserve"),
        r"failed to allocate compute(?: \w+)? buffers|graph_reserve: failed"
        r"|failed to allocate (?P<buffer>\S+) compute buffer",
    ),
    _kind(
        "ggml_kv",
        ("for kv cache", "for kv_cache", "the kv cache", "kv cache:"),
        r"failed to (?:allocate|create).{0,30}kv.?cache|kv.?cache.{0,40}failed to allocate",
    ),
    _kind("ggml_copies", "n_copies", r"pipeline parallelism enabled \(n_copies=(?P<copies>\d+)\)"),
    _kind(
        "ggml_model_failed",
        ("error loading model", "failed to load model", "unable to load model"),
        r"error loading model|(?:failed|unable) to load model",
    ),
    _kind(
        "ggml_kv_size",
        ("KV buffer size", "KV self size"),
        rf"KV (?:buffer|self) size\s*=\s*(?P<size>{_AMOUNT})",
    ),
    _kind(
        "ollama_memory",
        "memory.required.allocations",
        r"memory\.available=\"\[?(?P<available>[\d.]+ \w+).*?"
        r"memory\.required\.allocations=\"\[?(?P<required>[\d.]+ \w+)",
    ),
    _kind(
        "ollama_system",
        "requires more system memory",
        r"requires more system memory \((?P<needed>[\d.]+ \w+)\) than is available "
        r"\((?P<available>[\d.]+ \w+)\)",
    ),
    _kind(
        "offloaded",
        "layers to GPU",
        r"offloaded (?P<layers>\d+)/(?P<all>\d+) layers to GPU",
    ),
    _kind("output_on_cpu", "output layer to CPU", r"offloading output layer to CPU"),
    _kind(
        "ollama_ps",
        ("% CPU", "CPU/GPU", "/GPU"),
        r"(?P<cpu>\d+)%(?:/\d+%)? CPU(?:/GPU)?\b",
    ),
    _kind("num_ctx", "num_ctx", r"num_ctx\D{0,4}(?P<tokens>\d{4,})"),
    _kind(
        "prompt_cache",
        "cache state:",
        r"cache state: (?P<prompts>\d+) prompts.*?limits?: (?P<limit>[\d.]+ \w+)",
    ),
    # --- what people paste beside a log
    _kind(
        "smi",
        "MiB /",
        r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB",
    ),
    _kind("smi_process", "MiB |", r"^\|\s+(?P<gpu>\d+)\s.*\s(?P<used>\d+)MiB\s*\|"),
    _kind(
        "rss",
        "RSS",
        r"\bRSS\b\D{0,12}(?P<size>[\d.]+ ?[KMG]i?B)",
    ),
    _kind(
        "summary",
        ("Allocated memory", "GPU reserved memory"),
        r"^\|\s*(?P<row>Allocated memory|GPU reserved memory|Active memory|Non-releasable memory)"
        rf"\s*\|\s*(?P<current>{_AMOUNT})\s*\|\s*(?P<peak>{_AMOUNT})",
    ),
    _kind(
        "shards",
        ("shards", "Completed |"),
        r"shards:?\s+(?P<percent>\d+)%(?:.*?(?P<done>\d+)/(?P<of>\d+))?",
    ),
    _kind(
        "quantizing",
        ("out_dtype", "scaled_fp8_quant", "--qformat", "per_token_quant"),
        r"dtype=out_dtype|scaled_fp8_quant|--qformat|per_token_quant",
    ),
    _kind(
        "small_budget",
        "max_num_batched_tokens=2048",
        r"max_num_batched_tokens=2048\b",
    ),
    # --- frames that say where it was
    _kind(
        "frame",
        ('File "', "DecoderLayer", "quantize.py", "in <listcomp>"),
        r"\b(?P<where>load_model|create_weights|initialize_model|from_pretrained|quantize\.py"
        r"|process_weights_after_loading|load_weights|profile_run|_dummy_run|determine_available_memory"
        r"|determine_num_available_blocks|warmup|_allocate_kv_cache|initialize_kv_cache|capture_model"
        r"|init_memory_pool|alloc_memory_pool|execute_model|forward_decode|forward_extend|_sample"
        r"|compute_logits|DecoderLayer)\b",
    ),
)
"""Every kind, in no order."""

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
    ("ollama", ("ollama", "OLLAMA", "memory.required", "num_ctx", "llama runner process")),
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
