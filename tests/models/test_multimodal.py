"""Models with encoders: parameters against transformers, tokens against vLLM's processing classes.

``scripts/oracle_towers.py`` wrote the counts: each model type from a small configuration and again
with each of its fields changed alone, and published models whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tokenroom.errors import ModelError, UnknownArchitectureError
from tokenroom.models.architectures import supported_model_types
from tokenroom.models.hf_config import read_config, read_config_file
from tokenroom.models.spec import Attention, Shard

_TYPES = (
    "aria",
    "audioflamingo3",
    "cohere2_vision",
    "deepseek_vl",
    "deepseek_vl_hybrid",
    "gemma3",
    "gemma4",
    "glm46v",
    "glm4v",
    "glm4v_moe",
    "glm_ocr",
    "glmasr",
    "granite_speech",
    "idefics2",
    "idefics3",
    "internvl",
    "kimi_k25",
    "lfm2_vl",
    "lighton_ocr",
    "llama4",
    "llava",
    "llava_next",
    "llava_next_video",
    "llava_onevision",
    "minicpmv4_6",
    "minicpmv4_7",
    "minimax_m3_vl",
    "mistral3",
    "mllama",
    "ovis2",
    "paligemma",
    "phi4_multimodal",
    "qwen2_5_omni_thinker",
    "qwen2_5_vl",
    "qwen2_audio",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_asr",
    "qwen3_omni_moe_thinker",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
    "step3p7",
    "vipllava",
    "voxtral",
)
_ENCODER_DECODER = (
    "bart",
    "blenderbot",
    "blenderbot-small",
    "m2m_100",
    "marian",
    "mbart",
    "mt5",
    "nllb-moe",
    "pegasus",
    "plbart",
    "speech_to_text",
    "switch_transformers",
    "t5",
    "umt5",
    "whisper",
)

# transformers overlooks fields outside text_config and builds the class's own 128,815 words; the
# file says 128,896.
_FLAT_STEP = 2 * (128_896 - 128_815) * 4096
_WHOLE_EXCEPTIONS = {
    "stepfun-ai__Step-3.7-Flash": _FLAT_STEP,
    "stepfun-ai__Step-3.7-Flash-FP8": _FLAT_STEP,
}


@pytest.mark.parametrize("model_type", _TYPES + _ENCODER_DECODER)
def test_counts_equal_transformers(model_type: str, check_counts: Callable[[str], None]) -> None:
    check_counts(model_type)


def test_every_recorded_type_is_known(recorded_types: frozenset[str]) -> None:
    assert recorded_types <= set(supported_model_types())
    assert set(_TYPES + _ENCODER_DECODER) <= recorded_types


@pytest.mark.shared
def test_published_models_are_counted_whole(shared: Path, whole_models: Mapping[str, int]) -> None:
    wrong = {}
    for name, count in whole_models.items():
        spec = read_config_file(shared / "zoo" / "configs" / name)
        difference = spec.parameters_total - count
        if difference != _WHOLE_EXCEPTIONS.get(name, 0):
            wrong[name] = difference
    assert not wrong
    assert len(whole_models) > 30


_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


def _read(model_type: str, **fields: object):
    return read_config({"model_type": model_type, **fields}, model_type)


@pytest.mark.parametrize(
    ("model_type", "fields", "tokens", "positions"),
    [
        # A 896x896 image in patches of 14, averaged to 256 tokens.
        (
            "gemma3",
            {"vision_config": {"image_size": 896, "patch_size": 14}},
            256,
            4096,
        ),
        # 12,845,056 pixels in units of 28x28.
        ("qwen2_vl", {"vision_config": {}}, 16384, 65536),
        ("qwen2_5_vl", {"vision_config": {}}, 16384, 65536),
        # 16,777,216 pixels in units of 32x32.
        ("qwen3_vl", {"vision_config": {}}, 16384, 65536),
        ("llava", {"vision_config": {"image_size": 336, "patch_size": 14}}, 576, 577),
        # The grid of 2x2 tiles: 48x48 patches, 48 newlines, and the whole image.
        (
            "llava_next",
            {"vision_config": {"image_size": 336, "patch_size": 14}},
            2928,
            5 * 577,
        ),
        # 110x110 patches merged by two, a break after each of 55 rows.
        (
            "mistral3",
            {"vision_config": {"image_size": 1540, "patch_size": 14, "model_type": "pixtral"}},
            56 * 55,
            110 * 110,
        ),
        (
            "paligemma",
            {"vision_config": {"image_size": 224, "patch_size": 14}},
            256,
            256,
        ),
        # Twelve tiles and a thumbnail of 256 tokens each.
        ("internvl", {"vision_config": {}}, 13 * 256, 13 * 1025),
        ("mllama", {"vision_config": {"image_size": 560}}, 4 * 1601, 4 * 1601),
    ],
)
def test_tokens_of_the_largest_image(
    model_type: str, fields: dict[str, object], tokens: int, positions: int
) -> None:
    text = {**_TEXT, "head_dim": 16}
    (tower,) = _read(model_type, text_config=text, **fields).towers
    assert (tower.max_tokens_per_item, tower.encoder_tokens_per_item) == (tokens, positions)


def test_audio_of_thirty_seconds() -> None:
    spec = _read("qwen2_audio", text_config=_TEXT, audio_config={})
    (tower,) = spec.towers
    assert tower.name == "audio"
    assert (tower.max_tokens_per_item, tower.encoder_tokens_per_item) == (750, 1500)


def test_gemma4_keeps_only_the_encoders_it_has() -> None:
    text = {**_TEXT, "head_dim": 16}
    assert [t.name for t in _read("gemma4", text_config=text).towers] == []
    assert [t.name for t in _read("gemma4", text_config=text, vision_config={}).towers] == [
        "vision"
    ]
    both = _read("gemma4", text_config=text, vision_config={}, audio_config={})
    assert [t.name for t in both.towers] == ["vision", "audio"]


def test_text_and_whole_are_told_apart() -> None:
    spec = _read("qwen3_5", text_config=_TEXT, vision_config={"depth": 2})
    alone = _read("qwen3_5_text", **_TEXT)
    assert spec.text_parameters == alone.text_parameters
    assert spec.parameters_total == spec.text_parameters + spec.tower_parameters
    assert spec.model_type == "qwen3_5_text"


def test_the_outer_configuration_decides_on_the_head() -> None:
    vision = {"vision_config": {"depth": 1}}
    tied = _read("qwen3_vl", text_config=_TEXT, tie_word_embeddings=True, **vision)
    apart = _read("qwen3_vl", text_config=_TEXT, tie_word_embeddings=False, **vision)
    assert tied.tied_embeddings
    assert apart.text_parameters - tied.text_parameters == 1000 * 64


def test_flat_files_are_read_as_their_language_model() -> None:
    nested = _read("qwen2_vl", text_config=_TEXT, vision_config={"depth": 1})
    flat = _read("qwen2_vl", **_TEXT, vision_config={"depth": 1})
    assert flat.parameters_total == nested.parameters_total
    assert flat.extra == {}


def test_ministral_with_an_encoder_is_read_whole() -> None:
    text = {**_TEXT, "model_type": "ministral3", "head_dim": 16}
    vision = {"model_type": "pixtral", "num_hidden_layers": 2}
    whole = _read("ministral3", text_config=text, vision_config=vision)
    assert whole.hidden_size == 64
    assert [tower.name for tower in whole.towers] == ["vision"]


def test_names_lie_where_the_whole_model_has_them() -> None:
    spec = _read("qwen3_vl", text_config=_TEXT, vision_config={"depth": 1})
    assert spec.layer_prefix == "model.language_model.layers"
    assert spec.input_weights[0].name == "model.language_model.embed_tokens"


def test_encoders_divide_over_ranks_but_for_patches_and_norms() -> None:
    (tower,) = _read("qwen2_5_vl", text_config=_TEXT, vision_config={"depth": 2}).towers
    shards = {weight.name.rsplit(".", 1)[-1]: weight.shard for weight in tower.weights}
    assert shards["qkv"] is Shard.COLUMN
    assert shards["down_proj"] is Shard.ROW
    assert shards["norm1"] is Shard.REPLICATED


def test_what_the_file_does_not_say_is_said() -> None:
    spec = _read("qwen3_vl", text_config=_TEXT, vision_config={"depth": 1})
    assert any("16,777,216 pixels" in sentence for sentence in spec.assumptions)


def test_omni_counts_its_thinker() -> None:
    audio = {"encoder_layers": 1, "output_dim": 64}
    thinker = {"text_config": _TEXT, "vision_config": {"depth": 1}, "audio_config": audio}
    whole = _read("qwen2_5_omni", thinker_config=thinker, talker_config={"hidden_size": 8})
    part = _read("qwen2_5_omni_thinker", **thinker)
    assert whole.parameters_total == part.parameters_total
    assert any("thinker" in sentence for sentence in whole.assumptions)


def test_decoder_blocks_read_themselves_and_the_encoder() -> None:
    spec = _read("whisper")
    own, crossing = spec.layers[0].mixers
    assert isinstance(own, Attention)
    assert isinstance(crossing, Attention)
    assert (own.cross, crossing.cross) == (False, True)
    (reads,) = spec.encoder_layers[0].mixers
    assert isinstance(reads, Attention)
    assert reads.encoder_only
    assert spec.max_position_embeddings == 448


def test_only_the_first_block_learns_distances() -> None:
    spec = _read("t5")
    assert spec.layers[0].parameters - spec.layers[1].parameters == 32 * 8
    assert spec.layers[1] is spec.layers[2]


def test_cross_attention_layers_of_llama_vision() -> None:
    spec = _read("mllama", text_config={"num_hidden_layers": 10}, vision_config={})
    crossing = [index for index, layer in enumerate(spec.layers) if layer.mixers[0].cross]
    assert crossing == [3, 8]


@pytest.mark.parametrize(
    ("model_type", "fields", "words"),
    [
        ("llava", {"vision_config": {"model_type": "vit"}}, "clip_vision_model"),
        ("gemma3", {"vision_config": {"patch_size": 0}}, "vision_config.patch_size"),
        ("gemma3", {"vision_config": {"patch_size": 900}}, "vision_config.image_size"),
        ("llava_next", {"image_grid_pinpoints": [[1]]}, "image_grid_pinpoints"),
        ("whisper", {"decoder_attention_heads": 7}, "decoder_attention_heads"),
        ("aria", {"projector_patch_to_query_dict": {"x": 1}}, "projector_patch_to_query_dict"),
    ],
)
def test_impossible_encoders_are_refused(
    model_type: str, fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ModelError) as error:
        _read(model_type, **fields)
    assert words in str(error.value)


def test_unknown_language_models_are_named() -> None:
    with pytest.raises(UnknownArchitectureError, match=r"text_config.*'yeti'"):
        _read("llava", text_config={"model_type": "yeti"})


def test_cases_are_those_of_the_fixture(recorded_types: frozenset[str]) -> None:
    file = Path(__file__).parent.parent / "fixtures" / "models" / "tower_cases.json"
    assert set(json.loads(file.read_text(encoding="utf-8"))) == recorded_types


# Sizes of models whose code is remote, in millions, as their checkpoints have them.
@pytest.mark.parametrize(
    ("config", "millions"),
    [
        (
            {
                "model_type": "internvl_chat",
                "downsample_ratio": 0.5,
                "max_dynamic_patch": 12,
                "use_thumbnail": True,
                "llm_config": {
                    "model_type": "qwen2",
                    "hidden_size": 3584,
                    "intermediate_size": 18944,
                    "num_hidden_layers": 28,
                    "num_attention_heads": 28,
                    "num_key_value_heads": 4,
                    "vocab_size": 151674,
                    "tie_word_embeddings": False,
                },
                "vision_config": {
                    "hidden_size": 1024,
                    "intermediate_size": 4096,
                    "num_hidden_layers": 24,
                    "num_attention_heads": 16,
                    "image_size": 448,
                    "patch_size": 14,
                    "qkv_bias": True,
                    "norm_type": "layer_norm",
                },
            },
            7944,
        ),
        (
            {
                "model_type": "phi3_v",
                "hidden_size": 3072,
                "intermediate_size": 8192,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "vocab_size": 32064,
            },
            4147,
        ),
    ],
)
def test_remote_models_have_their_published_size(config: dict[str, object], millions: int) -> None:
    assert round(read_config(config, "m").parameters_total / 1e6) == millions


def test_kimi_vl_reads_deepseek_with_moonvit() -> None:
    text = {**_TEXT, "kv_lora_rank": 16, "q_lora_rank": None, "n_routed_experts": 8}
    spec = _read("kimi_vl", text_config=text, vision_config={})
    (tower,) = spec.towers
    assert (tower.num_layers, tower.hidden_size) == (27, 1152)
    assert tower.max_tokens_per_item == 1024


def test_gemma3n_equals_transformers() -> None:
    # Counted once with transformers 5.24 and timm 1.0.31 from the class defaults.
    spec = _read("gemma3n", text_config={}, vision_config={}, audio_config={})
    assert spec.parameters_total == 7_818_517_072
    assert [tower.max_tokens_per_item for tower in spec.towers] == [256, 188]


def test_gemma3n_knows_one_image_encoder() -> None:
    with pytest.raises(ModelError, match="mobilenetv5_300m_enc"):
        _read("gemma3n", text_config={}, vision_config={"architecture": "resnet50"})
