"""Whether PyTorch and transformers are there; they are an extra, and loading them takes seconds."""

from __future__ import annotations

from importlib.util import find_spec

from tokenroom.errors import MeasurementError


def require_torch(*also: str) -> None:
    """Refuse to go on without PyTorch.

    Args:
        also: Further libraries that are needed, as ``"transformers"``.

    Raises:
        MeasurementError: One is not installed; the message says which extra brings it.
    """
    for name in ("torch", *also):
        if find_spec(name) is None:
            raise MeasurementError(
                f"{name} is not installed and nothing can be measured without it; install the "
                f"extra: pip install 'tokenroom[measure]'"
            )
