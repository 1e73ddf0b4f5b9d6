"""TensorRT-LLM's memory policy: a fraction of what is free after a real run becomes the pool.

available = (total - peak + temporary cache) x free_gpu_memory_fraction, where the peak is what
PyTorch held at most in the profile run plus everything in use outside it
(``tensorrt_llm/_torch/pyexecutor/_util.py`` ``_cal_max_memory``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tokenroom.engines.policy import (
    Change,
    Deployment,
    Refusal,
    Reservation,
    StageMemory,
)
from tokenroom.engines.setting_checks import check_accelerator
from tokenroom.engines.tensorrt_llm.built_engine import copied_tables_bytes, runtime_terms
from tokenroom.engines.tensorrt_llm.kv_pools import Pools, StageCache, cut_pools, stage_cache
from tokenroom.engines.tensorrt_llm.memory import (
    activation,
    block_offsets_bytes,
    cuda_graphs,
    kernels,
    step_terms,
)
from tokenroom.engines.tensorrt_llm.notices import deployment_notices
from tokenroom.engines.tensorrt_llm.plan import TensorRTPlan
from tokenroom.engines.tensorrt_llm.resolve import Resolved, resolve
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings, changed
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.activations import terms_bytes
from tokenroom.memory.caching_allocator import allocated_bytes
from tokenroom.memory.process_context import communicator_bytes, cuda_context_bytes
from tokenroom.memory.rank_weights import Place, rank_weights, split_layers
from tokenroom.models.spec import Layer, ModelSpec, MoEFFN

_HOPPER: Final = (9, 0)
_VENDORS: Final = frozenset({"nvidia"})


class TensorRTPolicy:
    """TensorRT-LLM."""

    name: Final = "tensorrt-llm"
    reserves: Final = (
        Reservation(
            what="KV pool",
            when="once, at start, after a real run over max_num_tokens; blocks are given to "
            "requests on demand, for prompt and longest output together",
            of_what="a share of the memory that is FREE after weights, activation peak, graphs "
            "and everything else in use",
            default="free_gpu_memory_fraction 0.9; tokens_per_block 32; at most max_tokens",
            source="_torch/pyexecutor/_util.py _cal_max_memory",
        ),
        Reservation(
            what="KV pools of several windows",
            when="once, at start",
            of_what="an even share of the same memory for each distinct attention window",
            default="max_attention_window not set: every layer keeps max_seq_len tokens",
            source="_torch/pyexecutor/resource_manager.py calculate_max_num_blocks_for_vswa",
        ),
        Reservation(
            what="execution context (built engines)",
            when="once, at start",
            of_what="what TensorRT fixed when the engine was built: a whole step of "
            "max_num_tokens; the pool is a share of what is free beside it, and must hold one "
            "request of max_seq_len up to 0.10; later releases shorten max_seq_len instead",
            default="backend tensorrt, the default before 1.0; tokens_per_block 128, 64 from 0.9 "
            "and 32 from 0.19 on",
            source="tensorrt_llm/builder.py; cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp",
        ),
        Reservation(
            what="buffers of the runtime and its decoder (built engines)",
            when="once, at start, before the pool is sized",
            of_what="max_batch_size requests: ten ints for each position of max_seq_len; logits, "
            "penalties and sampling workspace of a vocabulary",
            default="max_batch_size 1 (0.8 to 0.10), 256 (0.11 to 0.13), 2048 (from 0.14 on)",
            source="cpp/tensorrt_llm/runtime/gptDecoderBatched.cpp, "
            "batch_manager/runtimeBuffers.cpp",
        ),
        Reservation(
            what="host pool",
            when="once, at start, page-locked",
            of_what="host memory of the size given; blocks move there when the GPU's are full",
            default="host_cache_size 0",
            source="llmapi/llm_args.py KvCacheConfig",
        ),
        Reservation(
            what="CUDA graphs",
            when="captured before the run that measures, and again for the final pool",
            of_what="what capturing takes; measured as memory outside PyTorch",
            default="batches 1 to 31, 32, 64 and 128",
            source="llmapi/llm_args.py CudaGraphConfig",
        ),
    )

    def settings(
        self, base: TensorRTSettings | None, changes: Mapping[str, Any]
    ) -> TensorRTSettings:
        """The settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        return changed(base, changes)

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: TensorRTSettings,
        used_bytes: int = 0,
    ) -> Node:
        """As many accelerators as the parallel sizes need.

        Raises:
            DeploymentError: There are fewer.
        """
        tp, pp = settings.tensor_parallel_size or 1, settings.pipeline_parallel_size or 1
        if count is not None and count < tp * pp:
            raise DeploymentError(
                f"tensor_parallel_size {tp} x pipeline_parallel_size {pp} needs {tp * pp} GPUs and "
                f"there are {count}; lower the parallel sizes or give more GPUs"
            )
        return Node(accelerator=accelerator, count=tp * pp, used_bytes=used_bytes)

    def draft_model(self, settings: TensorRTSettings) -> str | None:
        """The model that drafts, when the settings name one."""
        return settings.speculative_model

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: TensorRTSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting and check it as the engine does.

        Raises:
            DeploymentError: The engine would refuse the settings.
        """
        check_accelerator("TensorRT-LLM", node.accelerator, _VENDORS)
        if spec.quantization == "gguf":
            raise DeploymentError(
                "TensorRT-LLM reads no GGUF weights; give another layout, or engine llama.cpp"
            )
        resolved = resolve(settings, spec, node)
        return Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=draft,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
            notices=deployment_notices(settings, resolved, spec, draft, node),
        )

    def plan(self, deployment: Deployment) -> TensorRTPlan:
        """Divide the memory of every pipeline stage."""
        resolved: Resolved = deployment.resolved
        count = resolved.pipeline_parallel_size
        drafting = _draft_layers(deployment)
        caches = [stage_cache(deployment.spec, resolved, index, drafting) for index in range(count)]
        bare = [_stage(deployment, index) for index in range(count)]
        available = [stage.available_bytes for stage in bare]
        free = [
            stage.total_bytes
            - stage.context_bytes
            - stage.weights_bytes
            - stage.non_torch.num_bytes
            - stage.buffers_bytes
            for stage in bare
        ]
        pools = cut_pools(caches, resolved, available, free)
        stages = tuple(
            replace(
                stage,
                kv_pool_bytes=pools.bytes_on(cache, resolved.tokens_per_block),
                kv_bytes_per_token=float(cache.token_bytes),
            )
            for stage, cache in zip(bare, caches, strict=True)
        )
        return TensorRTPlan(
            deployment=deployment,
            stages=stages,
            caches=tuple(caches),
            pools=pools,
            refusal=_refusal(deployment, stages, caches, pools),
        )

    def with_length(self, deployment: Deployment, max_seq_len: int) -> TensorRTPlan:
        """The plan of the same deployment with another max_seq_len.

        Raises:
            DeploymentError: The engine refuses it.
        """
        asked = self.settings(deployment.asked, {"max_seq_len": max_seq_len})
        spec, node = deployment.spec, deployment.node
        return self.plan(self.deploy(spec, node, asked, deployment.draft))

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.tensorrt_llm.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


TENSORRT_LLM: Final = TensorRTPolicy()


def _draft_layers(deployment: Deployment) -> Sequence[Layer]:
    resolved: Resolved = deployment.resolved
    if deployment.draft is not None:
        return deployment.draft.layers
    if (resolved.speculative_type or "").lower() == "mtp":
        return deployment.spec.mtp_layers
    return ()


def _weights(deployment: Deployment, index: int) -> dict[str, int]:
    """Weights of a rank by component, with the allocator's rounding and the draft's own.

    Attention data parallelism repeats all but the routed experts on every rank.
    """
    resolved: Resolved = deployment.resolved
    spec = deployment.spec
    ep = resolved.moe_expert_parallel_size
    place = Place(
        tp=resolved.attention_ranks,
        expert_tp=resolved.tensor_parallel_size // ep,
        ep=ep,
        layers=split_layers(spec.num_layers, resolved.pipeline_parallel_size, index),
    )
    own = rank_weights(
        spec,
        place,
        dtype=resolved.dtype,
        mtp=(resolved.speculative_type or "").lower() == "mtp",
        latent_copies=resolved.build is None,
    )
    found = {component.value: size for component, size in own.components.items()}
    if resolved.build is not None:
        found["embedding"] = found.get("embedding", 0) + copied_tables_bytes(
            spec,
            resolved.tensor_parallel_size,
            first=index == 0,
            last=index == resolved.pipeline_parallel_size - 1,
        )
    if resolved.build is None:
        rounding = allocated_bytes(own.sizes) - own.total_bytes
        if rounding > 0:
            found["rounding"] = rounding
    last = index == resolved.pipeline_parallel_size - 1
    if deployment.draft is not None and last:
        drafted = rank_weights(
            deployment.draft,
            Place(tp=resolved.attention_ranks, expert_tp=resolved.tensor_parallel_size),
            dtype=resolved.dtype,
            towers=False,
        )
        found["draft"] = drafted.total_bytes
    return found


def _stage(deployment: Deployment, index: int) -> StageMemory:
    """Everything of a stage but the pool itself."""
    resolved: Resolved = deployment.resolved
    spec, node = deployment.spec, deployment.node
    accelerator = node.accelerator
    total = accelerator.memory_bytes
    weights = _weights(deployment, index)
    capability = accelerator.compute_capability
    newer = capability is None or capability >= _HOPPER
    peak = activation(spec, resolved, index, newer)
    graphs = cuda_graphs(spec, resolved, index)
    driver = kernels()
    buffers = _buffers(spec, resolved)
    ranks = resolved.tensor_parallel_size * resolved.pipeline_parallel_size
    experts = any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds)
    context = (
        cuda_context_bytes(accelerator)
        + communicator_bytes(
            accelerator,
            ranks=ranks,
            tensor_ranks=resolved.tensor_parallel_size,
            expert_group=resolved.moe_expert_parallel_size > 1 and experts,
        )
        + node.used_bytes
    )
    held = (
        context
        + sum(weights.values())
        + peak.num_bytes
        + graphs.num_bytes
        + driver.num_bytes
        + buffers
    )
    available = round((total - held) * resolved.free_gpu_memory_fraction)
    if resolved.max_gpu_total_bytes is not None:
        available = min(available, resolved.max_gpu_total_bytes)
    batch = resolved.max_batch_size
    decode = step_terms(spec, resolved, index, batch, batch)
    return StageMemory(
        pipeline_parallel_rank=index,
        total_bytes=total,
        budget_bytes=min(total, held + max(0, available)),
        context_bytes=context,
        weights=weights,
        activation=peak,
        activation_decode_bytes=terms_bytes(decode),
        cuda_graphs=graphs,
        cuda_graph_actual_bytes=graphs.num_bytes,
        non_torch=driver,
        buffers_bytes=buffers,
        available_bytes=available,
        kv_pool_bytes=0,
        kv_bytes_per_token=0.0,
    )


def _buffers(spec: ModelSpec, resolved: Resolved) -> int:
    """Tables of the PyTorch backend, or the buffers of a built engine's runtime."""
    if resolved.build is None:
        return block_offsets_bytes(resolved)
    return terms_bytes(
        runtime_terms(
            spec,
            resolved.build,
            resolved.max_batch_size,
            resolved.max_seq_len,
            resolved.max_beam_width,
        )
    )


