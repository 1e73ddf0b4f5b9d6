"""What helps, cheapest first, with the flag of that engine and what it would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import ceil, floor
from typing import Any, Final

from tokenroom.diagnosis.finding import CauseName, Finding, Phase
from tokenroom.diagnosis.remedy_effects import Effect, changed_by, effect_of, flag_of
from tokenroom.diagnosis.remedy_flags import BUDGETS, REQUESTS, SHARES, spelled
from tokenroom.diagnosis.sightings import Sighting
from tokenroom.fitting import FitResult
from tokenroom.units import GIB


class Cost(IntEnum):
    """What a remedy costs, the least first."""

    NOTHING = 0
    SPEED = 1
    CAPACITY = 2
    QUALITY = 3
    HARDWARE = 4


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
        doubtful: It may not be enough, by what the log tells of what is missing.
    """

    key: str
    flag: str
    cost: Cost
    settings: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    effect: Effect | None = None
    doubtful: bool = False


_LARGEST_SHARE: Final = 0.97
"""The CUDA context and what allocators lose take the rest of a GPU."""

_A_LITTLE_GIB: Final = 3.0
"""Four hundredths of a GPU of 80 GB."""

_PLAIN: Final[Mapping[CauseName, tuple[tuple[str, str, Cost], ...]]] = {
    # what is no setting of the engine: key, flag, cost
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

_BY_REASON: Final[Mapping[str, tuple[tuple[str, str, Cost], ...]]] = {
    "hidden_oom": (
        ("plain_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", Cost.NOTHING),
    ),
}

_STEPS: Final[Mapping[CauseName, tuple[tuple[str, Cost], ...]]] = {
    # settings: what changes, and what it costs
    CauseName.KV_POOL_TOO_SMALL: (
        ("share", Cost.NOTHING),
        ("budget", Cost.SPEED),
        ("length", Cost.CAPACITY),
        ("requests", Cost.CAPACITY),
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
    CauseName.ENCODER_BUDGET: (
        ("encoder", Cost.CAPACITY),
        ("budget", Cost.SPEED),
        ("requests", Cost.CAPACITY),
    ),
    CauseName.CUDA_GRAPHS: (
        ("no_graph_estimate", Cost.NOTHING),
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
    CauseName.HOST_RAM: (("prompt_cache", Cost.SPEED),),
    CauseName.NCCL_BUFFERS: (("lower_share", Cost.CAPACITY),),
    CauseName.FRAGMENTATION: (("lower_share", Cost.CAPACITY),),
    CauseName.OTHER_PROCESS: (("lower_share", Cost.CAPACITY),),
    CauseName.WRONG_DTYPE_LOAD: (("gpus", Cost.HARDWARE),),
    CauseName.MISCONFIGURATION: (
        ("share", Cost.NOTHING),
        ("lower_share", Cost.CAPACITY),
        ("budget", Cost.NOTHING),
    ),
}

_ONLY: Final[Mapping[str, frozenset[str]]] = {
    # reasons that some steps of the cause are about
    **dict.fromkeys(
        ("pool_below_length", "never_admitted", "no_tokens_for_one"),
        frozenset({"share", "budget", "length", "kv_type", "gpus"}),
    ),
    **dict.fromkeys(
        ("preemptions", "pool_full", "no_tokens_left"),
        frozenset({"share", "budget", "requests", "kv_type", "gpus"}),
    ),
    "no_blocks": frozenset({"share", "budget", "gpus"}),
    "static_share": frozenset({"share", "weights", "gpus"}),
    "quantized_while_loading": frozenset({"gpus"}),
    "sampler": frozenset({"requests", "lower_share"}),  # its pass grows with requests alone
    "encoder_of_every_request": frozenset({"requests"}),
    "encoder": frozenset({"encoder", "budget"}),
    "encoder_above_budget": frozenset({"encoder", "budget"}),
    "snapshot_asked": frozenset({"encoder", "budget", "lower_share", "length", "weights", "gpus"}),
    "graphs": frozenset({"lower_share", "requests", "no_graphs"}),
    "static_share_low": frozenset({"share"}),
    "mig_defaults": frozenset({"budget"}),
    "share_of_total": frozenset({"lower_share"}),
    "hidden_oom": frozenset({"lower_share", "length", "requests"}),
    "division": frozenset(),
    **dict.fromkeys(("host_ram", "container_limit", "killed", "killed_full"), frozenset[str]()),
}


_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    # what a value is called in a finding: each engine's names of the setting
    "share": (
        *("gpu_memory_utilization", "mem_fraction_static"),
        *("free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction"),
    ),
    "budget": (
        *("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens"),
        *("n_ubatch", "ubatch_size"),
    ),
    "requests": ("max_num_seqs", "max_running_requests", "max_batch_size", "n_parallel"),
    "length": ("max_model_len", "context_length", "max_seq_len", "n_ctx", "ctx_size"),
    "gpus": ("tensor_parallel_size", "tp_size", "tp"),
}


def remedies(
    finding: Finding,
    engine: str | None,
    result: FitResult | None,
    flags: Mapping[str, Any] | None = None,
) -> list[Remedy]:
    """What helps against a cause, cheapest first.

    What the ledger predicts not to start comes last, before it what may not be enough.

    Args:
        finding: The cause.
        engine: The engine that wrote the log; None where it is not known.
        result: The deployment as far as the log gave it away; None where it did not.
        flags: Arguments of the engine that the log names, for where it does not give away the rest.
    """
    finding = replace(finding, values=_own(flags or {}) | dict(finding.values))
    found = [
        Remedy(key=key, flag=flag, cost=cost)
        for key, flag, cost in _BY_REASON.get(finding.reason, ())
    ]
    found += [
        Remedy(key=key, flag=flag, cost=cost)
        for key, flag, cost in _PLAIN.get(finding.cause, ())
        if _suits(key, engine, finding)
    ]
    wanted = _ONLY.get(finding.reason)
    for what, cost in _STEPS.get(finding.cause, ()):
        if wanted is None or what in wanted:
            found += _step(what, cost, engine, finding, result)
    return sorted(
        found,
        key=lambda one: (
            one.effect is not None and not one.effect.starts,
            one.doubtful,
            one.key in _AFTER_ROOM and one.cost < Cost.QUALITY,
            one.cost,
        ),
    )


def _own(flags: Mapping[str, Any]) -> dict[str, object]:
    """What the engine was told, under the names that findings have for it."""
    return {
        what: value
        for what, names in _OWN.items()
        for value in [next((flags[name] for name in names if name in flags), None)]
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    }


def _suits(key: str, engine: str | None, finding: Finding) -> bool:
    """Whether a remedy that is no setting is one against this reason."""
    if key == "fewer_copies":
        return finding.phase is Phase.LOAD
    if key == "stored_type":
        return engine in (None, "vllm", "sglang") and finding.reason != "quantized_while_loading"
    return True


def _step(
    what: str, cost: Cost, engine: str | None, finding: Finding, result: FitResult | None
) -> Iterator[Remedy]:
    """A step in the words of an engine, with its effect; nothing where the engine has none."""
    name = engine or "vllm"  # whose values are tried where none is known; its flags are not told
    if what == "length" and name == "sglang":
        return  # its pool does not depend on how long requests may be
    if what == "requests" and finding.reason == "kv_buffer" and name == "llama.cpp":
        return  # they share the context that -c gives
    if (
        what == "lower_share"
        and finding.cause is CauseName.FRAGMENTATION
        and (engine is None or finding.phase is Phase.LOAD)
    ):
        return  # the share bounds the pool, which is made after the weights
    pool = finding.cause is CauseName.KV_POOL_TOO_SMALL
    if what == "budget" and pool and name not in ("vllm", "tensorrt-llm"):
        return  # only theirs takes what the largest step leaves
    made = _VALUES[what](name, finding, result) if what in _VALUES else ({}, "")
    if made is None:
        return
    settings, value = made
    flag = "" if what == "weights" else spelled(_SPELLED.get(what, what), name, value)
    if flag is None:
        return
    remedy = Remedy(
        key=what,
        flag="" if engine is None else flag,
        cost=cost,
        settings=settings,
        values={"value": value},
        doubtful=_doubtful(what, finding, result),
    )
    changed = changed_by(result, settings) if result is not None and settings else None
    if result is None or changed is None:
        yield remedy
        return
    effect = effect_of(result, changed)
    told = what == "length" and finding.reason == "pool_below_length"  # the engine says it helps
    starts = effect.starts and result.plan.refusal is not None
    if not (effect.changes or starts or told or finding.reason in _OF_THE_LOAD):
        return  # this deployment is not helped by it
    yield replace(
        remedy,
        key="weights_as" if what == "weights" else what,
        flag="" if what == "weights" else flag_of(result, changed) or flag,
        effect=effect,
        doubtful=False,
    )


_AFTER_ROOM: Final = frozenset({"no_graphs"})
"""What makes every token slower comes after what costs a little room."""

_OF_THE_LOAD: Final = frozenset({"preemptions", "pool_full", "no_tokens_left"})
"""Reasons against which fewer requests help, though the ledger is the same with them."""

_SPELLED: Final[Mapping[str, str]] = {"lower_share": "share"}


def _length(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """The longest that the engine itself found, or that the ledger does; otherwise half."""
    longest: object = finding.values.get("longest")
    if longest is None and result is not None:
        own = result.plan.max_model_len
        fits = result.max_model_len_that_fits
        longest = fits if 0 < fits < own else own // 2
    if longest is None:
        below = finding.reason in ("pool_below_length", "never_admitted")
        longest = finding.values.get("tokens") if below else None
    if longest is None and (length := _number(finding, "length")) is not None:
        longest = int(length) // 2
    number = int(str(longest).replace(",", "")) if longest else 4096
    return {"max_model_len": number}, number


def _more(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """As much more of the GPU as is missing, where that is known; None where there is none."""
    share = _share(engine, finding, result)
    missing, total = _missing_gib(finding), _total_gib(finding, result)
    more = 0.04
    if missing is not None and total is not None:
        # SGLang's own figures tell what an empty pool is short of: the step is the pool's
        step = more if finding.reason == "static_share" else 0.0
        more = ceil(100 * missing / total + 0.5) / 100 + step
    value = 0.86 if finding.reason == "static_share_low" else round(share + more, 2)
    return None if value > _LARGEST_SHARE else ({"gpu_memory_utilization": value}, value)


def _less(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """A little less of the GPU, or what others leave of it."""
    share = _share(engine, finding, result)
    value = max(0.3, share - 0.05)
    asked, left, size = (_size_gib(finding, name) for name in ("asked", "free", "capacity"))
    if finding.cause is CauseName.CUDA_GRAPHS and asked and size:
        value = share - ceil(100 * (asked - min(asked, left or 0.0)) / size) / 100
    if finding.reason == "fragments" and asked and size:
        value = share - ceil(100 * asked / size) / 100  # a piece of that size, beside the pieces
    free, total = _number(finding, "free"), _number(finding, "total")
    if finding.cause is CauseName.OTHER_PROCESS and free is not None and total:
        value = max(0.05, floor(100 * free / total) / 100 - 0.01)
    value = round(value, 2)
    return {"gpu_memory_utilization": value}, value


def _budget(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """Half of the tokens of a step; more of them where a slice made the default small."""
    if finding.cause is CauseName.MISCONFIGURATION:
        return {"max_num_batched_tokens": 8192}, 8192
    if finding.reason == "encoder_above_budget":
        item = int(_number(finding, "item") or 8192)
        return {"max_num_batched_tokens": item}, item
    own = _number(finding, "budget")
    if result is not None:
        own = _setting(result, *_OWN["budget"]) or own
    asked = _number(finding, "tokens") if finding.reason == "warmup" else None
    number = int(asked or own or BUDGETS.get(engine, 2048))
    half = max(64, number // 2)
    return {"max_num_batched_tokens": half}, half


def _requests(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """Half as many requests at once; None where only one runs."""
    told = _number(finding, "requests")
    most = told or (REQUESTS.get(engine) if result is None else result.plan.max_num_seqs)
    if most is None or most < 2:
        return None
    half = int(most) // 2
    return {"max_num_seqs": half}, half


def _gpus(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """Twice as many GPUs as the model is divided over."""
    told = _number(finding, "gpus") or 1
    own = None if result is None else _setting(result, "tensor_parallel_size")
    count = 2 * int(own or told)
    return {"tensor_parallel_size": count}, count


def _weights(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """Weights of 8 bits, or of 4 where 8 do not make them smaller or are not enough."""
    if result is None:
        return {}, ""
    smaller = None
    for layout in ("q8_0", "q4_k_m") if engine in ("llama.cpp", "ollama") else ("fp8", "awq"):
        changed = changed_by(result, {"weights": layout})
        if changed is not None and changed.weights_bytes < 0.9 * result.weights_bytes:
            smaller = layout
            if changed.plan.refusal is None:
                break
    return ({}, "") if smaller is None else ({"weights": smaller}, smaller)


def _layers(
    engine: str, finding: Finding, result: FitResult | None
) -> tuple[dict[str, Any], object] | None:
    """Three quarters of the layers that were to be on the GPU; None where none are counted."""
    placed = _number(finding, "layers")
    if placed is None and result is not None:
        placed = float(len(result.deployment.spec.layers) + 1)
    if placed is None or placed < 2:
        return None
    count = int(placed * 3 / 4)
    return {"n_gpu_layers": count}, count


_VALUES: Final = {
    "length": _length,
    "share": _more,
    "lower_share": _less,
    "kv_type": lambda engine, _finding, _result: (
        ({"kv_cache_dtype": "q8_0"}, "q8_0")
        if engine in ("llama.cpp", "ollama")
        else ({"kv_cache_dtype": "fp8_e4m3" if engine == "sglang" else "fp8"}, "fp8")
    ),
    "budget": _budget,
    "requests": _requests,
    "gpus": _gpus,
    "no_graphs": lambda _engine, _finding, _result: ({"enforce_eager": True}, ""),
    "prompt_cache": lambda _engine, _finding, _result: ({}, 512),
    "weights": _weights,
    "layers": _layers,
}
"""What a step sets, and the figure that is shown; steps without one set nothing."""


def _share(engine: str, finding: Finding, result: FitResult | None) -> float:
    """The share of the GPU that the engine takes."""
    if result is not None:
        own = _setting(result, *_OWN["share"])
        if own is not None:
            return own
    told = _number(finding, "share")
    return SHARES.get(engine, 0.9) if told is None else told


def _missing_gib(finding: Finding) -> float | None:
    """How much more memory the pool needs; None where the log does not tell."""
    needed, available = _number(finding, "needed"), _number(finding, "available")
    if needed is not None and available is not None:
        return needed - available
    return _number(finding, "missing")


def _doubtful(what: str, finding: Finding, result: FitResult | None) -> bool:
    """Whether a little more of the GPU, or smaller steps, may be too little.

    A length that the engine itself found is surer than a share that may suffice.
    """
    reasons = ("pool_below_length", "never_admitted", "no_blocks")
    if finding.reason not in reasons or what not in ("share", "budget"):
        return False
    missing = _missing_gib(finding)
    if missing is not None and _total_gib(finding, result) is not None:
        return what == "budget"
    return finding.reason != "no_blocks" or (missing or 0.0) > _A_LITTLE_GIB


def _total_gib(finding: Finding, result: FitResult | None) -> float | None:
    """The GPU's memory."""
    if result is not None:
        return result.governing_stage.total_bytes / GIB
    return _number(finding, "total")


def _size_gib(finding: Finding, name: str) -> float | None:
    """A size that the line has with its unit."""
    text = finding.values.get(name)
    size = Sighting("", 0, "", "", {name: str(text)}).size_bytes(name) if text else None
    return None if size is None else size / GIB


def _number(finding: Finding, name: str) -> float | None:
    try:
        return float(str(finding.values[name]).replace(",", ""))
    except (KeyError, ValueError):
        return None


def _setting(result: FitResult, *names: str) -> float | None:
    """The first of some settings that is a number."""
    for name in names:
        setting = result.deployment.settings.get(name)
        value = None if setting is None else setting.value
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
    return None
