"""Ways of drafting tokens by engine and version, as a plan may name them."""

from __future__ import annotations

from typing import Final

from tokenroom.engines.registry import engine_named

_SHARED: Final = ("mtp", "draft_model")
"""vLLM's words that are understood of SGLang, too."""


def draft_methods(engine: str) -> tuple[str, ...]:
    """How an engine may draft tokens; nothing of engines of which that is not known.

    Args:
        engine: Its name, with a version behind ``@`` when it is not the newest.

    Raises:
        DeploymentError: The engine is unknown, or a version of it.
    """
    policy, version = engine_named(engine)
    if policy.name == "vllm":
        from tokenroom.engines.vllm.rules import rules_for
        from tokenroom.engines.vllm.speculation import known_methods

        return known_methods(rules_for(version).version)
    if policy.name == "sglang":
        from tokenroom.engines.sglang.defaults import ALGORITHMS

        return tuple(dict.fromkeys([*_SHARED, *map(str.lower, ALGORITHMS)]))
    return ()
