"""Write the model catalogue from published configurations.

    TOKENROOM_SHARED=... python scripts/build_catalogue.py

Reads the configurations listed in ``$TOKENROOM_SHARED/zoo/index.csv`` and the models of
``scripts/catalogue_additions.json`` (dimensions published elsewhere, or another model's shape with
a quantisation block), corrects the fields that the latter says a copy has wrong, keeps the fields
that the reader uses, and refuses every model whose parameter count is not the one transformers
counts, published totals say, or an engine's log reports. What is left out is listed with its
reason.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tokenroom.engines.vllm.weights import Ranks, rank_weights
from tokenroom.errors import TokenroomError
from tokenroom.models.hf_config import _IRRELEVANT, read_config
from tokenroom.models.spec import ModelSpec
from tokenroom.units import GIB

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "src" / "tokenroom" / "models" / "data"

#: Sources whose files were once found changed by hand, or presets that nothing confirms: their
#: models are taken only with a count that transformers confirms.
WEAK_SOURCES = ("sgl-project/ome", "mlc-ai/mlc-llm")

#: Left out whatever their count: the index itself infers them.
LEFT_OUT = {"mistralai/Mamba-Codestral-7B-v0.1": "its configuration is inferred"}

#: A longer entry, all of it lists of modules, would cost more than it is worth.
LARGEST = 80_000

KINDS = {"raw": "config", "raw-retyped": "config", "class-default": "published"}

#: Fields that no layer depends on but engines do (lengths, position tables, expert types).
KEPT = ("rope_scaling", "rope_parameters", "rope_theta", "expert_dtype", "dtype", "torch_dtype")


def main() -> None:
    shared = Path(os.environ.get("TOKENROOM_SHARED") or sys.exit("set TOKENROOM_SHARED"))
    additions = json.loads((ROOT / "scripts" / "catalogue_additions.json").read_text())
    models: dict[str, dict[str, Any]] = {}
    configs: dict[str, dict[str, Any]] = {}
    with (shared / "zoo" / "index.csv").open() as file:
        for row in csv.DictReader(file):
            config = load_config((shared / "zoo" / row["file"]).parent)
            correction = additions["corrections"].get(row["model_id"], {})
            config.update(correction.get("set", {}))
            note = f"; {correction['note']}" if correction else ""
            configs[row["model_id"]] = config
            try:
                checked = check_zoo(row, config)
                models[row["model_id"]] = entry(
                    row["model_id"],
                    additions["aliases"].get(row["model_id"], []),
                    row["source"] + note,
                    KINDS.get(row["source_kind"], "preset"),
                    checked,
                    config,
                )
            except (TokenroomError, ValueError) as error:
                print(f"left out {row['model_id']}: {error}")
    for item in additions["models"]:
        config = json.loads(json.dumps(item.get("config") or configs[item["like"]]))
        config.update(item.get("set", {}))
        if "quantization" in item:
            config["quantization_config"] = item["quantization"]
        configs[item["name"]] = config
        try:
            checked = check_addition(item, config)
            models[item["name"]] = entry(
                item["name"],
                item.get("aliases", []),
                item["source"],
                "published",
                checked,
                config,
            )
        except (TokenroomError, ValueError) as error:
            print(f"left out {item['name']}: {error}")
    write(models)


def load_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    quantization = folder / "hf_quant_config.json"
    if quantization.exists() and not config.get("quantization_config"):
        block = json.loads(quantization.read_text())
        config["quantization_config"] = {"quant_method": "modelopt", **block}
    return dict(config)


def check_zoo(row: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """What confirms the model's parameter count."""
    name = row["model_id"]
    if name in LEFT_OUT:
        raise ValueError(LEFT_OUT[name])
    spec = read_config(config, name)
    counted = row["oracle_params"]
    if counted:
        if int(counted) not in (spec.parameters_total, spec.text_parameters):
            raise ValueError(f"transformers counts {counted}, not {spec.parameters_total}")
        return f"{int(counted):,} parameters as transformers counts them"
    if row["source_kind"] != "raw" or any(weak in row["source"] for weak in WEAK_SOURCES):
        raise ValueError("nothing confirms its count")
    return "whole published config.json; its count is not confirmed"