def _refusal(
    deployment: Deployment,
    stages: Sequence[StageMemory],
    caches: Sequence[StageCache],
    pools: Pools,
) -> Refusal | None:
    """Why it would not start, by the phase in which it would find out."""
    resolved: Resolved = deployment.resolved
    for stage in stages:
        held = stage.context_bytes + stage.weights_bytes
        if held > stage.total_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
        peak = held + stage.activation.num_bytes + stage.non_torch.num_bytes + stage.buffers_bytes
        if peak > stage.total_bytes:
            return Refusal(
                cause="profile_peak",
                phase="profile",
                needed_bytes=peak,
                available_bytes=stage.total_bytes,
                values={"phase": stage.activation.phase},
            )
    tightest = min(stages, key=lambda stage: stage.available_bytes)
    least = min(pools.blocks.values(), default=0)
    if least < resolved.max_beam_width and caches[0].token_bytes:
        held = tightest.total_bytes - tightest.available_bytes
        return Refusal(
            cause="no_room_for_kv",
            phase="kv_init",
            needed_bytes=max(held, tightest.total_bytes + 1),
            available_bytes=tightest.total_bytes,
        )
    window, blocks = max(pools.blocks.items(), default=(0, 0))
    held_tokens = blocks * resolved.tokens_per_block // resolved.max_beam_width
    strict = resolved.fails_on_short_windows or (
        resolved.build is not None and not resolved.build.shortens
    )
    if strict and held_tokens < min(window, resolved.max_seq_len):
        index = min(range(len(stages)), key=lambda place: stages[place].available_bytes)
        return Refusal(
            cause="kv_below_one_request",
            phase="kv_init",
            needed_bytes=resolved.max_seq_len * caches[index].token_bytes,
            available_bytes=stages[index].available_bytes,
            values={"max_model_len": resolved.max_seq_len, "longest": held_tokens},
        )
    return None
