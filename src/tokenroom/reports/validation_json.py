"""What ``validate`` found as one JSON object (docs/json.md).

Its schema is ``data/validation.schema.json``, printed by ``tokenroom validate --json-schema``;
``schema_version`` is ``MAJOR.MINOR``: a new key raises the minor number, a changed or dropped one
the major number. Errors are in percent of the observed figure, other figures in the unit that the
quantity's name ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from tokenroom.validation.comparison import Comparison, OutcomeCheck
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_statistics import SpeedGroup, speed_groups, speed_order
from tokenroom.validation.statistics import Group
from tokenroom.validation.validate import Unpredicted, Validation

SCHEMA_VERSION: Final = "1.3"
_EVERY_PART: Final = ("engine", "engine_version", "gpu", "architecture_class")


def validation_json(found: Validation, *, bad: Sequence[str] = ()) -> dict[str, Any]:
    """``found`` as plain JSON values.

    Args:
        found: What the run came to.
        bad: Why each row that could not be read could not.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "num_rows": found.num_rows,
        "num_skipped": len(bad),
        "interrupted": found.interrupted,
        "rows": [_row(item) for item in found.comparisons],
        "groups": [
            {
                "engine": group.engine,
                "quantity": group.quantity,
                "architecture_class": group.architecture_class,
                "grade": group.grade,
                **_errors(group),
            }
            for group in found.groups
        ],
        "by_quantity": [
            {"engine": group.engine, "quantity": group.quantity, **_errors(group)}
            for group in found.quantities
        ],
        "by_version": [
            {
                "engine": group.engine,
                "quantity": group.quantity,
                "engine_version": group.engine_version,
                **_errors(group),
            }
            for group in found.versions
        ],
        "outcomes": [_outcome(item) for item in found.outcomes],
        "unpredicted": _reasons(found.unpredicted),
        "partly_predicted": _reasons(found.partly),
        "left_out": _reasons(found.left_out),
        "remarks": [
            {"id": remark.id, "key": remark.key, "values": dict(remark.values)}
            for remark in found.remarks
        ],
        "odd_values": [
            {"id": item.id, "place": item.place, "reason": item.reason} for item in found.odd
        ],
        "bad_rows": list(bad),
        **_speeds(found),
    }


def schema_text() -> str:
    """The JSON schema of the object, as packaged."""
    return files("tokenroom.reports").joinpath("data/validation.schema.json").read_text("utf-8")


def _row(item: Comparison) -> dict[str, Any]:
    return {
        "id": item.id,
        "engine": item.engine,
        "engine_version": item.engine_version,
        "quantity": item.quantity,
        "architecture_class": item.architecture_class,
        "grade": item.grade,
        "predicted": item.predicted,
        "observed": item.observed,
        "observed_half_digit": item.half_digit,
        "error_pct": item.error_pct,
        "explained_by": item.explained_by,
        "counts": item.counts,
    }


def _speeds(found: Validation) -> dict[str, Any]:
    counted = found.counted_speeds
    fitted = [item for item in found.speeds if item.fitted and not item.repeats]
    return {
        "speeds": [_speed(item) for item in found.speeds],
        "speed_groups": [
            _speed_group(group)
            for by in ((), ("engine",), ("gpu",), ("architecture_class",), _EVERY_PART)
            for group in speed_groups(counted, *by)
        ],
        "speed_groups_fitted": [_speed_group(group) for group in speed_groups(fitted, "engine")],
        "speed_order": [
            {"gpu": item.gpu, "pairs": item.pairs, "kendall_tau": item.tau}
            for item in speed_order(counted)
        ],
    }


def _speed(item: SpeedComparison) -> dict[str, Any]:
    return {
        "id": item.id,
        "engine": item.engine,
        "engine_version": item.engine_version,
        "gpu": item.gpu,
        "gpus": item.gpus,
        "model": item.model,
        "precision": item.precision,
        "architecture_class": item.architecture_class,
        "input_tokens": item.input_tokens,
        "output_tokens": item.output_tokens,
        "concurrency": item.concurrency,
        "quantity": item.quantity,
        "predicted": item.predicted,
        "low": item.low,
        "high": item.high,
        "observed": item.observed,
        "error_pct": item.error_pct,
        "inside": item.inside,
        "derived": item.derived,
        "counts": item.counts,
    }


def _speed_group(group: SpeedGroup) -> dict[str, Any]:
    return {
        "quantity": group.quantity,
        "engine": group.engine,
        "engine_version": group.engine_version,
        "gpu": group.gpu,
        "architecture_class": group.architecture_class,
        "n": group.n,
        "median_abs_pct": group.median_abs_pct,
        "p90_abs_pct": group.p90_abs_pct,
        "median_ratio": group.bias,
        "inside_share": group.inside_share,
    }


def _errors(group: Group) -> dict[str, Any]:
    return {
        "n": group.n,
        "median_abs_pct": group.median_abs_pct,
        "p90_abs_pct": group.p90_abs_pct,
        "worst_abs_pct": group.worst_abs_pct,
        "bias_pct": group.bias_pct,
    }


def _outcome(item: OutcomeCheck) -> dict[str, Any]:
    return {
        "id": item.id,
        "engine": item.engine,
        "grade": item.grade,
        "observed": item.observed,
        "verdict": item.verdict,
        "cause": item.cause,
        "warnings": list(item.warnings),
        "agrees": item.agrees,
        "explained_by": item.explained_by,
        "counts": item.counts,
    }


def _reasons(items: Iterable[Unpredicted]) -> list[dict[str, Any]]:
    return [
        {"id": item.id, "engine": item.engine, "grade": item.grade, "reason": item.reason}
        for item in items
    ]
