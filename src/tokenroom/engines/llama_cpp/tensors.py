"""A model's weights as the tensors of a GGUF file: llama.cpp's names, types and shapes.

A model read from a GGUF file has them already; one described by a configuration is named as
``convert_hf_to_gguf.py`` of llama.cpp 0c1e57098 would name it, so that placement and patterns of
``--override-tensor`` work on it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Final

from tokenroom.engines.llama_cpp.tensor_graph import row_bytes
from tokenroom.errors import DeploymentError
from tokenroom.memory.weights import Component, component_of
from tokenroom.models.quantization.ggml import fitting_type
from tokenroom.models.spec import LatentAttention, Layer, Mixer, ModelSpec, Role, Weight

_KINDS: Final[Mapping[str, str]] = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
}
_EXPERT: Final = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up"} | {
    "down_proj": "down",
    "w2": "down",
    "gate_up_proj": "gate_up",
    "w1_w3": "gate_up",
    "v1": "up",
    "linear": "gate",
    "linear_v": "up",
    "linear_1": "down",
}
_FFN: Final = _EXPERT | {
    "fc1": "up",
    "fc2": "down",
    "fc_in": "up",
    "fc_out": "down",
    "c_fc": "up",
    "c_proj": "down",
    "dense_h_to_4h": "up",
    "dense_4h_to_h": "down",
}
_ATTENTION: Final = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "out_proj": "attn_output",
    "dense": "attn_output",
    "c_proj": "attn_output",
    "wo": "attn_output",
    "qkv_proj": "attn_qkv",
    "query_key_value": "attn_qkv",
    "c_attn": "attn_qkv",
    "Wqkv": "attn_qkv",
    "wqkv": "attn_qkv",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "sinks": "attn_sinks",
    "q_a_proj": "attn_q_a",
    "q_b_proj": "attn_q_b",
    "q_a_layernorm": "attn_q_a_norm",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "kv_a_layernorm": "attn_kv_a_norm",
    "kv_b_proj": "attn_kv_b",
}
_RECURRENT: Final = {
    "in_proj": "ssm_in",
    "in_proj_qkvz": "ssm_in",
    "in_proj_qkv": "attn_qkv",
    "in_proj_z": "attn_gate",
    "in_proj_ba": "ssm_ba",
    "in_proj_a": "ssm_alpha",
    "in_proj_b": "ssm_beta",
    "conv1d": "ssm_conv1d",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "dt_bias": "ssm_dt",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "out_proj": "ssm_out",
    "norm": "ssm_norm",
    "dt_layernorm": "ssm_dt_norm",
    "b_layernorm": "ssm_b_norm",
    "c_layernorm": "ssm_c_norm",
}
_NORMS: Final = {
    "input_layernorm": "attn_norm",
    "ln_1": "attn_norm",
    "norm_1": "attn_norm",
    "norm": "attn_norm",
    "operator_norm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "pre_ff_layernorm": "ffn_norm",
    "ffn_norm": "ffn_norm",
    "ln_2": "ffn_norm",
    "norm_2": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One matrix or vector with the small tensors that belong to it.

    Attributes:
        stem: Its name without block and suffix, for example ``"ffn_up_exps"``.
        kind: ggml type.
        sizes: Shape with the fastest dimension first, as ggml has it.
        bias_elements: Elements of its bias, all experts', 0 for none.
        rest_bytes: Bytes of biases and scales beside it.
        component: What it counts for.
    """

    stem: str
    kind: str
    sizes: tuple[int, ...]
    bias_elements: int
    rest_bytes: int
    component: Component

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor itself."""
        return row_bytes(self.kind, self.sizes[0]) * prod(self.sizes[1:])

    @property
    def is_expert(self) -> bool:
        """Routed experts, stacked."""
        return self.stem.endswith(("_exps", "_chexps"))


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelTensors:
    """All tensors of a model by where llama.cpp uses them.

    Attributes:
        before: Tensors of the input layer: the token embedding and what goes with it.
        blocks: Tensors of each block by stem; alike blocks are the same object.
        nextn: Those of the multi-token-prediction blocks.
        after: Tensors of the output layer; a tied head is not among them.
        rope_freqs: The table of stretched rotary frequencies, None without one.
        tied: The token embedding is the output projection too.
    """

    before: Mapping[str, GgufTensor]
    blocks: tuple[Mapping[str, GgufTensor], ...]
    nextn: tuple[Mapping[str, GgufTensor], ...]
    after: Mapping[str, GgufTensor]
    rope_freqs: GgufTensor | None
    tied: bool

    @property
    def embedding(self) -> GgufTensor:
        """The token embedding."""
        return self.before["token_embd"]


@lru_cache(maxsize=16)
def model_tensors(spec: ModelSpec) -> ModelTensors:
    """The tensors of a model.

    Raises:
        DeploymentError: The model is in a layout that llama.cpp does not load.
    """
    if spec.encoder_layers:
        raise DeploymentError(
            f"{spec.name} is an encoder-decoder model, whose llama.cpp graph is not modelled here"
        )
    made: dict[int, Mapping[str, GgufTensor]] = {}

    def block(layer: Layer) -> Mapping[str, GgufTensor]:
        if id(layer) not in made:
            made[id(layer)] = _merged(spec, "layers", layer.weights, layer.mixers)
        return made[id(layer)]

    before = dict(_merged(spec, "embedding", spec.input_weights))
    after = dict(_merged(spec, "head", spec.output_weights))
    rope = before.pop("rope_freqs", None)
    if "token_embd" not in before:
        raise DeploymentError(f"{spec.name} has no token embedding; llama.cpp loads text models")
    if rope is None and any(table.kind == "llama3" for table in spec.rotary):
        # convert_hf_to_gguf.py writes the stretched frequencies of Llama 3 as a tensor.
        width = next(table.width for table in spec.rotary if table.kind == "llama3")
        rope = GgufTensor(
            stem="rope_freqs",
            kind="f32",
            sizes=(width // 2,),
            bias_elements=0,
            rest_bytes=0,
            component=Component.ATTENTION,
        )
    return ModelTensors(
        before=before,
        blocks=tuple(block(layer) for layer in spec.layers),
        nextn=tuple(block(layer) for layer in spec.mtp_layers),
        after=after,
        rope_freqs=rope,
        tied="output" not in after,
    )


def _merged(
    spec: ModelSpec, section: str, weights: Sequence[Weight], mixers: Sequence[Mixer] = ()
) -> dict[str, GgufTensor]:
    """Tensors by stem; parts that one tensor was split into are put together again."""
    found: dict[str, GgufTensor] = {}
    stems = [_stem(spec, section, weight, weights) for weight in weights]
    latent = next((mixer for mixer in mixers if isinstance(mixer, LatentAttention)), None)
    for stem, weight in zip(stems, weights, strict=True):
        tensor = _tensor(spec, section, stem, weight)
        if stem == "attn_kv_b" and latent is not None and spec.layer_prefix != "blk":
            found |= _absorbed(tensor, latent)
            continue
        other = found.get(stem)
        if other is not None and len(other.sizes) > 1 and other.sizes[0] == tensor.sizes[0]:
            tensor = replace(
                other,
                sizes=(other.sizes[0], other.sizes[1] + tensor.sizes[1], *other.sizes[2:]),
                bias_elements=other.bias_elements + tensor.bias_elements,
                rest_bytes=other.rest_bytes + tensor.rest_bytes,
            )
        elif other is not None:
            stem = f"{stem}.{len(found)}"
            tensor = replace(tensor, stem=stem)
        found[stem] = tensor
    return found


def _absorbed(tensor: GgufTensor, latent: LatentAttention) -> dict[str, GgufTensor]:
    """``kv_b_proj`` as the converter divides it: keys transposed and values, a matrix a head."""
    heads, rank = latent.num_heads, latent.kv_lora_rank
    shapes = {
        "attn_k_b": (latent.qk_nope_head_dim, rank, heads),
        "attn_v_b": (rank, latent.v_head_dim, heads),
    }
    return {
        stem: replace(
            tensor, stem=stem, sizes=sizes, kind=fitting_type(tensor.kind, sizes[0]), rest_bytes=0
        )
        for stem, sizes in shapes.items()
    }


def _tensor(spec: ModelSpec, section: str, stem: str, weight: Weight) -> GgufTensor:
    kind = _kind(spec, weight)
    sizes = tuple(reversed(weight.shape))
    if len(sizes) == 3 and sizes[1] == 1:  # a causal convolution
        sizes = (sizes[0], sizes[2])
    if weight.count > 1 or weight.expert:
        sizes = (*sizes, weight.count)
    bias = weight.count * weight.bias
    main = row_bytes(kind, sizes[0]) * prod(sizes[1:])
    rest = 4 * bias if weight.stored_bytes is None else weight.stored_bytes - main
    return GgufTensor(
        stem=stem,
        kind=kind,
        sizes=sizes,
        bias_elements=bias,
        rest_bytes=rest,
        component=component_of(section, weight),
    )


def _kind(spec: ModelSpec, weight: Weight) -> str:
    scheme = weight.scheme
    if scheme is not None:
        if scheme.name.startswith("ggml:"):
            return scheme.name[5:]
        if scheme.name == "mxfp4":  # gpt-oss: converted as it is
            return "mxfp4"
        raise DeploymentError(
            f"{spec.name} is quantised by {spec.quantization}, which llama.cpp does not load; give "
            f"its GGUF file, or a layout such as --weights q4_k_m, q8_0 or bf16"
        )
    if weight.stored_bytes is None and (
        len(weight.shape) < 2 or weight.role in (Role.NORM, Role.CONV, Role.OTHER, Role.ROUTER)
    ):
        return "f32"  # convert_hf_to_gguf.py keeps vectors and routers in F32
    return _KINDS[weight.dtype or spec.dtype]


def _stem(spec: ModelSpec, section: str, weight: Weight, siblings: Iterable[Weight]) -> str:
    name = weight.name
    if spec.layer_prefix == "blk":
        return re.sub(r"^(attn_qkv)\.[qkv]$", r"\1", name)
    parts = name.split(".")
    leaf = parts[-1]
    if section == "embedding":
        return "token_embd" if weight.role is Role.EMBEDDING else name
    if section == "head":
        return "output" if weight.role is Role.LM_HEAD else "output_norm"
    shared = any(part.startswith("shared_expert") or part == "shared_mlp" for part in parts)
    if weight.role is Role.ROUTER:
        return "ffn_gate_inp_shexp" if shared else "ffn_gate_inp"
    if leaf == "e_score_correction_bias":
        return "exp_probs_b"
    if weight.expert:
        return f"ffn_{_EXPERT[leaf]}_exps" if leaf in _EXPERT else f"ffn_{leaf}_exps"
    if shared:
        return f"ffn_{_FFN[leaf]}_shexp" if leaf in _FFN else "ffn_gate_inp_shexp"
    if any(part in ("linear_attn", "mamba", "mixer", "short_conv", "conv") for part in parts):
        found = _RECURRENT.get(leaf) or _ATTENTION.get(leaf)
        if found is not None:
            return found
    if any("attn" in part or "attention" in part for part in parts[:-1]) and leaf in _ATTENTION:
        return _ATTENTION[leaf]
    if leaf in ("post_attention_layernorm", "post_attention_norm"):
        gemma = any(other.name.endswith("pre_feedforward_layernorm") for other in siblings)
        return "post_attention_norm" if gemma else "ffn_norm"
    if weight.role is Role.NORM and leaf in _NORMS:
        return _NORMS[leaf]
    if leaf in _FFN:  # Phi-3 keeps gate and up in one matrix, which llama.cpp calls ffn_up
        return f"ffn_{'up' if _FFN[leaf] == 'gate_up' else _FFN[leaf]}"
    return _ATTENTION.get(leaf, name)
