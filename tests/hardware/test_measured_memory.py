import pytest

from tokenroom.hardware.measured_memory import MeasuredPass, MeasuredPasses


def passes(*ratios: tuple[int, float]) -> MeasuredPasses:
    return MeasuredPasses(
        model="m",
        shape="s",
        dtype="bfloat16",
        attention="sdpa",
        passes=tuple(
            MeasuredPass(tokens, 1000, round(1000 * ratio), 0) for tokens, ratio in ratios
        ),
    )


def test_a_gap_counts_as_taken() -> None:
    assert MeasuredPass(512, 1000, 1000, 50).ratio == 1.05


def test_between_neighbours_it_goes_by_the_logarithm() -> None:
    scale = passes((512, 1.0), (2048, 1.2)).scale(1024)
    assert scale.ratio == pytest.approx(1.1)
    assert scale.spread is None  # two points do not tell how well a line serves


def test_three_passes_tell_how_well_one_is_told_by_the_others() -> None:
    scale = passes((512, 1.0), (1024, 1.2), (2048, 1.0)).scale(700)
    assert scale.spread == pytest.approx(1 - 1 / 1.2)
    smooth = passes((512, 1.0), (1024, 1.1), (2048, 1.2)).scale(1024)
    assert smooth.ratio == pytest.approx(1.1)
    assert smooth.spread == 0.01


@pytest.mark.parametrize(("tokens", "ratio"), [(100, 1.0), (512, 1.0), (2048, 1.2), (9999, 1.2)])
def test_beyond_them_the_nearest_counts_and_the_range_stays(tokens: int, ratio: float) -> None:
    measured = passes((512, 1.0), (1024, 1.1), (2048, 1.2))
    scale = measured.scale(tokens)
    assert scale.ratio == pytest.approx(ratio)
    assert (scale.spread is None) == (tokens not in (512, 2048))


def test_one_pass_scales_all() -> None:
    assert passes((512, 1.3)).scale(512).ratio == 1.3
