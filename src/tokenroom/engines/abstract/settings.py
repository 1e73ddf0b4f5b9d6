"""What may be set on an allocation policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractSettings:
    """Settings under the names that the engines share; None is not set.

    Attributes:
        tensor_parallel_size: Ranks that share each layer.
        pipeline_parallel_size: Stages that the layers are spread over.
        max_model_len: The longest request in tokens.
        max_num_seqs: Most requests at once.
        max_num_batched_tokens: Tokens of a prefill step, which sets the activations.
        gpu_memory_utilization: Share of the GPU that may be used.
        kv_cache_memory_bytes: The pool's size, instead of what is left.
        kv_cache_dtype: Type of the cache.
        dtype: Type of plain weights and activations.
        block_size: Tokens of a block (paged, hybrid).
        first_tokens: Contiguous part of a hybrid reservation.
        knows_length: A contiguous reservation is as long as the request will become.
        concurrency: Requests wanted at once.
        request_tokens: Length of one request.
        lengths: Lengths of the workload's requests: a distribution or written out.
        seed: Of the drawn lengths.
        version: Not used; there is one version.
    """

    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str | None = None
    dtype: str | None = None
    block_size: int | None = None
    first_tokens: int | None = None
    knows_length: bool | None = None
    concurrency: int | None = None
    request_tokens: int | None = None
    lengths: str | None = None
    seed: int | None = None
    version: str | None = None
