"""Graphs of layers with a state: Mamba, gated delta rules and short convolutions.

Follows ``mamba-base.cpp``, ``delta-net-base.cpp``, ``qwen3next.cpp``, ``kimi-linear.cpp`` and
``lfm2.cpp`` in ``src/models`` of llama.cpp 0c1e57098, with fused delta rules as on CPU and CUDA.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tokenroom.engines.llama_cpp.tensor_graph import Tensor, contiguous_strides
from tokenroom.models.spec import Recurrence, Recurrent

if TYPE_CHECKING:
    from tokenroom.engines.llama_cpp.model_graph import GraphBuilder


def recurrent(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    """The mixer of a recurrent block."""
    if mixer.kind is Recurrence.MAMBA1:
        return _mamba1(builder, index, mixer, normed)
    if mixer.kind is Recurrence.SHORT_CONV:
        return _short_conv(builder, index, mixer, normed)
    if mixer.kind is Recurrence.RWKV:
        return _token_shift(builder, index, mixer, normed)
    if mixer.kind in (Recurrence.GATED_DELTA, Recurrence.KIMI_DELTA):
        return _delta(builder, index, mixer, normed)
    return _mamba2(builder, index, mixer, normed)


def _read_state(builder: GraphBuilder, index: int, which: int) -> tuple[Tensor, Tensor]:
    """``build_rs``: the table of states and the rows of this batch."""
    g = builder.graph
    table, _ = builder.state(index, which)
    return table, g.expand(g.get_rows(table, builder.state_copy()))


def _convolve(builder: GraphBuilder, index: int, mixer: Recurrent, mixed: Tensor) -> Tensor:
    """Append the new columns to the kept ones, keep the last and convolve."""
    g = builder.graph
    sequences = builder.batch.sequences
    per = builder.batch.tokens // sequences
    kept = mixer.conv_kernel - 1
    table, rows = _read_state(builder, index, 0)
    rows = g.reshape(rows, kept, mixer.conv_dim, sequences)
    joined = Tensor(
        "concat", "f32", (kept + per, mixer.conv_dim, sequences, 1), (rows, g.transpose(mixed))
    )
    own = contiguous_strides("f32", joined.ne)
    last = g.view(joined, (kept, mixer.conv_dim, sequences), own)
    g.expand(g.copy(last, g.view(table, (kept * mixer.conv_dim, sequences))))
    kernel = next(
        builder.weight(index, stem)
        for stem in ("ssm_conv1d", "shortconv.conv", "ssm_conv1d_q", "self_attn.conv1d", "ssm_in")
        if builder.has(index, stem)
    )
    return g.new("ssm_conv", "f32", (mixer.conv_dim, per, sequences, 1), joined, kernel)


def _mamba1(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    inner, state = mixer.state_shape
    both = builder.linear(index, "ssm_in", g.reshape(normed, normed.ne[0], per, sequences))
    own = contiguous_strides("f32", both.ne)
    x = g.view(both, (inner, per, sequences), own)
    z = g.view(both, (inner, per, sequences), own)
    x = g.apply("unary", _add_bias(builder, _convolve(builder, index, mixer, x), inner))
    projected = builder.linear(index, "ssm_x", x)
    rank = projected.ne[0] - 2 * state
    strides = contiguous_strides("f32", projected.ne)
    dt = g.view(projected, (rank, per, sequences), strides)
    b = g.view(projected, (state, 1, per, sequences), (4, state * 4, strides[1], strides[2]))
    c = g.view(projected, (state, 1, per, sequences), (4, state * 4, strides[1], strides[2]))
    if builder.has(index, "ssm_dt_norm"):
        weights = builder.inputs.tensors.blocks[index]
        dt = builder.norm(dt, weights["ssm_dt_norm"], index)
        b = builder.norm(b, weights["ssm_b_norm"], index)
        c = builder.norm(c, weights["ssm_c_norm"], index)
    else:
        dt = g.cont(dt)
    dt = builder.linear(index, "ssm_dt", dt)
    if not builder.inputs.tensors.blocks[index]["ssm_dt"].bias_elements:
        dt = _add_bias(builder, dt, inner)
    heads = g.reshape(x, 1, inner, per, sequences)
    scanned, table = _scan(builder, index, inner * state, heads, dt, b, c)
    y = g.view(scanned, (inner, per, sequences))
    g.expand(g.copy(g.view(scanned, (inner * state * sequences,)), table))
    y = g.apply("add", y, g.apply("mul", x, builder.weight(index, "ssm_d")))
    gated = g.glu(g.cont(z), y)
    return g.reshape(builder.linear(index, "ssm_out", gated), normed.ne[0], tokens)


def _mamba2(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    head_dim, state = mixer.state_shape[0], mixer.state_shape[-1]
    heads, groups = mixer.num_heads, mixer.num_groups
    inner = heads * head_dim
    projected = builder.linear(index, "ssm_in", normed)
    whole = g.reshape(projected, projected.ne[0], per, sequences)
    row = projected.ne[0] * 4
    z = g.view(whole, (head_dim, heads, per, sequences), (4, head_dim * 4, row, row * per))
    mixed = g.view(whole, (mixer.conv_dim, per, sequences), (4, row, row * per, row * tokens))
    dt = g.view(whole, (heads, per, sequences), (4, row, row * per, row * tokens))
    conv = _convolve(builder, index, mixer, mixed)
    conv = g.apply("unary", _add_bias(builder, conv, mixer.conv_dim))
    width = mixer.conv_dim * 4
    x = g.view(conv, (head_dim, heads, per, sequences), (4, head_dim * 4, width, width * per))
    b = g.view(conv, (state, groups, per, sequences), (4, state * 4, width, width * per))
    c = g.view(conv, (state, groups, per, sequences), (4, state * 4, width, width * per))
    dt = _add_bias(builder, g.cont(dt), heads)
    scanned, table = _scan(builder, index, inner * state, x, dt, b, c)
    g.expand(g.copy(g.view(scanned, (inner * state * sequences,)), table))
    y = g.view(scanned, (head_dim, heads, per, sequences))
    skipped = Tensor("mul", "f32", x.ne, (x, builder.weight(index, "ssm_d")))
    y = g.apply("add", y, skipped)
    y = g.glu(g.cont(z), y)
    if builder.has(index, "ssm_norm"):
        y = g.reshape(y, inner // groups, groups, per, sequences)
        y = builder.norm(y, builder.inputs.tensors.blocks[index]["ssm_norm"], index)
    y = g.reshape(y, inner, tokens)
    return builder.linear(index, "ssm_out", y)


def _scan(
    builder: GraphBuilder, index: int, state: int, x: Tensor, dt: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """``ggml_ssm_scan``: outputs and new states in one tensor; and the table they go to."""
    g = builder.graph
    table, _ = builder.state(index, 1)
    elements = prod(x.ne) + state * builder.batch.sequences
    a = builder.weight(index, "ssm_a")
    scanned = g.new(
        "ssm_scan", "f32", (elements, 1, 1, 1), table, x, dt, a, b, c, builder.state_copy()
    )
    g.expand(scanned)
    return scanned, g.view(table, (state * builder.batch.sequences,))


def _delta(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    head, heads = mixer.state_shape[0], mixer.num_heads
    key_heads = mixer.key_heads or heads
    key_dim = mixer.state_shape[-1]
    value_width, key_width = heads * head, key_heads * key_dim
    mixed, z = _delta_inputs(builder, index, mixer, normed)
    gates = _delta_gates(builder, index, mixer, normed)
    conv = _convolve(builder, index, mixer, mixed)
    table, rows = _read_state(builder, index, 1)
    state = g.reshape(rows, head, key_dim, heads, sequences)
    conv = g.apply("unary", conv)
    width = mixer.conv_dim * 4

    def part(size: int, count: int) -> Tensor:
        return g.view(conv, (size, count, per, sequences), (4, size * 4, width, width * per))

    query, key, value = part(key_dim, key_heads), part(key_dim, key_heads), part(head, heads)
    query = g.apply("scale", g.apply("rms_norm", query))
    key = g.apply("scale", g.apply("rms_norm", key))
    if builder.spec.model_type == "qwen3_next" and key_heads != heads:
        repeats = heads // key_heads
        shape = (key_dim, repeats, key_heads, tokens)
        query = g.new("repeat", "f32", shape, g.reshape(query, key_dim, 1, key_heads, tokens))
        key = g.new("repeat", "f32", shape, g.reshape(key, key_dim, 1, key_heads, tokens))
        query = g.reshape(query, key_dim, heads, per, sequences)
        key = g.reshape(key, key_dim, heads, per, sequences)
    made = g.new(
        "gated_delta",
        "f32",
        (value_width, tokens + key_dim * sequences, 1, 1),
        query,
        key,
        value,
        *gates,
        state,
    )
    output = g.view(made, (head, heads, per, sequences))
    new_state = g.view(made, (head, key_dim, heads, sequences))
    g.expand(g.copy(new_state, g.view(table, (heads * head * key_dim, sequences))))
    norm = next(
        (
            builder.inputs.tensors.blocks[index][stem]
            for stem in ("ssm_norm", "self_attn.o_norm")
            if builder.has(index, stem)
        ),
        None,
    )
    normalised = builder.norm(output, norm, index)
    opened = g.apply("unary", g.reshape(z, head, heads, per, sequences))
    gated = g.apply("mul", normalised, opened)
    final = g.reshape(gated, value_width, per, sequences)
    assert key_width
    stem = "ssm_out" if builder.has(index, "ssm_out") else "attn_output"
    return g.reshape(builder.linear(index, stem, final), normed.ne[0], tokens)


def _delta_inputs(
    builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor
) -> tuple[Tensor, Tensor]:
    """What goes through the convolution, and the output gate."""
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    value_width = mixer.num_heads * mixer.state_shape[0]
    if builder.has(index, "attn_qkv"):
        mixed = builder.linear(index, "attn_qkv", normed)
        mixed = g.reshape(mixed, mixed.ne[0], per, sequences)
        return mixed, builder.linear(index, "attn_gate", normed)
    if builder.has(index, "attn_q"):  # Kimi: three projections, a low-rank gate
        parts = [builder.linear(index, stem, normed) for stem in ("attn_q", "attn_k", "attn_v")]
        mixed = g.concat(g.concat(parts[0], parts[1]), parts[2])
        mixed = g.reshape(mixed, mixed.ne[0], per, sequences)
        gate = normed
        for stem in ("ssm_g_a", "self_attn.g_a_proj", "ssm_g_b", "self_attn.g_b_proj"):
            if builder.has(index, stem):
                gate = builder.linear(index, stem, gate)
        return mixed, gate
    both = builder.linear(index, "ssm_in", normed)
    groups = mixer.key_heads
    whole = g.reshape(both, both.ne[0] // groups, groups, per, sequences)
    own = contiguous_strides("f32", whole.ne)
    key_dim = mixer.state_shape[-1]
    share = value_width // groups
    sizes = (key_dim, key_dim, share, share)
    views = [g.view(whole, (size, groups, per, sequences), own) for size in sizes]
    z = g.cont(views[3])
    flat = [g.cont(view, view.ne[0] * groups, per, sequences) for view in views[:3]]
    mixed = g.concat(g.concat(flat[0], flat[1]), flat[2])
    return mixed, z


def _delta_gates(
    builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor
) -> tuple[Tensor, Tensor]:
    """Decay and write strength of each head and token."""
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    heads = mixer.num_heads

    def shaped(tensor: Tensor) -> Tensor:
        wide = prod(tensor.ne) // (heads * tokens)
        return g.reshape(tensor, wide, heads, per, sequences)

    if builder.has(index, "ssm_ba"):
        both = builder.linear(index, "ssm_ba", normed)
        groups = mixer.key_heads
        whole = g.reshape(both, both.ne[0] // groups, groups, per, sequences)
        own = contiguous_strides("f32", whole.ne)
        half = both.ne[0] // groups // 2
        beta = g.apply("unary", g.cont(g.view(whole, (half, groups, per, sequences), own)))
        alpha = g.cont(g.view(whole, (half, groups, per, sequences), own), heads, per, sequences)
    elif builder.has(index, "ssm_beta"):
        beta = g.apply("unary", builder.linear(index, "ssm_beta", normed))
        alpha = builder.linear(index, "ssm_alpha", normed)
    else:
        alpha = normed
        for stem in ("ssm_f_a", "self_attn.forget_gate.f_a_proj", "ssm_f_b"):
            if builder.has(index, stem):
                alpha = builder.linear(index, stem, alpha)
        if builder.has(index, "self_attn.forget_gate.f_b_proj"):
            alpha = builder.linear(index, "self_attn.forget_gate.f_b_proj", alpha)
        beta = normed
        for stem in ("self_attn.b_proj", "ssm_b"):
            if builder.has(index, stem):
                beta = g.apply("unary", builder.linear(index, stem, normed))
    alpha = g.apply("unary", _add_bias(builder, alpha, alpha.ne[0]))
    decay = g.apply(
        "mul",
        alpha,
        builder.graph.stored("f32", (heads,), _vector_place(builder, index), weight=True),
    )
    return shaped(decay), shaped(beta)


def _vector_place(builder: GraphBuilder, index: int) -> int:
    """Device of a block's small vectors."""
    return builder.inputs.placement.layer_devices[index]


