"""Real config.json files: our count equals transformers' on the meta device, to the parameter."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenroom.errors import UnknownArchitectureError
from tokenroom.models import architectures
from tokenroom.models.hf_config import read_config

pytestmark = pytest.mark.shared


def _is_text(data: dict[str, object]) -> bool:
    """Whether the file describes a text model: towers have tests of their own."""
    module = architectures.module_of(str(data["model_type"]))
    return module is None or not module.startswith("multimodal")


def _rows(shared: Path) -> Iterator[tuple[str, dict[str, object], int]]:
    """Every row with an oracle count whose file is a text model, without its quantisation."""
    with (shared / "zoo" / "index.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if not row["oracle_params"]:
                continue
            file = shared / "zoo" / row["file"]
            data = json.loads(file.read_text(encoding="utf-8"))
            data.pop("quantization_config", None)
            if _is_text(data):
                yield row["model_id"], data, int(row["oracle_params"])


def test_text_models_are_exact(shared: Path) -> None:
    off = {}
    checked = 0
    for model_id, data, expected in _rows(shared):
        try:
            counted = read_config(data, model_id).parameters_total
        except UnknownArchitectureError as error:
            off[model_id] = str(error)
            continue
        checked += 1
        if counted != expected:
            off[model_id] = f"{counted} instead of {expected}"
    assert off == {}
    assert checked >= 109


# Totals of remote-code models: the publisher's figure, or the same shapes in a type that
# transformers builds (DeepSeek-V4's checkpoint under its reference name).
_PUBLISHED = {
    "Qwen__Qwen-7B": 7_721_324_544,
    "Qwen__Qwen-72B-Chat": 72_287_920_128,
    "THUDM__glm-4-9b": 9_399_951_360,
    "baichuan-inc__Baichuan2-7B-Base": 7_505_973_248,
    "internlm__internlm2-7b": 7_737_708_544,
    "microsoft__phi-2": 2_779_683_840,
    "nvidia__Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
    "sgl-project__DeepSeek-V4-Flash-FP8": 284_332_230_231,
    "sgl-project__DeepSeek-V4-Pro-FP8": 1_572_997_179_491,
    "tencent__Hunyuan-A13B-Instruct": 80_393_183_232,
}


@pytest.mark.parametrize("folder", sorted(_PUBLISHED))
def test_remote_models(shared: Path, folder: str) -> None:
    file = shared / "zoo" / "configs" / folder / "config.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data.pop("quantization_config", None)
    assert read_config(data, folder).parameters_total == _PUBLISHED[folder]


def test_every_known_configuration_is_read(shared: Path) -> None:
    for file in sorted((shared / "zoo" / "configs").glob("*/config.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        data.pop("quantization_config", None)
        if architectures.module_of(data["model_type"]) is not None:
            spec = read_config(data, file.parent.name)
            assert spec.parameters_total > 0
            assert spec.num_layers > 0
