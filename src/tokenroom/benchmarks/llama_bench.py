"""Output of llama-bench in each of its forms: JSON, JSON lines, CSV, SQL and the Markdown table.

Read in ggml-org/llama.cpp ``tools/llama-bench/llama-bench.cpp`` (``test::get_fields``, the
printers; builds 1 to 9,000 in ``examples/`` before): a row is one test, repeated after a warm-up.
``pp`` passes ``n_prompt`` tokens, ``tg`` decodes ``n_gen`` one by one, ``pg`` does both; each after
``n_depth`` tokens that are in the cache already. ``avg_ns`` is the mean time of a repetition,
``avg_ts`` the mean of its tokens a second. Tokenising and sampling are not in it. CSV and SQL quote
every value; the table has ``test`` and ``t/s``, of ``mean ± deviation``, and no file name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tokenroom.benchmarks.fields import Fields
from tokenroom.benchmarks.point import MeasuredPoint, Remark, Spread, Subject, Work
from tokenroom.errors import BenchmarkError

TITLE = "llama-bench -o json|jsonl|csv|sql|md"

_TEST: Final = re.compile(r"(?:pp ?(\d+))?\+?(?:tg ?(\d+))?(?: @ d(\d+))?")
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?: ± \d+(?:\.\d+)?)?")
_INSERT: Final = re.compile(r"INSERT INTO \w+ \(([^)]*)\)\s*VALUES \((.*)\);")
_VALUE: Final = re.compile(r"'((?:[^']|'')*)'")
_COLUMNS: Final = {"n_ubatch": "n_ubatch", "type_k": "type_k", "ngl": "n_gpu_layers"}


def recognises(document: object) -> bool:
    """Whether an object is a row of llama-bench."""
    return isinstance(document, Mapping) and {"n_prompt", "n_gen", "avg_ts"} <= set(document)


def is_text(text: str) -> bool:
    """Whether a text is llama-bench's CSV, SQL or Markdown."""
    return any(
        line.startswith(("build_commit,", "INSERT INTO llama_bench"))
        or {"model", "test", "t/s"} <= set(_cells(line))
        for line in text.splitlines()
    )


def _cells(line: str) -> list[str]:
    """Cells of a row of a Markdown table; none of any other line."""
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_point(document: Mapping[str, Any], file: str, place: str) -> MeasuredPoint:
    """One test.

    Raises:
        BenchmarkError: A field is missing or impossible.
    """
    fields = Fields(document, f"{file}, {place}" if place else file)
    prompt, output = fields.count("n_prompt") or 0, fields.count("n_gen") or 0
    depth = fields.count("n_depth") or 0
    if not prompt and not output:
        raise BenchmarkError(
            f"{fields.place}: n_prompt and n_gen are both 0; the test does nothing"
        )
    seconds = fields.number("avg_ns", zero=False)
    seconds = (prompt + output) / fields.figure("avg_ts") if seconds is None else seconds / 1e9
    layers = fields.data.get("n_gpu_layers")
    remarks = []
    if str(layers) == "0":
        remarks.append(Remark("no_layers", place, {}))
    whole = Spread(seconds, {})
    work, ttft, tpot = Work.BOTH, None, None
    if not output:
        work, ttft = Work.PROMPT, whole
    elif not prompt:
        work, tpot = Work.GENERATION, Spread(seconds / output, {})
    return MeasuredPoint(
        place=place,
        work=work,
        subject=Subject(
            engine="llama.cpp",
            engine_version=_version(fields),
            model=fields.text("model_filename"),
            gpu=fields.text("gpu_info"),
        ),
        clients=1,
        input_tokens=float(prompt),
        output_tokens=float(output),
        context_tokens=float(depth),
        ttft=ttft,
        tpot=tpot,
        latency=whole if work is Work.BOTH else None,
        output_tokens_per_second=output / seconds if work is Work.BOTH else None,
        step_tokens=fields.count("n_ubatch"),
        kv_type=fields.text("type_k"),
        remarks=tuple(remarks),
    )


def _version(fields: Fields) -> str | None:
    build = fields.count("build_number")
    return None if build is None else f"b{build}"


def text_rows(text: str, file: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every row of a CSV, SQL or Markdown text with its place.

    Raises:
        BenchmarkError: A row is damaged; the message says the line.
    """
    header: Sequence[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"line {number}"
        if line.startswith("build_commit,"):
            header = next(csv.reader([line]))
        elif line.startswith("| model "):
            header = _cells(line)
        elif line.startswith("INSERT INTO"):
            yield _inserted(line, file, place), place
        elif line.startswith("|") and header is not None and not line.startswith("| -"):
            yield _table_row(header, line, file, place), place
        elif line.startswith('"') and header is not None:
            cells = next(csv.reader([line]))
            if len(cells) != len(header):
                raise BenchmarkError(
                    f"{file}, {place}: it has {len(cells)} columns and the header {len(header)}; "
                    f"the row is cut or damaged"
                )
            yield dict(zip(header, cells, strict=True)), place


def _inserted(line: str, file: str, place: str) -> dict[str, Any]:
    matched = _INSERT.match(line)
    names = [name.strip() for name in matched[1].split(",")] if matched else []
    values = [value.replace("''", "'") for value in _VALUE.findall(matched[2])] if matched else []
    if not names or len(names) != len(values):
        raise BenchmarkError(
            f"{file}, {place}: its INSERT names {len(names)} columns and has {len(values)} values; "
            f"the row is cut or damaged"
        )
    return dict(zip(names, values, strict=True))


def _table_row(header: Sequence[str], line: str, file: str, place: str) -> dict[str, Any]:
    cells = dict(zip(header, _cells(line), strict=False))
    test, rate = cells.get("test", ""), cells.get("t/s", "")
    matched, speed = _TEST.fullmatch(test), _RATE.fullmatch(rate)
    if matched is None or not any(matched.groups()[:2]):
        raise BenchmarkError(
            f"{file}, {place}: test is {test!r}; a table of llama-bench holds such as pp512, tg128 "
            f"or pp512+tg128 @ d4096"
        )
    if speed is None:
        raise BenchmarkError(
            f"{file}, {place}: t/s is {rate!r}; a table of llama-bench holds such as 123.45 ± 0.67"
        )
    prompt, output, depth = (int(part or 0) for part in matched.groups())
    row: dict[str, Any] = {
        "n_prompt": prompt,
        "n_gen": output,
        "n_depth": depth,
        "avg_ts": float(speed[1]),
    }
    return row | {name: cells[column] for column, name in _COLUMNS.items() if column in cells}
