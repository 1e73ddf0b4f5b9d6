"""PyTorch and what runs on it: its allocator, its summary, TGI's warm-up, frames of tracebacks."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import AMOUNT, Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # PyTorch: c10/cuda/CUDACachingAllocator.cpp
    kind_of(
        "torch_oom",
        ("out of memory", "OutOfMemoryError", "would exceed allowed memory"),
        r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory|(?:torch(?:\.cuda)?\.)OutOfMemoryError"
        r"|Allocation on device \d+ would exceed allowed memory",
        rf"Tried to allocate (?P<asked>{AMOUNT})",
        rf"(?P<total>{AMOUNT}) total capacity|total capaci?ty of (?P<capacity>{AMOUNT})",
        rf"of which (?P<free>{AMOUNT}) is free|;\s*(?P<left>{AMOUNT}) (?:is )?free"
        rf"|(?:^|\s)(?P<alone>{AMOUNT}) is free",
        rf"(?P<already>{AMOUNT}) already allocated"
        rf"|(?P<allocated>{AMOUNT}) is allocated by PyTorch",
        rf"(?P<held>{AMOUNT}) (?:is )?reserved (?:in total )?by PyTorch(?! but)"
        rf"|(?P<unallocated>{AMOUNT}) is reserved by PyTorch but unallocated",
        rf"this process has (?P<own>{AMOUNT}) memory in use",
        rf"MPS allocated: (?P<mps>{AMOUNT}).*?max allowed: (?P<allowed>{AMOUNT})",
        rf"(?P<private>{AMOUNT}) allocated in private pools",
        r"(?P<graphs>VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)",
        warned_of=True,
    ),
    kind_of("nvml_assert", "NVML_SUCCESS == r", r"NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
    kind_of(
        "cuda_oom",
        (
            *("CUDA error: out of memory", "HIP error: out of memory", "hipErrorOutOfMemory"),
            *("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED"),
        ),
        r"(?:CUDA|HIP) error: out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation"
        r"|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED.*(?:out of memory|allocat)",
        warned_of=True,
    ),
    # transformers: quantizers/quantizer_mxfp4.py, quantizers/quantizer_bnb_4bit.py; accelerate
    kind_of(
        "dequantized",
        "dequantizing the model",
        r"default to dequantizing the model to (?P<type>\w+)",
    ),
    kind_of(
        "dispatched_to_cpu",
        ("dispatched on the CPU", "offloaded to the"),
        r"(?P<refused>Some modules are dispatched on the CPU or the disk)"
        r"|parameters are on the meta device because they were offloaded to the (?:cpu|disk)",
    ),
    kind_of(
        "cublas_alloc",
        "CUBLAS_STATUS_ALLOC_FAILED",
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        warned_of=True,
    ),
    kind_of(
        "cpu_alloc",
        ("DefaultCPUAllocator", "std::bad_alloc", "MemoryError", "Cannot allocate memory"),
        r"DefaultCPUAllocator: can't allocate memory"
        r"(?:: you tried to allocate (?P<asked>\d+ bytes))?"
        r"|std::bad_alloc|\bMemoryError\b"
        r"|^(?!.*mlock)(?:.*unable to mmap (?P<mapped>\d+ bytes))?.*Cannot allocate memory",
        warned_of=True,
    ),
    # TGI: server warmup, router/client
    kind_of(
        "tgi_warmup",
        ("Not enough memory to handle",),
        r"Not enough memory to handle (?P<tokens>\d+) (?:prefill )?tokens",
    ),
    # frames that say where it was
    kind_of(
        "frame",
        (
            'File "',
            "DecoderLayer",
            "quantize.py",
            "in <listcomp>",
            " encountered an error",
            "RuntimeBuffers::",
            "processing method",
        ),
        r"\b(?P<where>Method (?:Warmup|Prefill|Decode)(?= encountered an error)"
        r"|dispatch_model|caching_allocator_warmup|load_checkpoint_in_model|_load_pretrained_model"
        r"|enc_dec_model_runner|_allocate_kv_cache_tensors|RuntimeBuffers::reshape|prepareStep|load_model|create_weights|initialize_model|from_pretrained|quantize\.py"
        r"|process_weights_after_loading|load_weights|profile_run|_dummy_run|determine_available_memory"
        r"|determine_num_available_blocks|warmup|_allocate_kv_cache|initialize_kv_cache|capture_model"
        r"|init_memory_pool|alloc_memory_pool|execute_model|forward_decode|forward_extend|_sample"
        r"|compute_logits|DecoderLayer"
        # transformers: generation/utils.py, integrations/*_attention.py; torch/_tensor.py
        r"|in (?:generate|backward)(?=\s*$)|(?:eager|sdpa|flash|flex)_attention_forward)\b",
    ),
)
