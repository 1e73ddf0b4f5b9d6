"""Prompts and answers on servers of their own: sized, simulated, started, left where in vain."""

import json
from functools import cache
from typing import Any

import jsonschema
import pytest
from planning_cases import demand

from tokenroom import fit, load_model
from tokenroom.engines.registry import command_parser
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.planning.candidates import Candidate, Split, candidates
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import UNBOUNDED, Bounds, Proposal, Rejection
from tokenroom.planning.search import Plan, Search
from tokenroom.planning.split_judging import splits_of
from tokenroom.planning.split_launch import launches, split_script
from tokenroom.planning.splits import server_fit, server_of, split_fleet
from tokenroom.planning.verification import verified
from tokenroom.reports.messages import Language
from tokenroom.reports.plan_json import plan_json, schema_text
from tokenroom.reports.plan_text import option_lines, reason_text
from tokenroom.serving.fleet_description import Role

LONG_PROMPTS = {
    **{"requests_per_second": 6.0, "input_tokens": 8000, "output_tokens": 60},
    **{"ttft_seconds": 2.0, "tpot_seconds": 0.015},
}
"""Each prompt takes so long that it breaks the promise to whoever is being answered."""


def layouts(gpu: str = "h100", model: str = "llama-3.1-8b", **asked: Any) -> list[Candidate]:
    return list(candidates([load_model(model)], [find_accelerator(gpu)], most_gpus=1, **asked))


def found(
    asked: Demand, like: Candidate | None = None, bounds: Bounds = UNBOUNDED, most_gpus: int = 4
) -> list[Proposal] | Rejection | None:
    return splits_of(like or layouts()[0], asked, bounds, most_gpus=most_gpus, others=[])


def cheapest(asked: Demand) -> Proposal:
    proposals = found(asked)
    assert isinstance(proposals, list)
    return proposals[0]


@cache
def plan_of(split_gpus: int) -> Plan:
    search = Search(layouts(), demand(**LONG_PROMPTS), wanted=1, split_gpus=split_gpus)
    for _ in search.steps():
        pass
    return search.plan()


def test_apart_they_keep_with_fewer_gpus_what_together_takes_more() -> None:
    together, apart = plan_of(0), plan_of(4)
    assert apart.options[0].proposal.candidate.split is not None
    assert apart.options[0].proposal.gpus < together.options[0].proposal.gpus
    assert together.options[0].proposal.candidate.split is None
    lines = " ".join(option_lines(apart.options[0], apart.demand, Language.ENGLISH))
    assert "on one host" in lines


def test_their_json_keeps_its_schema_and_their_command_is_a_script() -> None:
    answer = plan_json(plan_of(4), Language.ENGLISH)
    jsonschema.validate(answer, json.loads(schema_text()))
    plan = answer["plans"][0]
    assert plan["split"]["answer_servers"] >= 1
    assert plan["launch"]["command"].count("vllm serve") == (
        plan["split"]["answer_servers"] + plan["split"]["prompt_servers"]
    )
    assert plan["launch"]["docker"] is None


def test_a_plan_of_them_holds_when_it_is_simulated_again() -> None:
    (option, *_) = plan_of(4).options
    again = verified(option.proposal, plan_of(4).demand, seed=1)
    assert again.kept
    assert again.ttft.p95_seconds is not None
    assert again.ttft.p95_seconds <= 2.0


@pytest.mark.parametrize(
    "load",
    [
        {"requests_per_second": 10.0, "input_tokens": 2000, "output_tokens": 60},
        {"users": 120, "think_seconds": 8.0, "input_tokens": 2000, "output_tokens": 60},
    ],
)
def test_the_closed_form_is_what_the_simulation_says(load: dict[str, Any]) -> None:
    asked = demand(**load, ttft_seconds=1.0, tpot_seconds=0.03)
    proposal = cheapest(asked)
    seen = verified(proposal, asked)
    assert seen.ttft.mean_seconds == pytest.approx(proposal.ttft_seconds, rel=0.15)
    assert seen.tpot.mean_seconds == pytest.approx(proposal.tpot_seconds, rel=0.15)


def test_where_it_does_not_pay_the_plan_says_so() -> None:
    asked = demand(requests_per_second=3.0, input_tokens=300, output_tokens=60)
    search = Search(layouts(), asked, wanted=1, split_gpus=4)
    for _ in search.steps():
        pass
    (why,) = (each for each in search.plan().rejections if each.reason == "split")
    assert "2 GPUs" in reason_text(why, asked, Language.ENGLISH)
    assert "does not pay" in reason_text(why, asked, Language.ENGLISH)
    assert "不划算" in reason_text(why, asked, Language.CHINESE).replace("并", "")


