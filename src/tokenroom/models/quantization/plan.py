"""What a quantisation block decides: which scheme each module has, and the KV cache's type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tokenroom.models.spec import Role, Scheme, Weight

Resolver: TypeAlias = Callable[[Sequence[str], Weight], Scheme | None]
"""The scheme of a weight that goes by the given module names, None for plain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A quantisation block, understood.

    Attributes:
        method: Name of the method, as engines spell it.
        resolve: The scheme of a module.
        kv_cache_dtype: Type the checkpoint asks the KV cache to have, None for the model's own.
        assumptions: Sentences on what was assumed, for the user.
    """

    method: str
    resolve: Resolver
    kv_cache_dtype: str | None = None
    assumptions: tuple[str, ...] = field(default=())


def is_projection(weight: Weight) -> bool:
    """Whether the weight is a matrix that a quantiser of linear layers converts by default."""
    return weight.role in (Role.LINEAR, Role.ROUTER) and len(weight.shape) >= 2


def is_head(weight: Weight) -> bool:
    """Whether the weight is the output projection, converted only where a method says so."""
    return weight.role is Role.LM_HEAD
