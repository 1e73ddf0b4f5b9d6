"""The share of memory that SGLang takes for weights and KV cache when the user names none.

``mem_fraction_static`` is what is left of the card after a reserve for activations and CUDA graphs
that no run measures. Sources: ``server_args.py`` ``__post_init__`` (0.3.6 to 0.5.2) and
``_handle_gpu_memory_settings`` (to 0.5.18); ``arg_groups/memory_hook.py``
``handle_gpu_memory_settings``, ``reserve_for_graph_mb``, ``reserve_for_deepep_a2a_mb`` and
``adjust_mem_fraction_for_vlm`` (from 0.5.19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.rules import FractionRule, VersionRules, VisionRule

_BASE_VISION_LAYERS: Final = 24
_BASE_VISION_WIDTH: Final = 1024
_LEAST_RESERVE_MIB: Final = 10 * 1024
_SINCE_60_GIB_MIB: Final = 60 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveInputs:
    """What the reserve depends on.

    Attributes:
        memory_mib: The card as the driver's tool reports it.
        tp_size: Tensor-parallel ranks.
        pp_size: Pipeline stages.
        attention_dp_size: Copies of attention (``--enable-dp-attention``), 1 without.
        chunked_prefill_size: Tokens of a prefill chunk, before DP attention divides it; -1 when
            prefill is not chunked.
        max_prefill_tokens: Tokens of a prefill batch.
        decode_max_bs: Largest decode graph, None where the version has no such default.
        decode_graphs: Decode graphs are captured.
        prefill_graphs: Prefill graphs are captured.
        prefill_max_tokens: Largest prefill graph.
        prefill_graph_count: How many prefill graphs.
        latent: Attention is latent (MLA).
        speculative_algorithm: ``"EAGLE"``, ``"STANDALONE"``, ``"NGRAM"``, ... None without.
        draft_tokens: Tokens verified at once.
        max_running_requests: As the user gave it.
        disaggregation_mode: ``"null"``, ``"prefill"`` or ``"decode"``.
        deepep: Experts exchange tokens through DeepEP.
    """

    memory_mib: float
    tp_size: int = 1
    pp_size: int = 1
    attention_dp_size: int = 1
    chunked_prefill_size: int
    max_prefill_tokens: int = 16384
    decode_max_bs: int | None
    decode_graphs: bool = True
    prefill_graphs: bool = False
    prefill_max_tokens: int = 0
    prefill_graph_count: int = 0
    latent: bool = False
    speculative_algorithm: str | None = None
    draft_tokens: int | None = None
    max_running_requests: int | None = None
    disaggregation_mode: str = "null"
    deepep: bool = False


def reserved_mib(inputs: ReserveInputs, rules: VersionRules) -> float:
    """MiB that :attr:`FractionRule.BY_CARD` and :attr:`FractionRule.BY_WORK` leave free."""
    if rules.fraction is FractionRule.BY_CARD:
        return _reserve_by_card(inputs, rules)
    return _reserve_by_work(inputs, rules)


def _reserve_by_card(inputs: ReserveInputs, rules: VersionRules) -> float:
    memory = inputs.memory_mib
    ranks = inputs.tp_size * inputs.pp_size
    if memory < 35 * 1024:
        gib = 2.8 + ranks / 10
    elif memory < 90 * 1024:
        gib = 9.5 + ranks / 2
    elif memory < 160 * 1024:
        gib = 12 + ranks / 2
    else:
        gib = 32
    if inputs.speculative_algorithm is not None:
        standalone = inputs.speculative_algorithm == "STANDALONE" and rules.since(0, 5, 2)
        gib += 6 if standalone else 2
    if inputs.attention_dp_size > 1:
        gib += 4
    return gib * 1024


def _reserve_by_work(inputs: ReserveInputs, rules: VersionRules) -> float:
    reserve = 512 + _activation_tokens(inputs, rules) * 1.5
    reserve += inputs.tp_size * inputs.pp_size / 8 * 1024
    reserve += _graph_reserve(inputs, rules)
    if inputs.memory_mib > _SINCE_60_GIB_MIB:
        reserve = max(reserve, _LEAST_RESERVE_MIB)
    if rules.draft_reserve:
        reserve += _draft_reserve(inputs, rules)
    if inputs.prefill_graphs and not rules.since(0, 5, 7) and rules.since(0, 5, 6):
        reserve += inputs.prefill_max_tokens // 4
    if (
        inputs.deepep
        and inputs.decode_graphs
        and inputs.disaggregation_mode != "prefill"
        and rules.since(0, 5, 15)
    ):
        reserve += 2 * 1024
    return reserve


def _activation_tokens(inputs: ReserveInputs, rules: VersionRules) -> int:
    if inputs.disaggregation_mode == "decode" and rules.since(0, 5, 15):
        running = inputs.max_running_requests or inputs.decode_max_bs or 1
        return max(running * (inputs.draft_tokens or 1), 2048)
    if inputs.chunked_prefill_size > 0:
        return max(inputs.chunked_prefill_size, 2048)
    return max(inputs.max_prefill_tokens, 2048)


def _graph_reserve(inputs: ReserveInputs, rules: VersionRules) -> float:
    """MiB for graphs: two a batch slot, more under DP attention, eight a prefill graph."""
    largest = inputs.decode_max_bs or 0
    by_role = rules.since(0, 5, 15)
    decodes = not by_role or inputs.disaggregation_mode != "prefill"
    prefills = not by_role or inputs.disaggregation_mode != "decode"
    reserve = 0.0
    if decodes and (inputs.decode_graphs or not by_role):
        reserve += largest * 2
    if decodes and inputs.attention_dp_size > 1:
        reserve += largest * inputs.attention_dp_size * 3
        if largest > 300:
            reserve += largest * inputs.attention_dp_size * 1.5
    if inputs.prefill_graphs and prefills and rules.since(0, 5, 7):
        if inputs.latent and rules.since(0, 5, 10):
            reserve += 1.5 * 1024
        else:
            reserve += inputs.prefill_graph_count * 8
        if inputs.deepep and rules.since(0, 5, 17):
            reserve += 1024
    return reserve


def _draft_reserve(inputs: ReserveInputs, rules: VersionRules) -> float:
    if inputs.speculative_algorithm in (None, "NGRAM"):
        return 0.0
    if inputs.speculative_algorithm == "STANDALONE":
        return 6 * 1024
    return (4 if rules.since(0, 5, 10) else 2) * 1024


def default_fraction(inputs: ReserveInputs, rules: VersionRules) -> float:
    """``mem_fraction_static`` of a text model."""
    memory = inputs.memory_mib
    if rules.fraction in (FractionRule.BY_CARD, FractionRule.BY_WORK):
        return round((memory - reserved_mib(inputs, rules)) / memory, 3)
    ranks = inputs.tp_size
    if rules.fraction is FractionRule.BY_RANKS_OR_18_GIB:
        return _fraction_of_0_4_7(inputs)
    if rules.fraction is FractionRule.BY_RANKS_OR_13_GIB and memory > 81920:
        return (memory - 1024 * 13) / memory
    return _by_ranks(ranks, at_eight=0.82 if not rules.since(0, 4) else 0.81)


def _by_ranks(ranks: int, at_eight: float = 0.81) -> float:
    for least, fraction in ((16, 0.79), (8, at_eight), (4, 0.85), (2, 0.87)):
        if ranks >= least:
            return fraction
    return 0.88


def _fraction_of_0_4_7(inputs: ReserveInputs) -> float:
    memory = inputs.memory_mib
    speculative = inputs.speculative_algorithm is not None
    fraction = _by_ranks(inputs.tp_size * inputs.pp_size) if memory <= 81920 else 0.88
    if memory > 180 * 1000:
        return 0.79
    if memory > 96 * 1024:
        reserve = 1024 * (20 if speculative else 18)
        return min(fraction + 48 * 1024 * (1 - fraction) / memory, (memory - reserve) / memory)
    return fraction * 0.95 if speculative else fraction


def with_vision(
    fraction: float, rules: VersionRules, layers: int | None, width: int | None
) -> float:
    """The fraction of a multimodal model.

    Args:
        fraction: That of a text model.
        rules: The version.
        layers: ``vision_config.num_hidden_layers``, None where the configuration has none.
        width: ``vision_config.hidden_size``, None where the configuration has none.
    """
    if rules.vision is VisionRule.NONE:
        return fraction
    if rules.vision is VisionRule.TENTH:
        return fraction * 0.90
    depth = _BASE_VISION_LAYERS if layers is None else layers
    breadth = _BASE_VISION_WIDTH if width is None else width
    base = _BASE_VISION_LAYERS * _BASE_VISION_WIDTH**2
    complexity = depth * breadth**2 / base
    dynamic = max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))
    return fraction * (0.95 * dynamic)
