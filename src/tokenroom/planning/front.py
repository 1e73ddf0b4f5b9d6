"""Which proposals are worth their cost: none is shown that another beats in everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from tokenroom.planning.judging import Proposal, Rejection


def front(proposals: Iterable[Proposal]) -> tuple[list[Proposal], list[Rejection]]:
    """The proposals that no other beats, cheapest first, and those that are beaten, by which.

    One beats another that costs as much or more, answers no sooner, gives tokens no faster and has
    no more room to grow. Costs are USD where both have a price; else GPUs, which compare only where
    they are of one kind.
    """
    ordered = sorted(proposals, key=_rank)
    kept: list[Proposal] = []
    beaten: list[Rejection] = []
    for proposal in ordered:
        winner = next((other for other in kept if beats(other, proposal)), None)
        if winner is None:
            kept.append(proposal)
        else:
            beaten.append(
                Rejection(
                    candidate=proposal.candidate,
                    reason="dominated",
                    details=partial(_beaten, proposal, winner),
                    nearest=proposal.gpus / winner.gpus,
                )
            )
    return kept, beaten


def _beaten(proposal: Proposal, winner: Proposal) -> Mapping[str, object]:
    return {
        "by": winner,
        "gpus": proposal.gpus,
        "usd": proposal.usd_per_hour,
        "communication": proposal.point.tpot_shares["communication"],
    }


def in_turns(proposals: Sequence[Proposal]) -> Iterator[Proposal]:
    """The best of each kind of GPU, engine and layout in order of cost, then the second best.

    Those with prompts and answers apart are of a kind of their own.
    """
    kinds: dict[object, list[Proposal]] = {}
    for proposal in proposals:
        candidate = proposal.candidate
        kind = (
            *(candidate.accelerator.key, candidate.engine, candidate.spec.name),
            candidate.split is None,
        )
        kinds.setdefault(kind, []).append(proposal)
    for turn in range(max(map(len, kinds.values()), default=0)):
        yield from (found[turn] for found in kinds.values() if turn < len(found))


def _rank(proposal: Proposal) -> tuple[float, ...]:
    """Cheapest first; those without a price after those with one, by the memory of all GPUs.

    Memory stands for the price that is not known: larger GPUs cost more, and a count alone would
    put the largest first.
    """
    usd = proposal.usd_per_hour
    memory = proposal.gpus * proposal.candidate.accelerator.nominal_memory_bytes
    return (
        float(usd is None),
        memory if usd is None else usd,
        proposal.gpus,
        proposal.tpot_seconds,
        proposal.candidate.tuning.settled,
    )


def beats(winner: Proposal, other: Proposal) -> bool:
    """Whether one costs no more, answers no later and has no less room than another."""
    if winner.usd_per_hour is not None and other.usd_per_hour is not None:
        cheaper = winner.usd_per_hour <= other.usd_per_hour
    elif winner.candidate.accelerator.key == other.candidate.accelerator.key:
        cheaper = winner.gpus <= other.gpus
    else:
        return False
    return (
        cheaper
        and winner.ttft_seconds <= other.ttft_seconds
        and winner.tpot_seconds <= other.tpot_seconds
        and winner.headroom >= other.headroom
    )
