"""Shell text as people paste it: split into commands and words without running anything.

Covers what serving commands use of sh, bash, PowerShell and cmd: quotes, ``$'..'``, continuation
lines, comments, variables with defaults, assignments and ``export``, redirections and pipes. A
value that cannot be known here (an unset variable, a ``$(...)``) becomes a marked hole, so that it
is an error only where the value matters: see :func:`hole_in`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tokenroom.errors import CommandLineError

_HOLE_START: Final = "\ue000"
_HOLE_END: Final = "\ue001"
_HOLE: Final = re.compile(f"{_HOLE_START}([^{_HOLE_END}]*){_HOLE_END}")
_CONTINUATION: Final = re.compile(r"(?<!\\)(?:\\\n|[\\`^][ \t]*\n)")
_POWERSHELL_VARIABLE: Final = re.compile(r"^[ \t]*\$env:(\w+)[ \t]*=[ \t]*", re.M | re.I)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PARAMETER: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(?:(:?[-=?+])(.*))?", re.S)
_PROMPT: Final = re.compile(r"^(?:\$|%|#|>|PS [^>\n]*>)\s+(?=\S)")
_WRITTEN: Final = re.compile(
    r"^[ \t]*(?:sudo[ \t]+)?(?:cat|tee)[ \t]*(?:>?[ \t]*(?P<before>[^\s<>|&;]+))?[ \t]*"
    r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)"
    r"[ \t]*(?:>[ \t]*(?P<after>[^\s<>|&;]+))?[^\n]*\n(?P<text>.*?)^[ \t]*(?P=end)[ \t]*$",
    re.M | re.S,
)
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_ANSI_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
}
_MAX_TEXT: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """One simple command.

    Attributes:
        words: Its words after expansion, assignments before it left out.
        environment: Variables it sees from the text: exported ones and its own assignments.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def hole_in(text: str) -> str | None:
    """What could not be known inside a word, such as ``"$MODEL"``; None when nothing."""
    match = _HOLE.search(text)
    return match.group(1) if match else None


def hole_sentence(what: str, unknown: str) -> str:
    """That a value cannot be known, and what to do, for an error.

    Args:
        what: What the value is for, such as ``"--max-model-len"``.
        unknown: The text that could not be expanded, from :func:`hole_in`.
    """
    if unknown.startswith(("$(", "`")):
        return f"{what} is computed by {unknown}, which is not run here; write its result out"
    if "[" in unknown:
        return f"{what} is {unknown}, and arrays are not expanded here; write its words out"
    return f"{what} is {unknown}, which is not set; export it first or write its value out"


