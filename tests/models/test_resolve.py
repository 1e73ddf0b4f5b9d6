"""What a user may call a model, and the one sentence for everything else."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from tokenroom.errors import HubError, ModelError, TokenroomError
from tokenroom.models import hub, resolve
from tokenroom.models.hub import HubOptions
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
SHAPES = {
    "model.embed_tokens.weight": (256, 64),
    "model.norm.weight": (64,),
    "lm_head.weight": (256, 64),
}
LAYER = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (128, 64),
    "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
    "input_layernorm": (64,),
    "post_attention_layernorm": (64,),
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


def checkpoint(folder: Path, *, extra: dict[str, tuple[int, ...]] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shapes = dict(SHAPES) | (extra or {})
    for index in range(2):
        for name, shape in LAYER.items():
            shapes[f"model.layers.{index}.{name}.weight"] = shape
    tensors = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def total_bytes(spec: ModelSpec) -> int:
    return sum((weight.stored_bytes or 0) * count for _, weight, count in spec.all_weights())


def small_gguf(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    for name in ("token_embd.weight", "blk.0.attn_q.weight"):
        writer.add_tensor(name, np.zeros((64, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_configuration_file_and_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    for name in (file, str(file), tmp_path):
        spec = load_model(name)
        assert spec.num_layers == 2
        assert all(weight.stored_bytes is None for _, weight, _ in spec.all_weights())


def test_weights_beside_a_configuration(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    for name in (folder, folder / "model.safetensors"):
        spec = load_model(name)
        assert total_bytes(spec) == 2 * spec.parameters_total
        assert spec.assumptions == ()
        assert "headers of" in spec.source


def test_weights_without_a_configuration(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"stores .* of weights \(\d.*config\.json is needed"):
        load_model(folder)


def test_unmatched_tensors_are_counted_and_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", extra={"model.novelty.weight": (10, 10)})
    spec = load_model(folder)
    assert spec.output_weights[-1].name == "unmatched"
    assert spec.output_weights[-1].stored_bytes == 200
    assert total_bytes(spec) == 2 * spec.parameters_total + 200
    assert "model.novelty.weight" in spec.assumptions[-1]


@pytest.mark.parametrize("layout", ["awq", "FP8", "q4_k_m", "w8a8", "fp8-block"])
def test_a_layout_after_the_model(layout: str) -> None:
    spec = load_model(f"qwen3-8b@{layout}")
    assert spec.name == f"Qwen/Qwen3-8B@{layout}"
    expected = what_if(load_model("qwen3-8b"), layout)
    assert spec.layers == expected.layers
    assert spec.quantization == expected.quantization


def test_a_layout_after_a_path(tmp_path: Path) -> None:
    file = tmp_path / "a@awq.json"
    file.write_text(json.dumps(CONFIG))
    assert load_model(file).quantization is None
    assert load_model(f"{file}@awq").quantization == "awq"


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'float7' after its @ .* may be one of awq, bf16"):
        load_model("qwen3-8b@float7")
    with pytest.raises(ModelError, match="'zzzzzz' is not in the catalogue"):
        load_model("zzzzzz@awq")


def test_gguf_file_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = small_gguf(folder / "a.gguf")
    small_gguf(folder / "mmproj-a.gguf")
    assert load_model(path).num_layers == load_model(folder).num_layers == 1
    small_gguf(folder / "b.gguf")
    with pytest.raises(ModelError, match="holds 2 GGUF models"):
        load_model(folder)


def test_catalogue_name() -> None:
    assert load_model("qwen3-8b").name == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\0b", "is empty"),
        ("./nothing", "no file or folder"),
        ("/nothing/config.json", "no file or folder"),
        ("nothing.gguf", "no file or folder"),
        ("nothing.safetensors", "no file or folder"),
        ("..\\nothing", "no file or folder"),
        ("x" * 5000, "not in the catalogue"),
        ("lama-3.1-8b", "near it are"),
        ("a/b/c", "not in the catalogue"),
    ],
)
def test_what_is_not_there(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(name)
    assert len(str(caught.value)) < 600


def test_missing_path_object(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no file or folder"):
        load_model(tmp_path / "missing")
    with pytest.raises(ModelError, match=r"no config\.json, \.safetensors or \.gguf"):
        load_model(tmp_path)


def test_hub_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, HubOptions]] = []

    def load(name: str, options: HubOptions, **_: object) -> ModelSpec:
        asked.append((name, options))
        return load_model("qwen3-8b")

    monkeypatch.setattr(hub, "load_from_hub", load)
    online = HubOptions(offline=False)
    load_model("someone/model", hub=online)
    load_model("someone/model/file-Q4_K_M.gguf", hub=online)
    load_model("Qwen/Qwen3-8B", hub=online)  # in the catalogue: not asked
    pinned = HubOptions(offline=False, revision="v2")
    load_model("Qwen/Qwen3-8B", hub=pinned)
    assert asked == [
        ("someone/model", online),
        ("someone/model/file-Q4_K_M.gguf", online),
        ("Qwen/Qwen3-8B", pinned),
    ]


def test_hub_that_may_not_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubError, match=r"neither in the catalogue.* nor in the Hub's cache"):
        load_model("someone/Llama-3.1-8B-Instruct")
    monkeypatch.setattr(hub, "is_installed", lambda: False)
    with pytest.raises(HubError, match=r"near it: .*pip install 'tokenroom\[hub\]'"):
        load_model("someone/Llama-3.1-8B-Instruct")


def test_damaged_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    for damage in (b"", b"\xff" * 100, (folder / "model.safetensors").read_bytes()[:500]):
        (folder / "model.safetensors").write_bytes(damage)
        with pytest.raises(TokenroomError):
            load_model(folder)
    assert resolve.load_local(folder / "config.json").num_layers == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Qwen/Qwen3-14B-AWQ", "; Qwen/Qwen3-14B@awq works offline"),
        ("nobody/Qwen3-14B-FP8-dynamic", "; Qwen/Qwen3-14B@fp8 works offline"),
        ("nobody/No-Such-Model-AWQ", ""),
        ("nobody/No-Such-Model", ""),
    ],
)
def test_a_layout_of_a_known_model_is_offered_where_a_checkpoint_is_not_known(
    name: str, hint: str
) -> None:
    with pytest.raises(HubError) as caught:
        load_model(name)
    assert str(caught.value).endswith(f"config.json{hint}")
