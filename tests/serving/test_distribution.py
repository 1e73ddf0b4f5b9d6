"""Figures of samples that do not fit in memory as they are."""

import random

import pytest

from tokenroom.serving import distribution
from tokenroom.serving.distribution import Sample


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "MOST_EXACT", 100)


def drawn(count: int, different: int) -> list[tuple[float, int]]:
    draw = random.Random(count)
    values = [draw.lognormvariate(-3, 2) for _ in range(different)]
    return [(draw.choice(values), draw.randint(1, 3)) for _ in range(count)]


@pytest.mark.usefixtures("few")
def test_few_different_times_stay_exact_however_many_there_are() -> None:
    values = drawn(5000, 90)
    sample = Sample()
    for seconds, times in values:
        sample.add(seconds, times)
    assert sample.distribution() == distribution.distribution(values)


@pytest.mark.usefixtures("few")
def test_many_different_times_are_close() -> None:
    values = drawn(5000, 4000)
    sample = Sample()
    for seconds, times in values:
        sample.add(seconds, times)
    found, exact = sample.distribution(), distribution.distribution(values)
    assert (found.count, found.max_seconds) == (exact.count, exact.max_seconds)
    assert found.mean_seconds == pytest.approx(exact.mean_seconds, rel=1e-12)
    for name in ("p50_seconds", "p90_seconds", "p95_seconds", "p99_seconds"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1.3e-4)
    assert found.p50_seconds != exact.p50_seconds


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("different", [90, 4000])
def test_arrays_give_the_same_figures(different: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("numba")
    from tokenroom.serving.compiled import figures

    monkeypatch.setattr(figures, "MOST_EXACT", 100)
    monkeypatch.setattr(figures, "_HELD", 200)
    values = drawn(5000, different)
    sample, arrays = Sample(), figures.ArraySample()
    for begin in range(0, 5000, 77):
        part = values[begin : begin + 77]
        for seconds, times in part:
            sample.add(seconds, times)
        arrays.add(
            numpy.array([seconds for seconds, _ in part]),
            numpy.array([times for _, times in part]),
        )
    found, expected = arrays.distribution(), sample.distribution()
    assert found.mean_seconds == pytest.approx(expected.mean_seconds, rel=1e-12)
    for name in ("count", "p50_seconds", "p90_seconds", "p95_seconds", "p99_seconds"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.max_seconds == expected.max_seconds
