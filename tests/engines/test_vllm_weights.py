"""Parameters of a vLLM rank against what vLLM's own model code creates, and against GPU logs.

The recorded cases (``fixtures/vllm_weight_cases.json``) were written by
``scripts/record_vllm_weights.py`` with vLLM 0.32 for the configurations beside them.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tokenroom.engines.vllm.buffers import position_table_sizes
from tokenroom.engines.vllm.expert_padding import expert_padding
from tokenroom.engines.vllm.online import with_quantization
from tokenroom.engines.vllm.weights import (
    NEWEST_VERSION,
    Ranks,
    WeightBreakdown,
    rank_weights,
    stage_layers,
)
from tokenroom.errors import DeploymentError
from tokenroom.memory.layer_tensors import NO_PADDING, TritonLayout
from tokenroom.memory.weights import Component
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB

FIXTURES = Path(__file__).parent.parent / "fixtures"
MODELS: Mapping[str, Mapping[str, Any]] = json.loads(
    (FIXTURES / "vllm_weight_models.json").read_text()
)
CASES: list[Mapping[str, Any]] = json.loads((FIXTURES / "vllm_weight_cases.json").read_text())
RECORDED = (0, 32, 0)

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN_7B = {
    **LLAMA_8B,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
MISTRAL_SMALL = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "torch_dtype": "bfloat16",
    "multimodal_projector_bias": False,
    "spatial_merge_size": 2,
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 32768,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        "sliding_window": None,
    },
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "head_dim": 64,
        "intermediate_size": 4096,
        "image_size": 1540,
        "patch_size": 14,
    },
}
W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "ignore": ["re:.*lm_head", "re:vision_tower.*", "re:multi_modal_projector.*"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}
DEEPSEEK = "deepseek3"


def small(name: str) -> ModelSpec:
    return read_config(MODELS[name]["config"], name)


@pytest.mark.parametrize("name", sorted({case["model"] for case in CASES}))
def test_parameters_equal_those_vllm_creates(name: str) -> None:
    spec = small(name)
    for case in CASES:
        if case["model"] != name:
            continue
        tp, pp, stage = case["ranks"]
        found = rank_weights(
            spec, ranks=Ranks(tp=tp, pp=pp, pp_rank=stage), loaded=False, version=RECORDED
        )
        assert found.by_dtype == case["bytes"], case["ranks"]
        assert found.total_bytes == sum(case["bytes"].values())
        assert sum(found.components.values()) == found.total_bytes


@pytest.mark.shared
def test_parameters_equal_those_of_published_models(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    monkeypatch.syspath_prepend(str(scripts))
    monkeypatch.setenv("TOKENROOM_SHARED", str(shared))
    monkeypatch.setattr(sys, "argv", ["oracle_vllm_weights.py"])
    from oracle_vllm_weights import main

    assert main() == 0, capsys.readouterr().out


class TestAgainstGPULogs:
    """ "Model loading took X GiB" of vLLM 0.19 on an H100 80GB, printed to 0.01 GiB.

    Source: debug logs of github.com/llm-d-incubation/llm-d-planner, pull request 205, Apache-2.0.
    """

    VERSION = (0, 19, 0)

    def loaded(self, spec: ModelSpec, **settings: Any) -> WeightBreakdown:
        return rank_weights(spec, version=self.VERSION, **settings)

    @pytest.mark.parametrize(
        ("config", "settings", "gibibytes"),
        [
            (LLAMA_8B, {}, 14.99),
            (LLAMA_8B, {"dtype": "float16"}, 14.99),
            (LLAMA_8B, {"dtype": "float32"}, 29.98),
            (LLAMA_8B, {"ranks": Ranks(tp=2)}, 7.51),
            (LLAMA_8B, {"ranks": Ranks(tp=4)}, 3.77),
            (LLAMA_8B, {"ranks": Ranks(pp=2)}, 7.51),
            (LLAMA_8B, {"ranks": Ranks(pp=4)}, 4.26),
            (QWEN_7B, {}, 14.25),
            (QWEN_7B, {"ranks": Ranks(tp=2)}, 7.12),
        ],
    )
    def test_plain_models(
        self, config: Mapping[str, Any], settings: dict[str, Any], gibibytes: float
    ) -> None:
        found = self.loaded(read_config(config, "model"), **settings)
        assert found.allocated_bytes / GIB == pytest.approx(gibibytes, abs=0.006)

    @pytest.mark.parametrize(
        ("quantised", "tp", "gibibytes"),
        [(False, 1, 44.76), (True, 1, 24.07), (True, 2, 12.11)],
    )
    def test_an_encoder_beside_a_language_model(
        self, quantised: bool, tp: int, gibibytes: float
    ) -> None:
        block = {"quantization_config": W8A8} if quantised else {}
        spec = read_config({**MISTRAL_SMALL, **block}, "mistral-small-3.1")
        found = self.loaded(spec, ranks=Ranks(tp=tp))
        assert found.allocated_bytes / GIB == pytest.approx(gibibytes, rel=0.0015)

    def test_fp8_while_loading(self) -> None:
        spec = with_quantization(read_config(LLAMA_8B, "llama"), "fp8")
        assert self.loaded(spec).allocated_bytes / GIB == pytest.approx(8.49, abs=0.006)

    def test_gpt_oss_pads_its_experts_for_marlin(self) -> None:
        """13.72 GiB on an A100 with vLLM 0.19 (github.com/myoceane, reported run)."""
        spec = read_config(GPT_OSS_20B, "gpt-oss-20b")
        padding = expert_padding((8, 0), self.VERSION)
        found = self.loaded(spec, padding=padding)
        assert found.allocated_bytes / GIB == pytest.approx(13.72, abs=0.006)
        assert found.allocated_bytes > self.loaded(spec).allocated_bytes


class TestStages:
    def test_the_remainder_goes_before_the_last(self) -> None:
        assert [len(stage_layers(32, 3, rank)) for rank in range(3)] == [11, 11, 10]
        assert [len(stage_layers(61, 4, rank)) for rank in range(4)] == [15, 15, 16, 15]

    def test_a_partition_is_taken_as_given(self) -> None:
        assert stage_layers(8, 2, 1, (5, 3)) == range(5, 8)

    @pytest.mark.parametrize("partition", [(4, 3), (4, 2, 2), ()])
    def test_a_partition_that_does_not_fit_is_refused(self, partition: tuple[int, ...]) -> None:
        with pytest.raises(DeploymentError, match="VLLM_PP_LAYER_PARTITION"):
            stage_layers(8, 2, 0, partition)

    def test_stages_together_hold_the_model(self) -> None:
        spec = small("llama")
        whole = rank_weights(spec, loaded=False).total_bytes
        parts = [
            rank_weights(spec, ranks=Ranks(pp=3, pp_rank=rank), loaded=False).total_bytes
            for rank in range(3)
        ]
        assert sum(parts) == whole


class TestExperts:
    def test_expert_parallelism_deals_whole_experts(self) -> None:
        spec = small("qwen3moe")
        divided = rank_weights(spec, ranks=Ranks(tp=4), loaded=False)
        dealt = rank_weights(spec, ranks=Ranks(tp=4, expert_parallel=True), loaded=False)
        assert divided.components == dealt.components

    def test_data_parallel_ranks_share_the_experts(self) -> None:
        spec = small("qwen3moe")
        alone = rank_weights(spec, ranks=Ranks(tp=2))
        shared = rank_weights(spec, ranks=Ranks(tp=2, dp=2))
        experts = Component.EXPERTS
        assert shared.components[experts] * 2 == alone.components[experts]
        assert shared.components[Component.ATTENTION] == alone.components[Component.ATTENTION]

    @pytest.mark.parametrize(
        ("capability", "version", "expected"),
        [
            ((8, 0), (0, 19), (256, 128, None)),
            ((9, 0), (0, 11), (1, 64, TritonLayout.STRIDED)),
            ((9, 0), (0, 19), (1, 64, TritonLayout.SWIZZLED)),
            ((10, 0), (0, 19), (256, 256, None)),
            ((10, 0), (0, 33), (256, 128, None)),
            ((12, 0), (0, 33), (256, 128, None)),
            (None, (0, 33), (256, 256, None)),
        ],
    )
    def test_padding_follows_the_kernel(
        self,
        capability: tuple[int, int] | None,
        version: tuple[int, ...],
        expected: tuple[int, int, TritonLayout | None],
    ) -> None:
        padding = expert_padding(capability, version)
        assert (padding.hidden, padding.intermediate, padding.triton) == expected

    def test_hopper_keeps_scales_twice(self) -> None:
        spec = read_config(GPT_OSS_20B, "gpt-oss-20b")
        plain = rank_weights(spec, padding=NO_PADDING).total_bytes
        hopper = rank_weights(spec, padding=expert_padding((9, 0), NEWEST_VERSION)).total_bytes
        assert hopper > plain + 24 * 32 * (5760 + 2880) * 90


class TestLatentAttention:
    def test_halves_of_kv_b_proj_are_kept_unquantised(self) -> None:
        spec = small(DEEPSEEK)
        created = rank_weights(spec, loaded=False).components[Component.ATTENTION]
        loaded = rank_weights(spec).components[Component.ATTENTION]
        assert loaded - created == 3 * 16 * (64 + 64) * 256 * 2

    def test_prediction_blocks_are_loaded_to_draft_only(self) -> None:
        spec = small(DEEPSEEK)
        assert Component.MTP not in rank_weights(spec).components
        assert rank_weights(spec, mtp=True).components[Component.MTP] > 0


class TestTowers:
    CONFIG: ClassVar[Mapping[str, Any]] = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1024,
        "max_position_embeddings": 1024,
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        "vision_config": {
            "depth": 2,
            "embed_dim": 256,
            "hidden_size": 512,
            "num_heads": 4,
            "mlp_ratio": 4,
            "model_type": "qwen2_vl",
        },
        "torch_dtype": "bfloat16",
    }

    def test_the_encoder_can_be_left_out(self) -> None:
        spec = read_config(self.CONFIG, "small")
        whole = rank_weights(spec)
        text = rank_weights(spec, towers=False)
        assert Component.VISION in whole.components
        assert Component.VISION not in text.components
        assert whole.total_bytes - text.total_bytes == whole.components[Component.VISION]

    def test_sections_take_four_times_the_positions(self) -> None:
        spec = read_config(self.CONFIG, "small")
        assert position_table_sizes(spec, "bfloat16", NEWEST_VERSION) == [4 * 1024 * 64 * 2]


class TestHostMemory:
    def test_blocks_leave_the_gpu_until_enough_have(self) -> None:
        spec = read_config(LLAMA_8B, "llama")
        whole = rank_weights(spec)
        asked = 4 * GIB
        kept = rank_weights(spec, cpu_offload_bytes=asked)
        assert asked <= kept.offloaded_bytes < asked + 256 * 2**20
        assert kept.total_bytes + kept.offloaded_bytes == whole.total_bytes

    def test_embedding_and_head_never_leave(self) -> None:
        spec = read_config(LLAMA_8B, "llama")
        kept = rank_weights(spec, cpu_offload_bytes=100 * GIB)
        assert kept.total_bytes == 2 * 128256 * 4096 * 2 + 4096 * 2


class TestQuantizationFlag:
    @pytest.mark.parametrize("method", ["fp8", "fp8_per_block", "bitsandbytes", "mxfp8"])
    def test_a_plain_checkpoint_is_quantised(self, method: str) -> None:
        spec = small("llama")
        assert with_quantization(spec, method).quantization == method
        quantised = rank_weights(with_quantization(spec, method)).total_bytes
        assert quantised < rank_weights(spec).total_bytes

    def test_experts_only(self) -> None:
        spec = with_quantization(small("qwen3moe"), "experts_int8")
        plain = rank_weights(small("qwen3moe")).components
        found = rank_weights(spec).components
        assert found[Component.EXPERTS] < plain[Component.EXPERTS]
        assert found[Component.ATTENTION] == plain[Component.ATTENTION]

    @pytest.mark.parametrize("method", [None, "auto", "awq", "awq_marlin", "moe_wna16"])
    def test_the_checkpoint_s_own_method_changes_nothing(self, method: str | None) -> None:
        spec = small("llama-awq-plain")
        assert with_quantization(spec, method) is spec

    def test_another_method_is_refused(self) -> None:
        with pytest.raises(DeploymentError, match=r"'fp8' but .* quantised by 'awq'"):
            with_quantization(small("llama-awq-plain"), "fp8")

    def test_a_method_that_needs_a_checkpoint_is_refused(self) -> None:
        with pytest.raises(DeploymentError, match=r"'awq' but the checkpoint is not quantised"):
            with_quantization(small("llama"), "awq")


def test_results_are_remembered_by_description() -> None:
    spec = small("llama")
    assert rank_weights(spec, ranks=Ranks(tp=2)) is rank_weights(spec, ranks=Ranks(tp=2))
    assert rank_weights(spec) is not rank_weights(small("llama"))


@pytest.mark.parametrize("name", ["llama", "mixtral", "deepseek3", "gemma2"])
def test_more_ranks_never_hold_more_each_nor_less_together(name: str) -> None:
    spec = small(name)
    sizes = [rank_weights(spec, ranks=Ranks(tp=tp)).total_bytes for tp in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(tp * size >= sizes[0] for tp, size in zip((1, 2, 4, 8), sizes, strict=True))
