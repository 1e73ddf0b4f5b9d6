"""Parameter counts against transformers on the meta device (scripts/oracle_parameters.py)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from tokenroom.errors import UnknownArchitectureError
from tokenroom.models import architectures
from tokenroom.models.architectures import builder_for, supported_model_types
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import Attention, LatentAttention, Layer, ModelSpec, Shard

_FIXTURE = Path(__file__).parent.parent / "fixtures" / "parameter_counts.json.gz"
_ORACLE = json.loads(gzip.decompress(_FIXTURE.read_bytes()))


def _records() -> dict[str, list[Mapping[str, object]]]:
    by_type: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for record in _ORACLE["records"]:
        by_type[record["model_type"]].append(record)
    return by_type


_BY_TYPE = _records()
_COVERED = sorted(set(_BY_TYPE) & set(supported_model_types()))


def _surplus(model_type: str, spec: ModelSpec) -> int:
    """Parameters that transformers builds and no checkpoint has.

    transformers gives LongCat-Flash's zero experts, which only pass their input on, rows in the
    fused gate and up projection; they are in no checkpoint, and engines do not allocate them.
    """
    if model_type != "longcat_flash":
        return 0
    surplus = 0
    for layer in spec.layers:
        router = next(w for w in layer.weights if w.name == "mlp.router.classifier")
        up = next(w for w in layer.weights if w.name == "mlp.experts.*.up_proj")
        surplus += (router.shape[0] - up.count) * 2 * up.parameters // up.count
    return surplus


@pytest.mark.parametrize("model_type", _COVERED)
def test_counts_equal_transformers(model_type: str) -> None:
    for record in _BY_TYPE[model_type]:
        spec = read_config({"model_type": model_type, **record["config"]}, model_type)
        counted = spec.parameters_total + _surplus(model_type, spec)
        assert counted == record["parameters"], record["config"]


def test_coverage_of_causal_models_does_not_shrink() -> None:
    causal = set(_ORACLE["causal_lm_model_types"])
    assert len(causal & set(supported_model_types())) >= 148


def test_every_module_holds_what_the_table_says() -> None:
    for module, model_types in architectures._MODULES.items():
        builders = import_module(f"tokenroom.models.architectures.{module}").BUILDERS
        assert set(model_types) <= set(builders), module


def test_unknown_type_names_near_ones_and_the_way_out() -> None:
    with pytest.raises(UnknownArchitectureError) as error:
        builder_for("qwen3_moee", ("Qwen3MoeeForCausalLM",))
    message = str(error.value)
    assert "'qwen3_moee' (Qwen3MoeeForCausalLM)" in message
    assert "qwen3_moe" in message
    assert "--assume-architecture" in message


def _small(model_type: str, **fields: object) -> ModelSpec:
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "torch_dtype": "bfloat16",
    }
    return read_config({"model_type": model_type, **sizes, **fields}, model_type)


def _windows(spec: ModelSpec) -> list[int | None]:
    windows = []
    for layer in spec.layers:
        (mixer,) = layer.mixers
        assert isinstance(mixer, Attention)
        windows.append(mixer.window)
    return windows


def test_layer_types_cut_to_the_layers() -> None:
    types = ["sliding_attention", "full_attention"] * 5
    fields = {"use_sliding_window": True, "sliding_window": 16, "layer_types": types}
    spec = _small("qwen3", num_nextn_predict_layers=2, **fields)
    assert _windows(spec) == [16, None] * 4


@pytest.mark.parametrize(
    ("model_type", "fields", "windows"),
    [
        ("mistral", {"sliding_window": 32}, [32] * 8),
        ("mistral", {"sliding_window": None}, [None] * 8),
        ("mistral", {}, [4096] * 8),
        ("qwen2", {"sliding_window": 32}, [None] * 8),
        (
            "qwen2",
            {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 6},
            [None] * 6 + [32] * 2,
        ),
        ("gemma2", {"sliding_window": 32}, [32, None] * 4),
        ("gemma3_text", {"sliding_window": 32}, [32] * 5 + [None] + [32] * 2),
        ("gemma3_text", {"sliding_window": 32, "sliding_window_pattern": 2}, [32, None] * 4),
        ("cohere2", {"sliding_window": 32}, ([32] * 3 + [None]) * 2),
        (
            "exaone4",
            {"sliding_window": 32, "sliding_window_pattern": "LLLG"},
            ([32] * 3 + [None]) * 2,
        ),
        ("exaone4", {"sliding_window": None}, [None] * 8),
        ("gpt_oss", {"sliding_window": 32}, [32, None] * 4),
        (
            "smollm3",
            {"sliding_window": 32, "use_sliding_window": True},
            ([None] * 3 + [32]) * 2,
        ),
        ("smollm3", {"sliding_window": 32}, [None] * 8),
        ("olmo3", {"sliding_window": 32}, ([32] * 3 + [None]) * 2),
    ],
)
def test_windows_resolve_as_the_classes_do(
    model_type: str, fields: Mapping[str, object], windows: list[int | None]
) -> None:
    assert _windows(_small(model_type, **fields)) == windows


def test_llama4_chunks_all_but_each_fourth_layer() -> None:
    spec = _small("llama4_text", attention_chunk_size=16)
    chunks = [layer.mixers[0].chunk for layer in spec.layers]  # type: ignore[union-attr]
    assert chunks == ([16] * 3 + [None]) * 2


def test_gemma3n_shares_the_cache_of_the_last_layer_of_a_type() -> None:
    spec = _small(
        "gemma3n_text",
        num_hidden_layers=10,
        num_kv_shared_layers=3,
        head_dim=16,
        altup_num_inputs=2,
    )
    owners = [layer.mixers[0].shares_kv_of for layer in spec.layers]  # type: ignore[union-attr]
    assert owners == [None] * 7 + [6, 6, 4]


def test_encoders_keep_no_cache() -> None:
    both_ways = _small("gemma3_text", sliding_window=32, use_bidirectional_attention=True)
    assert _windows(both_ways) == [17] * 5 + [None] + [17] * 2
    for spec in (both_ways, _small("bert", max_position_embeddings=64)):
        assert all(layer.mixers[0].encoder_only for layer in spec.layers)  # type: ignore[union-attr]


def test_embedding_models_have_no_head() -> None:
    whole = _small("mistral", tie_word_embeddings=False)
    bare = _small("mistral", tie_word_embeddings=False, architectures=["MistralModel"])
    assert whole.parameters_total - bare.parameters_total == 128 * 64


def test_null_is_not_absent() -> None:
    sizes = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
    fields = {**sizes, "num_experts_per_tok": 2, "n_routed_experts": 4, "moe_intermediate_size": 8}
    absent = _small("deepseek_v2", **fields).layers[0].mixers[0]
    null = _small("deepseek_v2", **fields, q_lora_rank=None).layers[0].mixers[0]
    assert isinstance(absent, LatentAttention)
    assert isinstance(null, LatentAttention)
    assert (absent.q_lora_rank, null.q_lora_rank) == (1536, None)


def test_alike_layers_are_one_object() -> None:
    spec = _small("gemma2", num_hidden_layers=60)
    assert len({id(layer) for layer in spec.layers}) == 2
    assert [count for _, count in spec.layer_kinds] == [30, 30]


def test_fused_projections_keep_their_parts() -> None:
    weights = {}
    for weight in _small("phi3").layers[0].weights:
        weights.setdefault(weight.name, []).append((weight.shape, weight.shard))
    assert weights["self_attn.qkv_proj"] == [
        ((64, 64), Shard.COLUMN),
        ((32, 64), Shard.KV_COLUMN),
        ((32, 64), Shard.KV_COLUMN),
    ]
    assert weights["mlp.gate_up_proj"] == [((96, 64), Shard.COLUMN)] * 2
    assert weights["mlp.down_proj"] == [((64, 96), Shard.ROW)]


def test_norms_divided_with_the_heads() -> None:
    weights = {
        weight.name: weight for weight in _small("minimax_m2", head_dim=16).layers[0].weights
    }
    assert weights["self_attn.q_norm"].shard is Shard.COLUMN
    assert weights["self_attn.k_norm"].shard is Shard.KV_COLUMN
    whole = {weight.name: weight for weight in _small("olmo2").layers[0].weights}
    assert whole["self_attn.q_norm"].shard is Shard.REPLICATED


def test_mtp_blocks_are_stored_but_not_counted() -> None:
    fields = {
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "moe_intermediate_size": 8,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    }
    spec = _small("deepseek_v3", **fields, num_nextn_predict_layers=1)
    bare = _small("deepseek_v3", **fields, num_nextn_predict_layers=0)
    assert spec.parameters_total == bare.parameters_total
    assert bare.mtp_layers == ()
    (block,) = spec.mtp_layers
    last: Layer = spec.layers[-1]
    copies = 2 * spec.vocab_size * 64  # of the embedding and the head
    assert block.parameters == last.parameters + 3 * 64 + 2 * 64 * 64 + copies


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        # Totals that the publishers state, for models whose code transformers does not have.
        (
            {
                "model_type": "qwen",
                "hidden_size": 4096,
                "intermediate_size": 22016,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "vocab_size": 151936,
            },
            7.72,
            7.72,
        ),
        (
            {
                "model_type": "phi-msft",
                "n_embd": 2560,
                "n_head": 32,
                "n_layer": 32,
                "n_positions": 2048,
                "vocab_size": 51200,
            },
            2.78,
            2.78,
        ),
        (
            {
                "model_type": "phi3small",
                "hidden_size": 4096,
                "ff_intermediate_size": 14336,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "max_position_embeddings": 8192,
                "vocab_size": 100352,
            },
            7.39,
            7.39,
        ),
        (
            {
                "model_type": "deepseek",
                "hidden_size": 2048,
                "intermediate_size": 10944,
                "moe_intermediate_size": 1408,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": 6,
                "first_k_dense_replace": 1,
                "vocab_size": 102400,
            },
            16.4,
            2.8,
        ),
        (
            {
                "model_type": "grok-1",
                "hidden_size": 6144,
                "intermediate_size": 32768,
                "num_hidden_layers": 64,
                "num_attention_heads": 48,
                "num_key_value_heads": 8,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "vocab_size": 131072,
            },
            314,
            84,
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_remote_models_have_their_published_size(
    config: Mapping[str, object], billions: float, active: float
) -> None:
    spec = read_config(config, "published")
    assert spec.parameters_total / 1e9 == pytest.approx(billions, rel=0.012)
    assert spec.parameters_active / 1e9 == pytest.approx(active, rel=0.05)


def test_grok_2_is_told_by_its_class() -> None:
    """Its files call the type ``git``, an image captioner's in transformers."""
    config = {
        "architectures": ["Grok1ForCausalLM"],
        "model_type": "git",
        "hidden_size": 8192,
        "intermediate_size": 32768,
        "moe_intermediate_size": 16384,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "residual_moe": True,
        "vocab_size": 131072,
    }
    spec = read_config(config, "published")
    assert spec.parameters_total == 269_515_497_472
    alone = read_config({**config, "residual_moe": False}, "experts alone")
    assert spec.parameters_total - alone.parameters_total == 64 * 3 * 8192 * 32768
    with pytest.raises(UnknownArchitectureError, match="git"):
        read_config({**config, "architectures": ["GitForCausalLM"]}, "captioner")
