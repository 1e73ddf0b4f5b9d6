"""What other types of weights and cache do to a model's answers, as far as it was published.

A search compares speed and memory; that answers may differ is for people to weigh, so each plan
that changes a type says what is known of it. A checkpoint in its makers' own type changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tokenroom.planning.candidates import Candidate


class QualityNote(NamedTuple):
    """What is known of a type.

    Attributes:
        part: ``"weights"`` or ``"kv"``.
        kind: ``"fp8"``, ``"int8"``, ``"int4"``, ``"nvfp4"``, ``"lower"``: what the words are about.
        name: The type as it was asked for.
        source: Who measured it; empty where nothing is known.
    """

    part: str
    kind: str
    name: str
    source: str


_STUDY: Final = "arXiv:2411.02355 (Llama 3.1, 500,000 evaluations)"
_WEIGHTS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("fp8", "fp8_channel", "fp8_tensor", "fp8_block"), ("fp8", _STUDY)),
    **dict.fromkeys(("int8", "w8a8"), ("int8", _STUDY)),
    **dict.fromkeys(("awq", "gptq", "int4", "w4a16"), ("int4", _STUDY)),
    **dict.fromkeys(
        ("nvfp4", "fp4"), ("nvfp4", "NVIDIA, Nemotron 3 Nano: 0.8 to 2.4 points of four benchmarks")
    ),
}
"""Layout of the weights: what is known of it. The study's FP8 is W8A8-FP, its INT8 W8A8-INT, its
INT4 W4A16-INT; others are called ``"lower"``, of which nothing that holds in general is known."""

_PLAIN: Final = frozenset(
    {"bf16", "bfloat16", "f16", "float16", "fp16", "half", "f32", "float32", "fp32"}
)
_CACHES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        ("fp8", "fp8_e4m3", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head"),
        ("fp8", "vLLM 0.12 docs/features/quantization/quantized_kvcache.md"),
    ),
}


def quality_notes(candidate: Candidate) -> Iterator[QualityNote]:
    """What is known of the types that a candidate has instead of the checkpoint's own."""
    layout = candidate.spec.layout
    if layout is not None and layout not in _PLAIN:
        kind, source = _WEIGHTS.get(layout, ("lower", ""))
        yield QualityNote("weights", kind, layout, source)
    kv = candidate.kv
    if kv is not None and kv not in _PLAIN:
        kind, source = _CACHES.get(kv, ("lower", ""))
        yield QualityNote("kv", kind, kv, source)
