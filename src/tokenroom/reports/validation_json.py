"""What ``validate`` found as one JSON object (docs/json.md).

``schema_version`` is ``MAJOR.MINOR``: a new key raises the minor number, a changed or dropped one
the major number. Errors are in percent of the observed figure, other figures in the unit that the
quantity's name ends with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tokenroom.validation.comparison import Comparison, OutcomeCheck
from tokenroom.validation.statistics import Group
from tokenroom.validation.validate import Unpredicted, Validation

SCHEMA_VERSION: Final = "1.1"


def validation_json(found: Validation, *, num_skipped: int = 0) -> dict[str, Any]:
    """``found`` as plain JSON values.

    Args:
        found: What the run came to.
        num_skipped: Rows that could not be read and were skipped.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "num_rows": found.num_rows,
        "num_skipped": num_skipped,
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
    }


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
        "error_pct": item.error_pct,
        "explained_by": item.explained_by,
        "counts": item.counts,
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
