"""The mixers of one block of a GGUF model: attention, latent attention or a recurrence.

Widths follow ``llama_hparams`` of llama.cpp 0c1e57098 (``src/llama-hparams.cpp``) and the
``load_arch_hparams`` of each model; which mixer a block has is told by its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenroom.errors import ModelError, UnknownArchitectureError
from tokenroom.models.gguf.architectures import (
    GATED_DELTA,
    GEMMA3N_OWN_KV_LAYERS,
    WINDOW_RULES,
)
from tokenroom.models.gguf.metadata import Metadata
from tokenroom.models.spec import (
    Attention,
    Indexer,
    LatentAttention,
    Mixer,
    Recurrence,
    Recurrent,
    Weight,
)


def read_mixers(
    metadata: Metadata, index: int, weights: Mapping[str, Weight], decoder_blocks: int
) -> tuple[Mixer, ...]:
    """The mixers of block ``index``; more than one run side by side, none in an FFN-only block.

    Args:
        metadata: The file's metadata.
        index: Number of the block.
        weights: Its weights by tensor name.
        decoder_blocks: Blocks before the multi-token-prediction ones.

    Raises:
        ModelError: A width is missing or does not fit the tensors.
    """
    mixers: list[Mixer] = []
    recurrent = _recurrent(metadata, index, weights)
    if recurrent is not None:
        mixers.append(recurrent)
    if "attn_kv_a_mqa" in weights and metadata.architecture not in ("minicpm3", "plm"):
        mixers.append(_latent_attention(metadata, index, weights))
    elif (
        "attn_q" in weights
        or "attn_q_b" in weights
        or ("attn_qkv" in weights and recurrent is None)
    ):
        mixers.append(_attention(metadata, index, weights, decoder_blocks))
    return tuple(mixers)


def _attention(
    metadata: Metadata, index: int, weights: Mapping[str, Weight], decoder_blocks: int
) -> Attention:
    num_heads = metadata.integer("attention.head_count", index=index)
    num_kv_heads = metadata.integer(
        "attention.head_count_kv", index=index, default=num_heads, maximum=num_heads
    )
    windowed = _windowed(metadata, index, decoder_blocks)
    default = metadata.integer("embedding_length") // num_heads
    head_dim = metadata.integer("attention.key_length", default=default)
    value_head_dim = metadata.integer("attention.value_length", default=default)
    if windowed is not None:
        head_dim = metadata.integer("attention.key_length_swa", default=head_dim)
        value_head_dim = metadata.integer("attention.value_length_swa", default=value_head_dim)
    key = weights.get("attn_k")
    if key is not None and key.shape[0] != num_kv_heads * head_dim:
        raise ModelError(
            f"{metadata.file} declares {num_kv_heads} key heads of {head_dim} in block {index}, but"
            f" its attn_k has {key.shape[0]:,} rows"
        )
    chunked = metadata.architecture == "llama4"
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        window=None if chunked else windowed,
        chunk=windowed if chunked else None,
        shares_kv_of=_shared_kv(metadata, index, windowed is not None, decoder_blocks),
        sinks="attn_sinks" in weights,
    )


def _windowed(metadata: Metadata, index: int, decoder_blocks: int) -> int | None:
    """The window of a block in tokens, None for full attention."""
    rule = WINDOW_RULES.get(metadata.architecture)
    pattern = metadata.raw("attention.sliding_window_pattern")
    if rule is None and not isinstance(pattern, tuple):
        return None
    default = 0 if rule is None or rule.window is None else rule.window
    window = metadata.integer("attention.sliding_window", default=default, minimum=0)
    if window == 0 or index >= decoder_blocks:
        return None
    if rule is not None and rule.fixed_window is not None:
        window = rule.fixed_window
    if isinstance(pattern, tuple):
        return window if index < len(pattern) and pattern[index] else None
    if rule is None:
        return None
    period = metadata.integer("attention.sliding_window_pattern", default=rule.period, minimum=0)
    if period == 0:
        return window
    full = index % period == (0 if rule.full_first else period - 1)
    return None if full else window


def _shared_kv(metadata: Metadata, index: int, windowed: bool, decoder_blocks: int) -> int | None:
    """The block whose cache is read instead of an own one (``llama-model.cpp``, ``reuse``)."""
    if metadata.architecture == "gemma3n":
        first = min(GEMMA3N_OWN_KV_LAYERS, decoder_blocks)
    else:
        shared = metadata.integer(
            "attention.shared_kv_layers", default=0, minimum=0, maximum=max(decoder_blocks - 2, 0)
        )
        first = decoder_blocks - shared
    if not first <= index < decoder_blocks:
        return None
    return max(first - (2 if windowed else 1), 0)


def _latent_attention(
    metadata: Metadata, index: int, weights: Mapping[str, Weight]
) -> LatentAttention:
    num_heads = metadata.integer("attention.head_count", index=index)
    kv_lora_rank = metadata.integer("attention.kv_lora_rank")
    rope = weights["attn_kv_a_mqa"].shape[0] - kv_lora_rank
    absorbed = metadata.has("attention.key_length_mla")
    suffix = "_mla" if absorbed else ""
    key_dim = metadata.integer(f"attention.key_length{suffix}")
    if not 0 < rope < key_dim:
        raise ModelError(
            f"{metadata.file} has an attn_kv_a_mqa in block {index} that does not fit a latent of"
            f" {kv_lora_rank} and key heads of {key_dim}"
        )
    if not absorbed:
        metadata.assume(
            "the file was converted before llama.cpp cached the latent (it has no key_length_mla):"
            " llama.cpp itself caches full heads of it"
        )
    query = weights.get("attn_q_a")
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=None if query is None else query.shape[0],
        kv_lora_rank=kv_lora_rank,
        qk_nope_head_dim=key_dim - rope,
        qk_rope_head_dim=rope,
        v_head_dim=metadata.integer(f"attention.value_length{suffix}"),
        indexer=_indexer(metadata) if "indexer.attn_k" in weights else None,
    )


def _indexer(metadata: Metadata) -> Indexer:
    return Indexer(
        num_heads=metadata.integer("attention.indexer.head_count"),
        head_dim=metadata.integer("attention.indexer.key_length"),
        top_k=metadata.integer("attention.indexer.top_k"),
    )


def _recurrent(metadata: Metadata, index: int, weights: Mapping[str, Weight]) -> Recurrent | None:
    if "shortconv.conv" in weights:
        return Recurrent(
            kind=Recurrence.SHORT_CONV,
            conv_dim=metadata.integer("embedding_length"),
            conv_kernel=metadata.integer("shortconv.l_cache"),
        )
    if "ssm_conv1d_q" in weights:
        return _kimi_delta(metadata, index)
    if "ssm_conv1d" in weights:
        return _state_space(metadata, weights)
    if any(name.startswith("time_mix_") for name in weights):
        return _rwkv(metadata)
    if any(name.startswith("ssm_") for name in weights):
        raise UnknownArchitectureError(
            f"{metadata.file} has a recurrence in block {index} that is not known"
        )
    return None


def _state_space(metadata: Metadata, weights: Mapping[str, Weight]) -> Recurrent:
    kernel = metadata.integer("ssm.conv_kernel")
    inner = metadata.integer("ssm.inner_size")
    state = metadata.integer("ssm.state_size")
    if "ssm_x" in weights:
        return Recurrent(
            kind=Recurrence.MAMBA1,
            conv_dim=inner,
            conv_kernel=kernel,
            state_shape=(inner, state),
        )
    heads = metadata.integer("ssm.time_step_rank")
    groups = metadata.integer("ssm.group_count", default=1)
    if inner % heads:
        raise ModelError(f"{metadata.file} divides ssm.inner_size {inner} over {heads} heads")
    delta = metadata.architecture in GATED_DELTA
    return Recurrent(
        kind=Recurrence.GATED_DELTA if delta else Recurrence.MAMBA2,
        conv_dim=inner + 2 * groups * state,
        conv_kernel=kernel,
        num_heads=heads,
        state_shape=(inner // heads, state),
        num_groups=1 if delta else groups,
        key_heads=groups if delta else 0,
    )


def _kimi_delta(metadata: Metadata, index: int) -> Recurrent:
    head_dim = metadata.integer("kda.head_dim")
    heads = metadata.integer("attention.head_count", index=index)
    return Recurrent(
        kind=Recurrence.KIMI_DELTA,
        conv_dim=3 * heads * head_dim,
        conv_kernel=metadata.integer("ssm.conv_kernel"),
        num_heads=heads,
        state_shape=(head_dim, head_dim),
        key_heads=heads,
    )


def _rwkv(metadata: Metadata) -> Recurrent:
    """RWKV keeps the last token of each shift beside its state: two columns by default."""
    hidden = metadata.integer("embedding_length")
    head = metadata.integer("wkv.head_size", maximum=hidden)
    shifts = metadata.integer("token_shift_count", default=2)
    return Recurrent(
        kind=Recurrence.RWKV,
        conv_dim=shifts * hidden,
        conv_kernel=2,
        num_heads=hidden // head,
        state_shape=(head, head),
    )
