"""How much room for tokens GPUs have: what a model takes in memory under a serving engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenroom.errors import TokenroomError
    from tokenroom.fitting import FitResult, fit
    from tokenroom.growth import sweep
    from tokenroom.hardware.accelerator import Accelerator, Node
    from tokenroom.hardware.catalogue import find_accelerator
    from tokenroom.models.resolve import load_model
    from tokenroom.models.spec import ModelSpec
    from tokenroom.objectives import load_limits
    from tokenroom.serving_speed import ServingSpeed, speed

_HOMES: Final = {
    "Accelerator": "tokenroom.hardware.accelerator",
    "FitResult": "tokenroom.fitting",
    "ModelSpec": "tokenroom.models.spec",
    "Node": "tokenroom.hardware.accelerator",
    "ServingSpeed": "tokenroom.serving_speed",
    "TokenroomError": "tokenroom.errors",
    "find_accelerator": "tokenroom.hardware.catalogue",
    "fit": "tokenroom.fitting",
    "load_limits": "tokenroom.objectives",
    "load_model": "tokenroom.models.resolve",
    "speed": "tokenroom.serving_speed",
    "sweep": "tokenroom.growth",
}

__all__ = [
    "Accelerator",
    "FitResult",
    "ModelSpec",
    "Node",
    "ServingSpeed",
    "TokenroomError",
    "find_accelerator",
    "fit",
    "load_limits",
    "load_model",
    "speed",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that the command line starts fast."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tokenroom' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names that are here already and those that come when they are used."""
    return sorted({*globals(), *_HOMES})
