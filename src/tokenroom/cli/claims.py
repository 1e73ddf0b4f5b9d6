"""``tokenroom claims``: figures that articles publish, beside those that are computed here."""

from __future__ import annotations

import click

from tokenroom.cli.options import json_option, language_option
from tokenroom.errors import CommandLineError
from tokenroom.reports.messages import Language, printable


@click.command(
    "claims",
    context_settings={"max_content_width": 100},
    epilog="As in: tokenroom claims kv-70b-4096-x1; tokenroom claims table-9.2 --markdown",
)
@click.argument("names", nargs=-1, metavar="[ROW]...")
@click.option(
    "--recorded",
    is_flag=True,
    help="Take figures of simulations as they were recorded, which needs no seconds.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a line for each figure.")
@json_option
@language_option
def command(
    names: tuple[str, ...],
    recorded: bool,
    as_json: bool,
    as_markdown: bool,
    as_csv: bool,
    language: Language,
) -> int:
    """What two articles claim on GPU memory, beside what is computed here, and why.

    ROW is the name of a row, or what names begin with (table-9.2). All of them without one, which
    takes simulations of some seconds.
    """
    if as_json + as_markdown + as_csv > 1:
        raise CommandLineError("--json, --markdown and --csv are three forms; give one of them")
    from tokenroom.claims.index import all_claims, answers, claims_named
    from tokenroom.reports import claims_text
    from tokenroom.reports.progress import progress

    wanted = claims_named(names) if names else all_claims()
    with progress(len(wanted), least=20) as moved:
        done = 0

        def on_claim() -> None:
            nonlocal done
            done += 1
            if moved is not None:
                moved(done, len(wanted))

        found = list(answers(wanted, live=not recorded, on_claim=on_claim))
    if as_json:
        from tokenroom.reports.console import print_json

        print_json(claims_text.claims_json(found))
    elif as_markdown:
        click.echo(printable(claims_text.claims_markdown(found, language)), nl=False)
    elif as_csv:
        click.echo(claims_text.claims_csv(found), nl=False)
    else:
        from tokenroom.reports.console import console

        claims_text.print_claims(console(), found, language)
    return 0
