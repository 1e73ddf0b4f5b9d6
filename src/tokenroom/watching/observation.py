"""What was seen at one moment: GPUs, endpoints with their replicas, and what is alarming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["waiting", "up", "down"]
Severity: TypeAlias = Literal["notice", "warning", "critical"]
Value: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A latency of the requests or tokens of a window, from a histogram's buckets.

    Attributes:
        count: How many were measured.
        mean_seconds: Their mean, which is exact.
        p50_seconds: Median, interpolated within its bucket.
        p90_seconds: As much for nine of ten.
        p99_seconds: As much for 99 of 100.
        beyond: The last bound, where the 99th percentile lies beyond it and is only known to be
            that much.
    """

    count: int
    mean_seconds: float
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    beyond: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a replica did since the watch began; restarts of the server do not take away from it.

    Attributes:
        prompt_tokens: Prompt tokens, cached ones included where the engine counts them so.
        generation_tokens: Tokens generated.
        requests: Requests that ended.
        preemptions: Requests that lost their KV blocks and were computed anew.
    """

    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    requests: int | None = None
    preemptions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine of an endpoint: a model on a data-parallel rank.

    Attributes:
        model: Name that it serves the model by.
        rank: Label of the engine or data-parallel rank; None where there is one only.
        running: Requests in the batch.
        waiting: Requests in the queue.
        kv_share: Share of the KV pool that requests hold, 0 to 1.
        kv_used_tokens: Tokens that they hold.
        kv_pool_tokens: Tokens of the pool.
        prompt_tokens_per_second: Since the scrape before.
        generation_tokens_per_second: Since the scrape before.
        requests_per_second: Requests that ended, since the scrape before.
        preemptions: Since the scrape before.
        prefix_hit_share: Share of prompt tokens found in the prefix cache over the window, 0 to 1.
        ttft: Time to the first token, over the window.
        itl: Time between tokens.
        tpot: Time for each further output token, a request at a time.
        queue: Time that requests waited.
        e2e: Time that requests took.
        totals: Since the watch began.
    """

    model: str | None
    rank: str | None
    running: int | None = None
    waiting: int | None = None
    kv_share: float | None = None
    kv_used_tokens: int | None = None
    kv_pool_tokens: int | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    requests_per_second: float | None = None
    preemptions: int | None = None
    prefix_hit_share: float | None = None
    ttft: Latency | None = None
    itl: Latency | None = None
    tpot: Latency | None = None
    queue: Latency | None = None
    e2e: Latency | None = None
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an endpoint tells of how it was started.

    Attributes:
        engine: ``vllm``, ``sglang``, ``tensorrt-llm``, ``llama.cpp`` or ``torch``.
        version: Its version.
        model: Name or path of what was loaded.
        max_model_len: Longest request in tokens.
        max_num_seqs: Requests that run at once at most.
        kv_pool_tokens: Tokens of the KV pool of one engine.
        kv_blocks: Its blocks.
        kv_block_tokens: Tokens of a block.
        kv_bytes: Bytes of the pool on a GPU.
        weights_bytes: Bytes of the weights on a GPU.
        graphs_bytes: Bytes that captured graphs took.
        settings: Settings under the engine's own names, as far as they matter for memory.
    """

    engine: str
    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    kv_pool_tokens: int | None = None
    kv_blocks: int | None = None
    kv_block_tokens: int | None = None
    kv_bytes: int | None = None
    weights_bytes: int | None = None
    graphs_bytes: int | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What was predicted for an endpoint, a GPU at a time (the one with the least room).

    Attributes:
        told_by: ``command`` or ``endpoint``: what says how it was started.
        assumed: What nobody told, in the engine's own names with the value taken.
        model: The model.
        gpu: Key of the GPU.
        gpus: How many.
        engine: The engine.
        version: Whose rules were applied.
        starts: Whether the engine would start.
        weights_bytes: Weights.
        activation_bytes: Activation peak.
        graphs_bytes: CUDA graphs.
        other_bytes: CUDA context, NCCL, workspaces, buffers and other processes.
        kv_pool_bytes: The KV pool.
        peak_bytes: All of these.
        kv_pool_tokens: Tokens of the pool of one engine.
        kv_pool_tokens_low: If the estimates err together as far as they were measured to.
        kv_pool_tokens_high: As much upwards.
        max_num_seqs: Requests that run at once at most.
        max_model_len: Longest request in tokens.
    """

    told_by: Literal["command", "endpoint"]
    assumed: tuple[str, ...] = ()
    model: str
    gpu: str
    gpus: int
    engine: str
    version: str
    starts: bool
    weights_bytes: int
    activation_bytes: int
    graphs_bytes: int
    other_bytes: int
    kv_pool_bytes: int
    peak_bytes: int
    kv_pool_tokens: int
    kv_pool_tokens_low: int
    kv_pool_tokens_high: int
    max_num_seqs: int
    max_model_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchMemory:
    """PyTorch's caching allocator on one GPU of a server that tells of it.

    Attributes:
        gpu: Label of the GPU.
        allocated_bytes: In tensors.
        reserved_bytes: Taken from the driver.
    """

    gpu: str
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server.

    Attributes:
        url: As it was named.
        status: ``waiting`` before its first answer, ``up``, or ``down``.
        since: When that began, in seconds since the epoch.
        error: Why it is down, in one sentence; None while it is up.
        restarts: How often it began anew while it was watched.
        scrape_seconds: How long its last answer took.
        facts: What it tells of how it was started; kept while it is down.
        no_plan: Why there is no prediction; None where there is one or none was asked for.
        planned: What was predicted.
        host_bytes: Resident memory of the process that serves the metrics.
        replicas: Its engines; empty while it is down.
        torch: PyTorch's allocator, where the server tells.
    """

    url: str
    status: Status
    since: float
    error: str | None = None
    restarts: int = 0
    scrape_seconds: float | None = None
    facts: Facts | None = None
    no_plan: str | None = None
    planned: Planned | None = None
    host_bytes: int | None = None
    replicas: tuple[Replica, ...] = ()
    torch: tuple[TorchMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU.

    Attributes:
        pid: Its number, of the namespace that the driver sees.
        name: Its program, where it may be read.
        used_bytes: Memory that it holds; None where the driver does not tell (WDDM, containers).
    """

    pid: int
    name: str | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG instance.

    Attributes:
        index: Of the driver, as ``0``; of an instance, as ``0:1``.
        uuid: Its own name.
        name: What the driver calls it.
        mig: Whether it is divided; None where the GPU cannot be.
        total_bytes: All of its memory.
        used_bytes: What is allocated.
        free_bytes: What is not.
        reserved_bytes: What the driver keeps; None of old drivers, which count it as used.
        busy_share: Share of the last period in which a kernel ran; None where it is not told.
        processes: Who computes on it; None where the driver does not tell.
    """

    index: str
    uuid: str
    name: str
    mig: bool | None
    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None
    busy_share: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """What helps against an alert.

    Attributes:
        key: Which, as in ``explain.remedy.KEY``.
        flag: What is written for that engine; empty where it is no flag.
        cost: What it costs, as in ``explain.cost.COST``.
        values: Figures of its sentence.
        starts: Whether the engine would start with it; None where that is not known.
        pool_tokens_before: Predicted tokens of the KV pool without it; None where not known.
        pool_tokens_after: And with it.
    """

    key: str
    flag: str
    cost: int
    values: Mapping[str, Value] = field(default_factory=dict)
    starts: bool | None = None
    pool_tokens_before: int | None = None
    pool_tokens_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that wants attention.

    Attributes:
        key: Which, as in ``watch.alert.KEY``.
        severity: How bad.
        subject: The endpoint's URL, with ``#RANK`` of one engine of several or ``#gpuINDEX`` of
            its allocator, or ``gpu:INDEX``, with ``/PID`` of one process.
        since: When it began, in seconds since the epoch.
        values: Figures of its sentence.
        helps: What helps, the cheapest first.
    """

    key: str
    severity: Severity
    subject: str
    since: float
    values: Mapping[str, Value] = field(default_factory=dict)
    helps: tuple[Help, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything at one moment.

    Attributes:
        time: When, in seconds since the epoch.
        interval_seconds: How often it is looked.
        window_seconds: Latencies and hit rates are of so long.
        gpus_error: Why no GPU is seen, as a key of ``watch.gpus``; None where there are some or
            none was asked for.
        gpus: GPUs and MIG instances.
        endpoints: Servers, in the order they were named.
        alerts: The gravest first.
    """

    time: float
    interval_seconds: float
    window_seconds: float
    gpus_error: str | None = None
    gpus: tuple[Gpu, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    alerts: tuple[Alert, ...] = ()
