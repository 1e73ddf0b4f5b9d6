"""Leaks are told from noise, steps, warming up and swings, on series that a seed draws."""

import math
import random
from collections.abc import Callable

import pytest

from tokenroom.watching.trends import LEAST_POINTS, Series, Trend, growing

SECONDS = 600.0
EVERY = 2.0
MIB = 2**20
HELD = 70_000 * MIB

Shape = Callable[[float, random.Random], float]


def judged(shape: Shape, seed: int = 0, *, seconds: float = SECONDS) -> Trend | None:
    """What is said of a series after a window of it."""
    series, draw = Series(SECONDS), random.Random(seed)
    for step in range(int(seconds / EVERY) + 1):
        time = step * EVERY
        series.add(time, HELD + shape(time, draw) * MIB)
    return series.growing(64 * MIB)


def test_a_steady_leak_is_found_with_its_slope() -> None:
    trend = judged(lambda time, _: 0.5 * time)
    assert trend is not None
    assert trend.per_second == pytest.approx(0.5 * MIB)
    assert trend.growth == pytest.approx(300 * MIB, rel=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_under_noise_is_found(seed: int) -> None:
    trend = judged(lambda time, draw: 0.5 * time + draw.gauss(0, 25), seed)
    assert trend is not None
    assert trend.growth == pytest.approx(300 * MIB, rel=0.2)


def test_a_leak_in_steps_is_found() -> None:
    assert judged(lambda time, _: 40 * math.floor(time / 60)) is not None


def test_outliers_do_not_hide_or_make_a_leak() -> None:
    spikes = {10, 77, 150, 222, 290}
    with_spikes = judged(lambda time, _: 0.5 * time + 500 * (time / EVERY in spikes - {10}))
    assert with_spikes is not None
    assert with_spikes.growth == pytest.approx(300 * MIB, rel=0.05)
    assert judged(lambda time, _: 5000.0 * (time / EVERY in spikes)) is None


@pytest.mark.parametrize("scale", [1, 100, 2000])
def test_noise_is_no_leak(scale: int) -> None:
    told = [seed for seed in range(200) if judged(lambda _, draw: draw.gauss(0, scale), seed)]
    assert told == []


def test_noise_that_remembers_is_no_leak() -> None:
    def swinging(seed: int) -> Trend | None:
        last = 0.0

        def shape(_: float, draw: random.Random) -> float:
            nonlocal last
            last = 0.9 * last + draw.gauss(0, 100)
            return last

        return judged(shape, seed)

    assert [seed for seed in range(200) if swinging(seed)] == []


@pytest.mark.parametrize(
    "shape",
    [
        lambda _, __: 0.0,
        lambda time, _: 900.0 * (time > 300),  # one step: a graph was captured
        lambda time, _: 2000.0 * (1 - math.exp(-time / 60)),  # warming up
        lambda time, _: 500.0 * math.sin(time / 40),
        lambda time, _: -0.5 * time,
        lambda time, _: 0.05 * time,  # 30 MiB are not felt
        lambda time, _: min(time, 450.0),  # grew, and has come to rest
    ],
)
def test_what_is_no_leak(shape: Shape) -> None:
    assert judged(shape) is None


def test_what_was_not_watched_for_long_is_not_judged() -> None:
    assert judged(lambda time, _: 5 * time, seconds=400) is None
    assert judged(lambda time, _: 5 * time, seconds=460) is not None
    few = [(float(step), float(step)) for step in range(LEAST_POINTS - 1)]
    assert growing(few, felt=0.1, window_seconds=1) is None


def test_a_gap_in_the_watch_is_not_judged() -> None:
    ends = [(float(t), float(t)) for t in (*range(0, 20), *range(580, 600))]
    assert growing(ends, felt=1, window_seconds=600) is None


def test_readings_are_thinned_and_forgotten() -> None:
    series = Series(96.0)
    for step in range(10_000):
        series.add(step * 0.1, step)
    assert len(series._points) <= 98
    assert series._points[0][0] >= 1000 - 1.2 - 96
