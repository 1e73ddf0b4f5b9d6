"""The answers of ``fit`` as JSON objects, whose schemas are published beside this module.

The schemas (``data/fit.schema.json`` and ``data/sweep.schema.json``, printed by
``tokenroom fit --json-schema``) are versioned by ``schema_version``: a new key raises the minor
number, a changed or dropped one the major number. Sizes are integers of bytes and lengths integers
of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tokenroom.borderline import borderline
from tokenroom.engines.policy import Change
from tokenroom.fitting import FitResult
from tokenroom.growth import SweepPoint
from tokenroom.memory.ledger import Line
from tokenroom.reports.device_text import remarks_of
from tokenroom.reports.formula_messages import formula_text
from tokenroom.reports.messages import Language, change_price, notice_text, refusal_text

if TYPE_CHECKING:
    from tokenroom.serving_speed import ServingSpeed

SCHEMA_VERSION: Final = "1.7"

_WORKLOAD: Final = frozenset({"concurrency", "request_tokens"})
"""What policies that plan for a workload keep beside their settings; a change names it itself."""


def fit_json(
    result: FitResult,
    *,
    language: Language,
    explain: bool = False,
    changes: bool = True,
    speed: ServingSpeed | None = None,
) -> dict[str, Any]:
    """``result`` as plain JSON values; sentences in ``language``, keys always the same.

    Args:
        result: The answer.
        language: Of sentences.
        explain: Also the ledger with its formulas.
        changes: Also search the changes that make it fit, which takes a hundred times the fit.
        speed: How fast it serves, where that was asked for and is modelled.
    """
    deployment, plan = result.deployment, result.plan
    spec = deployment.spec
    end = borderline(result)
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verdict": result.verdict,
        "reason": None if plan.refusal is None else refusal_text(plan.refusal, language),
        "cause": None if plan.refusal is None else plan.refusal.cause,
        "borderline": None if end is None else asdict(end),
        "engine": {"name": deployment.engine, "version": deployment.version},
        "model": {
            "name": spec.name,
            "architecture": spec.architecture,
            "parameters_total": spec.parameters_total,
            "parameters_active": spec.parameters_active,
            "weights_bytes": result.weights_bytes,
            "quantization": spec.quantization,
            "layout": spec.layout,
            "source": spec.source,
        },
        "hardware": {
            "accelerator": deployment.node.accelerator.key,
            "name": deployment.node.accelerator.name,
            "count": deployment.node.count,
            "memory_bytes": deployment.node.accelerator.memory_bytes,
            "used_bytes": deployment.node.used_bytes,
        },
        "deployment": {
            name: {"value": _plain(setting.value), "origin": setting.origin}
            | ({"reason": setting.reason} if setting.reason else {})
            for name, setting in deployment.settings.items()
        },
        "ranks": list(_ranks(result)),
        "kv_block_size": plan.kv_block_size,
        "kv_blocks": plan.kv_blocks,
        "kv_pool_tokens": plan.kv_pool_tokens,
        "max_concurrency": plan.max_concurrency,
        "kv_cache_groups": [
            {
                "kind": group.kind,
                "layers": group.num_layers,
                "block_size": group.block_size,
                "page_bytes": group.page_bytes,
            }
            for group in plan.kv_groups
        ],
        "max_model_len_that_fits": result.max_model_len_that_fits,
        "request_tokens": result.request_tokens,
        "requests_held": result.requests_held,
        "requests_running": result.requests_running,
        "concurrency_asked": result.concurrency,
        "occupancy": None if result.occupancy is None else asdict(result.occupancy),
        "estimates": _estimates(result),
        "speed": None if speed is None else _speed(speed),
        "warnings": [notice_text(notice, language) for notice in result.notices],
        **_command(result, language),
    }
    if changes:
        data["changes_that_fit"] = [
            _change(result, item, language) for item in result.changes_that_fit
        ]
    if figures := getattr(plan, "engine_figures", None):
        data["engine_figures"] = dict(figures)
    if remarks := remarks_of(result):
        data["remarks"] = [notice_text(remark, language) for remark in remarks]
        if remarks[0].key.startswith("placement_"):
            data["placement"] = remarks[0].key.removeprefix("placement_")
    if explain:
        data["explain"] = [_line(line, language) for line in result.explain]
    return data


def sweep_json(
    result: FitResult,
    points: Sequence[SweepPoint],
    parameter: str,
    *,
    language: Language,
    changes: bool = True,
) -> dict[str, Any]:
    """A sweep: the fit it starts from and one object a point."""
    return {
        "schema_version": SCHEMA_VERSION,
        "parameter": parameter,
        "points": [asdict(point) | {"in_use_bytes": point.in_use_bytes} for point in points],
        "fit": fit_json(result, language=language, changes=changes),
    }


def schema_text(*, sweep: bool = False) -> str:
    """The JSON schema of :func:`fit_json`, or of :func:`sweep_json`, as text."""
    fit_schema = _packaged("fit.schema.json")
    if not sweep:
        return fit_schema
    schema = json.loads(_packaged("sweep.schema.json"))
    of_fit = json.loads(fit_schema)
    schema["$defs"] = schema.get("$defs", {}) | of_fit["$defs"]
    schema["properties"]["fit"] = {
        key: value for key, value in of_fit.items() if not key.startswith("$")
    }
    return json.dumps(schema, indent=2)


def _packaged(name: str) -> str:
    return files("tokenroom.reports").joinpath(f"data/{name}").read_text("utf-8")


def _command(result: FitResult, language: Language) -> dict[str, Any]:
    """The command that starts the deployment, and what to know before it is used."""
    launch = result.launch
    return {
        "command": None if launch is None else launch.shell_text,
        "command_notes": []
        if launch is None
        else [notice_text(notice, language) for notice in launch.notes],
    }


def _change(result: FitResult, change: Change, language: Language) -> dict[str, Any]:
    return {
        "change": change.key,
        "flags": change.flags,
        "price": change_price(change, language),
        "settings": _changed_settings(result, change),
        "weights": change.layout,
        "kv_pool_tokens": change.kv_pool_tokens,
        "requests_running": change.requests_running,
        "request_tokens": change.request_tokens,
        "gpus": change.deployment.node.count,
    }


def _changed_settings(result: FitResult, change: Change) -> dict[str, Any]:
    """The engine's own settings that the change gives other values."""
    before, after = result.deployment.asked, change.deployment.asked
    return {
        field.name: _plain(getattr(after, field.name))
        for field in fields(after)
        if field.name not in _WORKLOAD and getattr(after, field.name) != getattr(before, field.name)
    }