def hole(description: str) -> str:
    """A word part that stands for an unknown value."""
    return f"{_HOLE_START}{description.replace(_HOLE_END, '')}{_HOLE_END}"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME...}`` as in double quotes; ``$$`` stands for one dollar.

    This is the interpolation of compose files; unset variables become holes.
    """
    result, index = [], 0
    while index < len(text):
        if text[index] != "$":
            result.append(text[index])
            index += 1
        elif text.startswith("$$", index):
            result.append("$")
            index += 2
        else:
            value, index = _dollar(text, index, dict(variables))
            result.append(value)
    return "".join(result)


def files_written(text: str) -> dict[str, str]:
    """The files that a shell text writes with ``cat`` or ``tee`` from here-documents, by name."""
    return {
        (found["before"] or found["after"]).strip("'\""): found["text"]
        for found in _WRITTEN.finditer(text)
    }


def split_shell(text: str, variables: Mapping[str, str] | None = None) -> list[ShellCommand]:
    """Every simple command of a shell text, in order; pipes keep only their first command.

    Args:
        text: One or many lines.
        variables: Variables known from outside.

    Raises:
        CommandLineError: A quote or a ``${`` is never closed, or the text is longer than 1 MB.
    """
    if len(text) > _MAX_TEXT:
        raise CommandLineError(f"the command is {len(text):,} characters long; give at most 1 MB")
    text = _PROMPT.sub("", text.replace("\r\n", "\n").strip())
    text = _CONTINUATION.sub(lambda match: "" if match.group() == "\\\n" else " ", text)
    text = _POWERSHELL_VARIABLE.sub(r"export \1=", text)
    return _Splitter(text, dict(variables or {})).run()


class _Splitter:
    """Walks the text once, building words and commands."""

    def __init__(self, text: str, variables: dict[str, str]) -> None:
        self.text = text
        self.variables = variables
        self.exported: dict[str, str] = {}
        self.commands: list[ShellCommand] = []
        self.words: list[tuple[str, bool]] = []  # text, starts with an unquoted assignment
        self.skipping = False  # after a pipe

    def run(self) -> list[ShellCommand]:
        index = 0
        while index < len(self.text):
            char = self.text[index]
            if char in " \t":
                index += 1
            elif char == "#":
                end = self.text.find("\n", index)
                index = len(self.text) if end < 0 else end
            elif char == "\n":
                self._end_command()
                index = self._skip_prompt(index + 1)
            elif char == "|" and not self.text.startswith("||", index):
                self._end_command(skip_next=True)
                index += 1
            elif char in ";|&()":
                index = self._operator(index)
            elif char in "<>":
                index = self._redirection(index)
            elif char in "{}" and self._alone(index):
                self._end_command()
                index += 1
            else:
                index = self._word(index)
        self._end_command()
        return self.commands

    def _skip_prompt(self, index: int) -> int:
        match = _PROMPT.match(self.text[index : index + 200])
        if match and match.group()[0] not in "#":
            return index + match.end()
        return index

    def _alone(self, index: int) -> bool:
        after = self.text[index + 1 : index + 2]
        return not self.words and (not after or after.isspace() or after == ";")

    def _operator(self, index: int) -> int:
        if self.text.startswith("&>", index):
            return self._redirection(index + 1)
        self._end_command()
        return index + (2 if self.text[index : index + 2] in ("&&", "||", ";;") else 1)

    def _redirection(self, index: int) -> int:
        if self.words and self.words[-1][0] in ("1", "2") and not self.text[index - 1].isspace():
            self.words.pop()  # the file descriptor of "2>"
        heredoc = _HEREDOC.match(self.text, index)
        if heredoc and not self.text.startswith("<<<", index):
            end = re.compile(rf"^\s*{heredoc.group(2)}\s*$", re.M).search(self.text, heredoc.end())
            line_end = self.text.find("\n", heredoc.end())
            if line_end < 0:
                return len(self.text)
            rest = self.text[heredoc.end() : line_end]
            self.text = rest + "\n" + (self.text[end.end() :] if end else "")
            return 0
        while index < len(self.text) and self.text[index] in "<>&|":
            index += 1
        while index < len(self.text) and self.text[index] in " \t":
            index += 1
        if index < len(self.text) and self.text[index] not in "\n;|&":
            known = len(self.words)
            index = self._word(index)
            del self.words[known:]
        return index

    def _word(self, index: int) -> int:
        """Read one word with its quotes and variables; unquoted variables split into words."""
        text = self.text
        parts: list[str] = []
        assignment = _ASSIGNMENT.match(text, index) is not None
        quoted = False
        pieces: list[str] = []
        while index < len(text) and text[index] not in " \t\n;|&()<>":
            char = text[index]
            if char == "'":
                end = text.find("'", index + 1)
                if end < 0:
                    raise CommandLineError(_unclosed("'", text, index))
                parts.append(text[index + 1 : end])
                index, quoted = end + 1, True
            elif char == '"':
                value, index = self._double_quoted(index)
                parts.append(value)
                quoted = True
            elif char == "$" and text.startswith("$'", index):
                value, index = _ansi_quoted(text, index)
                parts.append(value)
                quoted = True
            elif char == "$":
                value, index = _dollar(text, index, self.variables)
                if assignment or not re.search(r"\s", value) or hole_in(value):
                    parts.append(value)
                else:
                    split = value.split()
                    if value[:1].isspace() and parts:
                        pieces.append("".join(parts))
                        parts = []
                    for piece in split[:-1]:
                        pieces.append("".join(parts) + piece)
                        parts = []
                    parts += split[-1:]
                    if value[-1:].isspace():
                        pieces.append("".join(parts))
                        parts = []
            elif char == "`":
                end = text.find("`", index + 1)
                if end < 0:
                    raise CommandLineError(_unclosed("`", text, index))
                parts.append(hole(text[index : end + 1]))
                index = end + 1
            elif char == "\\" and index + 1 < len(text):
                parts.append(text[index + 1])
                index, quoted = index + 2, True
            else:
                parts.append(char)
                index += 1
        word = "".join(parts)
        self.words += [(piece, False) for piece in pieces]
        if word or quoted:
            self.words.append((word, assignment))
        return index

    def _double_quoted(self, index: int) -> tuple[str, int]:
        text, start, parts = self.text, index, list[str]()
        index += 1
        while index < len(text):
            char = text[index]
            if char == '"':
                return "".join(parts), index + 1
            if char == "\\" and text[index + 1 : index + 2] in ("$", "`", '"', "\\"):
                parts.append(text[index + 1])
                index += 2
            elif char == "$":
                value, index = _dollar(text, index, self.variables)
                parts.append(value)
            elif char == "`":
                end = text.find("`", index + 1)
                if end < 0:
                    raise CommandLineError(_unclosed("`", text, index))
                parts.append(hole(text[index : end + 1]))
                index = end + 1
            else:
                parts.append(char)
                index += 1
        raise CommandLineError(_unclosed('"', text, start))

    def _end_command(self, *, skip_next: bool = False) -> None:
        words, self.words = self.words, []
        skipping, self.skipping = self.skipping, skip_next
        if not words or skipping:
            return
        own: dict[str, str] = {}
        while words and words[0][1]:
            name, _, value = words.pop(0)[0].partition("=")
            own[name.removesuffix("+")] = value
        if not words:
            self.variables.update(own)
            self.exported.update({key: own[key] for key in own if key in self.exported})
            return
        plain = [word for word, _ in words]
        if plain[0] in ("export", "declare", "set", "setx") and len(plain) > 1:
            self._export(plain)
            return
        self.commands.append(ShellCommand(words=tuple(plain), environment={**self.exported, **own}))

    def _export(self, words: list[str]) -> None:
        if words[0] == "setx" and len(words) == 3:
            words = ["setx", f"{words[1]}={words[2]}"]
        for word in words[1:]:
            name, separator, value = word.partition("=")
            if not _NAME.fullmatch(name):
                continue
            if separator:
                self.variables[name] = value
            if name in self.variables:
                self.exported[name] = self.variables[name]


def _dollar(text: str, index: int, variables: dict[str, str]) -> tuple[str, int]:
    """The value of the expansion that starts at ``$`` and the place after it."""
    if text.startswith("$((", index):
        end = _closing(text, index + 1, "(", ")")
        result = _arithmetic(text[index + 3 : end - 2], variables)
        return hole(text[index:end]) if result is None else str(result), end
    if text.startswith("$(", index):
        end = _closing(text, index + 1, "(", ")")
        return hole(text[index:end]), end
    if text.startswith("${", index):
        end = _closing(text, index + 1, "{", "}")
        inner = text[index + 2 : end - 1]
        match = _PARAMETER.fullmatch(inner)
        if match is None:
            return hole(text[index:end]), end
        name, operator, word = match.groups()
        value = variables.get(name)
        if operator and operator.endswith("+"):
            present = value is not None and (value != "" or operator == "+")
            return (expand(word, variables) if present else ""), end
        if value is not None and (value != "" or not (operator or "").startswith(":")):
            return value, end
        if operator in ("-", ":-", "=", ":="):
            value = expand(word, variables)
            if operator.endswith("="):
                variables[name] = value
            return value, end
        return hole(f"${name}"), end
    if match := re.compile(r"\$env:(\w+)", re.I).match(text, index):
        name = match.group(1)
        return variables.get(name, hole(f"${name}")), match.end()
    match = _NAME.match(text, index + 1)
    if match is None:
        after = text[index + 1 : index + 2]
        if after and after in "0123456789@*#?!-$":
            return hole(f"${after}"), index + 2
        return "$", index + 1
    return variables.get(match.group(), hole(f"${match.group()}")), match.end()


def _arithmetic(text: str, variables: Mapping[str, str]) -> int | None:
    """The value of ``$((...))`` in whole numbers; None when it is more than + - * / % and ()."""
    written = _NAME.sub(lambda name: variables.get(name.group(), name.group()), text.strip())
    written = written.replace("$", "")
    if not re.fullmatch(r"[0-9+\-*/% ()]{1,100}", written) or "**" in written:
        return None
    try:
        return _evaluated(ast.parse(written.replace("//", "?"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _evaluated(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():  # a shell's division cuts towards zero
                return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            case ast.Mod():
                return abs(left) % abs(right) * (1 if left >= 0 else -1)
    raise ValueError("not arithmetic")


def _closing(text: str, index: int, opening: str, closing: str) -> int:
    """The place after the bracket that closes the one at ``index``."""
    depth = 0
    for place in range(index, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if depth == 0:
                return place + 1
    raise CommandLineError(_unclosed(f"${opening}", text, index - 1))


def _ansi_quoted(text: str, index: int) -> tuple[str, int]:
    """The value of ``$'...'`` with its escapes, and the place after it."""
    start, parts = index, list[str]()
    index += 2
    while index < len(text):
        char = text[index]
        if char == "'":
            return "".join(parts), index + 1
        if char == "\\" and index + 1 < len(text):
            code = text[index + 1]
            digits = re.compile(r"[0-9A-Fa-f]{1,4}").match(text, index + 2)
            if code in "xu" and digits:
                number = digits.group()[: 2 if code == "x" else 4]
                parts.append(chr(int(number, 16)))
                index += 2 + len(number)
            else:
                parts.append(_ANSI_ESCAPES.get(code, code))
                index += 2
        else:
            parts.append(char)
            index += 1
    raise CommandLineError(_unclosed("$'", text, start))


def _unclosed(quote: str, text: str, index: int) -> str:
    shown = text[index : index + 40].split("\n", 1)[0]
    return f"the command opens {quote} at {shown!r} and never closes it; add the closing one"
