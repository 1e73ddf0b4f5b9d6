"""Contiguous, paged and hybrid allocation of one pool, without any engine's further habits.

The pool is what weights, the CUDA context and the activations of a prefill step leave of the GPU
(or a size that is given); :mod:`tokenroom.memory.allocation` passes a workload through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from tokenroom.engines.abstract.plan import AbstractPlan, refusal_of
from tokenroom.engines.abstract.resolve import Resolved, resolve
from tokenroom.engines.abstract.settings import AbstractSettings
from tokenroom.engines.abstract.stages import stage_memory
from tokenroom.engines.change_search import Step, changes_from, doubles, halves
from tokenroom.engines.policy import Change, Deployment, Reservation
from tokenroom.engines.setting_checks import (
    check_count,
    check_share,
    check_switch,
    check_text,
    renamed,
)
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Accelerator, Node
from tokenroom.memory.allocation import Sharing
from tokenroom.models.spec import ModelSpec

_NAMES: Final = frozenset(item.name for item in fields(AbstractSettings))


class AbstractPolicy:
    """One way of sharing out a pool."""

    takes_workload: Final = True

    def __init__(self, sharing: Sharing, reserves: tuple[Reservation, ...]) -> None:
        self.sharing = sharing
        self.reserves = reserves

    @property
    def name(self) -> str:
        """``"contiguous"``, ``"paged"`` or ``"hybrid"``."""
        return self.sharing.value

    def settings(
        self, base: AbstractSettings | None, changes: Mapping[str, Any]
    ) -> AbstractSettings:
        """The settings with some fields set.

        Raises:
            DeploymentError: A field is unknown or holds an impossible value.
        """
        given = renamed(changes, {}, _NAMES, self.name)
        for name, value in given.items():
            if name == "gpu_memory_utilization":
                check_share(name, value)
            elif name == "knows_length":
                check_switch(name, value)
            elif name in ("kv_cache_dtype", "dtype", "lengths", "version"):
                check_text(name, value)
            else:
                check_count(name, value, least=0 if name in ("seed", "first_tokens") else 1)
        return replace(base or AbstractSettings(), **given)

    def place(
        self,
        accelerator: Accelerator,
        count: int | None,
        settings: AbstractSettings,
        used_bytes: int = 0,
    ) -> Node:
        """As many accelerators as the parallel sizes need.

        Raises:
            DeploymentError: There are fewer.
        """
        needed = (settings.tensor_parallel_size or 1) * (settings.pipeline_parallel_size or 1)
        if count is not None and count < needed:
            raise DeploymentError(
                f"the parallel sizes need {needed} GPUs and there are {count}; lower them or give "
                f"more GPUs"
            )
        return Node(accelerator=accelerator, count=needed, used_bytes=used_bytes)

    def draft_model(self, settings: AbstractSettings) -> str | None:
        """There is none."""
        return None

    def deploy(
        self,
        spec: ModelSpec,
        node: Node,
        settings: AbstractSettings,
        draft: ModelSpec | None = None,
    ) -> Deployment:
        """Fill in every setting.

        Raises:
            DeploymentError: The lengths cannot be understood, or a request is longer than allowed.
        """
        resolved = resolve(self.sharing, spec, settings)
        return Deployment(
            engine=self.name,
            version="1",
            spec=spec,
            draft=None,
            node=node,
            settings=resolved.settings,
            asked=settings,
            resolved=resolved,
        )

    def plan(self, deployment: Deployment) -> AbstractPlan:
        """Divide the memory of every stage."""
        resolved: Resolved = deployment.resolved
        stages = tuple(
            stage_memory(deployment, index) for index in range(resolved.pipeline_parallel_size)
        )
        plan = AbstractPlan(deployment=deployment, stages=stages, refusal=None)
        return replace(plan, refusal=refusal_of(plan))

    def changes(
        self, deployment: Deployment, suffices: Callable[[Deployment], bool]
    ) -> Iterator[Change]:
        """The smallest changes that suffice, cheapest first."""
        return changes_from(
            self,
            deployment,
            suffices,
            soft=[_shorter, _narrow_cache, _narrow_weights],
            hard=[_wider("tensor_parallel_size"), _wider("pipeline_parallel_size")],
            narrowing=[_narrow_cache, _narrow_weights],
        )


def _shorter(deployment: Deployment) -> list[Step]:
    longest = deployment.resolved.allocator.max_tokens
    return [
        Step(
            key="max_model_len",
            flags=f"max_model_len={value}",
            settings={"max_model_len": value},
        )
        for value in halves(longest, max(1024, longest // 4))
    ]


def _narrow_cache(deployment: Deployment) -> list[Step]:
    if deployment.resolved.kv_cache_dtype not in ("float16", "bfloat16", "float32"):
        return []
    return [
        Step(key="kv_cache_dtype", flags="kv_cache_dtype=fp8", settings={"kv_cache_dtype": "fp8"})
    ]


def _narrow_weights(deployment: Deployment) -> list[Step]:
    if deployment.spec.quantization is not None:
        return []
    return [
        Step(key="weights", flags=f"(weights in {layout})", layout=layout)
        for layout in ("fp8", "awq")
    ]


def _wider(name: str) -> Callable[[Deployment], list[Step]]:
    def ladder(deployment: Deployment) -> list[Step]:
        return [
            Step(key=name, flags=f"{name}={size}", settings={name: size})
            for size in doubles(getattr(deployment.resolved, name))
        ]

    return ladder


CONTIGUOUS: Final = AbstractPolicy(
    Sharing.CONTIGUOUS,
    (
        Reservation(
            what="KV cache",
            when="when a request starts, until it ends",
            of_what="max_model_len tokens in one piece, whatever the request will need; only its "
            "own length with knows_length",
            default="max_model_len of the model",
            source="the rule of early servers, as in arXiv:2309.06180, section 3",
        ),
    ),
)
PAGED: Final = AbstractPolicy(
    Sharing.PAGED,
    (
        Reservation(
            what="KV cache",
            when="block by block as a request grows",
            of_what="whole blocks anywhere in the pool, and a row of the block table",
            default="block_size 16",
            source="PagedAttention, arXiv:2309.06180, section 4",
        ),
    ),
)
HYBRID: Final = AbstractPolicy(
    Sharing.HYBRID,
    (
        Reservation(
            what="KV cache",
            when="one piece when a request starts, blocks as it outgrows it",
            of_what="first_tokens in one piece, then whole blocks from the same pool",
            default="first_tokens the median length, block_size 16",
            source="memory/allocation.py",
        ),
    ),
)
