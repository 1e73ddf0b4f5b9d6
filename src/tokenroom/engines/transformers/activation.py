"""Tensors that live at once in a forward pass of transformers, run eagerly on one GPU.

Read line by line in ``models/llama/modeling_llama.py`` of 5.24, which nearly all decoders share:
each name keeps its tensor until the function returns or the name is given another. Counted against
recorded peaks to the byte (``scripts/oracle_transformers_activation.py``); kernels' workspaces and
mixers other than softmax attention are not in them, so the range is wider there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tokenroom.engines.transformers.caches import (
    CacheKind,
    CacheSettings,
    LayerBytes,
    layer_bytes,
)
from tokenroom.memory.activations import Terms, expert_terms, mixer_terms, terms_bytes
from tokenroom.memory.kv_cache import element_bytes
from tokenroom.models.spec import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Role,
)

_FLOAT: Final = 4
_POSITION_BYTES: Final = 8
_FUSED_QUERIES: Final = frozenset({"qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv"})
_FUSED_GATES: Final = frozenset({"gate_up_proj"})
_UNCOUNTED: Final = frozenset(
    {"gpt2", "gpt_bigcode", "bloom", "gptj", "codegen", "falcon", "stablelm", "exaone4"}
)
"""Model types whose layer is written out in other steps: attention or an activation function of its
own, parallel branches (Falcon), norms after the blocks (EXAONE 4) or with a mean (StableLM)."""


class AttentionKernel(StrEnum):
    """``attn_implementation``."""

    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash_attention_2"

    @property
    def keeps_scores(self) -> bool:
        """The score matrix is a tensor."""
        return self is AttentionKernel.EAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass.

    Attributes:
        batch: Sequences.
        queries: New tokens of each.
        keys: Tokens of each that are attended to, new ones included.
        kernel: How attention is computed.
        dtype: The model's type.
        logits: Positions of each sequence that get logits.
        samples: The last logits are copied in float32 to sample from, as ``generate`` does.
        padded: Prompts differ in length, so that a mask is made and heads are repeated for it.
        position_rows: Rows of positions that the caller gives, as ``generate`` gives one a
            sequence; None where the model makes one row for all.
    """

    batch: int
    queries: int
    keys: int
    kernel: AttentionKernel
    dtype: str
    logits: int = 1
    samples: bool = True
    padded: bool = False
    position_rows: int | None = None

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.dtype)

    @property
    def tokens(self) -> int:
        """New tokens of the batch."""
        return self.batch * self.queries


def step_terms(
    spec: ModelSpec,
    step: Step,
    cache: CacheSettings,
    *,
    layers: Sequence[Layer] | None = None,
    outputs: bool = True,
) -> Terms:
    """The widest moment of a pass beside weights and the whole cache as it stands after it.

    Args:
        spec: The model.
        step: The pass.
        cache: How the cache is kept.
        layers: Layers that run on the GPU in question, None for all.
        outputs: Whether the logits are made there.
    """
    moments = step_moments(spec, step, cache, layers=layers, outputs=outputs)
    return max(moments, key=terms_bytes, default=())


def step_moments(
    spec: ModelSpec,
    step: Step,
    cache: CacheSettings,
    *,
    layers: Sequence[Layer] | None = None,
    outputs: bool = True,
) -> list[Terms]:
    """Every moment that may be the widest: of each kind of layer, and of the logits."""
    kinds = [layer for layer, _ in spec.layer_kinds] if layers is None else layers
    moments = [moment for layer in kinds for moment in _layer_moments(spec, layer, step, cache)]
    return [*moments, _output_terms(spec, step)] if outputs else moments


def _carried(spec: ModelSpec, layer: Layer, step: Step) -> Terms:
    """What the model holds while a layer runs: embeddings, the layer's input, positions, mask."""
    hidden = step.tokens * spec.hidden_size * step.width
    rotary = sum(table.width for table in spec.rotary)
    rows = step.position_rows
    terms = [
        ("embeddings", hidden),
        ("layer_input", hidden),
        ("rotary_tables", 2 * (rows or 1) * step.queries * rotary * step.width),
        ("positions", step.queries * _POSITION_BYTES if rows is None else 0),
    ]
    terms += _masks(spec, step)
    return tuple(terms)


