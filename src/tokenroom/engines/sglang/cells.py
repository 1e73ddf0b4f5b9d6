"""Bytes that one token takes in SGLang's pools on one rank, layer kind by layer kind.

Sources: ``model_runner.py`` ``profile_max_num_token`` (to 0.5.8),
``model_runner_kv_cache_mixin.py`` ``get_cell_size_per_token`` (0.5.9), ``pool_configurator.py``
``_compute_cell_size`` and ``kv_cache_configurator.py`` ``calculate_mla_kv_cache_dim`` (from
0.5.10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.rules import VersionRules
from tokenroom.errors import DeploymentError, shown
from tokenroom.memory.kv_cache import (
    element_bytes,
    indexer_bytes_per_token,
    key_indexer_bytes_per_token,
    kv_heads_per_rank,
)
from tokenroom.models.spec import Attention, Indexer, LatentAttention, Layer, Recurrent

FP4_TYPES: Final = frozenset({"fp4_e2m1", "nvfp4", "fp4_mx_block16"})
"""KV types that store two values a byte and a scale byte every 16."""

KV_TYPES: Final = (
    *("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1", "nvfp4", "fp4_mx_block16"),
    "mxfp8",
)
"""What ``--kv-cache-dtype`` may hold in one version or another."""

_FP4_BLOCK: Final = 16
_MXFP8_BLOCK: Final = 32
_LATENT_SCALE_BLOCK: Final = 128
RAW_LATENT_BACKENDS: Final = frozenset({"trtllm", "tilelang"})
"""Sparse attention kernels that read FP8 latents without scales beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a token takes in the layers of one kind on one rank, in bytes.

    Attributes:
        kind: ``"full_attention"``, ``"sliding_window"``, ``"mla"``.
        num_layers: How many layers.
        key_bytes: Keys (or the latent) of one layer, scales included.
        value_bytes: Values of one layer.
        index_bytes: Keys of sparse selectors over all layers.
        uncharged_bytes: What the pool takes of that but the engine forgets when it sizes the pool.
    """

    kind: str
    num_layers: int
    key_bytes: int
    value_bytes: int
    index_bytes: int = 0
    uncharged_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """A token over all these layers."""
        return self.num_layers * (self.key_bytes + self.value_bytes) + self.index_bytes

    @property
    def charged_bytes(self) -> int:
        """What the engine divides its memory by."""
        return self.num_bytes - self.uncharged_bytes


def elements_bytes(count: int, kv_dtype: str) -> int:
    """Bytes of ``count`` cached elements of one layer, scales included.

    Raises:
        DeploymentError: The type is unknown.
    """
    if kv_dtype in FP4_TYPES:
        return count // 2 + count // _FP4_BLOCK
    if kv_dtype == "mxfp8":
        return count + count // _MXFP8_BLOCK
    return count * element_bytes(kv_dtype)


def attention_cell(
    mixer: Attention, num_layers: int, kv_dtype: str, ranks: int, rules: VersionRules
) -> Cell:
    """Cell of layers of plain attention.

    Before 0.5.8 values were taken to be as wide as keys (``head_dim * 2``).
    """
    heads = kv_heads_per_rank(mixer.num_kv_heads, ranks)
    values = mixer.value_head_dim if rules.since(0, 5, 8) else mixer.head_dim
    return Cell(
        kind="full_attention" if mixer.window is None else "sliding_window",
        num_layers=num_layers,
        key_bytes=elements_bytes(heads * mixer.head_dim, kv_dtype),
        value_bytes=elements_bytes(heads * values, kv_dtype),
    )


def latent_cell(
    mixer: LatentAttention,
    num_layers: int,
    kv_dtype: str,
    rules: VersionRules,
    *,
    raw: bool,
    reused: Indexer | None = None,
    unused_keys: bool = False,
) -> Cell:
    """Cell of layers of latent attention.

    With a sparse selector FP8 latents carry a scale every 128 and keep their rotary part in 16
    bits (656 bytes for 512 + 64) unless the kernels take raw rows. Before 0.5.17 the pool was sized
    as if rows were raw, and before 0.5.4 as if the selector had no keys. Layers that reuse the
    selection of another (GLM-5.2) keep rows of the same form.

    Args:
        mixer: The attention.
        num_layers: Layers of it on the rank.
        kv_dtype: Resolved type.
        rules: The version.
        raw: The kernels read raw FP8 rows (:data:`RAW_LATENT_BACKENDS`).
        reused: The selector of other layers whose selection these layers reuse.
        unused_keys: They have keys of that selector all the same, which nothing reads.
    """
    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    plain = key = elements_bytes(width, kv_dtype)
    index = uncharged = 0
    selector = mixer.indexer or reused
    if selector is not None:
        if kv_dtype.startswith("fp8_e4m3") and not raw:
            scales = mixer.kv_lora_rank // _LATENT_SCALE_BLOCK * 4
            key = mixer.kv_lora_rank + scales + 2 * mixer.qk_rope_head_dim
        if mixer.indexer is not None or unused_keys:
            index = num_layers * indexer_bytes_per_token(selector)
        if not rules.since(0, 5, 17):
            uncharged = num_layers * (key - plain)
        if not rules.since(0, 5, 4):
            uncharged += index
    return Cell(
        kind="mla",
        num_layers=num_layers,
        key_bytes=key,
        value_bytes=0,
        index_bytes=index,
        uncharged_bytes=uncharged,
    )


def cells_of(
    layers: Iterable[Layer],
    kv_dtype: str,
    ranks: int,
    rules: VersionRules,
    *,
    raw_latents: bool,
    dtype: str,
    unused_keys: bool = False,
) -> tuple[Cell, ...]:
    """Cells of a stage's layers, alike ones together; layers that keep a state have none.

    Args:
        layers: The stage's blocks.
        kv_dtype: Resolved KV type.
        ranks: Ranks that attention heads are divided over.
        rules: The version.
        raw_latents: See :func:`latent_cell`.
        dtype: The model's type, which a selector of blocks over plain attention keeps its keys in.
        unused_keys: See :func:`latent_cell`.

    Raises:
        DeploymentError: The KV type is unknown.
    """
    counts: dict[Attention | LatentAttention, int] = {}
    for layer in layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Recurrent) or getattr(mixer, "encoder_only", False):
                continue
            counts[mixer] = counts.get(mixer, 0) + 1
    found: list[Cell] = []
    latent = [mixer for mixer in counts if isinstance(mixer, LatentAttention)]
    reused = next((mixer.indexer for mixer in latent if mixer.indexer is not None), None)
    for mixer, count in counts.items():
        if isinstance(mixer, LatentAttention):
            found.append(
                latent_cell(
                    mixer,
                    count,
                    kv_dtype,
                    rules,
                    raw=raw_latents,
                    reused=reused,
                    unused_keys=unused_keys,
                )
            )
            continue
        cell = attention_cell(mixer, count, kv_dtype, ranks, rules)
        if mixer.indexer is not None:
            index = count * key_indexer_bytes_per_token(mixer.indexer, dtype)
            cell = Cell(
                kind=cell.kind,
                num_layers=count,
                key_bytes=cell.key_bytes,
                value_bytes=cell.value_bytes,
                index_bytes=index,
            )
        found.append(cell)
    return _merged(found)


def _merged(cells: list[Cell]) -> tuple[Cell, ...]:
    merged: dict[tuple[str, int, int], Cell] = {}
    for cell in cells:
        key = (cell.kind, cell.key_bytes, cell.value_bytes)
        before = merged.get(key)
        if before is not None:
            cell = Cell(
                kind=cell.kind,
                num_layers=before.num_layers + cell.num_layers,
                key_bytes=cell.key_bytes,
                value_bytes=cell.value_bytes,
                index_bytes=before.index_bytes + cell.index_bytes,
                uncharged_bytes=before.uncharged_bytes + cell.uncharged_bytes,
            )
        merged[key] = cell
    return tuple(merged.values())


def check_kv_type(kv_dtype: str) -> None:
    """Refuse a KV type that no version knows.

    Raises:
        DeploymentError: The type is unknown.
    """
    if kv_dtype not in KV_TYPES:
        raise DeploymentError(
            f"kv_cache_dtype is {shown(kv_dtype)}; SGLang knows {', '.join(KV_TYPES)}"
        )
