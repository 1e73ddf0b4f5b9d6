"""Schemes read from quantisation blocks, and the bytes they take."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.errors import QuantizationError
from tokenroom.memory.weights import Component, checkpoint_weights
from tokenroom.models.hf_config import read_config, read_config_file
from tokenroom.models.quantization import (
    apply_quantization,
    dequantized,
    known_layouts,
    known_methods,
    matrix_bytes,
    schemes,
    stored_bytes,
    what_if,
)
from tokenroom.models.quantization.ggml import BLOCKS, MIXES, ggml_scheme, more_bits
from tokenroom.models.quantization.paths import (
    by_component,
    by_modelopt,
    by_substring,
    by_target,
    by_wildcard,
    spellings,
)
from tokenroom.models.spec import ModelSpec, Scheme, Weight

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIXTURE = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 64,
    "moe_intermediate_size": 512,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


@pytest.fixture
def llama() -> ModelSpec:
    return read_config(LLAMA, "llama")


@pytest.fixture
def mixture() -> ModelSpec:
    return read_config(MIXTURE, "mixture")


def scheme_of(spec: ModelSpec, name: str, layer: int = 0) -> Scheme | None:
    for weight in (*spec.layers[layer].weights, *spec.input_weights, *spec.output_weights):
        if weight.name == name:
            return weight.scheme
    raise AssertionError(f"no weight {name}")


def groups(**weights: object) -> dict[str, object]:
    return {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        # K x N = 4096 x 1024 throughout; layouts as their sources define them
        (schemes.fp8_tensor(static=False), 4096 * 1024 + 4),
        (schemes.fp8_tensor(static=True), 4096 * 1024 + 8),
        (schemes.fp8_channel(), 4096 * 1024 + 4 * 1024),
        (schemes.fp8_block(), 4096 * 1024 + 4 * 32 * 8),
        (schemes.fp8_block(scale_bits=8), 4096 * 1024 + 32 * 8),
        (schemes.int8_w8a8(), 4096 * 1024 + 4 * 1024),
        (schemes.awq(4, 128), 4096 * 1024 // 2 + 32 * 1024 // 2 + 32 * 1024 * 2),
        (schemes.gptq(4, 128), 4096 * 1024 // 2 + 32 * 1024 // 2 + 32 * 1024 * 2),
        (schemes.gptq(4, 128, act_order=True), 2097152 + 16384 + 65536 + 4 * 4096),
        (schemes.packed(4, 128), 4096 * 1024 // 2 + 32 * 1024 * 2 + 16),
        (schemes.packed(8, -1), 4096 * 1024 + 1024 * 2 + 16),
        (schemes.nvfp4(), 4096 * 1024 // 2 + 256 * 1024 + 8),
        (schemes.mxfp4(), 4096 * 1024 // 2 + 128 * 1024),
        (schemes.mxfp8(), 4096 * 1024 + 128 * 1024),
        (schemes.bnb_4bit(), 4096 * 1024 // 2 + 65536 * 4 + 64),
        (schemes.bnb_4bit(double_quant=True), 2097152 + 65536 + 256 * 4 + 64 + 1024),
        (schemes.bnb_int8(), 4096 * 1024 + 4 * 1024),
        (schemes.hqq(4, 64), 4096 * 1024 // 2 + 64 * 1024 * 4),
        (ggml_scheme("q4_K"), 4096 * 1024 // 256 * 144),
        (ggml_scheme("q8_0"), 4096 * 1024 // 32 * 34),
    ],
)
def test_bytes_of_a_matrix(scheme: Scheme, expected: int) -> None:
    assert matrix_bytes(scheme, 1024, 4096) == expected


def test_stored_bytes_count_copies_and_biases() -> None:
    weight = Weight(name="x", shape=(64, 128), bias=64, count=3)
    assert stored_bytes(weight, "bfloat16") == 3 * (64 * 128 + 64) * 2
    quantised = replace(weight, scheme=schemes.fp8_tensor(static=False))
    assert stored_bytes(quantised, "float16") == 3 * (64 * 128 + 4 + 64 * 2)
    assert stored_bytes(replace(weight, dtype="float32"), "bfloat16") == 3 * (64 * 128 + 64) * 4


def test_a_header_wins_over_the_computed_size() -> None:
    assert stored_bytes(Weight(name="x", shape=(8, 8), stored_bytes=99), "bfloat16") == 99


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(QuantizationError, match="float7"):
        stored_bytes(Weight(name="x", shape=(8, 8)), "float7")


def test_awq_of_llama_equals_the_measured_parameters() -> None:
    """5,727,854,592 bytes: what vLLM 0.32 creates for Llama 3.1 8B in AWQ, groups of 128."""
    config = {
        **LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
    }
    assert checkpoint_weights(read_config(config, "llama")).total_bytes == 5_727_854_592


class TestLists:
    def test_components_match_whole_and_anywhere(self) -> None:
        listed = by_component(["lm_head", "visual", "mlp.gate", "model.layers.1"])
        assert listed(["lm_head"])
        assert listed(["model.visual.blocks.0.attn.qkv"])
        assert listed(["model.layers.7.mlp.gate"])
        assert listed(["model.layers.1.self_attn.q_proj"])
        assert not listed(["model.layers.10.self_attn.q_proj"])
        assert not listed(["model.layers.7.mlp.gate_proj"])

    def test_substrings_match_anywhere(self) -> None:
        assert by_substring(["visual"])(["model.visual.merger"])
        assert not by_substring(["visual"])(["model.layers.0.mlp.up_proj"])

    def test_wildcards_match_the_whole_path(self) -> None:
        listed = by_wildcard(["*.self_attn.*", "lm_head"])
        assert listed(["model.layers.0.self_attn.q_proj"])
        assert not listed(["model.lm_head"])
        assert not by_wildcard([])(["anything"])

    def test_modelopt_expands_a_trailing_star(self) -> None:
        listed = by_modelopt(["model.layers.1*", "lm_head"])
        assert listed(["model.layers.1.mlp.up_proj"])
        assert listed(["lm_head"])
        assert not listed(["model.layers.2.mlp.up_proj"])

    def test_targets_are_names_or_patterns(self) -> None:
        listed = by_target(["re:.*gate$", "lm_head"], "ignore")
        assert listed(["model.layers.0.mlp.gate"])
        assert listed(["lm_head"])
        assert not listed(["model.layers.0.mlp.gate_proj"])

    def test_a_broken_pattern_names_its_field(self) -> None:
        with pytest.raises(QuantizationError, match=r"ignore holds '\('.*not a usable regular"):
            by_target(["re:("], "ignore")

    def test_modules_go_by_the_names_of_other_releases(self) -> None:
        names = spellings("model.language_model.layers.0.mlp.experts.0.gate_proj")
        assert "language_model.model.layers.0.mlp.experts.0.gate_proj" in names
        assert "language_model.model.layers.0.block_sparse_moe.experts.0.w1" in names


class TestMethods:
    def test_fp8_leaves_listed_layers_plain(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "modules_to_not_convert": ["model.layers.1.mlp.down_proj"],
            },
        )
        assert scheme_of(spec, "mlp.down_proj", 0) == schemes.fp8_block((128, 128))
        assert scheme_of(spec, "mlp.down_proj", 1) is None
        assert scheme_of(spec, "lm_head") is None
        assert spec.quantization == "fp8"

    def test_alike_layers_stay_one_object(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "fp8",
                "modules_to_not_convert": ["model.layers.1.mlp.down_proj"],
            },
        )
        assert [count for _, count in spec.layer_kinds] == [3, 1]
        assert spec.layers[0] is spec.layers[3]

    def test_fp8_static_stores_input_scales(self, llama: ModelSpec) -> None:
        spec = apply_quantization(llama, {"quant_method": "fp8", "activation_scheme": "static"})
        assert scheme_of(spec, "mlp.up_proj") == schemes.fp8_tensor(static=True)

    def test_gptq_overrides_by_pattern(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 128,
                "lm_head": True,
                "dynamic": {"-:.*layers\\.0\\..*": {}, "+:.*layers\\.1\\..*": {"bits": 8}},
            },
        )
        assert scheme_of(spec, "mlp.up_proj", 0) is None
        assert scheme_of(spec, "mlp.up_proj", 1) == schemes.gptq(8, 128)
        assert scheme_of(spec, "mlp.up_proj", 2) == schemes.gptq(4, 128)
        assert scheme_of(spec, "lm_head") == schemes.gptq(4, 128)

    def test_gptq_quantises_only_listed_modules(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "gptq",
                "bits": 4,
                "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj"]],
            },
        )
        assert scheme_of(spec, "self_attn.q_proj") is not None
        assert scheme_of(spec, "self_attn.k_proj") is None

    def test_auto_round_reads_extra_config(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "packing_format": "auto_round:auto_awq",
                "extra_config": {
                    "model.layers.0.mlp.up_proj": {"bits": 16},
                    ".*layers\\.1.*": {"bits": 8},
                },
            },
        )
        assert scheme_of(spec, "mlp.up_proj", 0) is None
        assert scheme_of(spec, "mlp.up_proj", 1) == schemes.awq(8, 128)
        assert scheme_of(spec, "mlp.up_proj", 2) == schemes.awq(4, 128)

    def test_compressed_tensors_chooses_by_target(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "compressed-tensors",
                "format": "mixed-precision",
                "ignore": ["lm_head"],
                "config_groups": {
                    "a": {
                        "targets": ["re:.*down_proj"],
                        "format": "float-quantized",
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                        "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
                    },
                    "b": {
                        "targets": ["Linear"],
                        "format": "nvfp4-pack-quantized",
                        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                        "input_activations": {"num_bits": 4, "type": "float"},
                    },
                },
                "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
            },
        )
        assert scheme_of(spec, "mlp.down_proj") == schemes.fp8_channel(scale_bits=16)
        assert scheme_of(spec, "mlp.up_proj") == schemes.nvfp4()
        assert scheme_of(spec, "lm_head") is None
        assert spec.kv_cache_dtype == "fp8"

    @pytest.mark.parametrize(
        ("weights", "expected"),
        [
            (
                {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
                schemes.packed(4, 32),
            ),
            (
                {
                    "num_bits": 4,
                    "type": "int",
                    "strategy": "group",
                    "group_size": 64,
                    "symmetric": False,
                },
                schemes.packed(4, 64, symmetric=False),
            ),
            ({"num_bits": 8, "type": "int", "strategy": "channel"}, schemes.packed(8, -1)),
            (
                {
                    "num_bits": 8,
                    "type": "float",
                    "strategy": "block",
                    "block_structure": [128, 128],
                },
                schemes.fp8_block(),
            ),
            (
                {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
                schemes.mxfp4(),
            ),
        ],
    )
    def test_compressed_tensors_layouts(
        self, llama: ModelSpec, weights: dict[str, object], expected: Scheme
    ) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": groups(**weights),
            },
        )
        assert scheme_of(spec, "mlp.up_proj") == expected

    def test_modelopt_in_both_files(self, llama: ModelSpec) -> None:
        own_file = {
            "quantization": {
                "quant_algo": "NVFP4",
                "kv_cache_quant_algo": "FP8",
                "group_size": 16,
                "exclude_modules": ["lm_head", "model.layers.0.self_attn*"],
            }
        }
        in_config = {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": ["lm_head", "model.layers.0.self_attn*"],
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        }
        for block in (own_file, in_config):
            spec = apply_quantization(llama, block)
            assert scheme_of(spec, "mlp.up_proj") == schemes.nvfp4()
            assert scheme_of(spec, "self_attn.q_proj", 0) is None
            assert scheme_of(spec, "self_attn.q_proj", 1) == schemes.nvfp4()
            assert spec.kv_cache_dtype == "fp8"

    def test_modelopt_mixed_finds_experts_by_any_of_them(self, mixture: ModelSpec) -> None:
        spec = apply_quantization(
            mixture,
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.mlp.experts.3.up_proj": {"quant_algo": "NVFP4"},
                    "model.layers.1.mlp.experts": {"quant_algo": "FP8"},
                    "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
                },
            },
        )
        assert scheme_of(spec, "mlp.experts.*.up_proj", 0) == schemes.nvfp4()
        assert scheme_of(spec, "mlp.experts.*.up_proj", 1) == schemes.fp8_tensor(static=True)
        assert scheme_of(spec, "mlp.experts.*.up_proj", 2) is None
        assert scheme_of(spec, "self_attn.o_proj", 0) == schemes.fp8_tensor(static=True)

    def test_mxfp4_takes_only_experts(self, mixture: ModelSpec) -> None:
        spec = apply_quantization(mixture, {"quant_method": "mxfp4"})
        assert scheme_of(spec, "mlp.experts.*.up_proj") == schemes.mxfp4()
        assert scheme_of(spec, "self_attn.q_proj") is None

    @pytest.mark.parametrize(
        ("block", "expected"),
        [
            (
                {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
                schemes.bnb_4bit("nf4"),
            ),
            (
                {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
                schemes.bnb_4bit("fp4", double_quant=True),
            ),
            ({"load_in_8bit": True}, schemes.bnb_int8()),
        ],
    )
    def test_bitsandbytes(
        self, llama: ModelSpec, block: dict[str, object], expected: Scheme
    ) -> None:
        spec = apply_quantization(llama, {"quant_method": "bitsandbytes", **block})
        assert scheme_of(spec, "mlp.up_proj") == expected

    def test_quark(self, llama: ModelSpec) -> None:
        spec = apply_quantization(
            llama,
            {
                "quant_method": "quark",
                "exclude": ["lm_head", "model.layers.0.*"],
                "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group"}},
                "layer_quant_config": {
                    "*down_proj": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}
                },
            },
        )
        assert scheme_of(spec, "mlp.up_proj", 0) is None
        assert scheme_of(spec, "mlp.up_proj", 1) == schemes.mxfp4()
        assert scheme_of(spec, "mlp.down_proj", 1) == schemes.fp8_channel()

    @pytest.mark.parametrize(
        ("block", "expected"),
        [
            (
                {
                    "quant_method": "hqq",
                    "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
                },
                schemes.hqq(4, 64),
            ),
            (
                {
                    "quant_method": "torchao",
                    "quant_type": {
                        "default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}
                    },
                },
                schemes.torchao(4, 32),
            ),
            (
                {"quant_method": "torchao", "quant_type": "int8_weight_only"},
                schemes.torchao(8, -1),
            ),
            (
                {
                    "quant_method": "aqlm",
                    "nbits_per_codebook": 16,
                    "num_codebooks": 1,
                    "in_group_size": 8,
                },
                schemes.aqlm(16, 1, 8, 1),
            ),
            ({"quant_method": "fbgemm_fp8"}, schemes.fp8_channel()),
        ],
    )
    def test_other_methods(
        self, llama: ModelSpec, block: dict[str, object], expected: Scheme
    ) -> None:
        spec = apply_quantization(llama, block)
        assert scheme_of(spec, "mlp.up_proj") == expected
        assert scheme_of(spec, "lm_head") is None

    def test_an_unknown_method_is_named_with_the_known_ones(self, llama: ModelSpec) -> None:
        with pytest.raises(QuantizationError, match=r"'sorcery'.*awq.*compressed-tensors"):
            apply_quantization(llama, {"quant_method": "sorcery"})

    @pytest.mark.parametrize(
        ("block", "message"),
        [
            ({"quant_method": "gptq", "bits": "many"}, "bits"),
            ({"quant_method": "gptq", "bits": 40}, "from 1 to 8 bits"),
            ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size"),
            ({"quant_method": "fp8", "activation_scheme": "frozen"}, "dynamic or static"),
            ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive whole numbers"),
            ({"quant_method": "fp8", "modules_to_not_convert": [3]}, "module names"),
            ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo"),
            ({"quant_method": "modelopt"}, "quant_algo"),
            ({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf5"}, "nf4 or fp4"),
            ({"quant_method": "torchao", "quant_type": "int1"}, "quant_type"),
            ({"quant_method": "compressed-tensors", "config_groups": [1]}, "config_groups"),
            (
                {
                    "quant_method": "compressed-tensors",
                    "kv_cache_scheme": {"type": "int", "num_bits": 3},
                },
                "kv_cache_scheme",
            ),
            (
                {
                    "quant_method": "quark",
                    "global_quant_config": {"weight": {"dtype": "int3"}},
                },
                "weight.dtype",
            ),
        ],
    )
    def test_bad_fields_are_named(
        self, llama: ModelSpec, block: dict[str, object], message: str
    ) -> None:
        with pytest.raises(QuantizationError, match=message):
            apply_quantization(llama, block)


class TestWhatIf:
    @pytest.mark.parametrize("name", known_layouts())
    def test_every_layout_gives_a_size(self, mixture: ModelSpec, name: str) -> None:
        spec = what_if(mixture, name)
        assert 0 < checkpoint_weights(spec).total_bytes < 2 * mixture.parameters_total * 4

    @pytest.mark.parametrize("name", ["Q4_K_M", "q4-k-m", "FP8"])
    def test_spelling_is_lenient(self, llama: ModelSpec, name: str) -> None:
        assert what_if(llama, name).quantization in ("gguf", "fp8")

    def test_plain_types_change_every_weight(self, llama: ModelSpec) -> None:
        assert checkpoint_weights(what_if(llama, "fp32")).total_bytes == 4 * llama.parameters_total

    def test_a_quantised_checkpoint_is_first_made_plain(self, llama: ModelSpec) -> None:
        spec = apply_quantization(llama, {"quant_method": "awq", "bits": 4, "group_size": 128})
        assert what_if(spec, "bf16").layers[0].weights == llama.layers[0].weights
        assert dequantized(spec).quantization is None

    def test_an_unknown_layout_is_named(self, llama: ModelSpec) -> None:
        with pytest.raises(QuantizationError, match=r"--weights is 'q9'.*awq.*q4_k_m"):
            what_if(llama, "q9")

    def test_routers_embeddings_and_head_stay_plain(self, mixture: ModelSpec) -> None:
        spec = what_if(mixture, "awq")
        assert scheme_of(spec, "mlp.gate") is None
        assert scheme_of(spec, "lm_head") is None
        assert scheme_of(spec, "mlp.experts.*.up_proj") == schemes.awq()

    def test_gguf_raises_some_types(self, llama: ModelSpec) -> None:
        spec = what_if(llama, "q4_k_m")
        assert scheme_of(spec, "lm_head") == ggml_scheme("q6_K")
        assert scheme_of(spec, "mlp.up_proj") == ggml_scheme("q4_K")
        names = {
            scheme.name
            for layer in spec.layers
            for weight in layer.weights
            if weight.name == "mlp.down_proj" and (scheme := weight.scheme) is not None
        }
        assert "ggml:q6_K" in names
        assert any("GGUF" in sentence for sentence in spec.assumptions)

    def test_bits_of_known_mixes(self) -> None:
        """Published sizes of Llama 3.1 8B: 4.92 GB in Q4_K_M, 8.54 GB in Q8_0, 6.60 GB in Q6_K."""
        config = {
            **LLAMA,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        }
        spec = read_config(config, "llama")
        for name, gigabytes in (("q4_k_m", 4.92), ("q8_0", 8.54), ("q6_k", 6.60)):
            total = checkpoint_weights(what_if(spec, name)).total_bytes / 1e9
            assert total == pytest.approx(gigabytes, rel=0.005)

    def test_more_bits_at_both_ends_and_every_third(self) -> None:
        raised = [number for number in range(32) if more_bits(number, 32)]
        assert raised == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]

    def test_every_mix_has_a_known_type(self) -> None:
        assert {mix.base for mix in MIXES.values()} <= set(BLOCKS)


@given(
    out_features=st.integers(1, 64).map(lambda n: n * 128),
    in_features=st.integers(1, 64).map(lambda n: n * 128),
)
def test_fewer_bits_never_take_more(out_features: int, in_features: int) -> None:
    sizes = [
        matrix_bytes(scheme, out_features, in_features)
        for scheme in (
            schemes.mxfp4(),
            schemes.nvfp4(),
            schemes.packed(8, -1),
            schemes.torchao(8, 32),
        )
    ]
    assert sizes == sorted(sizes)
    assert sizes[-1] < out_features * in_features * 2


@pytest.mark.shared
def test_every_published_block_can_be_read(shared: Path) -> None:
    quantised = 0
    for folder in sorted((shared / "zoo" / "configs").iterdir()):
        data = json.loads((folder / "config.json").read_text())
        text = data.get("text_config") or {}
        if not (
            "quantization_config" in data
            or "quantization_config" in text
            or (folder / "hf_quant_config.json").exists()
        ):
            continue
        spec = read_config_file(folder)
        assert spec.quantization is not None
        weights = checkpoint_weights(spec)
        assert weights.total_bytes < 2 * spec.parameters_total
        assert Component.ATTENTION in weights.components
        quantised += 1
    assert quantised > 50


def test_known_methods_are_sorted_names() -> None:
    assert list(known_methods()) == sorted(known_methods())
    assert {"fp8", "awq", "gptq", "compressed-tensors", "modelopt", "mxfp4"} <= set(known_methods())


def test_a_pattern_that_backtracks_for_ever_is_matched_at_once() -> None:
    block = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["re:(a|.)*(b|.)*z", "re:.*lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["re:(a|.)*(b|.)*(c|.)*j"],
                "weights": {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"},
            }
        },
    }
    data = {"model_type": "llama", "dtype": "bfloat16", "quantization_config": block}
    spec = read_config(data, "patterns")
    assert spec.quantization == "compressed-tensors"
