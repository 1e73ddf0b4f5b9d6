"""What clients are told when a question is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from tokenroom.errors import shown
from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in

_NAME: Final = re.compile(r"[\w-]{1,80}")
_OF_TYPE: Final = re.compile(r"(constrained-)?(int|str|float|bool)|(dict|list)\[.*\]")
"""Which of a field's types was tried: of no use to a client."""


def refusal(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that says why there is none."""
    return JSONResponse({"error": {"message": message}}, status, headers=headers)


def told(question: object, refused: object) -> str:
    """Why a question is refused, in the language that it asks for."""
    chinese = isinstance(question, Mapping) and question.get("language") == Language.CHINESE
    return refusal_in(Language.CHINESE if chinese else Language.ENGLISH, str(refused))


def field_of(location: Iterable[Any]) -> str:
    """``("body", "rows", 3, "id")`` as ``rows[3].id``; empty for the body as a whole."""
    text = ""
    for part in list(location)[:8]:
        if part == "body" and not text:
            continue
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _OF_TYPE.fullmatch(str(part)):
            name = part if _NAME.fullmatch(str(part)) else shown(part)
            text += f".{name}" if text else name
    return text


def invalid_sentence(errors: Iterable[Mapping[str, Any]]) -> str:
    """One sentence for the first of pydantic's complaints."""
    found = list(errors)
    first = next((error for error in found if error["type"] == "string_too_long"), found[0])
    field = field_of(first["loc"])
    kind = first["type"]
    if kind == "extra_forbidden":
        return f"{field} is no field of this question; GET /openapi.json lists them"
    if kind == "missing":
        return f"{field} is missing" if field else "the body is missing; send a JSON object"
    if kind == "json_invalid":
        return "the body is no JSON"
    if kind == "value_error":
        return str(first["msg"]).removeprefix("Value error, ")
    if not field:
        return "the body is no JSON object; send one, with content-type: application/json"
    said = str(first["msg"]).replace("Input should", "it should")
    return f"{field} is {shown(first.get('input'))}; {said}"