def _short_conv(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    stem = "shortconv.in_proj" if builder.has(index, "shortconv.in_proj") else "ssm_in"
    three = builder.linear(index, stem, g.reshape(normed, normed.ne[0], per, sequences))
    own = contiguous_strides("f32", three.ne)
    b, c, x = (g.view(three, (mixer.conv_dim, per, sequences), own) for _ in range(3))
    product = Tensor("mul", "f32", b.ne, (b, x))
    conv = _convolve(builder, index, mixer, product)
    y = Tensor("mul", "f32", c.ne, (c, conv))
    stem = "shortconv.out_proj" if builder.has(index, "shortconv.out_proj") else "ssm_out"
    return g.reshape(builder.linear(index, stem, y), normed.ne[0], tokens)


def _token_shift(builder: GraphBuilder, index: int, mixer: Recurrent, normed: Tensor) -> Tensor:
    """RWKV: the shifted tokens, five mixtures of them, the state's product and its output."""
    g = builder.graph
    tokens, sequences = builder.batch.tokens, builder.batch.sequences
    per = tokens // sequences
    hidden = normed.ne[0]
    shifts, _ = builder.state(index, 0)
    row = g.expand(g.get_rows(shifts, builder.state_copy()))
    shifted = Tensor("concat", "f32", (hidden, per, sequences, 1), (row, normed))
    five = g.new("repeat", "f32", (hidden, per, sequences, 5), shifted)
    parts = [g.new("add", "f32", (hidden, tokens, 1, 1), five, normed) for _ in range(5)]
    table, _ = builder.state(index, 1)
    state = g.expand(g.get_rows(table, builder.state_copy()))
    made = g.new(
        "wkv", "f32", (hidden, tokens + mixer.state_shape[-1] * sequences, 1, 1), *parts, state
    )
    g.expand(
        g.copy(g.view(made, (table.ne[0], sequences)), g.view(table, (table.ne[0], sequences)))
    )
    return g.cont(g.view(made, (hidden, tokens)))


def _add_bias(builder: GraphBuilder, current: Tensor, width: int) -> Tensor:
    place = current.src[0].place if current.src and current.src[0].place is not None else None
    device = builder.inputs.placement.host if place is None else place
    bias = builder.graph.stored("f32", (width,), device, weight=True)
    return builder.graph.apply("add", current, bias)
