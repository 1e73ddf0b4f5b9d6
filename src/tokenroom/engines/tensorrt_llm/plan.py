"""How TensorRT-LLM divides the memory of every rank, and what follows for requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tokenroom.engines.ledger_lines import estimated, exact, weight_parts
from tokenroom.engines.policy import Deployment, KVGroup, Notice, Refusal, StageMemory
from tokenroom.engines.tensorrt_llm.kv_pools import (
    Pools,
    StageCache,
    blocks_of_request,
    stage_tokens,
    whole_blocks,
)
from tokenroom.engines.tensorrt_llm.memory import step_terms
from tokenroom.engines.tensorrt_llm.resolve import Resolved
from tokenroom.errors import DeploymentError
from tokenroom.memory.activations import terms_bytes
from tokenroom.memory.ledger import Confidence, Line


@dataclass(frozen=True, kw_only=True)
class TensorRTPlan:
    """See :class:`tokenroom.engines.policy.MemoryPlan`; figures are those of one rank's pools.

    Attributes:
        deployment: What was planned.
        stages: Memory of each pipeline stage.
        caches: Bytes a token and a sequence on each stage.
        pools: Blocks of each window.
        refusal: Why it would not start, None when it does.
    """

    deployment: Deployment
    stages: tuple[StageMemory, ...]
    caches: tuple[StageCache, ...]
    pools: Pools
    refusal: Refusal | None

    @property
    def _resolved(self) -> Resolved:
        resolved: Resolved = self.deployment.resolved
        return resolved

    @cached_property
    def governing(self) -> int:
        """Index of the stage with the least room."""
        rooms = [
            stage.available_bytes / max(1, cache.token_bytes)
            for stage, cache in zip(self.stages, self.caches, strict=True)
        ]
        return rooms.index(min(rooms))

    @property
    def _longest_window(self) -> int:
        return max(self.pools.blocks, default=self._resolved.max_seq_len)

    @property
    def _room(self) -> int:
        """Tokens one sequence may reach in the pool of the longest window."""
        resolved = self._resolved
        if not self.caches[0].token_bytes:
            return resolved.max_seq_len
        blocks = self.pools.blocks.get(self._longest_window, 0)
        return blocks // resolved.max_beam_width * resolved.tokens_per_block

    @property
    def max_model_len(self) -> int:
        """max_seq_len, shortened to what the pool holds as the engine does."""
        return max(1, min(self._resolved.max_seq_len, self._room))

    @property
    def max_num_seqs(self) -> int:
        """max_batch_size, of every rank with attention data parallelism."""
        return self._resolved.max_batch_size * self._resolved.copies

    @property
    def kv_block_size(self) -> int:
        """tokens_per_block."""
        return self._resolved.tokens_per_block

    @property
    def kv_blocks(self) -> int:
        """Blocks of the longest window's pool ("primary blocks")."""
        return self.pools.blocks.get(self._longest_window, 0)

    @property
    def kv_pool_tokens(self) -> int:
        """Tokens of that pool ("max tokens in paged KV cache")."""
        return self.kv_blocks * self.kv_block_size

    @property
    def max_concurrency(self) -> float:
        """Requests of full length that the pools hold, as a fraction."""
        ratios = [
            blocks / max(1, blocks_of_request(self.max_model_len, window, self._resolved))
            for window, blocks in self.pools.blocks.items()
        ]
        return min(ratios, default=0.0)

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """One pool for each distinct window."""
        cache = self.caches[self.governing]
        size = self._resolved.tokens_per_block
        return tuple(
            KVGroup(
                kind="full_attention" if window >= self._resolved.max_seq_len else "sliding_window",
                num_layers=cache.window_layers.get(window, 0),
                block_size=size,
                page_bytes=size * each // max(1, cache.window_layers.get(window, 0)),
            )
            for window, each in sorted(cache.window_bytes.items())
            if each
        )

    @property
    def pool_is_exact(self) -> bool:
        """The pool is as large as the settings say, not as the estimates leave room for."""
        tokens = self._resolved.max_tokens
        if tokens is not None and self.kv_pool_tokens >= tokens - self.kv_block_size:
            return True
        given = self._resolved.max_gpu_total_bytes
        return given is not None and self.stages[self.governing].available_bytes == given

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        found = []
        resolved = self._resolved
        if self.refusal is None and self.max_model_len < resolved.max_seq_len:
            found.append(
                Notice(
                    key="max_seq_len_reduced",
                    values={"asked": resolved.max_seq_len, "longest": self.max_model_len},
                )
            )
        if resolved.copies > 1:
            found.append(Notice(key="per_replica", values={"replicas": resolved.copies}))
        stage = self.stages[self.governing]
        # A full batch returns more logits than the run that measures, which holds few requests.
        beyond = max(0, stage.activation_decode_bytes - stage.activation.num_bytes)
        missing = beyond - stage.free_bytes
        if self.refusal is None and missing > 0:
            found.append(Notice(key="tight_at_runtime", values={"missing_bytes": missing}))
        return tuple(found)

    def tokens_of_free(self, free_bytes: int) -> int | None:
        """Tokens of the pool where that much is free when it is sized; None for several windows."""
        resolved, cache = self._resolved, self.caches[self.governing]
        if len(self.pools.blocks) != 1 or cache.state_bytes or free_bytes <= 0:
            return None
        share = int(free_bytes * resolved.free_gpu_memory_fraction)
        return whole_blocks(stage_tokens(cache, resolved, share, free_bytes), resolved) * (
            resolved.tokens_per_block
        )

    def requests_of(self, tokens: int) -> int:
        """Requests of that length that the pools of all ranks hold at once; longer are refused."""
        if tokens > self._resolved.max_seq_len:
            return 0
        counts = [
            blocks // max(1, blocks_of_request(tokens, window, self._resolved))
            for window, blocks in self.pools.blocks.items()
        ]
        if self.pools.slots:
            counts.append(self.pools.slots)
        if not self.caches[0].token_bytes:
            counts = [self.pools.slots]
        return min(counts, default=0) * self._resolved.copies

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing stage."""
        cache, size = self.caches[self.governing], self._resolved.tokens_per_block
        paged = sum(
            blocks_of_request(tokens, window, self._resolved) * size * each
            for window, each in cache.window_bytes.items()
        )
        return paged + cache.state_bytes

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests."""
        resolved = self._resolved
        each = max(1, min(-(-requests // resolved.copies), resolved.max_batch_size))
        tokens = each * (1 + resolved.speculative_tokens)
        return terms_bytes(
            step_terms(self.deployment.spec, resolved, self.governing, tokens, tokens)
        )

    def max_model_len_that_fits(self) -> int:
        """The longest max_seq_len that a pool made for it holds; 0 for none.

        Buffers, graphs and the run that measures grow with max_seq_len, so each length is planned
        by itself, down to a block.
        """
        from tokenroom.engines.tensorrt_llm.policy import TENSORRT_LLM  # it makes this plan

        resolved, model = self._resolved, self.deployment.spec.max_position_embeddings
        step = resolved.tokens_per_block

        def holds(length: int) -> bool:
            try:
                plan = TENSORRT_LLM.with_length(self.deployment, length)
            except DeploymentError:  # the engine refuses a request that long
                return False
            return plan.refusal is None and plan.max_model_len >= length

        high = max(model or 0, resolved.max_seq_len)
        if holds(high):
            return high
        low, high = 0, -(-high // step)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle * step) else (low, middle)
        return low * step

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, line by line."""
        return tuple(_lines(self))


def _lines(plan: TensorRTPlan) -> Iterator[Line]:
    resolved: Resolved = plan.deployment.resolved
    stage = plan.stages[plan.governing]
    cache = plan.caches[plan.governing]
    yield exact(
        "total",
        stage.total_bytes,
        "total memory that torch.cuda.mem_get_info reports",
        {"accelerator": plan.deployment.node.accelerator.name},
        plan.deployment.node.accelerator.sources.get("memory_bytes", "accelerator catalogue"),
    )
    yield exact(
        "weights",
        stage.weights_bytes,
        "sum of the parts the rank holds, as stored",
        {
            "tensor_parallel_size": resolved.tensor_parallel_size,
            "pipeline_parallel_rank": stage.pipeline_parallel_rank,
            "enable_attention_dp": resolved.enable_attention_dp,
            "dtype": resolved.dtype,
        },
        plan.deployment.spec.source or "the model's configuration",
        parts=weight_parts(stage.weights),
    )
    yield estimated("activation_peak", stage.activation, "what lives at once in the profile run")
    yield estimated("cuda_graphs", stage.cuda_graphs, "pool of the largest graph + driver nodes")
    yield estimated("non_torch", stage.non_torch, "driver memory outside PyTorch's allocator")
    if resolved.build is None:
        formula = "pools x (max_batch_size + graphs' batches) x 2 x blocks of the longest x 4"
        source = "tensorrt_llm/_torch/attention_backend/trtllm.py"
    else:
        formula = (
            "max_batch_size x (ten ints a position of max_seq_len + logits, penalties and "
            "workspace of a vocabulary)"
        )
        source = "cpp/tensorrt_llm/runtime/gptDecoderBatched.cpp, batch_manager/runtimeBuffers.cpp"
    yield exact(
        "buffers",
        stage.buffers_bytes,
        formula,
        {"max_batch_size": resolved.max_batch_size, "max_seq_len": resolved.max_seq_len},
        source,
    )
    yield exact(
        "context",
        stage.context_bytes,
        "CUDA context, communicators and other processes",
        {},
        "memory/process_context.py",
        confidence=Confidence.ESTIMATED,
    )
    confidence = Confidence.EXACT if plan.pool_is_exact else Confidence.ESTIMATED
    yield exact(
        "kv_available",
        stage.available_bytes,
        "(total - context - weights - activation_peak - graphs - non_torch - buffers) x "
        "free_gpu_memory_fraction",
        {
            "free_gpu_memory_fraction": resolved.free_gpu_memory_fraction,
            "max_gpu_total_bytes": resolved.max_gpu_total_bytes or "not set",
        },
        "tensorrt_llm/_torch/pyexecutor/_util.py _cal_max_memory",
        confidence=confidence,
    )
    yield exact(
        "kv_token",
        cache.token_bytes,
        "sum over layers of ceil(KV heads / ranks) x cell, or of the latent",
        {"kv_cache_dtype": resolved.kv_cache_dtype, "ranks": resolved.attention_ranks},
        "tensorrt_llm/_torch/pyexecutor/resource_manager.py get_cache_bytes_per_token",
    )
    yield exact(
        "kv_pool",
        stage.kv_pool_bytes,
        "blocks x tokens_per_block x bytes a token of each window, + slots x state",
        {
            "blocks": dict(plan.pools.blocks),
            "tokens_per_block": resolved.tokens_per_block,
            "slots": plan.pools.slots,
            "state": cache.state_bytes,
        },
        "tensorrt_llm/_torch/pyexecutor/resource_manager.py calculate_max_num_blocks",
        confidence=confidence,
    )
    if resolved.host_cache_size:
        blocks = resolved.host_cache_size // max(1, cache.token_bytes) // resolved.tokens_per_block
        yield exact(
            "host_pool",
            blocks * resolved.tokens_per_block * cache.token_bytes,
            "host_cache_size in whole blocks, in host memory",
            {"host_cache_size": resolved.host_cache_size, "blocks": blocks},
            "tensorrt_llm/_torch/pyexecutor/resource_manager.py calculate_max_num_blocks",
        )
