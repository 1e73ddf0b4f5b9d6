"""From a GGUF file's metadata and tensors to a :class:`ModelSpec`.

A block's tensors say which mixers it has; the metadata says how wide they are, by the rules of
llama.cpp 0c1e57098 (``llama_model_base::load_hparams`` and ``src/models/*.cpp``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tokenroom.errors import ModelError, UnknownArchitectureError, shown
from tokenroom.models.gguf.architectures import ARCHITECTURES, FILE_TYPES, NOT_ROTARY
from tokenroom.models.gguf.container import Container, Value
from tokenroom.models.gguf.metadata import Metadata
from tokenroom.models.gguf.mixers import read_mixers
from tokenroom.models.gguf.weights import group_tensors, split_fused_attention
from tokenroom.models.ranges import StoredTensor
from tokenroom.models.spec import (
    FFN,
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Rotary,
    Weight,
)

_MAX_BLOCKS: Final = 4096


def to_spec(parts: Sequence[Container], name: str) -> ModelSpec:
    """The model in the parts of one GGUF file (one part when it is not split).

    Args:
        parts: All parts, the first one first: it holds the metadata.
        name: What to call the model.

    Raises:
        UnknownArchitectureError: llama.cpp or tokenroom does not know the architecture.
        ModelError: The file holds no language model or its metadata does not fit its tensors.
    """
    first = parts[0]
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError(f"{first.name} does not name its general.architecture; convert it again")
    _refuse_other_files(first, architecture)
    tensors = [tensor for part in parts for tensor in part.tensors]
    if not tensors:
        raise ModelError(f"{first.name} holds no tensors: it is a vocabulary, not a model")
    metadata = Metadata(values=first.metadata, architecture=architecture, file=first.name)
    block_count = metadata.integer("block_count", maximum=_MAX_BLOCKS)
    mtp_count = metadata.integer("nextn_predict_layers", default=0, minimum=0, maximum=block_count)
    grouped = group_tensors(tensors)
    missing = next((index for index in range(block_count) if index not in grouped.blocks), None)
    if missing is not None:
        raise ModelError(f"{first.name} holds no tensor of block {missing} of {block_count}")
    if len(grouped.blocks) > block_count:
        raise ModelError(
            f"{first.name} holds tensors of block {max(grouped.blocks)} but declares"
            f" {block_count} blocks"
        )
    kinds: dict[Layer, Layer] = {}
    layers: list[Layer] = []
    for index in range(block_count):
        layer = _layer(metadata, index, grouped.blocks[index], block_count - mtp_count)
        layers.append(kinds.setdefault(layer, layer))
    file_type = FILE_TYPES.get(metadata.general_integer("file_type", -1))
    class_name, model_type = _class_and_type(architecture, tensors)
    embedding = next((weight for weight in grouped.before if weight.name == "token_embd"), None)
    if embedding is None:
        raise ModelError(f"{first.name} has no token_embd.weight; it is no language model")
    return ModelSpec(
        name=name,
        architecture=class_name,
        model_type=model_type,
        hidden_size=metadata.integer("embedding_length"),
        vocab_size=embedding.shape[0],
        max_position_embeddings=metadata.integer("context_length"),
        dtype=_dtype(tensors),
        layers=tuple(layers[: block_count - mtp_count]),
        input_weights=grouped.before,
        output_weights=grouped.after,
        tied_embeddings=all(weight.name != "output" for weight in grouped.after),
        mtp_layers=tuple(layers[block_count - mtp_count :]),
        quantization="gguf",
        layer_prefix="blk",
        rotary=_rotary(metadata, layers, any(w.name == "rope_freqs" for w in grouped.before)),
        logits_softcap=metadata.positive_number("final_logit_softcapping"),
        source=f"GGUF header of {first.name}" + (f" ({file_type})" if file_type else ""),
        assumptions=metadata.assumptions(),
        extra=_extra(first.metadata, file_type),
    )


def _refuse_other_files(container: Container, architecture: str) -> None:
    kind = container.metadata.get("general.type", "model")
    if architecture == "clip" or kind == "mmproj":
        raise ModelError(
            f"{container.name} is the vision or audio projector of a model; give the model's own"
            " GGUF file"
        )
    if kind != "model":
        raise ModelError(f"{container.name} is a GGUF file of type {shown(str(kind))}, not a model")
    if architecture not in ARCHITECTURES:
        raise UnknownArchitectureError(
            f"{container.name} is of the GGUF architecture {architecture[:60]!r}, whose layers are"
            " not known; give the config.json of the model it was converted from"
        )


def _class_and_type(architecture: str, tensors: Sequence[StoredTensor]) -> tuple[str, str]:
    """The class, told apart where llama.cpp uses one architecture for two."""
    names = {tensor.name for tensor in tensors}
    experts = any("_exps." in name or ".ffn_gate.0." in name for name in names)
    if architecture == "llama" and experts:
        return "MixtralForCausalLM", "mixtral"
    if architecture == "deepseek2" and not any(".exp_probs_b" in name for name in names):
        return "DeepseekV2ForCausalLM", "deepseek_v2"
    return ARCHITECTURES[architecture]


def _dtype(tensors: Sequence[StoredTensor]) -> str:
    """The 16-bit type of the matrices; float16, which ggml caches keys in, when there is none."""
    types = {tensor.dtype for tensor in tensors if len(tensor.shape) > 1}
    return "bfloat16" if "bf16" in types and "f16" not in types else "float16"


def _extra(metadata: Mapping[str, Value], file_type: str | None) -> dict[str, object]:
    extra: dict[str, object] = {
        key: metadata[key]
        for key in ("general.name", "general.quantized_by", "general.size_label")
        if key in metadata
    }
    if file_type is not None:
        extra["file_type"] = file_type
    return extra


def _rotary(
    metadata: Metadata, layers: Sequence[Layer], has_frequencies: bool
) -> tuple[Rotary, ...]:
    """Tables of rotary positions: one, or two where windowed layers turn by a base of their own.

    Llama 3 stores its stretched frequencies as a tensor instead of a scaling type.
    """
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    if metadata.architecture in NOT_ROTARY or not (attention or latent):
        return ()
    full = [mixer for mixer in attention if mixer.window is None]
    default = latent[0].qk_rope_head_dim if latent else (full or attention)[0].head_dim
    kind = metadata.raw("rope.scaling.type")
    kind = kind if isinstance(kind, str) and kind != "none" else "default"
    positions = metadata.integer("context_length")
    table = Rotary(
        width=metadata.integer("rope.dimension_count", default=default),
        kind="llama3" if has_frequencies else kind,
        positions=positions,
        factor=max(metadata.number("rope.scaling.factor", 1.0), 1.0),
        original_positions=(
            metadata.integer("rope.scaling.original_context_length")
            if metadata.has("rope.scaling.original_context_length")
            else None
        ),
    )
    windowed = [mixer for mixer in attention if mixer.window is not None]
    if not windowed or not full or not metadata.has("rope.freq_base_swa"):
        return (table,)
    width = metadata.integer("rope.dimension_count_swa", default=windowed[0].head_dim)
    return table, Rotary(width=width, kind="default", positions=positions)


def _layer(
    metadata: Metadata, index: int, weights: Mapping[str, Weight], decoder_blocks: int
) -> Layer:
    mixers = read_mixers(metadata, index, weights, decoder_blocks)
    for mixer in mixers:
        if isinstance(mixer, Attention):
            weights = split_fused_attention(
                weights,
                mixer.num_heads * mixer.head_dim,
                mixer.num_kv_heads * mixer.head_dim,
                mixer.num_kv_heads * mixer.value_head_dim,
            )
    return Layer(
        mixers=mixers,
        ffn=_ffn(metadata, index, weights),
        weights=tuple(weights.values()),
    )


def _ffn(metadata: Metadata, index: int, weights: Mapping[str, Weight]) -> FFN | None:
    """The feed-forward block; widths are the input sizes of the down projections."""
    dense, routed, shared = (
        weights.get(name) for name in ("ffn_down", "ffn_down_exps", "ffn_down_shexp")
    )
    if routed is not None:
        return MoEFFN(
            num_experts=routed.count,
            experts_per_token=metadata.integer(
                "expert_used_count", index=index, maximum=max(routed.count, 1)
            ),
            intermediate_size=routed.shape[-1],
            shared_intermediate_size=sum(
                weight.shape[-1] for weight in (dense, shared) if weight is not None
            ),
            gated="ffn_gate_exps" in weights or "ffn_gate_up_exps" in weights,
        )
    if dense is None:
        return None
    up = weights.get("ffn_up")
    fused = up is not None and up.shape[0] == 2 * dense.shape[-1]
    return DenseFFN(intermediate_size=dense.shape[-1], gated="ffn_gate" in weights or fused)
