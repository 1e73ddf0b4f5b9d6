"""Decoders whose modelling code lies in their own repositories (no class in transformers 5.24).

Shapes follow vLLM's model files (0.11 and 0.33, named at each row) and the published code; the
totals that publishers state check them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.decoders import (
    attention_weights_of,
    builders,
    dense_part,
    grouped_attention,
    heads_of,
    sparse_part,
)
from tokenroom.models.architectures.dense import PHI
from tokenroom.models.architectures.family import (
    Experts,
    Family,
    FeedForwardPart,
    Heads,
    MixerPart,
    Names,
    Norm,
    QKNorm,
)
from tokenroom.models.architectures.moe import after_dense, shared_count
from tokenroom.models.architectures.mtp import deepseek_mtp, mimo_mtp
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, MoEFFN, Shard, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def _explicit_attention(heads: Heads) -> Attention:
    return Attention(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        value_head_dim=heads.head_dim,
    )


def _chatglm_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """ChatGLM 2 and later: ``multi_query_group_num`` KV heads with ``multi_query_attention``."""
    num_heads = config.integer("num_attention_heads")
    groups = config.integer("multi_query_group_num")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=groups if config.flag("multi_query_attention") else num_heads,
        head_dim=config.integer("kv_channels"),
    )
    if num_heads % heads.num_kv_heads:
        config.refuse("multi_query_group_num", f"a divisor of the {num_heads} attention heads")
    bias = config.flag("add_qkv_bias") or config.flag("add_bias_linear")
    weights = attention_weights_of(config, replace(family, q_bias=bias), hidden_size, heads)
    return (MixerPart(mixer=_explicit_attention(heads), weights=weights),) * count


def _qwen_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Qwen 1: as many KV heads as query heads, of ``kv_channels``."""
    num_heads = config.integer("num_attention_heads")
    heads = Heads(
        num_heads=num_heads, num_kv_heads=num_heads, head_dim=config.integer("kv_channels")
    )
    weights = attention_weights_of(config, family, hidden_size, heads)
    return (MixerPart(mixer=_explicit_attention(heads), weights=weights),) * count


def _grok_shared(config: Config) -> int:
    """Grok-2: with ``residual_moe`` a dense block beside the experts."""
    return config.integer("intermediate_size") if config.flag("residual_moe") else 0


def _per_layer(config: Config, key: str, index: int) -> int | None:
    """A field that holds one number, or one a layer."""
    if isinstance(config.get(key), list):
        numbers = config.integers(key) or ()
        if index >= len(numbers):
            config.refuse(key, "one whole number, or one for each layer")
        return numbers[index]
    return config.optional_integer(key, minimum=0)


def _hunyuan_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Hunyuan: with ``use_cla`` only each ``cla_share_factor``-th layer has keys and values."""
    width = config.optional_integer("head_dim", "attention_head_dim")
    usual = heads_of(config, hidden_size, even=True)
    heads = replace(usual, head_dim=width or usual.head_dim)
    own = attention_weights_of(config, family, hidden_size, heads)
    factor = config.integer("cla_share_factor") if config.flag("use_cla") else 1
    config.mark_read("cla_share_factor")
    kept = ("q_proj", "o_proj", "query_layernorm", "key_layernorm")
    shared = tuple(weight for weight in own if weight.name.endswith(kept))
    parts = {}
    for index in range(count):
        owner = index - index % factor
        mixer = _explicit_attention(heads)
        parts[index] = (
            MixerPart(mixer=mixer, weights=own)
            if owner == index
            else MixerPart(mixer=replace(mixer, shares_kv_of=owner), weights=shared)
        )
    first = parts[0]
    return tuple(first if index % factor == 0 else parts[index] for index in range(count))


def _hunyuan_feed_forward(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[FeedForwardPart]:
    """Hunyuan: experts whose width, number of shared ones and share may differ by layer."""
    num_experts = max(_per_layer(config, "num_experts", index) or 1 for index in range(count))
    usual_width = config.integer("intermediate_size")
    if num_experts <= 1:
        return (dense_part(config, family, hidden_size, usual_width),) * count
    mixed = bool(config.get("use_mixed_mlp_moe"))
    parts: dict[tuple[int, int, int], FeedForwardPart] = {}
    chosen: list[FeedForwardPart] = []
    for index in range(count):
        width = _per_layer(config, "moe_intermediate_size", index) or usual_width
        shared = (_per_layer(config, "num_shared_expert", index) or 0) * usual_width * mixed
        per_token = _per_layer(config, "moe_topk", index) or 1
        key = (width, shared, per_token)
        if key not in parts:
            weights = blocks.moe_weights(
                hidden_size=hidden_size,
                num_experts=num_experts,
                intermediate_size=width,
                shared_intermediate_size=shared,
                router_name="gate.wg",
                shared="shared_mlp",
            )
            moe = MoEFFN(
                num_experts=num_experts,
                experts_per_token=min(per_token, num_experts),
                intermediate_size=width,
                shared_intermediate_size=shared,
            )
            parts[key] = FeedForwardPart(ffn=moe, weights=weights)
        chosen.append(parts[key])
    return chosen


def _bailing_bias(config: Config, num_experts: int) -> tuple[Weight, ...]:
    """Ling 2's score correction, a parameter beside the router."""
    if not config.flag("moe_router_enable_expert_bias"):
        return ()
    return (blocks.vector("mlp.gate.expert_bias", num_experts),)


