"""Which attention kernels vLLM chooses for a model on a GPU, and their own workspace.

Sources: platforms/cuda.py ``_get_backend_priorities`` and the ``supports_*`` methods of
v1/attention/backends/ (0.19.0), platforms/cuda.py ``get_attn_backend_cls`` (0.11.0).
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import Attention, LatentAttention, ModelSpec

FLASHINFER_WORKSPACE_BYTES: Final = 394 * 1024 * 1024
"""``VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE`` (envs.py): allocated with the KV cache, after that was
sized, so it takes memory outside the budget."""

_BIDIRECTIONAL_ITEMS: Final = frozenset(
    {
        "BagelForConditionalGeneration",
        "Gemma3ForConditionalGeneration",
        "Molmo2ForConditionalGeneration",
        "PaliGemmaForConditionalGeneration",
    }
)
"""Models whose images attend in both directions (config/model.py ``is_mm_prefix_lm``)."""

_FLASHINFER_HEAD_DIMS: Final = frozenset({64, 128, 256})
_PRIORITIES_SINCE: Final = (0, 12, 0)


def attention_backend(
    spec: ModelSpec,
    accelerator: Accelerator,
    rules: VersionRules,
    *,
    dtype: str,
    kv_cache_dtype: str = "auto",
    requested: str | None = None,
) -> str:
    """The backend's name as the engine logs it ("Using FLASH_ATTN attention backend").

    Args:
        spec: The model.
        accelerator: The GPU.
        rules: The version's rules.
        dtype: Type of activations.
        kv_cache_dtype: Type of the KV cache, ``"auto"`` for the model's own.
        requested: What the user asked for; it is taken as it is.
    """
    if requested is not None:
        return requested.upper()
    mixers = [mixer for layer, _ in spec.layer_kinds for mixer in layer.mixers]
    latent = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    if accelerator.compute_capability is None:
        return "TRITON_MLA" if latent else "TRITON_ATTN"
    fp8 = kv_cache_dtype.startswith("fp8")
    if latent:
        sparse = any(mixer.indexer is not None for mixer in latent)
        return _latent_backend(accelerator.compute_capability, rules, fp8=fp8, sparse=sparse)
    heads = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    bidirectional = bool(spec.towers) and spec.architecture in _BIDIRECTIONAL_ITEMS
    return _backend(
        accelerator.compute_capability,
        rules,
        head_dims={mixer.head_dim for mixer in heads},
        half=dtype in ("float16", "bfloat16"),
        fp8=fp8,
        sinks=any(mixer.sinks for mixer in heads),
        bidirectional=bidirectional,
    )


def workspace_bytes(backend: str) -> int:
    """What the backend allocates for itself beside the KV cache, outside the budget."""
    return FLASHINFER_WORKSPACE_BYTES if backend.startswith("FLASHINFER") else 0


def _latent_backend(
    capability: tuple[int, int], rules: VersionRules, *, fp8: bool, sparse: bool
) -> str:
    major = capability[0]
    if sparse:
        return "FLASHINFER_MLA_SPARSE" if major == 10 and fp8 else "FLASHMLA_SPARSE"
    if major == 10:
        return "FLASHINFER_MLA" if rules.version >= _PRIORITIES_SINCE else "CUTLASS_MLA"
    if major == 9:
        dense = rules.version >= _PRIORITIES_SINCE and not fp8
        return "FLASH_ATTN_MLA" if dense else "FLASHMLA"
    return "TRITON_MLA"


def _backend(
    capability: tuple[int, int],
    rules: VersionRules,
    *,
    head_dims: set[int],
    half: bool,
    fp8: bool,
    sinks: bool,
    bidirectional: bool,
) -> str:
    """The first backend in the order of priority that supports everything asked of it."""
    hopper = capability[0] == 9
    datacentre_blackwell = capability[0] == 10
    flash_attention = (
        capability >= (8, 0)
        and half
        and not bidirectional
        and all(dim % 8 == 0 and dim <= 256 for dim in head_dims)
        and (hopper or not (fp8 or sinks))  # FlashAttention 3 alone has both
    )
    flashinfer = (
        (7, 5) <= capability <= (12, 1)
        and half
        and not bidirectional
        and head_dims <= _FLASHINFER_HEAD_DIMS
        and (datacentre_blackwell or not sinks)
    )
    triton = all(dim >= 32 for dim in head_dims)
    order = [("FLASH_ATTN", flash_attention), ("FLASHINFER", flashinfer)]
    if datacentre_blackwell:
        order.reverse()
    if rules.version < _PRIORITIES_SINCE:
        if capability < (8, 0):
            return "FLEX_ATTENTION"
        if not datacentre_blackwell:
            order = [("FLASH_ATTN", flash_attention)]
    order += [("TRITON_ATTN", triton)]
    return next((name for name, supported in order if supported), "FLEX_ATTENTION")
