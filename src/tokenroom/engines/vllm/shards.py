"""Quantised weights that tensor parallelism cuts through a scale's block or group.

Sources, each read in the versions named: ``validate_fp8_block_shape`` and the MoE check of
quantization/fp8.py (0.6.6 to 0.33.0), ``_maybe_allow_fp8_block_shape_mismatch`` of linear.py (0.14
to 0.33.0), ``refine_fp8_moe_block_shape`` of fused_moe/oracle/fp8.py (0.29 to 0.33.0),
``AWQLinearMethod.create_weights`` (0.4.1 to 0.33.0), ``MPLinearKernel.can_implement`` of the
Marlin, Machete and Exllama kernels (0.11 to 0.33.0), ``MoeWNA16Method.create_weights`` (0.8.5 to
0.33.0) and ``ModelOptNvFp4LinearMethod.create_weights`` (0.11 to 0.33.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Final

from tokenroom.engines.vllm.weight_types import as_divided
from tokenroom.errors import DeploymentError
from tokenroom.memory.weights import kv_heads_of, local_weight
from tokenroom.models.spec import LatentAttention, Layer, ModelSpec, Role, Scheme, Shard, Weight

_LEAST_REFINED_BLOCK: Final = 32  # refine_fp8_moe_block_shape
_LEAST_EXPERT_GROUP: Final = 32  # MoeWNA16Method halves groups down to this
_MARLIN_ROWS: Final = 64  # GPTQ_MARLIN_MIN_THREAD_N
_MARLIN_COLUMNS: Final = 128  # GPTQ_MARLIN_MIN_THREAD_K
_MACHETE_COLUMNS: Final = 64  # MACHETE_PREPACKED_BLOCK_SHAPE, (in, out)
_MACHETE_ROWS: Final = 128
_FP8_HARDWARE: Final = (8, 9)  # the Triton experts, alone in taking refined blocks, need it
_HALF_EXLLAMA: Final = "float16"  # the Exllama kernel computes in nothing else
#: Matrices that vLLM builds as parts of a larger one, but for the last part of each, ...
_MERGED_FIRST: Final = frozenset({"q_proj", "k_proj", "gate_proj", "w1"})
#: ... with the last, and those it builds alone.
_MERGED: Final = _MERGED_FIRST | {"v_proj", "up_proj", "w3", "qkv_proj", "gate_up_proj"}
_ALONE: Final = frozenset({"q_b_proj", "kv_b_proj"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How weights are divided, as far as quantised ones are checked.

    Attributes:
        version: vLLM version as (major, minor, patch).
        tensor: Tensor-parallel ranks.
        expert_ranks: Ranks that routed experts are spread over.
        expert_parallel: Experts are dealt out whole.
        dtype: Type of activations.
        capability: Compute capability, None when not known.
        names_moe_backend: ``--moe-backend`` names a kernel.
    """

    version: tuple[int, ...]
    tensor: int
    expert_ranks: int
    expert_parallel: bool
    dtype: str
    capability: tuple[int, int] | None
    names_moe_backend: bool = False


@lru_cache(maxsize=256)
def uneven_shard(spec: ModelSpec, cut: Cut) -> str | None:
    """Why vLLM refuses to divide the quantised weights so, None when it does not.

    One sentence: which weight, what a rank would hold, what the kernel needs and the sizes that
    work.
    """
    found = next(_complaints(spec, cut), None)
    if found is None:
        return None
    complaint, expert = found
    return f"tensor_parallel_size is {cut.tensor}, {complaint}; use {_remedy(spec, cut, expert)}"


