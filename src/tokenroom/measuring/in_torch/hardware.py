"""Memory of a GPU measured term by term: context, workspace, kernels, passes, the gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from tokenroom.engines.transformers.memory import activation_shape
from tokenroom.errors import MeasurementError
from tokenroom.hardware.measured_memory import MeasuredPass, MeasuredPasses
from tokenroom.measuring.beside import beside
from tokenroom.measuring.in_torch.cuda_counters import Counters
from tokenroom.measuring.in_torch.measurement import measure
from tokenroom.models.hf_config import read_config

_SIDE: Final = 256
"""Of the square matrices whose product makes cuBLAS take its workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What was found.

    Attributes:
        context_bytes: Used less reserved, before any kernel.
        workspace_bytes: What a first product leaves allocated beside its result.
        kernels_bytes: By how much used less reserved grew.
        passes: Peaks.
        left_out: Token budgets that did not fit.
    """

    context_bytes: int
    workspace_bytes: int
    kernels_bytes: int
    passes: MeasuredPasses
    left_out: tuple[int, ...]


def measure_terms(
    counters: Counters,
    device: str,
    build: Callable[[], Any],
    *,
    tokens: Sequence[int],
    dtype: torch.dtype,
    on_pass: Callable[[int, int], None] | None = None,
) -> Terms:
    """Measure a device on which nothing of this process has run yet.

    Args:
        counters: Where memory is read from.
        device: The device.
        build: Makes the model whose layers are run.
        tokens: Token budgets of the passes, ascending.
        dtype: Type of the model.
        on_pass: Called with (passes done, of how many).

    Raises:
        MeasurementError: Not even the shortest pass fits, or its peak is not predicted.
    """
    counters.restart()
    context = counters.used_bytes() - counters.reserved_bytes()
    workspace = _workspace_bytes(counters, device, dtype)
    model = build()
    passes, left_out = [], []
    for number, count in enumerate(tokens):
        try:
            passes.append(_pass(counters, model, count))
        except torch.OutOfMemoryError:
            left_out = list(tokens[number:])
            break
        if on_pass is not None:
            on_pass(number + 1, len(tokens))
    if not passes:
        raise MeasurementError(f"a pass of {tokens[0]} tokens does not fit; give fewer --tokens")
    grown = counters.used_bytes() - counters.reserved_bytes() - context
    config = model.config
    spec = read_config(config.to_dict(), str(config._name_or_path))
    return Terms(
        context_bytes=context,
        workspace_bytes=workspace,
        kernels_bytes=max(0, grown),
        passes=MeasuredPasses(
            model=spec.name,
            shape=activation_shape(spec),
            dtype=str(dtype).removeprefix("torch."),
            attention=config._attn_implementation,
            passes=tuple(passes),
        ),
        left_out=tuple(left_out),
    )


def _workspace_bytes(counters: Counters, device: str, dtype: torch.dtype) -> int:
    """What a first product leaves: the workspace of PyTorch's CublasHandlePool.cpp."""
    with torch.no_grad():
        square = torch.ones(_SIDE, _SIDE, dtype=dtype, device=device)
        before = counters.allocated_bytes()
        product = square @ square
        left = counters.allocated_bytes() - before
        return max(0, left - int(product.untyped_storage().nbytes()))


def _pass(counters: Counters, model: Any, tokens: int) -> MeasuredPass:
    """One prefill of one sequence.

    Run once before, so that what is made once, as kernels and workspaces, is no part of it, and
    once for the gap, since measuring restarts the peaks.
    """
    ids = torch.zeros((1, tokens), dtype=torch.long, device=model.device)
    with torch.no_grad():
        model(ids, use_cache=True, logits_to_keep=1)
        counters.restart()
        model(ids, use_cache=True, logits_to_keep=1)
        reserved, allocated = counters.peak_bytes()
        with measure(model) as seen:
            model(ids, use_cache=True, logits_to_keep=1)
    (done,) = seen.measured.passes
    row = beside(seen.measured).row("prefill")
    if row is None or row.predicted is None:
        raise MeasurementError(
            f"passes of {seen.measured.model} are not predicted, so there is nothing to compare "
            f"the measured ones with; give another model"
        )
    return MeasuredPass(
        tokens,
        row.predicted.num_bytes,
        done.transient_bytes,
        max(0, reserved - allocated),
    )
