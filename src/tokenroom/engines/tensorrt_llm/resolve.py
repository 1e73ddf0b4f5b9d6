"""TensorRT-LLM's settings with every default filled in, and what it refuses before loading.

Defaults: ``tensorrt_llm/llmapi/llm_args.py`` (``KvCacheConfig``, ``CudaGraphConfig``) and
``tensorrt_llm/builder.py`` (``BuildConfig``), NVIDIA/TensorRT-LLM at 00043967 (2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from typing import Any, Final

from tokenroom.engines.policy import Setting
from tokenroom.engines.tensorrt_llm.built_engine import (
    LAST_WITH_OUTPUT_LEN,
    BuildRules,
    build_rules,
    release_of,
)
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Node
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, Recurrent

NEWEST: Final = "1.4"
_MAX_BATCH_SIZE: Final = 2048
_MAX_NUM_TOKENS: Final = 8192
_PYTORCH_FIRST: Final = (1, 0)
_FRACTION: Final = 0.9
_STATE_INTERVAL: Final = 256
_GRAPH_BATCH: Final = 128
_LONGEST_UNBOUNDED: Final = 2048
_BLACKWELL: Final = (10, 0)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Every setting with its value; see :class:`TensorRTSettings`.

    Attributes:
        build: What the release builds and runs an engine by; None for the PyTorch backend.
        windows: Attention window of each layer, as the pools are cut: ``max_seq_len`` for full.
        graph_batches: Batch sizes that graphs are captured for, empty for none.
        window_shares: Share of the pool of each distinct window, smallest first.
    """

    version: str
    backend: str
    build: BuildRules | None
    dtype: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    moe_expert_parallel_size: int
    enable_attention_dp: bool
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_beam_width: int
    free_gpu_memory_fraction: float
    max_tokens: int | None
    max_gpu_total_bytes: int | None
    kv_cache_dtype: str
    tokens_per_block: int
    enable_block_reuse: bool
    host_cache_size: int
    windows: tuple[int, ...]
    window_shares: tuple[float, ...]
    mamba_ssm_cache_dtype: str | None
    mamba_state_cache_interval: int
    graph_batches: tuple[int, ...]
    enable_chunked_prefill: bool
    speculative_type: str | None
    speculative_tokens: int
    fails_on_short_windows: bool
    settings: Mapping[str, Setting]

    @property
    def attention_ranks(self) -> int:
        """Ranks that share the heads of a request: one with attention data parallelism."""
        return 1 if self.enable_attention_dp else self.tensor_parallel_size

    @property
    def copies(self) -> int:
        """Pools of their own in a stage."""
        return self.tensor_parallel_size if self.enable_attention_dp else 1


def graph_batches(largest: int, *, padded: bool) -> tuple[int, ...]:
    """Batch sizes graphs are captured for (``CudaGraphConfig._generate_cuda_graph_batch_sizes``).

    Padded: 1, 2, 4 and multiples of 8 to 128, then steps of 64. Otherwise 1 to 31, 32, 64, 128 and
    powers of two from 256 on.
    """
    if padded:
        sizes = [1, 2, 4, *(step * 8 for step in range(1, 17))]
        while sizes[-1] + 64 <= largest:
            sizes.append(sizes[-1] + 64)
    else:
        sizes = [*range(1, 32), 32, 64, 128]
        sizes += [2**power for power in range(8, ceil(log2(largest)) if largest > 1 else 0)]
    sizes = sorted(size for size in sizes if size <= largest)
    if not sizes or sizes[-1] != largest:
        sizes.append(largest)
    return tuple(sizes)


