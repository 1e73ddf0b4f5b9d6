"""Which attention backend vLLM chooses, and the block size that follows from it.

The rules of ``CudaPlatformBase.get_attn_backend_cls`` and ``_get_backend_priorities``
(platforms/cuda.py 0.11.0 to 0.33.0), with what each backend says it supports
(v1/attention/backends/*.py). Kernels that ship apart from vLLM count as installed where its wheel
depends on them (FlashInfer, FlashMLA, FlashAttention) and as absent otherwise (tokenspeed-mla).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tokenroom.errors import DeploymentError

DEFAULT_BLOCK_SIZE: Final = 16
"""``CacheConfig.DEFAULT_BLOCK_SIZE``."""

_GENERATIONS: Final = {"8.9": (8, 9), "9.0": (9, 0), "10.0": (10, 0), "12.0": (12, 0)}
_HALF: Final = frozenset({"float16", "bfloat16"})
_PLAIN_KV: Final = frozenset({"auto", "float16", "bfloat16"})
_FP8_KV: Final = frozenset({"fp8", "fp8_e4m3"})
_TOKEN_HEAD_KV: Final = frozenset(
    {"int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionQuery:
    """What a backend has to serve.

    Attributes:
        version: vLLM version as (major, minor, patch).
        capability: Compute capability of the GPU.
        head_dim: Width of a key head; of latent attention the cached width.
        num_heads: Query heads of one rank.
        dtype: Type of activations.
        kv_cache_dtype: Resolved type of the cache, ``"auto"`` for the model's own.
        latent: Multi-head latent attention.
        sparse: Sparse latent attention with an indexer.
        sinks: Learned attention sinks.
        mm_prefix: Tokens of one image see each other in both directions.
        qk_nope_head_dim: Of latent attention, 0 otherwise.
        block_size: Block size the user set, None when not.
    """

    version: tuple[int, int, int]
    capability: tuple[int, int]
    head_dim: int
    num_heads: int
    dtype: str
    kv_cache_dtype: str = "auto"
    latent: bool = False
    sparse: bool = False
    sinks: bool = False
    mm_prefix: bool = False
    qk_nope_head_dim: int = 0
    block_size: int | None = None

    @property
    def quantized_cache(self) -> bool:
        """The cache is not kept in the model's type."""
        return self.kv_cache_dtype not in _PLAIN_KV


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackend:
    """A backend as far as its choice and its blocks go.

    Attributes:
        name: As the engine logs it.
        supports: Whether it serves a query.
        block_sizes: Kernel block sizes; multiples of each are allowed too.
        latent: It serves latent attention.
        sparse: It serves sparse latent attention.
    """

    name: str
    supports: Callable[[AttentionQuery], bool]
    block_sizes: tuple[int, ...] = (16,)
    latent: bool = False
    sparse: bool = False

    def takes_block(self, block_size: int) -> bool:
        """Whether a cache block of that many tokens splits into kernel blocks."""
        return any(block_size % size == 0 for size in self.block_sizes)

    @property
    def preferred_block_size(self) -> int:
        """The default of 16 where it can be had, the smallest kernel block otherwise."""
        if self.takes_block(DEFAULT_BLOCK_SIZE):
            return DEFAULT_BLOCK_SIZE
        return min(self.block_sizes)


def _flash_attn(query: AttentionQuery) -> bool:
    major = query.capability[0]
    if query.capability < (8, 0) or query.dtype not in _HALF or query.head_dim % 8:
        return False
    if query.head_dim > 256 and not (
        query.version >= (0, 20, 0) and major in (9, 10) and query.head_dim <= 512
    ):
        return False
    if query.mm_prefix and not (query.version >= (0, 24, 0) and major in (9, 10)):
        return False
    if query.version < (0, 12, 0) and query.head_dim % 32:
        return False
    if query.sinks and query.capability < (9, 0):
        return False
    if query.sinks and major >= 10 and query.version < (0, 20, 0):
        return False
    if not query.quantized_cache:
        return True
    if query.kv_cache_dtype not in _FP8_KV:
        return False
    return major == 9 or (major == 10 and query.version >= (0, 27, 0))


