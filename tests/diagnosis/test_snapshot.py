"""Memory snapshots of PyTorch: read without running anything, and told what failed."""

import io
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenroom.diagnosis.explain import Diagnosis, explain
from tokenroom.diagnosis.plain_pickle import begins_a_pickle, read_plain_pickle
from tokenroom.diagnosis.snapshot import snapshot_of
from tokenroom.errors import SnapshotError
from tokenroom.units import GIB, MIB


def frames(*names: str) -> list[dict[str, Any]]:
    return [
        {"filename": f"/env/vllm/{name}.py", "line": number, "name": name}
        for number, name in enumerate(names, start=10)
    ]


def block(size: int, state: str = "active_allocated", *names: str) -> dict[str, Any]:
    return {"size": size, "requested_size": size, "state": state, "frames": frames(*names)}


def segment(*blocks: dict[str, Any], pool: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    return {
        "device": 0,
        "address": 1,
        "total_size": sum(one["size"] for one in blocks),
        "segment_type": "large",
        "segment_pool_id": pool,
        "blocks": list(blocks),
    }


def oom(size: int, free: int, *names: str) -> dict[str, Any]:
    return {"action": "oom", "size": size, "device_free": free, "frames": frames(*names)}


def snapshot(*segments: dict[str, Any], trace: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"segments": list(segments), "device_traces": [list(trace)]}


WEIGHTS = segment(block(14 * GIB, "active_allocated", "empty", "create_weights", "load_model"))
PIECES = tuple(
    segment(block(3 * MIB, "active_allocated", "linear", "forward"), block(61 * MIB, "inactive"))
    for _ in range(64)
)


def diagnosed(data: Any, protocol: int = 4) -> Diagnosis:
    return explain(io.BytesIO(pickle.dumps(data, protocol=protocol)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_back_as_they_were(protocol: int) -> None:
    shared = frames("forward")
    data = {
        "a": [1, -1, 255, 65_536, 2**31, 2**40, -(2**63), 0.5, None, True, False],
        "b": ((), (1,), (1, 2), (1, 2, 3), tuple(range(300))),
        "text": ["", "KV 缓存", "x" * 300],
        "shared": [shared, shared],
        3: {},
    }
    assert read_plain_pickle(io.BytesIO(pickle.dumps(data, protocol=protocol))) == data


def test_enough_in_pieces_is_fragmentation() -> None:
    found = diagnosed(snapshot(WEIGHTS, *PIECES, trace=(oom(2 * GIB, 50 * MIB, "forward"),)))
    assert (str(found.cause), found.confidence) == ("fragmentation", "high")
    device = found.report.snapshot.devices[0]  # type: ignore[union-attr]
    assert device.shared_free_bytes == 64 * 61 * MIB
    assert device.largest_free_bytes == 61 * MIB
    assert device.fragmentation == pytest.approx(63 / 64)
    assert device.by_taker == {"weights": 14 * GIB, "activations": 64 * 3 * MIB}


@pytest.mark.parametrize(
    ("names", "cause", "phase"),
    [
        (("empty", "create_weights", "load_model"), "weights_too_big", "load"),
        (("zeros", "_allocate_kv_cache", "initialize_kv_cache"), "kv_preallocation", "kv_init"),
        (("linear", "forward", "profile_run"), "activation_peak", "profile"),
        (("linear", "forward", "execute_model"), "activation_peak", "runtime"),
        (("conv", "embed_multimodal", "profile_run"), "encoder_budget", "profile"),
        (("capture_one_batch_size", "forward"), "cuda_graphs", "graph_capture"),
    ],
)
def test_who_asked_for_what_failed_is_the_cause(
    names: tuple[str, ...], cause: str, phase: str
) -> None:
    found = diagnosed(snapshot(WEIGHTS, trace=(oom(2 * GIB, MIB, *names),)))
    assert (str(found.cause), str(found.phase)) == (cause, phase)


def test_without_stacks_what_holds_most_is_told_with_doubt() -> None:
    found = diagnosed(snapshot(WEIGHTS, trace=(oom(2 * GIB, MIB),)))
    assert (str(found.cause), found.confidence) == ("weights_too_big", "low")


def test_blocks_of_graphs_are_told_by_their_pool_and_not_lent_to_others() -> None:
    graphs = segment(
        block(GIB, "active_allocated", "linear"), block(4 * GIB, "inactive"), pool=(0, 7)
    )
    found = diagnosed(snapshot(WEIGHTS, graphs, trace=(oom(2 * GIB, MIB, "linear", "forward"),)))
    assert str(found.cause) == "activation_peak"
    device = found.report.snapshot.devices[0]  # type: ignore[union-attr]
    assert device.by_taker["graphs"] == GIB
    assert device.shared_free_bytes == 0


def _alloc(number: int, name: str) -> dict[str, Any]:
    return {"action": "alloc", "addr": number, "size": 256 * MIB, "frames": frames(name, "forward")}


def test_what_is_never_freed_is_a_leak() -> None:
    held = segment(*(block(256 * MIB, "active_allocated", "keep", "forward") for _ in range(20)))
    kept = tuple(_alloc(number, "keep") for number in range(20))
    assert str(diagnosed(snapshot(held, trace=kept)).cause) == "leak"
    freed = (*kept, {"action": "free_completed", "addr": 3})
    assert str(diagnosed(snapshot(held, trace=freed)).cause) == "unknown"


def test_a_snapshot_without_a_failure_has_no_cause() -> None:
    found = diagnosed(snapshot(WEIGHTS))
    assert (found.first, str(found.cause)) == (None, "unknown")


def test_old_snapshots_are_the_list_of_segments() -> None:
    assert snapshot_of([WEIGHTS]).devices[0].reserved_bytes == 14 * GIB


class _Runs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return subprocess.call, (["touch", str(self._path)],)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_in_a_pickle_runs(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "ran"
    data = pickle.dumps(snapshot(WEIGHTS) | {"allocator_settings": _Runs(trap)}, protocol=protocol)
    with pytest.raises(SnapshotError, match="more than plain values"):
        explain(io.BytesIO(data))
    assert not trap.exists()
    pickle.loads(data)  # the trap itself works
    assert trap.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04c__builtin__\nexec\n.",
        b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.",
        b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",  # an array of 2**63 bytes
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a text of as many
        b"\x80\x04X\xff\xff\xff\x7f.",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",  # a number of 2**31 bytes
        b"\x80\x04\x8a\xff" + b"\xff" * 255 + b".",
        b"\x80\x04h\x05.",
        b"\x80\x04e.",
        b"\x80\x04(e.",
        b"\x80\x04}]}s.",
        b"\x80\x04K\x01a.",
        b"\x80\x04\x87.",
        b"\x80\x04\x82\x01.",  # a registered extension
        b"\x80\x04" + b"]" * 100,  # cut off
    ],
)
def test_damaged_and_hostile_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        read_plain_pickle(io.BytesIO(data))


def test_kept_values_of_a_far_number_take_no_room() -> None:
    data = b"\x80\x04]r\xff\xff\xff\x7f."
    assert read_plain_pickle(io.BytesIO(data)) == []


def test_deep_values_are_read_and_dropped() -> None:
    deep = b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b"."
    with pytest.raises(SnapshotError, match="no memory snapshot"):
        snapshot_of({"segments": read_plain_pickle(io.BytesIO(deep))})


@pytest.mark.parametrize("data", [{}, {"segments": 3}, {"segments": [{}]}, [3], "text", 5])
def test_other_pickles_are_no_snapshots(data: Any) -> None:
    with pytest.raises(SnapshotError, match="no memory snapshot"):
        diagnosed(data)


def test_pickles_are_told_by_their_start() -> None:
    assert begins_a_pickle(pickle.dumps({}, protocol=4))
    assert not begins_a_pickle(b"INFO")
    assert not begins_a_pickle(b"")
