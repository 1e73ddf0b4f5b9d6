"""Traces read as arrays against the same read row by row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads.trace import Trace, TraceOptions

pytest.importorskip("numba")

from tokenroom.serving.compiled.sources import Delay, entering
from tokenroom.serving.compiled.trace_tables import tables_of_trace

DELAY = Delay(0.015, 5e-6)
FIELDS = ["enters", "arrival", "id", "session", "prompt", "output"]


def check(path: Path, *, window: int = 10_000, skip_bad: bool = False) -> int:
    """Both ways give the same requests, or refuse the file for the same reason."""
    options = TraceOptions(window=window, skip_bad=skip_bad, block_tokens=16)
    by_row, as_arrays = Trace(path, options), Trace(path, options)
    refused = None
    try:
        expected, _ = entering(by_row, DELAY, 16)
    except WorkloadError as problem:
        refused = str(problem)
    if refused is not None:
        with pytest.raises(WorkloadError) as raised:
            list(tables_of_trace(as_arrays, DELAY, 16))
        assert str(raised.value) == refused
        return 0
    found = [row for table, _ in tables_of_trace(as_arrays, DELAY, 16) for row in table]
    assert [row[FIELDS].tolist() for row in found] == expected[FIELDS].tolist()
    assert as_arrays.bad.counts == by_row.bad.counts
    assert as_arrays.bad.first_lines == by_row.bad.first_lines
    assert as_arrays.order.moved == by_row.order.moved
    return len(found)


def written(path: Path, rows: list[str], header: str = "arrival,input,output") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


ROWS = [f"{number / 8},{1 + number % 700},{1 + number % 90}" for number in range(9000)]


@pytest.mark.parametrize("window", [1, 7, 1000, 4096, 10_000])
def test_a_plain_trace(tmp_path: Path, window: int) -> None:
    assert check(written(tmp_path / "t.csv", ROWS), window=window) == len(ROWS)


@pytest.mark.parametrize(
    "row",
    [
        *("", ",,", "5,6", "x,1,1", "1,x,1", "1,0,1", "1,1,0", "1,-4,1", "1,1,1e9", "9e99,1,1"),
        *('1,"1', "1125,1_0,1", "1125, 7 ,1.0", "0.5,4,4", "1124.9,4,4"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 4096, 5000, 8999])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_row_that_is_not_plain(tmp_path: Path, row: str, place: int, skip_bad: bool) -> None:
    rows = [*ROWS[:place], row, *ROWS[place:]]
    check(written(tmp_path / "t.csv", rows), skip_bad=skip_bad, window=1000)


def test_disorder_is_put_right_alike(tmp_path: Path) -> None:
    rows = ROWS.copy()
    draw = random.Random(3)
    for begin in range(2000, 8000, 37):
        part = rows[begin : begin + 30]
        draw.shuffle(part)
        rows[begin : begin + 30] = part
    assert check(written(tmp_path / "t.csv", rows), window=500) == len(rows)


def test_dates_sessions_and_nothing(tmp_path: Path) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    dates = [f"2023-11-16 18:{n // 60 % 60:02}:{n % 60:02}.6805900,{n + 1},3" for n in range(3600)]
    assert check(written(tmp_path / "a.csv", dates, header)) == 3600
    sessions = [f"{number},{number % 5},10,10" for number in range(50)]
    assert check(written(tmp_path / "s.csv", sessions, "arrival,session,input,output")) == 50
    check(written(tmp_path / "n.csv", ["1,0,1"] * 3), skip_bad=True)


def test_names_of_blocks_are_those_of_requests(tmp_path: Path) -> None:
    """What two requests share of their blocks they share by the compact names too."""
    line = '{{"timestamp": {}, "input_length": {}, "output_length": 4, "hash_ids": {}}}'
    shared = [[1, 2, 3], [1, 2, 4], [1, 2], [7, 2, 3], [1]]
    lengths = [1536, 1500, 700, 1536, 100]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(line.format, range(5), lengths, shared)))
    trace = Trace(path, TraceOptions(block_tokens=16))
    requests = list(trace)
    ((table, names),) = tables_of_trace(trace, DELAY, 16)
    assert table["num_names"].tolist() == [len(ids) for ids in shared]
    assert table["named_blocks"].tolist() == [len(one.block_hashes) for one in requests]
    assert set(table["name_tokens"].tolist()) == {512}

    def name(row: int, block: int) -> int:
        end = (block + 1) * 16
        number = (end - 1) // 512
        return int(names[table["names"][row] + number]) * 512 + end - 1 - number * 512

    every = [
        (request.block_hashes[block], name(row, block))
        for row, request in enumerate(requests)
        for block in range(len(request.block_hashes))
    ]
    assert len({one for one, _ in every}) == len({other for _, other in every}) == len(set(every))
