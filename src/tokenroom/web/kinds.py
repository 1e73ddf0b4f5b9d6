"""What answers each kind of question, whose forms are :data:`tokenroom.web.questions.FORMS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tokenroom.web.answers import answer_fit, answer_speed, answer_sweep, answer_validate
from tokenroom.web.claiming import answer_claims
from tokenroom.web.explaining import answer_explain
from tokenroom.web.planning import (
    answer_plan,
    answer_pools,
    answer_recipe,
    answer_table,
    check_plan,
    check_pools,
)
from tokenroom.web.reading import answer_read
from tokenroom.web.simulating import answer_simulate

ANSWERS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "fit": answer_fit,
    "speed": answer_speed,
    "sweep": answer_sweep,
    "validate": answer_validate,
    "simulate": answer_simulate,
    "plan": answer_plan,
    "recipe": answer_recipe,
    "pools": answer_pools,
    "table": answer_table,
    "explain": answer_explain,
    "claims": answer_claims,
    "read": answer_read,
}
"""Each takes a question and what finds models; those of jobs also take ``on_progress``."""

CHECKS: Final[Mapping[str, Callable[..., None]]] = {"plan": check_plan, "pools": check_pools}
"""What refuses questions of jobs at once, of kinds whose answers may be refused before any work."""
