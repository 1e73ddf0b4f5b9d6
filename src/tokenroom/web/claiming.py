"""Published claims, asked of a server or in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenroom.web.answers import ModelFinder

if TYPE_CHECKING:
    from tokenroom.web.questions import ClaimsQuestion


def answer_claims(question: ClaimsQuestion, _find: ModelFinder) -> dict[str, Any]:
    """What ``tokenroom claims --json`` prints.

    Raises:
        ClaimError: No claim has such a name.
    """
    from tokenroom.claims.index import all_claims, answers, claims_named
    from tokenroom.reports.claims_text import claims_json

    wanted = claims_named(question.names) if question.names else all_claims()
    return claims_json(list(answers(wanted, live=not question.recorded)))
