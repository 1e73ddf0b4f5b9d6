"""What ``watch --json`` prints: an observation, with the sentences of its alerts."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.reports.watch_words import alert_text, help_text
from tokenroom.watching.observation import Observation
from tokenroom.watching.observation_json import observation_json


def watch_json(seen: Observation, language: Language) -> dict[str, Any]:
    """The observation as one object; each alert and each help also as a sentence (``text``)."""
    found = observation_json(seen)
    for endpoint in found["endpoints"]:
        for name in ("error", "no_plan"):
            if endpoint[name] is not None:
                endpoint[name] = refusal_in(language, endpoint[name])
    for alert, told in zip(seen.alerts, found["alerts"], strict=True):
        told["text"] = alert_text(alert, language)
        for one, one_told in zip(alert.helps, told["helps"], strict=True):
            one_told["text"] = help_text(one, language)
    return found


def watch_line(seen: Observation, language: Language) -> str:
    """The same as one line."""
    return json.dumps(watch_json(seen, language), ensure_ascii=True, separators=(",", ":"))


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/watch.schema.json").read_text("utf-8")