def _masks(spec: ModelSpec, step: Step) -> Terms:
    """One mask for each kind of attention: additive for eager, of booleans where SDPA needs one.

    SDPA needs none for full attention over equal prompts; a window shorter than the keys needs one,
    which all sequences share.
    """
    windows = {
        mixer.window
        for layer, _ in spec.layer_kinds
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    }
    rows = step.queries * step.keys
    if step.kernel.keeps_scores:
        return (("masks", len(windows) * step.batch * rows * step.width),)
    if step.padded:
        return (("masks", len(windows) * step.batch * rows),)
    short = [window for window in windows if window is not None and window < step.keys]
    return (("masks", len(short) * rows),) if short and step.queries > 1 else ()


def _layer_moments(spec: ModelSpec, layer: Layer, step: Step, cache: CacheSettings) -> list[Terms]:
    carried = _carried(spec, layer, step)
    hidden = step.tokens * spec.hidden_size * step.width
    held = layer_bytes(layer, cache, step.batch, step.keys, step.queries)
    moments: list[Terms] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            moments += [
                (*carried, ("normed", hidden), *moment)
                for moment in _attention_moments(layer, mixer, step, held, cache)
            ]
        else:
            moments.append((*carried, ("normed", hidden), *_other_mixer(mixer, step)))
    normed = _norm_terms(spec, step)
    moments.append((*carried, ("residual", hidden), *normed))
    ffn = _ffn_terms(layer, spec, step)
    if ffn:
        moments.append((*carried, ("residual", hidden), ("normed", hidden), *ffn))
    return moments


def _norm_terms(spec: ModelSpec, step: Step) -> Terms:
    """An RMS norm: the input in float32 and its square or its product, and two columns."""
    values = step.tokens * spec.hidden_size * _FLOAT
    return (("float32", 2 * values), ("variance", 2 * step.tokens * _FLOAT))


def _has(layer: Layer, names: frozenset[str]) -> bool:
    """Whether a module of the layer has one of these names."""
    return any(weight.name.rpartition(".")[2] in names for weight in layer.weights)


def _head_norm(layer: Layer, mixer: Attention) -> int:
    """Columns of variance a token when queries are normed before they are rotated, 0 if not."""
    for weight in layer.weights:
        if weight.name.endswith("q_norm"):
            return mixer.num_heads if weight.shape[0] == mixer.head_dim else 1
    return 0


def _attention_moments(
    layer: Layer, mixer: Attention, step: Step, held: LayerBytes, cache: CacheSettings
) -> list[Terms]:
    """Norm of the queries, rotation, growth of the cache, and attention itself."""
    width = step.width
    queries = step.tokens * mixer.num_heads * mixer.head_dim * width
    keys = step.tokens * mixer.num_kv_heads * mixer.head_dim * width
    values = step.tokens * mixer.num_kv_heads * mixer.value_head_dim * width
    prefill = step.queries == step.keys
    # The layer's own tokens are not yet in the cache; before that its old tensors are all it has.
    to_come = ("cache_to_come", -(held.kept if prefill else keys + values))
    # q x cos, the rotated half of q, their product with sin and the sum: three at once beside q.
    rotation = max(4 * queries + keys, 2 * queries + 4 * keys)
    moments: list[Terms] = [
        (("rotation", rotation), ("values", values), to_come),
        (
            ("queries_keys_values", queries + keys + values),
            # Rotated queries and keys are new; what they came from lives on in the values' view.
            ("fused_projection", queries + keys if _has(layer, _FUSED_QUERIES) else 0),
            ("old_cache", 0 if prefill else _old_cache(mixer, step, held, cache, keys, values)),
        ),
    ]
    if head_norm := _head_norm(layer, mixer):
        floats = 2 * queries // width * _FLOAT
        columns = 2 * step.tokens * head_norm * _FLOAT
        moments.append((("queries", queries), ("float32_queries", floats + columns), to_come))
    attended = step.batch * step.keys * width
    repeated = 0
    grouped = mixer.num_heads != mixer.num_kv_heads
    windowed = mixer.window is not None and mixer.window < step.keys
    by_head = step.kernel.keeps_scores or step.padded or windowed
    if grouped and by_head and (step.kernel.keeps_scores or step.queries > 1):
        repeated = attended * mixer.num_heads * (mixer.head_dim + mixer.value_head_dim)
    output = step.tokens * mixer.num_heads * mixer.value_head_dim * width
    terms: list[tuple[str, int]] = [
        ("queries", queries),
        ("repeated_heads", repeated),
    ]
    if _has(layer, _FUSED_QUERIES):  # queries, keys and values are views of what they came from
        terms.append(("fused_projection", queries + keys + values))
    if step.kernel.keeps_scores:
        scores = step.tokens * mixer.num_heads * step.keys
        # softmax in float32 casts its input (not from float16), and keeps the scores it came from.
        copies = {"float16": 2 + 4 + 2, "float32": 4 + 4}.get(step.dtype, 2 + 4 + 4)
        terms.append(("scores", scores * copies))
    else:
        terms.append(("attention_output", output))
        terms.append(("log_sums", step.tokens * mixer.num_heads * _FLOAT))
    moments.append(tuple(terms))
    return moments


