"""The caches of llama.cpp: key/value cells and recurrent states, all allocated at start.

Rules of ``llama_kv_cache``, ``llama_kv_cache_iswa``, ``llama_kv_cache_dsa`` and
``llama_memory_recurrent`` (``src/``) and of ``llama_model::create_memory`` of llama.cpp 0c1e57098:
one cell a token and layer, the same for every layer but those with a window, whose own cache holds
the window and one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tokenroom.engines.llama_cpp.tensor_graph import row_bytes
from tokenroom.models.gguf.architectures import ARCHITECTURES, WINDOW_RULES
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, Recurrent

_CELL_PADDING: Final = 256
#: Model types whose windows llama.cpp honours; the windows of others (Mistral, Qwen2, Phi-3) it
#: reads past and caches every token.
_WINDOWED: Final = frozenset(
    ARCHITECTURES[name][1] for name in (*WINDOW_RULES, "gemma4", "mimo2", "step35")
) | {"olmo3", "ministral3_text"}


def padded_cells(tokens: int) -> int:
    """Cells that hold that many tokens: a multiple of 256 (``GGML_PAD(n_ctx, 256)``)."""
    return -(-tokens // _CELL_PADDING) * _CELL_PADDING


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """What one block caches.

    Attributes:
        layer: Index of the block.
        kind: ``"full_attention"``, ``"sliding_window"``, ``"mla"``, ``"indexer"`` or
            ``"recurrent"``.
        cells: Cells of one stream, or sequences that a recurrent state is kept for.
        streams: Streams that each have those cells.
        key_width: Elements of a key; of the convolution's state when recurrent.
        value_width: Elements of a value, 0 for none; of the recurrent state.
        tensors: Bytes of its tensors (K and V, or R and S).
    """

    layer: int
    kind: str
    cells: int
    streams: int
    key_width: int
    value_width: int
    tensors: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """The caches of a context.

    Attributes:
        layers: What each block caches; a block may occur twice (attention beside a recurrence, an
            indexer's keys).
        reuses: Block whose cache a block reads instead of an own one.
        cells: Cells of one stream of the full caches: tokens it holds.
        window_cells: Cells of one stream of the windowed caches, 0 without any.
        streams: 1 when unified, else one a sequence.
        sequences: Sequences there may be (``n_seq_max``).
        value_transposed: Values are stored transposed: flash attention is off.
    """

    layers: tuple[LayerCache, ...]
    reuses: Mapping[int, int]
    cells: int
    window_cells: int
    streams: int
    sequences: int
    value_transposed: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of all caches, alignment left out."""
        return sum(layer.num_bytes for layer in self.layers)

    def of(self, layer: int, kind: str | None = None) -> LayerCache | None:
        """The cache a block reads, its own or another's; None when it has none."""
        owner = self.reuses.get(layer, layer)
        for cache in self.layers:
            if cache.layer == owner and (
                kind == cache.kind
                if kind is not None
                else cache.kind not in ("recurrent", "indexer")
            ):
                return cache
        return None


def cache_layout(
    spec: ModelSpec,
    *,
    cells: int,
    sequences: int,
    unified: bool,
    n_ubatch: int,
    type_k: str,
    type_v: str,
    flash_attn: bool,
    swa_full: bool,
    rollback: int = 0,
) -> CacheLayout:
    """The caches of a context.

    Args:
        spec: The model.
        cells: ``n_ctx_seq``: cells of one stream, padded already.
        sequences: ``n_seq_max``.
        unified: One stream for all sequences.
        n_ubatch: Tokens of a micro-batch.
        type_k: ggml type of keys.
        type_v: ggml type of values.
        flash_attn: Whether flash attention is on.
        swa_full: Windowed layers cache every token too.
        rollback: Recurrent states kept beside the last (``n_rs_seq``).
    """
    streams = 1 if unified else sequences
    mixers = [
        (index, mixer, absorbs(spec, index))
        for index, layer in enumerate(spec.layers)
        for mixer in layer.mixers
    ]
    windows = [
        mixer.window or mixer.chunk
        for _, mixer, _ in mixers
        if isinstance(mixer, Attention) and _is_windowed(spec, mixer)
    ]
    window_cells = 0
    if windows:
        held = (max(window or 0 for window in windows)) * (sequences if unified else 1)
        window_cells = cells if swa_full else padded_cells(min(cells, held + n_ubatch))
    widest = max(
        (
            mixer.value_head_dim * mixer.num_kv_heads
            for _, mixer, _ in mixers
            if isinstance(mixer, Attention)
        ),
        default=0,
    )
    layers: list[LayerCache] = []
    reuses: dict[int, int] = {}

    def cached(index: int, kind: str, key: int, value: int) -> None:
        held = window_cells if kind == "sliding_window" else cells
        tensors = [row_bytes(type_k, key) * held * streams]
        if value:
            tensors.append(row_bytes(type_v, value) * held * streams)
        layers.append(
            LayerCache(
                layer=index,
                kind=kind,
                cells=held,
                streams=streams,
                key_width=key,
                value_width=value,
                tensors=tuple(tensors),
            )
        )

    for index, mixer, absorbed in mixers:
        if isinstance(mixer, Attention):
            if mixer.encoder_only:
                continue
            if mixer.shares_kv_of is not None:
                reuses[index] = mixer.shares_kv_of
                continue
            kind = "sliding_window" if _is_windowed(spec, mixer) else "full_attention"
            value = mixer.value_head_dim * mixer.num_kv_heads
            # Transposed values of layers that differ are padded to the widest.
            cached(
                index,
                kind,
                mixer.head_dim * mixer.num_kv_heads,
                value if flash_attn else widest,
            )
        elif isinstance(mixer, LatentAttention):
            if absorbed:
                cached(index, "mla", mixer.kv_lora_rank + mixer.qk_rope_head_dim, 0)
            else:
                key_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
                cached(
                    index,
                    "full_attention",
                    mixer.num_heads * key_dim,
                    mixer.num_heads * mixer.v_head_dim,
                )
            if mixer.indexer is not None:
                cached(index, "indexer", mixer.indexer.head_dim, 0)
        else:
            layers.append(_recurrent(index, mixer, sequences, rollback))
    return CacheLayout(
        layers=tuple(layers),
        reuses=reuses,
        cells=cells,
        window_cells=window_cells,
        streams=streams,
        sequences=sequences,
        value_transposed=not flash_attn,
    )


def _recurrent(index: int, mixer: Recurrent, sequences: int, rollback: int) -> LayerCache:
    """States of a recurrence in float32, whatever the types of the KV cache."""
    rows = max(1, sequences) * (1 + rollback)
    conv = mixer.conv_dim * max(mixer.conv_kernel - 1, 0)
    state = mixer.num_heads * prod(mixer.state_shape) if mixer.state_shape else 0
    return LayerCache(
        layer=index,
        kind="recurrent",
        cells=rows,
        streams=1,
        key_width=conv,
        value_width=state,
        tensors=(conv * rows * 4, state * rows * 4),
    )


def absorbs(spec: ModelSpec, index: int) -> bool:
    """Whether a latent-attention block is stored so that llama.cpp caches the latent.

    Files converted before ``key_length_mla`` keep keys and values in one projection
    (``attn_kv_b``) and are run with full heads.
    """
    if spec.layer_prefix != "blk":
        return True
    return all(weight.name != "attn_kv_b" for weight in spec.layers[index].weights)


def _is_windowed(spec: ModelSpec, mixer: Attention) -> bool:
    window = mixer.window or mixer.chunk
    return window is not None and (spec.layer_prefix == "blk" or spec.model_type in _WINDOWED)


def aligned_bytes(tensors: Sequence[int], alignment: int) -> int:
    """Bytes of a buffer that holds the tensors, each aligned."""
    return sum(-(-size // alignment) * alignment for size in tensors)
