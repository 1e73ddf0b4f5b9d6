"""What may be chosen from at all, before any deployment is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tokenroom.engines.cache_types import cache_types
from tokenroom.engines.draft_methods import draft_methods
from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.planning.candidates import PER_NODE, Candidate
from tokenroom.planning.tuning import Draft
from tokenroom.serving_terms import check_engine


def check_choices(
    engines: Sequence[str],
    kv_types: Sequence[str | None],
    drafts: Sequence[Draft | None] = (),
) -> None:
    """Refuse what no GPU and no model could make possible.

    Args:
        engines: Engines to choose from, with versions.
        kv_types: Types of the cache to choose from; None for what an engine takes by itself.
        drafts: Ways of drafting to choose from; None for none.

    Raises:
        DeploymentError: An engine is unknown, or its version, or its speed is not modelled; or none
            of the engines has a type of the cache or a way of drafting.
    """
    known: dict[str, tuple[str, ...]] = {}
    for engine in engines:
        policy, _ = engine_named(engine)
        try:
            check_engine(policy.name)
            known[engine] = cache_types(engine)
        except DeploymentError as error:
            raise DeploymentError(f"engine is {shown(engine)}: {error}") from error
    for kv in kv_types:
        if kv is not None:
            _check_known("kv", kv, known)
    methods = {engine: draft_methods(engine) for engine in engines} if any(drafts) else {}
    for draft in drafts:
        if draft is not None:
            _check_known("drafts", draft.method, methods)


def _check_known(field: str, value: str, known: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse what none of some engines knows, of which each knows something."""
    if not any(value in names for names in known.values()):
        may = "; ".join(
            f"{engine} takes {', '.join(names) or 'none'}" for engine, names in known.items()
        )
        raise DeploymentError(f"{field} is {shown(value)}, which none of the engines knows; {may}")


def largest_tried(
    specs: Iterable[ModelSpec],
    accelerators: Sequence[Accelerator],
    *,
    engines: Sequence[str],
    most_gpus: int,
) -> list[Candidate]:
    """A replica on as many GPUs as there may be of each kind, to tell by how much they are too few.

    For models whose weights alone are more than that, of which no candidate is worth judging.
    """
    gpus = 2 ** (most_gpus.bit_length() - 1)
    tensor = min(gpus, PER_NODE)
    return [
        Candidate(
            spec=spec,
            accelerator=accelerator,
            engine=engine,
            tensor_parallel_size=tensor,
            pipeline_parallel_size=gpus // tensor,
        )
        for spec in specs
        for accelerator in accelerators
        for engine in engines
    ]
