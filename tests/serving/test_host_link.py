"""Transfers between GPUs and host take time beside the steps that they come with."""

import pytest

from tokenroom import fit
from tokenroom.errors import DeploymentError
from tokenroom.serving.engine import OneByOne
from tokenroom.serving.host_link import HostLink
from tokenroom.serving.host_tier import HostTier
from tokenroom.serving.run import Run
from tokenroom.serving.scheduler import StepPlan, Transfer, Transfers
from tokenroom.serving.sequence import Sequence
from tokenroom.serving.workloads.grammar import parse_workload


def plan(
    loads: dict[int, int] | None = None,
    stores: dict[int, int] | None = None,
    awaited: tuple[int, ...] = (),
    *,
    computes: bool = True,
) -> StepPlan:
    found = StepPlan()
    if computes:
        sequence: Sequence = None  # type: ignore[assignment]
        found.sequences, found.tokens, found.contexts = [sequence], [1], [8]
    found.transfers = Transfers(
        [Transfer(*one) for one in (loads or {}).items()],
        [Transfer(*one) for one in (stores or {}).items()],
        set(awaited),
        waits=True,
    )
    return found


def link() -> HostLink:
    """Steps take a second, and so does each block."""
    return HostLink(OneByOne(lambda _: 1.0), float)


def ended(one: StepPlan) -> list[int]:
    assert one.transfers is not None
    return one.transfers.ended


def test_what_is_read_begins_with_its_step_and_what_is_written_with_the_next() -> None:
    host = link()
    first, second, third = plan({0: 2}, {1: 1}), plan(), plan()
    assert host.run(first, 5.0) == (5.0, 6.0)
    assert ended(first) == []
    assert host.run(second, 6.0) == (6.0, 7.0)
    assert sorted(ended(second)) == [0, 1]
    assert host.run(third, 7.0) == (7.0, 8.0)
    assert ended(third) == []


def test_transfers_of_one_direction_follow_each_other_beside_those_of_the_other() -> None:
    host = link()
    steps = [plan({0: 2, 1: 2}, {2: 1, 3: 1}), plan(), plan(), plan()]
    for at, step in enumerate(steps):
        assert host.run(step, float(at)) == (at, at + 1.0)
    assert [sorted(ended(step)) for step in steps] == [[], [0, 2], [3], [1]]


def test_a_step_waits_for_what_it_awaits() -> None:
    host = link()
    host.run(plan(stores={0: 3}), 0.0)
    second = plan(stores={1: 2, 2: 1}, awaited=(0, 1))
    assert host.run(second, 1.0) == (6.0, 7.0)
    assert sorted(ended(second)) == [0, 1]
    third = plan(awaited=(0,))  # ended when the step was decided
    assert host.run(third, 7.0) == (7.0, 8.0)
    assert ended(third) == [2]


def test_with_nothing_to_compute_it_looks_around_until_a_transfer_ends() -> None:
    host = link()
    assert host.run(plan({0: 1}, computes=False), 2.0) == (2.0, 2.001)
    end = 2.001
    steps = 0
    while True:
        idle = plan(computes=False)
        _, end = host.run(idle, end)
        steps += 1
        if ended(idle):
            break
    assert end == pytest.approx(3.0)
    assert steps == pytest.approx(999, abs=1)


def test_the_longest_unused_chunk_goes_first() -> None:
    tier = HostTier(3)
    assert tier.write([1, 2, 3]) == [1, 2, 3]
    assert tier.write([4]) is None  # all are being written
    tier.was_written([1, 2, 3])
    tier.used([2, 1])
    tier.read([3])
    assert tier.write([4, 2]) == [4]  # 3 is being read and 2 is asked for: 1 goes
    assert [tier.has(name) for name in (1, 2, 3, 4)] == [False, True, True, True]
    assert [tier.is_ready(name) for name in (2, 3, 4)] == [True, True, False]
    assert tier.write([5, 6]) is None
    tier.was_read([3])
    tier.was_written([4])
    assert tier.write([5, 6]) == [5, 6]
    assert [tier.has(name) for name in (2, 3, 4)] == [False, False, True]
    with pytest.raises(DeploymentError, match="holds -1 chunks"):
        HostTier(-1)


HOST = {"kv_cache_memory_bytes": 6 << 30, "max_model_len": 32768}


def test_prompts_that_left_the_gpu_are_read_from_the_host() -> None:
    text = "poisson:rate=3,input=500,output=20,system=shared(24,4000),requests=120"
    found = {}
    for size in (0, 4 << 30, 64 << 30):
        settings = {**HOST, "kv_offload_bytes": size} if size else HOST
        run = Run(fit("llama-3.1-8b", "h100", **settings))
        records = list(run.serve(parse_workload(text, block_tokens=16).start()))
        assert len(records) == 120
        ttft = sum(record.ttft_seconds for record in records) / len(records)
        found[size] = (sum(record.cached_tokens for record in records), ttft)
        assert all(record.cached_tokens <= record.prompt_tokens for record in records)
    cached, ttfts = zip(*found.values(), strict=True)
    assert list(cached) == sorted(cached)
    assert cached[-1] > 1.5 * cached[0]
    assert ttfts[-1] < ttfts[0]


def test_the_host_holds_what_its_memory_holds() -> None:
    one = Run(fit("llama-3.1-8b", "h100", **HOST, kv_offload_bytes=64 << 30))
    two = Run(fit("llama-3.1-8b", "h100", **HOST, kv_offload_bytes=64 << 30, gpus=2, tp=2))
    block_bytes = 2 * 32 * 8 * 128 * 2 * 16
    for run in (one, two):  # a chunk is a block of all ranks
        assert run.engine.settings["kv_offloading_chunks"] == (64 << 30) // block_bytes
    seconds = one.engine.transfer_seconds
    assert seconds is not None
    # 2 MiB a block at 0.88 of 64 GB/s
    assert seconds(1000) == pytest.approx(1000 * block_bytes / 0.88 / 64e9, rel=0.02)


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("gemma-3-27b-it", {"max_model_len": 8192}, "full attention in every layer"),
        ("llama-3.1-8b", {"enable_prefix_caching": False}, "with prefix caching"),
        ("llama-3.1-8b", {"kv_connector": "LMCacheConnectorV1"}, "leave kv_connector out"),
        ("llama-3.1-8b", {"gpus": 2, "pp": 2}, "over pipeline stages"),
    ],
)
def test_what_is_not_simulated_beside_it_is_refused(
    model: str, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(DeploymentError, match=said):
        Run(fit(model, "h100", kv_offload_bytes=1 << 34, **settings))  # type: ignore[arg-type]
