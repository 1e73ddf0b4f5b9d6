"""Whether vLLM runs a model on its first engine (V0) or on the second (V1).

V0 alone existed until V1 became the default in 0.8.0; 0.11.0 removed V0. Between them
``_is_v1_supported_oracle`` (engine/arg_utils.py 0.8.0 to 0.10.2) falls back to V0 for what V1 did
not support yet, and ``VLLM_USE_V1`` overrides the choice.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tokenroom.engines.vllm.model_traits import ModelTraits, model_traits
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import Attention, ModelSpec


class EngineGeneration(StrEnum):
    """The two engines."""

    V0 = "v0"
    V1 = "v1"


_V1_DEFAULT: Final = (0, 8, 0)
_V0_REMOVED: Final = (0, 11, 0)

#: Quantisation methods that V1 compiled from a version on.
_QUANTIZATION_SINCE: Final = {"bitsandbytes": (0, 9, 0), "gguf": (0, 9, 0)}
#: Speculative methods that V1 ran, by the version it took them up.
_DRAFTS_SINCE: Final = {
    "ngram": (0, 8, 3),
    "eagle": (0, 8, 5),
    "eagle3": (0, 9, 0),
    "medusa": (0, 9, 2),
    "mtp": (0, 9, 2),
    "deepseek_mtp": (0, 9, 2),
}
#: Model types whose class says ``SupportsV0Only``, up to the version they were ported in.
_V0_ONLY_UNTIL: Final = {
    "bart": (0, 11, 0),
    "mbart": (0, 11, 0),
    "bloom": (0, 10, 0),
    "whisper": (0, 10, 2),
}


def runs_v0(
    settings: VLLMSettings,
    spec: ModelSpec,
    accelerator: Accelerator,
    version: tuple[int, int, int],
) -> bool:
    """Whether the V0 engine serves this model, GPU and version.

    Args:
        settings: What the user set; ``VLLM_USE_V1`` in its environment decides first.
        spec: The model.
        accelerator: The GPU.
        version: (major, minor, patch).

    Raises:
        DeploymentError: V1 is asked for in a version that had it as an experiment.
    """
    if version >= _V0_REMOVED:
        return False
    asked = settings.environment.get("VLLM_USE_V1")
    if version < _V1_DEFAULT:
        if asked == "1":
            raise DeploymentError(
                f"VLLM_USE_V1 is 1, but the V1 engine of vLLM {'.'.join(map(str, version))} was "
                f"experimental and its memory rules are not known; unset it or name 0.8.0 or later"
            )
        return True
    if asked in ("0", "1"):
        return asked == "0"
    return _v1_lacks(settings, spec, model_traits(spec, settings), accelerator, version)


def _v1_lacks(
    settings: VLLMSettings,
    spec: ModelSpec,
    traits: ModelTraits,
    accelerator: Accelerator,
    version: tuple[int, int, int],
) -> bool:
    """Whether something in use keeps the engine from V1."""
    capability = accelerator.compute_capability
    old_gpu = capability is not None and capability < (8, 0)
    if accelerator.vendor == "nvidia" and old_gpu and version < (0, 10, 0):
        return True
    if accelerator.vendor == "amd" and version < (0, 9, 0):
        return True
    if (settings.pipeline_parallel_size or 1) > 1 and version < (0, 8, 5):
        return True
    if settings.enable_lora and version < (0, 8, 3):
        return True
    if version < _QUANTIZATION_SINCE.get(settings.quantization or spec.quantization or "", (0,)):
        return True
    if settings.cpu_offload_bytes and version < (0, 8, 3):
        return True
    packed = (settings.kv_cache_dtype or "auto") != "auto"
    if packed and (
        version < (0, 8, 4) or (version < (0, 10, 0) and accelerator.architecture != "hopper")
    ):
        return True
    draft = settings.speculative
    if draft is not None and version < _DRAFTS_SINCE.get(draft.method, (0, 11, 0)):
        return True
    if version < _V0_ONLY_UNTIL.get(spec.model_type, (0,)):
        return True
    if traits.encoder_decoder or _attends_to_encoder(spec):
        return True
    if traits.pooling and version < (0, 9, 2):
        return True
    return traits.recurrent and version < (0, 10, 1)


def _attends_to_encoder(spec: ModelSpec) -> bool:
    return any(
        isinstance(mixer, Attention) and mixer.cross
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
    )
