"""Which token counts vLLM captures CUDA graphs for.

Source: ``VllmConfig._set_cudagraph_sizes``, config/vllm.py 0.12.0 to 0.33.0 (config/__init__.py
0.11.0), and ``GptOssForCausalLMConfig``, model_executor/models/config.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenroom.engines.vllm.default_rules import DefaultRules
from tokenroom.errors import DeploymentError


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """What the sizes depend on.

    Attributes:
        max_num_seqs: Requests of a step.
        max_num_batched_tokens: Token budget of a step.
        speculative_tokens: Tokens drafted a step.
        ceiling: Largest default size: 512, or 1024 on datacentre Blackwell.
        sizes: Sizes the user set, None when not.
        largest: Largest size the user set, None when not.
        architecture: The model's class; gpt-oss has a ceiling of its own.
        interactivity: Performance mode with every size up to 32.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    speculative_tokens: int = 0
    ceiling: int = 512
    sizes: tuple[int, ...] | None = None
    largest: int | None = None
    architecture: str = ""
    interactivity: bool = False


@lru_cache(maxsize=256)
def capture_sizes(request: GraphRequest, rules: DefaultRules) -> tuple[int, ...]:
    """The sizes in ascending order.

    Raises:
        DeploymentError: Sizes and a largest size are set and do not agree, or all sizes are above
            the token budget.
    """
    if rules.graph_sizes_listed:
        return _listed(request, rules)
    largest = request.largest
    if largest is None and request.sizes is None and request.architecture == "GptOssForCausalLM":
        largest = 1024
    batches: list[int] = []
    if largest is None:
        query = 1 + (request.speculative_tokens if rules.graphs_count_drafts else 0)
        largest = min(2 * request.max_num_seqs * query, request.ceiling)
        if rules.graphs_include_draft_batches and query > 1:
            counts = _strided(min(request.max_num_seqs, request.ceiling), fine=False)
            counts = sorted({*counts, min(request.max_num_seqs, request.ceiling)})
            batches = [count * query for count in counts if count * query <= largest]
        elif rules.graphs_include_max_num_seqs and request.max_num_seqs <= largest:
            batches = [request.max_num_seqs]
    budget = request.max_num_batched_tokens
    largest = min(budget, largest)
    if largest < 1:
        raise DeploymentError(
            "max_cudagraph_capture_size is 0; give at least 1, or enforce_eager for no graphs"
        )
    if request.sizes is not None:
        sizes = sorted({size for size in request.sizes if size <= budget})
        if not sizes:
            raise DeploymentError(
                f"cudagraph_capture_sizes holds no size up to max_num_batched_tokens ({budget}); "
                f"give smaller ones"
            )
        if request.largest is not None and request.largest != sizes[-1]:
            raise DeploymentError(
                f"max_cudagraph_capture_size is {request.largest}, but the largest of "
                f"cudagraph_capture_sizes is {sizes[-1]}; give one of the two"
            )
        return tuple(sizes)
    sizes = _strided(largest, fine=request.interactivity)
    if rules.graphs_include_budget and budget <= largest:
        sizes.append(budget)
    sizes += [size for size in batches if size <= budget]
    return tuple(sorted(set(sizes)))


def _strided(largest: int, *, fine: bool) -> list[int]:
    """1, 2, 4, then steps of 8 below 256 and of 16 from there."""
    sizes = list(range(1, min(largest, 32) + 1)) if fine else [n for n in (1, 2, 4) if n <= largest]
    sizes += range(8, min(largest + 1, 256), 8)
    sizes += range(256, largest + 1, 16)
    return sizes


def _listed(request: GraphRequest, rules: DefaultRules) -> tuple[int, ...]:
    """The rule of 0.8 to 0.11: steps of 8 up to one number, or the sizes as given."""
    sizes: Sequence[int]
    if request.sizes is not None:
        sizes = sorted(request.sizes)
    else:
        largest = request.largest
        if largest is None:
            largest = 512
            if rules.graphs_follow_max_num_seqs:
                largest = min(2 * request.max_num_seqs, largest)
        if request.architecture == "GptOssForCausalLM" and largest < 992:
            sizes = _strided(992, fine=False)
        else:
            sizes = [1, 2, 4, *range(8, largest + 1, 8)]
    return tuple(size for size in sizes if size <= request.max_num_batched_tokens)
