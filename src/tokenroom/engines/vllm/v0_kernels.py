"""What the V0 engine's matrix products allocate: outputs, and what their kernels take besides.

Sources: model_executor/layers/linear.py and quantization/{gptq,gptq_marlin,awq,awq_marlin,fp8,
bitsandbytes}.py, csrc/quantization/gptq_marlin/gptq_marlin.cu, 0.4.1 to 0.10.2.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.activation import cublas_workspace_bytes
from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.v0_rules import V0Rules
from tokenroom.engines.vllm.v0_tape import Tape
from tokenroom.models.spec import DTYPE_BITS, Layer, Scheme

_MARLIN_SUM_ROWS: Final = 64 * 16  # tile_m_size x 4 x max_par of determine_reduce_max_m
_DEQUANTIZES_FROM: Final = {"awq": 256, "exllama": 51}
"""Tokens from which whole weights are turned back first (awq.py; csrc/quantization/gptq)."""


class Products:
    """The matrix products of one run."""

    def __init__(self, tape: Tape, inputs: ProfileInputs, rules: V0Rules) -> None:
        self._tape = tape
        self._inputs = inputs
        self._rules = rules
        self._tokens = inputs.max_num_batched_tokens
        self._width = DTYPE_BITS[inputs.dtype] // 8
        self._has_workspace = False

    def rows(self, columns: int) -> int:
        """Bytes of a row of that many elements for every token."""
        return self._tokens * columns * self._width

    def multiply(self, layer: Layer, name: str, columns: int, inner: int) -> int:
        """A product's output, when what its kernel allocates besides has come and gone.

        Args:
            layer: Whose weights are multiplied.
            name: Of the output.
            columns: Elements of the output a token.
            inner: Elements of the input a token.
        """
        tape = self._tape
        scheme = _scheme(layer)
        if scheme is None:
            self.workspace()
            return tape.take(name, self.rows(columns))
        kernel = self._kernel(scheme)
        if kernel == "marlin":
            output = tape.take(name, self.rows(columns))
            besides = [
                tape.take("reordered_input", self.rows(inner))
                if self._rules.marlin_copies_input
                else -1,
                tape.take("partial_sums", min(self._tokens, _MARLIN_SUM_ROWS) * columns * 4)
                if self._rules.marlin_float_sums
                else -1,
            ]
        else:
            besides = [tape.take(*self._besides(kernel, columns, inner))]
            output = tape.take(name, self.rows(columns))
        tape.free(*besides)
        return output

    def _kernel(self, scheme: Scheme) -> str:
        """Which kernel multiplies quantised weights."""
        marlin = (self._inputs.accelerator.compute_capability or (8, 0)) >= (8, 0)
        marlin = marlin and self._inputs.quantization not in ("gptq", "awq")
        if scheme.name.startswith("gptq"):
            return "marlin" if marlin and self._rules.gptq_marlin else "exllama"
        if scheme.name.startswith("awq"):
            return "marlin" if marlin and self._rules.awq_marlin else "awq"
        if scheme.activation_bits == 8:
            return "float8"
        return "marlin" if scheme.name.startswith(("w4a16", "marlin")) else "dequantizing"

    def _besides(self, kernel: str, columns: int, inner: int) -> tuple[str, int]:
        """What a quantised product allocates before its output."""
        if kernel == "float8":
            return "quantized_input", self._tokens * inner
        if self._tokens < _DEQUANTIZES_FROM.get(kernel, 0):
            return "none", 0
        return "dequantized_weight", columns * inner * self._width

    def workspace(self) -> None:
        """The workspace of the first plain matrix product, kept from then on."""
        if not self._has_workspace:
            self._has_workspace = True
            self._tape.take("cublas_workspace", cublas_workspace_bytes(self._inputs.accelerator))


def _scheme(layer: Layer) -> Scheme | None:
    """The layout of the layer's dense weights, None when they are plain."""
    return next(
        (weight.scheme for weight in layer.weights if weight.scheme and not weight.expert), None
    )
