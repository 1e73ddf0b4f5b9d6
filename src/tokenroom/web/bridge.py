"""The library for a page without a server: the same questions, answered in the browser.

Runs under Pyodide, whose standard library is all there is: forms are known by their defaults,
which :mod:`tokenroom.web.site` writes beside this module, and the library checks what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.web.answers import ModelFinder
from tokenroom.web.kinds import ANSWERS

DEFAULTS: Final = "defaults.json"

_find: Final = ModelFinder()


_TELLING: Final = frozenset({"simulate", "plan"})


def answered(
    kind: str, body: str, tell: Callable[[int, int, str, str], object] | None = None
) -> str:
    """The JSON text that answers a question, as the server of :mod:`tokenroom.web.app` gives it.

    Args:
        kind: Of the question.
        body: The question as JSON.
        tell: Hears how far a simulation or a search is: parts that are done, all of them (0 if that
            is not known), figures found so far and the answer as far as it is known, both as JSON.
    """

    def on_progress(
        done: int,
        total: int,
        figures: Mapping[str, float] | None = None,
        partial: Mapping[str, Any] | None = None,
        /,
    ) -> None:
        if tell is not None:
            tell(done, total, json.dumps(figures), json.dumps(partial))

    options = {"on_progress": on_progress} if kind in _TELLING else {}
    question = _question(_defaults()[kind], json.loads(body))
    try:
        return json.dumps(ANSWERS[kind](question, _find, **options))
    except TokenroomError as error:
        said = refusal_in(Language(question.language), str(error))
        return json.dumps({"error": {"message": said}})


def _question(defaults: dict[str, Any], body: dict[str, Any]) -> SimpleNamespace:
    """What is asked with what is not; forms within it likewise."""
    forms = {
        name: SimpleNamespace(**(fields | body.get(name, {})))
        for name, fields in defaults["forms"].items()
    }
    return SimpleNamespace(**(defaults["fields"] | body | forms))


@lru_cache(maxsize=1)
def _defaults() -> dict[str, dict[str, Any]]:
    text = files("tokenroom.web").joinpath(DEFAULTS).read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found
