"""Workloads as people write them: ``poisson:rate=5,input=lognormal(1024,0.8),output=200``.

A description is a name, a colon, and ``key=value`` parts between commas. The name is an arrival
process, ``users``, or a preset, whose own parts the written ones replace. A value is a number with
a unit where it needs one, or a name with arguments in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tokenroom.errors import TokenroomError, WorkloadError, shown
from tokenroom.serving.workloads import arrivals, distributions
from tokenroom.serving.workloads.conversations import SystemPrompts, Talk
from tokenroom.serving.workloads.distributions import Distribution, Pairs
from tokenroom.serving.workloads.synthetic import SyntheticWorkload
from tokenroom.serving.workloads.values import MAX_LENGTH_TOKENS
from tokenroom.units import parse_tokens

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

_TIME: Final = {
    **{"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0},
    **{"h": 3600.0, "d": 86400.0},
}
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)")
_DESCRIPTION = re.compile(r"[a-z][a-z-]*(:.*)?", re.DOTALL)
_CALL = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
_MAX_SECONDS: Final = 1e10
_MAX_NUMBERS_BYTES: Final = 2**26


def is_description(text: str) -> bool:
    """Whether a text begins like a description: the name of a process or of a preset."""
    from tokenroom.serving.workloads.presets import load_presets

    name = text.partition(":")[0].strip()
    return bool(_DESCRIPTION.fullmatch(text.strip())) and (
        name in PROCESSES or name in load_presets()
    )


def parse_workload(text: str, *, block_tokens: int = 16) -> SyntheticWorkload:
    """The workload that a description says.

    Args:
        text: The description.
        block_tokens: Tokens in a KV block of the deployment, for names of shared blocks.

    Raises:
        WorkloadError: It names no process or preset, or a part cannot be meant.
    """
    name, keys = _resolved(text)
    reader = _Reader(name, keys)
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


def split(text: str) -> list[str]:
    """The parts between commas outside of parentheses.

    Raises:
        WorkloadError: Parentheses do not match.
    """
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                break
        elif letter == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise WorkloadError(f"the parentheses in {shown(text)} do not match")
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def seconds_of(text: str, field: str) -> float:
    """A time written as ``30s``, ``10m``, ``1.5h``, ``1d`` or ``250ms``; 0 needs no unit.

    Raises:
        WorkloadError: It is none.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is not None and (match[2] in _TIME or float(match[1]) == 0):
        seconds = float(match[1]) * _TIME.get(match[2], 1.0)
        if seconds <= _MAX_SECONDS:
            return seconds
    raise WorkloadError(f"{field} is {shown(text)}; write a time with a unit, as 30s, 10m or 24h")


class _Reader:
    """The values of a description's keys."""

    def __init__(self, name: str, keys: Mapping[str, str]) -> None:
        self.name = name
        self.keys = keys

    def text(self, key: str) -> str:
        if key not in self.keys:
            raise WorkloadError(f"{self.name} needs {key}; write it as in {_EXAMPLES[key]}")
        return self.keys[key]

    def number(self, text: str, field: str) -> float:
        match = _NUMBER.fullmatch(text.strip())
        if match is None or match[2] or not 0 <= float(match[1]) < 1e15:
            raise WorkloadError(f"{field} is {shown(text)}; write a number, as {_example(field)}")
        return float(match[1])

    def positive(self, key: str) -> float:
        found = self.number(self.text(key), key)
        if not found:
            raise WorkloadError(f"{key} is 0; it must be above 0")
        return found

    def whole(self, key: str) -> int:
        text = self.text(key)
        digits = text.removeprefix("-") if key == "priority" else text
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
            raise WorkloadError(f"{key} is {shown(text)}; write a whole number, as {_example(key)}")
        return int(text)

    def tokens(self, key: str) -> int:
        return _tokens(self.text(key), key)

    def seconds(self, key: str) -> float:
        found = seconds_of(self.text(key), key)
        if not found:
            raise WorkloadError(f"{key} is 0; it must be a time above 0")
        return found

    def rate(self, text: str, field: str) -> float:
        """Requests a second: a number alone, or by the minute, hour or day."""
        head, slash, unit = text.partition("/")
        per = _TIME.get(unit.strip(), 0.0) if slash else 1.0
        if not per:
            raise WorkloadError(f"{field} is {shown(text)}; write a rate, as 5, 5/s or 300/min")
        return self.number(head, field) / per

    def distribution(self, key: str, number: Callable[[str, str], float]) -> Distribution:
        """A number, or a distribution of numbers."""
        text = self.text(key)
        call = _CALL.fullmatch(text.strip())
        if call is None:
            return distributions.Constant(value=number(text, key))
        name, arguments = call[1], split(call[2])
        if name == "empirical" and len(arguments) == 1:
            return distributions.Empirical(values=_numbers(arguments[0], key))
        if name == "quantiles" and arguments:
            pairs = [_pair(argument, key) for argument in arguments]
            return distributions.Quantiles(
                percents=tuple(self.number(share, key) for share, _ in pairs),
                values=tuple(number(value, key) for _, value in pairs),
            )
        known = {
            "constant": (1, 1),
            "uniform": (2, 2),
            "lognormal": (2, 3),
            "exponential": (1, 1),
            "geometric": (1, 1),
        }
        if name not in known:
            raise WorkloadError(
                f"{key} is {shown(text)}; distributions are {', '.join(known)}, empirical(FILE) "
                "and quantiles(0:A,50:B,100:C)"
            )
        fewest, most = known[name]
        if not fewest <= len(arguments) <= most:
            raise WorkloadError(
                f"{key} is {shown(text)}; {name} takes {fewest if fewest == most else '2 or 3'} "
                "numbers"
            )
        if name == "lognormal":
            largest = number(arguments[2], key) if len(arguments) == 3 else None
            sigma = self.number(arguments[1], key)
            if sigma > 10:
                raise WorkloadError(
                    f"{key} is {shown(text)}; its second number is the standard deviation of the "
                    "logarithm, which is at most 10"
                )
            return distributions.LogNormal(
                median=number(arguments[0], key), sigma=sigma, largest=largest
            )
        values = [number(argument, key) for argument in arguments]
        if name == "uniform":
            return distributions.Uniform(low=values[0], high=values[1])
        if name == "exponential":
            return distributions.Exponential(mean=values[0])
        if name == "geometric":
            return distributions.Geometric(mean=values[0])
        return distributions.Constant(value=values[0])


