"""What vLLM refuses before it resolves a single default: the accelerator and names it checks first.

Sources: docs/getting_started/installation/gpu.cuda.inc.md and CMakeLists.txt
``CUDA_SUPPORTED_ARCHS`` (0.4.1 to 0.33.0: 7.0 until 0.19, 7.5 from 0.20 on), gpu.apple.inc.md
(0.33.0); ``CacheDType``, config.py and config/cache.py (0.4.1 to 0.33.0).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tokenroom.engines.vllm.rules import version_number
from tokenroom.engines.vllm.settings import VLLMSettings
from tokenroom.errors import DeploymentError, shown
from tokenroom.hardware.accelerator import Accelerator

_TURING_SINCE: Final = (0, 20)
_VOLTA: Final = (7, 0)
_TURING: Final = (7, 5)

#: Types of the KV cache with the version that brought each, in vLLM's order.
_KV_CACHE_DTYPES: Final[tuple[tuple[str, tuple[int, int]], ...]] = (
    ("auto", (0, 0)),
    ("float16", (0, 18)),
    ("bfloat16", (0, 11)),
    ("fp8", (0, 0)),
    ("fp8_e4m3", (0, 5)),
    ("fp8_e5m2", (0, 5)),
    ("fp8_inc", (0, 10)),
    ("fp8_ds_mla", (0, 12)),
    ("nvfp4_ds_mla", (0, 30)),
    ("turboquant_k8v4", (0, 20)),
    ("turboquant_4bit_nc", (0, 20)),
    ("turboquant_k3v4_nc", (0, 20)),
    ("turboquant_3bit_nc", (0, 20)),
    ("octave_k3v4", (0, 33)),
    ("octave_k3v3", (0, 33)),
    ("octave_k3v3_compact", (0, 33)),
    ("ultraquant_4bit", (0, 32)),
    ("int4_per_token_head", (0, 25)),
    ("int8_per_token_head", (0, 20)),
    ("fp8_per_token_head", (0, 20)),
    ("nvfp4", (0, 20)),
    ("nvfp4_4over6", (0, 28)),
)


def admit(settings: VLLMSettings, accelerator: Accelerator, version: str) -> None:
    """Refuse an accelerator that the version does not run on and a cache type it does not know.

    Raises:
        DeploymentError: One sentence, with what runs there or what may be given instead.
    """
    if accelerator.vendor == "apple":
        raise DeploymentError(
            f"vLLM does not run on Apple GPUs such as the {accelerator.name}; --engine llama.cpp "
            f"does"
        )
    number = version_number(version)
    capability = accelerator.compute_capability
    if accelerator.vendor == "nvidia" and capability is not None:
        least = _TURING if number >= _TURING_SINCE else _VOLTA
        if capability < least:
            older = "; vLLM 0.19 still takes it" if capability >= _VOLTA else ""
            raise DeploymentError(
                f"the {accelerator.name} has compute capability {_text(capability)}, and vLLM "
                f"{version} needs {_text(least)}{older or '; --engine llama.cpp runs on it'}"
            )
    for name, dtype in _cache_dtypes(settings):
        known = kv_cache_dtypes(number)
        if dtype not in known:
            lower = dtype.lower() if isinstance(dtype, str) else dtype
            near = f"; write {lower}" if lower in known else ""
            raise DeploymentError(
                f"{name} is {shown(dtype)}, which vLLM {version} does not know; choose from "
                f"{', '.join(known)}{near}"
            )


def _cache_dtypes(settings: VLLMSettings) -> list[tuple[str, str]]:
    draft = settings.speculative.kv_cache_dtype if settings.speculative is not None else None
    found = [("kv_cache_dtype", settings.kv_cache_dtype), ("draft kv_cache_dtype", draft)]
    return [(name, dtype) for name, dtype in found if dtype is not None]


@lru_cache(maxsize=64)
def kv_cache_dtypes(version: tuple[int, ...]) -> tuple[str, ...]:
    """Types of the KV cache that a version knows, in its order; case matters to vLLM."""
    return tuple(name for name, since in _KV_CACHE_DTYPES if version >= since)


def _text(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
