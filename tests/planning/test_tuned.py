"""What a search finds for a tuning is what ``fit`` and ``speed_of`` say of that very deployment."""

import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from planning_cases import demand

from tokenroom import load_model
from tokenroom.errors import TokenroomError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.planning.candidates import Candidate, candidates
from tokenroom.planning.demand import Demand
from tokenroom.planning.judging import Proposal, judged, judged_layout
from tokenroom.planning.layout_memory import LayoutMemory, fit_of
from tokenroom.planning.load_curve import LoadCurve
from tokenroom.planning.tuned import LayoutJudge
from tokenroom.planning.tuning import TRIED, Draft, Tuning, TuningSpace, space_of
from tokenroom.planning.tuning_words import draft_of, draft_text, space_of_texts
from tokenroom.serving.run import Run
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving_speed import speed_of

DRAWS = 6
LAYOUTS = (
    ("llama-3.1-8b", "l4", "TP2", "vllm"),
    ("llama-3.1-8b", "l40s", "TP2 PP2", "vllm"),
    ("llama-3.1-70b@fp8", "h200", "TP2", "vllm"),
    ("qwen3-30b-a3b", "h100", "TP2 EP", "vllm"),
    ("deepseek-v2-lite", "b200", "DP2 EP", "vllm"),
    ("gemma-3-12b", "a100-80gb", "", "vllm"),
    ("qwen3-next-80b-a3b", "h100", "TP4", "vllm"),
    ("gpt-oss-20b", "4090", "", "vllm@0.19.0"),
    ("llama-3.1-8b", "a30", "TP2", "vllm@0.7.0"),
    ("llama-3.1-8b", "h100", "TP2", "sglang"),
    ("qwen3-30b-a3b", "h100", "TP2", "tensorrt-llm"),
    ("llama-3.2-3b", "4090", "", "llama.cpp"),
)
FEW = {"input_tokens": 2048, "output_tokens": 512}
"""Of which a replica takes as many as there are."""
SPACE = replace(TRIED, kv_offload_bytes=(None, 16 << 30), max_model_lens=(None, 8192))


def layout(model: str, gpu: str, division: str, engine: str) -> Candidate:
    found = candidates([load_model(model)], [find_accelerator(gpu)], engines=[engine], most_gpus=4)
    (one,) = (each for each in found if each.division == division)
    return one


def drawn(space: TuningSpace, random: Random) -> Iterator[Tuning]:
    for _ in range(DRAWS):
        yield Tuning(
            max_num_batched_tokens=random.choice(space.max_num_batched_tokens),
            max_num_seqs=random.choice(space.max_num_seqs),
            memory_share=random.choice(space.memory_shares),
            prefix_caching=random.choice(space.prefix_caching),
            kv_offload_bytes=random.choice(space.kv_offload_bytes),
            max_model_len=random.choice(space.max_model_lens),
            draft=random.choice(space.drafts),
        )


def running_by_itself(one: Candidate, asked: Demand) -> int:
    try:
        return fit_of(one, asked).requests_running
    except TokenroomError:
        return 0


@pytest.mark.parametrize("names", LAYOUTS, ids=" ".join)
def test_memory_is_what_fit_says(names: tuple[str, str, str, str]) -> None:
    one, asked = layout(*names), demand()
    space = space_of(one.engine, SPACE)
    shares = space.memory_shares
    memories: dict[object, LayoutMemory] = {}
    other: LayoutMemory | None = None
    for tuning in drawn(space, Random(" ".join(names))):
        budget = tuning.max_num_batched_tokens
        if budget not in memories:
            other = LayoutMemory(one, asked, Tuning(max_num_batched_tokens=budget), other)
            memories[budget] = other
        found = memories[budget].running(replace(tuning, memory_share=None), shares)
        for share, running in zip(shares, found, strict=True):
            alone = replace(one, tuning=replace(tuning, memory_share=share))
            assert running == running_by_itself(alone, asked), alone.tuning


