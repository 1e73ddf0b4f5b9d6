"""Settings to be tried as people write them: between commas, ``auto`` for the engine's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tokenroom.errors import DeploymentError, shown
from tokenroom.planning.tuning import DEFAULTS_ALONE, TRIED, Draft, TuningSpace
from tokenroom.units import parse_bytes, parse_count, parse_number

_Value = TypeVar("_Value")

_OWN: Final = "auto"
_NONE: Final = "none"
_SWITCH: Final[Mapping[str, bool]] = {"on": True, "off": False}
_USUAL_DRAFTS: Final[Mapping[str, int]] = {"mtp": 1}
"""Tokens that a method drafts a step unless said: as many as a checkpoint has blocks for, of which
most have one."""
_DRAFTED: Final = 3
"""The same of other methods, as engines' own examples do (vLLM 0.33 docs/features/spec_decode)."""


def space_of_texts(
    *,
    token_budgets: Sequence[str] | None = None,
    max_num_seqs: Sequence[str] | None = None,
    memory_shares: Sequence[str] | None = None,
    prefix_caching: Sequence[str] | None = None,
    kv_offload: Sequence[str] | None = None,
    drafts: Sequence[str] | None = None,
    own_alone: bool = False,
) -> TuningSpace:
    """The space of tunings that some texts ask for; what is None is tried as usual.

    Args:
        token_budgets: Tokens of a step.
        max_num_seqs: Requests at once.
        memory_shares: Shares of each GPU's memory.
        prefix_caching: ``on`` and ``off``.
        kv_offload: Bytes of host memory, or ``none``.
        drafts: ``none``, or ``METHOD``, ``METHOD:TOKENS``, ``METHOD:TOKENS=MODEL``.
        own_alone: What is None stays as the engine takes it by itself.

    Raises:
        DeploymentError: A value is out of range.
        TokenroomError: A value is no number or size.
    """
    usual = DEFAULTS_ALONE if own_alone else TRIED
    given: dict[str, Any] = {
        "max_num_batched_tokens": _values(token_budgets, _count("token_budget")),
        "max_num_seqs": _values(max_num_seqs, _count("max_num_seqs")),
        "memory_shares": _values(memory_shares, _share),
        "prefix_caching": _values(prefix_caching, _switched),
        "kv_offload_bytes": _values(kv_offload, _offloaded, _NONE),
        "drafts": _values(drafts, draft_of, _NONE),
    }
    return TuningSpace(
        **{
            name: getattr(usual, name) if values is None else values
            for name, values in given.items()
        }
    )


def draft_of(text: str) -> Draft:
    """How tokens are drafted, as ``ngram``, ``mtp:2`` or ``eagle3:3=MODEL``.

    Raises:
        DeploymentError: No method is named.
        TokenroomError: The tokens are no number.
    """
    start, _, model = text.partition("=")
    method, _, tokens = start.partition(":")
    if not method.strip():
        raise DeploymentError(
            f"drafts holds {shown(text)}; write METHOD, METHOD:TOKENS or METHOD:TOKENS=MODEL"
        )
    name = method.strip().lower()
    count = parse_count(tokens, "drafts", least=1) if tokens else _USUAL_DRAFTS.get(name, _DRAFTED)
    return Draft(method=name, tokens=count, model=model.strip() or None)


def draft_text(draft: Draft) -> str:
    """What :func:`draft_of` reads."""
    model = "" if draft.model is None else f"={draft.model}"
    return f"{draft.method}:{draft.tokens}{model}"


def _values(
    texts: Sequence[str] | None, parse: Callable[[str], _Value], own: str = _OWN
) -> tuple[_Value | None, ...] | None:
    if texts is None:
        return None
    return tuple(dict.fromkeys(None if text.lower() == own else parse(text) for text in texts))


def _count(name: str) -> Callable[[str], int]:
    return lambda text: parse_count(text, name, least=1)


def _share(text: str) -> float:
    value = parse_number(text.removesuffix("%"), "util") / (100 if text.endswith("%") else 1)
    if not 0 < value <= 1:
        raise DeploymentError(f"util is {shown(text)}; give a share above 0 and up to 1, as 0.9")
    return value


def _switched(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise DeploymentError(f"prefix_caching is {shown(text)}; it may be auto, on, off")
    return _SWITCH[text.lower()]


def _offloaded(text: str) -> int:
    return parse_bytes(text, "kv_offload")
