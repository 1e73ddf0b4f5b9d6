"""The errors tokenroom raises, in one tree.

Every error that a user can cause derives from :class:`TokenroomError` and carries one sentence
that names the field, what it held, what it may hold and what to do. The command line prints that
sentence and exits with 2; the library raises it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final


class TokenroomError(Exception):
    """Base of all errors caused by input; its message is one sentence fit for a user."""


class ModelError(TokenroomError):
    """A model's files cannot be read as a model: missing, damaged, or of an unknown kind."""


class UnknownArchitectureError(ModelError):
    """The configuration names a model type whose layers tokenroom does not know."""


class QuantizationError(ModelError):
    """The quantisation block is of an unknown method or contradicts itself."""


class HubError(TokenroomError):
    """The Hub could not be reached or has no such model, revision or file."""


class HardwareError(TokenroomError):
    """An accelerator is unknown or described with impossible numbers."""


class DeploymentError(TokenroomError):
    """The engine would refuse these settings for this model and these accelerators."""


class CommandLineError(TokenroomError):
    """An engine command line cannot be understood."""


class RowError(TokenroomError):
    """A file of measurements or an engine's log cannot be read as rows."""


class BenchmarkError(TokenroomError):
    """A benchmark's output cannot be read, or holds nothing that says how fast anything was."""


class WorkloadError(TokenroomError):
    """A workload cannot be read, or a request of it is impossible."""


class ClaimError(TokenroomError):
    """There is no published claim of that name."""


class FleetError(TokenroomError):
    """The description of a fleet cannot be read, or its parts do not serve together."""


class ProfileError(TokenroomError):
    """A calibration profile is missing, damaged, or of another machine."""


class ComparisonError(TokenroomError):
    """Deployments cannot be compared as it was asked."""


class StoreError(TokenroomError):
    """A folder of kept answers cannot be read or written."""


class MeasurementError(TokenroomError):
    """Nothing can be measured: a library, a device or a readable model is missing."""


class ExecutionError(TokenroomError):
    """The workers that were asked for cannot be had."""


class WatchError(TokenroomError):
    """Something that cannot be watched, or a recording that cannot be replayed."""


class SnapshotError(TokenroomError):
    """A memory snapshot cannot be read: damaged, too large, or none."""


_SAYS: Final = r"(?= (?:is|are|has|holds|names|needs|belongs)\b)"
_SHOWN_CHARACTERS: Final = 80


@contextmanager
def called(names: Mapping[str, str]) -> Iterator[None]:
    """Have errors about a field call it as its asker does: ``--context`` for ``longest_tokens``.

    Args:
        names: Fields with which a message may begin, and what each is called instead.

    Raises:
        TokenroomError: What was raised inside, of the same class.
    """
    try:
        yield
    except TokenroomError as error:
        said = str(error)
        for field, name in names.items():
            if re.match(re.escape(field) + _SAYS, said):
                raise type(error)(name + said.removeprefix(field)) from error
        raise


def shown(value: object) -> str:
    """A value as messages quote it, cut when it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"
    except RecursionError:
        return "a value nested too deeply"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
