"""What ``calibrate`` found, for a person: errors before and after, factors, what remains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tokenroom.engines.registry import engine_title
from tokenroom.errors import HardwareError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.performance.factors import Factors
from tokenroom.profiles import RANGE, Applied, PointRecord, Profile
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tokenroom.benchmarks.point import Remark
    from tokenroom.calibrating import Calibrated


def print_calibration(
    out: Console, found: Calibrated, *, path: Path, replaced: Profile | None, language: Language
) -> None:
    """Write what a calibration came to and where it is kept."""
    profile = found.profile
    _print_found(out, profile, language)
    out.print()
    own = path.parent.name == "profiles" and path.stem == profile.name
    key = "calibrate.written" if own else "calibrate.written_file"
    told = {"name": profile.name, "created": profile.created, "file": printable(str(path))}
    out.print(Paragraph(message(key, language, **told), style="dim"))
    if replaced is not None:
        out.print(
            Paragraph(
                message(
                    "calibrate.replaced",
                    language,
                    created=replaced.created,
                    model=printable(replaced.served.model),
                ),
                style="dim",
            )
        )
    _print_remarks(out, remark_texts(found.remarks, language), language)


def print_profile(out: Console, profile: Profile, language: Language) -> None:
    """Write a profile that is kept."""
    told = {"name": profile.name, "created": profile.created}
    out.print(Paragraph(message("calibrate.profile", language, **told), style="bold"))
    _print_found(out, profile, language)


def print_profiles(out: Console, profiles: Sequence[Profile], language: Language) -> None:
    """Write a line for each profile."""
    from rich.table import Table

    if not profiles:
        out.print(Paragraph(message("calibrate.none", language)))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("name", "created", "deployment"):
        title = message(f"calibrate.column.{name}", language)
        table.add_column(title, no_wrap=name != "deployment")
    for profile in profiles:
        table.add_row(profile.name, _moment(profile.created), _title(profile, language))
    print_trimmed(out, table)


def _moment(created: str) -> str:
    """A date and time to the minute: several profiles may be of one day."""
    return created[:16].replace("T", " ")


def remark_texts(remarks: Sequence[tuple[str, Remark]], language: Language) -> list[str]:
    """Remarks as sentences."""
    found = []
    for file, remark in remarks:
        values = dict(remark.values)
        if "figure" in values:
            values["figure"] = message(f"calibrate.figure.{values['figure']}", language)
        for name in ("ratio", "accepted"):
            if name in values:
                values[name] = f"{values[name]:.2f}"
        if "share" in values:
            values["share"] = f"{values['share']:.0%}"
        place = f"{file}, {remark.place}" if remark.place else file
        found.append(message(f"calibrate.remark.{remark.key}", language, place=place, **values))
    return [printable(text) for text in found]


def applied_text(applied: Applied, language: Language) -> str:
    """Which profile a speed rests on, in one sentence."""
    profile = applied.profile
    parts = [
        message(
            "calibrate.used_factor",
            language,
            name=message(f"calibrate.factor.{name}", language),
            value=f"{value:.2f}",
        )
        for name, value in zip(Factors._fields, applied.factors, strict=True)
        if abs(math.log(value)) > math.log(1.005)
    ]
    join = message("speed.parts_join", language)
    return printable(
        message(
            "calibrate.used",
            language,
            name=profile.name,
            created=profile.created[:10],
            figures=len(profile.points),
            files=join.join(source.name for source in profile.sources),
            factors=join.join(parts) or message("calibrate.used_nothing", language),
        )
    )


def difference_text(applied: Applied, language: Language) -> str | None:
    """How the deployment differs from the one that was calibrated; None when it does not."""
    if not applied.differences:
        return None
    traits = message("speed.parts_join", language).join(
        message(
            "calibrate.trait",
            language,
            trait=difference.trait,
            value=message("unknown", language)
            if difference.calibrated is None
            else str(difference.calibrated),
        )
        for difference in applied.differences
    )
    name = applied.profile.name
    share = f"{applied.share:.0%}"
    text = message("calibrate.differs", language, name=name, traits=traits, share=share)
    return printable(text)


def print_applied(out: Console, applied: Applied, language: Language) -> None:
    """Write the factors behind a speed, each with where it comes from."""
    out.print()
    heading = message("calibrate.explain", language, name=applied.profile.name)
    out.print(Paragraph(heading, style="bold"))
    profile = applied.profile
    print_trimmed(out, _factors(profile, applied.factors, language))
    _print_sources(out, profile, language)


def _print_found(out: Console, profile: Profile, language: Language) -> None:
    out.print(Paragraph(_title(profile, language), style="bold"))
    out.print()
    before, after, held_out = (
        median(_error(point, name) for point in profile.points)
        for name in ("before", "after", "held_out")
    )
    out.print(
        Paragraph(
            message(
                "calibrate.verdict" if profile.identified else "calibrate.verdict_nothing",
                language,
                figures=len(profile.points),
                before=f"{before:.1%}",
                after=f"{after:.1%}",
            ),
            style="bold",
        )
    )
    if len({(point.file, point.place) for point in profile.points}) > 1:
        text = message("calibrate.held_out", language, held_out=f"{held_out:.1%}")
        out.print(Paragraph(text))
    out.print()
    print_trimmed(out, _points(profile.points, language))
    out.print()
    print_trimmed(out, _factors(profile, profile.factors, language))
    out.print()
    for line in _remaining(profile, language):
        out.print(Paragraph(line))
    out.print()
    _print_sources(out, profile, language)


def _print_sources(out: Console, profile: Profile, language: Language) -> None:
    head = message("calibrate.sources", language)
    for source in profile.sources:
        line = f"{head}: {source.name} ({source.title}), sha256 {source.sha256[:12]}"
        out.print(Paragraph(printable(line), style="dim"))


def _title(profile: Profile, language: Language) -> str:
    served = profile.served
    try:
        gpu = find_accelerator(served.gpu).name
    except HardwareError:  # a user's own GPU
        gpu = served.gpu
    return printable(
        message(
            "calibrate.title",
            language,
            model=served.model,
            gpus=served.gpus,
            gpu=gpu,
            engine=engine_title(served.engine),
            version=served.engine_version,
        )
    )


def _error(point: PointRecord, name: str) -> float:
    if name == "held_out":
        return abs(1 / point.held_out - 1)
    predicted: float = getattr(point, name)
    return abs(predicted / point.measured - 1)


def _points(points: Sequence[PointRecord], language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("point", "figure", "load", "measured", "before", "after", "held_out"):
        table.add_column(
            message(f"calibrate.column.{name}", language),
            justify="left" if name in ("point", "figure") else "right",
            no_wrap=name != "point",
            overflow="fold",
        )
    said = ""
    for point in points:
        place = f"{point.file}, {point.place}" if point.place else point.file
        rate = point.figure == "throughput"
        measured = point.measured if rate else point.measured * 1e3
        table.add_row(
            "" if place == said else printable(place),
            message(f"calibrate.figure.{point.figure}", language),
            f"{point.concurrency:,.0f}, {point.input_tokens:,.0f}/{point.output_tokens:,.0f}",
            f"{measured:,.0f}" if rate else f"{measured:,.2f} ms",
            f"{point.before / point.measured - 1:+.1%}",
            f"{point.after / point.measured - 1:+.1%}",
            f"{1 / point.held_out - 1:+.1%}",
        )
        said = place
    return table


def _factors(profile: Profile, factors: Factors, language: Language) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(message("calibrate.factors", language), no_wrap=True)
    table.add_column(message("calibrate.column.factor", language), justify="right", no_wrap=True)
    table.add_column(message("calibrate.column.range", language), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name, value, spread in zip(Factors._fields, factors, profile.spreads, strict=True):
        if name == "communication" and profile.served.gpus == 1:
            continue
        wide = math.exp(RANGE * spread)
        known = name in profile.identified
        table.add_row(
            message(f"calibrate.factor.{name}", language),
            f"x{value:.2f}",
            f"{value / wide:.2f} … {value * wide:.2f}",
            "" if known else message("calibrate.unidentified", language),
        )
    return table


def _remaining(profile: Profile, language: Language) -> Iterator[str]:
    ends: dict[str, str] = {}
    for kind, spread in profile.remaining.items():
        wide = math.exp(RANGE * spread)
        ends |= {f"{kind}_low": f"{1 / wide:.0%}", f"{kind}_high": f"{wide:.0%}"}
    yield message("calibrate.remains", language, **ends)
    unknown = [name for name in Factors._fields if name not in profile.identified]
    if profile.served.gpus == 1:
        unknown.remove("communication")
    if unknown:
        names = (message(f"calibrate.factor.{name}", language) for name in unknown)
        yield message(
            "calibrate.unknown",
            language,
            names=message("speed.parts_join", language).join(names),
            advice=message("calibrate.advice", language),
        )


def _print_remarks(out: Console, sentences: Sequence[str], language: Language) -> None:
    from rich.text import Text

    for sentence in sentences:
        label = Text(message("fit.warning", language), style="yellow")
        out.print(Paragraph(label + Text(sentence), rest=" " * label.cell_len))
