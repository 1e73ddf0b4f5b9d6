"""Putting a :class:`ModelSpec` together from what every decoder has in common."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tokenroom.models.architectures import blocks
from tokenroom.models.config import MAX_LAYERS, Config
from tokenroom.models.spec import Layer, ModelSpec, Role, Weight

_PLAIN_TYPES: Final = ("bfloat16", "float16", "float32")
"""Types that plain parameters are computed in; narrower ones need a quantisation block."""

DEFAULT_DTYPE: Final = "bfloat16"


def num_layers(config: Config, *keys: str) -> int:
    """Number of decoder blocks, ``num_hidden_layers`` unless other keys are given.

    Raises:
        ModelError: It is missing or out of range.
    """
    return config.integer(*(keys or ("num_hidden_layers",)), maximum=MAX_LAYERS)


def stored_dtype(config: Config) -> str | None:
    """The type plain parameters are stored in, None when the configuration names none.

    Raises:
        ModelError: The name is not a type of PyTorch.
    """
    name = config.text("dtype", "torch_dtype").removeprefix("torch.")
    if not name or name == "auto":
        return None
    if name not in _PLAIN_TYPES:
        config.refuse(
            "dtype" if config.has("dtype") else "torch_dtype",
            "bfloat16, float16 or float32 (narrower weights are said by quantization_config)",
        )
    return name


class Head(StrEnum):
    """What follows the last block, by the class that ``architectures`` names."""

    LANGUAGE_MODEL = "language_model"  # ...ForCausalLM, ...LMHeadModel
    SEQUENCE_CLASSES = "sequence_classes"  # ...ForSequenceClassification
    TOKEN_CLASSES = "token_classes"  # ...ForTokenClassification; its projection has a bias
    NONE = "none"  # ...Model, which embedding models are published as


_BARE_NAMES_WITH_HEAD: Final = frozenset({"ChatGLMModel"})


def head_of(config: Config) -> Head:
    """The head that transformers builds for the class in ``architectures``.

    A nested text configuration has the head of the whole, whatever class it names.

    Raises:
        ModelError: ``architectures`` is not a list of names.
    """
    names = config.texts("architectures") if not config.path else None
    if not names:
        return Head.LANGUAGE_MODEL
    name = names[0]
    if name.endswith("ForSequenceClassification"):
        return Head.SEQUENCE_CLASSES
    if name.endswith("ForTokenClassification"):
        return Head.TOKEN_CLASSES
    bare = name.endswith("Model") and not name.endswith("LMHeadModel")
    return Head.NONE if bare and name not in _BARE_NAMES_WITH_HEAD else Head.LANGUAGE_MODEL


def num_labels(config: Config) -> int:
    """Classes of a classifier: the entries of ``id2label``, else ``num_labels``, else 2.

    Raises:
        ModelError: A field holds what it cannot.
    """
    labels = config.mapping("id2label")
    config.mark_read("label2id")
    return len(labels) if labels else config.integer("num_labels", default=2)


def classifier(
    config: Config, hidden_size: int, *, bias: bool = False, name: str = "score"
) -> Weight:
    """The projection from the residual stream to the labels.

    Raises:
        ModelError: A field that counts the labels holds what it cannot.
    """
    return blocks.linear(name, num_labels(config), hidden_size, bias=bias, role=Role.OTHER)


def decoder(
    config: Config,
    name: str,
    *,
    layers: Sequence[Layer],
    hidden_size: int,
    vocab_size: int,
    tied_embeddings: bool,
    max_position_embeddings: int | None,
    final_norm: Weight | None,
    input_weights: Sequence[Weight] | None = None,
    output_weights: Sequence[Weight] = (),
    head_bias: bool = False,
    own_head: bool = False,
    mtp_layers: Sequence[Layer] = (),
    layer_prefix: str = "model.layers",
    embedding_name: str = "model.embed_tokens",
    head_name: str = "lm_head",
    logits_softcap: bool = False,
    assumptions: Sequence[str] = (),
) -> ModelSpec:
    """A decoder-only model: token embedding, blocks, final norm, output projection.

    A class in ``architectures`` that classifies has a ``score`` projection to its labels instead of
    the output projection; a bare model (as embedding models are published) has neither.

    Args:
        config: The text configuration, for its type and stored dtype.
        name: What to call the model.
        layers: Its blocks; alike ones must be the same object.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        tied_embeddings: Whether the output projection is the embedding.
        max_position_embeddings: Longest context, None for unbounded.
        final_norm: The norm after the last block, None for none.
        input_weights: What comes before the first block; None for the token embedding alone.
        output_weights: Anything beside final norm and head after the last block.
        head_bias: Whether the output projection has a bias. A tied head has its bias counted too.
        own_head: ``output_weights`` holds the head already.
        mtp_layers: Multi-token-prediction blocks.
        layer_prefix: Checkpoint path of the blocks.
        embedding_name: Checkpoint path of the embedding.
        head_name: Checkpoint path of the output projection.
        logits_softcap: Whether final logits pass a tanh cap.
        assumptions: What had to be assumed.
    """
    if input_weights is None:
        input_weights = (blocks.embedding(vocab_size, hidden_size, embedding_name),)
    outputs: list[Weight] = [] if final_norm is None else [final_norm]
    outputs += output_weights
    head = Head.NONE if own_head else head_of(config)
    if head in (Head.SEQUENCE_CLASSES, Head.TOKEN_CLASSES):
        outputs.append(classifier(config, hidden_size, bias=head is Head.TOKEN_CLASSES))
    elif head is Head.LANGUAGE_MODEL and not tied_embeddings:
        outputs.append(blocks.lm_head(vocab_size, hidden_size, bias=head_bias, name=head_name))
    elif head is Head.LANGUAGE_MODEL and head_bias:
        outputs.append(blocks.vector(f"{head_name}.bias", vocab_size))
    return ModelSpec(
        name=name,
        architecture="",
        model_type=config.model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_position_embeddings=max_position_embeddings,
        dtype=stored_dtype(config) or DEFAULT_DTYPE,
        layers=tuple(layers),
        input_weights=tuple(input_weights),
        output_weights=tuple(outputs),
        tied_embeddings=tied_embeddings,
        mtp_layers=tuple(mtp_layers),
        layer_prefix=layer_prefix,
        logits_softcap=logits_softcap,
        assumptions=tuple(assumptions),
    )
