"""Multi-token-prediction blocks: stored in the checkpoint, loaded only as a draft model.

transformers does not build them; their shapes are those of vLLM's ``deepseek_mtp.py``,
``glm4_moe_mtp.py`` and ``mimo_mtp.py`` (vLLM 0.33).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tokenroom.models.architectures import blocks
from tokenroom.models.config import Config
from tokenroom.models.spec import Layer


def deepseek_mtp(*keys: str) -> Callable[[Config, int, Layer], Sequence[Layer]]:
    """DeepSeek-V3's: the last block, with two norms, a projection of both inputs and a final norm.

    Embedding and head are the model's own. Each block is written once more for every layer that
    the field counts.

    Args:
        keys: Spellings of the field that counts the blocks.
    """

    def rule(config: Config, hidden_size: int, last: Layer) -> Sequence[Layer]:
        count = config.optional_integer(*keys, minimum=0, maximum=64) or 0
        block = replace(
            last,
            weights=(
                blocks.norm("enorm", hidden_size),
                blocks.norm("hnorm", hidden_size),
                blocks.linear("eh_proj", hidden_size, 2 * hidden_size),
                *last.weights,
                blocks.norm("shared_head.norm", hidden_size),
            ),
        )
        return (block,) * count

    return rule


def mimo_mtp(config: Config, hidden_size: int, last: Layer) -> Sequence[Layer]:
    """MiMo's: the same parts as DeepSeek's under other names.

    Raises:
        ModelError: ``num_nextn_predict_layers`` is not a count.
    """
    count = config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    block = replace(
        last,
        weights=(
            blocks.norm("token_layernorm", hidden_size),
            blocks.norm("hidden_layernorm", hidden_size),
            blocks.linear("input_proj", hidden_size, 2 * hidden_size),
            *last.weights,
            blocks.norm("final_layernorm", hidden_size),
        ),
    )
    return (block,) * count
