"""What has been read of a log so far, whichever engine wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tokenroom.validation.logs.lines import Message, rank_of

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
#: Words of lines that state an error.
_ERROR_WORDS: Final = (
    *("Error: ", "Exception: ", "Value error, ", "error loading model: "),
    *("CUDA error: ", "HIP error: ", "fatal error", "hit an exception", "Segmentation fault"),
)
_ERROR: Final = re.compile(
    r"(?:^|[\s\]])(?:[\w.]*\.)?(?P<kind>\w*(?:Error|Exception)): (?P<text>\S.*)"
    r"|(?P<pydantic>Value error), (?P<said>\S.*)"
    r"|error loading model: (?P<plain>\S.*)"
    r"|(?P<device>(?:CUDA|HIP) error: \S.*)"  # ggml-cuda.cu, without the name of an exception
)
#: After these nothing is served any more: the device's context is lost, or the engine's process
#: ended (vLLM v1/engine/core.py and exceptions.py, SGLang srt/managers/scheduler.py).
_ENDS: Final = re.compile(
    r"(?:CUDA|HIP) error: |EngineDead|[Ee]ngine ?[Cc]ore encountered a fatal error"
    r"|(?:Scheduler|TpModelWorker\w*|DetokenizerManager) hit an exception|Segmentation fault"
)
#: Errors that only say that another process had one, or follow from it.
_SECONDARY: Final = re.compile(
    r"root cause|stack trace|[Bb]roken pipe|died unexpectedly|EngineDead|RemoteError"
    r"|Connection reset|proc(?:ess)? initialization failed"
)
_SECRETS: Final = (
    (re.compile(r"(://)[^/\s@]+@"), r"\1"),
    (re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]+"), r"\1"),
    (re.compile(r"\b(?:hf_|sk-|ghp_|nvapi-)[\w-]{4,}"), "HIDDEN"),
    (re.compile(r"\b(Bearer\s+)[^\s'\"]+", re.I), r"\1HIDDEN"),
    (
        re.compile(
            r"((?:api[-_]?key|token|password|secret)['\"]?(?:\s*[=:]\s*|\s+(?=\[))\[?['\"]?"
            r"|--?(?:[\w-]*(?:api[-_]?key|token|password|secret))\s+(?!-))"
            r"[^\s'\",\])]+",
            re.I,
        ),
        r"\1HIDDEN",
    ),
)
_LONGEST_ERROR: Final = 300


def sized(text: str) -> re.Pattern[str]:
    """A pattern in which ``<quantity>`` stands for the number that is printed there."""
    return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>-?\\d[\\d,]*(?:\\.\\d+)?)", text))


@dataclass(slots=True, kw_only=True)
class Facts:
    """One start of an engine, filled while its log is read.

    Attributes:
        version: The engine's version.
        model: Its model.
        layout: How the log says its weights are stored, as models are named by it (``Q4_K_M``).
        flags: Its arguments by name.
        gpu: Name of the accelerator.
        gpus: How many.
        figures: Quantity to process to value, the last one that process printed.
        started: It said that it serves.
        ended: After that it said what no engine goes on serving from.
        failure: ``"fails"`` for want of memory, ``"fails_other"``, None.
        error: The last error that says why, secrets left out; None when there is none.
    """

    version: str | None = None
    model: str | None = None
    layout: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    gpus: int | None = None
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    started: bool = False
    ended: bool = False
    failure: str | None = None
    error: str | None = None

    def note(self, quantity: str, process: str, text: str) -> None:
        """Keep a figure that a process printed; one that is no number is passed over."""
        match = _NUMBER.fullmatch(text.strip())
        if match is not None:
            value = float(match[0].replace(",", ""))
            plain = int(value) if value.is_integer() and "." not in match[0] else value
            self.figures.setdefault(quantity, {})[process] = plain

    def reported(self) -> dict[str, float]:
        """The figures of the first rank that printed each."""
        return {
            quantity: by_process[min(by_process, key=rank_of)]
            for quantity, by_process in self.figures.items()
        }

    @property
    def num_figures(self) -> int:
        """How many quantities were read."""
        return len(self.figures)

    def outcome(self) -> str | None:
        """How the start ended, in the words of rows."""
        if self.started:
            return "fails at run time" if self.failure == "fails" else "ok"
        return self.failure


def without_secrets(text: str) -> str:
    """A text in which what signs a request in is hidden: keys, tokens, passwords, signed links."""
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text


def error_sentence(text: str) -> str | None:
    """The error that a line states, without secrets and cut where it is long; None for none.

    Errors that only follow from another one, in a process that waited for it, are none.
    """
    match = _ERROR.search(text)
    if match is None or _SECONDARY.search(text):
        return None
    if match["pydantic"]:
        kind, said = "ValueError", match["said"]
    else:
        kind, said = match["kind"], match["text"] or match["plain"] or match["device"]
    said = without_secrets(" ".join(said.split(" [type=", 1)[0].split()))
    if len(said) > _LONGEST_ERROR:
        end = said.rfind(". ", 0, _LONGEST_ERROR)
        said = said[: end + 1] if end > 0 else said[:_LONGEST_ERROR] + "..."
    return f"{kind}: {said}" if kind else said


class LogReader:
    """Reads one engine's lines; a subclass names its patterns and the lines that need more."""

    engine: str
    #: Patterns whose named groups are quantities.
    figures: Sequence[re.Pattern[str]] = ()
    #: Words, one of which a line must hold to be looked at.
    keywords: Sequence[str] = ()
    started: Sequence[str] = ()
    out_of_memory: Sequence[str] = ()

    def __init__(self) -> None:
        self.starts: list[Facts] = [Facts()]

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the lines that :meth:`feed` wants to see."""
        return (*self.keywords, *self.started, *self.out_of_memory, *_ERROR_WORDS)

    @property
    def facts(self) -> Facts:
        """The start that is being read."""
        return self.starts[-1]

    def best(self) -> Facts:
        """The last start that printed figures; the last one when none did."""
        return next((start for start in reversed(self.starts) if start.figures), self.starts[-1])

    def feed(self, message: Message) -> None:
        """Take in one message."""
        text = message.text
        if not any(word in text for word in self.words):
            return
        for pattern in self.figures:
            for match in pattern.finditer(text):
                for quantity, value in match.groupdict().items():
                    if value is not None:
                        self.facts.note(quantity, message.process, value)
        if any(words in text for words in self.started):
            self.facts.started, self.facts.ended = True, False
        elif self.facts.started and _ENDS.search(text):
            self.facts.ended = True
        if any(words in text for words in self.out_of_memory):
            self.facts.failure = "fails"
        self.read(message)
        if (error := error_sentence(text)) is not None:
            self.facts.error = error

    def begin(self) -> None:
        """Another start begins in the same log."""
        if self.facts.figures:
            del self.starts[:-1]
            self.starts.append(Facts())

    def read(self, message: Message) -> None:
        """What patterns alone do not say; nothing by default."""

    def finish(self, facts: Facts) -> Mapping[str, Any]:
        """The figures of a start as a row reports them."""
        return facts.reported()
