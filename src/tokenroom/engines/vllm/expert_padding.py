"""How the MXFP4 kernel that vLLM chooses for a GPU pads routed experts."""

from __future__ import annotations

from typing import Final

from tokenroom.memory.layer_tensors import ExpertPadding, TritonLayout

_TRTLLM_NARROW_SINCE: Final = (0, 27)
_SWIZZLED_SINCE: Final = (0, 12)
"""The first vLLM built against PyTorch 2.9: ``mxfp4_utils.py`` ``_swizzle_mxfp4`` wants 2.8.1."""


def expert_padding(
    compute_capability: tuple[int, int] | None, version: tuple[int, ...]
) -> ExpertPadding:
    """The padding of the backend that vLLM chooses for MXFP4 experts on a GPU.

    ``fused_moe/oracle/mxfp4.py`` ``mxfp4_round_up_hidden_size_and_intermediate_size`` and its order
    of backends: Marlin before Hopper and on consumer Blackwell, Triton on Hopper, TensorRT-LLM's on
    Blackwell.

    Args:
        compute_capability: Of the GPU; None for one that is not NVIDIA's, taken as AMD.
        version: vLLM's version.
    """
    if compute_capability is None:
        return ExpertPadding(hidden=256, intermediate=256)
    major = compute_capability[0]
    if major == 9:
        plain = version < _SWIZZLED_SINCE
        return ExpertPadding(triton=TritonLayout.STRIDED if plain else TritonLayout.SWIZZLED)
    if major == 10:
        return ExpertPadding(
            hidden=256, intermediate=128 if version >= _TRTLLM_NARROW_SINCE else 256
        )
    return ExpertPadding(hidden=256, intermediate=128)
