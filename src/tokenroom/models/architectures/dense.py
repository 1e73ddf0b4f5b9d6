"""Dense decoders of Llama's shape, one row a model type (transformers 5.24 ``modeling_*.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.decoders import builders, grouped_attention
from tokenroom.models.architectures.family import Family, Heads, MixerPart, Names, Norm, QKNorm
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, Shard, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_FUSED: Final = Names(
    q="qkv_proj", k="qkv_proj", v="qkv_proj", gate="gate_up_proj", up="gate_up_proj"
)
_SANDWICH: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_POST_ONLY: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


def _apertus_activation(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """Two learned scalars of xIELU."""
    if config.text("hidden_act") != "xielu":
        return ()
    return (blocks.vector("mlp.act_fn.alpha_p", 1), blocks.vector("mlp.act_fn.alpha_n", 1))


def _bitnet_sub_norms(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """Norms before BitNet's output and down projections."""
    return (
        blocks.norm("self_attn.attn_sub_norm", hidden_size),
        blocks.norm("mlp.ffn_sub_norm", config.integer("intermediate_size")),
    )


def _differential_lambdas(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
    """Four vectors that weigh DiffLlama's two softmaxes."""
    return tuple(
        blocks.vector(f"self_attn.lambda_{part}", heads.head_dim)
        for part in ("q1", "k1", "q2", "k2")
    )


def _gemma3_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Gemma 3; EmbeddingGemma looks both ways, half a window to each side, and keeps no cache."""
    parts = grouped_attention(config, family, hidden_size, count)
    if not config.flag("use_bidirectional_attention"):
        return parts

    def both_ways(part: MixerPart) -> MixerPart:
        assert isinstance(part.mixer, Attention)
        window = part.mixer.window
        half = None if window is None else window // 2 + 1
        return replace(part, mixer=replace(part.mixer, encoder_only=True, window=half))

    changed = {id(part): both_ways(part) for part in parts}
    return tuple(changed[id(part)] for part in parts)


def _hyperclovax_norms(config: Config) -> tuple[str, ...]:
    usual = ("input_layernorm", "post_attention_layernorm")
    return (*usual, "post_norm1", "post_norm2") if config.flag("use_post_norm") else usual


def _stablelm_norms(config: Config) -> tuple[str, ...]:
    if config.flag("use_parallel_residual"):
        return ("input_layernorm",)
    return ("input_layernorm", "post_attention_layernorm")


def _stablelm_head_norms(config: Config, hidden_size: int, heads: Heads) -> tuple[Weight, ...]:
    """StableLM's LayerNorms without bias, one a head."""
    if not config.flag("qk_layernorm"):
        return ()
    queries = blocks.norm("self_attn.q_layernorm", heads.num_heads * heads.head_dim)
    keys = blocks.norm("self_attn.k_layernorm", heads.num_kv_heads * heads.head_dim)
    return replace(queries, shard=Shard.COLUMN), replace(keys, shard=Shard.KV_COLUMN)


_LLAMA: Final = Family(q_bias="attention_bias", o_bias="attention_bias", in_bias="mlp_bias")
_ATTENTION_BIAS: Final = Family(q_bias="attention_bias", o_bias="attention_bias")
_GEMMA2: Final = replace(
    _ATTENTION_BIAS,
    norms=_SANDWICH,
    windows=windows.every_nth_full(2),
    softcap="final_logit_softcapping",
)
_QWEN3: Final = replace(
    _ATTENTION_BIAS, qk_norm=QKNorm.HEAD, windows=windows.after_max_window_layers
)
_OLMO2: Final = replace(_ATTENTION_BIAS, norms=_POST_ONLY, qk_norm=QKNorm.FULL)
_GLM: Final = Family(q_bias="attention_bias", names=Names(gate="gate_up_proj", up="gate_up_proj"))
_COHERE: Final = replace(_ATTENTION_BIAS, norms=("input_layernorm",), tied=True)
_USE_BIAS: Final = Family(q_bias="use_bias", o_bias="use_bias", in_bias="use_bias")
_APERTUS: Final = replace(
    _ATTENTION_BIAS,
    gated=False,
    qk_norm=QKNorm.HEAD,
    norms=("attention_layernorm", "feedforward_layernorm"),
    extra=_apertus_activation,
)

PHI: Final = Family(
    q_bias=True,
    o_bias=True,
    in_bias=True,
    gated=False,
    norm=Norm.SCALE_AND_SHIFT,
    norms=("input_layernorm",),
    qk_norm=QKNorm.HEAD,
    qk_norm_if="qk_layernorm",
    head_bias=True,
    names=Names(
        o="dense",
        up="fc1",
        down="fc2",
        q_norm="q_layernorm",
        k_norm="k_layernorm",
        final_norm="model.final_layernorm",
    ),
)

_FAMILIES: Final[Mapping[str, Family]] = {
    "apertus": _APERTUS,
    "apertus1p5_text": _APERTUS,
    "arcee": replace(_LLAMA, gated=False),
    "bitnet": replace(_ATTENTION_BIAS, extra=_bitnet_sub_norms),
    "cohere": replace(_COHERE, qk_norm=QKNorm.FULL, qk_norm_if="use_qk_norm", qk_norm_divided=True),
    "cohere2": replace(
        _COHERE, even_heads=True, windows=windows.every_nth_full(4, key="sliding_window_pattern")
    ),
    "cwm": Family(windows=windows.listed_or(lambda index, _: index % 4 != 0), in_bias="mlp_bias"),
    "diffllama": replace(_ATTENTION_BIAS, attention_extra=_differential_lambdas),
    "emu3_text_model": replace(_LLAMA),
    "ernie4_5": _USE_BIAS,
    "exaone": _LLAMA,
    "exaone4": Family(
        norms=_POST_ONLY,
        qk_norm=QKNorm.HEAD,
        windows=windows.every_nth_full(4, key="sliding_window_pattern"),
    ),
    "gemma": _ATTENTION_BIAS,
    "gemma2": _GEMMA2,
    "gemma3_text": replace(
        _GEMMA2,
        attention=_gemma3_attention,
        qk_norm=QKNorm.HEAD,
        windows=windows.every_nth_full(6, key="sliding_window_pattern"),
    ),
    "glm": _GLM,
    "glm4": replace(
        _GLM,
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "post_self_attn_layernorm",
            "post_mlp_layernorm",
        ),
    ),
    "granite": _LLAMA,
    "granite_swa": replace(
        _LLAMA, sinks=True, windows=windows.listed_or(lambda index, _: index % 4 != 0)
    ),
    "helium": Family(q_bias="attention_bias", in_bias="mlp_bias"),
    "hunyuan_v1_dense": replace(
        _ATTENTION_BIAS,
        qk_norm=QKNorm.HEAD,
        names=Names(q_norm="query_layernorm", k_norm="key_layernorm"),
    ),
    "hyperclovax": replace(_LLAMA, norms=_hyperclovax_norms),
    "internlm3": _LLAMA,
    "iquestcoder": _LLAMA,
    "jais2": replace(_LLAMA, gated=False, norm=Norm.SCALE_AND_SHIFT),
    "llama": _LLAMA,
    "ministral": Family(windows=windows.listed_or(lambda index, count: True)),
    "ministral3": Family(windows=windows.every_layer),
    "mistral": Family(windows=windows.every_layer),
    "nanochat": Family(
        q_bias="attention_bias",
        o_bias="attention_bias",
        gated=False,
        norm=Norm.NOTHING,
        names=Names(up="fc1", down="fc2"),
        softcap="final_logit_softcapping",
    ),
    "nemotron": replace(_LLAMA, gated=False, norm=Norm.SCALE_AND_SHIFT),
    "olmo": replace(_ATTENTION_BIAS, norm=Norm.NOTHING),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, windows=windows.every_nth_full(4)),
    "phi": PHI,
    "phi3": Family(windows=windows.every_layer, names=_FUSED),
    "qwen2": Family(q_bias=True, windows=windows.after_max_window_layers),
    "qwen3": _QWEN3,
    "seed_oss": Family(q_bias="attention_bias", o_bias="attention_out_bias", in_bias="mlp_bias"),
    "smollm3": replace(_LLAMA, windows=windows.without_rope),
    "stablelm": Family(
        q_bias="use_qkv_bias",
        even_heads=True,
        norm=Norm.SCALE_AND_SHIFT,
        norms=_stablelm_norms,
        attention_extra=_stablelm_head_norms,
    ),
    "starcoder2": replace(
        _USE_BIAS,
        gated=False,
        norm=Norm.SCALE_AND_SHIFT,
        windows=windows.every_layer,
        names=Names(up="c_fc", down="c_proj"),
    ),
    "vaultgemma": replace(_GEMMA2, norms=("input_layernorm", "pre_feedforward_layernorm")),
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
