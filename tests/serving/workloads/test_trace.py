import bz2
import gzip
import json
import lzma
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import WorkloadError
from tokenroom.serving.workloads.columns import parse_columns
from tokenroom.serving.workloads.summary import summarise
from tokenroom.serving.workloads.trace import Trace, TraceOptions

without_deadline = settings(deadline=None)  # a busy disk takes its time

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319601,3180,8\r\n"
    "2023-11-16 18:18:04.0319600,110,27\r\n"
)
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,17,2.5,ChatGPT,472,18,490,Conversation log\n"
    "45,a-b,3.5,GPT-4,1087,230,1317,API log\n"
)
MOONCAKE = (
    '{"timestamp": 1000, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 4000, "input_length": 1030, "output_length": 6, "hash_ids": [0, 1, 3]}\n'
)


def written(folder: Path, content: str | bytes, name: str = "trace") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def lengths_and_times(trace: Trace) -> list[tuple[float, int, int]]:
    return [(one.arrival_seconds, one.prompt_tokens, one.output_tokens) for one in trace]


@pytest.mark.parametrize(
    "name",
    [
        "AzureLLMInferenceTrace_code.csv",
        "AzureLLMInferenceTrace_conv.csv",
        "mooncake_conversation_trace.jsonl",
        "mooncake_synthetic_trace.jsonl",
        "vidur_splitwise_code.csv",
        "vidur_splitwise_conv.csv",
    ],
)
def test_published_traces_have_the_figures_that_are_known_of_them(shared: Path, name: str) -> None:
    known = json.loads((shared / "traces/stats.json").read_text())["traces"][name]
    trace = Trace(shared / f"traces/{name}.gz", TraceOptions(count_ids=True))
    found = summarise(trace, block_tokens=trace.block_tokens)
    assert found.requests == known["rows"]
    for lengths, key in ((found.prompt, "in"), (found.output, "out")):
        assert {
            "mean": round(lengths.mean, 1),
            "p50": lengths.p50,
            "p95": lengths.p95,
            "p99": lengths.p99,
            "max": lengths.largest,
        } == known[key]
    times = found.arrivals
    assert times is not None
    assert times.request_rate is not None
    assert times.gap_cv is not None
    assert round(times.span_seconds, 1) == known["span_s"]
    assert round(times.request_rate, 3) == known["rate"]
    assert round(times.gap_cv, 2) == known["cv"]
    assert round(times.peak_minute_rate, 2) == known["peak_min_rate"]
    assert round(times.fano_all_minutes, 1) == known["fano_1min"]
    if "zero_gap_fraction" in known:
        assert round(times.same_time_share, 3) == known["zero_gap_fraction"]
        assert trace.ids is not None
        assert trace.ids.hit_ratio is not None
        assert round(trace.ids.hit_ratio, 3) == known["prefix_block_hit_infinite_cache"]
    read, size = trace.progress
    assert read == size == (shared / f"traces/{name}.gz").stat().st_size


def test_azure_keeps_a_hundred_nanoseconds(tmp_path: Path) -> None:
    trace = Trace(written(tmp_path, AZURE))
    assert trace.format == "azure"
    times = [one.arrival_seconds for one in trace]
    assert times == pytest.approx([0, 0.0520001, 60.0520000], abs=1e-9)


def test_dates_with_a_zone_count_the_same(tmp_path: Path) -> None:
    zoned = AZURE.replace(",4808", "+02:00,4808").replace(",3180", "+02:00,3180")
    zoned = zoned.replace("18:18:04.0319600,", "16:18:04.0319600Z,")
    times = [one.arrival_seconds for one in Trace(written(tmp_path, zoned))]
    assert times == pytest.approx([0, 0.0520001, 60.0520000], abs=1e-6)


def test_burstgpt_names_sessions(tmp_path: Path) -> None:
    trace = Trace(written(tmp_path, BURST))
    first, second = trace
    assert trace.format == "burstgpt"
    assert (first.prompt_tokens, first.output_tokens, first.session) == (472, 18, 17)
    assert second.arrival_seconds == 40
    assert isinstance(second.session, int)


