"""The parts of layers that keep a state of fixed size: Mamba, gated delta rules, short convolution.

Each function gives a mixer with its parameters. Shapes are those of transformers 5.24
(``modeling_*.py`` of each family). Division over tensor-parallel ranks follows vLLM 0.33
(``model_executor/layers/mamba``): heads and channels are divided, and so are the groups that share
B and C, of which every rank keeps at least one. Decay rates (``A_log``) are loaded as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from tokenroom.models.architectures.blocks import linear, norm
from tokenroom.models.config import Config
from tokenroom.models.spec import (
    Attention,
    Layer,
    Mixer,
    Recurrence,
    Recurrent,
    Role,
    Shard,
    Weight,
)

K = TypeVar("K", bound=Hashable)

Part: TypeAlias = tuple[Mixer, tuple[Weight, ...]]
"""A mixer and its parameters."""

FLOAT32 = "float32"


def divided(name: str, *shape: int, dtype: str | None = None) -> Weight:
    """A vector or table whose first dimension is divided with the heads or channels."""
    return Weight(name=name, shape=shape, role=Role.OTHER, shard=Shard.COLUMN, dtype=dtype)


def divided_norm(name: str, size: int) -> Weight:
    """A gated normalisation over channels, divided with them."""
    return Weight(name=name, shape=(size,), role=Role.NORM, shard=Shard.COLUMN)


def convolution(
    name: str,
    channels: int,
    kernel: int,
    *,
    bias: bool = False,
    shard: Shard = Shard.COLUMN,
    heads: int | None = None,
    dtype: str | None = None,
) -> Weight:
    """A depthwise causal convolution: one row of ``kernel`` taps a channel."""
    return Weight(
        name=name,
        shape=(channels, 1, kernel),
        bias=channels if bias else 0,
        role=Role.CONV,
        shard=shard,
        heads=heads,
        dtype=dtype,
    )


def grouped(name: str, rows: int, columns: int, groups: int, *, bias: bool = False) -> Weight:
    """The rows of a projection that make B or C: divided by group, never below one group."""
    return Weight(
        name=name,
        shape=(rows, columns),
        bias=rows if bias else 0,
        shard=Shard.KV_COLUMN,
        heads=groups,
    )


def mamba1(
    *,
    hidden_size: int,
    inner_size: int,
    state_size: int,
    kernel: int,
    rank: int,
    bias: bool,
    conv_bias: bool,
    state_norms: bool = False,
    prefix: str = "mixer",
) -> Part:
    """A selective state space layer (Mamba-1).

    Args:
        hidden_size: Width of the residual stream.
        inner_size: Channels of the layer.
        state_size: State elements a channel.
        kernel: Taps of the convolution.
        rank: Width of the time step projection.
        bias: Bias on the projections in and out.
        conv_bias: Bias of the convolution.
        state_norms: Whether time step, B and C are normalised (Jamba).
        prefix: Module path below the block.

    Source: vLLM 0.33 ``mamba_mixer.py`` (``MambaMixer``).
    """
    column = Shard.COLUMN
    weights: tuple[Weight, ...] = (
        linear(f"{prefix}.in_proj", inner_size, hidden_size, bias=bias, shard=column),
        linear(f"{prefix}.in_proj", inner_size, hidden_size, bias=bias, shard=column),
        convolution(f"{prefix}.conv1d", inner_size, kernel, bias=conv_bias),
        linear(f"{prefix}.x_proj", rank + 2 * state_size, inner_size, shard=Shard.ROW),
        linear(f"{prefix}.dt_proj", inner_size, rank, bias=True, shard=column),
        divided(f"{prefix}.A_log", inner_size, state_size, dtype=FLOAT32),
        divided(f"{prefix}.D", inner_size),
        linear(f"{prefix}.out_proj", hidden_size, inner_size, bias=bias, shard=Shard.ROW),
    )
    if state_norms:
        weights += (
            norm(f"{prefix}.dt_layernorm", rank),
            norm(f"{prefix}.b_layernorm", state_size),
            norm(f"{prefix}.c_layernorm", state_size),
        )
    mixer = Recurrent(
        kind=Recurrence.MAMBA1,
        conv_dim=inner_size,
        conv_kernel=kernel,
        state_shape=(inner_size, state_size),
    )
    return mixer, weights


def mamba2(
    *,
    hidden_size: int,
    num_heads: int,
    head_dim: int,
    num_groups: int,
    state_size: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    out_bias: bool | None = None,
    inner_size: int | None = None,
    gated_norm: bool = True,
    state_dtype: str | None = None,
    prefix: str = "mixer",
) -> Part:
    """A state space duality layer (Mamba-2).

    Args:
        hidden_size: Width of the residual stream.
        num_heads: State heads.
        head_dim: Channels of a head.
        num_groups: Groups of heads that share B and C.
        state_size: State elements a channel.
        kernel: Taps of the convolution.
        bias: Bias on the projection in.
        conv_bias: Bias of the convolution.
        out_bias: Bias on the projection out, None for as ``bias``.
        inner_size: Channels of the layer, None for ``num_heads * head_dim``.
        gated_norm: Whether a gated normalisation precedes the projection out.
        state_dtype: Type that the checkpoint wants its state in.
        prefix: Module path below the block.

    Source: vLLM 0.33 ``mamba_mixer2.py`` (``MambaMixer2``).
    """
    inner = num_heads * head_dim if inner_size is None else inner_size
    shared = num_groups * state_size
    into, conv = f"{prefix}.in_proj", f"{prefix}.conv1d"
    column, kv = Shard.COLUMN, Shard.KV_COLUMN
    weights: tuple[Weight, ...] = (
        linear(into, inner, hidden_size, bias=bias, shard=column),
        linear(into, inner, hidden_size, bias=bias, shard=column),
        grouped(into, shared, hidden_size, num_groups, bias=bias),
        grouped(into, shared, hidden_size, num_groups, bias=bias),
        linear(into, num_heads, hidden_size, bias=bias, shard=column),
        convolution(conv, inner, kernel, bias=conv_bias),
        convolution(conv, shared, kernel, bias=conv_bias, shard=kv, heads=num_groups),
        convolution(conv, shared, kernel, bias=conv_bias, shard=kv, heads=num_groups),
        divided(f"{prefix}.dt_bias", num_heads),
        divided(f"{prefix}.A_log", num_heads, dtype=FLOAT32),
        divided(f"{prefix}.D", num_heads),
    )
    if gated_norm:
        weights += (divided_norm(f"{prefix}.norm", inner),)
    weights += (
        linear(
            f"{prefix}.out_proj",
            hidden_size,
            inner,
            bias=bias if out_bias is None else out_bias,
            shard=Shard.ROW,
        ),
    )
    mixer = Recurrent(
        kind=Recurrence.MAMBA2,
        conv_dim=inner + 2 * shared,
        conv_kernel=kernel,
        num_heads=num_heads,
        state_shape=(head_dim, state_size),
        num_groups=num_groups,
        state_dtype=state_dtype,
    )
    return mixer, weights


def gated_delta(
    *,
    hidden_size: int,
    key_heads: int,
    value_heads: int,
    key_head_dim: int,
    value_head_dim: int,
    kernel: int,
    fused: bool,
    state_dtype: str | None = None,
    prefix: str = "linear_attn",
) -> Part:
    """A gated delta rule layer (Qwen3-Next, Qwen3.5).

    Args:
        hidden_size: Width of the residual stream.
        key_heads: Query and key heads.
        value_heads: Value heads, each with a state of its own.
        key_head_dim: Width of a key head.
        value_head_dim: Width of a value head.
        kernel: Taps of the convolution over queries, keys and values.
        fused: Whether the checkpoint fuses q, k, v, z and b, a (Qwen3-Next).
        state_dtype: Type that the checkpoint wants its state in.
        prefix: Module path below the block.

    Source: vLLM 0.33 ``gdn/qwen_gdn_linear_attn.py``.
    """
    keys, values = key_heads * key_head_dim, value_heads * value_head_dim
    qkv, z, b, a = (
        ("in_proj_qkvz", "in_proj_qkvz", "in_proj_ba", "in_proj_ba")
        if fused
        else ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    )
    column = Shard.COLUMN
    rows = (
        (qkv, keys),
        (qkv, keys),
        (qkv, values),
        (z, values),
        (b, value_heads),
        (a, value_heads),
    )
    weights = (
        *(linear(f"{prefix}.{name}", out, hidden_size, shard=column) for name, out in rows),
        convolution(f"{prefix}.conv1d", 2 * keys + values, kernel),
        divided(f"{prefix}.dt_bias", value_heads),
        divided(f"{prefix}.A_log", value_heads, dtype=FLOAT32),
        norm(f"{prefix}.norm", value_head_dim),
        linear(f"{prefix}.out_proj", hidden_size, values, shard=Shard.ROW),
    )
    mixer = _delta_mixer(
        Recurrence.GATED_DELTA,
        key_heads=key_heads,
        value_heads=value_heads,
        key_head_dim=key_head_dim,
        value_head_dim=value_head_dim,
        kernel=kernel,
        state_dtype=state_dtype,
    )
    return mixer, weights


def _delta_mixer(
    kind: Recurrence,
    *,
    key_heads: int,
    value_heads: int,
    key_head_dim: int,
    value_head_dim: int,
    kernel: int,
    state_dtype: str | None,
) -> Recurrent:
    return Recurrent(
        kind=kind,
        conv_dim=2 * key_heads * key_head_dim + value_heads * value_head_dim,
        conv_kernel=kernel,
        num_heads=value_heads,
        state_shape=(value_head_dim, key_head_dim),
        key_heads=key_heads,
        state_dtype=state_dtype,
    )


def gated_delta_unfused(
    *,
    hidden_size: int,
    key_heads: int,
    value_heads: int,
    key_head_dim: int,
    value_head_dim: int,
    kernel: int,
    prefix: str = "linear_attn",
) -> Part:
    """A gated delta rule whose projections are modules of their own (OLMo Hybrid).

    Arguments as :func:`gated_delta`. Source: vLLM 0.33 ``gdn/olmo_gdn_linear_attn.py``.
    """
    keys, values = key_heads * key_head_dim, value_heads * value_head_dim
    column = Shard.COLUMN
    rows = (
        ("q_proj", keys),
        ("k_proj", keys),
        ("v_proj", values),
        ("a_proj", value_heads),
        ("b_proj", value_heads),
        ("g_proj", values),
    )
    weights = (
        *(linear(f"{prefix}.{name}", out, hidden_size, shard=column) for name, out in rows),
        convolution(f"{prefix}.conv1d", 2 * keys + values, kernel),
        divided(f"{prefix}.dt_bias", value_heads),
        divided(f"{prefix}.A_log", value_heads, dtype=FLOAT32),
        norm(f"{prefix}.o_norm", value_head_dim),
        linear(f"{prefix}.o_proj", hidden_size, values, shard=Shard.ROW),
    )
    mixer = _delta_mixer(
        Recurrence.GATED_DELTA,
        key_heads=key_heads,
        value_heads=value_heads,
        key_head_dim=key_head_dim,
        value_head_dim=value_head_dim,
        kernel=kernel,
        state_dtype=None,
    )
    return mixer, weights


def kimi_delta(
    *,
    hidden_size: int,
    num_heads: int,
    head_dim: int,
    kernel: int,
    low_rank: bool = True,
    prefix: str = "self_attn",
) -> Part:
    """Kimi delta attention: a gated delta rule whose decay differs by channel.

    Args:
        hidden_size: Width of the residual stream.
        num_heads: Query, key and value heads.
        head_dim: Width of each.
        kernel: Taps of the convolution over queries, keys and values.
        low_rank: Whether decay and output gates pass through ``head_dim`` (Kimi Linear) or are
            full projections (Ling/Ring 3).
        prefix: Module path below the block.

    Its state is float32 unless told otherwise. Source: vLLM 0.33 ``gdn/kimi_gdn_linear_attn.py``
    (convolution, decay and bias are float32 there) and ``mamba_utils.py`` (``kda_state_dtype``).
    """
    width = num_heads * head_dim
    column = Shard.COLUMN
    weights = tuple(
        linear(f"{prefix}.{name}", width, hidden_size, shard=column)
        for name in ("q_proj", "k_proj", "v_proj")
    )
    weights += (
        convolution(f"{prefix}.conv1d", 3 * width, kernel, dtype=FLOAT32),
        divided(f"{prefix}.forget_gate.dt_bias", width, dtype=FLOAT32),
        divided(f"{prefix}.forget_gate.A_log", num_heads, dtype=FLOAT32),
    )
    if low_rank:
        weights += (
            linear(f"{prefix}.forget_gate.f_a_proj", head_dim, hidden_size),
            linear(f"{prefix}.forget_gate.f_b_proj", width, head_dim, shard=column),
            linear(f"{prefix}.g_a_proj", head_dim, hidden_size),
            linear(f"{prefix}.g_b_proj", width, head_dim, shard=column),
        )
    else:
        weights += (
            linear(f"{prefix}.forget_gate.f_proj", width, hidden_size, shard=column),
            linear(f"{prefix}.g_proj", width, hidden_size, shard=column),
        )
    weights += (
        linear(f"{prefix}.b_proj", num_heads, hidden_size, shard=column),
        norm(f"{prefix}.o_norm", head_dim),
        linear(f"{prefix}.o_proj", hidden_size, width, shard=Shard.ROW),
    )
    mixer = _delta_mixer(
        Recurrence.KIMI_DELTA,
        key_heads=num_heads,
        value_heads=num_heads,
        key_head_dim=head_dim,
        value_head_dim=head_dim,
        kernel=kernel,
        state_dtype=FLOAT32,
    )
    return mixer, weights


def lightning(
    *, hidden_size: int, num_heads: int, head_dim: int, prefix: str = "self_attn"
) -> Part:
    """MiniMax-01 linear attention; source: vLLM 0.33 ``linear/minimax_linear_attn.py``."""
    width = num_heads * head_dim
    column = Shard.COLUMN
    weights = (
        *(linear(f"{prefix}.qkv_proj", width, hidden_size, shard=column) for _ in range(3)),
        linear(f"{prefix}.output_gate", width, hidden_size, shard=column),
        divided_norm(f"{prefix}.norm", width),
        linear(f"{prefix}.out_proj", hidden_size, width, shard=Shard.ROW),
    )
    mixer = Recurrent(
        kind=Recurrence.LIGHTNING, num_heads=num_heads, state_shape=(head_dim, head_dim)
    )
    return mixer, weights


def short_conv(*, hidden_size: int, kernel: int, bias: bool, prefix: str = "conv") -> Part:
    """A gated short convolution (LFM2); source: vLLM 0.33 ``short_conv.py``."""
    into = [
        linear(f"{prefix}.in_proj", hidden_size, hidden_size, bias=bias, shard=Shard.COLUMN)
        for _ in range(3)
    ]
    weights = (
        *into,
        convolution(f"{prefix}.conv", hidden_size, kernel, bias=bias),
        linear(f"{prefix}.out_proj", hidden_size, hidden_size, bias=bias, shard=Shard.ROW),
    )
    mixer = Recurrent(kind=Recurrence.SHORT_CONV, conv_dim=hidden_size, conv_kernel=kernel)
    return mixer, weights


def stack(kinds: Iterable[K], make: Callable[[K], Layer]) -> tuple[Layer, ...]:
    """One block for each of ``kinds``, alike ones the same object."""
    made: dict[K, Layer] = {}
    layers: list[Layer] = []
    for kind in kinds:
        if kind not in made:
            made[kind] = make(kind)
        layers.append(made[kind])
    return tuple(layers)


_LEGACY_LAYER_TYPES: Mapping[str, str] = {
    "mamba": "linear_attention",
    "attention": "full_attention",
}
"""Names of older checkpoints (``_LEGACY_LAYER_TYPE_REMAP`` in transformers)."""


def layer_types(config: Config, *keys: str) -> tuple[str, ...] | None:
    """The kind of each block, older names translated, or None when the configuration lists none.

    Raises:
        ModelError: The field is not a list of strings.
    """
    names = config.texts(*(keys or ("layer_types",)))
    if names is None:
        return None
    return tuple(_LEGACY_LAYER_TYPES.get(name, name) for name in names)


def check_layer_types(config: Config, names: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Refuse kinds of block that the model type does not have.

    Raises:
        ModelError: One of ``names`` is not among ``allowed``.
    """
    if not names or not set(names) <= set(allowed):
        key = "layers_block_type" if config.has("layers_block_type") else "layer_types"
        config.refuse(key, f"a list of {', '.join(allowed)}")


def plain_attention(config: Config, *, head_dim: int | None = None) -> Attention:
    """Grouped-query attention as the usual fields describe it.

    Raises:
        ModelError: A field is missing or out of range.
    """
    heads = config.integer("num_attention_heads")
    width = head_dim or config.optional_integer("head_dim")
    if width is None:
        width = config.integer("hidden_size") // heads
    return Attention(
        num_heads=heads,
        num_kv_heads=config.optional_integer("num_key_value_heads") or heads,
        head_dim=width,
        value_head_dim=width,
    )