@pytest.mark.parametrize("names", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("budget", [None, 2048])
def test_speed_is_what_speed_of_says(names: tuple[str, str, str, str], budget: int | None) -> None:
    one, asked = layout(*names), demand()
    fitted = fit_of(replace(one, tuning=Tuning(max_num_batched_tokens=budget)), asked)
    curve = LoadCurve(fitted, asked)
    room = fitted.requests_running
    most = curve.largest(room)
    alone = speed_of(
        fitted,
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        concurrency=1,
    )
    for clients in {1, max(1, most // 2), max(1, most), min(room, most + 1)}:
        exact, quick = alone.at(clients), curve.at(clients)
        assert quick.ttft_seconds == pytest.approx(exact.ttft_seconds.value, rel=1e-12)
        assert quick.tpot_seconds == pytest.approx(exact.tpot_seconds.value, rel=1e-12)
        assert curve.served(clients) == pytest.approx(asked.served(exact), rel=1e-12)
    assert not most or not asked.objectives.missed(alone.at(most))
    assert most == room or asked.objectives.missed(alone.at(most + 1))


def test_a_budget_that_shares_steps_finds_the_same() -> None:
    one, asked = layout("llama-3.1-8b", "l40s", "TP2 PP2", "vllm"), demand()
    wide, narrow = (
        fit_of(replace(one, tuning=Tuning(max_num_batched_tokens=budget)), asked)
        for budget in (8192, 2048)
    )
    first = LoadCurve(wide, asked)
    first.largest(500)
    assert LoadCurve(narrow, asked, first).largest(500) == LoadCurve(narrow, asked).largest(500)


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (("llama-3.1-8b", "l4", "TP2", "vllm"), {}),
        (("llama-3.1-8b", "l4", "", "vllm"), {"tpot_seconds": 0.02}),  # too slow
        (("llama-3.1-70b@awq", "4090", "TP2", "vllm"), {}),  # weights alone are too much
        (("llama-3.1-8b", "l40s", "TP2", "vllm"), {"ttft_seconds": 0.05}),
    ],
)
def test_what_bounds_skip_would_not_have_been_proposed(
    names: tuple[str, str, str, str], changes: dict[str, float]
) -> None:
    one, asked = layout(*names), demand(**changes)
    space = space_of(one.engine)
    with_bounds = LayoutJudge(one, asked, space).verdict()
    whole = LayoutJudge(one, asked, space, bounds=False).verdict()
    assert sum(with_bounds.counts) == whole.counts.judged
    assert whole.counts.skipped == 0
    assert len(space) // 3 < whole.counts.judged < len(space)  # the engine's own values count once
    assert [(each.candidate, each.clients) for each in with_bounds.tuned] == [
        (each.candidate, each.clients) for each in whole.tuned
    ]
    assert bool(with_bounds.counts.skipped) == (not with_bounds.tuned)


def test_a_draft_is_judged_with_its_own_speed() -> None:
    one, asked = (
        layout("llama-3.1-8b", "h100", "", "vllm"),
        demand(tpot_seconds=0.012, ttft_seconds=None),
    )
    space = TuningSpace(drafts=(None, Draft(method="ngram", tokens=3)))
    plain, drafting = LayoutJudge(one, asked, space).verdict().tuned
    assert drafting.candidate.tuning.draft is not None
    exact = speed_of(
        fit_of(drafting.candidate, asked),
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        concurrency=drafting.clients,
    )
    found = drafting.curve.at(drafting.clients)
    assert found.tpot_seconds == pytest.approx(exact.tpot_seconds.value, rel=1e-12)
    assert drafting.clients != plain.clients


def test_the_engine_s_own_settings_are_kept_where_nothing_is_gained() -> None:
    one, asked = layout("llama-3.1-8b", "h100", "TP2", "vllm"), demand(users=10)
    first = LayoutJudge(one, asked, space_of("vllm")).verdict().tuned[0]
    assert first.candidate.tuning == Tuning()
    assert first.clients == 10


CHOSEN = Tuning(
    max_num_batched_tokens=2048, max_num_seqs=64, memory_share=0.85, prefix_caching=False
)


def test_what_starts_and_what_verifies_a_plan_has_its_settings() -> None:
    one, asked = layout("llama-3.1-8b", "h100", "TP2", "vllm"), demand()
    found = judged(replace(one, tuning=CHOSEN), asked)
    assert isinstance(found, Proposal)
    assert found.fit.launch is not None
    for words in (
        "--max-num-batched-tokens 2048",
        "--max-num-seqs 64",
        "--gpu-memory-utilization 0.85",
        "--no-enable-prefix-caching",
    ):
        assert words in found.fit.launch.shell_text
    simulated = Run(found.fit).engine.config
    assert isinstance(simulated, VllmSchedulerConfig)
    assert simulated.max_num_batched_tokens == 2048
    assert simulated.max_num_seqs == 64
    assert not simulated.enable_prefix_caching


def test_few_settings_of_a_layout_are_proposed() -> None:
    one, asked = layout("llama-3.1-8b", "l4", "TP2", "vllm"), demand()
    found = judged_layout(one, asked, space_of("vllm"))
    assert 1 <= len(found.proposals) <= 3
    assert found.counts.skipped == 0
    best, *sooner = found.proposals
    for each in sooner:
        assert each.replicas == best.replicas
        assert each.headroom <= best.headroom
        assert (
            min(each.ttft_seconds / best.ttft_seconds, each.tpot_seconds / best.tpot_seconds) < 0.9
        )


def test_a_gain_of_less_than_a_hundredth_is_no_reason_for_a_setting() -> None:
    """Smaller steps serve a few more by the closed form; so few that they are not proposed."""
    one, asked = layout("llama-3.1-8b", "h100", "", "vllm"), demand(**FEW)
    best, *_ = judged_layout(one, asked, space_of("vllm")).proposals
    verdict = LayoutJudge(one, asked, space_of("vllm")).verdict()
    assert max(each.served for each in verdict.tuned) > best.tuned.served  # which is not the most
    assert best.candidate.tuning == Tuning()


def test_a_proposal_survives_the_way_to_a_worker() -> None:
    one, asked = layout("llama-3.1-8b", "l4", "TP2", "vllm"), demand()
    found = judged(one, asked)
    assert isinstance(found, Proposal)
    again = pickle.loads(pickle.dumps(found))
    assert again.tuned.curve.at(7) == found.tuned.curve.at(7)
    assert again.point.tpot_seconds == found.point.tpot_seconds


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        ("mtp", Draft(method="mtp", tokens=1)),
        ("ngram:5", Draft(method="ngram", tokens=5)),
        ("eagle3:3=org/model", Draft(method="eagle3", tokens=3, model="org/model")),
    ],
)
def test_drafts_are_written_as_they_are_read(text: str, draft: Draft) -> None:
    assert draft_of(text) == draft
    assert draft_of(draft_text(draft)) == draft


def test_settings_are_read_from_texts() -> None:
    found = space_of_texts(
        token_budgets=["auto", "4096"],
        memory_shares=["90%", "0.9"],
        prefix_caching=["on"],
        kv_offload=["none", "16GiB"],
        drafts=["none"],
        own_alone=True,
    )
    assert found == TuningSpace(
        max_num_batched_tokens=(None, 4096),
        memory_shares=(0.9,),
        prefix_caching=(True,),
        kv_offload_bytes=(None, 16 << 30),
    )
    assert space_of_texts() == TRIED


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"memory_shares": ["1.5"]}, "util is '1.5'; give a share above 0 and up to 1"),
        ({"prefix_caching": ["maybe"]}, "prefix_caching is 'maybe'; it may be auto, on, off"),
        ({"token_budgets": ["0"]}, "token_budget"),
        ({"drafts": [":3"]}, "drafts holds ':3'; write METHOD"),
    ],
)
def test_settings_that_cannot_be_are_refused(texts: dict[str, list[str]], said: str) -> None:
    with pytest.raises(TokenroomError, match=re.escape(said)):
        space_of_texts(**texts)  # type: ignore[arg-type]
