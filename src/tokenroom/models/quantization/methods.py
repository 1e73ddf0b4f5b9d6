"""Readers of the quantisation blocks of the common methods, one function a method.

compressed-tensors has its own module, as have modelopt and Quark. Which modules each method leaves
alone follows its quantiser in transformers 5.24 and vLLM 0.33's reading of the same block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from tokenroom.errors import QuantizationError, shown
from tokenroom.models.quantization import fields, schemes
from tokenroom.models.quantization.paths import (
    Predicate,
    by_component,
    by_substring,
    compile_regex,
)
from tokenroom.models.quantization.plan import Plan, Resolver, is_head, is_projection
from tokenroom.models.spec import ModelSpec, Role, Scheme, Weight

Config: TypeAlias = Mapping[str, object]
Reader: TypeAlias = Callable[[ModelSpec, Config], Plan]

_UNQUANTISED_BITS: Final = 16
_PLAIN_ROUTERS: Final = frozenset({"deepseek_v3", "deepseek_v32", "kimi_k2"})


def _unless(ignored: Predicate, scheme: Scheme, *, head: bool = False) -> Resolver:
    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        wanted = is_projection(weight) or (head and is_head(weight))
        return None if not wanted or ignored(paths) else scheme

    return resolve


def read_fp8(spec: ModelSpec, config: Config) -> Plan:
    """``fp8`` (DeepSeek, Qwen, Mistral): block scales, or a scale a matrix (vLLM ``fp8.py``).

    DeepSeek's routers stay plain without being listed: ``mlp.gate.weight`` is bf16 in V3's files.

    DeepSeek V4 stores its experts in MXFP4 and its other scales as 8-bit exponents, unless
    ``expert_dtype`` says fp8 (vLLM ``models/deepseek_v4/quant_config.py``); modelopt's re-export
    has NVFP4 experts (``moe_quant_algo``).
    """
    ignored = by_component(fields.names(config, "ignored_layers", "modules_to_not_convert"))
    activation = fields.text(config, "activation_scheme", "dynamic")
    if activation not in ("dynamic", "static"):
        raise fields.refuse("activation_scheme", activation, "dynamic or static")
    block = fields.block_shape(config, "weight_block_size")
    if spec.model_type.startswith("deepseek_v4"):
        return _read_deepseek_v4(spec, config, ignored, block or (128, 128))
    if block is not None:
        scheme = schemes.fp8_block(block)
    else:
        scheme = schemes.fp8_tensor(static=activation == "static")

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        keeps = weight.role is Role.ROUTER and spec.model_type in _PLAIN_ROUTERS
        return None if keeps else linear(paths, weight)

    linear = _unless(ignored, scheme)
    return Plan(method="fp8", resolve=resolve)


def _read_deepseek_v4(
    spec: ModelSpec, config: Config, ignored: Predicate, block: tuple[int, int]
) -> Plan:
    exponents = spec.extra.get("expert_dtype", "fp4") != "fp8"
    dense = schemes.fp8_block(block, scale_bits=8 if exponents else 32)
    if fields.text(config, "moe_quant_algo").upper() == "NVFP4":
        experts = schemes.nvfp4()
    else:
        experts = schemes.mxfp4() if exponents else dense

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if weight.role is not Role.LINEAR or len(weight.shape) < 2 or ignored(paths):
            return None
        if ".compressor." in weight.name and not weight.name.endswith("q_b_proj"):
            return None  # the compressor and the selector's scores are stored plain
        return experts if weight.expert else dense

    return Plan(method="deepseek_v4_fp8", resolve=resolve)


def read_fbgemm_fp8(spec: ModelSpec, config: Config) -> Plan:
    """``fbgemm_fp8`` (Llama 3.1 405B FP8): a float32 scale a row."""
    ignored = by_component(fields.names(config, "modules_to_not_convert"))
    return Plan(method="fbgemm_fp8", resolve=_unless(ignored, schemes.fp8_channel()))


def read_awq(spec: ModelSpec, config: Config) -> Plan:
    """``awq``: every projection but those whose path contains a listed word."""
    ignored = by_substring(fields.names(config, "modules_to_not_convert"))
    bits = fields.bits(config, "w_bit" if "w_bit" in config else "bits")
    group = fields.group(config, "q_group_size" if "q_group_size" in config else "group_size", 128)
    return Plan(
        method="awq",
        resolve=_unless(ignored, schemes.awq(bits, group), head=fields.flag(config, "lm_head")),
    )


def read_gptq(spec: ModelSpec, config: Config) -> Plan:
    """``gptq``: with ``dynamic`` overrides by pattern and ``modules_in_block_to_quantize``.

    A ``-:`` pattern leaves a module plain, any other changes its settings (vLLM
    ``utils/gptq_utils.py`` ``get_dynamic_override``). desc_act without groups stores an index too.
    """
    only = fields.names(config, "modules_in_block_to_quantize", "modules_to_quantize")
    listed = by_substring(only)
    ignored = by_substring(fields.names(config, "modules_to_not_convert"))
    head = fields.flag(config, "lm_head")
    base = _gptq_scheme(config)
    overrides = [
        (
            pattern.startswith("-:"),
            compile_regex(pattern.removeprefix("-:").removeprefix("+:"), "dynamic"),
            _gptq_scheme({**config, **value}) if isinstance(value, Mapping) else base,
        )
        for pattern, value in fields.mapping(config, "dynamic").items()
    ]

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not (is_projection(weight) or (head and is_head(weight))) or ignored(paths):
            return None
        if only and not is_head(weight) and not listed(paths):
            return None
        for leaves_plain, pattern, scheme in overrides:
            if any(pattern.match(path) for path in paths):
                return None if leaves_plain else scheme
        return base

    return Plan(method="gptq", resolve=resolve)


def _gptq_scheme(config: Config) -> Scheme:
    return schemes.gptq(
        fields.bits(config, "bits"),
        fields.group(config, "group_size", 128),
        act_order=fields.flag(config, "desc_act"),
        symmetric=fields.flag(config, "sym", True),
    )


def read_auto_round(spec: ModelSpec, config: Config) -> Plan:
    """``auto-round`` (Intel): GPTQ or AWQ packing, ``extra_config`` by module or pattern.

    As vLLM ``inc/config_parser.py``: 16 bits leave a module plain, the head is plain unless listed.
    ``block_name_to_quantize`` limits it to those blocks.
    """
    packing = fields.text(config, "packing_format", "auto_round:auto_gptq")
    blocks = fields.names(config, "block_name_to_quantize", "to_quant_block_names")
    inside = by_substring([name for entry in blocks for name in entry.split(",")])
    data_type = fields.text(config, "data_type", "int")

    def scheme(block: Config) -> Scheme | None:
        bits = fields.integer(block, "bits")
        if bits >= _UNQUANTISED_BITS:
            return None
        if "mx_fp" in data_type:
            return schemes.mxfp4() if bits == 4 else schemes.mxfp8()
        if data_type == "fp":
            shape = block.get("group_size")
            if isinstance(shape, Sequence):
                return schemes.fp8_block(fields.block_shape(block, "group_size") or (128, 128))
            return schemes.fp8_channel()
        make = schemes.awq if "awq" in packing else schemes.gptq
        return make(fields.bits(block, "bits"), fields.group(block, "group_size", 128))

    base = scheme(config)
    overrides: list[tuple[Predicate, Scheme | None]] = []
    for name, value in fields.mapping(config, "extra_config").items():
        if isinstance(value, Mapping):
            overrides.append((_auto_round_name(name), scheme({**config, **value})))

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not (is_projection(weight) or is_head(weight)):
            return None
        for matches, override in overrides:
            if matches(paths):
                return override
        if is_head(weight) or (blocks and not inside(paths)):
            return None
        return base

    return Plan(method="auto-round", resolve=resolve)


def _auto_round_name(name: str) -> Predicate:
    if not set(name) & set("*+?^$()[]{}|\\"):
        return lambda paths: name in paths
    pattern = compile_regex(name, "extra_config")
    return lambda paths: any(pattern.search(path) for path in paths)


def read_bitsandbytes(spec: ModelSpec, config: Config) -> Plan:
    """``bitsandbytes``: LLM.int8, NF4 or FP4; the head stays plain unless a list says otherwise."""
    skipped = fields.names(config, "llm_int8_skip_modules")
    ignored = by_component(skipped)
    if fields.flag(config, "load_in_8bit") or fields.flag(config, "_load_in_8bit"):
        scheme = schemes.bnb_int8()
    else:
        kind = fields.text(config, "bnb_4bit_quant_type", "fp4")
        if kind not in ("nf4", "fp4"):
            raise fields.refuse("bnb_4bit_quant_type", kind, "nf4 or fp4")
        double = fields.flag(config, "bnb_4bit_use_double_quant")
        scheme = schemes.bnb_4bit(kind, double_quant=double)
    return Plan(method="bitsandbytes", resolve=_unless(ignored, scheme))


def read_mxfp4(spec: ModelSpec, config: Config) -> Plan:
    """``mxfp4`` (gpt-oss): the routed experts only (vLLM ``mxfp4.py`` ``get_quant_method``)."""
    ignored = by_component(fields.names(config, "modules_to_not_convert"))

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        return schemes.mxfp4() if weight.expert and not ignored(paths) else None

    return Plan(method="mxfp4", resolve=resolve)


def read_hqq(spec: ModelSpec, config: Config) -> Plan:
    """``hqq``: ``weight_quant_params``, or a block a kind of projection."""
    ignored = by_component((*fields.names(config, "skip_modules"), "lm_head"))
    outer = fields.mapping(config, "quant_config")
    common = fields.mapping(outer, "weight_quant_params")

    def scheme(block: Config) -> Scheme:
        group = fields.group(block, "group_size", 64)
        return schemes.hqq(fields.bits(block, "nbits", 4), group)

    own = {
        name: scheme(fields.mapping(block, "weight_quant_params"))
        for name, block in outer.items()
        if isinstance(block, Mapping) and "weight_quant_params" in block
    }
    base = scheme(common) if common or not own else None

    def resolve(paths: Sequence[str], weight: Weight) -> Scheme | None:
        if not is_projection(weight) or ignored(paths):
            return None
        for name, found in own.items():
            if any(path.endswith(f".{name}") for path in paths):
                return found
        return base

    return Plan(method="hqq", resolve=resolve)


_TORCHAO: Final[Mapping[str, tuple[int, int, int]]] = {
    "int4weightonlyconfig": (4, 128, 16),
    "int4_weight_only": (4, 128, 16),
    "int8weightonlyconfig": (8, -1, 16),
    "int8_weight_only": (8, -1, 16),
    "int8dynamicactivationint8weightconfig": (8, -1, 8),
    "int8_dynamic_activation_int8_weight": (8, -1, 8),
    "int8dynamicactivationint4weightconfig": (4, 32, 8),
    "int8_dynamic_activation_int4_weight": (4, 32, 8),
    "float8weightonlyconfig": (8, 0, 16),
    "float8_weight_only": (8, 0, 16),
    "float8dynamicactivationfloat8weightconfig": (8, 0, 8),
    "float8_dynamic_activation_float8_weight": (8, 0, 8),
}
"""Bits, default group size and activation bits of torchao's configurations, by lower-case name."""