def _old_cache(
    mixer: Attention, step: Step, held: LayerBytes, cache: CacheSettings, keys: int, values: int
) -> int:
    """What a layer that grows by concatenation still has of its cache before the step.

    Keys are joined and let go before values are, a window's both before either is. A window that is
    full is as long as before; others were shorter by the new tokens.
    """
    window = mixer.window if mixer.window is not None else mixer.chunk
    if cache.kind is CacheKind.QUANTIZED or (window is not None and step.keys > window):
        return held.new_pair
    return max(0, held.new_pair - (max(keys, values) if window is None else keys + values))


def _other_mixer(mixer: object, step: Step) -> Terms:
    """Latent attention expands keys and values of all tokens for every head; recurrences scan."""
    width = step.width
    if isinstance(mixer, LatentAttention):
        heads = mixer.num_heads
        wide = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        expanded = step.batch * step.keys * heads * (wide + mixer.v_head_dim) * width
        terms = [
            ("queries", 2 * step.tokens * heads * wide * width),
            ("expanded_keys_values", expanded),
            (
                "expansion",
                step.batch
                * step.keys
                * heads
                * (mixer.qk_nope_head_dim + mixer.v_head_dim)
                * width,
            ),
        ]
        if step.kernel.keeps_scores:
            terms.append(("scores", step.tokens * heads * step.keys * (2 + 4 + 4)))
        else:
            terms.append(("attention_output", step.tokens * heads * mixer.v_head_dim * width))
        return tuple(terms)
    tensors = mixer_terms(mixer, step.tokens, element_bytes=_FLOAT)  # type: ignore[arg-type]
    return tuple((name, 2 * size) for name, size in tensors)


def _ffn_terms(layer: Layer, spec: ModelSpec, step: Step) -> Terms:
    """Gate activated, up and their product; the other two of a plain block."""
    if isinstance(layer.ffn, MoEFFN):
        return expert_terms(layer.ffn, step.tokens, spec.hidden_size, element_bytes=step.width)
    if isinstance(layer.ffn, DenseFFN):
        inner = step.tokens * layer.ffn.intermediate_size * step.width
        tensors = 3 if layer.ffn.gated else 2
        if layer.ffn.gated and _has(layer, _FUSED_GATES):  # gate and up are views of one product
            tensors = 4
        return (("gate_up_product", inner * tensors),)
    return ()


def _output_terms(spec: ModelSpec, step: Step) -> Terms:
    """Logits of the positions asked for, and the float32 copy of the last that is sampled from."""
    hidden = step.tokens * spec.hidden_size * step.width
    logits = step.batch * min(step.logits, step.queries) * spec.vocab_size * step.width
    sampled = step.batch * spec.vocab_size * _FLOAT if step.samples else 0
    return (("last_hidden", hidden), ("logits", logits), ("sampled_logits", sampled))


def is_counted(spec: ModelSpec) -> bool:
    """Every layer is of the kind that was counted: softmax attention and a dense block."""
    return spec.model_type not in _UNCOUNTED and all(
        isinstance(layer.ffn, DenseFFN)
        and all(isinstance(mixer, Attention) and not mixer.cross for mixer in layer.mixers)
        and not any(weight.role is Role.ROUTER for weight in layer.weights)
        for layer, _ in spec.layer_kinds
    )
