"""Deployments that serve small workloads, compared by runs of the simulator itself."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tokenroom import fit
from tokenroom.comparing.comparison import Comparison, Subject, compare
from tokenroom.comparing.figures import BY_KEY, FIGURES
from tokenroom.comparing.serving_question import ServingQuestion, serve
from tokenroom.errors import ComparisonError
from tokenroom.execution.inline import Inline
from tokenroom.execution.processes import WorkerLostError
from tokenroom.execution.store import Store
from tokenroom.execution.workers import workers
from tokenroom.serving.metrics import LatencyLimits
from tokenroom.serving.served_deployment import ServedDeployment
from tokenroom.serving.workloads.source import DrawnSource, TraceSource

WORKLOAD = DrawnSource(description="poisson:rate=4,input=300,output=20,requests=12")


@cache
def subject(name: str, **settings: Any) -> Subject:
    result = fit("llama-3-8b", "a100", context=4096, **settings)
    return Subject(name=name, servers=ServedDeployment(fit=result, price_per_gpu_hour=2.0))


def both() -> tuple[Subject, Subject]:
    return subject("many"), subject("one by one", max_num_seqs=1)


def compared(executor: Executor | None = None, count: int = 1, **options: Any) -> Comparison:
    options = {"draws": 3, **options}
    return compare(both(), WORKLOAD, executor or Inline(), workers=count, **options)


def test_each_draw_is_served_by_all_and_differences_are_paired() -> None:
    found = compared(limits=LatencyLimits(ttft_seconds=1.0))
    many, alone = found.compared
    assert found.draws == found.complete_draws == (0, 1, 2)
    ttfts = [found.values(item, "ttft_mean_seconds") for item in (many, alone)]
    assert ttfts[0] is not None
    assert ttfts[1] is not None
    difference = found.difference(alone, "ttft_mean_seconds")
    assert difference is not None
    pairs = [other - value for value, other in zip(*ttfts, strict=True)]
    assert difference.value == pytest.approx(sum(pairs) / 3)
    assert difference.excludes_zero
    assert difference.value > 0
    assert found.values(many, "running_max") != (1, 1, 1)
    assert found.values(alone, "running_max") == (1, 1, 1)
    usd = found.mean(many, "usd")
    assert usd is not None
    assert usd.value > 0


def test_figures_are_those_of_a_run() -> None:
    servers = subject("many").servers
    assert servers is not None
    answer = serve(ServingQuestion(servers=servers, workload=WORKLOAD))
    run = servers.run()
    for _ in run.serve(WORKLOAD.served(run.engine.block_tokens).arrivals):
        pass
    metrics = run.outcome().metrics
    figures = answer["figures"]
    assert list(figures) == [figure.key for figure in FIGURES] == list(BY_KEY)
    assert figures["tpot_p99_seconds"] == metrics.tpot.p99_seconds
    assert figures["output_tokens_per_second"] == metrics.output_tokens_per_second
    assert figures["kv_pool_usage_max"] == metrics.max_used_blocks / run.engine.usable_blocks
    assert figures["goodput_share"] is figures["prefix_hit_rate"] is None
    assert (answer["arrived"], answer["served"], answer["falls_behind"]) == (12, 12, False)


def test_processes_find_what_one_process_finds(tmp_path: Path) -> None:
    alone = compared()
    with workers(2) as (executor, count):
        assert compared(executor, count).answers == alone.answers
    store = Store(tmp_path)
    assert compared(store=store).answers == alone.answers
    kept: list[bool] = []
    again = compared(store=store, draws=4, on_outcome=lambda outcome: kept.append(outcome.kept))
    store.close()
    assert kept == [True] * 6 + [False] * 2
    assert {
        name: {seed: runs[seed] for seed in range(3)} for name, runs in again.answers.items()
    } == alone.answers


def test_a_trace_is_served_once_and_has_no_intervals(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("ts,input,output\n" + "".join(f"{time},100,5\n" for time in range(5)))
    found = compare(both(), TraceSource(path=file), Inline(), workers=1)
    assert found.draws == found.complete_draws == (None,)
    difference = found.difference(found.compared[1], "e2e_mean_seconds")
    assert difference is not None
    assert difference.half_width is difference.excludes_zero is None


def test_a_deployment_that_does_not_start_serves_nothing() -> None:
    large = Subject(name="large", servers=ServedDeployment(fit=fit("llama-3.1-70b", "a100")))
    found = compare((large, *both()), WORKLOAD, Inline(), workers=1, draws=1)
    assert [item.name for item in found.compared] == ["many", "one by one"]
    assert found.answers["large"] == {}
    assert found.difference(found.compared[1], "tpot_mean_seconds") is not None


class Ending(Inline):
    """An executor that ends otherwise than with an answer, for some of the questions."""

    def __init__(self, when: Callable[[ServingQuestion], bool], error: BaseException) -> None:
        self.when, self.error = when, error

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.when(args[1]):
            return super().submit(fn, *args, **kwargs)
        if isinstance(self.error, KeyboardInterrupt):
            raise self.error
        future: Future[Any] = Future()
        future.set_exception(self.error)
        return future


def seed_of(question: ServingQuestion) -> int | None:
    assert isinstance(question.workload, DrawnSource)
    return question.workload.seed


def test_a_lost_run_is_named_and_its_draw_left_out() -> None:
    alone = subject("one by one", max_num_seqs=1).servers

    def lost(question: ServingQuestion) -> bool:
        return question.servers is alone and seed_of(question) == 1

    found = compared(Ending(lost, WorkerLostError()))
    reason = "its worker ended 2 times, killed or out of memory"
    assert found.problems == {("one by one", 1): reason}
    assert found.complete_draws == (0, 2)
    assert not found.interrupted


def test_what_is_done_is_compared_when_it_is_ended_early() -> None:
    found = compared(Ending(lambda question: seed_of(question) == 2, KeyboardInterrupt()))
    assert found.interrupted
    assert found.complete_draws == (0, 1)
    assert found.difference(found.compared[1], "ttft_p50_seconds") is not None


@pytest.mark.parametrize(
    ("subjects", "options", "said"),
    [
        (("many",), {}, "one deployment is given"),
        (("many", "many"), {}, "two deployments are called 'many'"),
        (("many", "other"), {"draws": 0}, "drawn 0 times; give 1 or more"),
        (("many", "other"), {"confidence": 1.0}, "confidence is 1; give a share between"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    subjects: tuple[str, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ComparisonError, match=said):
        compare([subject(name) for name in subjects], WORKLOAD, Inline(), workers=1, **options)


def test_a_run_that_is_refused_names_its_deployment() -> None:
    unknown = DrawnSource(description="users:count=2,input=9,output=9,requests=2")
    old = subject("old", engine="vllm@0.6.3")
    with pytest.raises(ComparisonError, match="old: vLLM's V0 engine is not simulated"):
        compare((subject("many"), old), unknown, Inline(), workers=1, draws=1)
