"""What vLLM sets memory aside for, as the engine table tells it."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Reservation

RESERVES: Final = (
    Reservation(
        what="KV pool",
        when="once, at start, after the profile run; blocks are given to requests on demand",
        of_what="a share of the GPU's TOTAL memory, less weights, activation peak, memory outside "
        "PyTorch and (from 0.20 on) the estimate of the CUDA graphs",
        default="gpu_memory_utilization 0.92 (0.9 before 0.20); block_size 16 on most backends",
        source="v1/worker/gpu_worker.py determine_available_memory",
    ),
    Reservation(
        what="activations",
        when="measured once by a dummy step at start and kept free for prefill",
        of_what="the peak of a step of max_num_batched_tokens tokens, sampling included",
        default="max_num_batched_tokens 2048, 8192 or 16384 by GPU and usage",
        source="v1/worker/gpu_model_runner.py profile_run",
    ),
    Reservation(
        what="CUDA graphs",
        when="captured at start, kept",
        of_what="what capturing takes; charged to the pool by estimate from 0.20 on, outside the "
        "share before",
        default="sizes up to 512 tokens; none with enforce_eager",
        source="v1/worker/gpu_model_runner.py profile_cudagraph_memory",
    ),
    Reservation(
        what="block tables and input buffers",
        when="once, at start",
        of_what="max_num_seqs x max_model_len / block_size entries, max_num_batched_tokens inputs",
        default="max_num_seqs 256, or 1024 on GPUs of 70 GiB and more but the A100",
        source="v1/worker/block_table.py",
    ),
)
"""From the first thing people meet to the last."""
