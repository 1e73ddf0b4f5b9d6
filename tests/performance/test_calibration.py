"""Factors are found from figures that known factors made, and only those that the figures tell."""

import math
from itertools import pairwise

import pytest

from tokenroom.performance.calibration import ALONE, HELD_OUT, SPREADS, Observation, calibrate
from tokenroom.performance.factors import Factors


def figures(true: Factors, parts: list[tuple[str, Factors]]) -> list[Observation]:
    """Figures that are sums of parts, each with its factor."""

    def predict(amounts: Factors):
        return lambda factors: sum(a * f for a, f in zip(amounts, factors, strict=True))

    return [
        Observation(number, kind, predict(amounts)(true), predict(amounts))
        for number, (kind, amounts) in enumerate(parts)
    ]


def loads() -> list[tuple[str, Factors]]:
    """Prompts are compute and arrival, tokens bandwidth and host, in many mixtures."""
    found = []
    for size in (0.1, 0.3, 1.0, 3.0):
        found.append(("ttft", Factors(size, 0.02, 0.0, 0.01, 0.1)))
        found.append(("tpot", Factors(0.02 * size, size, 0.0, 0.2, 0.0)))
    return found


def test_known_factors_are_recovered() -> None:
    true = Factors(1.4, 0.8, 1.0, 2.0, 1.6)
    found = calibrate(figures(true, loads()))
    assert found.factors == pytest.approx(true, rel=0.03)
    assert set(found.identified) == {"compute", "bandwidth", "host", "arrival"}
    for item in found.fitted:
        assert item.after == pytest.approx(item.observation.measured, rel=0.01)
        assert item.weight == 1


def test_a_factor_that_no_figure_speaks_of_stays_and_is_not_identified() -> None:
    found = calibrate(figures(Factors(1.4, 0.8, 3.0, 2.0, 1.6), loads()))
    assert found.factors.communication == 1
    assert found.spreads.communication == pytest.approx(SPREADS.communication)
    assert "communication" not in found.identified


def test_one_figure_moves_what_it_speaks_of_part_of_the_way() -> None:
    one = [("tpot", Factors(0.0, 1.0, 0.0, 0.1, 0.0))]
    found = calibrate(figures(Factors(bandwidth=1.3), one))
    assert 1.1 < found.factors.bandwidth < 1.3
    assert found.factors.compute == found.factors.arrival == 1
    assert found.identified == ("bandwidth",)
    assert found.remaining == dict(ALONE)


def test_more_figures_overrule_the_prior() -> None:
    moved = [
        calibrate(figures(Factors(bandwidth=2), [("tpot", Factors(0, 1, 0, 0, 0))] * count))
        for count in (1, 4, 16)
    ]
    values = [found.factors.bandwidth for found in moved]
    assert all(before < after for before, after in pairwise(values))
    assert values[-1] == pytest.approx(2, rel=0.01)


def test_one_wrong_figure_counts_less_and_does_not_pull_the_rest() -> None:
    good = figures(Factors(bandwidth=1.2), [("tpot", Factors(0.0, 1.0, 0, 0.1, 0))] * 6)
    last = good[-1]
    found = calibrate([*good[:-1], last._replace(measured=4 * last.measured)])
    assert found.fitted[-1].weight < 0.2
    assert all(item.weight > 0.9 for item in found.fitted[:-1])
    assert found.factors.bandwidth == pytest.approx(1.2, rel=0.08)


def test_held_out_residuals_are_those_of_fits_without_the_point() -> None:
    parts = loads()
    noisy = [
        item._replace(measured=item.measured * (1.04 if number % 2 else 0.97))
        for number, item in enumerate(figures(Factors(1.2, 1.1, 1, 1.3, 1.2), parts))
    ]
    found = calibrate(noisy)
    for number, item in enumerate(found.fitted):
        without = calibrate([other for other in noisy if other.point != number])
        truly = math.log(item.observation.measured / item.observation.predict(without.factors))
        assert item.held_out == pytest.approx(truly, abs=0.015)


def test_what_remains_is_known_of_others_until_there_are_many_points() -> None:
    two = calibrate(figures(Factors(bandwidth=1.2), [("tpot", Factors(0, 1, 0, 0.1, 0))] * 2))
    assert two.remaining["tpot"] < HELD_OUT["tpot"]  # they agree
    assert two.remaining["ttft"] == ALONE["ttft"]  # there is none
    many = calibrate(figures(Factors(bandwidth=1.2), [("tpot", Factors(0, 1, 0, 0.1, 0))] * 30))
    assert many.remaining["tpot"] < two.remaining["tpot"]


def test_rounds_are_told_as_they_are_done() -> None:
    told: list[tuple[int, int]] = []
    calibrate(
        [Observation(0, "tpot", 2.0, lambda factors: factors.bandwidth)],
        on_round=lambda done, most: told.append((done, most)),
    )
    assert [done for done, _ in told] == list(range(len(told)))
    assert len(told) <= told[0][1]
