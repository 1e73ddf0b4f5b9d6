"""The tensors an engine creates for one module: plain, quantised, or routed experts.

Each function restates a ``create_weights`` of vLLM 0.32 and 0.33
(``model_executor/layers/quantization``, named at each branch); SGLang's layers descend from the
same code and keep the same shapes. Shapes are those of one rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd, prod
from typing import Final, NamedTuple, TypeAlias

from tokenroom.memory.caching_allocator import round_up
from tokenroom.models.quantization import schemes
from tokenroom.models.quantization.size import dtype_bytes, matrix_bytes
from tokenroom.models.spec import Role, Scheme, Shard, Weight


class Tensor(NamedTuple):
    """Alike tensors: their type, the bytes of one, and how many there are."""

    dtype: str
    num_bytes: int
    times: int = 1


Tensors: TypeAlias = list[Tensor]

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


def plain_tensors(parts: Sequence[Weight], dtype: str) -> Tensors:
    """Parameters merged into one and kept in ``dtype``, with their merged bias."""
    element = dtype_bytes(dtype)
    times = parts[0].count
    found = [Tensor(dtype, element * sum(prod(part.shape) for part in parts), times)]
    bias = sum(part.bias for part in parts)
    if bias:
        found.append(Tensor(dtype, element * bias, times))
    return found


def merges(weight: Weight) -> bool:
    """Whether vLLM may merge a weight with its siblings; norms, routers and the rest stay apart."""
    return weight.role is Role.LINEAR and len(weight.shape) == 2


def _scale_blocks(scheme: Scheme, out_features: int, in_features: int) -> int:
    rows, columns = scheme.block_shape or (128, 128)
    return -(-out_features // rows) * -(-in_features // columns)


def _scale_type(scheme: Scheme) -> str:
    return "float8_e8m0fnu" if scheme.scale_bits == 8 else _FLOAT32


def _words(elements: int, bits: float) -> int:
    """Bytes of ``elements`` values of ``bits`` packed into int32 words."""
    return -(-int(elements * bits) // _INT32_BITS) * 4


def _groups(scheme: Scheme, in_features: int) -> int:
    return 1 if scheme.group_size == -1 else in_features // scheme.group_size


def linear_tensors(parts: Sequence[Weight], dtype: str) -> Tensors:
    """A merged linear layer whose logical parts share a scheme, as often as their ``count``.

    Args:
        parts: This rank's piece of each part; all have the same inputs and scheme.
        dtype: Type of the model, which scales of integer layouts and biases have.
    """
    found = _linear_tensors(parts, dtype)
    bias = sum(part.bias for part in parts)
    if bias:
        found.append(Tensor(dtype, bias * dtype_bytes(dtype)))
    times = parts[0].count
    return [tensor._replace(times=times) for tensor in found if tensor.num_bytes]


def _logical_parts(parts: Sequence[Weight]) -> int:
    """Projections that a merged layer scales apart; a query and its gate are one."""
    queries = sum(part.name.endswith(".q_proj") for part in parts)
    return len(parts) - max(0, queries - 1)


def _linear_tensors(parts: Sequence[Weight], dtype: str) -> Tensors:
    scheme = parts[0].scheme
    out_features = sum(prod(part.shape[:-1]) for part in parts)
    in_features = parts[0].shape[-1]
    elements = out_features * in_features
    if scheme is None:
        return [Tensor(dtype, elements * dtype_bytes(dtype))]
    family = schemes.family(scheme)
    extra = scheme.extra_bytes_per_tensor
    logical = _logical_parts(parts)
    if family == schemes.FP8:  # fp8.py Fp8LinearMethod, compressed_tensors_w8a8_fp8.py, modelopt.py
        if scheme.block_shape is not None:
            kind = _scale_type(scheme)
            scales = _scale_blocks(scheme, out_features, in_features) * dtype_bytes(kind)
        else:
            kind = _FLOAT32
            scales = 4 * (out_features if scheme.group_size == -1 else logical)
        return [
            Tensor(_FP8, elements),
            Tensor(kind, scales),
            Tensor(_FLOAT32, extra * logical),
        ]
    if family == schemes.INT8:  # compressed_tensors_w8a8_int8.py: one input scale a module
        scales = out_features if scheme.group_size == -1 else logical
        zero_point = extra % 4  # of an asymmetric static input, one byte beside its scale
        return [
            Tensor("int8", elements),
            Tensor(_FLOAT32, 4 * scales),
            Tensor(_FLOAT32, extra - zero_point),
            Tensor("int8", zero_point),
        ]
    if family in (schemes.AWQ, schemes.GPTQ):  # auto_awq.py, auto_gptq.py
        scales = _groups(scheme, in_features) * out_features
        return [
            Tensor("int32", _words(elements, scheme.weight_bits)),
            Tensor("int32", _words(scales, scheme.zero_point_bits)),
            Tensor(dtype, scales * dtype_bytes(dtype)),
            Tensor("int32", 4 * in_features if scheme.act_order else 0),
        ]
    if family == schemes.PACKED:  # compressed_tensors_wNa16.py
        groups = _groups(scheme, in_features)
        return [
            Tensor("int32", out_features * _words(in_features, scheme.weight_bits)),
            Tensor("int32", groups * _words(out_features, scheme.zero_point_bits)),
            Tensor(dtype, groups * out_features * dtype_bytes(dtype)),
            Tensor("int64", 16),
            Tensor("int32", 4 * in_features if scheme.act_order else 0),
        ]
    if family == schemes.NVFP4:  # modelopt.py KNvfp4Static, compressed_tensors_w4a4_nvfp4.py
        # modelopt.py _DropInputScale: created for weight-only checkpoints, dropped after loading
        dropped = logical * dtype_bytes(dtype) if scheme.name == schemes.NVFP4_MODELOPT_A16 else 0
        return [
            Tensor("uint8", elements // 2),
            Tensor(_FP8, out_features * (in_features // scheme.group_size)),
            Tensor(_FLOAT32, extra * logical),
            Tensor(dtype, dropped),
        ]
    if family in (schemes.MXFP4, schemes.MXFP8):  # compressed_tensors_w4a4_mxfp4.py, modelopt.py
        kind = "uint8" if family == schemes.MXFP4 else _FP8
        return [
            Tensor(kind, int(elements * scheme.weight_bits / 8)),
            Tensor("uint8", out_features * (in_features // scheme.group_size)),
        ]
    # bitsandbytes, HQQ, torchao, AQLM and GGUF keep each part as the checkpoint has it
    return [
        Tensor("uint8", matrix_bytes(scheme, prod(part.shape[:-1]), part.shape[-1]))
        for part in parts
    ]


class TritonLayout(StrEnum):
    """Layouts of Hopper's Triton kernels for MXFP4."""

    STRIDED = "strided"  # before PyTorch 2.8.1
    SWIZZLED = "swizzled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPadding:
    """How an MXFP4 kernel pads a rank's experts.

    Attributes:
        hidden: Multiple that the hidden size is rounded up to.
        intermediate: Multiple that the intermediate size is rounded up to.
        triton: How Hopper's Triton kernels lay the experts out after loading, None for others.
    """

    hidden: int = 1
    intermediate: int = 64
    triton: TritonLayout | None = None


