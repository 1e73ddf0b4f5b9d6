"""Record PyTorch's own FLOP counts of tiny models: fixtures/performance/flop_counts.json.

Needs torch and transformers, which the project does not depend on. Models are built on the meta
device, so nothing is computed. Attention is eager, so that its products are ordinary matrices:
the counter then sees every query-key pair, masked or not.

    python scripts/record_flop_counts.py
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

TARGET = Path(__file__).parents[1] / "tests/fixtures/performance/flop_counts.json"
COMMON = {
    "vocab_size": 640,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MODELS = {
    "llama": {**COMMON, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "qwen3": {
        **COMMON,
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 32,
    },
    "phi": {
        **COMMON,
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "num_key_value_heads": 8,
    },
}
CASES = ((1, 37, 0), (4, 1, 100), (2, 8, 24))  # sequences, new tokens, tokens in the cache


def count(config: dict[str, object], sequences: int, new: int, cached: int) -> int:
    """Products that a forward pass of the model makes, counted by PyTorch."""
    settings = AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    settings._attn_implementation = "eager"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).eval()
        cache = DynamicCache(config=settings)
        ids = torch.zeros((sequences, new), dtype=torch.long)
        with torch.no_grad():
            if cached:
                model(torch.zeros((sequences, cached), dtype=torch.long), past_key_values=cache)
            mask = torch.zeros((sequences, 1, new, cached + new), dtype=torch.bfloat16)
            with FlopCounterMode(display=False) as counter:
                model(ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1)
    return counter.get_total_flops()


def main() -> None:
    """Write the fixture."""
    rows = [
        {
            "model": name,
            "sequences": sequences,
            "new_tokens": new,
            "cached_tokens": cached,
            "flops": count(config, sequences, new, cached),
        }
        for name, config in MODELS.items()
        for sequences, new, cached in CASES
    ]
    document = {
        "made_by": "scripts/record_flop_counts.py",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "configs": MODELS,
        "rows": rows,
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
