"""llama.cpp's settings as words of ``llama-server``.

The reverse of :mod:`~tokenroom.engines.llama_cpp.arguments`: flags of ``common/arg.cpp`` of
0c1e57098, with ``-fa`` as earlier builds have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenroom.engines.checkpoints import plain_name
from tokenroom.engines.launch import (
    LaunchCommand,
    Option,
    asked_settings,
    assembled,
    checkpoint_notes,
)
from tokenroom.engines.llama_cpp.devices import backends_of
from tokenroom.engines.llama_cpp.settings import LAYER_WORDS
from tokenroom.engines.llama_cpp.versions import rules_for
from tokenroom.engines.policy import Deployment, Notice
from tokenroom.models.spec import ModelSpec

_PROGRAMS: Final[Mapping[str, str]] = {"server": "llama-server", "cli": "llama-cli"}

_VALUES: Final[Mapping[str, str]] = {
    "n_ctx": "-c",
    "n_batch": "-b",
    "n_ubatch": "-ub",
    "n_parallel": "-np",
    "kv_unified_per_slot": "--kv-unified-per-slot",
    "split_mode": "--split-mode",
    "main_gpu": "--main-gpu",
    "n_cpu_moe": "--n-cpu-moe",
    "n_cpu_ffn": "--n-cpu-ffn",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "fit_ctx": "--fit-ctx",
    "cache_ram_mib": "--cache-ram",
    "ctx_checkpoints": "--ctx-checkpoints",
    "slot_prompt_similarity": "--slot-prompt-similarity",
    "draft_max": "--draft-max",
    "draft_model": "--model-draft",
    "mmproj": "--mmproj",
}
_SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    # setting: (flag that sets it, flag that clears it), empty where there is none
    "kv_unified": ("--kv-unified", "--no-kv-unified"),
    "cpu_moe": ("--cpu-moe", ""),
    "swa_full": ("--swa-full", ""),
    "kv_offload": ("--kv-offload", "--no-kv-offload"),
    "op_offload": ("--op-offload", "--no-op-offload"),
    "repack": ("--repack", "--no-repack"),
    "no_host": ("--no-host", ""),
    "embeddings": ("--embeddings", ""),
    "cache_prompt": ("--cache-prompt", "--no-cache-prompt"),
    "cache_idle_slots": ("--cache-idle-slots", "--no-cache-idle-slots"),
}


def launch_command(deployment: Deployment) -> LaunchCommand:
    """``llama-server -m FILE`` with every setting that was asked for."""
    program = deployment.asked.program
    spec = deployment.spec
    notes = list(checkpoint_notes(deployment.draft))
    if not _is_file(spec):
        values = {"file": _file_name(spec), "model": plain_name(spec)}
        notes.append(Notice(key="launch_gguf_needed", values=values))
    return assembled(
        deployment,
        options(deployment),
        program=(_PROGRAMS.get(program, "llama-server"),),
        model=_model_words(spec),
        notes=notes,
    )


def options(deployment: Deployment) -> tuple[Option, ...]:
    """How the settings that were asked for are written; what cannot be is left out."""
    found = []
    for name, value in asked_settings(deployment.asked).items():
        if name == "program" and value in _PROGRAMS:
            found.append(Option(settings=(name,)))
        elif words := tuple(_words(name, value, deployment)):
            found.append(Option(settings=(name,), words=words))
    return tuple(found)


def _is_file(spec: ModelSpec) -> bool:
    """Whether it was read from a GGUF file, here or on the Hub."""
    return spec.config is None and spec.layout is None


def _file_name(spec: ModelSpec) -> str:
    """The file that stands for a model of which no GGUF file was named."""
    name = plain_name(spec).rsplit("/", 1)[-1].removesuffix(".gguf")
    return f"{name}-{spec.layout or spec.dtype}.gguf"


def _model_words(spec: ModelSpec) -> tuple[str, ...]:
    if not _is_file(spec):
        return ("-m", _file_name(spec))
    if spec.path:
        return ("-m", spec.path)
    organisation, name, file = spec.name.split("/", 2)
    return ("-hf", f"{organisation}/{name}", "-hff", file)


def _words(name: str, value: Any, deployment: Deployment) -> Iterator[str]:
    """The words of one setting, none when it cannot be said."""
    if name in _VALUES:
        yield from (_VALUES[name], str(value))
    elif name in _SWITCHES:
        if flag := _SWITCHES[name][not value]:
            yield flag
    elif name == "n_gpu_layers":
        names = {number: word for word, number in LAYER_WORDS.items()}
        yield from ("-ngl", names.get(value, str(value)))
    elif name == "flash_attn":
        yield from _flash(value, deployment.version)
    elif name == "fit":
        yield from ("--fit", "on" if value else "off")
    elif name == "load_mode":
        yield from ("--no-mmap",) if value == "none" else ("--load-mode", value)
    elif name == "gpus":
        devices = [device.name for device in backends_of(deployment.node, value)]
        yield from ("--device", ",".join(devices) or "none")
    elif name == "tensor_split":
        yield from ("--tensor-split", ",".join(f"{share:.17g}" for share in value))
    elif name == "fit_target_mib":
        yield from ("--fit-target", ",".join(map(str, value)))
    elif name == "override_tensor" and not any("," in text for pair in value for text in pair):
        text = ",".join(f"{pattern}={buffer}" for pattern, buffer in value)
        yield from ("--override-tensor", text)


def _flash(value: str, version: str) -> Iterator[str]:
    """``-fa MODE``; a switch before there was ``auto`` (pull 15434)."""
    if rules_for(version).flash_attn_auto:
        yield from ("-fa", value)
    elif value == "on":
        yield "-fa"
