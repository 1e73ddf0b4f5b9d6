"""What a pasted or dropped text is, as a question: a config.json, a command, or a log."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenroom.engines.policy import Engine
from tokenroom.engines.registry import (
    chosen_start,
    command_parser,
    engine_named,
    program_names,
)
from tokenroom.errors import ModelError, RowError, TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import find_accelerator, load_catalogue
from tokenroom.models.quantization.hypothetical import known_layouts
from tokenroom.units import GIB
from tokenroom.validation.models import without_layout
from tokenroom.validation.rows import Row
from tokenroom.web.answers import ModelFinder

if TYPE_CHECKING:
    from tokenroom.web.questions import ReadQuestion

_UNASKED: Final = frozenset({"version", "unknown_flags", "ignored_flags", "environment", "usage"})
_MAX_COMMAND_LINES: Final = 400
_NO_CONFIG: Final = frozenset(
    {
        *("duration", "total_input_tokens", "completed", "max_concurrency", "benchmarks"),
        *("request_throughput", "records", "input_config"),
    }
)
"""Keys of what benchmarks write, which no configuration of a model has."""
_PARALLEL: Final = (
    ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    ("tp_size", "pp_size", "dp_size"),
)
_STEERING: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x00")
"""Colours of a terminal, and what no text holds."""
_ANY_GPU: Final = "h100"  # how many are needed depends on no property of one
_LENGTHS: Final = ("max_model_len", "context_length", "max_seq_len", "n_ctx")
_SHARES: Final = ("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction")


def answer_read(question: ReadQuestion, find: ModelFinder) -> dict[str, Any]:
    """What kind of text it is, and the fields of a question that it fills.

    Raises:
        TokenroomError: It is none of the three, or names what is not known.
    """
    text = _STEERING.sub("", question.text)
    config = _object(text)
    if config is not None:
        if _NO_CONFIG.isdisjoint(config):
            return {"kind": "config", "question": {"config": text, **_architecture(config)}}
        raise ModelError(
            "the text is JSON without model_type or architectures, so it is no config.json; what a "
            "benchmark wrote is for tokenroom calibrate and tokenroom validate"
        )
    refused: TokenroomError | None = None
    if text.count("\n") <= _MAX_COMMAND_LINES:
        try:
            return {"kind": "command", "question": _of_command(text, question.service, find)}
        except TokenroomError as error:
            refused = error
    try:
        return {"kind": "log", "question": _of_log(text, question, find)}
    except _NoLogError as error:
        if refused is not None and any(name in text for name in program_names()):
            raise refused from None
        raise RowError(
            "the text is no config.json, no command that starts a known engine, and no start-up "
            "log of one; paste it whole"
        ) from error


class _NoLogError(Exception):
    """No engine printed the text."""


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _architecture(config: dict[str, Any]) -> dict[str, Any]:
    """The longest request that the model was trained for, where it is stated plainly."""
    longest = config.get("max_position_embeddings")
    return {"context": longest} if isinstance(longest, int) and 0 < longest < 2**24 else {}


def _of_command(text: str, service: str | None, find: ModelFinder) -> dict[str, Any]:
    """What a command says, as fields; the command itself too where they cannot say it all."""
    engine, chosen = chosen_start(text, {}, service=service)
    parsed = command_parser(engine)(chosen, environment={}, allow_files=False)
    policy, _ = engine_named(engine)
    found, whole = plain_settings(policy, parsed.settings)
    gpus = policy.place(find_accelerator(_ANY_GPU), parsed.gpus, parsed.settings).count
    _drop_plain_split(found, gpus)
    model, layout = _file_of_a_known_model(parsed.model)
    question = {
        "model": model,
        "engine": engine,
        "version": parsed.version or "",
        "gpus": gpus,
        "context": _taken(found, _LENGTHS) or _longest(parsed.model, find),
        "kv": _taken(found, ("kv_cache_dtype",)) or "",
        "util": _written(_taken(found, _SHARES)),
        "weights": layout or parsed.weights or "",
        "settings": _lines(found),
        "notes": list(parsed.notes),
    }
    if parsed.accelerator_hint:
        question["gpu"] = parsed.accelerator_hint
    if not whole:
        question["command"] = text.strip()
    return question


def _of_log(text: str, question: ReadQuestion, find: ModelFinder) -> dict[str, Any]:
    from tokenroom.validation.logs.read import read_log
    from tokenroom.validation.prediction import Predictor

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pasted.log"
        path.write_bytes(text.encode("utf-8", "replace"))
        try:
            row = read_log(path, load_catalogue())
        except RowError as error:
            raise _NoLogError from error
    notes = []
    if row.gpu is None:
        row = replace(row, gpu=question.gpu)
        notes.append(f"the log names no GPU: {question.gpu} is taken")
    prediction = Predictor(load=find).predict(row)
    if prediction.result is None and question.model is not None:
        named = f"its model {row.model}" if row.model is not None else "its model, which it lacks,"
        notes.append(f"{named} is not known: the log is taken as one of {question.model}")
        prediction = Predictor(load=find).predict(replace(row, model=question.model))
    if prediction.result is None:
        raise RowError(f"the {row.engine} log was read, but {prediction.reason}")
    notes += _printed(row, prediction.result)
    return question_of(prediction.result) | {"notes": notes, "read": dict(row.reported)}


def _printed(row: Row, result: FitResult) -> Iterator[str]:
    """What the engine printed, beside what is predicted."""
    if row.outcome not in (None, "ok"):
        yield f"the log ends in a failure: {row.error or row.outcome}"
    tokens = row.reported.get("kv_tokens")
    if isinstance(tokens, int | float):
        yield f"the log prints {tokens:,} tokens; {result.plan.kv_pool_tokens:,} are predicted"
    room = row.reported.get("kv_gib")
    if isinstance(room, int | float):
        size = result.governing_stage.kv_pool_bytes / GIB
        yield f"the log prints {room} GiB for the cache; {size:.2f} are predicted"


def question_of(result: FitResult) -> dict[str, Any]:
    """The fields of a question that asks for a deployment."""
    deployment = result.deployment
    found, _ = plain_settings(result.engine, deployment.asked)
    _drop_plain_split(found, deployment.node.count)
    return {
        "model": deployment.spec.name,
        "gpu": deployment.node.accelerator.key,
        "gpus": deployment.node.count,
        "engine": deployment.engine,
        "version": deployment.version,
        "context": _taken(found, _LENGTHS) or result.plan.max_model_len,
        "kv": _taken(found, ("kv_cache_dtype",)) or "",
        "util": _written(_taken(found, _SHARES)),
        "weights": deployment.spec.layout or "",
        "settings": _lines(found),
    }


def _file_of_a_known_model(name: str) -> tuple[str, str]:
    """A GGUF file's model and layout, as its name tells them; other names as they are."""
    if not name.endswith(".gguf"):
        return name, ""
    base, layouts = without_layout(name.rpartition("/")[2].removesuffix(".gguf"))
    layout = layouts[0].lower().replace("-", "_") if layouts else ""
    return (base, layout) if layout in known_layouts() else (name, "")


