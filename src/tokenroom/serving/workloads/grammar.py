"""Workloads as people write them: ``poisson:rate=5,input=lognormal(1024,0.8),output=200``.

A description is a name, a colon, and ``key=value`` parts between commas. The name is an arrival
process, ``users``, or a preset, whose own parts the written ones replace. A value is a number with
a unit where it needs one, or a name with arguments in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tokenroom.errors import WorkloadError, shown
from tokenroom.serving.workloads import arrivals, distributions
from tokenroom.serving.workloads.conversations import SystemPrompts, Talk
from tokenroom.serving.workloads.distributions import Pairs
from tokenroom.serving.workloads.synthetic import SyntheticWorkload
from tokenroom.serving.workloads.written_values import (
    CALL,
    WrittenValues,
    pair_of,
    seconds_of,
    split,
    tokens_of,
)

PROCESSES: Final[Mapping[str, tuple[str, ...]]] = {
    # name: the keys that it alone takes
    "poisson": ("rate",),
    "gamma": ("rate", "cv"),
    "constant": ("rate",),
    "diurnal": ("rate", "amplitude", "period", "rates"),
    "bursts": ("rate", "factor", "every", "lasting"),
    "batch": (),
    "users": ("count",),
}
"""Arrival processes by name, with the keys that describe each."""

COMMON_KEYS: Final = (
    *("input", "output", "lengths", "system", "turns", "think", "gap", "context"),
    *("requests", "duration", "seed", "priority", "process"),
)
"""Keys that every description takes."""

_DESCRIPTION = re.compile(r"[a-z][a-z-]*(:.*)?", re.DOTALL)


def is_description(text: str) -> bool:
    """Whether a text begins like a description: the name of a process or of a preset."""
    from tokenroom.serving.workloads.presets import load_presets

    name = text.partition(":")[0].strip()
    return bool(_DESCRIPTION.fullmatch(text.strip())) and (
        name in PROCESSES or name in load_presets()
    )


def parse_workload(
    text: str, *, block_tokens: int = 16, allow_files: bool = True
) -> SyntheticWorkload:
    """The workload that a description says.

    Args:
        text: The description.
        block_tokens: Tokens in a KV block of the deployment, for names of shared blocks.
        allow_files: Whether it may name files to draw from; not when others wrote it.

    Raises:
        WorkloadError: It names no process or preset, or a part cannot be meant.
    """
    name, keys = _resolved(text)
    reader = WrittenValues(name, keys, allow_files=allow_files)
    process = None
    users = None
    if name == "users":
        users = reader.whole("count")
    else:
        process = _process(reader)
    duration = reader.seconds("duration") if "duration" in keys else None
    requests = reader.whole("requests") if "requests" in keys else None
    return SyntheticWorkload(
        talk=Talk(
            lengths=_lengths(reader),
            turns=reader.distribution("turns", reader.number) if "turns" in keys else None,
            system=_system(reader) if "system" in keys else None,
            context_tokens=reader.tokens("context") if "context" in keys else None,
            block_tokens=block_tokens,
            priority=reader.whole("priority") if "priority" in keys else 0,
        ),
        process=process,
        users=users,
        think=reader.distribution("think", seconds_of) if "think" in keys else None,
        gap=reader.distribution("gap", seconds_of) if "gap" in keys else None,
        requests=1000 if requests is None and duration is None else requests,
        duration_seconds=duration,
        seed=reader.whole("seed") if "seed" in keys else 0,
    )


def _resolved(text: str) -> tuple[str, dict[str, str]]:
    """The process and the keys, a preset's own among them."""
    from tokenroom.serving.workloads.presets import load_presets

    name, _, rest = text.strip().partition(":")
    name = name.strip()
    presets = load_presets()
    if name not in PROCESSES and name not in presets:
        raise WorkloadError(
            f"the workload is {shown(text)}, which begins with neither a process "
            f"({', '.join(PROCESSES)}) nor a preset ({', '.join(presets)}); write it as in "
            "poisson:rate=5,input=1024,output=256"
        )
    keys = _keys(rest)
    if name in presets:
        base, own = _resolved(presets[name].workload)
        written = keys.pop("process", base)
        if written not in PROCESSES:
            raise WorkloadError(f"process is {shown(written)}; it may be {', '.join(PROCESSES)}")
        if written != base:
            alone = set(PROCESSES[base]) - set(PROCESSES[written])
            own = {key: value for key, value in own.items() if key not in alone}
            own |= {"count": "16"} if written == "users" and "count" not in keys else {}
        if "lengths" in keys or "input" in keys or "output" in keys:
            own.pop("lengths", None)
        if "lengths" in keys:
            own = {key: value for key, value in own.items() if key not in ("input", "output")}
        if "rates" in own and "rate" not in keys and "rates" in keys:
            own.pop("rate", None)
        if "duration" in keys:
            own.pop("requests", None)
        if "gap" in keys:
            own.pop("think", None)
        if "think" in keys:
            own.pop("gap", None)
        name, keys = written, own | keys
    elif "process" in keys:
        raise WorkloadError(f"process belongs to a preset; leave it out after {name}")
    allowed = (*PROCESSES[name], *COMMON_KEYS)
    for key in keys:
        if key not in allowed:
            raise WorkloadError(f"{name} has no {shown(key)}; it takes {', '.join(allowed[:-1])}")
    return name, keys


