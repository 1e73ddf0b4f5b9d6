"""A look-up table: rows of figures that carry their unit, however they are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["text", "count", "tokens", "bytes", "gigabytes", "seconds", "share"]
Cell: TypeAlias = str | int | float | None


class Column(NamedTuple):
    """One column.

    Attributes:
        name: Key of its heading, or the heading itself where it is a value (``"4096"``).
        unit: What its cells are: ``"bytes"`` are written as GiB, ``"gigabytes"`` as 10^9 bytes.
        is_value: The name is a value and no key.
    """

    name: str
    unit: Unit = "text"
    is_value: bool = False


class Remark(NamedTuple):
    """Why a cell is empty.

    Attributes:
        model: Of the row.
        subject: Its GPU, or the layout of the cell.
        most_gpus: So many do not start it.
        refusal: Why the layout is refused, instead.
    """

    model: str
    subject: str
    most_gpus: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """A table of figures.

    Attributes:
        name: Key of its title.
        columns: Its columns; those in front whose unit is text name the rows.
        rows: A cell for each column; None where there is no figure.
        about: What every figure is of, for the title.
        remarks: Why cells are empty.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    about: dict[str, object] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    @property
    def names(self) -> int:
        """Columns in front that name the rows."""
        return next(
            (at for at, column in enumerate(self.columns) if column.unit != "text"),
            len(self.columns),
        )