NO_PADDING: Final = ExpertPadding()
"""The last branch of vLLM's rule, which no known GPU backend changes."""


def expert_tensors(
    parts: Sequence[Weight], dtype: str, padding: ExpertPadding = NO_PADDING
) -> Tensors:
    """The routed experts of a layer: ``w13`` (gate and up) and ``w2`` (down) of vLLM's FusedMoE.

    Args:
        parts: This rank's piece of each projection; ``count`` is the experts it holds.
        dtype: Type of the model.
        padding: What the MXFP4 kernel rounds dimensions up to.
    """
    scheme = parts[0].scheme
    if scheme is not None:
        scheme, parts = _fitted(scheme, parts, padding)
        if padding.triton is not None and schemes.family(scheme) == schemes.MXFP4:
            return _triton_tensors(parts, padding.triton)
    found: Tensors = []
    for first in (True, False):
        group = [part for part in parts if (part.shard is not Shard.ROW) is first]
        if not group:
            continue
        found += _expert_group(scheme, group, dtype, _marlin_takes(scheme, parts))
        bias = sum(part.bias for part in group)
        if not bias and scheme is not None and schemes.family(scheme) == schemes.GPTQ:
            # auto_gptq.py: zero biases, dropped after loading; none where Marlin is not used
            bias = sum(part.shape[-2] for part in group) if _marlin_takes(scheme, parts) else 0
        found.append(Tensor(dtype, group[0].count * bias * dtype_bytes(dtype)))
    return [tensor for tensor in found if tensor.num_bytes]


