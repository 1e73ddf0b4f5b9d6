"""Buffers that vLLM's layers keep beside their parameters: tables of rotary positions.

``model_executor/layers/rotary_embedding`` of vLLM 0.19 to 0.33. A table holds a cosine and a sine
for half of the rotated width, so ``width`` elements a position, in the model's type; layers with
equal settings share one.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.weight_types import runs_in_transformers
from tokenroom.models.quantization.size import dtype_bytes
from tokenroom.models.spec import ModelSpec, Rotary

_FLOAT32_TABLES: Final = frozenset({"deepseek_v4", "gpt_oss", "hunyuan_v3"})
"""Model types that ask for a float32 table."""

_UNSCALED_SECTIONS: Final = frozenset(
    {
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
    }
)
"""Model types that pass ``mrope_positions_factor=1``."""

_SECTION_POSITIONS: Final = 4
"""``MRotaryEmbedding`` keeps this many times the positions, for pictures of uneven sides."""


_DYNAMIC_UNSCALED: Final = (0, 22)
"""Since this version a ``dynamic`` table is not lengthened by its factor."""

_SECTIONS_BY_MODEL: Final = (0, 32)
"""Since this version a model says how many times its positions a sectioned table holds."""


def table_positions(spec: ModelSpec, table: Rotary, version: tuple[int, ...]) -> int:
    """Rows of a table.

    Args:
        spec: The model.
        table: The table.
        version: vLLM's version.
    """
    positions = table.positions
    if table.kind == "longrope":
        return positions + (table.original_positions or positions)
    if table.kind == "linear" or (table.kind == "dynamic" and version < _DYNAMIC_UNSCALED):
        positions = int(positions * table.factor)
    elif table.kind in ("yarn", "deepseek_yarn", "deepseek_llama_scaling"):
        positions = int((table.original_positions or positions) * table.factor)
    if table.multimodal and not (
        version >= _SECTIONS_BY_MODEL and spec.model_type in _UNSCALED_SECTIONS
    ):
        positions *= _SECTION_POSITIONS
    return positions


def position_table_sizes(spec: ModelSpec, dtype: str, version: tuple[int, ...]) -> list[int]:
    """Bytes of each position table one rank keeps.

    Every pipeline stage has its own copy; tensor parallelism does not divide them.

    Args:
        spec: The model.
        dtype: Type of the model.
        version: vLLM's version.
    """
    if runs_in_transformers(spec, version):
        return []
    element = 4 if spec.model_type in _FLOAT32_TABLES else dtype_bytes(dtype)
    return [table_positions(spec, table, version) * table.width * element for table in spec.rotary]
