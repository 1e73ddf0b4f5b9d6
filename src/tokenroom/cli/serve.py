"""``tokenroom serve``: the page and the HTTP API."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenroom.cli.options import Quantity, language_option
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, message
from tokenroom.units import parse_count

if TYPE_CHECKING:
    from tokenroom.watching.watcher import Watcher

_PORT = Quantity("INTEGER", partial(parse_count, least=0, most=65535))
_WORKERS = Quantity("INTEGER", partial(parse_count, least=1, most=64))
_QUEUED = Quantity("INTEGER", partial(parse_count, least=0, most=10_000))


@click.command("serve", context_settings={"max_content_width": 100})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=_PORT,
    default=8765,
    show_default=True,
    help="Port to listen on; 0 takes one that is free.",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--allow-hub", is_flag=True, help="Fetch models that clients name by their Hub id.")
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="An origin whose pages may ask; may be repeated.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name that requests may be addressed to, besides addresses and this machine's own name; "
    ".example.org is every name below it. May be repeated.",
)
@click.option(
    "--job-workers",
    type=_WORKERS,
    default=1,
    show_default=True,
    help="Jobs (plans, simulations, sweeps) worked on at once.",
)
@click.option(
    "--max-queued-jobs",
    type=_QUEUED,
    default=32,
    show_default=True,
    help="Jobs that may wait; further ones are refused.",
)
@click.option(
    "--job-seconds",
    type=click.FloatRange(1, 86_400),
    default=300,
    show_default=True,
    help="Seconds after which a job is ended.",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    help="SQLite file of jobs; in the user's state folder by default.",
)
@click.option(
    "--watch",
    "watch_urls",
    multiple=True,
    metavar="URL",
    help="A server to watch for the live view, as http://127.0.0.1:8000; may be repeated.",
)
@click.option(
    "--watch-as",
    "watch_commands",
    multiple=True,
    metavar="COMMAND",
    help="What started it, as 'vllm serve MODEL ...'; once for all, or once for each.",
)
@click.option("--watch-gpu", help="The GPU it runs on, as h100; this machine's by default.")
@language_option
def command(
    host: str,
    port: int,
    open_page: bool,
    allowed_hosts: tuple[str, ...],
    watch_urls: tuple[str, ...],
    watch_commands: tuple[str, ...],
    watch_gpu: str | None,
    language: Language,
    **options: Any,
) -> int:
    """The calculator as a web page, with its HTTP API.

    It serves until interrupted, and works without a network.
    """
    if (watch_commands or watch_gpu is not None) and not watch_urls:
        raise CommandLineError(
            "--watch-as and --watch-gpu are about a server; name it with --watch"
        )
    try:
        from tokenroom.web.app import PAGE
        from tokenroom.web.server_settings import ServerSettings
        from tokenroom.web.serving import serve
    except ModuleNotFoundError as missing:
        raise CommandLineError(
            f"serve needs {missing.name}, which is not installed; pip install 'tokenroom[web]'"
        ) from missing
    given = {name: value for name, value in options.items() if value is not None}
    watcher = _watcher(watch_urls, watch_commands, watch_gpu, offline=not options["allow_hub"])
    has_page = (PAGE / "index.html").is_file()
    if not has_page:
        click.echo(message("serve.no_page", language), err=True)
    serve(
        ServerSettings(
            hosts=(host, *allowed_hosts),
            watcher=watcher,
            **given,
        ),
        host=host,
        port=port,
        on_ready=lambda address: click.echo(
            message("serve.ready", language, address=address), err=True
        ),
        open_page=open_page and has_page,
    )
    return 0


def _watcher(
    urls: tuple[str, ...], commands: tuple[str, ...], gpu: str | None, *, offline: bool
) -> Callable[[], Watcher] | None:
    """What makes the watcher of the live view; None where nothing is to be watched."""
    if not urls:
        return None
    from tokenroom.cli.watched_servers import described_by, watched
    from tokenroom.watching.endpoint_watch import LookSettings
    from tokenroom.watching.requirements import check_requirements
    from tokenroom.watching.watcher import Watcher, WatchSettings

    check_requirements()
    servers = watched(urls, commands, described_by(gpu, offline=offline))
    settings = WatchSettings(look=LookSettings(api_key=os.environ.get("TOKENROOM_WATCH_KEY")))
    return lambda: Watcher(servers, settings)
