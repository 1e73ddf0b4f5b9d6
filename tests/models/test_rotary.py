"""Tables of rotary positions read from configurations."""

from collections.abc import Mapping
from typing import Any

import pytest

from tokenroom.models.hf_config import read_config
from tokenroom.models.rotary import text_configuration
from tokenroom.models.spec import Rotary

BASE: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Rotary(width=64, kind="default", positions=2048)),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            Rotary(width=64, kind="linear", positions=2048, factor=4.0),
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 8.0,
                    "original_max_position_embeddings": 256,
                }
            },
            Rotary(width=64, kind="yarn", positions=2048, factor=8.0, original_positions=256),
        ),
        (
            {"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 512},
            Rotary(width=64, kind="longrope", positions=2048, original_positions=512),
        ),
        (
            {"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
            Rotary(width=64, kind="default", positions=2048, multimodal=True),
        ),
        ({"partial_rotary_factor": 0.5}, Rotary(width=32, kind="default", positions=2048)),
        ({"rotary_dim": 16}, Rotary(width=16, kind="default", positions=2048)),
    ],
)
def test_one_table(fields: dict[str, object], expected: Rotary) -> None:
    assert read_config({**BASE, **fields}, "small").rotary == (expected,)


def test_windows_of_gemma_3_have_a_table_of_their_own() -> None:
    config = {
        **BASE,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "head_dim": 128,
        "sliding_window": 512,
        "sliding_window_pattern": 2,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    assert read_config(config, "small").rotary == (
        Rotary(width=128, kind="linear", positions=2048, factor=8.0),
        Rotary(width=128, kind="default", positions=2048),
    )


def test_learned_positions_have_none() -> None:
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 128,
        "vocab_size": 100,
    }
    assert read_config(config, "small").rotary == ()


def test_the_text_model_is_found_inside() -> None:
    inner = {"hidden_size": 4}
    assert text_configuration({"thinker_config": {"text_config": inner}}) is inner
    assert text_configuration(inner) is inner
