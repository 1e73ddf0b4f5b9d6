"""Record what every cache class of transformers really keeps, on tiny random models.

Each model prefills a batch of prompts and decodes some tokens; after each the tensors that its
cache holds are written with shape, type and the bytes of their storage (a sliding layer keeps a
view of a larger one). Needs transformers 5, torch, and for quantised caches hqq and optimum-quanto;
no weights and no network:
    python scripts/oracle_transformers_cache.py tests/fixtures/engines/transformers_cache.json
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, DynamicCache, QuantizedCache, StaticCache
from transformers.utils import logging

BATCH = 3
PROMPT = 150
STEPS = 20
MAX_CACHE_LEN = 192
_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_TEXT, "num_key_value_heads": 2, "head_dim": 64},
    "gemma3": {
        "model_type": "gemma3_text",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "deepseek": {
        "model_type": "deepseek_v3",
        **_TEXT,
        "num_key_value_heads": 4,
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
        "first_k_dense_replace": 2,
    },
    "qwen3_next": {
        "model_type": "qwen3_next",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 32,
        "layer_types": ["linear_attention", "full_attention"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "mamba2": {
        "model_type": "mamba2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 128,
        "state_size": 16,
        "num_heads": 4,
        "head_dim": 32,
        "n_groups": 1,
        "expand": 2,
        "pad_token_id": 0,
    },
}
_GROUPED: list[tuple[str, dict[str, Any]]] = [
    *((f"hqq_{bits}", {"backend": "hqq", "nbits": bits}) for bits in (1, 2, 3, 4, 8)),
    ("hqq_4_axis1", {"backend": "hqq", "nbits": 4, "axis_key": 1, "axis_value": 1}),
    ("hqq_4_group32", {"backend": "hqq", "nbits": 4, "q_group_size": 32}),
    ("quanto_2", {"backend": "quanto", "nbits": 2}),
    ("quanto_4", {"backend": "quanto", "nbits": 4}),
    ("quanto_4_group32", {"backend": "quanto", "nbits": 4, "q_group_size": 32}),
    ("quanto_4_residual16", {"backend": "quanto", "nbits": 4, "residual_length": 16}),
    ("fp8", {"backend": "fp8"}),
]
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{f"dynamic_{name}": (name, "dynamic", {}) for name in MODELS},
    "static_llama": ("llama", "static", {}),
    "static_gemma3": ("gemma3", "static", {}),
    **{name: ("llama", "quantized", options) for name, options in _GROUPED},
}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor an object holds."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "_data"):  # a quantised tensor of quanto, or the packed one inside
            parts = [value._data, getattr(value, "_scale", None), getattr(value, "_shift", None)]
            yield from tensors_in(parts)
        else:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def kept(cache: Any) -> list[list[dict[str, Any]]]:
    """The tensors of each layer."""
    layers = []
    for layer in cache.layers:
        found = []
        for tensor in tensors_in(dict(vars(layer))):
            if tensor.numel() == 0:
                continue
            found.append(
                {
                    "shape": list(tensor.shape),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "storage": tensor.untyped_storage().nbytes(),
                }
            )
        layers.append(found)
    return layers


def record(model_name: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """One case: the cache after the prompt and after the last step."""
    fields = dict(MODELS[model_name])
    config = CONFIG_MAPPING[fields.pop("model_type")](**fields)
    config.dtype = torch.bfloat16
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    if kind == "dynamic":
        cache = DynamicCache(config=config)
    elif kind == "static":
        cache = StaticCache(config=config, max_cache_len=MAX_CACHE_LEN)
    else:
        cache = QuantizedCache(config=config, **options)
    prompt = torch.randint(1, 128, (BATCH, PROMPT))
    with torch.no_grad():
        model(prompt, cache=cache, use_cache=True)
        after_prompt = kept(cache)
        for _ in range(STEPS):
            model(torch.randint(1, 128, (BATCH, 1)), cache=cache, use_cache=True)
    return {
        "config": MODELS[model_name],
        "cache": kind,
        "options": options,
        "after_prompt": after_prompt,
        "after_steps": kept(cache),
    }


def main() -> None:
    """Write the fixture."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    rows: dict[str, Any] = {
        "_transformers": transformers.__version__,
        "_batch": BATCH,
        "_prompt": PROMPT,
        "_steps": STEPS,
        "_max_cache_len": MAX_CACHE_LEN,
    }
    for name, (model, kind, options) in CASES.items():
        rows[name] = record(model, kind, options)
    lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
