"""Sequence-to-sequence models: an encoder, and a decoder that attends to it.

Parameters as transformers 5.24 builds them (``modeling_<type>.py``). A decoder block has two mixers
that follow one another: attention to itself, and to the encoder's output. Division over ranks is
vLLM 0.33's for Whisper (``whisper.py``): projections divided, embeddings by vocabulary, the rest
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tokenroom.models.architectures import Builder
from tokenroom.models.architectures.assembly import DEFAULT_DTYPE, stored_dtype
from tokenroom.models.architectures.blocks import (
    attention_weights,
    embedding,
    expert_weights,
    ffn_weights,
    lm_head,
    norm,
    router,
    vector,
)
from tokenroom.models.architectures.towers import kernel, norms
from tokenroom.models.config import MAX_LAYERS, Config
from tokenroom.models.spec import (
    FFN,
    Attention,
    DenseFFN,
    Layer,
    ModelSpec,
    MoEFFN,
    Weight,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one model type differs from BART.

    Attributes:
        position_offset: Rows of the position tables beyond the longest input, None when positions
            are computed.
        embedding_norm: Whether embeddings are normalised.
        final_norm: Whether encoder and decoder end in a norm.
        key_bias: Whether key projections have a bias.
        experts: Whether some feed-forward blocks are mixtures of experts.
        audio: Whether the encoder reads mel frames, and through which stem.
    """

    position_offset: int | None = 2
    embedding_norm: bool = False
    final_norm: bool = False
    key_bias: bool = True
    experts: bool = False
    audio: str = ""


_SHAPES: Final[Mapping[str, Shape]] = {
    "bart": Shape(embedding_norm=True),
    "plbart": Shape(embedding_norm=True),
    "mbart": Shape(embedding_norm=True, final_norm=True),
    "blenderbot": Shape(position_offset=0, final_norm=True),
    "blenderbot-small": Shape(position_offset=0, embedding_norm=True),
    "marian": Shape(position_offset=0),
    "pegasus": Shape(position_offset=0, final_norm=True),
    "m2m_100": Shape(position_offset=None, final_norm=True),
    "nllb-moe": Shape(position_offset=None, final_norm=True, experts=True),
    "whisper": Shape(position_offset=0, final_norm=True, key_bias=False, audio="whisper"),
    "speech_to_text": Shape(position_offset=None, final_norm=True, audio="speech_to_text"),
}


def _heads(config: Config, key: str, hidden: int) -> Attention:
    heads = config.integer(key)
    if hidden % heads:
        config.refuse(key, f"a divisor of the hidden size ({hidden})")
    width = hidden // heads
    return Attention(num_heads=heads, num_kv_heads=heads, head_dim=width, value_head_dim=width)


def _attend(mixer: Attention, hidden: int, prefix: str, *, key_bias: bool) -> tuple[Weight, ...]:
    return (
        *attention_weights(
            hidden_size=hidden,
            num_heads=mixer.num_heads,
            num_kv_heads=mixer.num_kv_heads,
            head_dim=mixer.head_dim,
            q_bias=True,
            k_bias=key_bias,
            v_bias=True,
            o_bias=True,
            prefix=prefix,
            o="out_proj",
        ),
        norm(f"{prefix}_layer_norm", hidden, bias=True),
    )


def _feed_forward(
    config: Config, hidden: int, inner: int, experts: bool
) -> tuple[FFN, tuple[Weight, ...]]:
    """Two projections; or experts of two projections behind a router (NLLB-MoE)."""
    last = norm(
        "ff_layer_norm" if config.model_type == "nllb-moe" else "final_layer_norm",
        hidden,
        bias=True,
    )
    if not experts:
        weights = ffn_weights(
            hidden_size=hidden,
            intermediate_size=inner,
            gated=False,
            in_bias=True,
            out_bias=True,
            prefix="mlp",
            up="fc1",
            down="fc2",
        )
        named = tuple(replace(w, name=w.name.removeprefix("mlp.")) for w in weights)
        return DenseFFN(intermediate_size=inner, gated=False), (*named, last)
    count = config.integer("num_experts")
    ffn = MoEFFN(num_experts=count, experts_per_token=2, intermediate_size=inner, gated=False)
    weights = (
        router(hidden, count, bias=config.flag("router_bias"), name="ffn.router.classifier"),
        *expert_weights(
            num_experts=count,
            hidden_size=hidden,
            intermediate_size=inner,
            gated=False,
            in_bias=True,
            out_bias=True,
            prefix="ffn.experts.expert_*",
            up="fc1",
            down="fc2",
        ),
        last,
    )
    return ffn, weights


