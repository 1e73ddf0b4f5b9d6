"""What SGLang leaves to chance: activations of a step and CUDA graphs.

No run profiles them: they live in the share outside ``mem_fraction_static``. The widest moment of a
layer is that of engines with fused kernels; logits are computed for the last token of each request
and turned into float32 (``layers/logits_processor.py``, 0.5.23).
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.memory.activations import Terms, terms_bytes, widest_moment
from tokenroom.memory.cuda_graphs import LAYER_NODES, graph_driver_bytes
from tokenroom.models.quantization import dtype_bytes
from tokenroom.models.spec import ModelSpec
from tokenroom.units import MIB

_ACTIVATION_RANGE: Final = (0.6, 1.6)
_GRAPH_RANGE: Final = (0.5, 2.0)
_LOGIT_BYTES: Final = 4
_CAPTURE_BUFFERS_BYTES: Final = 300 * MIB
"""cuBLAS and kernels that the first capture loads. What logs leave beside the driver's share:
0.93 GiB for 13 sizes up to 80 (Qwen2.5-32B, TP 4, 0.4.3), 1.0 for 36 sizes (TP 2, 0.5.5), 1.44 for
52 sizes up to 512 (Qwen2.5-7B, B200, 0.5.5)."""


def step_terms(spec: ModelSpec, resolved: ResolvedSettings, tokens: int, requests: int) -> Terms:
    """Tensors that live at once in the widest moment of a step on one rank.

    Args:
        spec: The model.
        resolved: Its settings.
        tokens: Tokens of the step.
        requests: Requests whose next token is sampled.
    """
    width = dtype_bytes(resolved.dtype)
    moments = (
        widest_moment(
            layer,
            tokens,
            spec.hidden_size,
            element_bytes=width,
            tensor_parallel_size=resolved.attention_tp_size,
            expert_shards=resolved.tp_size // resolved.ep_size,
            expert_ranks=resolved.ep_size,
        )
        for layer, _ in spec.layer_kinds
    )
    widest = max(moments, key=terms_bytes, default=())
    logits = requests * spec.vocab_size * (_LOGIT_BYTES + width)
    return (*widest, ("logits", logits))


def prefill_tokens(resolved: ResolvedSettings) -> int:
    """Tokens of the largest prefill step: a chunk, else a whole batch or the longest prompt."""
    if resolved.chunked_prefill_size > 0:
        return resolved.chunked_prefill_size
    return max(resolved.max_prefill_tokens, resolved.context_length)


def prefill_peak(spec: ModelSpec, resolved: ResolvedSettings) -> Estimate:
    """What the largest prefill step takes beside the pools."""
    terms = step_terms(spec, resolved, prefill_tokens(resolved), 1)
    total = terms_bytes(terms)
    low, high = _ACTIVATION_RANGE
    return Estimate(
        num_bytes=total,
        low_bytes=round(total * low),
        high_bytes=round(total * high),
        phase="layers",
        terms=terms,
        source="SGLang models/*.py, layers/moe, layers/logits_processor.py (0.5.23)",
    )


def graph_memory(spec: ModelSpec, resolved: ResolvedSettings, num_layers: int) -> Estimate:
    """What capturing CUDA graphs takes: the largest step's tensors and the driver's share.

    Args:
        spec: The model.
        resolved: Its settings.
        num_layers: Blocks of the stage.
    """
    terms: list[tuple[str, int]] = []
    decode = resolved.decode_bs
    rows = resolved.draft_tokens or 1
    decode_pool = 0
    nodes = num_layers * LAYER_NODES
    if decode:
        largest = max(decode)
        decode_pool = terms_bytes(step_terms(spec, resolved, largest * rows, largest * rows))
        terms += [
            ("kernels", _CAPTURE_BUFFERS_BYTES),
            ("decode_graphs", graph_driver_bytes(len(decode), nodes)),
            ("decode_pool", decode_pool),
        ]
        if resolved.drafts_with_model:
            terms.append(("draft_graphs", 2 * graph_driver_bytes(len(decode), LAYER_NODES)))
    if resolved.prefill_tokens:
        peak = terms_bytes(step_terms(spec, resolved, max(resolved.prefill_tokens), 1))
        # one pool serves both phases: what exceeds the decode graphs' is added
        terms += [
            ("prefill_graphs", graph_driver_bytes(len(resolved.prefill_tokens), nodes)),
            ("prefill_pool", max(0, peak - decode_pool)),
        ]
    total = sum(size for _, size in terms)
    low, high = _GRAPH_RANGE
    return Estimate(
        num_bytes=total,
        low_bytes=round(total * low),
        high_bytes=round(total * high),
        phase="capture",
        terms=tuple(terms),
        source="SGLang model_executor/runner; measured on logs of 0.4.3 to 0.5.6",
    )