def test_mooncake_names_full_blocks_of_the_asked_size(tmp_path: Path) -> None:
    file = written(tmp_path, MOONCAKE)
    first, second = Trace(file)
    assert (first.arrival_seconds, second.arrival_seconds) == (0, 3)
    assert len(first.block_hashes) == 2
    assert first.block_hashes == second.block_hashes
    first, second = Trace(file, TraceOptions(block_tokens=16))
    assert len(first.block_hashes) == 1025 // 16
    assert first.block_hashes == second.block_hashes
    first, second = Trace(file, TraceOptions(block_tokens=48))  # its 22nd block ends in the third
    assert len(first.block_hashes) == 21
    assert first.block_hashes == second.block_hashes
    first, second = Trace(file, TraceOptions(block_tokens=1028))
    assert (len(first.block_hashes), len(second.block_hashes)) == (0, 1)


def test_bailian_counts_seconds_and_blocks_of_sixteen(tmp_path: Path) -> None:
    record = {"chat_id": 4, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40}
    record |= {"output_length": 9, "type": "text", "turn": 1, "hash_ids": [5, 6, 7]}  # type: ignore[dict-item]
    trace = Trace(written(tmp_path, json.dumps(record)))
    (found,) = trace
    assert (trace.format, trace.block_tokens, found.session) == ("bailian", 16, 4)
    assert len(found.block_hashes) == 2


def test_a_log_of_an_openai_style_api(tmp_path: Path) -> None:
    lines = [
        {"created": 1700000000, "usage": {"prompt_tokens": 10, "completion_tokens": 3}},
        {
            "custom_id": "b",
            "response": {
                "body": {
                    "created_at": 1700000002,
                    "usage": {"input_tokens": 20, "output_tokens": 4},
                }
            },
        },
    ]
    lines[1]["created"] = 1700000001
    trace = Trace(written(tmp_path, "\n".join(map(json.dumps, lines))))
    assert trace.format == "openai"
    assert lengths_and_times(trace) == [(0, 10, 3), (1, 20, 4)]
    with pytest.raises(WorkloadError, match="line 1: it has no usage, so nothing tells how many"):
        list(Trace(written(tmp_path, '{"messages": [], "created": 1}')))


def test_a_benchmark_is_replayed_by_its_start_times(tmp_path: Path) -> None:
    run = {"model_id": "m", "tokenizer_id": "m", "completed": 2, "input_lens": [7, 8, 9]}
    run |= {"output_lens": [2, 0, 3], "start_times": [12.5, 12.6, 14.0]}
    file = written(tmp_path, json.dumps(run))
    with pytest.raises(WorkloadError, match="line 2: its output length is 0, so the request fail"):
        list(Trace(file))
    trace = Trace(file, TraceOptions(skip_bad=True))
    assert trace.format == "benchmark"
    assert lengths_and_times(trace) == [(0, 7, 2), (1.5, 9, 3)]
    assert trace.bad.counts == {"no_output": 1}
    del run["start_times"]
    file = written(tmp_path, json.dumps(run, indent=1))
    with pytest.raises(WorkloadError, match="has no start_times"):
        list(Trace(file))
    run["request_rate"] = "inf"
    file = written(tmp_path, json.dumps(run, indent=1))
    assert lengths_and_times(Trace(file, TraceOptions(skip_bad=True))) == [(0, 7, 2), (0, 9, 3)]
    for_sums = {name: run[name] for name in ("model_id", "tokenizer_id", "completed")}
    with pytest.raises(WorkloadError, match="--save-detailed"):
        list(Trace(written(tmp_path, json.dumps(for_sums))))


