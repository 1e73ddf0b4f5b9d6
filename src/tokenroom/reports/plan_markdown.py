"""A plan as a page that can be passed on: what was asked, what holds it, how to start it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenroom.errors import TokenroomError
from tokenroom.planning.search import Plan
from tokenroom.reports.messages import Language, message
from tokenroom.reports.plan_files import artefacts
from tokenroom.reports.plan_text import (
    deployment_text,
    found_text,
    heading,
    heading_of,
    nearest_rejections,
    option_lines,
    option_row,
    reason_text,
    table_columns,
    table_notes,
    unproven_lines,
)


def write_markdown(plan: Plan, file: Path, language: Language) -> None:
    """Write the report to ``file``.

    Raises:
        TokenroomError: The file cannot be written.
    """
    try:
        file.write_text("\n".join(markdown_lines(plan, language)) + "\n", encoding="utf-8")
    except OSError as error:
        raise TokenroomError(f"--markdown {file} cannot be written: {error.strerror}") from error


def markdown_lines(plan: Plan, language: Language) -> Iterator[str]:
    """The report's lines."""
    title, promises = heading(plan, language)
    yield f"# {title}"
    yield ""
    yield promises
    yield ""
    if not plan.complete:
        yield message("plan.interrupted", language)
        yield ""
    if plan.options:
        yield found_text(plan, language)
        yield ""
        columns = table_columns(plan)
        yield _row(heading_of(name, plan.demand, language) for name in columns)
        yield _row("---" for _ in columns)
        for option in plan.options:
            yield _row(option_row(option, plan, language))
        yield ""
        for note in table_notes(plan, language):
            yield note
            yield ""
    elif plan.complete:
        yield message("plan.none", language)
        yield ""
    if unproven := list(unproven_lines(plan, language)):
        yield unproven[0]
        yield ""
        yield from (f"- {line}" for line in unproven[1:])
        yield ""
    for number, option in enumerate(plan.options, start=1):
        proposal = option.proposal
        name = deployment_text(proposal.candidate, language, proposal.replicas)
        yield f"## {number}. {name}"
        yield ""
        for line in option_lines(option, plan.demand, language):
            yield f"- {line}"
        yield ""
        for file, text in artefacts(option, number):
            yield f"`{file}`"
            yield ""
            yield "```yaml" if file.endswith(".yaml") else "```sh"
            yield text.rstrip("\n")
            yield "```"
            yield ""
    if plan.rejections:
        yield f"## {message('plan.rejected', language)}"
        yield ""
        for rejection, more in nearest_rejections(plan):
            line = message(
                "plan.rejected.line",
                language,
                deployment=deployment_text(rejection.candidate, language),
                reason=reason_text(rejection, plan.demand, language),
            )
            if more:
                told = message("plan.rejected.more", language, count=more)
                line += f" ({told})"
            yield f"- {line}"


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
