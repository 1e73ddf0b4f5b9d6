"""A model with its weights stored as a row of the speed form says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.errors import RowError, TokenroomError
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.models.spec import ModelSpec
from tokenroom.validation.circumstances import fp8_layout

_PLAIN: Final = frozenset({"bf16", "fp16", "f16", "bfloat16", "float16"})
#: What of a checkpoint's own method says that its weights are of a precision.
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "int4": ("int4", "compressed-tensors", "awq", "gptq"),
}
_LAYOUTS: Final[Mapping[str, str]] = {"fp4": "nvfp4", "gptq_int4": "gptq", "awq_int4": "awq"}


def stored_as(spec: ModelSpec, precision: str | None, engine: str) -> ModelSpec:
    """``spec`` with weights of ``precision``; its own where they are that, or nothing is said.

    ``"fp4"`` is NVFP4 where the checkpoint's own is not a type of 4 bits. A checkpoint in MXFP4
    (gpt-oss) is published in no other, and GGUF files keep it: another precision is then that of
    its activations or of its other tensors.

    Raises:
        RowError: The precision is not known.
    """
    if precision is None:
        return spec
    wanted = precision.lower().replace("-", "_")
    own = spec.quantization or ""
    if wanted in _PLAIN and not own and engine != "llama.cpp":
        return spec
    if any(part in own for part in _OWN.get(wanted, (wanted,))):
        return spec
    if "mxfp4" in own and wanted not in _PLAIN:
        return spec
    layout = fp8_layout(spec.name) if wanted == "fp8" else _LAYOUTS.get(wanted, wanted)
    try:
        return what_if(spec, layout)
    except TokenroomError as error:
        raise RowError(f"precision is {precision!r}: {error}") from error
