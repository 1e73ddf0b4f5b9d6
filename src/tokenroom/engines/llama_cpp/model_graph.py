"""The compute graph of one micro-batch, layer by layer, as llama.cpp builds it.

Follows ``llm_graph_context`` (``src/llama-graph.cpp``) and the graphs in ``src/models/`` of
llama.cpp 0c1e57098. Which parts a block has is told by its tensors and mixers; the few traits that
they do not tell (kind of norm, parallel blocks, where outputs are picked) are listed here by model
type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenroom.engines.llama_cpp.caches import CacheLayout, LayerCache, absorbs
from tokenroom.engines.llama_cpp.placement import Placement
from tokenroom.engines.llama_cpp.tensor_graph import Graph, Tensor, contiguous_strides
from tokenroom.engines.llama_cpp.tensors import GgufTensor, ModelTensors
from tokenroom.engines.llama_cpp.versions import VersionRules
from tokenroom.models.spec import (
    Attention,
    LatentAttention,
    Layer,
    ModelSpec,
    MoEFFN,
    Recurrent,
)

#: Models with LayerNorm, which ggml does not compute in place (``LLM_NORM`` in ``src/models``).
_LAYER_NORM: Final = frozenset(
    {"bloom", "chameleon", "codeshell", "cohere2", "cohere", "dbrx", "falcon", "gpt2", "gpt_neox"}
    | {"jais", "mpt", "nemotron", "olmo", "orion", "phi", "stablelm", "gpt_bigcode", "starcoder2"}
)
#: Attention and FFN read the same norm and are added together.
_PARALLEL: Final = frozenset({"cohere", "cohere2", "falcon", "phi", "gpt_neox", "gptj"})
#: Outputs are picked after the last block, whose state is an output too (``h_nextn``).
_PICK_LATE: Final = frozenset({"gpt_oss", "step3p5"})
#: Outputs are picked even after the last norm.
_PICK_NORMED: Final = frozenset(
    {"gemma4_text", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}
    | {"nemotron_h"}
)
#: Positions have four parts each.
_MULTIMODAL_ROPE: Final = frozenset(
    {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_text", "qwen3_vl_moe_text"}
    | {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "paddleocr"}
)
#: The residual comes first where the two are added: that decides which memory is reused.
_RESIDUAL_FIRST: Final = frozenset({"jamba", "openelm", "lfm2", "lfm2_moe"})
_RESIDUAL_FIRST_AFTER_FFN: Final = frozenset({"jamba", "phi3", "lfm2", "lfm2_moe"})
#: Embeddings are scaled, into a tensor of their own since the input may be kept.
_SCALED: Final = frozenset(
    {"gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "granite", "granitemoe"}
    | {"minicpm", "minicpm3", "afmoe", "grok-1", "granitemoehybrid"}
)
#: Routers of which the weights are the probabilities themselves, divided by their sum.
_NORMED_ROUTER: Final = frozenset(
    {"qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text", "mixtral", "glm4_moe", "phimoe"}
    | {"deepseek_v3", "deepseek_v32", "kimi_k2", "dots1", "ernie4_5_moe", "minimax_m2", "lfm2_moe"}
    | {"qwen3_vl_moe", "glm_moe_dsa", "bailing_moe", "hunyuan_v1_moe", "granitemoe", "kimi_linear"}
    | {"nemotron_h", "dbrx", "grok-1", "smallthinker", "exaone_moe"}
)
#: Routers that take the softmax over the chosen experts only (gpt-oss).
_LATE_SOFTMAX: Final = frozenset({"gpt_oss"})
#: Heads whose width takes a rotation by a Hadamard matrix when the cache is quantised.
_HADAMARD: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one graph is built for.

    Attributes:
        tokens: Tokens of the micro-batch, a multiple of the sequences.
        sequences: Sequences they belong to.
        outputs: Tokens whose logits are wanted.
    """

    tokens: int
    sequences: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInputs:
    """The model and the context that a graph is built from.

    Attributes:
        spec: The model.
        tensors: Its weights.
        placement: Where they lie.
        caches: The caches.
        layers: Indices of the blocks to build, in order: alike ones may be left out.
        type_k: ggml type of keys.
        type_v: ggml type of values.
        flash_attn: Whether flash attention is on.
        kv_offload: Caches follow their block's device instead of lying on the host.
        rules: What holds in this build.
    """

    spec: ModelSpec
    tensors: ModelTensors
    placement: Placement
    caches: CacheLayout
    layers: tuple[int, ...]
    type_k: str
    type_v: str
    flash_attn: bool
    kv_offload: bool
    rules: VersionRules


