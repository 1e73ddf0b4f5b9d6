"""Which GPUs a plan rests on where nobody describes a deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokenroom.cli.watched_servers import described_by, watched
from tokenroom.errors import CommandLineError, WatchError
from tokenroom.watching.gpus import GpuReader
from tokenroom.watching.observation import Facts, Gpu, GpuProcess, Planned

FACTS = Facts(
    engine="vllm",
    version="0.32.0",
    model="Llama-3.1-8B-Instruct",
    max_model_len=8192,
    settings={"gpu_memory_utilization": 0.9, "kv_cache_dtype": "auto", "block_size": 16},
)
GIB = 2**30
H100 = Gpu(
    index="0",
    uuid="0",
    name="NVIDIA H100 80GB HBM3",
    mig=False,
    total_bytes=80 * GIB,
    used_bytes=70 * GIB,
    free_bytes=10 * GIB,
    processes=(GpuProcess(pid=1, name="VLLM::Worker", used_bytes=70 * GIB),),
)
IDLE = replace(H100, processes=())


def planned(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, **options: Any) -> Planned:
    monkeypatch.setattr(GpuReader, "read", lambda _: gpus)
    (one,) = watched((":1",), (), described_by(None, offline=True) | options)
    assert one.prediction is not None
    return one.prediction(FACTS)


def test_the_gpus_that_compute_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(monkeypatch, H100, H100, IDLE)
    assert (found.gpu, found.gpus) == ("h100-sxm-80gb", 2)
    assert "tensor_parallel_size=2" in found.assumed
    assert planned(monkeypatch, IDLE, IDLE).gpus == 1
    other = replace(IDLE, name="Tesla T4")
    assert planned(monkeypatch, H100, other).gpu == "h100-sxm-80gb"


def test_what_is_named_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, H100, H100, gpu="l40s").gpu == "l40s"
    assert planned(monkeypatch, H100, gpu="2xl40s").gpus == 2
    assert planned(monkeypatch, H100, gpus=4).gpus == 4
    assert planned(monkeypatch, gpu_memory=96 * GIB).starts


def test_an_instance_of_a_divided_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = replace(H100, index="0:1", name="NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert "mig-3g.40gb" in planned(monkeypatch, replace(IDLE, mig=True), instance).gpu


@pytest.mark.parametrize(
    "gpus", [(), (IDLE, replace(IDLE, name="Tesla T4")), (replace(IDLE, name="A Toaster 9"),)]
)
def test_gpus_that_are_not_known_are_to_be_named(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[Gpu, ...]
) -> None:
    with pytest.raises(WatchError, match="--gpu"):
        planned(monkeypatch, *gpus)


def test_options_say_what_a_server_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = planned(monkeypatch, H100)
    half = planned(monkeypatch, H100, tp=2, weights="fp8", max_num_batched_tokens=2048)
    assert half.gpus == 2
    assert half.weights_bytes < 0.3 * whole.weights_bytes
    assert half.activation_bytes < whole.activation_bytes
    assert half.assumed == ("max_num_seqs",)
    assert planned(monkeypatch, H100, util=0.5).peak_bytes < 0.6 * whole.peak_bytes
    assert planned(monkeypatch, H100, context=4096).max_model_len == 4096
    assert planned(monkeypatch, H100, assignments=("max_num_seqs=7",)).max_num_seqs == 7


@pytest.mark.parametrize("name", ["engine", "service"])
def test_options_of_a_description_want_one(name: str) -> None:
    with pytest.raises(CommandLineError, match=f"--{name} is part of a description"):
        watched((":1",), (), described_by(None, offline=True) | {name: "vllm"})
