"""Reading config.json: what it yields, and one clear sentence for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import ModelError, TokenroomError, UnknownArchitectureError
from tokenroom.models.class_defaults import class_defaults, known_model_types
from tokenroom.models.config import Config
from tokenroom.models.hf_config import read_config, read_config_file

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def test_llama_3_1_8b() -> None:
    spec = read_config(LLAMA, "meta-llama/Llama-3.1-8B")
    assert spec.parameters_total == 8_030_261_248
    assert spec.architecture == "LlamaForCausalLM"
    assert spec.max_position_embeddings == 131072
    assert spec.dtype == "bfloat16"
    assert spec.num_layers == 32
    assert not spec.tied_embeddings
    assert spec.assumptions == ()
    assert spec.extra == {}


def test_unused_keys_are_kept() -> None:
    spec = read_config({**LLAMA, "novel_switch": 3, "rope_theta": 5e5, "use_cache": True}, "m")
    assert spec.extra == {"novel_switch": 3}


def test_missing_dtype_is_said() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    spec = read_config(config, "m")
    assert spec.dtype == "bfloat16"
    assert "no dtype" in spec.assumptions[0]


def test_shape_fields_taken_from_the_class_are_said() -> None:
    qwen = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 4096,
        "num_hidden_layers": 2,
        "intermediate_size": 11008,
        "vocab_size": 1000,
        "torch_dtype": "bfloat16",
    }
    assert read_config(qwen, "m").assumptions == (
        "num_attention_heads is not in the configuration; 32 taken (default of qwen2)",
    )
    del qwen["vocab_size"]
    assert read_config(qwen, "m").assumptions == (
        "num_attention_heads and vocab_size are not in the configuration; 32 and 151936 taken "
        "(defaults of qwen2)",
    )
    assert read_config(qwen, "m", checked=True).assumptions == ()


def test_shape_fields_of_nested_and_older_spellings() -> None:
    gemma = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}, "dtype": "bfloat16"}
    (sentence,) = read_config(gemma, "m").assumptions
    assert sentence.startswith("text_config.hidden_size, text_config.num_attention_heads")
    assert sentence.endswith("taken (defaults of gemma3_text)")
    gpt2 = {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 100,
        "dtype": "float32",
    }
    assert read_config(gpt2, "m").assumptions == ()


@pytest.mark.parametrize("name", ["torch.float16", "float16"])
def test_dtype_spellings(name: str) -> None:
    assert read_config({**LLAMA, "torch_dtype": name}, "m").dtype == "float16"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", "4096"),
        ("hidden_size", 4096.5),
        ("hidden_size", float("nan")),
        ("hidden_size", True),
        ("hidden_size", -1),
        ("hidden_size", 0),
        ("hidden_size", 10**30),
        ("hidden_size", [4096]),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", {}),
        ("num_key_value_heads", 5),
        ("num_key_value_heads", 64),
        ("num_attention_heads", 8192),
        ("vocab_size", "many"),
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 1),
        ("head_dim", -128),
        ("torch_dtype", "complex32"),
        ("torch_dtype", 16),
        ("architectures", "LlamaForCausalLM"),
        ("architectures", [1]),
        ("quantization_config", "fp8"),
        ("max_position_embeddings", "131072"),
    ],
)
def test_wrong_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError) as error:
        read_config({**LLAMA, field: value}, "m")
    message = str(error.value)
    assert field.split("_")[-1] in message
    assert "\n" not in message
    assert len(message) < 400


def test_nested_fields_are_named_in_full() -> None:
    config = Config({"text_config": {"hidden_size": "x"}}, "llava")
    with pytest.raises(ModelError, match=r"text_config\.hidden_size"):
        config.sub("text_config", "llama").integer("hidden_size")


def test_missing_field_without_default() -> None:
    with pytest.raises(ModelError, match="has no hidden_size"):
        read_config({"model_type": "xverse"}, "m")


def test_no_model_type() -> None:
    with pytest.raises(ModelError, match="no model_type"):
        read_config({"hidden_size": 64}, "m")
    with pytest.raises(ModelError, match="model_type"):
        read_config({"model_type": 3}, "m")


def test_unknown_type_is_refused_unless_assumed() -> None:
    config = {**LLAMA, "model_type": "llamma_next"}
    with pytest.raises(UnknownArchitectureError, match="llamma_next"):
        read_config(config, "m")
    spec = read_config(config, "m", assume_architecture="llama")
    assert spec.parameters_total == 8_030_261_248
    assert spec.assumptions == ("model type 'llamma_next' is not known and was read as llama",)


def test_assumption_reaches_into_a_wrapper() -> None:
    config = {"model_type": "brand_new_vl", "text_config": {**LLAMA, "model_type": "new_text"}}
    spec = read_config(config, "m", assume_architecture="llama")
    assert spec.parameters_total == 8_030_261_248
    assert "not counted" in spec.assumptions[0]


def test_unknown_wrapper_points_at_its_text_model() -> None:
    config = {"model_type": "brand_new_vl", "text_config": LLAMA}
    with pytest.raises(UnknownArchitectureError, match="text_config is of the known type 'llama'"):
        read_config(config, "m")


def test_assumed_type_must_be_known() -> None:
    with pytest.raises(UnknownArchitectureError, match="nonsense"):
        read_config({**LLAMA, "model_type": "x"}, "m", assume_architecture="nonsense")


def test_file_and_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    for path in (file, tmp_path, str(file)):
        spec = read_config_file(path)
        assert spec.parameters_total == 8_030_261_248
        assert spec.source == str(file)
        assert spec.name == tmp_path.name


def test_folder_with_modelopt_block(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    block = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(block))
    assert read_config_file(tmp_path).quantization is not None
    assert read_config_file(tmp_path / "config.json").quantization is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[1, 2]",
        "3",
        "null",
        '{"model_type": "llama"',
        "[" * 100_000,
        '{"a":' * 100_000,
        "\x00\xff",
        '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_damaged_files_give_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ModelError) as error:
        read_config_file(file)
    assert "\n" not in str(error.value)


def test_huge_and_missing_files(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "filler": "x" * (10 * 2**20)}))
    with pytest.raises(ModelError, match="is larger than 8 MiB"):
        read_config_file(file)
    with pytest.raises(ModelError, match="there is no"):
        read_config_file(tmp_path / "absent.json")
    with pytest.raises(ModelError):
        read_config_file(tmp_path / "absent-folder" / "config.json")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["bfloat16", "sliding_attention", "full_attention"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    model_type=st.sampled_from(
        [
            "llama",
            "qwen3_moe",
            "deepseek_v3",
            "deepseek_v4",
            "gemma3n_text",
            "gemma4_text",
            "gpt2",
            "llama4_text",
            "hunyuan",
            "minimax_m3",
            "gpt_neo",
            "nemotron-nas",
            "dbrx",
            "opt",
        ]
    ),
    changes=st.lists(st.tuples(st.integers(min_value=0), _JSON), max_size=3),
)
def test_no_value_ends_in_a_traceback(model_type: str, changes: list[tuple[int, object]]) -> None:
    defaults = dict(class_defaults(model_type).values)
    config: dict[str, object] = {"model_type": model_type, "num_hidden_layers": 4}
    fields = sorted({*defaults, *LLAMA, "layer_types", "mlp_layer_types", "block_configs"})
    for index, value in changes:
        config[fields[index % len(fields)]] = value
    try:
        spec = read_config(config, "m")
    except TokenroomError as error:
        message = str(error)
    else:
        message = ""
        assert spec.parameters_total > 0
    assert "\n" not in message


def test_class_defaults_follow_transformers() -> None:
    llama = class_defaults("llama")
    assert llama.values["num_hidden_layers"] == 32
    assert llama.values["num_key_value_heads"] is None
    assert class_defaults("gpt2").aliases["hidden_size"] == "n_embd"
    assert class_defaults("kimi_k2").values == class_defaults("deepseek_v3").values
    assert class_defaults("no such type").values == {}
    assert len(known_model_types()) > 400


def test_aliases_work_both_ways() -> None:
    by_alias = Config({"hidden_size": 8}, "gpt2")
    by_name = Config({"n_embd": 8}, "gpt2")
    assert by_alias.integer("n_embd") == by_name.integer("hidden_size") == 8
    assert by_alias.unread() == by_name.unread() == {}
