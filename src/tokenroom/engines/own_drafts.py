"""Draft models that are the model itself: engines load its multi-token-prediction blocks only."""

from __future__ import annotations

from tokenroom.models.spec import ModelSpec


def own_blocks(draft: ModelSpec | None, spec: ModelSpec) -> bool:
    """Whether a named draft model is the model, or a checkpoint of its blocks alone (NextN).

    SGLang and vLLM then read the blocks of multi-token prediction out of it (SGLang 0.5.23
    configs/model_config.py ``DeepseekV3ForCausalLMNextN``; vLLM 0.33 config/speculative.py
    ``hf_config_override``).
    """
    if draft is None or not spec.mtp_layers:
        return False
    whole = (draft.architecture, draft.num_layers) == (spec.architecture, spec.num_layers)
    return whole or draft.architecture.endswith("NextN")
