"""What the kernels of routed experts allocate, by the kernel that vLLM picks.

Sources: model_executor/layers/fused_moe/ (0.19.0): ``workspace_shapes`` of fused_moe.py,
fused_marlin_moe.py and gpt_oss_triton_kernels_moe.py, the choices in oracle/, and
v1/worker/workspace.py, which keeps the largest workspace asked for.
"""

from __future__ import annotations

from enum import StrEnum

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.rules import VersionRules
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import DTYPE_BITS, Layer, ModelSpec, MoEFFN


class ExpertKernel(StrEnum):
    """How experts are computed, as far as their buffers differ."""

    TRITON = "triton"  # also CUTLASS: both products' outputs, in two workspaces
    MARLIN = "marlin"  # the same products, but the activation at its own width
    MARLIN_DIRECT = "marlin_direct"  # called without the workspace manager: freed after the layer
    TRITON_KERNELS = "triton_kernels"  # OpenAI's kernels for MXFP4 allocate inside
    MONOLITHIC = "monolithic"  # one fused FlashInfer kernel


def expert_kernel(layer: Layer, accelerator: Accelerator) -> ExpertKernel:
    """The kernel for the layer's experts on this GPU."""
    scheme = next(
        (weight.scheme for weight in layer.weights if weight.expert and weight.scheme), None
    )
    if scheme is None:
        return ExpertKernel.TRITON
    capability = accelerator.compute_capability or (0, 0)
    datacentre_blackwell = capability[0] == 10
    if "mxfp4" in scheme.name:
        if datacentre_blackwell:
            return ExpertKernel.MONOLITHIC
        return ExpertKernel.TRITON_KERNELS if capability[0] == 9 else ExpertKernel.MARLIN
    if "nvfp4" in scheme.name:
        return ExpertKernel.MONOLITHIC if capability[0] in (10, 12) else ExpertKernel.MARLIN
    if scheme.activation_bits == 16:
        return ExpertKernel.MARLIN_DIRECT
    if "fp8" in scheme.name and accelerator.vendor == "nvidia":
        if datacentre_blackwell:
            return ExpertKernel.MONOLITHIC
        return ExpertKernel.TRITON if capability >= (8, 9) else ExpertKernel.MARLIN
    return ExpertKernel.TRITON


def kept_workspace_bytes(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> int:
    """Bytes of the workspace that stays allocated: the largest that any layer asks for."""
    if not rules.keeps_moe_workspace:
        return 0
    sizes = (
        workspace_bytes(spec, layer, inputs, rules, tokens)
        for layer, _ in spec.layer_kinds
        if isinstance(layer.ffn, MoEFFN)
        and expert_kernel(layer, inputs.accelerator) is not ExpertKernel.MARLIN_DIRECT
    )
    return max(sizes, default=0)


def passing_workspace_bytes(
    spec: ModelSpec, layer: Layer, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> int:
    """Bytes of the same buffers where they are freed when the layer is done."""
    direct = expert_kernel(layer, inputs.accelerator) is ExpertKernel.MARLIN_DIRECT
    if rules.keeps_moe_workspace and not direct:
        return 0
    return workspace_bytes(spec, layer, inputs, rules, tokens)


def workspace_bytes(
    spec: ModelSpec, layer: Layer, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> int:
    """Bytes of a layer's expert buffers, 0 for a layer without experts.

    Tokens x experts a token x the widths the kernel writes. Data-parallel copies gather each
    other's tokens before the experts; these are divided over all ranks of the copies, whole with
    expert parallelism and else in slices.
    """
    ffn = layer.ffn
    if not isinstance(ffn, MoEFFN):
        return 0
    copies = inputs.data_parallel_size
    ranks = 1 if inputs.enable_expert_parallel else inputs.tensor_parallel_size * copies
    gathered = tokens * copies
    routed = min(gathered, rules.moe_chunk_tokens or gathered)
    inner = ffn.intermediate_size // ranks
    up = 2 * inner if ffn.gated else inner
    hidden = spec.hidden_size
    match expert_kernel(layer, inputs.accelerator):
        case ExpertKernel.MONOLITHIC:
            elements = routed * hidden
        case ExpertKernel.TRITON_KERNELS:
            elements = routed * max(ffn.experts_per_token * inner, hidden)
        case ExpertKernel.MARLIN | ExpertKernel.MARLIN_DIRECT:
            elements = routed * ffn.experts_per_token * (max(up, hidden) + inner)
        case ExpertKernel.TRITON:
            wide = max(inner, hidden) + max(up, hidden)
            elements = routed * ffn.experts_per_token * wide
    return elements * DTYPE_BITS[inputs.dtype] // 8
