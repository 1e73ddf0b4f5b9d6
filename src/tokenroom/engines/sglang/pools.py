"""How SGLang turns the bytes that are left into token pools.

Sources: ``model_executor/pool_configurator.py`` (``DefaultPoolConfigurator``,
``HybridSWAPoolConfigurator``, ``SWARequestCapPoolConfigurator``) and
``mem_cache/kv_cache_configurator.py`` (``resolve_max_num_reqs``) of 0.5.23; the same rules in
``model_runner.py`` before 0.5.9. The compressed pools of DeepSeek V4 are in
:mod:`tokenroom.engines.sglang.compressed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.cells import Cell
from tokenroom.engines.sglang.rules import VersionRules

DEFAULT_WINDOW_RATIO: Final = 0.8
"""``--swa-full-tokens-ratio``: tokens of window layers against tokens of full layers."""

_EVICTION_INTERVAL: Final = 128
"""Tokens decoded between two evictions from the window pool (``SGLANG_SWA_EVICTION_INTERVAL``)."""

_FEWEST_REQUESTS: Final = 2048
_MOST_REQUESTS: Final = 4096
_REQUESTS_PER_CONTEXT: Final = 512

_HYBRID_SINCE: Final[Mapping[str, tuple[int, ...]]] = {
    "Llama4ForConditionalGeneration": (0, 5, 8),
    "GptOssForCausalLM": (0, 5, 8),
    "MiMoV2FlashForCausalLM": (0, 5, 8),
    "Step3p5ForCausalLM": (0, 5, 9),
    "MiMoV2ForCausalLM": (0, 5, 11),
    "Gemma4ForCausalLM": (0, 5, 11),
    "Gemma4ForConditionalGeneration": (0, 5, 11),
    "LagunaForCausalLM": (0, 5, 12),
    "Step3p7ForConditionalGeneration": (0, 5, 13),
    "Gemma4UnifiedForConditionalGeneration": (0, 5, 13),
    "UnlimitedOCRForCausalLM": (0, 5, 15),
    "MellumForCausalLM": (0, 5, 16),
    "InklingForConditionalGeneration": (0, 5, 16),
    "MuseGlimmerForCausalLM": (0, 5, 18),
    "MuseGlimmerForConditionalGeneration": (0, 5, 18),
    "DiffusionGemmaForBlockDiffusion": (0, 5, 21),
    "EmbeddingGemma2Model": (0, 5, 22),
    "BeamForCausalLM": (0, 5, 23),
}
"""Since when an architecture has a pool of its own for window layers (``is_hybrid_swa_model``);
others charge a window layer for every token."""


def has_window_pool(
    architecture: str, cells: Sequence[Cell], rules: VersionRules, *, disabled: bool
) -> bool:
    """Whether window layers have a smaller pool of their own."""
    since = _HYBRID_SINCE.get(architecture)
    if disabled or since is None or rules.version < since:
        return False
    return any(cell.kind == "sliding_window" for cell in cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPools:
    """Tokens of each pool.

    Attributes:
        max_total_num_tokens: Tokens of the full layers: the figure the engine prints.
        window_tokens: Tokens of the window layers' own pool, None without one.
        bytes_per_token: What one token of ``max_total_num_tokens`` costs, draft layers included.
        fixed_bytes: A window pool whose size does not follow ``max_total_num_tokens``.
    """

    max_total_num_tokens: int
    window_tokens: int | None
    bytes_per_token: float
    fixed_bytes: int = 0


def window_cap(
    *,
    page_size: int,
    window: int,
    max_running_requests: int,
    chunked_prefill_size: int,
    overlap: bool,
) -> int:
    """Slots of a window pool that is sized by what may run (``compute_swa_request_cap``).

    Args:
        page_size: Tokens of a page.
        window: The sliding window, the token itself included.
        max_running_requests: Of one copy of attention.
        chunked_prefill_size: Tokens of a chunk.
        overlap: The overlap scheduler runs: two chunks are in flight.
    """
    kept = window - 1 + _EVICTION_INTERVAL + page_size
    chunks = (2 if overlap else 1) * chunked_prefill_size
    cap = (kept + page_size) * max(1, max_running_requests) + chunks + page_size
    return -(-cap // page_size) * page_size


def token_pools(
    available_bytes: int,
    cells: Sequence[Cell],
    *,
    page_size: int,
    window_ratio: float | None,
    window_tokens: int | None = None,
    draft_bytes_per_token: int = 0,
) -> TokenPools:
    """Pools that ``available_bytes`` hold.

    Args:
        available_bytes: What is left for them on the rank.
        cells: Its layers.
        page_size: Tokens of a page; pools are whole pages.
        window_ratio: ``swa_full_tokens_ratio`` where window layers have a pool of their own, None
            elsewhere.
        window_tokens: Slots of that pool where not the ratio but what may run decides.
        draft_bytes_per_token: Cells of the draft's own pool.
    """
    available = max(0, available_bytes)
    if window_ratio is None:
        cell = sum(item.num_bytes for item in cells) + draft_bytes_per_token
        charged = cell - sum(item.uncharged_bytes for item in cells)
        tokens = available // charged if charged else 0
        return TokenPools(
            max_total_num_tokens=tokens // page_size * page_size,
            window_tokens=None,
            bytes_per_token=cell,
        )
    full = sum(item.num_bytes for item in cells if item.kind != "sliding_window")
    windowed = sum(item.num_bytes for item in cells if item.kind == "sliding_window")
    if not full:  # window layers alone: there is no pool of full layers to relate to
        cell = windowed + draft_bytes_per_token
        tokens = available // cell // page_size * page_size
        return TokenPools(max_total_num_tokens=tokens, window_tokens=tokens, bytes_per_token=cell)
    full += draft_bytes_per_token
    if window_tokens is not None:
        fixed = window_tokens * windowed
        tokens = max(0, available - fixed) // full // page_size * page_size
        return TokenPools(
            max_total_num_tokens=tokens,
            window_tokens=window_tokens,
            bytes_per_token=full,
            fixed_bytes=fixed if tokens else 0,
        )
    cell_bytes = full + window_ratio * windowed
    tokens = int(available // cell_bytes) // page_size * page_size
    return TokenPools(
        max_total_num_tokens=tokens,
        window_tokens=int(tokens * window_ratio) // page_size * page_size,
        bytes_per_token=cell_bytes,
    )


def max_running_requests(
    tokens: int,
    context_length: int,
    rules: VersionRules,
    *,
    asked: int | None,
    attention_dp_size: int,
    state_requests: int | None,
) -> int:
    """Requests that run at once in one copy of attention.

    ``clamp(tokens / context x 512, 2048, 4096)`` and at most half the tokens unless asked for
    (``resolve_max_num_reqs``); states may allow fewer.
    """
    estimate = max(
        min(int(tokens / context_length * _REQUESTS_PER_CONTEXT), _MOST_REQUESTS),
        _FEWEST_REQUESTS,
    )
    if asked is None:
        spare = 0 if rules.since(0, 4, 7) else 1  # the table of requests had one row more
        found = min(estimate + spare, tokens // 2)
    else:
        found = max(1, asked // attention_dp_size)
        if rules.since(0, 5, 10):
            found = min(found, tokens // 2)
    return found if state_requests is None else min(found, state_requests)
