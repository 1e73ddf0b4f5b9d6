import math

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("numba")

from tokenroom.serving.compiled.figures import exact_sum  # noqa: E402


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("least", "most"), [(-18.9, 11.9), (-40.0, 30.0), (-19.0, -18.0)])
def test_a_sum_is_that_of_all_digits(seed: int, least: float, most: float) -> None:
    draw = np.random.default_rng(seed)
    values = np.exp2(draw.uniform(least, most, seed * 50))
    assert exact_sum(values) == math.fsum(values.tolist())


def test_sums_at_the_bounds_are_exact() -> None:
    for values in (np.full(1 << 18, 4096.0), np.full(1 << 18, 2.0**-19), np.zeros(3)):
        assert exact_sum(values) == math.fsum(values.tolist())
