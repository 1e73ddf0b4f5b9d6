"""What a memory snapshot of PyTorch holds: segments, blocks, who asked for them, and what failed.

Source of the form: torch/cuda/memory.py ``_snapshot`` and torch/csrc/cuda/memory_snapshot.cpp
(2.13); snapshots of 1.13 and 2.0 are the list of segments alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from tokenroom.errors import SnapshotError

Taker: TypeAlias = Literal["weights", "kv_cache", "graphs", "encoder", "activations", "other"]
"""What a block is for."""

TAKERS: Final[tuple[Taker, ...]] = get_args(Taker)
_NAMES: Final[tuple[tuple[Taker, tuple[str, ...]], ...]] = (
    # functions by whose name a block is told, of vLLM, SGLang, TGI, transformers and accelerate
    (
        "kv_cache",
        (
            *("_allocate_kv_cache", "initialize_kv_cache", "_allocate_kv_cache_tensors"),
            *("init_memory_pool", "alloc_memory_pool", "_create_buffers", "init_kv_cache"),
            *("lazy_initialization", "_prepare_4d_cache", "early_initialization"),
        ),
    ),
    ("graphs", ("capture_model", "_capture_cudagraphs", "capture", "capture_one_batch_size")),
    (
        "weights",
        (
            *(
                "load_model",
                "load_weights",
                "create_weights",
                "initialize_model",
                "from_pretrained",
            ),
            *("process_weights_after_loading", "load_state_dict", "_load_state_dict_into_model"),
            *("caching_allocator_warmup", "load_checkpoint_in_model", "_load_pretrained_model"),
        ),
    ),
    (
        "encoder",
        (
            *("embed_multimodal", "get_multimodal_embeddings", "get_image_features"),
            *("_process_image_input", "_process_video_input", "_execute_mm_encoder"),
        ),
    ),
    (
        "activations",
        (
            *("forward", "execute_model", "profile_run", "_dummy_run", "generate", "_call_impl"),
            *("forward_extend", "forward_decode", "compute_logits", "_dummy_sampler_run"),
        ),
    ),
)
_MOST_SITES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in a program that asked for memory.

    Attributes:
        where: File, line and function.
        taker: What for.
        num_bytes: What it holds.
        blocks: In how many blocks.
    """

    where: str
    taker: Taker
    num_bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An allocation that failed.

    Attributes:
        asked_bytes: What was asked for.
        free_bytes: What the GPU had free.
        where: Who asked; empty where no stacks were recorded.
        taker: What for.
        functions: The functions of the stack, the innermost first.
    """

    asked_bytes: int
    free_bytes: int
    where: str
    taker: Taker
    functions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What PyTorch holds of one GPU.

    Attributes:
        device: Its number.
        reserved_bytes: All segments.
        allocated_bytes: Blocks that tensors use, or that wait to be free.
        largest_free_bytes: The largest block that is kept unused, of the pool that everything but
            graphs uses.
        shared_free_bytes: All of that pool that is kept unused.
        free_blocks: In how many pieces.
        segments: How many segments.
        by_taker: Allocated bytes by what they are for.
        sites: Who holds most.
        growing: Sites that allocated again and again in the recorded history and freed nothing.
        failures: Allocations that failed, in their order.
    """

    device: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int
    shared_free_bytes: int
    free_blocks: int
    segments: int
    by_taker: Mapping[Taker, int]
    sites: tuple[Site, ...]
    growing: tuple[Site, ...]
    failures: tuple[Failure, ...]

    @property
    def unused_bytes(self) -> int:
        """What PyTorch keeps and no tensor uses."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def fragmentation(self) -> float:
        """The part of what is kept unused that is not in its largest piece, 0 to 1."""
        if not self.shared_free_bytes:
            return 0.0
        return 1 - self.largest_free_bytes / self.shared_free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """PyTorch's memory at one moment.

    Attributes:
        devices: GPUs on which it holds memory or had an allocation fail.
    """

    devices: tuple[DeviceMemory, ...]

    @property
    def failed(self) -> DeviceMemory | None:
        """The first GPU on which an allocation failed; None where none did."""
        return next((device for device in self.devices if device.failures), None)


def snapshot_of(data: object) -> Snapshot:
    """The figures of a snapshot.

    Args:
        data: What the pickle holds.

    Raises:
        SnapshotError: It is no snapshot.
    """
    if isinstance(data, list):
        data = {"segments": data}
    if not isinstance(data, dict) or not isinstance(data.get("segments"), list):
        raise SnapshotError(
            "this pickle is no memory snapshot: it has no segments; give what "
            "torch.cuda.memory._dump_snapshot wrote"
        )
    segments = [_checked(segment) for segment in data["segments"]]
    traces = data.get("device_traces")
    traces = traces if isinstance(traces, list) else []
    devices = {_whole(segment, "device") for segment in segments}
    devices |= {
        number
        for number, trace in enumerate(traces)
        if any(_entry(entry).get("action") == "oom" for entry in _list(trace))
    }
    return Snapshot(
        devices=tuple(
            _device(
                number,
                [segment for segment in segments if _whole(segment, "device") == number],
                _list(traces[number]) if number < len(traces) else [],
            )
            for number in sorted(devices)
        )
    )


def _device(number: int, segments: Sequence[dict[str, Any]], trace: list[Any]) -> DeviceMemory:
    free: list[int] = []
    by_taker: Counter[Taker] = Counter()
    held: Counter[tuple[str, Taker]] = Counter()
    blocks: Counter[tuple[str, Taker]] = Counter()
    for segment in segments:
        private = tuple(_list(segment.get("segment_pool_id"))) not in ((), (0, 0))
        for entry in _list(segment.get("blocks")):
            block = _entry(entry)
            size = _whole(block, "size")
            if block.get("state") == "inactive":
                free += [] if private else [size]
                continue
            frames = _list(block.get("frames"))
            taker: Taker = "graphs" if private else _taker(frames)
            by_taker[taker] += size
            held[site := (_where(frames), taker)] += size
            blocks[site] += 1
    return DeviceMemory(
        device=number,
        reserved_bytes=sum(_whole(segment, "total_size") for segment in segments),
        allocated_bytes=sum(by_taker.values()),
        largest_free_bytes=max(free, default=0),
        shared_free_bytes=sum(free),
        free_blocks=len(free),
        segments=len(segments),
        by_taker=dict(by_taker),
        sites=_sites(held, blocks),
        growing=_growing(trace),
        failures=tuple(_failures(trace)),
    )


def _sites(held: Counter[tuple[str, Taker]], blocks: Mapping[Any, int]) -> tuple[Site, ...]:
    return tuple(
        Site(where=where, taker=taker, num_bytes=size, blocks=blocks[where, taker])
        for (where, taker), size in held.most_common(_MOST_SITES)
        if where
    )


def _failures(trace: list[Any]) -> Iterator[Failure]:
    for one in trace:
        entry = _entry(one)
        if entry.get("action") == "oom":
            frames = _list(entry.get("frames"))
            yield Failure(
                asked_bytes=_whole(entry, "size"),
                free_bytes=_whole(entry, "device_free"),
                where=_where(frames),
                taker=_taker(frames),
                functions=tuple(str(_entry(frame).get("name", "")) for frame in frames),
            )


def _growing(trace: list[Any]) -> tuple[Site, ...]:
    """Sites whose blocks were all kept, many of them, while the history was recorded."""
    alive: dict[int, tuple[tuple[str, Taker], int]] = {}
    freed: set[tuple[str, Taker]] = set()
    for one in trace:
        entry = _entry(one)
        address = _whole(entry, "addr")
        if entry.get("action") == "alloc":
            frames = _list(entry.get("frames"))
            alive[address] = ((_where(frames), _taker(frames)), _whole(entry, "size"))
        elif entry.get("action") == "free_completed" and address in alive:
            freed.add(alive.pop(address)[0])
    held: Counter[tuple[str, Taker]] = Counter()
    blocks: Counter[tuple[str, Taker]] = Counter()
    for site, size in alive.values():
        if site not in freed:
            held[site] += size
            blocks[site] += 1
    return _sites(held, blocks)


def _taker(frames: list[Any]) -> Taker:
    """What a block is for, by the innermost function of its stack that tells."""
    for frame in frames:
        name = str(_entry(frame).get("name", ""))
        for taker, names in _NAMES:
            if name in names:
                return taker
    return "other"


def _where(frames: list[Any]) -> str:
    """The innermost place outside of PyTorch, otherwise the innermost; empty without a stack."""
    places = [
        (str(frame.get("filename", "")), frame.get("line"), str(frame.get("name", "")))
        for frame in map(_entry, frames)
    ]
    own = [
        place for place in places if place[0].endswith(".py") and "/torch/" not in place[0]
    ] or places
    if not own:
        return ""
    file, line, name = own[0]
    return f"{'/'.join(file.split('/')[-2:])}:{line} {name}"[:160]


def _checked(segment: object) -> dict[str, Any]:
    found = _entry(segment)
    if "total_size" not in found:
        raise SnapshotError(
            "this pickle is no memory snapshot: a segment has no total_size; give what "
            "torch.cuda.memory._dump_snapshot wrote"
        )
    return found


def _entry(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _whole(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
