"""From a model's layers to vLLM's KV cache specs, as its model classes make them.

A :class:`ModelSpec` says what a layer is; here is what vLLM 0.32 stores for it under given settings
(``get_kv_cache_spec`` of model_executor/layers/attention/*.py, model_executor/layers/mamba/*.py,
model_executor/models/deepseek_v2.py and models/deepseek_v4/*.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Final

from tokenroom.engines.vllm.kv_rules import KVCacheRules, WindowBlock
from tokenroom.engines.vllm.kv_settings import (
    KVCacheSettings,
    resolved_kv_dtype,
    running_dtype,
)
from tokenroom.engines.vllm.kv_specs import (
    WHOLE_SEQUENCE,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    ceil_div,
)
from tokenroom.engines.vllm.weights import stage_layers
from tokenroom.errors import DeploymentError
from tokenroom.memory.kv_cache import (
    attention_cell_bytes,
    element_bytes,
    indexer_bytes_per_token,
    key_indexer_bytes_per_token,
    kv_heads_per_rank,
    latent_bytes_per_token,
    recurrent_state,
)
from tokenroom.models.spec import (
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    Recurrence,
    Recurrent,
)

_OWN_VALUE_WIDTH: Final = ("mimo_v2", "openpangu", "pangu")
"""Model types whose class stores values in their own width (model_executor/models/mimo_v2.py,
openpangu.py); all others pad them to the keys'."""

_EXPANDED_LATENTS: Final = frozenset({"minicpm3"})
"""Model types with latent attention that vLLM runs, and stores, as full attention over all heads
(model_executor/models/minicpm3.py; absent from config/model.py ``is_deepseek_mla``)."""

_HEEDED_STATE_DTYPES: Final = ("Qwen3_5", "Qwen4Exp", "ColQwen3_5", "NemotronH")
"""Architectures whose configuration's state type vLLM takes for ``auto``
(model_executor/models/config.py ``MODELS_CONFIG_MAP``); others keep states as convolutions."""

