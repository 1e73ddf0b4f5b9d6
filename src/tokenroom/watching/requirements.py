"""What watching needs beside the standard library."""

from __future__ import annotations

from importlib.util import find_spec

from tokenroom.errors import CommandLineError


def check_requirements() -> None:
    """See that pages of metrics can be read.

    Raises:
        CommandLineError: ``prometheus_client`` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise CommandLineError(
            "watch needs prometheus_client, which is not installed; pip install 'tokenroom[watch]'"
        )
