"""Bytes that the cache classes of transformers keep (5.24, ``cache_utils.py``).

``dynamic``: grows by concatenation; sliding layers keep window - 1 tokens, as a view of the last
concatenation, so their storage holds one more (and the whole prompt until the next step).
``static``: ``max_cache_len`` tokens from the first step, at most the window in sliding layers.
``quantized``: groups of values in few bits with a scale and a zero each, and the newest tokens in
the model's type; ``fp8``: one byte a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tokenroom.errors import DeploymentError
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import Attention, LatentAttention, Layer, Recurrence, Recurrent


class CacheKind(StrEnum):
    """Cache classes, as ``cache_implementation`` names them."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    QUANTIZED = "quantized"
    OFFLOADED = "offloaded"
    OFFLOADED_STATIC = "offloaded_static"

    @property
    def is_static(self) -> bool:
        """Laid out at full length."""
        return self in (CacheKind.STATIC, CacheKind.OFFLOADED_STATIC)

    @property
    def is_offloaded(self) -> bool:
        """Layers wait in host memory; two are on the GPU at once."""
        return self in (CacheKind.OFFLOADED, CacheKind.OFFLOADED_STATIC)


class Backend(StrEnum):
    """Libraries that quantise the cache."""

    QUANTO = "quanto"
    HQQ = "hqq"
    FP8 = "fp8"