def resolve(settings: TensorRTSettings, spec: ModelSpec, node: Node) -> Resolved:
    """Fill in every default and refuse what the engine refuses.

    Raises:
        DeploymentError: The engine would refuse the settings for this model and node.
    """
    known: dict[str, Setting] = {}

    def chosen(name: str, default: Any, origin: str = "engine", reason: str = "") -> Any:
        value = getattr(settings, name)
        given = value is not None
        known[name] = Setting(
            value=value if given else default,
            origin="user" if given else origin,
            reason="" if given else reason,
        )
        return known[name].value

    version = settings.version or (
        NEWEST if settings.max_output_len is None else LAST_WITH_OUTPUT_LEN
    )
    older = release_of(version) < _PYTORCH_FIRST or settings.max_output_len is not None
    backend = chosen(
        "backend",
        "tensorrt" if older else "pytorch",
        reason="an engine is built first, as before 1.0" if older else "",
    )
    dtype = chosen("dtype", "bfloat16" if spec.dtype == "float32" else spec.dtype, "model")
    if dtype == "auto":
        dtype = spec.dtype
    element_bytes(dtype)
    tp = chosen("tensor_parallel_size", 1)
    pp = chosen("pipeline_parallel_size", 1)
    ep = chosen("moe_expert_parallel_size", 1)
    attention_dp = chosen("enable_attention_dp", False)
    build = build_rules(version) if backend == "tensorrt" else None
    batch = chosen("max_batch_size", build.max_batch_size if build else _MAX_BATCH_SIZE)
    length = _length(settings, spec, build, chosen, known)
    tokens = chosen("max_num_tokens", *_budget(settings, build, batch))
    if tokens > batch * length:
        tokens = batch * length
        known["max_num_tokens"] = Setting(
            value=tokens, origin="engine", reason="at most max_batch_size x max_seq_len"
        )
    beams = chosen("max_beam_width", 1)
    fraction = chosen("free_gpu_memory_fraction", _FRACTION)
    block = chosen(
        "tokens_per_block",
        (build or build_rules(version)).tokens_per_block,
    )
    kv_dtype = _kv_dtype(spec, node, dtype, chosen)
    reuse = chosen("enable_block_reuse", True)
    host = chosen("host_cache_size", 0)
    windows = _windows(settings, spec, length)
    known["max_attention_window"] = Setting(
        value=sorted(set(windows)),
        origin="user" if settings.max_attention_window else "engine",
        reason="" if settings.max_attention_window else "every layer keeps max_seq_len tokens",
    )
    sizes = _graphs(settings, backend, batch, known)
    if ep > tp or tp % ep:
        raise DeploymentError(
            f"moe_expert_parallel_size is {ep}; it must divide tensor_parallel_size {tp}"
        )
    if pp > spec.num_layers:
        raise DeploymentError(
            f"pipeline_parallel_size is {pp}; the model has {spec.num_layers} layers"
        )
    if beams > batch:
        raise DeploymentError(f"max_beam_width is {beams}, beyond max_batch_size {batch}")
    for name in ("max_tokens", "max_gpu_total_bytes", "speculative_type", "speculative_tokens"):
        if getattr(settings, name) is not None:
            chosen(name, None)
    return Resolved(
        version=version,
        backend=backend,
        build=build,
        dtype=dtype,
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        moe_expert_parallel_size=ep,
        enable_attention_dp=attention_dp,
        max_batch_size=batch,
        max_num_tokens=tokens,
        max_seq_len=length,
        max_beam_width=beams,
        free_gpu_memory_fraction=fraction,
        max_tokens=settings.max_tokens,
        max_gpu_total_bytes=settings.max_gpu_total_bytes or None,
        kv_cache_dtype=kv_dtype,
        tokens_per_block=block,
        enable_block_reuse=reuse,
        host_cache_size=host,
        windows=windows,
        window_shares=_shares(settings, len(set(windows))),
        mamba_ssm_cache_dtype=_state_dtype(settings),
        mamba_state_cache_interval=chosen("mamba_state_cache_interval", _STATE_INTERVAL)
        if any(isinstance(mixer, Recurrent) for layer in spec.layers for mixer in layer.mixers)
        else 0,
        graph_batches=sizes,
        enable_chunked_prefill=chosen("enable_chunked_prefill", False),
        speculative_type=settings.speculative_type,
        speculative_tokens=settings.speculative_tokens or 0,
        fails_on_short_windows=bool(settings.fail_fast_on_attention_window_too_large),
        settings=known,
    )


def _budget(
    settings: TensorRTSettings, build: BuildRules | None, batch: int
) -> tuple[int, str, str]:
    """Tokens of a step: engines built with input and output lengths take whole batches of prompts.

    ``tensorrt_llm/commands/build.py`` up to 0.10: ``max_num_tokens`` None. More than
    max_batch_size x max_seq_len is lowered to that (``_common.py`` ``check_max_num_tokens``,
    ``model_engine.py`` ``_init_max_num_tokens``).
    """
    if build is None or build.max_num_tokens is not None:
        return _MAX_NUM_TOKENS, "engine", ""
    prompt = settings.max_input_len or build.max_input_len
    return batch * prompt, "engine", "max_batch_size x max_input_len"