def _keys(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in split(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise WorkloadError(f"{shown(part)} is no KEY=VALUE; write it as in rate=5")
        if key in found:
            raise WorkloadError(f"{key} is written twice; write it once")
        found[key] = value
    return found


def _process(reader: WrittenValues) -> arrivals.ArrivalProcess:
    keys = reader.keys
    if reader.name == "batch":
        return arrivals.AtOnce()
    if reader.name == "diurnal" and "rates" in keys:
        if "amplitude" in keys:
            raise WorkloadError("diurnal has rates and amplitude; give one of them")
        period = reader.seconds("period") if "period" in keys else 86400.0
        table = _table(reader, period)
        return table.scaled_to(_rate(reader)) if "rate" in keys else table
    rate = _rate(reader)
    if reader.name == "gamma":
        cv = reader.positive("cv")
        if not 0.01 <= cv <= 100:
            raise WorkloadError(f"cv is {cv:g}; it may be 0.01 to 100")
        return arrivals.Renewal(rate=rate, cv=cv)
    if reader.name == "constant":
        return arrivals.Evenly(rate=rate)
    if reader.name == "diurnal":
        amplitude = reader.positive("amplitude") if "amplitude" in keys else 0.5
        if amplitude > 1:
            raise WorkloadError(f"amplitude is {amplitude:g}; it is a share of the rate, up to 1")
        period = reader.seconds("period") if "period" in keys else 86400.0
        return arrivals.Sinusoid(rate=rate, amplitude=amplitude, period_seconds=period)
    if reader.name == "bursts":
        return arrivals.bursts(
            rate=rate,
            factor=reader.positive("factor") if "factor" in keys else 3.0,
            every_seconds=reader.seconds("every") if "every" in keys else 600.0,
            lasting_seconds=reader.seconds("lasting") if "lasting" in keys else 60.0,
        )
    return arrivals.Renewal(rate=rate)


def _rate(reader: WrittenValues) -> float:
    found = reader.rate(reader.text("rate"), "rate")
    if not found:
        raise WorkloadError("rate is 0; it must be above 0")
    return found


def _table(reader: WrittenValues, period: float) -> arrivals.RateTable:
    call = CALL.fullmatch(reader.text("rates").strip())
    if call is None or call[1] != "table":
        raise WorkloadError(
            f"rates is {shown(reader.text('rates'))}; write table(TIME:RATE,...), as in "
            "table(0h:2,8h:9,20h:4)"
        )
    pairs = [pair_of(argument, "rates") for argument in split(call[2])]
    if not pairs:
        raise WorkloadError("rates is an empty table; write it as in table(0h:2,8h:9,20h:4)")
    return arrivals.RateTable(
        starts_seconds=tuple(seconds_of(time, "rates") for time, _ in pairs),
        rates=tuple(reader.rate(rate, "rates") for _, rate in pairs),
        period_seconds=period,
    )


def _lengths(reader: WrittenValues) -> Pairs:
    if "lengths" in reader.keys:
        if "input" in reader.keys or "output" in reader.keys:
            raise WorkloadError("lengths says input and output; leave those out, or lengths")
        text = reader.text("lengths")
        call = CALL.fullmatch(text.strip())
        if call is None or call[1] != "trace":
            raise WorkloadError(f"lengths is {shown(text)}; write trace(FILE)")
        from tokenroom.serving.workloads.trace import Trace

        reader.check_file("lengths", text)
        pairs = list(Trace(call[2].strip()).lengths())
        if not pairs:
            raise WorkloadError(f"{shown(call[2])} holds no lengths; give a trace with requests")
        return distributions.Observed(pairs=pairs)
    return distributions.Apart(
        prompt=reader.distribution("input", tokens_of),
        output=reader.distribution("output", tokens_of),
    )


def _system(reader: WrittenValues) -> SystemPrompts:
    text = reader.text("system")
    call = CALL.fullmatch(text.strip())
    if call is None:
        return SystemPrompts(count=1, tokens=tokens_of(text, "system"))
    arguments = split(call[2])
    if call[1] != "shared" or len(arguments) != 2:
        raise WorkloadError(
            f"system is {shown(text)}; write the tokens of one system prompt, or shared(N,TOKENS)"
        )
    return SystemPrompts(
        count=int(reader.number(arguments[0], "system")), tokens=tokens_of(arguments[1], "system")
    )
