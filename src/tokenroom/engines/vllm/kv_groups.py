"""Which layers share a block table: vLLM's grouping of KV cache specs, reproduced.

All groups draw block ids from one pool, so a block id costs the bytes of the heaviest group. How
layers are put into groups therefore decides how many blocks there are. Source:
``get_kv_cache_groups`` and what it calls, v1/core/kv_cache_utils.py 0.32 (0.33:
v1/core/kv_cache_planning.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from tokenroom.engines.vllm.kv_rules import KVCacheRules
from tokenroom.engines.vllm.kv_specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    ceil_div,
)
from tokenroom.errors import DeploymentError

Caches = Mapping[int, KVCacheSpec]
"""Every cache of the model in the order the engine registers them; keys are only names."""

_ATTENTION_FIELDS: Final = tuple(field.name for field in fields(AttentionSpec))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Caches that share a block table.

    Attributes:
        caches: Their names, in order.
        specs: The spec of each, alike unless ``mixed``.
        mixed: Caches of one kind with different pages (the engine's UniformTypeKVCacheSpecs).
    """

    caches: tuple[int, ...]
    specs: tuple[KVCacheSpec, ...]
    mixed: bool = False

    @property
    def spec(self) -> KVCacheSpec:
        """The spec that stands for the group (of a mixed one the first)."""
        return self.specs[0]

    @property
    def page_bytes(self) -> int:
        """What the engine calls the group's page: one cache's, of a mixed group all caches'."""
        if self.mixed:
            return sum(spec.page_bytes for spec in self.specs)
        return self.spec.page_bytes

    def block_bytes(self, caches: frozenset[int] | None = None) -> int:
        """Bytes of one block over the group's caches, or over those that one rank has."""
        return sum(
            spec.page_bytes
            for cache, spec in zip(self.caches, self.specs, strict=True)
            if caches is None or cache in caches
        )


