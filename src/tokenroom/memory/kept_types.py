"""Where engines keep parameters in another type than the checkpoint suggests.

Read in ``model_executor/models`` and ``models`` of vLLM 0.19, 0.21, 0.32 and 0.33; SGLang's model
classes descend from them. Keys are model types of the text model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.memory.layer_tensors import Tensor
from tokenroom.models.quantization.size import dtype_bytes
from tokenroom.models.spec import Layer, ModelSpec, MoEFFN, Role, Weight

_FLOAT32_LEAVES: Final = frozenset({"A_log", "A", "e_score_correction_bias", "expert_bias"})
"""Parameters created in float32 whatever the model's type: decays of recurrences
(``mamba_mixer2.py``, ``gdn_linear_attn.py``, ``kda.py``) and the routers' selection biases."""

_FLOAT32_NORMS: Final = ("indexer.k_norm",)
"""Norms created in float32 (``deepseek_v2.py`` ``Indexer``)."""

_FLOAT32_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "deepseek_v4": ("attn_hc.", "ffn_hc.", "hc_head.", "self_attn.sinks", ".position_bias"),
}
"""Further parameters created in float32, by part of their name."""

_FLOAT32_ROUTERS: Final = frozenset(
    {
        "afmoe",
        "bailing_hybrid",
        "bailing_moe_v2",
        "ernie4_5_moe",
        "glm4_moe",
        "glm4v_moe_text",
        "hunyuan_v3",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_vl_text",
        "nemotron_h",
        "param2moe",
    }
)
"""Model types whose router is created in float32 (``params_dtype=torch.float32``)."""

_ROUTER_BIASES: Final = frozenset(
    {
        "axk1",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "dots1",
        "exaone_moe",
        "glm4_moe",
        "glm4_moe_lite",
        "glm4v_moe_text",
        "glm_moe_dsa",
        "hunyuan_v3",
        "kimi_k2",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_vl_text",
        "nemotron_h",
        "pangu_ultra_moe",
    }
)
"""Model types with a float32 ``e_score_correction_bias`` an expert, a buffer in transformers."""

_PLAIN_ROUTER_BIASES: Final = frozenset({"minimax_m3", "minimax_m3_vl_text"})
"""Model types that keep that bias in the model's type."""

_QUANTISED_ROUTERS: Final = frozenset(
    {"k2_horizon", "lfm2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"}
)
"""Model types whose router gets the quantisation configuration; others pass None."""

_PLAIN_MODULES: Final = ("indexer.wk", "indexer.weights_proj", "shared_expert_gate")
"""Modules created plain whatever the checkpoint says: the sparse selector merges its key and weight
projections in the model's type and dequantises on reading (``deepseek_v2.py``
``_try_load_fp8_indexer_wk``); scalar gates pass ``quant_config=None``."""


def kept_type(spec: ModelSpec, weight: Weight, dtype: str) -> str:
    """The type vLLM keeps a plain parameter in when the model's is ``dtype``."""
    if weight.name.rpartition(".")[2] in _FLOAT32_LEAVES or weight.name.endswith(_FLOAT32_NORMS):
        return "float32"
    if any(part in weight.name for part in _FLOAT32_MODULES.get(spec.model_type, ())):
        return "float32"
    if weight.role is Role.ROUTER and spec.model_type in _FLOAT32_ROUTERS:
        return "float32"
    return dtype


def value_twin(spec: ModelSpec, layer: Layer) -> Weight | None:
    """The value projection that vLLM creates where a layer's values are its keys.

    ``gemma4.py``: the merged projection has room for values; the keys are read into it twice.
    """
    if not spec.model_type.startswith("gemma4"):
        return None
    names = {weight.name: weight for weight in layer.weights}
    keys = names.get("self_attn.k_proj")
    if keys is None or "self_attn.v_proj" in names:
        return None
    return replace(keys, name="self_attn.v_proj")


def is_created_plain(spec: ModelSpec, weight: Weight) -> bool:
    """Whether vLLM creates a weight plain that the checkpoint quantises."""
    if weight.role is Role.ROUTER and spec.model_type not in _QUANTISED_ROUTERS:
        return True
    return weight.name.endswith(_PLAIN_MODULES)


def router_tensors(spec: ModelSpec, number: int, layer: Layer) -> list[Tensor]:
    """What a router has beside its projection and the description does not list as a parameter.

    A selection bias an expert; in DeepSeek V4's first blocks instead a table from token to experts
    (``models/deepseek_v4`` ``gate.tid2eid``).

    Args:
        spec: The model.
        number: Index of the block.
        layer: The block.
    """
    if not isinstance(layer.ffn, MoEFFN) or spec.model_type not in _ROUTER_BIASES:
        return []
    if any(weight.name.endswith("e_score_correction_bias") for weight in layer.weights):
        return []
    hashed = spec.extra.get("num_hash_layers")
    if isinstance(hashed, int) and number < hashed:
        return [Tensor("int32", 4 * spec.vocab_size * layer.ffn.experts_per_token)]
    if spec.model_type in _PLAIN_ROUTER_BIASES:
        return [Tensor(spec.dtype, dtype_bytes(spec.dtype) * layer.ffn.num_experts)]
    return [Tensor("float32", 4 * layer.ffn.num_experts)]
