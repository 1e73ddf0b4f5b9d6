"""Whatever stands in a configuration, a fit ends soon and only with an answer or its sentence."""

from typing import Any

import pytest
from config_targets import ENGINES, VALUES, answers, changed, places, within
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import TokenroomError
from tokenroom.models.hf_config import read_config

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
        "sliding_window": None,
        "attention_bias": False,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "original_max_position_embeddings": 8192,
        },
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head", "re:.*gate$"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "strategy": "group",
                        "group_size": 128,
                        "symmetric": True,
                    },
                }
            },
        },
    },
    "deepseek": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "num_nextn_predict_layers": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "max_position_embeddings": 163840,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
        },
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
        "use_sliding_window": False,
        "max_window_layers": 4,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {
            "depth": 4,
            "hidden_size": 1280,
            "num_heads": 16,
            "intermediate_size": 3420,
            "out_hidden_size": 2048,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1, 3],
        },
        "torch_dtype": "bfloat16",
    },
    "qwen3_next": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "partial_rotary_factor": 0.25,
        "torch_dtype": "bfloat16",
    },
}
PLACES = [(name, place) for name, data in CONFIGS.items() for place in places(data)]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_whole_configurations_fit(name: str) -> None:
    assert answers(CONFIGS[name], ENGINES[0], gpus=1).split()[0] in ("fits", "does_not_fit")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(VALUES), st.sampled_from(ENGINES))
def test_a_damaged_value_is_an_answer_or_a_sentence(
    place: tuple[str, tuple[Any, ...]], value: object, engine: str
) -> None:
    name, where = place
    with within(20):
        said = answers(changed(CONFIGS[name], where, value), engine)
    assert said
    assert len(said) < 600


@pytest.mark.parametrize(
    "value",
    [int("7" * 400), "x" * 4000, ["y" * 4000], 10**5000],
    ids=["digits", "text", "list", "huge"],
)
def test_a_value_of_any_length_gives_a_short_sentence(value: object) -> None:
    for changed_part in ({"quantization_config": {"quant_method": value}}, {"model_type": value}):
        config = {**CONFIGS["llama"], **changed_part}
        with pytest.raises(TokenroomError) as caught:
            read_config(config, "config.json")
        assert len(str(caught.value)) < 600
