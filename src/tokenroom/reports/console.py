"""The terminal: where text goes, when it is coloured, and memory drawn in characters.

Colour appears on a terminal only and never when NO_COLOR is set; without it the parts of a bar
still differ by their fill, so nothing is said by colour alone.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from tokenroom.reports.figures import Bar
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import GIB, format_gib

if TYPE_CHECKING:
    from rich.console import Console, RenderHook
    from rich.text import Text

PLAIN_WIDTH: Final = 80
"""Columns of output that goes to a file or a pipe."""

_WHOLE_WIDTH: Final = 1000

_FILLS: Final = {
    # kind: (Unicode fill, ASCII fill, style)
    "context": ("▚", "x", "bright_black"),
    "reserve": ("▒", "%", "bright_black"),
    "weights": ("█", "#", "blue"),
    "graphs": ("▞", "+", "magenta"),
    "activation": ("▓", "=", "yellow"),
    "kv": ("░", "o", "cyan"),
    "free": ("·", ".", "bright_black"),
}
_MISSING: Final = ("╳", "!", "bold red")


def console(*, stderr: bool = False) -> Console:
    """A console on standard output, or on standard error for notes.

    Text is printed as it is: no markup, no emoji codes, no highlighting of numbers.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PLAIN_WIDTH
    made = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    made.push_render_hook(_printable_hook())
    # rich would end the process with 1, which says "does not fit" here; main() ends it quietly.
    made.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]
    return made


def _printable_hook() -> RenderHook:
    """What turns control characters in anything printed into their escapes."""
    from rich.console import ConsoleOptions, RenderableType, RenderHook, RenderResult
    from rich.segment import Segment

    class Printable:
        def __init__(self, inner: RenderableType) -> None:
            self.inner = inner

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for segment in console.render(self.inner, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(printable(segment.text), segment.style)

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Printable(renderable) for renderable in renderables]

    return Hook()


def print_json(data: Any) -> None:
    """``data`` as JSON on standard output; escapes keep it readable in any encoding."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=True) + "\n")


def print_trimmed(out: Console, table: Any, *, whole_rows: bool = False) -> None:
    """Print a table; to a file or a pipe without the blanks that fill its last column.

    With ``whole_rows`` each row is one line there, however long, as ``grep`` and ``cut`` need it.
    """
    if out.is_terminal:
        out.print(table)
        return
    width = out.width
    if whole_rows:
        out.width = _WHOLE_WIDTH
    with out.capture() as capture:
        out.print(table)
    out.width = width
    lines = (line.rstrip() for line in capture.get().splitlines())
    out.file.write("\n".join(lines) + "\n")


def draw_bar(
    bar: Bar, *, width: int, language: Language = Language.ENGLISH, encoding: str = "utf-8"
) -> list[Text]:
    """A stacked bar and its legend as lines of text, at most ``width`` columns wide.

    The scale is the GPU's memory, or the sum of the parts when they need more; what lies beyond
    the memory is crossed out, and a mark shows where the memory ends.
    """
    from rich.text import Text

    fill = 0 if "utf" in encoding.lower() else 1
    scale = max(bar.total_bytes, bar.capacity_bytes)
    figure = format_gib(bar.capacity_bytes)
    columns = max(10, width - len(figure) - 2)
    cells = _cells([segment.num_bytes for segment in bar.segments], scale, columns)
    line = Text(no_wrap=True)
    for segment, count in zip(bar.segments, cells, strict=True):
        line.append(_FILLS[segment.kind][fill] * count, style=_FILLS[segment.kind][2])
    end = round(bar.limit_bytes / scale * columns)
    if bar.missing_bytes:
        end = min(end, columns - 2)  # the mark and what is crossed out are always seen
        line = line[:end]
        line.append("│" if not fill else "|", style="bold")
        line.append(_MISSING[fill] * (columns - end - 1), style=_MISSING[2])
    else:
        line.append(" " * (columns - line.cell_len))
    line.append(f"  {figure}")
    lines = [Text(bar.title, style="bold", no_wrap=True), line] if bar.title else [line]
    entries = [(_FILLS[part.kind], part.label, part.num_bytes) for part in bar.segments]
    if bar.missing_bytes:
        entries.append((_MISSING, message("segment.missing", language), bar.missing_bytes))
    name_width = max((Text(label).cell_len for _, label, _ in entries), default=0)
    for fills, label, num_bytes in entries:
        entry = Text(no_wrap=True)
        entry.append(fills[fill] * 2, style=fills[2])
        pad = " " * (name_width - Text(label).cell_len)
        share = num_bytes / bar.capacity_bytes
        entry.append(f" {label}{pad} {num_bytes / GIB:>9.2f} GiB {share:>6.1%}")
        lines.append(entry)
    return lines


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def segment_mark(kind: str, encoding: str = "utf-8") -> Text:
    """The fill that :func:`draw_bar` gives segments of this kind, as one character."""
    from rich.text import Text

    fills = _FILLS[kind]
    return Text(fills[0 if "utf" in encoding.lower() else 1], style=fills[2])


def _cells(sizes: list[int], scale: int, columns: int) -> list[int]:
    """Whole columns for each size by largest remainder; a size above 0 gets one if it can."""
    exact = [size / scale * columns for size in sizes]
    cells = [max(int(share), 1 if size else 0) for share, size in zip(exact, sizes, strict=True)]
    target = round(sum(sizes) / scale * columns)
    while sum(cells) > target and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    order = sorted(range(len(sizes)), key=lambda i: exact[i] - cells[i], reverse=True)
    for index in order:
        if sum(cells) >= target:
            break
        cells[index] += 1
    return cells
