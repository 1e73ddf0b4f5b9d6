"""What was measured of a machine's memory, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenroom.hardware.measured_memory import MeasuredMemory
from tokenroom.profile_files import memory_data
from tokenroom.reports.console import Paragraph, print_trimmed
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION: Final = "1.0"


def print_hardware(
    out: Console, memory: MeasuredMemory, left_out: Sequence[int], path: Path, language: Language
) -> None:
    """Write what was found and where it is kept."""
    from rich.table import Table

    versions = ", ".join(f"{name} {value}" for name, value in memory.versions.items())
    title = message("measure.hardware.title", language, gpu=memory.gpu, versions=versions)
    out.print(Paragraph(title, style="bold"))
    for name in ("context", "kernels", "workspace"):
        size = getattr(memory, f"{name}_bytes")
        out.print(Paragraph(message(f"measure.hardware.{name}", language, size=format_bytes(size))))
    for ranks, size in memory.communicators.items():
        told = message(
            "measure.hardware.communicator", language, ranks=ranks, size=format_bytes(size)
        )
        out.print(Paragraph(told))
    out.print(Paragraph(message(f"measure.hardware.{memory.told_by}", language), style="dim"))
    for done in memory.passes:
        out.print()
        told = message(
            "measure.hardware.passes",
            language,
            model=printable(done.model),
            dtype=done.dtype,
            attention=done.attention,
        )
        out.print(Paragraph(told, style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("tokens", "measured", "gap", "predicted", "ratio"):
            table.add_column(message(f"measure.hardware.column.{name}", language), justify="right")
        for one in done.passes:
            table.add_row(
                f"{one.tokens:,}",
                format_bytes(one.transient_bytes),
                format_bytes(one.gap_bytes),
                format_bytes(one.predicted_bytes),
                f"{one.ratio:.3f}",
            )
        print_trimmed(out, table)
    if left_out:
        listed = ", ".join(f"{count:,}" for count in left_out)
        out.print(Paragraph(message("measure.hardware.left_out", language, tokens=listed)))
    out.print()
    told = message(
        "measure.hardware.written", language, name=memory.profile, file=printable(str(path))
    )
    out.print(Paragraph(told, style="dim"))


def hardware_json(memory: MeasuredMemory, left_out: Sequence[int], path: Path) -> dict[str, Any]:
    """The profile's part on memory, where it is kept, and budgets that did not fit."""
    return {
        "schema_version": SCHEMA_VERSION,
        "profile": memory.profile,
        "file": str(path),
        "memory": memory_data(memory),
        "tokens_left_out": list(left_out),
    }


def schema_text() -> str:
    """The JSON schema, as text."""
    return files("tokenroom.reports").joinpath("data/hardware.schema.json").read_text("utf-8")
