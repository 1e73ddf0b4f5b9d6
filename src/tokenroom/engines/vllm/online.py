"""``--quantization``: vLLM quantising a plain checkpoint while it loads it, or naming its method.

Names: ``config/quantization.py`` ``_ONLINE_SHORTHANDS`` of vLLM 0.33, and those that earlier
versions took (``fp8``, ``ptpc_fp8``, ``experts_int8``, ``bitsandbytes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.models.quantization import schemes
from tokenroom.models.quantization.apply import with_schemes
from tokenroom.models.spec import ModelSpec, Role, Scheme, Weight

_EVERY_LINEAR: Final[Mapping[str, Callable[[], Scheme]]] = {
    "fp8": lambda: schemes.fp8_tensor(static=False),
    "fp8_per_tensor": lambda: schemes.fp8_tensor(static=False),
    "fp8_per_channel": schemes.fp8_channel,
    "ptpc_fp8": schemes.fp8_channel,
    "fp8_per_block": schemes.fp8_block,
    "mxfp8": schemes.mxfp8,
    "mxfp4": schemes.mxfp4,
    "nvfp4_per_token": schemes.nvfp4,
    "bitsandbytes": lambda: schemes.bnb_4bit("fp4"),
}
"""Methods that quantise every linear layer and the experts."""

_EXPERTS_ONLY: Final[Mapping[str, Callable[[], Scheme]]] = {
    "experts_int8": schemes.int8_w8a8,
    "int8_per_channel_weight_only": schemes.int8_w8a8,
}

_FAMILIES: Final[Mapping[str, str]] = {
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
    "deepseek_v4_fp8": "fp8",
    "gpt_oss_mxfp4": "mxfp4",
    "auto-round": "inc",
    "modelopt_fp4": "modelopt",
    "modelopt_mixed": "modelopt",
    "modelopt_mxfp8": "modelopt",
}
"""Names of one method's variants, which vLLM takes for each other."""

_ANY_INTEGER: Final = frozenset({"moe_wna16", "humming"})
"""Methods that read AWQ and GPTQ checkpoints."""


def with_quantization(spec: ModelSpec, method: str | None) -> ModelSpec:
    """``spec`` as vLLM holds it under ``--quantization METHOD``.

    Args:
        spec: The model as its checkpoint stores it.
        method: The flag, None when not given.

    Raises:
        DeploymentError: The checkpoint is quantised by another method, or is plain and vLLM cannot
            quantise by ``method`` while loading.
    """
    if method is None or method == "auto":
        return spec
    if spec.quantization is not None:
        mine = _FAMILIES.get(spec.quantization, spec.quantization)
        wanted = _FAMILIES.get(method, method)
        if mine == wanted or (wanted in _ANY_INTEGER and mine in ("awq", "gptq")):
            return spec
        raise DeploymentError(
            f"--quantization is {shown(method)} but the checkpoint is quantised by "
            f"{shown(spec.quantization)}; leave the flag out or give {shown(spec.quantization)}"
        )
    make = _EVERY_LINEAR.get(method) or _EXPERTS_ONLY.get(method)
    if make is None:
        raise DeploymentError(
            f"--quantization is {shown(method)} but the checkpoint is not quantised, and vLLM "
            f"quantises "
            f"while loading only by {', '.join(sorted({*_EVERY_LINEAR, *_EXPERTS_ONLY}))}"
        )
    scheme = make()
    linear = method in _EVERY_LINEAR
    towers = {id(weight) for tower in spec.towers for weight in tower.weights}

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if weight.role is not Role.LINEAR or len(weight.shape) != 2 or id(weight) in towers:
            return None
        return scheme if linear or weight.expert else None

    return replace(
        with_schemes(spec, resolve),
        quantization=method,
        assumptions=(
            *spec.assumptions,
            f"vLLM quantises the weights by {method} while loading; encoders stay plain",
        ),
    )
