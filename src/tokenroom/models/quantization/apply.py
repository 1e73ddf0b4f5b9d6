"""Attaching a quantisation plan to a model, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tokenroom.models.quantization import methods
from tokenroom.models.quantization.compressed_tensors import read_compressed_tensors
from tokenroom.models.quantization.modelopt import read_modelopt, read_quark
from tokenroom.models.quantization.paths import spellings
from tokenroom.models.quantization.plan import Plan, Resolver
from tokenroom.models.spec import Layer, ModelSpec, Scheme, Tower, Weight

_READERS: Final[Mapping[str, methods.Reader]] = {
    "fp8": methods.read_fp8,
    "deepseek_v4_fp8": methods.read_fp8,
    "fbgemm_fp8": methods.read_fbgemm_fp8,
    "awq": methods.read_awq,
    "awq_marlin": methods.read_awq,
    "gptq": methods.read_gptq,
    "gptq_marlin": methods.read_gptq,
    "auto-round": methods.read_auto_round,
    "intel/auto-round": methods.read_auto_round,
    "inc": methods.read_auto_round,
    "bitsandbytes": methods.read_bitsandbytes,
    "mxfp4": methods.read_mxfp4,
    "hqq": methods.read_hqq,
    "torchao": methods.read_torchao,
    "aqlm": methods.read_aqlm,
    "compressed-tensors": read_compressed_tensors,
    "modelopt": read_modelopt,
    "modelopt_fp4": read_modelopt,
    "modelopt_mixed": read_modelopt,
    "modelopt_mxfp8": read_modelopt,
    "quark": read_quark,
}


def known_methods() -> tuple[str, ...]:
    """Every ``quant_method`` that is understood, sorted."""
    return tuple(sorted(_READERS))


def read_plan(spec: ModelSpec, config: Mapping[str, object]) -> Plan:
    """What a quantisation block decides for ``spec``.

    Args:
        spec: The plain model.
        config: ``quantization_config``, ``compression_config``, or a whole
            ``hf_quant_config.json``.

    Raises:
        QuantizationError: The method is not known, or a field holds what it may not.
    """
    method = config.get("quant_method")
    if method is None:
        if "quantization" in config or "quant_algo" in config:
            method = "modelopt"
        elif "config_groups" in config:
            method = "compressed-tensors"
    if method == "fp8" and config.get("quant_algo") and "moe_quant_algo" not in config:
        method = "modelopt"
    reader = _READERS.get(method.lower()) if isinstance(method, str) else None
    if reader is None:
        raise methods.unknown_method(method, known_methods())
    return reader(spec, config)


def apply_quantization(spec: ModelSpec, config: Mapping[str, object]) -> ModelSpec:
    """``spec`` with the scheme of each weight that ``config`` quantises.

    Layers whose schemes differ become different kinds; alike ones stay the same object.

    Args:
        spec: The plain model.
        config: ``quantization_config``, ``compression_config``, or a whole
            ``hf_quant_config.json``.

    Raises:
        QuantizationError: The method is not known, or a field holds what it may not.
    """
    plan = read_plan(spec, config)
    quantized = with_schemes(spec, plan.resolve)
    return replace(
        quantized,
        quantization=plan.method,
        kv_cache_dtype=plan.kv_cache_dtype or spec.kv_cache_dtype,
        assumptions=(*spec.assumptions, *plan.assumptions, *_narrow_groups(quantized, plan)),
    )


def _narrow_groups(spec: ModelSpec, plan: Plan) -> Iterator[str]:
    """A sentence when groups of AWQ or GPTQ do not divide a matrix's inputs.

    Their kernels refuse that in most engines (vLLM 0.33 ``awq.py`` and ``gptq.py``: "the input
    size is not aligned with the quantized weight shape").
    """
    if plan.method not in ("awq", "gptq"):
        return
    for layer, _ in spec.layer_kinds:
        for weight in layer.weights:
            size = weight.scheme.group_size if weight.scheme is not None else 0
            if size > 0 and weight.shape[-1] % size:
                yield (
                    f"group_size {size} does not divide the {weight.shape[-1]} inputs of "
                    f"{weight.name}: a narrower last group was counted, which kernels refuse"
                )
                return


def with_schemes(spec: ModelSpec, resolve: Resolver) -> ModelSpec:
    """``spec`` with the scheme that ``resolve`` gives each weight by its checkpoint path."""
    kinds: dict[tuple[int, tuple[Scheme | None, ...]], Layer] = {}
    root = "language_model." if "language_model." in spec.layer_prefix else ""

    def blocks(layers: Sequence[Layer], prefix: str, first: int) -> tuple[Layer, ...]:
        done: list[Layer] = []
        for number, layer in enumerate(layers, start=first):
            found = tuple(
                resolve(_paths(f"{prefix}.{number}.{weight.name}"), weight)
                for weight in layer.weights
            )
            key = (id(layer), found)
            if key not in kinds:
                kinds[key] = _with(layer, found)
            done.append(kinds[key])
        return tuple(done)

    def ends(weights: Sequence[Weight]) -> tuple[Weight, ...]:
        return tuple(
            _reschemed(weight, resolve(_end_paths(weight.name, root), weight)) for weight in weights
        )

    def tower(entry: Tower) -> Tower:
        return replace(entry, weights=ends(entry.weights))

    return replace(
        spec,
        layers=blocks(spec.layers, spec.layer_prefix, 0),
        mtp_layers=blocks(spec.mtp_layers, spec.layer_prefix, len(spec.layers)),
        encoder_layers=blocks(
            spec.encoder_layers, spec.layer_prefix.replace("decoder", "encoder"), 0
        ),
        input_weights=ends(spec.input_weights),
        output_weights=ends(spec.output_weights),
        towers=tuple(tower(entry) for entry in spec.towers),
    )


def map_weights(spec: ModelSpec, change: Callable[[Weight], Weight]) -> ModelSpec:
    """``spec`` with every weight changed alike; alike layers stay the same object."""
    kinds: dict[int, Layer] = {}

    def blocks(layers: Sequence[Layer]) -> tuple[Layer, ...]:
        for layer in layers:
            if id(layer) not in kinds:
                weights = tuple(change(weight) for weight in layer.weights)
                kinds[id(layer)] = replace(layer, weights=weights)
        return tuple(kinds[id(layer)] for layer in layers)

    return replace(
        spec,
        layers=blocks(spec.layers),
        mtp_layers=blocks(spec.mtp_layers),
        encoder_layers=blocks(spec.encoder_layers),
        input_weights=tuple(change(weight) for weight in spec.input_weights),
        output_weights=tuple(change(weight) for weight in spec.output_weights),
        towers=tuple(
            replace(entry, weights=tuple(change(weight) for weight in entry.weights))
            for entry in spec.towers
        ),
    )


def _paths(path: str) -> tuple[str, ...]:
    """Names of a module; the first expert or block stands for all of them."""
    return spellings(path.replace("*", "0"))


def _end_paths(path: str, root: str) -> tuple[str, ...]:
    """Names of a module outside the blocks; releases differ in the prefixes they give it."""
    names = _paths(path)
    return (*names, *(name.removeprefix("model.") for name in names), f"{root}{path}")


def _with(layer: Layer, found: Sequence[Scheme | None]) -> Layer:
    if all(weight.scheme == scheme for weight, scheme in zip(layer.weights, found, strict=True)):
        return layer
    weights = tuple(
        _reschemed(weight, scheme) for weight, scheme in zip(layer.weights, found, strict=True)
    )
    return replace(layer, weights=weights)


def _reschemed(weight: Weight, scheme: Scheme | None) -> Weight:
    return weight if weight.scheme == scheme else replace(weight, scheme=scheme)
