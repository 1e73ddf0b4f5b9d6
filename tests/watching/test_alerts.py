"""What is alarming, and what is not, on observations made here."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from observations import PLANNED

from tokenroom.watching.alerts import EVENT_SECONDS, AlertBook, AlertSettings
from tokenroom.watching.observation import (
    Alert,
    Endpoint,
    Facts,
    Gpu,
    GpuProcess,
    Help,
    Observation,
    Replica,
    TorchMemory,
)

MIB, GIB = 2**20, 2**30
URL = "http://h:1"

PLAN = replace(
    PLANNED, kv_pool_tokens=400_000, kv_pool_tokens_low=390_000, kv_pool_tokens_high=410_000
)


def endpoint(replica: Replica | None = None, **fields: Any) -> Endpoint:
    made = Endpoint(
        url=URL,
        status="up",
        since=0.0,
        replicas=(replica or Replica(model="m", rank=None),),
    )
    return replace(made, **fields)


def gpu(used_bytes: int = 70 * GIB, **fields: Any) -> Gpu:
    made = Gpu(
        index="0",
        uuid="u",
        name="H100",
        mig=False,
        total_bytes=80 * GIB,
        used_bytes=used_bytes,
        free_bytes=80 * GIB - used_bytes,
    )
    return replace(made, **fields)


class Run:
    """Observations one after another, two seconds apart."""

    def __init__(self, **settings: float) -> None:
        self.helped: list[str] = []
        self.book = AlertBook(AlertSettings(**settings), self.help)
        self.time = 1000.0

    def help(self, alert: Alert, _: Endpoint | None) -> tuple[Help, ...]:
        self.helped.append(alert.key)
        return ()

    def see(self, *endpoints: Endpoint, gpus: tuple[Gpu, ...] = ()) -> dict[str, Alert]:
        self.time += 2
        seen = Observation(
            time=self.time, interval_seconds=2, window_seconds=30, endpoints=endpoints, gpus=gpus
        )
        return {alert.key: alert for alert in self.book.take(seen).alerts}


def test_nothing_alarming_says_nothing() -> None:
    replica = Replica(model="m", rank=None, running=5, waiting=0, kv_share=0.2, preemptions=0)
    assert Run().see(endpoint(replica, planned=PLAN), gpus=(gpu(),)) == {}


@pytest.mark.parametrize(
    ("share", "severity"), [(0.79, None), (0.8, "warning"), (0.95, "critical")]
)
def test_the_waterline_of_the_pool(share: float, severity: str | None) -> None:
    found = Run().see(endpoint(Replica(model="m", rank=None, kv_share=share)))
    assert (found["kv_high"].severity if found else None) == severity
    assert Run(waterline=1.0).see(endpoint(Replica(model="m", rank=None, kv_share=0.99))) == {}


def test_an_alert_keeps_its_beginning_and_is_helped_once() -> None:
    run, full = Run(), endpoint(Replica(model="m", rank=None, kv_share=0.9))
    first = run.see(full)["kv_high"].since
    assert run.see(full)["kv_high"].since == first
    assert run.helped == ["kv_high"]
    assert run.see(endpoint(Replica(model="m", rank=None, kv_share=0.1))) == {}
    assert run.see(full)["kv_high"].since > first
    assert run.helped == ["kv_high", "kv_high"]


def test_replicas_are_told_apart() -> None:
    one = endpoint(
        replicas=(
            Replica(model="m", rank="0", kv_share=0.1),
            Replica(model="m", rank="1", kv_share=0.9),
        )
    )
    assert Run().see(one)["kv_high"].subject == f"{URL}#1"


def test_preemptions_are_counted_and_stay_for_a_while() -> None:
    run = Run()

    def after(count: int) -> dict[str, Alert]:
        return run.see(endpoint(Replica(model="m", rank=None, preemptions=count)))

    assert after(0) == {}
    assert after(2)["preempting"].values["count"] == 2
    assert after(3)["preempting"].values["count"] == 5
    for _ in range(int(EVENT_SECONDS / 2) - 1):
        assert "preempting" in after(0)
    assert after(0) == {}


def test_kv_above_the_weights_needs_to_know_both() -> None:
    replica = Replica(model="m", rank=None, kv_share=0.4)
    assert Run().see(endpoint(replica)) == {}
    found = Run().see(endpoint(replica, planned=PLAN))["kv_above_weights"]
    assert found.values["kv_bytes"] == round(0.4 * 51 * GIB)
    facts = Facts(engine="sglang", weights_bytes=30 * GIB, kv_bytes=51 * GIB)
    assert Run().see(endpoint(replica, planned=PLAN, facts=facts)) == {}  # what is told counts


def waiting(count: int) -> Endpoint:
    return endpoint(Replica(model="m", rank=None, waiting=count, kv_share=0.5))


def test_a_queue_that_grows() -> None:
    run = Run()
    for step in range(40):
        found = run.see(waiting(step // 2))
    assert found["queue_growing"].values["waiting"] == 19


@pytest.mark.parametrize("seed", range(10))
def test_a_queue_that_comes_and_goes_is_no_alarm(seed: int) -> None:
    draw, run = random.Random(seed), Run()
    for _ in range(300):
        assert run.see(waiting(draw.randint(0, 40))) == {}


def test_a_pool_that_differs_from_the_plan() -> None:
    def told(tokens: int) -> dict[str, Alert]:
        facts = Facts(engine="vllm", kv_pool_tokens=tokens)
        return Run().see(endpoint(planned=PLAN, facts=facts))

    assert told(400_000) == told(391_000) == told(381_000) == {}
    assert told(370_000)["pool_smaller"].severity == "warning"
    assert told(430_000)["pool_larger"].severity == "notice"
    wide = replace(PLAN, kv_pool_tokens_low=300_000)
    facts = Facts(engine="vllm", kv_pool_tokens=310_000)
    assert Run().see(endpoint(planned=wide, facts=facts)) == {}  # within what it may err by


def test_fragments_of_pytorch() -> None:
    def gap(allocated: float, reserved: float) -> dict[str, Alert]:
        memory = TorchMemory(
            gpu="0", allocated_bytes=int(allocated * GIB), reserved_bytes=int(reserved * GIB)
        )
        return Run().see(endpoint(torch=(memory,)))

    assert gap(40, 41) == gap(0.5, 1.4) == gap(70, 79) == {}
    assert gap(30, 40)["torch_gap"].values["gap_bytes"] == 10 * GIB


def test_a_server_that_is_gone_and_comes_back() -> None:
    run = Run()
    assert run.see(endpoint()) == {}
    down = endpoint(status="down", error="refused", replicas=())
    assert run.see(down)["endpoint_down"].values["error"] == "refused"
    found = run.see(endpoint(restarts=1))
    assert set(found) == {"restarted"}
    assert found["restarted"].values["restarts"] == 1


def test_a_server_that_began_anew_unseen() -> None:
    run = Run()
    run.see(endpoint())
    assert "restarted" in run.see(endpoint(restarts=1))


def process(pid: int, used: int | None = GIB) -> GpuProcess:
    return GpuProcess(pid=pid, name="VLLM::EngineCore", used_bytes=used)


def test_a_process_that_vanished_from_its_gpu() -> None:
    run = Run()
    assert run.see(gpus=(gpu(processes=(process(1), process(2))),)) == {}
    found = run.see(gpus=(gpu(processes=(process(2),)),))["process_vanished"]
    assert (found.values["pid"], found.severity) == (1, "critical")
    for _ in range(int(EVENT_SECONDS / 2)):
        found_later = run.see(gpus=(gpu(processes=(process(2),)),))
    assert found_later == {}


def test_a_gpu_above_its_plan_or_full() -> None:
    assert Run().see(endpoint(planned=PLAN), gpus=(gpu(73 * GIB),)) == {}
    assert "above_plan" in Run().see(endpoint(planned=PLAN), gpus=(gpu(74 * GIB),))
    two = (endpoint(planned=PLAN), endpoint(planned=PLAN, url="http://h:2"))
    assert Run().see(*two, gpus=(gpu(74 * GIB),)) == {}  # they may share it
    assert "gpu_full" in Run().see(gpus=(gpu(80 * GIB - 100 * MIB),))
    divided = gpu(80 * GIB - 100 * MIB, mig=True)
    assert Run().see(gpus=(divided,)) == {}


def test_leaks_of_a_process_a_gpu_and_the_host() -> None:
    run = Run(leak_seconds=120)
    for step in range(80):
        grown = step * 10 * MIB
        found = run.see(
            endpoint(host_bytes=GIB + grown),
            gpus=(
                gpu(processes=(process(7, GIB + grown), process(8))),
                gpu(60 * GIB + 2 * grown, index="1", uuid="v", processes=(process(9, None),)),
            ),
        )
    assert set(found) == {"gpu_leak", "gpu_growing", "host_leak"}
    assert found["gpu_leak"].values["pid"] == 7
    assert found["gpu_growing"].subject == "gpu:1"
    assert found["host_leak"].values["growth_bytes"] == pytest.approx(600 * MIB, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_memory_that_only_wobbles_is_no_leak(seed: int) -> None:
    draw, run = random.Random(seed), Run(leak_seconds=120)
    for _ in range(400):
        held = GIB + draw.randint(0, 200) * MIB
        found = run.see(
            endpoint(host_bytes=held), gpus=(gpu(processes=(process(7, held), process(8))),)
        )
        assert found == {}


def test_the_gravest_come_first() -> None:
    replica = Replica(model="m", rank=None, kv_share=0.85)
    found = Run().see(
        endpoint(replica, planned=PLAN), endpoint(url="http://h:2", status="down", replicas=())
    )
    assert list(found) == ["endpoint_down", "kv_high", "kv_above_weights"]


def test_two_of_a_kind_on_one_gpu_are_two_alerts() -> None:
    def keys(*pids: int) -> list[str]:
        run.time += 2
        seen = Observation(
            time=run.time,
            interval_seconds=2,
            window_seconds=30,
            endpoints=(
                endpoint(
                    torch=tuple(
                        TorchMemory(gpu=gpu, allocated_bytes=GIB, reserved_bytes=9 * GIB)
                        for gpu in "01"
                    )
                ),
            ),
            gpus=(gpu(processes=tuple(map(process, pids))),),
        )
        return [alert.subject for alert in run.book.take(seen).alerts]

    run = Run()
    gaps = [f"{URL}#gpu0", f"{URL}#gpu1"]
    assert keys(1, 2, 3) == gaps
    assert keys(3) == ["gpu:0/1", "gpu:0/2", *gaps]
