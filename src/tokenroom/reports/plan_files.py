"""What starts each plan, as files: shell, ``docker run``, Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenroom.engines.artefacts import container
from tokenroom.errors import TokenroomError
from tokenroom.planning.search import Option, Plan


def stem_of(option: Option, number: int) -> str:
    """What tells a plan from the others, by its place."""
    return f"{number}-{option.proposal.candidate.accelerator.key}"


def artefacts(option: Option, number: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the files of one plan.

    Args:
        option: The plan.
        number: Its place, for the names.
    """
    fitted = option.proposal.fit
    launch = fitted.launch
    if launch is None:
        return
    stem = stem_of(option, number)
    yield f"{stem}.sh", f"{launch.shell_text}\n"
    wrapped = container(fitted.deployment, launch, label=stem)
    if wrapped is not None:
        yield f"{stem}.docker.sh", f"{wrapped.docker_text}\n"
        yield f"{stem}.k8s.yaml", wrapped.kubernetes_text(option.proposal.replicas)


def write_artefacts(plan: Plan, folder: Path) -> list[str]:
    """Write the files of every plan to a folder, which is made; gives their names.

    Raises:
        TokenroomError: A file cannot be written.
    """
    names: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, option in enumerate(plan.options, start=1):
            for name, text in artefacts(option, number):
                (folder / name).write_text(text, encoding="utf-8")
                names.append(name)
    except OSError as error:
        raise TokenroomError(f"--write {folder} cannot be written: {error.strerror}") from error
    return names
