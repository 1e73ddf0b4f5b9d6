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
from typing import Final

from tokenroom.engines.vllm import encoder
from tokenroom.engines.vllm.profile_inputs import Estimate, ProfileInputs, Terms
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import SecondRunner, TopKTopP, VersionRules
from tokenroom.models.spec import (
    DTYPE_BITS,
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
)
from tokenroom.units import KIB, MIB

VOCAB_PADDING: Final = 64
"""Rows of the embedding are padded to a multiple of this (vocab_parallel_embedding.py)."""

_CUBLAS_WORKSPACE_BYTES: Final = {
    "hopper": 32 * MIB,
    "blackwell": 32 * MIB,
}
_CUBLAS_WORKSPACE_BYTES_OLDER: Final = 8 * MIB + 128 * KIB
# PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp: 4096 KiB x 8 from Hopper on, else
# 4096 KiB x 2 + 16 KiB x 8; allocated by the first matrix product, never freed.

_L2_CACHE_BYTES: Final = {
    "ampere": 40 * MIB,
    "ada": 72 * MIB,
    "hopper": 50 * MIB,
    "blackwell": 126 * MIB,
}
# cudaDeviceProp.l2CacheSize of A100, AD102, H100 and B200 (NVIDIA architecture white papers).
# PyTorch's torch/_inductor/runtime/benchmarking.py flushes the cache through a buffer of that
# size while it times the variants of a kernel on the kernel's first run.

_DEFAULT_MULTIPROCESSORS: Final = 132
_MLA_CONTEXT_TOKENS: Final = 64 * 1024

