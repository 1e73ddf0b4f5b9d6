"""How many drafted tokens are kept: drawn for each place, whatever else is served."""

from collections import Counter

import pytest

from tokenroom.errors import DeploymentError
from tokenroom.performance.drafting import expected_tokens
from tokenroom.serving.kept_drafts import KeptDrafts
from tokenroom.serving.request import Request

DRAWS = 40_000


def request(id: int) -> Request:
    return Request(id=id, arrival_seconds=0.0, prompt_tokens=8, output_tokens=8)


@pytest.mark.parametrize("rates", [(0.7, 0.7, 0.7), (0.9, 0.5, 0.1), (1.0, 0.25)])
def test_each_token_is_kept_as_often_as_its_rate_says(rates: tuple[float, ...]) -> None:
    keeps = KeptDrafts(rates)
    counts = Counter(keeps(request(draw % 200), draw // 200) for draw in range(DRAWS))
    reached = 1.0
    for place, rate in enumerate(rates, start=1):
        reached *= rate
        found = sum(count for kept, count in counts.items() if kept >= place) / DRAWS
        error = (reached * (1 - reached) / DRAWS) ** 0.5
        assert found == pytest.approx(reached, abs=4 * error + 1e-12)


def test_alike_rates_give_the_mean_of_the_closed_form() -> None:
    keeps = KeptDrafts((0.6,) * 5, seed=3)
    mean = sum(1 + keeps(request(draw % 200), draw // 200) for draw in range(DRAWS)) / DRAWS
    assert mean == pytest.approx(expected_tokens(0.6, 5), rel=0.02)


def test_a_draw_depends_on_seed_request_and_place_alone() -> None:
    keeps, again, other = KeptDrafts((0.5,) * 4), KeptDrafts((0.5,) * 4), KeptDrafts((0.5,) * 4, 1)
    places = [(request(id), tokens) for id in range(20) for tokens in range(20)]
    drawn = [keeps(*place) for place in places]
    assert drawn == [again(*place) for place in places]
    assert [again(*place) for place in reversed(places)] == drawn[::-1]
    assert drawn != [other(*place) for place in places]
    assert len({tuple(drawn[first : first + 20]) for first in range(0, 400, 20)}) == 20


def test_certain_rates_need_no_draw() -> None:
    assert {KeptDrafts((1.0,) * 3)(request(id), id) for id in range(100)} == {3}
    assert {KeptDrafts((0.0,) * 3)(request(id), id) for id in range(100)} == {0}


@pytest.mark.parametrize("rates", [(), (1.5,), (0.5, -0.1), (float("nan"),)])
def test_what_is_no_chance_is_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(DeploymentError, match="rate"):
        KeptDrafts(rates)
