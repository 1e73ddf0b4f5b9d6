"""What a user can set of llama.cpp, as far as memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
PROGRAMS: Final = ("server", "cli", "library", "ollama")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings:
    """Arguments under llama.cpp's own names; None is "not given".

    Attributes:
        version: Version asked for.
        program: ``"server"`` (llama-server), ``"cli"`` (llama-cli, llama-run and the like),
            ``"library"`` (a binding with the plain defaults of ``llama.h``) or ``"ollama"``.
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
    embeddings: bool = False
    draft_max: int | None = None
    draft_model: str | None = None
    mmproj: str | None = None
    host_memory_bytes: int | None = None
    unknown_flags: tuple[str, ...] = ()
    ignored_flags: tuple[str, ...] = ()
