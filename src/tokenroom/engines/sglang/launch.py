"""SGLang's settings as words of its server, in the flags of one version.

The reverse of :mod:`~tokenroom.engines.sglang.arguments`, by the same tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from tokenroom.engines.launch import (
    LaunchCommand,
    Option,
    asked_settings,
    assembled,
    checkpoint_notes,
    model_name,
    value_words,
)
from tokenroom.engines.policy import Deployment
from tokenroom.engines.sglang.flags import Flag, flags_of, nearest_version
from tokenroom.engines.sglang.rules import version_numbers
from tokenroom.engines.sglang.setting_names import RENAMED
from tokenroom.units import GIB

_SERVE_SINCE: Final = version_numbers("0.5.23")
"""``sglang serve`` as read there (sglang/cli/serve.py); every version has the module."""

_GB: Final = 10**9


def launch_command(deployment: Deployment) -> LaunchCommand:
    """The server with every setting that was asked for."""
    serves = version_numbers(deployment.version) >= _SERVE_SINCE
    return assembled(
        deployment,
        options(deployment),
        program=("sglang", "serve") if serves else ("python", "-m", "sglang.launch_server"),
        model=("--model-path", model_name(deployment)),
        notes=checkpoint_notes(deployment.spec, deployment.draft),
    )


def options(deployment: Deployment) -> tuple[Option, ...]:
    """How the settings that were asked for are written; what cannot be is left out."""
    flags = {flag.dest: flag for flag in flags_of(nearest_version(deployment.version))}
    asked = asked_settings(deployment.asked)
    found: list[Option] = []
    ruled: set[_Rule] = set()
    for name, value in asked.items():
        rule = _RULES.get(name)
        if rule is None:
            found += _option(flags, name, value)
        elif rule not in ruled:
            ruled.add(rule)
            found += rule(flags, asked)
    return tuple(found)


def _option(
    flags: Mapping[str, Flag], setting: str, value: Any, dest: str = ""
) -> tuple[Option, ...]:
    """A setting by a flag of its own name, or by one that means the same in this version."""
    names = [dest] if dest else [setting, *(old for old, own in RENAMED.items() if own == setting)]
    for name in names:
        if name in flags and (words := _words(flags[name], value)):
            return (Option(settings=(setting,), words=words),)
    return ()


def _words(flag: Flag, value: Any) -> tuple[str, ...]:
    """A flag with its value, empty when it cannot be told that value."""
    if isinstance(value, bool):
        if flag.kind not in ("flag", "switch"):  # kept only to be refused
            return ()
        off = (f"--no-{flag.name[2:]}",) if flag.kind == "switch" else ()
        return (flag.name,) if value else off
    if isinstance(value, tuple):
        if flag.kind == "json":
            return (flag.name, json.dumps(value))
        return (flag.name, *map(str, value)) if value else ()
    return value_words(flag.name, value)


_Rule: TypeAlias = Callable[[Mapping[str, Flag], Mapping[str, Any]], Iterable[Option]]


def _graphs(flags: Mapping[str, Flag], asked: Mapping[str, Any]) -> Iterable[Option]:
    """Graphs switched off, or on, by phase.

    Source: server_args.py 0.5.4 to 0.5.14, arg_groups/fields/exec_.py 0.5.23.
    """
    names = [name for name in ("decode_graphs", "prefill_graphs") if name in asked]
    switched = [asked[name] for name in names]
    if switched == [False, False] and "disable_cuda_graph" in flags:
        return [Option(settings=tuple(names), words=(flags["disable_cuda_graph"].name,))]
    return [
        option for name in names for option in _graphs_of(flags, name.split("_")[0], asked[name])
    ]


def _graphs_of(flags: Mapping[str, Flag], phase: str, on: bool) -> tuple[Option, ...]:
    setting, dest = f"{phase}_graphs", f"cuda_graph_backend_{phase}"
    if dest in flags:
        backend = {"decode": "full", "prefill": "breakable"}[phase] if on else "disabled"
        return _option(flags, setting, backend, dest)
    if phase == "decode":
        return ()
    switches = ("enforce", "enable") if on else ("disable",)
    found = (_option(flags, setting, True, f"{switch}_piecewise_cuda_graph") for switch in switches)
    return next((option for option in found if option), ())


def _offload(flags: Mapping[str, Flag], asked: Mapping[str, Any]) -> Iterable[Option]:
    """Whole GiB."""
    gib, rest = divmod(asked["cpu_offload_bytes"], GIB)
    return () if rest else _option(flags, "cpu_offload_bytes", gib, "cpu_offload_gb")


def _host_cache(flags: Mapping[str, Flag], asked: Mapping[str, Any]) -> Iterable[Option]:
    """Whole GB."""
    size, rest = divmod(asked["hicache_size_bytes"], _GB)
    return () if rest or not size else _option(flags, "hicache_size_bytes", size, "hicache_size")


def _all_to_all(flags: Mapping[str, Flag], asked: Mapping[str, Any]) -> Iterable[Option]:
    """A switch of its own for DeepEP, before there were others."""
    name, backend = "moe_a2a_backend", asked["moe_a2a_backend"]
    if name not in flags and backend == "deepep":
        return _option(flags, name, True, "enable_deepep_moe")
    return _option(flags, name, backend)


def _experts(flags: Mapping[str, Flag], asked: Mapping[str, Any]) -> Iterable[Option]:
    """Experts over all ranks: a switch until 0.5.2, their number of ranks since."""
    name = "enable_ep_moe"
    if found := _option(flags, name, asked[name]):
        return found
    if not asked[name] or "ep_size" in asked:
        return ()
    return _option(flags, name, asked.get("tp_size", 1), "ep_size")


_RULES: Final[Mapping[str, _Rule]] = {
    "decode_graphs": _graphs,
    "prefill_graphs": _graphs,
    "cpu_offload_bytes": _offload,
    "hicache_size_bytes": _host_cache,
    "enable_ep_moe": _experts,
    "moe_a2a_backend": _all_to_all,
}
"""Settings whose flags have other names or units than they."""
