"""What vLLM allocates at the peak of its profile run, phase by phase.

The engine runs one dummy step of ``max_num_batched_tokens`` tokens without attention, then
samples for every request of that step, and takes the highest number of bytes PyTorch had
allocated (``allocated_bytes.all.peak``) above what it held before: the activation peak. Which
tensors live at once follows from v1/worker/gpu_model_runner.py (``profile_run``, ``_dummy_run``,
``_dummy_sampler_run``), v1/sample/ and the layers; no figure here is fitted, except where a
constant names its own source.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm import encoder
from tokenroom.engines.vllm.layer_memory import expert_workspace_bytes, layer_terms
from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.rules import TopKTopP, VersionRules
from tokenroom.engines.vllm.runner import has_experts, runs_second_runner
from tokenroom.engines.vllm.sampler_memory import output_terms, padded_vocab_size, top_k_top_p
from tokenroom.engines.vllm.sparse_memory import sparse_workspace_bytes
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import DTYPE_BITS, ModelSpec
from tokenroom.units import KIB, MIB

_CUBLAS_WORKSPACE_BYTES: Final = {
    "hopper": 32 * MIB,
    "blackwell": 32 * MIB,
}
_CUBLAS_WORKSPACE_BYTES_OLDER: Final = 8 * MIB + 128 * KIB
# PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp: 4096 KiB x 8 from Hopper on, else
# 4096 KiB x 2 + 16 KiB x 8; allocated by the first matrix product, never freed.

_FLASHINFER_WORKSPACE_BYTES: Final = 394 * MIB  # VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE (envs.py)

# Observed over predicted on 48 logged profile runs of vLLM 0.19.0 (H100 80GB): -0.4 % to +0.4 %.
# The sampler governs 43 of them; the layers 3 and compilation 2, whose ranges are set wider since
# so few runs tell, and because a warm compilation cache times no kernels: gpt-oss-20b on A100 80GB
# left what the sampler takes, not what compiling would. On 10 runs of 0.11 and 0.15 to 0.18 the
# sampler's prediction holds to 0.1 %. The encoder governs none.
_RESIDUALS: Final = {
    "sampler": (-0.01, 0.01),
    "layers": (-0.10, 0.06),
    "compilation": (-0.05, 0.05),
    "encoder": (-0.25, 0.25),
    "pooler": (-0.10, 0.06),
}
_SPARSE_RESIDUAL: Final = 0.06
"""Range for what few or no logs show: encoders and experts other than the seven measured ones,
drafters, adapters, GPUs other than H100."""
_RESIDUALS_UNMEASURED: Final = (-0.20, 0.20)
"""Range for paths that no log was available for: the second runner, FlashInfer's sampler."""
_RESIDUALS_OTHER_VENDOR: Final = (-0.40, 2.0)
"""Range for kernels of other vendors: the one report, DeepSeek V4 on MI300X, had at least three
times what is predicted (vLLM issue 53961)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One moment of the profile run.

    Attributes:
        name: ``"encoder"``, ``"compilation"``, ``"layers"``, ``"sampler"``
            or ``"pooler"``.
        num_bytes: What PyTorch holds then, above what it held before the run.
        terms: The tensors.
    """

    name: str
    num_bytes: int
    terms: Terms


