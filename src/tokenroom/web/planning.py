"""What to deploy, asked of a server: plans, recipes, pools and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from tokenroom.errors import TokenroomError, called
from tokenroom.fitting import fit
from tokenroom.hardware.catalogue import find_accelerator, load_catalogue
from tokenroom.planning.search import Progress
from tokenroom.reports.messages import Language
from tokenroom.units import parse_arrivals, parse_seconds, parse_tokens
from tokenroom.web.answers import ModelFinder, OnProgress, deployment_arguments

if TYPE_CHECKING:
    from tokenroom.hardware.accelerator import Accelerator
    from tokenroom.planning.candidates import Candidate
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.search import Plan, Search
    from tokenroom.planning.tuning import TuningSpace
    from tokenroom.serving.metrics import LatencyLimits
    from tokenroom.serving.served_deployment import ServedDeployment
    from tokenroom.web.questions import (
        DeploymentQuestion,
        PlanQuestion,
        PoolsQuestion,
        RecipeQuestion,
        TableQuestion,
    )

MAX_CANDIDATES: Final = 4_000
MAX_CELLS: Final = 400
_DRAWS: Final = 5_000
_TOLD_EVERY_SECONDS: Final = 0.25
_ANSWERED_EVERY_SECONDS: Final = 2.0
_LOADS: Final = ("users", "concurrency", "rate")
_ASKED_AS: Final = {
    "longest_tokens": "context",
    "requests_per_second": "rate",
    "think_seconds": "think_time",
}
"""What the library calls fields of a plan, with what a question calls them."""

_DEPLOYMENT: Final = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "kv_cache_dtype": "kv",
    "gpu_memory_utilization": "util",
    "mem_fraction_static": "util",
    "free_gpu_memory_fraction": "util",
    "max_model_len": "context",
}
"""The same of a deployment."""


def answer_plan(
    question: PlanQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom plan --json`` prints, and the report of ``--markdown`` (``markdown``).

    ``simulated`` of each plan also has the ``workload`` that verified it, as it is simulated again.

    Raises:
        TokenroomError: Something is unknown or out of range, or too much is to be tried.
    """
    candidates, search = _search(question, find)
    tell = _Teller(on_progress, len(candidates), question.top)
    for step in search.steps():
        tell(step, lambda: _plan_answer(search.plan(), question))
    return _plan_answer(search.plan(), question)


def check_plan(question: PlanQuestion, find: ModelFinder) -> None:
    """Refuse what :func:`answer_plan` would refuse before it judges anything.

    Raises:
        TokenroomError: Something is unknown or out of range, or too much is to be tried.
    """
    _search(question, find)


def _search(question: PlanQuestion, find: ModelFinder) -> tuple[list[Candidate], Search]:
    """What is to be tried, and the search that tries it."""
    from tokenroom.planning.prices import prices_by_key
    from tokenroom.planning.search import Search
    from tokenroom.planning.tuning_words import space_of_texts

    gpus = _gpus(question)
    settings = question.settings
    space = space_of_texts(
        token_budgets=settings.token_budget,
        max_num_seqs=settings.max_num_seqs,
        memory_shares=settings.util,
        prefix_caching=settings.prefix_caching,
        kv_offload=settings.kv_offload,
        drafts=settings.draft,
        own_alone=settings.engine_defaults,
    )
    with called(_ASKED_AS | ({} if question.users else {"users": "concurrency"})):
        demand = _demand(question)
    inventory = _inventory(question)
    with called({"drafts": "settings.draft"}):
        found = _candidates(question, gpus, find, space)
    return found, Search(
        found,
        demand,
        space=space,
        prices=prices_by_key(
            ((name, find_accelerator(name), usd) for name, usd in question.prices.items()), gpus
        ),
        inventory=inventory,
        budget_usd_per_hour=question.budget,
        wanted=question.top,
        seed=question.seed,
        split_gpus=question.max_gpus if question.disaggregate else 0,
    )