def _length(
    settings: TensorRTSettings,
    spec: ModelSpec,
    build: BuildRules | None,
    chosen: Any,
    known: dict[str, Setting],
) -> int:
    """max_seq_len: at most the model's, or what an engine up to 0.10 was built for.

    The PyTorch backend lowers what is longer than the model supports, with a warning
    (``_torch/pyexecutor/model_engine.py`` ``_init_max_seq_len``).
    """
    if build is not None and build.max_output_len is not None:
        prompt = settings.max_input_len or build.max_input_len
        output = settings.max_output_len or build.max_output_len
        built: int = chosen("max_seq_len", prompt + output, "engine", "input and output length")
        return built
    longest = spec.max_position_embeddings
    if longest is None:
        length: int = chosen(
            "max_seq_len", _LONGEST_UNBOUNDED, "tokenroom", "the model has no bound"
        )
        return length
    length = chosen("max_seq_len", longest, "model")
    if build is None and length > longest:
        length = longest
        known["max_seq_len"] = Setting(
            value=length, origin="model", reason="the engine lowers what the model does not support"
        )
    return length


def _kv_dtype(spec: ModelSpec, node: Node, dtype: str, chosen: Any) -> str:
    asked = chosen("kv_cache_dtype", "auto")
    found = asked
    if asked == "auto":
        found = "fp8" if spec.kv_cache_dtype and "8" in spec.kv_cache_dtype else dtype
    capability = node.accelerator.compute_capability
    if found == "nvfp4" and capability is not None and capability < _BLACKWELL:
        raise DeploymentError(
            f"the KV cache type is nvfp4, which needs a Blackwell GPU; {node.accelerator.name} is "
            f"older: choose fp8"
        )
    if found in ("float16", "bfloat16", "float32") and found != dtype:
        raise DeploymentError(
            f"kv_cache_dtype is {shown(found)} and the model runs in {dtype}; choose auto, "
            f"fp8 or nvfp4"
        )
    return str(found)


def _windows(settings: TensorRTSettings, spec: ModelSpec, length: int) -> tuple[int, ...]:
    """The window of each layer that keeps a cache (``max_attention_window`` is a pattern)."""
    layers = [
        layer
        for layer in spec.layers
        if any(isinstance(mixer, (Attention, LatentAttention)) for mixer in layer.mixers)
    ]
    pattern = settings.max_attention_window or (length,)
    return tuple(min(length, pattern[index % len(pattern)]) for index in range(len(layers)))


def _shares(settings: TensorRTSettings, windows: int) -> tuple[float, ...]:
    text = settings.environment.get("TRTLLM_WINDOW_SIZE_SHARES")
    if not text or windows < 2:
        return (1 / max(1, windows),) * max(1, windows)
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != windows or abs(sum(shares) - 1) > 1e-9:
        raise DeploymentError(
            f"TRTLLM_WINDOW_SIZE_SHARES is {shown(text)}; it must hold {windows} shares that "
            f"add up to 1"
        )
    return shares


def _state_dtype(settings: TensorRTSettings) -> str | None:
    asked = settings.mamba_ssm_cache_dtype
    return None if asked in (None, "auto") else asked


def _graphs(
    settings: TensorRTSettings, backend: str, batch: int, known: dict[str, Setting]
) -> tuple[int, ...]:
    """Graphs of decode steps, at most of the largest batch."""
    used = settings.cuda_graphs if settings.cuda_graphs is not None else backend == "pytorch"
    origin = "user" if settings.cuda_graphs is not None else "engine"
    if not used:
        known["cuda_graph_batch_sizes"] = Setting(value=[], origin=origin)
        return ()
    if settings.cuda_graph_batch_sizes is not None:
        sizes = tuple(sorted(set(settings.cuda_graph_batch_sizes)))
        origin = "user"
    else:
        largest = settings.cuda_graph_max_batch_size or _GRAPH_BATCH
        sizes = graph_batches(largest, padded=bool(settings.cuda_graph_enable_padding))
    sizes = tuple(size for size in sizes if size <= batch)
    known["cuda_graph_batch_sizes"] = Setting(value=list(sizes), origin=origin)
    return sizes
