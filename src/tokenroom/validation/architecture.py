"""The kind of a model as far as memory goes, for grouping errors."""

from __future__ import annotations

from typing import Final

from tokenroom.models.spec import Attention, LatentAttention, ModelSpec, MoEFFN, Recurrent

CLASSES: Final = (
    "hybrid",
    "latent_attention",
    "sliding_window",
    "multimodal",
    "moe",
    "dense",
)
"""Kinds in the order they are tried: the first that holds names the model."""


def architecture_class(spec: ModelSpec) -> str:
    """One of :data:`CLASSES`: what of the model shapes its cache, else its weights.

    ``"hybrid"`` has layers with a fixed state, ``"latent_attention"`` caches a latent (MLA),
    ``"sliding_window"`` has layers that attend to a window, ``"multimodal"`` encoders beside,
    ``"moe"`` experts; everything else is ``"dense"``.
    """
    mixers = [mixer for layer, _ in spec.layer_kinds for mixer in layer.mixers]
    if any(isinstance(mixer, Recurrent) for mixer in mixers):
        return "hybrid"
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return "latent_attention"
    if any(isinstance(mixer, Attention) and (mixer.window or mixer.chunk) for mixer in mixers):
        return "sliding_window"
    if spec.towers:
        return "multimodal"
    if any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds):
        return "moe"
    return "dense"
