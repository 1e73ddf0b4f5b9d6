"""Blocks whose weights stay in the host's memory, as llama.cpp runs them: by the processor itself.

The processor multiplies few rows where the weights lie. From 32 rows on the weights are copied to
the accelerator, of experts those that a token chose, and multiplied there (ggml-cuda.cu
``ggml_backend_cuda_device_offload_op``, ggml-backend.cpp ``copy_experts``, of 0c1e57098).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tokenroom.performance.work import HostPart, Kind, Operator, StepWork

if TYPE_CHECKING:
    from tokenroom.performance.matrices import Matrix
    from tokenroom.performance.operators import LayerPlan

_ROWS_AT_ONCE: Final = 4
"""Rows that the processor's kernels multiply for one read of the weights (ggml-cpu/repack.cpp:
``gemm`` of 4 rows)."""

_PRODUCTS: Final = (Kind.GEMM, Kind.GROUPED_GEMM, Kind.BATCHED_GEMM)


def divided(
    operators: Sequence[Operator],
    layer: LayerPlan,
    host: HostPart,
    layers: int,
    experts: int,
    work: StepWork,
) -> Iterator[Operator]:
    """A kind's operators where ``layers`` of its blocks and the experts of ``experts`` are away."""
    weights = {matrix.name: float(matrix.weight_bytes) for matrix in layer.matrices}
    if layer.experts is not None:
        tokens = work.tokens + work.other_tokens
        weights["experts"] = layer.experts.touched(tokens) * layer.experts.expert_bytes
    copied = computed = 0.0
    for operator in operators:
        routed = operator.kind is Kind.GROUPED_GEMM
        away = experts if routed else layers
        each = operator.times // layer.times  # runs in a block
        if not away:
            yield operator
        elif operator.kind in _PRODUCTS and _copies(host, work):
            copied += away * weights.get(operator.name, operator.num_bytes)
            yield operator
        else:
            computed += away * each * _processor_bytes(operator)
            if operator.times > away * each:
                yield operator._replace(times=operator.times - away * each)
    yield from _crossing(host, copied, computed)


def on_host(
    operators: Sequence[Operator], head: Matrix, host: HostPart, work: StepWork
) -> Iterator[Operator]:
    """What follows the blocks, the output projection away."""
    copied = computed = 0.0
    for operator in operators:
        if operator.name != head.name:
            yield operator
        elif host.copied_from_rows is not None and work.outputs >= host.copied_from_rows:
            copied += head.weight_bytes
            yield operator
        else:
            computed += _processor_bytes(operator)
    yield from _crossing(host, copied, computed)


def _copies(host: HostPart, work: StepWork) -> bool:
    return host.copied_from_rows is not None and work.tokens >= host.copied_from_rows


def _processor_bytes(operator: Operator) -> float:
    """Bytes that the processor reads for one run: weights again for every few rows."""
    if operator.kind not in _PRODUCTS:
        return operator.num_bytes
    return operator.num_bytes * max(1.0, operator.shape[0] / _ROWS_AT_ONCE)


def _crossing(host: HostPart, copied: float, computed: float) -> Iterator[Operator]:
    for name, kind, num_bytes, shape in (
        ("host_weights", Kind.HOST_READ, copied, ()),
        ("host_layers", Kind.HOST_COMPUTE, computed, (host.bandwidth_bytes_per_second,)),
    ):
        if num_bytes:
            yield Operator(
                name=name,
                kind=kind,
                arithmetic="bf16",
                times=1,
                flops=0,
                num_bytes=num_bytes,
                shape=shape,
            )
