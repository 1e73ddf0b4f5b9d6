"""What a model is made of: the one description every source is read into.

A :class:`ModelSpec` says which parameters there are, how an engine divides each over tensor- and
pipeline-parallel ranks, in which type each is stored, and what state every layer keeps for a
request. Readers (``hf_config``, ``gguf``, ``safetensors``, ``catalogue``) build it; everything
else only reads it. Layers of the same kind are the same object, so that work over layers is done
once per kind (:attr:`ModelSpec.layer_kinds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Final, TypeAlias

DTYPE_BITS: Final[Mapping[str, int]] = {
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e8m0fnu": 8,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint8": 8,
    "bool": 8,
}


class Shard(StrEnum):
    """How tensor parallelism divides a parameter whose shape is (out, in)."""

    REPLICATED = "replicated"
    COLUMN = "column"  # the output dimension is divided
    ROW = "row"  # the input dimension is divided; a bias stays whole
    KV_COLUMN = "kv_column"  # as COLUMN, but by KV head, never below one head: replicated past that
    VOCAB = "vocab"  # rows are padded to a multiple (64 in vLLM), then divided


class Role(StrEnum):
    """What a parameter is for; decides whether a quantisation method may touch it."""

    LINEAR = "linear"
    ROUTER = "router"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    NORM = "norm"
    CONV = "conv"
    OTHER = "other"  # positions, sinks, A_log, dt_bias and the like


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How one weight matrix of shape (out, in) is stored when it is not in the model's own type.

    Attributes:
        name: The layout, for example ``"fp8"``, ``"awq"``, ``"gptq"``, ``"nf4"``, ``"mxfp4"``,
            ``"nvfp4"``, ``"w4a16"``, ``"w8a8_int8"``, ``"hqq"``, ``"ggml:q4_K"``.
        weight_bits: Bits of one packed weight element.
        group_size: Input elements that share a scale: a positive count, 0 for one scale a tensor,
            -1 for one scale an output channel.
        block_shape: (out, in) block that shares a scale (FP8 128x128), instead of groups.
        scale_bits: Bits of one scale.
        zero_point_bits: Bits of one stored zero point; 0 when symmetric and none is stored.
        act_order: A group index of 4 bytes an input element is stored (GPTQ desc_act).
        extra_bytes_per_tensor: Bytes stored once a matrix (global scales, input scales).
        activation_bits: 16 when activations stay in the model's type, else 8 or 4.
    """

    name: str
    weight_bits: float
    group_size: int = 0
    block_shape: tuple[int, int] | None = None
    scale_bits: float = 0
    zero_point_bits: float = 0
    act_order: bool = False
    extra_bytes_per_tensor: int = 0
    activation_bits: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter matrix or vector (with its bias), or ``count`` alike ones (experts).

    Attributes:
        name: Module path in the checkpoint below its block, for example ``"self_attn.q_proj"``;
            the index of an expert is written ``*`` (``"mlp.experts.*.gate_proj"``).
        shape: (out, in) for matrices, (n,) for vectors, as PyTorch stores ``weight``.
        bias: Number of bias elements of one copy, 0 for none.
        role: What it is for.
        shard: How tensor parallelism divides it.
        count: How many alike copies there are.
        expert: Whether the copies are routed experts, divided by expert parallelism.
        heads: Heads or groups the output dimension holds, where a KV_COLUMN weight is divided by
            other heads than the layer's KV heads (B and C groups of Mamba-2); None otherwise.
        dtype: Stored type when it is not the model's own (``"float32"`` for SSM states).
        scheme: Quantised layout, None for plain.
        stored_bytes: Exact bytes of all copies as read from a header, None when not read.
    """

    name: str
    shape: tuple[int, ...]
    bias: int = 0
    role: Role = Role.LINEAR
    shard: Shard = Shard.REPLICATED
    count: int = 1
    expert: bool = False
    heads: int | None = None
    dtype: str | None = None
    scheme: Scheme | None = None
    stored_bytes: int | None = None

    @property
    def parameters(self) -> int:
        """Number of parameters, over all copies, biases included."""
        return self.count * (prod(self.shape) + self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The key selector of sparse attention (DeepSeek V3.2, GLM-5): its own small key cache.

    Attributes:
        num_heads: Query heads of the indexer.
        head_dim: Width of its cached key (one a token, shared by heads).
        top_k: Tokens each query attends to.
    """

    num_heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention that caches keys and values per head.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Width of a key head.
        value_head_dim: Width of a value head.
        window: Sliding window in tokens, None for full attention.
        chunk: Chunk length of chunked-local attention (Llama 4), None otherwise.
        shares_kv_of: Index of the earlier layer whose cache is read instead of an own one.
        cross: Keys come from an encoder (its length bounds the cache), not from the sequence.
        encoder_only: Bidirectional, keeps no cache.
        sinks: Learned attention sinks (gpt-oss).
        indexer: Selector of key blocks with a key cache of its own (MiniMax-M3), None otherwise.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    chunk: int | None = None
    shares_kv_of: int | None = None
    cross: bool = False
    encoder_only: bool = False
    sinks: bool = False
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed vector a token is cached.

    Attributes:
        num_heads: Query heads.
        q_lora_rank: Rank of the query compression, None when queries are not compressed.
        kv_lora_rank: Width of the cached latent.
        qk_nope_head_dim: Width of a key head without positions.
        qk_rope_head_dim: Width of the shared rotary key, cached beside the latent.
        v_head_dim: Width of a value head.
        indexer: The sparse selector, None for dense MLA.
        compress_ratio: Tokens stored as one state (DeepSeek V4), 1 for none.
        window: Sliding window in tokens of the uncompressed part, None for full.
    """

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: Indexer | None = None
    compress_ratio: int = 1
    window: int | None = None


class Recurrence(StrEnum):
    """Kinds of layers that keep a state of fixed size instead of a growing cache."""

    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GATED_DELTA = "gated_delta"  # Qwen3-Next
    KIMI_DELTA = "kimi_delta"
    LIGHTNING = "lightning"  # MiniMax-01 linear attention
    SHORT_CONV = "short_conv"  # LFM2
    RG_LRU = "rg_lru"  # RecurrentGemma
    RWKV = "rwkv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A layer with a fixed-size state per sequence.

    Attributes:
        kind: Which recurrence.
        conv_dim: Channels of the causal convolution whose last inputs are kept, 0 for none.
        conv_kernel: Taps of that convolution; engines keep kernel - 1 columns.
        num_heads: State heads (value heads of a gated delta rule; 1 for Mamba-1).
        state_shape: Shape of one head's recurrent state, for example (head_dim, state_size);
            for Mamba-1 (d_inner, state_size) with num_heads 1. Empty for none.
        num_groups: Groups whose B and C (or keys) are shared; divided by TP like heads.
        key_heads: Key heads of a gated delta rule, 0 otherwise.
        state_dtype: Type the recurrent state is kept in when it is not the cache's own: what the
            checkpoint asks for (``mamba_ssm_cache_dtype``) or the kind fixes (Kimi's float32).
    """

    kind: Recurrence
    conv_dim: int = 0
    conv_kernel: int = 0
    num_heads: int = 1
    state_shape: tuple[int, ...] = ()
    num_groups: int = 1
    key_heads: int = 0
    state_dtype: str | None = None


