"""Demands that several tests plan for."""

from typing import Any

from tokenroom.objectives import Objectives
from tokenroom.planning.demand import Demand
from tokenroom.planning.lengths import of_means


def demand(**changes: Any) -> Demand:
    """100 users who think for 10 s, unless changed."""
    lengths = of_means(changes.pop("input_tokens", 1024), changes.pop("output_tokens", 256))
    promises = {
        "ttft_seconds": changes.pop("ttft_seconds", 2.0),
        "tpot_seconds": changes.pop("tpot_seconds", 0.05),
    }
    if "requests_per_second" not in changes:
        changes = {"users": 100, "think_seconds": 10.0} | changes
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest_tokens,
        lengths=lengths.pairs,
        objectives=Objectives(**promises),
        **changes,
    )