def test_gpus_that_are_too_few_together_may_be_enough_apart() -> None:
    together, apart = (
        Search(
            layouts(),
            demand(**LONG_PROMPTS),
            wanted=1,
            inventory={"h100-sxm-80gb": 3},
            split_gpus=most,
        )
        for most in (0, 3)
    )
    for search in (together, apart):
        for _ in search.steps():
            pass
    assert not together.plan().options
    (option,) = apart.plan().options
    assert option.proposal.gpus == 3


def test_every_server_holds_its_requests() -> None:
    asked = demand(requests_per_second=1.0, input_tokens=4000, output_tokens=200)
    big = Candidate(spec=load_model("llama-3.1-70b@fp8"), accelerator=find_accelerator("h100"))
    proposals = found(asked, big, most_gpus=8)
    assert isinstance(proposals, list)
    for proposal in proposals:
        for role in (Role.PREFILL, Role.DECODE):
            fitted = server_fit(server_of(proposal.candidate, role), asked)
            assert fitted.plan.refusal is None
            assert fitted.requests_running
        assert proposal.candidate.gpus <= 8
        assert proposal.candidate.tensor_parallel_size > 1  # one GPU has no room beside the weights


def test_gpus_at_hand_are_enough_or_it_is_said() -> None:
    asked = demand(requests_per_second=10.0, input_tokens=4000, output_tokens=60)
    (few,) = {each.gpus for each in [cheapest(asked)]}
    why = found(asked, bounds=Bounds(most_gpus=few - 1))
    assert isinstance(why, Rejection)
    assert why.reason == "gpus"


def test_commands_of_servers_start_what_was_planned() -> None:
    asked = demand(**LONG_PROMPTS)
    candidate = Candidate(
        spec=load_model("llama-3.1-8b"),
        accelerator=find_accelerator("h100"),
        split=Split(prompt_servers=1, prompt_tensor_parallel_size=2, answer_servers=2),
    )
    started = list(launches(candidate, asked))
    assert [role for role, _ in started] == [Role.PREFILL, Role.DECODE, Role.DECODE]
    gpus = [launch.environment["CUDA_VISIBLE_DEVICES"] for _, launch in started]
    assert gpus == ["0,1", "2", "3"]
    ports = {launch.arguments[launch.arguments.index("--port") + 1] for _, launch in started}
    channels = {launch.environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] for _, launch in started}
    assert len(ports) == len(channels) == 3
    for role, launch in started:
        planned = server_fit(server_of(candidate, role), asked)
        read = command_parser("vllm")(list(launch.words), environment={})
        again = fit(read.model, planned.deployment.node, settings=read.settings)
        assert again.plan.stages == planned.plan.stages
        assert again.plan.kv_pool_tokens == planned.plan.kv_pool_tokens
        wanted = "kv_producer" if role is Role.PREFILL else "kv_consumer"
        assert f'"kv_role": "{wanted}"' in launch.shell_text
    script = split_script(candidate, asked, "0.33.0")
    assert "--prefiller-hosts localhost --prefiller-ports 8100" in script
    assert "--decoder-hosts localhost localhost --decoder-ports 8200 8201" in script
    assert "/v0.33.0/tests/v1/kv_connector" in script


def test_what_is_not_simulated_apart_is_refused() -> None:
    like = Candidate(spec=load_model("gemma-2-9b"), accelerator=find_accelerator("h100"))
    asked = demand(requests_per_second=1.0, input_tokens=2000, output_tokens=60)
    why = found(asked, like)
    assert isinstance(why, Rejection)
    assert "full attention" in str(why.values["text"])


@pytest.mark.parametrize(
    ("gpu", "engine", "output_tokens"),
    [("h100", "sglang", 60), ("tpu-7x", "vllm", 60), ("h100", "vllm", 1)],
)
def test_there_are_none_of_other_kinds(gpu: str, engine: str, output_tokens: int) -> None:
    changes = {"tpot_seconds": None} if output_tokens == 1 else {}
    asked = demand(
        requests_per_second=1.0, input_tokens=2000, output_tokens=output_tokens, **changes
    )
    like = layouts(gpu, engines=(engine,))[0]
    assert found(asked, like) is None


def test_servers_are_counted_in_the_name() -> None:
    candidate = Candidate(
        spec=load_model("llama-3.1-8b"),
        accelerator=find_accelerator("h100"),
        tensor_parallel_size=2,
        split=Split(prompt_servers=3, prompt_tensor_parallel_size=1, answer_servers=2),
    )
    assert (candidate.division, candidate.gpus, candidate.servers) == ("3P + 2D TP2", 7, 2)
    pools, _ = split_fleet(candidate, demand(requests_per_second=1.0))
    assert [(pool.name, pool.replicas, pool.gpus) for pool in pools] == [
        ("prompts", 3, 1),
        ("answers", 2, 2),
    ]
