"""How weights are stored when not in the model's own type: what a checkpoint says, and what if."""

from tokenroom.models.quantization.apply import apply_quantization, known_methods
from tokenroom.models.quantization.size import dtype_bytes, matrix_bytes, scale_count, stored_bytes
from tokenroom.models.quantization.what_if import dequantized, known_layouts, what_if

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
