"""How one machine differs from the model: factors on times, which a calibration finds.

A factor multiplies a part of the time that the model gives: 1.2 means that this part takes a fifth
longer than it says, whatever the cause (clocks, drivers, kernels, other tenants, a slow host).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Factors(NamedTuple):
    """Measured over modelled time, by what takes it.

    Attributes:
        compute: Arithmetic of kernels: most of prefill.
        bandwidth: Memory traffic of kernels: most of decode.
        communication: Collectives between accelerators.
        host: What scheduling, starting kernels and reading results add to a step.
        arrival: What a request spends outside the accelerators before its first token.
    """

    compute: float = 1.0
    bandwidth: float = 1.0
    communication: float = 1.0
    host: float = 1.0
    arrival: float = 1.0


UNCALIBRATED: Final = Factors()
"""The model as it is."""
