"""Questions of clients, answered by the library: what ``--json`` prints, as plain JSON values.

Everything here runs in any process, and reads no file or address that a question names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from tokenroom.errors import (
    CommandLineError,
    DeploymentError,
    HardwareError,
    ModelError,
    TokenroomError,
    shown,
)
from tokenroom.fitting import FitResult, check_setting_names, fit
from tokenroom.growth import parse_sweep, sweep
from tokenroom.hardware.accelerator import Accelerator
from tokenroom.models import catalogue
from tokenroom.models.resolve import in_layout
from tokenroom.models.spec import ModelSpec
from tokenroom.reports.fit_json import fit_json, sweep_json
from tokenroom.reports.messages import Language
from tokenroom.units import (
    parse_arrivals,
    parse_bytes,
    parse_rate,
    parse_seconds,
    parse_tokens,
)

if TYPE_CHECKING:
    from tokenroom.web.questions import (
        DeploymentQuestion,
        FitQuestion,
        SpeedQuestion,
        SweepQuestion,
        ValidateQuestion,
    )

_MAX_POINTS: Final = 2_000


class OnProgress(Protocol):
    """Hears how far an answer is."""

    def __call__(
        self,
        done: int,
        total: int,
        figures: Mapping[str, float] | None = None,
        partial: Mapping[str, Any] | None = None,
        /,
    ) -> None:
        """Hear of parts done and parts in all (0 if unknown), and what has been found so far.

        ``partial`` is the answer as far as it is known, where a part of it is of use.
        """


class ModelFinder:
    """Looks up the models that questions name: the catalogue, and the Hub where that is allowed."""

    def __init__(self, *, allow_hub: bool = False) -> None:
        self.allow_hub = allow_hub
        self._known = lru_cache(maxsize=256)(self._find)

    def __call__(self, name: str) -> ModelSpec:
        """The model of that name.

        Raises:
            ModelError: The catalogue has none, and the Hub is not asked.
            HubError: The Hub cannot be reached or has none.
        """
        return self._known(name)

    def _find(self, name: str) -> ModelSpec:
        model, _, layout = name.partition("@")
        found = catalogue.lookup(model)
        if found is not None:
            return in_layout(found, layout) if layout else found
        if self.allow_hub:
            from tokenroom.models.hub import HubOptions, is_repository_id, load_from_hub

            if is_repository_id(name):
                return load_from_hub(name, HubOptions())
        near = ", ".join(catalogue.nearest(name))
        hint = f"; near it: {near}" if near else ""
        raise ModelError(
            f"model is {shown(name)}, which is not in the catalogue{hint}; choose a listed one, or "
            f"give its config.json"
        )


def fitted(question: FitQuestion, find: ModelFinder) -> FitResult:
    """The fit that a question asks for.

    Raises:
        TokenroomError: Something is unknown, out of range, or refused by the engine.
    """
    return fit(
        **deployment_arguments(question, find),
        concurrency=question.concurrency,
        request_tokens=_tokens(question.request_tokens, "request_tokens"),
    )


def deployment_arguments(question: DeploymentQuestion, find: ModelFinder) -> dict[str, Any]:
    """What :func:`tokenroom.fit` and :func:`tokenroom.speed` take alike.

    Raises:
        TokenroomError: Something is unknown or out of range.
    """
    engine, parsed = question.engine or "vllm", None
    if question.command is not None:
        engine, parsed = _command(question)
    if question.config is not None:
        spec = _configured(question.config, parsed.model if parsed is not None else None)
    else:
        spec = find(question.model or (parsed.model if parsed is not None else ""))
    check_setting_names(question.settings, "settings")
    given = dict(question.settings) | {
        name: getattr(question, name) for name in ("tp", "pp", "dp", "ep", "weights", "kv", "util")
    }
    hint = None
    if parsed is not None:
        given |= {"settings": parsed.settings, "notes": parsed.notes}
        given["weights"] = question.weights or parsed.weights
        hint = parsed.accelerator_hint
    return given | {
        "model": spec,
        "gpu": _accelerator(question, hint),
        "gpus": question.gpus or _named_count(question) or (parsed.gpus if parsed else None),
        "engine": engine,
        "context": _tokens(question.context, "context"),
        "used_bytes": parse_bytes(question.used, "used") if question.used is not None else 0,
        "find_model": find,
    }


def answer_fit(question: FitQuestion, find: ModelFinder) -> dict[str, Any]:
    """What ``tokenroom fit --json`` prints."""
    return fit_json(
        fitted(question, find),
        language=Language(question.language),
        explain=question.explain,
        changes=question.changes,
    )


def answer_sweep(
    question: SweepQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom fit --sweep --json`` prints."""
    parameter, values = parse_sweep(question.sweep)
    _bounded(values)
    result = fitted(question, find)
    points = sweep(result, parameter, values, on_progress)
    return sweep_json(
        result,
        points,
        parameter,
        language=Language(question.language),
        changes=question.changes,
    )


