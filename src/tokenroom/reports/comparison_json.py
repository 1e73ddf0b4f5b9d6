"""The answer of ``compare`` as a JSON object, whose schema is published beside this module.

The schema (``data/comparison.schema.json``, printed by ``tokenroom compare --json-schema``) is
versioned by ``schema_version``: a new key raises the minor number, a changed or dropped one the
major number. Times are seconds, shares 0 to 1, prices USD.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from tokenroom.comparing.comparison import Comparison, Subject
from tokenroom.comparing.differences import Mean
from tokenroom.comparing.figures import FIGURES
from tokenroom.reports.comparison_text import notices_of, refused_because
from tokenroom.reports.messages import Language
from tokenroom.reports.speed_json import subject_json
from tokenroom.serving.served_deployment import ServedDeployment

SCHEMA_VERSION: Final = "1.0"


def comparison_json(found: Comparison, language: Language) -> dict[str, Any]:
    """What the deployments do with the same requests, and what sets them apart."""
    base = found.compared[0] if found.compared else None
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": found.workload.name,
        "drawn_by": found.drawn_by,
        "draws": None if found.drawn_by is None else list(found.draws),
        "complete_draws": None if found.drawn_by is None else list(found.complete_draws),
        "confidence": found.confidence,
        "interval": "student_t_of_paired_differences" if len(found.draws) > 1 else None,
        "limits": None
        if found.limits is None
        else {
            "ttft_seconds": found.limits.ttft_seconds,
            "tpot_seconds": found.limits.tpot_seconds,
        },
        "baseline": None if base is None else base.name,
        "interrupted": found.interrupted,
        "deployments": [_subject(found, subject, base, language) for subject in found.subjects],
        "lost_runs": [
            {"deployment": name, "draw": draw, "reason": reason}
            for (name, draw), reason in found.problems.items()
        ],
    }


def _subject(
    found: Comparison, subject: Subject, base: Subject | None, language: Language
) -> dict[str, Any]:
    done = subject.starts and bool(found.complete_draws)
    means = {
        figure.key: _mean(found.mean(subject, figure.key)) if done else None for figure in FIGURES
    }
    differences = (
        {figure.key: _difference(found, subject, base, figure.key) for figure in FIGURES}
        if done and base is not None and subject is not base
        else None
    )
    return {
        "name": subject.name,
        "starts": subject.starts,
        "reason": refused_because(subject, language),
        "pools": list(_pools(subject)),
        "runs": [{"draw": draw, **answer} for draw, answer in found.answers[subject.name].items()],
        "means": means,
        "differences": differences,
        "warnings": notices_of(subject, language),
    }


def _pools(subject: Subject) -> Iterator[dict[str, Any]]:
    """What serves: engine, model and hardware of each pool's servers, and how many they are."""
    servers = subject.servers
    if servers is None:
        return
    pools = (None,) if isinstance(servers, ServedDeployment) else servers.description.pools
    for pool, fit in zip(pools, servers.fits, strict=True):
        told = subject_json(fit, SCHEMA_VERSION)
        yield {
            "name": None if pool is None else pool.name,
            "replicas": 1 if pool is None else pool.replicas,
            **{key: told[key] for key in ("verdict", "engine", "model", "hardware")},
        }


def _mean(mean: Mean | None) -> dict[str, Any] | None:
    if mean is None:
        return None
    return {"value": mean.value, **_ends(mean)}


def _ends(mean: Mean) -> dict[str, float | None]:
    half = mean.half_width
    return {
        "low": None if half is None else mean.value - half,
        "high": None if half is None else mean.value + half,
    }


def _difference(
    found: Comparison, subject: Subject, base: Subject, key: str
) -> dict[str, Any] | None:
    difference, of_base = found.difference(subject, key), found.mean(base, key)
    if difference is None or of_base is None:
        return None
    return {
        "value": difference.value,
        **_ends(difference),
        "relative": difference.value / of_base.value if of_base.value else None,
        "significant": difference.excludes_zero,
    }


def schema_text() -> str:
    """The JSON schema of the object, as text."""
    return files("tokenroom.reports").joinpath("data/comparison.schema.json").read_text("utf-8")