def test_columns_may_be_named(tmp_path: Path) -> None:
    text = "gen_len;when;prompt_len;priority\n5;2000;10;3\n6;2500;11.0;-1\n"
    columns = parse_columns("arrival=when:ms")
    found = list(Trace(written(tmp_path, text), TraceOptions(columns=columns)))
    assert [one.arrival_seconds for one in found] == [0, 0.5]
    assert [(one.prompt_tokens, one.output_tokens, one.priority) for one in found] == [
        (10, 5, 3),
        (11, 6, -1),
    ]
    records = '{"q": 1, "a": 2, "t": 0}\n{"q": 3, "a": 4, "t": 7}\n'
    asked = parse_columns("arrival=t,input=q,output=a")
    trace = Trace(written(tmp_path, records), TraceOptions(columns=asked))
    assert lengths_and_times(trace) == [(0, 1, 2), (7, 3, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival", "write FIELD=COLUMN"),
        ("speed=x", "write FIELD=COLUMN"),
        ("input=", "write FIELD=COLUMN"),
        ("input=a,input=b", "names input twice"),
    ],
)
def test_a_mapping_of_columns_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_columns(text)


PLAIN = "ts,input,output\n"
# The same bytes in every process: they are part of a test's name.
PACKED = gzip.compress(AZURE.encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        (PLAIN, "has no request"),
        ("ts,input\n1,2\n", "no column of output lengths"),
        ("a,b\n1,2\n", "no column of arrival and input and output lengths"),
        ("input,output\n1,2\n", "draw arrivals with this file's lengths"),
        (PLAIN + "1,2,3\n2,-4,3\n", "line 3: its input length is -4, which is negative"),
        (PLAIN + "1,2,3\n2,4,0\n", "line 3: its output length is 0"),
        (PLAIN + "1,0,3\n", "line 2: its input length is 0"),
        (PLAIN + "1,2,900000000\n", "line 2: its output length is 900,000,000"),
        (PLAIN + "1,2,3\n\n2,nan,3\n", "line 4: input is 'nan'; it must be a whole"),
        (PLAIN + "1,2.5,3\n", "line 2: input is '2.5'; it must be a whole number"),
        (PLAIN + "1,many,3\n", "line 2: input is 'many', which is no number"),
        (PLAIN + "1,,3\n", "line 2: input has no value"),
        (PLAIN + "1,2\n", "line 2: it has 2 columns where the header has 3"),
        (PLAIN + "1,2,3\n2,4,5,6\n", "line 3: it has 4 columns where the header has 3"),
        ("ts,input,input,output\n1,2,4,3\n", "has 2 columns 'input', and which of them is the in"),
        (MOONCAKE + '{"timestamp": ' + "9" * 5000 + "}\n", "no JSON .a number with thousands"),
        (PLAIN + "nan,2,3\n", "line 2: ts is 'nan', which is no finite time"),
        (PLAIN + "inf,2,3\n", "line 2: ts is 'inf', which is no finite time"),
        (PLAIN + "soon,2,3\n", "line 2: ts is 'soon', which is no time"),
        (PLAIN + "1700000000000,2,3\n", "cannot be seconds; say its unit"),
        (PLAIN + "0,2,3\n9e9,2,3\n", "line 3: it arrives 104,167 days after the first"),
        (PLAIN.encode() + b"1,2,3\n2,\xe9\xe8,3\n", "line 3: input is not UTF-8 text"),
        (PLAIN + '1,2,3\n2,"3,4\n', "line 3: it has 2 columns"),
        (AZURE.replace("18:18:04.0319600", "yesterday"), "line 4: TIMESTAMP is .* no date and"),
        (AZURE.replace("18:18:04", "18:18:99"), "line 4: TIMESTAMP is .* no date and time"),
        ("{}\n", "no column of arrival"),
        (MOONCAKE + "{\n", "line 3: it is no JSON"),
        (MOONCAKE + "[" * 100_000 + "\n", "line 3: it is no JSON"),
        (MOONCAKE + "3\n", "line 3: it is 3, not an object"),
        (MOONCAKE.replace("[0, 1, 3]", "7"), "line 2: hash_ids holds no list of whole"),
        (MOONCAKE.replace("[0, 1, 3]", "[0, 1, 3, 4]"), "line 2: it has 4 block ids of 512"),
        (MOONCAKE.replace("4000", "null"), "line 2: timestamp has no value"),
        (MOONCAKE.replace("4000", "NaN"), "line 2: timestamp is nan, which is no finite time"),
        (MOONCAKE.replace("1030", "true"), "line 2: input_length is True; it must be a whole"),
        (PACKED[:-20], "the compressed data is damaged or ends early"),
        (PACKED[:12], "the compressed data is damaged or ends early"),
        (bz2.compress(b"x" * 999)[:-9], "the compressed data is damaged or ends early"),
        ('{\n"a": 1}', "is no output of vllm bench serve"),
    ],
)
def test_a_bad_trace_is_refused_by_line_and_reason(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        list(Trace(written(tmp_path, content)))
    assert "\n" not in str(caught.value)


def test_a_comma_at_the_end_of_a_row_is_no_column(tmp_path: Path) -> None:
    rows = list(Trace(written(tmp_path, PLAIN + "1,2,3\n2,4,5,\n3,6,7, \n")))
    assert [row.prompt_tokens for row in rows] == [2, 4, 6]


def test_bad_rows_are_left_out_and_counted_by_reason(tmp_path: Path) -> None:
    text = PLAIN + "0,1,1\n1,nan,1\n2,-1,1\nx,1,1\n3,1,0\n4,9\n5,2,2\n6,x,1\n"
    trace = Trace(written(tmp_path, text), TraceOptions(skip_bad=True))
    for _ in range(2):  # each reading counts anew
        assert lengths_and_times(trace) == [(0, 1, 1), (5, 2, 2)]
        assert trace.bad.counts == {
            **{"number": 2, "length": 1, "time": 1},
            **{"no_output": 1, "missing": 1},
        }
        assert trace.bad.first_lines["number"] == 3
    (tmp_path / "none").write_text(PLAIN + "x,1,1\n")
    with pytest.raises(WorkloadError, match="all of its 1 rows were left out as bad"):
        list(Trace(tmp_path / "none", TraceOptions(skip_bad=True)))


def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number % 97 + 1},5\n" for number in range(20_000))
    whole = gzip.compress((PLAIN + rows).encode())
    trace = Trace(written(tmp_path, whole[: len(whole) // 2]), TraceOptions(skip_bad=True))
    found = list(trace)
    assert 1000 < len(found) < 20_000
    assert trace.bad.counts["cut"] == 1


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_read_like_plain_ones(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    plain = list(Trace(written(tmp_path, AZURE)))
    assert list(Trace(written(tmp_path, pack(AZURE.encode())))) == plain


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python reads zstd")
def test_zstd_is_said_to_need_a_later_python(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"from 3\.14 on .*zstd -d"):
        Trace(written(tmp_path, b"\x28\xb5\x2f\xfd" + b"0" * 20))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_encodings_and_line_ends_read_alike(tmp_path: Path, encoding: str) -> None:
    plain = lengths_and_times(Trace(written(tmp_path, AZURE)))
    other = AZURE.replace("\r\n", "\n").encode(encoding)
    assert lengths_and_times(Trace(written(tmp_path, other))) == plain


def test_disorder_within_the_window_is_put_right(tmp_path: Path) -> None:
    text = PLAIN + "3,3,1\n1,1,1\n2,2,1\n5,5,1\n4,4,1\n"
    trace = Trace(written(tmp_path, text), TraceOptions(window=3))
    found = list(trace)
    assert [one.prompt_tokens for one in found] == [1, 2, 3, 4, 5]
    assert [one.id for one in found] == [0, 1, 2, 3, 4]
    assert found[0].arrival_seconds == 0
    assert trace.order.moved == 3


def test_disorder_beyond_the_window_is_told(tmp_path: Path) -> None:
    text = PLAIN + "".join(f"{time},1,1\n" for time in (1, 2, 3, 4, 5, 6, 7, 8, 0))
    with pytest.raises(WorkloadError, match=r"line 10: it arrives \d s before a row more"):
        list(Trace(written(tmp_path, text), TraceOptions(window=2)))


def test_a_format_that_is_said_must_be_the_file_s(tmp_path: Path) -> None:
    file = written(tmp_path, PLAIN + "1,2,3\n")
    assert len(list(Trace(file, TraceOptions(format="csv")))) == 1
    for said, message in (
        ("azure", "has no column 'ContextTokens'"),
        ("mooncake", "which is JSON, but begins with 'ts,input,output'"),
        ("excel", "the format is 'excel'; it may be azure"),
    ):
        with pytest.raises(WorkloadError, match=message):
            Trace(file, TraceOptions(format=said))
    file = written(tmp_path, MOONCAKE)
    with pytest.raises(WorkloadError, match="which is CSV, but begins with"):
        Trace(file, TraceOptions(format="csv"))
    with pytest.raises(WorkloadError, match="has no timestamp"):
        Trace(
            written(tmp_path, '{"input_length":1,"output_length":1}'),
            TraceOptions(format="mooncake"),
        )


def test_a_pipe_is_read_once() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, (PLAIN + "1,2,3\n").encode())
    os.close(write_end)
    try:
        trace = Trace(f"/dev/fd/{read_end}")
        assert lengths_and_times(trace) == [(0, 2, 3)]
        with pytest.raises(WorkloadError, match="is a pipe, which can be read once"):
            list(trace)
    finally:
        os.close(read_end)


def test_a_list_of_objects_is_said_to_be_none(tmp_path: Path) -> None:
    file = written(tmp_path, '[{"timestamp":1,"input_length":2,"output_length":3}]')
    with pytest.raises(WorkloadError, match="no trace with one object a line"):
        list(Trace(file))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "no", "No such file")):
        with pytest.raises(WorkloadError, match=message):
            Trace(path)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WorkloadError, match="pip install 'tokenroom"):
        list(Trace(written(tmp_path, b"PAR1....")))


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"ts": [5, 6, None], "input": [1, 2, 3], "output": [4.0, 5.0, 6.0]})
    parquet.write_table(table, tmp_path / "trace.parquet")
    with pytest.raises(WorkloadError, match="line 3: ts has no value"):
        list(Trace(tmp_path / "trace.parquet"))
    trace = Trace(tmp_path / "trace.parquet", TraceOptions(skip_bad=True))
    assert lengths_and_times(trace) == [(0, 1, 4), (1, 2, 5)]
    assert trace.progress[0] == trace.progress[1]
    with pytest.raises(WorkloadError, match="no readable Parquet file"):
        list(Trace(written(tmp_path, b"PAR1....")))


