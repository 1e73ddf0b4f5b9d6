"""``--quantization``: SGLang quantising a plain checkpoint while it loads it, or naming its method.

Names: ``arg_groups/choices.py`` ``QUANTIZATION_CHOICES`` (0.5.23) and ``server_args.py`` of earlier
versions, which also had ``marlin`` and ``qoq``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.models.spec import ModelSpec

_LAYOUTS: Final[Mapping[str, str]] = {
    "awq": "awq",
    "awq_marlin": "awq",
    "bitsandbytes": "fp4",
    "fp8": "fp8",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "nvfp4",
    "modelopt_fp8": "fp8",
    "mxfp4": "mxfp4",
    "mxfp8": "mxfp8",
    "nvfp4_online": "nvfp4",
    "quark_mxfp4": "mxfp4",
    "w8a8_fp8": "fp8_channel",
    "w8a8_int8": "int8",
}
"""The layout that a plain model is planned in."""

_OTHERS: Final = frozenset(
    {
        *("auto-round", "auto-round-int8", "compressed-tensors", "gguf", "humming", "marlin"),
        *("mlx_q4", "mlx_q8", "modelopt", "modelopt_mixed", "modelslim", "moe_wna16"),
        *("mxfp_w4a8", "petit_nvfp4", "qoq", "quark", "quark_int4fp8_moe", "w4afp8"),
    }
)
"""Methods whose layout the checkpoint's own configuration says."""
_PLAIN: Final = "unquant"


def loaded_as(spec: ModelSpec, method: str | None) -> ModelSpec:
    """``spec`` as SGLang holds it under ``--quantization METHOD``.

    Args:
        spec: The model as its checkpoint stores it; one that is quantised stays as it is.
        method: The flag, None when not given.

    Raises:
        DeploymentError: SGLang knows no such method, or a plain checkpoint does not say enough.
    """
    if method is None or method == _PLAIN:
        return spec
    if method not in _LAYOUTS and method not in _OTHERS:
        names = ", ".join(sorted({*_LAYOUTS, *_OTHERS, _PLAIN}))
        raise DeploymentError(
            f"SGLang's --quantization is {shown(method)}, which is not known; it may be one of "
            f"{names}"
        )
    if spec.quantization is not None:
        return spec
    if method in _OTHERS:
        raise DeploymentError(
            f"SGLang's --quantization is {shown(method)}, which needs a checkpoint that is "
            f"stored so, and this one is not quantised; give such a checkpoint or one of "
            f"{', '.join(sorted(_LAYOUTS))}"
        )
    from tokenroom.models.quantization.hypothetical import what_if  # costs start-up time

    return replace(what_if(spec, _LAYOUTS[method]), layout=spec.layout)