def answer_speed(
    question: SpeedQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom speed --json`` prints, with ``--sweep`` or objectives where asked for."""
    from tokenroom.objectives import Objectives, load_limits
    from tokenroom.regimes import regimes_of
    from tokenroom.reports.speed_json import refusal_json, speed_json, speed_sweep_json
    from tokenroom.serving_speed import DoesNotFitError, speed

    language = Language(question.language)
    values = _concurrencies(question.sweep) if question.sweep is not None else ()
    wanted = {
        f"{name}_seconds": parse_seconds(text, name)
        for name, text in (("tpot", question.tpot), ("ttft", question.ttft))
        if text is not None
    }
    _check_load(question)
    check_setting_names(question.settings, "settings", asks=speed)
    try:
        result = speed(
            **deployment_arguments(question, find),
            input_tokens=_tokens(question.input, "input") or 1,
            output_tokens=_tokens(question.output, "output") or 1,
            concurrency=None if wanted and not values else question.concurrency,
            num_prompts=question.num_prompts,
            request_rate=None if question.rate is None else parse_arrivals(question.rate, "rate"),
            price_per_gpu_hour=question.price,
        )
    except DoesNotFitError as refused:
        return refusal_json(refused.fit, language=language)
    regimes = regimes_of(result)
    if not values:
        limits = load_limits(result, **wanted) if wanted else None
        shown = result if limits is None else limits.load.point or limits.alone
        return speed_json(
            shown, regimes, language=language, limits=limits, explain=question.explain
        )
    points = []
    for done, value in enumerate(values, start=1):
        points.append(result.at(value))
        if on_progress is not None:
            on_progress(done, len(values))
    objectives = Objectives(**wanted) if wanted else None
    return speed_sweep_json(points, regimes, language=language, objectives=objectives)


def _check_load(question: SpeedQuestion) -> None:
    """Refuse one load beside a search or a sweep of many."""
    searched = [name for name in ("tpot", "ttft", "sweep") if getattr(question, name) is not None]
    for name in ("rate", "num_prompts"):
        if searched and getattr(question, name) is not None:
            raise TokenroomError(
                f"{name} is of one load and {searched[0]} tries many; give one of the two"
            )


def _concurrencies(text: str) -> tuple[int, ...]:
    parameter, values = parse_sweep(text)
    if parameter != "concurrency":
        raise TokenroomError(f"sweep is {text!r}; speed varies concurrency only")
    return _bounded(values)


def _bounded(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(values) > _MAX_POINTS:
        raise TokenroomError(
            f"sweep has {len(values):,} points; give at most {_MAX_POINTS:,}, with a larger step"
        )
    return values


def answer_validate(
    question: ValidateQuestion, find: ModelFinder, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """What ``tokenroom validate --json`` prints."""
    from tokenroom.reports.validation_json import validation_json
    from tokenroom.validation.prediction import Predictor
    from tokenroom.validation.rows import read_row
    from tokenroom.validation.validate import unique_rows, validate

    rows = [read_row(row, f"rows[{number}]") for number, row in enumerate(question.rows)]
    found = validate(unique_rows(rows), predictor=Predictor(load=find), on_row=on_progress)
    return validation_json(found)


def _command(question: DeploymentQuestion) -> tuple[str, Any]:
    """The engine with its version, and what its parser read of the command."""
    from tokenroom.engines.registry import chosen_start, command_parser

    assert question.command is not None
    named, _, version = (question.engine or "").strip().lower().partition("@")
    started, chosen = chosen_start(
        question.command, {}, service=question.service, engine=named or None
    )
    if named not in ("", started):
        raise DeploymentError(
            f"engine is {question.engine!r} and the command starts {started}; leave engine out, "
            f"or give only its version ({started}@VERSION)"
        )
    parsed = command_parser(started)(
        chosen, environment={}, allow_files=False, version=version or None
    )
    if parsed.refusal:
        raise CommandLineError(parsed.refusal)
    version = version or parsed.version or ""
    return f"{started}@{version}" if version else started, parsed


def _configured(config: dict[str, Any] | str, name: str | None) -> ModelSpec:
    from tokenroom.models.hf_config import read_config

    if isinstance(config, str):
        try:
            data = json.loads(config)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"config is no JSON ({error}); paste a whole config.json") from error
        if not isinstance(data, dict):
            raise ModelError("config is no JSON object; paste a whole config.json")
    else:
        data = config
    own = data.get("_name_or_path")
    return read_config(data, name or (own if isinstance(own, str) and own else "config.json"))


def _accelerator(question: DeploymentQuestion, hint: str | None) -> Accelerator:
    from tokenroom.hardware.catalogue import custom_accelerator, find_accelerator

    name = question.gpu or hint
    base = find_accelerator(name) if name else None
    bandwidth = parse_rate(question.bandwidth, "bandwidth") if question.bandwidth else None
    if question.gpu_memory is not None:
        memory = parse_bytes(question.gpu_memory, "gpu_memory")
        return custom_accelerator(memory, bandwidth=bandwidth, base=base)
    if base is None:
        raise HardwareError("no GPU is given; name one as gpu, or describe it with gpu_memory")
    if bandwidth is not None:
        return custom_accelerator(base.memory_bytes, bandwidth=bandwidth, base=base)
    return base


def _named_count(question: DeploymentQuestion) -> int | None:
    from tokenroom.hardware.names import split_count

    return split_count(question.gpu)[0] if question.gpu is not None else None


def _tokens(value: int | str | None, field: str) -> int | None:
    return parse_tokens(value, field) if isinstance(value, str) else value