def _triton_tensors(parts: Sequence[Weight], layout: TritonLayout) -> Tensors:
    """Experts as Hopper's Triton kernels hold them.

    ``mxfp4.py`` turns biases into float32 and keeps the checkpoint's scales beside the kernel's
    own copy. triton_kernels 3.5 ``layout_details/hopper_value.py`` pads packed inputs to 64 bytes
    and outputs to 64, ``hopper_scale.py`` scales to pairs of inputs and 256 outputs.
    """
    found: Tensors = []
    swizzled = layout is TritonLayout.SWIZZLED
    for first in (True, False):
        group = [part for part in parts if (part.shard is not Shard.ROW) is first]
        if not group:
            continue
        experts, in_features = group[0].count, group[0].shape[-1]
        out_features = sum(part.shape[-2] for part in group)
        packed, scales = in_features // 2, in_features // 32
        values = packed * out_features
        copied = scales * out_features
        if swizzled:
            values = round_up(packed, 64) * round_up(out_features, 64)
            copied = round_up(scales, 2) * round_up(out_features, 256)
        found += [
            Tensor("uint8", experts * scales * out_features),
            Tensor("uint8", experts * values),
            Tensor("uint8", experts * copied),
            Tensor(_FLOAT32, 4 * experts * sum(part.bias for part in group)),
        ]
    return [tensor for tensor in found if tensor.num_bytes]


def _hidden_and_intermediate(parts: Sequence[Weight]) -> tuple[int, int]:
    down = next(part for part in parts if part.shard is Shard.ROW)
    return down.shape[-2], down.shape[-1]


def _fitted(
    scheme: Scheme, parts: Sequence[Weight], padding: ExpertPadding
) -> tuple[Scheme, Sequence[Weight]]:
    """Scheme and shapes as adapted to a rank's share of the intermediate dimension.

    Block scales are refined to a block that divides it (``fused_moe/oracle/fp8.py``
    ``refine_fp8_moe_block_shape``); MXFP4 dimensions are rounded up.
    """
    hidden, intermediate = _hidden_and_intermediate(parts)
    if schemes.family(scheme) == schemes.FP8 and scheme.block_shape is not None:
        rows, columns = scheme.block_shape
        if intermediate % rows or intermediate % columns:
            refined = gcd(rows, columns, intermediate, hidden)
            if refined >= _SMALLEST_REFINED_BLOCK:
                scheme = replace(scheme, block_shape=(refined, refined))
    elif schemes.family(scheme) == schemes.MXFP4:
        wide = round_up(hidden, padding.hidden)
        deep = round_up(intermediate, padding.intermediate)
        parts = [
            replace(part, shape=(wide, deep), bias=wide if part.bias else 0)
            if part.shard is Shard.ROW
            else replace(part, shape=(deep, wide), bias=deep if part.bias else 0)
            for part in parts
        ]
    return scheme, parts


def _marlin_takes(scheme: Scheme | None, parts: Sequence[Weight]) -> bool:
    """``marlin_utils.py`` ``check_moe_marlin_supports_config`` with padding of tiles allowed."""
    if scheme is None or schemes.family(scheme) not in (schemes.AWQ, schemes.GPTQ):
        return False
    hidden, intermediate = _hidden_and_intermediate(parts)
    group = scheme.group_size
    return (
        hidden % 128 == 0
        and (group <= 0 or intermediate % group == 0)
        and group in (-1, 32, 64, 128)
    )


