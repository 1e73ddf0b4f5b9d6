"""Questions that are answered at once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from tokenroom.reports.messages import Language
from tokenroom.web import catalogues
from tokenroom.web.answer_forms import Accuracy, Engines, Gpus, Models, Read, Workloads
from tokenroom.web.job_routes import begun
from tokenroom.web.jobs import Job
from tokenroom.web.questions import (
    ClaimsQuestion,
    ExplainQuestion,
    FitQuestion,
    PlanQuestion,
    PoolsQuestion,
    ReadQuestion,
    RecipeQuestion,
    SimulateQuestion,
    SpeedQuestion,
    SweepQuestion,
    TableQuestion,
    ValidateQuestion,
)
from tokenroom.web.server import Server, server_of

router = APIRouter(prefix="/v1")
OfServer = Annotated[Server, Depends(server_of)]


def _answers(form: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": form}}


def _json(text: str | bytes) -> Response:
    return Response(text, media_type="application/json")


@router.post("/fit", summary="Does it fit, what takes the memory, how many tokens are left")
async def fit(question: FitQuestion, server: OfServer) -> Response:
    """What ``tokenroom fit --json`` prints."""
    return _json(await server.questioner.fit(question))


@router.post("/speed", summary="How fast it serves, and what holds it back")
async def speed(question: SpeedQuestion, server: OfServer) -> Response:
    """What ``tokenroom speed --json`` prints; with ``sweep``, what ``--sweep`` adds."""
    return _json(await server.questioner.speed(question))


@router.post("/sweep", summary="How the answer grows with concurrency, context or block size")
async def sweep(question: SweepQuestion, server: OfServer) -> Response:
    """What ``tokenroom fit --sweep --json`` prints; long ones are better asked as a job."""
    return _json(await server.questioner.ask("sweep", question.model_dump()))


@router.post("/validate", summary="How right the predictions are on rows of measurements")
async def validate(question: ValidateQuestion, server: OfServer) -> Response:
    """What ``tokenroom validate --json`` prints; many rows are better asked as a job."""
    return _json(await server.questioner.ask("validate", question.model_dump()))


@router.post(
    "/simulate",
    summary="What clients see when a workload is served, begun as a job",
    status_code=202,
    responses={202: {"model": Job}},
)
async def simulate(question: SimulateQuestion, server: OfServer) -> Response:
    """The job, as POST /v1/jobs of kind ``simulate`` gives it.

    Its result is what ``tokenroom simulate --json`` prints and ``playback``, the run as a moving
    picture. While it runs, ``figures`` of the job tell what it has found so far. At most 20,000
    requests are simulated.
    """
    return await begun(server, "simulate", question)


@router.post(
    "/plan",
    summary="Which deployments hold a load under promises, begun as a job",
    status_code=202,
    responses={202: {"model": Job}},
)
async def plan(question: PlanQuestion, server: OfServer) -> Response:
    """The job, as POST /v1/jobs of kind ``plan`` gives it.

    Its result is what ``tokenroom plan --json`` prints.
    """
    return await begun(server, "plan", question)


@router.post(
    "/pools",
    summary="Whether short and long prompts are better served apart, begun as a job",
    status_code=202,
    responses={202: {"model": Job}},
)
async def pools(question: PoolsQuestion, server: OfServer) -> Response:
    """The job, as POST /v1/jobs of kind ``pools`` gives it.

    Its result is what ``tokenroom pools --json`` prints.
    """
    return await begun(server, "pools", question)


@router.post("/recipe", summary="Settings for requests of known lengths, step by step")
async def recipe(question: RecipeQuestion, server: OfServer) -> Response:
    """What ``tokenroom recipe --json`` prints."""
    return _json(await server.questioner.ask("recipe", question.model_dump()))


@router.post("/tables", summary="A look-up table for any models and GPUs")
async def tables(question: TableQuestion, server: OfServer) -> Response:
    """What ``tokenroom table --json`` prints."""
    return _json(await server.questioner.ask("table", question.model_dump()))


@router.post("/explain", summary="Why a server ran out of memory, by its log")
async def explain(question: ExplainQuestion, server: OfServer) -> Response:
    """What ``tokenroom explain --json`` prints."""
    return _json(await server.questioner.ask("explain", question.model_dump()))


@router.get("/claims", summary="Published claims, each beside what is computed here")
async def all_claims(server: OfServer) -> Response:
    """What ``tokenroom claims --recorded --json`` prints: all rows, in English and in Chinese."""
    return _json(await server.questioner.claims(ClaimsQuestion.model_validate({})))


@router.post("/claims", summary="Some published claims, computed anew where that is wanted")
async def claims(question: ClaimsQuestion, server: OfServer) -> Response:
    """What ``tokenroom claims ROW... --json`` prints, in English and in Chinese."""
    return _json(await server.questioner.claims(question))


@router.post(
    "/read", summary="What a pasted or dropped text is, as a question", responses=_answers(Read)
)
async def read(question: ReadQuestion, server: OfServer) -> Response:
    """``kind`` (``config``, ``command`` or ``log``) and the fields of a question that it fills."""
    return _json(await server.questioner.ask("read", question.model_dump()))


@router.get("/watch", summary="What the servers that the operator named hold now")
async def watch(
    server: OfServer,
    since: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    language: Language = Language.ENGLISH,
) -> Response:
    """What ``tokenroom watch --json`` prints; with ``since`` also what was seen after it, in short.

    No endpoints and no GPUs where ``tokenroom serve --watch`` named none. Clients cannot name any.
    """
    return _json(await asyncio.to_thread(server.watch.text, language, since))


@router.get("/models", summary="Models known by name", responses=_answers(Models))
async def models() -> Response:
    """What ``tokenroom models --json`` prints."""
    return _json(await asyncio.to_thread(catalogues.models_text))


@router.get("/gpus", summary="GPUs known by name", responses=_answers(Gpus))
async def gpus() -> Response:
    """What ``tokenroom gpus --json`` prints."""
    return _json(await asyncio.to_thread(catalogues.gpus_text))


@router.get("/engines", summary="Engines and layouts of weights", responses=_answers(Engines))
async def engines() -> Response:
    """Names that ``engine`` and ``weights`` may have."""
    return _json(await asyncio.to_thread(catalogues.engines_text))


@router.get("/workloads", summary="Workloads that have a name", responses=_answers(Workloads))
async def workloads() -> Response:
    """Presets with their descriptions and the sources of their figures."""
    return _json(await asyncio.to_thread(catalogues.workloads_text))


@router.get(
    "/accuracy",
    summary="How far predictions are from what engines printed",
    responses=_answers(Accuracy),
)
async def accuracy() -> Response:
    """Errors by engine and quantity, in percent of the printed figure."""
    return _json(catalogues.accuracy_text())
