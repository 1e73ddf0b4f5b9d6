"""``tokenroom calibrate``: fit the model of speed to a machine's own benchmarks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.deployment_options import deployment_options, words_argument
from tokenroom.cli.options import (
    gpu_file_option,
    json_option,
    json_schema_option,
    language_option,
)
from tokenroom.cli.written_files import check_written
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.benchmarks.point import Subject
    from tokenroom.benchmarks.read import BenchmarkFile
    from tokenroom.fitting import FitResult
    from tokenroom.profiles import Profile

_WORTH_SHOWING = 16
"""Points below which a calibration is done before a bar could be read."""


@click.command(
    "calibrate",
    context_settings={"max_content_width": 100},
    epilog="After -- comes the engine's own command: tokenroom calibrate --from bench.json --name "
    "mybox --gpu h100 -- vllm serve MODEL. Then: tokenroom speed MODEL --gpu h100 --profile mybox",
)
@words_argument
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Output of vllm bench serve, sglang.bench_serving, GenAI-Perf, AIPerf, GuideLLM, "
    "llama-bench or trtllm-bench; may be repeated.",
)
@click.option("--name", help="Name of the profile.")
@click.option(
    "--profile-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the profile to FILE instead of the configuration folder (with --show: read it).",
)
@click.option("--model", help="The model, when no command is given.")
@deployment_options(
    *("gpu", "gpus", "engine", "tp", "pp", "dp", "ep", "weights", "kv", "context", "assignments"),
    engine="vllm, sglang, tensorrt-llm or llama.cpp, with @VERSION.",
    weights="Type of the weights, where the model's own files do not say it.",
)
@click.option("--list", "listing", is_flag=True, help="List the profiles and stop.")
@click.option("--show", is_flag=True, help="Show the profile of --name (or --profile-file).")
@click.option("--remove", is_flag=True, help="Remove the profile of --name.")
@json_schema_option
@json_option
@gpu_file_option
@language_option
def command(
    words: tuple[str, ...],
    as_json: bool,
    language: Language,
    listing: bool,
    show: bool,
    remove: bool,
    json_schema: bool,
    **options: Any,
) -> int:
    """Fit the model of speed to this machine's own benchmarks.

    Reads what a benchmark tool measured, finds by which factors the machine differs from the model,
    and keeps them under a name that tokenroom speed --profile takes. Model, engine and GPU are
    those that were measured; what a file says of them need not be said again.
    """
    if json_schema:
        from tokenroom.reports.calibration_json import schema_text

        click.echo(schema_text(), nl=False)
        return 0
    asked = [name for name, on in (("list", listing), ("show", show), ("remove", remove)) if on]
    if asked:
        _check_alone(asked, words, options)
    if listing:
        return _list(as_json=as_json, language=language)
    if show:
        return _show(options, as_json=as_json, language=language)
    if remove:
        return _remove(options, as_json=as_json, language=language)
    return _calibrate(words, options, as_json=as_json, language=language)


def _check_alone(asked: Sequence[str], words: tuple[str, ...], options: dict[str, Any]) -> None:
    if len(asked) > 1:
        raise CommandLineError(f"--{asked[0]} and --{asked[1]} are two questions; ask one of them")
    verb = asked[0]
    if words or options["sources"]:
        given = "--from" if options["sources"] else repr(words[0])
        raise CommandLineError(f"--{verb} calibrates nothing; leave {given} out")
    if verb == "list" and (options["name"] or options["profile_file"]):
        raise CommandLineError("--list lists every profile; --show with --name shows one")
    if verb == "remove" and options["profile_file"] is not None:
        raise CommandLineError("--remove takes --name; delete a file of your own yourself")
    if verb != "list" and not (options["name"] or options["profile_file"]):
        raise CommandLineError(f"--{verb} needs the profile's name; give --name NAME")


def _calibrate(
    words: tuple[str, ...], options: dict[str, Any], *, as_json: bool, language: Language
) -> int:
    from datetime import UTC, datetime

    from tokenroom.benchmarks.read import read_benchmark
    from tokenroom.calibrating import calibrate_deployment
    from tokenroom.profile_files import has_speed, read_profile, save_profile
    from tokenroom.reports.progress import progress

    if not options["sources"]:
        raise CommandLineError(
            "no benchmark is given; name its output with --from, as in: tokenroom calibrate --from "
            "bench.json --name mybox --gpu h100 -- vllm serve MODEL"
        )
    path, name = _target(options)
    read = [*words, options["model"], options["gpu_file"], *options["sources"]]
    check_written({"--profile-file": options["profile_file"]}, read)
    files = [read_benchmark(file) for file in options["sources"]]
    _check_distinct(files)
    measured = _deployment(words, options, files)
    with progress(sum(len(file.points) for file in files), least=_WORTH_SHOWING) as on_round:
        found = calibrate_deployment(
            measured, files, name=name, now=datetime.now(UTC), on_round=on_round
        )
    replaced = read_profile(path) if path.exists() and has_speed(path) else None
    save_profile(found.profile, path)
    if as_json:
        from tokenroom.reports.calibration_json import calibration_json
        from tokenroom.reports.console import print_json

        print_json(calibration_json(found.profile, found.remarks, path=path, language=language))
    else:
        from tokenroom.reports.calibration_text import print_calibration
        from tokenroom.reports.console import console

        print_calibration(console(), found, path=path, replaced=replaced, language=language)
    return 0


def _target(options: dict[str, Any]) -> tuple[Path, str]:
    """The profile's file and name."""
    from tokenroom.profile_files import profile_path

    file: Path | None = options["profile_file"]
    name: str | None = options["name"]
    if name is None and file is None:
        raise CommandLineError(
            "the profile has no name; give --name mybox, by which speed --profile finds it"
        )
    if file is not None:
        return file, name or file.stem
    assert name is not None
    return profile_path(name, os.environ), name


