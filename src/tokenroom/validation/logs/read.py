"""A start-up log, of whichever engine, as a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import RowError
from tokenroom.hardware.catalogue import Catalogue
from tokenroom.validation.figures import numeric
from tokenroom.validation.logs.facts import Facts, LogReader
from tokenroom.validation.logs.lines import read_messages
from tokenroom.validation.logs.llama_cpp import LlamaCppLog
from tokenroom.validation.logs.sglang import SGLangLog
from tokenroom.validation.logs.tensorrt_llm import TensorRTLLMLog
from tokenroom.validation.logs.vllm import VLLMLog
from tokenroom.validation.prediction import by_memory
from tokenroom.validation.rows import Row, grade_of

READERS: Final[Mapping[str, Callable[[], LogReader]]] = {
    reader.engine: reader for reader in (VLLMLog, SGLangLog, LlamaCppLog, TensorRTLLMLog)
}
_PARALLEL: Final = (
    ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    ("tp_size", "pp_size"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a log does not say and its reader was told.

    Attributes:
        engine: The engine, None to recognise it.
        version: Its version, None for the log's.
        model: The model, None for the log's.
        command: The words that started it, to which the log's arguments add; None for those alone.
        gpu: Name of the accelerator, None for what the log gives away.
        gpus: How many, None for what the log gives away.
    """

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    command: str | None = None
    gpu: str | None = None
    gpus: int | None = None


def read_log(path: Path, catalogue: Catalogue, told: Started | None = None) -> Row:
    """The row that a log makes.

    Args:
        path: The log, plain or gzipped.
        catalogue: Accelerators by their memory, for logs that name none.
        told: What is known beside it.

    Raises:
        RowError: It cannot be read, or is the log of no engine known here.
    """
    told = told if told is not None else Started()
    readers = [make() for name, make in READERS.items() if told.engine in (None, name)]
    if not readers:
        raise RowError(f"logs of {told.engine} cannot be read; those of {', '.join(READERS)} can")
    words = [word for reader in readers for word in reader.words]
    for message in read_messages(path, words):
        for reader in readers:
            reader.feed(message)
    reader = max(readers, key=lambda item: item.best().num_figures)
    facts = reader.best()
    if not facts.figures and not facts.flags and facts.version is None:
        raise RowError(
            f"{path} holds no line that {' or '.join(item.engine for item in readers)} prints "
            f"while starting; give the start-up log, from its first line on"
        )
    return _row(path, reader, facts, catalogue, told)


def _row(path: Path, reader: LogReader, facts: Facts, catalogue: Catalogue, told: Started) -> Row:
    reported = dict(reader.finish(facts))
    inferred: list[str] = []
    gpu = told.gpu or facts.gpu
    total = numeric(reported.get("total_gpu_gib"))
    certain = gpu is not None
    if gpu is None and total is not None and (likely := by_memory(catalogue, total)):
        gpu = likely[0].name
        inferred.append("gpu")
        certain = len(likely) == 1
    model = told.model or facts.model
    flags = dict(facts.flags)
    gpus = told.gpus or facts.gpus or (None if told.command is not None else _product(flags))
    outcome = facts.outcome()
    return Row(
        id=re.sub(r"[^\w.-]+", "-", path.name.removesuffix(".gz").removesuffix(".log")) or "log",
        engine=reader.engine,
        engine_version=told.version or facts.version,
        model=model,
        gpu=gpu,
        gpus=gpus,
        flags=flags,
        command=told.command,
        reported=reported,
        outcome=outcome,
        error=facts.error if outcome not in (None, "ok") else None,
        grade=grade_of(reported, facts.flags, complete=model is not None and certain),
        inferred=tuple(inferred),
        place=str(path),
    )


def _product(flags: Mapping[str, Any]) -> int:
    """Accelerators that the parallel sizes among the flags need."""
    for names in _PARALLEL:
        sizes = [flags[name] for name in names if isinstance(flags.get(name), int)]
        if sizes:
            product = 1
            for size in sizes:
                product *= max(1, size)
            return product
    return 1
