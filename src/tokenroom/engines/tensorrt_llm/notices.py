"""What is worth knowing of TensorRT-LLM's settings before the memory is divided."""

from __future__ import annotations

from tokenroom.engines.policy import Notice
from tokenroom.engines.tensorrt_llm.resolve import Resolved
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings
from tokenroom.hardware.accelerator import Node
from tokenroom.models.spec import ModelSpec


def deployment_notices(
    settings: TensorRTSettings,
    resolved: Resolved,
    spec: ModelSpec,
    draft: ModelSpec | None,
    node: Node,
) -> tuple[Notice, ...]:
    """What to know of a deployment, whatever its memory comes to."""
    found = [
        Notice(key="unknown_flag", values={"flag": name})
        if name.startswith("-")
        else Notice(key="unknown_key", values={"name": name})
        for name in settings.unknown_flags
    ]
    flags = [name for name in settings.ignored_flags if name.startswith("-")]
    if flags:
        found.append(Notice(key="ignored_flags", values={"flags": ", ".join(flags)}))
    keys = [name for name in settings.ignored_flags if not name.startswith("-")]
    if keys:
        found.append(Notice(key="ignored_keys", values={"names": ", ".join(keys)}))
    method = (resolved.speculative_type or "").lower()
    if method in ("eagle", "eagle3", "drafttarget", "draft_target", "medusa") and draft is None:
        found.append(Notice(key="draft_not_counted", values={"method": method}))
    stated = (settings.max_batch_size, settings.max_num_tokens, settings.max_output_len)
    if resolved.build is not None and stated == (None, None, None):
        shortens = resolved.build.shortens
        found.append(Notice(key="build_not_stated" if shortens else "build_may_not_start"))
    asked = settings.max_seq_len
    if asked is not None and asked > resolved.max_seq_len:
        values = {"asked": asked, "longest": resolved.max_seq_len}
        found.append(Notice(key="max_seq_len_lowered", values=values))
    step = resolved.max_num_tokens
    if asked is not None and resolved.max_seq_len > step and not resolved.enable_chunked_prefill:
        found.append(Notice(key="prompt_limited", values={"max_num_tokens": step}))
    if spec.towers:
        found.append(Notice(key="encoder_not_counted"))
    if node.accelerator.unified_memory:
        found.append(Notice(key="page_cache_in_use"))
    if settings.use_kv_cache_manager_v2:
        found.append(Notice(key="second_manager"))
    return tuple(found)