class GraphBuilder:
    """Builds one graph; ``pinned`` collects the nodes that llama.cpp puts on a device itself."""

    def __init__(self, inputs: GraphInputs, batch: Batch) -> None:
        self.inputs = inputs
        self.batch = batch
        self.graph = Graph()
        self.pinned: list[tuple[Tensor, int]] = []
        self.spec = inputs.spec
        self._host = inputs.placement.host
        self._masks: dict[str, Tensor] = {}
        self._indices: dict[str, tuple[Tensor, Tensor]] = {}
        self._rotations: dict[tuple[bool, str, int], Tensor] = {}
        self._state_copy: Tensor | None = None
        self._layer_norm = self.spec.model_type in _LAYER_NORM
        self._pins_norms = batch.tokens < 32 or _fully_offloaded(inputs.placement)

    # The whole model.

    def build(self) -> Graph:
        """The graph of the model."""
        g, spec, batch = self.graph, self.spec, self.batch
        hidden = spec.hidden_size
        tokens = g.input("i32", batch.tokens)
        embedding = self._stored(self.inputs.tensors.embedding, self._input_device())
        current = g.expand(g.get_rows(embedding, tokens))
        if self.inputs.rules.takes_embeddings:
            g.expand(g.input("f32", hidden, batch.tokens))
        if spec.model_type in _SCALED:
            current = g.apply("scale", current)
        multimodal = spec.model_type in _MULTIMODAL_ROPE or any(
            table.multimodal for table in spec.rotary
        )
        self.positions = g.input("i32", batch.tokens * (4 if multimodal else 1))
        self.rotates = bool(spec.rotary)
        outputs = g.input("i32", batch.outputs)
        late, normed = spec.model_type in _PICK_LATE, spec.model_type in _PICK_NORMED
        last = spec.num_layers - 1
        for index in self.inputs.layers:
            picks = outputs if index == last and not (late or normed) else None
            current = self._block(index, current, picks)
        if late:
            current.is_output = True
            current = g.get_rows(current, outputs)
        current = self.norm(current, self.inputs.tensors.after.get("output_norm"), None)
        current.is_output = True
        if normed:
            current = g.get_rows(current, outputs)
            current.is_output = True
        head = self.inputs.tensors.after.get("output")
        output_device = self.inputs.placement.output_device
        stored = self._stored(
            head if head is not None else self.inputs.tensors.embedding, output_device
        )
        logits = g.mul_mat(stored, current)
        if spec.logits_softcap:
            for op in ("scale", "unary", "scale"):
                logits = g.apply(op, logits)
        logits.is_output = True
        g.expand(logits)
        return g

    def _block(self, index: int, current: Tensor, picks: Tensor | None) -> Tensor:
        layer = self.spec.layers[index]
        g = self.graph
        weights = self.inputs.tensors.blocks[index]
        residual = current
        if not layer.mixers:  # an FFN-only block of a hybrid
            normed = self.norm(current, weights.get("attn_norm"), index)
            if picks is not None:
                normed, residual = g.get_rows(normed, picks), g.get_rows(residual, picks)
            return g.apply("add", self._ffn(index, layer, normed), residual)
        first_norm = weights.get("attn_norm")
        normed = self.norm(current, first_norm, index) if first_norm is not None else current
        mixed = self._mix(index, layer, normed)
        parallel = self.spec.model_type in _PARALLEL
        ffn_input = normed
        if picks is not None:
            mixed, residual = g.get_rows(mixed, picks), g.get_rows(residual, picks)
            if parallel:
                ffn_input = g.get_rows(ffn_input, picks)
        if layer.ffn is None:
            return g.apply("add", mixed, residual)
        if parallel:
            added = g.apply("add", self._ffn(index, layer, ffn_input), residual)
            return g.apply("add", added, mixed)
        if "post_attention_norm" in weights and "ffn_norm" in weights:
            mixed = self.norm(mixed, weights["post_attention_norm"], index)
        first = self.spec.model_type in _RESIDUAL_FIRST
        summed = g.apply("add", *((residual, mixed) if first else (mixed, residual)))
        second = weights.get("ffn_norm") or weights.get("post_attention_norm")
        ffn = self._ffn(index, layer, self.norm(summed, second, index) if second else summed)
        if "post_ffw_norm" in weights:
            ffn = self.norm(ffn, weights["post_ffw_norm"], None)
        first = self.spec.model_type in _RESIDUAL_FIRST_AFTER_FFN
        return g.apply("add", *((summed, ffn) if first else (ffn, summed)))

    def _mix(self, index: int, layer: Layer, normed: Tensor) -> Tensor:
        from tokenroom.engines.llama_cpp.recurrent_graph import recurrent

        mixed: list[Tensor] = []
        for mixer in layer.mixers:
            if isinstance(mixer, Recurrent):
                mixed.append(recurrent(self, index, mixer, normed))
            elif isinstance(mixer, LatentAttention):
                mixed.append(self._latent(index, mixer, normed))
            else:
                mixed.append(self._attention(index, mixer, normed))
        result = mixed[0]
        for other in mixed[1:]:
            result = self.graph.apply("add", result, other)
        return result

    # Attention.

    def _attention(self, index: int, mixer: Attention, normed: Tensor) -> Tensor:
        g, tokens = self.graph, self.batch.tokens
        weights = self.inputs.tensors.blocks[index]
        query_width = mixer.num_heads * mixer.head_dim
        key_width = mixer.num_kv_heads * mixer.head_dim
        query_heads = (mixer.head_dim, mixer.num_heads, tokens)
        key_heads = (mixer.head_dim, mixer.num_kv_heads, tokens)
        value_heads = (mixer.value_head_dim, mixer.num_kv_heads, tokens)
        gate = None
        key: Tensor | None
        value: Tensor | None
        if "attn_qkv" in weights:
            fused = self.linear(index, "attn_qkv", normed)
            element = 4
            row = fused.ne[0] * element

            def part(heads: tuple[int, int, int]) -> Tensor:
                strides = (element, heads[0] * element, row, row * tokens)
                return g.view(fused, heads, strides)

            query, key, value = part(query_heads), part(key_heads), part(value_heads)
        else:
            projected = self.linear(index, "attn_q", normed)
            key = value = None
            if "attn_k" in weights:
                key = self.linear(index, "attn_k", normed)
                value = self.linear(index, "attn_v", normed) if "attn_v" in weights else key
            if projected.ne[0] == 2 * query_width:  # query and gate, head by head (Qwen3-Next)
                row = projected.ne[0] * 4
                strides = (4, 2 * mixer.head_dim * 4, row, row * tokens)
                whole = g.reshape(projected, 2 * mixer.head_dim, mixer.num_heads, tokens)
                query = g.view(whole, query_heads, strides)
                gate = g.view(whole, query_heads, strides)
            else:
                query = g.reshape(projected, *query_heads)
            if key is not None and value is not None:
                key, value = g.reshape(key, *key_heads), g.reshape(value, *value_heads)
        query = self._head_norm(index, query, "attn_q_norm")
        if key is not None:
            key = self._head_norm(index, key, "attn_k_norm")
        if self.rotates:
            query = g.apply("rope", query, self.positions)
            if key is not None:
                key = g.apply("rope", key, self.positions)
        cache = self.inputs.caches.of(index)
        assert cache is not None
        sinks = weights.get("attn_sinks")
        mixed = self._attend(
            index,
            cache,
            query,
            key,
            value,
            value_dim=mixer.value_head_dim,
            kv_heads=mixer.num_kv_heads,
            sinks=None if sinks is None else self._stored_of(index, sinks),
        )
        if gate is not None:
            opened = g.apply("unary", g.cont(gate, query_width, tokens))
            mixed = g.apply("mul", mixed, opened)
        assert key_width  # a block with keys
        return self.linear(index, "attn_output", mixed)

    def _head_norm(self, index: int, heads: Tensor, stem: str) -> Tensor:
        weight = self.inputs.tensors.blocks[index].get(stem)
        return heads if weight is None else self.norm(heads, weight, index)

    def _latent(self, index: int, mixer: LatentAttention, normed: Tensor) -> Tensor:
        g, tokens = self.graph, self.batch.tokens
        weights = self.inputs.tensors.blocks[index]
        nope, rope = mixer.qk_nope_head_dim, mixer.qk_rope_head_dim
        rank, heads = mixer.kv_lora_rank, mixer.num_heads
        if "attn_q_a" in weights:
            query = self.linear(index, "attn_q_a", normed)
            query = self._head_norm(index, query, "attn_q_a_norm")
            query = self.linear(index, "attn_q_b", query)
        else:
            query = self.linear(index, "attn_q", normed)
        query = g.reshape(query, nope + rope, heads, tokens)
        compressed = self.linear(index, "attn_kv_a_mqa", normed)
        row = (rank + rope) * 4
        latent = g.view(compressed, (rank, tokens), (4, row, row * tokens, row * tokens))
        key_rope = g.view(compressed, (rope, 1, tokens), (4, row, row, row * tokens))
        key_rope = g.apply("rope", key_rope, self.positions)
        latent = self._head_norm(index, latent, "attn_kv_a_norm")
        head_row = (nope + rope) * 4
        token_row = head_row * heads
        cache = self.inputs.caches.of(index)
        assert cache is not None
        if absorbs(self.spec, index):
            strides = (4, head_row, token_row, token_row * tokens)
            query_nope = g.view(query, (nope, heads, tokens), strides)
            query_rope = g.view(query, (rope, heads, tokens), strides)
            query_rope = g.apply("rope", query_rope, self.positions)
            up = self._stored_of(index, weights["attn_k_b"])
            absorbed = g.mul_mat(up, g.permute(query_nope, 0, 2, 1, 3))
            whole = g.concat(g.permute(absorbed, 0, 2, 1, 3), query_rope)
            latent = g.reshape(latent, rank, 1, tokens)
            key = g.concat(latent, key_rope)
            mixed = self._attend(
                index,
                cache,
                whole,
                key,
                latent,
                value_dim=rank,
                kv_heads=1,
                expand_value=self._stored_of(index, weights["attn_v_b"]),
            )
        else:
            both = self.linear(index, "attn_kv_b", latent)
            width = (nope + mixer.v_head_dim) * 4
            strides = (4, width, width * heads, width * heads * tokens)
            key_nope = g.view(both, (nope, heads, tokens), strides)
            value = g.cont(g.view(both, (mixer.v_head_dim, heads, tokens), strides))
            query = g.apply("rope", query, self.positions)
            repeated = g.new("repeat", "f32", (rope, heads, tokens, 1), key_rope)
            key = g.concat(key_nope, repeated)
            mixed = self._attend(
                index, cache, query, key, value, value_dim=mixer.v_head_dim, kv_heads=heads
            )
        return self.linear(index, "attn_output", mixed)

    def _attend(
        self,
        index: int,
        cache: LayerCache,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        *,
        value_dim: int,
        kv_heads: int,
        sinks: Tensor | None = None,
        expand_value: Tensor | None = None,
    ) -> Tensor:
        """``build_attn``: write to the cache, then ``build_attn_mha``."""
        g, inputs, batch = self.graph, self.inputs, self.batch
        head_dim, heads, tokens = query.ne[0], query.ne[1], query.ne[2]
        latent = cache.kind == "mla"
        transposed = inputs.caches.value_transposed and not latent
        rotate_key = rotate_value = None
        if not latent and inputs.rules.rotates_caches:
            rotate_key = self._rotation(cache, "k", inputs.type_k, head_dim)
            rotate_value = self._rotation(cache, "v", inputs.type_v, value_dim)
            if rotate_key is not None:
                query = self._hadamard(query, rotate_key)
                key = None if key is None else self._hadamard(key, rotate_key)
            if rotate_value is not None and value is not None:
                value = self._hadamard(value, rotate_value)
        windowed = bool(inputs.caches.window_cells)
        g.expand(query)
        order = (key, value) if windowed else (value, key)
        for tensor in order:
            if tensor is not None:
                g.expand(tensor)
        place = self._cache_device(cache.layer)
        cells, streams = cache.cells, cache.streams
        keys = g.stored(inputs.type_k, (cache.key_width, cells, streams), place, weight=False)
        key_ids = value_ids = None
        if inputs.rules.indexed_writes:
            key_ids, value_ids = self._index_inputs(cache)
        if key is not None:
            flat = g.view(key, (cache.key_width, tokens))
            table = g.reshape(keys, cache.key_width, cells * streams) if streams > 1 else keys
            g.expand(self._write(table, flat, key_ids))
        values = keys
        if not latent:
            values = g.stored(
                inputs.type_v, (cache.value_width, cells, streams), place, weight=False
            )
            if value is not None:
                self._store_values(cache, values, value, value_ids, transposed)
        mask = self._mask(cache)
        per_stream = tokens // streams
        own = query.strides or contiguous_strides("f32", query.ne)
        query = g.view(
            query,
            (head_dim, heads, per_stream, streams),
            (own[0], own[1], own[2], own[2] * per_stream),
        )
        query = g.permute(query, 0, 2, 1, 3)
        key_view = g.permute(g.view(keys, (head_dim, kv_heads, cells, streams)), 0, 2, 1, 3)
        if inputs.flash_attn:
            value_view = g.view(
                key_view if latent else values, (value_dim, kv_heads, cells, streams)
            )
            value_view = g.permute(value_view, 0, 2, 1, 3)
            sources = (query, g.half(key_view), g.half(value_view), mask)
            mixed = Tensor(
                "flash_attn",
                "f32",
                (value_dim, heads, per_stream, streams),
                sources if sinks is None else (*sources, sinks),
            )
            mixed.batch = per_stream
            if expand_value is not None:
                mixed = g.mul_mat(expand_value, g.permute(mixed, 0, 2, 1, 3))
                mixed = g.cont(g.permute(mixed, 0, 2, 1, 3))
            mixed = g.reshape(mixed, mixed.ne[0] * mixed.ne[1], mixed.ne[2] * mixed.ne[3])
        else:
            scores = g.mul_mat(key_view, query)
            scores = g.apply("soft_max", scores, mask, *(() if sinks is None else (sinks,)))
            if transposed:
                value_view = g.view(values, (cells, value_dim, kv_heads, streams))
            else:
                value_view = g.view(keys, (value_dim, cells, kv_heads, streams))
                value_view = g.cont(g.transpose(value_view))
            mixed = g.mul_mat(value_view, scores)
            if expand_value is not None:
                mixed = g.mul_mat(expand_value, mixed)
            mixed = g.cont(g.permute(mixed, 0, 2, 1, 3), mixed.ne[0] * heads, batch.tokens)
            if not inputs.kv_offload:
                self.pinned.append((mixed, self._host))
        g.expand(mixed)
        if rotate_value is not None:
            mixed = self._hadamard(mixed, rotate_value)
        return mixed

    def _write(self, table: Tensor, rows: Tensor, ids: Tensor | None) -> Tensor:
        """Rows into a cache: by their indices, or next to each other in early builds."""
        g = self.graph
        if ids is not None:
            return g.set_rows(table, rows, ids)
        return g.copy(rows, g.view(table, (rows.ne[0], rows.ne[1])))

    def _store_values(
        self,
        cache: LayerCache,
        values: Tensor,
        value: Tensor,
        ids: Tensor | None,
        transposed: bool,
    ) -> None:
        g, tokens = self.graph, self.batch.tokens
        width = value.ne[0] * value.ne[1]
        cells = cache.cells * cache.streams
        if not transposed:
            flat = g.view(value, (width, tokens))
            table = g.reshape(values, cache.value_width, cells) if cache.streams > 1 else values
            g.expand(self._write(table, flat, ids))
            return
        if ids is None:
            g.expand(self._write(values, g.transpose(g.view(value, (width, tokens))), None))
            return
        contiguous = value.strides is None
        flat = g.reshape(value, width, tokens) if contiguous else g.cont(value, width, tokens)
        if width < cache.value_width:
            flat = g.new("pad", "f32", (cache.value_width, tokens, 1, 1), flat)
        table = g.reshape(values, 1, cache.value_width * cells)
        rows = g.reshape(flat, 1, cache.value_width * tokens)
        g.expand(g.set_rows(table, rows, ids))

    def _index_inputs(self, cache: LayerCache) -> tuple[Tensor, Tensor]:
        kind = "window" if cache.kind == "sliding_window" else "full"
        if kind not in self._indices:
            tokens = self.batch.tokens
            widest = max(
                (
                    item.value_width
                    for item in self.inputs.caches.layers
                    if item.kind != "recurrent"
                ),
                default=0,
            )
            rows = tokens * widest if self.inputs.caches.value_transposed else tokens
            self._indices[kind] = (
                self.graph.input("i64", tokens),
                self.graph.input("i64", max(rows, 1)),
            )
        return self._indices[kind]

    def _mask(self, cache: LayerCache) -> Tensor:
        kind = "window" if cache.kind == "sliding_window" else "full"
        if kind not in self._masks:
            self._masks[kind] = self.graph.input(
                "f16" if self.inputs.flash_attn else "f32",
                cache.cells,
                self.batch.tokens // cache.streams,
                1,
                cache.streams,
            )
        return self._masks[kind]

    def _rotation(self, cache: LayerCache, which: str, kind: str, head_dim: int) -> Tensor | None:
        """Quantised caches are rotated by a Hadamard matrix (``build_input_k_rot``)."""
        if kind in ("f32", "f16", "bf16") or head_dim % _HADAMARD:
            return None
        size = _HADAMARD
        while which == "k" and head_dim % (2 * size) == 0:
            size *= 2
        key = (cache.kind == "sliding_window", which, size)
        if key not in self._rotations:
            self._rotations[key] = self.graph.input("f32", size, size)
        return self._rotations[key]

    def _hadamard(self, current: Tensor, rotation: Tensor) -> Tensor:
        g = self.graph
        size = rotation.ne[0]
        elements = current.ne[0] * current.ne[1] * current.ne[2] * current.ne[3]
        flat = (
            g.reshape(current, size, elements // size)
            if current.strides is None
            else g.cont(current, size, elements // size)
        )
        return g.reshape(g.mul_mat(rotation, flat), *current.ne)

    # Feed-forward.

    def _ffn(self, index: int, layer: Layer, normed: Tensor) -> Tensor:
        weights = self.inputs.tensors.blocks[index]
        if isinstance(layer.ffn, MoEFFN):
            routed = self._experts(index, layer.ffn, normed)
            dense = next((f"ffn_{{}}{s}" for s in ("_shexp", "") if f"ffn_up{s}" in weights), None)
            if dense is None:
                return routed
            shared = self._dense(index, normed, dense)
            if "ffn_gate_inp_shexp" in weights:
                gate = self.linear(index, "ffn_gate_inp_shexp", normed)
                shared = self.graph.apply("mul", shared, self.graph.apply("unary", gate))
            return self.graph.apply("add", routed, shared)
        return self._dense(index, normed, "ffn_{}")

    def _dense(self, index: int, normed: Tensor, name: str) -> Tensor:
        g = self.graph
        weights = self.inputs.tensors.blocks[index]
        down = name.format("down")
        up = self.linear(index, name.format("up"), normed)
        if name.format("gate") in weights:
            activated = g.glu(self.linear(index, name.format("gate"), normed), up)
        elif weights[down].sizes[0] * 2 == up.ne[0]:  # gate and up in one matrix
            activated = g.new("glu", "f32", (up.ne[0] // 2, *up.ne[1:]), up)
        else:
            activated = g.apply("unary", up)
            if self.spec.model_type in ("nemotron", "nemotron_h", "arcee"):
                activated = g.apply("sqr", activated)  # squared ReLU
        return self.linear(index, down, activated)

    def _experts(self, index: int, ffn: MoEFFN, normed: Tensor) -> Tensor:
        """``build_moe_ffn``."""
        g = self.graph
        tokens, used = normed.ne[1], ffn.experts_per_token
        weights = self.inputs.tensors.blocks[index]
        logits = self.linear(index, "ffn_gate_inp", normed)
        late = self.spec.model_type in _LATE_SOFTMAX
        sigmoid = "exp_probs_b" in weights or self.spec.model_type == "llama4_text"
        probs = logits if late else g.apply("unary" if sigmoid else "soft_max", logits)
        choose = probs
        if "exp_probs_b" in weights:
            bias = self._stored_of(index, weights["exp_probs_b"])
            choose = g.apply("add", probs, bias)
        ranked = Tensor("argsort", "i32", choose.ne, (choose,))
        row = ranked.ne[0] * 4
        chosen = g.view(ranked, (used, tokens), (4, row, row * tokens, row * tokens))
        share = g.get_rows(g.reshape(probs, 1, probs.ne[0], tokens), chosen)
        if late:
            flat = g.apply("soft_max", g.reshape(share, used, tokens))
            share = g.reshape(flat, 1, used, tokens)
        if self.spec.model_type in _NORMED_ROUTER:
            flat = g.reshape(share, used, tokens)
            total = g.new("sum_rows", "f32", (1, tokens, 1, 1), flat)
            total = g.apply("clamp", total)
            share = g.reshape(g.apply("div", flat, total), 1, used, tokens)
        g.expand(share)
        spread = g.reshape(normed, normed.ne[0], 1, tokens)
        if self.spec.model_type == "llama4_text":
            repeated = g.new("repeat", "f32", (normed.ne[0], used, tokens, 1), spread)
            spread = g.apply("mul", repeated, share)
        if "ffn_gate_up_exps" in weights:
            both = self._through(index, "ffn_gate_up_exps", spread, chosen)
            half = both.ne[0] // 2
            own = contiguous_strides("f32", both.ne)
            gate = g.view(both, (half, used, tokens), own)
            up = g.view(both, (half, used, tokens), own)
            activated = g.glu(gate, up)
            activated.strides = None
        else:
            up = self._through(index, "ffn_up_exps", spread, chosen)
            if "ffn_gate_exps" in weights:
                activated = g.glu(self._through(index, "ffn_gate_exps", spread, chosen), up)
            else:
                activated = g.apply("unary", up)
                if self.spec.model_type == "nemotron_h":
                    activated = g.apply("sqr", activated)
        experts = self._through(index, "ffn_down_exps", activated, chosen)
        if self.spec.model_type != "llama4_text":
            experts = g.apply("mul", experts, share)
            experts.name = "weighted_experts"
        g.expand(experts)
        hidden = experts.ne[0]
        row = hidden * used * 4
        parts = [
            g.expand(g.view(experts, (hidden, tokens), (4, row, row * tokens, row * tokens)))
            for _ in range(used)
        ]
        total = parts[0]
        for part in parts[1:]:
            summed = Tensor("add", "f32", (hidden, tokens, 1, 1), (total, part))
            total = g.expand(summed)
        return g.cont(total) if used == 1 else total

    def _through(self, index: int, stem: str, current: Tensor, chosen: Tensor) -> Tensor:
        weight = self.inputs.tensors.blocks[index][stem]
        made = self.graph.mul_mat_id(self._stored_of(index, weight), current, chosen)
        if weight.bias_elements:
            bias = self._bias(index, weight)
            made = self.graph.apply("add_id", made, bias, chosen)
        return made

    # Small parts.

    def linear(self, index: int, stem: str, current: Tensor) -> Tensor:
        """A projection with its bias."""
        weight = self.inputs.tensors.blocks[index][stem]
        made = self.graph.mul_mat(self._stored_of(index, weight), current)
        if weight.bias_elements:
            made = self.graph.apply("add", made, self._bias(index, weight))
        return made

    def norm(self, current: Tensor, weight: GgufTensor | None, index: int | None) -> Tensor:
        """``build_norm``: normalise, then scale by a weight."""
        made = self.graph.apply("norm" if self._layer_norm else "rms_norm", current)
        if weight is None:
            return made
        device = self.inputs.placement.output_device
        if index is not None:
            device = self.inputs.placement.layer_devices[index]
            if self._pins_norms:
                self.pinned.append((made, device))
        made = self.graph.apply("mul", made, self._stored(weight, device))
        if weight.bias_elements:
            bias = self.graph.stored("f32", (weight.bias_elements,), device, weight=True)
            made = self.graph.apply("add", made, bias)
        return made

    def weight(self, index: int, stem: str) -> Tensor:
        """A tensor of a block as the graph sees it."""
        return self._stored_of(index, self.inputs.tensors.blocks[index][stem])

    def has(self, index: int, stem: str) -> bool:
        """Whether a block has a tensor."""
        return stem in self.inputs.tensors.blocks[index]

    def state_copy(self) -> Tensor:
        """Which rows of the recurrent states are read (``rs_s_copy``)."""
        if self._state_copy is None:
            self._state_copy = self.graph.input("i32", self.inputs.caches.sequences)
        return self.graph.view(self._state_copy, (self.batch.sequences,))

    def state(self, index: int, which: int) -> tuple[Tensor, LayerCache]:
        """The convolution's (0) or the recurrence's (1) states of a block."""
        cache = self.inputs.caches.of(index, "recurrent")
        assert cache is not None
        width = cache.value_width if which else cache.key_width
        place = self._cache_device(index)
        return self.graph.stored("f32", (width, cache.cells), place, weight=False), cache

    def _bias(self, index: int, weight: GgufTensor) -> Tensor:
        device = self.inputs.placement.device_of(index, weight.stem)
        sizes: Sequence[int] = (weight.bias_elements,)
        if weight.is_expert:
            sizes = (weight.bias_elements // weight.sizes[-1], weight.sizes[-1])
        return self.graph.stored("f32", sizes, device, weight=True)

    def _stored_of(self, index: int, weight: GgufTensor) -> Tensor:
        return self._stored(weight, self.inputs.placement.device_of(index, weight.stem))

    def _stored(self, weight: GgufTensor, device: int) -> Tensor:
        return self.graph.stored(weight.kind, weight.sizes, device, weight=True)

    def _input_device(self) -> int:
        return self._host

    def _cache_device(self, index: int) -> int:
        return self.inputs.placement.layer_devices[index] if self.inputs.kv_offload else self._host


def _fully_offloaded(placement: Placement) -> bool:
    return placement.rules.n_gpu_layers > len(placement.layer_devices)
