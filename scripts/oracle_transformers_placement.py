"""Record where transformers' own ``device_map="auto"`` puts the modules of models on meta.

Needs transformers 5 and accelerate; no weights, no network and no GPU:
    python scripts/oracle_transformers_placement.py \
        tests/fixtures/engines/transformers_placement.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.integrations.accelerate import get_balanced_memory, infer_auto_device_map

MIB = 2**20
_TEXT: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "untied": {"model_type": "llama", **_TEXT, "tie_word_embeddings": False},
    "tied": {"model_type": "llama", **_TEXT, "tie_word_embeddings": True},
    "deep": {
        "model_type": "llama",
        **_TEXT,
        "num_hidden_layers": 30,
        "vocab_size": 8000,
        "tie_word_embeddings": False,
    },
}
# Free memory of each GPU in MiB, and of the host.
NODES: dict[str, tuple[tuple[int, ...], int]] = {
    "roomy": ((4096,), 8192),
    "tight": ((120,), 8192),
    "tighter": ((70,), 8192),
    "small_host": ((60,), 60),
    "pair": ((4096, 4096), 8192),
    "small_pair": ((60, 60), 8192),
    "four": ((4096,) * 4, 8192),
    "uneven": ((50, 100, 4096), 8192),
    "short_four": ((40,) * 4, 8192),
}


def record(fields: dict[str, Any], gpus: tuple[int, ...], host: int, kind: str) -> dict[str, Any]:
    """Device of the embedding, each layer, the last norm and the head."""
    data = dict(fields)
    config = CONFIG_MAPPING[data.pop("model_type")](**data)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    memory: dict[Any, float] = {index: size * MIB for index, size in enumerate(gpus)}
    memory["cpu"] = int(host * MIB * 0.9)
    if kind == "auto":
        if len(gpus) == 1:  # what auto does when the user sets no limit
            memory[0] *= 0.9
        else:
            memory = get_balanced_memory(
                model, max_memory=memory, no_split_module_classes=model._no_split_modules
            )
    found = infer_auto_device_map(
        model,
        max_memory=memory,
        no_split_module_classes=model._no_split_modules,
        clean_result=False,
    )

    def device(name: str) -> Any:
        while name not in found:
            name = name.rpartition(".")[0]
        return found[name]

    layers = [device(f"model.layers.{index}") for index in range(config.num_hidden_layers)]
    return {
        "embedding": device("model.embed_tokens"),
        "layers": layers,
        "norm": device("model.norm"),
        "head": device("lm_head"),
    }


def main() -> None:
    """Write the fixture."""
    rows = []
    for model, fields in MODELS.items():
        for node, (gpus, host) in NODES.items():
            for kind in ("auto", "sequential"):
                placed = record(fields, gpus, host, kind)
                rows.append({"model": model, "node": node, "device_map": kind, **placed})
    document = {"transformers": transformers.__version__, "configs": MODELS, "nodes": NODES}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(document)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
