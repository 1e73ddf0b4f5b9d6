"""How vLLM cuts up its KV pool: what a block costs and how many a request holds.

:func:`pool_layout` does once per model and settings what depends on neither memory nor length.
Source: v1/core/kv_cache_utils.py 0.32 (0.33: kv_cache_planning.py); older versions by their
:class:`KVCacheRules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.vllm.kv_groups import CacheGroup, cache_groups
from tokenroom.engines.vllm.kv_layers import LayerCaches, layer_caches
from tokenroom.engines.vllm.kv_rules import NEWEST, KVCacheRules, NeededBytes
from tokenroom.engines.vllm.kv_settings import KVCacheSettings
from tokenroom.engines.vllm.kv_specs import PageDemand, RequestBounds
from tokenroom.models.spec import Layer, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayout:
    """How the pool is cut up, before it is known how large it is.

    Attributes:
        groups: The groups over the whole model.
        demands: How many blocks a request holds, with how many groups hold that many; of a mixed
            group the largest demand counts.
        stage_block_bytes: Bytes of one block id on each pipeline stage.
        stage_layer_demands: For each stage (page bytes, demand, layers), for versions that check
            layer by layer.
        block_size: Tokens a block of the cache.
        decode_context_parallel_size: Ranks that a sequence is divided over.
        rules: The version's decisions.
    """

    groups: tuple[CacheGroup, ...]
    demands: tuple[tuple[tuple[PageDemand, ...], int], ...]
    stage_block_bytes: tuple[int, ...]
    stage_layer_demands: tuple[tuple[tuple[int, PageDemand, int], ...], ...]
    block_size: int
    decode_context_parallel_size: int
    rules: KVCacheRules

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block id on the stage where it is heaviest."""
        return max(self.stage_block_bytes, default=0)

    def pages_per_request(self, bounds: RequestBounds) -> int:
        """Block ids that the longest request holds, over all groups."""
        total = 0
        for demands, count in self.demands:
            if len(demands) == 1:
                total += demands[0].pages(bounds) * count
            else:
                total += max(demand.pages(bounds) for demand in demands) * count
        return total

    def needed_bytes(self, stage: int, bounds: RequestBounds) -> int:
        """What the start-up check says one request of full length needs on a stage."""
        needed = self.rules.needed
        if needed is NeededBytes.GROUPS or (
            needed is NeededBytes.FIRST_GROUP and len(self.groups) == 1
        ):
            return self.stage_block_bytes[stage] * self.pages_per_request(bounds)
        if needed is NeededBytes.FIRST_GROUP:
            return self.stage_block_bytes[stage] * self.demands[0][0][0].pages(bounds)
        return sum(
            page * demand.pages(bounds) * layers
            for page, demand, layers in self.stage_layer_demands[stage]
        )

    def longest_that_fits(self, stage: int, bounds: RequestBounds, available_bytes: int) -> int:
        """The engine's estimate of the longest max_model_len for a stage, 0 for none.

        Binary search up to the length in ``bounds``. Source:
        ``_estimate_max_model_len_from_groups``.
        """
        low, high, best = 1, bounds.max_model_len, 0
        while low <= high:
            middle = (low + high) // 2
            tried = bounds._replace(max_model_len=middle)
            if self.needed_bytes(stage, tried) <= available_bytes:
                best, low = middle, middle + 1
            elif middle == 1:
                return 0
            else:
                high = middle - 1
        return best


def lay_out(
    layers: LayerCaches,
    rules: KVCacheRules = NEWEST,
    *,
    decode_context_parallel_size: int = 1,
    hybrid_manager: bool = True,
) -> PoolLayout:
    """The layout of a pool for given caches.

    Raises:
        DeploymentError: The engine would refuse the combination of caches.
    """
    dcp = decode_context_parallel_size
    groups = cache_groups(
        layers.caches,
        rules,
        hybrid_manager=hybrid_manager,
        block_outermost=layers.block_outermost,
    )
    demands = Counter(
        tuple(dict.fromkeys(spec.demand(dcp) for spec in group.specs)) for group in groups
    )
    stage_layer_demands = []
    for held in layers.stages:
        counts = Counter(
            (spec.page_bytes, spec.demand(dcp))
            for cache, spec in layers.caches.items()
            if cache in held
        )
        stage_layer_demands.append(
            tuple((page, demand, count) for (page, demand), count in counts.items())
        )
    return PoolLayout(
        groups=groups,
        demands=tuple(demands.items()),
        stage_block_bytes=tuple(
            max((group.block_bytes(held) for group in groups), default=0) for held in layers.stages
        ),
        stage_layer_demands=tuple(stage_layer_demands),
        block_size=layers.block_size,
        decode_context_parallel_size=dcp,
        rules=rules,
    )


_KEPT_LAYOUTS: Final = 256
_layouts: Final[
    dict[
        tuple[int, KVCacheSettings, KVCacheRules, tuple[int, ...]],
        tuple[ModelSpec, tuple[Layer, ...], PoolLayout],
    ]
] = {}


def pool_layout(
    spec: ModelSpec,
    settings: KVCacheSettings,
    rules: KVCacheRules = NEWEST,
    *,
    draft_layers: Sequence[Layer] = (),
) -> PoolLayout:
    """The layout of a model's pool; repeated calls with the same objects reuse it.

    Args:
        spec: The model.
        settings: Resolved settings.
        rules: The version's decisions.
        draft_layers: Layers of a draft model or of MTP blocks that run beside it.

    Raises:
        DeploymentError: vLLM cannot run the layers under these settings.
    """
    drafts = tuple(draft_layers)
    key = (id(spec), settings, rules, tuple(map(id, drafts)))
    kept = _layouts.get(key)  # the entry keeps the objects alive, so that ids are not reused
    if kept is not None:
        return kept[2]
    layout = lay_out(
        layer_caches(spec, settings, rules, draft_layers=drafts),
        rules,
        decode_context_parallel_size=settings.decode_context_parallel_size,
        hybrid_manager=settings.hybrid_manager,
    )
    while len(_layouts) >= _KEPT_LAYOUTS:
        _layouts.pop(next(iter(_layouts)))
    _layouts[key] = (spec, drafts, layout)
    return layout
