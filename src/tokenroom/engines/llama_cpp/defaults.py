"""Every setting of a llama.cpp deployment with its value and where it comes from.

Defaults are those of ``common/common.h``, ``common/arg.cpp`` and ``tools/server/server.cpp`` of
llama.cpp 0c1e57098; what the context then makes of them is ``llama_context``'s constructor and
``llama_init_from_model`` (``src/llama-context.cpp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenroom.engines.llama_cpp.devices import maps_weights
from tokenroom.engines.llama_cpp.placement import DENSE_FFN, EXPERTS, HOST
from tokenroom.engines.llama_cpp.settings import (
    CACHE_TYPES,
    LOAD_MODES,
    PROGRAMS,
    SPLIT_MODES,
    LlamaCppSettings,
)
from tokenroom.engines.llama_cpp.versions import VersionRules, rules_for
from tokenroom.engines.policy import Setting
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Node
from tokenroom.models.quantization.ggml import BLOCKS
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec
from tokenroom.units import GIB, MIB

#: Widths of key heads that CUDA's flash attention has kernels for, with the width of their values
#: and whether several queries must share a key (``ggml_cuda_get_best_fattn_kernel``).
_CUDA_FLASH: Final[Mapping[int, tuple[int, int]]] = {
    # key width: (value width, queries a key at least)
    **{width: (width, 1) for width in (40, 64, 72, 80, 96, 112, 128, 256)},
    192: (128, 8),
    320: (256, 32),
    512: (512, 2),
    576: (512, 2),
}
_MAX_SEQUENCES: Final = 256  # LLAMA_MAX_SEQ
_AUTO_SLOTS: Final = 4
_MARGIN_MIB: Final = 1024
_LEAST_CONTEXT: Final = 4096
ALL_LAYERS: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSettings:
    """The settings that hold, each with its origin in ``settings``.

    ``n_ctx`` is padded and counts the cells of all streams; ``n_ctx_seq`` is what one sequence may
    hold. ``n_gpu_layers`` is what was asked for; fitting may put less on the accelerators.
    """

    version: str
    rules: VersionRules
    program: str
    gpus: int
    n_ctx: int
    n_ctx_seq: int
    n_ctx_train: int
    context_is_free: bool
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    kv_unified: bool
    n_outputs_max: int
    n_gpu_layers: int
    layers_are_free: bool
    split_mode: str
    main_gpu: int
    tensor_split: tuple[float, ...]
    overrides: tuple[tuple[str, int], ...]
    type_k: str
    type_v: str
    flash_attn: bool
    swa_full: bool
    kv_offload: bool
    op_offload: bool
    mmap: bool
    repack: bool
    no_host: bool
    fit: bool
    margins: tuple[int, ...]
    fit_ctx: int
    cache_ram_bytes: int
    ctx_checkpoints: int
    host_memory_bytes: int | None
    settings: Mapping[str, Setting]


def resolve(asked: LlamaCppSettings, spec: ModelSpec, node: Node) -> ResolvedSettings:
    """Fill in every default and check what the engine checks.

    Raises:
        DeploymentError: A setting is out of range or llama.cpp would refuse it.
    """
    return _Resolver(asked, spec, node).resolve()


class _Resolver:
    """Collects settings with their origins while they are resolved."""

    def __init__(self, asked: LlamaCppSettings, spec: ModelSpec, node: Node) -> None:
        self._asked = asked
        self._spec = spec
        self._node = node
        self._rules = rules_for(asked.version)
        self._found: dict[str, Setting] = {}
        _one_of("program", asked.program, PROGRAMS)

    def _take(self, name: str, default: Any, *, origin: str = "engine", reason: str = "") -> Any:
        value = getattr(self._asked, name)
        if value is not None:
            self._found[name] = Setting(value=value, origin="user")
            return value
        self._found[name] = Setting(value=default, origin=origin, reason=reason)
        return default

    def _count(self, name: str, default: int, least: int, **why: str) -> int:
        value = self._take(name, default, **why)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise DeploymentError(
                f"{name} is {shown(value)}; it must be a whole number from {least}"
            )
        return value

    def resolve(self) -> ResolvedSettings:
        asked, spec = self._asked, self._spec
        if not self._rules.latent_caches and any(
            isinstance(mixer, LatentAttention) for layer in spec.layers for mixer in layer.mixers
        ):
            raise DeploymentError(
                f"llama.cpp {self._rules.version} caches the keys and values of every head of "
                f"{spec.name}, which is not modelled; give b5140 or newer"
            )
        gpus = 0 if asked.gpus == 0 else self._node.count
        server = asked.program in ("server", "ollama")
        slots, unified = self._slots(server)
        trained = spec.max_position_embeddings or 0
        n_ctx, n_ctx_seq, free_context = self._context(slots, unified, trained)
        n_batch = min(self._count("n_batch", 2048 if asked.program != "ollama" else 512, 1), n_ctx)
        n_ubatch = min(self._count("n_ubatch", 512, 0) or n_batch, n_batch)
        type_k, type_v = self._cache_type("type_k"), self._cache_type("type_v")
        flash = self._flash_attention(gpus, type_k, type_v)
        split_mode = _one_of(
            "split_mode",
            self._take("split_mode", "layer"),
            SPLIT_MODES,
            "; tensor is experimental and not modelled",
        )
        main_gpu = self._count("main_gpu", 0, 0)
        if gpus and main_gpu >= gpus:
            raise DeploymentError(f"main_gpu is {main_gpu}; there are {gpus} devices from 0 on")
        if split_mode == "none" and gpus:
            gpus = 1
        offloads = self._rules.fits or asked.program == "bench"
        layers = self._take("n_gpu_layers", -1 if offloads else 0)
        if isinstance(layers, bool) or not isinstance(layers, int):
            raise DeploymentError(
                f"n_gpu_layers is {shown(layers)}; give a whole number, auto or all"
            )
        fit = bool(
            self._take("fit", self._rules.fits and asked.program not in ("library", "bench"))
        )
        load_mode = _one_of("load_mode", self._take("load_mode", "auto"), LOAD_MODES)
        mmap = load_mode in ("mmap", "mmap+mlock") or (
            load_mode == "auto" and maps_weights(self._node.accelerator, gpus)
        )
        outputs = n_batch
        if server and self._rules.limits_outputs and not asked.embeddings:
            outputs = max(1, min(n_batch, slots * (1 + max(0, asked.draft_max or 0))))
        self._found["n_outputs_max"] = Setting(
            value=outputs,
            origin="engine",
            reason="a token a slot" if outputs < n_batch else "every token of a batch",
        )
        cache_ram = self._take("cache_ram_mib", 8192 if server else 0)
        resolved = ResolvedSettings(
            version=self._rules.version,
            rules=self._rules,
            program=asked.program,
            gpus=gpus,
            n_ctx=n_ctx,
            n_ctx_seq=n_ctx_seq,
            n_ctx_train=trained or n_ctx_seq,
            context_is_free=free_context,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_seq_max=slots,
            kv_unified=unified,
            n_outputs_max=outputs,
            n_gpu_layers=layers if layers >= 0 else ALL_LAYERS,
            layers_are_free=layers == -1,
            split_mode=split_mode,
            main_gpu=main_gpu,
            tensor_split=self._tensor_split(gpus),
            overrides=self._overrides(gpus),
            type_k=type_k,
            type_v=type_v,
            flash_attn=flash,
            swa_full=bool(self._take("swa_full", asked.program == "library")),
            kv_offload=bool(self._take("kv_offload", True)),
            op_offload=bool(self._take("op_offload", True)),
            mmap=mmap,
            repack=bool(self._take("repack", True)),
            no_host=bool(self._take("no_host", False)),
            fit=fit,
            margins=self._margins(gpus),
            fit_ctx=self._count("fit_ctx", _LEAST_CONTEXT, 1),
            cache_ram_bytes=max(0, int(cache_ram)) * MIB,
            ctx_checkpoints=self._count("ctx_checkpoints", 32 if server else 0, 0),
            host_memory_bytes=asked.host_memory_bytes,
            settings=self._found,
        )
        self._check_heads(resolved)
        return resolved

    def _slots(self, server: bool) -> tuple[int, bool]:
        asked = self._asked
        auto = server and asked.program == "server" and self._rules.auto_slots
        given = asked.n_parallel is not None and asked.n_parallel >= 0  # below 0: auto
        default = _AUTO_SLOTS if auto else 1
        slots = asked.n_parallel if given and asked.n_parallel is not None else default
        if isinstance(slots, bool) or not isinstance(slots, int) or not 0 < slots <= _MAX_SEQUENCES:
            raise DeploymentError(
                f"n_parallel is {shown(slots)}; it must be a whole number from 1 to "
                f"{_MAX_SEQUENCES}"
            )
        self._found["n_parallel"] = Setting(
            value=slots,
            origin="user" if given else "engine",
            reason="" if given else "auto" if auto else "",
        )
        unified = self._take("kv_unified", auto and not given)
        return slots, bool(unified)

    def _context(self, slots: int, unified: bool, trained: int) -> tuple[int, int, bool]:
        """``n_ctx`` over all streams, that of a sequence, and whether fitting may lower it."""
        asked = self._asked
        given = asked.n_ctx
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise DeploymentError(f"n_ctx is {shown(given)}; it must be a whole number of tokens")
        if given is not None and given < 0:
            raise DeploymentError(f"n_ctx is {given}; it must be 0 (as trained) or more")
        if asked.kv_unified_per_slot and not given and given != 0:
            wanted = slots * asked.kv_unified_per_slot
            self._found["n_ctx"] = Setting(
                value=wanted, origin="user", reason="kv_unified_per_slot x n_parallel"
            )
        elif asked.program == "ollama":
            # llm/server.go cuts each slot to the length that the GGUF states.
            each, reason = (given // slots, "") if given else _ollama_context(self._node)
            cut = bool(trained) and each > trained
            wanted = slots * trained if cut else given or slots * each
            self._found["n_ctx"] = Setting(
                value=wanted,
                origin="model" if cut else "user" if given else "gpu",
                reason=f"Ollama cuts {each:,} to the length trained for" if cut else reason,
            )
        elif given:
            wanted = given
            self._found["n_ctx"] = Setting(value=given, origin="user")
        elif asked.program == "library":
            wanted = 512 if given is None else trained
            self._found["n_ctx"] = Setting(value=wanted, origin="engine")
        else:
            if not trained:
                raise DeploymentError(
                    f"{self._spec.name} states no context length; give n_ctx, as -c 8192"
                )
            # Unset and not unified, the fit asks for the trained length for every stream.
            fits = self._rules.fits and asked.fit is not False
            wanted = trained * (1 if unified or not fits else slots)
            self._found["n_ctx"] = Setting(value=wanted, origin="model", reason="as trained")
        if not wanted:
            raise DeploymentError(
                f"{self._spec.name} states no context length; give n_ctx, as -c 8192"
            )
        padded = self._padded(wanted)
        free = given is None and not asked.kv_unified_per_slot and asked.program != "ollama"
        if unified:
            return padded, padded, free
        each = self._padded(padded // slots)
        return each * slots, each, free

    def _padded(self, tokens: int) -> int:
        with_flash = self._asked.flash_attn in ("on", "auto") or self._rules.flash_attn_auto
        return self._rules.padded_cells(tokens, with_flash and self._asked.flash_attn != "off")

    def _cache_type(self, name: str) -> str:
        value = str(self._take(name, "f16")).lower()
        return _one_of(name, value, CACHE_TYPES)

    def _flash_attention(self, gpus: int, type_k: str, type_v: str) -> bool:
        wanted = self._asked.flash_attn
        default = "auto" if self._rules.flash_attn_auto else "off"
        choice = _one_of("flash_attn", wanted or default, ("on", "off", "auto"))
        quantised = BLOCKS[type_v][0] > 1
        if quantised and choice == "off":
            raise DeploymentError(
                f"type_v is {shown(type_v)} with flash attention off; llama.cpp refuses a "
                f"quantised V "
                f"cache without it: give --flash-attn on, or an unquantised type"
            )
        on = choice == "on" or (choice == "auto" and (quantised or self._has_flash_kernels(gpus)))
        self._found["flash_attn"] = Setting(
            value=on,
            origin="user" if wanted in ("on", "off") else "gpu",
            reason=""
            if wanted in ("on", "off")
            else f"{choice}: "
            + ("there is a kernel for every head" if on else "no kernel for a head width"),
        )
        return on

    def _has_flash_kernels(self, gpus: int) -> bool:
        """Whether the device computes flash attention for every head (``resolve_fused_ops``)."""
        if not gpus or self._node.accelerator.vendor not in ("nvidia", "amd"):
            return True
        for layer, _ in self._spec.layer_kinds:
            for mixer in layer.mixers:
                if isinstance(mixer, Attention):
                    ratio = mixer.num_heads // max(1, mixer.num_kv_heads)
                    width, value = mixer.head_dim, mixer.value_head_dim
                elif isinstance(mixer, LatentAttention):
                    ratio = mixer.num_heads
                    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
                    value = mixer.kv_lora_rank
                else:
                    continue
                known = _CUDA_FLASH.get(width)
                if known is None or known[0] != value or ratio < known[1]:
                    return False
        return True

    def _check_heads(self, resolved: ResolvedSettings) -> None:
        """Blocks of quantised caches must divide a head (``llama_init_from_model``)."""
        latent = any(
            isinstance(mixer, LatentAttention)
            for layer, _ in self._spec.layer_kinds
            for mixer in layer.mixers
        )
        if latent and resolved.type_k != resolved.type_v:
            raise DeploymentError(
                f"type_k is {shown(resolved.type_k)} and type_v {shown(resolved.type_v)}; a "
                f"model with "
                f"latent attention caches both in one tensor: give the same type twice"
            )
        if not resolved.flash_attn:
            return
        for layer, _ in self._spec.layer_kinds:
            for mixer in layer.mixers:
                if not isinstance(mixer, Attention):
                    continue
                for name, kind, width in (
                    ("type_k", resolved.type_k, mixer.head_dim),
                    ("type_v", resolved.type_v, mixer.value_head_dim),
                ):
                    if width % BLOCKS[kind][0]:
                        raise DeploymentError(
                            f"{name} is {shown(kind)}, whose blocks of {BLOCKS[kind][0]} do "
                            f"not divide "
                            f"heads of {width}; give f16 or another type"
                        )

    def _tensor_split(self, gpus: int) -> tuple[float, ...]:
        split = self._asked.tensor_split
        if split is None or not any(split):
            return (1.0,) * gpus
        if len(split) > max(gpus, 1) and any(split[gpus:]):
            raise DeploymentError(
                f"tensor_split has {len(split)} shares and there are {gpus} devices; give one each"
            )
        if any(share < 0 for share in split):
            raise DeploymentError(f"tensor_split is {split}; shares must be 0 or more")
        self._found["tensor_split"] = Setting(value=split, origin="user")
        return (*split, *(0.0,) * gpus)[:gpus]

    def _overrides(self, gpus: int) -> tuple[tuple[str, int], ...]:
        asked = self._asked
        found: list[tuple[str, int]] = []
        for pattern, buffer in asked.override_tensor:
            found.append((pattern, self._buffer(buffer, gpus)))
        if asked.cpu_moe:
            found.append((EXPERTS, HOST))
            self._found["cpu_moe"] = Setting(value=True, origin="user")
        for name, regex in (("n_cpu_moe", EXPERTS), ("n_cpu_ffn", DENSE_FFN)):
            count = getattr(asked, name)
            if count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise DeploymentError(f"{name} is {shown(count)}; it must be a whole number from 0")
            self._found[name] = Setting(value=count, origin="user")
            for layer in range(min(count, len(self._spec.layers))):
                found.append((rf"blk\.{layer}{regex}", HOST))
        if asked.override_tensor:
            self._found["override_tensor"] = Setting(value=asked.override_tensor, origin="user")
        return tuple(found) if gpus else ()

    def _buffer(self, name: str, gpus: int) -> int:
        text = name.strip().upper()
        if text in ("CPU", "CUDA_HOST", "ROCM_HOST", "CPU_REPACK"):
            return HOST
        digits = text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
        index = int(digits) if digits.isdigit() else 0 if text in ("METAL", "CUDA") else None
        if index is None or (gpus and index >= gpus):
            raise DeploymentError(
                f"override_tensor names the buffer {shown(name)}; it may be CPU or a device "
                f"such as "
                f"CUDA0 (there are {gpus})"
            )
        return index if gpus else HOST

    def _margins(self, gpus: int) -> tuple[int, ...]:
        given = self._take("fit_target_mib", (_MARGIN_MIB,))
        if len(given) == 1:
            return (given[0] * MIB,) * max(gpus, 1)
        return tuple(value * MIB for value in (*given, *(_MARGIN_MIB,) * gpus)[: max(gpus, 1)])


def _one_of(name: str, value: Any, known: tuple[str, ...], more: str = "") -> str:
    if value not in known:
        raise DeploymentError(f"{name} is {shown(value)}; it may be {', '.join(known)}{more}")
    return str(value)


def _ollama_context(node: Node) -> tuple[int, str]:
    """Ollama's default length by the memory of all accelerators (server/routes.go).

    Its documents say 24 and 48 GiB; the server compares with a GiB less, so that cards of that
    size, which report a little under it, count.
    """
    total = node.count * node.accelerator.memory_bytes
    length = 4096 if total < 23 * GIB else 32768 if total < 47 * GIB else 262144
    return length, "Ollama's default for this much memory: 4k, 32k from 23 GiB, 256k from 47 GiB"
