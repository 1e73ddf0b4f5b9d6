import re
from typing import Any

import pytest

from tokenroom.errors import HardwareError
from tokenroom.hardware.records import read_record

WHERE = "accelerators[0] in gpus.toml"
MINIMAL: dict[str, Any] = {"name": "My GPU", "memory": "95.5 GiB"}


def test_name_and_memory_suffice() -> None:
    gpu = read_record(MINIMAL, WHERE).accelerator
    assert (gpu.key, gpu.name) == ("my-gpu", "My GPU")
    assert gpu.memory_bytes == gpu.nominal_memory_bytes == round(95.5 * 2**30)
    assert gpu.bandwidth_bytes_per_second is None
    assert gpu.flops_per_second == {}
    assert gpu.link == "pcie"
    assert not gpu.custom


def test_every_field_is_read() -> None:
    record = read_record(
        MINIMAL
        | {
            "key": "mine",
            "aliases": ["M1 Card"],
            "vendor": "acme",
            "architecture": "one",
            "compute_capability": "9.0",
            "memory": 100_000_000_000,
            "driver_memory": "96000 MiB",
            "nominal_memory": "100 GB",
            "bandwidth": "3350 GB/s",
            "dense_tflops": {"bf16": 989.4, "fp8": 1979},
            "link": "nvlink",
            "link_bandwidth": 450e9,
            "pcie_bandwidth": "63 GB/s",
            "multiprocessors": 132,
            "unified_memory": True,
            "mig": {"1g.12gb": {"memory": "12 GiB", "multiprocessors": 16, "memory_eighths": 1}},
            "sources": {"memory": "sheet (page 2)", "bandwidth": "measured"},
        },
        WHERE,
        {"sheet": "the data sheet"},
    )
    gpu = record.accelerator
    assert gpu.compute_capability == (9, 0)
    assert gpu.memory_bytes == 10**11
    assert gpu.driver_memory_bytes == 96000 * 2**20
    assert gpu.bandwidth_bytes_per_second == 3.35e12
    assert gpu.link_bytes_per_second == 450e9
    assert gpu.flops_per_second == {"bf16": 989.4e12, "fp8": 1979e12}
    assert gpu.sources == {
        "memory_bytes": "the data sheet (page 2)",
        "bandwidth_bytes_per_second": "measured",
    }
    assert record.slices["1g.12gb"].memory_bytes == 12 * 2**30


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": ""}, "name of .* is ''; give a text that is not empty"),
        ({"name": None}, "has no name; name and memory are required"),
        ({"memory": None}, "has no memory; name and memory are required"),
        ({"memory": "80"}, "memory of .* is '80'; give a size with its unit"),
        ({"memory": 0}, "memory of .* is 0; give a size"),
        ({"memory": True}, "memory of .* is True; give a size"),
        ({"memory": 10**400}, "memory of .* give a size"),
        ({"memory": "1e300 GB"}, "memory of .* give a size"),
        ({"memory": -5}, "memory of .* is -5; give a size"),
        ({"memory": "many GiB"}, "memory of .* is 'many GiB'; give a size"),
        ({"bandwith": "3 GB/s"}, "unknown field 'bandwith'; the fields are key, name"),
        ({"bandwidth": "3 GB"}, "bandwidth of .* is '3 GB'; give a rate such as"),
        ({"bandwidth": float("nan")}, "bandwidth of .* is nan; give a rate"),
        ({"bandwidth": float("inf")}, "bandwidth of .* is inf; give a rate"),
        ({"dense_tflops": {"bf17": 1}}, "dense_tflops of .* give positive numbers by type"),
        ({"dense_tflops": {"bf16": 0}}, "dense_tflops of .* give positive numbers by type"),
        ({"dense_tflops": 989}, "dense_tflops of .* is 989; give positive numbers by type"),
        ({"compute_capability": "nine"}, "compute_capability of .* give major and minor"),
        ({"compute_capability": [9]}, "compute_capability of .* give major and minor"),
        ({"compute_capability": [9, "x"]}, "compute_capability of .* give major and minor"),
        ({"link": "carrier pigeon"}, "link of .* is 'carrier pigeon'; give one of nvlink"),
        ({"multiprocessors": 1.5}, "multiprocessors of .* is 1.5; give a positive whole number"),
        ({"unified_memory": "yes"}, "unified_memory of .* is 'yes'; give true or false"),
        ({"aliases": "H100"}, "aliases of .* is 'H100'; give a list of texts"),
        ({"sources": {"memory": 3}}, "sources of .* give a text by field name"),
        ({"mig": []}, "mig of .* give a table by profile"),
        ({"mig": {"1g.5gb": {}}}, "mig profile 1g.5gb of .* give memory, multiprocessors and"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HardwareError, match=sentence) as caught:
        read_record(MINIMAL | change, WHERE)
    assert "accelerators[0] in gpus.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [None, 3, "H100", ["H100"]])
def test_an_item_must_be_a_table(raw: object) -> None:
    with pytest.raises(HardwareError, match=re.escape(WHERE)):
        read_record(raw, WHERE)
