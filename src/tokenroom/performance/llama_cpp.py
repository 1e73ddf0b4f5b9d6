"""How llama.cpp's kernels divide a step, and what was fitted of them.

llama.cpp's builds multiply and attend in other ways than the engines that the operator tables
were taken of: weights of few rows by vector kernels, more rows by int8 tensor cores or, in builds
before June 2024, by cuBLAS after all weights were expanded to 16 bits; activations are kept in 32
bits and converted around every product. Shares of peak are fitted to whole steps that llama-bench
timed (``scripts/fit_llama_cpp.py``), one set a family of GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from tokenroom.hardware.accelerator import Accelerator
from tokenroom.performance.efficiency import (
    Efficiency,
    Residual,
    Shares,
    Tables,
    Traits,
    efficiency_by_traits,
    traits_of,
)
from tokenroom.performance.work import Kind, Operator

ENGINE: Final = "llama_cpp"

VECTOR_ROWS: Final = 8
"""Rows that the vector kernels take at most (ggml-cuda/mmvq.cuh ``MMVQ_MAX_BATCH_SIZE``)."""

EXPANDED_ROWS: Final = 32
"""Rows beyond which builds without int8 products expand weights to 16 bits for cuBLAS (ggml-cuda.cu
of May 2024, ``MMQ_MAX_BATCH_SIZE``)."""

SCORE_BYTES: Final = 24
"""Bytes that a score moves without flash attention: the product writes 16 bits (2), they are
widened (2 + 4), softmax reads and writes 32 bits (8), they are narrowed (4 + 2) and multiplied with
the values (2); ggml-cuda.cu ``ggml_cuda_mul_mat_batched_cublas`` and softmax.cu, build 3000."""

PLAIN_KERNELS: Final = 5
"""Kernels that attention is made of without flash attention: two products, softmax, two copies."""

_HBM: Final = frozenset({(6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3)})
"""Compute capabilities of NVIDIA's parts with HBM: many multiprocessors at low clocks."""


class Build(NamedTuple):
    """What a build's kernels do.

    Attributes:
        flash_attention: Attention in one kernel; otherwise scores cross memory.
        int8_products: More than a few rows are multiplied by int8 tensor cores (pull 8075, June
            2024); otherwise weights are expanded to 16 bits for each micro-batch.
    """

    flash_attention: bool
    int8_products: bool


BUILDS: Final[Mapping[str, Build]] = {
    ENGINE: Build(flash_attention=True, int8_products=True),
    "llama_cpp_plain": Build(flash_attention=False, int8_products=True),
    "llama_cpp_expanding": Build(flash_attention=True, int8_products=False),
    "llama_cpp_expanding_plain": Build(flash_attention=False, int8_products=False),
}
"""Builds by the name that ``engine`` arguments take."""


def engine_of(build: Build) -> str:
    """Name of a build among engines."""
    return next(name for name, known in BUILDS.items() if known == build)


def llama_cpp_operators(
    operators: tuple[Operator, ...], engine: str, accelerator: Accelerator
) -> tuple[Operator, ...]:
    """The operators of a step as llama.cpp's kernels run them.

    Args:
        operators: As :func:`tokenroom.performance.operators.step_operators` counts them.
        engine: One of :data:`BUILDS`.
        accelerator: The GPU; Metal multiplies 32-bit activations with quantised weights in one
            kernel (ggml-metal.metal ``kernel_mul_mm``), which nothing is converted for.
    """
    build, metal = BUILDS[engine], accelerator.vendor == "apple"
    found: list[Operator] = []
    conversions, converted_bytes = 0, 0.0
    for operator in operators:
        if operator.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
            arithmetic, moved = _product(operator, build, metal)
            found.append(operator._replace(arithmetic=arithmetic))
            if moved:
                conversions += operator.times
                converted_bytes += operator.times * moved
        elif operator.kind in (Kind.ATTENTION_PREFILL, Kind.ATTENTION_DECODE):
            found.append(_attention(operator, build))
        else:
            found.append(operator)
    if conversions:
        found.append(
            Operator(
                name="convert",
                kind=Kind.MEMORY,
                arithmetic="bf16",
                times=conversions,
                flops=0,
                num_bytes=converted_bytes / conversions,
            )
        )
    return tuple(found)


