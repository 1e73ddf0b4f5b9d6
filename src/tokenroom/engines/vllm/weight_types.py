"""Where vLLM's model classes divide or repeat parameters otherwise than the checkpoint suggests.

Read in ``model_executor/models`` and ``models`` of vLLM 0.19, 0.21, 0.32 and 0.33; keys are model
types of the text model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.spec import ModelSpec, Role, Shard, Weight

_DIVIDED_NORMS: Final = frozenset({"minimax_m2"})
"""Model types whose norms over all query or key heads are divided like them
(``minimax_m2.py``, ``MiniMaxText01RMSNormTP``)."""

_WHOLE_FFN: Final = frozenset({"gpt_bigcode"})
"""Model types whose class in transformers has no plan for dividing its feed-forward block."""

_DIVIDED_SELECTORS: Final = frozenset({"minimax_m3", "minimax_m3_vl_text"})
"""Model types whose sparse selector's queries are divided by head (``models/minimax_m3``)."""

_SELECTOR_WIDTH: Final = 128
"""Width of a head of that selector."""

_SAME_EVERYWHERE: Final = frozenset(
    {
        "arctic",
        "baichuan",
        "bamba",
        "bloom",
        "chatglm",
        "cohere",
        "cohere2",
        "cohere2_moe",
        "dbrx",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma4",
        "gemma4_text",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "hunyuan_v3",
        "internlm2",
        "jamba",
        "k2_horizon",
        "mamba",
        "mamba2",
        "minicpm",
        "minicpm3",
        "mixtral",
        "molmo",
        "molmo2",
        "nemotron_h",
        "olmo",
        "olmo2",
        "olmo_hybrid",
        "olmoe",
        "opt",
        "orion",
        "persimmon",
        "phi",
        "phimoe",
        "plamo2",
        "plamo3",
        "qwen",
        "qwen2_moe",
        "qwen3_moe",
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        "stablelm",
        "starcoder2",
        "zamba2",
    }
)
"""Model types that create embedding, final norm and head on every pipeline stage; only stages that
use them read them from the checkpoint, but all allocate them."""

_TRANSFORMERS_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "arcee": (0, 32),
    "cwm": (0, 32),
    "flex_olmo": (0, 29),
    "glm": (0, 32),
    "gpt_bigcode": (0, 25),
    "gpt_neox": (0, 32),
    "hunyuan_v1_dense": (0, 29),
    "hunyuan_v1_moe": (0, 29),
    "olmo": (0, 26),
    "olmo2": (0, 26),
    "olmo3": (0, 29),
    "phi": (0, 32),
    "seed_oss": (0, 32),
    "smollm3": (0, 11),
    "starcoder2": (0, 25),
    "vaultgemma": (0, 27),
}
"""Model types that run through transformers' own classes, and since which vLLM
(``models/registry.py``). That backend keeps no position table and creates the ends of the model
only where a pipeline stage uses them."""

_EMBEDDING_AND_HEAD: Final = frozenset({"qwen3_next"})
_EMBEDDING_ONLY: Final = frozenset(
    {
        "gemma3n_text",
        "lfm2",
        "lfm2_moe",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
    }
)


def as_divided(spec: ModelSpec, weight: Weight, version: tuple[int, ...]) -> Weight:
    """The weight as vLLM divides it, where its class differs from the description."""
    if (
        spec.model_type in _WHOLE_FFN
        and ".mlp." in f".{weight.name}"
        and runs_in_transformers(spec, version)
    ):
        return replace(weight, shard=Shard.REPLICATED)
    if spec.model_type in _DIVIDED_NORMS and weight.role is Role.NORM:
        leaf = weight.name.rpartition(".")[2]
        if leaf == "q_norm":
            return replace(weight, shard=Shard.COLUMN)
        if leaf == "k_norm":
            return replace(weight, shard=Shard.KV_COLUMN)
    if spec.model_type in _DIVIDED_SELECTORS and weight.name.endswith("indexer.q_proj"):
        return replace(weight, shard=Shard.KV_COLUMN, heads=weight.shape[0] // _SELECTOR_WIDTH)
    return weight


def runs_in_transformers(spec: ModelSpec, version: tuple[int, ...]) -> bool:
    """Whether vLLM of that version runs the model through transformers' own class."""
    since = _TRANSFORMERS_SINCE.get(spec.model_type)
    return since is not None and version >= since


def every_stage(spec: ModelSpec, version: tuple[int, ...]) -> frozenset[str]:
    """Which of ``"embedding"``, ``"norm"`` and ``"head"`` every pipeline stage allocates."""
    model_type = spec.model_type
    if runs_in_transformers(spec, version):
        return frozenset()
    if model_type in _SAME_EVERYWHERE:
        return frozenset({"embedding", "norm", "head"})
    if model_type in _EMBEDDING_AND_HEAD:
        return frozenset({"embedding", "head"})
    if model_type in _EMBEDDING_ONLY:
        return frozenset({"embedding"})
    return frozenset()