def test_lengths_need_no_times(tmp_path: Path) -> None:
    trace = Trace(written(tmp_path, "num_prefill_tokens,num_decode_tokens\n3,4\n5,6\n"))
    assert list(trace.lengths()) == [(3, 4), (5, 6)]


rows = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1
)


@without_deadline
@given(rows, st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: list[tuple[int, int, int]], end: str
) -> None:
    lines = ["ts,input,output", *(f"{time / 1000},{prompt},{out}" for time, prompt, out in data)]
    file = written(tmp_path_factory.mktemp("trace"), end.join(lines))
    found = list(Trace(file))
    first = min(time for time, _, _ in data)
    expected = sorted(data, key=lambda row: row[0])
    assert [(one.prompt_tokens, one.output_tokens) for one in found] == [
        (prompt, output) for _, prompt, output in expected
    ]
    assert [one.arrival_seconds for one in found] == pytest.approx(
        [(time - first) / 1000 for time, _, _ in expected], abs=1e-9
    )


@without_deadline
@given(st.binary(max_size=400))
def test_no_content_ends_in_anything_but_requests_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = written(tmp_path_factory.mktemp("trace"), content)
    with suppress(WorkloadError):  # any other error is a fault
        list(Trace(file, TraceOptions(skip_bad=True)))
