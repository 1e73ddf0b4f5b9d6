"""Which builder turns a configuration of a given model type into a :class:`ModelSpec`.

Each module here exports ``BUILDERS``, a mapping from model type to builder. Only the module that a
model type needs is imported, so that start-up stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, TypeAlias

from tokenroom.errors import UnknownArchitectureError, shown
from tokenroom.models.config import Config
from tokenroom.models.spec import ModelSpec

Builder: TypeAlias = Callable[[Config, str], ModelSpec]

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": (
        "apertus",
        "apertus1p5_text",
        "arcee",
        "bitnet",
        "cohere",
        "cohere2",
        "cwm",
        "diffllama",
        "emu3_text_model",
        "ernie4_5",
        "exaone",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "granite",
        "granite_swa",
        "helium",
        "hunyuan_v1_dense",
        "hyperclovax",
        "internlm3",
        "iquestcoder",
        "jais2",
        "llama",
        "ministral",
        "ministral3",
        "mistral",
        "nanochat",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "phi",
        "phi3",
        "qwen2",
        "qwen3",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
        "vaultgemma",
    ),
    "moe": (
        "afmoe",
        "aria_text",
        "beam",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "flint",
        "glm4_moe",
        "gpt_oss",
        "granitemoe",
        "granitemoe_swa",
        "granitemoeshared",
        "hunyuan_v1_moe",
        "hy_v3",
        "kolibri1",
        "mellum",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "phimoe",
        "qwen2_moe",
        "qwen3_moe",
        "sarvam_moe",
        "solar_open",
    ),
    "latent": (
        "axk1",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "minicpm3",
        "sarvam_mla",
        "youtu",
    ),
    "moe_variants": (
        "cohere2_moe",
        "laguna",
        "llama4_text",
        "mimo_v2_flash",
        "minimax_m3",
        "minimax_m3_vl_text",
    ),
    "latent_variants": (
        "deepseek_ref",
        "deepseek_v4",
        "hy_v4",
        "longcat_flash",
    ),
    "gpt": (
        "RefinedWeb",
        "RefinedWebModel",
        "biogpt",
        "bloom",
        "codegen",
        "ctrl",
        "falcon",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
        "gptj",
        "mpt",
        "openai-gpt",
        "opt",
        "persimmon",
        "xglm",
    ),
    "gemma": (
        "gemma3n_text",
        "gemma4_text",
        "gemma4_unified_text",
    ),
    "multimodal_qwen": (
        "glm46v",
        "glm4v",
        "glm4v_moe",
        "glm_ocr",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
        "qwen3_vl_moe",
    ),
    "multimodal_text": (
        "glm4v_moe_text",
        "glm4v_text",
        "glm_ocr_text",
        "mllama_text_model",
        "qwen2_5_omni_text",
        "qwen2_5_vl_text",
        "qwen2_vl_text",
        "qwen3_omni_moe_text",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
        "step3p5",
    ),
    "remote": (
        "Yi",
        "aquila",
        "baichuan",
        "bailing_moe",
        "bailing_moe_v2",
        "chatglm",
        "deepseek",
        "grok-1",
        "grok-2",
        "hunyuan",
        "internlm",
        "internlm2",
        "mimo",
        "minicpm",
        "orion",
        "phi-msft",
        "phi3small",
        "qwen",
        "skywork",
        "solar",
        "step3_text",
        "telechat",
        "xverse",
    ),
    "nas": ("nemotron-nas",),
    "recurrent_nemotron": ("nemotron_h",),
    "recurrent_conv": ("lfm2", "lfm2_moe", "lfm3"),
    "recurrent_delta": (
        "minimax",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
    ),
    "recurrent_kimi": ("bailing_hybrid", "kimi_linear"),
    "recurrent_rnn": ("recurrent_gemma", "rwkv"),
    "encoder_decoder": (
        "bart",
        "blenderbot",
        "blenderbot-small",
        "m2m_100",
        "marian",
        "mbart",
        "mt5",
        "nllb-moe",
        "pegasus",
        "plbart",
        "speech_to_text",
        "switch_transformers",
        "t5",
        "umt5",
        "whisper",
    ),
    "moe_outliers": (
        "dbrx",
        "doge",
        "jetmoe",
    ),
    "bert": (
        "bert",
        "camembert",
        "roberta",
        "xlm-roberta",
    ),
    "multimodal_remote": ("internvl_chat", "kimi_vl"),
    "multimodal_gemma3n": ("gemma3n",),
    "multimodal_llava": (
        "lighton_ocr",
        "llava",
        "llava_next",
        "llava_next_video",
        "llava_onevision",
        "ministral3",
        "mistral3",
        "vipllava",
    ),
    "multimodal_pooled": (
        "cohere2_vision",
        "deepseek_vl",
        "gemma3",
        "internvl",
        "lfm2_vl",
        "ovis2",
        "paligemma",
    ),
    "multimodal_idefics": (
        "aria",
        "idefics2",
        "idefics3",
        "smolvlm",
    ),
    "multimodal_audio": (
        "audioflamingo3",
        "glmasr",
        "granite_speech",
        "qwen2_audio",
        "voxtral",
    ),
    "multimodal_omni": (
        "qwen2_5_omni",
        "qwen2_5_omni_thinker",
        "qwen3_asr",
        "qwen3_omni_moe",
        "qwen3_omni_moe_thinker",
    ),
    "multimodal_phi": (
        "phi3_v",
        "phi4_multimodal",
    ),
    "multimodal_native": (
        "kimi_k25",
        "minicpmv4_6",
        "minicpmv4_7",
        "minimax_m3_vl",
        "step3p7",
    ),
    "multimodal_llama": (
        "llama4",
        "mllama",
    ),
    "multimodal_gemma4": ("gemma4",),
    "recurrent_mamba": (
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "mamba",
        "mamba2",
    ),
    "recurrent_zamba": (
        "zamba",
        "zamba2",
    ),
    "multimodal_sam": ("deepseek_vl_hybrid",),
}

_MODULE_OF: Final[Mapping[str, str]] = {
    model_type: module for module, model_types in _MODULES.items() for model_type in model_types
}


def supported_model_types() -> tuple[str, ...]:
    """Every model type that has a builder, sorted."""
    return tuple(sorted(_MODULE_OF))


def module_of(model_type: str) -> str | None:
    """The module here that builds ``model_type``, None when none does."""
    return _MODULE_OF.get(model_type)


_MISNAMED: Final[Mapping[tuple[str, str], str]] = {("git", "Grok1ForCausalLM"): "grok-2"}
"""Types that published files name like another model's, told apart by the class."""


def builder_for(model_type: str, architectures: Sequence[str] = ()) -> Builder:
    """The builder of ``model_type``.

    Args:
        model_type: As in config.json.
        architectures: Class names in config.json, which tell misnamed types and stand in the error.

    Raises:
        UnknownArchitectureError: No builder knows the type.
    """
    if architectures:
        model_type = _MISNAMED.get((model_type, architectures[0]), model_type)
    module = _MODULE_OF.get(model_type)
    if module is None:
        import difflib  # only here: it is needed for the message alone

        near = difflib.get_close_matches(model_type, _MODULE_OF, n=3, cutoff=0.5)
        named = f" ({', '.join(architectures)})" if architectures else ""
        hint = f"; the nearest known types are {', '.join(near)}" if near else ""
        raise UnknownArchitectureError(
            f"model type {shown(model_type)}{named} is not known{hint}; if its layers are "
            f"those of a "
            f"known type, say so with --assume-architecture {near[0] if near else 'llama'}"
        )
    builders: Mapping[str, Builder] = import_module(f"{__name__}.{module}").BUILDERS
    return builders[model_type]