# Residuals on 44 logged profile runs of vLLM 0.19.0 (H100 80GB), as shares of the prediction:
# the sampler governs 40 (-0.6 % to +0.4 %), the layers 3 (-3.9 % to +0.5 %), compilation 1 (0.1 %).
_RESIDUALS: Final = {
    "sampler": (-0.01, 0.01),
    "layers": (-0.10, 0.06),
    "compilation": (-0.05, 0.05),
    "encoder": (-0.25, 0.25),
}
_RESIDUALS_UNMEASURED: Final = (-0.20, 0.20)
"""Range for paths that no log was available for: the second runner, FlashInfer's sampler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One moment of the profile run.

    Attributes:
        name: ``"encoder"``, ``"compilation"``, ``"layers"`` or ``"sampler"``.
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
    low, high = _RESIDUALS[peak.name]
    runner = runs_second_runner(spec, inputs, rules)
    if runner or _top_k_top_p(inputs, rules) is TopKTopP.FLASHINFER:
        low, high = _RESIDUALS_UNMEASURED
    low_bytes = round(peak.num_bytes * (1 + low))
    if peak.name == "compilation":  # a warm compilation cache skips it
        rest = max((phase for phase in phases if phase.name != "compilation"), key=_size)
        low_bytes = min(low_bytes, rest.num_bytes)
    return Estimate(
        num_bytes=peak.num_bytes,
        low_bytes=low_bytes,
        high_bytes=round(peak.num_bytes * (1 + high)),
        phase=peak.name,
        terms=peak.terms,
        source="vLLM v1/worker/gpu_model_runner.py profile_run; residuals of 44 logs of 0.19.0",
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
    phases.append(
        _phase("layers", kept + _layer_terms(spec, inputs, rules, tokens, profiling=True))
    )
    if inputs.is_last_stage:
        sampling = _sampler_terms(spec, inputs, rules, tokens, second)
        phases.append(_phase("sampler", kept + sampling))
    return tuple(phases)


def decode_activation(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> Estimate:
    """What a step that decodes every request at once allocates: layers or sampler.

    The same tensors as the profile run, over ``max_num_seqs`` x (1 + drafted tokens) tokens, with
    nothing compiled or encoded.
    """
    second = runs_second_runner(spec, inputs, rules)
    tokens = min(
        inputs.max_num_seqs * (1 + inputs.speculative_tokens), inputs.max_num_batched_tokens
    )
    kept = _kept_terms(spec, inputs, rules, tokens, second)
    phases = [_phase("layers", kept + _layer_terms(spec, inputs, rules, tokens, profiling=False))]
    if inputs.is_last_stage:
        sampling = _sampler_terms(spec, inputs, rules, tokens, second)
        phases.append(_phase("sampler", kept + sampling))
    peak = max(phases, key=_size)
    low, high = _RESIDUALS_UNMEASURED
    return Estimate(
        num_bytes=peak.num_bytes,
        low_bytes=round(peak.num_bytes * (1 + low)),
        high_bytes=round(peak.num_bytes * (1 + high)),
        phase=peak.name,
        terms=peak.terms,
        source="the profile run's tensors at the decode batch",
    )


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
    if second:
        terms.append(("output_token_counts", requests * spec.vocab_size * 4))
        terms.append(("prompt_token_mask", requests * -(-spec.vocab_size // 32) * 4))
        if not inputs.is_first_stage:
            terms.append(("stage_inputs", 2 * tokens * spec.hidden_size * width))
    total = sum(size for _, size in terms)
    return Estimate(
        num_bytes=total,
        low_bytes=total,
        high_bytes=total + 32 * MIB,
        phase="start",
        terms=tuple(terms),
        source="vLLM v1/worker/gpu_model_runner.py, v1/worker/gpu/ constructors",
    )


def runs_second_runner(spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules) -> bool:
    """Whether the rank runs v1/worker/gpu/model_runner.py (config/vllm.py)."""
    choice = rules.second_runner
    if choice is SecondRunner.NEVER:
        return False
    if inputs.second_runner is not None:
        return inputs.second_runner
    if choice is SecondRunner.ALWAYS:
        return True
    listed = spec.architecture in rules.second_runner_architectures
    if choice is SecondRunner.LISTED:
        return listed
    shape = _shape(spec)
    if choice is SecondRunner.LISTED_PLAIN:
        return listed and not shape.has_experts and spec.quantization is None
    return listed or not (shape.has_experts or shape.has_states)


def padded_vocab_size(vocab_size: int) -> int:
    """Rows of the embedding after padding, over all ranks."""
    return -(-vocab_size // VOCAB_PADDING) * VOCAB_PADDING


def _kept_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int, second: bool
) -> Terms:
    """What the forward pass allocates and does not free before the sampler runs."""
    width = DTYPE_BITS[inputs.dtype] // 8
    terms = [
        (
            "cublas_workspace",
            _CUBLAS_WORKSPACE_BYTES.get(
                inputs.accelerator.architecture, _CUBLAS_WORKSPACE_BYTES_OLDER
            ),
        )
    ]
    if not inputs.is_first_stage and not second:
        terms.append(("stage_inputs", 2 * tokens * spec.hidden_size * width))
    if rules.keeps_moe_workspace:
        _, workspace = _layer_bytes(spec, inputs, rules, tokens)
        if workspace:
            terms.append(("moe_workspace", workspace))
    return tuple(terms)


def _sampler_terms(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int, second: bool
) -> Terms:
    """Tensors of rows x vocabulary that live together in the sampler's widest moment."""
    width = DTYPE_BITS[inputs.dtype] // 8
    rows = min(inputs.max_num_seqs, tokens)
    vocab = spec.vocab_size
    logits = rows * padded_vocab_size(vocab) * width
    single = rows * vocab * 4
    terms: list[tuple[str, int]] = [
        ("hidden_states", tokens * spec.hidden_size * width),
        ("sampled_hidden_states", rows * spec.hidden_size * width * (1 if second else 2)),
    ]
    kernel = _top_k_top_p(inputs, rules)
    if second:
        terms.append(("logits", logits))
        if rules.second_runner_warms_full_sampler:
            terms.append(("float32_logits", single))
            terms += _masking_terms(kernel, inputs, rows, vocab)
        elif inputs.tensor_parallel_size > 1:
            terms.append(("gathered_logits", logits))
        return tuple(terms)
    upcast = single if width != 4 else 0  # logits.to(float32) copies nothing then
    if inputs.speculative_tokens:
        terms += _rejection_terms(kernel, inputs, rules, rows, single, upcast)
        return tuple(terms)
    terms += [("logits", logits), ("float32_logits", upcast)]
    terms += _masking_terms(kernel, inputs, rows, vocab)
    if kernel is TopKTopP.TRITON:
        terms += [("probabilities", single), ("exponential_noise", single)]
    return tuple(terms)