def _plan_answer(plan: Plan, question: PlanQuestion) -> dict[str, Any]:
    from tokenroom.planning.lengths import written
    from tokenroom.planning.verification import described
    from tokenroom.reports.plan_json import plan_json
    from tokenroom.reports.plan_markdown import markdown_lines

    language = Language(question.language)
    answer = plan_json(plan, language)
    prompt, output = (written(str(length)) for length in (question.input, question.output))
    for option, told in zip(plan.options, answer["plans"], strict=True):
        if option.proposal.candidate.split is not None:
            continue  # the load of several servers, of which /v1/simulate takes one
        told["simulated"]["workload"] = described(
            option.proposal, plan.demand, prompt=prompt, output=output, seed=question.seed
        )
    return answer | {"markdown": "\n".join(markdown_lines(plan, language))}


class _Teller:
    """Tells how far a search is: candidates first, then plans found.

    What has been found so far is told when there is a plan more, and now and then before.
    """

    def __init__(self, tell: OnProgress | None, candidates: int, wanted: int) -> None:
        self._tell = tell
        self._total = candidates + wanted
        self._candidates = candidates
        self._told = self._answered = time.monotonic()
        self._stage: tuple[str, int] | None = None

    def __call__(self, step: Progress, answer: Callable[[], dict[str, Any]]) -> None:
        if self._tell is None:
            return
        judged, now = step.phase == "judge", time.monotonic()
        stage = ("judge", 0) if judged else ("verify", step.done)
        further = self._stage not in (None, stage)
        self._stage = stage
        if not further and now - self._told < _TOLD_EVERY_SECONDS:
            return
        self._told = now
        done = step.done if judged else self._candidates + step.done
        figures = {"judged": float(step.done if judged else self._candidates)}
        if not judged:
            figures["found"] = float(step.done)
        found = None
        if further or now - self._answered > _ANSWERED_EVERY_SECONDS:
            found = answer()
            self._answered = time.monotonic()
        self._tell(done, self._total, figures, found)


def answer_recipe(question: RecipeQuestion, find: ModelFinder) -> dict[str, Any]:
    """What ``tokenroom recipe --json`` prints.

    Raises:
        TokenroomError: Something is unknown or out of range, or the deployment holds no request.
    """
    from dataclasses import replace

    from tokenroom.lookup.recipe import length_for, means_within, percentile, recipe
    from tokenroom.reports.lookup_text import recipe_json
    from tokenroom.serving.workloads.grammar import parse_workload

    if question.p95 is not None:
        p95 = _tokens(question.p95, "p95")
        prompt, output = means_within(
            p95,
            None if question.input is None else _tokens(question.input, "input"),
            None if question.output is None else _tokens(question.output, "output"),
        )
    else:
        workload = parse_workload(question.workload or "", allow_files=False)
        workload = replace(workload, requests=_DRAWS, duration_seconds=None)
        pairs = [(each.prompt_tokens, each.output_tokens) for each in workload]
        p95 = percentile([sum(pair) for pair in pairs])
        totals = (sum(lengths) for lengths in zip(*pairs, strict=True))
        prompt, output = (max(1, round(total / len(pairs))) for total in totals)
    arguments = deployment_arguments(question, find)
    own = arguments["model"].max_position_embeddings
    length = length_for(p95)
    arguments["context"] = length if own is None else min(length, own)
    wanted = None if question.tpot is None else parse_seconds(question.tpot, "tpot")
    with _asked_as(question):
        fitted = fit(**arguments)
    found = recipe(
        fitted,
        p95_tokens=p95,
        input_tokens=prompt,
        output_tokens=output,
        tpot_seconds=wanted,
    )
    return recipe_json(found, wanted, Language(question.language))


