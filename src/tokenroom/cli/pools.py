"""``tokenroom pools``: one mixed pool of servers, or short and long prompts apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from tokenroom.cli.deployment_options import FIELDS
from tokenroom.cli.options import (
    NUMBER,
    Quantity,
    SectionedCommand,
    json_option,
    language_option,
    promise_options,
)
from tokenroom.cli.served_deployment import (
    SERVED_SECTIONS,
    served_deployment,
    served_deployment_options,
)
from tokenroom.cli.served_workload import WORKLOAD_SECTION, workload_options, workload_source
from tokenroom.cli.work_options import WORK_SECTION, counted_runs, work_options, working
from tokenroom.errors import CommandLineError, shown
from tokenroom.reports.messages import Language
from tokenroom.units import parse_count

if TYPE_CHECKING:
    from tokenroom.comparing.splitting import Splitting
    from tokenroom.serving.served_deployment import ServedDeployment

_INTERRUPTED: Final = 128 + 2
_LIMIT: Final = 2000


class _PoolsCommand(SectionedCommand):
    sections: Mapping[str, tuple[str, ...]] = {
        "Pools": ("draws", "confidence", "ttft", "tpot"),
        "Workload": WORKLOAD_SECTION,
        "Work": WORK_SECTION,
        **SERVED_SECTIONS,
    }
    fields: Mapping[str, tuple[str, ...]] = {
        **FIELDS,
        "the workload": ("workload",),
        "the number of requests": ("limit",),
    }


@click.command(
    "pools",
    cls=_PoolsCommand,
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom pools llama-3.1-8b --gpu 8xl40s --workload rag:rate=12 --ttft 2s "
    "--tpot 60ms",
)
@served_deployment_options
@click.option(
    "--draws",
    type=Quantity("INTEGER", partial(parse_count, least=2)),
    default=5,
    show_default=True,
    help="Draws of the workload, or stretches of a trace, that tell whether splitting pays.",
)
@click.option(
    "--confidence",
    type=NUMBER,
    default=0.95,
    show_default=True,
    help="Share of intervals that are to hold the true gain.",
)
@workload_options
@promise_options
@work_options
@json_option
@language_option
def command(words: tuple[str, ...], as_json: bool, language: Language, **options: Any) -> int:
    """Whether short and long prompts are better served apart, under promises of TTFT and TPOT.

    Thresholds and divisions of the servers are tried on one draw of the workload, and the best is
    held against one mixed pool on others. Exit code 0 where splitting pays, 1 where it does not.
    """
    if options["ttft"] is None and options["tpot"] is None:
        raise CommandLineError("nothing is promised; give --ttft, --tpot or both")
    if not 0 < options["confidence"] < 1:
        raise CommandLineError(
            f"--confidence is {options['confidence']:g}; give a share above 0 and below 1"
        )
    options, gpus = _one_server(options)
    server = served_deployment(words, options, language, verb="pools")
    if server.refused is not None:
        from tokenroom.reports.console import console
        from tokenroom.reports.speed_text import print_refusal

        print_refusal(console(), server.refused, language)
        return 1
    if options["limit"] is None and options["trace"] is None:
        options = {**options, "limit": _LIMIT}
    found = _found(server, gpus, options, language)
    if as_json:
        from tokenroom.reports.console import print_json
        from tokenroom.reports.splitting_text import splitting_json

        print_json(splitting_json(found, language))
    else:
        from tokenroom.reports.console import console
        from tokenroom.reports.splitting_text import print_splitting

        print_splitting(console(), found, language)
    if found.interrupted:
        return _INTERRUPTED
    return 0 if found.pays else 1


def _one_server(options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The options of one server, and the GPUs of all of them."""
    from tokenroom.cli.options import named_count
    from tokenroom.hardware.names import split_count

    gpu = options["gpu"]
    gpus = options["gpus"] if gpu is None else named_count(gpu, options["gpus"])
    if gpus is None:
        held = "" if gpu is None else f" by --gpu {shown(gpu)}"
        raise CommandLineError(
            f"no number of GPUs is given{held}; give all of them, as --gpu 8xl40s"
        )
    kind = gpu if gpu is None else split_count(gpu)[1]
    return {**options, "gpu": kind, "gpus": None}, gpus


def _found(
    server: ServedDeployment, gpus: int, options: dict[str, Any], language: Language
) -> Splitting:
    from tokenroom.comparing.splitting import most_runs, splitting
    from tokenroom.serving.metrics import LatencyLimits

    each = server.fit.deployment.node.count
    if gpus % each or gpus < 2 * each:
        raise CommandLineError(
            f"--gpus is {gpus} and a server has {each}; give a multiple of {each}, at least "
            f"{2 * each}"
        )
    limits = LatencyLimits(ttft_seconds=options["ttft"], tpot_seconds=options["tpot"])
    with (
        working(options) as work,
        counted_runs(most_runs(options["draws"]), language) as on_outcome,
    ):
        return splitting(
            server,
            gpus // each,
            workload_source(options),
            limits,
            work.executor,
            workers=work.workers,
            draws=options["draws"],
            confidence=options["confidence"],
            store=work.store,
            on_outcome=on_outcome,
        )
