"""The OpenAPI document, with the schemas of ``--json`` as what the endpoints answer."""

from __future__ import annotations

import json
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tokenroom.reports import (
    claims_text,
    diagnosis_text,
    fit_json,
    plan_json,
    playback_json,
    simulation_json,
    speed_json,
    validation_json,
    watch_json,
)
from tokenroom.reports.lookup_text import schema_text

_DESCRIPTION: Final = (
    "How much room for tokens GPUs have. Answers are those of the command line's --json, whose "
    "schemas are versioned by schema_version. A question that cannot be answered gets 422 and "
    "one sentence: which field, what it held, what it may hold."
)
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}},
        }
    },
}
_REFUSALS: Final = {
    "400": "The body is no JSON.",
    "408": "The body took too long to come.",
    "413": "The body is too large.",
    "415": "The body is packed.",
    "422": "The question cannot be answered.",
    "503": "Too many questions wait, or the file of jobs cannot be used.",
}

_BEGIN_JOBS: Final = ("/v1/jobs", "/v1/simulate", "/v1/plan", "/v1/pools")
_LINKS: Final = {
    summary: {
        "operationRef": f"#/paths/~1v1~1jobs~1{{job_id}}{path}/{method}",
        "parameters": {"job_id": "$response.body#/id"},
    }
    for summary, path, method in (
        ("stand", "", "get"),
        ("result", "~1result", "get"),
        ("events", "~1events", "get"),
        ("end", "", "delete"),
    )
}


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    from importlib.metadata import version

    made = get_openapi(
        title=app.title,
        version=version("tokenroom"),
        description=_DESCRIPTION,
        routes=app.routes,
    )
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    answers = {
        "/v1/fit": _component(schemas, "Fit", fit_json.schema_text()),
        "/v1/speed": _component(schemas, "Speed", speed_json.schema_text()),
        "/v1/sweep": _component(schemas, "Sweep", fit_json.schema_text(sweep=True)),
        "/v1/validate": _component(schemas, "Validation", validation_json.schema_text()),
        "/v1/explain": _component(schemas, "Diagnosis", diagnosis_text.schema_text()),
        "/v1/claims": _component(schemas, "Claims", claims_text.schema_text()),
        "/v1/recipe": _component(schemas, "Recipe", schema_text("recipe")),
        "/v1/watch": _component(schemas, "Watch", watch_json.schema_text()),
        "/v1/tables": _component(schemas, "Table", schema_text("table")),
    }
    of_jobs = [answers[f"/v1/{kind}"] for kind in ("sweep", "speed", "validate", "tables")]
    of_jobs.append(_simulation(schemas))
    of_jobs.append(_component(schemas, "Plan", plan_json.schema_text()))
    of_jobs.append(_component(schemas, "Pools", schema_text("pools")))
    answers["/v1/jobs/{job_id}/result"] = {"anyOf": of_jobs}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            if path in answers:
                responses["200"]["content"] = {"application/json": {"schema": answers[path]}}
            if method == "post":
                for status, text in _REFUSALS.items():
                    responses[status] = _refusal(text)
                if path in _BEGIN_JOBS:
                    responses["202"]["links"] = _LINKS
                    responses["429"] = _refusal("As many jobs wait as may.")
            elif "{" in path or path in ("/health", "/metrics"):
                responses["503"] = _refusal("The file of jobs cannot be used.")
            if "{" in path:
                responses["404"] = _refusal("There is no such job.")
                if path.endswith("/result"):
                    responses["409"] = _refusal("The job has no result.")
    return made


def _refusal(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _simulation(schemas: dict[str, Any]) -> dict[str, Any]:
    """What a simulation answers: as on the command line, and the run as a moving picture."""
    answer = _component(schemas, "Simulation", simulation_json.schema_text())
    served, _ = schemas["Simulation"]["oneOf"]
    served["properties"]["playback"] = _component(schemas, "Playback", playback_json.schema_text())
    served["required"].append("playback")
    return answer


def _component(schemas: dict[str, Any], name: str, text: str) -> dict[str, Any]:
    """A schema among the document's, its definitions beside it."""
    text = text.replace('"#/$defs/', f'"#/components/schemas/{name}-')
    schema = json.loads(text.replace('"#/properties/', f'"#/components/schemas/{name}/properties/'))
    for inner, definition in schema.pop("$defs", {}).items():
        schemas[f"{name}-{inner}"] = definition
    for key in [key for key in schema if key.startswith("$")]:
        del schema[key]
    schemas[name] = schema
    return {"$ref": f"#/components/schemas/{name}"}
