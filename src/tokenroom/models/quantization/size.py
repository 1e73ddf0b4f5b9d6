"""Exact bytes of one weight as a checkpoint stores it."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, prod

from tokenroom.errors import QuantizationError, shown
from tokenroom.models.quantization.schemes import BNB_4BIT, family
from tokenroom.models.spec import DTYPE_BITS, Scheme, Weight

_GROUP_INDEX_BYTES = 4


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a plain type.

    Raises:
        QuantizationError: The type is not known.
    """
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        raise QuantizationError(
            f"weight type {shown(dtype)} is not known; it may be one of {', '.join(DTYPE_BITS)}"
        )
    return bits // 8


def scale_count(scheme: Scheme, out_features: int, in_features: int) -> int:
    """Scales of a matrix of (out, in): one a tensor, a row, a group of inputs or a block."""
    if scheme.block_shape is not None:
        rows, columns = scheme.block_shape
        return -(-out_features // rows) * -(-in_features // columns)
    if scheme.group_size == 0:
        return 1
    if scheme.group_size == -1:
        return out_features
    if family(scheme) == BNB_4BIT:  # blocks run over the flattened matrix
        return -(-out_features * in_features // scheme.group_size)
    return out_features * -(-in_features // scheme.group_size)


def matrix_bytes(scheme: Scheme, out_features: int, in_features: int) -> int:
    """Bytes of one quantised matrix without its bias: weights, scales, zero points, group index."""
    scales = scale_count(scheme, out_features, in_features)
    bits = Fraction(scheme.weight_bits) * out_features * in_features
    scale_bits = Fraction(scheme.scale_bits) * scales
    zero_bits = Fraction(scheme.zero_point_bits) * scales
    index = _GROUP_INDEX_BYTES * in_features if scheme.act_order else 0
    return (
        ceil(bits / 8)
        + ceil(scale_bits / 8)
        + ceil(zero_bits / 8)
        + index
        + scheme.extra_bytes_per_tensor
    )


def stored_bytes(weight: Weight, dtype: str) -> int:
    """Bytes of all copies of ``weight`` in a checkpoint, with biases, scales and zero points.

    A size read from a header wins over the computed one.

    Args:
        weight: The parameter.
        dtype: Type of plain parameters of the model; the weight's own type wins over it.

    Raises:
        QuantizationError: The type is not known.
    """
    if weight.stored_bytes is not None:
        return weight.stored_bytes
    element_bytes = dtype_bytes(weight.dtype or dtype)
    if weight.scheme is None:
        return weight.parameters * element_bytes
    if len(weight.shape) < 2:
        return weight.parameters * element_bytes
    out_features, in_features = prod(weight.shape[:-1]), weight.shape[-1]
    one = matrix_bytes(weight.scheme, out_features, in_features)
    return weight.count * (one + weight.bias * element_bytes)
