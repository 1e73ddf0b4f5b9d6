"""The parts that vision and audio encoders are made of.

Blocks that repeat are given once with their ``count``. Division over tensor-parallel ranks follows
vLLM 0.33's own encoders (``model_executor/models/siglip.py``, ``clip.py``, ``qwen2_vl.py``, ...):
queries, keys and values and the first FFN projections by output, the rest of each pair by input;
patch embeddings, positions and norms whole. Encoders that vLLM runs through transformers, or loads
whole, are given with ``parallel=False``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Final

from tokenroom.models.architectures.blocks import linear, norm, vector
from tokenroom.models.config import MAX_INTEGER, Config
from tokenroom.models.spec import Role, Shard, Weight

_SMALLEST_RATIO: Final = 1 / 64
_LARGEST_SIDE: Final = 16_384


def repeat(count: int, weights: Iterable[Weight]) -> tuple[Weight, ...]:
    """The weights of one block as those of ``count`` alike ones; none for a count of 0."""
    if not count:
        return ()
    return tuple(replace(weight, count=weight.count * count) for weight in weights)


def kernel(name: str, *shape: int, bias: bool = False) -> Weight:
    """A convolution of shape (out, in, ...), kept whole."""
    return Weight(name=name, shape=shape, bias=shape[0] if bias else 0, role=Role.CONV)


def column(
    name: str, out_features: int, in_features: int, *, bias: bool = True, parallel: bool = True
) -> Weight:
    """A projection divided by output unless ``parallel`` is off."""
    shard = Shard.COLUMN if parallel else Shard.REPLICATED
    return linear(name, out_features, in_features, bias=bias, shard=shard)


def row(
    name: str, out_features: int, in_features: int, *, bias: bool = True, parallel: bool = True
) -> Weight:
    """A projection divided by input unless ``parallel`` is off."""
    shard = Shard.ROW if parallel else Shard.REPLICATED
    return linear(name, out_features, in_features, bias=bias, shard=shard)


def attention(
    prefix: str,
    hidden_size: int,
    *,
    width: int | None = None,
    kv_width: int | None = None,
    context_size: int | None = None,
    qkv: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj"),
    out: str = "out_proj",
    bias: bool = True,
    key_bias: bool | None = None,
    out_bias: bool | None = None,
    parallel: bool = True,
) -> tuple[Weight, ...]:
    """Bidirectional attention.

    Args:
        prefix: Module path of the attention.
        hidden_size: Width of the encoder.
        width: Width of the queries, None for ``hidden_size``.
        kv_width: Width of keys and values, None for that of the queries.
        context_size: Width of what keys and values are made from, None for ``hidden_size``.
        qkv: Module names; equal ones stand for a fused module.
        out: Module name of the output projection.
        bias: Bias on queries, keys and values.
        key_bias: Bias on keys, None for as ``bias``.
        out_bias: Bias on the output, None for as ``bias``.
        parallel: Whether engines divide it over ranks.
    """
    queries = hidden_size if width is None else width
    keys = queries if kv_width is None else kv_width
    context = hidden_size if context_size is None else context_size
    q, k, v = (f"{prefix}.{name}" for name in qkv)
    return (
        column(q, queries, hidden_size, bias=bias, parallel=parallel),
        column(k, keys, context, bias=bias if key_bias is None else key_bias, parallel=parallel),
        column(v, keys, context, bias=bias, parallel=parallel),
        row(
            f"{prefix}.{out}",
            hidden_size,
            queries,
            bias=bias if out_bias is None else out_bias,
            parallel=parallel,
        ),
    )


def mlp(
    prefix: str,
    hidden_size: int,
    inner_size: int,
    *,
    names: tuple[str, ...] = ("fc1", "fc2"),
    bias: bool = True,
    out_bias: bool | None = None,
    parallel: bool = True,
) -> tuple[Weight, ...]:
    """A feed-forward block: the last of ``names`` projects back, the ones before it in."""
    *into, out = names
    return (
        *(
            column(f"{prefix}.{name}", inner_size, hidden_size, bias=bias, parallel=parallel)
            for name in into
        ),
        row(
            f"{prefix}.{out}",
            hidden_size,
            inner_size,
            bias=bias if out_bias is None else out_bias,
            parallel=parallel,
        ),
    )


GATED = ("gate_proj", "up_proj", "down_proj")


def norms(size: int, *names: str, bias: bool = True) -> tuple[Weight, ...]:
    """Normalisations over ``size`` elements, with a shift when ``bias``."""
    return tuple(norm(name, size, bias=bias) for name in names)


def side(config: Config, key: str) -> tuple[int, int]:
    """A size that is one number or (height, width), as (height, width).

    Raises:
        ModelError: It is neither.
    """
    value = config.get(key)
    if isinstance(value, list | tuple):
        pair = config.integers(key, minimum=1) or ()
        if len(pair) != 2 or max(pair) > _LARGEST_SIDE:
            config.refuse(key, f"a whole number or two, of at most {_LARGEST_SIDE}")
        return pair[0], pair[1]
    number = config.integer(key, maximum=_LARGEST_SIDE)
    return number, number


def scaled(config: Config, key: str, width: int, *, default: float | None = None) -> int:
    """``width`` times the number in ``key``, rounded down.

    Raises:
        ModelError: The product is no width.
    """
    product = width * config.number(key, default=default)
    if not 1 <= product <= MAX_INTEGER:
        config.refuse(key, f"a number that times {width} is from 1 to {MAX_INTEGER}")
    return int(product)


def shrink(config: Config, key: str, *, default: float | None = None) -> int:
    """How many positions along a side become one, from a ratio such as 0.5.

    Raises:
        ModelError: The ratio is not above 0 and at most 1.
    """
    ratio = config.number(key, default=default)
    if not _SMALLEST_RATIO <= ratio <= 1:
        config.refuse(key, f"a number from {_SMALLEST_RATIO} to 1")
    return round(1 / ratio)


def patches(config: Config, image_key: str = "image_size", patch_key: str = "patch_size") -> int:
    """Patches of an image of the configured size."""
    height, width = side(config, image_key)
    patch_height, patch_width = side(config, patch_key)
    if height < patch_height or width < patch_width:
        config.refuse(patch_key, f"at most {config.field(image_key)}")
    return (height // patch_height) * (width // patch_width)


def patch_embedding(
    config: Config, name: str, hidden_size: int, *, bias: bool = True, temporal: int | None = None
) -> Weight:
    """The convolution that turns patches into vectors."""
    patch = side(config, "patch_size")
    depth = () if temporal is None else (temporal,)
    channels = config.integer("num_channels", "in_channels", "in_chans", default=3)
    return kernel(name, hidden_size, channels, *depth, *patch, bias=bias)


def siglip(
    config: Config,
    prefix: str,
    *,
    norm_names: tuple[str, str] = ("layer_norm1", "layer_norm2"),
    head: bool = False,
    flat_patches: bool = False,
    positions: int | None = None,
    parallel: bool = True,
) -> tuple[Weight, ...]:
    """A SigLIP encoder, and what is built like it (Idefics 3, SmolVLM, Aria).

    Args:
        config: The vision configuration.
        prefix: Module path of the encoder.
        norm_names: Names of a block's norms.
        head: Whether there is an attention pooling head.
        flat_patches: Whether patches are projected by a matrix (SigLIP 2).
        positions: Rows of the position table, None for the patches of the configured image.
        parallel: Whether engines divide it over ranks.
    """
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    layers = config.integer("num_hidden_layers")
    embeddings = f"{prefix}.embeddings"
    if flat_patches:
        area = prod(side(config, "patch_size")) * config.integer("num_channels", default=3)
        patch = linear(f"{embeddings}.patch_embedding", hidden, area, bias=True)
    else:
        patch = patch_embedding(config, f"{embeddings}.patch_embedding", hidden)
    rows = patches(config) if positions is None else positions
    block = f"{prefix}.encoder.layers.*"
    weights = (
        patch,
        vector(f"{embeddings}.position_embedding", rows, hidden),
        *repeat(
            layers,
            (
                *attention(f"{block}.self_attn", hidden, parallel=parallel),
                *mlp(f"{block}.mlp", hidden, inner, parallel=parallel),
                *norms(hidden, *(f"{block}.{name}" for name in norm_names)),
            ),
        ),
        *norms(hidden, f"{prefix}.post_layernorm"),
    )
    if head:
        weights += (
            vector(f"{prefix}.head.probe", hidden),
            linear(f"{prefix}.head.attention.in_proj", 3 * hidden, hidden, bias=True),
            linear(f"{prefix}.head.attention.out_proj", hidden, hidden, bias=True),
            *norms(hidden, f"{prefix}.head.layernorm"),
            *mlp(f"{prefix}.head.mlp", hidden, inner, parallel=parallel),
        )
    return weights


def clip(config: Config, prefix: str) -> tuple[Weight, ...]:
    """A CLIP encoder."""
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    block = f"{prefix}.encoder.layers.*"
    return (
        vector(f"{prefix}.embeddings.class_embedding", hidden),
        patch_embedding(config, f"{prefix}.embeddings.patch_embedding", hidden, bias=False),
        vector(f"{prefix}.embeddings.position_embedding", patches(config) + 1, hidden),
        *norms(hidden, f"{prefix}.pre_layrnorm", f"{prefix}.post_layernorm"),
        *repeat(
            config.integer("num_hidden_layers"),
            (
                *attention(f"{block}.self_attn", hidden),
                *mlp(f"{block}.mlp", hidden, inner),
                *norms(hidden, f"{block}.layer_norm1", f"{block}.layer_norm2"),
            ),
        ),
    )


def pixtral(config: Config, prefix: str) -> tuple[Weight, ...]:
    """A Pixtral encoder: gated FFN, rotary positions, no biases."""
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    block = f"{prefix}.transformer.layers.*"
    return (
        patch_embedding(config, f"{prefix}.patch_conv", hidden, bias=False),
        *norms(hidden, f"{prefix}.ln_pre", bias=False),
        *repeat(
            config.integer("num_hidden_layers"),
            (
                *attention(f"{block}.attention", hidden, out="o_proj", bias=False),
                *mlp(f"{block}.feed_forward", hidden, inner, names=GATED, bias=False),
                *norms(hidden, f"{block}.attention_norm", f"{block}.ffn_norm", bias=False),
            ),
        ),
    )


def internvit(config: Config, prefix: str) -> tuple[Weight, ...]:
    """An InternViT encoder: scaled residuals, optional norms on queries and keys."""
    hidden = config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    block = f"{prefix}.encoder.layer.*"
    shift = config.text("norm_type", default="layer_norm") == "layer_norm"
    part = (
        *attention(
            f"{block}.attention",
            hidden,
            out="projection_layer",
            bias=config.flag("attention_bias"),
            out_bias=True,
        ),
        *mlp(f"{block}.mlp", hidden, inner),
        *norms(hidden, f"{block}.layernorm_before", f"{block}.layernorm_after", bias=shift),
        vector(f"{block}.lambda_1", hidden),
        vector(f"{block}.lambda_2", hidden),
    )
    if config.flag("use_qk_norm"):
        part += norms(hidden, f"{block}.attention.q_norm", f"{block}.attention.k_norm", bias=False)
    weights: tuple[Weight, ...] = (
        vector(f"{prefix}.embeddings.cls_token", hidden),
        patch_embedding(config, f"{prefix}.embeddings.patch_embeddings.projection", hidden),
        *repeat(config.integer("num_hidden_layers"), part),
    )
    if config.flag("use_absolute_position_embeddings"):
        rows = patches(config) + 1
        weights += (vector(f"{prefix}.embeddings.position_embeddings", rows, hidden),)
    if config.flag("use_mask_token"):
        weights += (vector(f"{prefix}.embeddings.mask_token", hidden),)
    if not config.flag("use_mean_pooling"):
        weights += norms(hidden, f"{prefix}.layernorm")
    return weights


def whisper_encoder(
    config: Config,
    prefix: str,
    *,
    last_norm: str = "layer_norm",
    positions: bool = True,
    parallel: bool = True,
) -> tuple[Weight, ...]:
    """A Whisper encoder: two convolutions over mel frames, then blocks whose keys have no bias."""
    hidden = config.integer("d_model", "hidden_size")
    inner = config.integer("encoder_ffn_dim", "intermediate_size")
    mels = config.integer("num_mel_bins")
    weights: tuple[Weight, ...] = (
        kernel(f"{prefix}.conv1", hidden, mels, 3, bias=True),
        kernel(f"{prefix}.conv2", hidden, hidden, 3, bias=True),
    )
    if positions:
        rows = config.integer("max_source_positions")
        weights += (vector(f"{prefix}.embed_positions", rows, hidden),)
    return (
        *weights,
        *whisper_blocks(
            f"{prefix}.layers.*",
            config.integer("encoder_layers", "num_hidden_layers"),
            hidden,
            inner,
            parallel=parallel,
        ),
        *norms(hidden, f"{prefix}.{last_norm}"),
    )


def whisper_blocks(
    block: str,
    count: int,
    hidden: int,
    inner: int,
    *,
    key_bias: bool = False,
    parallel: bool = True,
) -> tuple[Weight, ...]:
    """The blocks of a Whisper encoder."""
    return repeat(
        count,
        (
            *attention(f"{block}.self_attn", hidden, key_bias=key_bias, parallel=parallel),
            *mlp(block, hidden, inner, parallel=parallel),
            *norms(hidden, f"{block}.self_attn_layer_norm", f"{block}.final_layer_norm"),
        ),
    )
