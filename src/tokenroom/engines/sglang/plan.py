"""How SGLang divides memory for one deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tokenroom.engines.policy import Deployment, KVGroup, Notice, Refusal, StageMemory
from tokenroom.engines.sglang.cells import Cell
from tokenroom.engines.sglang.compressed import is_compressed
from tokenroom.engines.sglang.pools import TokenPools
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.runtime_memory import step_terms
from tokenroom.engines.sglang.states import StatePool
from tokenroom.engines.sglang.taken import LOADING_BYTES
from tokenroom.memory.activations import terms_bytes
from tokenroom.memory.ledger import Line

_STEP: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePools:
    """What one pipeline stage has for its pools and what they take.

    Attributes:
        cells: Its layers.
        free_before_bytes: ``pre_model_load_memory``: free before weights.
        free_after_bytes: Free after weights: ``avail mem`` of "Load weight end", less adapters.
        slack_bytes: Kept out of the pools: ``free_before x (1 - mem_fraction_static)``.
        reserved_bytes: Set aside for multimodal inputs.
        states: The pool of states, None without such layers.
        token_bytes: What is left for token pools.
        pools: The pools that this stage alone would hold.
        draft_bytes_per_token: Cells of the draft's own pool.
    """

    cells: tuple[Cell, ...]
    free_before_bytes: int
    free_after_bytes: int
    slack_bytes: int
    reserved_bytes: int
    states: StatePool | None
    token_bytes: int
    pools: TokenPools
    draft_bytes_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFigures:
    """What the engine's log lines say of one stage, in bytes.

    Attributes:
        avail_before_load_bytes: ``avail mem`` of "Load weight begin".
        avail_after_load_bytes: ``avail mem`` of "Load weight end".
        k_bytes: ``K size``; for latent attention the whole ``KV size``.
        v_bytes: ``V size``, 0 for latent attention.
        avail_after_pool_bytes: ``avail mem`` of "Memory pool end".
        avail_after_graphs_bytes: ``avail mem`` of "Capture cuda graph end".
    """

    avail_before_load_bytes: int
    avail_after_load_bytes: int
    k_bytes: int
    v_bytes: int
    avail_after_pool_bytes: int
    avail_after_graphs_bytes: int


@dataclass(frozen=True, kw_only=True)
class SGLangPlan:
    """See :class:`tokenroom.engines.policy.MemoryPlan`.

    Attributes:
        deployment: What was planned.
        stages: Memory of each pipeline stage.
        parts: Where each stage's pools come from.
        pools: Pools of the deployment: those of the smallest stage.
        running: Requests that run at once in one copy of attention.
        refusal: Why it would not start, None when it does.
        host_pool_bytes: HiCache's pool in host memory a rank, 0 without.
    """

    deployment: Deployment
    stages: tuple[StageMemory, ...]
    parts: tuple[StagePools, ...]
    pools: TokenPools
    running: int
    refusal: Refusal | None
    host_pool_bytes: int

    @property
    def resolved(self) -> ResolvedSettings:
        """The engine's settings."""
        resolved: ResolvedSettings = self.deployment.resolved
        return resolved

    @property
    def _copies(self) -> int:
        return self.resolved.replicas * self.resolved.attention_dp_size

    @property
    def max_model_len(self) -> int:
        """``context_length``."""
        return self.resolved.context_length

    @property
    def max_num_seqs(self) -> int:
        """``max_running_requests`` of all copies."""
        return self.running * self._copies

    @property
    def kv_block_size(self) -> int:
        """``page_size``."""
        return self.resolved.page_size

    @property
    def kv_blocks(self) -> int:
        """Pages of the pool of one copy."""
        return self.pools.max_total_num_tokens // self.resolved.page_size

    @property
    def kv_pool_tokens(self) -> int:
        """``max_total_num_tokens`` of one copy, as printed."""
        return self.pools.max_total_num_tokens

    @property
    def max_concurrency(self) -> float:
        """Requests of ``context_length`` whose tokens one copy's pool holds."""
        return self.pools.max_total_num_tokens / self.resolved.context_length

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]:
        """The pools of the first stage, and its states."""
        page = self.resolved.page_size
        found = [
            KVGroup(
                kind=cell.kind,
                num_layers=cell.num_layers,
                block_size=page,
                page_bytes=page * (cell.key_bytes + cell.value_bytes),
            )
            for cell in self.parts[0].cells
        ]
        return tuple(found)

    @property
    def pool_is_exact(self) -> bool:
        """``--max-total-tokens`` decides, not measured memory."""
        limit = self.resolved.max_total_tokens
        page = self.resolved.page_size
        return limit is not None and self.kv_pool_tokens == limit // page * page

    @cached_property
    def governing(self) -> int:
        """Index of the stage whose pools hold the fewest tokens."""
        tokens = [part.pools.max_total_num_tokens for part in self.parts]
        return tokens.index(min(tokens))

    def log_figures(self, stage: int = 0) -> LogFigures:
        """What the engine prints for a stage."""
        part, memory = self.parts[stage], self.stages[stage]
        page, pools = self.resolved.page_size, self.pools
        keys = values = 0
        for cell in part.cells:
            windowed = cell.kind == "sliding_window" and pools.window_tokens is not None
            tokens = pools.window_tokens if windowed else pools.max_total_num_tokens
            rows = (tokens or 0) + page
            keys += rows * cell.num_layers * cell.key_bytes
            if self.resolved.rules.since(0, 5, 4):  # before, the log left the selector's keys out
                keys += rows * cell.index_bytes
            values += rows * cell.num_layers * cell.value_bytes
        if is_compressed(self.deployment.spec.layers):  # one pool, not a row a token in each layer
            keys, values = memory.kv_pool_bytes, 0
        after_pool = part.free_after_bytes - memory.kv_pool_bytes - memory.buffers_bytes
        late = memory.weights.get("draft", 0) if not self.drafts_loaded_first else 0
        later = memory.non_torch.num_bytes - LOADING_BYTES
        graphs = after_pool - late - later - memory.cuda_graph_actual_bytes
        return LogFigures(
            avail_before_load_bytes=part.free_before_bytes,
            avail_after_load_bytes=part.free_after_bytes,
            k_bytes=keys,
            v_bytes=values,
            avail_after_pool_bytes=after_pool,
            avail_after_graphs_bytes=graphs,
        )

    @property
    def drafts_loaded_first(self) -> bool:
        """Draft weights are loaded, and counted, before the pools are sized."""
        return self.resolved.rules.drafts_loaded_first

    @cached_property
    def engine_figures(self) -> Mapping[str, int]:
        """The figures of the engine's log lines for the stage that decides, by its own names.

        Sizes in bytes; ``avail_mem_*`` are those of "Load weight end", "Memory pool end" and
        "Capture cuda graph end".
        """
        figures = self.log_figures(self.governing)
        found = {
            "max_total_num_tokens": self.kv_pool_tokens,
            "max_running_requests": self.running,
            "k_size": figures.k_bytes,
            "v_size": figures.v_bytes,
            "avail_mem_after_load": figures.avail_after_load_bytes,
            "avail_mem_after_pool": figures.avail_after_pool_bytes,
            "avail_mem_after_graphs": figures.avail_after_graphs_bytes,
        }
        if self.pools.window_tokens is not None:
            found["swa_layer_tokens"] = self.pools.window_tokens
        states = self.parts[self.governing].states
        if states is not None:
            found["max_mamba_cache_size"] = states.slots
            found["mamba_state_size"] = states.num_bytes
        if self.host_pool_bytes:
            found["hicache_host_pool"] = self.host_pool_bytes
        return found

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """What the engine will print, in its own words; nothing when it does not start."""
        if self.refusal is not None:
            return ()
        figures = dict(self.engine_figures)
        found = [
            Notice(
                key="sglang_log",
                values={
                    "tokens": figures["max_total_num_tokens"],
                    "k_bytes": figures["k_size"],
                    "v_bytes": figures["v_size"],
                    "loaded_bytes": figures["avail_mem_after_load"],
                    "pool_bytes": max(0, figures["avail_mem_after_pool"]),
                    "graph_bytes": max(0, figures["avail_mem_after_graphs"]),
                    "running": figures["max_running_requests"],
                },
            )
        ]
        if "swa_layer_tokens" in figures:
            values = {"tokens": figures["swa_layer_tokens"], "full": self.kv_pool_tokens}
            found.append(Notice(key="sglang_window", values=values))
        if "max_mamba_cache_size" in figures:
            values = {
                "slots": figures["max_mamba_cache_size"],
                "state_bytes": figures["mamba_state_size"],
            }
            found.append(Notice(key="sglang_states", values=values))
        if self.host_pool_bytes:
            found.append(
                Notice(key="sglang_host_pool", values={"host_bytes": self.host_pool_bytes})
            )
        return tuple(found)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What this division of memory makes worth knowing."""
        found: list[Notice] = []
        stage = min(self.stages, key=lambda stage: stage.free_bytes)
        if self.refusal is None and stage.free_bytes < 0:
            values: dict[str, object] = {
                "missing_bytes": -stage.free_bytes,
                "fraction": f"{self.safe_fraction:.3f}",
            }
            found.append(Notice(key="sglang_runtime", values=values))
        if self.refusal is None and self.kv_pool_tokens < self.max_model_len:
            values = {"tokens": self.kv_pool_tokens, "length": self.max_model_len}
            found.append(Notice(key="sglang_short_pool", values=values))
        if self._copies > 1:
            found.append(Notice(key="per_replica", values={"replicas": self._copies}))
        return tuple(found)

    @property
    def safe_fraction(self) -> float:
        """A ``mem_fraction_static`` that leaves activations and graphs their room."""
        stage = min(self.stages, key=lambda stage: stage.free_bytes)
        before = self.parts[self.stages.index(stage)].free_before_bytes
        missing = max(0, -stage.free_bytes)
        return max(_STEP, self.resolved.mem_fraction_static - missing / before - _STEP)

    def tokens_of_loaded(self, before_bytes: int, after_bytes: int) -> int | None:
        """Tokens of the pool where that much is free before and after the weights are loaded.

        None for several stages, of which one figure says too little, and where the log's figure is
        not yet less the draft's weights.
        """
        from tokenroom.engines.sglang.stage_pools import pools_of_free  # it fills in this plan

        resolved = self.resolved
        if len(self.parts) > 1 or (self.drafts_loaded_first and "draft" in self.stages[0].weights):
            return None
        part = pools_of_free(self.deployment, 0, before_bytes, after_bytes)
        pools = smallest_pools((part,), resolved.max_total_tokens, resolved.page_size)
        return pools.max_total_num_tokens

    def requests_of(self, tokens: int) -> int:
        """How many requests of that length the pools of all copies hold at once.

        A request holds a slot for each of its tokens in whole pages; in a window pool, its window.
        """
        page = self.resolved.page_size
        rows = -(-max(1, tokens) // page) * page
        count = self.pools.max_total_num_tokens // rows
        window = self._window
        if self.pools.window_tokens is not None and window is not None:
            kept = -(-min(tokens, window) // page) * page + page
            count = min(count, self.pools.window_tokens // kept)
        states = self.parts[self.governing].states
        if states is not None:
            count = min(count, states.max_requests)
        return count * self._copies

    @property
    def _window(self) -> int | None:
        windows = [
            window
            for layer in self.deployment.spec.layers
            for mixer in layer.mixers
            if (window := getattr(mixer, "window", None)) is not None
        ]
        return max(windows, default=None)

    def kv_bytes_of(self, tokens: int) -> int:
        """Bytes that one request of that length holds on the governing stage, state included."""
        page = self.resolved.page_size
        rows = -(-max(1, tokens) // page) * page
        part = self.parts[self.governing]
        held = part.pools.bytes_per_token * rows
        if part.states is not None and part.states.slots:
            held += part.states.num_bytes / part.states.slots * part.states.slots_per_request
        return round(held)

    def activation_bytes_of(self, requests: int) -> int:
        """Transient peak of a step that decodes that many requests."""
        rows = max(1, min(requests, self.running)) * (self.resolved.draft_tokens or 1)
        return terms_bytes(step_terms(self.deployment.spec, self.resolved, rows, rows))

    def max_model_len_that_fits(self) -> int:
        """The longest ``context_length`` that starts and whose requests the pool holds whole.

        The engine starts with any length; requests beyond ``max_total_num_tokens`` are refused.
        """
        if self.refusal is not None:
            return 0
        longest = self.deployment.spec.max_position_embeddings or self.max_model_len
        return min(max(longest, self.max_model_len), self.kv_pool_tokens)

    def explain(self) -> tuple[Line, ...]:
        """The ledger of the governing stage, line by line."""
        from tokenroom.engines.sglang.explain import explain_plan

        return explain_plan(self)


def smallest_pools(parts: Sequence[StagePools], limit: int | None, page_size: int) -> TokenPools:
    """The pools that every stage can hold, at most ``limit`` tokens (``--max-total-tokens``)."""
    least = min(parts, key=lambda part: part.pools.max_total_num_tokens).pools
    tokens = least.max_total_num_tokens
    if limit is not None and limit < tokens:
        tokens = limit // page_size * page_size
    if tokens == least.max_total_num_tokens:
        return least
    window = least.window_tokens
    if least.fixed_bytes:
        window = min(window or 0, tokens)
    elif window is not None and least.max_total_num_tokens:
        window = window * tokens // least.max_total_num_tokens // page_size * page_size
    return replace(least, max_total_num_tokens=tokens, window_tokens=window)
