"""What ``general.architecture`` of a GGUF file stands for.

Names follow ``LLM_ARCH_NAMES`` in llama.cpp 0c1e57098 ``src/llama-arch.cpp``; the class and model
type beside each are those of the Hugging Face configuration the file was converted from
(``convert_hf_to_gguf.py`` of the same commit), which is what other engines know the model by.
Architectures whose caches a layer's tensors do not tell (DeepSeek V4, Kimi K3, encoder-decoders)
are left out on purpose: they are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: GGUF architecture -> (class, model type).
ARCHITECTURES: Final[Mapping[str, tuple[str, str]]] = {
    "afmoe": ("AfmoeForCausalLM", "afmoe"),
    "apertus": ("ApertusForCausalLM", "apertus"),
    "arcee": ("ArceeForCausalLM", "arcee"),
    "arctic": ("ArcticForCausalLM", "arctic"),
    "baichuan": ("BaichuanForCausalLM", "baichuan"),
    "bailingmoe": ("BailingMoeForCausalLM", "bailing_moe"),
    "bailingmoe2": ("BailingMoeV2ForCausalLM", "bailing_moe"),
    "bloom": ("BloomForCausalLM", "bloom"),
    "chatglm": ("ChatGLMModel", "chatglm"),
    "codeshell": ("CodeShellForCausalLM", "codeshell"),
    "cohere2": ("Cohere2ForCausalLM", "cohere2"),
    "command-r": ("CohereForCausalLM", "cohere"),
    "dbrx": ("DbrxForCausalLM", "dbrx"),
    "deci": ("DeciLMForCausalLM", "nemotron-nas"),
    "deepseek": ("DeepseekForCausalLM", "deepseek"),
    "deepseek2": ("DeepseekV3ForCausalLM", "deepseek_v3"),
    "deepseek32": ("DeepseekV32ForCausalLM", "deepseek_v32"),
    "dots1": ("Dots1ForCausalLM", "dots1"),
    "ernie4_5": ("Ernie4_5ForCausalLM", "ernie4_5"),
    "ernie4_5-moe": ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe"),
    "exaone": ("ExaoneForCausalLM", "exaone"),
    "exaone4": ("Exaone4ForCausalLM", "exaone4"),
    "exaone-moe": ("ExaoneMoEForCausalLM", "exaone_moe"),
    "falcon": ("FalconForCausalLM", "falcon"),
    "falcon-h1": ("FalconH1ForCausalLM", "falcon_h1"),
    "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "gemma3n": ("Gemma3nForCausalLM", "gemma3n_text"),
    "gemma4": ("Gemma4ForCausalLM", "gemma4_text"),
    "glm4": ("Glm4ForCausalLM", "glm4"),
    "glm4moe": ("Glm4MoeForCausalLM", "glm4_moe"),
    "glm-dsa": ("GlmMoeDsaForCausalLM", "glm_moe_dsa"),
    "gpt2": ("GPT2LMHeadModel", "gpt2"),
    "gptneox": ("GPTNeoXForCausalLM", "gpt_neox"),
    "gpt-oss": ("GptOssForCausalLM", "gpt_oss"),
    "granite": ("GraniteForCausalLM", "granite"),
    "granitehybrid": ("GraniteMoeHybridForCausalLM", "granitemoehybrid"),
    "granitemoe": ("GraniteMoeForCausalLM", "granitemoe"),
    "grok": ("Grok1ForCausalLM", "grok-1"),
    "grovemoe": ("GroveMoeForCausalLM", "grove_moe"),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense"),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe"),
    "internlm2": ("InternLM2ForCausalLM", "internlm2"),
    "jamba": ("JambaForCausalLM", "jamba"),
    "kimi-linear": ("KimiLinearForCausalLM", "kimi_linear"),
    "lfm2": ("Lfm2ForCausalLM", "lfm2"),
    "lfm2moe": ("Lfm2MoeForCausalLM", "lfm2_moe"),
    "llama": ("LlamaForCausalLM", "llama"),
    "llama4": ("Llama4ForCausalLM", "llama4_text"),
    "mamba": ("MambaForCausalLM", "mamba"),
    "mamba2": ("Mamba2ForCausalLM", "mamba2"),
    "mimo2": ("MiMoV2FlashForCausalLM", "mimo_v2_flash"),
    "minicpm": ("MiniCPMForCausalLM", "minicpm"),
    "minicpm3": ("MiniCPM3ForCausalLM", "minicpm3"),
    "minimax-m2": ("MiniMaxM2ForCausalLM", "minimax_m2"),
    "mistral3": ("MistralForCausalLM", "mistral"),
    "mpt": ("MPTForCausalLM", "mpt"),
    "nemotron": ("NemotronForCausalLM", "nemotron"),
    "nemotron_h": ("NemotronHForCausalLM", "nemotron_h"),
    "nemotron_h_moe": ("NemotronHForCausalLM", "nemotron_h"),
    "olmo": ("OlmoForCausalLM", "olmo"),
    "olmo2": ("Olmo2ForCausalLM", "olmo2"),
    "olmoe": ("OlmoeForCausalLM", "olmoe"),
    "openelm": ("OpenELMForCausalLM", "openelm"),
    "orion": ("OrionForCausalLM", "orion"),
    "phi2": ("PhiForCausalLM", "phi"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
    "phimoe": ("PhiMoEForCausalLM", "phimoe"),
    "qwen": ("QWenLMHeadModel", "qwen"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen2moe": ("Qwen2MoeForCausalLM", "qwen2_moe"),
    "qwen2vl": ("Qwen2VLForConditionalGeneration", "qwen2_vl"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen35": ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
    "qwen35moe": ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "qwen3next": ("Qwen3NextForCausalLM", "qwen3_next"),
    "qwen3vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
    "qwen3vlmoe": ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
    "refact": ("GPTRefactForCausalLM", "gpt_refact"),
    "rwkv6": ("Rwkv6ForCausalLM", "rwkv6"),
    "rwkv7": ("RWKV7ForCausalLM", "rwkv7"),
    "seed_oss": ("SeedOssForCausalLM", "seed_oss"),
    "smallthinker": ("SmallThinkerForCausalLM", "smallthinker"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
    "stablelm": ("StableLmForCausalLM", "stablelm"),
    "starcoder": ("GPTBigCodeForCausalLM", "gpt_bigcode"),
    "starcoder2": ("Starcoder2ForCausalLM", "starcoder2"),
    "step35": ("Step3p5ForCausalLM", "step3p5"),
    "xverse": ("XverseForCausalLM", "xverse"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How llama.cpp spreads sliding windows over layers when the file has no list of them.

    Attributes:
        period: One layer in this many is full.
        full_first: The first of each period is full instead of the last.
        window: Window in tokens when the file states none; None: then no layer has one.
        fixed_window: Window in tokens whatever the file states.
    """

    period: int
    full_first: bool = False
    window: int | None = None
    fixed_window: int | None = None


