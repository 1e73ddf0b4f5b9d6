"""Checkpoint bytes by component, and how weights are divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.errors import DeploymentError
from tokenroom.memory.weights import (
    Component,
    checkpoint_weights,
    component_of,
    kv_heads_of,
    local_bytes,
    local_weight,
)
from tokenroom.models import catalogue
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import Role, Shard, Weight

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_components_add_up_to_every_parameter() -> None:
    spec = read_config(QWEN3_MOE, "small")
    weights = checkpoint_weights(spec)
    assert weights.total_bytes == 2 * spec.parameters_total
    assert weights.total_bytes == sum(weights.components.values())
    assert weights.components[Component.EXPERTS] == 4 * 16 * 3 * 512 * 1024 * 2
    assert weights.components[Component.EMBEDDING] == 1000 * 1024 * 2
    assert weights.components[Component.HEAD] == 1000 * 1024 * 2
    assert weights.components[Component.ROUTER] == 4 * 16 * 1024 * 2
    assert weights.mtp_bytes == 0


@pytest.mark.parametrize(
    ("section", "weight", "expected"),
    [
        ("layers", Weight(name="self_attn.q_proj", shape=(8, 8)), Component.ATTENTION),
        ("layers", Weight(name="mixer.in_proj", shape=(8, 8)), Component.ATTENTION),
        ("layers", Weight(name="mlp.gate_proj", shape=(8, 8)), Component.FFN),
        ("layers", Weight(name="fc1", shape=(8, 8)), Component.FFN),
        ("layers", Weight(name="mlp.gate", shape=(8, 8), role=Role.ROUTER), Component.ROUTER),
        ("layers", Weight(name="mlp.shared_expert.up_proj", shape=(8, 8)), "shared_experts"),
        ("layers", Weight(name="input_layernorm", shape=(8,), role=Role.NORM), Component.NORMS),
        ("head", Weight(name="model.norm", shape=(8,), role=Role.NORM), Component.NORMS),
        ("vision", Weight(name="norm", shape=(8,), role=Role.NORM), Component.VISION),
        ("encoder", Weight(name="mlp.up_proj", shape=(8, 8)), Component.ENCODER),
        ("mtp", Weight(name="mlp.up_proj", shape=(8, 8)), Component.MTP),
    ],
)
def test_component_of_a_weight(section: str, weight: Weight, expected: Component) -> None:
    assert component_of(section, weight) == expected


class TestDivision:
    def test_by_outputs_and_inputs(self) -> None:
        column = Weight(name="q", shape=(64, 32), bias=64, shard=Shard.COLUMN)
        row = Weight(name="o", shape=(64, 32), bias=64, shard=Shard.ROW)
        assert local_weight(column, tp=4).shape == (16, 32)
        assert local_weight(column, tp=4).bias == 16
        assert local_weight(row, tp=4).shape == (64, 8)
        assert local_weight(row, tp=4).bias == 64

    def test_kv_heads_are_replicated_past_their_number(self) -> None:
        weight = Weight(name="k", shape=(4 * 64, 32), bias=4 * 64, shard=Shard.KV_COLUMN)
        assert [local_weight(weight, tp=tp, kv_heads=4).shape[0] for tp in (1, 2, 4, 8)] == [
            256,
            128,
            64,
            64,
        ]
        assert local_weight(weight, tp=16, kv_heads=4).bias == 64

    def test_a_weight_may_have_heads_of_its_own(self) -> None:
        weight = Weight(name="b", shape=(2 * 64, 32), heads=2, shard=Shard.KV_COLUMN)
        assert local_weight(weight, tp=4, kv_heads=8).shape == (64, 32)

    def test_the_vocabulary_is_padded_first(self) -> None:
        weight = Weight(name="lm_head", shape=(1000, 8), bias=1000, shard=Shard.VOCAB)
        assert local_weight(weight, tp=1).shape == (1024, 8)
        assert local_weight(weight, tp=4).shape == (256, 8)
        assert local_weight(weight, tp=4).bias == 256

    def test_experts_are_dealt_or_divided(self) -> None:
        weight = Weight(name="e", shape=(64, 32), shard=Shard.COLUMN, count=10, expert=True)
        assert local_weight(weight, tp=4).shape == (16, 32)
        dealt = [local_weight(weight, tp=4, expert_tp=1, ep=4, ep_rank=r) for r in range(4)]
        assert [piece.count for piece in dealt] == [3, 3, 2, 2]
        assert all(piece.shape == (64, 32) for piece in dealt)

    def test_what_does_not_divide_is_refused(self) -> None:
        weight = Weight(name="q_proj", shape=(10, 8), shard=Shard.COLUMN)
        with pytest.raises(DeploymentError, match=r"of 4 does not divide the outputs of q_proj"):
            local_weight(weight, tp=4)
        heads = Weight(name="k_proj", shape=(6 * 8, 8), shard=Shard.KV_COLUMN)
        with pytest.raises(DeploymentError, match="no multiple of the 6 KV heads"):
            local_weight(heads, tp=8, kv_heads=6)

    def test_a_whole_weight_is_itself(self) -> None:
        weight = Weight(name="norm", shape=(8,), role=Role.NORM)
        assert local_weight(weight, tp=8) is weight


def test_kv_heads_of_a_layer() -> None:
    spec = read_config(QWEN3_MOE, "small")
    assert kv_heads_of(spec.layers[0]) == 4


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(list(Shard)))
def test_ranks_together_hold_at_least_the_whole(tp: int, shard: Shard) -> None:
    weight = Weight(name="w", shape=(8 * 64, 256), bias=8 * 64, shard=shard)
    whole = local_bytes(weight, "bfloat16", tp=1, kv_heads=8)
    assert tp * local_bytes(weight, "bfloat16", tp=tp, kv_heads=8) >= whole


@pytest.mark.parametrize(
    ("model", "published_bytes"),
    [
        # metadata.total_size of model.safetensors.index.json in each repository
        ("meta-llama/Meta-Llama-3.1-8B", 16_060_522_496),
        ("meta-llama/Meta-Llama-3.1-70B", 141_107_412_992),
        ("mistralai/Mixtral-8x7B-v0.1", 93_405_585_408),
        ("openai/gpt-oss-20b", 13_761_264_768),
        ("openai/gpt-oss-120b", 65_248_815_744),
        ("deepseek-ai/DeepSeek-V3", 688_586_727_753),
    ],
)
def test_checkpoints_have_their_published_size(model: str, published_bytes: int) -> None:
    total = checkpoint_weights(catalogue.find(model)).total_bytes
    assert total == pytest.approx(published_bytes, rel=0.0001)