def merged(specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
    """One spec that stands for all, None where they cannot share one.

    Full attention merges over different windows as long as only one window occurs, latent
    attention when everything is equal. Source: ``merge`` of each spec, v1/kv_cache_interface.py.
    """
    first = specs[0]
    if all(spec == first for spec in specs):
        return first
    if not isinstance(first, FullAttentionSpec) or isinstance(first, MLAAttentionSpec):
        return None
    windows: set[int] = set()
    chunks: set[int] = set()
    for spec in specs:
        if not isinstance(spec, FullAttentionSpec) or isinstance(spec, MLAAttentionSpec):
            return None
        if any(getattr(spec, name) != getattr(first, name) for name in _ATTENTION_FIELDS):
            return None
        windows |= {spec.window} if spec.window is not None else set()
        chunks |= {spec.chunk} if spec.chunk is not None else set()
    if len(windows) > 1 or len(chunks) > 1 or (windows and chunks):
        return None
    return replace(
        first,
        window=next(iter(windows), None),
        chunk=next(iter(chunks), None),
    )


def _share(specs: Sequence[KVCacheSpec]) -> bool:
    key = specs[0].sharing_key
    return all(spec.sharing_key == key for spec in specs)


def _one_group(caches: Caches) -> list[CacheGroup] | None:
    """The only group of a model whose caches all need the same blocks, None for others."""
    specs = tuple(caches.values())
    spec = merged(specs)
    if spec is not None:
        return [CacheGroup(caches=tuple(caches), specs=(spec,) * len(specs))]
    if _share(specs):
        return [CacheGroup(caches=tuple(caches), specs=specs, mixed=True)]
    return None


def promoted(caches: Caches) -> dict[int, KVCacheSpec]:
    """Windowed and chunked layers as full ones, as without the hybrid KV cache manager.

    Done only where full layers exist beside them. Source: ``_promote_local_kv_cache_specs``.

    Raises:
        DeploymentError: The caches are then still of different kinds.
    """
    if _one_group(caches) is not None:
        return dict(caches)
    full_blocks = {s.block_size for s in caches.values() if isinstance(s, FullAttentionSpec)}
    result = dict(caches)
    for name, spec in caches.items():
        if not full_blocks or not isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
            continue
        block = next(iter(full_blocks)) if len(full_blocks) == 1 else spec.block_size
        if isinstance(spec, SlidingWindowMLASpec):
            result[name] = MLAAttentionSpec(
                block_size=block,
                num_kv_heads=spec.num_kv_heads,
                cell_bytes=spec.cell_bytes,
                tokens_per_state=spec.tokens_per_state,
                dcp_sharded=spec.dcp_sharded,
                window=spec.window,
                layout=spec.layout,
                alignment=spec.alignment,
            )
        else:
            result[name] = FullAttentionSpec(
                block_size=block,
                num_kv_heads=spec.num_kv_heads,
                cell_bytes=spec.cell_bytes,
                tokens_per_state=spec.tokens_per_state,
                dcp_sharded=spec.dcp_sharded,
                window=spec.window if isinstance(spec, SlidingWindowSpec) else None,
                chunk=spec.chunk if isinstance(spec, ChunkedLocalAttentionSpec) else None,
            )
    if _one_group(result) is None:
        raise DeploymentError(
            "the hybrid KV cache manager is off (disable_hybrid_kv_cache_manager, or a connector "
            "that does not support it), but the layers keep caches of different kinds that vLLM "
            "cannot treat as full attention; leave the flag or the connector out"
        )
    return result


def unified_pages(caches: Caches, rules: KVCacheRules) -> dict[int, KVCacheSpec]:
    """The caches with pages of one size: the largest.

    Smaller pages take more tokens a block where the sizes divide; else attention and state pages
    are padded. Source: ``unify_kv_cache_spec_page_size``.

    Raises:
        DeploymentError: A page can neither be grown nor padded.
    """
    largest = max(spec.page_bytes for spec in caches.values())
    result: dict[int, KVCacheSpec] = {}
    for name, spec in caches.items():
        page = spec.page_bytes
        if page == largest:
            result[name] = spec
        elif spec.grows_with_block and largest % page == 0 and rules.grows_blocks:
            result[name] = spec.with_block_size(spec.block_size * (largest // page))
        elif (isinstance(spec, MambaSpec) and rules.pads_state_pages) or (
            isinstance(spec, AttentionSpec) and spec.may_be_padded and rules.pads_attention_pages
        ):
            result[name] = spec.padded_to(largest)
        else:
            raise DeploymentError(
                f"vLLM cannot give all layers pages of one size: {spec.kind} layers have pages of "
                f"{page} bytes and the largest are {largest}; use a newer version or another "
                f"kv_cache_dtype"
            )
    return result


def _equal_buckets(caches: Caches, rules: KVCacheRules) -> list[list[int]]:
    buckets: dict[KVCacheSpec, list[int]] = {}
    for name, spec in caches.items():
        buckets.setdefault(spec, []).append(name)
    if not rules.merges_buckets:
        return list(buckets.values())
    names: list[list[int]] = []
    specs: list[list[KVCacheSpec]] = []
    for spec, members in buckets.items():
        for bucket, kept in zip(names, specs, strict=True):
            if merged([*kept, spec]) is not None:
                bucket.extend(members)
                kept.append(spec)
                break
        else:
            names.append(list(members))
            specs.append([spec])
    return names


def striped_groups(caches: Caches, rules: KVCacheRules) -> list[CacheGroup]:
    """Groups of the same number of layers, all pages being equal.

    The smallest bucket of like layers gives the group size, unless the largest is less than
    ``balance_ratio`` times it. Buckets are dealt out in stripes; short groups waste pages.
    Source: ``_get_kv_cache_groups_uniform_page_size``.
    """
    buckets = _equal_buckets(caches, rules)
    smallest = min(map(len, buckets))
    largest = max(map(len, buckets))
    size = largest if largest < smallest * rules.balance_ratio else smallest
    groups: list[CacheGroup] = []
    for bucket in buckets:
        count = ceil_div(len(bucket), size)
        for start in range(count):
            members = tuple(bucket[start::count])
            spec = merged([caches[name] for name in members])
            if spec is None:
                raise AssertionError("members of a bucket always merge")
            groups.append(CacheGroup(caches=members, specs=(spec,) * len(members)))
    return groups


def _least_padding(values: Sequence[int], lowest: int) -> int:
    """The step from ``lowest`` up that rounds the values up least; the largest such step.

    Source: ``_approximate_gcd``.
    """
    best, best_padding = lowest, sum(-value % lowest for value in values)
    for step in range(lowest + 1, max(values) + 1):
        padding = sum(-value % step for value in values)
        if padding <= best_padding:
            best, best_padding = step, padding
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    caches: dict[int, KVCacheSpec]
    by_page: dict[int, list[int]]

    @property
    def balanced(self) -> bool:
        return len({len(names) for names in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(names) for names in self.by_page.values())

    @property
    def first(self) -> KVCacheSpec:
        return next(iter(self.caches.values()))

    def widest(self, groups: int) -> int:
        return sum(ceil_div(len(names), groups) * page for page, names in self.by_page.items())


def _sharing_buckets(caches: Caches) -> list[_Bucket]:
    by_key: dict[tuple[object, ...], dict[int, KVCacheSpec]] = {}
    for name, spec in caches.items():
        by_key.setdefault(spec.sharing_key, {})[name] = spec
    buckets: list[_Bucket] = []
    for members in by_key.values():
        by_page: dict[int, list[int]] = {}
        for name, spec in members.items():
            by_page.setdefault(spec.page_bytes, []).append(name)
        buckets.append(_Bucket(caches=members, by_page=by_page))
    return buckets


def packed_groups(caches: Caches) -> list[CacheGroup]:
    """Groups for layouts with the block outermost, where pages of different sizes lie side by side.

    Buckets whose page sizes occur equally often repeat a pattern and are split into groups of
    about the same number of repeats; states and windows are split until they fit the block the
    others need. Source: ``_get_packed_kv_cache_groups`` (0.29 and newer; DeepSeek-V4).
    """
    buckets = _sharing_buckets(caches)
    lowest = max((b.repeats for b in buckets if b.balanced and len(b.by_page) > 1), default=0)
    repeats = (
        _least_padding([bucket.repeats for bucket in buckets if bucket.balanced], lowest)
        if lowest
        else None
    )

    def count(bucket: _Bucket) -> int:
        if bucket.balanced and repeats is not None:
            return ceil_div(bucket.repeats, repeats)
        return 1

    def holds_state(bucket: _Bucket) -> bool:
        if isinstance(bucket.first, MambaSpec):
            return True
        return repeats is None and isinstance(bucket.first, SlidingWindowSpec)

    anchor = max(
        bucket.widest(len(bucket.caches) if holds_state(bucket) else count(bucket))
        for bucket in buckets
    )
    groups: list[CacheGroup] = []
    for bucket in buckets:
        number = count(bucket)
        if holds_state(bucket):
            fitting = max(anchor // bucket.first.page_bytes, 1)
            number = max(number, ceil_div(len(bucket.caches), fitting))
        if number == 1:
            stripes = [tuple(bucket.caches)]
        else:
            rows = list(zip(*bucket.by_page.values(), strict=False))
            stripes = [
                tuple(name for row in rows[start::number] for name in row)
                for start in range(number)
            ]
        groups.extend(
            CacheGroup(caches=names, specs=tuple(bucket.caches[name] for name in names), mixed=True)
            for names in stripes
        )
    return groups


def cache_groups(
    caches: Caches,
    rules: KVCacheRules,
    *,
    hybrid_manager: bool = True,
    block_outermost: bool = False,
) -> tuple[CacheGroup, ...]:
    """The groups the engine forms; none for models that keep nothing.

    Args:
        caches: Every cache of the model in registration order.
        rules: The version's decisions.
        hybrid_manager: False with disable_hybrid_kv_cache_manager.
        block_outermost: Whether the attention backends want all layers of a block together.

    Raises:
        DeploymentError: The engine would refuse the combination.
    """
    if not caches:
        return ()
    if not hybrid_manager:
        caches = promoted(caches)
    single = _one_group(caches)
    if single is not None:
        return tuple(single)
    several_pages = len({spec.page_bytes for spec in caches.values()}) > 1
    if rules.packs_groups and block_outermost and several_pages:
        return tuple(packed_groups(caches))
    try:
        unified = unified_pages(caches, rules)
    except DeploymentError:
        fallback = _full_allocation(caches)
        if fallback is None:
            raise
        return tuple(fallback)
    return tuple(striped_groups(unified, rules))


def _full_allocation(caches: Caches) -> list[CacheGroup] | None:
    """Latent layers beside plain windows whose pages do not unify: windows in full.

    Source: ``_try_get_full_allocation_fallback_groups``.
    """
    specs = caches.values()
    if any(isinstance(s, SlidingWindowMLASpec | ChunkedLocalAttentionSpec) for s in specs):
        return None
    latent = any(isinstance(s, MLAAttentionSpec) for s in specs)
    windowed = any(isinstance(s, SlidingWindowSpec) for s in specs)
    if not (latent and windowed):
        return None
    try:
        return _one_group(promoted(caches))
    except DeploymentError:
        return None
