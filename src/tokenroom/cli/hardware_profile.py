"""``tokenroom measure --hardware``: this machine's memory as a profile, and what takes one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenroom.errors import CommandLineError, MeasurementError, ProfileError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.hardware.accelerator import Accelerator

_MODEL = "llama-3.1-8b-instruct"
_LAYERS = 2


def with_memory(accelerator: Accelerator, name: str | None, file: Path | None) -> Accelerator:
    """The accelerator with what a profile of the machine tells of its memory.

    Raises:
        ProfileError: The profile is missing, damaged, of another GPU, or of speed alone.
        CommandLineError: Both are given.
    """
    from tokenroom.profile_files import load_memory, read_memory

    if file is not None and name is not None:
        raise CommandLineError(
            f"the profile is named {name!r} and --profile-file is {file}; give one of the two"
        )
    if file is not None:
        memory = read_memory(file)
    else:
        assert name is not None
        memory = load_memory(name, os.environ)
    if memory.gpu != accelerator.key:
        raise ProfileError(
            f"profile {memory.profile} was measured on {memory.gpu} and says nothing about "
            f"{accelerator.key}; measure there, or leave the profile out"
        )
    return replace(accelerator, measured=memory)


def measure_hardware(
    model: str | None, options: dict[str, Any], *, as_json: bool, language: Language
) -> int:
    """Measure this machine's GPU, keep the profile and show it."""
    from tokenroom.profile_files import profile_path, save_memory

    name, file = options["name"], options["profile_file"]
    if name is None and file is None:
        raise CommandLineError("--hardware keeps a profile; name it with --name, as --name mybox")
    path = file if file is not None else profile_path(name, os.environ)
    tokens = _tokens(options["tokens"])
    import torch

    if not torch.cuda.is_available():
        raise MeasurementError(
            f"--hardware measures a CUDA device and PyTorch {torch.__version__} sees none here; "
            f"run it on the machine with the GPU, with a CUDA build of PyTorch"
        )
    memory, left_out = _measured(model or _MODEL, name or file.stem, tokens, options)
    save_memory(memory, path)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.hardware_profile_text import hardware_json

        print_json(hardware_json(memory, left_out, path))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.hardware_profile_text import print_hardware

        print_hardware(console(), memory, left_out, path, language)
    return 0


def _tokens(text: str) -> list[int]:
    from tokenroom.cli.options import listed
    from tokenroom.units import parse_tokens

    return sorted({parse_tokens(part, "--tokens") for part in listed(text, "--tokens")})


def _measured(model: str, name: str, tokens: list[int], options: dict[str, Any]) -> tuple[Any, Any]:
    """What the device tells; nothing may have run on it before."""
    from datetime import UTC, datetime

    from tokenroom.hardware.catalogue import load_catalogue
    from tokenroom.hardware.measured_memory import MeasuredMemory
    from tokenroom.measuring.in_torch.communicators import measure_communicator
    from tokenroom.measuring.in_torch.cuda_counters import CudaCounters, driver_version
    from tokenroom.measuring.in_torch.hardware import measure_terms
    from tokenroom.measuring.in_torch.hardware_name import accelerator_of
    from tokenroom.measuring.in_torch.models import DTYPES, device_named, load
    from tokenroom.measuring.in_torch.readings import library_versions
    from tokenroom.measuring.model_files import find_model_files
    from tokenroom.reports.progress import progress

    device = device_named("cuda" if options["device"] == "auto" else options["device"])
    accelerator = accelerator_of(device, load_catalogue(options["gpu_file"]))
    if accelerator is None:
        import torch

        raise MeasurementError(
            f"{torch.cuda.get_device_name(device)} is not in the catalogue, so no deployment could "
            f"name it; describe it in a file and give --gpu-file"
        )
    files = find_model_files(model)
    dtype = options["dtype"] or "bfloat16"
    counters = CudaCounters(device)
    with progress(len(tokens), least=2) as on_pass:
        terms = measure_terms(
            counters,
            device,
            lambda: load(
                files,
                device=device,
                dtype=dtype,
                attention=options["attention"],
                layers=options["layers"] or _LAYERS,
                seed=options["seed"],
            ),
            tokens=tokens,
            dtype=DTYPES[dtype],
            on_pass=on_pass,
        )
    communicators = {}
    if options["gpus"] is not None and options["gpus"] > 1:
        communicators[options["gpus"]] = measure_communicator(options["gpus"])
    versions = library_versions()
    driver = driver_version()
    return MeasuredMemory(
        profile=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu=accelerator.key,
        told_by=counters.told_by,
        context_bytes=terms.context_bytes,
        kernels_bytes=terms.kernels_bytes,
        workspace_bytes=terms.workspace_bytes,
        communicators=communicators,
        passes=(terms.passes,),
        versions=versions if driver is None else versions | {"driver": driver},
    ), terms.left_out
