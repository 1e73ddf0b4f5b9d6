"""Kimi delta attention with latent attention between: Kimi Linear, Ling and Ring 3.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.architectures.blocks import linear, moe_weights, norm
from tokenroom.models.architectures.recurrent_blocks import (
    Part,
    check_layer_types,
    kimi_delta,
    layer_types,
    stack,
)
from tokenroom.models.architectures.recurrent_delta import FULL, LINEAR, block_norms, dense_part
from tokenroom.models.config import Config
from tokenroom.models.spec import LatentAttention, Layer, ModelSpec, MoEFFN, Shard, Weight


def _latent_part(config: Config, *, gate: bool) -> Part:
    """The latent attention of Kimi Linear and Ling/Ring 3.

    Source: transformers 5.24 ``modeling_kimi_linear.py``; sharding vLLM 0.33 ``layers/mla.py``.
    """
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    nope = config.integer("qk_nope_head_dim")
    rope = config.integer("qk_rope_head_dim")
    value = config.integer("v_head_dim")
    rank = config.integer("kv_lora_rank")
    query_rank = config.optional_integer("q_lora_rank")
    bias = config.flag("attention_bias")
    column = Shard.COLUMN
    if query_rank is None:
        weights: tuple[Weight, ...] = (
            linear("self_attn.q_proj", heads * (nope + rope), hidden, shard=column),
        )
    else:
        weights = (
            linear("self_attn.q_a_proj", query_rank, hidden, bias=bias),
            norm("self_attn.q_a_layernorm", query_rank),
            linear("self_attn.q_b_proj", heads * (nope + rope), query_rank, shard=column),
        )
    weights += (
        linear("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, bias=bias),
        norm("self_attn.kv_a_layernorm", rank),
        linear("self_attn.kv_b_proj", heads * (nope + value), rank, shard=column),
        linear("self_attn.o_proj", hidden, heads * value, bias=bias, shard=Shard.ROW),
    )
    if gate:
        weights += (linear("self_attn.g_proj", heads, hidden, shard=column),)
    mixer = LatentAttention(
        num_heads=heads,
        q_lora_rank=query_rank,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
    )
    return mixer, weights


def _kimi_decoder(
    config: Config,
    name: str,
    *,
    kinds: tuple[str, ...],
    delta: Part,
    latent: Part,
) -> ModelSpec:
    """Kimi delta attention with latent attention between, dense blocks before sparse ones."""
    hidden = config.integer("hidden_size")
    config.mark_read("tie_word_embeddings")
    check_layer_types(config, kinds, (LINEAR, FULL))
    listed = config.texts("mlp_layer_types")
    if listed is None:
        dense = config.integer("first_k_dense_replace", default=1, minimum=0)
        sparse = tuple(index >= dense for index in range(len(kinds)))
    else:
        sparse = tuple(kind == "sparse" for kind in listed)
    if len(sparse) != len(kinds):
        config.refuse("mlp_layer_types", f"a list of {len(kinds)} kinds")
    experts = config.integer("num_experts", "num_local_experts")
    inner = config.integer("moe_intermediate_size")
    shared = inner * config.integer("num_shared_experts", "n_shared_experts", minimum=0)
    norms = block_norms(config)

    def make(kind: tuple[str, bool]) -> Layer:
        mixer, weights = latent if kind[0] == FULL else delta
        ffn, block = dense_part(config)
        if kind[1]:
            ffn = MoEFFN(
                num_experts=experts,
                experts_per_token=config.integer("num_experts_per_token", "num_experts_per_tok"),
                intermediate_size=inner,
                shared_intermediate_size=shared,
            )
            block = moe_weights(
                hidden_size=hidden,
                num_experts=experts,
                intermediate_size=inner,
                shared_intermediate_size=shared,
            )
        return Layer(mixers=(mixer,), ffn=ffn, weights=(*weights, *block, *norms))

    return decoder(
        config,
        name,
        layers=stack(zip(kinds, sparse, strict=True), make),
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=False,  # neither class ties, whatever tie_word_embeddings says
        max_position_embeddings=config.optional_integer(
            "model_max_length", "max_position_embeddings"
        ),
        final_norm=norm("model.norm", hidden),
    )


def kimi_linear(config: Config, name: str) -> ModelSpec:
    """Kimi Linear; checkpoints keep the delta attention in ``linear_attn_config``."""
    count = num_layers(config)
    nested = config.sub("linear_attn_config", "") if config.has("linear_attn_config") else config
    own = nested is not config
    kinds = layer_types(config)
    if kinds is None:
        kinds = tuple(FULL if index and index % 4 == 0 else LINEAR for index in range(count))
        full = nested.integers("full_attn_layers", minimum=1) if own else None
        if full is not None:
            nested.mark_read("kda_layers")
            kinds = tuple(FULL if index + 1 in full else LINEAR for index in range(count))

    def width(key: str, field: str) -> int:
        return nested.integer(key) if own and nested.has(key) else config.integer(field)

    delta = kimi_delta(
        hidden_size=config.integer("hidden_size"),
        num_heads=width("num_heads", "linear_num_heads"),
        head_dim=width("head_dim", "linear_head_dim"),
        kernel=width("short_conv_kernel_size", "linear_conv_kernel_dim"),
    )
    latent = _latent_part(config, gate=False)
    return _kimi_decoder(config, name, kinds=kinds, delta=delta, latent=latent)


def bailing_hybrid(config: Config, name: str) -> ModelSpec:
    """Ling and Ring 3: Kimi delta attention, every sixth block latent attention with a gate."""
    kinds = layer_types(config)
    if kinds is None:
        group = config.integer("layer_group_size")
        kinds = tuple(
            LINEAR if (index + 1) % group else FULL for index in range(num_layers(config))
        )
    delta = kimi_delta(
        hidden_size=config.integer("hidden_size"),
        num_heads=config.integer("num_attention_heads"),
        head_dim=config.integer("head_dim"),
        kernel=config.integer("short_conv_kernel_size"),
        low_rank=False,
    )
    latent = _latent_part(config, gate=True)
    return _kimi_decoder(config, name, kinds=kinds, delta=delta, latent=latent)


BUILDERS: Final[Mapping[str, Builder]] = {
    "bailing_hybrid": bailing_hybrid,
    "kimi_linear": kimi_linear,
}
