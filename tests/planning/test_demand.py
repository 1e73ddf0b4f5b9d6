from typing import Any

import pytest
from planning_cases import demand

from tokenroom import speed
from tokenroom.errors import DeploymentError
from tokenroom.planning.lengths import of_distributions, of_means, of_requests, of_texts
from tokenroom.serving.workloads.distributions import Constant, Uniform


def test_users_in_flight_and_users_who_think_are_all_of_them() -> None:
    """N = X (R + Z): as many are in flight as requests a second times their time."""
    point = speed("llama-3.1-8b", "h100", input_tokens=1024, output_tokens=256, concurrency=40)
    rate = point.requests_per_second.value
    residence = point.ttft_seconds.value + 255 * point.tpot_seconds.value
    assert demand().served(point) == pytest.approx(rate * (residence + 10.0))
    assert demand(requests_per_second=3.0).served(point) == rate


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"users": 0}, "users is 0; give a whole number from 1"),
        ({"think_seconds": -1.0}, "think_seconds is -1.0"),
        ({"requests_per_second": 0.0}, "requests_per_second is 0.0; give a number above 0"),
        ({"requests_per_second": 1.0, "users": 5}, "give one of them"),
        ({"requests_per_second": 1.0, "burst": 10.0}, "burst is 10.0; give a factor from 1"),
        ({"statistic": "p42"}, "statistic is 'p42'; it may be mean, p50, p90, p95, p99"),
        ({"ttft_seconds": None, "tpot_seconds": None}, "no objective is given"),
    ],
)
def test_what_is_no_demand_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        demand(**changes)


def test_lengths_vary_around_their_means() -> None:
    lengths = of_means(1000, 100)
    assert (lengths.input_tokens, lengths.output_tokens, lengths.longest_tokens) == (
        1000,
        100,
        1320,
    )
    drawn = of_distributions(Uniform(low=10, high=30), Constant(value=5))
    assert drawn.input_tokens == pytest.approx(20, abs=1)
    assert (drawn.output_tokens, drawn.longest_tokens) == (5, 35)
    seen = of_requests([(10, 1), (30, 5)])
    assert (seen.input_tokens, seen.output_tokens, seen.longest_tokens) == (20, 3, 35)


@pytest.mark.parametrize(
    "changes",
    [{"burst": 2.0}, {"users": None, "requests_per_second": 3.0, "think_seconds": 1.0}],
)
def test_what_belongs_to_the_other_load_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DeploymentError, match="belongs to"):
        demand(**changes)


def test_a_constant_is_a_constant_and_a_number_a_mean() -> None:
    assert of_texts("constant(1024)", "constant(128)").longest_tokens == 1152
    assert of_texts("1024", "128").longest_tokens == of_means(1024, 128).longest_tokens > 1152
