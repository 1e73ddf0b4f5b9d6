import random
from statistics import mean, stdev

import pytest

from tokenroom.comparing.differences import mean_of, paired_difference


def test_an_interval_of_known_values() -> None:
    values = (5.1, 4.9, 5.6, 5.8)
    found = mean_of(values, 0.95)
    assert found.value == pytest.approx(mean(values))
    assert found.half_width == pytest.approx(3.182446 * stdev(values) / 2, rel=1e-6)
    assert (found.runs, found.excludes_zero) == (4, True)
    assert mean_of((-1.0, 1.5), 0.95).excludes_zero is False


def test_one_run_says_nothing_of_others() -> None:
    found = paired_difference((3.0,), (5.0,), 0.95)
    assert (found.value, found.half_width, found.excludes_zero) == (2.0, None, None)


def test_pairs_take_out_what_both_saw() -> None:
    values = (10.0, 30.0, 20.0, 50.0)
    found = paired_difference(
        values,
        [value + shift for value, shift in zip(values, (1.0, 1.2, 0.9, 1.1), strict=True)],
        0.95,
    )
    assert found.value == pytest.approx(1.05)
    assert found.half_width is not None
    assert found.half_width < 0.3
    assert found.excludes_zero
    with pytest.raises(ValueError, match="longer"):
        paired_difference((1.0,), (1.0, 2.0), 0.95)


def test_as_many_intervals_hold_the_true_difference_as_they_say() -> None:
    draws = random.Random(7)
    held = 0
    for _ in range(2000):
        shared = [draws.gauss(0, 5) for _ in range(6)]
        values = [value + draws.gauss(0, 1) for value in shared]
        others = [value + 0.7 + draws.gauss(0, 1) for value in shared]
        found = paired_difference(values, others, 0.9)
        assert found.half_width is not None
        held += abs(found.value - 0.7) <= found.half_width
    assert 0.88 < held / 2000 < 0.92  # three standard deviations of the share
