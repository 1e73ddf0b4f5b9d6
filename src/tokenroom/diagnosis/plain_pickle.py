"""Pickles of plain values, read without the pickle module: nothing in them can run.

Python's own unpickler calls what a file names. This one knows the opcodes that dictionaries, lists,
tuples, texts, numbers and None are written with and no other, so that there is nothing to call; it
bounds the file, the number of values and the length of each before it makes room for them.

Source: Lib/pickletools.py (3.11), protocols 2 to 5.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from tokenroom.errors import SnapshotError

_MAX_BYTES: Final = 2**29
_MAX_VALUES: Final = 50_000_000
_MAX_TEXT_BYTES: Final = 2**20
_MAX_NUMBER_BYTES: Final = 16

_MARK: Final = object()


def begins_a_pickle(start: bytes) -> bool:
    """Whether a file's first bytes are those of a pickle of protocol 2 to 5."""
    return len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5


def read_plain_pickle(file: BinaryIO | io.BufferedIOBase) -> Any:
    """The value in a pickle.

    Args:
        file: Open for reading bytes, at the pickle's first byte.

    Raises:
        SnapshotError: It is cut off, larger than 512 MiB, or holds anything but plain values.
    """
    return _Reader(file).read()


class _Reader:
    def __init__(self, file: BinaryIO | io.BufferedIOBase) -> None:
        self._file = file
        self._left_bytes = _MAX_BYTES
        self._left_values = _MAX_VALUES
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """The value; the last opcode ends it."""
        steps, take = _STEPS, self._take
        while True:
            opcode = take(1)
            if opcode == b".":
                return self._pop()
            step = steps.get(opcode)
            if step is None:
                raise SnapshotError(
                    f"this pickle holds more than plain values (opcode {opcode!r}); give what "
                    f"torch.cuda.memory._dump_snapshot wrote"
                )
            step(self)

    def _take(self, count: int) -> bytes:
        self._left_bytes -= count
        if self._left_bytes < 0:
            raise SnapshotError("this pickle is larger than 512 MiB; record a shorter history")
        data = self._file.read(count)
        if len(data) != count:
            raise SnapshotError("this pickle is cut off; give the whole file")
        return data

    def _length(self, count: int, most: int) -> int:
        length = int.from_bytes(self._take(count), "little")
        if length > most:
            raise SnapshotError(
                f"this pickle holds a value of {length:,} bytes, and a snapshot none of over "
                f"{most:,}; give what torch.cuda.memory._dump_snapshot wrote"
            )
        return length

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._left_values -= 1
        if self._left_values < 0:
            raise SnapshotError("this pickle holds too many values; record a shorter history")
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise SnapshotError("this pickle is damaged; write it anew")
        return self._stack.pop()

    def _pop_many(self) -> list[Any]:
        """Everything above the last mark."""
        found: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                return found[::-1]
            found.append(value)
        raise SnapshotError("this pickle is damaged; write it anew")

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise SnapshotError("this pickle is damaged; write it anew")
        return self._stack[-1]

    def skip(self, count: int) -> None:
        """Pass over bytes that mean nothing here."""
        self._take(count)

    def mark(self) -> None:
        """Remember where several values begin."""
        self._stack.append(_MARK)

    def text(self, count: int) -> None:
        """A text behind its length."""
        data = self._take(self._length(count, _MAX_TEXT_BYTES))
        self.push(data.decode("utf-8", "replace"))

    def number(self, count: int, *, signed: bool = False) -> None:
        """A number of fixed length."""
        self.push(int.from_bytes(self._take(count), "little", signed=signed))

    def long(self, count: int) -> None:
        """A number behind its length."""
        data = self._take(self._length(count, _MAX_NUMBER_BYTES))
        self.push(int.from_bytes(data, "little", signed=True))

    def float(self) -> None:
        """A number with a fraction."""
        self.push(struct.unpack(">d", self._take(8))[0])

    def append(self) -> None:
        """One more of a list."""
        value = self._pop()
        self._top(list).append(value)

    def appends(self) -> None:
        """Several more of a list."""
        values = self._pop_many()
        self._top(list).extend(values)

    def set_item(self) -> None:
        """One more entry of a dictionary."""
        value, key = self._pop(), self._pop()
        self._set(key, value)

    def set_items(self) -> None:
        """Several more entries of a dictionary."""
        values = self._pop_many()
        for key, value in zip(values[::2], values[1::2], strict=False):
            self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise SnapshotError("this pickle has a key that is neither text nor number")
        self._top(dict)[key] = value

    def tuple(self, count: int | None) -> None:
        """The last values as one."""
        values = self._pop_many() if count is None else [self._pop() for _ in range(count)][::-1]
        self.push(tuple(values))

    def memoize(self) -> None:
        """Keep the last value for later."""
        self._put(len(self._memo))

    def put(self, count: int) -> None:
        """Keep the last value under a number."""
        self._put(int.from_bytes(self._take(count), "little"))

    def _put(self, number: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise SnapshotError("this pickle is damaged; write it anew")
        self._memo[number] = self._stack[-1]

    def get(self, count: int) -> None:
        """A value that was kept."""
        number = int.from_bytes(self._take(count), "little")
        if number not in self._memo:
            raise SnapshotError("this pickle is damaged; write it anew")
        self.push(self._memo[number])


_STEPS: Final[dict[bytes, Callable[[_Reader], None]]] = {
    b"\x80": lambda to: to.skip(1),  # PROTO
    b"\x95": lambda to: to.skip(8),  # FRAME: what is in it follows as it is
    b"(": _Reader.mark,
    b"}": lambda to: to.push({}),
    b"]": lambda to: to.push([]),
    b")": lambda to: to.push(()),
    b"N": lambda to: to.push(None),
    b"\x88": lambda to: to.push(True),
    b"\x89": lambda to: to.push(False),
    b"\x8c": lambda to: to.text(1),  # SHORT_BINUNICODE
    b"X": lambda to: to.text(4),  # BINUNICODE
    b"K": lambda to: to.number(1),  # BININT1
    b"M": lambda to: to.number(2),  # BININT2
    b"J": lambda to: to.number(4, signed=True),  # BININT
    b"\x8a": lambda to: to.long(1),  # LONG1
    b"G": _Reader.float,  # BINFLOAT
    b"a": _Reader.append,
    b"e": _Reader.appends,
    b"s": _Reader.set_item,
    b"u": _Reader.set_items,
    b"t": lambda to: to.tuple(None),
    b"\x85": lambda to: to.tuple(1),
    b"\x86": lambda to: to.tuple(2),
    b"\x87": lambda to: to.tuple(3),
    b"\x94": _Reader.memoize,
    b"q": lambda to: to.put(1),  # BINPUT
    b"r": lambda to: to.put(4),  # LONG_BINPUT
    b"h": lambda to: to.get(1),  # BINGET
    b"j": lambda to: to.get(4),  # LONG_BINGET
}