def _remedy(spec: ModelSpec, cut: Cut, expert: bool) -> str:
    """The largest tensor-parallel sizes that divide the weights evenly."""
    copies = max(1, cut.expert_ranks // cut.tensor)
    sizes = [
        size
        for size in range(1, cut.tensor)
        if cut.tensor % size == 0
        and next(_complaints(spec, replace(cut, tensor=size, expert_ranks=size * copies)), None)
        is None
    ]
    words = [f"tensor_parallel_size {' or '.join(map(str, sizes[:-4:-1]))}"] if sizes else []
    if expert and not cut.expert_parallel:
        dealt = replace(cut, expert_parallel=True)
        if next(_complaints(spec, dealt), None) is None:
            words.append("--enable-expert-parallel, which deals the experts out whole")
    return ", or ".join(words) or "a checkpoint in another layout"


def _complaints(spec: ModelSpec, cut: Cut) -> Iterator[tuple[str, bool]]:
    """(what does not divide, whether it is a routed expert), in the order of the blocks."""
    for layer, _ in spec.layer_kinds:
        latent = any(isinstance(mixer, LatentAttention) for mixer in layer.mixers)
        for weight in layer.weights:
            scheme = weight.scheme
            if scheme is None or weight.role is not Role.LINEAR or len(weight.shape) != 2:
                continue
            piece = _piece(spec, layer, weight, cut)
            if piece is None:
                continue
            if weight.expert:
                text = _of_expert(spec, weight, piece, scheme, cut)
            else:
                text = _of_linear(spec, weight, piece, scheme, cut, latent)
            if text:
                yield text, weight.expert


def _piece(spec: ModelSpec, layer: Layer, weight: Weight, cut: Cut) -> Weight | None:
    divided = as_divided(spec, weight, cut.version)
    whole = cut.expert_parallel and weight.expert
    try:
        return local_weight(
            divided,
            tp=cut.tensor,
            kv_heads=kv_heads_of(layer),
            expert_tp=1 if whole else cut.expert_ranks,
        )
    except DeploymentError:  # does not divide at all: refused while weights are counted
        return None


def _of_expert(spec: ModelSpec, weight: Weight, piece: Weight, scheme: Scheme, cut: Cut) -> str:
    """What the fused experts' ``create_weights`` refuses: ranks divide the inner dimension."""
    inner = piece.shape[0] if weight.shard is Shard.COLUMN else piece.shape[1]
    if weight.shard not in (Shard.COLUMN, Shard.ROW):
        return ""
    if scheme.block_shape is not None and scheme.name.startswith("fp8"):
        rows, columns = scheme.block_shape
        # The check asks for the tensor-parallel size even where experts are dealt out whole.
        even = inner % rows == 0 and (cut.tensor == 1 or inner % columns == 0)
        if even or _refines(spec, weight, inner, scheme, cut):
            return ""
        return (
            f"which leaves {inner} of an expert's {_inner(weight)} to a rank, and vLLM needs a "
            f"multiple of the FP8 block of {rows}"
        )
    if scheme.name in ("awq", "gptq") and scheme.group_size > 0:
        group, hidden = scheme.group_size, spec.hidden_size
        while group >= _LEAST_EXPERT_GROUP and (inner % group or hidden % group):
            group //= 2
        if group < _LEAST_EXPERT_GROUP:
            return (
                f"which leaves {inner} of an expert's {_inner(weight)} to a rank, and vLLM needs a "
                f"multiple of {_LEAST_EXPERT_GROUP} to divide groups of {scheme.group_size}"
            )
    return ""


def _inner(weight: Weight) -> int:
    return weight.shape[0] if weight.shard is Shard.COLUMN else weight.shape[1]


def _refines(spec: ModelSpec, weight: Weight, inner: int, scheme: Scheme, cut: Cut) -> bool:
    """Whether the scales are spread over smaller blocks, or the shard is padded to whole ones.

    Since 0.29 for checkpoints of the method ``fp8`` alone; padding since 0.31 and only with a
    kernel named by ``--moe-backend``.
    """
    block, ours = scheme.block_shape, spec.quantization == "fp8"
    if block is None or not ours or cut.version < (0, 29, 0):
        return False
    finest = gcd(*block, inner, spec.hidden_size)
    computes = cut.capability is None or cut.capability >= _FP8_HARDWARE
    if finest >= _LEAST_REFINED_BLOCK and computes:
        return True
    pads = cut.names_moe_backend and cut.version >= (0, 31, 0) and not cut.expert_parallel
    return pads and _inner(weight) % block[0] == 0 and spec.hidden_size % block[0] == 0


def _of_linear(
    spec: ModelSpec, weight: Weight, piece: Weight, scheme: Scheme, cut: Cut, latent: bool
) -> str:
    if scheme.block_shape is not None and scheme.name.startswith("fp8"):
        return _of_block(weight, piece, scheme.block_shape, cut, latent)
    columns = piece.shape[1]
    if scheme.name.startswith("nvfp4") and columns % 16:
        return f"which leaves {columns} inputs of {weight.name} to a rank; NVFP4 needs groups of 16"
    if scheme.group_size <= 0 or weight.shard is not Shard.ROW or cut.tensor == 1:
        return ""
    straddles = columns % scheme.group_size != 0 and scheme.group_size < weight.shape[1]
    text = (
        f"which leaves {columns} of {weight.shape[1]} inputs of {weight.name} to a rank, and vLLM "
        f"needs a multiple of the {scheme.name.upper()} group of {scheme.group_size}"
    )
    if scheme.name == "awq":
        return text if straddles else ""
    if spec.quantization == "compressed-tensors" and scheme.name == "w4a16":
        return text if straddles and not scheme.act_order else ""
    if scheme.name == "gptq" and scheme.weight_bits in (4, 8) and not scheme.act_order:
        tiles = cut.version >= (0, 24, 0) or (
            piece.shape[0] % _MARLIN_ROWS == 0 and columns % _MARLIN_COLUMNS == 0
        )
        if (straddles or not tiles) and not _another_kernel(piece, cut):
            return text if straddles else f"{text} and of {_MARLIN_COLUMNS} (the Marlin kernel)"
    return ""


def _another_kernel(piece: Weight, cut: Cut) -> bool:
    """Whether Machete or Exllama takes what Marlin does not."""
    machete = cut.capability is None or cut.capability == (9, 0)
    if machete and not (piece.shape[1] % _MACHETE_COLUMNS or piece.shape[0] % _MACHETE_ROWS):
        return True
    return cut.dtype == _HALF_EXLLAMA


def _of_block(weight: Weight, piece: Weight, block: tuple[int, int], cut: Cut, latent: bool) -> str:
    """``validate_fp8_block_shape``: rows that a split or merged matrix needs, and its inputs."""
    rows, columns = piece.shape
    leaf = weight.name.rpartition(".")[2]
    if weight.shard is Shard.ROW and cut.tensor > 1 and columns % block[1]:
        return (
            f"which leaves {columns} of {weight.shape[1]} inputs of {weight.name} to a rank, and "
            f"vLLM needs a multiple of the FP8 block of {block[1]}"
        )
    if weight.shard not in (Shard.COLUMN, Shard.KV_COLUMN) or rows % block[0] == 0:
        return ""
    if leaf in _ALONE or (latent and leaf == "q_proj"):
        refused = cut.tensor > 1
    else:  # from 0.14 on merged matrices may end within a block
        checked = _MERGED if cut.tensor > 1 else _MERGED_FIRST
        refused = leaf in checked and cut.version < (0, 14, 0)
    if not refused:
        return ""
    return (
        f"which leaves {rows} of {weight.shape[0]} outputs of {weight.name} to a rank, and vLLM "
        f"needs a multiple of the FP8 block of {block[0]}"
    )
