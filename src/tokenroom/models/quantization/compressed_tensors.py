"""``compressed-tensors`` (llm-compressor): groups of targets, each with a scheme for its weights.

As vLLM 0.33 ``compressed_tensors/compressed_tensors.py`` ``get_scheme_dict`` and
``_get_scheme_from_parts``: a module on the ignore list is plain, else the first group one of whose
targets is its path, a pattern of it, or its class. ``"Linear"`` stands for every projection, routed
experts included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenroom.models.quantization import fields, schemes
from tokenroom.models.quantization.paths import Predicate, by_target
from tokenroom.models.quantization.plan import Plan, is_head, is_projection
from tokenroom.models.spec import ModelSpec, Role, Scheme, Weight

_STATIC_BYTES = 4


def read_compressed_tensors(spec: ModelSpec, config: Mapping[str, object]) -> Plan:
    """The plan of a ``quantization_config`` or ``compression_config`` block.

    Raises:
        QuantizationError: A field holds what it may not, or a group has a format that is not known.
    """
    ignored = by_target(fields.names(config, "ignore"), "ignore")
    outer = fields.text(config, "format", "dense")
    groups: list[tuple[bool, bool, Predicate, Scheme]] = []
    for block in fields.mapping(config, "config_groups").values():
        if not isinstance(block, Mapping):
            raise fields.refuse("config_groups", block, "blocks of settings")
        targets = fields.names(block, "targets")
        if len(targets) == 1 and targets[0].endswith("Attention"):
            continue  # scales of the KV cache, not of a weight
        weights = fields.mapping(block, "weights")
        if not weights:
            continue
        scheme = _scheme(weights, block, fields.text(block, "format", outer))
        groups.append(
            ("Linear" in targets, "Embedding" in targets, by_target(targets, "targets"), scheme)
        )

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        linear = is_projection(weight) or is_head(weight)
        embedding = weight.role is Role.EMBEDDING
        if not (linear or embedding) or len(weight.shape) < 2 or ignored(paths):
            return None
        for _, _, named, scheme in groups:
            if named(paths):
                return scheme
        for every_linear, every_embedding, _, scheme in groups:
            if (every_linear and linear) or (every_embedding and embedding):
                return scheme
        return None

    return Plan(method="compressed-tensors", resolve=resolve, kv_cache_dtype=kv_cache_dtype(config))


def kv_cache_dtype(config: Mapping[str, object]) -> str | None:
    """The KV type of a ``kv_cache_scheme``: 8-bit floats are ``"fp8"``.

    Raises:
        QuantizationError: The scheme is of another kind.
    """
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, str):
        return "fp8" if scheme.lower().startswith("fp8") else None
    block = fields.mapping(config, "kv_cache_scheme")
    if not block:
        return None
    kind, width = fields.text(block, "type", "float"), fields.integer(block, "num_bits")
    if kind == "float" and width == 8:
        return "fp8"
    if kind == "float" and width == 4:
        return "nvfp4"
    if kind == "int" and width == 8:
        return "int8"
    raise fields.refuse("kv_cache_scheme", dict(block), "8-bit or 4-bit floats, or 8-bit integers")


def _scheme(weights: Mapping[str, object], group: Mapping[str, object], form: str) -> Scheme:
    bits = fields.bits(weights, "num_bits", 8)
    kind = fields.text(weights, "type", "int")
    strategy = fields.text(weights, "strategy") or _implied_strategy(weights)
    symmetric = fields.flag(weights, "symmetric", True)
    inputs = fields.mapping(group, "input_activations")
    static = bool(inputs) and inputs.get("dynamic") is False
    if kind == "float" and bits == 4:
        if form.startswith("mxfp4") or fields.integer(weights, "group_size", 16) == 32:
            return schemes.mxfp4(activation_bits=4 if inputs else 16)
        return schemes.nvfp4(activations=bool(inputs))
    if kind == "float" and bits == 8:
        if strategy == "block":
            block = fields.block_shape(weights, "block_structure")
            return schemes.fp8_block(block or (128, 128))
        if strategy == "group":
            return schemes.mxfp8()
        if strategy == "tensor":
            return schemes.fp8_tensor(static=static)
        return schemes.fp8_channel(scale_bits=16, static=static)
    if kind != "int":
        raise fields.refuse("weights.type", kind, "int or float")
    activation = 16
    if inputs:
        activation = fields.integer(inputs, "num_bits", 8)
    if bits == 8 and inputs and strategy in ("channel", "tensor") and form != "pack-quantized":
        extra = 0
        if static:
            extra = _STATIC_BYTES + (0 if fields.flag(inputs, "symmetric", True) else 1)
        if strategy == "tensor":
            return schemes.int8_w8a8(group_size=0, extra=extra)
        return schemes.int8_w8a8(scale_bits=16, extra=extra)
    size = fields.group(weights, "group_size", 128) if strategy == "group" else -1
    return schemes.packed(
        bits,
        size,
        symmetric=symmetric,
        act_order=weights.get("actorder") == "group",
        activation_bits=activation,
    )


def _implied_strategy(weights: Mapping[str, object]) -> str:
    size = weights.get("group_size")
    if size is None:
        return "tensor"
    return "channel" if size == -1 else "group"
