"""What the V0 engine's sampler allocates for its dummy requests, with top-k and top-p set.

Source: model_executor/layers/{logits_processor,sampler}.py, 0.4.1 to 0.10.2. Only the rank that
drives the others samples.
"""

from __future__ import annotations

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.sampler_memory import padded_vocab_size
from tokenroom.engines.vllm.v0_rules import V0Rules
from tokenroom.engines.vllm.v0_tape import Tape
from tokenroom.models.spec import DTYPE_BITS


def sample(tape: Tape, vocab: int, rows: int, inputs: ProfileInputs, rules: V0Rules) -> None:
    """Logits of that many requests, masked, turned into probabilities and drawn from.

    Args:
        tape: Records what is allocated.
        vocab: Tokens of the vocabulary.
        rows: Requests.
        inputs: The rank's settings.
        rules: Of the version.
    """
    width, ranks = DTYPE_BITS[inputs.dtype] // 8, inputs.tensor_parallel_size
    padded = rows * padded_vocab_size(vocab) * width
    logits = tape.take("logits", padded // ranks)
    if ranks > 1:
        parts = tape.take("gathered_parts", padded)
        whole = tape.take("logits", padded)
        tape.free(parts, logits)
        logits = whole
    cells = rows * vocab
    scaled = -1
    if rules.float32_logits and width != 4:
        scaled, width = tape.take("float32_logits", cells * 4), 4
    masked = _mask(tape, cells, width, rules)
    tape.free(scaled)
    converts = width != 4 and inputs.dtype == "bfloat16"
    chances = [
        _softmax(tape, name, cells, converts=converts) for name in ("probabilities", "logprobs")
    ]
    drawn = tape.take("drawn_probabilities", cells * 4)
    noise = tape.take("exponential_noise", cells * 4)
    tape.free(noise, drawn, *chances, masked, logits)


def _mask(tape: Tape, cells: int, width: int, rules: V0Rules) -> int:
    """Logits below top-k and top-p masked (``_apply_top_k_top_p``); sorting takes the most.

    torch.sort keeps an (index, row) pair of two int32 an element, and a second copy of keys
    and pairs for cub's radix sort (aten/src/ATen/native/cuda/Sort.cu).
    """
    ordered = tape.take("sorted_logits", cells * width)
    indices = tape.take("sorted_indices", cells * 8)
    pairs = tape.take("sort_pairs", cells * 8)
    buffers = tape.take("sort_double_buffers", cells * (8 + width))
    tape.free(buffers, pairs)
    tape.free(tape.take("top_k_mask", cells))
    chances = tape.take("sorted_probabilities", cells * width)
    sums = tape.take("cumulated_probabilities", cells * width)
    mask = tape.take("top_p_mask", cells)
    inverse = -1
    if not rules.float32_logits:
        inverse = tape.take("inverse_indices", cells * 8)
    masked = tape.take("masked_logits", cells * width)
    tape.free(inverse, mask, sums, chances, indices, ordered)
    return masked


def _softmax(tape: Tape, name: str, cells: int, *, converts: bool) -> int:
    """A softmax in float32; bfloat16 is converted by a kernel of its own first."""
    converted = tape.take("converted_logits", cells * 4) if converts else -1
    result = tape.take(name, cells * 4)
    tape.free(converted)
    return result
