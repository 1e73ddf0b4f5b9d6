"""GGUF mixes: which ggml type llama.cpp's quantiser gives each tensor.

Block sizes: ``ggml-common.h``. Rules: ``llama-quant.cpp`` ``llama_tensor_get_type``, commit
0c1e57098: per-file defaults, and raised types for the output projection, ``attn_v``, ``ffn_down``
and, in some mixes, ``attn_output``. The rules that look at the number of heads or experts are kept;
an importance matrix is assumed absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenroom.models.quantization.schemes import GGML
from tokenroom.models.spec import Role, Scheme, Weight

BLOCKS: Final[Mapping[str, tuple[int, int]]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_K": (256, 84),
    "q3_K": (256, 110),
    "q4_K": (256, 144),
    "q5_K": (256, 176),
    "q6_K": (256, 210),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4": (32, 17),
}
"""Elements and bytes of one block of each ggml type."""

_FALLBACK: Final[Mapping[str, str]] = {
    "q2_K": "q4_0",
    "q3_K": "q4_0",
    "iq3_s": "iq4_nl",
    "iq4_xs": "iq4_nl",
    "q4_K": "q5_0",
    "q5_K": "q5_1",
    "q6_K": "q8_0",
}
"""What a row that is no multiple of 256 gets instead (``llama-quant.cpp``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A file type: the type of most tensors, and whether it raises some of them."""

    base: str
    size: str = ""


MIXES: Final[Mapping[str, Mix]] = {
    "q4_0": Mix(base="q4_0"),
    "q4_1": Mix(base="q4_1"),
    "q5_0": Mix(base="q5_0"),
    "q5_1": Mix(base="q5_1"),
    "q8_0": Mix(base="q8_0"),
    "q2_k": Mix(base="q2_K", size="m"),
    "q3_k_s": Mix(base="q3_K", size="s"),
    "q3_k_m": Mix(base="q3_K", size="m"),
    "q3_k_l": Mix(base="q3_K", size="l"),
    "q4_k_s": Mix(base="q4_K", size="s"),
    "q4_k_m": Mix(base="q4_K", size="m"),
    "q5_k_s": Mix(base="q5_K", size="s"),
    "q5_k_m": Mix(base="q5_K", size="m"),
    "q6_k": Mix(base="q6_K"),
    "iq4_nl": Mix(base="iq4_nl"),
    "iq4_xs": Mix(base="iq4_xs", size="s"),
}
"""File types by the name people use, lower case."""


def ggml_scheme(kind: str) -> Scheme:
    """The scheme of a ggml type; its scales are inside the blocks."""
    elements, block_bytes = BLOCKS[kind]
    return Scheme(name=f"{GGML}:{kind}", weight_bits=block_bytes * 8 / elements)


def fitting_type(kind: str, row: int) -> str:
    """``kind``, or what llama.cpp falls back to when a row is no multiple of its block."""
    if row % BLOCKS[kind][0] == 0:
        return kind
    fallback = _FALLBACK.get(kind, "f16")
    return fallback if row % BLOCKS[fallback][0] == 0 else "f16"


def more_bits(number: int, count: int) -> bool:
    """Whether block ``number`` of ``count`` is one that mixes raise (``use_more_bits``)."""
    return number < count // 8 or number >= 7 * count // 8 or (number - count // 8) % 3 == 2


def mix_type(
    mix: Mix,
    weight: Weight,
    *,
    number: int,
    count: int,
    tied: bool,
    queries_per_kv: int,
    num_experts: int,
) -> str:
    """The ggml type of a matrix in block ``number`` of ``count``.

    Args:
        mix: The file type.
        weight: The matrix.
        number: Index of its block, 0 outside of blocks.
        count: Number of blocks.
        tied: The embedding is the output projection as well.
        queries_per_kv: Query heads a KV head.
        num_experts: Routed experts, 0 or 1 for a dense model.
    """
    base = mix.base
    leaf = weight.name.rpartition(".")[2]
    if weight.role is Role.LM_HEAD or (weight.role is Role.EMBEDDING and tied):
        return base if base == "q8_0" else "q6_K"
    if weight.role is Role.ROUTER:
        return "f32"
    eight = num_experts == 8
    if leaf in ("v_proj", "kv_b_proj") or leaf.endswith("v_proj"):
        return _value_type(mix, number, count, queries_per_kv, eight)
    if leaf == "k_proj" and eight:
        return "q8_0"
    if leaf in ("down_proj", "w2", "fc2", "c_proj") and "attn" not in weight.name:
        return _down_type(mix, number, count)
    if leaf in ("o_proj", "out_proj", "dense") and "attn" in weight.name:
        return _output_type(mix, eight)
    return base


def _value_type(mix: Mix, number: int, count: int, queries_per_kv: int, eight: bool) -> str:
    if eight:
        return "q8_0"
    key = (mix.base, mix.size)
    if key == ("q2_K", "m"):
        return "q4_K" if queries_per_kv >= 4 else "q3_K"
    if key == ("q3_K", "m"):
        return "q5_K" if number < 2 else "q4_K"
    if key == ("q3_K", "l"):
        return "q5_K"
    if mix.base == "iq4_xs" and queries_per_kv >= 4:
        return "q5_K"
    if key in (("q4_K", "m"), ("q5_K", "m")) and more_bits(number, count):
        return "q6_K"
    if key == ("q4_K", "s") and number < 4:
        return "q5_K"
    return mix.base


def _down_type(mix: Mix, number: int, count: int) -> str:
    key = (mix.base, mix.size)
    if key == ("q2_K", "m"):
        return "q3_K"
    if key == ("q3_K", "m"):
        if number < count // 16:
            return "q5_K"
        return "q4_K" if more_bits(number, count) else "q3_K"
    if key == ("q3_K", "l"):
        return "q5_K"
    if key in (("q4_K", "m"), ("q5_K", "m")) and more_bits(number, count):
        return "q6_K"
    if key in (("q4_K", "s"), ("iq4_xs", "s")) and number < count // 8:
        return "q5_K"
    if mix.base in ("q4_0", "q5_0") and number < count // 8:
        return "q4_1" if mix.base == "q4_0" else "q5_1"
    return mix.base


def _output_type(mix: Mix, eight: bool) -> str:
    key = (mix.base, mix.size)
    if eight and key in (
        ("q2_K", "m"),
        ("q3_K", "s"),
        ("q3_K", "m"),
        ("q4_K", "s"),
        ("q4_K", "m"),
        ("iq4_xs", "s"),
    ):
        return "q5_K"
    if key == ("q2_K", "m"):
        return "q3_K"
    if key == ("q3_K", "m"):
        return "q4_K"
    if key == ("q3_K", "l"):
        return "q5_K"
    return mix.base
