"""What vLLM's profile run encodes: items, modalities, and what lives at once in an encoder."""

from __future__ import annotations

from typing import Any

import pytest

from tokenroom.engines.vllm.activation import activation_peak
from tokenroom.engines.vllm.encoder import encoder_batch, kept_terms, running_terms
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import rules_for
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models import catalogue
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB


def _inputs(**changes: Any) -> ProfileInputs:
    settings: dict[str, Any] = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "max_model_len": 131072,
        "accelerator": find_accelerator("H100"),
    }
    return ProfileInputs(**settings | changes)


@pytest.mark.parametrize(
    ("model", "changes", "batch"),
    [
        # "budget of 16384 tokens": club-3090 issues 602 and 1047
        ("Qwen/Qwen3.6-27B", {}, ("image", 1, 16384, 65536)),
        ("Qwen/Qwen3.6-27B", {"mm_limits": {"image": 0}}, ("video", 1, 12288, 49152)),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {}, ("video", 1, 7 * 16384, 7 * 65536)),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"mm_limits": {"video": 0}}, ("image", 1, 16384, 65536)),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"max_model_len": 40000}, ("video", 1, 32768, 131072)),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"max_model_len": 8192}, ("video", 1, 16384, 65536)),
        ("google/gemma-4-31B-it", {}, ("video", 3, 32 * 78, 32 * 630)),
        ("google/gemma-4-31B-it", {"mm_limits": {"video": 0}}, ("image", 29, 280, 2520)),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", {}, ("image", 1, 6404, 6404)),
    ],
)
def test_the_modality_with_most_tokens_is_encoded(
    model: str, changes: dict[str, Any], batch: tuple[str, int, int, int]
) -> None:
    found = encoder_batch(catalogue.find(model), _inputs(**changes))
    assert found is not None
    assert (found.modality, found.items, found.item_tokens, found.item_positions) == batch


def test_rotated_attention_is_wider_than_the_feed_forward_block() -> None:
    spec = catalogue.find("Qwen/Qwen3.6-27B")
    terms = dict(running_terms(spec, _inputs(), rules_for("0.28.0"), second_runner=False))
    block = 65536 * 1152 * 2
    assert terms == {
        "encoder_residual": block,
        "encoder_normed": block,
        "encoder_positions": block,
        "encoder_qkv": 3 * block,
        "encoder_rotation": 4 * block,
        "encoder_attended": block,
    }


def test_frames_of_gemma4_pass_one_by_one_and_later_in_bounded_batches() -> None:
    spec = catalogue.find("google/gemma-4-31B-it")

    def residual(version: str) -> int:
        terms = running_terms(spec, _inputs(), rules_for(version), second_runner=False)
        return dict(terms)["encoder_residual"]

    width = 1152 * 2
    assert residual("0.21.0") == 630 * width
    bound = find_accelerator("H100").memory_bytes // 10 // (32 * 10240)
    assert residual("0.22.0") == bound // 630 * 630 * width


def test_pixels_are_counted_by_the_projection_of_a_patch() -> None:
    spec = catalogue.find("google/gemma-4-31B-it")
    terms = dict(kept_terms(spec, _inputs(), rules_for("0.21.0"), second_runner=False))
    assert terms["encoder_inputs"] == 3 * 32 * 630 * (3 * 16 * 16) * 2


def test_text_alone_encodes_nothing() -> None:
    spec = catalogue.find("Qwen/Qwen3.6-27B")
    assert encoder_batch(spec, _inputs(language_model_only=True)) is None
    assert encoder_batch(spec, _inputs(mm_limits={"image": 0, "video": 0})) is None
    assert encoder_batch(catalogue.find("Qwen/Qwen3-8B"), _inputs()) is None


def _with_encoders() -> list[ModelSpec]:
    specs = (catalogue.find(name) for name in catalogue.names())
    return [spec for spec in specs if spec.towers]


def test_no_encoder_of_the_catalogue_dwarfs_its_model() -> None:
    """Seven pairs of full-size frames are the most that any encoder is given."""
    for spec in _with_encoders():
        for version in ("0.11.0", "0.19.0", "0.33.0"):
            peak = activation_peak(spec, _inputs(), rules_for(version)).num_bytes
            assert peak < 16 * GIB, (spec.name, version)
