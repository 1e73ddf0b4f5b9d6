"""Joining stored tensors with descriptions: names, fusions, kinds, what matches nothing."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from tokenroom.errors import ModelError
from tokenroom.models.headers import attach_stored_tensors
from tokenroom.models.hf_config import read_config
from tokenroom.models.ranges import StoredTensor
from tokenroom.models.spec import ModelSpec

BASE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA = BASE | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
MOE = BASE | {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
}


def tensor(name: str, *shape: int, element_bytes: int = 2) -> StoredTensor:
    return StoredTensor(
        name=name,
        dtype="BF16",
        shape=shape,
        num_bytes=prod(shape) * element_bytes,
        file="model.safetensors",
    )


def plain(spec: ModelSpec, *, prefix: str = "") -> list[StoredTensor]:
    """Tensors named and shaped as the description itself has them."""
    found = []
    for weight in (*spec.input_weights, *spec.output_weights):
        found.append(tensor(f"{prefix}{weight.name}.weight", *weight.shape))
    for index, layer in enumerate(spec.layers):
        for weight in layer.weights:
            for copy in range(weight.count):
                name = weight.name.replace("*", str(copy))
                found.append(
                    tensor(f"{prefix}{spec.layer_prefix}.{index}.{name}.weight", *weight.shape)
                )
    return found


def stored(spec: ModelSpec) -> int:
    total = sum((weight.stored_bytes or 0) * count for _, weight, count in spec.all_weights())
    for layer in spec.mtp_layers:
        total += sum(weight.stored_bytes or 0 for weight in layer.weights)
    return total


def size(tensors: list[StoredTensor]) -> int:
    return sum(item.num_bytes for item in tensors)


def test_plain_names_and_wrappers() -> None:
    for config in (LLAMA, MOE):
        spec = read_config(config, "m")
        for prefix in ("", "language_model.", "model.language_model."):
            tensors = plain(spec, prefix=prefix)
            attached = attach_stored_tensors(spec, tensors)
            assert stored(attached) == size(tensors) == 2 * spec.parameters_total
            assert attached.assumptions == spec.assumptions
            assert len(attached.layer_kinds) == 1


def test_fused_projections_are_shared_out() -> None:
    spec = read_config(LLAMA, "m")
    tensors = [
        item
        for item in plain(spec)
        if not any(part in item.name for part in ("q_proj", "k_proj", "v_proj", "gate", "up_proj"))
    ]
    for index in range(2):
        tensors.append(tensor(f"model.layers.{index}.self_attn.qkv_proj.weight", 128, 64))
        tensors.append(tensor(f"model.layers.{index}.mlp.gate_up_proj.weight", 256, 64))
    attached = attach_stored_tensors(spec, tensors)
    assert stored(attached) == size(tensors)
    by_name = {weight.name: weight.stored_bytes for weight in attached.layers[0].weights}
    assert by_name["self_attn.q_proj"] == 2 * 64 * 64
    assert by_name["self_attn.k_proj"] == by_name["self_attn.v_proj"] == 2 * 32 * 64
    assert attached.assumptions == spec.assumptions


def test_fused_experts_and_other_spellings() -> None:
    spec = read_config(MOE, "m")
    tensors = [item for item in plain(spec) if ".experts." not in item.name]
    for index in range(2):
        path = f"model.layers.{index}.block_sparse_moe.experts"
        tensors.append(tensor(f"{path}.gate_up_proj", 4, 64, 64))
        tensors += [tensor(f"{path}.{expert}.w2.weight", 64, 32) for expert in range(4)]
    attached = attach_stored_tensors(spec, tensors)
    assert stored(attached) == size(tensors)
    assert attached.assumptions == spec.assumptions


def test_tensors_of_quantised_matrices() -> None:
    spec = read_config(
        LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}, "m"
    )
    tensors = []
    for item in plain(spec):
        if "_proj" in item.name:
            stem = item.name.removesuffix(".weight")
            rows, columns = item.shape
            tensors += [
                tensor(f"{stem}.qweight", columns // 8, rows, element_bytes=4),
                tensor(f"{stem}.scales", columns // 32, rows),
                tensor(f"{stem}.qzeros", columns // 32, rows // 8, element_bytes=4),
                tensor(f"{stem}.g_idx", columns, element_bytes=4),
            ]
        else:
            tensors.append(item)
    attached = attach_stored_tensors(spec, tensors)
    assert stored(attached) == size(tensors)
    assert attached.assumptions == spec.assumptions


def test_layers_that_differ_become_kinds() -> None:
    spec = read_config(LLAMA, "m")
    tensors = plain(spec)
    wide = next(item for item in tensors if item.name == "model.layers.1.mlp.up_proj.weight")
    tensors[tensors.index(wide)] = replace(wide, num_bytes=2 * wide.num_bytes)
    attached = attach_stored_tensors(spec, tensors)
    assert [count for _, count in attached.layer_kinds] == [1, 1]
    assert stored(attached) == size(tensors)
    assert "mlp.up_proj with other shapes or types" in attached.assumptions[-1].replace(",", "")


def test_what_matches_nothing() -> None:
    spec = read_config(LLAMA, "m")
    tensors = [
        *plain(spec),
        tensor("model.layers.0.novelty", 10),
        tensor("visual.patch_embed.weight", 7),
        tensor("model.layers.2.eh_proj.weight", 11),
        tensor("mtp.fc.weight", 13),
        tensor("model.layers.0.self_attn.rotary_emb.inv_freq", 99),
    ]
    attached = attach_stored_tensors(spec, tensors)
    assert attached.output_weights[-1].name == "unmatched"
    assert attached.output_weights[-1].stored_bytes == 2 * (10 + 7)
    assert attached.mtp_layers[0].weights[-1].stored_bytes == 2 * (11 + 13)
    assert attached.parameters_total == spec.parameters_total
    assert stored(attached) == size(tensors) - 2 * 99
    unmatched, skipped = attached.assumptions[-2:]
    assert "4 tensors of 82 B" in unmatched
    assert "inv_freq" in skipped


def test_tied_head_and_missing_tensors() -> None:
    spec = read_config(LLAMA | {"tie_word_embeddings": True}, "m")
    tensors = [*plain(spec), tensor("lm_head.weight", 256, 64)]
    attached = attach_stored_tensors(spec, tensors)
    assert stored(attached) == size(tensors) - 2 * 256 * 64
    assert "lm_head.weight" in attached.assumptions[-1]
    short = [item for item in plain(spec) if "o_proj" not in item.name]
    attached = attach_stored_tensors(spec, short)
    assert "stores no tensor for self_attn.o_proj" in attached.assumptions[-1]
    weight = next(item for item in attached.layers[0].weights if item.name == "self_attn.o_proj")
    assert weight.stored_bytes is None


def test_a_checkpoint_of_less_than_half_is_refused() -> None:
    spec = read_config(LLAMA, "m")
    tensors = plain(spec)
    assert attach_stored_tensors(spec, tensors, mostly_there=True).parameters_total
    few = [item for item in tensors if ".1." in item.name]
    with pytest.raises(ModelError, match=r"of the 106,816 parameters .* of m describes"):
        attach_stored_tensors(spec, few, mostly_there=True)
    most = [item for item in tensors if ".1.self_attn" not in item.name]
    said = attach_stored_tensors(spec, most, mostly_there=True).assumptions
    assert any("of 106,816 parameters" in sentence for sentence in said)
