"""SGLang's memory policy: from resolved settings to token pools and what is left beside them.

``rest = avail_after_load - free_before_load x (1 - mem_fraction_static)`` becomes the pools
(``kv_cache_configurator.py`` ``_profile_available_bytes``); no run measures activations or graphs,
which must live in the share that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tokenroom.engines.own_drafts import own_blocks
from tokenroom.engines.policy import Change, Deployment, Reservation
from tokenroom.engines.setting_checks import check_accelerator
from tokenroom.engines.sglang.defaults import parallel_sizes, resolve
from tokenroom.engines.sglang.notices import notices_of
from tokenroom.engines.sglang.plan import SGLangPlan, smallest_pools
from tokenroom.engines.sglang.pools import max_running_requests
from tokenroom.engines.sglang.quantization import loaded_as
from tokenroom.engines.sglang.refusals import refusal_of
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.rules import rules_for
from tokenroom.engines.sglang.setting_names import with_changes
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.engines.sglang.stage_memory import stage_memory
from tokenroom.engines.sglang.stage_pools import stage_pools
from tokenroom.engines.sglang.stage_weights import stage_weights
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec

_VENDORS: Final = frozenset({"nvidia", "amd", "intel", "huawei", "google"})
_LEAST_CAPABILITY: Final = (7, 5)
"""Of the kernels it is built with (sgl-kernel, FlashInfer)."""


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
        return with_changes(base or SGLangSettings(), changes)

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
        spec = loaded_as(spec, settings.quantization)
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
            notices=notices_of(settings, resolved, spec, node, draft),
        )

    def plan(self, deployment: Deployment) -> SGLangPlan:
        """Divide the memory of every pipeline stage."""
        resolved: ResolvedSettings = deployment.resolved
        count = resolved.pp_size
        weights = [stage_weights(deployment, rank) for rank in range(count)]
        parts = tuple(stage_pools(deployment, rank, weights[rank]) for rank in range(count))
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
            stage_memory(deployment, resolved, rank, weights[rank], parts[rank], pools, running)
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
            refusal=refusal_of(deployment, stages, parts, pools.max_total_num_tokens),
            host_pool_bytes=host,
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.sglang.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


SGLANG: Final = SGLangPolicy()
