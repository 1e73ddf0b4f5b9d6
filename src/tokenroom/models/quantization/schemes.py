"""The layouts that quantised checkpoints use, each as a :class:`Scheme`.

Sources of the layouts, all read in vLLM 0.33 ``model_executor/layers/quantization``: ``fp8.py``,
``fbgemm_fp8.py``, ``auto_awq.py``, ``auto_gptq.py``, ``compressed_tensors/schemes``,
``modelopt.py``, ``mxfp4.py``; bitsandbytes 0.48 ``functional.py`` (``quantize_blockwise``,
``QuantState.as_dict``); HQQ 0.2 ``core/quantize.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tokenroom.models.spec import Scheme

FP8: Final = "fp8"
INT8: Final = "w8a8_int8"
AWQ: Final = "awq"
GPTQ: Final = "gptq"
PACKED: Final = "packed"
NVFP4: Final = "nvfp4"
NVFP4_MODELOPT_A16: Final = "nvfp4:modelopt_a16"
MXFP4: Final = "mxfp4"
MXFP8: Final = "mxfp8"
BNB_4BIT: Final = "bnb_4bit"
BNB_INT8: Final = "bnb_int8"
HQQ: Final = "hqq"
TORCHAO: Final = "torchao"
AQLM: Final = "aqlm"
GGML: Final = "ggml"

_FLOAT32_BYTES: Final = 4
_NF4_CODE_BYTES: Final = 16 * _FLOAT32_BYTES
_NESTED_CODE_BYTES: Final = 256 * _FLOAT32_BYTES
_NESTED_BLOCK: Final = 256


def family(scheme: Scheme) -> str:
    """The layout's family: the scheme's name up to a colon (``"ggml:q4_K"`` is ``"ggml"``)."""
    return scheme.name.partition(":")[0]


def fp8_tensor(*, static: bool) -> Scheme:
    """FP8 with one float32 scale a matrix, and one for its input when that is ``static``."""
    extra = _FLOAT32_BYTES if static else 0
    return Scheme(
        name=FP8,
        weight_bits=8,
        group_size=0,
        scale_bits=32,
        extra_bytes_per_tensor=extra,
        activation_bits=8,
    )


def fp8_channel(*, scale_bits: int = 32, static: bool = False) -> Scheme:
    """FP8 with one scale an output row."""
    extra = _FLOAT32_BYTES if static else 0
    return Scheme(
        name=FP8,
        weight_bits=8,
        group_size=-1,
        scale_bits=scale_bits,
        extra_bytes_per_tensor=extra,
        activation_bits=8,
    )


def fp8_block(block_shape: tuple[int, int] = (128, 128), *, scale_bits: int = 32) -> Scheme:
    """FP8 with one scale a block; scales are float32, or 8-bit exponents in DeepSeek V4."""
    return Scheme(
        name=FP8, weight_bits=8, block_shape=block_shape, scale_bits=scale_bits, activation_bits=8
    )


def int8_w8a8(*, group_size: int = -1, scale_bits: int = 32, extra: int = 0) -> Scheme:
    """INT8 weights and activations, one scale an output row (or a matrix)."""
    return Scheme(
        name=INT8,
        weight_bits=8,
        group_size=group_size,
        scale_bits=scale_bits,
        extra_bytes_per_tensor=extra,
        activation_bits=8,
    )


def awq(bits: int = 4, group_size: int = 128) -> Scheme:
    """AWQ: weights, zero points and float16 scales a group; zero points are always stored."""
    return Scheme(
        name=AWQ,
        weight_bits=bits,
        group_size=group_size,
        scale_bits=16,
        zero_point_bits=bits,
    )


def gptq(
    bits: int = 4, group_size: int = 128, *, act_order: bool = False, symmetric: bool = True
) -> Scheme:
    """GPTQ: as AWQ; zero points are stored even when all alike (symmetric)."""
    return Scheme(
        name=GPTQ if symmetric else f"{GPTQ}:asymmetric",
        weight_bits=bits,
        group_size=group_size,
        scale_bits=16,
        zero_point_bits=bits,
        act_order=act_order,
    )


def packed(
    bits: int,
    group_size: int,
    *,
    symmetric: bool = True,
    act_order: bool = False,
    activation_bits: int = 16,
) -> Scheme:
    """compressed-tensors ``pack-quantized``: int32 words, and the shape as two int64."""
    return Scheme(
        name=PACKED,
        weight_bits=bits,
        group_size=group_size,
        scale_bits=16,
        zero_point_bits=0 if symmetric else bits,
        act_order=act_order,
        extra_bytes_per_tensor=16,
        activation_bits=activation_bits,
    )


def nvfp4(*, activations: bool = True, group_size: int = 16) -> Scheme:
    """NVFP4: an FP8 scale a group and a float32 one a matrix (and one for a 4-bit input)."""
    return Scheme(
        name=NVFP4,
        weight_bits=4,
        group_size=group_size,
        scale_bits=8,
        extra_bytes_per_tensor=_FLOAT32_BYTES * (2 if activations else 1),
        activation_bits=4 if activations else 16,
    )


def mxfp4(*, activation_bits: int = 16) -> Scheme:
    """MXFP4: an 8-bit exponent a group of 32."""
    return Scheme(
        name=MXFP4, weight_bits=4, group_size=32, scale_bits=8, activation_bits=activation_bits
    )


def mxfp8() -> Scheme:
    """MXFP8: an 8-bit exponent a group of 32."""
    return Scheme(name=MXFP8, weight_bits=8, group_size=32, scale_bits=8, activation_bits=8)


def bnb_4bit(kind: str = "nf4", *, double_quant: bool = False, block_size: int = 64) -> Scheme:
    """NF4 or FP4 of bitsandbytes: a float32 maximum a block of the flattened matrix.

    With double quantisation the maxima are 8 bits, with a float32 one a 256 of them, a code book
    of 256 and an offset. The code book of 16 values is stored with each matrix.
    """
    scale_bits = 8 + 32 / _NESTED_BLOCK if double_quant else 32
    extra = _NF4_CODE_BYTES + (_NESTED_CODE_BYTES if double_quant else 0)
    return Scheme(
        name=f"{BNB_4BIT}:{kind}",
        weight_bits=4,
        group_size=block_size,
        scale_bits=scale_bits,
        extra_bytes_per_tensor=extra,
    )


def bnb_int8() -> Scheme:
    """LLM.int8 of bitsandbytes: one float32 scale an output row."""
    return Scheme(name=BNB_INT8, weight_bits=8, group_size=-1, scale_bits=32, activation_bits=8)


def hqq(bits: int = 4, group_size: int = 64) -> Scheme:
    """HQQ: a float16 scale and a float16 zero point a group."""
    return Scheme(
        name=HQQ, weight_bits=bits, group_size=group_size, scale_bits=16, zero_point_bits=16
    )


def torchao(bits: int, group_size: int, *, activation_bits: int = 16) -> Scheme:
    """Tensors of torchao: INT4 groups with a bfloat16 scale and zero, INT8 rows with a scale."""
    return Scheme(
        name=TORCHAO,
        weight_bits=bits,
        group_size=group_size,
        scale_bits=16,
        zero_point_bits=16 if group_size > 0 else 0,
        activation_bits=activation_bits,
    )


def aqlm(code_bits: int, codebooks: int, in_group: int, out_group: int) -> Scheme:
    """AQLM: codes of ``code_bits`` for groups of weights, code books, and a scale an output row."""
    book_bytes = codebooks * 2**code_bits * out_group * in_group * 2
    return Scheme(
        name=AQLM,
        weight_bits=code_bits * codebooks / (in_group * out_group),
        group_size=-1,
        scale_bits=16,
        extra_bytes_per_tensor=book_bytes,
    )


def with_static_input(scheme: Scheme) -> Scheme:
    """``scheme`` with one float32 input scale a matrix."""
    return replace(scheme, extra_bytes_per_tensor=scheme.extra_bytes_per_tensor + _FLOAT32_BYTES)
