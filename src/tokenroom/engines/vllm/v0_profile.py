"""What vLLM's V0 engine allocates in its profile run, replayed tensor by tensor.

V0 ran the model eagerly over ``max_num_batched_tokens`` tokens and sampled for ``max_num_seqs``
prompts with top-k and top-p set (``GPUModelRunnerBase.profile_run``, worker/model_runner.py 0.4.1
to 0.10.2). From 0.6.4 on the highest number of bytes PyTorch had allocated counted; before,
whatever the caching allocator had taken from the driver by then, so the order of tensors matters.
Both come out of one replay of what the Python code of a decoder layer allocates and lets go of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tokenroom.engines.policy import Estimate
from tokenroom.engines.vllm.activation import cublas_workspace_bytes
from tokenroom.engines.vllm.encoder import encoder_batch, kept_terms, running_terms
from tokenroom.engines.vllm.graph_pool import Block, Pool
from tokenroom.engines.vllm.profile_inputs import ProfileInputs, Terms
from tokenroom.engines.vllm.remembered import Remembered
from tokenroom.engines.vllm.rules import Accounting, VersionRules
from tokenroom.engines.vllm.sampler_memory import padded_vocab_size
from tokenroom.engines.vllm.v0_rules import PADDED_HEAD, LatentCache, V0Rules, v0_rules
from tokenroom.models.spec import (
    DTYPE_BITS,
    FFN,
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Scheme,
)

_REPLAYED_LAYERS: Final = 3  # of each kind; the allocator is steady after the second
_LLAMA_MLP: Final = frozenset(
    {
        *("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "AquilaForCausalLM"),
        *("AquilaModel", "InternLMForCausalLM", "InternLM3ForCausalLM", "XverseForCausalLM"),
        *("Phi3ForCausalLM", "DeciLMForCausalLM", "GlmForCausalLM", "TeleChat2ForCausalLM"),
        *("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration"),
    }
)
"""Architectures whose feed-forward block is that of model_executor/models/llama.py."""
_MODALITIES: Final = ("image", "video", "audio")
_EXPERT_CHUNK_TOKENS: Final = 32 * 1024  # VLLM_FUSED_MOE_CHUNK_SIZE (envs.py)
_MARLIN_SUM_ROWS: Final = 64 * 16  # tile_m_size x 4 x max_par of determine_reduce_max_m
_DEQUANTIZES_FROM: Final = {"awq": 256, "exllama": 51}
"""Tokens from which whole weights are turned back first (awq.py; csrc/quantization/gptq)."""
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


class _Tape:
    """Tensors as they come and go, in the allocator and by name."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.live: dict[int, tuple[str, Block]] = {}
        self.held = 0
        self.peak = 0
        self.phase = "layers"
        self.peak_phase = "layers"
        self.peak_terms: Terms = ()
        self._next = 0

    def take(self, name: str, num_bytes: int) -> int:
        """Allocate a tensor; its handle."""
        if num_bytes <= 0:
            return -1
        block = self.pool.take(num_bytes)
        self._next += 1
        self.live[self._next] = (name, block)
        self.held += block[0]
        if self.held > self.peak:
            self.peak, self.peak_phase = self.held, self.phase
            self.peak_terms = tuple((each, held[0]) for each, held in self.live.values())
        return self._next

    def free(self, *handles: int) -> None:
        """Let tensors go."""
        for handle in handles:
            if handle > 0:
                _, block = self.live.pop(handle)
                self.held -= block[0]
                self.pool.give_back(block)


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
        self.old = v0_rules(rules.version)
        self.tape = _Tape()
        self.tokens = inputs.max_num_batched_tokens
        self.requests = min(inputs.max_num_seqs, self.tokens)
        self.width = DTYPE_BITS[inputs.dtype] // 8
        self.hidden = self.tokens * spec.hidden_size * self.width
        self.ranks = inputs.tensor_parallel_size
        self.rules = rules
        self.has_workspace = False

    def run(self) -> V0Peak:
        tape = self.tape
        tape.take("inputs", 3 * self.tokens * 8)  # tokens, positions, slots
        self._encode()
        hidden = tape.take("hidden_states", self.hidden)
        residual = -1 if self.inputs.is_first_stage else tape.take("residual", self.hidden)
        for layer, count in self.spec.layer_kinds:
            for _ in range(min(count, _REPLAYED_LAYERS)):
                hidden, residual = self._layer(layer, hidden, residual)
        if self.inputs.is_last_stage:
            tape.free(residual)
            self._sample(hidden)
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

    def _layer(self, layer: Layer, hidden: int, residual: int) -> tuple[int, int]:
        """One decoder layer; the model's loop holds the layer's input until it returns."""
        tape = self.tape
        given = hidden
        if residual < 0:
            residual, given = hidden, -1
            hidden = tape.take("normed", self.hidden)
            first = hidden
        else:
            first = -1  # normed in place
        attended = self._mixers(layer)
        tape.free(first)
        output = attended
        if layer.ffn is not None:
            output = self._ffn(layer, layer.ffn)
            tape.free(attended)
        if given != residual:
            tape.free(given)
        return output, residual

    def _mixers(self, layer: Layer) -> int:
        """The attention block; its output."""
        tape = self.tape
        output = -1
        for mixer in layer.mixers:
            tape.free(output)
            if isinstance(mixer, Attention):
                queries = max(1, mixer.num_heads // self.ranks) * mixer.head_dim
                keys = max(1, mixer.num_kv_heads // self.ranks) * mixer.head_dim
                values = queries
                projected = self._product(layer, "queries_keys_values", queries + 2 * keys, None)
                expanded = -1
            elif isinstance(mixer, LatentAttention):
                queries, values, besides = self._latent(mixer)
                latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
                projected = self._product(layer, "queries_latent", queries + latent, None)
                expanded = tape.take("expanded_keys_values", self._rows(besides))
            else:
                inner = mixer.num_heads * (mixer.state_shape[0] if mixer.state_shape else 0)
                queries = values = max(inner, mixer.conv_dim) // self.ranks
                projected = self._product(layer, "projected", 2 * queries, None)
                expanded = tape.take("convolved", self._rows(queries))
            attended = tape.take("attention_output", self._rows(values))
            if self.old.copies_attention:
                tape.free(tape.take("attention_copy", self._rows(values)))
            tape.free(expanded)
            output = self._product(layer, "projected_output", self.spec.hidden_size, values)
            output = self._reduced(output)
            tape.free(projected, attended)
        return output

    def _latent(self, mixer: LatentAttention) -> tuple[int, int, int]:
        """Elements a token of latent attention's queries, output, and all else it expands.

        A prompt is attended to with every head's keys and values (models/deepseek_v2.py; from
        0.7.1 on attention/backends/mla/). Values are padded to the keys' width; before, queries,
        keys and values all were padded to the width of a head in the cache.
        """
        heads = max(1, mixer.num_heads // self.ranks)
        head = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        each = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
        if self.old.latent_cache is LatentCache.PADDED_HEADS:
            return heads * head, heads * PADDED_HEAD, each + heads * (head + 3 * PADDED_HEAD)
        return heads * head, heads * mixer.v_head_dim, each + 2 * heads * head

    def _ffn(self, layer: Layer, ffn: FFN) -> int:
        if isinstance(ffn, MoEFFN):
            return self._experts(layer, ffn)
        tape = self.tape
        inner = -(-ffn.intermediate_size // self.ranks)
        up = self._product(layer, "gate_up", inner * (2 if ffn.gated else 1), self.spec.hidden_size)
        activated = tape.take("activated", self._rows(inner))
        drops = self.old.llama_drops_gate_up and self.spec.architecture in _LLAMA_MLP
        if drops:
            tape.free(up)
        output = self._reduced(self._product(layer, "ffn_output", self.spec.hidden_size, inner))
        tape.free(activated, -1 if drops else up)
        return output

    def _experts(self, layer: Layer, ffn: MoEFFN) -> int:
        """``fused_experts``: its buffers are allocated together."""
        tape, hidden = self.tape, self.spec.hidden_size
        chunk = min(self.tokens, _EXPERT_CHUNK_TOKENS) * ffn.experts_per_token * self.width
        inner = -(-ffn.intermediate_size // self.ranks)
        logits = tape.take("router_logits", self.tokens * ffn.num_experts * 4)
        shared = -1
        if ffn.shared_intermediate_size:
            wide = -(-ffn.shared_intermediate_size // self.ranks)
            up = self._product(layer, "shared_gate_up", 2 * wide, hidden)
            activated = tape.take("shared_activated", self._rows(wide))
            shared = self._product(layer, "shared_output", hidden, wide)
            tape.free(up, activated)
        if self.old.shares_expert_buffers:
            buffers = [tape.take("expert_products", chunk * max(2 * inner, hidden))]
        else:
            buffers = [
                tape.take("expert_gate_up", chunk * 2 * inner),
                tape.take("expert_outputs", chunk * hidden),
            ]
        buffers.append(tape.take("expert_activated", chunk * inner))
        output = tape.take("experts_output", self.hidden)
        tape.free(*buffers)
        if shared > 0:
            total = tape.take("sum_with_shared", self.hidden)
            tape.free(output, shared)
            output = total
        output = self._reduced(output)
        tape.free(logits)
        return output

    def _reduced(self, output: int) -> int:
        """After the all-reduce."""
        if self.ranks == 1 or not self.old.copies_all_reduce:
            return output
        reduced = self.tape.take("reduced", self.hidden)
        self.tape.free(output)
        return reduced

    def _rows(self, columns: int) -> int:
        return self.tokens * columns * self.width

    def _product(self, layer: Layer, name: str, columns: int, inner: int | None) -> int:
        """A matrix product's output, after what its kernel allocates besides."""
        tape = self.tape
        inner = self.spec.hidden_size if inner is None else inner
        scheme = _scheme(layer)
        if scheme is None:
            self._cublas()
            return tape.take(name, self._rows(columns))
        kernel = self._kernel(scheme)
        if kernel == "marlin":
            output = tape.take(name, self._rows(columns))
            besides = [
                tape.take("reordered_input", self._rows(inner))
                if self.old.marlin_copies_input
                else -1,
                tape.take("partial_sums", min(self.tokens, _MARLIN_SUM_ROWS) * columns * 4)
                if self.old.marlin_float_sums
                else -1,
            ]
        else:
            besides = [tape.take(*self._besides(kernel, columns, inner))]
            output = tape.take(name, self._rows(columns))
        tape.free(*besides)
        return output

    def _kernel(self, scheme: Scheme) -> str:
        """Which kernel multiplies quantised weights."""
        marlin = (self.inputs.accelerator.compute_capability or (8, 0)) >= (8, 0)
        marlin = marlin and self.inputs.quantization not in ("gptq", "awq")
        if scheme.name.startswith("gptq"):
            return "marlin" if marlin and self.old.gptq_marlin else "exllama"
        if scheme.name.startswith("awq"):
            return "marlin" if marlin and self.old.awq_marlin else "awq"
        if scheme.activation_bits == 8:
            return "float8"
        return "marlin" if scheme.name.startswith(("w4a16", "marlin")) else "dequantizing"

    def _besides(self, kernel: str, columns: int, inner: int) -> tuple[str, int]:
        """What a quantised product allocates before its output."""
        if kernel == "float8":
            return "quantized_input", self.tokens * inner
        if self.tokens < _DEQUANTIZES_FROM.get(kernel, 0):
            return "none", 0
        return "dequantized_weight", columns * inner * self.width

    def _cublas(self) -> None:
        """The workspace of the first plain matrix product, kept from then on."""
        if not self.has_workspace:
            self.has_workspace = True
            self.tape.take("cublas_workspace", cublas_workspace_bytes(self.inputs.accelerator))

    def _sample(self, hidden: int) -> None:
        """``compute_logits`` and ``Sampler.forward`` with top-k and top-p, on the driving rank."""
        tape, inputs = self.tape, self.inputs
        tape.phase = "sampler"
        rows = self.requests
        selected = tape.take("sampled_hidden_states", rows * self.spec.hidden_size * self.width)
        if inputs.pooling:
            tape.free(selected, hidden)
            return
        self._cublas()
        vocab, width = self.spec.vocab_size, self.width
        padded = rows * padded_vocab_size(vocab) * width
        logits = tape.take("logits", padded // self.ranks)
        if self.ranks > 1:
            parts = tape.take("gathered_parts", padded)
            whole = tape.take("logits", padded)
            tape.free(parts, logits)
            logits = whole
        tape.free(selected)
        cells = rows * vocab
        scaled = -1
        if self.old.float32_logits and width != 4:
            scaled, width = tape.take("float32_logits", cells * 4), 4
        masked = self._mask(cells, width)
        tape.free(scaled)
        chances = [self._softmax(name, cells, width) for name in ("probabilities", "logprobs")]
        drawn = tape.take("drawn_probabilities", cells * 4)
        noise = tape.take("exponential_noise", cells * 4)
        tape.free(noise, drawn, *chances, masked, logits, hidden)

    def _mask(self, cells: int, width: int) -> int:
        """Logits below top-k and top-p masked (``_apply_top_k_top_p``); sorting takes the most.

        torch.sort keeps an (index, row) pair of two int32 an element, and a second copy of keys
        and pairs for cub's radix sort (aten/src/ATen/native/cuda/Sort.cu).
        """
        tape = self.tape
        ordered = tape.take("sorted_logits", cells * width)
        indices = tape.take("sorted_indices", cells * 8)
        pairs = tape.take("sort_pairs", cells * 8)
        buffers = tape.take("sort_double_buffers", cells * (8 + width))
        tape.free(buffers, pairs)
        tape.free(tape.take("top_k_mask", cells))
        chances = tape.take("sorted_probabilities", cells * width)
        sums = tape.take("cumulated_probabilities", cells * width)
        mask = tape.take("top_p_mask", cells)
        inverse = -1
        if not self.old.float32_logits:
            inverse = tape.take("inverse_indices", cells * 8)
        masked = tape.take("masked_logits", cells * width)
        tape.free(inverse, mask, sums, chances, indices, ordered)
        return masked

    def _softmax(self, name: str, cells: int, width: int) -> int:
        """A softmax in float32; bfloat16 is converted by a kernel of its own first."""
        converted = -1
        if width != 4 and self.inputs.dtype == "bfloat16":
            converted = self.tape.take("converted_logits", cells * 4)
        result = self.tape.take(name, cells * 4)
        self.tape.free(converted)
        return result


def _crosses(layer: Layer) -> bool:
    return any(isinstance(mixer, Attention) and mixer.cross for mixer in layer.mixers)


def _scheme(layer: Layer) -> Scheme | None:
    """The layout of the layer's dense weights, None when they are plain."""
    return next(
        (weight.scheme for weight in layer.weights if weight.scheme and not weight.expert), None
    )
