"""Nemotron-NAS (DeciLM): every block has its own attention and feed-forward width, or neither.

Read from vLLM 0.33 ``model_executor/models/nemotron_nas.py`` and the block configurations of
nvidia/Llama-3_3-Nemotron-Super-49B-v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks
from tokenroom.models.architectures.assembly import decoder, num_layers
from tokenroom.models.config import Config
from tokenroom.models.spec import FFN, Attention, DenseFFN, Layer, Mixer, ModelSpec, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_WIDTH_MULTIPLE: Final = 256


def _width(block: Config, hidden_size: int) -> int | None:
    """Feed-forward width of one block: explicit, or two thirds of 4h times ``ffn_mult``.

    The product is rounded up to a multiple of 256, as ``_ffn_mult_to_intermediate_size`` does.
    None for a block without one.
    """
    ffn = block.sub("ffn", "")
    if ffn.flag("no_op"):
        return None
    explicit = ffn.optional_integer("intermediate_size")
    if explicit is not None:
        return explicit
    width = int(2 * ffn.number("ffn_mult") * hidden_size / 3)
    return -(-width // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE


def _kv_heads(block: Config, num_heads: int) -> int | None:
    """KV heads of one block, None for a block without attention."""
    attention = block.sub("attention", "")
    if attention.flag("no_op"):
        return None
    explicit = attention.optional_integer("num_key_value_heads")
    if explicit is not None:
        return explicit
    group = attention.integer("n_heads_in_group", maximum=num_heads)
    if num_heads % group:
        attention.refuse("n_heads_in_group", f"a divisor of the {num_heads} attention heads")
    return num_heads // group


def _layer(
    config: Config, hidden_size: int, num_heads: int, kv_heads: int | None, width: int | None
) -> Layer:
    head_dim = config.optional_integer("head_dim") or hidden_size // num_heads
    bias = config.flag("attention_bias")
    mixers: tuple[Mixer, ...] = ()
    ffn: FFN | None = None
    weights: tuple[Weight, ...] = ()
    if kv_heads is not None:
        mixers = (
            Attention(
                num_heads=num_heads,
                num_kv_heads=kv_heads,
                head_dim=head_dim,
                value_head_dim=head_dim,
            ),
        )
        weights += blocks.attention_weights(
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            q_bias=bias,
            k_bias=bias,
            v_bias=bias,
            o_bias=bias,
        )
        weights += (blocks.norm("input_layernorm", hidden_size),)
    if width is not None:
        ffn = DenseFFN(intermediate_size=width)
        weights += blocks.ffn_weights(
            hidden_size=hidden_size,
            intermediate_size=width,
            in_bias=config.flag("mlp_bias"),
            out_bias=config.flag("mlp_bias"),
        )
        weights += (blocks.norm("post_attention_layernorm", hidden_size),)
    return Layer(mixers=mixers, ffn=ffn, weights=weights)


def _nemotron_nas(config: Config, name: str) -> ModelSpec:
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    num_heads = config.integer("num_attention_heads", maximum=hidden_size)
    count = num_layers(config)
    block_configs = config.sequence("block_configs")
    if block_configs is None or len(block_configs) < count:
        config.refuse("block_configs", f"one object for each of the {count} layers")
    config.mark_read("num_key_value_heads", "intermediate_size")
    kinds: dict[tuple[int | None, int | None], Layer] = {}
    layers: list[Layer] = []
    for index, data in enumerate(block_configs[:count]):
        if not isinstance(data, Mapping):
            config.refuse("block_configs", f"one object for each of the {count} layers")
        block = Config(data, "", config.field(f"block_configs[{index}]"))
        key = (_kv_heads(block, num_heads), _width(block, hidden_size))
        if key not in kinds:
            kinds[key] = _layer(config, hidden_size, num_heads, *key)
        layers.append(kinds[key])
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=config.flag("tie_word_embeddings", default=False),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        final_norm=blocks.norm("model.norm", hidden_size),
    )


BUILDERS: Final[Mapping[str, Builder]] = {"nemotron-nas": _nemotron_nas}
