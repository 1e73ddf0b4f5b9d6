"""What vLLM's V0 engine allocates in its profile run, replayed tensor by tensor.

V0 ran the model eagerly over ``max_num_batched_tokens`` tokens and sampled for ``max_num_seqs``
prompts with top-k and top-p set (``GPUModelRunnerBase.profile_run``, worker/model_runner.py 0.4.1
to 0.10.2). From 0.6.4 on the highest number of bytes PyTorch had allocated counted; before,
whatever the caching allocator had taken from the driver by then, so the order of tensors matters.
Both come out of one replay of what the Python code allocates and lets go of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm.encoder import encoder_batch, kept_terms, running_terms
from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import Accounting, VersionRules
from tokenroom.engines.vllm.v0_kernels import Products
from tokenroom.engines.vllm.v0_layers import EagerLayers
from tokenroom.engines.vllm.v0_rules import V0Rules, v0_rules
from tokenroom.engines.vllm.v0_sampler import sample
from tokenroom.engines.vllm.v0_tape import Tape
from tokenroom.models.spec import DTYPE_BITS, Attention, Layer, ModelSpec

_REPLAYED_LAYERS: Final = 3  # of each kind; the allocator is steady after the second
_MODALITIES: Final = ("image", "video", "audio")
_RESIDUALS: Final = (-0.08, 0.08)
_RESIDUALS_WITH_ENCODER: Final = (-0.4, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Peak:
    """What the replay came to.

    Attributes:
        allocated_bytes: The most PyTorch held at once.
        reserved_bytes: What its allocator had taken from the driver at the end.
        phase: ``"layers"``, ``"sampler"`` or ``"encoder"``.
        terms: The tensors that lived at the peak.
    """

    allocated_bytes: int
    reserved_bytes: int
    phase: str
    terms: Terms


_peaks: Final[Remembered[V0Peak]] = Remembered()


def v0_peak(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> V0Peak:
    """The profile run of one rank, replayed."""
    key = (
        rules.version,
        inputs.dtype,
        inputs.tensor_parallel_size,
        inputs.pipeline_parallel_size,
        inputs.pipeline_rank,
        inputs.max_num_batched_tokens,
        inputs.max_num_seqs,
        inputs.accelerator.key,
        inputs.accelerator.compute_capability,
        inputs.attention_backend,
        inputs.pooling,
        inputs.language_model_only,
        inputs.quantization,
        tuple(inputs.mm_limits.items()),
    )
    return _peaks.get(spec, key, lambda: _Run(spec, inputs, rules).run())


def v0_activation(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, old: V0Rules
) -> Estimate:
    """The activation peak, as the version counted it: allocated or reserved."""
    peak = v0_peak(spec, inputs, rules)
    reserved = old.accounting is Accounting.RESERVED
    total = peak.reserved_bytes if reserved else peak.allocated_bytes
    terms = peak.terms
    if reserved:
        terms = (*terms, ("cached_blocks", total - sum(size for _, size in terms)))
    low, high = _RESIDUALS_WITH_ENCODER if spec.towers else _RESIDUALS
    return Estimate(
        num_bytes=total,
        low_bytes=round(total * (1 + low)),
        high_bytes=round(total * (1 + high)),
        phase=peak.phase,
        terms=terms,
        source="vLLM worker/model_runner.py profile_run (V0), replayed in PyTorch's allocator",
    )


def captured_step_bytes(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> int:
    """What the allocator takes for a step of the model alone, without sampling."""
    largest = max(inputs.capture_sizes)
    inputs = replace(inputs, max_num_batched_tokens=largest, pooling=True, language_model_only=True)
    return v0_peak(spec, inputs, rules).reserved_bytes


def v0_step(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """What one step of ``max_num_batched_tokens`` tokens holds at most, encoders left out."""
    peak = v0_peak(spec, replace(inputs, language_model_only=True), rules)
    low, high = _RESIDUALS
    return Estimate(
        num_bytes=peak.allocated_bytes,
        low_bytes=round(peak.allocated_bytes * (1 + low)),
        high_bytes=round(peak.allocated_bytes * (1 + high)),
        phase=peak.phase,
        terms=peak.terms,
        source="the tensors of a step on vLLM's V0 engine",
    )


class _Run:
    """One profile run."""

    def __init__(self, spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> None:
        self.spec = spec
        self.inputs = inputs
        self.rules = rules
        self.tape = Tape()
        self.tokens = inputs.max_num_batched_tokens
        self.requests = min(inputs.max_num_seqs, self.tokens)
        self.width = DTYPE_BITS[inputs.dtype] // 8

    def run(self) -> V0Peak:
        tape, inputs, spec = self.tape, self.inputs, self.spec
        old = v0_rules(self.rules.version)
        products = Products(tape, inputs, old)
        layers = EagerLayers(spec, inputs, old, tape, products)
        tape.take("inputs", 3 * self.tokens * 8)  # tokens, positions, slots
        self._encode()
        states = products.rows(spec.hidden_size)
        hidden = tape.take("hidden_states", states)
        residual = -1 if inputs.is_first_stage else tape.take("residual", states)
        for layer, count in spec.layer_kinds:
            for _ in range(min(count, _REPLAYED_LAYERS)):
                hidden, residual = layers.layer(layer, hidden, residual)
        if inputs.is_last_stage:
            tape.phase = "sampler"
            tape.free(residual)
            selected = self.requests * spec.hidden_size * self.width
            tape.free(tape.take("sampled_hidden_states", selected))
            if not inputs.pooling:
                products.workspace()
                sample(tape, spec.vocab_size, self.requests, inputs, old)
        return V0Peak(
            allocated_bytes=tape.peak,
            reserved_bytes=tape.pool.num_bytes,
            phase=tape.peak_phase,
            terms=tape.peak_terms,
        )

    def _encode(self) -> None:
        """The encoders' runs, and what of them lives on.

        Items of every modality a prompt may hold are encoded, as many as fit the token budget,
        and only as many requests are profiled; models that attend to the encoder's states from
        layers of their own take an item for each request (worker/enc_dec_model_runner.py).
        """
        crossed = any(_crosses(layer) for layer, _ in self.spec.layer_kinds)
        item_tokens = 0
        self.tape.phase = "encoder"
        for modality in _MODALITIES:
            limit = self.inputs.mm_limits.get(modality, 1)  # limit_mm_per_prompt was 1 by default
            limits = {**dict.fromkeys(_MODALITIES, 0), modality: limit}
            inputs = replace(self.inputs, mm_limits=limits)
            batch = encoder_batch(self.spec, inputs)
            if batch is not None and crossed:
                tokens = inputs.max_num_seqs * batch.item_tokens
                inputs = replace(inputs, max_num_batched_tokens=tokens)
            if batch is not None:
                item_tokens += batch.item_tokens
                self._encode_items(inputs)
        if item_tokens and not crossed:
            self.requests = max(1, min(self.requests, self.tokens // item_tokens))
        self.tape.phase = "layers"

    def _encode_items(self, inputs: ProfileInputs) -> None:
        """One batch of items; pixels came in float32 and were converted for the encoder."""
        tape = self.tape
        for name, size in kept_terms(self.spec, inputs, self.rules, second_runner=False):
            if name == "encoder_inputs" and self.width < 4:
                tape.take("pixels", size * 4 // self.width)
            else:
                tape.take(name, size)
        running = running_terms(self.spec, inputs, self.rules, second_runner=False)
        tape.free(*[tape.take(name, size) for name, size in running])


def _crosses(layer: Layer) -> bool:
    return any(isinstance(mixer, Attention) and mixer.cross for mixer in layer.mixers)
