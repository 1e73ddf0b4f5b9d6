"""``tokenroom measure``: what a model really holds, beside what is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tokenroom.cli.options import (
    COUNT,
    POSITIVE,
    gpu_file_option,
    json_option,
    json_schema_option,
    language_option,
)
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language

DTYPES = ("bfloat16", "float16", "float32")


@click.command(
    "measure",
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom measure qwen3-0.6b --batch 4 --prompt 512; tokenroom measure ./model "
    "--device cuda. In a program of your own: from tokenroom.measuring import measure.",
)
@click.argument("model", required=False)
@click.option("--batch", type=POSITIVE, default=1, show_default=True, help="Sequences at once.")
@click.option(
    "--prompt", "prompt_tokens", type=POSITIVE, default=512, show_default=True, help="Their tokens."
)
@click.option(
    "--new-tokens", type=POSITIVE, default=16, show_default=True, help="Tokens that each gets."
)
@click.option("--dtype", type=click.Choice(DTYPES), help="Type of the weights; the model's own.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@click.option(
    "--attn",
    "attention",
    type=click.Choice(["eager", "sdpa", "flash_attention_2"]),
    help="attn_implementation; the model's own by default.",
)
@click.option(
    "--cache",
    type=click.Choice(["dynamic", "static", "offloaded", "fp8"]),
    default="dynamic",
    show_default=True,
    help="Class of the cache.",
)
@click.option("--layers", type=POSITIVE, help="Only the first so many layers, of random weights.")
@click.option("--random", is_flag=True, help="Random weights although the folder has others.")
@click.option("--seed", type=COUNT, default=0, show_default=True, help="Of prompts and weights.")
@click.option(
    "--meter",
    type=click.Choice(["tensors", "allocator"]),
    help="What tells peaks: every tensor, exact; or the counters of CUDA's allocator, the default "
    "there.",
)
@click.option(
    "--hardware",
    is_flag=True,
    help="Measure the GPU itself instead and keep a profile that fit --profile uses; layers of "
    "MODEL are run, of llama-3.1-8b-instruct by default.",
)
@click.option(
    "--tokens",
    default="512,2048,8192",
    show_default=True,
    help="Token budgets of passes (--hardware).",
)
@click.option("--name", help="Name of the profile (--hardware).")
@click.option(
    "--profile-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep it in a file of your own (--hardware).",
)
@click.option("--gpus", type=POSITIVE, help="Measure NCCL between so many (--hardware).")
@gpu_file_option
@json_schema_option
@json_option
@language_option
def command(
    model: str | None, json_schema: bool, as_json: bool, language: Language, **options: Any
) -> int:
    """What a model really holds while it generates, beside what is predicted.

    MODEL is a folder with a config.json, a config.json, or a name of the catalogue; without weights
    they are drawn at random. Needs the extra measure (PyTorch and transformers).
    """
    if json_schema:
        from tokenroom.reports.hardware_profile_text import schema_text as hardware_schema
        from tokenroom.reports.measure_json import schema_text

        click.echo(hardware_schema() if options["hardware"] else schema_text(), nl=False)
        return 0
    if options["hardware"]:
        from tokenroom.cli.hardware_profile import measure_hardware
        from tokenroom.measuring.libraries import require_torch

        require_torch("transformers")
        return measure_hardware(model, options, as_json=as_json, language=language)
    if model is None:
        raise CommandLineError("no model is given; name a folder with a config.json, or a model")
    from tokenroom.measuring.libraries import require_torch

    require_torch("transformers")
    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.measuring.beside import beside
    from tokenroom.measuring.in_torch.generation import measure_generation
    from tokenroom.measuring.in_torch.hardware_name import accelerator_of
    from tokenroom.measuring.in_torch.models import device_named, is_random, load
    from tokenroom.measuring.model_files import find_model_files
    from tokenroom.measuring.record import Meter

    files = find_model_files(model)
    device = device_named(options["device"])
    made = load(
        files,
        device=device,
        dtype=options["dtype"],
        attention=options["attention"],
        layers=options["layers"],
        random=options["random"],
        seed=options["seed"],
    )
    measured = measure_generation(
        made,
        batch=options["batch"],
        prompt_tokens=options["prompt_tokens"],
        new_tokens=options["new_tokens"],
        cache=options["cache"],
        seed=options["seed"],
        meter=None if options["meter"] is None else Meter(options["meter"]),
    )
    found = beside(measured, accelerator_of(device, load_catalogue(options["gpu_file"])))
    drawn = is_random(files, layers=options["layers"], random=options["random"])
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.measure_json import measure_json

        print_json(measure_json(found, random_weights=drawn, language=language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.measure_text import print_measurement

        print_measurement(console(), found, random_weights=drawn, language=language)
    return 0