def check_addition(item: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    spec = read_config(config, item["name"])
    confirmed = []
    if "parameters" in item:
        if item["parameters"] != spec.parameters_total:
            raise ValueError(f"{item['parameters']:,} are published, not {spec.parameters_total:,}")
        confirmed.append(f"{spec.parameters_total:,} parameters as published")
    if "counted" in item:
        if item["counted"] != spec.parameters_total:
            raise ValueError(f"transformers counts {item['counted']}, not {spec.parameters_total}")
        confirmed.append(f"{spec.parameters_total:,} parameters as transformers counts them")
    for report in item.get("reported", []):
        confirmed.append(check_report(spec, report))
    return "; ".join(confirmed) or "dimensions only"


def check_report(spec: ModelSpec, report: Mapping[str, Any]) -> str:
    """Holds the weights of rank 0 against what an engine's log printed, to its last digit."""
    ranks = Ranks(tp=report["tensor_parallel_size"])
    weights = rank_weights(spec, ranks=ranks, dtype=report.get("dtype"), version=(0, 19, 0))
    gib = weights.allocated_bytes / GIB
    if abs(gib - report["weights_gib"]) > 0.02:
        raise ValueError(f"a log reports {report['weights_gib']} GiB of weights, not {gib:.3f}")
    size = report["tensor_parallel_size"]
    return f"{report['weights_gib']} GiB of weights at TP {size} ({report['where']})"


def entry(
    name: str, aliases: list[str], source: str, kind: str, checked: str, config: dict[str, Any]
) -> dict[str, Any]:
    facts = folded(name, facts_of(name, config))
    size = len(json.dumps(facts))
    if size > LARGEST:
        raise ValueError(f"its lists of modules take {size:,} bytes")
    result: dict[str, Any] = {"name": name, "source": source, "source_kind": kind}
    result |= {"checked": checked, "aliases": aliases} if aliases else {"checked": checked}
    return result | {"config": facts}


def folded(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """With lists of modules written as patterns, where the reader reads the same from them."""
    whole = comparable(read_config(facts, name))
    for number in (r"(?<=\.experts\.)\d+", r"(?<=\.layers\.)\d+(?=\.)", r"(?<=\.blocks\.)\d+"):
        trial = fold(facts, re.compile(number))
        try:
            if comparable(read_config(trial, name)) == whole:
                facts = trial
        except TokenroomError:
            continue
    return facts


def fold(value: Any, number: re.Pattern[str]) -> Any:
    if isinstance(value, dict):
        return {number.sub("*", key): fold(item, number) for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        patterns = list(dict.fromkeys(number.sub("*", item) for item in value))
        # Only lists of numbered modules: others, such as layer_types, say something by position.
        return value if set(patterns) <= set(value) else patterns
    return value


def facts_of(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration that its description depends on."""
    whole = comparable(read_config(config, name))
    facts = pruned(config, read_config(config, name).extra)
    if comparable(read_config(facts, name)) == whole:
        return facts
    # Some fields are read in passing, beside the reader's own list: try each.
    facts = json.loads(json.dumps(config))
    for path in list(paths(config)):
        trial = json.loads(json.dumps(facts))
        place = trial
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
        try:
            if comparable(read_config(trial, name)) == whole:
                facts = trial
        except TokenroomError:
            continue
    return facts


def paths(config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        if key in KEPT or key in ("architectures", "model_type", "quantization_config"):
            continue
        if isinstance(value, dict) and value:
            yield from paths(value, (*above, key))
        else:
            yield (*above, key)


def comparable(spec: ModelSpec) -> list[object]:
    return [getattr(spec, field.name) for field in fields(spec) if field.name != "extra"]


def pruned(
    config: Mapping[str, Any], unread: Mapping[str, object], path: str = ""
) -> dict[str, Any]:
    """The configuration without the fields that were not read."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        field = f"{path}{key}"
        if key in KEPT or key in ("architectures", "model_type", "quantization_config"):
            kept[key] = compact_quantization(value) if key == "quantization_config" else value
        elif field in unread or key in _IRRELEVANT:
            continue
        elif isinstance(value, dict):
            kept[key] = pruned(value, unread, f"{field}.")
        else:
            kept[key] = value
    return {key: value for key, value in kept.items() if key != "quantization_config" or value}


def compact_quantization(block: Any) -> Any:
    """Without what calibration left behind; lists of modules stay, they decide what is plain."""
    if not isinstance(block, dict):
        return block
    dropped = ("observer", "observer_kwargs", "producer", "global_compression_ratio", "version_")
    return {key: compact_quantization(value) for key, value in block.items() if key not in dropped}


def write(models: Mapping[str, Mapping[str, Any]]) -> None:
    index: dict[str, list[Any]] = {}
    offset = 0
    with (DATA / "catalogue.jsonl").open("wb") as file:
        for name in sorted(models, key=str.lower):
            line = json.dumps(models[name], separators=(",", ":")).encode()
            index[name] = [offset, len(line), models[name].get("aliases", [])]
            file.write(line + b"\n")
            offset += len(line) + 1
    text = json.dumps(index, separators=(",", ":")).replace('],"', '],\n"')
    (DATA / "catalogue_index.json").write_text(text + "\n")
    print(f"{len(models)} models, {offset:,} bytes")


if __name__ == "__main__":
    main()
