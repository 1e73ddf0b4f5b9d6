"""What helps, cheapest first, with the flag of that engine and what it would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

from tokenroom.diagnosis.finding import CauseName, Finding
from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.serving_speed import usual_speed


class Cost(IntEnum):
    """What a remedy costs, the least first."""

    NOTHING = 0
    SPEED = 1
    CAPACITY = 2
    QUALITY = 3
    HARDWARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a remedy changes, by the ledger before and after it.

    Attributes:
        starts: Whether the engine would start with it.
        pool_tokens: Tokens of the KV pool, before and after.
        activation_bytes: Activation peak on the governing GPU, before and after.
        weights_bytes: Weights there, before and after.
        ttft_ratio: Mean TTFT after over before, at a usual load; None where it is not known.
        tpot_ratio: Mean TPOT, likewise.
    """

    starts: bool
    pool_tokens: tuple[int, int]
    activation_bytes: tuple[int, int]
    weights_bytes: tuple[int, int]
    ttft_ratio: float | None
    tpot_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do.

    Attributes:
        key: Key of the sentence that says what, without ``explain.remedy.``.
        flag: What is written for that engine; empty where it is no flag.
        cost: What it costs.
        settings: The engine's settings that it changes, where the ledger can follow it.
        values: Figures of the sentence.
        effect: What it changes; None where the deployment is not known well enough.
    """

    key: str
    flag: str
    cost: Cost
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    effect: Effect | None = None


_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    # what: the flag of each engine, {value} filled in
    "length": {
        "vllm": "--max-model-len {value}",
        "sglang": "--context-length {value}",
        "tensorrt-llm": "--max_seq_len {value}",
        "llama.cpp": "-c {value}",
        "ollama": "num_ctx {value}",
        "tgi": "--max-total-tokens {value}",
    },
    "share": {
        "vllm": "--gpu-memory-utilization {value}",
        "sglang": "--mem-fraction-static {value}",
        "tensorrt-llm": "--kv_cache_free_gpu_memory_fraction {value}",
        "tgi": "--cuda-memory-fraction {value}",
    },
    "kv_type": {
        "vllm": "--kv-cache-dtype fp8",
        "sglang": "--kv-cache-dtype fp8_e4m3",
        "tensorrt-llm": "kv_cache_config.dtype: fp8",
        "llama.cpp": "-ctk q8_0 -ctv q8_0",
        "ollama": "OLLAMA_KV_CACHE_TYPE=q8_0",
    },
    "budget": {
        "vllm": "--max-num-batched-tokens {value}",
        "sglang": "--chunked-prefill-size {value}",
        "tensorrt-llm": "--max_num_tokens {value}",
        "llama.cpp": "-ub {value}",
        "ollama": "num_batch {value}",
        "tgi": "--max-batch-prefill-tokens {value}",
    },
    "requests": {
        "vllm": "--max-num-seqs {value}",
        "sglang": "--max-running-requests {value}",
        "tensorrt-llm": "--max_batch_size {value}",
        "llama.cpp": "-np {value}",
        "ollama": "OLLAMA_NUM_PARALLEL={value}",
    },
    "gpus": {
        "vllm": "--tensor-parallel-size {value}",
        "sglang": "--tp-size {value}",
        "tensorrt-llm": "--tp_size {value}",
        "tgi": "--num-shard {value}",
    },
    "no_graphs": {
        "vllm": "--enforce-eager",
        "sglang": "--disable-cuda-graph",
        "tensorrt-llm": "cuda_graph_config: null",
        "tgi": "--cuda-graphs 0",
    },
    "layers": {"llama.cpp": "-ngl {value}", "ollama": "num_gpu {value}"},
    "encoder": {
        "vllm": "--limit-mm-per-prompt '{\"image\": 1}'",
        "sglang": "--mm-max-concurrent-calls 1",
    },
}

_LARGEST_SHARE: Final = 0.97
"""The CUDA context and what allocators lose take the rest of a GPU."""

_PLAIN: Final[Mapping[CauseName, tuple[tuple[str, str, Cost], ...]]] = {
    # causes outside of the GPU's ledger: key, flag, cost
    CauseName.FRAGMENTATION: (
        ("expandable", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", Cost.NOTHING),
    ),
    CauseName.HOST_RAM: (
        ("container_memory", "--memory 128g", Cost.HARDWARE),
        ("fewer_copies", "", Cost.SPEED),
    ),
    CauseName.SHM: (
        ("shm_size", "--ipc=host", Cost.NOTHING),
        ("shm_clean", "rm -f /dev/shm/nccl-*", Cost.NOTHING),
    ),
    CauseName.LEAK: (
        ("leak_version", "", Cost.NOTHING),
        ("leak_limit", "", Cost.CAPACITY),
    ),
    CauseName.WRONG_DTYPE_LOAD: (
        ("stored_type", "--dtype bfloat16", Cost.NOTHING),
        ("quantized_checkpoint", "", Cost.NOTHING),
    ),
    CauseName.OTHER_PROCESS: (("stop_others", "nvidia-smi", Cost.NOTHING),),
}

_STEPS: Final[Mapping[CauseName, tuple[tuple[str, Cost], ...]]] = {
    # causes of the ledger: what changes, and what it costs
    CauseName.KV_POOL_TOO_SMALL: (
        ("share", Cost.NOTHING),
        ("length", Cost.CAPACITY),
        ("kv_type", Cost.QUALITY),
        ("gpus", Cost.HARDWARE),
    ),
    CauseName.KV_PREALLOCATION: (
        ("lower_share", Cost.CAPACITY),
        ("length", Cost.CAPACITY),
        ("kv_type", Cost.QUALITY),
        ("requests", Cost.CAPACITY),
    ),
    CauseName.ACTIVATION_PEAK: (
        ("budget", Cost.SPEED),
        ("requests", Cost.CAPACITY),
        ("lower_share", Cost.CAPACITY),
        ("gpus", Cost.HARDWARE),
    ),
    CauseName.ENCODER_BUDGET: (("encoder", Cost.CAPACITY), ("budget", Cost.SPEED)),
    CauseName.CUDA_GRAPHS: (
        ("lower_share", Cost.CAPACITY),
        ("requests", Cost.CAPACITY),
        ("no_graphs", Cost.SPEED),
    ),
    CauseName.WEIGHTS_TOO_BIG: (
        ("weights", Cost.QUALITY),
        ("layers", Cost.SPEED),
        ("gpus", Cost.HARDWARE),
    ),
    CauseName.COMPUTE_BUFFER: (
        ("budget", Cost.SPEED),
        ("length", Cost.CAPACITY),
        ("layers", Cost.SPEED),
    ),
    CauseName.NCCL_BUFFERS: (("lower_share", Cost.CAPACITY),),
    CauseName.OTHER_PROCESS: (("lower_share", Cost.CAPACITY),),
    CauseName.WRONG_DTYPE_LOAD: (("gpus", Cost.HARDWARE),),
    CauseName.MISCONFIGURATION: (
        ("share", Cost.NOTHING),
        ("lower_share", Cost.CAPACITY),
        ("budget", Cost.NOTHING),
    ),
}


def remedies(finding: Finding, engine: str | None, result: FitResult | None) -> list[Remedy]:
    """What helps against a cause, cheapest first; what is predicted not to start comes last.

    Args:
        finding: The cause.
        engine: The engine that wrote the log; None where it is not known.
        result: The deployment as far as the log gave it away; None where it did not.
    """
    found = [
        Remedy(key=key, flag=flag, cost=cost) for key, flag, cost in _PLAIN.get(finding.cause, ())
    ]
    for what, cost in _STEPS.get(finding.cause, ()):
        if not _applies(what, finding):
            continue
        remedy = _step(what, cost, engine, finding, result)
        if remedy is not None:
            found.append(remedy)
    known = [_with_effect(remedy, result) for remedy in found]
    return sorted(
        known, key=lambda one: (one.effect is not None and not one.effect.starts, one.cost)
    )


def _applies(what: str, finding: Finding) -> bool:
    """Whether a step is about the finding: settings that are wrong are wrong in one place."""
    if finding.reason == "sampler":
        return what in ("requests", "lower_share")  # its pass grows with requests alone
    if finding.cause is not CauseName.MISCONFIGURATION:
        return True
    wanted = {
        "static_share_low": {"share"},
        "mig_defaults": {"budget"},
        "hidden_oom": set[str](),
        "share_of_total": {"lower_share"},
    }
    return what in wanted.get(finding.reason, set())


def _step(
    what: str, cost: Cost, engine: str | None, finding: Finding, result: FitResult | None
) -> Remedy | None:
    """A step in the words of an engine; None where the engine has none."""
    name = "share" if what == "lower_share" else what
    if name == "weights":
        return Remedy(key="weights", flag="", cost=cost)
    flags = _FLAGS[name]
    spelled = flags.get(engine or "vllm")
    if spelled is None:
        return None
    value, settings = _value(what, finding, result)
    if what == "share" and float(str(value)) > _LARGEST_SHARE:
        return None
    return Remedy(
        key=what,
        flag=spelled.format(value=value),
        cost=cost,
        settings=settings,
        values={"value": value},
    )


def _value(what: str, finding: Finding, result: FitResult | None) -> tuple[object, dict[str, Any]]:
    """What a step sets, and the settings that the ledger follows it by."""
    plan = None if result is None else result.plan
    match what:
        case "length":
            longest = finding.values.get("longest")  # the engine's own figure is exact
            if longest is None and result is not None:
                longest = result.max_model_len_that_fits
            longest = longest or finding.values.get("tokens")
            number = int(str(longest).replace(",", "")) if longest else 4096
            return number, {"max_model_len": number}
        case "share" | "lower_share":
            share = _share(result, finding)
            value = round(share + 0.04 if what == "share" else max(0.3, share - 0.05), 2)
            return value, {"gpu_memory_utilization": value}
        case "kv_type":
            return "fp8", {"kv_cache_dtype": "fp8"}
        case "budget":
            asked = finding.values.get("tokens")
            own = None if result is None else _setting(result, "max_num_batched_tokens")
            number = int(str(asked)) if asked else own if isinstance(own, int) else 2048
            half = (
                max(256, number // 2) if finding.cause is not CauseName.MISCONFIGURATION else 8192
            )
            return half, {"max_num_batched_tokens": half}
        case "requests":
            told = finding.values.get("requests")
            most = int(str(told)) if told else 256 if plan is None else plan.max_num_seqs
            return max(1, most // 2), {"max_num_seqs": max(1, most // 2)}
        case "gpus":
            count = 1 if result is None else result.deployment.node.count
            return count * 2, {}
        case "no_graphs":
            return "", {"enforce_eager": True}
        case "layers":
            return 20, {}
    return "", {}


def _share(result: FitResult | None, finding: Finding) -> float:
    if result is not None:
        share = _setting(result, "gpu_memory_utilization")
        if isinstance(share, float):
            return share
    told = finding.values.get("share")
    try:
        share = float(str(told))
    except ValueError:
        return 0.9
    return 0.86 if finding.reason == "static_share_low" else share


def _setting(result: FitResult, name: str) -> object:
    setting = result.deployment.settings.get(name)
    return None if setting is None else setting.value


def _with_effect(remedy: Remedy, result: FitResult | None) -> Remedy:
    """The remedy with what it changes, where the deployment is known."""
    if result is None or not remedy.settings:
        return remedy
    try:
        changed = result.with_settings(**remedy.settings)
    except TokenroomError:
        return remedy
    before, after = result.governing_stage, changed.governing_stage
    return replace(
        remedy,
        effect=Effect(
            starts=changed.plan.refusal is None,
            pool_tokens=(result.plan.kv_pool_tokens, changed.plan.kv_pool_tokens),
            activation_bytes=(before.activation.num_bytes, after.activation.num_bytes),
            weights_bytes=(before.weights_bytes, after.weights_bytes),
            **_slower(result, changed),
        ),
    )


def _slower(before: FitResult, after: FitResult) -> dict[str, float | None]:
    """How much longer TTFT and TPOT take at a usual load."""
    one, two = usual_speed(before).speed, usual_speed(after).speed
    if one is None or two is None:
        return {"ttft_ratio": None, "tpot_ratio": None}
    return {
        "ttft_ratio": two.ttft_seconds.value / one.ttft_seconds.value,
        "tpot_ratio": two.tpot_seconds.value / one.tpot_seconds.value,
    }
