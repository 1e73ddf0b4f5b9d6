"""What ``compare`` compares: deployments and fleets of files, or variations of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenroom.cli.served_deployment import parsed_words, served_deployment
from tokenroom.cli.variations import VARIED_OPTIONS, variations
from tokenroom.errors import CommandLineError, ComparisonError, DeploymentError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.comparing.comparison import Subject
    from tokenroom.serving.fleet_description import FleetDescription
    from tokenroom.serving.served_deployment import ServedDeployment
    from tokenroom.serving.served_fleet import ServedFleet


class _Described(NamedTuple):
    """A deployment as it is written; ``fleet`` is what its file says, where it is from one."""

    title: str | None
    words: tuple[str, ...]
    options: Mapping[str, Any]
    fleet: FleetDescription | None


def subjects(
    words: tuple[str, ...], options: Mapping[str, Any], varied: Sequence[str], language: Language
) -> Iterator[Subject]:
    """The deployments and fleets that words, options and ``--vary`` name.

    One whose settings the engine refuses is given with the reason.

    Args:
        words: Files, or a model's name or an engine's command.
        options: Of :func:`tokenroom.cli.served_fleet.servers_options`.
        varied: What ``--vary`` says, each time that it is given.
        language: Of what is told.

    Raises:
        TokenroomError: A file, a word or an option cannot be read.
    """
    if are_files(words):
        described = list(_of_files(words))
    else:
        own = {name: options[name] for name in VARIED_OPTIONS}
        described = [_Described(None, words, own, None)]
    if len(described) == 1 and not varied:
        raise ComparisonError(
            "one deployment is given; name two files or more, or vary it, as in: tokenroom compare "
            "llama-3.1-8b --gpu h100 --vary block-size=16,64 --workload chat:rate=5"
        )
    for one in described:
        if one.fleet is not None and len(one.fleet.pools) > 1:
            if varied:
                raise ComparisonError(
                    f"--vary is of one deployment, and {one.title} has several pools; write its "
                    "variations as files"
                )
            yield _subject(one.title or "", partial(_of_pools, one.fleet, language))
            continue
        for variation in variations(one.options, varied):
            name = ", ".join(part for part in (one.title, variation.name) if part)
            changed = one._replace(options=variation.options)
            yield _subject(name, partial(_of_one, changed, language))


def are_files(words: Sequence[str]) -> bool:
    """Whether words are files of deployments, and no model or command."""
    return bool(words) and all(word.endswith((".yaml", ".yml")) for word in words)


def _of_files(words: Sequence[str]) -> Iterator[_Described]:
    from tokenroom.serving.fleet_file import read_fleet_file

    stems = [Path(word).stem for word in words]
    for word, stem in zip(words, stems, strict=True):
        fleet = read_fleet_file(Path(word))
        title = fleet.name or (stem if stems.count(stem) == 1 else word)
        pool = fleet.pools[0]
        own = parsed_words(pool.deployment)
        own |= {"replicas": pool.replicas, "router": str(fleet.router.policy)}
        if pool.price_per_gpu_hour is not None:
            own["price"] = pool.price_per_gpu_hour
        yield _Described(title, own.pop("words"), own, fleet)


def _subject(name: str, servers: Callable[[], ServedDeployment | ServedFleet]) -> Subject:
    from tokenroom.comparing.comparison import Subject

    try:
        return Subject(name=name, servers=servers())
    except DeploymentError as error:
        return Subject(name=name, problem=str(error))


def _of_pools(fleet: FleetDescription, language: Language) -> ServedFleet:
    """A fleet of several pools, as its file has it."""
    from tokenroom.serving.served_fleet import ServedFleet

    deployments = []
    for pool in fleet.pools:
        own = parsed_words(pool.deployment)
        words = own.pop("words")
        deployments.append(served_deployment(words, own, language, verb="compare"))
    return ServedFleet(description=fleet, deployments=tuple(deployments))


def _of_one(described: _Described, language: Language) -> ServedDeployment | ServedFleet:
    """A deployment, or several of it behind a router."""
    from tokenroom.serving.fleet_description import (
        FleetDescription,
        Policy,
        PoolDescription,
        RouterDescription,
    )
    from tokenroom.serving.served_fleet import ServedFleet

    _, words, options, fleet = described
    if options["router"] is not None and options["replicas"] is None:
        raise CommandLineError(
            "router chooses among servers; give --replicas, or vary it (--vary replicas=2,4)"
        )
    deployment = served_deployment(words, dict(options), language, verb="compare")
    if fleet is None:
        pool = PoolDescription(name="engine", deployment=words)
        fleet = FleetDescription(pools=(pool,))
    policy = Policy(options["router"] or Policy.ROUND_ROBIN)
    router = fleet.router if fleet.router.policy is policy else RouterDescription(policy=policy)
    replicas = 1 if options["replicas"] is None else options["replicas"]
    pool = replace(fleet.pools[0], replicas=replicas)
    fleet = replace(fleet, pools=(pool,), router=router)
    if fleet.single is not None:
        return deployment
    return ServedFleet(description=fleet, deployments=(deployment,))