def _process(reader: _Reader) -> arrivals.ArrivalProcess:
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


def _rate(reader: _Reader) -> float:
    found = reader.rate(reader.text("rate"), "rate")
    if not found:
        raise WorkloadError("rate is 0; it must be above 0")
    return found


def _table(reader: _Reader, period: float) -> arrivals.RateTable:
    call = _CALL.fullmatch(reader.text("rates").strip())
    if call is None or call[1] != "table":
        raise WorkloadError(
            f"rates is {shown(reader.text('rates'))}; write table(TIME:RATE,...), as in "
            "table(0h:2,8h:9,20h:4)"
        )
    pairs = [_pair(argument, "rates") for argument in split(call[2])]
    if not pairs:
        raise WorkloadError("rates is an empty table; write it as in table(0h:2,8h:9,20h:4)")
    return arrivals.RateTable(
        starts_seconds=tuple(seconds_of(time, "rates") for time, _ in pairs),
        rates=tuple(reader.rate(rate, "rates") for _, rate in pairs),
        period_seconds=period,
    )


def _lengths(reader: _Reader) -> Pairs:
    if "lengths" in reader.keys:
        if "input" in reader.keys or "output" in reader.keys:
            raise WorkloadError("lengths says input and output; leave those out, or lengths")
        text = reader.text("lengths")
        call = _CALL.fullmatch(text.strip())
        if call is None or call[1] != "trace":
            raise WorkloadError(f"lengths is {shown(text)}; write trace(FILE)")
        from tokenroom.serving.workloads.trace import Trace

        pairs = list(Trace(call[2].strip()).lengths())
        if not pairs:
            raise WorkloadError(f"{shown(call[2])} holds no lengths; give a trace with requests")
        return distributions.Observed(pairs=pairs)
    return distributions.Apart(
        prompt=reader.distribution("input", _tokens),
        output=reader.distribution("output", _tokens),
    )


def _system(reader: _Reader) -> SystemPrompts:
    text = reader.text("system")
    call = _CALL.fullmatch(text.strip())
    if call is None:
        return SystemPrompts(count=1, tokens=_tokens(text, "system"))
    arguments = split(call[2])
    if call[1] != "shared" or len(arguments) != 2:
        raise WorkloadError(
            f"system is {shown(text)}; write the tokens of one system prompt, or shared(N,TOKENS)"
        )
    return SystemPrompts(
        count=int(reader.number(arguments[0], "system")), tokens=_tokens(arguments[1], "system")
    )


def _pair(text: str, key: str) -> tuple[str, str]:
    first, colon, second = (piece.strip() for piece in text.partition(":"))
    if not colon or not first or not second:
        raise WorkloadError(f"{key} has {shown(text)}, which is no pair such as 50:1024")
    return first, second


def _tokens(text: str, field: str) -> int:
    try:
        found = parse_tokens(text, field)
    except TokenroomError as problem:
        raise WorkloadError(str(problem)) from None
    if found > MAX_LENGTH_TOKENS:
        raise WorkloadError(
            f"{field} is {found:,} tokens; a length is at most {MAX_LENGTH_TOKENS:,}"
        )
    return found


def _numbers(path: str, key: str) -> list[float]:
    """The numbers of a text file, between blanks, commas or line ends."""
    from tokenroom.files import read_bounded_text

    name = Path(path).name
    text = read_bounded_text(
        path, _MAX_NUMBERS_BYTES, what=f"{key} of {name}", error=WorkloadError, streams=True
    )
    found: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.replace(",", " ").split():
            try:
                value = float(word)
            except ValueError:
                value = -1.0
            if not 0 <= value <= MAX_LENGTH_TOKENS:
                raise WorkloadError(
                    f"{name}, line {number}: {shown(word)} is no number from 0 to "
                    f"{MAX_LENGTH_TOKENS:,}; give a file of {key} numbers"
                )
            found.append(value)
    if not found:
        raise WorkloadError(f"{name} holds no number; give a file of {key} numbers")
    return found


_EXAMPLES: Final = {
    "rate": "rate=5",
    "cv": "cv=2",
    "count": "count=32",
    "input": "input=lognormal(1024,0.8)",
    "output": "output=256",
}


def _example(field: str) -> str:
    return _EXAMPLES.get(field, "=5").partition("=")[2]
