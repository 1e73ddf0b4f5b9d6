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
MAMBA = {
    "model_type": "mamba",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "state_size": 8,
    "pad_token_id": 0,
}


def built(fields: dict[str, Any], attention: str = "sdpa", *, seed: int = 0) -> Any:
    """A model of these fields in bfloat16, the same for the same seed."""
    data = dict(fields)
    config = transformers.CONFIG_MAPPING[data.pop("model_type")](**data)
    config._attn_implementation = attention
    torch.manual_seed(seed)
    seq2seq = type(config) in transformers.AutoModelForSeq2SeqLM._model_mapping
    kind = transformers.AutoModelForSeq2SeqLM if seq2seq else transformers.AutoModelForCausalLM
    return kind.from_config(config, dtype=torch.bfloat16).eval()


VOCABULARY = 64


def saved_writer(folder: Path, *, tokens: int = 330, spread: float = 0.2) -> str:
    """A model of random weights in a folder, with a tokenizer, and a text that it wrote itself.

    On such a text the full cache is right by construction: what another loses is its divergence.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=VOCABULARY,
        max_position_embeddings=1024,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    first = torch.zeros((1, 1), dtype=torch.long)
    torch.manual_seed(1)
    with torch.no_grad():
        ids = model.generate(first, max_new_tokens=tokens - 1, do_sample=True, pad_token_id=0)
    return " ".join(f"w{number}" for number in ids[0].tolist())
