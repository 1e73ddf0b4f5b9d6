"""In which type vLLM keeps parameters that it does not keep in the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.spec import ModelSpec, Role, Weight

_FLOAT32_LEAVES: Final[Mapping[str, str]] = {
    "A_log": "mamba_mixer2.py, gdn_linear_attn.py, kda.py: the decay of a recurrence",
    "e_score_correction_bias": "deepseek_v2.py, glm4_moe.py, minimax_m2.py: the router's bias",
}
"""Parameters created in float32 whatever the model's type, by module name, with their source."""

_FLOAT32_ROUTERS: Final = frozenset({"minimax_m2", "nemotron_h"})
"""Model types whose router is created in float32 (``params_dtype=torch.float32``)."""

_QUANTISED_ROUTERS: Final = frozenset(
    {"qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text", "lfm2_moe"}
)
"""Model types whose router gets the quantisation configuration; others pass None."""


def kept_type(spec: ModelSpec, weight: Weight, dtype: str) -> str:
    """The type vLLM keeps a plain parameter in when the model's is ``dtype``."""
    if weight.name.rpartition(".")[2] in _FLOAT32_LEAVES:
        return "float32"
    if weight.role is Role.ROUTER and spec.model_type in _FLOAT32_ROUTERS:
        return "float32"
    return dtype


def router_is_quantised(spec: ModelSpec) -> bool:
    """Whether vLLM reads the router as the quantisation block says, instead of as plain."""
    return spec.model_type in _QUANTISED_ROUTERS
