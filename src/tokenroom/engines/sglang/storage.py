"""How loaded weights are kept where kernels, not the checkpoint, decide it.

MXFP4 experts of gpt-oss are padded or laid out anew (``layers/quantization/mxfp4.py``). DeepSeek V4
stores FP4 experts inside an FP8 checkpoint: ``layers/quantization/fp8.py`` creates their scales in
float32, whatever the file has, and what becomes of them depends on the kernels
(``marlin_utils_fp4.py``, ``mxfp4_flashinfer_*_moe.py``, ``process_weights_after_loading``).
Its output projection ``wo_a`` is FP8 only where DeepGEMM's einsum runs (``server_args.py`` and
``arg_groups/serving_hook.py`` on ``SGLANG_OPT_FP8_WO_A_GEMM``). Read in 0.5.12 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Final

from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.memory.layer_tensors import NO_PADDING, ExpertPadding, Tensor, TritonLayout
from tokenroom.models.spec import ModelSpec, Shard, Weight

_BLACKWELL: Final = 10
_CONSUMER_BLACKWELL: Final = 12
_HOPPER: Final = 9
_DEEPSEEK_V4: Final = "DeepseekV4ForCausalLM"
_GROK: Final = "Grok1ForCausalLM"
_EXCHANGES_OF_DEEPGEMM: Final = frozenset({"deepep", "mooncake", "nixl"})
_GROUP: Final = 32
"""Values of FP4 that share a scale."""
_TRUE: Final = frozenset({"1", "true", "yes", "y", "on", "t"})


class Fp4Scales(StrEnum):
    """What is kept of the scales of FP4 experts in an FP8 checkpoint."""

    BYTES = "bytes"  # one byte a group, as the kernel reads them
    FLOATS = "floats"  # float32, as they were loaded
    BOTH = "both"  # the kernel's bytes, and the loaded ones that nothing frees


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How a rank keeps its weights.

    Attributes:
        padding: What MXFP4 kernels round experts up to.
        fp4_scales: Scales of FP4 experts in an FP8 checkpoint, None where there are none.
        plain_output: ``wo_a`` of DeepSeek V4 is turned back into the model's type.
        tables: Copies of each rotary table. DeepSeek V4 has the rotary layer's, and ``freqs_cis``
            in complex64 of the same size, one for all blocks of a base
            (``models/deepseek_v4.py`` ``precompute_freqs_cis``).
        layer_tables: Each block keeps a table of its own beside the shared one, as Grok-2's do by
            ``rope_type`` (``models/grok.py`` ``ScalingRotaryEmbedding``).
        selectors_everywhere: Layers that reuse another's selection of keys have the parameters of a
            selector all the same, though no checkpoint fills them (``models/deepseek_v2.py`` before
            0.5.18).
    """

    padding: ExpertPadding = NO_PADDING
    fp4_scales: Fp4Scales | None = None
    plain_output: bool = False
    tables: int = 1
    layer_tables: bool = False
    selectors_everywhere: bool = False


AS_STORED: Final = Storage()
"""Nothing but what the checkpoint says."""


def storage_of(spec: ModelSpec, accelerator: Accelerator, resolved: ResolvedSettings) -> Storage:
    """How a model's weights are kept on a card under resolved settings."""
    capability = accelerator.compute_capability
    if spec.architecture != _DEEPSEEK_V4:
        return Storage(
            padding=_expert_padding(capability),
            layer_tables=spec.architecture == _GROK and bool((spec.config or {}).get("rope_type")),
            selectors_everywhere=not resolved.rules.since(0, 5, 18),
        )
    return Storage(
        fp4_scales=_fp4_scales(accelerator, resolved),
        plain_output=not _has_fp8_einsum(capability, resolved),
        tables=2,
    )


def _expert_padding(capability: tuple[int, int] | None) -> ExpertPadding:
    """What MXFP4 kernels round experts up to (``layers/quantization/mxfp4.py``).

    FlashInfer's on Blackwell pads to 256; Hopper runs Triton's swizzled layout; others keep
    multiples of 64.
    """
    if capability is None:
        return ExpertPadding(hidden=256, intermediate=256)
    if capability[0] == _HOPPER:
        return ExpertPadding(triton=TritonLayout.SWIZZLED)
    if capability[0] >= _BLACKWELL:
        return ExpertPadding(hidden=256, intermediate=256)
    return NO_PADDING


def _expert_runner(major: int | None, resolved: ResolvedSettings) -> str:
    """Kernels of FP4 experts: as given, or what DeepSeek V4 is set to.

    ``server_args.py``, and ``arg_groups/model_overrides/deepseek_v4.py`` from 0.5.20.
    """
    rules, exchange = resolved.rules, resolved.moe_a2a_backend
    if resolved.moe_runner_backend != "auto":
        return resolved.moe_runner_backend
    if rules.since(0, 5, 20):
        common = major in (_HOPPER, _BLACKWELL, _CONSUMER_BLACKWELL)
        return "flashinfer_mxfp4" if common and exchange == "none" else "auto"
    if major == _CONSUMER_BLACKWELL and rules.since(0, 5, 13):
        return "flashinfer_mxfp4" if rules.since(0, 5, 16) else "marlin"
    return "auto"


def _fp4_scales(accelerator: Accelerator, resolved: ResolvedSettings) -> Fp4Scales:
    if accelerator.vendor == "amd":
        return Fp4Scales.BYTES  # created as float8_e8m0fnu for aiter
    capability = accelerator.compute_capability
    major = None if capability is None else capability[0]
    runner, exchange = _expert_runner(major, resolved), resolved.moe_a2a_backend
    if runner == "marlin":  # the loaded ones are deleted from 0.5.16 on
        return Fp4Scales.BYTES if resolved.rules.since(0, 5, 16) else Fp4Scales.BOTH
    if runner == "flashinfer_mxfp4" or exchange == "megamoe":
        return Fp4Scales.BYTES
    deep_gemm = runner == "deep_gemm" or (runner == "auto" and exchange in _EXCHANGES_OF_DEEPGEMM)
    return Fp4Scales.BYTES if deep_gemm and major == _BLACKWELL else Fp4Scales.FLOATS


def _has_fp8_einsum(capability: tuple[int, int] | None, resolved: ResolvedSettings) -> bool:
    """Data-centre Blackwell unless switched off; Hopper when switched on, from 0.5.16."""
    asked = resolved.environment.get("SGLANG_OPT_FP8_WO_A_GEMM")
    on = asked is None or asked.lower() in _TRUE
    major = None if capability is None else capability[0]
    if major == _HOPPER and resolved.rules.since(0, 5, 16):
        return asked is not None and on
    return on and major == _BLACKWELL


def fp4_expert_tensors(parts: Sequence[Weight], scales: Fp4Scales) -> list[Tensor]:
    """FP4 experts of one layer as the FP8 method keeps them.

    Args:
        parts: This rank's piece of each projection; ``count`` is the experts it holds.
        scales: What is kept of their scales.
    """
    found: list[Tensor] = []
    for first in (True, False):
        group = [part for part in parts if (part.shard is not Shard.ROW) is first]
        values = sum(part.count * prod(part.shape) for part in group)
        found.append(Tensor("int8", values // 2))
        if scales is not Fp4Scales.BYTES:
            found.append(Tensor("float32", 4 * values // _GROUP))
        if scales is not Fp4Scales.FLOATS:
            found.append(Tensor("uint8", values // _GROUP))
    return [tensor for tensor in found if tensor.num_bytes]