def answer_pools(
    question: PoolsQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom pools --json`` prints.

    Raises:
        TokenroomError: Something is unknown, out of range or refused.
    """
    from tokenroom.comparing.splitting import most_runs, splitting
    from tokenroom.execution.inline import Inline
    from tokenroom.execution.tasks import Outcome
    from tokenroom.reports.splitting_text import splitting_json
    from tokenroom.serving.workloads.source import DrawnSource, Part

    limits, server = _served(question, find)
    done, runs = 0, most_runs(question.draws)

    def hear(_: Outcome) -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, runs)

    found = splitting(
        server,
        question.servers,
        DrawnSource(description=question.workload, part=Part(limit=question.limit)),
        limits,
        Inline(),
        workers=1,
        draws=question.draws,
        on_outcome=hear,
    )
    return splitting_json(found, Language(question.language))


def check_pools(question: PoolsQuestion, find: ModelFinder) -> None:
    """Refuse what :func:`answer_pools` would refuse before it simulates anything.

    Raises:
        TokenroomError: Something is unknown, out of range or refused.
    """
    _served(question, find)


def _served(question: PoolsQuestion, find: ModelFinder) -> tuple[LatencyLimits, ServedDeployment]:
    """What is promised, and one of the servers."""
    from tokenroom.serving.metrics import LatencyLimits
    from tokenroom.serving.served_deployment import ServedDeployment
    from tokenroom.serving.workloads.grammar import parse_workload

    limits = LatencyLimits(
        ttft_seconds=None if question.ttft is None else parse_seconds(question.ttft, "ttft"),
        tpot_seconds=None if question.tpot is None else parse_seconds(question.tpot, "tpot"),
    )
    with called({"the workload": "workload"}):
        parse_workload(question.workload, allow_files=False)
    with _asked_as(question):
        server = ServedDeployment(fit=fit(**deployment_arguments(question, find)))
    if server.refused is not None:
        raise TokenroomError(
            "the deployment of one server does not start; POST /v1/fit says what would fit"
        )
    return limits, server


def answer_table(
    question: TableQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom table --json`` prints.

    Raises:
        TokenroomError: Something is unknown, or the table would be too large.
    """
    from tokenroom.lookup import tables
    from tokenroom.reports.lookup_text import table_json

    specs = [find(name) for name in question.models]
    gpus = [find_accelerator(name) for name in question.gpus]
    total = len(specs) * max(1, len(gpus))
    columns = len(question.users) if question.name == "gpus-for-users" else 1
    if total * columns > MAX_CELLS:
        raise TokenroomError(
            f"the table has {total * columns:,} cells to compute; ask for at most {MAX_CELLS}, "
            "with fewer models, gpus or users"
        )
    if question.name in ("concurrency", "gpus-for-users", "reference") and not gpus:
        raise TokenroomError(f"gpus is empty; table {question.name} needs at least one kind of GPU")
    done = 0

    def on_row() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total)

    tokens = _tokens(question.tokens, "tokens")
    match question.name:
        case "params":
            table = tables.parameters(specs, question.layouts)
        case "kv":
            lengths = [_tokens(value, "lengths") for value in question.lengths]
            table = tables.kv_cache(specs, question.kv, question.batches, lengths)
        case "concurrency":
            table = tables.concurrency(
                specs, gpus, tokens=tokens, engine=question.engine, on_row=on_row
            )
        case "reference":
            table = tables.reference(
                specs,
                gpus,
                tokens=tokens,
                requests=question.requests,
                engine=question.engine,
                on_row=on_row,
            )
        case _:
            table = tables.gpus_for_users(
                specs,
                gpus,
                lambda users: _table_demand(question, users),
                users=question.users,
                engine=question.engine,
                on_row=on_row,
            )
    return table_json(table, Language(question.language))


def _gpus(question: PlanQuestion) -> list[Accelerator]:
    """Kinds of GPU to choose from, each once."""
    if question.have and question.gpus_from:
        raise TokenroomError("have and gpus_from both say which GPUs; give one of them")
    names = question.have or question.gpus_from
    if not names:
        return list(load_catalogue())
    named = [find_accelerator(name) for name in names]
    return list({gpu.key: gpu for gpu in named}.values())


