"""What was measured of one machine's GPU memory, used in place of estimates of the same figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LEAST_SPREAD: Final = 0.01
"""Half of a range is never less: repeated passes of one machine differ by a block or two."""


class MeasuredPass(NamedTuple):
    """The peak of one prefill pass.

    Attributes:
        tokens: Of the pass.
        predicted_bytes: Transient tensors by the formulas.
        transient_bytes: Measured by the allocator's counters, above weights and cache.
        gap_bytes: What the allocator reserved beyond what was allocated, at the highest.
    """

    tokens: int
    predicted_bytes: int
    transient_bytes: int
    gap_bytes: int

    @property
    def ratio(self) -> float:
        """What the pass takes of the GPU over what was predicted."""
        return (self.transient_bytes + self.gap_bytes) / self.predicted_bytes


class PassScale(NamedTuple):
    """What a predicted peak is to be multiplied with.

    Attributes:
        ratio: Measured over predicted.
        spread: Half of the range as a share of it; None where the measurements do not tell, so that
            the estimate's own range stays.
    """

    ratio: float
    spread: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPasses:
    """Peaks of one model's layers.

    Attributes:
        model: Its name.
        shape: What its activations depend on; its ``activation_shape``.
        dtype: Its type.
        attention: ``attn_implementation``.
        passes: By tokens, ascending.
    """

    model: str
    shape: str
    dtype: str
    attention: str
    passes: tuple[MeasuredPass, ...]

    def scale(self, tokens: int) -> PassScale:
        """Of a pass of so many tokens: between neighbours in proportion to the logarithm.

        The spread is the worst error with which one measured pass is told by its neighbours; with
        fewer than three, or beyond them, nothing tells it.
        """
        first, last = self.passes[0], self.passes[-1]
        if not first.tokens <= tokens <= last.tokens:
            return PassScale((first if tokens < first.tokens else last).ratio, None)
        spread = None
        if len(self.passes) > 2:
            errors = [
                abs(_between(before, after, done.tokens) / done.ratio - 1)
                for before, done, after in zip(
                    self.passes, self.passes[1:], self.passes[2:], strict=False
                )
            ]
            spread = max(LEAST_SPREAD, *errors)
        for before, after in zip(self.passes, self.passes[1:], strict=False):
            if before.tokens <= tokens <= after.tokens:
                return PassScale(_between(before, after, tokens), spread)
        return PassScale(first.ratio, spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory of one process on one machine's GPU.

    Attributes:
        profile: Name of the profile.
        created: Date and time, ISO 8601 with the zone.
        gpu: Catalogue key.
        told_by: ``"process"``: NVML told what this process uses; ``"device"``: only what all use.
        context_bytes: CUDA context: used less reserved, before any kernel ran.
        kernels_bytes: By how much that grew over the passes: kernels and libraries.
        workspace_bytes: cuBLAS's workspace, which is PyTorch's allocator's.
        communicators: NCCL's bytes a process, by number of ranks.
        passes: Peaks of layers.
        versions: Of PyTorch, CUDA, driver.
    """

    profile: str
    created: str
    gpu: str
    told_by: str
    context_bytes: int
    kernels_bytes: int
    workspace_bytes: int
    communicators: Mapping[int, int] = field(default_factory=dict)
    passes: tuple[MeasuredPasses, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def passes_of(self, shape: str, dtype: str, attention: str) -> MeasuredPasses | None:
        """Those of the same layers, None when these were not measured."""
        wanted = shape, dtype, attention
        for done in self.passes:
            if (done.shape, done.dtype, done.attention) == wanted:
                return done
        return None


def _between(before: MeasuredPass, after: MeasuredPass, tokens: int) -> float:
    """The ratio in between, in proportion to the logarithm of tokens."""
    whole = math.log(after.tokens / before.tokens)
    share = math.log(tokens / before.tokens) / whole
    return before.ratio + share * (after.ratio - before.ratio)
