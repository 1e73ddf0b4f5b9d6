"""Decoders of GPT-2's line: learned positions, biases, LayerNorm, ungated feed-forward blocks.

One row a model type, from ``modeling_*.py`` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks, windows
from tokenroom.models.architectures.assembly import Head, classifier, decoder, head_of, num_layers
from tokenroom.models.architectures.decoders import attention_weights_of, builders, dense_part, join
from tokenroom.models.architectures.family import Extra, Family, Heads, MixerPart, Names, Norm
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, ModelSpec, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder

_LAYER_NORM: Final = Norm.SCALE_AND_SHIFT


def _four_times(key: str | None = None) -> Callable[[Config], int]:
    """The feed-forward width in ``key``; null, or no field at all, means four times the hidden."""

    def width(config: Config) -> int:
        explicit = config.optional_integer(key) if key else None
        return explicit or 4 * config.integer("hidden_size")

    return width


def _positions(name: str, key: str = "max_position_embeddings", offset: int = 0) -> Extra:
    """A learned table of positions, ``offset`` rows longer than the context."""
    return lambda config, hidden_size: (
        blocks.positions(config.integer(key) + offset, hidden_size, name),
    )


def _even_attention(kv_heads: Callable[[Config, int], int]) -> Callable[..., Sequence[MixerPart]]:
    """Attention whose heads share the hidden size evenly and whose KV heads a function counts."""

    def rule(config: Config, family: Family, hidden_size: int, count: int) -> Sequence[MixerPart]:
        num_heads = config.integer("num_attention_heads")
        if hidden_size % num_heads:
            config.refuse("num_attention_heads", f"a divisor of the hidden size ({hidden_size})")
        num_kv_heads = kv_heads(config, num_heads)
        head_dim = hidden_size // num_heads
        heads = Heads(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
        weights = attention_weights_of(config, family, hidden_size, heads)
        parts = {
            window: MixerPart(
                mixer=Attention(
                    num_heads=num_heads,
                    num_kv_heads=num_kv_heads,
                    head_dim=head_dim,
                    value_head_dim=head_dim,
                    window=window,
                ),
                weights=weights,
            )
            for window in set(family.windows(config, count))
        }
        return tuple(parts[window] for window in family.windows(config, count))

    return rule


_multi_head: Final = _even_attention(lambda config, num_heads: num_heads)


def _multi_query(config: Config, num_heads: int) -> int:
    return 1 if config.flag("multi_query") else num_heads


def _falcon_kv_heads(config: Config, num_heads: int) -> int:
    """Falcon: ``num_kv_heads`` counts only in the new architecture, else one or all."""
    if config.flag("new_decoder_architecture"):
        return config.optional_integer("num_kv_heads", "n_head_kv") or num_heads
    return _multi_query(config, num_heads)


def _falcon_norms(config: Config) -> tuple[str, ...]:
    if not config.flag("parallel_attn"):
        return ("input_layernorm", "post_attention_layernorm")
    norms = config.optional_integer("num_ln_in_parallel_attn", minimum=0)
    if norms == 2 or (norms is None and config.flag("new_decoder_architecture")):
        return ("ln_attn", "ln_mlp")
    return ("input_layernorm",)


def _neo_windows(config: Config, count: int) -> windows.Windows:
    """GPT-Neo: ``attention_types`` repeats patterns of "global" and "local"."""
    window = config.integer("window_size")
    patterns = config.sequence("attention_types")
    if patterns is None:
        return tuple(window if index % 2 else None for index in range(count))
    expected = "a list of [[names], repeats] with one of global and local for each layer"
    kinds: list[object] = []
    for item in patterns:
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], list)):
            config.refuse("attention_types", expected)
        if not isinstance(item[1], int) or not 0 <= item[1] <= count:
            config.refuse("attention_types", expected)
        kinds += item[0] * item[1]
    if len(kinds) != count or not {"global", "local"} >= {str(kind) for kind in kinds}:
        config.refuse("attention_types", expected)
    return tuple(window if kind == "local" else None for kind in kinds)


def _bloom_norm(config: Config, hidden_size: int) -> tuple[Weight, ...]:
    """A LayerNorm straight after the embedding."""
    return (blocks.norm("transformer.word_embeddings_layernorm", hidden_size, bias=True),)


def _japanese_dense_bias(config: Config, name: str, family: Family) -> ModelSpec:
    """GPT-NeoX-Japanese: as its family, with an output bias in the last layer alone."""
    from tokenroom.models.architectures.decoders import build

    spec = build(config, name, family)
    last = spec.layers[-1]
    bias = blocks.vector("attention.dense_bias", spec.hidden_size)
    return replace(spec, layers=(*spec.layers[:-1], replace(last, weights=(*last.weights, bias))))


def _opt(config: Config, name: str) -> ModelSpec:
    """OPT, whose embedding may be narrower than its blocks (``word_embed_proj_dim``)."""
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    width = config.optional_integer("word_embed_proj_dim") or hidden_size
    shift = config.flag("layer_norm_elementwise_affine", default=True)
    count = num_layers(config)
    family = replace(
        _OPT,
        norm=_LAYER_NORM if shift else Norm.NOTHING,
        q_bias="enable_bias",
    )
    norms = tuple(
        blocks.norm(path, hidden_size, bias=True)
        for path in ("self_attn_layer_norm", "final_layer_norm")
        if shift
    )
    ffn = dense_part(config, family, hidden_size, config.integer("ffn_dim"))
    layers = join(_multi_head(config, family, hidden_size, count), (ffn,) * count, norms)
    prefix = "model.decoder"
    inputs = [
        blocks.embedding(vocab_size, width, f"{prefix}.embed_tokens"),
        blocks.positions(
            config.integer("max_position_embeddings") + 2, hidden_size, f"{prefix}.embed_positions"
        ),
    ]
    outputs: list[Weight] = []
    if width != hidden_size:
        inputs.append(blocks.linear(f"{prefix}.project_in", hidden_size, width))
        outputs.append(blocks.linear(f"{prefix}.project_out", width, hidden_size))
    last = config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm")
    if last and shift:
        outputs.append(blocks.norm(f"{prefix}.final_layer_norm", hidden_size, bias=True))
    tied = config.flag("tie_word_embeddings", default=True)
    head = head_of(config)
    if head is Head.SEQUENCE_CLASSES:
        outputs.append(classifier(config, width))
    elif head is Head.LANGUAGE_MODEL and not tied:
        outputs.append(blocks.lm_head(vocab_size, width))
    return decoder(
        config,
        name,
        layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=tied,
        own_head=True,
        max_position_embeddings=config.integer("max_position_embeddings"),
        final_norm=None,
        input_weights=inputs,
        output_weights=outputs,
        layer_prefix=f"{prefix}.layers",
    )


_QKV: Final = Names(
    attention="self_attention",
    q="query_key_value",
    k="query_key_value",
    v="query_key_value",
    o="dense",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    layers="transformer.h",
    embedding="transformer.word_embeddings",
    final_norm="transformer.ln_f",
)
_GPT2_NAMES: Final = Names(
    attention="attn",
    q="c_attn",
    k="c_attn",
    v="c_attn",
    o="c_proj",
    up="c_fc",
    down="c_proj",
    layers="transformer.h",
    embedding="transformer.wte",
    final_norm="transformer.ln_f",
)
_NEOX_NAMES: Final = replace(
    _QKV,
    attention="attention",
    layers="gpt_neox.layers",
    embedding="gpt_neox.embed_in",
    final_norm="gpt_neox.final_layer_norm",
)
_FAIRSEQ_NAMES: Final = Names(
    o="out_proj", mlp="", up="fc1", down="fc2", final_norm="model.layer_norm"
)
_GPT2: Final = Family(
    q_bias=True,
    o_bias=True,
    in_bias=True,
    gated=False,
    norm=_LAYER_NORM,
    norms=("ln_1", "ln_2"),
    attention=_multi_head,
    intermediate=_four_times("n_inner"),
    input_extra=_positions("transformer.wpe"),
    names=_GPT2_NAMES,
)
_GPTJ: Final = replace(
    _GPT2,
    q_bias=False,
    o_bias=False,
    norms=("ln_1",),
    input_extra=None,
    head_bias=True,
    names=replace(
        _GPT2_NAMES, q="q_proj", k="k_proj", v="v_proj", o="out_proj", up="fc_in", down="fc_out"
    ),
)
_FAIRSEQ: Final = replace(
    _GPT2,
    norms=("self_attn_layer_norm", "final_layer_norm"),
    input_extra=None,
    intermediate="ffn_dim",
    names=_FAIRSEQ_NAMES,
)
_OPT: Final = replace(_FAIRSEQ, o_bias="enable_bias", in_bias="enable_bias")
_NEOX: Final = Family(
    q_bias="attention_bias",
    o_bias="attention_bias",
    in_bias=True,
    gated=False,
    norm=_LAYER_NORM,
    attention=_multi_head,
    names=_NEOX_NAMES,
)
_NEOX_JAPANESE: Final = replace(
    _NEOX,
    q_bias=False,
    o_bias=False,
    in_bias=False,
    intermediate=lambda config: (
        config.integer("hidden_size") * config.integer("intermediate_multiple_size")
    ),
    names=replace(
        _NEOX_NAMES,
        layers="gpt_neox_japanese.layers",
        embedding="gpt_neox_japanese.embed_in",
        final_norm="gpt_neox_japanese.final_layer_norm",
    ),
)

_FALCON: Final = Family(
    q_bias="bias",
    o_bias="bias",
    in_bias="bias",
    gated=False,
    norm=_LAYER_NORM,
    norms=_falcon_norms,
    attention=_even_attention(_falcon_kv_heads),
    intermediate=_four_times("ffn_hidden_size"),
    names=_QKV,
)

_FAMILIES: Final[Mapping[str, Family]] = {
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "biogpt": replace(
        _FAIRSEQ,
        intermediate="intermediate_size",
        input_extra=_positions("biogpt.embed_positions", offset=2),
        names=replace(
            _FAIRSEQ_NAMES,
            layers="biogpt.layers",
            embedding="biogpt.embed_tokens",
            final_norm="biogpt.layer_norm",
            head="output_projection",
        ),
    ),
    "bloom": replace(
        _GPT2,
        norms=("input_layernorm", "post_attention_layernorm"),
        intermediate=_four_times(),
        input_extra=_bloom_norm,
        names=_QKV,
    ),
    "codegen": replace(_GPTJ, names=replace(_GPTJ.names, q="qkv_proj", k="qkv_proj", v="qkv_proj")),
    "ctrl": replace(
        _GPT2,
        norms=("layernorm1", "layernorm2"),
        intermediate="dff",
        input_extra=None,
        head_bias=True,
        names=Names(
            attention="multi_head_attention",
            q="Wq",
            k="Wk",
            v="Wv",
            o="dense",
            mlp="ffn",
            up="0",
            down="2",
            layers="transformer.h",
            embedding="transformer.w",
            final_norm="transformer.layernorm",
        ),
    ),
    "falcon": _FALCON,
    "gpt-sw3": _GPT2,
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, attention=_even_attention(_multi_query)),
    "gpt_neo": replace(
        _GPT2,
        q_bias=False,
        windows=_neo_windows,
        intermediate=_four_times("intermediate_size"),
        names=replace(
            _GPT2_NAMES,
            attention="attn.attention",
            q="q_proj",
            k="k_proj",
            v="v_proj",
            o="out_proj",
        ),
    ),
    "gpt_neox": _NEOX,
    "gptj": _GPTJ,
    "mpt": Family(
        gated=False,
        norms=("norm_1", "norm_2"),
        attention=_multi_head,
        intermediate=_four_times(),
        max_positions="max_seq_len",
        names=Names(
            attention="attn",
            q="Wqkv",
            k="Wqkv",
            v="Wqkv",
            o="out_proj",
            mlp="ffn",
            layers="transformer.blocks",
            embedding="transformer.wte",
            final_norm="transformer.norm_f",
        ),
    ),
    "openai-gpt": replace(
        _GPT2,
        final_norm=False,
        intermediate=_four_times(),
        input_extra=_positions("transformer.positions_embed"),
        names=replace(_GPT2_NAMES, embedding="transformer.tokens_embed"),
    ),
    "persimmon": replace(
        _NEOX,
        q_bias=True,
        o_bias=True,
        attention_extra=lambda config, hidden_size, heads: (
            (
                blocks.norm("self_attn.q_layernorm", heads.head_dim, bias=True),
                blocks.norm("self_attn.k_layernorm", heads.head_dim, bias=True),
            )
            if config.flag("qk_layernorm")
            else ()
        ),
        names=replace(
            _QKV,
            attention="self_attn",
            layers="model.layers",
            embedding="model.embed_tokens",
            final_norm="model.final_layernorm",
        ),
    ),
    "xglm": _FAIRSEQ,
}

BUILDERS: Final[Mapping[str, Builder]] = {
    **builders(_FAMILIES),
    "gpt_neox_japanese": lambda config, name: _japanese_dense_bias(config, name, _NEOX_JAPANESE),
    "opt": _opt,
}