def _candidates(
    question: PlanQuestion, gpus: list[Accelerator], find: ModelFinder, space: TuningSpace
) -> list[Candidate]:
    from itertools import islice

    from tokenroom.models.quantization.hypothetical import check_layout
    from tokenroom.planning.candidates import candidates, in_each_layout
    from tokenroom.planning.choices import check_choices, largest_tried

    engines = list(dict.fromkeys(question.engines))
    kv_types = [None if kv == "auto" else kv for kv in dict.fromkeys(question.kv)]
    check_choices(engines, kv_types, space.drafts)
    layouts = list(dict.fromkeys(question.weights))
    with called({"the layout": "weights"}):
        for layout in layouts:
            check_layout(layout)
    specs = [find(name) for name in in_each_layout(dict.fromkeys(question.models), layouts)]
    most = question.max_gpus
    found = candidates(specs, gpus, engines=engines, kv_types=kv_types, most_gpus=most)
    tried = list(islice(found, MAX_CANDIDATES + 1))
    tried = tried or largest_tried(specs, gpus, engines=engines, most_gpus=most)
    if len(tried) > MAX_CANDIDATES:
        raise TokenroomError(
            f"more than {MAX_CANDIDATES:,} deployments would be tried; name fewer models, "
            "gpus_from, engines, weights or kv"
        )
    return tried


def _inventory(question: PlanQuestion) -> dict[str, int] | None:
    if not question.have:
        return None
    found: dict[str, int] = {}
    for name, count in question.have.items():
        key = find_accelerator(name).key
        found[key] = found.get(key, 0) + count
    return found


def _demand(question: PlanQuestion) -> Demand:
    from tokenroom.objectives import Objectives
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.lengths import of_texts

    given = [name for name in _LOADS if getattr(question, name) is not None]
    if len(given) != 1:
        raise TokenroomError(
            f"the load is given by {' and '.join(given) or 'nothing'}; give one of "
            f"{', '.join(_LOADS)}"
        )
    if question.think_time is not None and question.users is None:
        raise TokenroomError("think_time belongs to users; leave it out of concurrency and rate")
    if question.ttft is None and question.tpot is None:
        raise TokenroomError("nothing is promised; give ttft, tpot or both")
    lengths = of_texts(str(question.input), str(question.output), allow_files=False)
    context = None if question.context is None else _tokens(question.context, "context")
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=context or lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(
            tpot_seconds=None if question.tpot is None else parse_seconds(question.tpot, "tpot"),
            ttft_seconds=None if question.ttft is None else parse_seconds(question.ttft, "ttft"),
        ),
        users=question.users or question.concurrency,
        think_seconds=0.0
        if question.think_time is None
        else parse_seconds(question.think_time, "think_time"),
        requests_per_second=None
        if question.rate is None
        else parse_arrivals(question.rate, "rate"),
        burst=question.burst,
        statistic=question.keep,
    )


def _table_demand(question: TableQuestion, users: int) -> Demand:
    from tokenroom.objectives import Objectives
    from tokenroom.planning.demand import Demand
    from tokenroom.planning.lengths import of_means

    lengths = of_means(_tokens(question.input, "input"), _tokens(question.output, "output"))
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(
            tpot_seconds=parse_seconds(question.tpot, "tpot"),
            ttft_seconds=None if question.ttft is None else parse_seconds(question.ttft, "ttft"),
        ),
        users=users,
        think_seconds=0.0
        if question.think_time is None
        else parse_seconds(question.think_time, "think_time"),
    )


def _asked_as(question: DeploymentQuestion) -> AbstractContextManager[None]:
    """Have errors name the fields of a question that hold a deployment's settings."""
    held = {name: own for name, own in _DEPLOYMENT.items() if getattr(question, own) is not None}
    return called(held)


def _tokens(value: int | str, field: str) -> int:
    return parse_tokens(value, field) if isinstance(value, str) else value
