"""All claims, and their answers: computed, or as they were last recorded where that takes long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from tokenroom.claims import (
    activations,
    batching,
    budget,
    engines,
    kv_cache,
    latency,
    parallel,
    pools,
    tables,
    users,
    weights,
)
from tokenroom.claims.claim import Answer, Case, Claim, Text
from tokenroom.errors import ClaimError, shown

RECORDED: Final = "data/simulated.json"
"""Figures of claims that take simulations, written by ``scripts/write_claims.py``."""

_CHAPTERS: Final = (
    weights,
    kv_cache,
    activations,
    budget,
    parallel,
    latency,
    batching,
    pools,
    users,
    engines,
    tables,
)
_ARTICLES: Final = ("ledger", "handbook")


@lru_cache(maxsize=1)
def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the articles."""
    found = [claim for chapter in _CHAPTERS for claim in chapter.CLAIMS]
    return tuple(sorted(found, key=_place))


def _place(claim: Claim) -> tuple[int, tuple[int, ...]]:
    numbers = tuple(int(part) for part in claim.section.split("."))
    return _ARTICLES.index(claim.article), numbers


def claims_named(names: Sequence[str]) -> tuple[Claim, ...]:
    """Claims by their ids; a name that is none stands for all ids that begin with it.

    Raises:
        ClaimError: There is none.
    """
    known = {claim.id: claim for claim in all_claims()}
    found: dict[str, Claim] = {}
    for name in names:
        wanted = name.strip().lower()
        alike = [wanted] if wanted in known else [id for id in known if id.startswith(wanted)]
        if not wanted or not alike:
            from difflib import get_close_matches

            near = get_close_matches(wanted, known, n=3, cutoff=0.4)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise ClaimError(
                f"no claim is named {shown(name)}{hint}; tokenroom claims lists them all"
            )
        found.update((id, known[id]) for id in alike)
    return tuple(found.values())


def answers(
    claims: Iterable[Claim],
    *,
    live: bool = True,
    on_claim: Callable[[], None] = lambda: None,
) -> Iterator[Answer]:
    """Our figures of claims.

    Args:
        claims: Which.
        live: Compute all of them; otherwise those that take simulations are as they were recorded.
        on_claim: Called after each.
    """
    kept = {} if live else recorded()
    for claim in claims:
        cases = kept.get(claim.id) if claim.simulated else None
        yield Answer(
            claim=claim,
            cases=tuple(claim.ours()) if cases is None else cases,
            recorded=cases is not None,
        )
        on_claim()


@lru_cache(maxsize=1)
def recorded() -> dict[str, tuple[Case, ...]]:
    """Figures of claims that take simulations, as last recorded."""
    text = files("tokenroom.claims").joinpath(RECORDED).read_text("utf-8")
    return {id: tuple(map(_case, cases)) for id, cases in json.loads(text).items()}


def _case(data: dict[str, Any]) -> Case:
    name = data["name"]
    return Case(data["value"], name if isinstance(name, str) else Text(*name))


def recording(found: Iterable[Answer]) -> str:
    """The text of the file that :func:`recorded` reads."""
    kept = {
        answer.claim.id: [{"value": case.value, "name": case.name} for case in answer.cases]
        for answer in found
        if answer.claim.simulated
    }
    return json.dumps(kept, ensure_ascii=False, indent=1) + "\n"
