"""Settings of an engine that do not change how a model is divided: what is tried of each layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tokenroom.engines.policy import Setting
from tokenroom.engines.registry import engine_named
from tokenroom.errors import DeploymentError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How tokens are drafted.

    Attributes:
        method: ``"mtp"``, ``"ngram"``, ``"eagle3"``, ``"eagle"`` or ``"draft_model"``.
        tokens: Tokens drafted a step.
        model: What drafts; None where the method needs none of its own.
    """

    method: str
    tokens: int
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Settings that an engine is started with; None for what it takes by itself.

    Attributes:
        max_num_batched_tokens: Token budget of a step, or the size of a prompt's chunk.
        max_num_seqs: Requests that run at once at most.
        memory_share: Share of each GPU's memory, as the engine counts it
            (``gpu_memory_utilization``, ``mem_fraction_static``).
        prefix_caching: Blocks of prompts are kept for requests that begin alike.
        kv_offload_bytes: Host memory for blocks that the pool has no room for.
        max_model_len: Longest request; the longest of the demand when None.
        draft: Speculative decoding; None for none.
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    memory_share: float | None = None
    prefix_caching: bool | None = None
    kv_offload_bytes: int | None = None
    max_model_len: int | None = None
    draft: Draft | None = None

    @property
    def settled(self) -> int:
        """How many settings are not the engine's own."""
        return sum(getattr(self, name) is not None for name in _NAMES)


_NAMES: Final = tuple(item.name for item in fields(Tuning))
AS_IT_IS: Final = Tuning()
"""The engine's own defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSpace:
    """Values of each setting; what an engine does not have is left out of its own.

    Attributes are those of :class:`Tuning`, in the plural. None, the engine's own, comes first in
    each and is preferred where nothing is gained.
    """

    max_num_batched_tokens: tuple[int | None, ...] = (None,)
    max_num_seqs: tuple[int | None, ...] = (None,)
    memory_shares: tuple[float | None, ...] = (None,)
    prefix_caching: tuple[bool | None, ...] = (None,)
    kv_offload_bytes: tuple[int | None, ...] = (None,)
    max_model_lens: tuple[int | None, ...] = (None,)
    drafts: tuple[Draft | None, ...] = (None,)

    def __len__(self) -> int:
        """Tunings in all."""
        count = 1
        for item in fields(self):
            count *= len(getattr(self, item.name))
        return count

    def __iter__(self) -> Iterator[Tuning]:
        """Every tuning, the engine's own first."""
        for draft in self.drafts:
            for budget in self.max_num_batched_tokens:
                for length in self.max_model_lens:
                    for offload in self.kv_offload_bytes:
                        for caching in self.prefix_caching:
                            for seqs in self.max_num_seqs:
                                for share in self.memory_shares:
                                    yield Tuning(
                                        max_num_batched_tokens=budget,
                                        max_num_seqs=seqs,
                                        memory_share=share,
                                        prefix_caching=caching,
                                        kv_offload_bytes=offload,
                                        max_model_len=length,
                                        draft=draft,
                                    )


DEFAULTS_ALONE: Final = TuningSpace()
"""Every setting as the engine takes it by itself."""

TRIED: Final = TuningSpace(
    max_num_batched_tokens=(None, 2048, 4096, 8192, 16384, 32768),
    max_num_seqs=(None, 32, 64, 128, 256, 512, 1024),
    memory_shares=(None, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97),
    prefix_caching=(None, False),
)
"""What is tried unless asked otherwise: budgets, requests and shares that engines' guides name.
Sources: vLLM 0.33 docs/configuration/optimization.md (budgets above 8192 for throughput, smaller
ones for latency), its defaults by GPU (2048 to 16384 tokens, 256 or 1024 requests, 0.92 of the
memory; engine/arg_utils.py); SGLang 0.5.23 docs/advanced_features/hyperparameter_tuning.md (chunks
of 2048 to 8192, a share of 0.8 to 0.9)."""

_LACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": (),
    "sglang": (),
    "tensorrt-llm": ("drafts",),
    "llama.cpp": ("memory_shares", "prefix_caching", "kv_offload_bytes", "drafts"),
}
"""Settings that an engine does not have, or whose effect is not known of it."""

_NARROWED: Final = TuningSpace(
    max_num_batched_tokens=(None, 2048, 8192),
    max_num_seqs=(None, 64, 256),
    memory_shares=(None, 0.85, 0.9),
)
"""Of engines whose plans are made anew for each tuning."""


def space_of(engine: str, asked: TuningSpace = TRIED) -> TuningSpace:
    """The part of a space that an engine has, each value once.

    Args:
        engine: Its name, with or without a version.
        asked: What is to be tried.

    Raises:
        DeploymentError: The engine is unknown.
    """
    policy, _ = engine_named(engine)
    lacks = _LACKS.get(policy.name, tuple(item.name for item in fields(TuningSpace)))
    narrow = not hasattr(policy, "batches")
    found: dict[str, Any] = {}
    for item in fields(TuningSpace):
        values = getattr(asked, item.name)
        if item.name in lacks:
            values = (None,)
        elif narrow and values == getattr(TRIED, item.name):
            values = getattr(_NARROWED, item.name)
        found[item.name] = tuple(dict.fromkeys(values))
    return TuningSpace(**found)


_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "max_num_batched_tokens": (
        *("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens", "n_ubatch"),
    ),
    "max_num_seqs": ("max_num_seqs", "max_batch_size", "n_parallel"),
    "memory_shares": (
        *("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"),
    ),
}
"""Settings of deployments whose values explicit ones may repeat, by what engines call them."""


def without_repeats(space: TuningSpace, settings: Mapping[str, Setting]) -> TuningSpace:
    """A space without values that the engine takes by itself, where that is tried as well.

    Args:
        space: What is tried.
        settings: Of a deployment of the engine's own settings.
    """
    found: dict[str, Any] = {}
    for name, words in _OWN.items():
        values = getattr(space, name)
        own = next((settings[word].value for word in words if word in settings), None)
        if None in values:
            found[name] = tuple(value for value in values if value is None or value != own)
    return replace(space, **found)


def engine_settings(engine: str, tuning: Tuning) -> dict[str, Any]:
    """A tuning in the words of :func:`tokenroom.fitting.fit`, but for its length.

    Raises:
        DeploymentError: The engine is unknown, or has no setting for it.
    """
    name = engine_named(engine)[0].name
    found: dict[str, Any] = {
        "max_num_batched_tokens": tuning.max_num_batched_tokens,
        "max_num_seqs": tuning.max_num_seqs,
        "util": tuning.memory_share,
    }
    caching, offload = tuning.prefix_caching, tuning.kv_offload_bytes
    if name == "sglang":
        found["disable_radix_cache"] = None if caching is None else not caching
        if offload is not None:
            found |= {"enable_hierarchical_cache": True, "hicache_size_bytes": offload}
    else:
        found["enable_prefix_caching"] = caching
        found["kv_offload_bytes"] = offload
    if tuning.draft is not None:
        found |= _draft_settings(name, tuning.draft)
    return {key: value for key, value in found.items() if value is not None}


def _draft_settings(engine: str, draft: Draft) -> dict[str, Any]:
    if engine == "vllm":
        from tokenroom.engines.vllm.settings import SpeculativeSettings  # loaded with the engine

        return {
            "speculative": SpeculativeSettings(
                method=draft.method, num_speculative_tokens=draft.tokens, model=draft.model
            )
        }
    if engine == "sglang":
        return {
            "speculative_algorithm": _SGLANG_DRAFTS.get(draft.method, draft.method.upper()),
            "speculative_num_steps": draft.tokens,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": draft.tokens + 1,
            "speculative_draft_model_path": draft.model,
        }
    raise DeploymentError(
        f"drafts of {shown(draft.method)} are not planned for {engine}; choose vllm or sglang"
    )


_SGLANG_DRAFTS: Final[Mapping[str, str]] = {"mtp": "EAGLE", "draft_model": "STANDALONE"}