def _sparse(config: Config, key: str, count: int, experts: bool) -> tuple[bool, ...]:
    step = config.integer(key, minimum=0) if experts else 0
    return tuple(bool(step) and (index + 1) % step == 0 for index in range(count))


def _audio_stem(config: Config, kind: str, hidden: int) -> tuple[Weight, ...]:
    """The convolutions before the encoder."""
    if kind == "whisper":
        mels = config.integer("num_mel_bins")
        rows = config.integer("max_source_positions")
        return (
            kernel("model.encoder.conv1", hidden, mels, 3, bias=True),
            kernel("model.encoder.conv2", hidden, hidden, 3, bias=True),
            vector("model.encoder.embed_positions", rows, hidden),
        )
    sizes = config.integers("conv_kernel_sizes", minimum=1) or (5, 5)
    channels = config.integer("conv_channels")
    inputs = config.integer("input_feat_per_channel") * config.integer("input_channels")
    weights: list[Weight] = []
    for index, size in enumerate(sizes):
        # Gated linear units halve what each convolution makes.
        source = inputs if index == 0 else channels // 2
        out = channels if index < len(sizes) - 1 else 2 * hidden
        weights.append(
            kernel(f"model.encoder.conv.conv_layers.{index}", out, source, size, bias=True)
        )
    return tuple(weights)


def _positions(config: Config, shape: Shape, hidden: int) -> tuple[Weight, ...]:
    if shape.position_offset is None:
        return ()
    if shape.audio:
        rows = config.integer("max_target_positions")
        return (vector("model.decoder.embed_positions", rows, hidden),)
    rows = config.integer("max_position_embeddings") + shape.position_offset
    return tuple(
        vector(f"model.{side}.embed_positions", rows, hidden) for side in ("encoder", "decoder")
    )


def _embeddings(
    config: Config, shape: Shape, vocab: int, hidden: int
) -> tuple[tuple[Weight, ...], int]:
    """The token embeddings, and the rows of the decoder's.

    An untied head unties the embeddings of encoder and decoder as well.
    """
    if config.model_type == "marian" and not config.flag("share_encoder_decoder_embeddings"):
        target = config.optional_integer("decoder_vocab_size") or vocab
        return (
            embedding(vocab, hidden, "model.encoder.embed_tokens"),
            embedding(target, hidden, "model.decoder.embed_tokens"),
        ), target
    shared = embedding(vocab, hidden, "model.shared")
    if shape.audio or config.flag("tie_word_embeddings", default=True):
        return (shared,), vocab
    sides = ("model.encoder.embed_tokens", "model.decoder.embed_tokens")
    return (shared, *(embedding(vocab, hidden, side) for side in sides)), vocab


