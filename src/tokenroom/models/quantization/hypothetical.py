"""``--weights``: the same model stored in another layout than its checkpoint's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tokenroom.errors import QuantizationError, shown
from tokenroom.models.quantization import schemes
from tokenroom.models.quantization.apply import map_weights, with_schemes
from tokenroom.models.quantization.ggml import MIXES, Mix, fitting_type, ggml_scheme, mix_type
from tokenroom.models.quantization.plan import is_projection
from tokenroom.models.spec import Attention, Layer, ModelSpec, MoEFFN, Role, Scheme, Weight

_PLAIN: Final[Mapping[str, str]] = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float32": "float32",
}

_LAYOUTS: Final[Mapping[str, tuple[str, Callable[[], Scheme]]]] = {
    "fp8": ("fp8", lambda: schemes.fp8_tensor(static=False)),
    "fp8_tensor": ("fp8", lambda: schemes.fp8_tensor(static=False)),
    "fp8_channel": ("compressed-tensors", schemes.fp8_channel),
    "fp8_block": ("fp8", schemes.fp8_block),
    "int8": ("compressed-tensors", schemes.int8_w8a8),
    "w8a8": ("compressed-tensors", schemes.int8_w8a8),
    "llm_int8": ("bitsandbytes", schemes.bnb_int8),
    "awq": ("awq", schemes.awq),
    "gptq": ("gptq", schemes.gptq),
    "int4": ("compressed-tensors", lambda: schemes.packed(4, 128)),
    "w4a16": ("compressed-tensors", lambda: schemes.packed(4, 128)),
    "w8a16": ("compressed-tensors", lambda: schemes.packed(8, -1)),
    "nf4": ("bitsandbytes", schemes.bnb_4bit),
    "nf4_double": ("bitsandbytes", lambda: schemes.bnb_4bit(double_quant=True)),
    "fp4": ("bitsandbytes", lambda: schemes.bnb_4bit("fp4")),
    "mxfp4": ("mxfp4", schemes.mxfp4),
    "mxfp8": ("modelopt_mxfp8", schemes.mxfp8),
    "nvfp4": ("modelopt_fp4", schemes.nvfp4),
    "hqq": ("hqq", schemes.hqq),
}


def known_layouts() -> tuple[str, ...]:
    """Every name :func:`what_if` takes, sorted."""
    return tuple(sorted({*_PLAIN, *_LAYOUTS, *MIXES}))


def check_layout(name: str) -> None:
    """Refuse a layout that :func:`what_if` does not take.

    Raises:
        QuantizationError: The name is not known.
    """
    if name.lower().replace("-", "_") not in known_layouts():
        raise QuantizationError(
            f"the layout is {shown(name)}; it may be one of {', '.join(known_layouts())}"
        )


def dequantized(spec: ModelSpec) -> ModelSpec:
    """``spec`` before its checkpoint was quantised: plain weights and cache, no header sizes."""
    plain = map_weights(
        spec,
        lambda weight: (
            weight
            if weight.scheme is None and weight.stored_bytes is None
            else replace(weight, scheme=None, stored_bytes=None)
        ),
    )
    return replace(plain, quantization=None, quantization_named=True, kv_cache_dtype=None)


@lru_cache(maxsize=64)
def what_if(spec: ModelSpec, name: str) -> ModelSpec:
    """``spec`` stored as ``name``, whatever its checkpoint is stored as.

    Every projection of the language model is converted, routers, embeddings, norms and towers are
    not; the output projection only by GGUF mixes, which convert the embedding too.

    Args:
        spec: The model.
        name: ``bf16``, ``fp8``, ``awq``, ``nf4``, ``q4_k_m``, ...: see :func:`known_layouts`.

    Raises:
        QuantizationError: The name is not known.
    """
    wanted = name.lower().replace("-", "_")
    plain = replace(dequantized(spec), layout=wanted)
    dtype = _PLAIN.get(wanted)
    if dtype is not None:
        return replace(plain, dtype=dtype)
    mix = MIXES.get(wanted)
    if mix is not None:
        return _as_gguf(plain, wanted, mix)
    layout = _LAYOUTS.get(wanted)
    if layout is None:
        raise QuantizationError(
            f"--weights is {shown(name)}, which is not known; it may be one of "
            f"{', '.join(known_layouts())}"
        )
    method, make = layout
    scheme = make()
    towers = {id(weight) for tower in plain.towers for weight in tower.weights}

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if weight.role is Role.ROUTER or not is_projection(weight) or id(weight) in towers:
            return None
        if weight.shape[-2] < 2:  # a scalar gate
            return None
        return scheme

    return replace(
        with_schemes(plain, resolve),
        quantization=method,
        assumptions=(
            *plain.assumptions,
            f"weights taken as {wanted} in every projection of the language model; routers, "
            "embeddings, the output projection, norms and towers stay in "
            f"{plain.dtype}, as published checkpoints of this kind do",
        ),
    )


def _as_gguf(spec: ModelSpec, name: str, mix: Mix) -> ModelSpec:
    count = len(spec.layers)
    heads = [
        mixer.num_heads // max(1, mixer.num_kv_heads)
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    ]
    experts = [
        layer.ffn.num_experts for layer, _ in spec.layer_kinds if isinstance(layer.ffn, MoEFFN)
    ]
    queries_per_kv, num_experts = max(heads, default=1), max(experts, default=0)

    def stored(weight: Weight, number: int) -> Weight:
        if len(weight.shape) < 2 or weight.role in (Role.NORM, Role.CONV, Role.OTHER):
            return replace(weight, dtype="float32")  # llama.cpp keeps these unquantised, in F32
        kind = mix_type(
            mix,
            weight,
            number=number,
            count=count,
            tied=spec.tied_embeddings,
            queries_per_kv=queries_per_kv,
            num_experts=num_experts,
        )
        kind = fitting_type(kind, weight.shape[-1])
        if kind == "f32":
            return replace(weight, dtype="float32")
        return replace(weight, scheme=ggml_scheme(kind))

    made: dict[tuple[int, tuple[Weight, ...]], Layer] = {}
    layers: list[Layer] = []
    for number, layer in enumerate(spec.layers):
        weights = tuple(stored(weight, number) for weight in layer.weights)
        key = (id(layer), weights)
        if key not in made:
            made[key] = replace(layer, weights=weights)
        layers.append(made[key])
    return replace(
        spec,
        layers=tuple(layers),
        input_weights=tuple(stored(weight, 0) for weight in spec.input_weights),
        output_weights=tuple(stored(weight, 0) for weight in spec.output_weights),
        towers=tuple(
            replace(tower, weights=tuple(_as_mmproj(weight) for weight in tower.weights))
            for tower in spec.towers
        ),
        quantization="gguf",
        assumptions=(
            *spec.assumptions,
            f"weights taken as a GGUF {name} mix by llama.cpp's own type rules without an "
            "importance matrix; published files may raise a few tensors more",
        ),
    )


def _as_mmproj(weight: Weight) -> Weight:
    """A tower's weight in llama.cpp's separate mmproj file: F16 matrices, F32 vectors."""
    return replace(weight, dtype="float16" if len(weight.shape) > 1 else "float32")
