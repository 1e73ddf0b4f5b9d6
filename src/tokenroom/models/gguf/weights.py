"""Turning the tensors of a GGUF file into weights, grouped by block.

Tensor names are those of llama.cpp 0c1e57098 ``src/llama-arch.cpp`` (``LLM_TENSOR_NAMES``); how
tensor parallelism divides each follows the parallel layers of vLLM 0.33
(``model_executor/layers/linear.py``) that load the same matrices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tokenroom.models.gguf.container import GGML_TYPES
from tokenroom.models.ranges import StoredTensor
from tokenroom.models.spec import Role, Scheme, Shard, Weight

_PLAIN: Final[Mapping[str, str]] = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}
_BLOCKS: Final = {name: (elements, size) for name, elements, size in GGML_TYPES.values()}

_BLOCK: Final = re.compile(r"blk\.(\d{1,9})\.(.+)", re.DOTALL)
_SUFFIX: Final = re.compile(r"(.+)\.(weight|bias|scale|input_scale)", re.DOTALL)
_NUMBERED_EXPERT: Final = re.compile(r"(ffn_(?:gate|up|down))\.(\d+)")  # Mixtral before stacking

_COLUMN: Final = frozenset(
    {
        "attn_q",
        "attn_qkv",
        "attn_gate",
        "attn_q_b",
        "attn_k_b",
        "attn_v_b",
        "attn_kv_b",
        "ffn_gate",
        "ffn_up",
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_gate_up_exps",
        "ffn_gate_shexp",
        "ffn_up_shexp",
        "ssm_in",
        "ssm_ba",
        "ssm_alpha",
        "ssm_beta",
        "ssm_conv1d",
        "shortconv.in_proj",
        "shortconv.conv",
        "attn_sinks",
    }
)
_KV_COLUMN: Final = frozenset({"attn_k", "attn_v"})
_ROW: Final = frozenset(
    {
        "attn_output",
        "ffn_down",
        "ffn_down_exps",
        "ffn_down_shexp",
        "ssm_out",
        "shortconv.out_proj",
    }
)
_OUTPUT: Final = frozenset({"output", "output_norm", "cls", "cls.output", "cls.norm", "dec.output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """All weights of a file: those of each block by name, those before and after the blocks."""

    blocks: Mapping[int, Mapping[str, Weight]]
    before: tuple[Weight, ...]
    after: tuple[Weight, ...]


def group_tensors(tensors: Iterable[StoredTensor]) -> Grouped:
    """Weights with the exact bytes of their tensors, biases and scales included."""
    modules: dict[tuple[int | None, str], dict[str, list[StoredTensor]]] = {}
    for tensor in tensors:
        block: int | None = None
        path = tensor.name
        if match := _BLOCK.fullmatch(path):
            block, path = int(match[1]), match[2]
        part = "weight"
        if match := _SUFFIX.fullmatch(path):
            path, part = match[1], match[2]
        if block is not None and (match := _NUMBERED_EXPERT.fullmatch(path)):
            path = f"{match[1]}_exps"
        modules.setdefault((block, path), {}).setdefault(part, []).append(tensor)
    blocks: dict[int, dict[str, Weight]] = {}
    ends: dict[bool, list[Weight]] = {False: [], True: []}
    for (block, path), parts in modules.items():
        weight = _weight(path, parts)
        if block is None:
            ends[path in _OUTPUT].append(weight)
        else:
            blocks.setdefault(block, {})[path] = weight
    return Grouped(blocks=blocks, before=tuple(ends[False]), after=tuple(ends[True]))


def _weight(name: str, parts: Mapping[str, list[StoredTensor]]) -> Weight:
    main = parts.get("weight") or next(iter(parts.values()))
    tensor = main[0]
    shape, count = tensor.shape, len(main)
    expert = name.endswith("_exps")
    if expert and count == 1 and len(shape) > 1:
        count, shape = shape[0], shape[1:]
    bias = 0
    if "weight" in parts:
        bias = sum(prod(part.shape) for part in parts.get("bias", ())) // max(count, 1)
    plain = _PLAIN.get(tensor.dtype)
    return Weight(
        name=name,
        shape=shape,
        bias=bias,
        role=_role(name, shape),
        shard=_shard(name),
        count=count,
        expert=expert,
        dtype=plain,
        scheme=None if plain else _scheme(tensor.dtype),
        stored_bytes=sum(part.num_bytes for group in parts.values() for part in group),
    )


def _scheme(dtype: str) -> Scheme:
    elements, size = _BLOCKS[dtype]
    return Scheme(name=f"ggml:{dtype}", weight_bits=8 * size / elements)


def _role(name: str, shape: tuple[int, ...]) -> Role:
    if name == "token_embd":
        return Role.EMBEDDING
    if name == "output":
        return Role.LM_HEAD
    if name == "ffn_gate_inp":
        return Role.ROUTER
    if "conv" in name and "proj" not in name:
        return Role.CONV
    if "norm" in name:
        return Role.NORM
    return Role.LINEAR if len(shape) > 1 and not name.startswith("rope_") else Role.OTHER


def _shard(name: str) -> Shard:
    if name in ("token_embd", "output"):
        return Shard.VOCAB
    if name in _COLUMN:
        return Shard.COLUMN
    if name in _KV_COLUMN:
        return Shard.KV_COLUMN
    return Shard.ROW if name in _ROW else Shard.REPLICATED


def split_fused_attention(
    weights: Mapping[str, Weight], query_rows: int, key_rows: int, value_rows: int
) -> dict[str, Weight]:
    """The weights of a block with a fused ``attn_qkv`` as three, since ranks divide them apart.

    Rows of one tensor have equal bytes, so the parts' bytes stay exact. A tensor with other rows
    (a gated delta rule's) is left whole.
    """
    fused = weights.get("attn_qkv")
    rows = query_rows + key_rows + value_rows
    if fused is None or fused.shape[0] != rows or (fused.stored_bytes or 0) % rows:
        return dict(weights)
    row_bytes = (fused.stored_bytes or 0) // rows
    split: dict[str, Weight] = {}
    for name, weight in weights.items():
        if weight is not fused:
            split[name] = weight
            continue
        for part, part_rows, shard in (
            ("q", query_rows, Shard.COLUMN),
            ("k", key_rows, Shard.KV_COLUMN),
            ("v", value_rows, Shard.KV_COLUMN),
        ):
            split[f"{name}.{part}"] = replace(
                fused,
                shape=(part_rows, *fused.shape[1:]),
                bias=part_rows if fused.bias else 0,
                shard=shard,
                stored_bytes=row_bytes * part_rows,
            )
    return split
