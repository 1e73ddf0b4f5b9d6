"""What vLLM's V0 engine cached of a model: one block of the same shape for every layer.

Source: ``get_cache_block_size``, worker/cache_engine.py, ``get_head_size``
and ``get_num_kv_heads``, config.py, 0.4.1 to 0.10.2. Windows were attended to but kept in full;
recurrent states lay outside the pool; a layer that attends to an encoder shares its block's shape
with one that does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tokenroom.engines.vllm.kv_rules import KVCacheRules, NeededBytes
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.v0_rules import PADDED_HEAD, LatentCache, V0Rules
from tokenroom.models.spec import Attention, LatentAttention, Layer, Mixer, ModelSpec

V0_CACHE_RULES: Final = KVCacheRules(
    tokens_from_concurrency=False,
    holds_null_block=False,
    reserves_null_block=False,
    needed=NeededBytes.GROUPS,
    override_counts_in_check=True,
    counts_in_flight_batches=False,
    packs_groups=False,
)
"""One group, no block held back, and the start-up check of ``raise_if_cache_size_invalid``."""

_ALIGNMENT: Final = 128
"""Elements of two bytes that make the 256 bytes latents are rounded up to."""

_specs: Final[Remembered[ModelSpec]] = Remembered()


def as_cached(spec: ModelSpec, rules: V0Rules) -> ModelSpec:
    """The model with every layer's cache as V0 kept it: full attention, or latents, or nothing."""
    return _specs.get(spec, rules.latent_cache, lambda: _as_cached(spec, rules.latent_cache))


def _as_cached(spec: ModelSpec, latent: LatentCache) -> ModelSpec:
    made: dict[int, Layer] = {}
    for layer, _ in spec.layer_kinds:
        made[id(layer)] = replace(layer, mixers=_cached(layer, latent))
    layers = tuple(made[id(layer)] for layer in spec.layers)
    return replace(spec, layers=layers, encoder_layers=(), mtp_layers=())


def _cached(layer: Layer, latent: LatentCache) -> tuple[Mixer, ...]:
    """At most one cache a layer."""
    for mixer in layer.mixers:
        if isinstance(mixer, Attention) and not mixer.encoder_only:
            return (
                replace(
                    mixer,
                    value_head_dim=mixer.head_dim,
                    window=None,
                    chunk=None,
                    shares_kv_of=None,
                    cross=False,
                    indexer=None,
                ),
            )
        if isinstance(mixer, LatentAttention):
            return (_latent(mixer, latent),)
    return ()


def _latent(mixer: LatentAttention, kept: LatentCache) -> Mixer:
    if kept is LatentCache.PADDED_HEADS:
        return Attention(
            num_heads=mixer.num_heads,
            num_kv_heads=mixer.num_heads,
            head_dim=PADDED_HEAD,
            value_head_dim=PADDED_HEAD,
        )
    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    if kept is LatentCache.ALIGNED_LATENT:
        width = -(-width // _ALIGNMENT) * _ALIGNMENT
    return replace(mixer, kv_lora_rank=width - mixer.qk_rope_head_dim, indexer=None, window=None)