_WIDTHS = {Backend.QUANTO: (2, 4), Backend.HQQ: (1, 2, 3, 4, 8), Backend.FP8: (8,)}
_WORD_VALUES = 10
"""HQQ packs ten 3-bit values in a 32-bit word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """How a cache is kept.

    Attributes:
        kind: The class.
        dtype: The model's type, which the cache is in.
        backend: Library of a quantised cache.
        nbits: Bits of a value.
        group_size: Values that share a scale and a zero (``q_group_size``).
        residual_length: Newest tokens that may stay in the model's type.
        axis: 0 or -1: groups along the first or the last axis (0 or 1 for HQQ).
    """

    kind: CacheKind = CacheKind.DYNAMIC
    dtype: str = "bfloat16"
    backend: Backend = Backend.QUANTO
    nbits: int = 4
    group_size: int = 64
    residual_length: int = 128
    axis: int = 0

    def __post_init__(self) -> None:
        """Refuse widths the library does not have.

        Raises:
            DeploymentError: It does not.
        """
        widths = _WIDTHS[self.backend]
        if self.kind is CacheKind.QUANTIZED and self.nbits not in widths:
            raise DeploymentError(
                f"nbits is {self.nbits}; {self.backend.value} has {', '.join(map(str, widths))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """One layer's cache for a whole batch.

    Attributes:
        kept: Bytes between steps.
        after_prompt: Bytes from the end of the prompt to the next step.
        new_pair: Largest tensors that a step creates before it frees the old ones.
    """

    kept: int
    after_prompt: int
    new_pair: int


def quantized_bytes(elements: int, settings: CacheSettings) -> int:
    """Bytes of a tensor of ``elements`` values in groups.

    HQQ: packed along the first axis; scale and zero in the model's type. Quanto: the same for its
    scale and shift. FP8: a byte each and one float32 scale.

    Raises:
        DeploymentError: The groups do not divide the values.
    """
    if settings.backend is Backend.FP8:
        return elements + 4
    if elements % settings.group_size:
        raise DeploymentError(
            f"q_group_size is {settings.group_size}, which does not divide {elements} values of a "
            f"layer's cache; choose a divisor of the head size"
        )
    groups = elements // settings.group_size
    rows = settings.group_size if settings.backend is Backend.HQQ and settings.axis == 0 else groups
    columns = elements // rows
    if settings.nbits == 3:
        packed = 4 * -(-rows // _WORD_VALUES) * columns
    else:
        packed = -(-rows * settings.nbits // 8) * columns
    return packed + 2 * groups * element_bytes(settings.dtype)


def layer_bytes(
    layer: Layer, settings: CacheSettings, batch: int, tokens: int, prompt: int, encoder: int = 0
) -> LayerBytes:
    """The cache of one layer.

    Args:
        layer: The layer.
        settings: How it is kept.
        batch: Sequences.
        tokens: Tokens of each so far; of a static cache its length.
        prompt: How many of them came at once.
        encoder: Tokens of the encoder, for cross attention.

    Raises:
        DeploymentError: The cache class cannot keep such a layer.
    """
    kept = after = pair = 0
    width = element_bytes(settings.dtype)
    quantized = settings.kind is CacheKind.QUANTIZED
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrent):
            if quantized:
                raise DeploymentError(
                    "cache_implementation is 'quantized', which only takes layers of full "
                    "attention; this model has recurrent ones: choose dynamic"
                )
            state = batch * _state_bytes(mixer, width)
            kept, after = kept + state, after + state
            continue
        parts, window = _parts(mixer)
        if not parts:
            continue
        if isinstance(mixer, Attention) and mixer.cross:
            stored = sum(parts) * batch * encoder * width
            kept, after = kept + stored, after + stored
            continue
        if window is not None and quantized:
            raise DeploymentError(
                "cache_implementation is 'quantized', which only takes layers of full attention; "
                "this model has sliding windows: choose dynamic"
            )
        if quantized:
            one = _quantized_layer(parts, settings, batch, tokens, prompt)
        elif settings.kind.is_static:
            length = tokens if window is None else min(tokens, window)
            size = sum(parts) * batch * length * width
            shifted = window is not None and tokens > window  # a full window is made anew
            one = LayerBytes(kept=size, after_prompt=size, new_pair=size if shifted else 0)
        else:
            length = tokens if window is None else min(tokens, window)
            size = sum(parts) * batch * length * width
            new = max(parts) * batch * length * width if window is None else size
            one = LayerBytes(
                kept=size, after_prompt=sum(parts) * batch * prompt * width, new_pair=new
            )
        kept, after = kept + one.kept, after + one.after_prompt
        pair = max(pair, one.new_pair)
    return LayerBytes(kept=kept, after_prompt=after, new_pair=pair)


def cache_bytes(
    layers: Sequence[Layer], settings: CacheSettings, batch: int, tokens: int, prompt: int
) -> int:
    """Bytes that the layers keep between steps, on the GPU or wherever the cache is."""
    known: dict[int, int] = {}
    total = 0
    for layer in layers:
        if id(layer) not in known:
            known[id(layer)] = layer_bytes(layer, settings, batch, tokens, prompt).kept
        total += known[id(layer)]
    return total


def _parts(mixer: Attention | LatentAttention) -> tuple[tuple[int, ...], int | None]:
    """Values a token adds to each tensor of the cache, and how many tokens stay."""
    if isinstance(mixer, LatentAttention):
        keys = mixer.indexer.head_dim if mixer.indexer is not None else 0
        parts = (mixer.kv_lora_rank, mixer.qk_rope_head_dim)
        return (*parts, keys) if keys else parts, mixer.window
    if mixer.shares_kv_of is not None or mixer.encoder_only:
        return (), None
    heads = mixer.num_kv_heads
    window = mixer.window if mixer.window is not None else mixer.chunk
    return (heads * mixer.head_dim, heads * mixer.value_head_dim), window


def _state_bytes(mixer: Recurrent, width: int) -> int:
    """State of one sequence: as many columns as the convolution has taps, the rest in float32.

    Lightning attention keeps its state in the model's type.
    """
    convolution = mixer.conv_dim * mixer.conv_kernel * width
    recurrent = mixer.num_heads
    for size in mixer.state_shape:
        recurrent *= size
    if not mixer.state_shape:
        return convolution
    return convolution + recurrent * (width if mixer.kind is Recurrence.LIGHTNING else 4)


def _quantized_layer(
    parts: Sequence[int], settings: CacheSettings, batch: int, tokens: int, prompt: int
) -> LayerBytes:
    """The prompt is quantised; later tokens wait in the model's type until there are enough.

    Then all are quantised anew. A step makes the whole layer plain to attend to it, and joins the
    new tokens to it; FP8 joins first and makes plain then.
    """
    width = element_bytes(settings.dtype)
    waiting = 0
    if settings.backend is not Backend.FP8 and tokens > prompt:
        waiting = (tokens - prompt) % settings.residual_length
    held = 0
    for part in parts:
        held += quantized_bytes(part * batch * (tokens - waiting), settings)
        held += part * batch * waiting * width
    after = sum(quantized_bytes(part * batch * prompt, settings) for part in parts)
    plain = sum(parts) * batch * tokens
    if settings.backend is Backend.FP8:
        # Beside the old bytes: plain keys, then values in float32 before and after their scale.
        new = plain + (parts[0] * width + parts[-1] * 2 * 4) * batch * tokens
    else:
        new = 2 * plain * width
    return LayerBytes(kept=held, after_prompt=after, new_pair=new)
