"""Layers whose KV blocks are handed out together, and how long they need what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tokenroom.errors import DeploymentError, shown

NEVER: Final = 1 << 62
"""A count of tokens that no request reaches."""


class Kind(StrEnum):
    """What a layer keeps of a request: ``vllm/v1/kv_cache_interface.py``'s specs."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    MAMBA = "mamba"
    ALIGNED_MAMBA = "aligned_mamba"
    """States that are cached at ends of blocks, where chunks of prompts then end
    (``mamba_cache_mode`` "align"); a request keeps only the newest."""


STATES: Final = (Kind.MAMBA, Kind.ALIGNED_MAMBA)
"""Kinds of which a state stands for all tokens before it."""
_WINDOWED: Final = (Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """One KV cache group: its layers share a table of blocks for each request.

    Attributes:
        kind: What the layers keep.
        block_tokens: Tokens that one block holds; for Mamba layers the tokens between two states
            (vLLM sets it to the longest context where states are not cached).
        window_tokens: Tokens that a sliding window sees, its own included, or the length of a
            local chunk; None for other kinds.

    Raises:
        DeploymentError: A length below 1, or a window where the kind has none, or none where it
            needs one.
    """

    kind: Kind
    block_tokens: int
    window_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise DeploymentError(
                f"a KV group has block_tokens {shown(self.block_tokens)}; it must be 1 or more"
            )
        if self.kind in _WINDOWED:
            if self.window_tokens is None or self.window_tokens < 1:
                raise DeploymentError(
                    f"a {self.kind} KV group has window_tokens {shown(self.window_tokens)}; "
                    "it must be 1 or more"
                )
        elif self.window_tokens is not None:
            raise DeploymentError(
                f"a {self.kind} KV group has window_tokens {shown(self.window_tokens)}; "
                "only sliding_window and chunked_local groups have one"
            )

    def unseen_tokens(self, computed_tokens: int) -> int:
        """Leading tokens that no later token looks at once ``computed_tokens`` are computed.

        Source: ``get_num_skipped_tokens`` of each manager in
        ``vllm/v1/core/single_type_kv_cache_manager.py``, vLLM 0.32.
        """
        match self.kind:
            case Kind.FULL:
                return 0
            case Kind.SLIDING_WINDOW:
                assert self.window_tokens is not None
                return max(0, computed_tokens - self.window_tokens + 1)
            case Kind.CHUNKED_LOCAL:
                assert self.window_tokens is not None
                return computed_tokens // self.window_tokens * self.window_tokens
            case Kind.MAMBA | Kind.ALIGNED_MAMBA:
                return max(0, computed_tokens - 1)

    def releases_at(self, blocks: int) -> int:
        """Fewest computed tokens at which so many leading blocks are unseen; NEVER if at none."""
        tokens = blocks * self.block_tokens
        match self.kind:
            case Kind.FULL:
                return NEVER
            case Kind.SLIDING_WINDOW:
                assert self.window_tokens is not None
                return tokens + self.window_tokens - 1
            case Kind.CHUNKED_LOCAL:
                assert self.window_tokens is not None
                return -(-tokens // self.window_tokens) * self.window_tokens
            case Kind.MAMBA | Kind.ALIGNED_MAMBA:
                return tokens + 1

    def most_blocks(self, max_in_flight_tokens: int, max_model_len: int) -> int:
        """Blocks that one request holds at most, as the check on admission counts them.

        Source: ``max_admission_blocks_per_request`` of ``vllm/v1/kv_cache_interface.py``,
        vLLM 0.32; NEVER for kinds that it does not cap.

        Args:
            max_in_flight_tokens: Tokens that may be scheduled and not settled at a time.
            max_model_len: The longest context.
        """
        if self.kind is Kind.SLIDING_WINDOW:
            assert self.window_tokens is not None
            held = min(self.window_tokens - 1 + max_in_flight_tokens, max_model_len)
            return -(-held // self.block_tokens) + 1
        if self.kind is Kind.CHUNKED_LOCAL:
            assert self.window_tokens is not None
            held = min(self.window_tokens + max_in_flight_tokens, max_model_len)
            return -(-held // self.block_tokens)
        return NEVER
