"""The KV pool as vLLM sizes it: blocks, concurrency, the printed tokens and the start-up check.

:func:`plan_kv_cache` answers for given bytes and lengths in microseconds, from a
:class:`PoolLayout` that is made once per model and settings. Source: ``get_kv_cache_configs`` and
``get_kv_cache_capacity``, v1/core/kv_cache_utils.py 0.32 (0.33: kv_cache_planning.py); older
versions by their :class:`KVCacheRules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenroom.engines.policy import KVGroup
from tokenroom.engines.vllm.kv_groups import CacheGroup
from tokenroom.engines.vllm.kv_pool import PoolLayout, pool_layout
from tokenroom.engines.vllm.kv_rules import NEWEST, KVCacheRules, NeededBytes
from tokenroom.engines.vllm.kv_settings import KVCacheSettings
from tokenroom.engines.vllm.kv_specs import WHOLE_SEQUENCE, RequestBounds
from tokenroom.errors import DeploymentError
from tokenroom.units import GIB

__all__ = [
    "KVCachePlan",
    "KVCacheSettings",
    "PoolLayout",
    "in_flight_tokens",
    "max_model_len_that_fits",
    "plan_kv_cache",
    "pool_layout",
    "printed_gib",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlan:
    """What vLLM does with the memory it has for the cache.

    Attributes:
        layout: How the pool is cut up.
        bounds: The lengths it was planned for.
        num_blocks: Block ids of the pool, the null block included; the smallest stage's.
        pages_per_request: Block ids that a request of full length holds.
        max_concurrency: Requests of full length that the pool holds, as logged.
        kv_tokens: The logged "KV cache size" in tokens.
        needed_bytes: What one request of full length needs on the stage that decides.
        checked_bytes: What the start-up check holds it against.
        fits: Whether the engine starts.
        deciding_stage: The pipeline stage with the least left, or the first that is refused.
    """

    layout: PoolLayout
    bounds: RequestBounds
    num_blocks: int
    pages_per_request: int
    max_concurrency: float
    kv_tokens: int
    needed_bytes: int
    checked_bytes: int
    fits: bool
    deciding_stage: int = 0

    @property
    def estimated_max_model_len(self) -> int | None:
        """The length the engine suggests when it does not start, 0 when none would do.

        None when it starts. Searched for when asked.
        """
        if self.fits:
            return None
        return self.layout.longest_that_fits(self.deciding_stage, self.bounds, self.checked_bytes)

    @property
    def block_size(self) -> int:
        """Tokens a block of the cache."""
        return self.layout.block_size

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block id on the stage where it is heaviest."""
        return self.layout.bytes_per_block

    @property
    def largest_block_size(self) -> int:
        """Tokens of the longest block of any group, 0 without groups."""
        return max((_block_size(group, self.bounds) for group in self.layout.groups), default=0)

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """The groups, as reports show them."""
        return tuple(
            KVGroup(
                kind=group.spec.kind,
                num_layers=len(group.caches),
                block_size=_block_size(group, self.bounds),
                page_bytes=group.page_bytes,
            )
            for group in self.layout.groups
        )

    @property
    def usable_blocks(self) -> int:
        """Block ids that requests can get: V1 never hands out one (block_pool.py)."""
        return max(0, self.num_blocks - self.layout.rules.holds_null_block)

    def pool_bytes(self, stage: int = 0) -> int:
        """What the pool takes on a stage: whole blocks."""
        return self.num_blocks * self.layout.stage_block_bytes[stage]

    def requests_of(self, tokens: int) -> int:
        """How many requests of ``tokens`` the usable blocks hold at once."""
        pages = self.layout.pages_per_request(self.bounds._replace(max_model_len=tokens))
        return self.usable_blocks // pages if pages else 0

    def refusal_sentence(self) -> str:
        """What the engine says when it does not start, in its figures; empty when it starts."""
        if self.fits:
            return ""
        if self.checked_bytes <= 0:
            return "No available memory for the cache blocks."
        estimate = ""
        longest = self.estimated_max_model_len
        if longest:
            estimate = f" The estimated maximum model length is {longest}."
        return (
            f"One request of {self.bounds.max_model_len} tokens needs "
            f"{printed_gib(self.needed_bytes)} GiB of KV cache, and "
            f"{printed_gib(self.checked_bytes)} GiB are available.{estimate}"
        )


def printed_gib(num_bytes: int) -> str:
    """Bytes as vLLM's errors print them (utils/mem_utils.py ``format_gib``): 4 GiB is ``4.0``."""
    return str(round(num_bytes / GIB, 2))


def _block_size(group: CacheGroup, bounds: RequestBounds) -> int:
    size = group.spec.block_size
    return bounds.max_model_len if size == WHOLE_SEQUENCE else size


def in_flight_tokens(
    max_num_batched_tokens: int,
    *,
    pipeline_parallel_size: int = 1,
    async_scheduling: bool = False,
    model_runner_v2: bool = False,
    rules: KVCacheRules = NEWEST,
) -> int:
    """Tokens scheduled and not yet settled, which windows hold besides their own.

    One batch for each pipeline stage; async scheduling overlaps one more, which the first model
    runner does without pipeline stages only. Before 0.26 one batch. Source: config/vllm.py
    ``max_concurrent_batches`` and ``max_in_flight_tokens``.
    """
    if not rules.counts_in_flight_batches:
        return max_num_batched_tokens
    batches = pipeline_parallel_size
    if async_scheduling and (model_runner_v2 or pipeline_parallel_size <= 1):
        batches += 1
    return batches * max_num_batched_tokens


