"""vLLM's memory policy: settings checked and resolved, deployments placed and planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tokenroom.engines.own_drafts import own_blocks
from tokenroom.engines.policy import (
    Change,
    Deployment,
    Notice,
    Setting,
)
from tokenroom.engines.setting_checks import renamed
from tokenroom.engines.vllm.admission import admit
from tokenroom.engines.vllm.checks import check
from tokenroom.engines.vllm.defaults import ResolvedSettings, resolve
from tokenroom.engines.vllm.generation import EngineGeneration
from tokenroom.engines.vllm.overrides import with_overrides
from tokenroom.engines.vllm.plan import VLLMPlan, plan_deployment
from tokenroom.engines.vllm.processor import with_pixel_limits
from tokenroom.engines.vllm.reserves import RESERVES
from tokenroom.engines.vllm.rules import NEWEST
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.engines.vllm.spread import encoder_runs_whole, with_whole_encoder
from tokenroom.engines.vllm.unmodelled import unmodelled
from tokenroom.engines.vllm.value_types import checked
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec

if TYPE_CHECKING:
    from tokenroom.engines.vllm.batches import Batches

_SETTING_NAMES: Final = frozenset(item.name for item in fields(VLLMSettings))
_NEWEST: Final = ".".join(map(str, NEWEST.version))


class VLLMPolicy:
    """vLLM, every version from 0.4 to the newest known, on the V0 or the V1 engine."""

    name: Final = "vllm"
    reserves: Final = RESERVES

    def settings(self, base: VLLMSettings | None, changes: Mapping[str, Any]) -> VLLMSettings:
        """VLLM's settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        if base is not None and not isinstance(base, VLLMSettings):
            raise DeploymentError(
                f"settings is {base!r:.80}; give VLLMSettings, or the settings by their names"
            )
        own = renamed(changes, {}, _SETTING_NAMES, "vLLM")
        given = {name: checked(name, value) for name, value in own.items()}
        if base is None:
            return VLLMSettings(**given)
        return replace(base, **given) if given else base

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: VLLMSettings,
        used_bytes: int = 0,
    ) -> Node:
        """The node: as many accelerators as the parallel sizes need, when not said.

        Raises:
            DeploymentError: There are fewer than the parallel sizes need.
        """
        sizes = {
            "tensor_parallel_size": settings.tensor_parallel_size or 1,
            "pipeline_parallel_size": settings.pipeline_parallel_size or 1,
            "data_parallel_size": settings.data_parallel_size or 1,
            "prefill_context_parallel_size": settings.prefill_context_parallel_size or 1,
        }
        needed = 1
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise DeploymentError(
                    f"{name} is {shown(size)}; it must be a whole number of at least 1"
                )
            needed *= size
        if count is not None and count < needed:
            shape = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
            raise DeploymentError(
                f"{shape} needs {needed} GPUs and there are {count}; lower the parallel sizes or "
                f"give more GPUs"
            )
        return Node(accelerator=accelerator, count=needed, used_bytes=used_bytes)

    def draft_model(self, settings: VLLMSettings) -> str | None:
        """The draft model that speculative decoding loads beside the model."""
        return settings.speculative.model if settings.speculative is not None else None

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: VLLMSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting and check it as vLLM does.

        Raises:
            DeploymentError: vLLM would refuse the settings.
        """
        admit(settings, node.accelerator, settings.version or _NEWEST)
        spec = with_overrides(spec, settings.hf_overrides)
        recognised = spec.quantization is None or spec.quantization_named
        if not recognised:
            spec = _loaded_plain(spec)
        if settings.quantization is not None:
            spec = _loaded_as(spec, settings.quantization)
        spec = with_pixel_limits(spec, settings)
        if encoder_runs_whole(spec, settings):
            spec = with_whole_encoder(spec)
        if own_blocks(draft, spec):
            draft = None
        resolved = resolve(settings, spec, node)
        check(resolved, spec, node)
        deployment = Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=draft,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
            notices=_notices(settings, spec, resolved, node.accelerator, recognised=recognised),
        )
        return _with_longest(deployment) if resolved.fits_max_model_len else deployment

    def plan(self, deployment: Deployment) -> VLLMPlan:
        """Divide the memory of every pipeline stage."""
        return plan_deployment(deployment)

    def batches(self, plan: VLLMPlan, request_tokens: int) -> Batches | None:
        """Room under other batch sizes, lengths and shares; None where it is not found so."""
        from tokenroom.engines.vllm.batches import Batches

        return (
            None
            if plan.deployment.resolved.engine is EngineGeneration.V0
            else Batches(plan, request_tokens)
        )

    def same_memory(self, one: Deployment, other: Deployment) -> bool:
        """Whether two deployments that differ in prefix caching or KV offloading are alike.

        All that a plan reads is then the same: recurrent layers keep more states for caching, and
        connectors may turn the hybrid manager off.
        """
        first: ResolvedSettings = one.resolved
        second: ResolvedSettings = other.resolved
        same = replace(
            second,
            enable_prefix_caching=first.enable_prefix_caching,
            asked=first.asked,
            settings=first.settings,
        )
        return one.spec is other.spec and same == first

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.vllm.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


VLLM: Final = VLLMPolicy()


@lru_cache(maxsize=64)
def _loaded_plain(spec: ModelSpec) -> ModelSpec:
    """The model as vLLM builds it when it does not recognise the quantisation block."""
    from tokenroom.models.quantization import dequantized

    return dequantized(spec)


@lru_cache(maxsize=64)
def _loaded_as(spec: ModelSpec, quantization: str) -> ModelSpec:
    """The model in the layout that ``--quantization`` turns it into while loading."""
    from tokenroom.engines.vllm.online import with_quantization

    return with_quantization(spec, quantization)


def _with_longest(deployment: Deployment) -> Deployment:
    """The deployment with the length that ``max_model_len`` -1 comes to among its settings."""
    longest = plan_deployment(deployment).max_model_len
    setting = Setting(longest, "engine", "auto: the longest that fits")
    return replace(deployment, settings={**deployment.settings, "max_model_len": setting})


def _notices(
    settings: VLLMSettings,
    spec: ModelSpec,
    resolved: ResolvedSettings,
    accelerator: Accelerator,
    *,
    recognised: bool,
) -> tuple[Notice, ...]:
    found = [Notice(key="unknown_flag", values={"flag": flag}) for flag in settings.unknown_flags]
    number = tuple(int(part) for part in resolved.version.split("."))
    if number > NEWEST.version:
        found.append(
            Notice(
                key="version_newer",
                values={"engine": "vLLM", "version": resolved.version, "newest": _NEWEST},
            )
        )
    if accelerator.vendor not in ("nvidia", "unknown"):
        found.append(Notice(key="vendor_unmeasured", values={"vendor": accelerator.vendor}))
    if not recognised:
        found.append(Notice(key="quantization_not_recognised", values={"dtype": resolved.dtype}))
    if settings.ignored_flags:
        found.append(
            Notice(key="ignored_flags", values={"flags": ", ".join(settings.ignored_flags)})
        )
    if (accelerator.vendor == "nvidia" and accelerator.compute_capability is None) or (
        accelerator.custom and accelerator.vendor == "unknown"
    ):
        found.append(Notice(key="gpu_capability_unknown", values={"gpu": accelerator.name}))
    found += [
        Notice(key="not_modelled", values={"name": name}) for name in unmodelled(settings, spec)
    ]
    method = resolved.speculative.method if resolved.speculative is not None else None
    if method is not None and settings.speculative is not None:
        needs_model = method in ("draft_model", "eagle", "eagle3", "medusa")
        if needs_model and settings.speculative.model is None:
            found.append(Notice(key="draft_not_counted", values={"method": method}))
    return tuple(found)
