import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tokenroom.reports.console import Paragraph, console, draw_bar, line_spans, print_json
from tokenroom.reports.figures import KINDS, Bar, BarSegment
from tokenroom.reports.messages import Language, printable
from tokenroom.units import GIB

Capture = pytest.CaptureFixture[str]


def bar(*sizes: int, capacity: int = 100 * GIB) -> Bar:
    parts = [
        BarSegment(label=kind, num_bytes=size, kind=kind)
        for kind, size in zip(KINDS, sizes, strict=False)
    ]
    return Bar(title="GPU 0", segments=parts, capacity_bytes=capacity)


def test_text_is_printed_as_it_is(capsys: Capture) -> None:
    console().print("[bold]not markup[/bold] :smile: 123")
    assert capsys.readouterr().out == "[bold]not markup[/bold] :smile: 123\n"


def test_no_colour_without_a_terminal(capsys: Capture) -> None:
    console().print("plain", style="bold red")
    console(stderr=True).print("note", style="bold red")
    captured = capsys.readouterr()
    assert captured.out == "plain\n"
    assert captured.err == "note\n"


def test_no_color_is_honoured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert console().color_system is not None
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().no_color


def test_json_is_ascii(capsys: Capture) -> None:
    print_json({"名": 1})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"名": 1}


def test_a_bar_shows_each_part_by_its_size() -> None:
    lines = [line.plain for line in draw_bar(bar(0, 50 * GIB, 0, 0, 0, 25 * GIB), width=60)]
    assert lines[0] == "GPU 0"
    assert lines[1].endswith("  100.00 GiB")
    assert lines[1].count("█") == 2 * lines[1].count("░") == 24
    assert "50.00 GiB  50.0%" in next(line for line in lines if "weights" in line)
    assert not any("does not fit" in line for line in lines)


def test_what_does_not_fit_is_crossed_out() -> None:
    too_much = bar(0, 80 * GIB, 0, 0, 0, 40 * GIB)
    lines = [line.plain for line in draw_bar(too_much, width=60)]
    assert "│╳" in lines[1]
    assert "does not fit" in lines[-1]
    assert "20.00 GiB" in lines[-1]
    chinese = [line.plain for line in draw_bar(too_much, width=60, language=Language.CHINESE)]
    assert "放不下" in chinese[-1]
    ascii_only = [line.plain for line in draw_bar(too_much, width=60, encoding="ascii")]
    assert all(line.isascii() for line in ascii_only)


@given(
    st.lists(st.integers(min_value=0, max_value=200 * GIB), min_size=1, max_size=len(KINDS)),
    st.integers(min_value=40, max_value=200),
)
def test_a_bar_never_exceeds_its_width(sizes: list[int], width: int) -> None:
    for line in draw_bar(bar(*sizes), width=width)[:2]:
        assert line.cell_len <= width


def test_what_would_steer_the_terminal_is_shown_instead(capsys: Capture) -> None:
    console().print(Text("a\x1b[31mb\x07c\u202ed\x9be\n\tf 名…"))
    shown = capsys.readouterr().out
    assert shown.replace(" ", "") == "a\\x1b[31mbc\\u202ed\\x9be\nf名…\n"


@given(st.text())
def test_printable_text_has_nothing_that_steers(text: str) -> None:
    shown = printable(text)
    assert not any(ord(character) < 32 and character not in "\n\t" for character in shown)
    assert printable(shown) == shown


def test_no_line_in_a_pipe_ends_in_blanks(capsys: Capture) -> None:
    table = Table(box=None, show_header=False)
    table.add_row("a", "long")
    table.add_row("b", "")
    out = console()
    out.print("and word " * 20 + "end")
    out.print(table)
    out.print(Text("a  ") + Text("  b  ", style="bold"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "a    b"
    assert len(lines) == 6
    assert all(line == line.rstrip() for line in lines)


def written(capsys: Capture, text: str, **indents: str) -> list[str]:
    console().print(Paragraph(text, **indents))
    return capsys.readouterr().out.splitlines()


def test_a_paragraph_hangs_at_its_indent(capsys: Capture) -> None:
    first, *others = written(capsys, "one word after another " * 9, first="- ", rest="      ")
    assert first.startswith("- one word")
    assert others
    assert all(line.startswith("      ") and line[6] != " " for line in others)


def test_a_paragraph_counts_cells(capsys: Capture) -> None:
    lines = written(capsys, "显存不足，" * 20 + "可用 14.87 GiB。" * 5, first="  ", rest="    ")
    assert len(lines) > 2
    for line in lines:
        assert cell_len(line) <= 80
        assert line.strip()[0] not in "，。"
        assert not line.endswith("14.87")


@given(st.integers(min_value=0, max_value=60))
def test_numbers_stay_with_their_units(length: int) -> None:
    text = (
        "字" * length + "可容 445,024 个 token，共 14.87 GiB，每张 GPU 的显存；可同时运行 3 个请求"
    )
    lines = [text[low:high] for low, high in line_spans(text, 40, 0, 2)]
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    for line in lines:
        assert not line.endswith(("024", "87", "3", "个 "))
        assert line[0] not in "，；"
        assert cell_len(line) <= 40


def test_an_address_is_broken_after_a_slash(capsys: Capture) -> None:
    address = "/".join(["organisation", "repository@095f58a51c4c:source"] + ["folder"] * 12)
    lines = written(capsys, f"source: {address}", rest="  ")
    assert lines[0] == "source:"
    assert lines[1].endswith("/")
    assert "".join(line.strip() for line in lines[1:]) == address


@given(st.text(), st.integers(min_value=1, max_value=30))
def test_breaking_loses_nothing_but_blanks(text: str, width: int) -> None:
    lines = [text[low:high] for low, high in line_spans(text, width, 0, 0)]
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
