"""Rows of measured speeds: read, predicted, compared, summed up and shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tokenroom import speed
from tokenroom.cli.main import main
from tokenroom.errors import RowError
from tokenroom.reports.messages import Language
from tokenroom.reports.validation_json import schema_text, validation_json
from tokenroom.reports.validation_markdown import markdown_lines
from tokenroom.validation.measurements import batches, measurement
from tokenroom.validation.rows import Row, read_row
from tokenroom.validation.speed_comparison import SpeedComparison
from tokenroom.validation.speed_statistics import speed_groups, speed_order
from tokenroom.validation.validate import Validation, validate

ROW: dict[str, Any] = {
    "id": "a",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "gpus": 1,
    "isl": 1024,
    "osl": 256,
    "concurrency": 32,
    "reported": {"ttft_ms": 150.0, "tpot_ms": 9.0},
}
SAMPLE: dict[str, Any] = {
    "id": "s1",
    "source": "github:ai-dynamo/aiconfigurator silicon_sample.csv",
    "engine": "vLLM",
    "engine_version": "0.17.0",
    "model": "Qwen/Qwen3-32B",
    "precision": "fp8",
    "gpu": "H100-SXM-80GB",
    "gpus": 2,
    "tp": 2,
    "isl": 1024,
    "osl": 1024,
    "batch_or_concurrency": 16,
    "metric": "ttft_ms",
    "value": 200.0,
    "note": "source_file=2026-03-25.csv; moe_tp=2",
}
SAMPLE_TPOT = {**SAMPLE, "id": "s2", "metric": "tpot_ms", "value": 12.0, "note": "same csv row"}


def rows(*data: dict[str, Any]) -> list[Row]:
    return [read_row(item, f"rows line {number}") for number, item in enumerate(data, start=1)]


def found_in(*data: dict[str, Any]) -> Validation:
    return validate(rows(*data))


def by_quantity(found: Validation) -> dict[str, SpeedComparison]:
    return {item.quantity: item for item in found.speeds}


def test_a_row_is_predicted_as_tokenroom_speed_answers() -> None:
    found = found_in(ROW)
    answer = speed(
        "llama-3.1-8b",
        "h100",
        engine="vllm@0.19.0",
        input_tokens=1024,
        output_tokens=256,
        concurrency=32,
    )
    items = by_quantity(found)
    assert items["ttft_ms"].predicted == pytest.approx(answer.ttft_seconds.value * 1e3)
    assert items["tpot_ms"].low == pytest.approx(answer.tpot_seconds.low * 1e3)
    per_gpu = items["output_tokens_per_s_per_gpu"]
    assert per_gpu.derived
    assert per_gpu.predicted == pytest.approx(answer.output_tokens_per_second_per_gpu.value)
    assert per_gpu.observed == pytest.approx(32 * 256 / (0.150 + 255 * 0.009))
    assert items["output_tokens_per_s_per_user"].observed == pytest.approx(1000 / 9)
    assert not found.comparisons
    assert not found.unpredicted


def test_a_benchmark_of_few_requests_is_predicted_with_its_first_burst() -> None:
    steady = by_quantity(found_in(ROW))
    few = by_quantity(found_in({**ROW, "num_prompts": 64}))
    answer = speed("llama-3.1-8b", "h100", engine="vllm@0.19.0", concurrency=32, num_prompts=64)
    assert few["ttft_ms"].predicted == pytest.approx(answer.ttft_seconds.value * 1e3)
    assert few["ttft_ms"].predicted > steady["ttft_ms"].predicted
    assert few["tpot_ms"].predicted == steady["tpot_ms"].predicted
    with pytest.raises(RowError, match="at least a request for each client"):
        rows({**ROW, "num_prompts": 8})


def test_a_command_decides_where_it_is_given() -> None:
    command = "vllm serve llama-3.1-8b --enforce-eager --max-num-seqs 8"
    eager = by_quantity(found_in({**ROW, "command": command}))["tpot_ms"]
    plain = by_quantity(found_in(ROW))["tpot_ms"]
    assert eager.predicted != plain.predicted
    flags = by_quantity(found_in({**ROW, "flags": {"enforce_eager": True, "max_num_seqs": 8}}))
    assert flags["tpot_ms"].predicted == eager.predicted


def test_sizes_and_precision_hold_beside_flags() -> None:
    flags = {**ROW, "flags": {"max_num_seqs": 64}}
    halves = by_quantity(found_in({**flags, "gpus": 2, "tp": 2}))["tpot_ms"]
    copies = by_quantity(found_in({**flags, "gpus": 2, "tp": 1, "dp": 2}))["tpot_ms"]
    assert halves.gpus == copies.gpus == 2
    assert halves.predicted < copies.predicted
    small = by_quantity(found_in({**flags, "precision": "int4"}))["tpot_ms"]
    assert small.predicted < by_quantity(found_in(flags))["tpot_ms"].predicted


def test_total_and_per_gpu_are_compared_alike() -> None:
    common = {**ROW, "gpus": 2, "tp": 2}
    total = {**common, "stat": "total", "reported": {"output_tokens_per_s": 6000.0}}
    each = {**common, "stat": "per_gpu", "reported": {"output_tokens_per_s": 3000.0}}
    one, other = (found_in(data).speeds[0] for data in (total, each))
    assert one.quantity == "output_tokens_per_s_per_gpu"
    assert (one.observed, one.predicted) == (other.observed, other.predicted)
    unclear = found_in({**common, "reported": {"output_tokens_per_s": 3000.0}})
    assert "not said to be total or per_gpu" in unclear.unpredicted[0].reason


def test_rows_of_one_run_are_one_measurement() -> None:
    read = rows(SAMPLE, SAMPLE_TPOT, {**SAMPLE, "id": "s3", "value": 210.0}, ROW)
    groups = list(batches(read))
    assert [[row.id for row in group] for group in groups] == [["s1", "s2"], ["s3"], ["a"]]
    run = measurement(groups[0])
    assert run is not None
    assert [item.name for item in run.observed] == ["ttft_ms", "tpot_ms"]
    assert measurement(rows({"id": "m", "engine": "vllm", "reported": {"kv_tokens": 5}})) is None


def test_a_published_row_runs_as_its_source_says() -> None:
    items = by_quantity(found_in(SAMPLE, SAMPLE_TPOT))
    assert items["tpot_ms"].id == "s2"
    assert items["output_tokens_per_s_per_gpu"].gpus == 2
    elsewhere = {"source": "a benchmark of ours"}
    own = by_quantity(found_in({**SAMPLE, **elsewhere}, {**SAMPLE_TPOT, **elsewhere}))
    assert own["ttft_ms"].predicted != items["ttft_ms"].predicted


def test_what_was_fitted_or_repeats_does_not_count() -> None:
    fitted = {**SAMPLE, "note": "source_file=2026-04-06.csv"}
    twice = {**SAMPLE, "id": "s9", "note": "source_file=2026-03-25.csv"}
    found = found_in(fitted, SAMPLE_TPOT, twice, {**SAMPLE_TPOT, "id": "s10"})
    assert all(item.fitted for item in found.speeds)
    assert {item.id for item in found.speeds if item.repeats} == {"s9", "s10"}
    assert found.counted_speeds == ()


def test_llama_bench() -> None:
    bench = {
        **{"id": "p", "engine": "llama.cpp", "model": "Llama-3-8B", "precision": "Q4_K_M"},
        **{"gpu": "RTX-4090", "gpus": 1, "isl": 512, "osl": 0},
        **{"metric": "pp_tokens_per_s", "value": 7000.0},
    }
    decode = {**bench, "id": "t", "isl": 0, "osl": 128, "metric": "tg_tokens_per_s", "value": 150.0}
    found = found_in(bench, decode)
    assert [item.quantity for item in found.speeds] == ["pp_tokens_per_s", "tg_tokens_per_s"]
    for item in found.speeds:
        assert item.low <= item.predicted <= item.high
        assert 0.5 < item.ratio < 2
    assert "how they share a test" in found_in({**bench, "gpus": 2}).unpredicted[0].reason


def test_all_requests_at_once_have_a_throughput_alone() -> None:
    load = {**ROW, "concurrency": None, "request_rate": "inf"}
    found = found_in({**load, "reported": {"output_tokens_per_s": 9000.0, "ttft_ms": 900.0}})
    assert [item.quantity for item in found.speeds] == ["output_tokens_per_s_per_gpu"]
    assert "hangs on how many requests" in found.unpredicted[0].reason


def test_requests_at_a_rate_are_as_many_clients_as_send_so_many() -> None:
    load = {**ROW, "concurrency": None, "request_rate": 5.0, "stat": "total"}
    load["reported"] = {"ttft_ms": 50.0, "tpot_ms": 8.0, "output_tokens_per_s": 1280.0}
    found = found_in(load)
    items = by_quantity(found)
    assert items.keys() == {"ttft_ms", "tpot_ms", "output_tokens_per_s_per_user"}
    assert "that of the rate" in found.unpredicted[0].reason
    served = [
        speed("llama-3.1-8b", "h100", engine="vllm@0.19.0", input_tokens=1024, concurrency=clients)
        for clients in range(1, 20)
    ]
    enough = next(item for item in served if item.requests_per_second.value >= 5)
    assert items["tpot_ms"].predicted == pytest.approx(enough.tpot_seconds.value * 1e3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engine": None}, "names no engine"),
        ({"engine": "exllama"}, "the speed of engine exllama is not modelled"),
        ({"model": None}, "names no model"),
        ({"model": "no-such-model"}, "no-such-model"),
        ({"gpu": None}, "names no GPU"),
        ({"osl": None}, "no lengths of prompt and answer"),
        ({"osl": 0}, "of 0 tokens"),
        ({"concurrency": None}, "neither concurrency nor a request_rate"),
        ({"concurrency": None, "request_rate": 4000}, "at 4000 requests a second it falls behind"),
        ({"stat": "p99"}, "the p99 of ttft_ms is not predicted"),
        ({"precision": "q9"}, "precision is 'q9'"),
        ({"reported": {"ttft_ms": 0}}, "a speed is above 0"),
        ({"reported": {"pp_tokens_per_s": 5}}, "llama-bench's"),
        ({"isl": 500_000}, "max_model_len"),
        ({"model": "llama-3.1-405b"}, "does not fit"),
        ({"reported": {"tokens_per_s": 5.0}}, "no prediction is made of tokens_per_s"),
    ],
)
def test_rows_without_a_prediction_say_why(changes: dict[str, Any], reason: str) -> None:
    found = found_in({**ROW, **changes})
    assert not found.speeds
    assert found.unpredicted
    assert all(reason in item.reason for item in found.unpredicted[:1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"isl": -1}, "isl -1"),
        ({"osl": "x"}, "osl 'x'"),
        ({"concurrency": 0}, "concurrency 0"),
        ({"batch_or_concurrency": 8}, "which differ"),
        ({"request_rate": "fast"}, "request_rate 'fast'"),
        ({"stat": "best"}, "stat 'best'"),
        ({"precision": 8}, "precision 8"),
        ({"acceptance": -1}, "acceptance -1"),
        ({"tp": 1.5}, "tp 1.5"),
    ],
)
def test_fields_hold_what_they_may(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        read_row({**ROW, **changes}, "rows line 1")


def test_a_rate_may_be_infinite() -> None:
    (row,) = rows({**ROW, "request_rate": "inf"})
    assert row.load is not None
    assert row.load.request_rate == math.inf


def test_a_row_may_state_memory_and_speeds() -> None:
    both = {**ROW, "flags": {"max_model_len": 8192}}
    both["reported"] = {"kv_tokens": 445_000, "tpot_ms": 9.0}
    found = found_in(both, {**ROW, "id": "b"})
    assert [item.quantity for item in found.comparisons] == ["kv_tokens"]
    assert {item.id for item in found.speeds} == {"a", "b"}
    assert not found.unpredicted


def test_an_interruption_keeps_what_is_done() -> None:
    def stop(done: int, total: int) -> None:
        assert total == 3
        if done == 2:
            raise KeyboardInterrupt

    found = validate(rows(SAMPLE, SAMPLE_TPOT, ROW), on_row=stop)
    assert found.interrupted
    assert {item.id for item in found.speeds} == {"s1", "s2"}


def comparison(predicted: float, observed: float, **changes: Any) -> SpeedComparison:
    (item, *_) = found_in(ROW).speeds
    return replace(
        item,
        quantity="output_tokens_per_s_per_gpu",
        predicted=predicted,
        low=predicted * 0.9,
        high=predicted * 1.1,
        observed=observed,
        **changes,
    )


def test_statistics() -> None:
    items = [comparison(100, 100), comparison(100, 80), comparison(100, 200, gpu="other")]
    (group,) = speed_groups(items)
    assert (group.n, group.median_abs_pct, group.bias) == (3, pytest.approx(25), 1.0)
    assert group.p90_abs_pct == pytest.approx(45)
    assert group.inside_share == pytest.approx(1 / 3)
    assert [item.n for item in speed_groups(items, "gpu")] == [2, 1]


def test_order_is_that_of_deployments_alike_in_all_but_how_they_are_run() -> None:
    items = [comparison(1, 10), comparison(2, 20), comparison(3, 15), comparison(9, 1, gpu="x")]
    (every, own) = speed_order(items)
    assert (every.gpu, every.pairs, every.tau) == (None, 3, pytest.approx(1 / 3))
    assert own.pairs == 3
    assert speed_order(items[:1]) == ()


def test_json_keeps_its_schema() -> None:
    found = found_in(SAMPLE, SAMPLE_TPOT, ROW, {**ROW, "id": "x", "osl": None})
    data = json.loads(json.dumps(validation_json(found)))
    Draft202012Validator(json.loads(schema_text())).validate(data)
    assert len(data["speeds"]) == len(found.speeds) == 8
    assert {group["engine"] for group in data["speed_groups"]} == {None, "vllm"}


@pytest.mark.parametrize("language", list(Language))
def test_markdown_has_every_figure(language: Language) -> None:
    found = found_in(SAMPLE, SAMPLE_TPOT, ROW)
    text = "\n".join(markdown_lines(found, language))
    for item in found.speeds:
        assert f"| {item.id} |" in text
    assert "Kendall" not in text  # no two of them are alike in all but how they are run


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "id,engine,model,gpu,gpus,isl,osl,concurrency,reported.ttft_ms,reported.tpot_ms\n"
        "one,vllm,llama-3.1-8b,h100,1,1024,256,32,150,9.0\n"
        "two,vllm,llama-3.1-8b,h100,1,1024,256,64,210,11.5\n"
    )
    assert main(["validate", str(file)]) == 0
    out = capsys.readouterr().out
    assert "Measured speeds" in out
    assert "1024/256 c64" in out
    assert "Kendall's tau" in out
    assert "speeds compared: 8" in out
    assert main(["validate", str(file), "--lang", "zh"]) == 0
    assert "实测速度" in capsys.readouterr().out


def test_of_many_figures_the_farthest_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    many = [
        {**ROW, "id": f"r{count}", "concurrency": count, "reported": {"tpot_ms": 5.0 + count}}
        for count in range(1, 31)
    ]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in many))
    assert main(["validate", str(file)]) == 0
    out = capsys.readouterr().out
    assert "the 20 farthest of 60" in out