Mixer: TypeAlias = Attention | LatentAttention | Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFFN:
    """A feed-forward block every token passes through.

    Attributes:
        intermediate_size: Width of the hidden layer.
        gated: Three matrices (gate, up, down) instead of two.
    """

    intermediate_size: int
    gated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEFFN:
    """A mixture of experts.

    Attributes:
        num_experts: Routed experts.
        experts_per_token: Routed experts a token passes through.
        intermediate_size: Width of one routed expert.
        shared_intermediate_size: Total width of the shared experts, 0 for none.
        gated: Whether experts have three matrices.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    gated: bool = True


FFN: TypeAlias = DenseFFN | MoEFFN


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block: its mixers, FFN and weights.

    More than one mixer where they run side by side, or self and cross attention follow each other.
    """

    mixers: tuple[Mixer, ...]
    ffn: FFN | None
    weights: tuple[Weight, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters of the block."""
        return sum(weight.parameters for weight in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """The longest video an encoder takes, as groups of frames that become tokens together.

    Attributes:
        tokens: Language-model tokens of a group.
        encoder_tokens: Positions the encoder processes for a group.
        groups: Groups of the longest video.
        within_context: Shortened to what the longest sequence holds, to one group at least.
    """

    tokens: int
    encoder_tokens: int
    groups: int
    within_context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """An encoder beside the language model (vision, audio) with its projector.

    Attributes:
        name: ``"vision"`` or ``"audio"``.
        weights: Its parameters; ``count`` folds alike blocks.
        num_layers: Blocks.
        hidden_size: Width.
        intermediate_size: Width of its FFN.
        num_heads: Attention heads.
        max_tokens_per_item: Language-model tokens that the largest item (image, recording)
            becomes, None when the configuration does not bound it.
        encoder_tokens_per_item: Positions the encoder itself processes for that item.
        clip: The longest video, None when it takes none or its length is not known.
        rotary: Queries and keys are rotated.
        items_apart: Images or frames pass it one by one, not side by side.
    """

    name: str
    weights: tuple[Weight, ...]
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    max_tokens_per_item: int | None = None
    encoder_tokens_per_item: int | None = None
    clip: Clip | None = None
    rotary: bool = False
    items_apart: bool = False

    @property
    def parameters(self) -> int:
        """Number of parameters of the tower and its projector."""
        return sum(weight.parameters for weight in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """One table of rotary positions that attention layers share.

    Attributes:
        width: Elements of a head that are rotated.
        kind: ``rope_type``: ``"default"``, ``"linear"``, ``"dynamic"``, ``"yarn"``, ``"llama3"``,
            ``"longrope"``, ``"proportional"``, ...
        positions: ``max_position_embeddings``.
        factor: How far the scaling stretches the positions it was trained on.
        original_positions: Positions before scaling, None when not told.
        multimodal: Positions have sections for time, height and width.
    """

    width: int
    kind: str
    positions: int
    factor: float = 1.0
    original_positions: int | None = None
    multimodal: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSpec:
    """Everything about a model that memory and speed depend on; compared by identity.

    Attributes:
        name: Catalogue name, Hub id or file it came from.
        architecture: Class name in ``architectures``.
        model_type: ``model_type`` of the text model.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the token embedding.
        max_position_embeddings: Longest context the configuration allows, None for unbounded.
        dtype: Stored type of plain parameters (``"bfloat16"``).
        layers: Blocks in order; alike blocks are the same object.
        input_weights: Parameters before the first block (first pipeline rank).
        output_weights: Parameters after the last block (last pipeline rank). A tied head is not
            repeated here: see ``tied_embeddings``.
        tied_embeddings: The output projection is the token embedding.
        encoder_layers: Blocks of a sequence-to-sequence encoder, empty otherwise.
        towers: Vision and audio encoders.
        mtp_layers: Multi-token-prediction blocks, stored but only loaded as a draft model.
        quantization: Name of the quantisation method, None for plain.
        quantization_named: The quantisation block names its method the way engines look for it;
            one that does not is still read here, but an engine may load the weights plain.
        kv_cache_dtype: KV type the checkpoint asks for (``"fp8"``), None for the model's own.
        layer_prefix: Checkpoint path of the blocks, such as ``"model.layers"``.
        logits_softcap: Final logits pass a tanh cap (Gemma 2).
        rotary: Tables of rotary positions, empty when attention is not rotary.
        source: Where the description was read.
        path: The local folder or GGUF file that it was read from, empty where engines load the
            model by its name.
        layout: Layout that the weights are supposed to be stored in (``--weights``), None for
            the checkpoint's own.
        assumptions: Sentences on what was assumed, for the user.
        extra: Configuration keys that were not used.
        config: The configuration it was read from, None where it came from elsewhere (GGUF).
    """

    name: str
    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int | None
    dtype: str
    layers: tuple[Layer, ...]
    input_weights: tuple[Weight, ...]
    output_weights: tuple[Weight, ...]
    tied_embeddings: bool
    encoder_layers: tuple[Layer, ...] = ()
    towers: tuple[Tower, ...] = ()
    mtp_layers: tuple[Layer, ...] = ()
    quantization: str | None = None
    quantization_named: bool = True
    kv_cache_dtype: str | None = None
    layer_prefix: str = "model.layers"
    logits_softcap: bool = False
    rotary: tuple[Rotary, ...] = ()
    source: str = ""
    path: str = ""
    layout: str | None = None
    assumptions: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, object] | None = field(default=None, repr=False)

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.layers)

    @cached_property
    def layer_kinds(self) -> tuple[tuple[Layer, int], ...]:
        """Each distinct block with how often it occurs, in order of first occurrence."""
        counts: dict[int, int] = {}
        kinds: dict[int, Layer] = {}
        for layer in self.layers:
            kinds.setdefault(id(layer), layer)
            counts[id(layer)] = counts.get(id(layer), 0) + 1
        return tuple((kinds[key], count) for key, count in counts.items())

    @property
    def text_parameters(self) -> int:
        """Parameters of the language model: what transformers builds, MTP blocks left out."""
        blocks = sum(layer.parameters * count for layer, count in self.layer_kinds)
        encoder = sum(layer.parameters for layer in self.encoder_layers)
        ends = sum(weight.parameters for weight in self.input_weights + self.output_weights)
        return blocks + encoder + ends

    @property
    def tower_parameters(self) -> int:
        """Parameters of vision and audio towers with their projectors."""
        return sum(tower.parameters for tower in self.towers)

    @property
    def parameters_total(self) -> int:
        """Parameters of the whole model, every expert and tower counted, MTP blocks left out."""
        return self.text_parameters + self.tower_parameters

    @cached_property
    def parameters_active(self) -> int:
        """Parameters one text token passes through: routed experts by their share, no towers.

        The token embedding counts once (one row is read, but the usual published figures count
        the table).
        """
        idle = 0
        for layer, count in self.layer_kinds:
            if isinstance(layer.ffn, MoEFFN):
                routed = sum(weight.parameters for weight in layer.weights if weight.expert)
                share = layer.ffn.experts_per_token / layer.ffn.num_experts
                idle += count * (routed - round(routed * share))
        return self.text_parameters - idle

    def all_weights(self) -> Iterator[tuple[str, Weight, int]]:
        """Every parameter as (component, weight, times it occurs); MTP blocks left out.

        Components are ``"embedding"``, ``"layers"``, ``"head"``, ``"encoder"`` and tower names.
        """
        for weight in self.input_weights:
            yield "embedding", weight, 1
        for layer, count in self.layer_kinds:
            for weight in layer.weights:
                yield "layers", weight, count
        for layer in self.encoder_layers:
            for weight in layer.weights:
                yield "encoder", weight, 1
        for weight in self.output_weights:
            yield "head", weight, 1
        for tower in self.towers:
            for weight in tower.weights:
                yield tower.name, weight, 1