def _expert_group(
    scheme: Scheme | None, group: Sequence[Weight], dtype: str, marlin: bool
) -> Tensors:
    """The tensors of ``w13`` or of ``w2``."""
    experts = group[0].count
    in_features = group[0].shape[-1]
    out_features = sum(part.shape[-2] for part in group)
    elements = experts * out_features * in_features
    if scheme is None:
        return [Tensor(dtype, elements * dtype_bytes(dtype))]
    family = schemes.family(scheme)
    if family == schemes.FP8:  # fp8.py Fp8MoEMethod: one input scale an expert for gate and up
        if scheme.block_shape is not None:
            scales = sum(_scale_blocks(scheme, part.shape[-2], in_features) for part in group)
        else:
            scales = out_features if scheme.group_size == -1 else len(group)
        static = 4 * experts if scheme.extra_bytes_per_tensor else 0
        return [
            Tensor(_FP8, elements),
            Tensor(_FLOAT32, 4 * experts * scales),
            Tensor(_FLOAT32, static),
        ]
    if family == schemes.INT8:  # compressed_tensors_moe_w8a8_int8.py
        scales = out_features if scheme.group_size == -1 else len(group)
        return [Tensor("int8", elements), Tensor(_FLOAT32, 4 * experts * scales)]
    if family in (schemes.AWQ, schemes.GPTQ) and not marlin:
        return _wna16_tensors(scheme, group, dtype)
    if family in (schemes.AWQ, schemes.GPTQ, schemes.PACKED):
        scales = experts * _groups(scheme, in_features) * out_features
        # compressed_tensors_moe_wna16.py keeps the shapes, (experts, 2), in the model's type
        shapes = 2 * experts * dtype_bytes(dtype) if family == schemes.PACKED else 0
        index = 4 * experts * in_features if scheme.act_order else 0  # and its sorting
        return [
            Tensor("int32", _words(elements, scheme.weight_bits)),
            Tensor("int32", _words(scales, scheme.zero_point_bits)),
            Tensor(dtype, scales * dtype_bytes(dtype)),
            Tensor(dtype, shapes),
            Tensor("int32", index),
            Tensor("int32", index),
        ]
    if family == schemes.NVFP4:  # modelopt.py ModelOptNvFp4FusedMoE: both scales, A16 or not
        return [
            Tensor("uint8", elements // 2),
            Tensor(_FP8, experts * out_features * (in_features // scheme.group_size)),
            Tensor(_FLOAT32, 8 * experts * len(group)),
        ]
    if family in (schemes.MXFP4, schemes.MXFP8):  # mxfp4.py, modelopt.py
        kind = "uint8" if family == schemes.MXFP4 else _FP8
        return [
            Tensor(kind, int(elements * scheme.weight_bits / 8)),
            Tensor("uint8", experts * out_features * (in_features // scheme.group_size)),
        ]
    return [
        Tensor("uint8", experts * matrix_bytes(scheme, part.shape[-2], in_features))
        for part in group
    ]


def _wna16_tensors(scheme: Scheme, group: Sequence[Weight], dtype: str) -> Tensors:
    """Experts that Marlin cannot take: ``moe_wna16.py``, groups halved until they fit."""
    experts = group[0].count
    out_features = sum(part.shape[-2] for part in group)
    in_features = group[0].shape[-1]
    size = scheme.group_size
    part = group[0].shape[-2]
    while size > _SMALLEST_REFINED_BLOCK and (in_features % size or part % size):
        size //= 2
    scales = experts * out_features * (in_features // size)
    zeros = int(scales * scheme.weight_bits / 8) if scheme.name != schemes.GPTQ else 0
    return [
        Tensor("uint8", int(experts * out_features * in_features * scheme.weight_bits / 8)),
        Tensor(dtype, scales * dtype_bytes(dtype)),
        Tensor("uint8", zeros),
    ]
