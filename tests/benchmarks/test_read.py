"""Outputs of benchmark tools as measured points; fixtures have the shape that writers give."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tokenroom.benchmarks.point import MeasuredPoint, Work
from tokenroom.benchmarks.read import TITLES, read_benchmark
from tokenroom.errors import BenchmarkError

FIXTURES = Path(__file__).parents[1] / "fixtures/benchmarks"


def points(name: str) -> tuple[MeasuredPoint, ...]:
    return read_benchmark(FIXTURES / name).points


def only(name: str) -> MeasuredPoint:
    (point,) = points(name)
    return point


def written(folder: Path, data: Any) -> Path:
    file = folder / "bench.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return file


def refusal(folder: Path, data: Any) -> str:
    with pytest.raises(BenchmarkError) as caught:
        read_benchmark(written(folder, data))
    return str(caught.value)


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def test_vllm_without_lists() -> None:
    point = only("vllm_0.33.json")
    assert (point.clients, point.concurrency, point.request_rate) == (16, 16, math.inf)
    assert (point.input_tokens, point.output_tokens) == (1024, 256)
    assert (point.completed, point.failed) == (62, 2)
    assert point.ttft is not None
    assert point.tpot is not None
    assert point.ttft.mean == pytest.approx(0.110)
    assert point.ttft.percentiles == pytest.approx({50: 0.095, 99: 0.260})
    assert point.tpot.mean == pytest.approx(0.0095)
    assert point.output_tokens_per_second == pytest.approx(1587.2)
    assert point.subject.engine == "vllm"
    assert point.subject.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert [(remark.key, remark.values) for remark in point.remarks] == [
        ("failed", {"failed": 2, "sent": 64})
    ]


def test_vllm_lists_stand_in_for_figures_that_were_not_asked_for() -> None:
    point = only("vllm_0.6_detailed.json")
    assert point.tpot is not None
    assert point.latency is not None
    assert point.tpot.mean == pytest.approx(0.015)  # the request of one token has none
    assert point.latency.mean == pytest.approx((0.08 + 0.13 + 0.06) / 3)
    assert (point.failed, point.completed) == (1, 3)
    assert point.request_rate == 2.0
    assert point.concurrency == pytest.approx(3 / 2 * 0.09)  # Little's law


def test_requests_that_succeed_without_output_are_named(tmp_path: Path) -> None:
    data = fixture("vllm_0.6_detailed.json") | {"errors": ["", "", "", ""], "completed": 4}
    (point,) = read_benchmark(written(tmp_path, data)).points
    assert [(remark.key, remark.values["empty"]) for remark in point.remarks] == [("empty", 1)]


def test_vllm_appends_runs_and_speculates() -> None:
    first, second = points("vllm_appended.json")
    assert (first.place, second.place) == ("line 1", "line 2")
    assert first.accepted_tokens is None
    assert second.accepted_tokens == 2.8


def test_sglang() -> None:
    new, old = points("sglang.jsonl")
    assert (new.clients, new.concurrency, new.request_rate) == (8, 8, math.inf)
    assert new.subject.gpus == new.subject.tensor_parallel_size == 2
    assert (new.subject.engine, new.subject.engine_version) == ("sglang", "0.5.23")
    assert new.latency is not None
    assert new.latency.mean == pytest.approx(0.98)
    assert [remark.key for remark in new.remarks] == ["cached"]
    assert (old.clients, old.concurrency, old.request_rate) == (None, 3.9, 4.0)
    assert old.subject.model is None
    assert old.failed is None


def test_genai_perf_and_aiperf_call_tpot_inter_token_latency() -> None:
    for name in ("profile_export_genai_perf.json", "genai_perf_0.0.8.json"):
        point = only(name)
        assert point.clients == 8
        assert point.subject.model == "llama-3.1-8b"
        assert point.tpot is not None
        assert point.tpot.mean == pytest.approx(0.0119)
        assert point.ttft is not None
        assert point.ttft.percentiles[99.0] == pytest.approx(0.2275)
        assert point.remarks == ()
    new = only("profile_export_aiperf.json")
    assert (new.clients, new.completed, new.failed) == (8, 97, 3)  # not the warm-up's clients
    assert (new.subject.gpu, new.subject.gpus) == ("NVIDIA H100 80GB HBM3", 2)
    old = only("aiperf_0.1.json")
    assert (old.clients, old.request_rate) == (None, 2.5)
    assert old.concurrency == pytest.approx(2.5 * 3.2)


def test_guidellm_sweep() -> None:
    alone, burst, rate = points("guidellm_0.2.json")
    assert [point.place for point in (alone, burst, rate)] == [
        f"benchmarks[{number}]" for number in range(3)
    ]
    assert (alone.clients, burst.clients, rate.clients) == (1, None, None)
    assert burst.all_at_once
    assert burst.concurrency == 50
    assert (rate.request_rate, rate.concurrency) == (3.0, 4.1)
    assert alone.tpot is not None
    assert alone.tpot.mean == pytest.approx(0.0083)
    assert alone.tpot.percentiles[99.9] == pytest.approx(0.0083 * 1.9)
    assert (burst.failed, alone.failed) == (1, 0)
    assert alone.subject.model == "meta-llama/Llama-3.1-8B-Instruct"
    new = only("guidellm_0.8.json")
    assert (new.clients, new.concurrency, new.failed) == (16, 16, 0)
    assert new.subject.model == alone.subject.model


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "sql", "md"])
def test_llama_bench_says_the_same_in_every_form(ending: str) -> None:
    prompt, output, deep, both = points(f"llama_bench.{ending}")
    assert [point.work for point in (prompt, output, deep, both)] == [
        Work.PROMPT,
        Work.GENERATION,
        Work.GENERATION,
        Work.BOTH,
    ]
    assert prompt.ttft is not None
    assert prompt.ttft.mean == pytest.approx(0.05, rel=1e-4)
    assert output.tpot is not None
    assert output.tpot.mean == pytest.approx(0.008, rel=1e-4)
    assert deep.tpot is not None
    assert deep.tpot.mean == pytest.approx(0.009, rel=1e-4)
    assert (prompt.input_tokens, output.output_tokens, deep.context_tokens) == (512, 128, 4096)
    assert both.latency is not None
    assert both.latency.mean == pytest.approx(1.08, rel=1e-4)
    if ending == "md":
        assert prompt.subject.gpu is None
    else:
        assert prompt.subject.gpu == "NVIDIA GeForce RTX 4090"
        assert (prompt.step_tokens, prompt.kv_type) == (512, "f16")
        assert prompt.subject.engine_version == "b5163"


def test_trtllm_bench() -> None:
    point = only("trtllm_bench.json")
    assert point.concurrency == 31.5
    assert (point.input_tokens, point.output_tokens) == (1000, 500)
    assert point.ttft is not None
    assert point.ttft.mean == pytest.approx(0.120)
    assert point.tpot is not None
    assert point.tpot.percentiles[90.0] == pytest.approx(0.0079)
    assert (point.subject.gpu, point.subject.gpus) == ("NVIDIA H200", 1)
    assert point.output_tokens_per_second == 4000


def test_trtllm_bench_without_streaming_has_throughput_only(tmp_path: Path) -> None:
    data = fixture("trtllm_bench.json")
    del data["streaming_metrics"]
    (point,) = read_benchmark(written(tmp_path, data)).points
    assert point.ttft is point.tpot is None
    assert point.output_tokens_per_second == 4000


def test_the_file_is_named_and_hashed(tmp_path: Path) -> None:
    found = read_benchmark(FIXTURES / "trtllm_bench.json")
    assert found.name == "trtllm_bench.json"
    other = written(tmp_path, fixture("trtllm_bench.json") | {"x": 1})
    assert len(found.sha256) == 64 != found.sha256 != read_benchmark(other).sha256
    assert found.title in TITLES


def test_refusals_name_file_place_and_field(tmp_path: Path) -> None:
    run = fixture("vllm_0.33.json")
    for changed, words in [
        ({"duration": "soon"}, ("bench.json: duration is 'soon'", "number")),
        ({"duration": 0}, ("duration is 0", "above 0")),
        ({"duration": None}, ("duration is missing",)),
        ({"mean_ttft_ms": math.nan}, ("mean_ttft_ms is nan",)),
        ({"completed": 0}, ("completed is 0", "no request succeeded")),
        ({"completed": 2.5}, ("completed is 2.5", "whole number")),
        ({"total_output_tokens": 0}, ("total_output_tokens is 0", "nothing about speed")),
    ]:
        said = refusal(tmp_path, run | changed)
        assert all(word in said for word in words), said
    both = json.dumps(run) + "\n" + json.dumps(run | {"duration": -1})
    assert "bench.json, line 2: duration is -1" in refusal(tmp_path, both)
    short = fixture("vllm_0.6_detailed.json") | {"ttfts": [0.1]}
    assert "4, 1 and 4 entries" in refusal(tmp_path, short)
    embeddings = {key: value for key, value in run.items() if key != "total_output_tokens"}
    assert "embeddings" in refusal(tmp_path, embeddings)


def test_unknown_forms_list_the_known(tmp_path: Path) -> None:
    for data in ({"a": 1}, [1, 2], "time: 3", "3"):
        said = refusal(tmp_path, data)
        assert said.startswith("bench.json")
        for title in TITLES:
            assert title in said
    assert "empty" in refusal(tmp_path, " \n")
    assert "profile_export_genai_perf.json" in refusal(tmp_path, {"experiments": []})
    assert "line 2: it is no JSON" in refusal(
        tmp_path, json.dumps(fixture("vllm_0.33.json")) + "\n{"
    )


def test_damaged_rows_of_llama_bench_are_named(tmp_path: Path) -> None:
    table = (FIXTURES / "llama_bench.md").read_text(encoding="utf-8")
    assert "line 5: test is 'xx128'" in refusal(tmp_path, table.replace("tg128 |", "xx128 |", 1))
    assert "t/s is 'fast'" in refusal(tmp_path, table.replace("125.00 ± 1.00", "fast"))
    rows = (FIXTURES / "llama_bench.csv").read_text(encoding="utf-8")
    assert "line 2: it has" in refusal(tmp_path, rows.replace('"8cf427ff",', ""))
    insert = (FIXTURES / "llama_bench.sql").read_text(encoding="utf-8")
    assert "INSERT names" in refusal(tmp_path, insert.replace("'8cf427ff', ", "", 1))
    assert "no test" in refusal(tmp_path, rows.splitlines()[0])


def test_guidellm_refusals_name_the_benchmark(tmp_path: Path) -> None:
    report = fixture("guidellm_0.8.json")
    report["benchmarks"][0]["metrics"]["output_token_count"]["successful"]["mean"] = 0
    assert "benchmarks[0]: output_token_count" in refusal(tmp_path, report)
    assert "empty list" in refusal(tmp_path, {"benchmarks": []})


def test_units_of_aiperf_are_read(tmp_path: Path) -> None:
    data = fixture("profile_export_aiperf.json")
    data["time_to_first_token"] = {"unit": "us", "avg": 150_000.0}
    (point,) = read_benchmark(written(tmp_path, data)).points
    assert point.ttft is not None
    assert point.ttft.mean == pytest.approx(0.15)
    data["time_to_first_token"]["unit"] = "moons"
    assert "unit is 'moons'" in refusal(tmp_path, data)
