"""TensorRT-LLM's free queue and its tree of blocks."""

import pytest

from tokenroom.errors import DeploymentError
from tokenroom.serving.block_tree import BlockTree


def stored(tree: BlockTree, first_name: int, count: int) -> list[int]:
    blocks = tree.allocate(count)
    tree.store(lambda index: first_name + index, blocks, count)
    return blocks


def test_free_blocks_go_to_the_end_whether_they_can_be_found_or_not() -> None:
    tree = BlockTree(4)
    found = stored(tree, 10, 1)
    lost = tree.allocate(1)
    tree.release(lost)
    tree.release(found)
    assert list(tree.free_blocks()) == [2, 3, *lost, *found]
    assert tree.find(10) == found[0]


def test_what_follows_a_block_that_is_handed_out_can_no_longer_be_found() -> None:
    tree = BlockTree(3)
    first, second, third = stored(tree, 10, 3)
    tree.release([first, third])
    assert [tree.find(name) for name in (10, 11, 12)] == [first, second, third]
    assert tree.allocate(1) == [first]
    assert [tree.find(name) for name in (10, 11, 12)] == [None, None, None]
    assert tree.holders[second] == 1
    assert list(tree.free_blocks()) == [third]


def test_equal_blocks_are_stored_once_and_later_ones_hang_behind() -> None:
    tree = BlockTree(6)
    first = stored(tree, 10, 2)
    same = stored(tree, 10, 3)
    assert [tree.find(name) for name in (10, 11, 12)] == [*first, same[2]]
    tree.release(first)
    tree.allocate(2)  # the pool's last free block, and the first of those
    assert tree.find(12) is None


def test_a_claimed_block_leaves_the_queue_and_returns_after_its_last_holder() -> None:
    tree = BlockTree(2)
    blocks = stored(tree, 10, 1)
    tree.release(blocks)
    tree.claim(blocks)
    tree.claim(blocks)
    assert tree.num_free == 1
    tree.release(blocks)
    assert tree.num_free == 1
    tree.release(blocks)
    assert list(tree.free_blocks()) == [1, *blocks]


def test_only_a_last_block_that_nobody_holds_becomes_private() -> None:
    tree = BlockTree(2)
    first, last = stored(tree, 10, 2)
    tree.release([first])
    assert not tree.make_private(first)
    assert not tree.make_private(last)
    tree.release([last])
    assert tree.make_private(last)
    assert (tree.find(10), tree.find(11)) == (first, None)


def test_a_pool_has_a_block() -> None:
    with pytest.raises(DeploymentError, match="num_blocks is 0"):
        BlockTree(0)
