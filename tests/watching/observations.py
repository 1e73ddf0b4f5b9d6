"""An observation with something in every field."""

from __future__ import annotations

from tokenroom.watching.observation import (
    Alert,
    Endpoint,
    Facts,
    Gpu,
    GpuProcess,
    Help,
    Latency,
    Observation,
    Planned,
    Replica,
    TorchMemory,
    Totals,
)

GIB = 2**30


def latency(scale: float, *, beyond: bool = False) -> Latency:
    return Latency(
        count=120,
        mean_seconds=0.12 * scale,
        p50_seconds=0.1 * scale,
        p90_seconds=0.2 * scale,
        p99_seconds=0.4 * scale,
        beyond=beyond,
    )


PLANNED = Planned(
    told_by="command",
    assumed=("gpus=1",),
    model="meta-llama/Llama-3.1-8B-Instruct",
    gpu="h100-sxm-80gb",
    gpus=1,
    engine="vllm",
    version="0.32.0",
    starts=True,
    weights_bytes=15 * GIB,
    activation_bytes=2 * GIB,
    graphs_bytes=GIB,
    other_bytes=GIB,
    kv_pool_bytes=51 * GIB,
    peak_bytes=70 * GIB,
    kv_pool_tokens=417_792,
    kv_pool_tokens_low=410_000,
    kv_pool_tokens_high=425_000,
    max_num_seqs=256,
    max_model_len=8192,
)

REPLICA = Replica(
    model="llama",
    rank=None,
    running=8,
    waiting=4,
    kv_share=0.873,
    kv_used_tokens=364_732,
    kv_pool_tokens=417_792,
    prompt_tokens_per_second=1234.5,
    generation_tokens_per_second=456.7,
    requests_per_second=3.5,
    preemptions=2,
    prefix_hit_share=0.45,
    ttft=latency(1.0, beyond=True),
    itl=latency(0.1),
    tpot=latency(0.11),
    queue=latency(0.5),
    e2e=latency(20.0),
    totals=Totals(
        prompt_tokens=1_000_000, generation_tokens=300_000, requests=2500, preemptions=17
    ),
)

OBSERVATION = Observation(
    time=1_796_059_697.25,
    interval_seconds=2.0,
    window_seconds=30.0,
    gpus=(
        Gpu(
            index="0",
            uuid="GPU-1",
            name="NVIDIA H100 80GB HBM3",
            mig=False,
            total_bytes=80 * GIB,
            used_bytes=71 * GIB,
            free_bytes=9 * GIB,
            reserved_bytes=GIB,
            busy_share=0.97,
            processes=(
                GpuProcess(pid=4242, name="VLLM::EngineCore", used_bytes=70 * GIB),
                GpuProcess(pid=77, name=None, used_bytes=None),
            ),
        ),
    ),
    endpoints=(
        Endpoint(
            url="http://127.0.0.1:8000",
            status="up",
            since=1_796_059_000.0,
            restarts=1,
            scrape_seconds=0.02,
            facts=Facts(
                engine="vllm",
                version="0.32.0",
                model="meta-llama/Llama-3.1-8B-Instruct",
                max_model_len=8192,
                kv_pool_tokens=417_792,
                settings={
                    "gpu_memory_utilization": 0.9,
                    "block_size": 16,
                    "kv_cache_dtype": "auto",
                },
            ),
            planned=PLANNED,
            host_bytes=3 * GIB,
            replicas=(REPLICA,),
            torch=(TorchMemory(gpu="0", allocated_bytes=5 * GIB, reserved_bytes=6 * GIB),),
        ),
        Endpoint(
            url="http://127.0.0.1:30000",
            status="down",
            since=1_796_059_600.0,
            error="http://127.0.0.1:30000/metrics: Connection refused",
            no_plan="the server does not tell its model; describe it with --as",
        ),
    ),
    alerts=(
        Alert(
            key="endpoint_down",
            severity="critical",
            subject="http://127.0.0.1:30000",
            since=1_796_059_600.0,
            values={"error": "http://127.0.0.1:30000/metrics: Connection refused"},
        ),
        Alert(
            key="kv_high",
            severity="warning",
            subject="http://127.0.0.1:8000",
            since=1_796_059_650.0,
            values={"share": 0.873, "waterline": 0.8},
            helps=(
                Help(
                    key="kv_type",
                    flag="--kv-cache-dtype fp8",
                    cost=3,
                    values={"value": "fp8"},
                    starts=True,
                    pool_tokens_before=417_792,
                    pool_tokens_after=835_584,
                ),
            ),
        ),
    ),
)
