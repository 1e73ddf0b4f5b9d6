"""Types of the KV cache by engine and version, as ``--kv`` may name them."""

from __future__ import annotations

from tokenroom.engines.registry import engine_named


def cache_types(engine: str) -> tuple[str, ...]:
    """What ``--kv`` may be of an engine that serves; whether a GPU or model takes it, ``fit`` says.

    Nothing of engines that do not serve by themselves.

    Args:
        engine: Its name, with a version behind ``@`` when it is not the newest.

    Raises:
        DeploymentError: The engine is unknown, or a version of it.
    """
    policy, version = engine_named(engine)
    match policy.name:
        case "vllm":
            from tokenroom.engines.vllm.admission import kv_cache_dtypes
            from tokenroom.engines.vllm.rules import rules_for

            return kv_cache_dtypes(rules_for(version).version)
        case "sglang":
            from tokenroom.engines.sglang import cells, rules

            rules.rules_for(version)
            return ("fp8", *cells.KV_TYPES)
        case "tensorrt-llm":
            from tokenroom.engines.tensorrt_llm.built_engine import release_of
            from tokenroom.engines.tensorrt_llm.settings import KV_DTYPES

            if version is not None:
                release_of(version)
            return KV_DTYPES
        case "llama.cpp":
            from tokenroom.engines.llama_cpp.settings import CACHE_SPELLINGS, CACHE_TYPES
            from tokenroom.engines.llama_cpp.versions import rules_for as build_rules_for

            build_rules_for(version)
            return (*CACHE_SPELLINGS, *CACHE_TYPES)
    return ()
