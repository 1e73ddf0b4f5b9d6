import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tokenroom.errors import WorkloadError
from tokenroom.execution.canonical import digest
from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.request import Request
from tokenroom.serving.workloads.source import DrawnSource, Part, TraceSource, WorkloadSource
from tokenroom.serving.workloads.trace import TraceOptions

ROWS = "ts,input,output\n" + "".join(f"{time},{100 + time},5\n" for time in range(10))
DRAWN = "poisson:rate=2,input=uniform(10,90),output=7,requests=12"


def all_of(source: WorkloadSource) -> list[Request]:
    arrivals = source.served(16).arrivals
    assert isinstance(arrivals, OpenLoop)
    found = []
    while arrivals.next_seconds() is not None:
        found.append(arrivals.pop())
    return found


def test_a_source_serves_the_same_requests_each_time(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    source = TraceSource(path=tmp_path / "t.csv", part=Part(window_seconds=(2.0, 8.0), limit=4))
    assert [request.prompt_tokens for request in all_of(source)] == [102, 103, 104, 105]
    assert all_of(source) == all_of(source)
    half = replace(source, part=Part(time_scale=0.5))
    assert [request.arrival_seconds for request in all_of(half)] == [n / 2 for n in range(10)]
    drawn = DrawnSource(description=DRAWN)
    assert len(all_of(drawn)) == 12
    assert all_of(drawn) == all_of(drawn) == all_of(replace(drawn, seed=0))
    assert all_of(replace(drawn, seed=1)) != all_of(drawn)


def test_it_is_named_by_its_requests(tmp_path: Path) -> None:
    one, other = tmp_path / "a.csv", tmp_path / "b.csv"
    one.write_text(ROWS)
    shutil.copy(one, other)
    source = TraceSource(path=one)
    assert digest(source.identity()) == digest(TraceSource(path=other).identity())
    changed = [
        replace(source, part=Part(limit=3)),
        replace(source, options=TraceOptions(format="csv")),
    ]
    other.write_text(ROWS + "11,5,5\n")
    changed.append(TraceSource(path=other))
    assert len({digest(item.identity()) for item in [source, *changed]}) == 4
    with pytest.raises(WorkloadError, match=r"none\.csv cannot be read: No such file"):
        TraceSource(path=tmp_path / "none.csv").identity()


def test_numbers_of_a_file_are_part_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    source = DrawnSource(description=f"poisson:rate=2,input=empirical({file}),output=7")
    names = set()
    for text in ("10\n20\n", "10\n30\n"):
        file.write_text(text)
        names.add(digest(source.identity()))
    assert len(names) == 2


def test_a_part_of_times_that_are_not_known_is_refused() -> None:
    users = DrawnSource(
        description="users:count=2,input=9,output=9", part=Part(window_seconds=(0.0, 9.0))
    )
    with pytest.raises(WorkloadError, match="a window is of arrivals that are known beforehand"):
        users.served(16)
