"""The parts that decoder blocks are made of, as tuples of :class:`Weight`.

Shapes are (out, in) as PyTorch stores them. How tensor parallelism divides each follows vLLM's
parallel linear layers (``model_executor/layers/linear.py``, vLLM 0.33): queries, gate and up
projections by output rows, keys and values by KV head, output and down projections by input
columns, embeddings and the head by vocabulary rows, norms and routers not at all.

A checkpoint that fuses projections (``qkv_proj``, ``gate_up_proj``) gives one weight a part,
all under the fused module's name: engines divide, and scale, each part on its own.
"""

from __future__ import annotations

from tokenroom.models.spec import Role, Shard, Weight


def join_path(prefix: str, name: str) -> str:
    """``name`` below ``prefix``, which may be empty."""
    return f"{prefix}.{name}" if prefix else name


def linear(
    name: str,
    out_features: int,
    in_features: int,
    *,
    bias: bool = False,
    shard: Shard = Shard.REPLICATED,
    role: Role = Role.LINEAR,
) -> Weight:
    """A matrix of (out, in), with a bias of one element an output when ``bias``."""
    return Weight(
        name=name,
        shape=(out_features, in_features),
        bias=out_features if bias else 0,
        role=role,
        shard=shard,
    )


def norm(name: str, size: int, *, bias: bool = False) -> Weight:
    """The scale (and shift, when ``bias``) of a normalisation over ``size`` elements."""
    return Weight(name=name, shape=(size,), bias=size if bias else 0, role=Role.NORM)


def vector(name: str, *shape: int, shard: Shard = Shard.REPLICATED) -> Weight:
    """A parameter that is neither a projection nor a norm: sinks, gates, scales."""
    return Weight(name=name, shape=shape, role=Role.OTHER, shard=shard)


def sinks(name: str, num_heads: int) -> Weight:
    """One learned attention sink a head; divided with the heads."""
    return Weight(name=name, shape=(num_heads,), role=Role.OTHER, shard=Shard.COLUMN)


def embedding(vocab_size: int, hidden_size: int, name: str = "model.embed_tokens") -> Weight:
    """The token embedding."""
    return Weight(
        name=name, shape=(vocab_size, hidden_size), role=Role.EMBEDDING, shard=Shard.VOCAB
    )


def positions(count: int, hidden_size: int, name: str) -> Weight:
    """A learned table of positions; every rank holds it whole."""
    return Weight(name=name, shape=(count, hidden_size), role=Role.OTHER)


def lm_head(
    vocab_size: int, hidden_size: int, *, bias: bool = False, name: str = "lm_head"
) -> Weight:
    """The output projection when it is not the token embedding."""
    return Weight(
        name=name,
        shape=(vocab_size, hidden_size),
        bias=vocab_size if bias else 0,
        role=Role.LM_HEAD,
        shard=Shard.VOCAB,
    )


def attention_weights(
    *,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    value_head_dim: int | None = None,
    q_bias: bool = False,
    k_bias: bool = False,
    v_bias: bool = False,
    o_bias: bool = False,
    prefix: str = "self_attn",
    q: str = "q_proj",
    k: str = "k_proj",
    v: str = "v_proj",
    o: str = "o_proj",
    owns_kv: bool = True,
    has_value: bool = True,
) -> tuple[Weight, ...]:
    """Query, key, value and output projections.

    Args:
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Width of a query and key head.
        value_head_dim: Width of a value head, None for ``head_dim``.
        q_bias: Whether the query projection has a bias; likewise the other three.
        k_bias: See ``q_bias``.
        v_bias: See ``q_bias``.
        o_bias: See ``q_bias``.
        prefix: Module path of the attention below its block.
        q: Module name of the query projection; equal names stand for a fused module.
        k: Module name of the key projection.
        v: Module name of the value projection.
        o: Module name of the output projection.
        owns_kv: False for a layer that reads an earlier layer's cache and has no keys or values.
        has_value: False when values are the keys themselves.
    """
    value_dim = head_dim if value_head_dim is None else value_head_dim
    column, kv, row = Shard.COLUMN, Shard.KV_COLUMN, Shard.ROW
    parts = [
        linear(join_path(prefix, q), num_heads * head_dim, hidden_size, bias=q_bias, shard=column)
    ]
    if owns_kv:
        parts.append(
            linear(
                join_path(prefix, k), num_kv_heads * head_dim, hidden_size, bias=k_bias, shard=kv
            )
        )
        if has_value:
            parts.append(
                linear(
                    join_path(prefix, v),
                    num_kv_heads * value_dim,
                    hidden_size,
                    bias=v_bias,
                    shard=kv,
                )
            )
    parts.append(
        linear(join_path(prefix, o), hidden_size, num_heads * value_dim, bias=o_bias, shard=row)
    )
    return tuple(parts)


