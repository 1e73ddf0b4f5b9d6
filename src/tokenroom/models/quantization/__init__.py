"""How weights are stored when not in the model's own type: what a checkpoint says, and what if."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tokenroom.errors import shown

if TYPE_CHECKING:
    from tokenroom.models.quantization.apply import apply_quantization, known_methods
    from tokenroom.models.quantization.hypothetical import dequantized, known_layouts, what_if
    from tokenroom.models.quantization.size import (
        dtype_bytes,
        matrix_bytes,
        scale_count,
        stored_bytes,
    )

_HOMES: Final = {
    "apply_quantization": "apply",
    "dequantized": "hypothetical",
    "dtype_bytes": "size",
    "known_layouts": "hypothetical",
    "known_methods": "apply",
    "matrix_bytes": "size",
    "scale_count": "size",
    "stored_bytes": "size",
    "what_if": "hypothetical",
}

__all__ = [
    "apply_quantization",
    "dequantized",
    "dtype_bytes",
    "known_layouts",
    "known_methods",
    "matrix_bytes",
    "scale_count",
    "stored_bytes",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Readers of each method are imported when a quantised model asks for them, not before."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {shown(__name__)} has no attribute {shown(name)}")
    return getattr(import_module(f"{__name__}.{home}"), name)
