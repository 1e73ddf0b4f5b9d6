import math

import pytest

from tokenroom.comparing.student_t import central_share, quantile


@pytest.mark.parametrize(
    ("freedom", "at_95", "at_99"),
    [  # National Institute of Standards and Technology, Engineering Statistics Handbook, 1.3.6.7.2
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (3, 3.182, 5.841),
        (4, 2.776, 4.604),
        (9, 2.262, 3.250),
        (10, 2.228, 3.169),
        (30, 2.042, 2.750),
        (99, 1.984, 2.626),
    ],
)
def test_quantiles_are_those_of_tables(freedom: int, at_95: float, at_99: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(at_95, abs=6e-4)
    assert quantile(0.99, freedom) == pytest.approx(at_99, abs=6e-4)


def test_two_degrees_have_a_closed_form() -> None:
    for t in (0.0, 0.3, 2.0, 40.0):
        assert central_share(t, 2) == pytest.approx(t / math.sqrt(2 + t * t), abs=1e-12)


def test_many_degrees_are_a_normal_distribution() -> None:
    assert quantile(0.95, 100_001) == pytest.approx(1.959964, abs=1e-4)
    assert central_share(1.0, 100_000) == pytest.approx(math.erf(1 / math.sqrt(2)), abs=1e-5)
