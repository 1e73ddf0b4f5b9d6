"""Pools of DeepSeek V4: a window, states of compressed tokens, and a cache every 4 or 128 tokens.

``DSV4PoolConfigurator`` in ``model_executor/pool_configurator.py`` and
``mem_cache/deepseek_v4_memory_pool.py``, read in 0.5.12, 0.5.17 and 0.5.23: a token of the full
pool costs its share of every pool, plus what running requests keep whatever their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.pools import TokenPools
from tokenroom.engines.sglang.rules import VersionRules
from tokenroom.memory.kv_cache import indexer_bytes_per_token
from tokenroom.models.spec import LatentAttention, Layer

PAGE_SIZE: Final = 256
"""``--page-size`` that the engine sets for these models."""

WINDOW_RATIO: Final = 0.1
"""``--swa-full-tokens-ratio`` that the engine sets for these models."""

RUNNING_REQUESTS: Final = 256
"""``--max-running-requests`` that the engine sets for these models."""

_PAGE_ALIGNMENT: Final = 576
_STATE_BYTES: Final = 4
_SCALE_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedCosts:
    """Bytes of a stage's pools.

    Attributes:
        bytes_per_token: Of one token of the full pool.
        fixed_bytes: Of the request-scoped states.
    """

    bytes_per_token: float
    fixed_bytes: int


def is_compressed(layers: Sequence[Layer]) -> bool:
    """Whether the layers are those of DeepSeek V4."""
    return any(
        isinstance(mixer, LatentAttention) and mixer.compress_ratio > 1
        for layer in layers
        for mixer in layer.mixers
    )


def compressed_costs(
    layers: Sequence[Layer],
    rules: VersionRules,
    *,
    page_size: int,
    window_ratio: float,
    max_running_requests: int,
    draft_tokens: int | None,
    extra_layers: int = 0,
) -> CompressedCosts:
    """What a token and the requests of a stage cost.

    Args:
        layers: The stage's blocks.
        rules: The version; before 0.5.15 states of 128 tokens grew with the window pool, and
            before 0.5.21 pages were not padded and states followed the window.
        page_size: Tokens of a page.
        window_ratio: ``swa_full_tokens_ratio``.
        max_running_requests: Of one copy of attention.
        draft_tokens: Tokens verified at once, None without speculative decoding.
        extra_layers: Blocks that are charged a window beside the stage's own.
    """
    padded = rules.since(0, 5, 21)
    scoped = rules.since(0, 5, 15)
    drafting = draft_tokens is not None
    rings = {4: 16 if drafting else 8, 128: 256 if drafting else 128}
    per_token = widest = 0.0
    fixed = 0
    for layer in layers:
        for mixer in layer.mixers:
            if not isinstance(mixer, LatentAttention):
                continue
            ratio = mixer.compress_ratio
            width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            slot = mixer.kv_lora_rank + 2 * mixer.qk_rope_head_dim + _SCALE_BYTES
            widest = _slot(slot, page_size, padded=padded)
            per_token += window_ratio * widest
            if ratio == 1:
                continue
            per_token += _slot(slot, page_size // ratio, padded=padded) / ratio
            state_page = page_size if padded else mixer.window or page_size
            if ratio == 4:
                index = indexer_bytes_per_token(mixer.indexer) if mixer.indexer else 0
                head = mixer.indexer.head_dim if mixer.indexer else 0
                states = 4 * (width + head) * _STATE_BYTES
                per_token += index / 4
                per_token += window_ratio * rings[4] / state_page * states
            elif scoped:
                rows = (max_running_requests + 1) * rings[128] + rings[128] + 1
                fixed += -(-rows // 128) * 128 * 2 * width * _STATE_BYTES
            else:
                per_token += window_ratio * rings[128] / state_page * 2 * width * _STATE_BYTES
    per_token += extra_layers * window_ratio * widest
    if drafting:
        count = len(layers) + extra_layers
        per_token *= (count + 1) / count
    return CompressedCosts(bytes_per_token=per_token, fixed_bytes=fixed)


def _slot(num_bytes: int, page_size: int, *, padded: bool) -> float:
    """A slot's share of a page that is padded to the kernel's alignment."""
    if not padded:
        return num_bytes
    page = -(-num_bytes * page_size // _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT
    return page / page_size


def compressed_pools(
    available_bytes: int, costs: CompressedCosts, *, page_size: int, window_ratio: float
) -> TokenPools:
    """Pools that ``available_bytes`` hold."""
    room = max(0, available_bytes - costs.fixed_bytes)
    tokens = int(room / costs.bytes_per_token) // page_size * page_size
    return TokenPools(
        max_total_num_tokens=tokens,
        window_tokens=int(tokens * window_ratio) // page_size * page_size,
        bytes_per_token=costs.bytes_per_token,
    )
