"""What a search proposes holds, and what it rejects says why."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from planning_cases import demand

from tokenroom import load_model
from tokenroom.errors import DeploymentError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.planning.candidates import Candidate, candidates
from tokenroom.planning.front import front
from tokenroom.planning.judging import Bounds, Proposal, Rejection, judged
from tokenroom.planning.most import loads_to_try, most_users
from tokenroom.planning.proving import Case, proven
from tokenroom.planning.search import Plan, Search
from tokenroom.planning.verification import statistic_of, verified
from tokenroom.serving.request import Request


def tried(*gpus: str, model: str = "llama-3.1-8b", most_gpus: int = 2) -> list[Candidate]:
    accelerators = [find_accelerator(gpu) for gpu in gpus]
    return list(candidates([load_model(model)], accelerators, most_gpus=most_gpus))


def searched(found: Sequence[Candidate], changes: dict[str, Any], **asked: Any) -> Plan:
    search = Search(found, demand(**changes), **asked)
    for _ in search.steps():
        pass
    return search.plan()


def proposal(gpu: str, division: str = "", **changes: Any) -> Proposal:
    (candidate,) = (each for each in tried(gpu) if each.division == division)
    found = judged(candidate, demand(**changes))
    assert isinstance(found, Proposal)
    return found


@cache
def plan_of_two() -> Plan:
    return searched(tried("h100", "l40s"), {"users": 300}, wanted=2)


def test_every_plan_holds_when_it_is_simulated_again() -> None:
    plan = plan_of_two()
    assert plan.complete
    assert len(plan.options) == 2
    for option in plan.options:
        again = verified(option.proposal, plan.demand, seed=1)
        assert again.kept
        for found, wanted in ((again.ttft, 2.0), (again.tpot, 0.05)):
            seconds = statistic_of(plan.demand, found)
            assert seconds is not None
            assert seconds <= wanted


def test_every_candidate_is_proposed_or_has_a_reason() -> None:
    plan = plan_of_two()
    found = [option.proposal.candidate for option in plan.options]
    found += [each.candidate for each in plan.untried]
    found += [each.candidate for each in plan.rejections]
    assert sorted(map(repr, found)) == sorted(map(repr, plan.candidates))


def test_as_many_replicas_as_the_load_needs() -> None:
    few, many = proposal("l40s", users=200), proposal("l40s", users=2000)
    assert few.replicas == 1 or few.headroom >= 1.0
    assert many.headroom >= 1.0
    each = many.headroom * 2000 / many.replicas
    assert (many.replicas - 1) * each < 2000
    assert many.replicas >= few.replicas * 5


def test_one_client_more_would_break_the_promise() -> None:
    found = proposal("l40s", users=5000)
    most = found.most
    missed = found.fit.requests_running == most.concurrency or demand().objectives.missed(
        most.at(most.concurrency + 1)
    )
    assert missed
    assert not demand().objectives.missed(most)


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({"ttft_seconds": 0.001}, {}, "ttft"),
        ({"tpot_seconds": 0.001}, {}, "tpot"),
        ({"users": 100_000}, {"inventory": {"l40s": 2}}, "gpus"),
        (
            {"users": 100_000},
            {"prices": {"l40s": 1.0}, "budget_usd_per_hour": 3.0},
            "budget",
        ),
    ],
)
def test_what_cannot_be_has_its_reason(
    changes: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    plan = searched(tried("l40s", most_gpus=1), changes, **asked)
    assert not plan.options
    assert [each.reason for each in plan.rejections] == [reason]


def test_a_model_that_does_not_fit_says_so() -> None:
    (found,) = tried("4090", model="llama-3.1-70b@awq")[:1]
    rejected = judged(found, demand())
    assert isinstance(rejected, Rejection)
    assert rejected.reason == "memory"


def test_a_budget_without_prices_is_refused() -> None:
    with pytest.raises(DeploymentError, match="a budget needs prices"):
        Search(tried("l40s"), demand(), budget_usd_per_hour=5.0)


def test_an_interrupted_search_keeps_what_it_found() -> None:
    search = Search(tried("h100", "l40s"), demand(), wanted=2)
    seen = 0
    for step in search.steps():
        if step.phase == "verify":
            seen += 1
        if seen == 2:
            break
    plan = search.plan()
    assert not plan.complete
    assert len(plan.options) == 1


def test_nothing_on_the_front_is_beaten() -> None:
    found = [judged(each, demand(users=300)) for each in tried("h100", "l40s")]
    proposals = [each for each in found if isinstance(each, Proposal)]
    kept, beaten = front(proposals)
    assert len(kept) + len(beaten) == len(proposals)
    for rejection in beaten:
        winner = rejection.values["by"]
        assert isinstance(winner, Proposal)
        (loser,) = (each for each in proposals if each.candidate is rejection.candidate)
        assert winner.gpus <= loser.gpus
        assert winner.point.ttft_seconds.value <= loser.point.ttft_seconds.value
        assert winner.point.tpot_seconds.value <= loser.point.tpot_seconds.value


def test_the_most_that_gpus_hold_is_confirmed_or_lowered() -> None:
    found = tried("l40s", most_gpus=1)
    most = most_users(found, demand(users=1), {"l40s": 2})
    (one,) = found
    proposal_of_one = judged(one, demand(users=most))
    assert isinstance(proposal_of_one, Proposal)
    assert proposal_of_one.replicas == 2
    more = judged(one, demand(users=most + 5), Bounds(most_gpus=2))
    assert isinstance(more, Rejection)
    assert most_users(found, demand(users=1, tpot_seconds=0.0001), {"l40s": 2}) == 0
    loads = list(loads_to_try(most))
    assert loads[0] == most
    assert loads == sorted(loads, reverse=True)
    assert list(loads_to_try(1)) == [1]


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_is_a_sum(budget: float) -> None:
    with pytest.raises(DeploymentError, match="the budget is"):
        Search([], demand(), prices={"l40s": 1.0}, budget_usd_per_hour=budget)


def test_a_gpu_without_a_price_is_not_proposed_under_a_budget() -> None:
    plan = searched(
        tried("h100", "l40s", most_gpus=1),
        {"users": 2},
        prices={"l40s": 1.0},
        budget_usd_per_hour=0.5,
    )
    assert not plan.options
    assert {each.candidate.accelerator.key: each.reason for each in plan.rejections} == {
        "h100-sxm-80gb": "unpriced",
        "l40s": "budget",
    }


@pytest.mark.parametrize(("users", "think_seconds"), [(100, 10.0), (900, 60.0)])
def test_users_in_flight_and_those_who_think_are_all_users(
    users: int, think_seconds: float
) -> None:
    """N = X (R + Z), of what was simulated between its warm-up and its end."""
    asked: dict[str, Any] = {"users": users, "think_seconds": think_seconds}
    found = verified(proposal("h100", **asked), demand(**asked))
    assert found.ttft.mean_seconds is not None
    assert found.tpot.mean_seconds is not None
    answer = found.ttft.mean_seconds + found.tpot.mean_seconds * (demand().output_tokens - 1)
    assert found.running == pytest.approx(users * answer / (answer + think_seconds), rel=0.1)


def test_requests_in_flight_are_no_more_than_there_are_users() -> None:
    asked: dict[str, Any] = {"users": 20, "think_seconds": 0.0}
    for seed in range(3):
        found = verified(proposal("h100", **asked), demand(**asked), seed=seed)
        assert 19 < found.running <= 20


def test_room_to_grow_does_not_depend_on_how_many_users_there_are() -> None:
    """What a replica takes is the same for few and for many, so the share of it that is used is."""
    takes = [users * proposal("h100", users=users).headroom for users in (10, 100, 300)]
    assert takes == [pytest.approx(takes[0])] * 3
    one = proposal("h100", users=10)
    as_many = proposal("h100", users=int(takes[0]) + 5)
    assert one.replicas == 1
    assert as_many.replicas == 2


def test_what_simulations_deny_is_not_said_to_be_served() -> None:
    """By the closed form one GPU takes the bursts; that it does not is the reason, and how far."""
    bursts = {"requests_per_second": 2.0, "burst": 3.0, "ttft_seconds": 0.15, "output_tokens": 32}
    plan = searched(tried("l40s", most_gpus=1), bursts, inventory={"l40s": 1})
    (why,) = plan.rejections
    assert why.reason == "simulation"
    assert why.values["gpus"] == 1
    assert why.nearest > 1


def test_requests_that_are_refused_are_the_reason_and_not_a_promise() -> None:
    """More replicas do not take prompts longer than the context that was set by hand."""
    arrivals = [(second, 3000 if second == 5 else 200) for second in range(40)]
    requests = tuple(
        Request(id=number, arrival_seconds=float(second), prompt_tokens=prompt, output_tokens=20)
        for number, (second, prompt) in enumerate(arrivals)
    )
    asked = {"requests_per_second": 1.0, "input_tokens": 270, "output_tokens": 20}
    one = replace(demand(**asked), longest_tokens=2048, requests=requests)
    proposal = judged(tried("l40s", most_gpus=1)[0], one)
    assert isinstance(proposal, Proposal)
    why = proven(Case(proposal=proposal, demand=one, bounds=Bounds(), seed=0))
    assert isinstance(why, Rejection)
    assert why.reason == "refused"
    assert "longer than its max_model_len of 2,048 tokens, and refused: 1" in str(why.values)
