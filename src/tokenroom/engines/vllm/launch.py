"""vLLM's settings as words of ``vllm serve``, in the flags of one version.

The reverse of :mod:`~tokenroom.engines.vllm.engine_args`: names, kinds and choices come from the
same table of flags, so that a version writes what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
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
from tokenroom.engines.vllm.config_keys import known_keys
from tokenroom.engines.vllm.engine_args import drafting_method
from tokenroom.engines.vllm.flags import Flag, flags_of, nearest_version, version_key
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.units import GIB

_SERVE_SINCE: Final = (0, 5, 3)
"""``vllm serve`` (vllm/scripts.py); before, the API server is started as a module."""
_SERVER_MODULE: Final = "vllm.entrypoints.openai.api_server"

_GIB_FLAGS: Final[Mapping[str, str]] = {
    "cpu_offload_bytes": "cpu_offload_gb",
    "kv_offload_bytes": "kv_offloading_size",
    "mm_ipc_gpu_memory_bytes": "mm_ipc_gpu_memory_gb",
}
_ONE_NAME_SINCE: Final = (0, 11)
"""``mtp`` is a method of every model (config/speculative.py); before, each has a name."""
_MTP_NAMES: Final[Mapping[str, str]] = {
    "ernie4_5_moe": "ernie_mtp",
    "qwen3_next": "qwen3_next_mtp",
}
_OLD_DRAFT_FLAGS: Final[Mapping[str, str]] = {
    "model": "speculative_model",
    "num_speculative_tokens": "num_speculative_tokens",
    "draft_tensor_parallel_size": "speculative_draft_tensor_parallel_size",
    "max_model_len": "speculative_max_model_len",
    "quantization": "speculative_model_quantization",
}
"""Flags until 0.8."""


def launch_command(deployment: Deployment) -> LaunchCommand:
    """``vllm serve MODEL`` with every setting that was asked for."""
    model = model_name(deployment)
    serves = version_key(deployment.version) >= _SERVE_SINCE
    return assembled(
        deployment,
        options(deployment),
        program=("vllm", "serve") if serves else ("python", "-m", _SERVER_MODULE),
        model=(model,) if serves else ("--model", model),
        notes=checkpoint_notes(deployment.spec, deployment.draft),
    )


def options(deployment: Deployment) -> tuple[Option, ...]:
    """How the settings that were asked for are written; what cannot be is left out."""
    version = nearest_version(deployment.version)
    form = _Form(
        number=version_key(version),
        flags={flag.dest: flag for flag in flags_of(version)},
        model_type=deployment.spec.model_type,
    )
    asked = asked_settings(deployment.asked)
    found: list[Option] = []
    ruled: set[_Rule] = set()
    for name, value in asked.items():
        rule = _RULES.get(name)
        if rule is None:
            found += form.option(name, value)
        elif rule not in ruled:
            ruled.add(rule)
            found += rule(form, asked)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How one version writes.

    Attributes:
        number: The version.
        flags: Engine argument to its flag.
        model_type: Of the model, for what depends on it.
    """

    number: tuple[int, ...]
    flags: Mapping[str, Flag]
    model_type: str

    def option(self, setting: str, value: Any, dest: str = "") -> tuple[Option, ...]:
        """A setting by the flag of an engine argument, nothing when it cannot be told it."""
        words = self.words(dest or setting, value)
        return (Option(settings=(setting,), words=words),) if words else ()

    def words(self, dest: str, value: Any) -> tuple[str, ...]:
        """The flag of an engine argument with a value."""
        return _words(self.flags[dest], value) if dest in self.flags else ()


def _words(flag: Flag, value: Any) -> tuple[str, ...]:
    """A flag with its value, empty when this version cannot be told that value."""
    if isinstance(value, bool):
        return _switch_words(flag, value)
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not values or (flag.choices and any(item not in flag.choices for item in values)):
        return ()
    if flag.optional and str(value) in ("", "None"):
        return ()
    if flag.kind in ("int", "float") and not all(isinstance(item, int | float) for item in values):
        return ()
    if flag.kind in ("json", "config") and not isinstance(value, Mapping):
        return ()
    if flag.kind == "key-values":
        return (flag.name, ",".join(f"{key}={count}" for key, count in value.items()))
    if isinstance(value, Mapping):
        try:
            json.dumps(value)
        except (TypeError, ValueError):  # a Python object, which no command line holds
            return ()
    return value_words(flag.name, value)


def _switch_words(flag: Flag, value: bool) -> tuple[str, ...]:
    if flag.kind == "bool-value":
        return (flag.name, str(value).lower())
    if value:
        return (flag.name,)
    return flag.negative_names[:1]


_Rule: TypeAlias = Callable[[_Form, Mapping[str, Any]], Iterable[Option]]
"""How settings that share a flag, or have none of their name, are written."""


def _sizes(form: _Form, asked: Mapping[str, Any]) -> Iterator[Option]:
    """Sizes that vLLM takes in GiB."""
    for name, dest in _GIB_FLAGS.items():
        if name in asked:
            gib = asked[name] / GIB
            yield from form.option(name, int(gib) if gib.is_integer() else gib, dest)


