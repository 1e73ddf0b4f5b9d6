"""Every setting counts: it is read, listed as not modelled, or known to be without influence."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tokenroom.engines.vllm as vllm
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.engines.vllm.unmodelled import NOT_MODELLED, WITHOUT_INFLUENCE
from tokenroom.errors import DeploymentError, ModelError
from tokenroom.fitting import FitResult, fit
from tokenroom.models.catalogue import entry
from tokenroom.models.hf_config import read_config

_MODEL = "meta-llama/Llama-3.1-8B"
_VISION = "Qwen/Qwen2.5-VL-7B-Instruct"
#: Modules that carry settings on without reading what they hold.
_CARRIERS = ("settings.py", "engine_args.py", "arguments.py", "flags.py", "value_types.py")


def _names_read() -> set[str]:
    """Attribute names and strings of every module that may read a setting."""
    found: set[str] = set()
    for file in Path(vllm.__file__).parent.glob("*.py"):
        if file.name in (*_CARRIERS, "unmodelled.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _unmodelled(result: FitResult) -> set[str]:
    return {str(note.values["name"]) for note in result.notices if note.key == "not_modelled"}


def test_every_setting_is_accounted_for() -> None:
    names = {item.name for item in fields(VLLMSettings)}
    accounted = _names_read() | NOT_MODELLED.keys() | WITHOUT_INFLUENCE
    assert not names - accounted
    assert NOT_MODELLED.keys() | WITHOUT_INFLUENCE <= names
    assert not NOT_MODELLED.keys() & WITHOUT_INFLUENCE


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_sleep_mode": True},
        {"enable_prompt_embeds": True},
        {"enable_dbo": True},
        {"all2all_backend": "deepep_low_latency"},
        {"model_impl": "transformers"},
        {"moe_backend": "triton"},
        {"linear_backend": "cutlass"},
        {"attention_config": {"flash_attn_version": 2}},
        {"kv_cache_dtype_skip_layers": ("0",)},
        {"mm_encoder_only": True},
    ],
)
def test_what_is_not_modelled_is_said(settings: dict[str, Any]) -> None:
    assert _unmodelled(fit(_MODEL, "H100", **settings)) == set(settings)


def test_defaults_need_no_word() -> None:
    assert not _unmodelled(fit(_MODEL, "H100", enable_dbo=False, moe_backend="auto"))


class TestOverrides:
    """``--hf-overrides``."""

    def test_shapes_follow(self) -> None:
        result = fit(_MODEL, "H100", hf_overrides={"num_hidden_layers": 16})
        assert result.deployment.spec.num_layers == 16
        assert not _unmodelled(result)

    def test_nested_keys_are_merged(self) -> None:
        overrides = {"text_config": {"num_hidden_layers": 8}}
        spec = fit("Qwen/Qwen3-VL-8B-Instruct", "H100", hf_overrides=overrides).deployment.spec
        assert spec.num_layers == 8
        assert spec.hidden_size == 4096

    def test_a_configuration_of_ones_own_is_read_again(self) -> None:
        spec = read_config(entry(_MODEL).config, "mine")
        result = fit(spec, "H100", hf_overrides={"num_hidden_layers": 4})
        assert result.deployment.spec.num_layers == 4

    def test_lengths_leave_the_model_alone(self) -> None:
        spec = read_config(entry(_MODEL).config, "mine")
        result = fit(spec, "H100", hf_overrides={"max_position_embeddings": 4096})
        assert result.deployment.spec is spec
        assert result.plan.max_model_len == 4096

    def test_what_cannot_be_followed_is_said(self) -> None:
        overrides = {"num_hidden_layers": 16}
        result = fit(_MODEL, "H100", weights="awq", hf_overrides=overrides)
        assert _unmodelled(result) == {"hf_overrides num_hidden_layers"}
        assert _unmodelled(fit(_MODEL, "H100", hf_overrides={"foo": 1})) == {"hf_overrides foo"}

    def test_impossible_shapes_are_refused(self) -> None:
        with pytest.raises(ModelError, match="num_hidden_layers"):
            fit(_MODEL, "H100", hf_overrides={"num_hidden_layers": -1})


class TestProcessor:
    """``--mm-processor-kwargs``."""

    @pytest.mark.parametrize(
        ("model", "settings", "tokens", "frame"),
        [
            (_VISION, {"mm_processor_kwargs": {"max_pixels": 1_003_520}}, 1280, 1280),
            (_VISION, {"mm_processor_max_pixels": 1_003_520}, 1280, 1280),
            (_VISION, {"mm_processor_kwargs": {"size": {"longest_edge": 1_003_520}}}, 1280, 1280),
            (
                "Qwen/Qwen3-VL-8B-Instruct",
                {"mm_processor_kwargs": {"images_kwargs": {"max_pixels": 1_003_520}}},
                980,
                12288,
            ),
            (
                "Qwen/Qwen3-VL-8B-Instruct",
                {"mm_processor_kwargs": {"videos_kwargs": {"max_pixels": 2_007_040}}},
                16384,
                980,
            ),
        ],
    )
    def test_pixels_bound_images_and_frames(
        self, model: str, settings: dict[str, Any], tokens: int, frame: int
    ) -> None:
        tower = fit(model, "H100", **settings).deployment.spec.towers[0]
        assert tower.clip is not None
        assert (tower.max_tokens_per_item, tower.clip.tokens) == (tokens, frame)
        assert tower.encoder_tokens_per_item == 4 * tokens

    def test_fewer_pixels_leave_more_room(self) -> None:
        kwargs = {"max_pixels": 1_003_520}
        smaller = fit(_VISION, "H100", mm_processor_kwargs=kwargs)
        assert smaller.plan.kv_pool_tokens > fit(_VISION, "H100").plan.kv_pool_tokens
        assert not _unmodelled(smaller)

    def test_other_keys_are_said(self) -> None:
        result = fit(_VISION, "H100", mm_processor_kwargs={"num_crops": 4, "fps": 2})
        assert _unmodelled(result) == {"mm_processor_kwargs num_crops"}
        other = fit("google/gemma-3-27b-it", "H100", mm_processor_kwargs={"max_pixels": 4})
        assert _unmodelled(other) == {"mm_processor_kwargs max_pixels"}

    @pytest.mark.parametrize("pixels", ["many", 0, 100])
    def test_impossible_limits_are_refused(self, pixels: Any) -> None:
        with pytest.raises(DeploymentError, match="max_pixels of mm_processor_kwargs is"):
            fit(_VISION, "H100", mm_processor_kwargs={"max_pixels": pixels})


def test_whole_encoders_weigh_the_same_on_every_rank() -> None:
    one, two = fit(_VISION, "H100"), fit(_VISION, "2xH100", mm_encoder_tp_mode="data")
    vision = one.governing_stage.weights["vision"]
    assert two.governing_stage.weights["vision"] == vision
    assert fit(_VISION, "2xH100").governing_stage.weights["vision"] < vision


def test_frames_decoded_on_the_gpu_are_kept_out_of_the_pool() -> None:
    plain = fit(_VISION, "H100").governing_stage.available_bytes
    reserved = fit(_VISION, "H100", mm_ipc_gpu_memory_bytes=2**31)
    assert plain - reserved.governing_stage.available_bytes == 2**31
    older = fit(_VISION, "H100", engine="vllm@0.24.0")
    same = fit(_VISION, "H100", engine="vllm@0.24.0", mm_ipc_gpu_memory_bytes=2**31)
    assert same.plan.kv_pool_tokens == older.plan.kv_pool_tokens


class TestConnectors:
    """``--kv-transfer-config`` and ``--kv-offloading-size``."""

    @pytest.mark.parametrize(
        ("settings", "version", "stays"),
        [
            ({"kv_connector": "LMCacheConnectorV1"}, "0.33.0", False),
            ({"kv_connector": "OffloadingConnector"}, "0.33.0", True),
            ({"kv_connector": "OffloadingConnector"}, "0.21.0", False),
            ({"kv_connector": "MoRIIOConnector"}, "0.29.0", False),
            ({"kv_connector": "MoRIIOConnector"}, "0.30.0", True),
            ({"kv_offload_bytes": 2**34}, "0.33.0", True),
            ({"kv_offload_bytes": 2**34}, "0.16.0", False),
            (
                {"kv_connector": "NixlConnector", "disable_hybrid_kv_cache_manager": False},
                "0.16.0",
                True,
            ),
        ],
    )
    def test_they_may_turn_the_hybrid_manager_off(
        self, settings: dict[str, Any], version: str, stays: bool
    ) -> None:
        result = fit("openai/gpt-oss-20b", "H100", engine=f"vllm@{version}", **settings)
        assert result.deployment.resolved.hybrid_manager is stays
        assert not _unmodelled(result)

    def test_unknown_ones_are_said(self) -> None:
        result = fit(_MODEL, "H100", kv_connector="OwnConnector")
        assert _unmodelled(result) == {"kv_connector OwnConnector"}


class TestBalancing:
    """Expert parallelism load balancing."""

    def test_redundant_experts_weigh(self) -> None:
        model = "Qwen/Qwen3-30B-A3B-FP8"
        plain = fit(model, "4xH100", ep=True).governing_stage.weights["experts"]
        more = fit(model, "4xH100", ep=True, enable_eplb=True, num_redundant_experts=32)
        assert more.governing_stage.weights["experts"] * 128 == plain * 160
        assert _unmodelled(more) == {"enable_eplb"}

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"num_redundant_experts": 8}, "but enable_eplb is off"),
            ({"enable_eplb": True}, "without enable_expert_parallel"),
            ({"enable_eplb": True, "ep": True, "tp": 1}, "needs more than one rank"),
        ],
    )
    def test_what_it_needs(self, settings: dict[str, Any], sentence: str) -> None:
        with pytest.raises(DeploymentError, match=sentence):
            fit("Qwen/Qwen3-30B-A3B-FP8", "4xH100", **settings)


class TestFewerItems:
    """The change that limits what a prompt may hold."""

    def test_leaving_videos_out_may_suffice(self) -> None:
        result = fit(_VISION, "rtx-5090")
        assert result.verdict == "does_not_fit"
        change = {change.key: change for change in result.changes_that_fit}["limit_mm_per_prompt"]
        assert change.flags == """--limit-mm-per-prompt '{"video": 0}'"""
        assert fit(_VISION, "rtx-5090", limit_mm_per_prompt={"video": 0}).verdict == "fits"

    def test_models_of_text_alone_have_none(self) -> None:
        result = fit("Qwen/Qwen3-32B", "rtx-5090")
        assert "limit_mm_per_prompt" not in {change.key for change in result.changes_that_fit}
