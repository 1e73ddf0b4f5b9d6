"""Lines of a log as the engine wrote them: what terminals and container runtimes added is removed.

The file is read in pieces of bounded size, so that its length does not matter. Colours, carriage
returns of progress bars, JSON envelopes (Docker, cloud loggers), CRI and compose prefixes are
undone; of a line cut in two by the runtime the parts are joined. Which process wrote a message
stays in :class:`Message`, also where two processes wrote into one line.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tokenroom.errors import RowError
from tokenroom.validation.logs.pieces import MAX_LINE_BYTES, pieces_of
from tokenroom.validation.logs.quotes import is_quote
from tokenroom.validation.logs.wanted import ANSI, WantedLines
from tokenroom.validation.reading import open_plain

_CRI: Final = re.compile(r"^\S+T\S+ (?:stdout|stderr) ([FP]) (.*)$", re.S)
_PARTIAL: Final = (b" stdout P ", b" stderr P ")
_JSON_KEYS: Final = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "content")
_PROCESS: Final = re.compile(
    r"\(([A-Za-z][\w.-]*)\s+pid=(\d+)(?:,[^()]*)?\)"  # vLLM and Ray: (Worker_TP0 pid=442)
    r"|\[\d{4}-\d\d-\d\d [\d:.,]+((?: (?:DP|TP|PP|EP|CP|ATTN_TP)\d+)+)\]"  # SGLang
    r"|\[(?:RANK|rank) ?(\d+)\]"  # TensorRT-LLM
    r"|\[\d+,(\d+)\]<std(?:out|err)>"  # mpirun
)
_NUMBERS: Final = re.compile(r"(PP|TP|DP)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one process wrote.

    Attributes:
        text: The message.
        process: Name and number of the process as the line gives them, empty when it does not.
        line: Its line, counted from 1; of one that the runtime cut, the last.
    """

    text: str
    process: str = ""
    line: int = 0


def rank_of(process: str) -> tuple[int, int, int, int]:
    """Where a process stands: pipeline, tensor, data rank; unnamed ones first.

    A worker beside unnamed ones comes after them, as the unnamed process is rank 0 where the
    others say that they are workers.
    """
    if not process:
        return (0, 0, 0, 0)
    found = {kind: int(number) for kind, number in _NUMBERS.findall(process)}
    plain = int(process) if process.isdigit() else 0
    named = 0 if found or process.isdigit() or "Worker" not in process else 1
    return (found.get("DP", 0), found.get("PP", 0), found.get("TP", plain), named)


def read_messages(path: Path, words: Sequence[str] = ()) -> Iterator[Message]:
    """The messages of a log, plain or gzipped.

    Args:
        path: The log.
        words: Only lines that hold one of these are wanted; every line when there are none. They
            are searched for in large pieces, as a server's log is long and its start is short.

    Raises:
        RowError: The file cannot be read.
    """
    try:
        with open_plain(path) as file:
            yield from messages_of(file, words)
    except OSError as error:
        raise RowError(f"{path} cannot be read: {error.strerror or error}; give a log") from error


def messages_of(file: BinaryIO | io.BufferedIOBase, words: Sequence[str] = ()) -> Iterator[Message]:
    """The same of a file that is open for reading bytes, which may be standard input.

    Lines that quote what a client wrote are left out where words are given.
    """
    wanted = WantedLines(words) if words else None
    pending = ""
    before = 0
    for piece in pieces_of(file):
        first, before = before + 1, before + piece.count(b"\n") + 1
        if wanted is None or pending or any(mark in piece for mark in _PARTIAL):
            lines: Iterable[tuple[int, bytes]] = enumerate(piece.split(b"\n"), first)
        else:
            lines = wanted.find(piece, first)
        for number, line in lines:
            plain = ANSI.sub(b"", line) if b"\x1b" in line else line
            text = plain[:MAX_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            if text[:1] == "{":
                text = _from_json(text)
            if (cri := _CRI.match(text)) is not None:
                pending = (pending + cri[2])[:MAX_LINE_BYTES]
                if cri[1] == "P":
                    continue
                text, pending = pending, ""
            if wanted is not None and is_quote(text.encode("utf-8", "replace")):
                continue
            for part in re.split(r"[\r\n]+", text):
                yield from _by_process(part, number)
    if pending:
        yield from _by_process(pending, before)


def _from_json(text: str) -> str:
    """The message inside a JSON envelope; the text itself when it is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(data, dict):
        for key in _JSON_KEYS:
            if isinstance(data.get(key), str):
                found: str = data[key]
                return found
    return text


def _by_process(text: str, line: int) -> Iterator[Message]:
    """One message for each process that wrote into the line."""
    marks = list(_PROCESS.finditer(text))
    if not marks:
        yield Message(text=text, line=line)
        return
    if marks[0].start() and (before := text[: marks[0].start()]).strip():
        yield Message(text=before, line=line)
    for place, mark in enumerate(marks):
        end = marks[place + 1].start() if place + 1 < len(marks) else len(text)
        name = (mark[3] or mark[4] or mark[5] or f"{mark[1]} {mark[2]}").strip()
        yield Message(text=text[mark.end() : end], process=name, line=line)