def _flashinfer(query: AttentionQuery) -> bool:
    lowest = (8, 0) if query.version >= (0, 24, 0) else (7, 5)
    widths = {64, 128, 256} | ({512} if query.version >= (0, 22, 0) else set())
    if not lowest <= query.capability <= (12, 1) or query.dtype not in _HALF:
        return False
    if query.head_dim not in widths or query.mm_prefix:
        return False
    if query.sinks and query.capability[0] != 10:
        both = query.version >= (0, 28, 0) and query.capability[0] == 12
        hopper = query.version >= (0, 30, 0) and query.capability == (9, 0)
        if not (both or hopper):
            return False
    if query.kv_cache_dtype.startswith("nvfp4"):
        return query.version >= (0, 21, 0) and query.capability[0] == 10
    return query.kv_cache_dtype in _PLAIN_KV | _FP8_KV | {"fp8_e5m2"}


def _triton(query: AttentionQuery) -> bool:
    if query.head_dim < 32:
        return False
    allowed = _PLAIN_KV | _FP8_KV | {"fp8_e5m2"}
    if query.version >= (0, 20, 0):
        allowed |= _TOKEN_HEAD_KV
    return query.kv_cache_dtype in allowed


def _flex(query: AttentionQuery) -> bool:
    return not query.quantized_cache and not query.sinks


def _mixed(query: AttentionQuery) -> bool:
    # Triton for prompts with images, the faster backend for everything else.
    return query.mm_prefix and query.dtype in _HALF and query.head_dim <= 256 and not query.sinks


def _packed(query: AttentionQuery) -> bool:
    return query.kv_cache_dtype.startswith(("turboquant", "octave", "ultraquant"))


def _half_latent(query: AttentionQuery) -> bool:
    return query.dtype in _HALF


def _flash_attn_mla(query: AttentionQuery) -> bool:
    return _half_latent(query) and query.capability[0] == 9 and not query.quantized_cache


def _flashmla(query: AttentionQuery) -> bool:
    # The dense kernels ship for Hopper alone (is_flashmla_dense_supported).
    fits = query.kv_cache_dtype in _PLAIN_KV | _FP8_KV
    return _half_latent(query) and query.capability[0] == 9 and fits


def _flashinfer_mla(query: AttentionQuery) -> bool:
    fits = query.kv_cache_dtype in _PLAIN_KV | _FP8_KV
    widths = (64, 128, 192) if query.version >= (0, 18, 0) else (128,)
    nope_fits = query.qk_nope_head_dim in widths
    return _half_latent(query) and query.capability[0] == 10 and fits and nope_fits


def _cutlass_mla(query: AttentionQuery) -> bool:
    fits = query.kv_cache_dtype in _PLAIN_KV | _FP8_KV
    return _half_latent(query) and query.capability[0] == 10 and fits


def _triton_mla(query: AttentionQuery) -> bool:
    if query.version < (0, 18, 0):
        return not query.quantized_cache
    return query.kv_cache_dtype in _PLAIN_KV | _FP8_KV


def _flashmla_sparse(query: AttentionQuery) -> bool:
    packed = {"fp8_ds_mla", "nvfp4_ds_mla"} if query.version >= (0, 27, 0) else {"fp8_ds_mla"}
    fits = query.kv_cache_dtype in {"auto", "bfloat16", "fp8", "fp8_e4m3"} | packed
    return query.dtype == "bfloat16" and query.capability[0] in (9, 10) and fits


def _flash_attn_mla_sparse(query: AttentionQuery) -> bool:
    return _half_latent(query) and query.capability[0] == 9 and not query.quantized_cache


def _flashinfer_mla_sparse(query: AttentionQuery) -> bool:
    fits = query.kv_cache_dtype in _PLAIN_KV | _FP8_KV
    return _half_latent(query) and query.capability[0] == 10 and fits


def _fa4_mla_sparse(query: AttentionQuery) -> bool:
    bf16 = query.dtype == "bfloat16" and query.kv_cache_dtype in ("auto", "bfloat16")
    return bf16 and query.capability[0] == 10 and query.head_dim == 576


def _flashinfer_mla_sparse_sm120(query: AttentionQuery) -> bool:
    fits = query.kv_cache_dtype in {"auto", "fp8", "fp8_e4m3", "fp8_ds_mla"}
    return query.dtype == "bfloat16" and query.capability[0] == 12 and fits


