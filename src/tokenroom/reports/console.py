"""The terminal: where text goes, when it is coloured, and memory drawn in characters.

Colour appears on a terminal only and never when NO_COLOR is set; without it the parts of a bar
still differ by their fill, so nothing is said by colour alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tokenroom.reports.figures import Bar
from tokenroom.reports.messages import Language, message, printable
from tokenroom.units import GIB, format_gib

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderHook, RenderResult
    from rich.segment import Segment
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

    Text is printed as it is: no markup, no emoji codes, no highlighting of numbers. In a file or
    a pipe no line ends in blanks.
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
    """What escapes control characters in anything printed, and drops blanks at ends of lines."""
    from rich.console import RenderableType, RenderHook
    from rich.segment import Segment

    class Printable:
        def __init__(self, inner: RenderableType) -> None:
            self.inner = inner

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            segments = (
                segment
                if segment.control or segment.text.isprintable()
                else Segment(printable(segment.text), segment.style)
                for segment in console.render(self.inner, options)
            )
            yield from segments if console.is_terminal else _without_trailing_blanks(segments)

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Printable(renderable) for renderable in renderables]

    return Hook()


def _without_trailing_blanks(segments: Iterable[Segment]) -> Iterator[Segment]:
    """The same lines, each up to its last visible character."""
    from rich.segment import Segment

    held: list[Segment] = []  # blanks that are dropped if their line ends here
    for segment in segments:
        if segment.control:
            yield segment
            continue
        for piece in segment.text.splitlines(keepends=True):
            line = piece.rstrip("\n")
            seen = line.rstrip(" ")
            if seen:
                yield from held
                held.clear()
                yield Segment(seen, segment.style)
            if piece != line:
                held.clear()
                yield Segment("\n")
            elif seen != line:
                held.append(Segment(line[len(seen) :], segment.style))
    yield from held


class Paragraph:
    """Text in lines that are broken where its language allows it, hung at an indent.

    Width is counted in cells. A number stays with its unit, and a word longer than a line, such
    as an address, is broken after a slash.

    Args:
        text: What to write; styles are kept.
        first: Indent of the first line.
        rest: Indent of the lines after it.
        style: Of the text where it has none of its own.
    """

    def __init__(
        self, text: Text | str, *, first: str = "", rest: str = "", style: str = ""
    ) -> None:
        from rich.text import Text

        plain = text.plain if isinstance(text, Text) else printable(text)
        self._text = text if isinstance(text, Text) else Text(plain, style=style)
        self._first, self._rest = first, rest

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        indents = (len(self._first), len(self._rest))
        indent = self._first
        for low, high in line_spans(self._text.plain, options.max_width, *indents):
            line = Text(indent, no_wrap=True, overflow="ignore")
            line.append_text(self._text[low:high])
            yield line
            indent = self._rest


_KEPT: Final = re.compile(
    r"(?<=\d) (?=[KMGT]i?B\b|tokens?\b|[%x]|[\u4e00-\u9fff])|(?<=个) (?=token)"
)
"""Blanks between a number and its unit."""

_WIDE: Final = "[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
_NOT_FIRST: Final = "，。；：、？！）」』》”"
_NOT_LAST: Final = "（「『《“"
_BREAKS: Final = re.compile(
    # after a blank, and beside a wide character that does not hold on to its neighbour
    rf" +|(?<=[^{_NOT_LAST}\d ])(?={_WIDE})(?=[^{_NOT_FIRST}])"
    rf"|(?<={_WIDE})(?<=[^{_NOT_LAST}])(?=[^{_NOT_FIRST} ])"
)


def line_spans(text: str, width: int, first: int = 0, rest: int = 0) -> Iterator[tuple[int, int]]:
    """Where each line of a text begins and ends; ``first`` and ``rest`` are indents."""
    from rich.cells import cell_len

    kept = {match.start() for match in _KEPT.finditer(text)}
    stops = [match.span() for match in _BREAKS.finditer(text) if match.start() not in kept]
    start, end, room = 0, 0, max(width - first, 1)
    while True:
        # the farthest stop that the line reaches
        fitting = None
        for low, high in [*(stop for stop in stops if stop[0] > start), (len(text), len(text))]:
            if cell_len(text[start:low]) > room:
                break
            fitting = low, high
        if fitting is None:
            end = next((low for low, _ in stops if low > start), len(text))
            end = start + _cut(text[start:end], room)
            fitting = end, end
        end, following = fitting
        yield start, end
        if following >= len(text):
            return
        start, room = following, max(width - rest, 1)


def _cut(word: str, room: int) -> int:
    """How much of a word that is longer than a line to write on it."""
    from rich.cells import cell_len

    slashes = [match.end() for match in re.finditer(r"/(?=.)", word)]
    fitting = [end for end in slashes if cell_len(word[:end]) <= room]
    if fitting:
        return fitting[-1]
    end = slashes[0] if slashes else len(word)
    while end > 1 and cell_len(word[:end]) > room:
        end -= 1
    return end


def print_json(data: Any) -> None:
    """``data`` as JSON on standard output; escapes keep it readable in any encoding."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=True) + "\n")


def print_trimmed(out: Console, table: Any, *, whole_rows: bool = False) -> None:
    """Print a table.

    With ``whole_rows`` each row is one line in a file or a pipe, however long, as ``grep`` and
    ``cut`` need it.
    """
    width = out.width
    if whole_rows and not out.is_terminal:
        out.width = _WHOLE_WIDTH
    try:
        out.print(table)
    finally:
        out.width = width


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