def _drop_plain_split(found: dict[str, Any], gpus: int) -> None:
    """Leave out tensor parallelism over all GPUs, which their number alone asks for."""
    for names in _PARALLEL:
        sizes = [found.get(name) or 1 for name in names]
        if sizes[0] == gpus and set(sizes[1:]) == {1}:
            for name in names:
                found.pop(name, None)


def _longest(model: str, find: ModelFinder) -> int:
    """The length a model was trained for, which engines take unasked; 0 when it is not known."""
    try:
        return find(model).max_position_embeddings or 0
    except TokenroomError:
        return 0


def plain_settings(policy: Engine, asked: Any) -> tuple[dict[str, Any], bool]:
    """Settings that were asked for and can be written as text, and whether those are all."""
    unset = policy.settings(None, {})
    found = {
        field.name: getattr(asked, field.name)
        for field in fields(asked)
        if field.name not in _UNASKED and getattr(asked, field.name) != getattr(unset, field.name)
    }
    plain = {name: value for name, value in found.items() if _is_plain(value)}
    return plain, len(plain) == len(found)


def _taken(found: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of those settings that is there, no longer among the found."""
    return next((found.pop(name) for name in names if name in found), None)


def _written(value: Any) -> str:
    return "" if value is None else str(value)


def _lines(found: dict[str, Any]) -> str:
    return "\n".join(f"{name}={json.dumps(value)}" for name, value in found.items())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_scalar(item) for item in value)
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