def plan_kv_cache(
    layout: PoolLayout,
    available_bytes: int | Sequence[int],
    *,
    max_model_len: int,
    max_in_flight_tokens: int,
    max_encoder_tokens: int = 0,
    num_gpu_blocks_override: int | None = None,
) -> KVCachePlan:
    """What the engine makes of the memory it has for the cache.

    num_blocks = available // bytes of a block, the smallest over the stages. One request of full
    length must fit into what is left without the block that is never handed out. Max concurrency
    is num_blocks over the blocks of such a request.

    Args:
        layout: Of :func:`pool_layout`.
        available_bytes: Memory for the cache, of each pipeline stage or the same for all.
        max_model_len: Longest sequence in tokens.
        max_in_flight_tokens: See :func:`in_flight_tokens`.
        max_encoder_tokens: The encoder budget (max_num_encoder_input_tokens), for cross attention.
        num_gpu_blocks_override: Block count that replaces the computed one.

    Raises:
        DeploymentError: The number of stages differs from the layout's, or a length is below 1.
    """
    if max_model_len < 1 or max_in_flight_tokens < 1:
        raise DeploymentError(
            f"max_model_len is {max_model_len} and max_in_flight_tokens {max_in_flight_tokens}; "
            f"both must be at least 1"
        )
    bounds = RequestBounds(max_model_len, max_in_flight_tokens, max_encoder_tokens)
    block_bytes = layout.stage_block_bytes
    stages = len(block_bytes)
    if isinstance(available_bytes, int):
        available: Sequence[int] = (available_bytes,) * stages
    elif len(available_bytes) == stages:
        available = available_bytes
    else:
        raise DeploymentError(
            f"available_bytes has {len(available_bytes)} entries; give one for each of the "
            f"{stages} pipeline stages"
        )
    if not layout.groups:
        return KVCachePlan(
            layout=layout,
            bounds=bounds,
            num_blocks=1,
            pages_per_request=0,
            max_concurrency=0.0,
            kv_tokens=0,
            needed_bytes=0,
            checked_bytes=min(available),
            fits=True,
        )
    rules = layout.rules
    pages = layout.pages_per_request(bounds)
    num_blocks: int | None = None
    deciding = 0
    slack: int | None = None
    fits = True
    for stage, block in enumerate(block_bytes):
        memory = available[stage]
        if block == 0:  # the stage has no cache of its own
            continue
        blocks = memory // block
        if num_gpu_blocks_override is not None:
            blocks = num_gpu_blocks_override
            if rules.override_counts_in_check:
                memory = blocks * block
        if num_blocks is None or blocks < num_blocks:
            num_blocks = blocks
        checked = memory - block if rules.reserves_null_block else memory
        if rules.needed is NeededBytes.GROUPS:
            left = checked - block * pages
        else:
            left = checked - layout.needed_bytes(stage, bounds)
        stage_fits = left >= 0 and checked > 0
        if (fits and not stage_fits) or (fits == stage_fits and (slack is None or left < slack)):
            deciding, slack, needed_bytes, checked_bytes = stage, left, checked - left, checked
        fits = fits and stage_fits
    blocks_total = max(0, num_blocks or 0)
    concurrency = blocks_total / pages
    if rules.tokens_from_concurrency:
        kv_tokens = int(concurrency * max_model_len)
    else:
        smallest = min(_block_size(group, bounds) for group in layout.groups)
        kv_tokens = blocks_total // len(layout.groups) * smallest
        kv_tokens *= layout.decode_context_parallel_size
    return KVCachePlan(
        layout=layout,
        bounds=bounds,
        num_blocks=blocks_total,
        pages_per_request=pages,
        max_concurrency=concurrency,
        kv_tokens=kv_tokens,
        needed_bytes=needed_bytes,
        checked_bytes=checked_bytes,
        fits=fits,
        deciding_stage=deciding,
    )


def max_model_len_that_fits(
    layout: PoolLayout,
    available_bytes: int | Sequence[int],
    *,
    longest: int,
    max_in_flight_tokens: int,
    max_encoder_tokens: int = 0,
) -> int:
    """The max_model_len that ``--max-model-len -1`` settles on: the longest all stages hold.

    Args:
        layout: Of :func:`pool_layout`.
        available_bytes: Memory for the cache, of each pipeline stage or the same for all.
        longest: Upper bound, the length the model is made for.
        max_in_flight_tokens: See :func:`in_flight_tokens`.
        max_encoder_tokens: The encoder budget (max_num_encoder_input_tokens), for cross attention.

    Returns:
        Tokens; 0 when not even one fits.
    """
    bounds = RequestBounds(longest, max_in_flight_tokens, max_encoder_tokens)
    best = longest
    for stage, block in enumerate(layout.stage_block_bytes):
        if block == 0:
            continue
        memory = available_bytes if isinstance(available_bytes, int) else available_bytes[stage]
        if layout.rules.reserves_null_block:
            memory -= block
        best = min(best, layout.longest_that_fits(stage, bounds, memory))
    return best
