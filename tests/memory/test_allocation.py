"""Laws of sharing out a pool: nothing is lost, nothing is negative, and what blocks cost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.memory.allocation import (
    TABLE_ENTRY_BYTES,
    Allocator,
    Occupancy,
    Sharing,
    largest_batch,
    occupancy,
)

LONGEST = 512
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
lengths_of = st.lists(st.integers(1, LONGEST), min_size=1, max_size=60)
allocators = st.builds(
    Allocator,
    sharing=st.sampled_from(Sharing),
    max_tokens=st.just(LONGEST),
    block_size=st.sampled_from(BLOCK_SIZES),
    first_tokens=st.integers(0, LONGEST),
    knows_length=st.booleans(),
)


def linear(tokens: int) -> int:
    return 7 * tokens


def windowed(tokens: int) -> int:
    return 5 * tokens + 9 * min(tokens, 100) + (64 if tokens else 0)


def paged(block_size: int) -> Allocator:
    return Allocator(sharing=Sharing.PAGED, max_tokens=LONGEST, block_size=block_size)


@given(
    allocator=allocators,
    lengths=lengths_of,
    pool=st.integers(0, 40_000),
    cost=st.sampled_from((linear, windowed)),
    most=st.none() | st.integers(1, 20),
)
def test_the_pool_is_accounted_for(
    allocator: Allocator, lengths: list[int], pool: int, cost: object, most: int | None
) -> None:
    got = occupancy(pool, allocator, lengths, cost, max_batch=most)  # type: ignore[arg-type]
    assert (
        got.used_bytes + got.internal_waste_bytes + got.external_waste_bytes + got.free_bytes
        == (pool)
    )
    assert min(got.used_bytes, got.internal_waste_bytes, got.external_waste_bytes) >= 0
    assert min(got.free_bytes, got.table_bytes) >= 0
    assert got.batch <= len(lengths)
    assert most is None or got.batch <= most


@given(lengths=lengths_of, block_size=st.sampled_from(BLOCK_SIZES), pool=st.integers(1, 40_000))
def test_paging_wastes_less_than_a_block_a_request(
    lengths: list[int], block_size: int, pool: int
) -> None:
    got = occupancy(pool, paged(block_size), lengths, linear)
    # the means are rounded to bytes one by one
    assert got.internal_waste_bytes <= got.mean_batch * linear(block_size) + 1


@given(tokens=st.integers(1, LONGEST))
def test_larger_blocks_never_waste_less(tokens: int) -> None:
    waste = [paged(size).reserved_tokens(tokens) - tokens for size in BLOCK_SIZES]
    assert waste == sorted(waste)
    assert waste[0] == 0


@pytest.mark.parametrize("size", BLOCK_SIZES)
def test_the_mean_waste_of_a_block_is_half_of_it(size: int) -> None:
    allocator = Allocator(sharing=Sharing.PAGED, max_tokens=1024, block_size=size)
    waste = sum(allocator.reserved_tokens(tokens) - tokens for tokens in range(1, 1025)) / 1024
    assert waste == (size - 1) / 2


def test_tables_shrink_as_blocks_grow() -> None:
    entries = [paged(size).table_entries() for size in BLOCK_SIZES]
    assert all(small == 2 * large for small, large in pairwise(entries))
    got = occupancy(10**9, paged(16), [100] * 10, linear)
    assert got.table_bytes == 10 * LONGEST // 16 * TABLE_ENTRY_BYTES


@given(lengths=lengths_of, pool=st.integers(1, 40_000))
def test_a_reservation_for_the_longest_holds_no_more_than_pages(
    lengths: list[int], pool: int
) -> None:
    contiguous = Allocator(sharing=Sharing.CONTIGUOUS, max_tokens=LONGEST)
    if pool >= linear(LONGEST):
        by_longest = occupancy(pool, contiguous, lengths, linear).batch
        assert by_longest <= occupancy(pool, paged(1), lengths, linear).batch
        assert by_longest == min(len(lengths), pool // linear(LONGEST))


def test_a_reservation_of_equal_size_never_fragments() -> None:
    allocator = Allocator(sharing=Sharing.CONTIGUOUS, max_tokens=LONGEST)
    got = occupancy(10 * linear(LONGEST) + 5, allocator, list(range(1, 200)), linear)
    assert got.mean_batch == got.batch == 10
    assert got.external_waste_bytes == 5


def test_pieces_of_any_size_fragment() -> None:
    """The articles' point: enough is free in total, and no piece of it is long enough."""
    exact = Allocator(sharing=Sharing.CONTIGUOUS, max_tokens=LONGEST, knows_length=True)
    lengths = [(37 * index) % LONGEST + 1 for index in range(400)]
    pool = linear(4000)
    pieces = occupancy(pool, exact, lengths, linear)
    pages = occupancy(pool, paged(1), lengths, linear)
    assert pieces.internal_waste_bytes == pages.internal_waste_bytes == 0
    assert pieces.external_waste_bytes > 2 * pages.external_waste_bytes
    assert pieces.mean_batch < pages.mean_batch


def test_a_hybrid_lies_between() -> None:
    lengths = [64, 500, 130, 90, 400] * 40
    pool = linear(6000)
    tables: dict[int, int] = {}
    for first in (0, 128, LONGEST):
        allocator = Allocator(
            sharing=Sharing.HYBRID, max_tokens=LONGEST, block_size=16, first_tokens=first
        )
        tables[first] = occupancy(pool, allocator, lengths, linear).table_bytes
    assert tables[0] > tables[128] > tables[LONGEST] == 0


def test_a_request_beyond_the_pool_is_passed_over() -> None:
    got = occupancy(linear(100), paged(1), [500, 50, 40], linear)
    assert got.batch == 2


@pytest.mark.parametrize("allocator", [paged(16), paged(1)])
def test_largest_batch(allocator: Allocator) -> None:
    each = linear(allocator.reserved_tokens(100))
    assert largest_batch(10 * each + each - 1, allocator, 100, linear) == 10
    assert largest_batch(-5, allocator, 100, linear) == 0


def test_an_empty_workload_leaves_all_free() -> None:
    got = occupancy(1000, paged(16), [], linear)
    assert isinstance(got, Occupancy)
    assert (got.batch, got.free_bytes, got.used_share) == (0, 1000, 0.0)
