"""Write the defaults of transformers' configuration classes to models/data/class_defaults.json.

Run it with a Python that has transformers (no weights, no network): the table records the release.
    python scripts/extract_class_defaults.py src/tokenroom/models/data/class_defaults.json
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import warnings
from pathlib import Path

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

# Fields that say nothing about parameters, caches or how layers run.
_SKIPPED = re.compile(
    r"(token_id|token_ids|token_index|dropout|pdrop|initializer|_eps$|_epsilon|^eps$|^use_cache$|"
    r"activation_function|_act_fn|aux_loss|output_router|jitter|^rope_|pretraining_tp|"
    r"_loss|label|^id2|^return_|_init$|_init_std|summary_|^problem_type|chunk_size_feed|"
    r"mask_time|mask_feature|layerdrop|^z_loss|init_std|time_step_|^dt_|theta|_multiplier)"
)
_BASE = {f.name for f in dataclasses.fields(PreTrainedConfig)} - {"tie_word_embeddings"}


def _default(field: dataclasses.Field) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return dataclasses.MISSING


def _plain(value: object) -> bool:
    try:
        return len(json.dumps(value)) < 2000
    except TypeError:
        return False


def _row(cls: type[PreTrainedConfig]) -> dict[str, object]:
    values: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        if field.name in _BASE or _SKIPPED.search(field.name) or field.name in cls.sub_configs:
            continue
        value = _default(field)
        if isinstance(value, tuple):
            value = list(value)
        if value is dataclasses.MISSING or not _plain(value):
            continue
        values[field.name] = value
    sub_types: dict[str, str] = {}
    if cls.sub_configs:
        try:
            instance = cls()
        except Exception:  # a class that cannot be built without arguments
            instance = None
        for name, sub in cls.sub_configs.items():
            built = getattr(instance, name, None)
            model_type = getattr(built, "model_type", "") or getattr(sub, "model_type", "")
            if model_type:
                sub_types[name] = model_type
    row: dict[str, object] = {"values": values}
    if cls.attribute_map:
        row["aliases"] = dict(cls.attribute_map)
    if sub_types:
        row["sub_types"] = sub_types
    return row


def main(target: Path) -> None:
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, object]] = {}
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        try:
            cls = CONFIG_MAPPING[model_type]
            rows[model_type] = _row(cls)
        except Exception as error:
            print(f"{model_type}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        for sub in cls.sub_configs.values():
            sub_type = getattr(sub, "model_type", "")
            if sub_type and sub_type not in CONFIG_MAPPING_NAMES and sub_type not in rows:
                rows[sub_type] = _row(sub)
    source = {
        "what": "field defaults of transformers configuration classes, before __post_init__",
        "release": f"transformers {transformers.__version__}",
    }
    lines = [f'"_source": {json.dumps(source)}']
    lines += [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items())]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
