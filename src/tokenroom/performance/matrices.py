"""The matrix products of a model on one rank, fused as engines fuse them, by type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

from tokenroom.memory.layer_tensors import fused_name, merges
from tokenroom.memory.weights import kv_heads_of, local_weight
from tokenroom.models.quantization import schemes
from tokenroom.models.quantization.size import stored_bytes
from tokenroom.models.spec import LatentAttention, Layer, MoEFFN, Role, Scheme, Shard, Weight
from tokenroom.performance.work import Layout

_ABSORBED: Final = "kv_b_proj"
_AFTER_MIXER: Final = ("o_proj", "out_proj", "attn_output", ".dense")


class Matrix(NamedTuple):
    """A weight that tokens are multiplied with.

    Attributes:
        name: The merged module.
        outputs: N on this rank.
        inputs: K on this rank.
        arithmetic: Type of the products.
        weight_bytes: Bytes read of it: weights, scales and bias.
        quantizes: Activations are converted to fewer bits before it.
        after_mixer: Its input comes from attention or a recurrence, whose kernels write 16 bits.
    """

    name: str
    outputs: int
    inputs: int
    arithmetic: str
    weight_bytes: int
    quantizes: bool
    after_mixer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of one layer on one rank.

    Attributes:
        total: Experts of the layer.
        local: Experts on this rank.
        per_token: Experts a token passes through.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the piece of one expert that the rank holds.
        gated: Three matrices, not two.
        expert_bytes: Bytes of that piece.
        elements: Its weights.
        arithmetic: Type of the products.
    """

    total: int
    local: int
    per_token: int
    hidden_size: int
    intermediate_size: int
    gated: bool
    expert_bytes: float
    elements: int
    arithmetic: str

    def touched(self, tokens: int) -> float:
        """Distinct local experts that ``tokens`` independent choices of k of E meet on average.

        E_local x (1 - (1 - k/E)^tokens): each token misses one expert with 1 - k/E. Popularity that
        falls with rank^-0.3 or rank^-0.5 fits serving measurements no better than equal shares.
        """
        return self.local * (1 - (1 - self.per_token / self.total) ** tokens)


def arithmetic_of(scheme: Scheme | None) -> str:
    """Type that an engine multiplies a weight of this scheme in.

    Weight-only layouts are expanded to 16 bits in the kernel (Marlin, Machete, exllama), so their
    peak is that of 16-bit types and only their bytes shrink.
    """
    if scheme is None:
        return "bf16"
    family = schemes.family(scheme)
    if family == schemes.MXFP4:
        return "mxfp4"
    if family == schemes.GGML:
        return "ggml"
    if scheme.activation_bits == 4:
        return "nvfp4"
    if scheme.activation_bits == 8:
        if family in (schemes.INT8, schemes.BNB_INT8, schemes.TORCHAO, schemes.PACKED):
            return "int8"
        return "fp8" if scheme.block_shape is None and scheme.group_size <= 0 else "fp8_block"
    return "w4a16" if scheme.weight_bits <= 6 else "w8a16"


def experts_arithmetic_of(scheme: Scheme | None) -> str:
    """The same of routed experts, whose kernel depends on where the scales of inputs come from.

    vLLM's first choice of kernels takes 8-bit floats whose input scales are stored alone; those
    computed from each input go to others (vLLM 0.33 fused_moe/oracle/fp8.py,
    experts/flashinfer_cutlass_moe.py ``_supports_quant_scheme``).
    """
    found = arithmetic_of(scheme)
    if found == "fp8" and scheme is not None and not scheme.extra_bytes_per_tensor:
        return "fp8_dynamic"
    return found


def _matrix(name: str, parts: list[Weight], dtype: str) -> Matrix:
    scheme = parts[0].scheme
    return Matrix(
        name=name,
        outputs=sum(part.count * prod(part.shape[:-1]) for part in parts),
        inputs=parts[0].shape[-1],
        arithmetic=arithmetic_of(scheme),
        weight_bytes=sum(stored_bytes(part, dtype) for part in parts),
        quantizes=scheme is not None and scheme.activation_bits < 16,
        after_mixer=name.endswith(_AFTER_MIXER),
    )


def layer_matrices(layer: Layer, dtype: str, tp: int) -> tuple[Matrix, ...]:
    """Matrices every token of one layer passes, routed experts and absorbed ones left out.

    Merging follows ``packed_modules_mapping`` of vLLM's models; SGLang and TensorRT-LLM merge the
    same ones (qkv, gate and up, MLA's two down-projections).

    Args:
        layer: The block.
        dtype: Type of plain weights.
        tp: Ranks that it is divided over.

    Raises:
        DeploymentError: A dimension does not divide.
    """
    latent = any(isinstance(mixer, LatentAttention) for mixer in layer.mixers)
    heads = kv_heads_of(layer)
    groups: dict[tuple[str, Scheme | None], list[Weight]] = {}
    for weight in layer.weights:
        if weight.expert or len(weight.shape) != 2 or weight.role not in (Role.LINEAR, Role.ROUTER):
            continue
        if latent and weight.name.endswith(_ABSORBED):
            continue
        name = fused_name(weight) if merges(weight) else weight.name
        local = local_weight(weight, tp=tp, kv_heads=heads)
        if weight.role is Role.ROUTER:  # engines keep it unquantised, whatever the scheme covers
            local = replace(local, scheme=None, stored_bytes=None)
        groups.setdefault((name.removeprefix("."), local.scheme), []).append(local)
    return tuple(_matrix(name, parts, dtype) for (name, _), parts in groups.items())


def head_matrix(weight: Weight, dtype: str, tp: int) -> Matrix:
    """The output projection over the padded vocabulary's share of one rank."""
    return _matrix("lm_head", [local_weight(weight, tp=tp)], dtype)


def layer_experts(layer: Layer, dtype: str, layout: Layout) -> Experts | None:
    """Routed experts of a layer, None when it has none.

    Raises:
        DeploymentError: A dimension does not divide.
    """
    routed = [weight for weight in layer.weights if weight.expert]
    ffn = layer.ffn
    if not routed or not isinstance(ffn, MoEFFN):
        return None
    ep = layout.expert_parallel_size
    pieces = [
        local_weight(
            weight, tp=layout.expert_ranks, expert_tp=layout.expert_tensor_parallel_size, ep=ep
        )
        for weight in routed
    ]
    matrices = [piece for piece in pieces if len(piece.shape) >= 2]
    widest = max(matrices, key=lambda piece: prod(piece.shape))
    local = max(piece.count for piece in matrices)
    per_expert = [piece.count // local for piece in matrices]
    elements = sum(
        times * prod(piece.shape) for times, piece in zip(per_expert, matrices, strict=True)
    )
    products = 3 if ffn.gated else 2
    hidden = max(weight.shape[-1] for weight in matrices if weight.shard is not Shard.ROW)
    return Experts(
        total=ffn.num_experts,
        local=local,
        per_token=ffn.experts_per_token,
        hidden_size=hidden,
        intermediate_size=elements // (products * hidden),
        gated=ffn.gated,
        expert_bytes=sum(stored_bytes(piece, dtype) for piece in pieces) / local,
        elements=elements,
        arithmetic=experts_arithmetic_of(widest.scheme),
    )
