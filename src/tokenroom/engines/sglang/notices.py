"""What is worth knowing of SGLang's settings, beyond the memory they lead to."""

from __future__ import annotations

from tokenroom.engines.policy import Notice
from tokenroom.engines.sglang.resolved import ResolvedSettings
from tokenroom.engines.sglang.rules import NEWEST_VERSION, version_numbers
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.hardware.accelerator import Node
from tokenroom.models.spec import ModelSpec


def notices_of(
    settings: SGLangSettings,
    resolved: ResolvedSettings,
    spec: ModelSpec,
    node: Node,
    draft: ModelSpec | None,
) -> tuple[Notice, ...]:
    """Flags that count for nothing, and what the plan leaves out."""
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
