"""Descriptions of fleets: the short form, pools, and refusals that name the field."""

from pathlib import Path

import pytest

from tokenroom.errors import FleetError
from tokenroom.serving.fleet_description import Measure, Policy, Role
from tokenroom.serving.fleet_file import fleet_description, read_fleet_file

POOLS = """
name: long and short prompts apart
pools:
  - name: short
    deployment: llama-3-8b --gpu l40s
    replicas: 3
    max_prompt: 4k
    price: 1.10
  - name: long
    deployment: "--gpu h100 -- vllm serve meta-llama/Meta-Llama-3-8B --max-num-seqs 64"
    scale: {min: 2, max: 4, measure: running, target: 10, start_up: 90s, cool_down: 5min}
router: {policy: cache-aware, cache_threshold: 0.5}
transfer: {bandwidth: 25GB/s, latency: 1ms}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_one_deployment_is_the_short_form(tmp_path: Path) -> None:
    found = read_fleet_file(written(tmp_path, "deployment: llama-3-8b --gpu a100 --util 0.9"))
    single = found.single
    assert single is not None
    assert single.deployment == ("llama-3-8b", "--gpu", "a100", "--util", "0.9")
    assert found.router.policy is Policy.ROUND_ROBIN


def test_json_is_read_and_words_may_be_a_list(tmp_path: Path) -> None:
    text = '{"deployment": ["llama-3-8b", "--gpus", 2], "replicas": 3, "router": "sticky"}'
    found = read_fleet_file(written(tmp_path, text))
    assert found.single is None
    assert found.pools[0].deployment == ("llama-3-8b", "--gpus", "2")
    assert (found.pools[0].replicas, found.router.policy) == (3, Policy.STICKY)


def test_pools_with_all_their_fields(tmp_path: Path) -> None:
    found = read_fleet_file(written(tmp_path, POOLS))
    short, long = found.pools
    assert found.name == "long and short prompts apart"
    assert (short.name, short.replicas, short.role) == ("short", 3, Role.BOTH)
    assert (short.max_prompt_tokens, short.price_per_gpu_hour) == (4096, 1.1)
    assert short.scaling is None
    assert long.deployment[2:6] == ("--", "vllm", "serve", "meta-llama/Meta-Llama-3-8B")
    scaling = long.scaling
    assert scaling is not None
    assert (scaling.least, scaling.most, long.replicas) == (2, 4, 2)
    assert (scaling.measure, scaling.target) == (Measure.RUNNING, 10)
    assert (scaling.start_up_seconds, scaling.cool_down_seconds) == (90, 300)
    assert (found.router.policy, found.router.cache_threshold) == (Policy.CACHE_AWARE, 0.5)
    assert found.transfer.link is None
    assert (found.transfer.bytes_per_second, found.transfer.latency_seconds) == (25e9, 0.001)


ONE = {"name": "one", "deployment": "llama-3-8b --gpu a100"}


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ("text", "the file is 'text'; give a mapping of fields"),
        ({}, "pools is None; list the pools"),
        ({"pools": []}, "pools is \\[\\]; list the pools"),
        ({"deployment": ""}, "deployment of the file is ''; write what follows tokenroom simulate"),
        ({"deployment": "a 'b"}, "balance its quotes"),
        ({"deployment": "m", "role": "decode"}, "unknown field 'role'; .* under pools instead"),
        ({"deployment": "m", "replicas": 0}, "replicas of pool 'engine' is 0; give 1 to 1024"),
        ({"deployment": "m", "replicas": "2"}, "replicas of the file is '2'; give a whole number"),
        ({"deployment": "m", "price": -1}, "price of pool 'engine' is -1.0; give USD above 0"),
        ({"pools": [{"deployment": "m"}]}, "pool 1 of 1 has no name"),
        ({"pools": [ONE, ONE]}, "two pools are named 'one'"),
        ({"pools": [ONE | {"gpus": 2}]}, "pool 1 of 1 has an unknown field 'gpus'"),
        ({"pools": [ONE | {"role": "draft"}]}, "role of pool 1 of 1 is 'draft'; it may be both"),
        ({"pools": [ONE | {"role": "prefill"}]}, "role prefill and none with role decode"),
        ({"pools": [ONE | {"role": "decode"}]}, "role decode and none with role prefill"),
        ({"pools": [ONE | {"max_prompt": "4 blocks"}]}, "max_prompt of pool 1 of 1 is '4 blocks'"),
        ({"pools": [ONE | {"scale": 3}]}, "scale of pool 1 of 1 is 3; give a mapping"),
        ({"pools": [ONE | {"scale": {"max": 3}}]}, "scale of pool 1 of 1 has no target"),
        (
            {"pools": [ONE | {"scale": {"max": 3, "min": 4, "target": 1}}]},
            "scale goes from 4 to 3 replicas",
        ),
        (
            {"pools": [ONE | {"scale": {"max": 3, "target": 1, "every": 15}}]},
            "every of scale of pool 1 of 1 is '15'",
        ),
        (
            {"pools": [ONE | {"replicas": 9, "scale": {"max": 3, "target": 1}}]},
            "replicas of pool 'one' is 9, outside of its scale from 1 to 3",
        ),
        ({"pools": [ONE], "router": "random"}, "policy of router is 'random'; it may be round_rob"),
        (
            {"pools": [ONE], "router": {"policy": "sticky", "seed": 1}},
            "router has an unknown field 'seed'; .*; policy sticky has no others",
        ),
        (
            {"pools": [ONE], "router": {"policy": "cache_aware", "cache_threshold": 2}},
            "cache_threshold of router is 2.0; give a share",
        ),
        ({"pools": [ONE], "transfer": {"link": "wire"}}, "link of transfer is 'wire'; it may be"),
        (
            {"pools": [ONE], "transfer": {"link": "pcie", "bandwidth": "1GB/s"}},
            "transfer needs either a link or a bandwidth",
        ),
        ({"pools": [ONE], "transfer": {"latency": "1"}}, "latency of transfer is '1'"),
    ],
)
def test_what_is_wrong_is_said_by_its_field(described: object, message: str) -> None:
    with pytest.raises(FleetError, match=message):
        fleet_description(described)


def test_a_file_that_is_no_yaml_or_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"fleet\.yaml is no YAML or JSON: line"):
        read_fleet_file(written(tmp_path, "a: [1"))
    with pytest.raises(FleetError, match="holds 2 YAML documents"):
        read_fleet_file(written(tmp_path, "a: 1\n---\nb: 2\n"))
    with pytest.raises(FleetError, match=r"fleet\.yaml: pools is None"):
        read_fleet_file(written(tmp_path, "name: empty"))
    with pytest.raises(FleetError, match="cannot be read"):
        read_fleet_file(tmp_path / "missing.yaml")
