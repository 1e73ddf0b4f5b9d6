"""The parameters that vLLM creates for one module, by type: plain, quantised, or routed experts.

Each function restates a ``create_weights`` of vLLM 0.32 and 0.33
(``model_executor/layers/quantization``, named at each branch). Shapes are those of one rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Final, TypeAlias

from tokenroom.models.quantization import dtype_bytes, matrix_bytes, schemes
from tokenroom.models.spec import Scheme, Shard, Weight

ByType: TypeAlias = Counter[str]
"""Bytes by PyTorch type."""

_FLOAT32: Final = "float32"
_FP8: Final = "float8_e4m3fn"
_INT32_BITS: Final = 32
_SMALLEST_REFINED_BLOCK: Final = 32

_FUSED: Final[Mapping[str, str]] = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "w1": "w13",
    "w3": "w13",
    "q_a_proj": "fused_qkv_a_proj",
    "kv_a_proj_with_mqa": "fused_qkv_a_proj",
    "in_proj_qkv": "in_proj_qkvz",
    "in_proj_z": "in_proj_qkvz",
    "in_proj_b": "in_proj_ba",
    "in_proj_a": "in_proj_ba",
}
"""Checkpoint modules that vLLM merges into one (``packed_modules_mapping`` of its models)."""


def fused_name(weight: Weight) -> str:
    """The module that vLLM loads a weight into: its own, or the merged one."""
    prefix, _, leaf = weight.name.rpartition(".")
    return f"{prefix}.{_FUSED.get(leaf, leaf)}"


def plain_parameters(weight: Weight, dtype: str) -> ByType:
    """A parameter kept in ``dtype``."""
    return Counter({dtype: weight.parameters * dtype_bytes(dtype)})


def _scale_blocks(scheme: Scheme, out_features: int, in_features: int) -> int:
    rows, columns = scheme.block_shape or (128, 128)
    return -(-out_features // rows) * -(-in_features // columns)


def _scale_type(scheme: Scheme) -> str:
    return "float8_e8m0fnu" if scheme.scale_bits == 8 else _FLOAT32


def _words(elements: int, bits: float) -> int:
    """Bytes of ``elements`` values of ``bits`` packed into int32 words."""
    return -(-int(elements * bits) // _INT32_BITS) * 4


def linear_parameters(parts: Sequence[Weight], dtype: str) -> ByType:
    """A merged linear layer whose logical parts share a scheme, as often as their ``count``.

    Args:
        parts: This rank's piece of each part; all have the same inputs and scheme.
        dtype: Type of the model, which scales of integer layouts and biases have.
    """
    one = _linear_parameters(parts, dtype)
    times = parts[0].count
    return one if times == 1 else Counter({kind: times * size for kind, size in one.items()})


def _linear_parameters(parts: Sequence[Weight], dtype: str) -> ByType:
    scheme = parts[0].scheme
    out_features = sum(prod(part.shape[:-1]) for part in parts)
    in_features = parts[0].shape[-1]
    total: ByType = Counter()
    bias = sum(part.bias for part in parts)
    if bias:
        total[dtype] += bias * dtype_bytes(dtype)
    if scheme is None:
        total[dtype] += out_features * in_features * dtype_bytes(dtype)
        return total
    family = schemes.family(scheme)
    elements = out_features * in_features
    if family == schemes.FP8:  # fp8.py Fp8LinearMethod, compressed_tensors_w8a8_fp8.py, modelopt.py
        total[_FP8] += elements
        if scheme.block_shape is not None:
            scale = _scale_type(scheme)
            total[scale] += _scale_blocks(scheme, out_features, in_features) * dtype_bytes(scale)
        elif scheme.group_size == -1:
            total[_FLOAT32] += 4 * out_features
        else:
            total[_FLOAT32] += 4 * len(parts)
        total[_FLOAT32] += scheme.extra_bytes_per_tensor * len(parts)
    elif family == schemes.INT8:  # compressed_tensors_w8a8_int8.py: one input scale a module
        total["int8"] += elements
        total[_FLOAT32] += 4 * (out_features if scheme.group_size == -1 else len(parts))
        total[_FLOAT32] += scheme.extra_bytes_per_tensor
    elif family in (schemes.AWQ, schemes.GPTQ):  # auto_awq.py, auto_gptq.py
        groups = _groups(scheme, in_features)
        total["int32"] += _words(elements, scheme.weight_bits)
        total["int32"] += _words(groups * out_features, scheme.zero_point_bits)
        total[dtype] += groups * out_features * dtype_bytes(dtype)
        if scheme.act_order:
            total["int32"] += 4 * in_features
    elif family == schemes.PACKED:  # compressed_tensors_wNa16.py
        groups = _groups(scheme, in_features)
        total["int32"] += out_features * _words(in_features, scheme.weight_bits)
        total["int32"] += groups * _words(out_features, scheme.zero_point_bits)
        total[dtype] += groups * out_features * dtype_bytes(dtype)
        total["int64"] += 16
        if scheme.act_order:
            total["int32"] += 4 * in_features
    elif family == schemes.NVFP4:  # modelopt.py KNvfp4Static, compressed_tensors_w4a4_nvfp4.py
        total["uint8"] += elements // 2
        total[_FP8] += out_features * (in_features // scheme.group_size)
        total[_FLOAT32] += scheme.extra_bytes_per_tensor * len(parts)
    elif family in (schemes.MXFP4, schemes.MXFP8):  # ..._w4a4_mxfp4.py, modelopt.py
        total["uint8" if family == schemes.MXFP4 else _FP8] += int(
            elements * scheme.weight_bits / 8
        )
        total["uint8"] += out_features * (in_features // scheme.group_size)
    else:  # bitsandbytes, HQQ, torchao, AQLM, GGUF keep each part as the checkpoint has it
        for part in parts:
            total["uint8"] += matrix_bytes(scheme, prod(part.shape[:-1]), part.shape[-1])
    return total


def _groups(scheme: Scheme, in_features: int) -> int:
    return 1 if scheme.group_size == -1 else in_features // scheme.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPadding:
    """Multiples that an MXFP4 kernel rounds a rank's expert dimensions up to.

    ``fused_moe/oracle/mxfp4.py`` ``mxfp4_round_up_hidden_size_and_intermediate_size``; the default
    is its last branch, which no known GPU backend changes.
    """

    hidden: int = 1
    intermediate: int = 64


NO_PADDING: Final = ExpertPadding()
"""Of no known backend."""


def expert_parameters(
    parts: Sequence[Weight], dtype: str, padding: ExpertPadding = NO_PADDING
) -> ByType:
    """The routed experts of a layer: ``w13`` (gate and up) and ``w2`` (down) of vLLM's FusedMoE.

    Args:
        parts: This rank's piece of each projection; ``count`` is the experts it holds.
        dtype: Type of the model.
        padding: What the MXFP4 kernel rounds dimensions up to.
    """
    scheme = parts[0].scheme
    if scheme is not None:
        scheme, parts = _fitted(scheme, parts, padding)
    experts = parts[0].count
    first = [part for part in parts if part.shard is not Shard.ROW]
    second = [part for part in parts if part.shard is Shard.ROW]
    total: ByType = Counter()
    bias = experts * sum(part.bias for part in parts)
    if bias:
        total[dtype] += bias * dtype_bytes(dtype)
    if scheme is None:
        elements = experts * sum(prod(part.shape) for part in parts)
        total[dtype] += elements * dtype_bytes(dtype)
        return total
    family = schemes.family(scheme)
    if family in (schemes.AWQ, schemes.GPTQ) and not _marlin_takes(scheme, parts):
        return total + _wna16_parameters(scheme, parts, dtype)
    for part in parts:
        out_features, in_features = part.shape[-2], part.shape[-1]
        total.update(_expert_matrix(scheme, family, experts, out_features, in_features, dtype))
    if family == schemes.FP8 and scheme.extra_bytes_per_tensor:
        # fp8.py Fp8MoEMethod: one input scale an expert for gate and up together
        total[_FLOAT32] += 4 * experts * (bool(first) + bool(second))
    elif family == schemes.NVFP4:  # modelopt.py ModelOptNvFp4FusedMoE: both scales, A16 or not
        total[_FLOAT32] += 8 * experts * len(parts)
    elif family == schemes.GPTQ and not bias:  # auto_gptq.py: zero biases, dropped after loading
        zeros = sum(part.shape[-2] for part in parts)
        total[dtype] += experts * zeros * dtype_bytes(dtype)
    elif family == schemes.PACKED:  # compressed_tensors_moe_wna16.py: (experts, 2) twice, in dtype
        total[dtype] += 2 * 2 * experts * dtype_bytes(dtype)
    return total


def _hidden_and_intermediate(parts: Sequence[Weight]) -> tuple[int, int]:
    down = next(part for part in parts if part.shard is Shard.ROW)
    return down.shape[-2], down.shape[-1]


def _fitted(
    scheme: Scheme, parts: Sequence[Weight], padding: ExpertPadding
) -> tuple[Scheme, Sequence[Weight]]:
    """Scheme and shapes as adapted to a rank's share of the intermediate dimension.

    Block scales are refined to a block that divides it (``fused_moe/oracle/fp8.py``
    ``refine_fp8_moe_block_shape``, since 0.27); MXFP4 dimensions are rounded up.
    """
    hidden, intermediate = _hidden_and_intermediate(parts)
    if schemes.family(scheme) == schemes.FP8 and scheme.block_shape is not None:
        rows, columns = scheme.block_shape
        if intermediate % rows or intermediate % columns:
            refined = gcd(rows, columns, intermediate, hidden)
            if refined >= _SMALLEST_REFINED_BLOCK:
                scheme = replace(scheme, block_shape=(refined, refined))
    elif schemes.family(scheme) == schemes.MXFP4:
        wide = -(-hidden // padding.hidden) * padding.hidden
        deep = -(-intermediate // padding.intermediate) * padding.intermediate
        parts = [
            replace(part, shape=(wide, deep), bias=wide if part.bias else 0)
            if part.shard is Shard.ROW
            else replace(part, shape=(deep, wide), bias=deep if part.bias else 0)
            for part in parts
        ]
    return scheme, parts


def _marlin_takes(scheme: Scheme, parts: Sequence[Weight]) -> bool:
    """``marlin_utils.py`` ``check_moe_marlin_supports_config`` with padding of tiles allowed."""
    hidden, intermediate = _hidden_and_intermediate(parts)
    group = scheme.group_size
    return (
        hidden % 128 == 0
        and (group <= 0 or intermediate % group == 0)
        and group in (-1, 32, 64, 128)
    )


def _wna16_parameters(scheme: Scheme, parts: Sequence[Weight], dtype: str) -> ByType:
    """Experts that Marlin cannot take: ``moe_wna16.py``, groups halved until they fit."""
    hidden, intermediate = _hidden_and_intermediate(parts)
    group = scheme.group_size
    while group > _SMALLEST_REFINED_BLOCK and (intermediate % group or hidden % group):
        group //= 2
    has_zero_points = scheme.name != schemes.GPTQ
    total: ByType = Counter()
    for part in parts:
        out_features, in_features = part.shape[-2], part.shape[-1]
        scales = out_features * (in_features // group)
        total["uint8"] += int(part.count * out_features * in_features * scheme.weight_bits / 8)
        total[dtype] += part.count * scales * dtype_bytes(dtype)
        if has_zero_points:
            total["uint8"] += int(part.count * scales * scheme.weight_bits / 8)
    return total


def _expert_matrix(
    scheme: Scheme, family: str, experts: int, out_features: int, in_features: int, dtype: str
) -> ByType:
    elements = experts * out_features * in_features
    total: ByType = Counter()
    if family == schemes.FP8:
        total[_FP8] += elements
        if scheme.block_shape is not None:
            scales = _scale_blocks(scheme, out_features, in_features)
        else:
            scales = out_features if scheme.group_size == -1 else 1
        total[_FLOAT32] += 4 * experts * scales
    elif family == schemes.INT8:
        total["int8"] += elements
        total[_FLOAT32] += 4 * experts * (out_features if scheme.group_size == -1 else 1)
    elif family in (schemes.AWQ, schemes.GPTQ, schemes.PACKED):
        scales = experts * _groups(scheme, in_features) * out_features
        total["int32"] += _words(elements, scheme.weight_bits)
        total["int32"] += _words(scales, scheme.zero_point_bits)
        total[dtype] += scales * dtype_bytes(dtype)
        if scheme.act_order:
            total["int32"] += 2 * 4 * experts * in_features  # the index and its sorting
    elif family == schemes.NVFP4:
        total["uint8"] += elements // 2
        total[_FP8] += experts * out_features * (in_features // scheme.group_size)
    elif family in (schemes.MXFP4, schemes.MXFP8):
        total["uint8" if family == schemes.MXFP4 else _FP8] += int(
            elements * scheme.weight_bits / 8
        )
        total["uint8"] += experts * out_features * (in_features // scheme.group_size)
    else:
        total["uint8"] += experts * matrix_bytes(scheme, out_features, in_features)
    return total