def _graphs(form: _Form, asked: Mapping[str, Any]) -> Iterator[Option]:
    """CUDA graphs: flags where the version has them, keys of ``--compilation-config`` elsewhere."""
    config: dict[str, Any] = {}
    held: list[str] = []
    for name, keys in _graph_keys(asked).items():
        found = form.option(name, asked[name])
        if not found and name == "max_cudagraph_capture_size" and asked[name]:
            found = form.option(name, asked[name], "cuda_graph_sizes")
        yield from found
        known = _compilation_keys(form) & keys.keys()
        if known and not found:
            held.append(name)
            key = next(key for key in keys if key in known)
            config[key] = keys[key]
    if config:
        words = form.words("compilation_config", config)
        yield Option(settings=tuple(held), words=words)


def _graph_keys(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each setting of graphs with the keys of ``--compilation-config`` that say it, newest first.

    Source: ``CompilationConfig``, config/compilation.py (0.6.6 to 0.33.0).
    """
    mode, graphs = asked.get("compilation_mode"), asked.get("cudagraph_mode")
    old = {"FULL": {"full_cuda_graph": True}, "NONE": {"use_cudagraph": False}}
    keys = {
        "cudagraph_capture_sizes": {
            "cudagraph_capture_sizes": asked.get("cudagraph_capture_sizes")
        },
        "max_cudagraph_capture_size": {},
        "compilation_mode": {"mode": mode, "level": mode},
        "cudagraph_mode": {"cudagraph_mode": graphs, **old.get(str(graphs), {})},
    }
    return {name: said for name, said in keys.items() if name in asked}


def _compilation_keys(form: _Form) -> frozenset[str]:
    if "compilation_config" not in form.flags:
        return frozenset()
    return known_keys("CompilationConfig", form.number)


def _level(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    return form.option("optimization_level", str(asked["optimization_level"]))


def _pixels(form: _Form, asked: Mapping[str, Any]) -> Iterator[Option]:
    """What the processor is told, the limit of pixels among it."""
    told = dict(asked.get("mm_processor_kwargs", {}))
    if "mm_processor_max_pixels" in asked:
        told["max_pixels"] = asked["mm_processor_max_pixels"]
    if words := form.words("mm_processor_kwargs", told):
        names = {"mm_processor_kwargs", "mm_processor_max_pixels"} & asked.keys()
        yield Option(settings=tuple(sorted(names)), words=words)


def _encoder_mode(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    name, mode = "mm_encoder_tp_mode", asked["mm_encoder_tp_mode"]
    if name not in form.flags and mode == "data":
        return form.option(name, True, "enable_multimodal_encoder_data_parallel")
    return form.option(name, mode)


def _backend(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    """The attention backend: a variable before it had a flag (0.13)."""
    name = "attention_backend"
    if name in form.flags:
        return form.option(name, asked[name])
    return [Option(settings=(name,), environment={"VLLM_ATTENTION_BACKEND": asked[name]})]


def _overrides(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    """``--hf-overrides``; in versions without it the two flags that some keys had."""
    name, overrides = "hf_overrides", asked["hf_overrides"]
    if name in form.flags:
        return form.option(name, overrides)
    parts = [form.words(key, value) for key, value in overrides.items()]
    if not all(parts):
        return []
    return [Option(settings=(name,), words=tuple(word for part in parts for word in part))]


def _experts(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    name = "num_redundant_experts"
    if name in form.flags:
        return form.option(name, asked[name])
    return form.option(name, {name: asked[name]}, "eplb_config")


def _connector(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    return form.option("kv_connector", transfer(asked["kv_connector"]), "kv_transfer_config")


def transfer(connector: str) -> dict[str, str]:
    """What ``--kv-transfer-config`` holds for a connector that both stores and loads."""
    return {"kv_connector": connector, "kv_role": "kv_both"}


def _drafting(form: _Form, asked: Mapping[str, Any]) -> Iterable[Option]:
    """``--speculative-config``; a flag for each of its keys before 0.8.2."""
    drafting: SpeculativeSettings = asked["speculative"]
    given = {
        item.name: value
        for item in fields(drafting)
        if (value := getattr(drafting, item.name)) not in (None, 0)
    }
    if "speculative_config" in form.flags:
        if not given.keys() <= known_keys("SpeculativeConfig", form.number):
            return []
        if drafting.method == "mtp" and form.number < _ONE_NAME_SINCE:
            given["method"] = _MTP_NAMES.get(form.model_type, "deepseek_mtp")
        return form.option("speculative", given, "speculative_config")
    if given.pop("method") == "ngram":
        given.setdefault("model", "[ngram]")
    if "model" not in given or drafting_method(given) != drafting.method:
        return []
    parts = [form.words(_OLD_DRAFT_FLAGS.get(key, ""), value) for key, value in given.items()]
    if not all(parts):
        return []
    return [Option(settings=("speculative",), words=tuple(word for part in parts for word in part))]


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_GIB_FLAGS, _sizes),
    "cudagraph_capture_sizes": _graphs,
    "max_cudagraph_capture_size": _graphs,
    "cudagraph_mode": _graphs,
    "compilation_mode": _graphs,
    "optimization_level": _level,
    "mm_processor_kwargs": _pixels,
    "mm_processor_max_pixels": _pixels,
    "mm_encoder_tp_mode": _encoder_mode,
    "attention_backend": _backend,
    "hf_overrides": _overrides,
    "num_redundant_experts": _experts,
    "kv_connector": _connector,
    "speculative": _drafting,
}
