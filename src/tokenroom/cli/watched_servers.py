"""Which servers are watched, and what is predicted for each: options of ``watch`` and ``serve``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tokenroom.cli.deployment_options import SECTIONS
from tokenroom.cli.question import engine_settings, named_model, question
from tokenroom.errors import CommandLineError, HardwareError, WatchError, shown

if TYPE_CHECKING:
    from tokenroom.fitting import FitResult
    from tokenroom.watching.planned import Hardware, Prediction
    from tokenroom.watching.watcher import Watched

_SHORTHAND: Final = ("tp", "pp", "dp", "ep", "context", "kv", "util", "weights")
"""Options that are arguments of :func:`tokenroom.fitting.fit` by the same name."""


def watched(
    urls: tuple[str, ...], commands: tuple[str, ...], options: dict[str, Any]
) -> list[Watched]:
    """The servers at some addresses, each with who predicts for it.

    Args:
        urls: Their addresses.
        commands: What started them: one for all, or one for each.
        options: Of the deployment, as ``fit`` takes them.

    Raises:
        TokenroomError: An address, a command or an option cannot be read.
    """
    from tokenroom.watching.addresses import parse_addresses
    from tokenroom.watching.planned import given
    from tokenroom.watching.watcher import Watched

    addresses = parse_addresses(urls)
    if commands and len(commands) not in (1, len(addresses)):
        raise CommandLineError(
            f"--as is given {len(commands)} times for {len(addresses)} servers; give it once for "
            f"all, or once for each in their order"
        )
    if commands or options.get("from_file") is not None:
        if not addresses:
            raise CommandLineError("--as describes a server, and none is given; name its address")
        texts = commands or ("",)
        answers = [_described(text, options) for text in texts]
        answers *= len(addresses) if len(answers) == 1 else 1
        return [
            Watched(address=address, prediction=given(answer))
            for address, answer in zip(addresses, answers, strict=True)
        ]
    return [Watched(address=one, prediction=_told(options)) for one in addresses]


def described_by(gpu: str | None, *, offline: bool) -> dict[str, Any]:
    """The options of a deployment of which only these may be given."""
    names = (name for section in SECTIONS.values() for name in section)
    return {**dict.fromkeys(names), "gpu": gpu, "offline": offline, "assignments": ()}


def _described(text: str, options: dict[str, Any]) -> FitResult:
    from tokenroom.fitting import fit

    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise CommandLineError(f"--as is {shown(text)}, and its quotes do not match") from error
    asked = question(words, options, verb="watch")
    return fit(asked.model, asked.accelerator, **asked.settings)


def _told(options: dict[str, Any]) -> Prediction:
    from tokenroom.watching.planned import told

    for name in ("engine", "service", "used"):
        if options.get(name):
            raise CommandLineError(
                f"--{name} is part of a description, and none is given; give what was started "
                f"with --as"
            )
    given = {name: options[name] for name in _SHORTHAND if options.get(name) is not None}
    given |= engine_settings(options, "watch")
    return told(_hardware(options), lambda name: named_model(name, options), given)


def _hardware(options: dict[str, Any]) -> Callable[[], Hardware]:
    """Finds the GPUs: those that are named, else those of this machine."""

    def find() -> Hardware:
        from tokenroom.hardware.catalogue import custom_accelerator, load_catalogue
        from tokenroom.hardware.names import split_count
        from tokenroom.watching.gpus import GpuReader
        from tokenroom.watching.planned import Hardware

        catalogue = load_catalogue(options.get("gpu_file"))
        name, count = options.get("gpu"), options.get("gpus")
        if options.get("gpu_memory") is not None:
            base = catalogue.find(name) if name else None
            gpu = custom_accelerator(
                options["gpu_memory"], bandwidth=options.get("bandwidth"), base=base
            )
            return Hardware(gpu=gpu, gpus=count or 1, counted=count is None)
        if name:
            number = split_count(name)[0] or count
            return Hardware(gpu=catalogue.find(name), gpus=number or 1, counted=number is None)
        reader = GpuReader()
        try:
            seen = reader.read()
        finally:
            reader.close()
        whole = [gpu for gpu in seen if not gpu.mig]  # of a divided one its instances are used
        busy = [gpu for gpu in whole if gpu.processes]
        names = {gpu.name for gpu in busy or whole}
        if len(names) != 1:
            raise WatchError("nobody says what GPU the server runs on; name it with --gpu")
        try:
            return Hardware(
                gpu=catalogue.find(names.pop()),
                gpus=count or len(busy) or 1,
                counted=count is None,
            )
        except HardwareError as error:
            raise WatchError(f"{error}; name it with --gpu") from error

    return find