def bart_like(config: Config, name: str) -> ModelSpec:
    """BART and its kin: mBART, Pegasus, Marian, M2M-100, NLLB, Blenderbot, Whisper, ..."""
    shape = _SHAPES[config.model_type]
    hidden = config.integer("d_model")
    vocab = config.integer("vocab_size")
    encoder_count = config.integer("encoder_layers", maximum=MAX_LAYERS)
    decoder_count = config.integer("decoder_layers", maximum=MAX_LAYERS)
    encoder_heads = replace(_heads(config, "encoder_attention_heads", hidden), encoder_only=True)
    decoder_heads = _heads(config, "decoder_attention_heads", hidden)
    bias = shape.key_bias

    def encoder_layer(sparse: bool) -> Layer:
        inner = config.integer("encoder_ffn_dim")
        ffn, block = _feed_forward(config, hidden, inner, sparse)
        weights = (*_attend(encoder_heads, hidden, "self_attn", key_bias=bias), *block)
        return Layer(mixers=(encoder_heads,), ffn=ffn, weights=weights)

    def decoder_layer(sparse: bool) -> Layer:
        inner = config.integer("decoder_ffn_dim")
        ffn, block = _feed_forward(config, hidden, inner, sparse)
        crossing = "cross_attention" if config.model_type == "nllb-moe" else "encoder_attn"
        weights = (
            *_attend(decoder_heads, hidden, "self_attn", key_bias=bias),
            *_attend(decoder_heads, hidden, crossing, key_bias=bias),
            *block,
        )
        mixers = (decoder_heads, replace(decoder_heads, cross=True))
        return Layer(mixers=mixers, ffn=ffn, weights=weights)

    encoders = {
        flag: encoder_layer(flag) for flag in ((False, True) if shape.experts else (False,))
    }
    decoders = {
        flag: decoder_layer(flag) for flag in ((False, True) if shape.experts else (False,))
    }
    inputs, rows = _embeddings(config, shape, vocab, hidden)
    if shape.audio:
        inputs += _audio_stem(config, shape.audio, hidden)
    inputs += _positions(config, shape, hidden)
    outputs: tuple[Weight, ...] = ()
    if shape.embedding_norm:
        inputs += norms(
            hidden, "model.encoder.layernorm_embedding", "model.decoder.layernorm_embedding"
        )
    if shape.final_norm:
        outputs += norms(hidden, "model.encoder.layer_norm", "model.decoder.layer_norm")
    tied = config.flag("tie_word_embeddings", default=True)
    if not tied:
        outputs += (lm_head(rows, hidden),)
    return ModelSpec(
        name=name,
        architecture="",
        model_type=config.model_type,
        hidden_size=hidden,
        vocab_size=rows,
        max_position_embeddings=config.optional_integer(
            "max_target_positions" if shape.audio else "max_position_embeddings"
        ),
        dtype=stored_dtype(config) or DEFAULT_DTYPE,
        layers=tuple(
            decoders[flag]
            for flag in _sparse(config, "decoder_sparse_step", decoder_count, shape.experts)
        ),
        encoder_layers=tuple(
            encoders[flag]
            for flag in _sparse(config, "encoder_sparse_step", encoder_count, shape.experts)
        ),
        input_weights=inputs,
        output_weights=outputs,
        tied_embeddings=tied,
        layer_prefix="model.decoder.layers",
    )


def _t5_attend(
    mixer: Attention, hidden: int, prefix: str, *, buckets: int = 0
) -> tuple[Weight, ...]:
    weights = attention_weights(
        hidden_size=hidden,
        num_heads=mixer.num_heads,
        num_kv_heads=mixer.num_kv_heads,
        head_dim=mixer.head_dim,
        prefix=prefix,
        q="q",
        k="k",
        v="v",
        o="o",
    )
    weights += (norm(f"{prefix.rsplit('.', 1)[0]}.layer_norm", hidden),)
    if buckets:
        weights += (vector(f"{prefix}.relative_attention_bias", buckets, mixer.num_heads),)
    return weights


def _t5_feed_forward(
    config: Config, hidden: int, place: int, sparse: bool
) -> tuple[FFN, tuple[Weight, ...]]:
    inner = config.integer("d_ff")
    prefix = f"layer.{place}"
    last = norm(f"{prefix}.layer_norm", hidden)
    if config.model_type == "switch_transformers":
        if not sparse:
            weights = ffn_weights(
                hidden_size=hidden,
                intermediate_size=inner,
                gated=False,
                prefix=f"{prefix}.mlp",
                up="wi",
                down="wo",
            )
            return DenseFFN(intermediate_size=inner, gated=False), (*weights, last)
        count = config.integer("num_experts")
        ffn = MoEFFN(num_experts=count, experts_per_token=1, intermediate_size=inner, gated=False)
        weights = (
            router(
                hidden,
                count,
                bias=config.flag("router_bias"),
                name=f"{prefix}.mlp.router.classifier",
            ),
            *expert_weights(
                num_experts=count,
                hidden_size=hidden,
                intermediate_size=inner,
                gated=False,
                prefix=f"{prefix}.mlp.experts.expert_*",
                up="wi",
                down="wo",
            ),
        )
        return ffn, (*weights, last)
    gated = config.text("feed_forward_proj", default="relu").startswith("gated")
    weights = ffn_weights(
        hidden_size=hidden,
        intermediate_size=inner,
        gated=gated,
        prefix=f"{prefix}.DenseReluDense",
        gate="wi_0",
        up="wi_1" if gated else "wi",
        down="wo",
    )
    return DenseFFN(intermediate_size=inner, gated=gated), (*weights, last)