def _bailing_shared(config: Config) -> int:
    """Ling: the shared experts' own width, else the routed experts'."""
    width = config.optional_integer("moe_shared_expert_intermediate_size")
    count = config.optional_integer("num_shared_experts", minimum=0) or 0
    return count * (width or config.integer("moe_intermediate_size"))


def _step3_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Step-3's factorised queries: one KV head, a shared query of ``share_q_dim`` expanded."""
    num_heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim")
    shared = config.optional_integer("share_q_dim") or head_dim
    config.mark_read("num_attention_groups")
    weights = (
        blocks.linear("self_attn.q_proj", shared, hidden_size),
        blocks.linear("self_attn.k_proj", head_dim, hidden_size),
        blocks.linear("self_attn.v_proj", head_dim, hidden_size),
        blocks.linear("self_attn.o_proj", hidden_size, num_heads * head_dim, shard=Shard.ROW),
        blocks.norm("self_attn.inter_norm", shared),
        blocks.linear("self_attn.wq", num_heads * head_dim, shared, shard=Shard.COLUMN),
    )
    heads = Heads(num_heads=num_heads, num_kv_heads=1, head_dim=head_dim)
    return (MixerPart(mixer=_explicit_attention(heads), weights=weights),) * count


def _step3_sparse(config: Config, count: int) -> Sequence[bool]:
    """``moe_layers_enum`` lists them with commas; without it all but the first."""
    text = config.text("moe_layers_enum")
    if not text:
        return tuple(index > 0 for index in range(count))
    numbers = text.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        config.refuse("moe_layers_enum", "layer numbers separated by commas")
    named = {int(number) for number in numbers}
    return tuple(index in named for index in range(count))


