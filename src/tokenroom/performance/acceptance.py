"""How many drafted tokens models keep, by method, as published measurements have it.

It depends on the text and on what drafts far more than on the engine: each figure has a range, and
who knows their own gives it. A rate is the chance of each token in a row; measured mean lengths
were turned into the rate that gives them (:func:`~tokenroom.performance.drafting.acceptance_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokenroom.performance.drafting import Acceptance

_EAGLE3: Final = Acceptance(
    0.75,
    0.60,
    0.85,
    "Llama 3.1 8B, MT-bench: 2.36 tokens a step with 2 drafted, 2.79 with 3, 3.54 with 7 (vLLM "
    "issue 20780); 2.26 to 2.60 with 3 (vLLM 0.33 tests/v1/spec_decode/test_acceptance_length.py)",
)
_EAGLE: Final = Acceptance(
    0.62,
    0.55,
    0.72,
    "Llama 3.1 8B, MT-bench: 2.10 tokens a step with 2 drafted, 2.29 with 3, 2.47 with 7 (vLLM "
    "issue 20780)",
)
_MTP: Final = Acceptance(
    0.83,
    0.68,
    0.90,
    "DeepSeek-V3: 85 to 90% of second tokens (arXiv:2412.19437, 5.4.3), 81 to 82% in vLLM (pull "
    "request 12755); DeepSeek-V4: 77% and 38% of two (41044); Gemma 4: 2.28 to 2.68 tokens a step "
    "with 2 drafted (vLLM 0.33 acceptance_rates/mtp_other/test_mtp.py)",
)
_DRAFT_MODEL: Final = Acceptance(
    0.70,
    0.53,
    0.85,
    "T5 XXL with T5 small: 0.53 to 0.75 (arXiv:2211.17192, table 3); Qwen3 1.7B with 0.6B: 2.86 "
    "tokens a step with 3 drafted (vLLM 0.33 draft_model/test_draft_model.py)",
)
_NGRAM: Final = Acceptance(
    0.42,
    0.10,
    0.60,
    "prompt lookup on Spec-Bench, Vicuna 7B: 1.73 tokens a step; speed-ups of 1.04 in translation "
    "to 2.43 in summaries (Leaderboard.md)",
)
_BLOCK: Final = Acceptance(
    0.80,
    0.75,
    0.88,
    "DFlash, Qwen3 8B: 4.24 tokens a step on MT-bench to 6.54 on GSM8K with 15 drafted "
    "(arXiv:2602.06036, table 1); DSpark, Qwen3 4B: 3.99 with 7 (vLLM 0.33 dspark/test_dspark.py)",
)
_EAGLE3_TREE: Final = Acceptance(
    0.88,
    0.80,
    0.91,
    "Llama 3.1 8B, MT-bench: 4.68 tokens a step in a tree 5 deep, 5.39 in one 8 deep (SGLang pull "
    "request 4247); Llama 3.3 70B: 5.88 (4716)",
)
_EAGLE_TREE: Final = Acceptance(
    0.78,
    0.70,
    0.85,
    "Vicuna 7B, Spec-Bench: 3.6 tokens a step with EAGLE, 4.4 with EAGLE-2 (Leaderboard.md); Llama "
    "3.1 8B: 3.76 in a tree 8 deep (SGLang pull request 4247)",
)

_CHAINS: Final[Mapping[str, Acceptance]] = {
    "eagle3": _EAGLE3,
    "eagle": _EAGLE,
    "mtp": _MTP,
    "draft_model": _DRAFT_MODEL,
    "ngram": _NGRAM,
    "block": _BLOCK,
}
_TREES: Final[Mapping[str, Acceptance]] = {"eagle3": _EAGLE3_TREE, "eagle": _EAGLE_TREE}


def usual_acceptance(method: str, branches: int = 1) -> Acceptance:
    """What was measured of a method; in a tree the chance that a level holds the right token."""
    return (_TREES.get(method) if branches > 1 else None) or _CHAINS[method]
