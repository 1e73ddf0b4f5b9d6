"""A start-up log, of whichever engine, as a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenroom.engines.registry import engine_title
from tokenroom.errors import HardwareError, RowError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.hardware.catalogue import Catalogue
from tokenroom.models.quantization.hypothetical import known_layouts
from tokenroom.units import GIB
from tokenroom.validation.figures import numeric
from tokenroom.validation.logs.facts import Facts, LogReader
from tokenroom.validation.logs.lines import Message, read_messages
from tokenroom.validation.logs.llama_cpp import LlamaCppLog
from tokenroom.validation.logs.sglang import SGLangLog
from tokenroom.validation.logs.tensorrt_llm import TensorRTLLMLog
from tokenroom.validation.logs.vllm import VLLMLog
from tokenroom.validation.models import without_layout
from tokenroom.validation.prediction import by_memory
from tokenroom.validation.rows import Row, grade_of

READERS: Final[Mapping[str, Callable[[], LogReader]]] = {
    reader.engine: reader for reader in (VLLMLog, SGLangLog, LlamaCppLog, TensorRTLLMLog)
}
_MEMORY_SPREAD: Final = 0.03
"""What the memory of one kind of GPU differs by, with the driver and error correction."""
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
    reading = Reading(told)
    for message in read_messages(path, reading.words):
        reading.feed(message)
    return reading.row(path, catalogue)


class Reading:
    """One log, read message by message by the readers of every engine.

    Args:
        told: What is known beside it.

    Raises:
        RowError: An engine is told whose logs are not read.
    """

    def __init__(self, told: Started | None = None) -> None:
        self._told = told if told is not None else Started()
        if self._told.engine not in (None, *READERS):
            raise RowError(
                f"logs of {self._told.engine} cannot be read; those of {', '.join(READERS)} can"
            )
        self._readers = [make() for make in READERS.values()]

    @property
    def words(self) -> list[str]:
        """Words of the lines that the readers want to see."""
        return [word for reader in self._readers for word in reader.words]

    def feed(self, message: Message) -> None:
        """Take in one message."""
        for reader in self._readers:
            reader.feed(message)

    @property
    def facts(self) -> Facts:
        """What is known of the start, by the reader that knows most, or saw it serve."""
        starts = [reader.best() for reader in self._readers]
        return max(starts, key=lambda facts: (facts.num_figures, facts.started))

    def row(self, path: Path, catalogue: Catalogue) -> Row:
        """The row that the log makes.

        Args:
            path: What the row is called by.
            catalogue: Accelerators by their memory, for logs that name none.

        Raises:
            RowError: It is the log of no engine known here.
        """
        told, readers = self._told, self._readers
        reader = max(readers, key=lambda item: item.best().num_figures)
        if told.engine is not None:
            own = next(item for item in readers if item.engine == told.engine)
            if reader.engine != told.engine and reader.best().num_figures > own.best().num_figures:
                raise RowError(
                    f"{path} is a log of {engine_title(reader.engine)} and "
                    f"{engine_title(told.engine)} is named with it; give the log of the engine "
                    f"that the command starts"
                )
            readers, reader = [own], own
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
    if model is not None and facts.layout is not None:
        model = _in_layout(model, facts.layout)
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
        differs=tuple(_differences(facts, told, total, catalogue)),
    )


def _in_layout(model: str, layout: str) -> str:
    """A model's name with the layout that the log prints, where neither name nor file says it."""
    stated = without_layout(model)[1]
    is_file = model.lower().endswith((".gguf", ".safetensors")) or Path(model).exists()
    known = layout.lower() in known_layouts()
    return model if stated or is_file or not known else f"{model} {layout}"


def _differences(
    facts: Facts, told: Started, total_gib: float | None, catalogue: Catalogue
) -> Iterator[tuple[str, str, str]]:
    """What the log says otherwise than whoever gave it: what, the log's word, the other."""
    if facts.model and told.model and not _same_model(facts.model, told.model):
        yield "model", facts.model, told.model
    if facts.version and told.version:
        numbers = [re.findall(r"\d+", version)[:3] for version in (facts.version, told.version)]
        shared = min(map(len, numbers))
        if numbers[0][:shared] != numbers[1][:shared]:
            yield "version", facts.version, told.version
    if told.gpu is None:
        return
    given = _known_gpu(catalogue, told.gpu)
    logged = _known_gpu(catalogue, facts.gpu)
    if given is None:
        return
    if logged is not None and logged.name != given.name:
        yield "GPU", logged.name, given.name
    elif total_gib is not None and total_gib >= 1:
        memory = given.memory_bytes / GIB
        if abs(memory - total_gib) > _MEMORY_SPREAD * total_gib:
            yield "GPU", f"{total_gib:.2f} GiB", f"{given.name} ({memory:.2f} GiB)"


def _same_model(logged: str, given: str) -> bool:
    """Whether two names may mean one model: owner, folder, ending and layout aside.

    A folder or file whose name holds no digit is no model's name and says nothing.
    """
    names = []
    for name in (logged, given):
        cached = re.search(r"models--[^/]+--([^/]+)", name)
        last = cached[1] if cached else re.split(r"[/\\]", name.rstrip("/\\"))[-1]
        last = re.sub(r"\.gguf$|-\d{5}-of-\d{5}|:.*$", "", last, flags=re.I)
        names.append(re.sub(r"[^a-z0-9]", "", without_layout(last)[0].lower()))
    if any(not re.search(r"\d", name) for name in names):
        return True
    return names[0] in names[1] or names[1] in names[0]


def _known_gpu(catalogue: Catalogue, name: str | None) -> Accelerator | None:
    try:
        return None if name is None else catalogue.find(name)
    except HardwareError:
        return None


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
