"""How many requests the cache of a published row's replica held, by its engine's own rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tokenroom.errors import TokenroomError
from tokenroom.fitting import FitResult, fit
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models.spec import ModelSpec
from tokenroom.validation.circumstances import Circumstances
from tokenroom.validation.commands import engine_version
from tokenroom.validation.measured_load import MeasuredLoad
from tokenroom.validation.rows import Row

_BUDGETS: Final = {
    "vllm": "max_num_batched_tokens",
    "sglang": "chunked_prefill_size",
    "tensorrt-llm": "max_num_tokens",
}
"""What each engine calls the tokens of a step."""


def tokens_held(engine: str, input_tokens: int, output_tokens: int) -> int:
    """Tokens of the cache that a request which runs takes, on average over its time.

    vLLM lets a request in when its prompt has room (v1/core/kv_cache_manager.py
    ``allocate_slots``), so that those which run hold half of their answers; the other engines
    reserve the whole of it (TensorRT-LLM's ``GUARANTEED_NO_EVICT``) or most (SGLang 0.5.9
    ``new_token_ratio``).
    """
    return input_tokens + (max(1, output_tokens // 2) if engine == "vllm" else output_tokens)


class PublishedRooms:
    """Fits of published deployments, each worked out once."""

    def __init__(self) -> None:
        self._fits: dict[tuple[object, ...], FitResult | None] = {}

    def requests_held(
        self,
        row: Row,
        load: MeasuredLoad,
        run: Circumstances,
        spec: ModelSpec,
        accelerator: Accelerator,
    ) -> int | None:
        """Requests of a row's mean length that one data-parallel rank's cache holds.

        None where the row states no version whose rules are known, or the engine would not start by
        them, so that something of how it was run is not known.
        """
        found = self.deployment_of(row, load, run, spec, accelerator)
        if found is None:
            return None
        mean = tokens_held(
            row.engine,
            round((load.input_tokens or 1) * run.length_share),
            round((load.output_tokens or 1) * run.length_share),
        )
        held = replace(found, request_tokens=mean).requests_held
        return held // run.layout.data_parallel_size or None

    def deployment_of(
        self,
        row: Row,
        load: MeasuredLoad,
        run: Circumstances,
        spec: ModelSpec,
        accelerator: Accelerator,
    ) -> FitResult | None:
        """The fit of a row's deployment; None as for :meth:`requests_held`."""
        if row.engine not in _BUDGETS:
            return None
        tokens = (load.input_tokens or 1) + (load.output_tokens or 1)
        key = (
            *(row.engine, row.engine_version, spec.name, load.precision, accelerator.key),
            *(run.layout, run.kv_dtype, run.token_budget, run.memory_share, tokens),
        )
        if key not in self._fits:
            self._fits[key] = _fitted(row, run, spec, accelerator, tokens)
        return self._fits[key]


def _fitted(
    row: Row, run: Circumstances, spec: ModelSpec, accelerator: Accelerator, tokens: int
) -> FitResult | None:
    layout = run.layout
    settings: dict[str, Any] = {_BUDGETS[row.engine]: run.token_budget}
    sizes = {
        "tp": layout.tensor_parallel_size,
        "pp": layout.pipeline_parallel_size,
        "dp": layout.data_parallel_size,
    }
    settings |= {name: size for name, size in sizes.items() if size > 1}
    if row.engine != "vllm" and layout.data_parallel_size > 1:
        return None  # attention is divided another way than whole copies are
    try:
        version = engine_version(row)
        if version is None:
            return None
        found = fit(
            spec,
            accelerator,
            gpus=layout.accelerators,
            engine=f"{row.engine}@{version}",
            ep=True if layout.expert_parallel_size > 1 else None,
            kv=run.kv_dtype,
            context=tokens,
            util=run.memory_share if run.share_is_given else None,
            **settings,
        )
    except TokenroomError:
        return None
    return found if found.plan.refusal is None else None
