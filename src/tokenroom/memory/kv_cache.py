"""Bytes that a layer keeps for a request, whatever engine runs it.

Two kinds of state: a cache that grows with every token (attention, latent attention, the key
cache of a sparse indexer) and a state of fixed size (Mamba, gated delta rule, short convolution).
Engines only differ in how they cut these bytes into pages; that is theirs to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from tokenroom.errors import DeploymentError, shown
from tokenroom.models.spec import (
    DTYPE_BITS,
    Attention,
    Indexer,
    LatentAttention,
    Layer,
    Mixer,
    ModelSpec,
    Recurrence,
    Recurrent,
)

_ALIASES: Final[Mapping[str, str]] = {
    "half": "float16",
    "float": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_inc": "float8_e4m3fn",
}
_TURBOQUANT_BITS: Final[Mapping[str, tuple[int, int]]] = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
PACKED_KV_DTYPES: Final = frozenset(
    {
        "nvfp4",
        "nvfp4_4over6",
        "int4_per_token_head",
        "int8_per_token_head",
        "fp8_per_token_head",
        "ultraquant_4bit",
        *_TURBOQUANT_BITS,
    }
)
"""KV types whose cell is not elements times width."""

PACKED_LATENT_BYTES: Final[Mapping[str, int]] = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of a token's latent in the layouts of FlashMLA's sparse kernels: 512 FP8 values, four FP32
scales and 64 BF16 rotary values; or FP4 values with FP8 scales."""


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a plain KV or state type (``"bfloat16"``, ``"fp8"``, ``"int8"``).

    Raises:
        DeploymentError: The type is unknown, or one of the packed types.
    """
    bits = DTYPE_BITS.get(_ALIASES.get(dtype, dtype))
    if bits is None or bits < 8:
        known = ", ".join(sorted({*DTYPE_BITS, *_ALIASES} - {"bool"}))
        raise DeploymentError(f"the cache type is {shown(dtype)}; it may be one of {known}")
    return bits // 8


def attention_cell_bytes(head_dim: int, value_head_dim: int, kv_dtype: str) -> int:
    """Bytes of one token's key and value of one KV head.

    Plain types: (head_dim + value_head_dim) x element bytes. Packed types as vLLM 0.32 lays them
    out: ``nvfp4`` half a byte an element and a scale byte per 16 (utils/torch_utils.py
    ``nvfp4_kv_cache_full_dim``); ``*_per_token_head`` one FP32 scale for K and one for V
    (v1/attention/backends/triton_attn.py ``customize_spec``); ``turboquant_*`` bit-packed keys
    with an FP16 norm and values with FP16 scale and zero, rounded to an even size
    (layers/quantization/turboquant/config.py ``slot_size_aligned``); ``ultraquant_4bit`` half a
    byte and a scale byte per 32 (v1/attention/ops/ultraquant/format.py ``slot_size``).

    Raises:
        DeploymentError: The type is unknown.
    """
    width = head_dim + value_head_dim
    if kv_dtype not in PACKED_KV_DTYPES:
        return width * element_bytes(kv_dtype)
    if kv_dtype.startswith("nvfp4"):
        return sum(dim // 2 + dim // 16 for dim in (head_dim, value_head_dim))
    if kv_dtype == "int4_per_token_head":
        return head_dim // 2 + value_head_dim // 2 + 8
    if kv_dtype.endswith("_per_token_head"):
        return width + 8
    if kv_dtype == "ultraquant_4bit":
        return 2 * (head_dim // 2 + head_dim // 32)
    key_bits, value_bits = _TURBOQUANT_BITS[kv_dtype]
    key = head_dim if key_bits == 8 else ceil(head_dim * key_bits / 8) + 2
    slot = key + ceil(head_dim * value_bits / 8) + 4
    return slot + slot % 2


def kv_heads_per_rank(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads one rank holds: divided, but never below one head.

    Source: vLLM config/model.py ``get_num_kv_heads``; SGLang and TensorRT-LLM replicate alike.
    """
    return max(1, num_kv_heads // tensor_parallel_size)


def attention_bytes_per_token(
    mixer: Attention, kv_dtype: str, *, tensor_parallel_size: int = 1
) -> int:
    """Bytes one token adds to one attention layer on one rank: KV heads x cell.

    Zero for layers that read another layer's cache and for encoder-only ones. Llama-2-7B in 16
    bits: 32 x (128 + 128) x 2 = 16 KiB.
    """
    if mixer.shares_kv_of is not None or mixer.encoder_only:
        return 0
    heads = kv_heads_per_rank(mixer.num_kv_heads, tensor_parallel_size)
    return heads * attention_cell_bytes(mixer.head_dim, mixer.value_head_dim, kv_dtype)


def latent_bytes_per_token(mixer: LatentAttention, kv_dtype: str) -> int:
    """Bytes one token adds to one MLA layer: the latent and the shared rotary key, no values.

    Every tensor-parallel rank holds the whole of it (DeepSeek-V2, arXiv:2405.04434, section 2.1;
    vLLM model_executor/layers/attention/mla_attention.py ``get_kv_cache_spec``). A compressed
    cache stores one such state per ``compress_ratio`` tokens; this is the state's size.
    """
    packed = PACKED_LATENT_BYTES.get(kv_dtype)
    if packed is not None:
        return packed
    return (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * element_bytes(kv_dtype)


def indexer_bytes_per_token(indexer: Indexer) -> int:
    """Bytes one token adds to a sparse indexer's key cache: FP8 keys, an FP32 scale per 128.

    Source: vLLM 0.32 model_executor/models/deepseek_v2.py ``Indexer`` (132 bytes for 128 wide).
    """
    return indexer.head_dim + indexer.head_dim // 128 * 4


def key_indexer_bytes_per_token(indexer: Indexer, dtype: str) -> int:
    """Bytes one token adds to the key cache of an indexer over plain attention: unscaled keys.

    They stay in the model's own type. Source: vLLM 0.32 models/minimax_m3/common/indexer.py.
    """
    return indexer.head_dim * element_bytes(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """The tensors a recurrent layer keeps for one sequence on one rank.

    Attributes:
        convolution: (kernel - 1 + speculative tokens, channels), None where there is none.
        recurrent: Shape of the recurrent state, None where there is none.
        convolution_dtype: Stored type of the former.
        recurrent_dtype: Stored type of the latter.
    """

    convolution: tuple[int, ...] | None
    recurrent: tuple[int, ...] | None
    convolution_dtype: str
    recurrent_dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        convolution = prod(self.convolution) if self.convolution else 0
        recurrent = prod(self.recurrent) if self.recurrent else 0
        return convolution * element_bytes(self.convolution_dtype) + recurrent * element_bytes(
            self.recurrent_dtype
        )


def _divide(value: int, parts: int, what: str) -> int:
    if value % parts:
        raise DeploymentError(
            f"{what} of the recurrent layers is {value}, which tensor_parallel_size {parts} does "
            f"not divide; choose a size that divides it"
        )
    return value // parts


def recurrent_state(
    mixer: Recurrent,
    *,
    convolution_dtype: str,
    recurrent_dtype: str | None = None,
    tensor_parallel_size: int = 1,
    num_speculative_tokens: int = 0,
) -> RecurrentState:
    """State of one recurrent layer for one sequence on one rank.

    Channels and heads are divided over ranks; Mamba-2 repeats its B and C groups so that every
    rank has whole ones (conv channels = inner + 2 x groups x state). The convolution keeps
    kernel - 1 columns, plus one for each speculative token. The recurrent state is in
    ``recurrent_dtype``, else the checkpoint's wish, else FP32 for Kimi's delta rule and the
    convolution's type for others.
    Source: vLLM 0.32 model_executor/layers/mamba/mamba_utils.py ``MambaStateShapeCalculator`` and
    ``MambaStateDtypeCalculator``.

    Raises:
        DeploymentError: The channels or heads cannot be divided over the ranks.
    """
    tp = tensor_parallel_size
    channels = mixer.conv_dim
    if mixer.kind is Recurrence.MAMBA2 and mixer.num_groups % tp and channels:
        channels += 2 * (tp - mixer.num_groups) * mixer.state_shape[-1]
    convolution = None
    if channels:
        extra = 0 if mixer.kind is Recurrence.MAMBA1 else num_speculative_tokens
        width = _divide(channels, tp, "the convolution width")
        convolution = (mixer.conv_kernel - 1 + extra, width)
    recurrent: tuple[int, ...] | None = None
    if mixer.state_shape:
        if mixer.kind in (Recurrence.MAMBA1, Recurrence.RG_LRU):
            first, *rest = mixer.state_shape
            recurrent = (_divide(first, tp, "the inner width"), *rest)
        else:
            recurrent = (_divide(mixer.num_heads, tp, "the head count"), *mixer.state_shape)
    if recurrent_dtype is None:
        kimi = mixer.kind is Recurrence.KIMI_DELTA
        recurrent_dtype = mixer.state_dtype or ("float32" if kimi else convolution_dtype)
    return RecurrentState(
        convolution=convolution,
        recurrent=recurrent,
        convolution_dtype=convolution_dtype,
        recurrent_dtype=recurrent_dtype,
    )


def kept_tokens(mixer: Attention | LatentAttention, tokens: int, *, encoder_tokens: int = 0) -> int:
    """Tokens whose cache a request of ``tokens`` needs at rest.

    Full: all. Sliding window w: the last w. Chunked attention: those since the chunk began.
    Cross attention: the encoder's. Engines hold somewhat more while they prefill.
    """
    if isinstance(mixer, Attention):
        if mixer.cross:
            return encoder_tokens
        if mixer.chunk is not None:
            return min(tokens, (tokens - 1) % mixer.chunk + 1) if tokens else 0
    return tokens if mixer.window is None else min(tokens, mixer.window)


def mixer_bytes(
    mixer: Mixer,
    tokens: int,
    kv_dtype: str,
    *,
    tensor_parallel_size: int = 1,
    encoder_tokens: int = 0,
    state_dtype: str | None = None,
    recurrent_dtype: str | None = None,
) -> int:
    """Bytes one layer's mixer keeps for a request of ``tokens`` on one rank.

    A compressed latent cache keeps a state per ``compress_ratio`` tokens beside the window of
    plain ones. ``state_dtype`` is the model's own type, which recurrent states (``kv_dtype`` when
    None) and the keys of an indexer (16 bits when None) are kept in.
    """
    if isinstance(mixer, Recurrent):
        state = recurrent_state(
            mixer,
            convolution_dtype=state_dtype or kv_dtype,
            recurrent_dtype=recurrent_dtype,
            tensor_parallel_size=tensor_parallel_size,
        )
        return state.num_bytes
    if isinstance(mixer, Attention):
        per_token = attention_bytes_per_token(
            mixer, kv_dtype, tensor_parallel_size=tensor_parallel_size
        )
        kept = per_token * kept_tokens(mixer, tokens, encoder_tokens=encoder_tokens)
        if mixer.indexer is None:
            return kept
        return kept + tokens * key_indexer_bytes_per_token(mixer.indexer, state_dtype or "bfloat16")
    state_bytes = latent_bytes_per_token(mixer, kv_dtype)
    total = state_bytes * kept_tokens(mixer, tokens)
    index_bytes = indexer_bytes_per_token(mixer.indexer) if mixer.indexer else 0
    if mixer.compress_ratio > 1:
        return total + tokens // mixer.compress_ratio * (state_bytes + index_bytes)
    return total + tokens * index_bytes


def layer_bytes(layer: Layer, tokens: int, kv_dtype: str, *, tensor_parallel_size: int = 1) -> int:
    """Bytes all mixers of one block keep for a request of ``tokens`` on one rank."""
    return sum(
        mixer_bytes(mixer, tokens, kv_dtype, tensor_parallel_size=tensor_parallel_size)
        for mixer in layer.mixers
    )


def request_bytes(
    spec: ModelSpec, tokens: int, kv_dtype: str | None = None, *, tensor_parallel_size: int = 1
) -> int:
    """Bytes a request of ``tokens`` keeps over all layers on one rank, without paging.

    ``kv_dtype`` None means the type the checkpoint asks for, else the model's own.
    """
    dtype = kv_dtype or spec.kv_cache_dtype or spec.dtype
    return sum(
        count * layer_bytes(layer, tokens, dtype, tensor_parallel_size=tensor_parallel_size)
        for layer, count in spec.layer_kinds
    )
