"""TensorRT-LLM's settings as flags of ``trtllm-serve`` and keys of the YAML beside them.

The reverse of :mod:`~tokenroom.engines.tensorrt_llm.arguments`. What has a flag in every release is
a flag, the rest a key. A ``kv_cache_config`` of the file replaces the one that flags make
(``update_llm_args_with_extra_dict``, tensorrt_llm/llmapi/llm_utils.py), so that the share of memory
stands in the file as soon as another key of that section does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
from tokenroom.engines.tensorrt_llm.arguments import KV_KEYS, SCHEDULER_KEYS, TOP_KEYS
from tokenroom.engines.tensorrt_llm.built_engine import Release, release_of

_FILE: Final = ("--extra_llm_api_options", "tensorrt_llm.yaml")
"""Its flag in every release that reads one; ``--config`` is a later alias (commands/serve.py)."""

_FLAGS: Final[Mapping[str, str]] = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
    "max_seq_len": "--max_seq_len",
    "max_beam_width": "--max_beam_width",
}
"""Flags of every release (documentation of 0.18.2 to 1.4)."""

_SHARE: Final = "free_gpu_memory_fraction"
_SHARE_FLAG: Final = "--kv_cache_free_gpu_memory_fraction"
_FILE_SINCE: Final = (0, 19)
"""``--ep_size`` and ``--extra_llm_api_options`` (documentation of 0.18.2 and 0.19)."""
_SECTIONS_SINCE: Final = (1, 0)
"""``cuda_graph_config``; before, graphs had keys that are not written here."""
_BACKENDS_SINCE: Final = (1, 0)
"""``--backend`` takes another one than ``pytorch``."""
_FAIL_FAST_SINCE: Final = (1, 1)

_GRAPH_KEYS: Final[Mapping[str, str]] = {
    "cuda_graph_max_batch_size": "max_batch_size",
    "cuda_graph_batch_sizes": "batch_sizes",
    "cuda_graph_enable_padding": "enable_padding",
}
_DRAFT_KEYS: Final[Mapping[str, str]] = {
    "speculative_type": "decoding_type",
    "speculative_tokens": "max_draft_len",
    "speculative_model": "speculative_model_dir",
}


def launch_command(deployment: Deployment) -> LaunchCommand:
    """``trtllm-serve MODEL`` with every setting that was asked for."""
    return assembled(
        deployment,
        options(deployment),
        program=("trtllm-serve",),
        model=(model_name(deployment),),
        notes=checkpoint_notes(deployment.spec, deployment.draft),
        file=_FILE,
    )


def options(deployment: Deployment) -> tuple[Option, ...]:
    """How the settings that were asked for are written; what cannot be is left out."""
    asked = asked_settings(deployment.asked)
    release = release_of(deployment.version)
    found = [
        option
        for name, value in asked.items()
        if (option := _option(name, value, asked, release)) is not None
    ]
    return tuple(found)


def _option(name: str, value: Any, asked: Mapping[str, Any], release: Release) -> Option | None:
    if name in _FLAGS:
        return Option(settings=(name,), words=value_words(_FLAGS[name], value))
    if name == "backend":
        return _backend(value, release)
    if name == _SHARE and (release < _FILE_SINCE or asked.keys().isdisjoint(_KV_SETTINGS)):
        return Option(settings=(name,), words=value_words(_SHARE_FLAG, value))
    if name == "fail_fast_on_attention_window_too_large":
        flag = f"--{name}"
        known = value and release >= _FAIL_FAST_SINCE
        return Option(settings=(name,), words=(flag,)) if known else None
    if release < _FILE_SINCE:
        return None
    if name == "moe_expert_parallel_size":
        return Option(settings=(name,), words=value_words("--ep_size", value))
    if name == "cuda_graphs" or name in _GRAPH_KEYS:
        return _graphs(name, value, asked, release)
    keys = _keys(name, asked)
    return Option(settings=(name,), keys=keys, value=value) if keys else None


def _graphs(name: str, value: Any, asked: Mapping[str, Any], release: Release) -> Option | None:
    """``cuda_graph_config``: null switches graphs off, any section on."""
    if release < _SECTIONS_SINCE:
        return None
    section = ("cuda_graph_config",)
    if name in _GRAPH_KEYS:
        if asked.get("cuda_graphs") is False:
            return None
        return Option(settings=(name,), keys=(*section, _GRAPH_KEYS[name]), value=value)
    if not value:
        return Option(settings=(name,), keys=section, value=None)
    if asked.keys().isdisjoint(_GRAPH_KEYS):
        return Option(settings=(name,), keys=section, value={})
    return Option(settings=(name,))


def _backend(value: str, release: Release) -> Option | None:
    if release < _BACKENDS_SINCE and value != "pytorch":
        return None
    word = {"tensorrt": "trt"}.get(value, value)  # which every release takes
    return Option(settings=("backend",), words=value_words("--backend", word))


def _keys(name: str, asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a setting stands in the file; nowhere when it has no key."""
    if name in _KV_NAMES:
        return ("kv_cache_config", _KV_NAMES[name])
    if name in _DRAFT_KEYS:
        key = _DRAFT_KEYS[name]
        if key == "max_draft_len" and str(asked.get("speculative_type")).upper() == "MTP":
            key = "num_nextn_predict_layers"
        return ("speculative_config", key)
    if name in SCHEDULER_KEYS:
        return ("scheduler_config", name)
    return (name,) if name in TOP_KEYS else ()


_KV_NAMES: Final[Mapping[str, str]] = {setting: key for key, setting in KV_KEYS.items()}
_KV_SETTINGS: Final = frozenset(_KV_NAMES) - {_SHARE}
