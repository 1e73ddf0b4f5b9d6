"""Language models that exist only inside multimodal ones.

Most are a plain family under another name. Read from ``modeling_<type>.py`` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tokenroom.models.architectures import Builder, windows
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import (
    attention_weights,
    embedding,
    ffn_weights,
    linear,
    moe_weights,
    norm,
    vector,
)
from tokenroom.models.architectures.decoders import builders, heads_of
from tokenroom.models.architectures.family import Experts, Family, Names, QKNorm
from tokenroom.models.architectures.recurrent_blocks import stack
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    FFN,
    Attention,
    DenseFFN,
    Layer,
    ModelSpec,
    MoEFFN,
    Shard,
    Weight,
)

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"

_QWEN2_VL: Final = Family(q_bias=True, tied=False, windows=windows.after_max_window_layers)
_QWEN3_VL: Final = Family(
    q_bias="attention_bias", o_bias="attention_bias", qk_norm=QKNorm.HEAD, tied=False
)
_GLM4V: Final = Family(
    q_bias=True,
    norms=(
        "input_layernorm",
        "post_attention_layernorm",
        "post_self_attn_layernorm",
        "post_mlp_layernorm",
    ),
    names=Names(gate="gate_up_proj", up="gate_up_proj"),
    tied=False,
)


def _sparse_after_dense(config: Config, count: int) -> tuple[bool, ...]:
    dense = config.integer("first_k_dense_replace", minimum=0)
    return tuple(index >= dense for index in range(count))


def _sparse_steps(config: Config, count: int) -> tuple[bool, ...]:
    """Every ``decoder_sparse_step``-th layer but those in ``mlp_only_layers``."""
    step = config.integer("decoder_sparse_step")
    dense = frozenset(config.integers("mlp_only_layers") or ())
    experts = config.integer("num_experts", minimum=0)
    return tuple(
        index not in dense and experts > 0 and (index + 1) % step == 0 for index in range(count)
    )


def _deepseek_shared(config: Config) -> int:
    shared = config.optional_integer("n_shared_experts", minimum=0) or 0
    return shared * config.integer("moe_intermediate_size")


_FAMILIES: Final[Mapping[str, Family]] = {
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_5_omni_text": _QWEN2_VL,
    "qwen3_vl_text": _QWEN3_VL,
    "qwen3_vl_moe_text": replace(_QWEN3_VL, experts=Experts(sparse=_sparse_steps)),
    "qwen3_omni_moe_text": replace(_QWEN3_VL, experts=Experts(sparse=_sparse_steps)),
    "glm4v_text": _GLM4V,
    "glm_ocr_text": replace(_GLM4V, q_bias=False),
    "glm4v_moe_text": Family(
        q_bias="attention_bias",
        tied=False,
        experts=Experts(
            num_experts="n_routed_experts", shared=_deepseek_shared, sparse=_sparse_after_dense
        ),
    ),
}


def mllama(config: Config, name: str) -> ModelSpec:
    """Llama 3.2 Vision's language model: cross attention to the image at listed layers.

    Eight rows beyond ``vocab_size`` embed the image token and spares; the head lacks them.
    """
    hidden = config.integer("hidden_size")
    vocab = config.integer("vocab_size")
    inner = config.integer("intermediate_size")
    heads = heads_of(config, hidden, even=True)
    listed = config.integers("cross_attention_layers")
    crossing = frozenset((3, 8, 13, 18, 23, 28, 33, 38) if listed is None else listed)
    ffn = DenseFFN(intermediate_size=inner)
    own = Attention(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        value_head_dim=heads.head_dim,
    )

    def make(crosses: bool) -> Layer:
        prefix = "cross_attn" if crosses else "self_attn"
        weights = (
            *attention_weights(
                hidden_size=hidden,
                num_heads=heads.num_heads,
                num_kv_heads=heads.num_kv_heads,
                head_dim=heads.head_dim,
                prefix=prefix,
            ),
            *ffn_weights(hidden_size=hidden, intermediate_size=inner),
            norm("input_layernorm", hidden),
            norm("post_attention_layernorm", hidden),
        )
        if crosses:
            weights += (
                norm(f"{prefix}.q_norm", heads.head_dim),
                norm(f"{prefix}.k_norm", heads.head_dim),
                vector("cross_attn_attn_gate", 1),
                vector("cross_attn_mlp_gate", 1),
            )
        return Layer(mixers=(replace(own, cross=crosses),), ffn=ffn, weights=weights)

    return decoder(
        config,
        name,
        layers=stack((index in crossing for index in range(num_layers(config))), make),
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.norm", hidden),
        input_weights=(embedding(vocab + 8, hidden),),
    )


def step3p5(config: Config, name: str) -> ModelSpec:
    """Step 3.5 and the language model of Step 3.7: gated heads, more of them in sliding layers."""
    hidden = config.integer("hidden_size")
    count = num_layers(config)
    predicted = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    kinds = (config.texts("layer_types") or (FULL,) * (count + predicted))[: count + predicted]
    kinds += (FULL,) * (count + predicted - len(kinds))
    if not set(kinds) <= {FULL, SLIDING}:
        config.refuse("layer_types", f"a list of {FULL} and {SLIDING}")
    sparse = _step_sparse(config, count + predicted)
    heads = heads_of(config, hidden)
    other = config.mapping("attention_other_setting") or {}
    sliding_heads = config.optional_integer("num_sliding_attention_heads")
    if sliding_heads is None:
        named = other.get("num_attention_heads")
        sliding_heads = named if isinstance(named, int) and named > 0 else heads.num_heads
    window = config.optional_integer("sliding_window", minimum=0) or None
    bias = config.flag("attention_bias")
    per_head = config.get("gating", default=True) in (True, "per-head")
    experts = config.integer("n_routed_experts", "num_experts", "moe_num_experts")
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("share_expert_dim")
    mlp_bias = config.flag("mlp_bias")

    def make(kind: tuple[str, bool]) -> Layer:
        slides, has_experts = kind[0] == SLIDING, kind[1]
        queries = sliding_heads if slides else heads.num_heads
        mixer = Attention(
            num_heads=queries,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            value_head_dim=heads.head_dim,
            window=window if slides else None,
        )
        gate = queries if per_head else queries * heads.head_dim
        weights: tuple[Weight, ...] = (
            *attention_weights(
                hidden_size=hidden,
                num_heads=queries,
                num_kv_heads=heads.num_kv_heads,
                head_dim=heads.head_dim,
                q_bias=bias,
                k_bias=bias,
                v_bias=bias,
                o_bias=bias,
            ),
            norm("self_attn.q_norm", heads.head_dim),
            norm("self_attn.k_norm", heads.head_dim),
            linear("self_attn.g_proj", gate, hidden, shard=Shard.COLUMN),
            norm("input_layernorm", hidden),
            norm("post_attention_layernorm", hidden),
        )
        ffn: FFN
        if has_experts:
            ffn = MoEFFN(
                num_experts=experts,
                experts_per_token=config.integer("num_experts_per_tok"),
                intermediate_size=inner,
                shared_intermediate_size=shared,
            )
            block = moe_weights(hidden_size=hidden, num_experts=experts, intermediate_size=inner)
            block += ffn_weights(
                hidden_size=hidden,
                intermediate_size=shared,
                in_bias=mlp_bias,
                out_bias=mlp_bias,
                prefix="mlp.shared_experts",
            )
        else:
            width = config.integer("intermediate_size")
            ffn = DenseFFN(intermediate_size=width)
            block = ffn_weights(
                hidden_size=hidden, intermediate_size=width, in_bias=mlp_bias, out_bias=mlp_bias
            )
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block))

    layers = stack(zip(kinds, sparse, strict=True), make)
    joined = tuple(
        replace(
            layer,
            weights=(
                norm("enorm", hidden),
                norm("hnorm", hidden),
                linear("eh_proj", hidden, 2 * hidden),
                *layer.weights,
            ),
        )
        for layer in layers[count:]
    )
    return decoder(
        config,
        name,
        layers=layers[:count],
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=norm("model.norm", hidden),
        mtp_layers=joined,
    )


def _step_sparse(config: Config, count: int) -> tuple[bool, ...]:
    """Which layers hold experts: listed, or all but the first three."""
    listed = config.texts("mlp_layer_types")
    if listed is not None:
        return tuple(kind == "sparse" for kind in listed[:count]) + (True,) * (count - len(listed))
    named = config.get("moe_layers_enum")
    if named is None:
        dense = config.integer("first_k_dense_replace", default=3, minimum=0)
        return tuple(index >= dense for index in range(count))
    items = named.split(",") if isinstance(named, str) else named
    if not isinstance(items, list | tuple):
        config.refuse("moe_layers_enum", "a list of layer indices")
    sparse = {int(item) for item in items if str(item).strip().isdigit()}
    return tuple(index in sparse for index in range(count))


BUILDERS: Final[Mapping[str, Builder]] = {
    **builders(_FAMILIES),
    "mllama_text_model": mllama,
    "step3p5": step3p5,
}
