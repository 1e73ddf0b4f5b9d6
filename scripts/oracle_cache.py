"""Record the cache tensors of tiny random models, one of each kind of attention and state.

Each model runs once over a short prompt; every tensor its cache then holds is written with its
shape and type. Run with a Python that has transformers and torch (no weights, no network):
    python scripts/oracle_cache.py tests/fixtures/memory/cache_tensors.json
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.utils import logging

TOKENS = 24
ENCODER_TOKENS = 10
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_DELTA: dict[str, Any] = {
    "head_dim": 32,
    "num_key_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
}
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
CASES: dict[str, dict[str, Any]] = {
    "multi_head": {"model_type": "llama", **_TEXT, "num_key_value_heads": 4},
    "grouped_query": {"model_type": "llama", **_TEXT, "num_key_value_heads": 2, "head_dim": 32},
    "multi_query": {"model_type": "llama", **_TEXT, "num_key_value_heads": 1},
    "sliding_window": {
        "model_type": "gemma3_text",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "chunked": {
        "model_type": "llama4_text",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 2,
        "intermediate_size_mlp": 96,
        "attention_chunk_size": 8,
        "no_rope_layers": [1, 0],
    },
    "latent": {"model_type": "deepseek_v3", **_TEXT, "num_key_value_heads": 4, **_LATENT},
    "sparse_indexer": {
        "model_type": "deepseek_v32",
        **_TEXT,
        "num_key_value_heads": 4,
        **_LATENT,
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 8,
    },
    "gated_delta": {
        "model_type": "qwen3_next",
        **_TEXT,
        **_EXPERTS,
        **_DELTA,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "gated_delta_dense": {
        "model_type": "qwen3_5_text",
        **_TEXT,
        **_DELTA,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "kimi_delta": {
        "model_type": "kimi_linear",
        **_TEXT,
        "num_key_value_heads": 4,
        **{key: _LATENT[key] for key in _LATENT if key not in ("q_lora_rank", "n_routed_experts")},
        "num_local_experts": 4,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "mamba1": {
        "model_type": "mamba",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 128,
        "state_size": 8,
    },
    "mamba1_hybrid": {
        "model_type": "jamba",
        **_TEXT,
        "num_key_value_heads": 2,
        "num_experts": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "use_mamba_kernels": False,
    },
    "mamba2": {
        "model_type": "mamba2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 128,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 2,
        "state_size": 16,
        "chunk_size": 8,
    },
    "mamba2_hybrid": {
        "model_type": "nemotron_h",
        **{key: _TEXT[key] for key in _TEXT if key != "num_hidden_layers"},
        "num_key_value_heads": 2,
        "head_dim": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "chunk_size": 8,
        "hybrid_override_pattern": "M*-",
    },
    "parallel_mamba2": {
        "model_type": "falcon_h1",
        **_TEXT,
        "num_key_value_heads": 2,
        "mamba_d_ssm": 128,
        "mamba_n_heads": 8,
        "mamba_d_state": 16,
        "mamba_chunk_size": 8,
    },
    "lightning": {
        "model_type": "minimax",
        **_TEXT,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "block_size": 8,
    },
    "short_convolution": {
        "model_type": "lfm2",
        **_TEXT,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention"],
    },
    "shared_kv": {
        "model_type": "gemma4_text",
        **_TEXT,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": 8,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "cross_attention": {
        "model_type": "bart",
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 96,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
    },
}
_CLASSES = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
)


def _class(model_type: str) -> type:
    for mapping in _CLASSES:
        names = getattr(transformers.models.auto.modeling_auto, mapping)
        if model_type in names:
            return getattr(transformers, names[model_type])
    raise LookupError(model_type)


def _tensors(value: object, path: str, depth: int = 0) -> dict[str, torch.Tensor]:
    """Every tensor an object holds, however nested, by attribute path."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    found: dict[str, torch.Tensor] = {}
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    elif (
        depth < 3
        and type(value).__module__.startswith("transformers")
        and hasattr(value, "__dict__")
    ):
        items = list(vars(value).items())
    else:
        items = []
    for name, item in items:
        found.update(_tensors(item, f"{path}.{name}" if path else name, depth + 1))
    return found


def _described(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
        if tensor.dim() > 2
    }


def _layers(cache: object) -> list[dict[str, Any]]:
    rows = [_described(_tensors(layer, "")) for layer in cache.layers]
    for index, state in enumerate(getattr(cache, "linear_cache", [])):  # MiniMax-01
        if isinstance(state, torch.Tensor):
            rows += [{}] * (index + 1 - len(rows))
            rows[index] = {**rows[index], **_described({"recurrent_states.0": state})}
    return rows


def record(data: dict[str, Any]) -> dict[str, Any]:
    """The cache tensors after ``TOKENS`` tokens."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[data["model_type"]].from_dict(dict(data))
    config._attn_implementation = "eager"
    model = _class(data["model_type"])(config).to(torch.bfloat16).eval()
    tokens = torch.randint(1, 100, (1, TOKENS))
    with torch.no_grad():
        if getattr(config, "is_encoder_decoder", False):
            encoded = torch.randint(1, 100, (1, ENCODER_TOKENS))
            cache = model(
                input_ids=encoded, decoder_input_ids=tokens, use_cache=True
            ).past_key_values
            return {
                "self": _layers(cache.self_attention_cache),
                "cross": _layers(cache.cross_attention_cache),
            }
        output = model(input_ids=tokens, use_cache=True)
    cache = getattr(output, "past_key_values", None)
    if cache is None:
        cache = output.cache_params
    return {"self": _layers(cache)}


def main(target: Path) -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows: dict[str, Any] = {}
    for name, data in CASES.items():
        try:
            rows[name] = {"config": data, **record(data)}
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    rows["_source"] = f"transformers {transformers.__version__}, torch {torch.__version__}"
    rows["_tokens"] = TOKENS
    rows["_encoder_tokens"] = ENCODER_TOKENS
    lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items())]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
