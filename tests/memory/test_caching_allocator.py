"""What PyTorch's allocator charges for tensors, by its own rules."""

from hypothesis import given
from hypothesis import strategies as st

from tokenroom.memory.caching_allocator import allocated_bytes
from tokenroom.units import MIB


def test_small_tensors_take_steps_of_512_bytes() -> None:
    assert allocated_bytes([1, 512, 513]) == 512 + 512 + 1024


def test_a_rest_of_at_most_a_mebibyte_is_charged() -> None:
    assert allocated_bytes([259 * MIB]) == 260 * MIB
    assert allocated_bytes([12 * MIB]) == 12 * MIB


def test_a_larger_rest_is_cut_off_and_used_again() -> None:
    # 24.5 MiB leaves 1.5 MiB of its 26, which the second tensor takes whole
    assert allocated_bytes([24 * MIB + MIB // 2, MIB + MIB // 4]) == 26 * MIB


def test_tensors_below_ten_mebibytes_share_segments_of_twenty() -> None:
    assert allocated_bytes([9 * MIB, 9 * MIB]) == 18 * MIB
    assert allocated_bytes([9 * MIB, 9 * MIB + MIB // 2, 9 * MIB]) == 27 * MIB + MIB // 2


@given(st.lists(st.integers(1, 400 * MIB), max_size=40))
def test_never_less_than_the_tensors_nor_a_mebibyte_more_each(sizes: list[int]) -> None:
    charged = allocated_bytes(sizes)
    assert sum(sizes) <= charged <= sum(sizes) + len(sizes) * (MIB + 512)
