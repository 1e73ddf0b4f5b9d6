"""Rotary settings and layer types that cannot be meant are refused, or said."""

import math
from typing import Any

import pytest

from tokenroom.errors import ModelError
from tokenroom.models.hf_config import read_config

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"rope_scaling": "yarn"}, "rope_scaling in the model configuration is 'yarn'; it must"),
        ({"rope_scaling": [1]}, "must hold an object with a rope_type"),
        ({"rope_scaling": YARN | {"factor": -4.0}}, "rope_scaling.factor"),
        ({"rope_scaling": YARN | {"factor": 1e308}}, "a number from 0.001 to 1e+06"),
        ({"rope_scaling": YARN | {"factor": math.nan}}, "rope_scaling.factor"),
        ({"rope_scaling": YARN | {"factor": "4"}}, "must hold a number"),
        ({"rope_scaling": YARN | {"rope_type": 7}}, "the name of a scaling"),
        (
            {"rope_scaling": YARN | {"original_max_position_embeddings": 1e308}},
            "rope_scaling.original_max_position_embeddings",
        ),
        ({"rope_parameters": {"full_attention": {"factor": 0}}}, "full_attention.factor"),
        ({"partial_rotary_factor": 1e308}, "partial_rotary_factor"),
        ({"rotary_dim": -64}, "rotary_dim"),
        ({"layer_types": "full_attention"}, "a list of strings"),
        ({"layer_types": ["ful_attention"] * 32}, "layer_types .* names 'ful_attention'"),
        ({"layer_types": ["full_attention"] * 3, "num_hidden_layers": 4}, "names 3 layers, but"),
        ({"layer_types": ["full_attention"] * 6, "num_hidden_layers": 4}, "names 6 layers, but"),
        ({"num_hidden_layers": 2**31 - 1}, "from 1 to 4096"),
        ({"num_attention_heads": 2**31 - 1}, "from 1 to 65536"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence.replace("+", r"\+")):
        read_config(LLAMA | fields, "x")


def test_an_unknown_scaling_is_said() -> None:
    spec = read_config(LLAMA | {"rope_scaling": YARN | {"rope_type": "spiral"}}, "x")
    assert any("the type 'spiral', which is not known" in said for said in spec.assumptions)


def test_towers_have_a_bound_on_their_layers() -> None:
    vision = {"num_global_layers": 2**31 - 1}
    with pytest.raises(ModelError, match=r"num_global_layers .* from 1 to 4096"):
        read_config({"model_type": "mllama", "vision_config": vision}, "x")
    with pytest.raises(ModelError, match=r"depth .* from 1 to 4096"):
        read_config({"model_type": "qwen2_5_vl", "vision_config": {"depth": 10**6}}, "x")


def test_narrow_types_are_no_plain_dtype() -> None:
    with pytest.raises(ModelError, match=r"dtype .* is 'float8_e4m3fn'; it must hold bfloat16"):
        read_config(LLAMA | {"dtype": "float8_e4m3fn"}, "x")


def test_groups_that_do_not_divide_are_said() -> None:
    block = {"quant_method": "awq", "bits": 4, "group_size": 100, "zero_point": True}
    spec = read_config(LLAMA | {"quantization_config": block}, "x")
    assert any("group_size 100 does not divide the 4096 inputs" in s for s in spec.assumptions)
    block["group_size"] = 128
    spec = read_config(LLAMA | {"quantization_config": block}, "x")
    assert not any("group_size" in said for said in spec.assumptions)
