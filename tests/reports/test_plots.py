import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenroom.errors import TokenroomError
from tokenroom.reports import plots
from tokenroom.reports.figures import Bar, BarSegment, Curve
from tokenroom.reports.messages import Language
from tokenroom.units import GIB

BAR = Bar(
    title="GPU 0-3",
    segments=[
        BarSegment(label="weights", num_bytes=60 * GIB, kind="weights"),
        BarSegment(label="KV cache", num_bytes=30 * GIB, kind="kv"),
    ],
    capacity_bytes=80 * GIB,
)
CURVE = Curve(label="total", xs=[1, 2, 4], ys=[20 * GIB, 40 * GIB, 80 * GIB])
STARTS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", plots.FORMATS)
def test_the_suffix_decides_the_format(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"bar.{suffix}"
    plots.plot_memory_bar([BAR], file, title="A title", budget_bytes=70 * GIB)
    assert file.read_bytes().startswith(STARTS[suffix])
    file = tmp_path / f"curve.{suffix}"
    plots.plot_curves([CURVE], file, title="A title", x_label="requests")
    assert file.read_bytes().startswith(STARTS[suffix])


def test_a_bar_is_labelled_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "bar.svg"
    plots.plot_memory_bar([BAR], file, title="A title", budget_bytes=70 * GIB)
    text = file.read_text(encoding="utf-8")
    for label in (
        "A title",
        "GPU 0-3",
        "weights  60.00 GiB",
        "KV cache  30.00 GiB",
        "does not fit  10.00 GiB",
        "GPU memory 80.00 GiB",
        "engine budget 70.00 GiB",
        "Memory per GPU (GiB)",
    ):
        assert label in text


def test_a_budget_above_what_was_in_use_says_so(tmp_path: Path) -> None:
    file = tmp_path / "bar.svg"
    plots.plot_memory_bar(
        [BAR], file, title="A title", budget_bytes=70 * GIB, budget_base_bytes=GIB
    )
    text = file.read_text(encoding="utf-8")
    assert "engine budget 70.00 GiB" in text
    assert "above the 1.00 GiB in use before" in text


def test_headings_begin_at_one_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges: list[float] = []

    def measure(figure: Any) -> None:
        align(figure)
        renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
        for text in (*figure.texts, figure.axes[0]._left_title):
            edges.append(text.get_window_extent(renderer).x0)

    align = plots._align_titles
    monkeypatch.setattr(plots, "_align_titles", measure)
    plots.plot_memory_bar([BAR], tmp_path / "bar.png", title="Heading\nUnder it")
    assert len(edges) == 2
    assert abs(edges[0] - edges[1]) < 3


def test_curves_are_labelled_at_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    flat = Curve(label="weights", xs=[1, 4], ys=[15 * GIB, 15 * GIB])
    plots.plot_curves(
        [CURVE, flat], file, title="Growth", x_label="requests", capacity_bytes=70 * GIB
    )
    text = file.read_text(encoding="utf-8")
    for label in ("Growth", "total", "weights", "requests", "GPU memory 70.00 GiB"):
        assert label in text


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for file in (first, second):
        plots.plot_memory_bar([BAR], file, title="A title")
    assert first.read_bytes() == second.read_bytes()


def test_labels_are_moved_apart_as_little_as_it_takes() -> None:
    assert plots._spread([1, 5, 9], 2, least=0) == [1, 5, 9]
    assert plots._spread([5, 5], 2, least=0) == [4, 6]
    assert plots._spread([0, 0], 2, least=1) == [1, 3]


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenroomError, match=r"ends in '.gif'; it may end in .svg, .png, .pdf"):
        plots.plot_memory_bar([BAR], tmp_path / "bar.gif", title="A title")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenroomError, match="cannot be written"):
        plots.plot_memory_bar([BAR], tmp_path / "no" / "bar.svg", title="A title")


def test_chinese_needs_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_cjk_font", lambda: None)
    assert plots.usable_language(Language.CHINESE) is Language.ENGLISH
    monkeypatch.setattr(plots, "_cjk_font", lambda: "Noto Sans CJK SC")
    assert plots.usable_language(Language.CHINESE) is Language.CHINESE
    assert plots.usable_language(Language.ENGLISH) is Language.ENGLISH


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(TokenroomError, match=r"pip install 'tokenroom\[plots\]'"):
        plots.plot_memory_bar([BAR], tmp_path / "bar.svg", title="A title")
