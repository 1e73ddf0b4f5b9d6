"""Putting a :class:`ModelSpec` together from what every decoder has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenroom.models.architectures import blocks
from tokenroom.models.config import Config
from tokenroom.models.spec import DTYPE_BITS, Layer, ModelSpec, Weight

MAX_LAYERS: Final = 4096
"""More blocks than any model has: a larger figure is damage."""

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
    if name not in DTYPE_BITS:
        config.refuse(
            "dtype" if config.has("dtype") else "torch_dtype",
            "a PyTorch type such as bfloat16, float16 or float32",
        )
    return name


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
    mtp_layers: Sequence[Layer] = (),
    layer_prefix: str = "model.layers",
    embedding_name: str = "model.embed_tokens",
    head_name: str = "lm_head",
    logits_softcap: bool = False,
    assumptions: Sequence[str] = (),
) -> ModelSpec:
    """A decoder-only model: token embedding, blocks, final norm, output projection.

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
    if not tied_embeddings:
        outputs.append(blocks.lm_head(vocab_size, hidden_size, bias=head_bias, name=head_name))
    elif head_bias:
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
