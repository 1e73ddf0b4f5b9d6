"""Which model runner vLLM takes and whether its steps overlap (asynchronous scheduling).

Source: ``use_v2_model_runner``, ``_get_v2_model_runner_unsupported_features`` and the async part of
``__post_init__``, config/vllm.py 0.12.0 to 0.33.0.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.default_rules import DefaultRules
from tokenroom.engines.vllm.model_traits import ModelTraits
from tokenroom.engines.vllm.rules import SecondRunner, rules_for
from tokenroom.engines.vllm.runner import takes_second_runner
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.models.spec import ModelSpec

_EAGLE_METHODS: Final = frozenset(
    {"eagle", "eagle3", "mtp", "extract_hidden_states", "deepseek_mtp", "gemma4_mtp"}
)


def runs_second_runner(
    user: VLLMSettings,
    spec: ModelSpec,
    traits: ModelTraits,
    rules: DefaultRules,
    *,
    mamba_mode: str,
) -> bool:
    """Whether the second model runner (v1/worker/gpu) runs the model.

    Args:
        user: What the user set.
        spec: The model.
        traits: Of the model.
        rules: Of the version.
        mamba_mode: How recurrent states are cached.
    """
    decided = rules_for(".".join(map(str, rules.version)))
    asked = user.environment.get("VLLM_USE_V2_MODEL_RUNNER")
    if decided.second_runner is SecondRunner.NEVER:
        return False
    if asked in ("0", "1"):
        return asked == "1"
    if _second_runner_lacks(user, traits, rules, mamba_mode):
        return False
    return takes_second_runner(spec, decided)


def _second_runner_lacks(
    user: VLLMSettings, traits: ModelTraits, rules: DefaultRules, mamba_mode: str
) -> bool:
    """Whether a feature in use keeps the first runner."""
    version = rules.version
    if traits.recurrent and (
        version < (0, 23, 0)
        or (version < (0, 25, 0) and mamba_mode == "align")
        or ((0, 30, 0) <= version < (0, 32, 0) and mamba_mode == "all")
    ):
        return True
    draft = user.speculative
    if draft is not None:
        if draft.method in rules.second_runner_refused_drafts:
            return True
        if version < (0, 30, 0) and draft.method not in rules.second_runner_drafts:
            return True
        staged = (user.pipeline_parallel_size or 1) > 1
        if version < (0, 30, 0) and draft.method == "eagle3" and staged:
            return True
    if (user.prefill_context_parallel_size or 1) > 1 and version < (0, 29, 0):
        return version < (0, 26, 0) or traits.latent is None
    if version < (0, 30, 0) and (user.enable_dbo or user.kv_sharing_fast_prefill):
        return True
    return version < (0, 29, 0) and bool(user.enable_prompt_embeds)


def overlap_obstacle(
    user: VLLMSettings,
    traits: ModelTraits,
    rules: DefaultRules,
    *,
    mamba_mode: str,
    second_runner: bool,
) -> str:
    """Why steps do not overlap by default; empty when nothing stands against it."""
    method = user.speculative.method if user.speculative else None
    if traits.pooling and not rules.async_for_pooling:
        return "the model pools"
    if (
        method is not None
        and method not in _EAGLE_METHODS | rules.async_draft_methods
        and not (second_runner and rules.version >= (0, 33, 0))
    ):
        return f"it does not go with {method} drafts"
    staged = (user.pipeline_parallel_size or 1) > 1
    if staged and not (rules.async_with_pipeline or second_runner):
        return "layers are spread over pipeline stages"
    if rules.async_without_recurrent_cache and mamba_mode != "none":
        return "states are cached"
    return ""
