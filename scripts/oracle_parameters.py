"""Record how many parameters transformers builds: the oracle of tests/models/test_architectures.py.

Run it with a Python that has transformers and torch (nothing is downloaded, nothing allocated: all
models are built on the meta device):
    python scripts/oracle_parameters.py tests/fixtures/parameter_counts.json.gz [MODEL_TYPE ...]

For every causal language model that transformers knows it builds the class-default configuration
and small perturbed ones (other heads, KV heads, head widths, depths, biases, experts, ties), and
writes what was asked for beside the count. ``--zoo FOLDER`` counts real config.json files instead
and prints the result.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)

logging.disable(logging.WARNING)

# Sizes of the perturbed configurations by field: small, and different from each other, so that a
# wrong factor cannot hide. The second value of a pair is used by the second perturbation.
_SIZES: Mapping[str, tuple[object, object]] = {
    "vocab_size": (320, 257),
    "hidden_size": (96, 80),
    "intermediate_size": (136, 200),
    "num_hidden_layers": (7, 5),
    "num_attention_heads": (12, 8),
    "num_key_value_heads": (2, None),
    "num_kv_heads": (2, None),
    "head_dim": (24, None),
    "max_position_embeddings": (72, 40),
    "num_experts": (6, 5),
    "num_local_experts": (6, 5),
    "n_routed_experts": (6, 5),
    "moe_num_experts": (6, 5),
    "num_experts_per_tok": (2, 3),
    "top_k_experts": (2, 3),
    "moe_intermediate_size": (44, 52),
    "dense_intermediate_size": (148, 152),
    "shared_intermediate_size": (60, 0),
    "shared_expert_intermediate_size": (60, 68),
    "shared_experts_intermediate_size": (60, 68),
    "prefix_dense_intermediate_size": (60, 68),
    "intermediate_size_mlp": (112, 116),
    "n_shared_experts": (2, 1),
    "num_shared_experts": (2, 1),
    "moe_num_shared_experts": (2, 1),
    "first_k_dense_replace": (2, 0),
    "num_dense_layers": (2, 0),
    "decoder_sparse_step": (2, 1),
    "mlp_only_layers": ([1], None),
    "interleave_moe_layer_step": (2, 1),
    "moe_layer_start_index": (2, 0),
    "moe_layer_end_index": (5, -1),
    "moe_layer_interval": (2, 1),
    "q_lora_rank": (36, None),
    "kv_lora_rank": (28, 20),
    "qk_nope_head_dim": (16, 12),
    "qk_rope_head_dim": (8, 4),
    "v_head_dim": (20, 12),
    "index_n_heads": (3, 2),
    "index_head_dim": (18, 10),
    "o_groups": (3, 2),
    "o_lora_rank": (12, 8),
    "hc_mult": (3, 2),
    "num_hash_layers": (2, 1),
    "ffn_dim": (132, 144),
    "ffn_hidden_size": (132, 144),
    "expert_ffn_hidden_size": (44, 52),
    "dff": (132, 144),
    "n_inner": (132, None),
    "word_embed_proj_dim": (48, None),
    "num_ln_in_parallel_attn": (2, 1),
    "sliding_window": (16, None),
    "max_window_layers": (3, 2),
    "kv_channels": (20, 12),
    "hidden_size_per_layer_input": (10, 6),
    "vocab_size_per_layer_input": (300, 250),
    "num_kv_shared_layers": (2, 0),
    "altup_num_inputs": (3, 2),
    "laurel_rank": (5, 7),
    "zero_expert_num": (2, 0),
    "partial_rotary_factor": (0.5, 0.5),
    "rotary_dim": (8, 4),
    "intermediate_multiple_size": (3, 4),
    "attention_types": ([[["global", "local", "local"], 2], [["global"], 1]], [[["local"], 5]]),
}
# Where sizes depend on each other in a way of the type's own: heads that must fill the hidden
# size, layers of both types before those that share a cache, nested configurations.
_OWN_SIZES: Mapping[str, Mapping[str, tuple[object, object]]] = {
    "helium": {"head_dim": (8, 10)},
    "gemma4_text": {"num_hidden_layers": (14, 9)},
    "gemma4_unified_text": {"num_hidden_layers": (14, 9)},
    "dbrx": {
        "attn_config": (
            {"kv_n_heads": 2, "rope_theta": 10000.0},
            {"kv_n_heads": 4, "rope_theta": 10000.0},
        ),
        "ffn_config": (
            {"ffn_hidden_size": 44, "moe_num_experts": 6, "moe_top_k": 2},
            {"ffn_hidden_size": 52, "moe_num_experts": 5, "moe_top_k": 3},
        ),
        "tie_word_embeddings": (False, False),
    },
}
# Types of which the bare model and the classifiers are recorded too.
_HEADS = [
    "bert",
    "bloom",
    "camembert",
    "deepseek_v3",
    "falcon",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "mixtral",
    "opt",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "roberta",
    "stablelm",
    "starcoder2",
    "xlm-roberta",
]
# Fields that a perturbation must not touch: they decide nothing, or only one value builds.
_KEPT = {"is_decoder", "add_cross_attention", "use_cache", "is_encoder_decoder", "rope_scaling"}


def _fields(cls: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found[field.name] = default
    base = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    return {
        name: default
        for name, default in found.items()
        if name not in base or name == "tie_word_embeddings"
    }


def _perturbed(cls: type, choice: int) -> dict[str, object]:
    """Arguments for ``cls``: sizes of the ``choice``-th column, flags all one way."""
    fields = _fields(cls)
    aliases = {target: alias for alias, target in cls.attribute_map.items()}
    arguments: dict[str, object] = {}
    for name, default in fields.items():
        own = _OWN_SIZES.get(cls.model_type, {}).get(name)
        sizes = own or _SIZES.get(name) or _SIZES.get(aliases.get(name, ""))
        if sizes is not None:
            arguments[name] = sizes[choice]
        elif isinstance(default, bool) and name not in _KEPT:
            arguments[name] = choice == 0 if name != "tie_word_embeddings" else not default
    return arguments


def _count(config: object) -> int | None:
    auto = AutoModelForCausalLM
    if type(config) not in auto._model_mapping:
        auto = AutoModelForImageTextToText
    with torch.device("meta"):
        model = auto.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _sound(config: object) -> bool:
    """Whether the model could run: KV heads divide query heads, experts a token are counted."""
    heads = getattr(config, "num_attention_heads", None) or 1
    kv_heads = getattr(config, "num_key_value_heads", None) or 1
    uncounted = getattr(config, "num_experts_per_tok", 1) is None
    return heads % kv_heads == 0 and not uncounted


def _try(model_type: str, arguments: Mapping[str, object]) -> int | None:
    try:
        # The padding row must lie inside the small vocabulary; it changes no shape.
        padding = {"pad_token_id": 0} if "vocab_size" in arguments else {}
        config = CONFIG_MAPPING[model_type](**arguments, **padding)
        return _count(config) if _sound(config) else None
    except Exception as error:
        print(f"{model_type}: {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
        return None


def _variants(model_type: str) -> Iterator[dict[str, object]]:
    """What to build of one type: nothing given, both perturbations, and each flag by itself."""
    cls = CONFIG_MAPPING[model_type]
    yield {}
    for choice in (0, 1):
        arguments = _perturbed(cls, choice)
        yield arguments
        # A field set to null by the second column may have to keep its class default.
        yield {key: value for key, value in arguments.items() if value is not None}
    sizes = {key: value for key, value in _perturbed(cls, 0).items() if not isinstance(value, bool)}
    for name, default in _fields(cls).items():
        if isinstance(default, bool) and name not in _KEPT:
            yield {**sizes, name: not default}


def _records(model_types: list[str]) -> Iterator[dict[str, object]]:
    for model_type in model_types:
        seen: set[str] = set()
        for arguments in _variants(model_type):
            key = json.dumps(arguments, sort_keys=True)
            if key in seen:
                continue
            seen.add(key)
            parameters = _try(model_type, arguments)
            if parameters is not None:
                yield {"model_type": model_type, "config": arguments, "parameters": parameters}


def _heads() -> Iterator[dict[str, object]]:
    """The same model without a head and with each kind of classifier, by its class's name."""
    autos = (
        AutoModel,
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
    )
    arguments = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_labels": 3,
        "vocab_size": 300,
    }
    for model_type in _HEADS:
        config = CONFIG_MAPPING[model_type](**arguments, pad_token_id=0)
        for auto in autos:
            if type(config) in auto._model_mapping:
                with torch.device("meta"):
                    model = auto.from_config(config)
                yield {
                    "model_type": model_type,
                    "config": {**arguments, "architectures": [type(model).__name__]},
                    "parameters": sum(parameter.numel() for parameter in model.parameters()),
                }


