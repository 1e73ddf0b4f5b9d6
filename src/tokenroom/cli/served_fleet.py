"""The servers that ``simulate`` serves by: a deployment, several of it, or a file of pools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tokenroom.cli.options import COUNT, Command
from tokenroom.cli.served_deployment import (
    SERVED_SECTIONS,
    parsed_words,
    served_deployment,
    served_deployment_options,
)
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language

if TYPE_CHECKING:
    from tokenroom.serving.served_fleet import ServedFleet

POLICIES: Final = (
    *("round_robin", "least_load", "power_of_two", "cache_aware", "kv_aware", "sticky"),
)
"""Those of ``tokenroom.serving.fleet_description.Policy``, without loading it for the help."""
FLEET_SECTION: Final = ("replicas", "router", "fleet_file")


def served_fleet_options(command: Command) -> Command:
    """The words and options that :func:`served_fleet` reads."""
    command = click.option(
        "--fleet",
        "fleet_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A YAML or JSON file of several pools of servers, instead of MODEL and options.",
    )(command)
    return servers_options(command)


def servers_options(command: Command) -> Command:
    """The same without the file: a deployment, and how many of it there are."""
    for decorate in (
        click.option(
            "--router",
            type=click.Choice(POLICIES),
            help="How the router chooses among them (round_robin).",
        ),
        click.option("--replicas", type=COUNT, help="Servers alike behind a router (1)."),
        served_deployment_options,
    ):
        command = decorate(command)
    return command


def served_fleet(
    words: tuple[str, ...], options: dict[str, Any], language: Language
) -> ServedFleet:
    """The servers that words and options describe; some may be ones that do not start.

    Raises:
        TokenroomError: A word, an option or a field of the file cannot be read, or two contradict
            each other.
    """
    if options["fleet_file"] is not None:
        return _of_file(words, options, language)
    from tokenroom.serving.fleet_description import (
        MAX_REPLICAS,
        FleetDescription,
        Policy,
        PoolDescription,
        RouterDescription,
    )
    from tokenroom.serving.served_fleet import ServedFleet

    replicas: int | None = options["replicas"]
    if replicas is None and options["router"] is not None:
        raise CommandLineError("--router chooses among servers; give --replicas as well")
    if replicas is not None and not 1 <= replicas <= MAX_REPLICAS:
        raise CommandLineError(f"--replicas is {replicas}; give 1 to {MAX_REPLICAS}")
    return ServedFleet(
        description=FleetDescription(
            pools=(PoolDescription(name="engine", deployment=words, replicas=replicas or 1),),
            router=RouterDescription(policy=Policy(options["router"] or Policy.ROUND_ROBIN)),
        ),
        deployments=(served_deployment(words, options, language),),
    )


def _of_file(words: tuple[str, ...], options: dict[str, Any], language: Language) -> ServedFleet:
    if words:
        raise CommandLineError(
            f"--fleet says what serves, and so does {words[0]!r}; give one of the two"
        )
    beside = {name for section in SERVED_SECTIONS.values() for name in section}
    beside |= {"replicas", "router", "price"}
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.name in beside and source is not ParameterSource.DEFAULT:
            raise CommandLineError(
                f"{option.opts[0]} is given beside --fleet, whose file has the deployments; write "
                "it there"
            )
    from tokenroom.serving.fleet_file import read_fleet_file
    from tokenroom.serving.served_fleet import ServedFleet

    described = read_fleet_file(options["fleet_file"])
    deployments = []
    for pool in described.pools:
        given = parsed_words(pool.deployment)
        deployments.append(served_deployment(given.pop("words"), given, language))
    return ServedFleet(description=described, deployments=tuple(deployments))
