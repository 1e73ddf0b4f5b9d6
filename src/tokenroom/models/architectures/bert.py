"""Bidirectional encoders that engines serve for embedding and classifying: BERT and RoBERTa.

Read from ``modeling_bert.py`` and ``modeling_roberta.py`` of transformers 5.24. What follows the
last block depends on the class in ``architectures``; without one it is the language-model head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenroom.models.architectures import blocks
from tokenroom.models.architectures.assembly import Head, classifier, decoder, head_of, num_layers
from tokenroom.models.architectures.decoders import heads_of
from tokenroom.models.config import Config
from tokenroom.models.spec import Attention, DenseFFN, Layer, ModelSpec, Role, Weight

if TYPE_CHECKING:
    from tokenroom.models.architectures import Builder


def _layer(config: Config, hidden_size: int) -> Layer:
    """One post-norm block; every projection has a bias."""
    heads = heads_of(config, hidden_size, even=True)
    width = config.integer("intermediate_size")
    mixer = Attention(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_heads,
        head_dim=heads.head_dim,
        value_head_dim=heads.head_dim,
        encoder_only=True,
    )
    weights = (
        *blocks.attention_weights(
            hidden_size=hidden_size,
            num_heads=heads.num_heads,
            num_kv_heads=heads.num_heads,
            head_dim=heads.head_dim,
            q_bias=True,
            k_bias=True,
            v_bias=True,
            o_bias=True,
            prefix="attention",
            q="self.query",
            k="self.key",
            v="self.value",
            o="output.dense",
        ),
        blocks.norm("attention.output.LayerNorm", hidden_size, bias=True),
        *blocks.ffn_weights(
            hidden_size=hidden_size,
            intermediate_size=width,
            gated=False,
            in_bias=True,
            out_bias=True,
            prefix="",
            up="intermediate.dense",
            down="output.dense",
        ),
        blocks.norm("output.LayerNorm", hidden_size, bias=True),
    )
    ffn = DenseFFN(intermediate_size=width, gated=False)
    return Layer(mixers=(mixer,), ffn=ffn, weights=weights)


def _outputs(
    config: Config, hidden_size: int, vocab_size: int, tied: bool, *, pooled_classes: bool
) -> tuple[Weight, ...]:
    """What follows the last block: a pooler, a classifier or the language-model head."""
    head = head_of(config)
    pooler = blocks.linear("pooler.dense", hidden_size, hidden_size, bias=True, role=Role.OTHER)
    if head is Head.NONE:
        return (pooler,)
    if head is Head.TOKEN_CLASSES:
        return (classifier(config, hidden_size, bias=True, name="classifier"),)
    if head is Head.SEQUENCE_CLASSES:
        if pooled_classes:
            return (pooler, classifier(config, hidden_size, bias=True, name="classifier"))
        own = replace(pooler, name="classifier.dense")
        return (own, classifier(config, hidden_size, bias=True, name="classifier.out_proj"))
    transform = "cls.predictions.transform" if pooled_classes else "lm_head"
    outputs: tuple[Weight, ...] = (
        blocks.linear(f"{transform}.dense", hidden_size, hidden_size, bias=True, role=Role.OTHER),
        blocks.norm(f"{transform}.layer_norm", hidden_size, bias=True),
    )
    outputs += (blocks.vector(f"{transform}.bias", vocab_size),)
    if not tied:
        outputs += (
            blocks.lm_head(vocab_size, hidden_size, bias=True, name=f"{transform}.decoder"),
        )
    return outputs


def _encoder(config: Config, name: str, *, prefix: str, pooled_classes: bool) -> ModelSpec:
    """BERT or RoBERTa.

    Args:
        config: The configuration.
        name: What to call the model.
        prefix: Checkpoint path of the encoder.
        pooled_classes: The classifier reads the pooler (BERT) instead of a projection of its own.
    """
    hidden_size = config.integer("hidden_size")
    vocab_size = config.integer("vocab_size")
    max_positions = config.integer("max_position_embeddings")
    tied = config.flag("tie_word_embeddings", default=True)
    table = f"{prefix}.embeddings"
    return decoder(
        config,
        name,
        layers=(_layer(config, hidden_size),) * num_layers(config),
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        tied_embeddings=tied,
        own_head=True,
        max_position_embeddings=max_positions,
        final_norm=None,
        input_weights=(
            blocks.embedding(vocab_size, hidden_size, f"{table}.word_embeddings"),
            blocks.positions(max_positions, hidden_size, f"{table}.position_embeddings"),
            blocks.positions(
                config.integer("type_vocab_size"), hidden_size, f"{table}.token_type_embeddings"
            ),
            blocks.norm(f"{table}.LayerNorm", hidden_size, bias=True),
        ),
        output_weights=_outputs(
            config, hidden_size, vocab_size, tied, pooled_classes=pooled_classes
        ),
        layer_prefix=f"{prefix}.encoder.layer",
    )


def _bert(config: Config, name: str) -> ModelSpec:
    return _encoder(config, name, prefix="bert", pooled_classes=True)


def _roberta(config: Config, name: str) -> ModelSpec:
    return _encoder(config, name, prefix="roberta", pooled_classes=False)


BUILDERS: Final[Mapping[str, Builder]] = {
    "bert": _bert,
    "camembert": _roberta,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
}
