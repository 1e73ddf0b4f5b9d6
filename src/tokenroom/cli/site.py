"""``tokenroom site``: the page as files that need no server."""

from __future__ import annotations

from pathlib import Path

import click

from tokenroom.cli.options import language_option
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, message


@click.command("site")
@click.argument("out", type=click.Path(path_type=Path))
@language_option
def command(out: Path, language: Language) -> int:
    """The calculator's page as files for any web host, computing in the browser.

    OUT is a folder to make.
    """
    try:
        from tokenroom.web.site import write_site
    except ModuleNotFoundError as missing:
        raise CommandLineError(
            f"site needs {missing.name}, which is not installed; pip install 'tokenroom[web]'"
        ) from missing
    num_bytes = write_site(out)
    click.echo(
        message("site.written", language, folder=str(out), size=f"{num_bytes / 1e6:.1f} MB"),
        err=True,
    )
    return 0
