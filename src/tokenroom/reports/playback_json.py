"""A run's moving picture as a JSON object, beside the answer of ``simulate``."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from tokenroom.serving.playback import Playback, Stay

_DIGITS: Final = 6  # of a second and of a share: more is not seen


def playback_json(playback: Playback, pool_blocks: int) -> dict[str, Any]:
    """The moving picture of a run on a KV pool of so many blocks (``data/playback.schema.json``).

    What is held is told as a share of the pool.
    """
    return {
        "frames": [
            [
                *(_rounded(frame.seconds), frame.waiting, frame.running),
                round(frame.used_blocks / pool_blocks, _DIGITS),
            ]
            for frame in playback.frames
        ],
        "requests": [_stay(stay) for stay in playback.stays],
        "requests_left_out": playback.left_out,
        "quantiles": {
            name: [_rounded(seconds) for seconds in values]
            for name, values in playback.quantiles.items()
        },
    }


def schema_text() -> str:
    """The JSON schema of the object, as text."""
    return files("tokenroom.reports").joinpath("data/playback.schema.json").read_text("utf-8")


def _stay(stay: Stay) -> dict[str, Any]:
    record = stay.record
    return {
        "id": record.id,
        "arrival_seconds": _rounded(record.arrival_seconds),
        "scheduled_seconds": _rounded(record.scheduled_seconds),
        "first_token_seconds": _rounded(record.first_token_seconds),
        "finish_seconds": _rounded(record.finish_seconds),
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "cached_tokens": record.cached_tokens,
        "pauses": [
            [_rounded(pause.preempted_seconds), _rounded(pause.resumed_seconds)]
            for pause in stay.pauses
        ],
        "refused": record.refused,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, _DIGITS)