#: ``load_swa_pattern`` calls in llama.cpp 0c1e57098 ``src/models/*.cpp``. Architectures not named
#: have windows only where the file lists them layer by layer (gemma4, mimo2, step35); phi3 states
#: a window that llama.cpp does not use.
WINDOW_RULES: Final[Mapping[str, WindowRule]] = {
    "afmoe": WindowRule(period=4),
    "cohere2": WindowRule(period=4),
    "exaone4": WindowRule(period=4),
    "exaone-moe": WindowRule(period=4, window=128),
    "gemma2": WindowRule(period=2, window=4096),
    "gemma3": WindowRule(period=6),
    "gemma3n": WindowRule(period=5),
    "gpt-oss": WindowRule(period=2),
    "llama4": WindowRule(period=4, window=8192, fixed_window=8192),
    "olmo2": WindowRule(period=4),
    "smallthinker": WindowRule(period=4, full_first=True, fixed_window=4096),
}

#: Architectures that ``llama_model_rope_type`` (``src/llama-model.cpp``) gives no rotation, and two
#: whose graphs do not turn (starcoder has learned positions, Granite 4 hybrids have none).
NOT_ROTARY: Final = frozenset(
    {
        "bloom",
        "gpt2",
        "granitehybrid",
        "jamba",
        "kimi-linear",
        "mamba",
        "mamba2",
        "mpt",
        "nemotron_h",
        "nemotron_h_moe",
        "refact",
        "rwkv6",
        "rwkv7",
        "starcoder",
    }
)

#: Blocks from which on gemma3n reads earlier caches (``n_layer_kv_from_start``, gemma3n.cpp).
GEMMA3N_OWN_KV_LAYERS: Final = 20

#: Architectures whose ``ssm.*`` keys describe a gated delta rule instead of Mamba.
GATED_DELTA: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})

#: ``llama_ftype`` in llama.cpp 0c1e57098 ``include/llama.h``.
FILE_TYPES: Final[Mapping[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
