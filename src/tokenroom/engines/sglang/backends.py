"""Which attention kernels SGLang picks, and the page size they force.

Sources: ``arg_groups/model_override_base.py`` ``get_default_attn_backend``,
``arg_groups/overrides.py`` (``_mla_backend_page_constraints``, ``_fa4_page_constraint``,
``_page_size_default``, ``_dsa_kv_cache_dtype_default``, ``_dsa_split_backend_resolution``) and
``arg_groups/model_overrides/*.py`` of 0.5.23; ``model_runner.py`` ``model_specific_adjustment`` of
0.4.6 and ``server_args.py`` of 0.5.3 to 0.5.12.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.sglang.cells import RAW_LATENT_BACKENDS
from tokenroom.engines.sglang.compressed import PAGE_SIZE, is_compressed
from tokenroom.engines.sglang.rules import VersionRules
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, Recurrent

_PAGED_BACKENDS: Final = {
    "flashmla": (64,),
    "cutlass_mla": (128,),
    "trtllm_mla": (64, 32),
    "cutedsl_mla": (64, 32),
    "trtllm_mha": (64, 16, 32, 128),
    "hpc_ops": (64,),
}
"""Page sizes a backend takes; the first is what it forces."""

_SPARSE_PAGE: Final = 64
_BLOCK_SPARSE_PAGE: Final = 128
_DEEPSEEK_V3: Final = "DeepseekV3ForCausalLM"


def is_latent(spec: ModelSpec) -> bool:
    """Whether attention is latent (MLA), as ``use_mla_backend`` has it."""
    return any(
        isinstance(mixer, LatentAttention) for layer in spec.layers for mixer in layer.mixers
    )


def is_sparse(spec: ModelSpec) -> bool:
    """Whether latent attention has a sparse selector (DeepSeek V3.2, GLM-5)."""
    return not is_compressed(spec.layers) and any(
        isinstance(mixer, LatentAttention) and mixer.indexer is not None
        for layer in spec.layers
        for mixer in layer.mixers
    )


def has_states(spec: ModelSpec) -> bool:
    """Whether some layers keep a state instead of a growing cache."""
    return any(isinstance(mixer, Recurrent) for layer in spec.layers for mixer in layer.mixers)


def attention_backend(
    spec: ModelSpec, accelerator: Accelerator, settings: SGLangSettings, rules: VersionRules
) -> str:
    """``--attention-backend``, or the engine's choice."""
    if settings.attention_backend is not None:
        return settings.attention_backend
    if settings.decode_attention_backend is not None:
        return settings.decode_attention_backend
    if is_compressed(spec.layers):
        return "dsv4"
    if is_sparse(spec):
        return "dsa"
    if accelerator.vendor == "amd":
        return "aiter" if rules.since(0, 4, 7) else "triton"
    major = (accelerator.compute_capability or (0, 0))[0]
    latent = is_latent(spec)
    if not rules.since(0, 4, 6):
        return "flashinfer"
    if major == 9:
        return "fa3"
    if major == 10 and rules.since(0, 5, 1):
        if latent:
            return "trtllm_mla" if spec.architecture == _DEEPSEEK_V3 else "flashinfer"
        if has_states(spec) and not rules.since(0, 5, 14):
            return "triton"
        return "trtllm_mha"
    if latent:
        return "triton"
    sinks = any(
        isinstance(mixer, Attention) and mixer.sinks
        for layer in spec.layers
        for mixer in layer.mixers
    )
    return "triton" if sinks else "flashinfer"


def page_size(
    spec: ModelSpec, backend: str, asked: int | None, accelerator: Accelerator
) -> tuple[int, str]:
    """``--page-size`` and why it is what it is.

    Args:
        spec: The model.
        backend: Attention backend.
        asked: As given.
        accelerator: The GPU.
    """
    if is_compressed(spec.layers):
        return PAGE_SIZE, "the compressed pools are paged so"
    if is_sparse(spec):
        return _SPARSE_PAGE, "the sparse kernels read pages of 64"
    if any(
        isinstance(mixer, Attention) and mixer.indexer is not None
        for layer in spec.layers
        for mixer in layer.mixers
    ):
        return _BLOCK_SPARSE_PAGE, "the block-sparse kernels read pages of 128"
    taken = _PAGED_BACKENDS.get(backend)
    if taken is not None and asked not in taken:
        return taken[0], f"{backend} reads pages of {taken[0]}"
    if backend == "fa4" and not is_latent(spec) and accelerator.compute_capability == (10, 0):
        return 128, "fa4 reads pages of 128"
    return (1, "") if asked is None else (asked, "")


def kv_cache_type(
    spec: ModelSpec, accelerator: Accelerator, asked: str | None, dtype: str
) -> tuple[str, str]:
    """The pool's type and why: what is asked, else what the model and the GPU call for."""
    if asked not in (None, "auto"):
        assert asked is not None
        return ("bfloat16" if asked == "bf16" else asked), ""
    if is_compressed(spec.layers):
        return "fp8_e4m3", "set for DeepSeek V4"
    if is_sparse(spec):
        major = (accelerator.compute_capability or (0, 0))[0]
        if major >= 10:
            return "fp8_e4m3", "set for sparse attention on Blackwell"
        return "bfloat16", "set for sparse attention"
    if (
        spec.kv_cache_dtype is not None
        and spec.kv_cache_dtype.startswith("fp8")
        and (spec.quantization or "").startswith("modelopt")
    ):
        return "fp8_e4m3", "the checkpoint asks for it"
    return dtype, ""


def reads_raw_latents(
    spec: ModelSpec,
    accelerator: Accelerator,
    settings: SGLangSettings,
    kv_dtype: str,
    rules: VersionRules,
) -> bool:
    """Whether sparse attention's kernels read FP8 latents without scales beside them."""
    if not is_sparse(spec) or not kv_dtype.startswith("fp8"):
        return False
    named = {settings.dsa_prefill_backend, settings.dsa_decode_backend} - {None}
    if named:
        return not RAW_LATENT_BACKENDS.isdisjoint(named)
    major = (accelerator.compute_capability or (0, 0))[0]
    return major >= 10 and rules.since(0, 5, 10)