def _whole(cls: type) -> bool:
    """Whether the causal class is the whole model, not the text or decoder half of one."""
    encoder = {field.name: field.default for field in dataclasses.fields(cls)}
    return "text_config" not in cls.sub_configs and encoder.get("is_encoder_decoder") is not True


def _zoo(folder: Path) -> None:
    for file in sorted(folder.glob("*/config.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        data.pop("quantization_config", None)
        try:
            print(file.parent.name, _count(AutoConfig.for_model(**data)), sep="\t")
        except Exception as error:
            print(file.parent.name, f"{type(error).__name__}: {str(error)[:100]}", sep="\t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("model_types", nargs="*")
    parser.add_argument(
        "--zoo", action="store_true", help="TARGET is a folder of config.json files"
    )
    options = parser.parse_args()
    if options.zoo:
        _zoo(options.target)
        return
    known = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    texts = [key for key in known if _whole(CONFIG_MAPPING[key])]
    records = list(_records(options.model_types or texts))
    if not options.model_types:
        records += _heads()
    fixture = {
        "source": f"transformers {transformers.__version__} on the meta device, "
        f"torch {torch.__version__.split('+')[0]}; scripts/oracle_parameters.py",
        "causal_lm_model_types": known,
        "records": records,
    }
    options.target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(fixture, indent=None, sort_keys=True).replace('{"config"', '\n{"config"')
    with gzip.GzipFile(options.target, "wb", mtime=0) as stream:
        stream.write(text.encode())


if __name__ == "__main__":
    main()
