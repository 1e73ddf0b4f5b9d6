"""What the compiled engine covers and where it is kept; nothing of it is loaded for that."""

from __future__ import annotations

import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tokenroom.performance import efficiency
from tokenroom.serving.kv_group import Kind
from tokenroom.serving.schedulers.vllm import VllmSchedulerConfig
from tokenroom.serving.step_table import StepTable

_NEEDS: Final = ("numba", "numpy")
_KNOWN: Final = frozenset(
    (
        *("num_blocks", "groups", "max_model_len", "max_num_batched_tokens", "max_num_seqs"),
        *("max_num_scheduled_tokens", "enable_prefix_caching", "enable_chunked_prefill"),
        *("long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "policy"),
        *("scheduler_reserve_full_isl", "watermark", "async_scheduling"),
        "prefix_cache_retention_interval",
    )
)
"""Settings that it follows; any other has to be as it is by itself."""
_CACHES: Final = ("XDG_CACHE_HOME", "LOCALAPPDATA")


def is_installed() -> bool:
    """Whether what compiles is installed (extra ``simulate``)."""
    return all(find_spec(name) is not None for name in _NEEDS)


def covers(config: object, table: StepTable) -> bool:
    """Whether a scheduler with these settings is one that the compiled engine has."""
    return (
        type(config) is VllmSchedulerConfig
        and all(
            getattr(config, field.name) == field.default
            for field in fields(config)
            if field.name not in _KNOWN
        )
        and config.policy == "fcfs"
        and len(config.groups) == 1
        and config.groups[0].kind is Kind.FULL
        and table.parts is not None
        and not table.computes_loads
    )


def cache_folder() -> Path:
    """Where compiled functions are kept: a folder for each state of their sources.

    numba looks at the file of a function, not at those of the functions that it calls, so a
    change of one would leave others as they were.
    """
    import hashlib  # loads OpenSSL, which whoever only asks what is covered does not need

    digest = hashlib.blake2b(digest_size=8)
    for source in (*sorted(Path(__file__).parent.glob("*.py")), Path(efficiency.__file__)):
        digest.update(source.read_bytes())
    named = next((os.environ[name] for name in _CACHES if os.environ.get(name)), None)
    base = Path(named) if named else Path.home() / ".cache"
    return base / "tokenroom" / "compiled" / digest.hexdigest()


def is_kept() -> bool:
    """Whether it has been compiled, and is kept."""
    return cache_folder().is_dir()