def _flashinfer_mla_sparse_sm90(query: AttentionQuery) -> bool:
    fits = query.kv_cache_dtype in {"auto", "bfloat16"} | _FP8_KV
    return query.dtype == "bfloat16" and query.capability[0] == 9 and fits


_BACKENDS: Final = {
    backend.name: backend
    for backend in (
        AttentionBackend(name="FLASH_ATTN", supports=_flash_attn),
        AttentionBackend(name="FLASHINFER", supports=_flashinfer, block_sizes=(16, 32, 64)),
        AttentionBackend(name="TRITON_ATTN", supports=_triton),
        AttentionBackend(name="FLEX_ATTENTION", supports=_flex),
        AttentionBackend(name="TURBOQUANT", supports=_packed),
        AttentionBackend(name="TRITON_FLASH_ATTN", supports=_mixed),
        AttentionBackend(name="TRITON_FLASHINFER", supports=_mixed, block_sizes=(16, 32, 64)),
        AttentionBackend(name="FLASH_ATTN_MLA", supports=_flash_attn_mla, latent=True),
        AttentionBackend(name="FLASHMLA", supports=_flashmla, block_sizes=(64,), latent=True),
        AttentionBackend(
            name="FLASHINFER_MLA", supports=_flashinfer_mla, block_sizes=(32, 64), latent=True
        ),
        AttentionBackend(
            name="CUTLASS_MLA", supports=_cutlass_mla, block_sizes=(128,), latent=True
        ),
        AttentionBackend(name="TRITON_MLA", supports=_triton_mla, latent=True),
        AttentionBackend(
            name="FLASHMLA_SPARSE",
            supports=_flashmla_sparse,
            block_sizes=(64,),
            latent=True,
            sparse=True,
        ),
        AttentionBackend(
            name="FLASH_ATTN_MLA_SPARSE",
            supports=_flash_attn_mla_sparse,
            block_sizes=(64,),
            latent=True,
            sparse=True,
        ),
        AttentionBackend(
            name="FLASHINFER_MLA_SPARSE",
            supports=_flashinfer_mla_sparse,
            block_sizes=(32, 64),
            latent=True,
            sparse=True,
        ),
        AttentionBackend(
            name="FLASH_ATTN_MLA_SPARSE_FA4",
            supports=_fa4_mla_sparse,
            block_sizes=(64,),
            latent=True,
            sparse=True,
        ),
        AttentionBackend(
            name="FLASHINFER_MLA_SPARSE_SM120",
            supports=_flashinfer_mla_sparse_sm120,
            block_sizes=(64,),
            latent=True,
            sparse=True,
        ),
        AttentionBackend(
            name="FLASHINFER_MLA_SPARSE_SM90",
            supports=_flashinfer_mla_sparse_sm90,
            block_sizes=(64,),
            latent=True,
            sparse=True,
        ),
    )
}


def _priorities(query: AttentionQuery) -> tuple[str, ...]:
    """Backends in the order they are tried (``_get_backend_priorities``)."""
    version, major = query.version, query.capability[0]
    if not query.latent:
        first, second = (
            ("FLASHINFER", "FLASH_ATTN") if major == 10 else ("FLASH_ATTN", "FLASHINFER")
        )
        mixed: tuple[str, ...] = ()
        if version >= (0, 30, 0) and query.mm_prefix and major in (9, 10):
            mixed = ("TRITON_FLASH_ATTN",) if major == 9 else ("TRITON_FLASHINFER",)
        last = ("TURBOQUANT",) if version >= (0, 20, 0) else ()
        return (*mixed, first, second, "TRITON_ATTN", "FLEX_ATTENTION", *last)
    if major == 10:
        sparse: tuple[str, ...] = ("FLASHMLA_SPARSE",)
        if version >= (0, 17, 0):
            sparse = ("FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE")
            few = query.num_heads <= 16
            if (version >= (0, 19, 0) and query.quantized_cache) or few:
                sparse = ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")
            if version >= (0, 33, 0) and few and not query.quantized_cache:
                sparse = ("FLASH_ATTN_MLA_SPARSE_FA4", *sparse)
        dense = ("FLASHINFER_MLA", "CUTLASS_MLA")
        if version < (0, 16, 0):
            dense = ("CUTLASS_MLA", "FLASHINFER_MLA")
        return (*dense, "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", *sparse)
    if major == 12 and version >= (0, 24, 0):
        return ("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120")
    tail = ["FLASHMLA_SPARSE"]
    if version >= (0, 25, 0):
        tail.insert(0, "FLASH_ATTN_MLA_SPARSE")
    if version >= (0, 30, 0):
        tail.insert(0 if query.head_dim == 512 else len(tail), "FLASHINFER_MLA_SPARSE_SM90")
    return ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", *tail)


