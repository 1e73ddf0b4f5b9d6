"""How a deployment drafts tokens, read from its engine's settings for the step-time model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tokenroom.engines.policy import Deployment
from tokenroom.errors import DeploymentError
from tokenroom.models.spec import ModelSpec
from tokenroom.performance.acceptance import usual_acceptance
from tokenroom.performance.drafters import eagle3_drafter, eagle_drafter, mtp_drafter
from tokenroom.performance.drafting import Drafting, acceptance_of
from tokenroom.performance.work import Layout

_LLAMA_DRAFT_MAX: Final = 3  # common.h ``common_params_speculative_draft`` of 0c1e57098

_METHODS: Final[Mapping[str, str]] = {
    # an engine's word, in small letters: the kind of drafter
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "frozen_kv_mtp": "mtp",
    "draft_model": "draft_model",
    "standalone": "draft_model",
    "drafttarget": "draft_model",
    "draft_target": "draft_model",
    "ngram": "ngram",
    "ngram_gpu": "ngram",
    "lookahead": "ngram",
    "suffix": "ngram",
    "dflash": "block",
    "dspark": "block",
}


class _Asked(NamedTuple):
    """What an engine's settings say.

    Attributes:
        method: The engine's word for it.
        depth: Tokens in a row.
        verified: Rows of a request in a step of the model.
        branches: Branches of a tree, 1 for a chain.
        tensor_parallel_size: Of the drafter, None for the model's.
    """

    method: str
    depth: int
    verified: int
    branches: int = 1
    tensor_parallel_size: int | None = None


def drafting_of(
    deployment: Deployment, layout: Layout, acceptance: float | None = None
) -> Drafting | None:
    """How tokens are drafted, None without speculative decoding.

    Args:
        deployment: The deployment.
        layout: How the model is divided.
        acceptance: Share of drafted tokens that are kept, or mean tokens of a step (above 1);
            what was measured of the method when None.

    Raises:
        DeploymentError: The method's speed is not modelled, what drafts is not named, or the
            acceptance is none.
    """
    asked = _ASKED[deployment.engine](deployment)
    if asked is None:
        if acceptance is not None:
            raise DeploymentError(
                "acceptance is given, but the deployment drafts no tokens; give the engine's own "
                "settings of speculative decoding too, or leave it out"
            )
        return None
    method = _METHODS.get(asked.method.lower())
    if method is None:
        raise DeploymentError(
            f"the speed of speculative method {asked.method} is not modelled; it may be "
            f"{', '.join(sorted(_METHODS))}"
        )
    if asked.depth < 1:
        raise DeploymentError(
            f"the number of tokens that {asked.method} drafts is not set, which its speed rests "
            f"on; give it in the engine's own settings"
        )
    method, drafter = _drafter(method, deployment)
    if acceptance is None:
        rate = usual_acceptance(method, asked.branches)
    else:
        rate = acceptance_of(acceptance, asked.depth)
    ranks = asked.tensor_parallel_size or layout.tensor_parallel_size
    whole = ranks == layout.tensor_parallel_size
    return Drafting(
        method=method,
        depth=asked.depth,
        verified=asked.verified,
        branches=asked.branches,
        acceptance=rate,
        drafter=drafter,
        layout=Layout(
            tensor_parallel_size=ranks,
            data_parallel_size=layout.data_parallel_size,
            expert_parallel_size=layout.expert_parallel_size if whole else 1,
            per_node=layout.per_node,
        ),
        at_once=method == "block",
    )


def _drafter(method: str, deployment: Deployment) -> tuple[str, ModelSpec | None]:
    """The method, which an EAGLE head's own files settle, and what drafts."""
    spec, draft = deployment.spec, deployment.draft
    if method == "ngram":
        return method, None
    if draft is None:
        if method in ("mtp", "eagle") and spec.mtp_layers:  # SGLang's EAGLE runs them as well
            return "mtp", mtp_drafter(spec)
        raise DeploymentError(
            f"speculative method {method} needs a model that drafts, and none is named; name it in "
            f"the engine's settings"
        )
    if method in ("eagle", "eagle3"):
        if draft.architecture.endswith("Eagle3") or method == "eagle3":
            return "eagle3", eagle3_drafter(draft)
        return method, eagle_drafter(draft, spec)
    return method, draft


def _vllm(deployment: Deployment) -> _Asked | None:
    draft = deployment.resolved.speculative
    if draft is None:
        return None
    tokens = draft.num_speculative_tokens
    return _Asked(
        draft.method, tokens, tokens + 1, tensor_parallel_size=draft.draft_tensor_parallel_size
    )


def _sglang(deployment: Deployment) -> _Asked | None:
    """Trees verify ``draft_tokens`` nodes; as many follow each other as there are steps."""
    resolved = deployment.resolved
    if resolved.speculative_algorithm is None:
        return None
    verified = resolved.draft_tokens
    if verified < 2:
        return None
    steps = resolved.draft_steps or verified - 1
    return _Asked(
        resolved.speculative_algorithm,
        min(steps, verified - 1),
        verified,
        max(1, resolved.draft_topk),
    )


def _tensorrt_llm(deployment: Deployment) -> _Asked | None:
    resolved = deployment.resolved
    if resolved.speculative_type is None:
        return None
    tokens = resolved.speculative_tokens
    return _Asked(resolved.speculative_type, tokens, tokens + 1)


def _llama_cpp(deployment: Deployment) -> _Asked | None:
    asked = deployment.asked
    if asked.draft_model is None:
        return None
    tokens = _LLAMA_DRAFT_MAX if asked.draft_max is None else asked.draft_max
    return _Asked("draft_model", tokens, tokens + 1) if tokens > 0 else None


_ASKED: Final[Mapping[str, Callable[[Deployment], _Asked | None]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "llama.cpp": _llama_cpp,
}
