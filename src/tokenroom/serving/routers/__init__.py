"""What chooses where a request goes, as real routers do."""

from __future__ import annotations

from tokenroom.serving.fleet_description import Policy, RouterDescription
from tokenroom.serving.routers.by_load import LeastLoad, PowerOfTwo
from tokenroom.serving.routers.by_prefix import CacheAware, KvAware
from tokenroom.serving.routers.by_turn import RoundRobin, Sticky
from tokenroom.serving.routers.router import Router


def new_router(described: RouterDescription, block_tokens: int) -> Router:
    """A router as it is described, that knows of no request yet.

    Args:
        described: What it is to be.
        block_tokens: Tokens in the blocks that requests' ``block_hashes`` name.
    """
    match described.policy:
        case Policy.ROUND_ROBIN:
            return RoundRobin()
        case Policy.LEAST_LOAD:
            return LeastLoad(described.waiting_weight)
        case Policy.POWER_OF_TWO:
            return PowerOfTwo(described.seed)
        case Policy.CACHE_AWARE:
            return CacheAware(
                block_tokens=block_tokens,
                cache_threshold=described.cache_threshold,
                balance_abs_threshold=described.balance_abs_threshold,
                balance_rel_threshold=described.balance_rel_threshold,
            )
        case Policy.KV_AWARE:
            return KvAware(block_tokens=block_tokens, overlap_weight=described.overlap_weight)
        case Policy.STICKY:
            return Sticky()
