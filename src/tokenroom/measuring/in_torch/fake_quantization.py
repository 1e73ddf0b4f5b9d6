"""Values as a quantised cache would give them back: quantised and made plain again."""

from __future__ import annotations

from typing import Any, Final

import torch
import transformers

from tokenroom.errors import MeasurementError
from tokenroom.measuring.kv_coding import Coding, Fp8Scale, Granularity, Scheme

_FLOATS: Final = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_VLLM_RANGE: Final = {"keys": 200.0, "values": 100.0}


def vllm_scale(states: torch.Tensor, part: str) -> torch.Tensor:
    """The scale that vLLM's first pass leaves: the largest magnitude over a constant."""
    return states.float().abs().amax() / _VLLM_RANGE[part]


def quantise_and_back(
    states: torch.Tensor, coding: Coding, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """Keys or values after a quantised cache.

    Args:
        states: Batch x heads x tokens x channels.
        coding: How they are kept.
        scale: A floating-point type's scale that is known already; found in ``states`` otherwise.

    Raises:
        MeasurementError: The group does not divide the channels.
    """
    tokens = states.shape[-2]
    grouped, axes = _grouped(states.float(), coding)
    if coding.type.largest is not None:
        coded = _float_coded(grouped, axes, coding, scale)
    elif coding.type.zero_point:
        coded = _from_smallest(grouped, axes, coding.type.bits)
    else:
        coded = _around_zero(grouped, axes, coding.type.bits)
    if coding.granularity is Granularity.CHANNEL and coding.group is not None:
        coded = coded.flatten(-3, -2)[..., :tokens, :]
    return coded.reshape(states.shape).to(states.dtype)


def _grouped(values: torch.Tensor, coding: Coding) -> tuple[torch.Tensor, tuple[int, ...]]:
    """The values in a shape in which what shares a scale lies along whole axes, and these axes."""
    match coding.granularity:
        case Granularity.TENSOR:
            return values, (-4, -3, -2, -1)
        case Granularity.HEAD:
            return values, (-4, -2, -1)
        case Granularity.CHANNEL if coding.group is None:
            return values, (-2,)
        case Granularity.CHANNEL:
            missing = -values.shape[-2] % coding.group
            if missing:  # a last group is shorter; its last token again changes no extreme
                last = values[..., -1:, :].expand(*values.shape[:-2], missing, values.shape[-1])
                values = torch.cat([values, last], dim=-2)
            return values.unflatten(-2, (-1, coding.group)), (-2,)
    if coding.group is None:
        return values, (-1,)
    channels = values.shape[-1]
    if channels % coding.group:
        raise MeasurementError(
            f"the group of {coding.name} does not divide the {channels} channels of a head; give "
            f"a divisor"
        )
    return values.unflatten(-1, (-1, coding.group)), (-1,)


def _not_zero(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def _float_coded(
    values: torch.Tensor, axes: tuple[int, ...], coding: Coding, scale: torch.Tensor | None
) -> torch.Tensor:
    largest = coding.type.largest
    assert largest is not None
    if coding.fp8_scale is Fp8Scale.UNIT:
        scale = torch.ones((), device=values.device)
    elif scale is None:
        scale = values.abs().amax(axes, keepdim=True) / largest
    scale = _not_zero(scale)
    # Conversions of engines saturate; PyTorch's gives NaN beyond the largest value.
    stored = (values / scale).clamp(-largest, largest).to(_FLOATS[coding.type.name])
    return stored.float() * scale


def _around_zero(values: torch.Tensor, axes: tuple[int, ...], bits: int) -> torch.Tensor:
    """Symmetric: codes from -(2^(b-1) - 1) to 2^(b-1) - 1."""
    most = 2 ** (bits - 1) - 1
    scale = _not_zero(values.abs().amax(axes, keepdim=True) / most)
    return (values / scale).round().clamp(-most, most) * scale


def _from_smallest(values: torch.Tensor, axes: tuple[int, ...], bits: int) -> torch.Tensor:
    """Asymmetric: codes from 0 to 2^b - 1 between the smallest and the largest value."""
    low, high = values.amin(axes, keepdim=True), values.amax(axes, keepdim=True)
    scale = _not_zero((high - low) / (2**bits - 1))
    return ((values - low) / scale).round().clamp(0, 2**bits - 1) * scale + low


class QuantisedCache(transformers.DynamicCache):
    """A cache that gives back what it would have stored by a scheme.

    Keys and values are quantised as they are appended, so that a token's own are too, as in engines
    that write the cache before they attend to it. States of recurrent layers stay as they are.

    Attributes:
        full_bytes: What was appended, in the model's type.
        stored_bytes: The same by the scheme, scales included.
    """

    def __init__(self, config: Any, scheme: Scheme) -> None:
        super().__init__(config=config)
        self.scheme = scheme
        self.full_bytes = 0
        self.stored_bytes = 0.0
        self._scales: dict[tuple[int, str], torch.Tensor] = {}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Append what the scheme leaves of keys and values."""
        keys = self._kept(key_states, "keys", layer_idx)
        values = self._kept(value_states, "values", layer_idx)
        return super().update(keys, values, layer_idx, *args, **kwargs)

    def _kept(self, states: torch.Tensor, part: str, layer: int) -> torch.Tensor:
        coding = self.scheme.keys if part == "keys" else self.scheme.values
        size = states.numel() * states.element_size()
        self.full_bytes += size
        if coding is None or not size:
            self.stored_bytes += size
            return states
        batch, heads, tokens, channels = states.shape
        self.stored_bytes += batch * coding.stored_bytes(heads, tokens, channels)
        scale = None
        if coding.type.largest is not None and coding.fp8_scale is Fp8Scale.VLLM:
            scale = self._scales.get((layer, part))
            if scale is None:
                scale = self._scales[layer, part] = vllm_scale(states, part)
        return quantise_and_back(states, coding, scale)
