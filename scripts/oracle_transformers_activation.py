"""Record the memory that transformers' forward passes really hold at their peak.

Tiny random models run on the CPU under a dispatch mode that knows every storage PyTorch creates and
frees, so the peak is exact in bytes whatever the device; weights are left out, and so is the cache
as it stands before a step. Operators of the CPU and of CUDA create the same tensors here: products,
elementwise kernels, and a fused attention that keeps its output and a log-sum a query.
    python scripts/oracle_transformers_activation.py \
        tests/fixtures/engines/transformers_activation.json
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from transformers import CONFIG_MAPPING, DynamicCache
from transformers.utils import logging

_TEXT: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 384,
    },
    "llama_narrow": {
        "model_type": "llama",
        **_TEXT,
        "num_key_value_heads": 8,
        "head_dim": 16,
        "intermediate_size": 96,
    },
    "mistral": {
        "model_type": "mistral",
        **_TEXT,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "intermediate_size": 256,
        "sliding_window": None,
    },
    "qwen2": {
        "model_type": "qwen2",
        **_TEXT,
        "num_key_value_heads": 2,
        "intermediate_size": 320,
    },
    "qwen3": {
        "model_type": "qwen3",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
    },
    "starcoder2": {
        "model_type": "starcoder2",
        **_TEXT,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
    },
    "phi3": {"model_type": "phi3", **_TEXT, "num_key_value_heads": 2, "intermediate_size": 384},
    "glm4": {
        "model_type": "glm4",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 384,
    },
    "gpt_neox": {"model_type": "gpt_neox", **_TEXT, "intermediate_size": 512},
    "gemma2": {
        "model_type": "gemma2",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 384,
        "sliding_window": 4096,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 384,
        "sliding_window": 48,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "olmo2": {"model_type": "olmo2", **_TEXT, "num_key_value_heads": 2, "intermediate_size": 384},
    "mixtral": {
        "model_type": "mixtral",
        **_TEXT,
        "num_key_value_heads": 2,
        "intermediate_size": 192,
        "num_local_experts": 8,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **_TEXT,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
    },
}
_EAGER_ONLY = frozenset({"gemma2"})  # SDPA has no soft cap
SHAPES = ((1, 64), (2, 96), (4, 128))


class Ledger(TorchDispatchMode):
    """Bytes of every storage alive."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = {
            tensor.untyped_storage()._cdata
            for tensor in tree_flatten((args, kwargs or {}))[0]
            if isinstance(tensor, torch.Tensor)
        }
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self.known and key not in before:
                    self.known[key] = (StorageWeakRef(storage), storage.nbytes())
        self.known = {key: item for key, item in self.known.items() if not item[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.known.values()))
        return result


def record(fields: dict[str, Any], attention: str, batch: int, tokens: int, keep: int) -> Any:
    """Peaks of a prefill and of a step after it."""
    data = dict(fields)
    config = CONFIG_MAPPING[data.pop("model_type")](**data)
    config._attn_implementation = attention
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    cache = DynamicCache(config=config)
    prompt = torch.randint(1, 255, (batch, tokens))
    step = torch.randint(1, 255, (batch, 1))
    with torch.no_grad():
        with Ledger() as prefill:
            output = model(prompt, cache=cache, use_cache=True, logits_to_keep=keep)
        del output
        with Ledger() as decode:
            output = model(step, cache=cache, use_cache=True, logits_to_keep=1)
        del output
    return {"prefill": prefill.peak, "decode": decode.peak}


def main() -> None:
    """Write the fixture."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    rows: list[dict[str, Any]] = []
    for name, fields in MODELS.items():
        for attention in ("eager",) if name in _EAGER_ONLY else ("eager", "sdpa"):
            for batch, tokens in SHAPES:
                for keep in (1, 0):
                    peaks = record(fields, attention, batch, tokens, keep)
                    rows.append(
                        {
                            "model": name,
                            "attention": attention,
                            "batch": batch,
                            "tokens": tokens,
                            "logits_to_keep": keep,
                            **peaks,
                        }
                    )
    document = {"transformers": transformers.__version__, "configs": MODELS}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(document)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