_DEEPSEEK_V4_BLOCK: Final = 256
"""The only kernel block of DeepSeek-V4's indexer (v1/attention/backends/mla/indexer.py). The engine
takes the smallest block that all backends of a model take, so other sizes are raised to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCaches:
    """The caches of a model under some settings.

    Attributes:
        caches: Spec of every cache by its number, in the order the engine registers them.
        stages: Numbers of the caches that each pipeline stage holds.
        block_size: Block size of the cache after alignment to recurrent states.
        block_outermost: Whether all layers of a block lie together.
    """

    caches: Mapping[int, KVCacheSpec]
    stages: tuple[frozenset[int], ...]
    block_size: int
    block_outermost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    spec: ModelSpec
    settings: KVCacheSettings
    rules: KVCacheRules
    kv_dtype: str
    block_size: int
    state_page_bytes: int | None
    state_block_size: int

    @property
    def window_block_size(self) -> int:
        kernel = self.settings.kernel_block_size
        if self.rules.window_block is WindowBlock.CACHE:
            return self.block_size
        if self.rules.window_block is WindowBlock.SMALLEST:
            return kernel
        return max(kernel, self.block_size // kernel * kernel)


def _attention_cell(mixer: Attention, context: _Context) -> int:
    """Bytes of a token of one KV head; most model classes pad values to the width of keys."""
    own = context.spec.model_type.startswith(_OWN_VALUE_WIDTH)
    value = mixer.value_head_dim if own else mixer.head_dim
    return attention_cell_bytes(mixer.head_dim, value, context.kv_dtype)


def _attention(mixer: Attention, context: _Context) -> Iterator[KVCacheSpec]:
    if mixer.encoder_only or mixer.shares_kv_of is not None:
        return
    heads = kv_heads_per_rank(mixer.num_kv_heads, context.settings.tensor_parallel_size)
    cell = _attention_cell(mixer, context)
    block = context.block_size
    if mixer.cross:
        yield CrossAttentionSpec(block_size=block, num_kv_heads=heads, cell_bytes=cell)
        return
    if mixer.chunk is not None:
        yield ChunkedLocalAttentionSpec(
            block_size=block, num_kv_heads=heads, cell_bytes=cell, chunk=mixer.chunk
        )
        return
    if mixer.indexer is not None:
        dtype = running_dtype(context.spec, context.settings)
        yield MLAAttentionSpec(
            block_size=block,
            num_kv_heads=1,
            cell_bytes=key_indexer_bytes_per_token(mixer.indexer, dtype),
            layout=dtype,
            indexer=True,
        )
    if mixer.window is None:
        yield FullAttentionSpec(block_size=block, num_kv_heads=heads, cell_bytes=cell)
        return
    if context.settings.decode_context_parallel_size > 1:
        raise DeploymentError(
            "decode_context_parallel_size is above 1, which vLLM does not support for models with "
            "sliding windows; set it to 1"
        )
    yield SlidingWindowSpec(
        block_size=context.window_block_size,
        num_kv_heads=heads,
        cell_bytes=cell,
        window=mixer.window,
        extra_retained_tokens=context.settings.extra_retained_tokens,
    )


def _latent(mixer: LatentAttention, context: _Context) -> Iterator[KVCacheSpec]:
    if context.spec.model_type.startswith("deepseek_v4"):
        yield from _deepseek_v4(mixer, context)
        return
    block = context.block_size
    if context.spec.model_type in _EXPANDED_LATENTS:
        width = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        yield FullAttentionSpec(
            block_size=block,
            num_kv_heads=kv_heads_per_rank(mixer.num_heads, context.settings.tensor_parallel_size),
            cell_bytes=attention_cell_bytes(width, width, context.kv_dtype),
        )
        return
    if mixer.indexer is not None:
        yield MLAAttentionSpec(
            block_size=block,
            num_kv_heads=1,
            cell_bytes=indexer_bytes_per_token(mixer.indexer),
            layout="uint8",
            indexer=True,
        )
    cell = latent_bytes_per_token(mixer, context.kv_dtype)
    if mixer.window is not None:
        yield SlidingWindowMLASpec(
            block_size=block,
            num_kv_heads=1,
            cell_bytes=cell,
            window=mixer.window,
            extra_retained_tokens=context.settings.extra_retained_tokens,
            layout=context.kv_dtype,
        )
        return
    yield MLAAttentionSpec(
        block_size=block,
        num_kv_heads=1,
        cell_bytes=cell,
        layout=context.kv_dtype,
        leads_index_group=mixer.indexer is not None,
    )


def _deepseek_v4(mixer: LatentAttention, context: _Context) -> Iterator[KVCacheSpec]:
    """The up to five caches of a DeepSeek-V4 layer.

    A window of plain latents in blocks of 64; where the ratio is above 1 the compressed latents,
    and the running state of their compressor; at ratio 4 an indexer with the same two. The packed
    layout takes 584 bytes a state (448 FP8, 64 BF16 rotary, 8 scale) in pages rounded up to 576.
    Source: models/deepseek_v4/attention.py, compressor.py, v1/attention/backends/mla/sparse_swa.py.
    """
    if not context.rules.packs_groups:
        raise DeploymentError(
            "the KV cache of DeepSeek-V4 is known for vLLM 0.27 and newer; name such a version"
        )
    packed = context.kv_dtype == "fp8_ds_mla"
    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    cell = 584 if packed else width * element_bytes(context.kv_dtype)
    alignment = 576 if packed else 512
    ratio = mixer.compress_ratio

    def compressed(cell_bytes: int, *, indexer: bool) -> MLAAttentionSpec:
        return MLAAttentionSpec(
            block_size=context.block_size,
            num_kv_heads=1,
            cell_bytes=cell_bytes,
            tokens_per_state=ratio,
            alignment=alignment,
            layout="" if indexer else context.kv_dtype,
            indexer=indexer,
        )

    def running_state(head_dim: int) -> SlidingWindowMLASpec:
        overlap = 2 if ratio == 4 else 1
        return SlidingWindowMLASpec(
            block_size=4 if ratio == 4 else 8,
            num_kv_heads=1,
            cell_bytes=2 * overlap * head_dim * 4,
            window=overlap * ratio,
            extra_retained_tokens=context.settings.extra_retained_tokens,
            alignment=alignment,
        )

    if ratio > 1 and mixer.indexer is not None:
        yield compressed(indexer_bytes_per_token(mixer.indexer), indexer=True)
        yield running_state(mixer.indexer.head_dim)
    if mixer.window is not None:
        yield SlidingWindowMLASpec(
            block_size=64,
            num_kv_heads=1,
            cell_bytes=cell,
            window=mixer.window,
            extra_retained_tokens=context.settings.extra_retained_tokens,
            layout=context.kv_dtype,
            alignment=alignment,
        )
    if ratio > 1:
        yield compressed(cell, indexer=False)
        yield running_state(width)


_STATES: Final[Mapping[Recurrence, str]] = {
    Recurrence.MAMBA1: "mamba1",
    Recurrence.MAMBA2: "mamba2",
    Recurrence.GATED_DELTA: "gdn_attention",
    Recurrence.KIMI_DELTA: "kda",
    Recurrence.LIGHTNING: "linear_attention",
    Recurrence.SHORT_CONV: "short_conv",
}


def _recurrent(mixer: Recurrent, context: _Context) -> Iterator[KVCacheSpec]:
    settings = context.settings
    rules = context.rules
    shapes, dtypes = _state_tensors(mixer, context.spec, settings)
    drafts = settings.num_speculative_tokens if rules.state_blocks_for_drafts else 0
    checkpoints = rules.checkpoint_blocks if mixer.kind is Recurrence.MAMBA2 else 0
    yield MambaSpec(
        block_size=context.state_block_size,
        padded_page_bytes=context.state_page_bytes,
        shapes=shapes,
        dtypes=dtypes,
        recurrence=_STATES[mixer.kind],
        cache_mode=settings.mamba_cache_mode,
        speculative_blocks=drafts,
        checkpoint_blocks=checkpoints,
    )


def _state_tensors(
    mixer: Recurrent, spec: ModelSpec, settings: KVCacheSettings
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    if mixer.kind not in _STATES:
        raise DeploymentError(
            f"vLLM has no {mixer.kind.value} layers, which {spec.name} is made of; use another "
            f"engine"
        )
    convolution = settings.mamba_cache_dtype
    if convolution == "auto":
        convolution = running_dtype(spec, settings)
    recurrent: str | None = settings.mamba_ssm_cache_dtype
    if recurrent == "auto":
        heeded = spec.architecture.startswith(_HEEDED_STATE_DTYPES)
        own = heeded or mixer.kind is Recurrence.KIMI_DELTA
        recurrent = None if own else convolution
    state = recurrent_state(
        mixer,
        convolution_dtype=convolution,
        recurrent_dtype=recurrent,
        tensor_parallel_size=settings.tensor_parallel_size,
        num_speculative_tokens=settings.num_speculative_tokens,
    )
    tensors = [
        (shape, dtype)
        for shape, dtype in (
            (state.convolution, state.convolution_dtype),
            (state.recurrent, state.recurrent_dtype),
        )
        if shape is not None
    ]
    return tuple(shape for shape, _ in tensors), tuple(dtype for _, dtype in tensors)


def _aligned_block(
    spec: ModelSpec, settings: KVCacheSettings, rules: KVCacheRules, kv_dtype: str
) -> tuple[int, int | None]:
    """(block size, padded page of states) of a model with attention and recurrent layers.

    The attention block is raised until its page holds the largest state, in steps of the kernel's
    block and the cache's own; the state page is then padded to the attention page. Source:
    platforms/interface.py ``_align_hybrid_block_size`` 0.32; before 0.20
    model_executor/models/config.py ``HybridAttentionMambaModelConfig``.
    """
    mixers = [mixer for layer, _ in spec.layer_kinds for mixer in layer.mixers]
    states = [mixer for mixer in mixers if isinstance(mixer, Recurrent)]
    attention = next((m for m in mixers if not isinstance(m, Recurrent)), None)
    block = settings.block_size
    if spec.model_type.startswith("deepseek_v4"):
        block = ceil_div(block, _DEEPSEEK_V4_BLOCK) * _DEEPSEEK_V4_BLOCK
    if not states or attention is None:
        return block, None
    largest = max(
        MambaSpec(block_size=WHOLE_SEQUENCE, shapes=shapes, dtypes=dtypes).own_page_bytes
        for shapes, dtypes in (_state_tensors(state, spec, settings) for state in states)
    )
    step = settings.kernel_block_size
    if rules.aligns_to_cache_block:
        step = max(step, block)
    if isinstance(attention, LatentAttention):
        per_token = latent_bytes_per_token(attention, kv_dtype)
        step = max(step, rules.hybrid_mla_alignment)
    else:
        heads = kv_heads_per_rank(attention.num_kv_heads, settings.tensor_parallel_size)
        per_token = heads * attention_cell_bytes(
            attention.head_dim, attention.value_head_dim, kv_dtype
        )
    if settings.mamba_cache_mode == "all":
        step = lcm(settings.mamba_block_size or settings.mamba_chunk_size, step)
    needed = step * ceil_div(largest, step * per_token)
    kernel = settings.kernel_block_size
    block = max(block, kernel * ceil_div(needed, kernel))
    page = block * per_token
    return block, None if page == largest else page


def _refuse_partial_windows(spec: ModelSpec) -> None:
    """Qwen2 with windows from some layer on: vLLM asserts that all layers have one.

    Source: model_executor/models/qwen2.py ``Qwen2Model``.
    """
    if spec.model_type != "qwen2":
        return
    windows = {
        mixer.window
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    }
    if len(windows) > 1:
        raise DeploymentError(
            "use_sliding_window is on with max_window_layers below num_hidden_layers, which vLLM "
            "does not support for qwen2 models; turn use_sliding_window off in the configuration"
        )


def layer_caches(
    spec: ModelSpec,
    settings: KVCacheSettings,
    rules: KVCacheRules,
    *,
    draft_layers: Sequence[Layer] = (),
) -> LayerCaches:
    """Every cache the engine registers, by pipeline stage.

    Args:
        spec: The model.
        settings: Resolved settings.
        rules: The version's decisions.
        draft_layers: Layers of a draft model or of MTP blocks; they follow the model's own on the
            last stage.

    Raises:
        DeploymentError: vLLM cannot run the layers under these settings.
    """
    _refuse_partial_windows(spec)
    kv_dtype = resolved_kv_dtype(spec, settings)
    block_size, state_page = _aligned_block(spec, settings, rules, kv_dtype)
    state_block = WHOLE_SEQUENCE
    if settings.mamba_cache_mode != "none":
        state_block = settings.mamba_block_size or block_size
        if settings.mamba_cache_mode == "align" and state_page is not None:
            state_block = block_size
    context = _Context(
        spec=spec,
        settings=settings,
        rules=rules,
        kv_dtype=kv_dtype,
        block_size=block_size,
        state_page_bytes=state_page,
        state_block_size=state_block,
    )
    by_layer: dict[int, tuple[KVCacheSpec, ...]] = {}
    caches: dict[int, KVCacheSpec] = {}
    stages: list[frozenset[int]] = []
    count = settings.pipeline_parallel_size
    for stage in range(count):
        layers = stage_layers(spec.num_layers, count, stage, settings.layer_partition)
        held: set[int] = set()
        members = [spec.layers[index] for index in layers]
        for layer in [*members, *(draft_layers if stage == count - 1 else ())]:
            specs = by_layer.get(id(layer))
            if specs is None:
                specs = by_layer[id(layer)] = tuple(_caches_of(layer, context))
            for cache in specs:
                held.add(len(caches))
                caches[len(caches)] = cache
        stages.append(frozenset(held))
    return LayerCaches(
        caches=caches,
        stages=tuple(stages),
        block_size=block_size,
        block_outermost=spec.model_type.startswith("deepseek_v4"),
    )


def _caches_of(layer: Layer, context: _Context) -> Iterator[KVCacheSpec]:
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            yield from _attention(mixer, context)
        elif isinstance(mixer, LatentAttention):
            yield from _latent(mixer, context)
        else:
            yield from _recurrent(mixer, context)
