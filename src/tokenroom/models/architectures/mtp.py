"""Multi-token-prediction blocks: stored in the checkpoint, loaded only as a draft model.

transformers does not build them; their shapes are those of vLLM's ``deepseek_mtp.py``,
``glm4_moe_mtp.py`` and ``mimo_mtp.py`` (vLLM 0.33).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenroom.models.architectures import blocks
from tokenroom.models.config import Config
from tokenroom.models.spec import Layer, Role, Weight


def _mtp_blocks(
    config: Config,
    hidden_size: int,
    last: Layer,
    names: tuple[str, str, str, str],
    copies: Sequence[Weight] = (),
) -> Sequence[Layer]:
    """``num_nextn_predict_layers`` copies of the last block between what joins both inputs.

    A file that does not count them has none: class defaults are left aside, since a checkpoint
    that drops the blocks drops the field too.
    """
    first_norm, second_norm, projection, final_norm = names
    if not config.has("num_nextn_predict_layers"):
        return ()
    count = config.optional_integer("num_nextn_predict_layers", minimum=0, maximum=64) or 0
    block = replace(
        last,
        weights=(
            blocks.norm(first_norm, hidden_size),
            blocks.norm(second_norm, hidden_size),
            # vLLM's nn.Linear: checkpoints leave it unquantised.
            blocks.linear(projection, hidden_size, 2 * hidden_size, role=Role.OTHER),
            *last.weights,
            blocks.norm(final_norm, hidden_size),
            *copies,
        ),
    )
    return (block,) * count


def deepseek_mtp(config: Config, hidden_size: int, last: Layer) -> Sequence[Layer]:
    """DeepSeek-V3's: the last block, with two norms, a projection of both inputs and a final norm.

    The checkpoint stores copies of the model's embedding and head with each; engines use the
    model's own instead.

    Raises:
        ModelError: ``num_nextn_predict_layers`` is not a count.
    """
    names = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
    vocab_size = config.integer("vocab_size")
    copies = (
        blocks.embedding(vocab_size, hidden_size, "embed_tokens"),
        blocks.lm_head(vocab_size, hidden_size, name="shared_head.head"),
    )
    return _mtp_blocks(config, hidden_size, last, names, copies)


def mimo_mtp(config: Config, hidden_size: int, last: Layer) -> Sequence[Layer]:
    """MiMo's: the same parts as DeepSeek's under other names.

    Raises:
        ModelError: ``num_nextn_predict_layers`` is not a count.
    """
    names = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
    return _mtp_blocks(config, hidden_size, last, names)