def _minicpm_feed_forward(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[FeedForwardPart]:
    """MiniCPM: experts of the same width when ``num_experts`` is above 0."""
    if config.integer("num_experts", default=0, minimum=0):
        return (sparse_part(config, family, hidden_size),) * count
    return (dense_part(config, family, hidden_size, config.integer("intermediate_size")),) * count


def _deepseek_sparse(config: Config, count: int) -> Sequence[bool]:
    """DeepSeek-MoE: every ``moe_layer_freq``-th layer after the dense ones."""
    dense = config.integer("first_k_dense_replace", default=0, minimum=0)
    frequency = config.integer("moe_layer_freq", default=1)
    return tuple(index >= dense and index % frequency == 0 for index in range(count))


_FUSED_GLM: Final = Names(
    attention="self_attention",
    q="query_key_value",
    k="query_key_value",
    v="query_key_value",
    o="dense",
    gate="dense_h_to_4h",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    layers="transformer.encoder.layers",
    embedding="transformer.embedding.word_embeddings",
    final_norm="transformer.encoder.final_layernorm",
    head="transformer.output_layer",
)
_LAYER_NORM: Final = Norm.SCALE_AND_SHIFT
_BAILING: Final = Family(
    q_bias="use_bias",
    o_bias="use_bias",
    in_bias="use_bias",
    experts=Experts(
        shared=_bailing_shared,
        sparse=after_dense(),
        extra=_bailing_bias,
    ),
    qk_norm=QKNorm.HEAD,
    qk_norm_if="use_qk_norm",
    mtp=deepseek_mtp,
    names=Names(
        attention="attention",
        q="query_key_value",
        k="query_key_value",
        v="query_key_value",
        o="dense",
        q_norm="query_layernorm",
        k_norm="key_layernorm",
        embedding="model.word_embeddings",
    ),
)


def _bailing_attention(
    config: Config, family: Family, hidden_size: int, count: int
) -> Sequence[MixerPart]:
    """Ling: query, key and value biases by ``use_bias`` or ``use_qkv_bias``."""
    bias = config.flag("use_bias") or config.flag("use_qkv_bias")
    return grouped_attention(config, replace(family, q_bias=bias), hidden_size, count)


_FAMILIES: Final[Mapping[str, Family]] = {
    "Yi": Family(),  # vLLM llama.py
    "aquila": Family(),  # vLLM llama.py
    "baichuan": Family(names=Names(q="W_pack", k="W_pack", v="W_pack")),  # vLLM baichuan.py
    "bailing_moe": replace(_BAILING, attention=_bailing_attention),  # vLLM bailing_moe.py
    "bailing_moe_v2": replace(_BAILING, attention=_bailing_attention),
    "chatglm": Family(  # vLLM chatglm.py
        o_bias="add_bias_linear",
        in_bias="add_bias_linear",
        attention=_chatglm_attention,
        intermediate="ffn_hidden_size",
        names=_FUSED_GLM,
    ),
    "deepseek": Family(  # vLLM 0.11 deepseek.py
        q_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts(
            num_experts="n_routed_experts",
            shared=shared_count("n_shared_experts"),
            sparse=_deepseek_sparse,
        ),
    ),
    "grok-1": Family(  # vLLM 0.11 grok1.py
        norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"),
        experts=Experts(
            intermediate="intermediate_size",
            prefix="moe_block",
            gate="linear",
            up="linear_v",
            down="linear_1",
        ),
        names=Names(attention="attn"),
    ),
    "grok-2": Family(  # SGLang 0.5.2 to 0.5.23 grok.py
        norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"),
        tied=False,
        experts=Experts(
            num_experts="num_local_experts",
            shared=_grok_shared,
            shared_name="mlp",
            prefix="",
            router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.*",
        ),
    ),
    "hunyuan": Family(  # vLLM 0.11 hunyuan_v1.py
        q_bias="attention_bias",
        o_bias="attention_bias",
        in_bias="mlp_bias",
        qk_norm=QKNorm.HEAD,
        qk_norm_if="use_qk_norm",
        attention=_hunyuan_attention,
        feed_forward=_hunyuan_feed_forward,
        names=Names(q_norm="query_layernorm", k_norm="key_layernorm"),
    ),
    "internlm": Family(q_bias="bias", o_bias="bias"),  # vLLM llama.py
    "internlm2": Family(  # vLLM internlm2.py
        q_bias="bias",
        o_bias="bias",
        norms=("attention_norm", "ffn_norm"),
        names=Names(
            attention="attention",
            q="wqkv",
            k="wqkv",
            v="wqkv",
            o="wo",
            mlp="feed_forward",
            gate="w1",
            up="w3",
            down="w2",
            embedding="model.tok_embeddings",
            head="output",
        ),
    ),
    "mimo": Family(q_bias=True, windows=windows.after_max_window_layers, mtp=mimo_mtp),
    "minicpm": Family(  # vLLM minicpm.py
        q_bias="attention_bias",
        o_bias="attention_bias",
        experts=Experts(intermediate="intermediate_size", gate="w1", up="w3", down="w2"),
        feed_forward=_minicpm_feed_forward,
    ),
    "orion": Family(norm=_LAYER_NORM),  # vLLM orion.py
    "phi-msft": replace(
        PHI,
        intermediate=lambda config: (
            config.optional_integer("n_inner") or 4 * config.integer("hidden_size")
        ),
    ),
    "phi3small": Family(  # microsoft/Phi-3-small-8k-instruct modeling_phi3_small.py
        q_bias=True,
        o_bias=True,
        in_bias=True,
        norm=_LAYER_NORM,
        intermediate="ff_intermediate_size",
        names=Names(
            q="query_key_value",
            k="query_key_value",
            v="query_key_value",
            o="dense",
            gate="up_proj",
            final_norm="model.final_layernorm",
        ),
    ),
    "qwen": Family(  # vLLM qwen.py
        q_bias=True,
        norms=("ln_1", "ln_2"),
        attention=_qwen_attention,
        intermediate=lambda config: config.integer("intermediate_size") // 2,
        names=Names(
            attention="attn",
            q="c_attn",
            k="c_attn",
            v="c_attn",
            o="c_proj",
            gate="w2",
            up="w1",
            down="c_proj",
            layers="transformer.h",
            embedding="transformer.wte",
            final_norm="transformer.ln_f",
        ),
    ),
    "skywork": Family(),  # vLLM llama.py
    "solar": Family(q_bias="attention_bias", o_bias="attention_bias", in_bias="mlp_bias"),
    "step3_text": Family(  # vLLM step3_text.py
        attention=_step3_attention,
        experts=Experts(
            num_experts="moe_num_experts",
            per_token="moe_top_k",
            sparse=_step3_sparse,
            shared=lambda config: config.integer("share_expert_dim"),
            prefix="moe",
            shared_name="share_expert",
        ),
    ),
    "telechat": Family(  # vLLM telechat2.py
        o_bias=True,
        in_bias=False,
        out_bias=True,
        names=Names(
            attention="self_attention",
            q="query",
            k="key_value",
            v="key_value",
            o="dense",
            layers="transformer.h",
            embedding="transformer.word_embeddings",
            final_norm="transformer.ln_f",
        ),
    ),
    "xverse": Family(),  # vLLM llama.py
}

BUILDERS: Final[Mapping[str, Builder]] = builders(_FAMILIES)
