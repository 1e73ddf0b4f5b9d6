"""What starts each plan, as files: shell, ``docker run``, Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenroom.engines.artefacts import Container, container
from tokenroom.errors import TokenroomError
from tokenroom.planning.judging import Proposal
from tokenroom.planning.search import Option, Plan
from tokenroom.planning.split_launch import split_script


def stem_of(option: Option, number: int) -> str:
    """What tells a plan from the others, by its place."""
    return f"{number}-{option.proposal.candidate.accelerator.key}"


def start_text(proposal: Proposal) -> str | None:
    """What starts a replica in a shell; None of an engine without a command line."""
    candidate = proposal.candidate
    if candidate.split is not None:
        return split_script(candidate, proposal.demand, proposal.fit.deployment.version)
    launch = proposal.fit.launch
    return None if launch is None else launch.shell_text


def container_of(option: Option, number: int) -> Container | None:
    """A replica as a container; None of several servers, or where no image is known."""
    fitted = option.proposal.fit
    if option.proposal.candidate.split is not None or fitted.launch is None:
        return None
    return container(fitted.deployment, fitted.launch, label=stem_of(option, number))


def artefacts(option: Option, number: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the files of one plan.

    Args:
        option: The plan.
        number: Its place, for the names.
    """
    text = start_text(option.proposal)
    if text is None:
        return
    stem = stem_of(option, number)
    yield f"{stem}.sh", f"{text}\n"
    wrapped = container_of(option, number)
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
