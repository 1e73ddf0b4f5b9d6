"""Lines that quote what clients wrote: nothing in them is about the server."""

from __future__ import annotations

import re
from typing import Final

_QUOTE: Final = re.compile(
    # vLLM: entrypoints/logger.py; SGLang: srt/managers/tokenizer_manager.py with --log-requests;
    # llama.cpp: tools/server with -v; Ollama: runner with OLLAMA_DEBUG
    rb"Received request \S+: ?(?:prompt|params)|Request \S+ details: |Generated response \S+"
    rb"|(?:Receive|Finish): obj=|\blog_server_r: |\bmsg=\"?(?:completion|chat|generate) request\b"
)
QUOTING: Final = (
    *(b"Received request ", b" details: ", b"Generated response ", b": obj=", b"log_server_r: "),
    *(b"completion request", b"chat request", b"generate request"),
)
"""One of them is in every such line; finding them is quicker than the pattern."""

_HEAD_BYTES: Final = 512
"""Where in a line the engine's own words are; what follows is the client's."""

_CLOSED: Final = b")}]'\"0123456789"

_HEADER: Final = re.compile(
    rb"(?:\x1b\[[\d;]*m|\S+\s*\| +)*"  # colours, compose
    rb"(?:(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|TRACE|FATAL)\b|\(\w+ (?:rank=\d+ )?pid="
    rb"|[\[(]?\d{4}[-/]\d\d[-/]\d\d[T \d]|[\[(]\d\d/\d\d/\d{4}|\{\"|[IWEF]\d{4} \d\d:|time=|level="
    rb"|(?:srv|slot|que|main|cmn|res) +\w|(?:llama|ggml|common|load|print|set)_\w+: "
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d|\[(?:rank|RANK)? ?\d)"
)


def is_quote(line: bytes) -> bool:
    """Whether a line quotes a client."""
    head = line[:_HEAD_BYTES]
    return any(word in head for word in QUOTING) and _QUOTE.search(head) is not None


def stays_open(line: bytes) -> bool:
    """Whether what a line quotes goes on in the next, as a text printed as it is does.

    What is quoted is closed by the bracket, mark or figure that the engine writes behind it.
    """
    end = line.rstrip()
    return end[-1:] not in _CLOSED and b"params: " not in end


def has_header(line: bytes) -> bool:
    """Whether a line begins as an engine, a runtime or a system logger begins one."""
    return _HEADER.match(line) is not None
