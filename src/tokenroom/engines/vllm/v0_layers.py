"""What a decoder layer allocates and lets go of when the V0 engine runs it eagerly.

Sources: model_executor/models/{llama,qwen2,mixtral,deepseek_v2}.py, attention/layer.py,
attention/backends/flash_attn.py, model_executor/layers/fused_moe/fused_moe.py,
distributed/parallel_state.py, 0.4.1 to 0.10.2.
"""

from __future__ import annotations

from typing import Final

from tokenroom.engines.vllm.profile_inputs import ProfileInputs
from tokenroom.engines.vllm.v0_kernels import Products
from tokenroom.engines.vllm.v0_rules import PADDED_HEAD, LatentCache, V0Rules
from tokenroom.engines.vllm.v0_tape import Tape
from tokenroom.models.spec import (
    DTYPE_BITS,
    FFN,
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
)

_LLAMA_MLP: Final = frozenset(
    {
        *("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "AquilaForCausalLM"),
        *("AquilaModel", "InternLMForCausalLM", "InternLM3ForCausalLM", "XverseForCausalLM"),
        *("Phi3ForCausalLM", "DeciLMForCausalLM", "GlmForCausalLM", "TeleChat2ForCausalLM"),
        *("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration"),
    }
)
"""Architectures whose feed-forward block is that of model_executor/models/llama.py."""
_EXPERT_CHUNK_TOKENS: Final = 32 * 1024  # VLLM_FUSED_MOE_CHUNK_SIZE (envs.py)


class EagerLayers:
    """The decoder layers of one run."""

    def __init__(
        self,
        spec: ModelSpec,
        inputs: ProfileInputs,
        rules: V0Rules,
        tape: Tape,
        products: Products,
    ) -> None:
        self._spec = spec
        self._rules = rules
        self._tape = tape
        self._products = products
        self._tokens = inputs.max_num_batched_tokens
        self._width = DTYPE_BITS[inputs.dtype] // 8
        self._hidden = self._tokens * spec.hidden_size * self._width
        self._ranks = inputs.tensor_parallel_size

    def layer(self, layer: Layer, hidden: int, residual: int) -> tuple[int, int]:
        """One decoder layer; the model's loop holds the layer's input until it returns."""
        tape = self._tape
        given = hidden
        if residual < 0:
            residual, given = hidden, -1
            hidden = tape.take("normed", self._hidden)
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
        tape, multiply, hidden = self._tape, self._products.multiply, self._spec.hidden_size
        output = -1
        for mixer in layer.mixers:
            tape.free(output)
            if isinstance(mixer, Attention):
                queries = max(1, mixer.num_heads // self._ranks) * mixer.head_dim
                keys = max(1, mixer.num_kv_heads // self._ranks) * mixer.head_dim
                values = queries
                projected = multiply(layer, "queries_keys_values", queries + 2 * keys, hidden)
                expanded = -1
            elif isinstance(mixer, LatentAttention):
                queries, values, besides = self._latent(mixer)
                latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
                projected = multiply(layer, "queries_latent", queries + latent, hidden)
                expanded = tape.take("expanded_keys_values", self._products.rows(besides))
            else:
                inner = mixer.num_heads * (mixer.state_shape[0] if mixer.state_shape else 0)
                queries = values = max(inner, mixer.conv_dim) // self._ranks
                projected = multiply(layer, "projected", 2 * queries, hidden)
                expanded = tape.take("convolved", self._products.rows(queries))
            attended = tape.take("attention_output", self._products.rows(values))
            if self._rules.copies_attention:
                tape.free(tape.take("attention_copy", self._products.rows(values)))
            tape.free(expanded)
            output = multiply(layer, "projected_output", hidden, values)
            output = self._reduced(output)
            tape.free(projected, attended)
        return output

    def _latent(self, mixer: LatentAttention) -> tuple[int, int, int]:
        """Elements a token of latent attention's queries, output, and all else it expands.

        A prompt is attended to with every head's keys and values (models/deepseek_v2.py; from
        0.7.1 on attention/backends/mla/). Values are padded to the keys' width; before, queries,
        keys and values all were padded to the width of a head in the cache.
        """
        heads = max(1, mixer.num_heads // self._ranks)
        head = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        each = heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
        if self._rules.latent_cache is LatentCache.PADDED_HEADS:
            return heads * head, heads * PADDED_HEAD, each + heads * (head + 3 * PADDED_HEAD)
        return heads * head, heads * mixer.v_head_dim, each + 2 * heads * head

    def _ffn(self, layer: Layer, ffn: FFN) -> int:
        if isinstance(ffn, MoEFFN):
            return self._experts(layer, ffn)
        tape = self._tape
        inner = -(-ffn.intermediate_size // self._ranks)
        up = self._products.multiply(
            layer, "gate_up", inner * (2 if ffn.gated else 1), self._spec.hidden_size
        )
        activated = tape.take("activated", self._products.rows(inner))
        drops = self._rules.llama_drops_gate_up and self._spec.architecture in _LLAMA_MLP
        if drops:
            tape.free(up)
        output = self._reduced(
            self._products.multiply(layer, "ffn_output", self._spec.hidden_size, inner)
        )
        tape.free(activated, -1 if drops else up)
        return output

    def _experts(self, layer: Layer, ffn: MoEFFN) -> int:
        """``fused_experts``: its buffers are allocated together."""
        tape, hidden = self._tape, self._spec.hidden_size
        chunk = min(self._tokens, _EXPERT_CHUNK_TOKENS) * ffn.experts_per_token * self._width
        inner = -(-ffn.intermediate_size // self._ranks)
        logits = tape.take("router_logits", self._tokens * ffn.num_experts * 4)
        shared = -1
        if ffn.shared_intermediate_size:
            wide = -(-ffn.shared_intermediate_size // self._ranks)
            up = self._products.multiply(layer, "shared_gate_up", 2 * wide, hidden)
            activated = tape.take("shared_activated", self._products.rows(wide))
            shared = self._products.multiply(layer, "shared_output", hidden, wide)
            tape.free(up, activated)
        if self._rules.shares_expert_buffers:
            buffers = [tape.take("expert_products", chunk * max(2 * inner, hidden))]
        else:
            buffers = [
                tape.take("expert_gate_up", chunk * 2 * inner),
                tape.take("expert_outputs", chunk * hidden),
            ]
        buffers.append(tape.take("expert_activated", chunk * inner))
        output = tape.take("experts_output", self._hidden)
        tape.free(*buffers)
        if shared > 0:
            total = tape.take("sum_with_shared", self._hidden)
            tape.free(output, shared)
            output = total
        output = self._reduced(output)
        tape.free(logits)
        return output

    def _reduced(self, output: int) -> int:
        """After the all-reduce."""
        if self._ranks == 1 or not self._rules.copies_all_reduce:
            return output
        reduced = self._tape.take("reduced", self._hidden)
        self._tape.free(output)
        return reduced
