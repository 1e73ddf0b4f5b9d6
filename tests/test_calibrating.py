"""Calibration of whole deployments: what the model itself gives with known factors is recovered."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tokenroom import fit, speed
from tokenroom.benchmarks.point import MeasuredPoint, Spread, Subject, Work
from tokenroom.benchmarks.read import BenchmarkFile, read_benchmark
from tokenroom.calibrating import Calibrated, calibrate_deployment
from tokenroom.errors import BenchmarkError, ProfileError
from tokenroom.fitting import FitResult
from tokenroom.performance.calibration import Observation, calibrate
from tokenroom.performance.factors import Factors
from tokenroom.profiles import TRANSFER, Profile, applied
from tokenroom.serving_speed import served_by, speed_of

FIXTURES = Path(__file__).parent / "fixtures/benchmarks"
NOW = datetime(2026, 8, 12, 10, tzinfo=UTC)
MODEL, GPU = "llama-3.1-8b-instruct", "h100"


def deployment(**settings: object) -> FitResult:
    return fit(MODEL, GPU, **{"context": 16384, **settings})


def calibrated(result: FitResult, *names: str) -> Calibrated:
    files = [read_benchmark(FIXTURES / name) for name in names]
    return calibrate_deployment(result, files, name="mybox", now=NOW)


def of(points: list[MeasuredPoint]) -> list[BenchmarkFile]:
    return [BenchmarkFile(name="bench.json", sha256="0" * 64, title="a tool", points=tuple(points))]


def profile_of(result: FitResult, factors: Factors) -> Profile:
    base = calibrated(result, "vllm_0.33.json").profile
    return replace(base, factors=factors, served=served_by(result))


def points_by(factors: Factors, **settings: object) -> list[MeasuredPoint]:
    """What a benchmark would read on a machine that differs from the model by these factors."""
    profile = profile_of(deployment(**settings), factors)
    found = []
    for inputs, outputs, clients in (
        (128, 256, 1), (128, 256, 64), (2048, 128, 4), (1024, 1024, 32), (4096, 64, 8),
        (512, 512, 128), (8192, 128, 2), (256, 128, 16),
    ):  # fmt: skip
        served = speed(
            MODEL,
            GPU,
            input_tokens=inputs,
            output_tokens=outputs,
            concurrency=clients,
            profile=profile,
            **{"context": 16384, **settings},
        )
        found.append(
            MeasuredPoint(
                place=f"line {len(found) + 1}",
                clients=clients,
                input_tokens=inputs,
                output_tokens=outputs,
                ttft=Spread(served.ttft_seconds.value, {}),
                tpot=Spread(served.tpot_seconds.value, {}),
            )
        )
    return found


@pytest.mark.parametrize("settings", [{}, {"tp": 2}, {"engine": "sglang"}])
def test_points_of_known_factors_are_recovered(settings: dict[str, object]) -> None:
    true = Factors(1.3, 1.15, 1.5 if settings.get("tp") else 1.0, 1.8, 2.0)
    found = calibrate_deployment(
        deployment(**settings), of(points_by(true, **settings)), name="mybox", now=NOW
    ).profile
    for name, value, wanted, spread in zip(
        Factors._fields, found.factors, true, found.spreads, strict=True
    ):
        off = abs(math.log(value / wanted))
        assert off < (0.1 if name in found.identified else spread), name
    for point in found.points:
        assert point.after == pytest.approx(point.measured, rel=0.02)
    assert {"compute", "bandwidth", "arrival"} <= set(found.identified)
    assert ("communication" in found.identified) == ("tp" in settings)


def test_a_calibrated_deployment_is_predicted_with_its_own_range() -> None:
    profile = calibrated(deployment(), "vllm_0.33.json").profile
    kwargs = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 16, "context": 16384}
    plain = speed(MODEL, GPU, **kwargs)
    better = speed(MODEL, GPU, profile=profile, **kwargs)
    measured = 0.0095
    assert abs(better.tpot_seconds.value / measured - 1) < 0.02
    assert abs(plain.tpot_seconds.value / measured - 1) > 0.1
    value, low, high = better.tpot_seconds
    assert low < measured < high
    assert value / low == pytest.approx(high / value)
    assert better.calibration is not None
    assert better.calibration.differences == ()
    assert better.at(8).calibration is better.calibration
    assert sum(line.seconds for line in better.decode.lines) == pytest.approx(
        better.decode.time.seconds
    )


@pytest.mark.parametrize(
    ("settings", "kind", "traits"),
    [
        ({"tp": 2}, "layout", {"gpus", "tensor_parallel_size"}),
        ({"weights": "fp8"}, "model", {"quantization"}),
        ({"engine": "sglang", "tp": 2}, "engine", {"engine", "engine_version", "gpus"}),
    ],
)
def test_another_deployment_takes_a_part_and_a_wider_range(
    settings: dict[str, object], kind: str, traits: set[str]
) -> None:
    profile = calibrated(deployment(), "vllm_0.33.json").profile
    other = applied(profile, served_by(deployment(**settings)))
    assert traits <= {difference.trait for difference in other.differences}
    assert other.share == TRANSFER[kind]["share"]
    for value, found in zip(other.factors, profile.factors, strict=True):
        assert value == pytest.approx(found**other.share)
    for name in ("ttft", "tpot"):
        assert other.spread[name] == max(TRANSFER[kind][name], profile.remaining[name])
    low, high = other.around(1.0, "ttft")
    assert low * high == pytest.approx(1)


def test_another_gpu_is_refused() -> None:
    profile = calibrated(deployment(), "vllm_0.33.json").profile
    with pytest.raises(ProfileError, match=r"h100-sxm-80gb and says nothing about h200"):
        applied(profile, served_by(fit(MODEL, "h200")))


def test_llama_bench_is_compared_without_a_server() -> None:
    result = fit(MODEL, "4090", engine="llama.cpp", weights="q4_0", context=8192)
    found = calibrated(result, "llama_bench.csv").profile
    assert [point.figure for point in found.points] == [
        "prompt",
        "generation",
        "generation",
        "both",
    ]
    assert all(abs(point.after / point.measured - 1) < 0.05 for point in found.points)
    assert found.factors.arrival == 1


def test_remarks_say_what_is_left_out() -> None:
    cached = calibrated(fit(MODEL, GPU, engine="sglang", tp=2), "sglang.jsonl")
    assert [remark.key for _, remark in cached.remarks] == ["cached"]
    kept = {(point.place, point.figure) for point in cached.profile.points}
    assert ("line 1", "ttft") not in kept
    assert ("line 1", "tpot") in kept
    drafted = calibrated(deployment(), "vllm_appended.json")
    assert [remark.key for _, remark in drafted.remarks] == [
        "failed",
        "first_burst",
        "speculation",
    ]
    assert {point.place for point in drafted.profile.points} == {"line 1"}


def test_contradictions_and_outliers_are_named() -> None:
    point = points_by(Factors())[1]
    assert point.tpot is not None
    assert point.tpot.mean is not None
    off = replace(point, place="line 9", tpot=Spread(2 * point.tpot.mean, {}))
    found = calibrate_deployment(deployment(), of([*points_by(Factors()), off]), name="b", now=NOW)
    assert {remark.key for _, remark in found.remarks} == {"contradiction", "outlier"}


def test_a_burst_beyond_the_room_says_nothing_about_first_tokens() -> None:
    point = replace(
        points_by(Factors())[1], clients=None, request_rate=float("inf"), completed=5000
    )
    found = calibrate_deployment(deployment(), of([point]), name="b", now=NOW)
    assert "burst" in {remark.key for _, remark in found.remarks}
    assert [item.figure for item in found.profile.points] == ["tpot"]


def test_throughput_stands_in_where_there_is_no_tpot() -> None:
    point = replace(points_by(Factors())[1], ttft=None, tpot=None, output_tokens_per_second=3000.0)
    found = calibrate_deployment(deployment(), of([point]), name="b", now=NOW).profile
    (record,) = found.points
    assert record.figure == "throughput"
    assert abs(record.after / 3000 - 1) < abs(record.before / 3000 - 1)


def test_files_of_something_else_are_refused() -> None:
    with pytest.raises(BenchmarkError, match=r"measured with llama.cpp .* of vllm"):
        calibrated(deployment(), "llama_bench.json")
    with pytest.raises(BenchmarkError, match=r"tensor_parallel_size 2 .* give --tp 2"):
        calibrated(fit(MODEL, GPU, engine="sglang"), "sglang.jsonl")
    with pytest.raises(BenchmarkError, match=r"NVIDIA H200 .* give --gpu h200"):
        calibrated(deployment(engine="tensorrt-llm"), "trtllm_bench.json")
    with pytest.raises(BenchmarkError, match=r"1,280 tokens and max_model_len .* is 1,024"):
        calibrated(deployment(context=1024), "vllm_0.33.json")
    drafted = MeasuredPoint(
        place="", input_tokens=10, output_tokens=10, clients=1, accepted_tokens=3.0
    )
    with pytest.raises(BenchmarkError, match=r"no point of bench.json can be used"):
        calibrate_deployment(deployment(), of([drafted]), name="b", now=NOW)


def test_a_point_without_a_known_load_is_left_out() -> None:
    unknown = MeasuredPoint(
        place="x", input_tokens=10, output_tokens=10, work=Work.SERVING, subject=Subject()
    )
    good = points_by(Factors())[0]
    found = calibrate_deployment(deployment(), of([unknown, good]), name="b", now=NOW)
    assert [remark.key for _, remark in found.remarks] == ["no_concurrency"]


def test_the_measured_load_is_predicted_as_the_calibration_did() -> None:
    result = deployment()
    point = replace(
        points_by(Factors(host=1.3))[1], clients=16, completed=64, request_rate=float("inf")
    )
    found = calibrate_deployment(result, of([point]), name="b", now=NOW)
    (remark,) = (remark for _, remark in found.remarks if remark.key == "first_burst")
    assert remark.values == {"sent": 64, "clients": 16}
    asked = {"input_tokens": round(point.input_tokens), "output_tokens": round(point.output_tokens)}
    same, steady = (
        speed_of(result, concurrency=16, num_prompts=sent, profile=found.profile, **asked)
        for sent in (64, None)
    )
    first = next(item for item in found.profile.points if item.figure == "ttft")
    assert same.ttft_seconds.value == pytest.approx(first.after, rel=1e-9)
    assert steady.ttft_seconds.value < 0.9 * first.after


def measured(**changes: object) -> MeasuredPoint:
    fields: dict[str, object] = {
        "place": "line 1", "clients": 4, "input_tokens": 1024, "output_tokens": 128,
        "ttft": Spread(0.05, {}), "tpot": Spread(0.008, {}),
    }  # fmt: skip
    return MeasuredPoint(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ttft": Spread(1e-6, {})}, "the peaks of the GPU allow"),
        ({"tpot": Spread(1e-6, {})}, "the peaks of the GPU allow"),
        ({"tpot": Spread(900.0, {})}, "tpot is .* times as slow"),
        ({"ttft": Spread(9e4, {})}, "ttft is .* times as slow"),
        ({"subject": Subject(engine="sglang")}, "measured with sglang"),
        ({"subject": Subject(model="Qwen/Qwen3-8B")}, "measured on Qwen/Qwen3-8B"),
    ],
)
def test_what_cannot_be_of_the_deployment_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        calibrate_deployment(deployment(), of([measured(**changes)]), name="mybox", now=NOW)


def test_a_model_that_nobody_knows_is_named() -> None:
    point = measured(subject=Subject(model="/models/our-own"))
    found = calibrate_deployment(deployment(), of([point]), name="mybox", now=NOW)
    assert [remark.key for _, remark in found.remarks if remark.key == "other_model"]
    same = measured(subject=Subject(model="/models/Llama-3.1-8B-Instruct"))
    found = calibrate_deployment(deployment(), of([same]), name="mybox", now=NOW)
    assert not [remark.key for _, remark in found.remarks if remark.key == "other_model"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"completed": 10_000}, "completed is 10,000 of num_prompts"),
        ({"duration": 1e-3}, "longer than the whole run"),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    run = json.loads((FIXTURES / "vllm_0.33.json").read_text())
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(run | changes))
    with pytest.raises(BenchmarkError, match=said):
        read_benchmark(path)


def test_where_nothing_was_learned_the_range_holds_what_was_measured() -> None:
    observation = Observation(0, "tpot", 1.0, lambda factors: 20.0)
    found = calibrate([observation])
    assert found.identified == ()
    assert found.remaining["tpot"] >= math.log(20)
