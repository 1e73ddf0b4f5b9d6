"""Our scheduler against the steps that vLLM 0.32's own decided."""

from pathlib import Path

import pytest
from scheduler_scenarios import Scenario, read, replay

from tokenroom.errors import DeploymentError
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.record import Refusal
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmDrafts, VllmScheduler, VllmSchedulerConfig

RECORDED = Path(__file__).parents[1] / "fixtures" / "serving" / "vllm_scheduler.jsonl.gz"
FULL = KvGroup(kind=Kind.FULL, block_tokens=16)
STATE = KvGroup(kind=Kind.MAMBA, block_tokens=512)
CHUNK = KvGroup(kind=Kind.CHUNKED_LOCAL, block_tokens=16, window_tokens=32)
WINDOW = KvGroup(kind=Kind.SLIDING_WINDOW, block_tokens=16, window_tokens=40)


def config(**settings: object) -> VllmSchedulerConfig:
    usual = {
        "num_blocks": 64,
        "groups": (FULL,),
        "max_model_len": 512,
        "max_num_batched_tokens": 256,
        "max_num_seqs": 8,
    }
    return VllmSchedulerConfig(**(usual | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("scenario", list(read(RECORDED)), ids=lambda scenario: scenario["name"])
def test_every_step_is_the_one_that_vllm_took(scenario: Scenario) -> None:
    ours = replay(scenario)
    for step, (mine, theirs) in enumerate(zip(ours, scenario["steps"], strict=False), start=1):
        assert mine == theirs, f"step {step}"
    assert len(ours) == len(scenario["steps"])


def test_recorded_workloads_cross_what_schedulers_do() -> None:
    steps = [step for scenario in read(RECORDED) for step in scenario["steps"]]
    assert sum(len(step.get("preempted", ())) for step in steps) > 300
    assert sum(len(step.get("aborted", ())) for step in steps) > 50
    assert sum(hit for step in steps for _, hit in step.get("admitted", ())) > 10_000
    assert sum(hit for step in steps for _, hit in step.get("resumed", ())) > 8_000
    stages = [scenario for scenario in read(RECORDED) if "stages" in scenario["config"]]
    of_stages = [step for scenario in stages for step in scenario["steps"]]
    assert sum(len(step.get("preempted", ())) for step in of_stages) > 300
    assert {scenario["config"]["stages"] for scenario in stages} == {2, 3, 4}
    assert {scenario["config"]["staggers"] for scenario in stages} == {True, False}
    moving = [scenario for scenario in read(RECORDED) if "kv_role" in scenario["config"]]
    of_moving = [step for scenario in moving for step in scenario["steps"]]
    assert sum(len(step.get("preempted", ())) for step in of_moving) > 30
    assert {scenario["config"]["kv_role"] for scenario in moving} == {"kv_producer", "kv_consumer"}
    drafts = [scenario for scenario in read(RECORDED) if "drafts" in scenario["config"]]
    of_drafts = [step for scenario in drafts for step in scenario["steps"]]
    assert sum(len(step.get("preempted", ())) for step in of_drafts) > 50
    assert sum(tokens for step in of_drafts for _, tokens in step.get("drafted", ())) > 20_000
    assert sum(hit for step in of_drafts for _, hit in step.get("admitted", ())) > 1_000
    assert {scenario["config"]["async_scheduling"] for scenario in drafts} == {True, False}
    assert {len(scenario["config"]["groups"]) for scenario in drafts} >= {1, 2}
    hosts = [scenario for scenario in read(RECORDED) if "offload" in scenario["config"]]
    of_hosts = [step for scenario in hosts for step in scenario["steps"]]
    assert sum(len(step.get("loads", ())) for step in of_hosts) > 60
    assert sum(len(step.get("stores", ())) for step in of_hosts) > 1_500
    assert sum(len(step.get("awaited", ())) for step in of_hosts) > 100
    assert sum(len(step.get("aborted", ())) for step in of_hosts) > 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"num_blocks": 1}, "num_blocks is 1"),
        ({"groups": ()}, "groups is empty"),
        ({"drafts": VllmDrafts(tokens=2, input_slots=300)}, "drafts take 300 of them"),
        ({"drafts": VllmDrafts(tokens=2, reread_groups=(1,))}, "reread_groups of drafts holds 1"),
        ({"drafts": VllmDrafts(tokens=2), "groups": (FULL, STATE)}, "models with Mamba states"),
        (
            {"drafts": VllmDrafts(tokens=2, reread_groups=(0,)), "groups": (CHUNK,)},
            "EAGLE beside chunked local attention",
        ),
        ({"policy": "lifo"}, "policy is 'lifo'"),
        ({"watermark": 1.0}, "watermark is 1.0"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold is -1"),
        ({"enable_chunked_prefill": False}, "max_num_batched_tokens 256 is below max_model_len"),
        ({"max_num_scheduled_tokens": 0}, "max_num_scheduled_tokens is 0"),
        ({"prefix_cache_retention_interval": 32}, "which only sliding windows and Mamba states"),
        (
            {"groups": (WINDOW,), "prefix_cache_retention_interval": 24},
            "prefix_cache_retention_interval is 24",
        ),
    ],
)
def test_settings_that_vllm_refuses_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        VllmScheduler(config(**settings))


@pytest.mark.parametrize("name", ["tokens", "lookahead_tokens", "input_slots"])
def test_drafts_of_a_negative_number_are_refused(name: str) -> None:
    with pytest.raises(DeploymentError, match=f"{name} of drafts is -1"):
        VllmDrafts(**{"tokens": 1, name: -1})


def test_aborting_what_has_ended_changes_nothing() -> None:
    scheduler = VllmScheduler(config(async_scheduling=False))
    sequence = scheduler.add(Request(id=0, arrival_seconds=0, prompt_tokens=20, output_tokens=1))
    assert scheduler.complete(scheduler.schedule()) == [sequence]
    scheduler.abort(sequence)
    assert scheduler.unfinished == 0
    assert scheduler.kv.pool.num_free == 63


def test_a_request_that_no_pool_holds_is_known_beforehand() -> None:
    scheduler = VllmScheduler(config(num_blocks=11))

    def asks(prompt: int, output: int) -> Request:
        return Request(id=0, arrival_seconds=0, prompt_tokens=prompt, output_tokens=output)

    assert scheduler.refusal(asks(150, 10)) is None
    assert scheduler.refusal(asks(150, 11)) is Refusal.BEYOND_POOL
    assert scheduler.refusal(asks(512, 1)) is Refusal.TOO_LONG


def test_alike_requests_do_not_preempt_each_other_for_ever() -> None:
    scheduler = VllmScheduler(
        config(
            num_blocks=13,
            max_model_len=192,
            max_num_batched_tokens=80,
            long_prefill_token_threshold=48,
            policy="priority",
            scheduler_reserve_full_isl=False,
            enable_prefix_caching=False,
            async_scheduling=False,
        )
    )
    for id in range(2):
        scheduler.add(Request(id=id, arrival_seconds=0, prompt_tokens=140, output_tokens=30))
    finished = []
    for _ in range(400):
        finished += scheduler.complete(scheduler.schedule())
    assert [sequence.request.id for sequence in finished] == [0, 1]