def read_torchao(spec: ModelSpec, config: Config) -> Plan:
    """``torchao``: INT4, INT8 or FP8 tensors, the embedding and the head left alone.

    Raises:
        QuantizationError: The configuration is of a kind that is not known.
    """
    ignored = by_component(fields.names(config, "modules_to_not_convert"))
    kind = config.get("quant_type")
    options: Config = fields.mapping(config, "quant_type_kwargs")
    if isinstance(kind, Mapping):
        inner = kind.get("default", kind)
        if isinstance(inner, Mapping):
            options = fields.mapping(inner, "_data")
            kind = inner.get("_type")
    known = _TORCHAO.get(str(kind).lower())
    if known is None:
        raise fields.refuse("quant_type", kind, f"one of {', '.join(sorted(_TORCHAO))}")
    bits, group, activation = known
    if group == 0:
        scheme = schemes.fp8_tensor(static=False)
    else:
        size = group if group == -1 else fields.group(options, "group_size", group)
        scheme = schemes.torchao(bits, size, activation_bits=activation)
    return Plan(method="torchao", resolve=_unless(ignored, scheme))


def read_aqlm(spec: ModelSpec, config: Config) -> Plan:
    """``aqlm``: codes and code books a projection."""
    ignored = by_component(
        [
            name.removesuffix(".weight")
            for name in fields.names(config, "linear_weights_not_to_quantize")
        ]
        or ["lm_head"]
    )
    scheme = schemes.aqlm(
        fields.integer(config, "nbits_per_codebook", 16),
        fields.integer(config, "num_codebooks", 1),
        fields.integer(config, "in_group_size", 8),
        fields.integer(config, "out_group_size", 1),
    )
    return Plan(method="aqlm", resolve=_unless(ignored, scheme))


def unknown_method(method: object, known: Sequence[str]) -> QuantizationError:
    """The error for a method that has no reader."""
    return QuantizationError(
        f"quant_method is {shown(method)}, which is not known; known methods are "
        f"{', '.join(sorted(known))}; to plan with another layout give --weights"
    )
