from pathlib import Path

import pytest

from tokenroom.comparing.draws import draws_of
from tokenroom.errors import ComparisonError
from tokenroom.serving.workloads.source import DrawnSource, Part, TraceSource, WorkloadSource


def arrivals(source: WorkloadSource) -> list[int]:
    requests = source.served(16).arrivals
    found = []
    while requests.next_seconds() is not None:
        found.append(requests.pop().prompt_tokens)
    return found


def trace(folder: Path, *seconds: float) -> TraceSource:
    file = folder / "t.csv"
    rows = "".join(f"{second},{100 + number},5\n" for number, second in enumerate(seconds))
    file.write_text("ts,input,output\n" + rows)
    return TraceSource(path=file)


def test_seeds_follow_the_workload_s_own() -> None:
    source = DrawnSource(description="poisson:rate=2,input=9,output=9,seed=7")
    assert list(draws_of(source).workloads) == list(range(7, 17))
    drawn = draws_of(source, 2)
    assert (drawn.by, list(drawn.workloads)) == ("seed", [7, 8])
    assert [item.seed for item in drawn.workloads.values() if isinstance(item, DrawnSource)] == [
        *(7, 8)
    ]


def test_every_request_of_a_trace_is_in_one_stretch(tmp_path: Path) -> None:
    source = trace(tmp_path, *(second / 3 for second in range(31)))
    for count in (2, 3, 7):
        drawn = draws_of(source, count)
        assert (drawn.by, list(drawn.workloads)) == ("stretch", list(range(1, count + 1)))
        parts = [
            arrivals(item) for item in drawn.workloads.values() if isinstance(item, TraceSource)
        ]
        assert [length for part in parts for length in part] == arrivals(source)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_of_a_trace_is_cut_too(tmp_path: Path) -> None:
    whole = trace(tmp_path, *range(30))
    part = TraceSource(path=whole.path, part=Part(window_seconds=(10.0, 20.0), time_scale=0.5))
    drawn = draws_of(part, 2)
    parts = [arrivals(item) for item in drawn.workloads.values()]
    assert parts == [[110, 111, 112, 113, 114], [115, 116, 117, 118, 119]]


def test_a_trace_is_whole_unless_it_is_to_be_cut(tmp_path: Path) -> None:
    source = trace(tmp_path, 1, 2)
    for count in (None, 1):
        assert draws_of(source, count).workloads == {None: source}
        assert draws_of(source, count).by is None
    with pytest.raises(ComparisonError, match="all of its requests at one time"):
        draws_of(trace(tmp_path, 3, 3, 3), 2)
    with pytest.raises(ComparisonError, match="drawn 0 times; give 1 or more"):
        draws_of(source, 0)