def _masking_terms(
    kernel: TopKTopP, inputs: ProfileInputs, rows: int, vocab: int
) -> list[tuple[str, int]]:
    """What masking below top-k and top-p allocates besides the float32 logits."""
    single = rows * vocab * 4
    if kernel is TopKTopP.TRITON:
        programs = min(inputs.accelerator.multiprocessors or _DEFAULT_MULTIPROCESSORS, rows)
        # One row of scratch a program, rounded up to a power of two but not past the GPU's
        # multiprocessors (v1/sample/ops/topk_topp_triton.py).
        return [("top_k_top_p_scratch", programs * vocab * 4)]
    if kernel is TopKTopP.FLASHINFER:
        # top_k_top_p_sampling_from_logits: masked logits, then their softmax.
        return [("top_k_masked_logits", single), ("probabilities", single)]
    # torch.sort over 32-bit keys by segmented_sort_pairs_by_full_sort: sorted values, int64
    # indices, an (index, segment) pair of int32 an element, and a second copy of keys and pairs
    # for cub's radix sort (aten/src/ATen/native/cuda/Sort.cu).
    return [
        ("sorted_logits", single),
        ("sorted_indices", 2 * single),
        ("sort_pairs", 2 * single),
        ("sort_double_buffers", 3 * single),
    ]


def _rejection_terms(
    kernel: TopKTopP,
    inputs: ProfileInputs,
    rules: VersionRules,
    rows: int,
    single: int,
    upcast: int,
) -> list[tuple[str, int]]:
    """The rejection sampler's warm-up with one drafted token a request.

    Either while it samples the bonus token or while it draws the recovered one
    (v1/sample/rejection_sampler.py).
    """
    model_rows = single // 2 if upcast else single
    vocab = single // (4 * rows)
    raw = [("raw_bonus_logits", single)] if rules.keeps_raw_target_logits else []
    shared = [("logits", 2 * model_rows), ("bonus_logits", model_rows), *raw]
    bonus = [("float32_logits", upcast), *_masking_terms(kernel, inputs, rows, vocab)]
    if kernel is TopKTopP.TRITON:
        bonus += [("probabilities", single), ("exponential_noise", single)]
    recovered = [
        ("float32_target_logits", single),
        *([("processed_target_logits", single)] if rules.keeps_raw_target_logits else []),
        ("target_probabilities", single),
        ("exponential_noise", single),
    ]
    return shared + max(bonus, recovered, key=lambda terms: sum(size for _, size in terms))


def _top_k_top_p(inputs: ProfileInputs, rules: VersionRules) -> TopKTopP:
    """The masking kernel on this GPU: FlashInfer needs NVIDIA, capability 7.5 or later."""
    capability = inputs.accelerator.compute_capability
    supported = capability is not None and capability >= (7, 5)
    wanted = inputs.flashinfer_sampler
    if wanted is None:
        wanted = rules.top_k_top_p is TopKTopP.FLASHINFER
    if wanted and supported:
        return TopKTopP.FLASHINFER
    return TopKTopP.SORT if rules.top_k_top_p is TopKTopP.SORT else TopKTopP.TRITON


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


