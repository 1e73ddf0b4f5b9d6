"""What vLLM asks of speculative decoding.

Source: ``SpeculativeMethod`` and ``SpeculativeConfig.__post_init__``, config.py and
config/speculative.py 0.8.5 to 0.33.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.rules import version_number
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import shown
from tokenroom.models.spec import ModelSpec

#: Methods with the versions that brought and dropped them; every ``*_mtp`` is read as ``mtp``.
_METHODS: Final[tuple[tuple[str, tuple[int, int], tuple[int, int] | None], ...]] = (
    ("ngram", (0, 0), None),
    ("ngram_gpu", (0, 18), None),
    ("suffix", (0, 12), None),
    ("mtp", (0, 9), None),
    ("eagle", (0, 8), None),
    ("eagle3", (0, 9), None),
    ("draft_model", (0, 0), None),
    ("dflash", (0, 20), None),
    ("dspark", (0, 25), None),
    ("medusa", (0, 0), (0, 33)),
    ("mlp_speculator", (0, 0), (0, 33)),
    ("extract_hidden_states", (0, 17), None),
    ("custom_class", (0, 22), None),
)
_NEEDS_TOKENS: Final = frozenset(
    {"ngram", "ngram_gpu", "draft_model", "eagle", "eagle3", "medusa", "dflash"}
)
_NO_DRAFT_MODELS: Final = ((0, 10, 2), (0, 16, 0))
"""From which version to before which V1 refused separate draft models."""


@lru_cache(maxsize=64)
def known_methods(version: tuple[int, ...]) -> tuple[str, ...]:
    """Methods of a version."""
    return tuple(
        name
        for name, since, until in _METHODS
        if since <= version and (until is None or version < until)
    )


def draft_refusals(
    draft: SpeculativeSettings, spec: ModelSpec, version: str, tensor_parallel_size: int
) -> Iterator[str]:
    """Every reason vLLM has against drafting so."""
    number, method, tokens = version_number(version), draft.method, draft.num_speculative_tokens
    if method not in known_methods(number):
        methods = ", ".join(known_methods(number))
        yield f"the speculative method is {shown(method)}; vLLM {version} knows {methods}"
        return
    if tokens < 1 and method in _NEEDS_TOKENS:
        yield f"num_speculative_tokens is not set, which the {method} method needs; give at least 1"
    blocks = len(spec.mtp_layers)
    if method == "mtp" and draft.model is None:
        if not blocks:
            yield (
                f"the speculative method is mtp, but {spec.name} has no blocks for multi-token "
                f"prediction; use ngram, or eagle3 with a draft model"
            )
        elif tokens > blocks and tokens % blocks:
            yield (
                f"num_speculative_tokens is {tokens}, which the model's {blocks} MTP blocks do not "
                f"divide; give a multiple of {blocks}"
            )
    if method == "draft_model" and _NO_DRAFT_MODELS[0] <= number < _NO_DRAFT_MODELS[1]:
        yield (
            f"the speculative method is draft_model, which vLLM {version} does not run; use ngram, "
            f"eagle or mtp, or version 0.16.0 or newer"
        )
    if draft.draft_tensor_parallel_size not in (None, 1, tensor_parallel_size):
        yield (
            f"draft_tensor_parallel_size is {draft.draft_tensor_parallel_size}; it may be 1 or "
            f"tensor_parallel_size ({tensor_parallel_size})"
        )
