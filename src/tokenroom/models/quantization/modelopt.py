"""NVIDIA modelopt (``hf_quant_config.json`` or ``quantization_config``) and AMD Quark.

modelopt: vLLM 0.33 ``modelopt.py`` ``from_config`` of each class, and ``_resolve_quant_algo`` for
mixed precision. Quark: ``quark/quark.py`` ``_find_matched_config``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Final

from tokenroom.models.quantization import fields, schemes
from tokenroom.models.quantization.compressed_tensors import kv_cache_dtype
from tokenroom.models.quantization.paths import by_modelopt, by_wildcard
from tokenroom.models.quantization.plan import Plan, is_head, is_projection
from tokenroom.models.spec import ModelSpec, Scheme, Weight

_ALGORITHMS: Final[Mapping[str, Scheme]] = {
    "FP8": schemes.fp8_tensor(static=True),
    "FP8_PER_CHANNEL_PER_TOKEN": schemes.fp8_channel(),
    "FP8_PB_WO": schemes.fp8_block(),
    "FP8_PB_REAL": schemes.fp8_block(),
    "NVFP4": schemes.nvfp4(),
    "NVFP4_AWQ": schemes.nvfp4(),
    "W4A16_NVFP4": replace(schemes.nvfp4(activations=False), name=schemes.NVFP4_MODELOPT_A16),
    "MXFP8": schemes.mxfp8(),
    "MXFP4": schemes.mxfp4(),
    "W4A16_AWQ": schemes.packed(4, 128),
    "INT4_AWQ": schemes.packed(4, 128),
    "W8A8_SQ_PER_CHANNEL": schemes.int8_w8a8(),
}

_TOWERS: Final = ("vision_tower", "vision_model", "vit_large_projector")
"""Modules that vLLM never reads as quantised, listed or not."""


def _algorithm(name: object, field: str, group_size: int) -> Scheme:
    found = _ALGORITHMS.get(str(name).upper())
    if found is None:
        raise fields.refuse(field, name, f"one of {', '.join(_ALGORITHMS)} or MIXED_PRECISION")
    if schemes.family(found) == schemes.NVFP4 and group_size < 1:
        raise fields.refuse("group_size", group_size, "a positive count of input elements")
    if schemes.family(found) == schemes.NVFP4 and group_size != found.group_size:
        return replace(found, group_size=group_size)
    return found


def read_modelopt(spec: ModelSpec, config: Mapping[str, object]) -> Plan:
    """The plan of a modelopt export.

    Raises:
        QuantizationError: ``quant_algo`` is not known or a field holds what it may not.
    """
    block = fields.mapping(config, "quantization") or config
    algorithm = fields.text(block, "quant_algo").upper()
    if not algorithm:
        raise fields.refuse("quant_algo", block.get("quant_algo"), "an algorithm such as FP8")
    excluded = by_modelopt(fields.names(block, "exclude_modules", "ignore"))
    algo = fields.text(block, "kv_cache_quant_algo").lower()
    kv_dtype = {"fp8": "fp8", "nvfp4": "nvfp4", "int8": "int8"}.get(algo)
    if kv_dtype is None:
        kv_dtype = kv_cache_dtype(block)
    if algorithm == "MIXED_PRECISION":
        table = {
            name: _algorithm(
                value.get("quant_algo"),
                f"quantized_layers.{name}.quant_algo",
                fields.integer(value, "group_size", 16),
            )
            for name, value in fields.mapping(block, "quantized_layers").items()
            if isinstance(value, Mapping)
        }
        if not table:
            raise fields.refuse("quantized_layers", {}, "a block of modules with their algorithm")
        return Plan(
            method="modelopt_mixed",
            resolve=_MixedResolver(table, excluded),
            kv_cache_dtype=kv_dtype,
        )
    scheme = _algorithm(algorithm, "quant_algo", fields.integer(block, "group_size", 16))

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not (is_projection(weight) or is_head(weight)) or excluded(paths):
            return None
        if any(tower in path for path in paths for tower in _TOWERS):
            return None
        return scheme

    method = "modelopt_fp4" if schemes.family(scheme) == schemes.NVFP4 else "modelopt"
    return Plan(method=method, resolve=resolve, kv_cache_dtype=kv_dtype)


class _MixedResolver:
    """Scheme by module of a mixed-precision export: itself, or a module inside or around it."""

    def __init__(self, table: Mapping[str, Scheme], excluded: object) -> None:
        self._table = table
        self._excluded = excluded
        self._parents: dict[str, Scheme] = {}
        for name, scheme in table.items():
            parent = name
            while "." in parent:
                parent = parent.rpartition(".")[0]
                self._parents.setdefault(parent, scheme)

    def __call__(self, paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not (is_projection(weight) or is_head(weight)):
            return None
        if callable(self._excluded) and self._excluded(paths):
            return None
        for path in paths:
            if path in self._table:
                return self._table[path]
            if weight.expert:
                found = self._experts(path)
                if found is not None:
                    return found
        return None

    def _experts(self, path: str) -> Scheme | None:
        parent = path
        while "." in parent:
            parent = parent.rpartition(".")[0]
            if parent in self._table:
                return self._table[parent]
            if parent.endswith("experts"):
                return self._parents.get(parent)
        return None


_QUARK_FLOATS: Final = ("fp8_e4m3", "fp8_e5m2", "fp8")


def read_quark(spec: ModelSpec, config: Mapping[str, object]) -> Plan:
    """The plan of an AMD Quark export: one global block, and overrides by module or kind.

    Raises:
        QuantizationError: A layout is not known.
    """
    excluded = by_wildcard(_quark_patterns(fields.names(config, "exclude")))
    base = _quark_scheme(fields.mapping(config, "global_quant_config"))
    overrides = [
        (name, _quark_scheme(value))
        for name, value in fields.mapping(config, "layer_quant_config").items()
        if isinstance(value, Mapping)
    ]

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not is_projection(weight) or excluded(paths):
            return None
        for pattern, scheme in overrides:
            if any(fnmatch(path, pattern) for path in paths):
                return scheme
        return base

    export = fields.mapping(config, "export")
    kv_dtype = "fp8" if fields.names(export, "kv_cache_group") else None
    return Plan(method="quark", resolve=resolve, kv_cache_dtype=kv_dtype)


def _quark_patterns(entries: Sequence[str]) -> list[str]:
    patterns: list[str] = []
    for entry in entries:
        plain = entry.removeprefix("re:").replace(".*", "*")
        patterns += [plain, f"{plain}.*"]
    return patterns


def _quark_scheme(block: Mapping[str, object]) -> Scheme | None:
    weight = block.get("weight")
    if isinstance(weight, Sequence) and not isinstance(weight, str):
        return schemes.nvfp4(activations=bool(block.get("input_tensors")))
    if not isinstance(weight, Mapping):
        return None
    dtype, how = fields.text(weight, "dtype"), fields.text(weight, "qscheme", "per_tensor")
    inputs = fields.mapping(block, "input_tensors") if block.get("input_tensors") else {}
    static = bool(inputs) and inputs.get("is_dynamic") is False
    if dtype in _QUARK_FLOATS:
        if how == "per_channel":
            return schemes.fp8_channel(static=static)
        return schemes.fp8_tensor(static=static)
    if dtype == "fp4":
        return schemes.mxfp4(activation_bits=4 if inputs else 16)
    if dtype == "int8":
        return schemes.int8_w8a8(group_size=-1 if how == "per_channel" else 0)
    if dtype in ("int4", "uint4"):
        size = fields.group(weight, "group_size", 128) if how == "per_group" else -1
        return schemes.packed(4, size, symmetric=dtype == "int4")
    raise fields.refuse("weight.dtype", dtype, "fp8_e4m3, fp4, int8, int4 or uint4")
