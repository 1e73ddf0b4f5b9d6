"""SGLang's memory policy: from resolved settings to token pools and what is left beside them.

``rest = avail_after_load - free_before_load x (1 - mem_fraction_static)`` becomes the pools
(``kv_cache_configurator.py`` ``_profile_available_bytes``); no run measures activations or graphs,
which must live in the share that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final

from tokenroom.engines.own_drafts import own_blocks
from tokenroom.engines.policy import (
    Change,
    Deployment,
    Estimate,
    Notice,
    Refusal,
    Reservation,
    StageMemory,
)
from tokenroom.engines.setting_checks import (
    check_accelerator,
    check_count,
    check_share,
    renamed,
)
from tokenroom.engines.sglang.backends import has_states
from tokenroom.engines.sglang.cells import cells_of
from tokenroom.engines.sglang.compressed import compressed_costs, compressed_pools, is_compressed
from tokenroom.engines.sglang.defaults import parallel_sizes, resolve
from tokenroom.engines.sglang.plan import SGLangPlan, StagePools, smallest_pools
from tokenroom.engines.sglang.pools import (
    has_window_pool,
    max_running_requests,
    token_pools,
    window_cap,
)
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.rules import NEWEST_VERSION, rules_for, version_numbers
from tokenroom.engines.sglang.runtime_memory import graph_memory, prefill_peak, step_terms
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.engines.sglang.states import (
    StateInputs,
    StatePool,
    state_bytes_per_request,
    state_pool,
)
from tokenroom.engines.sglang.taken import (
    LOADING_BYTES,
    context_bytes,
    context_range,
    runtime_memory,
)
from tokenroom.engines.sglang.weights import (
    RankLayout,
    expert_padding,
    rank_weights,
    stage_layers,
)
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.activations import terms_bytes
from tokenroom.models.quantization import dtype_bytes
from tokenroom.models.spec import Attention, Layer, ModelSpec, Role
from tokenroom.units import MIB

_SHARED_NAMES: Final = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "enable_expert_parallel": "enable_ep_moe",
    "max_model_len": "context_length",
    "gpu_memory_utilization": "mem_fraction_static",
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "block_size": "page_size",
    "enforce_eager": "decode_graphs",
}
_COUNTS: Final = frozenset(
    {
        *("tp_size", "pp_size", "dp_size", "ep_size", "attn_dp_size", "context_length"),
        *("max_running_requests", "max_total_tokens", "max_prefill_tokens", "page_size"),
        *("max_mamba_cache_size", "cuda_graph_max_bs", "prefill_graph_max_tokens"),
        *("speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk"),
        *("max_lora_rank", "max_loras_per_batch", "moe_dense_tp_size"),
    }
)
_FIELDS: Final = tuple(item.name for item in fields(SGLangSettings))
_MULTIMODAL_CACHE_BYTES: Final = 100 * MIB
_POSITION_BYTES: Final = 4
_ROW_EXTRA: Final = 4
_VENDORS: Final = frozenset({"nvidia", "amd", "intel", "huawei", "google"})
_LEAST_CAPABILITY: Final = (7, 5)
"""Of the kernels it is built with (sgl-kernel, FlashInfer)."""
_LORA_ROLES: Final = frozenset({Role.LINEAR, Role.ROUTER})


class SGLangPolicy:
    """SGLang, every version from 0.3.6 to the newest known."""

    name: Final = "sglang"
    reserves: Final = (
        Reservation(
            what="token pools",
            when="once, at start, after the weights; no run measures activations first",
            of_what="what was FREE before the weights x mem_fraction_static, less the weights",
            default="mem_fraction_static: what 512 MiB, 1.5 MiB a token of a prefill chunk, "
            "2 MiB a slot of the largest decode graph and 128 MiB a rank leave of the card, at "
            "least 10 GiB left on cards above 60 GiB",
            source="arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py (0.5.23)",
        ),
        Reservation(
            what="pool of window layers",
            when="once, at start, for the architectures that have one",
            of_what="tokens of the full layers' pool x swa_full_tokens_ratio",
            default="swa_full_tokens_ratio 0.8",
            source="model_executor/pool_configurator.py HybridSWAPoolConfigurator (0.5.23)",
        ),
        Reservation(
            what="pool of states (Mamba, linear attention)",
            when="once, at start, before the token pools",
            of_what="the same memory, in the ratio of states to tokens",
            default="mamba_full_memory_ratio 0.9",
            source="mem_cache/kv_cache_configurator.py _handle_max_mamba_cache (0.5.23)",
        ),
        Reservation(
            what="table of requests",
            when="once, at start, with the pools but outside their share",
            of_what="4 bytes for each token of each request that may run",
            default="2048 to 4096 requests of context_length tokens",
            source="mem_cache/memory_pool.py ReqToTokenPool (0.5.23)",
        ),
        Reservation(
            what="activations and CUDA graphs",
            when="graphs after the pools; activations in every step",
            of_what="what mem_fraction_static left free; nothing checks that it is enough",
            default="1 - mem_fraction_static",
            source="model_executor/model_runner.py init_cuda_graphs (0.5.23)",
        ),
        Reservation(
            what="host pool (HiCache)",
            when="once, at start, page-locked",
            of_what="host memory: hicache_ratio x the device pool, or hicache_size",
            default="off; hicache_ratio 2",
            source="arg_groups/hicache_hook.py (0.5.23)",
        ),
    )

    def settings(self, base: SGLangSettings | None, changes: Mapping[str, Any]) -> SGLangSettings:
        """SGLang's settings with some fields set, by its own names or those engines share.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        if "kv_cache_memory_bytes" in changes:
            raise DeploymentError(
                "SGLang takes no size for its KV cache; give mem_fraction_static (--util) or "
                "max_total_tokens"
            )
        found = renamed(changes, _SHARED_NAMES, _FIELDS, "SGLang")
        if "enforce_eager" in changes:
            eager = found["decode_graphs"]
            found["decode_graphs"] = found["prefill_graphs"] = False if eager else None
        if found.get("kv_cache_dtype") == "fp8":
            found["kv_cache_dtype"] = "fp8_e4m3"
        for name, value in found.items():
            if name in _COUNTS:
                check_count(name, value)
            elif name == "mem_fraction_static":
                check_share(name, value)
            elif name in ("cpu_offload_bytes", "hicache_size_bytes"):
                check_count(name, value, least=0)
            elif name == "chunked_prefill_size" and value != -1:
                check_count(name, value)
        settings = base or SGLangSettings()
        return replace(settings, **found) if found else settings

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: SGLangSettings,
        used_bytes: int = 0,
    ) -> Node:
        """As many accelerators as the parallel sizes need.

        Raises:
            DeploymentError: There are fewer.
        """
        tp, pp, dp, attention_dp = parallel_sizes(settings, rules_for(settings.version))
        copies = dp if attention_dp == 1 else 1
        needed = tp * pp * copies
        if count is not None and count < needed:
            raise DeploymentError(
                f"tp_size {tp} x pp_size {pp} x {copies} copies needs {needed} GPUs and there are "
                f"{count}; lower the parallel sizes or give more GPUs"
            )
        return Node(accelerator=accelerator, count=needed, used_bytes=used_bytes)

    def draft_model(self, settings: SGLangSettings) -> str | None:
        """The draft model that speculative decoding loads beside the model."""
        return settings.speculative_draft_model_path

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: SGLangSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting and check it as SGLang does.

        Raises:
            DeploymentError: SGLang would refuse the settings.
        """
        check_accelerator("SGLang", node.accelerator, _VENDORS, _LEAST_CAPABILITY)
        if settings.quantization is not None and spec.quantization is None:
            spec = _loaded_as(spec, settings.quantization)
        if own_blocks(draft, spec):
            draft = None
        resolved = resolve(settings, spec, node)
        return Deployment(
            engine=self.name,
            version=resolved.rules.name,
            spec=spec,
            draft=draft,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
            notices=_notices(settings, resolved, spec, node, draft),
        )

    def plan(self, deployment: Deployment) -> SGLangPlan:
        """Divide the memory of every pipeline stage."""
        resolved: ResolvedSettings = deployment.resolved
        count = resolved.pp_size
        weights = [_weights(deployment, rank) for rank in range(count)]
        parts = tuple(_parts(deployment, rank, weights[rank]) for rank in range(count))
        pools = smallest_pools(parts, resolved.max_total_tokens, resolved.page_size)
        states = [part.states.max_requests for part in parts if part.states is not None]
        running = max_running_requests(
            pools.max_total_num_tokens,
            resolved.context_length,
            resolved.rules,
            asked=resolved.max_running_requests,
            attention_dp_size=resolved.attention_dp_size,
            state_requests=min(states) if states else None,
        )
        if resolved.decode_bs and running:
            slots = tuple(size for size in resolved.decode_bs if size <= running)
            resolved = replace(resolved, decode_bs=slots)
        stages = tuple(
            _stage(deployment, resolved, rank, weights[rank], parts[rank], pools, running)
            for rank in range(count)
        )
        per_token = max(part.pools.bytes_per_token for part in parts)
        host = resolved.hicache_bytes or round(
            resolved.hicache_ratio * pools.max_total_num_tokens * per_token
        )
        return SGLangPlan(
            deployment=deployment,
            stages=stages,
            parts=parts,
            pools=pools,
            running=running,
            refusal=_refusal(deployment, stages, parts, pools.max_total_num_tokens),
            host_pool_bytes=host,
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.sglang.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


SGLANG: Final = SGLangPolicy()


@lru_cache(maxsize=64)
def _loaded_as(spec: ModelSpec, quantization: str) -> ModelSpec:
    """The model in the layout that ``--quantization`` turns it into while loading."""
    from tokenroom.models.quantization.hypothetical import what_if  # costs start-up time

    return what_if(spec, quantization)


def _notices(
    settings: SGLangSettings,
    resolved: ResolvedSettings,
    spec: ModelSpec,
    node: Node,
    draft: ModelSpec | None,
) -> tuple[Notice, ...]:
    found = [Notice(key="unknown_flag", values={"flag": flag}) for flag in settings.unknown_flags]
    if settings.ignored_flags:
        flags = ", ".join(settings.ignored_flags)
        found.append(Notice(key="ignored_flags", values={"flags": flags}))
    accelerator = node.accelerator
    if accelerator.vendor == "nvidia" and accelerator.compute_capability is None:
        found.append(Notice(key="gpu_capability_unknown", values={"gpu": accelerator.name}))
    algorithm = resolved.speculative_algorithm
    if resolved.drafts_with_model and draft is None and not spec.mtp_layers:
        found.append(Notice(key="draft_not_counted", values={"method": algorithm}))
    if settings.torchao_config is not None:
        found.append(Notice(key="sglang_torchao", values={"config": settings.torchao_config}))
    if version_numbers(resolved.rules.name) > version_numbers(NEWEST_VERSION):
        found.append(
            Notice(
                key="version_newer",
                values={
                    "engine": "SGLang",
                    "version": resolved.rules.name,
                    "newest": NEWEST_VERSION,
                },
            )
        )
    return tuple(found)


def layer_partition_of(resolved: ResolvedSettings) -> tuple[int, ...] | None:
    """Blocks of each pipeline stage that ``SGLANG_PP_LAYER_PARTITION`` asks for, None without it.

    Raises:
        DeploymentError: It holds no whole numbers.
    """
    text = resolved.environment.get("SGLANG_PP_LAYER_PARTITION")
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DeploymentError(
            f"SGLANG_PP_LAYER_PARTITION is {shown(text)}; it must hold whole numbers "
            f"separated by commas"
        ) from None


def _layout(resolved: ResolvedSettings, rank: int) -> RankLayout:
    return RankLayout(
        tp=resolved.tp_size,
        pp=resolved.pp_size,
        pp_rank=rank,
        attention_tp=resolved.attention_tp_size,
        dense_tp=resolved.dense_tp_size,
        expert_tp=resolved.tp_size // resolved.ep_size,
        ep=resolved.ep_size,
        head_tp=resolved.head_tp_size,
        embedding_tp=1 if resolved.attention_dp_size > 1 else resolved.tp_size,
        layer_partition=layer_partition_of(resolved),
    )


def _layers(deployment: Deployment, rank: int) -> Sequence[Layer]:
    resolved: ResolvedSettings = deployment.resolved
    spec = deployment.spec
    return [spec.layers[index] for index in stage_layers(spec.num_layers, _layout(resolved, rank))]


def _draft_layers(deployment: Deployment) -> Sequence[Layer]:
    """Layers of the model that drafts; the last stage runs it."""
    resolved: ResolvedSettings = deployment.resolved
    if not resolved.drafts_with_model:
        return ()
    return deployment.draft.layers if deployment.draft is not None else deployment.spec.mtp_layers


def _weights(deployment: Deployment, rank: int) -> dict[str, int]:
    """Weights of a rank by component: the model's, the draft's and adapter slots."""
    resolved: ResolvedSettings = deployment.resolved
    spec, layout = deployment.spec, _layout(resolved, rank)
    padding = expert_padding(deployment.node.accelerator.compute_capability)
    found = dict(
        rank_weights(
            spec,
            layout,
            dtype=resolved.dtype,
            towers=resolved.towers,
            padding=padding,
            cpu_offload_bytes=resolved.cpu_offload_bytes,
        ).components
    )
    if _draft_layers(deployment) and rank == resolved.pp_size - 1:
        alone = replace(layout, pp=1, pp_rank=0, layer_partition=None)
        own = deployment.draft
        found["draft"] = rank_weights(
            own or spec,
            alone,
            dtype=resolved.dtype,
            towers=False,
            mtp=own is None,
            padding=padding,
            shared_ends=resolved.speculative_algorithm != "STANDALONE",
        ).allocated_bytes
    if resolved.max_lora_rank:
        found["lora"] = _lora_bytes(deployment, rank)
    return found


def _lora_bytes(deployment: Deployment, rank: int) -> int:
    """Adapter slots: A and B of the largest rank for every linear layer (``lora/mem_pool.py``)."""
    from tokenroom.memory.weights import kv_heads_of, local_weight

    resolved: ResolvedSettings = deployment.resolved
    elements = 0
    for layer in _layers(deployment, rank):
        for weight in layer.weights:
            if weight.role not in _LORA_ROLES or len(weight.shape) != 2 or weight.expert:
                continue
            local = local_weight(weight, tp=resolved.attention_tp_size, kv_heads=kv_heads_of(layer))
            elements += resolved.max_lora_rank * (local.shape[0] + local.shape[1])
    return elements * resolved.max_loras_per_batch * dtype_bytes(resolved.dtype)


def _parts(deployment: Deployment, rank: int, weights: Mapping[str, int]) -> StagePools:
    """What a stage has for its pools, and the pools it could hold alone."""
    resolved: ResolvedSettings = deployment.resolved
    spec, node = deployment.spec, deployment.node
    rules = resolved.rules
    layers = _layers(deployment, rank)
    accelerator = node.accelerator
    before = (
        accelerator.memory_bytes
        - context_bytes(accelerator, resolved.tp_size, resolved.pp_size)
        - node.used_bytes
    )
    loaded = sum(weights.values())
    if not rules.since(0, 5, 14):
        loaded -= weights.get("draft", 0)
    after = before - loaded - LOADING_BYTES
    slack = round(before * (1 - resolved.mem_fraction_static))
    reserved = 0
    if spec.towers and resolved.towers and rules.since(0, 5, 18):
        reserved = _MULTIMODAL_CACHE_BYTES
    rest = after - slack - reserved
    states = _states(deployment, rest) if has_states(spec) else None
    token_bytes = rest - (states.num_bytes if states is not None else 0)
    cells = cells_of(
        layers,
        resolved.kv_cache_dtype,
        resolved.attention_tp_size,
        rules,
        raw_latents=resolved.raw_latents,
        dtype=resolved.dtype,
    )
    if is_compressed(spec.layers):
        running = resolved.max_running_requests or 0
        whole = not rules.since(0, 5, 13)  # every stage was charged all blocks and the MTP block
        costs = compressed_costs(
            spec.layers if whole else layers,
            rules,
            page_size=resolved.page_size,
            window_ratio=resolved.swa_full_tokens_ratio,
            max_running_requests=max(1, running // resolved.attention_dp_size),
            draft_tokens=resolved.draft_tokens,
            extra_layers=len(spec.mtp_layers) if whole else 0,
        )
        pools = compressed_pools(
            token_bytes,
            costs,
            page_size=resolved.page_size,
            window_ratio=resolved.swa_full_tokens_ratio,
        )
        draft_bytes = 0
    else:
        windowed = has_window_pool(
            spec.architecture, cells, rules, disabled=not resolved.hybrid_swa
        )
        draft_bytes = 0
        drafts = len(_draft_layers(deployment))
        if drafts and rules.since(0, 5, 14) and layers:
            cell = sum(item.num_bytes for item in cells)
            draft_bytes = int(cell * drafts / sum(item.num_layers for item in cells))
        pools = token_pools(
            token_bytes,
            cells,
            page_size=resolved.page_size,
            window_ratio=resolved.swa_full_tokens_ratio if windowed else None,
            window_tokens=_window_tokens(resolved, layers) if windowed else None,
            draft_bytes_per_token=draft_bytes,
        )
    return StagePools(
        cells=cells,
        free_before_bytes=before,
        free_after_bytes=after,
        slack_bytes=slack,
        reserved_bytes=reserved,
        states=states,
        token_bytes=token_bytes,
        pools=pools,
        draft_bytes_per_token=draft_bytes,
    )


def _window_tokens(resolved: ResolvedSettings, layers: Sequence[Layer]) -> int | None:
    """Slots of a window pool sized by what may run, None where the ratio sizes it."""
    asked = resolved.max_running_requests
    drafting = resolved.speculative_algorithm is not None
    chunk = resolved.chunked_prefill_size
    if asked is None or chunk <= 0 or resolved.radix_cache or drafting:
        return None
    if not resolved.rules.since(0, 5, 14):
        return None
    return window_cap(
        page_size=resolved.page_size,
        window=max(
            mixer.window
            for layer in layers
            for mixer in layer.mixers
            if isinstance(mixer, Attention) and mixer.window is not None
        ),
        max_running_requests=asked // resolved.attention_dp_size,
        chunked_prefill_size=chunk,
        overlap=resolved.overlap,
    )


def _states(deployment: Deployment, rest: int) -> StatePool:
    resolved: ResolvedSettings = deployment.resolved
    largest = max(
        state_bytes_per_request(
            _layers(deployment, rank),
            resolved.attention_tp_size,
            state_dtype=resolved.mamba_ssm_dtype,
        )
        for rank in range(resolved.pp_size)
    )
    return state_pool(
        rest,
        StateInputs(
            bytes_per_request=largest,
            ratio=resolved.mamba_full_memory_ratio,
            max_mamba_cache_size=resolved.max_mamba_cache_size,
            max_running_requests=resolved.max_running_requests,
            attention_dp_size=resolved.attention_dp_size,
            radix_cache=resolved.radix_cache,
            extra_buffer=resolved.extra_buffer,
            overlap=resolved.overlap,
            draft_tokens=resolved.draft_tokens,
        ),
        resolved.rules,
    )


def _stage(
    deployment: Deployment,
    resolved: ResolvedSettings,
    rank: int,
    weights: Mapping[str, int],
    part: StagePools,
    pools: Any,
    running: int,
) -> StageMemory:
    spec, node = deployment.spec, deployment.node
    accelerator = node.accelerator
    context = context_bytes(accelerator, resolved.tp_size, resolved.pp_size)
    low, high = context_range(resolved.tp_size, resolved.pp_size)
    driver = runtime_memory(resolved.attention_backend, resolved.tp_size)
    pool_bytes = round(pools.max_total_num_tokens * part.pools.bytes_per_token)
    pool_bytes += part.pools.fixed_bytes
    if part.states is not None:
        pool_bytes += part.states.num_bytes
    if not resolved.rules.since(0, 5, 14):
        drafts = cells_of(
            _draft_layers(deployment),
            resolved.kv_cache_dtype,
            resolved.attention_tp_size,
            resolved.rules,
            raw_latents=resolved.raw_latents,
            dtype=resolved.dtype,
        )
        pool_bytes += pools.max_total_num_tokens * sum(cell.num_bytes for cell in drafts)
    length = resolved.context_length + _ROW_EXTRA + (resolved.draft_tokens or 0)
    decode = max(resolved.decode_bs, default=1) * (resolved.draft_tokens or 1)
    graphs = graph_memory(spec, resolved, len(_layers(deployment, rank)))
    static = round(part.free_before_bytes * resolved.mem_fraction_static)
    return StageMemory(
        pipeline_parallel_rank=rank,
        total_bytes=accelerator.memory_bytes,
        budget_bytes=static,
        context_bytes=context + node.used_bytes,
        weights=weights,
        activation=prefill_peak(spec, resolved),
        activation_decode_bytes=terms_bytes(step_terms(spec, resolved, decode, decode)),
        cuda_graphs=graphs,
        cuda_graph_actual_bytes=graphs.num_bytes,
        non_torch=_with_context_range(driver, low, high),
        buffers_bytes=(running + 1) * length * _POSITION_BYTES,
        available_bytes=part.token_bytes,
        kv_pool_bytes=pool_bytes if part.token_bytes > 0 else 0,
        kv_bytes_per_token=float(part.pools.bytes_per_token),
    )


def _with_context_range(driver: Estimate, low: int, high: int) -> Estimate:
    """The range of what is outside PyTorch, that of the communicators before it included."""
    return replace(
        driver,
        low_bytes=max(0, driver.low_bytes + low),
        high_bytes=driver.high_bytes + high,
    )


def _refusal(
    deployment: Deployment,
    stages: Sequence[StageMemory],
    parts: Sequence[StagePools],
    tokens: int,
) -> Refusal | None:
    """Why it would not start, by the phase in which it would find out."""
    resolved: ResolvedSettings = deployment.resolved
    fraction = resolved.mem_fraction_static
    for stage, part in zip(stages, parts, strict=True):
        if stage.weights_bytes > part.free_before_bytes:
            return Refusal(
                cause="weights_too_big",
                phase="load",
                needed_bytes=stage.weights_bytes + stage.context_bytes,
                available_bytes=stage.total_bytes,
            )
    for part in parts:
        static = part.free_before_bytes - part.slack_bytes
        loaded = part.free_before_bytes - part.free_after_bytes
        states = part.states
        if part.token_bytes <= 0 or (states is not None and states.max_requests < 1):
            wanted = loaded + part.reserved_bytes + (states.num_bytes if states else 0)
            return Refusal(
                cause="static_share_too_small",
                phase="kv_init",
                needed_bytes=max(wanted, static + 1),
                available_bytes=static,
                values={
                    "fraction": f"{fraction:g}",
                    "least": f"{wanted / part.free_before_bytes:.3f}",
                },
            )
    if tokens < resolved.page_size or tokens < 2:
        part = min(parts, key=lambda part: part.token_bytes)
        static = part.free_before_bytes - part.slack_bytes
        return Refusal(
            cause="static_share_too_small",
            phase="kv_init",
            needed_bytes=static + 1,
            available_bytes=static,
            values={
                "fraction": f"{fraction:g}",
                "least": f"{static / part.free_before_bytes + 0.001:.3f}",
            },
        )
    for stage in stages:
        held = (
            stage.context_bytes
            + stage.weights_bytes
            + stage.buffers_bytes
            + stage.non_torch.num_bytes
            + stage.kv_pool_bytes
            + stage.cuda_graph_actual_bytes
        )
        if held > stage.total_bytes:
            return Refusal(
                cause="cuda_graphs",
                phase="graph_capture",
                needed_bytes=held,
                available_bytes=stage.total_bytes,
            )
    return None