def activation_peak(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """The activation peak as the engine logs it ("torch peak memory increase").

    Source: the phases of :func:`profile_phases`; the highest counts.
    """
    phases = profile_phases(spec, inputs, rules)
    peak = max(phases, key=_size)
    low, high = _residuals(spec, inputs, rules, peak.name)
    low_bytes = round(peak.num_bytes * (1 + low))
    if peak.name == "compilation":  # a warm compilation cache skips that phase
        rest = max((phase for phase in phases if phase.name != "compilation"), key=_size)
        low_bytes = min(low_bytes, rest.num_bytes)
    return Estimate(
        num_bytes=peak.num_bytes,
        low_bytes=low_bytes,
        high_bytes=round(peak.num_bytes * (1 + high)),
        phase=peak.name,
        terms=peak.terms,
        source="vLLM v1/worker/gpu_model_runner.py profile_run; residuals of 48 logs of 0.19.0",
    )


def profile_phases(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules
) -> tuple[Phase, ...]:
    """Every phase of the profile run with the tensors that live then."""
    second = runs_second_runner(spec, inputs, rules)
    tokens = inputs.max_num_batched_tokens
    kept = (
        *encoder.kept_terms(spec, inputs, rules, second_runner=second),
        *_kept_terms(spec, inputs, rules, tokens, second),
    )
    phases = []
    if running := encoder.running_terms(spec, inputs, rules, second_runner=second):
        phases.append(_phase("encoder", running + kept[:1]))
    if not inputs.enforce_eager:
        phases.append(_phase("compilation", _compilation_terms(spec, inputs, rules)))
    phases.append(_phase("layers", kept + layer_terms(spec, inputs, rules, tokens, profiling=True)))
    if inputs.is_last_stage:
        sampling = output_terms(spec, inputs, rules, tokens, second=second)
        phases.append(_phase("pooler" if inputs.pooling else "sampler", kept + sampling))
    return tuple(phases)


def prefill_activation(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """What a step that fills the token budget with prompts allocates: layers or sampler.

    The profile run's tensors with nothing compiled or encoded.
    """
    return _step_activation(spec, inputs, rules, inputs.max_num_batched_tokens)


def decode_activation(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """What a step that decodes every request at once allocates: layers or sampler.

    The same tensors over ``max_num_seqs`` x (1 + drafted tokens) tokens.
    """
    tokens = inputs.max_num_seqs * (1 + inputs.speculative_tokens)
    return _step_activation(spec, inputs, rules, min(tokens, inputs.max_num_batched_tokens))


def persistent_buffers(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """Buffers the runner allocates before the profile run and keeps.

    Charged against the budget only where ``rules.counts_persistent_buffers``; before that they
    take memory nobody counts. Sources: v1/worker/gpu_model_runner.py and
    v1/worker/gpu/{states,sample/penalties,block_table}.py constructors.
    """
    second = runs_second_runner(spec, inputs, rules)
    width = DTYPE_BITS[inputs.dtype] // 8
    requests = inputs.max_num_seqs
    tokens = inputs.max_num_batched_tokens
    blocks = -(-inputs.max_model_len // inputs.block_size)
    terms = [("block_tables", requests * blocks * 4), ("token_positions", tokens * 3 * 8)]
    if spec.towers and not inputs.language_model_only:
        terms.append(("input_embeddings", tokens * spec.hidden_size * width))
    if inputs.speculative_tokens:
        terms.append(("drafter_hidden_states", tokens * spec.hidden_size * width))
    if second:
        terms.append(("output_token_counts", requests * spec.vocab_size * 4))
        terms.append(("prompt_token_mask", requests * -(-spec.vocab_size // 32) * 4))
        if not inputs.is_first_stage:
            terms.append(("stage_inputs", 2 * tokens * spec.hidden_size * width))
    total = sum(map(itemgetter(1), terms))
    return Estimate(
        num_bytes=total,
        low_bytes=total,
        high_bytes=total + 32 * MIB,
        phase="start",
        terms=tuple(terms),
        source="vLLM v1/worker/gpu_model_runner.py, v1/worker/gpu/ constructors",
    )


def _step_activation(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> Estimate:
    second = runs_second_runner(spec, inputs, rules)
    kept = _kept_terms(spec, inputs, rules, tokens, second)
    phases = [_phase("layers", kept + layer_terms(spec, inputs, rules, tokens, profiling=False))]
    if inputs.is_last_stage:
        sampling = output_terms(spec, inputs, rules, tokens, second=second)
        phases.append(_phase("pooler" if inputs.pooling else "sampler", kept + sampling))
    peak = max(phases, key=_size)
    low, high = _RESIDUALS_UNMEASURED
    return Estimate(
        num_bytes=peak.num_bytes,
        low_bytes=round(peak.num_bytes * (1 + low)),
        high_bytes=round(peak.num_bytes * (1 + high)),
        phase=peak.name,
        terms=peak.terms,
        source="the tensors of vLLM's profile run at the step's tokens",
    )


def cublas_workspace_bytes(accelerator: Accelerator) -> int:
    """What the first matrix product allocates and PyTorch keeps."""
    return _CUBLAS_WORKSPACE_BYTES.get(accelerator.architecture, _CUBLAS_WORKSPACE_BYTES_OLDER)


def attention_workspace_bytes(inputs: ProfileInputs) -> int:
    """What the attention backend allocates for itself when it first builds its metadata.

    The profile run has none; the first capture of a full graph does (so that the engine's estimate
    of graph memory holds it), or else the first step, beside the budget. Source:
    v1/attention/backends/flashinfer.py ``_get_workspace_buffer`` (0.20 to 0.33).
    """
    return _FLASHINFER_WORKSPACE_BYTES if "FLASHINFER" in inputs.attention_backend else 0


def _residuals(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, phase: str
) -> tuple[float, float]:
    """The range around a prediction: the wider, the less of the path was measured."""
    if inputs.accelerator.vendor not in ("nvidia", "unknown"):
        return _RESIDUALS_OTHER_VENDOR
    flashinfer = top_k_top_p(inputs, rules) is TopKTopP.FLASHINFER
    if flashinfer or runs_second_runner(spec, inputs, rules):
        return _RESIDUALS_UNMEASURED
    low, high = _RESIDUALS[phase]
    sparsely_measured = (
        spec.towers
        or has_experts(spec)
        or inputs.speculative_tokens
        or inputs.max_loras
        or inputs.accelerator.architecture != "hopper"
    )
    if sparsely_measured:
        low, high = min(low, -_SPARSE_RESIDUAL), max(high, _SPARSE_RESIDUAL)
    return low, high


def _kept_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int, second: bool
) -> Terms:
    """What the forward pass allocates and does not free before the sampler runs."""
    width = DTYPE_BITS[inputs.dtype] // 8
    terms = [("cublas_workspace", cublas_workspace_bytes(inputs.accelerator))]
    if not inputs.is_first_stage and not second:
        terms.append(("stage_inputs", 2 * tokens * spec.hidden_size * width))
    experts = expert_workspace_bytes(spec, inputs, rules, tokens)
    sparse = sparse_workspace_bytes(spec, inputs, rules)
    if max(experts, sparse):  # one buffer serves both
        name = "moe_workspace" if experts >= sparse else "sparse_attention_workspace"
        terms.append((name, max(experts, sparse)))
    return tuple(terms)


def _compilation_terms(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Terms:
    """Random arguments of the embedding kernel that Inductor times while it compiles.

    The kernel that looks tokens up and norms them is a combined one; its arguments are a table of
    the embedding's size and its outputs (torch/_inductor ``benchmark_combo_kernel``). A model
    with an encoder looks tokens up outside the compiled part.
    """
    if not rules.benchmarks_fused_kernels or spec.towers or not inputs.is_first_stage:
        return ()
    width = DTYPE_BITS[inputs.dtype] // 8
    ranks = inputs.tensor_parallel_size
    rows = padded_vocab_size(spec.vocab_size) // ranks
    outputs = 2 if ranks == 1 else 1  # the norm follows the all-reduce, in a kernel of its own
    hidden = inputs.max_num_batched_tokens * spec.hidden_size * width
    return (
        ("embedding_table_copy", rows * spec.hidden_size * width),
        ("embedding_kernel_outputs", outputs * hidden),
    )


def _phase(name: str, terms: Terms) -> Phase:
    return Phase(name=name, num_bytes=sum(size for _, size in terms), terms=terms)


def _size(phase: Phase) -> int:
    return phase.num_bytes
