"""Lines of a log as the engine wrote them: what terminals and container runtimes added is removed.

The file is read in pieces of bounded size, so that its length does not matter. Colours, carriage
returns of progress bars, JSON envelopes (Docker, cloud loggers), CRI and compose prefixes are
undone; of a line cut in two by the runtime the parts are joined. Which process wrote a message
stays in :class:`Message`, also where two processes wrote into one line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from tokenroom.errors import RowError
from tokenroom.validation.reading import open_plain

_MAX_LINE_BYTES: Final = 2**18
"""Longest part of a line that is looked at; the engines' longest (all settings) are far shorter."""

_PIECE_BYTES: Final = 2**20
_ANSI: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CRI: Final = re.compile(r"^\S+T\S+ (?:stdout|stderr) ([FP]) (.*)$", re.S)
_PARTIAL: Final = re.compile(rb"^\S+T\S+ std(?:out|err) P ", re.M)
_JSON_KEYS: Final = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "content")
_PROCESS: Final = re.compile(
    r"\(([A-Za-z][\w.-]*)\s+pid=(\d+)(?:,[^()]*)?\)"  # vLLM and Ray: (Worker_TP0 pid=442)
    r"|\[\d{4}-\d\d-\d\d [\d:.,]+((?: (?:DP|TP|PP|EP|CP|ATTN_TP)\d+)+)\]"  # SGLang
    r"|\[(?:RANK|rank) ?(\d+)\]"  # TensorRT-LLM
    r"|\[\d+,(\d+)\]<std(?:out|err)>"  # mpirun
)
_UTF16: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LEAST_PART: Final = 4
_MOST_PART: Final = 6
_COMMON: Final = (
    b'INFO:     10.0.0.1:52344 - "POST /v1/chat/completions HTTP/1.1" 200 OK '
    b"INFO WARNING ERROR DEBUG 2026-01-01T00:00:00.000000 GET /health /metrics engine request"
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
    """The same of a file that is open for reading bytes, which may be standard input."""
    yield from _messages(_pieces(file), tuple(word.encode() for word in words))


def _pieces(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """The file in pieces that end where lines do; of a line that is too long only the start."""
    rest = b""
    skipping = False
    for part in _in_utf8(_read(file)):
        read = part
        if skipping:
            _, newline, read = read.partition(b"\n")
            skipping = not newline
        end = read.rfind(b"\n")
        if end >= 0:
            yield rest + read[:end]
            rest = read[end + 1 :]
        else:
            rest += read
        if len(rest) > _MAX_LINE_BYTES:
            yield rest[:_MAX_LINE_BYTES]
            rest, skipping = b"", True
    if rest:
        yield rest


def _read(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """The file as it is read; of one that is cut off or damaged what was read before."""
    while True:
        try:
            read = file.read1(_PIECE_BYTES)  # type: ignore[union-attr]
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return
        if not read:
            return
        yield read


def _in_utf8(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same in UTF-8: what PowerShell redirects into a file is UTF-16, mark first."""
    start = next(parts, b"")
    encoding = next((name for mark, name in _UTF16 if start.startswith(mark)), None)
    if encoding is None:
        yield start.removeprefix(codecs.BOM_UTF8)
        yield from parts
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(start[2:]).encode("utf-8", "replace")
    for part in parts:
        yield decoder.decode(part).encode("utf-8", "replace")


def _messages(pieces: Iterator[bytes], words: tuple[bytes, ...]) -> Iterator[Message]:
    pending = ""
    before = 0
    for raw in pieces:
        first, before = before + 1, before + raw.count(b"\n") + 1
        piece = _ANSI.sub(b"", raw) if b"\x1b" in raw else raw
        whole = not words or bool(pending) or _PARTIAL.search(piece) is not None
        lines = enumerate(piece.split(b"\n"), start=first) if whole else _with(words, piece, first)
        for number, line in lines:
            text = line[:_MAX_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            if text[:1] == "{":
                text = _from_json(text)
            if (cri := _CRI.match(text)) is not None:
                pending = (pending + cri[2])[:_MAX_LINE_BYTES]
                if cri[1] == "P":
                    continue
                text, pending = pending, ""
            for part in re.split(r"[\r\n]+", text):
                yield from _by_process(part, number)
    if pending:
        yield from _by_process(pending, before)


@lru_cache(maxsize=8)
def _covering(words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """A few parts of words, one of which is in every word: fewer are searched for sooner.

    Parts that every line of a server's log has are not taken, except as whole words.
    """
    parts: dict[bytes, set[bytes]] = {}
    for word in words:
        for length in range(_LEAST_PART, min(len(word), _MOST_PART) + 1):
            for start in range(len(word) - length + 1):
                part = word[start : start + length]
                if part == word or part not in _COMMON:
                    parts.setdefault(part, set()).add(word)
        parts.setdefault(word, set()).add(word)
    left, chosen = set(words), []
    while left:
        best = max(parts, key=lambda part: (len(parts[part] & left), len(part), part))
        chosen.append(best)
        left -= parts[best]
    return tuple(chosen)


def _with(words: tuple[bytes, ...], piece: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a piece that hold a word, with their numbers; the first is number ``first``."""
    ends: dict[int, int] = {}
    for word in _covering(words):
        at = piece.find(word)
        while at >= 0:
            end = piece.find(b"\n", at)
            end = len(piece) if end < 0 else end
            ends[piece.rfind(b"\n", 0, at) + 1] = end
            at = piece.find(word, end)
    number, before = first, 0
    for start in sorted(ends):
        number += piece.count(b"\n", before, start)
        before = start
        line = piece[start : ends[start]]
        if any(word in line for word in words):
            yield number, line


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
