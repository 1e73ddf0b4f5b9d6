"""What GPUs cost, as a search is told."""

from __future__ import annotations

from collections.abc import Iterable

from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator


def prices_by_key(
    given: Iterable[tuple[str, Accelerator, float]], tried: Iterable[Accelerator]
) -> dict[str, float]:
    """USD of one GPU for an hour, by its key.

    Args:
        given: A GPU's name as it was written, the GPU and its price.
        tried: Kinds of GPU that are chosen from.

    Raises:
        DeploymentError: A price is of a GPU that is not tried, or two differ.
    """
    keys = {each.key for each in tried}
    found: dict[str, float] = {}
    for name, accelerator, usd in given:
        key = accelerator.key
        if key not in keys:
            raise DeploymentError(
                f"there is a price of {shown(name)}, which is not tried; leave it out, or name "
                "the GPU with the others"
            )
        if found.setdefault(key, usd) != usd:
            raise DeploymentError(
                f"the price of {key} is {found[key]:g} and {usd:g} USD; give one of them"
            )
    return found
