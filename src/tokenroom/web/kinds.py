"""Kinds of questions: the form each takes, and what answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tokenroom.web.answers import answer_fit, answer_speed, answer_sweep, answer_validate
from tokenroom.web.questions import (
    FitQuestion,
    ReadQuestion,
    SpeedQuestion,
    SweepQuestion,
    ValidateQuestion,
)
from tokenroom.web.reading import answer_read

KINDS: Final[Mapping[str, tuple[type[Any], Callable[..., dict[str, Any]]]]] = {
    "fit": (FitQuestion, answer_fit),
    "speed": (SpeedQuestion, answer_speed),
    "sweep": (SweepQuestion, answer_sweep),
    "validate": (ValidateQuestion, answer_validate),
    "read": (ReadQuestion, answer_read),
}
"""Both of the pair by the name of the kind; those of jobs also take ``on_progress``."""
