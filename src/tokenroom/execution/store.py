"""Answers kept in a folder, one line each, so that a later run need not find them again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from tokenroom.errors import StoreError

_FILE: Final = "answers.jsonl"
_BEGINNING: Final = b'{"question": "'


class Store:
    """Answers by the digest of their question.

    A line is written whole as soon as its answer is there, so that a run that is killed loses only
    what it was at; a last line that was cut off is passed over. Several runs may write into one
    folder: a line is one ``write`` to a file opened for appending.

    Args:
        folder: Where they are kept; made when it is not there.

    Raises:
        StoreError: It cannot be read or written, or holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._answers: dict[str, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            cut = self._read(self._path.read_bytes() if self._path.exists() else b"")
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            self._file = os.fdopen(descriptor, "wb", buffering=0)
            if cut:
                self._file.write(b"\n")
        except OSError as error:
            raise StoreError(f"--store {folder} cannot be used: {error.strerror}") from error

    def _read(self, held: bytes) -> bytes:
        """Take in the answers of whole lines; gives the beginning of one that was cut off."""
        *lines, cut = held.split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                entry = json.loads(line)
                self._answers[entry["question"]] = entry["answer"]
            except (ValueError, KeyError, TypeError):
                if not line.startswith(_BEGINNING):  # one cut off by a kill is passed over
                    raise StoreError(
                        f"line {number} of {self._path} is no answer of tokenroom; give --store a "
                        "folder of its own"
                    ) from None
        return cut

    def get(self, question: str) -> Any | None:
        """The answer to the question of that digest; None when it is not there."""
        return self._answers.get(question)

    def put(self, question: str, name: str, answer: Any) -> None:
        """Keep an answer, which JSON must be able to hold.

        Args:
            question: Digest of its question.
            name: What the question is called, for people who look into the file.
            answer: The answer.

        Raises:
            StoreError: It cannot be written.
        """
        entry = {"question": question, "name": name, "answer": answer}
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        try:
            written = self._file.write(line)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from error
        if written != len(line):
            raise StoreError(f"{self._path} cannot be written: no space is left")
        self._answers[question] = answer

    def close(self) -> None:
        """Close the file."""
        self._file.close()
