"""Record how many parameters transformers builds for hybrid, multimodal and encoder-decoder types.

Every model type is built on the meta device from a small configuration, and again with each of its
fields changed alone, so that a field whose effect is missed shows. Run with a Python that has
transformers and torch (no weights, no network):
    python scripts/oracle_towers.py tests/fixtures/models/tower_cases.json \
        tests/fixtures/models/tower_parameters.json [TYPE...]
    python scripts/oracle_towers.py --folder FOLDER tests/fixtures/models/tower_totals.json

The cases map a model type to the configuration to start from; FOLDER holds folders of one published
config.json each, whose whole models (encoders included) are counted.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.utils import logging

_WHOLE = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
)
_IRRELEVANT = (
    "token_id", "token_index", "dropout", "initializer", "_eps", "use_cache", "act", "router_aux",
    "output_router", "loss", "layerdrop", "chunk_size_feed", "rope", "theta", "pretraining_tp",
    "sliding_window", "max_window_layers", "jitter", "apply_spec_augment", "mask_time", "mask_feat",
    "num_logits_to_keep", "use_mamba_kernels",
)  # fmt: skip
_BASE = {field.name for field in dataclasses.fields(PreTrainedConfig)} - {"tie_word_embeddings"}


def class_name(model_type: str) -> str:
    """The class that holds the whole model of ``model_type``."""
    for mapping in _WHOLE:
        names = getattr(modeling_auto, mapping, {})
        if model_type in names:
            name = names[model_type]
            return name if isinstance(name, str) else name[0]
    raise LookupError(model_type)


def count(data: dict[str, Any]) -> int:
    """Parameters of the model that the configuration ``data`` describes."""
    config = CONFIG_MAPPING[data["model_type"]].from_dict(copy.deepcopy(data))
    with torch.device("meta"):
        model = getattr(transformers, class_name(data["model_type"]))(config)
    return sum(parameter.numel() for parameter in model.parameters())


def changes(data: dict[str, Any]) -> list[tuple[tuple[str, ...], object]]:
    """Each field of the configuration and of those nested in it, with another value for it."""
    config = CONFIG_MAPPING[data["model_type"]].from_dict(copy.deepcopy(data))
    return list(_changes(config, ()))


def _changes(config: PreTrainedConfig, path: tuple[str, ...]):
    nested = set(config.sub_configs)
    config.allow_global_per_layer_attribute_access = True
    for field in dataclasses.fields(config):
        if field.name in _BASE or any(word in field.name for word in _IRRELEVANT):
            continue
        value = getattr(config, field.name)
        if field.name in nested:
            if isinstance(value, PreTrainedConfig):
                yield from _changes(value, (*path, field.name))
        elif isinstance(value, bool):
            yield (*path, field.name), not value
        elif isinstance(value, int) and value > 0:
            if "experts_per_tok" not in field.name and "topk" not in field.name:
                yield (*path, field.name), 2 * value
            if value > 2 and value % 2 == 0:
                yield (*path, field.name), value // 2


def changed(data: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """``data`` with the field at ``path`` set to ``value``."""
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    return data


def record(data: dict[str, Any]) -> dict[str, Any]:
    """The count of ``data`` and of each configuration one field away that can be built."""
    row: dict[str, Any] = {"config": data, "parameters": count(data), "changed": {}}
    for path, value in changes(data):
        try:
            total = count(changed(data, path, value))
        except Exception:  # a combination the model class itself refuses
            continue
        row["changed"][f"{'.'.join(path)}={json.dumps(value)}"] = total
    return row


def main(cases: Path, target: Path, only: list[str]) -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows: dict[str, Any] = {}
    if target.exists():
        rows = json.loads(target.read_text(encoding="utf-8"))
    for model_type, data in json.loads(cases.read_text(encoding="utf-8")).items():
        if only and model_type not in only:
            continue
        try:
            rows[model_type] = record({"model_type": model_type, **data})
        except Exception as error:
            print(f"{model_type}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    rows["_source"] = f"transformers {transformers.__version__}, built on the meta device"
    lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items())]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` without quantisation and remote code."""
    return {
        key: _plain(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if key not in ("quantization_config", "compression_config", "auto_map")
    }


def whole_models(folder: Path, target: Path) -> None:
    """Count the whole model of every config.json below ``folder`` that nests configurations."""
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows: dict[str, Any] = {}
    for file in sorted(folder.glob("*/config.json")):
        data = _plain(json.loads(file.read_text(encoding="utf-8")))
        data = data.get("thinker_config", data)  # the part of an omni model that engines serve
        model_type = data.get("model_type")
        if model_type not in CONFIG_MAPPING or not CONFIG_MAPPING[model_type].sub_configs:
            continue
        try:
            rows[file.parent.name] = count(data)
        except Exception as error:
            print(f"{file.parent.name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    rows["_source"] = f"transformers {transformers.__version__}, built on the meta device"
    target.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--folder":
        whole_models(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
