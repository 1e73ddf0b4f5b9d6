"""What a pasted or dropped text is, as a question: a config.json, a command, or a log."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.web.answers import ModelFinder

if TYPE_CHECKING:
    from tokenroom.web.questions import ReadQuestion

_UNASKED: Final = frozenset({"version", "unknown_flags", "ignored_flags", "environment", "usage"})
_MAX_COMMAND_LINES: Final = 400


def answer_read(question: ReadQuestion, find: ModelFinder) -> dict[str, Any]:
    """What kind of text it is, and the fields of a question that it fills.

    Raises:
        TokenroomError: It is none of the three, or names what is not known.
    """
    text = question.text
    config = _config(text)
    if config is not None:
        return {"kind": "config", "question": {"config": text, **_architecture(config)}}
    if text.count("\n") <= _MAX_COMMAND_LINES and _starts_engine(text):
        return {"kind": "command", "question": {"command": text.strip()}}
    return {"kind": "log", "question": _of_log(text, question.name, find)}


def _config(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _architecture(config: dict[str, Any]) -> dict[str, Any]:
    """The longest request that the model was trained for, where it is stated plainly."""
    longest = config.get("max_position_embeddings")
    return {"context": longest} if isinstance(longest, int) and 0 < longest < 2**24 else {}


def _starts_engine(text: str) -> bool:
    from tokenroom.engines.registry import chosen_start, command_parser

    try:
        engine, chosen = chosen_start(text, {})
        command_parser(engine)(chosen, environment={}, allow_files=False)
    except TokenroomError:
        return False
    return True


def _of_log(text: str, name: str, find: ModelFinder) -> dict[str, Any]:
    from tokenroom.errors import RowError
    from tokenroom.validation.logs.read import read_log
    from tokenroom.validation.prediction import Predictor

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pasted.log"
        path.write_text(text, encoding="utf-8")
        try:
            row = read_log(path, load_catalogue())
        except RowError as error:
            raise RowError(
                "the text is no config.json, no command that starts a known engine, and no "
                "start-up log of one; paste it whole"
            ) from error
    prediction = Predictor(load=find).predict(row)
    if prediction.result is None:
        raise RowError(f"the {row.engine} log was read, but {prediction.reason}")
    return _question(prediction.result) | {"read": dict(row.reported)}


def _question(result: FitResult) -> dict[str, Any]:
    """The fields of a question that asks for a deployment."""
    deployment = result.deployment
    unset, asked = result.engine.settings(None, {}), deployment.asked
    settings = {
        field.name: getattr(asked, field.name)
        for field in fields(asked)
        if field.name not in _UNASKED and getattr(asked, field.name) != getattr(unset, field.name)
    }
    context = next(
        (settings.pop(name) for name in ("max_model_len", "context_length") if name in settings),
        result.plan.max_model_len,
    )
    plain = {name: value for name, value in settings.items() if _is_plain(value)}
    return {
        "model": deployment.spec.name,
        "gpu": deployment.node.accelerator.key,
        "gpus": deployment.node.count,
        "engine": deployment.engine,
        "version": deployment.version,
        "context": context,
        "settings": "\n".join(f"{name}={json.dumps(value)}" for name, value in plain.items()),
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
