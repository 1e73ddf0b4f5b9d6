"""llama.cpp's memory policy: buffers of exact size on every device, all allocated at start.

Nothing is a share of a card. The model's tensors, the caches of the whole context and the compute
buffers each take what they need where the placement puts them; what cannot be allocated is an
error, unless ``--fit`` (on by default) lowered the context and the offloaded layers before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tokenroom.engines.llama_cpp.limits import first_refusal
from tokenroom.engines.llama_cpp.notices import setting_notices
from tokenroom.engines.llama_cpp.outcome import Outcome, outcome_of
from tokenroom.engines.llama_cpp.plan import LlamaCppPlan
from tokenroom.engines.llama_cpp.reserves import RESERVES
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings, changed
from tokenroom.engines.llama_cpp.stages import device_stages
from tokenroom.engines.policy import Change, Deployment, Setting
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.models.spec import ModelSpec


class LlamaCppPolicy:
    """llama.cpp: llama-server, llama-cli, bindings, and Ollama, which runs llama-server."""

    name: Final = "llama.cpp"
    reserves: Final = RESERVES

    def settings(
        self, base: LlamaCppSettings | None, changes: Mapping[str, Any]
    ) -> LlamaCppSettings:
        """Settings with some fields set, under llama.cpp's names or the common ones.

        Raises:
            DeploymentError: A field is unknown here, or holds an impossible value.
        """
        return changed(base, changes)

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: LlamaCppSettings,
        used_bytes: int = 0,
    ) -> Node:
        """The node: one accelerator when not said otherwise.

        Raises:
            DeploymentError: There are fewer than asked for.
        """
        wanted = settings.gpus
        if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int)):
            raise DeploymentError(f"gpus is {shown(wanted)}; it must be a whole number from 0")
        if wanted is not None and count is not None and wanted > count:
            raise DeploymentError(f"gpus is {wanted} and there are {count}; give as many")
        return Node(
            accelerator=accelerator, count=max(1, wanted or count or 1), used_bytes=used_bytes
        )

    def draft_model(self, settings: LlamaCppSettings) -> str | None:
        """The draft model of speculative decoding."""
        return settings.draft_model

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: LlamaCppSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Resolve every setting, let ``--fit`` lower what is free, and check.

        Raises:
            DeploymentError: llama.cpp would refuse the settings or the model.
        """
        outcome = outcome_of(spec, node, settings)
        resolved, decisions = outcome.resolved, outcome.memory.decisions
        found = dict(resolved.settings)
        layers = len(outcome.memory.placement.layer_devices) + 1
        on_gpu = min(decisions.n_gpu_layers, layers)
        asked = found.get("n_gpu_layers")
        if asked is None or asked.origin != "user" or asked.value < 0:
            reason = f"{on_gpu} of {layers} layers, by --fit" if resolved.fit else ""
            found["n_gpu_layers"] = Setting(value=on_gpu, origin="gpu", reason=reason)
        if outcome.fitted.context_lowered:
            found["n_ctx"] = Setting(value=decisions.n_ctx, origin="gpu", reason="by --fit")
        found["gpus"] = Setting(
            value=resolved.gpus, origin="user" if settings.gpus is not None else "tokenroom"
        )
        return Deployment(
            engine=self.name,
            version=resolved.version,
            spec=spec,
            draft=draft,
            node=node,
            settings=found,
            asked=settings,
            resolved=outcome,
            notices=setting_notices(settings, draft),
        )

    def plan(self, deployment: Deployment) -> LlamaCppPlan:
        """Fill the devices."""
        outcome: Outcome = deployment.resolved
        stages = device_stages(outcome, deployment.node)
        return LlamaCppPlan(
            deployment=deployment,
            outcome=outcome,
            stages=stages,
            refusal=first_refusal(outcome, stages),
        )

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        from tokenroom.engines.llama_cpp.changes import changes_that_suffice

        return changes_that_suffice(self, deployment, suffices)


LLAMA_CPP: Final = LlamaCppPolicy()
