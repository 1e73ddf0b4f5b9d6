"""How vLLM's default settings changed from version to version, as data.

Each field names one decision of the engine; :func:`default_rules` gives the values of a version.
Read in the source distributions of 0.8.0 to 0.33.0: engine/arg_utils.py, config/cache.py,
config/model.py, config/scheduler.py, config/vllm.py, model_executor/models/config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.rules import rules_for


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRules:
    """The defaults that differ between versions; the values here are those of 0.33.

    Attributes:
        version: The release as (major, minor, patch).
        gpu_memory_utilization: ``CacheConfig.gpu_memory_utilization``.
        large_gpus_by_name: A large GPU is one called H100 or H200, and every GPU serves 1024
            requests (0.8.0 to 0.8.3); later its memory decides.
        excludes_a100: An A100 counts as a small GPU despite its memory.
        hybrid_cache: Windows are cached as such; before, they took as much as full attention.
        full_graphs: Whole decode steps are captured by default, not only pieces.
        graphs_follow_max_num_seqs: The largest graph is twice max_num_seqs; before, 512.
        huge_gpu_tier: GPUs of 160 GiB and more serve 16384 tokens a step.
        excludes_gb10: GB10 counts as a small GPU despite its memory.
        batched_dp_tokens: Tokens a step with a batched all-to-all backend, None for no rule.
        raises_tokens_to_length: Without chunked prefill the budget is the larger of the default
            and max_model_len; before, it was max_model_len.
        caps_tokens: The default budget is at most max_num_seqs times max_model_len.
        hybrid_prefix_caching: Models with recurrent layers cache prefixes by default.
        forbids_recurrent_prefix_caching: They cannot at all.
        recurrent_prefix_caching_listed: Only those whose layers are all Mamba can.
        mamba_cache_mode_all: Prefix caching keeps every state block where the layers allow it.
        mamba_all_not_with_drafts: But not with speculative decoding.
        async_scheduling: Steps overlap by default.
        async_with_pipeline: ... also over pipeline stages, on the first model runner.
        async_without_recurrent_cache: ... but not beside cached recurrent states.
        async_for_pooling: ... and for pooling models.
        async_draft_methods: Speculative methods beside EAGLE and MTP it is compatible with.
        scales_yarn_length: A yarn model's length is its original one times the factor; later,
            what the configuration says is taken as scaled already.
        longrope_original_length: A longrope model's default length is the original one.
        graph_sizes_listed: Capture sizes step by 8 to twice max_num_seqs (0.11).
        graphs_count_drafts: The largest default graph holds the drafted tokens of each request.
        graphs_include_budget: The token budget itself is captured where it fits.
        graphs_include_draft_batches: So are whole batches of drafted tokens.
        graphs_include_max_num_seqs: So is max_num_seqs.
        fp8_sparse_default: Sparse latent attention packs its cache by default.
        second_runner_drafts: Speculative methods the second runner knows, before 0.30.
        second_runner_refused_drafts: Speculative methods it does not know
            (config/vllm.py ``_get_v2_model_runner_unsupported_features``).
    """

    version: tuple[int, int, int] = (0, 33, 0)
    gpu_memory_utilization: float = 0.92
    large_gpus_by_name: bool = False
    excludes_a100: bool = True
    hybrid_cache: bool = True
    full_graphs: bool = True
    graphs_follow_max_num_seqs: bool = True
    huge_gpu_tier: bool = True
    excludes_gb10: bool = True
    batched_dp_tokens: int | None = 256
    raises_tokens_to_length: bool = True
    caps_tokens: bool = True
    hybrid_prefix_caching: bool = True
    forbids_recurrent_prefix_caching: bool = False
    recurrent_prefix_caching_listed: bool = False
    mamba_cache_mode_all: bool = False
    mamba_all_not_with_drafts: bool = False
    async_scheduling: bool = True
    async_with_pipeline: bool = False
    async_without_recurrent_cache: bool = False
    async_for_pooling: bool = False
    async_draft_methods: frozenset[str] = frozenset(
        {"ngram_gpu", "draft_model", "dspark", "dflash"}
    )
    scales_yarn_length: bool = False
    longrope_original_length: bool = True
    graph_sizes_listed: bool = False
    graphs_count_drafts: bool = True
    graphs_include_budget: bool = True
    graphs_include_draft_batches: bool = True
    graphs_include_max_num_seqs: bool = True
    fp8_sparse_default: bool = False
    second_runner_drafts: frozenset[str] = frozenset()
    second_runner_refused_drafts: frozenset[str] = frozenset({"suffix", "custom_class"})


NEWEST: Final = DefaultRules()

_EAGLE: Final = frozenset({"eagle", "eagle3", "mtp"})
_REFUSED_032: Final = frozenset({"suffix", "custom_class", "medusa", "mlp_speculator"})

# Each entry turns the rules of the versions after it into those of the versions before the named
# one: what the named version introduced is taken back.
_INTRODUCED: Final[tuple[tuple[tuple[int, int, int], dict[str, object]], ...]] = (
    (
        (0, 33, 0),
        {"excludes_gb10": False, "second_runner_refused_drafts": _REFUSED_032},
    ),
    ((0, 32, 0), {"second_runner_refused_drafts": _REFUSED_032 | {"ngram", "ngram_gpu"}}),
    (
        (0, 31, 0),
        {
            "second_runner_refused_drafts": _REFUSED_032 | {"ngram", "ngram_gpu", "draft_model"},
            "graphs_include_max_num_seqs": False,
            "async_with_pipeline": True,
            "async_draft_methods": frozenset({"ngram_gpu", "draft_model", "dspark"}),
        },
    ),
    (
        (0, 30, 0),
        {
            "scales_yarn_length": True,
            "second_runner_drafts": _EAGLE | {"dflash", "dspark", "extract_hidden_states"},
        },
    ),
    (
        (0, 29, 0),
        {
            "graphs_include_draft_batches": False,
            "second_runner_drafts": _EAGLE | {"dflash", "dspark"},
        },
    ),
    (
        (0, 28, 0),
        {
            "huge_gpu_tier": False,
            "hybrid_prefix_caching": False,
            "mamba_cache_mode_all": True,
            "async_draft_methods": frozenset({"ngram_gpu", "dspark"}),
        },
    ),
    (
        (0, 25, 0),
        {
            "async_draft_methods": frozenset({"ngram_gpu"}),
            "second_runner_drafts": _EAGLE | {"dflash"},
        },
    ),
    ((0, 24, 0), {"second_runner_drafts": _EAGLE}),
    ((0, 22, 0), {"mamba_all_not_with_drafts": True}),
    ((0, 21, 0), {"graphs_include_budget": False}),
    (
        (0, 20, 0),
        {
            "gpu_memory_utilization": 0.9,
            "batched_dp_tokens": None,
            "async_for_pooling": True,
            "mamba_all_not_with_drafts": False,
        },
    ),
    ((0, 18, 0), {"async_draft_methods": frozenset()}),
    ((0, 17, 0), {"async_without_recurrent_cache": True}),
    (
        (0, 16, 0),
        {
            "async_with_pipeline": False,
            "async_without_recurrent_cache": False,
            "recurrent_prefix_caching_listed": True,
        },
    ),
    ((0, 14, 0), {"async_scheduling": False}),
    ((0, 13, 0), {"graphs_count_drafts": False}),
    (
        (0, 12, 0),
        {
            "raises_tokens_to_length": False,
            "caps_tokens": False,
            "forbids_recurrent_prefix_caching": True,
            "longrope_original_length": False,
            "graph_sizes_listed": True,
            "fp8_sparse_default": True,
        },
    ),
    ((0, 11, 0), {"full_graphs": False}),
    ((0, 10, 0), {"graphs_follow_max_num_seqs": False}),
    ((0, 9, 1), {"hybrid_cache": False, "excludes_a100": False}),
    ((0, 8, 4), {"large_gpus_by_name": True}),
)


@lru_cache(maxsize=64)
def default_rules(version: str | None = None) -> DefaultRules:
    """The defaults of a vLLM version such as ``"0.19.0"``; None for the newest known.

    Raises:
        DeploymentError: The text is no version, or one before 0.4.
    """
    number = rules_for(version).version
    rules = replace(NEWEST, version=number)
    for introduced, before in _INTRODUCED:
        if number < introduced:
            rules = replace(rules, **before)  # type: ignore[arg-type]
    return rules
