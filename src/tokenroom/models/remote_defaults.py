"""Defaults of configuration classes that checkpoints ship themselves (remote code).

transformers has no class for these model types. Values are those of the ``configuration_*.py`` in
the repositories named; ``like`` takes the defaults of a type that transformers has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDefaults:
    """Defaults of one remote configuration class.

    Attributes:
        source: Repository whose configuration class says so.
        like: Type of transformers whose defaults and aliases hold too, None for none.
        values: Default of each field that has one.
        aliases: Usual name of a field -> the name the class uses.
    """

    source: str
    like: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


REMOTE: Final[Mapping[str, RemoteDefaults]] = {
    "RefinedWeb": RemoteDefaults(
        source="tiiuae/falcon-40b, before transformers had the class",
        like="falcon",
        values={"new_decoder_architecture": True},
        aliases={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "num_kv_heads": "n_head_kv",
        },
    ),
    "RefinedWebModel": RemoteDefaults(
        source="tiiuae/falcon-7b, before transformers had the class",
        like="falcon",
        aliases={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    ),
    "Yi": RemoteDefaults(source="01-ai/Yi-6B, before it was a Llama", like="llama"),
    "aquila": RemoteDefaults(source="BAAI/AquilaChat2-7B", like="llama"),
    "baichuan": RemoteDefaults(
        source="baichuan-inc/Baichuan2-7B-Base",
        values={"tie_word_embeddings": False},
        aliases={"max_position_embeddings": "model_max_length"},
    ),
    "bailing_moe": RemoteDefaults(
        source="inclusionAI/Ling-lite",
        values={
            "use_qkv_bias": False,
            "use_bias": True,
            "head_dim": None,
            "num_shared_experts": 0,
            "first_k_dense_replace": 0,
            "norm_head": False,
            "tie_word_embeddings": False,
        },
    ),
    "bailing_moe_v2": RemoteDefaults(
        source="inclusionAI/Ling-mini-2.0",
        values={
            "use_qkv_bias": False,
            "use_bias": False,
            "head_dim": 128,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "use_rmsnorm": True,
            "moe_router_enable_expert_bias": True,
            "num_nextn_predict_layers": 0,
            "tie_word_embeddings": False,
        },
    ),
    "chatglm": RemoteDefaults(
        source="THUDM/chatglm3-6b",
        values={
            "padded_vocab_size": 65024,
            "num_layers": 28,
            "hidden_size": 4096,
            "ffn_hidden_size": 13696,
            "kv_channels": 128,
            "num_attention_heads": 32,
            "seq_length": 2048,
            "multi_query_attention": False,
            "multi_query_group_num": 1,
            "add_bias_linear": False,
            "add_qkv_bias": False,
            "rmsnorm": True,
            "post_layer_norm": True,
            "tie_word_embeddings": False,
        },
        aliases={
            "num_hidden_layers": "num_layers",
            "vocab_size": "padded_vocab_size",
            "max_position_embeddings": "seq_length",
            "intermediate_size": "ffn_hidden_size",
            "head_dim": "kv_channels",
        },
    ),
    "deepseek": RemoteDefaults(
        source="deepseek-ai/deepseek-moe-16b-base",
        values={
            "first_k_dense_replace": 0,
            "moe_layer_freq": 1,
            "n_shared_experts": None,
            "attention_bias": False,
            "tie_word_embeddings": False,
        },
    ),
    "deepseek_ref": RemoteDefaults(source="deepseek-ai/DeepSeek-V4-Flash", like="deepseek_v4"),
    "grok-1": RemoteDefaults(
        source="xai-org/grok-1",
        values={"num_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": True},
    ),
    "hunyuan": RemoteDefaults(
        source="tencent/Hunyuan-A13B-Instruct",
        values={
            "attention_bias": False,
            "mlp_bias": False,
            "num_experts": 1,
            "moe_topk": 1,
            "num_shared_expert": 1,
            "use_mixed_mlp_moe": False,
            "use_qk_norm": False,
            "use_cla": False,
            "cla_share_factor": 1,
            "tie_word_embeddings": False,
        },
    ),
    "internlm": RemoteDefaults(
        source="internlm/internlm-7b", values={"bias": True, "tie_word_embeddings": False}
    ),
    "internlm2": RemoteDefaults(
        source="internlm/internlm2-7b", values={"bias": True, "tie_word_embeddings": False}
    ),
    "kimi_k2": RemoteDefaults(source="moonshotai/Kimi-K2-Instruct", like="deepseek_v3"),
    "mimo": RemoteDefaults(
        source="XiaomiMiMo/MiMo-7B-Base", like="qwen2", values={"num_nextn_predict_layers": 0}
    ),
    "minicpm": RemoteDefaults(
        source="openbmb/MiniCPM-2B-sft-bf16",
        values={"attention_bias": False, "num_experts": 0, "tie_word_embeddings": True},
    ),
    "minimax_m3": RemoteDefaults(source="MiniMaxAI/MiniMax-M3", like="minimax_m3_vl_text"),
    "nemotron-nas": RemoteDefaults(
        source="nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        values={"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    ),
    "orion": RemoteDefaults(
        source="OrionStarAI/Orion-14B-Base", values={"tie_word_embeddings": False}
    ),
    "phi-msft": RemoteDefaults(
        source="microsoft/phi-2, before transformers had the class",
        values={"n_head_kv": None, "n_inner": None, "tie_word_embeddings": False},
        aliases={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "num_key_value_heads": "n_head_kv",
            "max_position_embeddings": "n_positions",
        },
    ),
    "phi3small": RemoteDefaults(
        source="microsoft/Phi-3-small-8k-instruct",
        values={"num_key_value_heads": 8, "tie_word_embeddings": True},
    ),
    "qwen": RemoteDefaults(
        source="Qwen/Qwen-7B", values={"kv_channels": 128, "tie_word_embeddings": False}
    ),
    "skywork": RemoteDefaults(source="Skywork/Skywork-13B-base", like="llama"),
    "solar": RemoteDefaults(source="upstage/solar-pro-preview-instruct", like="llama"),
    "step3_text": RemoteDefaults(
        source="stepfun-ai/step3",
        values={"share_q_dim": None, "moe_layers_enum": None, "tie_word_embeddings": False},
        aliases={"max_position_embeddings": "max_position_embedding"},
    ),
    "telechat": RemoteDefaults(
        source="Tele-AI/TeleChat2-7B",
        values={"num_key_value_heads": None, "tie_word_embeddings": False},
        aliases={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "ffn_hidden_size",
            "max_position_embeddings": "seq_length",
        },
    ),
    "xverse": RemoteDefaults(source="xverse/XVERSE-7B", values={"tie_word_embeddings": False}),
}
