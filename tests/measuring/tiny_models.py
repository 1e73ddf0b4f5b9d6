"""Small random models that tests run on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

RECORDED = Path(__file__).parent.parent / "fixtures" / "engines" / "transformers_activation.json"
CONFIGS: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))["configs"]
LLAMA = CONFIGS["llama"]


def built(fields: dict[str, Any], attention: str = "sdpa", *, seed: int = 0) -> Any:
    """A model of these fields in bfloat16, the same for the same seed."""
    data = dict(fields)
    config = transformers.CONFIG_MAPPING[data.pop("model_type")](**data)
    config._attn_implementation = attention
    torch.manual_seed(seed)
    seq2seq = type(config) in transformers.AutoModelForSeq2SeqLM._model_mapping
    kind = transformers.AutoModelForSeq2SeqLM if seq2seq else transformers.AutoModelForCausalLM
    return kind.from_config(config, dtype=torch.bfloat16).eval()
