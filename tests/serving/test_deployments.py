"""What the simulator takes from a deployment that was fitted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.performance.test_drafting import HEAD

from tokenroom import FitResult, fit, speed
from tokenroom.engines.vllm.arguments import parse_command
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import DeploymentError
from tokenroom.performance.idle import ttft
from tokenroom.performance.replica import Replica
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.deployments import engine_of
from tokenroom.serving.deployments.vllm import scheduler_config
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.request import Request
from tokenroom.serving.run import Run
from tokenroom.serving.scheduler import StepPlan
from tokenroom.serving.schedulers.vllm import VllmDrafts, VllmScheduler
from tokenroom.serving.simulator import simulate
from tokenroom.serving.step_cost import step_cost
from tokenroom.serving.workloads.grammar import parse_workload

FULL = KvGroup(kind=Kind.FULL, block_tokens=16)


def window(tokens: int) -> KvGroup:
    return KvGroup(kind=Kind.SLIDING_WINDOW, block_tokens=16, window_tokens=tokens)


@pytest.mark.parametrize(
    ("model", "groups"),
    [
        ("llama-3.1-8b", (FULL,)),
        ("deepseek-v2-lite", (FULL,)),
        ("gpt-oss-20b", (window(128), FULL)),
        ("mistral-7b-v0.1", (window(4096),)),
    ],
)
def test_groups_are_those_of_the_pool(model: str, groups: tuple[KvGroup, ...]) -> None:
    result = fit(model, "h100")
    config = scheduler_config(result)
    assert config.groups == groups
    assert config.num_blocks == result.plan.kv_blocks
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (1024, 8192)
    assert config.async_scheduling
    assert config.max_model_len == result.plan.max_model_len


@pytest.mark.parametrize(("caching", "tokens"), [(True, 272), (False, 262144)])
def test_states_are_cached_at_ends_of_blocks_or_not_at_all(caching: bool, tokens: int) -> None:
    model = "Qwen/Qwen3-Next-80B-A3B-Instruct"
    result = fit(model, "h200", gpus=4, tp=4, enable_prefix_caching=caching)
    kind = Kind.ALIGNED_MAMBA if caching else Kind.MAMBA
    *recurrent, full = scheduler_config(result).groups
    assert recurrent == [KvGroup(kind=kind, block_tokens=tokens)] * 3
    assert full.kind is Kind.FULL


def test_what_older_versions_decided_otherwise_is_kept() -> None:
    old = scheduler_config(fit("llama-3.1-8b", "h100", engine="vllm@0.18.0"))
    new = scheduler_config(fit("llama-3.1-8b", "h100", engine="vllm@0.29.0"))
    assert (old.scheduler_reserve_full_isl, new.scheduler_reserve_full_isl) == (False, True)
    assert old.prefix_cache_retention_interval is None
    assert new.prefix_cache_retention_interval == 0


@pytest.mark.parametrize("prompt", [100, 1024, 8192])
def test_alone_on_an_idle_server_the_first_token_takes_what_is_predicted(prompt: int) -> None:
    result = fit("llama-3.1-8b", "h100")
    cost = step_cost(result)
    request = Request(id=0, arrival_seconds=3.0, prompt_tokens=prompt, output_tokens=2)
    (record,) = simulate(
        OpenLoop([request]),
        VllmScheduler(scheduler_config(result)),
        cost,
        delay_seconds=cost.delay_seconds,
    )
    deployment = result.deployment
    expected = ttft(
        Replica(
            spec=deployment.spec,
            layout=cost.terms.layout,
            accelerator=deployment.node.accelerator,
            engine="vllm",
        ),
        prompt,
    )
    assert record.ttft_seconds == pytest.approx(expected[0], rel=1e-9)


def test_a_step_is_counted_by_what_its_requests_compute() -> None:
    cost = step_cost(fit("llama-3.1-8b", "h100"))
    plan = StepPlan()
    plan.tokens, plan.contexts = [1, 300, 1, 1], [50, 16, 70, 12]
    work = cost.work(plan)
    assert work.prefill == ((300, 16),)
    assert (work.decode_sequences, work.decode_context_tokens) == (3, 44.0)
    assert cost(plan) > cost.seconds(cost.work(StepPlan()))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "paged"}, "engine paged is not simulated"),
        ({"model": "llama-3.1-70b"}, "does not start"),
        (
            {"gpus": 2, "tp": 2, "decode_context_parallel_size": 2},
            "decode_context_parallel_size is 2",
        ),
        ({"engine": "vllm@0.6.0"}, "vLLM's V0 engine is not simulated"),
    ],
)
def test_what_is_not_simulated_is_refused(settings: dict[str, Any], said: str) -> None:
    model = settings.pop("model", "llama-3.1-8b")
    with pytest.raises(DeploymentError, match=said):
        engine_of(fit(model, "h100", **settings))


def test_flags_that_only_the_scheduler_reads_reach_it() -> None:
    flags = (
        "vllm serve meta-llama/Llama-3.1-8B --scheduling-policy priority --watermark 0.05 "
        "--long-prefill-token-threshold 512 --long-prefill-token-threshold-adaptive "
        "--no-scheduler-reserve-full-isl --max-num-active-seqs 7 --max-num-scheduled-tokens 1k"
    )
    parsed = parse_command(flags)
    result = fit(parsed.model, "h100", settings=parsed.settings)
    assert not [note for note in result.notices if note.key == "ignored_flags"]
    config = scheduler_config(result)
    assert (config.policy, config.watermark, config.max_num_seqs) == ("priority", 0.05, 7)
    assert config.long_prefill_token_threshold == 512
    assert config.long_prefill_token_threshold_adaptive
    assert not config.scheduler_reserve_full_isl
    assert config.max_num_scheduled_tokens == 1000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheduling_policy": "lifo"}, "scheduling_policy is 'lifo'; choose from fcfs, priority"),
        ({"watermark": 1.0}, "watermark is 1.0; it must be 0 or more and below 1"),
        ({"max_num_active_seqs": 2000}, "max_num_active_seqs is 2000, above max_num_seqs"),
        ({"long_prefill_token_threshold": 1 << 20}, "above max_model_len"),
    ],
)
def test_settings_of_the_scheduler_are_checked_as_vllm_does(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeploymentError, match=said):
        fit("llama-3.1-8b", "h100", **settings)


def test_pipelines_of_other_engines_have_no_simulated_steps() -> None:
    with pytest.raises(DeploymentError, match="pipelines of tensorrt-llm are not simulated"):
        step_cost(fit("llama-3.1-8b", "h100", gpus=2, pp=2, engine="tensorrt-llm"))


def drafting(method: str, tokens: int = 3, **settings: Any) -> FitResult:
    asked = SpeculativeSettings(method=method, num_speculative_tokens=tokens, **settings)
    return fit("llama-3.1-8b", "h100", speculative=asked)


@pytest.mark.parametrize(
    ("method", "model", "expected"),
    [
        ("ngram", None, VllmDrafts(tokens=3)),
        (
            "draft_model",
            "llama-3.2-1b",
            VllmDrafts(tokens=3, lookahead_tokens=3, input_slots=1),
        ),
        ("eagle3", "head", VllmDrafts(tokens=3, lookahead_tokens=3, reread_groups=(0,))),
    ],
)
def test_a_method_of_drafting_takes_the_slots_that_it_needs(
    method: str, model: str | None, expected: VllmDrafts, tmp_path: Path
) -> None:
    if model == "head":
        (tmp_path / "config.json").write_text(json.dumps(HEAD))
        model = str(tmp_path)
    assert scheduler_config(drafting(method, model=model)).drafts == expected


def test_several_mtp_blocks_are_not_simulated() -> None:
    asked = SpeculativeSettings(method="mtp", num_speculative_tokens=1)
    settings: dict[str, Any] = {"gpus": 8, "tp": 8}
    one = fit("deepseek-v3", "h200", speculative=asked, **settings)
    drafts = VllmDrafts(tokens=1, lookahead_tokens=1, reread_groups=(0,))
    assert scheduler_config(one).drafts == drafts
    several = replace(asked, num_speculative_tokens=3)
    settings["hf_overrides"] = {"num_nextn_predict_layers": 3}
    with pytest.raises(DeploymentError, match="several MTP blocks"):
        scheduler_config(fit("deepseek-v3", "h200", speculative=several, **settings))


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.8])
def test_a_step_that_keeps_drafts_gives_tokens_as_the_closed_form_says(acceptance: float) -> None:
    result = drafting("ngram")
    run = Run(result, scheduling={"acceptance": acceptance})
    workload = parse_workload(
        "users:count=8,input=1024,output=uniform(200,400),requests=160", block_tokens=16
    )
    tpots = [
        record.tpot_seconds
        for record in run.serve(workload.start(), waits_for_answers=True)
        if record.tpot_seconds is not None
    ]
    told = speed(
        "llama-3.1-8b",
        "h100",
        input_tokens=1024,
        output_tokens=300,
        concurrency=8,
        acceptance=acceptance,
        speculative=result.deployment.asked.speculative,
    )
    assert sum(tpots) / len(tpots) == pytest.approx(told.tpot_seconds.value, rel=0.05)
    settings = run.outcome().engine.settings
    assert (settings["num_speculative_tokens"], settings["acceptance"]) == (3, acceptance)


def test_what_is_kept_of_drafts_is_asked_for_where_there_are_some() -> None:
    with pytest.raises(DeploymentError, match="the deployment drafts no tokens"):
        engine_of(fit("llama-3.1-8b", "h100"), {"acceptance": 0.5})
    with pytest.raises(DeploymentError, match=r"draft_seed is 0\.5"):
        engine_of(drafting("ngram"), {"draft_seed": 0.5})
    asked = {"speculative_type": "NGram", "speculative_tokens": 3}
    with pytest.raises(DeploymentError, match="simulated of vllm alone"):
        step_cost(fit("llama-3.1-8b", "h100", engine="tensorrt-llm", **asked))