def ffn_weights(
    *,
    hidden_size: int,
    intermediate_size: int,
    gated: bool = True,
    in_bias: bool = False,
    out_bias: bool = False,
    prefix: str = "mlp",
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
) -> tuple[Weight, ...]:
    """A dense feed-forward block: (gate,) up and down projections.

    Args:
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the hidden layer.
        gated: Whether there is a gate projection.
        in_bias: Bias on gate and up projections.
        out_bias: Bias on the down projection.
        prefix: Module path of the block.
        gate: Module name of the gate projection; equal to ``up`` for a fused module.
        up: Module name of the up projection.
        down: Module name of the down projection.
    """
    inner = Shard.COLUMN
    parts = [
        linear(join_path(prefix, name), intermediate_size, hidden_size, bias=in_bias, shard=inner)
        for name in ((gate, up) if gated else (up,))
    ]
    parts.append(
        linear(
            join_path(prefix, down), hidden_size, intermediate_size, bias=out_bias, shard=Shard.ROW
        )
    )
    return tuple(parts)


def expert_weights(
    *,
    num_experts: int,
    hidden_size: int,
    intermediate_size: int,
    gated: bool = True,
    in_bias: bool = False,
    out_bias: bool = False,
    prefix: str = "mlp.experts.*",
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
) -> tuple[Weight, ...]:
    """The routed experts: each projection once, ``count`` times; see :func:`ffn_weights`."""
    inner, outer = intermediate_size, hidden_size

    def experts(name: str, shape: tuple[int, int], bias: bool, shard: Shard) -> Weight:
        return Weight(
            name=join_path(prefix, name),
            shape=shape,
            bias=shape[0] if bias else 0,
            shard=shard,
            count=num_experts,
            expert=True,
        )

    parts = [
        experts(name, (inner, outer), in_bias, Shard.COLUMN)
        for name in ((gate, up) if gated else (up,))
    ]
    parts.append(experts(down, (outer, inner), out_bias, Shard.ROW))
    return tuple(parts)


def router(
    hidden_size: int, num_experts: int, *, bias: bool = False, name: str = "mlp.gate"
) -> Weight:
    """The projection that scores experts."""
    return linear(name, num_experts, hidden_size, bias=bias, role=Role.ROUTER)


def moe_weights(
    *,
    hidden_size: int,
    num_experts: int,
    intermediate_size: int,
    shared_intermediate_size: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    gated: bool = True,
    in_bias: bool = False,
    out_bias: bool = False,
    shared_bias: bool = False,
    prefix: str = "mlp",
    router_name: str = "gate",
    experts: str = "experts.*",
    shared: str = "shared_experts",
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
) -> tuple[Weight, ...]:
    """A mixture of experts: router, routed experts, shared experts and their gate.

    Args:
        hidden_size: Width of the residual stream.
        num_experts: Routed experts.
        intermediate_size: Width of one routed expert.
        shared_intermediate_size: Total width of the shared experts, 0 for none.
        shared_gate: Whether a scalar gate (``shared_expert_gate``) scales the shared experts.
        router_bias: Whether the router's projection has a bias parameter.
        gated: Whether experts have a gate projection.
        in_bias: Bias on the experts' gate and up projections.
        out_bias: Bias on the experts' down projection.
        shared_bias: Bias on the shared experts' projections.
        prefix: Module path of the block.
        router_name: Module name of the router.
        experts: Module name of the experts, the index written ``*``.
        shared: Module name of the shared experts.
        gate: Module name of an expert's gate projection.
        up: Module name of an expert's up projection.
        down: Module name of an expert's down projection.
    """
    parts = [
        router(hidden_size, num_experts, bias=router_bias, name=join_path(prefix, router_name))
    ]
    parts += expert_weights(
        num_experts=num_experts,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        gated=gated,
        in_bias=in_bias,
        out_bias=out_bias,
        prefix=join_path(prefix, experts),
        gate=gate,
        up=up,
        down=down,
    )
    if shared_intermediate_size:
        parts += ffn_weights(
            hidden_size=hidden_size,
            intermediate_size=shared_intermediate_size,
            gated=gated,
            in_bias=shared_bias,
            out_bias=shared_bias,
            prefix=join_path(prefix, shared),
            gate=gate,
            up=up,
            down=down,
        )
    if shared_gate:
        parts.append(router(hidden_size, 1, name=f"{prefix}.shared_expert_gate"))
    return tuple(parts)
