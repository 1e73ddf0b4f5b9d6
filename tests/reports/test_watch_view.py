"""What a terminal shows, at two widths and in both languages."""

import io
from dataclasses import replace

import pytest
from observations import OBSERVATION, REPLICA
from rich.cells import cell_len
from rich.console import Console

from tokenroom.reports.messages import Language
from tokenroom.reports.watch_lines import WatchLines
from tokenroom.reports.watch_view import WatchView
from tokenroom.reports.watch_words import median_text, share_text, span_text
from tokenroom.watching.observation import Endpoint, Observation, Replica


def drawn(
    seen: Observation,
    width: int,
    language: Language = Language.ENGLISH,
    *,
    blocks: bool = True,
    compact: bool = False,
) -> list[str]:
    out = Console(width=width, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    view = WatchView(language, width=width, blocks=blocks)
    view.take(seen)
    out.print(view.drawn(seen, compact=compact))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("language", list(Language))
def test_everything_is_there_within_the_width(width: int, language: Language) -> None:
    lines = drawn(OBSERVATION, width, language)
    assert max(map(cell_len, lines)) <= width
    text = " ".join(" ".join(line.strip("│ ") for line in lines).split())
    for part in (
        "http://127.0.0.1:8000",
        "364,732",
        "417,792",
        "1,234/s",
        "457/s",
        ">400 ms",
        "15.00 GiB",
        "70.00 GiB",
        "--kv-cache-dtype fp8",
        "Connection refused" if language is Language.ENGLISH else "连接被拒绝",
        "4242 VLLM::EngineCore",
        "2,500",
    ):
        assert part in text, part


def test_latencies_stand_beside_the_figures_where_there_is_room() -> None:
    wide = [line for line in drawn(OBSERVATION, 140) if "running" in line and "p50" in line]
    narrow = [line for line in drawn(OBSERVATION, 80) if "running" in line and "p50" in line]
    assert (len(wide), len(narrow)) == (1, 0)


def test_low_terminals_get_figures_without_tables() -> None:
    low = drawn(OBSERVATION, 140, compact=True)
    assert len(low) < len(drawn(OBSERVATION, 140)) - 9
    assert not any("Activation peak" in line or "fp8" in line for line in low)
    assert any("running" in line for line in low)


def test_terminals_without_block_characters_get_ascii() -> None:
    assert all(line.isascii() for line in drawn(OBSERVATION, 80, blocks=False))


def test_what_is_not_known_is_not_0() -> None:
    bare = Endpoint(
        url="http://h:1",
        status="up",
        since=OBSERVATION.time,
        replicas=(Replica(model=None, rank=None),),
    )
    lines = drawn(replace(OBSERVATION, endpoints=(bare,), alerts=(), gpus=()), 80)
    text = " ".join(lines)
    assert "- running, - waiting" in text
    assert "KV pool" not in text
    assert "no alerts" in text


def test_no_escape_sequence_of_a_server_reaches_the_terminal() -> None:
    evil = replace(REPLICA, model="a\x1b[2Jb", rank="\x1b]0;x\x07")
    endpoint = replace(OBSERVATION.endpoints[0], replicas=(evil,))
    seen = replace(OBSERVATION, endpoints=(endpoint,))
    assert "\x1b" not in "".join(drawn(seen, 80))
    lines = list(WatchLines(Language.ENGLISH).lines(seen))
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("language", list(Language))
def test_lines_tell_alerts_when_they_begin_and_end(language: Language) -> None:
    writer = WatchLines(language)
    first = list(writer.lines(OBSERVATION))
    assert len([line for line in first if "!" in line]) == 2
    assert any("--kv-cache-dtype fp8" in line for line in first)
    assert not any("!" in line for line in writer.lines(OBSERVATION))
    ended = list(writer.lines(replace(OBSERVATION, alerts=())))
    assert len([line for line in ended if "!" in line]) == 2


def test_a_line_for_each_replica_and_gpu() -> None:
    first, down, gpu, *_ = WatchLines(Language.ENGLISH).lines(OBSERVATION)
    assert "http://127.0.0.1:8000 running 8, waiting 4, KV 87%" in first
    assert "TTFT 100 ms/>400 ms" in first
    assert "DOWN 97s" in down
    assert "GPU 0 NVIDIA H100 80GB HBM3, 71.00 GiB of 80.00 GiB" in gpu


def test_figures_at_a_glance() -> None:
    assert [span_text(s) for s in (0, 45, 119, 120, 3599, 3700, 90_000)] == [
        *("0s", "45s", "119s", "2m", "59m", "1h 1m", "1d 1h")
    ]
    assert [share_text(s) for s in (None, 0.0, 0.0004, 0.012, 0.1, 1.0)] == [
        *("-", "0%", "<0.1%", "1.2%", "10%", "100%")
    ]
    assert median_text(None) == "-"
