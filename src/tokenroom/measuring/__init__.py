"""What a model running under PyTorch really holds: measured, and beside what is predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenroom.measuring.in_torch.measurement import measure

__all__ = ["measure"]


def __getattr__(name: str) -> Any:
    """``measure`` is imported when it is first used, since PyTorch takes seconds to load."""
    if name != "measure":
        raise AttributeError(f"module 'tokenroom.measuring' has no attribute {name!r}")
    from tokenroom.measuring.libraries import require_torch

    require_torch()
    from tokenroom.measuring.in_torch.measurement import measure

    return measure