def _product(operator: Operator, build: Build, metal: bool) -> tuple[str, float]:
    """Kernels of a product, and the bytes that conversions of activations and weights move."""
    rows, width, inputs, all_columns = operator.shape
    quantised = operator.arithmetic != "bf16"
    if rows <= VECTOR_ROWS:
        return "mmvq" if quantised else "f16", 0.0
    expands = quantised and not build.int8_products and rows > EXPANDED_ROWS and not metal
    int8 = quantised and not expands
    if metal:
        return "mmq" if int8 else "f16", 0.0
    if operator.kind is Kind.GROUPED_GEMM:  # gate and up read the input, down writes it
        tokens, matrices = rows * all_columns / width, all_columns / width
        read, written = 2 * inputs + width, 2 * width + inputs
    else:
        tokens, matrices, read, written = rows, 1.0, inputs, width
    # int8: 32 bits are read and nearly 8 written, results stay in 32 bits. cuBLAS: 32 bits become
    # 16 before, 16 become 32 after. Counted beyond what the product itself moves.
    moved = tokens * (4 * read + 2 * written) if int8 else tokens * 6 * (read + written)
    if expands:  # 16 bits a weight written, and read by the product
        moved += 4 * operator.flops / (2 * tokens) * matrices
    return "mmq" if int8 else "f16", moved


def _attention(operator: Operator, build: Build) -> Operator:
    """Attention of a build.

    Without flash attention no pair is skipped, scores cross memory, and each query head reads the
    keys and values of its group anew when it decodes.
    """
    if build.flash_attention:
        return operator._replace(arithmetic="f16")
    if operator.kind is Kind.ATTENTION_DECODE:
        return operator._replace(
            arithmetic="plain", num_bytes=operator.num_bytes * operator.shape[0]
        )
    tokens, width, keys, heads = operator.shape
    scores = tokens * keys * heads
    return operator._replace(
        arithmetic="plain",
        flops=4 * width * scores,
        num_bytes=operator.num_bytes + SCORE_BYTES * scores,
    )


def family_of(accelerator: Accelerator) -> str:
    """Family whose fits an accelerator takes."""
    if accelerator.vendor == "nvidia":
        if accelerator.compute_capability in _HBM:
            return "hbm"
        named = accelerator.architecture
        return named if named in ("ada", "blackwell") else "ampere"
    return {"apple": "apple", "amd": "rdna"}.get(accelerator.vendor, "ampere")


class Family(NamedTuple):
    """What was fitted for one family.

    Attributes:
        architectures: Those that rows were measured on.
        gpus: Catalogue keys of the GPUs they were measured on.
        kernels: Coefficients by kind and type.
        residual: Range of measured over predicted seconds of steps, each source left out in turn.
        sources: Where the rows come from.
    """

    architectures: tuple[str, ...]
    gpus: tuple[str, ...]
    kernels: Mapping[tuple[Kind, str], Shares]
    residual: Residual
    sources: tuple[str, ...]


class Fits(NamedTuple):
    """Everything that was fitted.

    Attributes:
        families: By name.
        extents: Least and largest of each extent of the rows, by kind and type.
        borrowed_spread: Factor by which all other families' rows miss one.
    """

    families: Mapping[str, Family]
    extents: Mapping[tuple[Kind, str], tuple[tuple[float, float], ...]]
    borrowed_spread: float


def _at(label: str) -> tuple[Kind, str]:
    kind, _, arithmetic = label.partition(":")
    return Kind(kind), arithmetic


@lru_cache(maxsize=1)
def _fitted() -> Fits:
    text = files("tokenroom.performance").joinpath("data/llama_cpp.json").read_text("utf-8")
    document = json.loads(text)
    found = {}
    for name, row in document["families"].items():
        found[name] = Family(
            architectures=tuple(row["architectures"]),
            gpus=tuple(row["gpus"]),
            kernels={_at(label): Shares(*fit) for label, fit in row["kernels"].items()},
            residual=Residual(*row["check"]["range"]),
            sources=tuple(row["fitted_on"]),
        )
    return Fits(
        families=found,
        extents={
            _at(label): tuple((least, most) for least, most in spans)
            for label, spans in document["extents"].items()
        },
        borrowed_spread=document["borrowed_spread"],
    )


def llama_cpp_efficiency(accelerator: Accelerator) -> Efficiency:
    """What was fitted for llama.cpp on an accelerator's family.

    Kinds that llama-bench rows have none of (latent attention, scans) keep the operator tables of
    the most alike accelerator.

    Raises:
        HardwareError: Its peak or bandwidth is not known.
    """
    return _overlaid(accelerator.key, traits_of(accelerator), family_of(accelerator))


@lru_cache(maxsize=64)
def _overlaid(accelerator_key: str, kin: Traits, family_name: str) -> Efficiency:
    base = efficiency_by_traits(accelerator_key, kin, "any")
    fits = _fitted()
    family = fits.families[family_name]
    own = kin.architecture in family.architectures
    key = accelerator_key if own else family.gpus[0]
    tables = {at: Tables(key, family.sources, fits.extents[at]) for at in family.kernels}
    return replace(
        base,
        key=key,
        spread=1.0 if own else fits.borrowed_spread,
        kernels={**base.kernels, **family.kernels},
        residuals={**base.residuals, **dict.fromkeys(family.kernels, family.residual)},
        tables={**base.tables, **tables},
    )
