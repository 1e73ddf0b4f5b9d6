"""``device_map="auto"`` puts every module where transformers itself does.

The fixture was written by ``scripts/oracle_transformers_placement.py``.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.transformers.placement import DeviceMap, Module, modules_of, place
from tokenroom.models.hf_config import read_config
from tokenroom.units import MIB

FIXTURE = Path(__file__).parent.parent / "fixtures" / "engines" / "transformers_placement.json"
DOCUMENT: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))


def name_of(row: dict[str, Any]) -> str:
    return f"{row['model']}-{row['node']}-{row['device_map']}"


@pytest.mark.parametrize("row", DOCUMENT["rows"], ids=name_of)
def test_devices(row: dict[str, Any]) -> None:
    spec = read_config(DOCUMENT["configs"][row["model"]], row["model"])
    gpus, host = DOCUMENT["nodes"][row["node"]]
    placement = place(
        modules_of(spec, "bfloat16"),
        [size * MIB for size in gpus],
        DeviceMap(row["device_map"]),
        host * MIB,
    )
    where: dict[str, Any] = {}
    layers: dict[int, Any] = {}

    def note(module: Module, device: Any) -> None:
        if module.layer is not None:
            layers[module.layer] = device
        else:
            where[module.name] = device

    for index, modules in enumerate(placement.gpus):
        for module in modules:
            note(module, index)
    for device, modules in (("cpu", placement.host), ("disk", placement.disk)):
        for module in modules:
            note(module, device)
    assert where["embedding"] == row["embedding"]
    assert [layers[index] for index in range(spec.num_layers)] == row["layers"]
    assert where["norm"] == row["norm"]
    if not spec.tied_embeddings:
        assert where["output"] == row["head"]
