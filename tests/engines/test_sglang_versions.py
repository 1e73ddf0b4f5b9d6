"""SGLang builds between two releases, named by the release they led to and their day."""

from __future__ import annotations

import pytest

from tokenroom import fit
from tokenroom.engines.sglang.rules import rules_for, version_numbers
from tokenroom.errors import DeploymentError
from tokenroom.fitting import FitResult

_DRAFTED = {"tp": 8, "speculative_algorithm": "EAGLE", "mem_fraction_static": 0.84}


def _drafted(version: str) -> FitResult:
    return fit("sgl-project/DeepSeek-V4-Flash-FP8", "l20", engine=f"sglang@{version}", **_DRAFTED)


@pytest.mark.parametrize(
    ("version", "reserve", "loaded_first"),
    [
        ("0.5.13", True, False),
        ("0.5.14.dev20260611", True, False),
        ("0.5.14.dev20260612", False, False),
        ("0.5.14.dev20260621", False, False),
        ("0.5.14.dev20260622+g0c06567", False, True),
        ("0.5.14", False, True),
    ],
)
def test_commits_count_from_their_day(version: str, reserve: bool, loaded_first: bool) -> None:
    rules = rules_for(version)
    assert rules.draft_reserve is reserve
    assert rules.draft_cells_charged is not reserve
    assert rules.drafts_loaded_first is loaded_first


def test_a_development_version_counts_as_its_release() -> None:
    assert version_numbers("0.5.14.dev20260618") == (0, 5, 14)
    assert rules_for("0.5.14.dev20260618").since(0, 5, 14)
    assert rules_for("0.5.14.dev20260618").name == "0.5.14.dev20260618"


@pytest.mark.parametrize("version", ["0.5.14.dev20261345", "0.5.14.dev20260231"])
def test_an_impossible_day_is_refused(version: str) -> None:
    with pytest.raises(DeploymentError, match=version):
        rules_for(version)


def test_drafts_loaded_after_the_pool_leave_it_larger() -> None:
    before, after = _drafted("0.5.14.dev20260618"), _drafted("0.5.14")
    draft = before.plan.stages[0].weights["draft"]
    gained = before.plan.stages[0].available_bytes - after.plan.stages[0].available_bytes
    assert gained == pytest.approx(draft, rel=0.01)
    assert before.plan.kv_pool_tokens > after.plan.kv_pool_tokens
