"""What vLLM's defaults depend on of a model: its kinds of layers and whether it pools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.models.spec import (
    Attention,
    LatentAttention,
    Mixer,
    ModelSpec,
    MoEFFN,
    Recurrence,
    Recurrent,
)

_POOLING_SUFFIXES: Final = (
    *("ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification"),
    *("ForAudioClassification", "ForImageClassification", "ForVideoClassification"),
    *("ClassificationModel", "ForRewardModeling", "RewardModel"),
)
_GENERATING_SUFFIXES: Final = (
    *("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel"),
)
_POOLING_TASKS: Final = frozenset(
    {"embed", "embedding", "classify", "score", "reward", "encode", "plugin"}
)
#: Recurrences whose every state block can be kept for prefix caching
#: (model_executor/models/interfaces.py ``SupportsMambaPrefixCaching``).
_KEEPS_EVERY_STATE: Final = frozenset({Recurrence.MAMBA1, Recurrence.MAMBA2})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """What defaults depend on of a model.

    Attributes:
        attention_free: No layer caches keys.
        hybrid: Layers with and without a growing cache.
        encoder_only: Bidirectional layers alone.
        encoder_decoder: A sequence-to-sequence model.
        pooling: It answers with vectors or scores, not with text.
        has_experts: A layer is a mixture of experts.
        latent: The latent attention, None for none.
        attention: A plain attention layer (full before sliding), None for none.
        keeps_every_state: Its recurrent layers are of a kind that can keep every state block.
    """

    attention_free: bool
    hybrid: bool
    encoder_only: bool
    encoder_decoder: bool
    pooling: bool
    has_experts: bool
    latent: LatentAttention | None
    attention: Attention | None
    keeps_every_state: bool

    @property
    def recurrent(self) -> bool:
        """Some layer keeps a state of fixed size."""
        return self.hybrid or self.attention_free

    @property
    def num_heads(self) -> int:
        """Query heads of the whole model, 0 without attention."""
        mixer = self.latent or self.attention
        return 0 if mixer is None else mixer.num_heads


def model_traits(spec: ModelSpec, settings: VLLMSettings) -> ModelTraits:
    """What the defaults depend on of a model."""
    return _traits(spec, _is_pooling(spec, settings))


@lru_cache(maxsize=128)
def _traits(spec: ModelSpec, pooling: bool) -> ModelTraits:
    mixers: list[Mixer] = [mixer for layer, _ in spec.layer_kinds for mixer in layer.mixers]
    plain = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = next((mixer for mixer in mixers if isinstance(mixer, LatentAttention)), None)
    recurrent = [mixer for mixer in mixers if isinstance(mixer, Recurrent)]
    caches = [mixer for mixer in plain if not mixer.encoder_only]
    full = [mixer for mixer in caches if mixer.window is None and mixer.chunk is None]
    return ModelTraits(
        attention_free=bool(recurrent) and not plain and latent is None,
        hybrid=bool(recurrent) and (bool(plain) or latent is not None),
        encoder_only=bool(plain) and all(mixer.encoder_only for mixer in plain),
        encoder_decoder=bool(spec.encoder_layers),
        pooling=pooling,
        has_experts=any(isinstance(layer.ffn, MoEFFN) for layer, _ in spec.layer_kinds),
        latent=latent,
        attention=next(iter(full or caches or plain), None),
        keeps_every_state=bool(recurrent)
        and all(mixer.kind in _KEEPS_EVERY_STATE for mixer in recurrent),
    )


def _is_pooling(spec: ModelSpec, settings: VLLMSettings) -> bool:
    """Whether the runner is a pooling one (config/model.py ``_get_runner_type``)."""
    if settings.runner not in (None, "auto"):
        return settings.runner == "pooling"
    if settings.task in _POOLING_TASKS or settings.convert in _POOLING_TASKS:
        return True
    if spec.architecture.endswith(_GENERATING_SUFFIXES):
        return False
    return spec.architecture.endswith((*_POOLING_SUFFIXES, "Model"))