def choose_backend(query: AttentionQuery, selected: str | None = None) -> AttentionBackend:
    """The backend the engine would take on an NVIDIA GPU.

    Args:
        query: What it has to serve.
        selected: ``--attention-backend``, None to let the engine choose.

    Raises:
        DeploymentError: The selected one cannot serve the query, or none can.
    """
    if selected is not None and selected in _BACKENDS:
        backend = _BACKENDS[selected]
        if not _serves(backend, query):
            raise DeploymentError(
                f"attention_backend is {selected}, which does not serve this model on compute "
                f"capability {_capability(query)} with kv_cache_dtype {query.kv_cache_dtype}; "
                f"leave the choice to the engine"
            )
        return backend
    if selected is not None:  # one that tokenroom does not know: assume it takes 16-token blocks
        return AttentionBackend(name=selected, supports=lambda _: True, latent=query.latent)
    found = _first_that_serves(query)
    if found is not None:
        return found
    raise DeploymentError(
        f"no attention backend of vLLM {'.'.join(map(str, query.version))} serves this model with "
        f"kv_cache_dtype {query.kv_cache_dtype}, dtype {query.dtype} and block_size "
        f"{query.block_size or 'unset'} on compute capability {_capability(query)}; "
        f"{_remedy(query)}"
    )


def _first_that_serves(query: AttentionQuery) -> AttentionBackend | None:
    for name in _priorities(query):
        backend = _BACKENDS[name]
        fits = query.block_size is None or backend.takes_block(query.block_size)
        if _serves(backend, query) and fits:
            return backend
    return None


def _remedy(query: AttentionQuery) -> str:
    """The single changes with which some backend serves the query."""
    changed = {
        f"kv_cache_dtype {name}": replace(query, kv_cache_dtype=name)
        for name in ("auto", "fp8")
        if name != query.kv_cache_dtype
    }
    if query.block_size is not None:
        changed["no block_size"] = replace(query, block_size=None)
    changed |= {
        f"dtype {name}": replace(query, dtype=name)
        for name in ("bfloat16", "float16")
        if name != query.dtype and (name == "float16" or query.capability >= (8, 0))
    }
    words = [word for word, other in changed.items() if _first_that_serves(other) is not None]
    if words:
        return f"use {' or '.join(words)}"
    others = [
        text
        for text, capability in _GENERATIONS.items()
        if _first_that_serves(replace(query, capability=capability)) is not None
    ]
    if others:
        return f"use a GPU of compute capability {' or '.join(others)}"
    return "change several of them, or use another version"


def _serves(backend: AttentionBackend, query: AttentionQuery) -> bool:
    alike = (backend.latent, backend.sparse) == (query.latent, query.sparse)
    return alike and backend.supports(query)


def _capability(query: AttentionQuery) -> str:
    return f"{query.capability[0]}.{query.capability[1]}"


def forced_block_size(query: AttentionQuery, backend: AttentionBackend, block_size: int) -> int:
    """The block size after the corrections that versions before 0.18 made for latent attention.

    Source: ``CudaPlatformBase.check_and_update_config``, platforms/cuda.py 0.11.0 to 0.17.0. The
    correction followed a guess at the backend, so Hopper got FlashMLA's 64 even where
    FlashAttention was then chosen.
    """
    if query.version >= (0, 18, 0) or not query.latent:
        return block_size
    exact = query.version < (0, 12, 0)
    if query.sparse:
        allowed = (32, 64) if backend.name == "FLASHINFER_MLA_SPARSE" else (64,)
        return block_size if block_size in allowed else 64
    if backend.name == "CUTLASS_MLA":
        wanted = 128
    elif backend.name == "FLASHINFER_MLA":
        return block_size if block_size == 32 or block_size % 64 == 0 else 64
    elif query.capability[0] == 9:
        wanted = 64
    else:
        return block_size
    fits = block_size == wanted if exact else block_size % wanted == 0
    return block_size if fits else wanted
