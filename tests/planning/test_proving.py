"""Several workers find what one finds, and what they have found is not lost."""

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from planning_cases import demand

from tokenroom import load_model
from tokenroom.execution.inline import Inline
from tokenroom.execution.lost import WorkerLostError
from tokenroom.execution.processes import Processes
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.planning.candidates import candidates
from tokenroom.planning.judging import Bounds, Judged, Proposal, judged, judged_layout
from tokenroom.planning.judging_together import judged_together
from tokenroom.planning.proving import Case, Proof, Prover
from tokenroom.planning.search import Search
from tokenroom.planning.tuning import DEFAULTS_ALONE
from tokenroom.reports.messages import Language
from tokenroom.reports.plan_json import plan_json
from tokenroom.reports.plan_text import unproven_lines

BURSTS = {"requests_per_second": 2.0, "burst": 3.0, "ttft_seconds": 0.15, "output_tokens": 32}
"""What the closed form thinks too well of, so that proposals fail and get more replicas."""


def search(executor: Executor, workers: int, **changes: Any) -> Search:
    accelerators = [find_accelerator(gpu) for gpu in ("l40s", "a100-80gb", "h100")]
    found = list(candidates([load_model("llama-3.1-8b")], accelerators, most_gpus=1))
    return Search(found, demand(**changes), wanted=2, executor=executor, workers=workers)


def searched(executor: Executor, workers: int, **changes: Any) -> dict[str, Any]:
    asked = search(executor, workers, **changes)
    for _ in asked.steps():
        pass
    return plan_json(asked.plan(), Language.ENGLISH)


def case() -> Case:
    (found,) = candidates([load_model("llama-3.1-8b")], [find_accelerator("l40s")], most_gpus=1)
    proposal = judged(found, demand())
    assert isinstance(proposal, Proposal)
    return Case(proposal=proposal, demand=demand(), bounds=Bounds(), seed=0)


class Hasty(Inline):
    """Does each task at once, as if any number of workers had been free, and counts them."""

    def __init__(self) -> None:
        self.tasks = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        return super().submit(fn, *args, **kwargs)


class Deadly(Executor):
    """Loses its worker with the first so many tasks."""

    def __init__(self, lost: int) -> None:
        self.lost = lost

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.lost -= 1
        if self.lost < 0:
            return Inline().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.set_exception(WorkerLostError())
        return future


def test_any_number_of_workers_finds_the_same() -> None:
    alone = searched(Inline(), 1, **BURSTS)
    assert alone["plans"]
    assert any(1 < plan["replicas"] < plan["headroom"] for plan in alone["plans"])  # it got more
    hasty = Hasty()
    assert json.dumps(searched(hasty, 5, **BURSTS)) == json.dumps(alone)
    assert hasty.tasks > len(alone["plans"]) + 5  # ahead of being asked for, and to get ready


def test_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenroom.planning.search.WORTH_IT", 2)  # layouts are judged by them, too
    processes = Processes(2)
    try:
        together = searched(processes, 2, users=60, output_tokens=32)
    finally:
        processes.shutdown(wait=False)
    assert json.dumps(together) == json.dumps(searched(Inline(), 1, users=60, output_tokens=32))


def test_layouts_that_several_judge_come_in_their_order() -> None:
    accelerators = [find_accelerator(gpu) for gpu in ("l40s", "h100", "4090", "a10")]
    found = list(candidates([load_model("llama-3.1-8b")], accelerators, most_gpus=4))
    layouts = [(each, Bounds()) for each in found]
    assert len(layouts) > 16
    for executor in (Hasty(), Deadly(1)):
        told = list(judged_together(layouts, demand(), DEFAULTS_ALONE, executor, 2))
        assert [_told(each) for each in told] == [
            _told(judged_layout(each, demand(), DEFAULTS_ALONE)) for each in found
        ]


def _told(judged: Judged) -> list[str]:
    proposed = [repr((each.candidate, each.replicas, each.headroom)) for each in judged.proposals]
    return [*proposed, repr(judged.rejection), repr(judged.counts)]


def test_an_interrupted_search_keeps_what_any_worker_found() -> None:
    asked = search(Hasty(), 3, users=60, output_tokens=32)
    steps = asked.steps()
    while next(steps).phase == "judge":
        pass
    begun = asked.plan()
    assert not begun.options
    first, *lines = unproven_lines(begun, Language.ENGLISH)
    assert "not simulated yet" in first
    assert lines[0].startswith("l40s")
    next(steps)  # the first is settled, and others were proven meanwhile
    plan = asked.plan()
    assert not plan.complete
    assert len(plan.options) > 1


def test_a_lost_worker_is_replaced_once() -> None:
    asked = case()
    found = Prover(Deadly(1), 1).result(asked)
    assert isinstance(found, Proof)
    assert found.proposal is asked.proposal
    lost = Prover(Deadly(2), 1).result(asked)
    assert not isinstance(lost, Proof)
    assert lost.reason == "refused"
    assert "out of memory" in str(lost.values["text"])
