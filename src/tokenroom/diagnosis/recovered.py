"""The deployment that a log is of, rebuilt as far as the log gives it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenroom.diagnosis.report import Report
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB
from tokenroom.validation.prediction import Predictor, by_memory
from tokenroom.validation.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is known of a deployment beside its log.

    Attributes:
        engine: Name of the engine, for a log that holds nothing of its start; None for what the
            lines look like.
        version: Its version, None for the log's.
        model: The model, None for the log's.
        gpu: The accelerator; None for the log's, or one of the memory that an error of PyTorch
            tells.
        gpus: How many, None for what the log gives away.
        flags: Arguments of the engine under its own names; what the log prints counts before them.
    """

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    gpu: Accelerator | None = None
    gpus: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What is known of a deployment.

    Attributes:
        row: What the engine printed of its start; None where it printed nothing.
        result: Its ledger; None where model, GPU or flags are not known well enough.
        missing: Why there is no ledger, as a sentence; empty where there is one.
    """

    row: Row | None
    result: FitResult | None
    missing: str = ""


def recover(
    report: Report,
    catalogue: Catalogue,
    *,
    name: str = "log",
    find_model: Callable[..., ModelSpec] = load_model,
    told: Told | None = None,
) -> Recovered:
    """Rebuild the deployment that printed a log.

    Args:
        report: What was read.
        catalogue: Accelerators.
        name: What the log is called.
        find_model: What looks up names of models.
        told: What is known beside it.
    """
    told = told if told is not None else Told()
    try:
        row = report.reading.row(Path(name), catalogue)
    except TokenroomError as error:
        engine = told.engine or report.engine
        if engine is None or told.model is None:
            return Recovered(row=None, result=None, missing=str(error))
        row = Row(id=name, engine=engine)
    row = replace(
        row,
        engine_version=told.version or row.engine_version,
        model=told.model or row.model,
        gpus=told.gpus or row.gpus,
        flags={**told.flags, **row.flags},
    )
    if told.gpu is not None:
        row = replace(row, gpu=told.gpu.name)
    elif row.gpu is None:
        row = _with_gpu(row, report, catalogue)
    found = Predictor(catalogue=catalogue, load=find_model, gpu=told.gpu).predict(row)
    return Recovered(row=row, result=found.result, missing=found.reason)


def _with_gpu(row: Row, report: Report, catalogue: Catalogue) -> Row:
    """The row with the GPU whose memory an error tells, where there is one such GPU."""
    for found in report.of("torch_oom"):
        total = found.size_bytes("total") or found.size_bytes("capacity")
        likely = [] if total is None else by_memory(catalogue, total / GIB)
        if likely:
            return replace(row, gpu=likely[0].name, inferred=(*row.inferred, "gpu"))
    return row
