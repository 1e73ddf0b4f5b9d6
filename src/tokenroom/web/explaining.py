"""A log that was sent, diagnosed: what ``tokenroom explain`` does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tokenroom.hardware.catalogue import load_catalogue
from tokenroom.models.spec import ModelSpec
from tokenroom.reports.messages import Language
from tokenroom.web.answers import ModelFinder

if TYPE_CHECKING:
    from tokenroom.web.questions import ExplainQuestion


def answer_explain(question: ExplainQuestion, find: ModelFinder) -> dict[str, Any]:
    """What ``tokenroom explain --json`` prints."""
    from tokenroom.diagnosis.explain import explain
    from tokenroom.diagnosis.recovered import recover
    from tokenroom.diagnosis.remedies import remedies
    from tokenroom.reports.diagnosis_text import diagnosis_json

    def named(name: str, **_: object) -> ModelSpec:
        return find(name)

    found = explain(io.BytesIO(question.text.encode("utf-8", "surrogatepass")))
    recovered = recover(found.report, load_catalogue(), find_model=named)
    helps = []
    if found.first is not None:
        helps = remedies(found.first, found.report.engine, recovered.result)
    return diagnosis_json(found, recovered, helps, Language(question.language))
