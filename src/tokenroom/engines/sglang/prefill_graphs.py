"""Whether SGLang captures prefill ("piecewise", "breakable") graphs for a deployment.

Sources: ``server_args.py`` ``_handle_piecewise_cuda_graph`` (0.5.10 to 0.5.13),
``_disable_tc_piecewise_cudagraph_if_incompatible`` and
``_disable_breakable_cudagraph_if_incompatible`` (0.5.14 to 0.5.18),
``arg_groups/cuda_graph_hook.py`` (from 0.5.19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenroom.engines.sglang.backends import is_latent, is_sparse
from tokenroom.engines.sglang.compressed import is_compressed
from tokenroom.engines.sglang.rules import VersionRules
from tokenroom.models.spec import ModelSpec, Recurrence, Recurrent

_MULTIMODAL_ALLOWED: Final = frozenset(
    {
        "MiniMaxM3SparseForConditionalGeneration",
        "Cohere2VisionForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
    }
)
"""Multimodal classes whose prefill graphs stay on (0.5.23)."""

_NOT_PIECEWISE: Final = frozenset(
    {
        *("DeepseekV4ForCausalLM", "Qwen3NextForCausalLM", "BailingMoeV2_5ForCausalLM"),
        "LLaDAModelLM",
    }
)
"""Classes without piecewise graphs, 0.5.10 to 0.5.14."""

_NOT_PIECEWISE_TO_0_5_12: Final = frozenset({"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"})

_BREAKABLE_A2A: Final = frozenset({"none", "deepep", "megamoe", "flashinfer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGraphInputs:
    """What decides, besides the model.

    Attributes:
        asked: Switched on or off by hand, None when not.
        nvidia: The GPU runs CUDA.
        pp_size: Pipeline stages.
        dp_attention: Attention is data-parallel.
        context_parallel: Ranks share the tokens of a prefill.
        a2a_backend: ``--moe-a2a-backend``.
        speculative: Tokens are drafted.
        lora: Adapters are served.
        multimodal: The model has an encoder that is used.
        offloading: Weights or KV are kept in host memory.
        disaggregated: Prefill and decode run apart.
        symmetric_memory: ``--enable-symm-mem``.
        torch_compile: ``--enable-torch-compile``.
        two_batch_overlap: ``--enable-two-batch-overlap``.
    """

    asked: bool | None
    nvidia: bool = True
    pp_size: int = 1
    dp_attention: bool = False
    context_parallel: bool = False
    a2a_backend: str = "none"
    speculative: bool = False
    lora: bool = False
    multimodal: bool = False
    offloading: bool = False
    disaggregated: bool = False
    symmetric_memory: bool = False
    torch_compile: bool = False
    two_batch_overlap: bool = False


def captures_prefill(spec: ModelSpec, inputs: PrefillGraphInputs, rules: VersionRules) -> bool:
    """Whether prefill graphs are captured."""
    if inputs.asked is not None:
        return inputs.asked and rules.since(0, 5, 4)
    if not rules.prefill_graphs_by_default or not inputs.nvidia:
        return False
    if rules.since(0, 5, 15):
        return _breakable(spec, inputs, rules)
    refused = (
        spec.architecture in _NOT_PIECEWISE,
        spec.architecture in _NOT_PIECEWISE_TO_0_5_12 and not rules.since(0, 5, 13),
        inputs.speculative and not rules.since(0, 5, 12),
        inputs.dp_attention,
        inputs.context_parallel,
        inputs.torch_compile,
        inputs.pp_size > 1,
        inputs.a2a_backend != "none",
        inputs.lora,
        inputs.multimodal,
        spec.quantization == "gguf",
        inputs.offloading,
        inputs.disaggregated,
        inputs.symmetric_memory,
    )
    return not any(refused)


def _breakable(spec: ModelSpec, inputs: PrefillGraphInputs, rules: VersionRules) -> bool:
    kinds = {
        mixer.kind
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Recurrent)
    }
    older = not rules.since(0, 5, 19)
    refused = (
        is_compressed(spec.layers),
        is_latent(spec) and not is_sparse(spec) and older,
        spec.model_type == "nemotron_h" and older,
        Recurrence.KIMI_DELTA in kinds and not older,
        inputs.pp_size > 1 and not older,
        inputs.two_batch_overlap,
        inputs.a2a_backend not in _BREAKABLE_A2A,
        inputs.context_parallel,
        inputs.multimodal and spec.architecture not in _MULTIMODAL_ALLOWED,
    )
    return not any(refused)
