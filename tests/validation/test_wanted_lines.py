"""Lines with wanted words are found among all others, whatever is around them."""

import io
import random

import pytest

from tokenroom.validation.logs.lines import messages_of
from tokenroom.validation.logs.quotes import has_header, stays_open
from tokenroom.validation.logs.wanted import ANSI, WantedLines, covering

WORDS = ("out of memory", "Killed", " 137", "KV cache size: ", 'File "', "version 2 of", "MIG")


def _lines(rng: random.Random, count: int) -> list[str]:
    """Lines of figures, words and parts of wanted ones, some of them coloured."""
    pieces = (*WORDS, "Kill", "ed", "out of", "mem", "ory", "1", "37", " ", "GPU", "\x1b[31m")
    return [
        "".join(rng.choice((*pieces, str(rng.randrange(10**4)))) for _ in range(rng.randrange(9)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_no_wanted_line_is_missed(seed: int) -> None:
    rng = random.Random(seed)
    finder = WantedLines(WORDS)
    number = 1
    for count in (1, 300, 40, 2000, 7):
        lines = [line.encode() for line in _lines(rng, count)]
        lines[0] += b" ".join(rng.choices(lines, k=60))  # longer than what is kept by shape
        found = dict(finder.find(b"\n".join(lines), number))
        for place, line in enumerate(lines, number):
            if any(word.encode() in ANSI.sub(b"", line) for word in WORDS):
                assert found[place] == line
        number += count


def test_lines_without_words_are_left_out() -> None:
    finder = WantedLines(WORDS)
    access = b"\n".join(b"INFO: GET /health 200 port=%d" % port for port in range(1000, 2000))
    assert list(finder.find(access, 1)) == []
    assert list(finder.find(b"exit 138\nexit 137\nwas Killed", 1)) == [
        (2, b"exit 137"),
        (3, b"was Killed"),
    ]


def test_words_are_found_as_json_writes_them() -> None:
    finder = WantedLines(WORDS)
    line = b'{"log":"  File \\"/a.py\\", line 3\\n"}'
    assert list(finder.find(line, 4)) == [(4, line)]


def test_every_word_is_covered_by_a_part_of_it() -> None:
    words = tuple(
        word.encode() for word in ("memory", "memories", "Killed", "tokens", "n_ctx", "mor")
    )
    parts = covering(words)
    assert {word for several in parts.values() for word in several} == set(words)
    assert all(part in word for part, several in parts.items() for word in several)


QUOTED = (
    'INFO 01-01 00:00:00 [logger.py:40] Received request a-1: prompt: "Hello,',
    "it says torch.OutOfMemoryError: CUDA out of memory and was Killed",
    "again: out of memory",
)


def test_texts_of_clients_that_go_on_over_lines_are_left_out() -> None:
    after = "ERROR 01-01 00:00:01 out of memory"
    text = "\n".join((*QUOTED, after, "RuntimeError: out of memory"))
    found = [one.text for one in messages_of(io.BytesIO(text.encode()), WORDS)]
    assert found == [after, "RuntimeError: out of memory"]


def test_such_a_text_goes_on_in_the_next_piece() -> None:
    finder = WantedLines(WORDS)
    first, *rest = QUOTED
    assert list(finder.find(first.encode(), 1)) == []
    assert list(finder.find("\n".join(rest).encode(), 2)) == []
    line = b"(EngineCore pid=7) ERROR out of memory"
    assert list(finder.find(b"out of memory\n" + line, 4)) == [(5, line)]


@pytest.mark.parametrize(
    ("line", "goes_on"),
    [
        (b"Received request a: prompt: 'Hello', params: x, lora_request: None", False),
        (b"Receive: obj=GenerateReqInput(text='Hello')", False),
        (b"Received request a: prompt: Hello there", True),
    ],
)
def test_a_quote_that_is_closed_ends_with_its_line(line: bytes, goes_on: bool) -> None:
    assert stays_open(line) is goes_on


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"INFO 01-01 x", True),
        (b"(EngineCore_DP0 pid=9) y", True),
        (b"[2026-01-01 00:00:00 TP0] z", True),
        (b"2026-01-01T00:00:00.1Z stderr F z", True),
        (b"\x1b[32mINFO\x1b[0m: z", True),
        (b"srv  update_slots: all slots are idle", True),
        (b"Why is this so?", False),
        (b"    return model(x)", False),
    ],
)
def test_lines_of_engines_are_told_by_how_they_begin(line: bytes, told: bool) -> None:
    assert has_header(line) is told


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_told_without_its_mark(encoding: str) -> None:
    text = "INFO start\r\nKilled\r\n".encode(encoding)
    assert [(one.line, one.text) for one in messages_of(io.BytesIO(text), WORDS)] == [(2, "Killed")]