def _layer_terms(
    spec: ModelSpec,
    inputs: ProfileInputs,
    rules: VersionRules,
    tokens: int,
    *,
    profiling: bool,
) -> Terms:
    """The widest moment of the widest layer, besides what is kept."""
    widest, _ = _layer_bytes(spec, inputs, rules, tokens)
    if profiling and not inputs.enforce_eager:
        flush = _L2_CACHE_BYTES.get(inputs.accelerator.architecture, 50 * MIB)
        widest = (*widest, ("kernel_timing_flush", flush))
    return widest


def _layer_bytes(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> tuple[Terms, int]:
    """The widest moment of a layer, and the bytes of the experts' workspaces."""
    key = (
        tokens,
        inputs.dtype,
        inputs.tensor_parallel_size,
        inputs.enable_expert_parallel,
        inputs.max_model_len,
        inputs.max_num_seqs,
        inputs.block_size,
        rules.keeps_moe_workspace,
        rules.moe_chunk_tokens,
    )

    def make() -> tuple[Terms, int]:
        moments = (
            moment
            for layer in _shape(spec).kinds
            for moment in _layer_moments(spec, layer, inputs, rules, tokens)
        )
        widest = max(moments, key=lambda terms: sum(size for _, size in terms), default=())
        return widest, _moe_workspace_bytes(spec, inputs, rules, tokens)

    return _layers.get(spec, key, make)


def _layer_moments(
    spec: ModelSpec, layer: Layer, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> list[Terms]:
    """The layer at its mixer and at its feed-forward block.

    A compiled piece runs from the attention output of one layer to the queries of the next; its
    arguments (attention output, residual) stay referenced by the caller until it returns.
    """
    ranks = inputs.tensor_parallel_size
    width = DTYPE_BITS[inputs.dtype] // 8
    hidden = tokens * spec.hidden_size * width
    moments: list[Terms] = []
    attended = 0
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            heads = max(1, mixer.num_heads // ranks)
            kv_heads = max(1, mixer.num_kv_heads // ranks)
            queries = tokens * heads * mixer.head_dim * width
            keys = tokens * kv_heads * mixer.head_dim * width
            output = tokens * heads * mixer.value_head_dim * width
            moments.append(
                (
                    ("residual", hidden),
                    ("queries_keys_values", queries + 2 * keys),
                    ("rotated_queries_keys", queries + keys),
                    ("attention_output", output),
                )
            )
        elif isinstance(mixer, LatentAttention):
            heads = max(1, mixer.num_heads // ranks)
            query_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
            output = tokens * heads * mixer.v_head_dim * width
            moments.append(
                (
                    ("residual", hidden),
                    ("queries", tokens * heads * query_dim * width),
                    ("latent", tokens * (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * width),
                    ("attention_output", output),
                    ("expanded_context", _expanded_context_bytes(mixer, inputs, heads, width)),
                )
            )
        else:
            inner = mixer.num_heads * (mixer.state_shape[0] if mixer.state_shape else 0)
            inner = max(inner, mixer.conv_dim) // ranks
            output = tokens * inner * width
            moments.append(
                (
                    ("residual", hidden),
                    ("projected_inputs", tokens * 2 * inner * width),
                    ("convolved_inputs", tokens * mixer.conv_dim // ranks * width),
                    ("recurrence_output", output),
                )
            )
        attended += output
    if layer.ffn is not None:
        carried = (
            ("attention_output", attended),
            ("residual", hidden),
            ("updated_residual", hidden),
        )
        moments.append(carried + _ffn_terms(spec, layer, inputs, rules, tokens, width))
    return moments


def _ffn_terms(
    spec: ModelSpec,
    layer: Layer,
    inputs: ProfileInputs,
    rules: VersionRules,
    tokens: int,
    width: int,
) -> Terms:
    ranks = inputs.tensor_parallel_size
    ffn = layer.ffn
    if isinstance(ffn, MoEFFN):
        hidden = tokens * spec.hidden_size * width
        shared = ffn.shared_intermediate_size // ranks
        terms = [
            ("normed", hidden),
            ("router_logits", tokens * ffn.num_experts * 4),
            ("shared_experts", 3 * tokens * shared * width),
        ]
        if not rules.keeps_moe_workspace:
            terms.append(("expert_caches", _moe_workspace_bytes(spec, inputs, rules, tokens)))
            terms.append(("experts_output", hidden))
        return tuple(terms)
    assert isinstance(ffn, DenseFFN)
    inner = tokens * -(-ffn.intermediate_size // ranks)
    up = inner * (2 if ffn.gated else 1) * width
    terms = [("gate_up", up), ("activated", inner * width)]
    if _activation_bits(layer) == 8 and _scheme_is_integer(layer):
        # Integer quantisation is an operator of its own: its outputs are allocated beside what
        # it reads (compressed_tensors_w8a8_int8, _custom_ops.scaled_int8_quant).
        terms.append(("quantized_activations", inner + tokens * spec.hidden_size))
    return tuple(terms)


def _activation_bits(layer: Layer) -> int:
    bits = [weight.scheme.activation_bits for weight in layer.weights if weight.scheme is not None]
    return min(bits, default=16)


def _scheme_is_integer(layer: Layer) -> bool:
    return any(
        weight.scheme is not None and "int8" in weight.scheme.name for weight in layer.weights
    )


def _moe_workspace_bytes(
    spec: ModelSpec, inputs: ProfileInputs, rules: VersionRules, tokens: int
) -> int:
    """The two workspaces of the experts' kernel (fused_moe.py ``workspace_shapes``).

    tokens x experts a token x max(intermediate, hidden), and the same with gate and up side by
    side. With expert parallelism a rank sees its own tokens but whole experts.
    """
    width = DTYPE_BITS[inputs.dtype] // 8
    ranks = 1 if inputs.enable_expert_parallel else inputs.tensor_parallel_size
    routed = min(tokens, rules.moe_chunk_tokens or tokens)
    largest = 0
    for layer in _shape(spec).kinds:
        ffn = layer.ffn
        if isinstance(ffn, MoEFFN):
            inner = ffn.intermediate_size // ranks
            up = 2 * inner if ffn.gated else inner
            wide = max(inner, spec.hidden_size) + max(up, spec.hidden_size)
            largest = max(largest, routed * ffn.experts_per_token * wide * width)
    return largest


def _expanded_context_bytes(
    mixer: LatentAttention, inputs: ProfileInputs, heads: int, width: int
) -> int:
    """Keys and values of a chunk of context, which the profile run allocates for their size.

    mla_attention.py ``determine_chunked_prefill_workspace_size``.
    """
    block = max(inputs.block_size, 1)
    context_tokens = min(
        max(8 * inputs.max_model_len, 4 * inputs.max_num_seqs * block), _MLA_CONTEXT_TOKENS
    )
    context_tokens = max(context_tokens, inputs.max_num_seqs * block)
    return context_tokens * heads * (mixer.qk_nope_head_dim + mixer.v_head_dim) * width


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What is asked of a model's layers again and again."""

    kinds: tuple[Layer, ...]
    has_experts: bool
    has_states: bool


_shapes: Final[Remembered[_Shape]] = Remembered()
_layers: Final[Remembered[tuple[Terms, int]]] = Remembered()


def _shape(spec: ModelSpec) -> _Shape:
    """The model's distinct layers, found once for a description."""
    return _shapes.get(spec, None, lambda: _shape_of(spec))


def _shape_of(spec: ModelSpec) -> _Shape:
    kinds = tuple(layer for layer, _ in spec.layer_kinds)
    return _Shape(
        kinds=kinds,
        has_experts=any(isinstance(layer.ffn, MoEFFN) for layer in kinds),
        has_states=any(
            not isinstance(mixer, Attention | LatentAttention)
            for layer in kinds
            for mixer in layer.mixers
        ),
    )


def _phase(name: str, terms: Terms) -> Phase:
    return Phase(name=name, num_bytes=sum(size for _, size in terms), terms=terms)


def _size(phase: Phase) -> int:
    return phase.num_bytes
