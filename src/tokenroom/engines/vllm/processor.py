"""What ``--mm-processor-kwargs`` makes of the largest image and video of Qwen's encoders.

Source: ``get_image_size_with_most_features`` and ``_get_vision_info``,
model_executor/models/qwen2_vl.py, and ``get_max_video_tokens``, qwen3_vl.py (0.11.0 to 0.33.0);
``resolve_mm_processor_kwargs``: keys count for every modality, or under ``images_kwargs`` and
``videos_kwargs`` for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import isqrt
from typing import Final

from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.errors import DeploymentError, shown
from tokenroom.models.architectures.multimodal_qwen import most_tokens
from tokenroom.models.spec import ModelSpec, Role, Tower

_QWEN: Final = ("Qwen2VL", "Qwen2_5_VL", "Qwen2_5Omni", "Qwen3VL", "Qwen3_5", "Qwen3Omni")
_FRAMES_OF_A_GROUP: Final = 2
#: Keys that change which pixels are read, not how many.
_WITHOUT_INFLUENCE: Final = frozenset(
    {
        *("min_pixels", "fps", "do_rescale", "do_normalize", "do_convert_rgb", "use_fast"),
        *("return_tensors", "device", "rescale_factor", "image_mean", "image_std", "resample"),
    }
)
_LIMITS: Final = frozenset({"max_pixels", "size"})


def with_pixel_limits(spec: ModelSpec, settings: VLLMSettings) -> ModelSpec:
    """The model with the largest image and video that the processor settings allow.

    Raises:
        DeploymentError: A limit is no whole number, or below one patch.
    """
    if not spec.towers or not _is_qwen(spec):
        return spec
    image, video = pixel_limits(settings)
    if image is None and video is None:
        return spec
    return _limited(spec, image, video)


def unmodelled_keys(spec: ModelSpec, settings: VLLMSettings) -> tuple[str, ...]:
    """Processor keys given whose influence on memory is not modelled."""
    pixels = settings.mm_processor_max_pixels is not None
    if not spec.towers or not (settings.mm_processor_kwargs or pixels):
        return ()
    known = _WITHOUT_INFLUENCE | (_LIMITS if _is_qwen(spec) else frozenset())
    found = []
    for key, value in settings.mm_processor_kwargs.items():
        if key in ("images_kwargs", "videos_kwargs") and isinstance(value, Mapping):
            found += [f"{key}.{name}" for name in value if name not in known]
        elif key not in known:
            found.append(key)
    if pixels and not _is_qwen(spec) and "max_pixels" not in found:
        found.append("max_pixels")
    return tuple(found)


def pixel_limits(settings: VLLMSettings) -> tuple[int | None, int | None]:
    """Most pixels of an image and of a video, None where nothing limits them.

    Raises:
        DeploymentError: A limit is no whole number of at least 1.
    """
    kwargs = settings.mm_processor_kwargs
    both = _pixels(kwargs)
    if both is None:
        both = settings.mm_processor_max_pixels
    image, video = kwargs.get("images_kwargs"), kwargs.get("videos_kwargs")
    own_image = _pixels(image) if isinstance(image, Mapping) else None
    own_video = _pixels(video) if isinstance(video, Mapping) else None
    return own_image or both, own_video or both


def _pixels(kwargs: Mapping[str, object]) -> int | None:
    size = kwargs.get("size")
    edge = size.get("longest_edge") if isinstance(size, Mapping) else None
    found = kwargs.get("max_pixels") if edge is None else edge
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise DeploymentError(
            f"max_pixels of mm_processor_kwargs is {shown(found)}; give a whole number of at "
            f"least 1"
        )
    return found


def _is_qwen(spec: ModelSpec) -> bool:
    return spec.architecture.startswith(_QWEN)


@lru_cache(maxsize=64)
def _limited(spec: ModelSpec, image: int | None, video: int | None) -> ModelSpec:
    towers = tuple(
        _limited_tower(tower, image, video) if tower.name == "vision" else tower
        for tower in spec.towers
    )
    kept = spec.assumptions if image is None else _without_pixels(spec)
    return replace(spec, towers=towers, assumptions=kept)


def _without_pixels(spec: ModelSpec) -> tuple[str, ...]:
    return tuple(text for text in spec.assumptions if "pixels after scaling" not in text)


def _limited_tower(tower: Tower, image: int | None, video: int | None) -> Tower:
    tokens, positions = tower.max_tokens_per_item, tower.encoder_tokens_per_item
    patch = next((w.shape[-1] for w in tower.weights if w.role is Role.CONV), 0)
    if not tokens or not positions or not patch:
        return tower
    merged = positions // tokens
    unit = (patch * isqrt(merged)) ** 2
    for limit in (image, video):
        if limit is not None and limit < unit:
            raise DeploymentError(
                f"max_pixels of mm_processor_kwargs is {limit}; one token of the encoder takes "
                f"{unit} pixels, so give at least that"
            )
    if image is not None:
        tokens = most_tokens(image // unit)
        tower = replace(tower, max_tokens_per_item=tokens, encoder_tokens_per_item=tokens * merged)
    clip = tower.clip
    # Frames of Qwen2 are as large as the largest image, then scaled to a video's own limit; the
    # one pair of Qwen3 has a limit of its own.
    paired = clip is not None and clip.groups == 1
    frame = video if paired else min(filter(None, (image, video)), default=None)
    if clip is not None and frame is not None:
        tokens = most_tokens(max(1, (frame // _FRAMES_OF_A_GROUP if paired else frame) // unit))
        tower = replace(tower, clip=replace(clip, tokens=tokens, encoder_tokens=tokens * merged))
    return tower
