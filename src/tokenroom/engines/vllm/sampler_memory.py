"""Tensors of rows x vocabulary in vLLM's sampler, of which its warm-up allocates the most.

Sources: v1/sample/sampler.py, v1/sample/ops/topk_topp_sampler.py, v1/sample/rejection_sampler.py
and v1/worker/gpu/sample/sampler.py.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.rules import TopKTopP, VersionRules
from tokenroom.models.spec import DTYPE_BITS, ModelSpec

VOCAB_PADDING: Final = 64
"""Rows of the embedding are padded to a multiple of this (vocab_parallel_embedding.py)."""

_DEFAULT_MULTIPROCESSORS: Final = 132
"""Of an H100, for a GPU whose number is not known."""


def padded_vocab_size(vocab_size: int) -> int:
    """Rows of the embedding after padding, over all ranks."""
    return -(-vocab_size // VOCAB_PADDING) * VOCAB_PADDING


def output_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int, *, second: bool
) -> Terms:
    """What lives at once while outputs are made: the sampler's tensors, or the pooler's."""
    if not inputs.pooling:
        return sampler_terms(spec, inputs, rules, tokens, second=second)
    width = DTYPE_BITS[inputs.dtype] // 8
    rows = min(inputs.max_num_seqs, tokens)
    return (
        ("hidden_states", tokens * spec.hidden_size * width),
        ("pooled_states", rows * spec.hidden_size * (width + 4)),  # pooled, then in float32
    )


def sampler_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int, *, second: bool
) -> Terms:
    """Tensors of rows x vocabulary that live together in the sampler's widest moment."""
    width = DTYPE_BITS[inputs.dtype] // 8
    rows = min(inputs.max_num_seqs, tokens)
    vocab = spec.vocab_size
    logits = rows * padded_vocab_size(vocab) * width
    single = rows * vocab * 4
    terms: list[tuple[str, int]] = [
        ("hidden_states", tokens * spec.hidden_size * width),
        ("sampled_hidden_states", rows * spec.hidden_size * width * (1 if second else 2)),
    ]
    kernel = top_k_top_p(inputs, rules)
    if second:
        terms.append(("logits", logits))
        if rules.second_runner_warms_full_sampler:
            terms.append(("float32_logits", single))
            terms += _masking_terms(kernel, inputs, rows, vocab)
        elif inputs.tensor_parallel_size > 1:
            terms.append(("gathered_logits", logits))
        return tuple(terms)
    upcast = single if width != 4 else 0  # logits.to(float32) copies nothing then
    if inputs.speculative_tokens:
        terms += _rejection_terms(kernel, inputs, rules, rows, single, upcast)
        return tuple(terms)
    terms += [("logits", logits), ("float32_logits", upcast)]
    terms += _masking_terms(kernel, inputs, rows, vocab)
    if kernel is TopKTopP.TRITON:
        terms += [("probabilities", single), ("exponential_noise", single)]
    return tuple(terms)


def _masking_terms(
    kernel: TopKTopP, inputs: ProfileInputs, rows: int, vocab: int
) -> list[tuple[str, int]]:
    """What masking below top-k and top-p allocates besides the float32 logits."""
    single = rows * vocab * 4
    if kernel is TopKTopP.TRITON:
        programs = min(inputs.accelerator.multiprocessors or _DEFAULT_MULTIPROCESSORS, rows)
        # One row of scratch a program, rounded up to a power of two but not past the GPU's
        # multiprocessors (v1/sample/ops/topk_topp_triton.py).
        return [("top_k_top_p_scratch", programs * vocab * 4)]
    if kernel is TopKTopP.FLASHINFER:
        # top_k_top_p_sampling_from_logits: masked logits, then their softmax.
        return [("top_k_masked_logits", single), ("probabilities", single)]
    # torch.sort over 32-bit keys by segmented_sort_pairs_by_full_sort: sorted values, int64
    # indices, an (index, segment) pair of int32 an element, and a second copy of keys and pairs
    # for cub's radix sort (aten/src/ATen/native/cuda/Sort.cu).
    return [
        ("sorted_logits", single),
        ("sorted_indices", 2 * single),
        ("sort_pairs", 2 * single),
        ("sort_double_buffers", 3 * single),
    ]


def _rejection_terms(
    kernel: TopKTopP,
    inputs: ProfileInputs,
    rules: VersionRules,
    rows: int,
    single: int,
    upcast: int,
) -> list[tuple[str, int]]:
    """The rejection sampler's warm-up with one drafted token a request.

    Either while it samples the bonus token or while it draws the recovered one
    (v1/sample/rejection_sampler.py).
    """
    model_rows = single // 2 if upcast else single
    vocab = single // (4 * rows)
    raw = [("raw_bonus_logits", single)] if rules.keeps_raw_target_logits else []
    shared = [("logits", 2 * model_rows), ("bonus_logits", model_rows), *raw]
    bonus = [("float32_logits", upcast), *_masking_terms(kernel, inputs, rows, vocab)]
    if kernel is TopKTopP.TRITON:
        bonus += [("probabilities", single), ("exponential_noise", single)]
    recovered = [
        ("float32_target_logits", single),
        *([("processed_target_logits", single)] if rules.keeps_raw_target_logits else []),
        ("target_probabilities", single),
        ("exponential_noise", single),
    ]
    return shared + max(bonus, recovered, key=lambda terms: sum(size for _, size in terms))


def top_k_top_p(inputs: ProfileInputs, rules: VersionRules) -> TopKTopP:
    """The masking kernel on this GPU: FlashInfer needs NVIDIA, capability 7.5 or later."""
    capability = inputs.accelerator.compute_capability
    supported = capability is not None and capability >= (7, 5)
    wanted = inputs.flashinfer_sampler
    if wanted is None:
        wanted = rules.top_k_top_p is TopKTopP.FLASHINFER
    if wanted and supported:
        return TopKTopP.FLASHINFER
    return TopKTopP.SORT if rules.top_k_top_p is TopKTopP.SORT else TopKTopP.TRITON