def _t5_sparse(config: Config, key: str, count: int) -> tuple[bool, ...]:
    """Which blocks hold experts: every n-th, from the second on (Switch Transformers)."""
    if config.model_type != "switch_transformers":
        return (False,) * count
    number = config.integer(key, minimum=0)
    step = count // number if number else count
    return tuple(bool(step) and (step == 1 or index % step == 1) for index in range(count))


def t5(config: Config, name: str) -> ModelSpec:
    """T5, mT5, UMT5 and Switch Transformers: learned biases by distance instead of positions."""
    hidden = config.integer("d_model")
    vocab = config.integer("vocab_size")
    heads = config.integer("num_heads")
    width = config.integer("d_kv")
    encoder_count = config.integer("num_layers", maximum=MAX_LAYERS)
    decoder_count = (
        config.optional_integer("num_decoder_layers", maximum=MAX_LAYERS) or encoder_count
    )
    buckets = config.integer("relative_attention_num_buckets")
    everywhere = config.model_type == "umt5"
    own = Attention(num_heads=heads, num_kv_heads=heads, head_dim=width, value_head_dim=width)
    reads = replace(own, encoder_only=True)
    made: dict[tuple[bool, bool, bool], Layer] = {}

    def layer(decoder: bool, first: bool, sparse: bool) -> Layer:
        key = (decoder, first or everywhere, sparse)
        if key not in made:
            biased = buckets if key[1] else 0
            weights = _t5_attend(own, hidden, "layer.0.SelfAttention", buckets=biased)
            mixers: tuple[Attention, ...] = (reads,)
            if decoder:
                weights += _t5_attend(own, hidden, "layer.1.EncDecAttention")
                mixers = (own, replace(own, cross=True))
            ffn, block = _t5_feed_forward(config, hidden, 2 if decoder else 1, sparse)
            made[key] = Layer(mixers=mixers, ffn=ffn, weights=(*weights, *block))
        return made[key]

    encoder_sparse = _t5_sparse(config, "num_sparse_encoder_layers", encoder_count)
    decoder_sparse = _t5_sparse(config, "num_sparse_decoder_layers", decoder_count)
    tied = config.flag("tie_word_embeddings", default=True)
    outputs = norms(hidden, "encoder.final_layer_norm", "decoder.final_layer_norm", bias=False)
    inputs: tuple[Weight, ...] = (embedding(vocab, hidden, "shared"),)
    if not tied:
        # T5 1.1 and mT5 checkpoints store a head of their own, which transformers 5.24 ties until
        # it has read the checkpoint.
        outputs += (lm_head(vocab, hidden),)
        if config.model_type == "switch_transformers":
            sides = ("encoder.embed_tokens", "decoder.embed_tokens")
            inputs += tuple(embedding(vocab, hidden, side) for side in sides)
    return ModelSpec(
        name=name,
        architecture="",
        model_type=config.model_type,
        hidden_size=hidden,
        vocab_size=vocab,
        max_position_embeddings=None,
        dtype=stored_dtype(config) or DEFAULT_DTYPE,
        layers=tuple(
            layer(True, index == 0, sparse) for index, sparse in enumerate(decoder_sparse)
        ),
        encoder_layers=tuple(
            layer(False, index == 0, sparse) for index, sparse in enumerate(encoder_sparse)
        ),
        input_weights=inputs,
        output_weights=outputs,
        tied_embeddings=tied,
        layer_prefix="decoder.block",
    )


BUILDERS: Final[Mapping[str, Builder]] = {
    **dict.fromkeys(_SHAPES, bart_like),
    **dict.fromkeys(("t5", "mt5", "umt5", "switch_transformers"), t5),
}
