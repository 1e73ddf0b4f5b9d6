"""What a user can set of llama.cpp, as far as memory depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tokenroom.engines.setting_checks import renamed
from tokenroom.errors import DeploymentError, shown

#: The version whose sources were read: the build that llama-cpp-python 0.3.36 carries.
VERSION: Final = "b11312"
#: Its commit.
COMMIT: Final = "0c1e57098"

#: Types a KV cache may have (``kv_cache_types``, ``common/arg.cpp``).
CACHE_TYPES: Final = (
    "f32",
    "f16",
    "bf16",
    "q8_0",
    "q4_0",
    "q4_1",
    "iq4_nl",
    "q5_0",
    "q5_1",
)
SPLIT_MODES: Final = ("none", "layer", "row")
LOAD_MODES: Final = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
PROGRAMS: Final = ("server", "cli", "bench", "library", "ollama")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings:
    """Arguments under llama.cpp's own names; None is "not given".

    Attributes:
        version: Version asked for.
        program: ``"server"`` (llama-server), ``"cli"`` (llama-cli, llama-run and the like),
            ``"bench"`` (one test of llama-bench), ``"library"`` (a binding with the plain defaults
            of ``llama.h``) or ``"ollama"``.
        gpus: Accelerators to use, 0 for the CPU alone.
        n_ctx: ``--ctx-size``; 0 for the length the model was trained with.
        n_batch: ``--batch-size``.
        n_ubatch: ``--ubatch-size``.
        n_parallel: ``--parallel``: slots of the server.
        kv_unified: ``--kv-unified``.
        kv_unified_per_slot: ``--kv-unified-per-slot``.
        n_gpu_layers: ``--n-gpu-layers``; -1 for auto, -2 for all.
        split_mode: ``--split-mode``.
        main_gpu: ``--main-gpu``.
        tensor_split: ``--tensor-split``.
        override_tensor: ``--override-tensor`` as (pattern, buffer type).
        cpu_moe: ``--cpu-moe``.
        n_cpu_moe: ``--n-cpu-moe``.
        n_cpu_ffn: ``--n-cpu-ffn``.
        type_k: ``--cache-type-k``.
        type_v: ``--cache-type-v``.
        flash_attn: ``"on"``, ``"off"`` or ``"auto"``.
        swa_full: ``--swa-full``.
        kv_offload: False for ``--no-kv-offload``.
        op_offload: False for ``--no-op-offload``.
        load_mode: ``--load-mode``; ``--no-mmap`` is ``"none"``.
        repack: False for ``--no-repack``.
        no_host: ``--no-host``.
        fit: False for ``--fit off``.
        fit_target_mib: ``--fit-target`` of each device, or one for all.
        fit_ctx: ``--fit-ctx``.
        cache_ram_mib: ``--cache-ram``.
        ctx_checkpoints: ``--ctx-checkpoints``.
        cache_prompt: False for ``--no-cache-prompt``.
        cache_idle_slots: False for ``--no-cache-idle-slots``.
        slot_prompt_similarity: ``--slot-prompt-similarity``.
        embeddings: ``--embeddings``: every token is an output.
        draft_max: Tokens that speculative decoding drafts.
        draft_model: ``--model-draft``.
        mmproj: ``--mmproj``, the vision or audio projector.
        host_memory_bytes: Memory of the host, None when not told.
        unknown_flags: Flags llama.cpp does not have.
        ignored_flags: Flags without influence on memory.
    """

    version: str | None = None
    program: str = "server"
    gpus: int | None = None
    n_ctx: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_parallel: int | None = None
    kv_unified: bool | None = None
    kv_unified_per_slot: int | None = None
    n_gpu_layers: int | None = None
    split_mode: str | None = None
    main_gpu: int | None = None
    tensor_split: tuple[float, ...] | None = None
    override_tensor: tuple[tuple[str, str], ...] = ()
    cpu_moe: bool = False
    n_cpu_moe: int | None = None
    n_cpu_ffn: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    flash_attn: str | None = None
    swa_full: bool | None = None
    kv_offload: bool | None = None
    op_offload: bool | None = None
    load_mode: str | None = None
    repack: bool | None = None
    no_host: bool | None = None
    fit: bool | None = None
    fit_target_mib: tuple[int, ...] | None = None
    fit_ctx: int | None = None
    cache_ram_mib: int | None = None
    ctx_checkpoints: int | None = None
    cache_prompt: bool | None = None
    cache_idle_slots: bool | None = None
    slot_prompt_similarity: float | None = None
    embeddings: bool = False
    draft_max: int | None = None
    draft_model: str | None = None
    mmproj: str | None = None
    host_memory_bytes: int | None = None
    unknown_flags: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()


_NAMES: Final = frozenset(item.name for item in fields(LlamaCppSettings))
#: Names that all engines share -> llama.cpp's.
_ALIASES: Final[Mapping[str, str]] = {
    "max_model_len": "n_ctx",
    "max_num_seqs": "n_parallel",
    "max_num_batched_tokens": "n_ubatch",
    "tensor_parallel_size": "gpus",
    "pipeline_parallel_size": "gpus",
}
_NOT_HERE: Final[Mapping[str, str]] = {
    "gpu_memory_utilization": "llama.cpp takes no share of a card; give --fit-target as a setting",
    "data_parallel_size": "start one llama-server a copy",
    "enable_expert_parallel": "use override_tensor to place experts",
    "block_size": "llama.cpp's cache has single cells",
    "kv_cache_memory_bytes": "give n_ctx; its bytes follow",
    "cpu_offload_bytes": "give n_gpu_layers or n_cpu_moe",
    "enforce_eager": "llama.cpp reserves nothing for CUDA graphs",
    "dtype": "the types are those of the GGUF file; give --weights",
    "usage": "give program",
}
CACHE_SPELLINGS: Final[Mapping[str, str]] = {
    **{"fp16": "f16", "float16": "f16", "bfloat16": "bf16", "fp32": "f32", "auto": "f16"},
    **{"int8": "q8_0", "q8": "q8_0", "int4": "q4_0", "q4": "q4_0"},
}
#: Words that ``--n-gpu-layers`` takes, and the number each stands for.
LAYER_WORDS: Final[Mapping[str, int]] = {"auto": -1, "all": -2}


def changed(base: LlamaCppSettings | None, changes: Mapping[str, Any]) -> LlamaCppSettings:
    """The settings with some fields set, by llama.cpp's names or those that engines share.

    Raises:
        DeploymentError: A field is unknown here.
    """
    given = dict(changes)
    for name in given:
        if name in _NOT_HERE:
            raise DeploymentError(f"llama.cpp has no {name}: {_NOT_HERE[name]}")
    sizes = [given.pop(name) for name, own in _ALIASES.items() if own == "gpus" and name in given]
    if sizes := [size for size in (*sizes, given.get("gpus")) if size is not None]:
        odd = [size for size in sizes if not isinstance(size, int)]  # refused with its own words
        given["gpus"] = odd[0] if odd else max(sizes)
    if "kv_cache_dtype" in given:
        kind = given.pop("kv_cache_dtype")
        kind = CACHE_SPELLINGS.get(kind.lower(), kind) if isinstance(kind, str) else kind
        given |= {"type_k": kind, "type_v": kind}
    layers = given.get("n_gpu_layers")
    if isinstance(layers, str):
        if layers not in LAYER_WORDS:
            raise DeploymentError(
                f"n_gpu_layers is {shown(layers)}; give a whole number, auto or all"
            )
        given["n_gpu_layers"] = LAYER_WORDS[layers]
    return replace(base or LlamaCppSettings(), **renamed(given, _ALIASES, _NAMES, "llama.cpp"))
