import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from observations import OBSERVATION

from tokenroom.errors import WatchError
from tokenroom.reports.messages import Language
from tokenroom.reports.watch_json import schema_text, watch_json
from tokenroom.watching.observation import Observation
from tokenroom.watching.observation_json import observation_json, read_observation


def test_there_and_back_without_a_loss() -> None:
    told = json.loads(json.dumps(observation_json(OBSERVATION)))
    assert read_observation(told) == OBSERVATION


@pytest.mark.parametrize("language", list(Language))
def test_the_schema_holds_and_describes_everything(language: Language) -> None:
    schema = json.loads(schema_text())
    Draft202012Validator.check_schema(schema)
    told = watch_json(OBSERVATION, language)
    Draft202012Validator(schema).validate(json.loads(json.dumps(told)))
    assert set(told) == set(schema["properties"]) - {"history"}
    for name in ("Endpoint", "Replica", "Gpu", "Alert", "Help", "Planned", "Facts"):
        properties = schema["$defs"][name]["properties"]
        assert {key for key in properties if "description" not in properties[key]} == set()


def test_what_a_later_version_adds_is_left_out() -> None:
    told = observation_json(OBSERVATION) | {"schema_version": "1.7", "weather": "fine"}
    assert read_observation(told) == OBSERVATION


def changed(**fields: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(observation_json(OBSERVATION)))
    return told | fields


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "text",
        {},
        {"schema_version": "1.0"},
        changed(schema_version="2.0"),
        changed(schema_version=None),
        changed(time="now"),
        changed(time=True),
        changed(time=float("nan")),
        changed(gpus={}),
        changed(gpus=[1]),
        changed(endpoints=[{"url": "u", "status": "asleep", "since": 0.0}]),
        changed(
            alerts=[{"key": "k", "severity": "warning", "subject": "s", "since": 0, "values": [1]}]
        ),
    ],
)
def test_what_is_no_observation_is_refused_in_a_sentence(told: object) -> None:
    with pytest.raises(WatchError) as refusal:
        read_observation(told)
    assert "\n" not in str(refusal.value)


def test_an_empty_observation() -> None:
    nothing = Observation(time=0.0, interval_seconds=1.0, window_seconds=1.0)
    assert read_observation(observation_json(nothing)) == nothing
