"""The deployment that serves a workload, and the options that describe it.

``simulate`` takes them itself; files of deployments hold the same words as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.deployment_options import (
    SECTIONS,
    deployment_options,
    words_argument,
)
from tokenroom.cli.options import COUNT, NUMBER, Command, price_option, profile_options
from tokenroom.cli.question import question
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult
    from tokenroom.performance.factors import Factors
    from tokenroom.serving.served_deployment import ServedDeployment

_SCHEDULING: Final = (
    *("scheduler", "scheduling_policy", "long_prefill_token_threshold", "acceptance"),
    "max_new_tokens",
)
SERVED_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Calibration": ("profile_name", "profile_file"),
    **SECTIONS,
    "Scheduler": _SCHEDULING,
}


def served_deployment_options(command: Command) -> Command:
    """The words and options that :func:`served_deployment` reads."""
    decorators: tuple[Callable[[Any], Any], ...] = (
        words_argument,
        deployment_options(
            pp="Pipeline-parallel size.",
            dp="Data-parallel size: copies in one server.",
            engine="vllm, sglang, tensorrt-llm, llama.cpp or transformers, with @VERSION for an "
            "older one.",
        ),
        click.option(
            "--scheduler",
            type=click.Choice(["static", "contiguous", "contiguous-exact"]),
            help="Instead of vLLM's own: static batches, or continuous batching in one piece of "
            "max_model_len, or of its own length, for each request.",
        ),
        click.option(
            "--scheduling-policy",
            type=click.Choice(["fcfs", "priority"]),
            help="vLLM's --scheduling-policy (fcfs).",
        ),
        click.option(
            "--long-prefill-token-threshold",
            type=COUNT,
            help="vLLM's --long-prefill-token-threshold.",
        ),
        click.option(
            "--acceptance",
            type=NUMBER,
            help="Share of drafted tokens that are kept (0 to 1), or mean tokens of a step (above "
            "1).",
        ),
        click.option(
            "--max-new-tokens",
            type=COUNT,
            help="What requests ask for, whatever they get: SGLang keeps room for it (as many as "
            "they get).",
        ),
        profile_options,
        price_option,
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def served_deployment(
    words: tuple[str, ...], options: dict[str, Any], language: Language, *, verb: str = "simulate"
) -> ServedDeployment:
    """The deployment that words and options describe; it may be one that does not start.

    What a calibration of the machine means for it is told on standard error.

    Args:
        words: A model's name, or an engine's command.
        options: Of :func:`served_deployment_options`.
        language: Of what is told.
        verb: The command that asks, for the examples of its messages.

    Raises:
        TokenroomError: A word or an option cannot be read, or two contradict each other.
    """
    from tokenroom.fitting import fit
    from tokenroom.serving.served_deployment import ServedDeployment

    asked = question(words, options, verb=verb)
    result = fit(asked.model, asked.accelerator, **asked.settings)
    given = {
        "scheduling": {name: options[name] for name in _SCHEDULING if options[name] is not None},
        "price_per_gpu_hour": options["price"],
    }
    if result.plan.refusal is None and (
        options["profile_name"] is not None or options["profile_file"] is not None
    ):
        given["factors"] = _factors(result, options, language)
    return ServedDeployment(fit=result, **given)


def _factors(result: FitResult, options: dict[str, Any], language: Language) -> Factors:
    from tokenroom.cli.calibrate import named_profile
    from tokenroom.profiles import applied
    from tokenroom.reports.calibration_text import applied_text
    from tokenroom.serving_speed import served_by

    _, profile = named_profile(options["profile_name"], options["profile_file"])
    calibration = applied(profile, served_by(result))
    click.echo(applied_text(calibration, language), err=True)
    return calibration.factors


@click.command("deployment", add_help_option=False)
@served_deployment_options
def written_deployment(**parameters: Any) -> None:
    """What parses the words of a deployment in a file; it is never run."""


def parsed_words(words: Sequence[str]) -> dict[str, Any]:
    """Words as they follow ``tokenroom simulate``, as the options (and ``words``) they hold.

    Raises:
        CommandLineError: They hold something else than a deployment.
    """
    try:
        return dict(written_deployment.make_context("deployment", list(words)).params)
    except click.UsageError as error:
        raise CommandLineError(
            f"the deployment {' '.join(words)} cannot be read: {error.format_message()}"
        ) from error
