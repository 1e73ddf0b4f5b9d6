"""Hybrid and recurrent models: parameters against transformers, states against vLLM's formulas.

``scripts/oracle_towers.py`` wrote the counts: each model type from a small configuration, and again
with each of its fields changed alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tokenroom.errors import ModelError
from tokenroom.memory.kv_cache import recurrent_state
from tokenroom.memory.weights import kv_heads_of, local_weight
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import Layer, ModelSpec, Recurrence, Recurrent

_TYPES = (
    "bailing_hybrid",
    "bamba",
    "falcon_h1",
    "falcon_mamba",
    "granitemoehybrid",
    "jamba",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "lfm3",
    "mamba",
    "mamba2",
    "minimax",
    "nemotron_h",
    "olmo_hybrid",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_next",
    "recurrent_gemma",
    "rwkv",
    "zamba",
    "zamba2",
)


@pytest.mark.parametrize("model_type", _TYPES)
def test_counts_equal_transformers(model_type: str, check_counts: Callable[[str], None]) -> None:
    check_counts(model_type)


def _mixers(spec: ModelSpec) -> list[Recurrent]:
    return [m for layer in spec.layers for m in layer.mixers if isinstance(m, Recurrent)]


_NEMOTRON = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "hybrid_override_pattern": "M*E-",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "n_routed_experts": 4,
    "vocab_size": 1024,
    "dtype": "bfloat16",
}


# What vLLM 0.33's MambaStateShapeCalculator gives for the same sizes.
@pytest.mark.parametrize(
    ("config", "tp", "convolution", "state"),
    [
        (_NEMOTRON, 1, (3, 6144), (64, 64, 128)),
        (_NEMOTRON, 4, (3, 1536), (16, 64, 128)),
        ({"model_type": "bamba", "num_hidden_layers": 1}, 1, (3, 8704), (128, 64, 256)),
        # One group of B and C, kept whole by each of two ranks.
        ({"model_type": "bamba", "num_hidden_layers": 1}, 2, (3, 4608), (64, 64, 256)),
        ({"model_type": "qwen3_next", "num_hidden_layers": 1}, 1, (3, 8192), (32, 128, 128)),
        ({"model_type": "qwen3_next", "num_hidden_layers": 1}, 4, (3, 2048), (8, 128, 128)),
        ({"model_type": "kimi_linear", "num_hidden_layers": 1}, 2, (3, 6144), (16, 128, 128)),
        ({"model_type": "minimax"}, 8, None, (4, 128, 128)),
        ({"model_type": "mamba", "num_hidden_layers": 1}, 2, (3, 768), (768, 16)),
        ({"model_type": "jamba"}, 4, (3, 2048), (2048, 16)),
        ({"model_type": "lfm2", "full_attn_idxs": [0]}, 2, (2, 1280), None),
    ],
)
def test_states_have_vllm_shapes(
    config: dict[str, object],
    tp: int,
    convolution: tuple[int, ...] | None,
    state: tuple[int, ...] | None,
) -> None:
    mixer = _mixers(read_config(config, "m"))[0]
    kept = recurrent_state(mixer, convolution_dtype="bfloat16", tensor_parallel_size=tp)
    assert kept.convolution == convolution
    assert kept.recurrent == state


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (_NEMOTRON, "float32"),
        ({**_NEMOTRON, "mamba_ssm_cache_dtype": "bfloat16"}, "bfloat16"),
        ({"model_type": "qwen3_5_text", "mamba_ssm_dtype": "float32"}, "float32"),
        ({"model_type": "qwen3_5_text"}, "float16"),
        ({"model_type": "kimi_linear"}, "float32"),
    ],
)
def test_states_are_kept_in_the_type_asked_for(config: dict[str, object], dtype: str) -> None:
    mixer = _mixers(read_config(config, "m"))[0]
    assert recurrent_state(mixer, convolution_dtype="float16").recurrent_dtype == dtype


def _rank_parameters(layer: Layer, tp: int) -> int:
    heads = kv_heads_of(layer)
    return sum(local_weight(weight, tp=tp, kv_heads=heads).parameters for weight in layer.weights)


def test_a_single_group_is_kept_by_every_rank() -> None:
    spec = read_config({"model_type": "bamba", "num_hidden_layers": 1}, "bamba")
    layer = spec.layers[0]
    # vLLM's MambaMixer2 widens in_proj and conv1d by the groups it repeats: B and C of 256 rows
    # each, 4096 inputs for in_proj, 4 taps and a bias for conv1d.
    norms = 2 * 4096
    assert 2 * (_rank_parameters(layer, 2) - norms) == (
        layer.parameters - norms + 2 * 256 * (4096 + 4 + 1)
    )


def test_groups_divide_when_they_can() -> None:
    spec = read_config(_NEMOTRON, "nemotron")
    layer = spec.layers[0]
    norms = 2688
    assert 8 * (_rank_parameters(layer, 8) - norms) == layer.parameters - norms


def test_decay_is_loaded_as_float32() -> None:
    spec = read_config({"model_type": "qwen3_next", "num_hidden_layers": 1}, "m")
    decays = [w for w in spec.layers[0].weights if w.name.endswith("A_log")]
    assert [w.dtype for w in decays] == ["float32"]


def test_alike_blocks_are_one_object() -> None:
    spec = read_config({"model_type": "qwen3_next", "num_experts": 4}, "m")
    assert len(spec.layer_kinds) == 2
    assert [count for _, count in spec.layer_kinds] == [36, 12]


def test_nemotron_predictors_are_apart() -> None:
    config = {**_NEMOTRON, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    spec = read_config(config, "nemotron")
    names = [weight.name for layer in spec.mtp_layers for weight in layer.weights]
    assert {"enorm", "hnorm", "eh_proj", "final_layernorm"} <= set(names)
    assert spec.parameters_total == read_config(_NEMOTRON, "nemotron").parameters_total


def test_zamba_shares_its_attention() -> None:
    spec = read_config({"model_type": "zamba2", "num_mem_blocks": 2}, "zamba2")
    hybrids = [layer for layer in spec.layers if len(layer.mixers) == 2]
    assert len(hybrids) == 9
    owners = [
        layer
        for layer in hybrids
        if any(w.name == "shared_transformer.self_attn.q_proj" for w in layer.weights)
    ]
    assert len(owners) == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "letters M (Mamba)"),
        ({"model_type": "qwen3_next", "layer_types": ["windowed"]}, "linear_attention"),
        ({"model_type": "lfm2_moe"}, "layer_types"),
        ({"model_type": "recurrent_gemma", "block_types": ["x"]}, "recurrent and attention"),
        ({"model_type": "mamba2", "n_groups": 0}, "n_groups"),
    ],
)
def test_impossible_layers_are_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError) as error:
        read_config(config, "m")
    assert words in str(error.value)


def test_every_recurrence_has_a_model() -> None:
    kinds = set()
    for model_type in _TYPES:
        config: dict[str, object] = {"model_type": model_type}
        if model_type == "lfm2_moe":
            config["layer_types"] = ["conv", "full_attention"]
        if model_type == "lfm2":
            config["full_attn_idxs"] = [0]
        kinds |= {mixer.kind for mixer in _mixers(read_config(config, model_type))}
    assert kinds == set(Recurrence)