def _check_distinct(files: Sequence[BenchmarkFile]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        if file.sha256 in seen:
            raise CommandLineError(
                f"--from {file.name} holds the same as {seen[file.sha256]}; name each run once"
            )
        seen[file.sha256] = file.name


def _deployment(
    words: tuple[str, ...], options: dict[str, Any], files: Sequence[BenchmarkFile]
) -> FitResult:
    """What was measured: as it is said, else as the files say it."""
    from tokenroom.cli.question import question
    from tokenroom.fitting import fit
    from tokenroom.serving_speed import DoesNotFitError
    from tokenroom.serving_terms import check_engine

    if options["model"] is not None and words:
        raise CommandLineError(
            f"--model is {options['model']!r} and {words[0]!r} is given too; give one"
        )
    command = len(words) > 1
    said = _said(files)
    told = dict(options)
    if told["gpu"] is None:
        told["gpu"] = said.gpu
    if not command:
        model = options["model"] or (words[0] if words else said.model)
        if model is None:
            raise CommandLineError(
                f"{files[0].name} names no model; give --model, or the engine's command after --"
            )
        words = (model,)
        if told["engine"] is None:
            told["engine"] = said.engine
        if told["tp"] is None and told["pp"] is None and told["dp"] is None:
            told["tp"] = said.tensor_parallel_size
            told["gpus"] = told["gpus"] or said.gpus
    asked = question(words, told, verb="calibrate")
    result = fit(asked.model, asked.accelerator, **asked.settings)
    check_engine(result.deployment.engine)
    if result.plan.refusal is not None:
        raise DoesNotFitError(result)
    return result


def _said(files: Sequence[BenchmarkFile]) -> Subject:
    """What the files say was measured, the first that says it."""
    from tokenroom.benchmarks.point import Subject

    subjects = [point.subject for file in files for point in file.points]

    def first(trait: str) -> Any:
        return next((value for item in subjects if (value := getattr(item, trait))), None)

    gpu, gpus = first("gpu"), first("gpus")
    if gpu is not None and ", " in gpu:  # llama-bench lists every device
        names = gpu.split(", ")
        gpu, gpus = names[0], gpus or len(names)
    return Subject(
        engine=first("engine"),
        model=first("model"),
        gpu=gpu,
        gpus=gpus,
        tensor_parallel_size=first("tensor_parallel_size"),
    )


def _list(*, as_json: bool, language: Language) -> int:
    from tokenroom.profile_files import has_speed, load_profile, profile_path, saved_names

    kept = saved_names(os.environ)
    names = [name for name in kept if has_speed(profile_path(name, os.environ))]
    profiles = [load_profile(name, os.environ) for name in names]
    if as_json:
        from tokenroom.reports.calibration_json import profiles_json
        from tokenroom.reports.console import print_json

        print_json(profiles_json(profiles))
    else:
        from tokenroom.reports.calibration_text import print_profiles
        from tokenroom.reports.console import console

        print_profiles(console(), profiles, language)
    return 0


def _show(options: dict[str, Any], *, as_json: bool, language: Language) -> int:
    path, profile = named_profile(options["name"], options["profile_file"])
    if as_json:
        from tokenroom.reports.calibration_json import calibration_json
        from tokenroom.reports.console import print_json

        print_json(calibration_json(profile, (), path=path, language=language))
    else:
        from tokenroom.reports.calibration_text import print_profile
        from tokenroom.reports.console import console

        print_profile(console(), profile, language)
    return 0


def _remove(options: dict[str, Any], *, as_json: bool, language: Language) -> int:
    from tokenroom.profile_files import remove_profile
    from tokenroom.reports.messages import message, printable

    path = remove_profile(options["name"], os.environ)
    if as_json:
        from tokenroom.reports.calibration_json import removed_json
        from tokenroom.reports.console import print_json

        print_json(removed_json(options["name"], path))
    else:
        click.echo(message("calibrate.removed", language, file=printable(str(path))))
    return 0


def named_profile(name: str | None, file: Path | None) -> tuple[Path, Profile]:
    """The profile of a name or in a file, and where it is.

    Raises:
        ProfileError: There is none, or it is damaged.
        CommandLineError: Both are given.
    """
    from tokenroom.profile_files import load_profile, profile_path, read_profile

    if file is not None:
        if name is not None:
            raise CommandLineError(
                f"the profile is named {name!r} and --profile-file is {file}; give one of the two"
            )
        return file, read_profile(file)
    assert name is not None
    return profile_path(name, os.environ), load_profile(name, os.environ)