def _ranks(result: FitResult) -> Any:
    setting = result.deployment.settings.get("tensor_parallel_size")
    tensor_parallel = setting.value if setting is not None else 1
    for stage in result.plan.stages:
        for tensor_rank in range(tensor_parallel):
            yield {
                "tensor_parallel_rank": tensor_rank,
                "pipeline_parallel_rank": stage.pipeline_parallel_rank,
                "total_bytes": stage.total_bytes,
                "budget_bytes": stage.budget_bytes,
                "weights_bytes": stage.weights_bytes,
                "weights_by_component": dict(stage.weights),
                "kv_pool_bytes": stage.kv_pool_bytes,
                "kv_available_bytes": stage.available_bytes,
                "kv_bytes_per_token": _whole(stage.kv_bytes_per_token),
                "activation_peak_bytes": stage.activation.num_bytes,
                "activation_phase": stage.activation.phase,
                "activation_decode_bytes": stage.activation_decode_bytes,
                "cuda_graph_bytes": stage.cuda_graphs.num_bytes,
                "cuda_graph_captured_bytes": stage.cuda_graph_actual_bytes,
                "reserve_bytes": stage.non_torch.num_bytes,
                "buffers_bytes": stage.buffers_bytes,
                "context_bytes": stage.context_bytes,
                "free_bytes": stage.free_bytes,
            } | ({"device": stage.device, "is_host": stage.is_host} if stage.device else {})


def _speed(speed: ServingSpeed) -> dict[str, Any]:
    return {
        "input_tokens": speed.load.input_tokens,
        "output_tokens": speed.load.output_tokens,
        "concurrency": speed.concurrency,
        "ttft_seconds": speed.ttft_seconds._asdict(),
        "tpot_seconds": speed.tpot_seconds._asdict(),
        "output_tokens_per_second": speed.output_tokens_per_second._asdict(),
        "tpot_limiter": speed.tpot_limiter,
    }


def _estimates(result: FitResult) -> dict[str, list[int]]:
    stage = result.governing_stage
    ranges = {
        "activation_peak_bytes": stage.activation,
        "cuda_graph_bytes": stage.cuda_graphs,
        "reserve_bytes": stage.non_torch,
    }
    found = {name: [item.low_bytes, item.high_bytes] for name, item in ranges.items()}
    found["kv_pool_tokens"] = list(result.kv_pool_tokens_range)
    return found


def _whole(value: float) -> float:
    """A whole number as one."""
    return int(value) if float(value).is_integer() else value


def _line(line: Line, language: Language) -> dict[str, Any]:
    return {
        "key": line.key,
        "bytes": line.num_bytes,
        "confidence": line.confidence.value,
        "low_bytes": line.low_bytes,
        "high_bytes": line.high_bytes,
        "formula": formula_text(line.formula, language),
        "values": {name: _plain(value) for name, value in line.values.items()},
        "source": line.source,
        "parts": [_line(part, language) for part in line.parts],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
