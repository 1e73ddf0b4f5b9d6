"""Lists that do not change while a server runs, as JSON text."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tokenroom.engines.registry import engine_named, engine_names, engine_title
from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.models import catalogue
from tokenroom.models.quantization.hypothetical import known_layouts
from tokenroom.reports.text import accelerator_json, model_json
from tokenroom.serving.workloads.presets import load_presets


@lru_cache(maxsize=1)
def models_text() -> str:
    """Every model of the catalogue, as ``tokenroom models --json`` prints them."""
    return json.dumps({"models": [_model(name) for name in catalogue.names()]})


@lru_cache(maxsize=1)
def gpus_text() -> str:
    """Every GPU, as ``tokenroom gpus --json`` prints them."""
    known = load_catalogue()
    return json.dumps({"gpus": [accelerator_json(gpu, known.slices(gpu)) for gpu in known]})


@lru_cache(maxsize=1)
def engines_text() -> str:
    """Every engine with its settings by its own names, and every layout of weights."""
    return json.dumps(
        {"engines": [_engine(name) for name in engine_names()], "layouts": known_layouts()}
    )


@lru_cache(maxsize=1)
def workloads_text() -> str:
    """Workloads that have a name, as ``tokenroom workload --presets`` lists them."""
    return json.dumps({"workloads": [asdict(preset) for preset in load_presets().values()]})


def claims_text() -> str:
    """Every published claim, as ``tokenroom claims --recorded --json`` prints them."""
    from tokenroom.claims.index import all_claims, answers
    from tokenroom.reports.claims_text import claims_json

    return json.dumps(claims_json(list(answers(all_claims(), live=False))))


def accuracy_text() -> str:
    """Errors by engine and quantity over the rows that docs/accuracy.md is written from."""
    return files("tokenroom.validation").joinpath("data/accuracy.json").read_text("utf-8")


def _model(name: str) -> dict[str, Any]:
    model = catalogue.entry(name)
    return model_json(model, catalogue.specification(model))


def _engine(name: str) -> dict[str, Any]:
    policy, _ = engine_named(name)
    return {"name": policy.name, "title": engine_title(name)}
