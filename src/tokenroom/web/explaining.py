"""A log that was sent, diagnosed: what ``tokenroom explain`` does."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from tokenroom.diagnosis.recovered import Told, recover
from tokenroom.diagnosis.remedy_effects import changed_by
from tokenroom.engines.registry import chosen_start, command_parser, engine_named
from tokenroom.errors import RowError
from tokenroom.hardware.catalogue import Catalogue, load_catalogue
from tokenroom.models.spec import ModelSpec
from tokenroom.reports.messages import Language
from tokenroom.web.answers import ModelFinder
from tokenroom.web.reading import plain_settings, question_of

if TYPE_CHECKING:
    from tokenroom.diagnosis.remedies import Remedy
    from tokenroom.fitting import FitResult
    from tokenroom.web.questions import ExplainQuestion

_MOST_UNPACKED_BYTES: Final = 2**30


def answer_explain(question: ExplainQuestion, find: ModelFinder) -> dict[str, Any]:
    """What ``tokenroom explain --json`` prints, and the questions that ask for its deployment.

    Raises:
        TokenroomError: The log cannot be read, or what is told beside it is not known.
    """
    from tokenroom.diagnosis.explain import explain
    from tokenroom.diagnosis.remedies import remedies
    from tokenroom.reports.diagnosis_text import diagnosis_json

    def named(name: str, **_: object) -> ModelSpec:
        return find(name)

    catalogue = load_catalogue()
    told = _told(question, catalogue)
    found = explain(_opened(question))
    recovered = recover(found.report, catalogue, name="the log", find_model=named, told=told)
    helps = []
    if found.first is not None:
        helps = remedies(
            found.first, found.report.engine, recovered.result, found.report.facts.flags
        )
    answer = diagnosis_json(found, recovered, helps, Language(question.language))
    if recovered.result is not None:
        answer["question"] = question_of(recovered.result)
        for remedy, shown in zip(helps, answer["remedies"], strict=True):
            shown["question"] = _corrected(recovered.result, remedy)
    return answer


def _opened(question: ExplainQuestion) -> io.BufferedReader:
    """The log, open for reading bytes."""
    from tokenroom.validation.reading import unpacked

    if question.base64 is None:
        assert question.text is not None
        sent = question.text.encode("utf-8", "surrogatepass")
        return _reader(sent)
    try:
        content = base64.b64decode(question.base64, validate=True)
    except ValueError as problem:
        raise RowError(f"base64 is no base64 ({problem}); send it whole") from None
    return unpacked(_reader(content), "the log", most_bytes=_MOST_UNPACKED_BYTES)


def _reader(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(content)))


def _corrected(result: FitResult, remedy: Remedy) -> dict[str, Any] | None:
    """The fields of a question that asks for a deployment with a remedy; None where none can."""
    changed = changed_by(result, remedy.settings) if remedy.settings else None
    return None if changed is None else question_of(changed)


def _told(question: ExplainQuestion, catalogue: Catalogue) -> Told:
    """What the question says beside the log; its command opens no file."""
    told = Told(
        model=question.model,
        gpu=None if question.gpu is None else catalogue.find(question.gpu),
    )
    if question.command is None:
        return told
    engine, chosen = chosen_start(question.command, {})
    parsed = command_parser(engine)(chosen, environment={}, allow_files=False)
    flags, _ = plain_settings(engine_named(engine)[0], parsed.settings)
    hint = parsed.accelerator_hint
    return replace(
        told,
        engine=engine,
        version=parsed.version,
        model=told.model or parsed.model,
        gpu=told.gpu if hint is None or told.gpu is not None else catalogue.find(hint),
        gpus=parsed.gpus,
        flags=flags,
    )
