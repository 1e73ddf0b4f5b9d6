"""A benchmark's output, whichever tool wrote it, as measured points."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenroom.benchmarks import (
    genai_perf,
    guidellm,
    llama_bench,
    sglang_serving,
    trtllm_bench,
    vllm_serve,
)
from tokenroom.benchmarks.point import MeasuredPoint
from tokenroom.errors import BenchmarkError
from tokenroom.files import decoded, read_bounded

_MAX_BYTES: Final = 512 * 2**20  # with every token's time of a long run
_FORMATS: Final = (sglang_serving, vllm_serve, trtllm_bench, genai_perf, llama_bench)

TITLES: Final = (
    vllm_serve.TITLE,
    sglang_serving.TITLE,
    genai_perf.TITLE,
    guidellm.TITLE,
    llama_bench.TITLE,
    trtllm_bench.TITLE,
)
"""What can be read, as messages list it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFile:
    """One file of measured points.

    Attributes:
        name: The file's name, without its folder.
        sha256: Of its bytes, in hexadecimal.
        title: What wrote it.
        points: What was measured, in the file's order.
    """

    name: str
    sha256: str
    title: str
    points: tuple[MeasuredPoint, ...]


def read_benchmark(path: str | os.PathLike[str]) -> BenchmarkFile:
    """The points of a benchmark's output.

    Raises:
        BenchmarkError: The file cannot be read, is of no known form, or a field is missing or
            impossible; the message names file, place and field.
    """
    file = Path(path)
    what = f"--from {file}"
    data = read_bounded(file, _MAX_BYTES, what=what, error=BenchmarkError, streams=True)
    text = decoded(data, what=what, error=BenchmarkError)
    title, points = _points(text, file.name)
    return BenchmarkFile(
        name=file.name, sha256=hashlib.sha256(data).hexdigest(), title=title, points=points
    )


def _points(text: str, name: str) -> tuple[str, tuple[MeasuredPoint, ...]]:
    if not text.strip():
        raise BenchmarkError(f"{name}: the file is empty; did the benchmark end?")
    if llama_bench.is_text(text):
        rows = list(llama_bench.text_rows(text, name))
        if not rows:
            raise BenchmarkError(f"{name}: it has a header and no test; did llama-bench end?")
        read = llama_bench.read_point
        return llama_bench.TITLE, tuple(read(row, name, place) for row, place in rows)
    documents = list(_documents(text, name))
    if len(documents) == 1 and guidellm.recognises(documents[0][0]):
        return guidellm.TITLE, tuple(guidellm.read_points(documents[0][0], name))
    found = []
    title = ""
    for document, place in documents:
        for form in _FORMATS:
            if form.recognises(document):
                break
        else:
            raise BenchmarkError(f"{name}{place and f', {place}'}: {_unknown(document)}")
        title = form.TITLE
        found.append(form.read_point(document, name, place))
    return title, tuple(found)


def _documents(text: str, name: str) -> Iterator[tuple[Any, str]]:
    """JSON values one after another, each with its place; a list's items stand for themselves."""
    decoder = json.JSONDecoder()
    at, several = 0, False
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return
        line = text.count("\n", 0, at) + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as problem:
            raise BenchmarkError(
                f"{name}, line {problem.lineno}: it is no JSON ({problem.msg}); {_known()}"
            ) from problem
        except RecursionError as problem:
            raise BenchmarkError(f"{name}, line {line}: it is nested too deeply") from problem
        several = several or bool(text[end:].strip())
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield item, f"[{number}]"
        else:
            yield value, f"line {line}" if several else ""
        at = end


def _unknown(document: object) -> str:
    if isinstance(document, Mapping) and "experiments" in document:
        return (
            "it is perf_analyzer's raw profile; give the summary beside it "
            "(profile_export_genai_perf.json)"
        )
    return f"it is of no known form; {_known()}"


def _known() -> str:
    return f"known are {'; '.join(TITLES)}"
