"""Speculative decoding: what drafting and verifying add to a step, and how many tokens it yields.

Each step the model verifies the drafted tokens of a request beside its newest one, and keeps them
up to the first that it would not have said itself (Leviathan et al., arXiv:2211.17192). What
drafts then runs over the same rows to fill its own cache, which yields the first token of the next
draft, and once more for each further token (vLLM 0.33 llm_base_proposer.py ``propose``; SGLang
0.5.23 eagle_worker_v2.py ``draft`` and draft extension; llama.cpp 0c1e57098 common/speculative.cpp;
TensorRT-LLM's one-model EAGLE-3 and MTP workers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tokenroom.errors import DeploymentError, shown
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.operators import step_operators
from tokenroom.performance.work import AFTER_BLOCKS, Layout, Operator, StepWork

_BISECTIONS: Final = 60
_ALL: Final = 1e-9  # nearer to 1 the closed form loses its digits
_PREFIX: Final = "draft."


class Acceptance(NamedTuple):
    """How often a drafted token is kept, when those before it were.

    Attributes:
        rate: Chance of each token in a row, 0 to 1.
        low: Lower end of what was measured.
        high: Upper end.
        source: Who measured it; empty for what the user gave.
    """

    rate: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """How tokens are drafted.

    Attributes:
        method: ``"eagle3"``, ``"eagle"``, ``"mtp"``, ``"draft_model"``, ``"ngram"``, ...
        depth: Tokens in a row that may be accepted.
        verified: Rows that a request brings to a step of the model: its newest token and every
            drafted one, which in a tree are more than its depth.
        branches: Branches that each pass of the drafter follows.
        acceptance: How often a token is kept.
        drafter: What drafts; None where tokens are looked up.
        layout: How it is divided.
        at_once: It drafts all tokens in one pass.
    """

    method: str
    depth: int
    verified: int
    branches: int
    acceptance: Acceptance
    drafter: ModelSpec | None
    layout: Layout
    at_once: bool = False

    @property
    def passes(self) -> int:
        """Runs of the drafter a step."""
        if self.drafter is None:
            return 0
        return 1 if self.at_once else self.depth

    @property
    def tokens_per_step(self) -> tuple[float, float, float]:
        """Tokens that a request gets a step: expected, and for the ends of the acceptance."""
        rate, low, high, _ = self.acceptance
        return tuple(expected_tokens(each, self.depth) for each in (rate, low, high))  # type: ignore[return-value]


def expected_tokens(rate: float, depth: int) -> float:
    """Tokens of one step: those accepted and the one that the model adds itself.

    (1 - a^(k+1)) / (1 - a) for k drafted tokens, each accepted with chance a (Leviathan et al.,
    arXiv:2211.17192, equation 1).
    """
    if 1 - rate < _ALL:
        return depth + 1
    return (1 - rate ** (depth + 1)) / (1 - rate)


def acceptance_of(given: float, depth: int) -> Acceptance:
    """What a user says of it: a rate up to 1, or the mean tokens of a step above 1.

    Raises:
        DeploymentError: It is neither.
    """
    usable = isinstance(given, int | float) and not isinstance(given, bool)
    if not usable or not 0 <= given <= depth + 1:
        raise DeploymentError(
            f"acceptance is {shown(given)}; give the share of drafted tokens that are kept, 0 to "
            f"1, or the mean tokens of a step, up to {depth + 1} with {depth} drafted"
        )
    if given <= 1:
        return Acceptance(given, given, given, "")
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if expected_tokens(middle, depth) < given:
            low = middle
        else:
            high = middle
    return Acceptance(high, high, high, "")


def verifying(work: StepWork, drafting: Drafting) -> StepWork:
    """A step in which each decoding request brings what was drafted for it."""
    return replace(work, decode_tokens=drafting.verified, decode_outputs=drafting.verified)


def draft_operators(
    drafting: Drafting, work: StepWork, *, drafts_after_prompts: bool = True
) -> tuple[Operator, ...]:
    """Every operator of the drafter in one step, one pass after another.

    Args:
        drafting: How tokens are drafted.
        work: The step that the model itself ran.
        drafts_after_prompts: Further tokens are drafted in a step of prompts alone, too (vLLM);
            otherwise in the decode step that follows (SGLang).

    Raises:
        DeploymentError: The layout does not divide the drafter, or it has parts whose speed is not
            modelled.
    """
    if drafting.drafter is None or not work.tokens:
        return ()
    first = replace(
        work,
        decode_tokens=drafting.depth + 1,
        decode_outputs=drafting.depth if drafting.at_once else 1,
    )
    found = list(step_operators(drafting.drafter, drafting.layout, first))
    further = drafting.passes - 1
    if further and (work.decode_sequences or drafts_after_prompts):
        after = StepWork(
            decode_sequences=work.sequences,
            decode_context_tokens=work.decode_context_tokens,
            decode_tokens=drafting.branches,
            decode_outputs=drafting.branches,
            other_tokens=work.other_tokens // max(1, drafting.verified) * drafting.branches,
        )
        found += [
            operator._replace(times=operator.times * further)
            for operator in step_operators(drafting.drafter, drafting.layout, after)
        ]
    return tuple(
        operator._replace(name=_PREFIX + operator.name, block=AFTER_BLOCKS) for operator in found
    )
