"""Rows predicted, compared and summed up."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tokenroom.errors import TokenroomError
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.validation.comparison import Comparison
from tokenroom.validation.explanations import (
    Explanations,
    completed,
    known_explanations,
    known_facts,
    known_versions,
)
from tokenroom.validation.figures import figure
from tokenroom.validation.models import find_model, without_layout
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row, read_row
from tokenroom.validation.statistics import by_class, by_quantity, percentile
from tokenroom.validation.validate import Validation, unique_rows, validate

NONE = Explanations(explained={}, repeats={})
ROW = {
    "id": "h100-qwen3-8b",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model": "Qwen/Qwen3-8B",
    "gpu": "H100 80GB",
    "gpus": 1,
    "flags": {"max_model_len": 8192, "gpu_memory_utilization": 0.95},
    "reported": {
        "weights_gib": 15.27,
        "kv_gib": 57.5,
        "kv_tokens": 418688,
        "max_concurrency": 51.11,
        "max_concurrency_len": 8192,
    },
    "outcome": "ok",
    "grade": "A",
}


def known_only(name: str) -> ModelSpec:
    """A model of the catalogue; nothing is looked up on the network."""
    from tokenroom.models import catalogue

    return catalogue.find(name) if catalogue.candidates(name) else load_model(Path(name))


def rows(*changes: dict[str, object]) -> tuple[Row, ...]:
    return tuple(read_row(ROW | change, "") for change in changes)


def found(*changes: dict[str, object], explanations: Explanations = NONE) -> Validation:
    predictor = Predictor(load=known_only)
    return validate(rows(*changes), predictor=predictor, explanations=explanations)


def test_every_figure_of_a_row_is_compared() -> None:
    errors = {item.quantity: item.error_pct for item in found({}).comparisons}
    assert set(errors) == {
        *("weights_gib", "kv_gib", "kv_tokens", "max_concurrency", "kv_tokens_from_kv_gib")
    }
    assert all(error is not None and abs(error) < 0.1 for error in errors.values())


def test_tokens_from_the_printed_memory_allow_for_its_rounding() -> None:
    reported = {"kv_gib": 57.5, "kv_tokens": 418688}
    (exact,) = (
        item
        for item in found({"reported": reported}).comparisons
        if item.quantity == "kv_tokens_from_kv_gib"
    )
    assert exact.error_pct == 0
    wrong = {"kv_gib": 57.5, "kv_tokens": 400000}
    (off,) = (
        item
        for item in found({"reported": wrong}).comparisons
        if item.quantity == "kv_tokens_from_kv_gib"
    )
    assert off.error_pct == pytest.approx(4.66, abs=0.05)


def test_a_rounded_figure_is_compared_to_the_precision_it_is_written_with() -> None:
    def compared(**reported: object) -> dict[str, Comparison]:
        return {item.quantity: item for item in found({"reported": reported}).comparisons}

    within = compared(kv_tokens="~0.42M", kv_gib="~58")
    assert within["kv_tokens"].error_pct == 0, "418,672 may be written so"
    assert (within["kv_tokens"].observed, within["kv_tokens"].half_digit) == (420_000, 5000)
    assert within["kv_tokens_from_kv_gib"].error_pct == 0
    far = compared(kv_tokens="~421k")["kv_tokens"]
    assert far.error_pct == pytest.approx((418_672 - 420_500) / 421_000 * 100, abs=0.01)


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("≈ 1.2M", 1_150_000, 1_250_000),
        ("~55k", 54_500, 55_500),
        ("~50", 49.5, 50.5),
        ("about 9.25", 9.245, 9.255),
        ("~1,200", 1199.5, 1200.5),
        (57.5, 57.5, 57.5),
    ],
)
def test_what_a_written_figure_stands_for(written: object, low: float, high: float) -> None:
    read = figure(written)
    assert read is not None
    assert (read.low, read.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("value", ["55k", "lots", True, None, [1], float("inf"), "~1e9", "~" * 99])
def test_what_is_no_figure(value: object) -> None:
    assert figure(value) is None


def test_facts_of_a_thread_complete_its_row_and_no_other() -> None:
    url = "https://github.com/noonghunna/club-3090/issues/652"
    row = read_row(ROW | {"id": "club3090-652", "url": url, "outcome": None}, "")
    whole = completed(row)
    assert whole.flags == {**row.flags, "enable_prefix_caching": True}
    assert completed(replace(row, url="https://example.org")).flags == row.flags
    assert completed(replace(row, flags={"enable_prefix_caching": False})).flags == {
        "enable_prefix_caching": False
    }, "what the row states counts"
    run = validate([row], predictor=Predictor(load=known_only), explanations=NONE)
    assert [remark.key for remark in run.remarks] == ["facts"]


def test_facts_name_their_thread_and_source() -> None:
    for row_id, facts in known_facts().items():
        assert facts["url"].startswith("https://"), row_id
        assert facts["source"], row_id
        assert facts.keys() <= {
            *("url", "source", "flags", "engine_version"),
            "outcome",
            "reported",
        }


def test_where_ranks_differ_the_smallest_decides() -> None:
    reported = {"kv_gib": 58.0, "kv_gib_other_ranks": [57.5], "kv_tokens": 418688}
    items = {item.quantity: item for item in found({"reported": reported}).comparisons}
    assert items["kv_tokens_from_kv_gib"].error_pct == 0


def test_a_figure_that_is_not_above_zero_has_no_error() -> None:
    (item,) = found({"reported": {"kv_gib": -2.14}}).comparisons
    assert item.error_pct is None
    assert by_class([item]) == ()


def test_a_start_is_foreseen_and_so_is_a_failure() -> None:
    failing = {
        "id": "big",
        "model": "meta-llama/Llama-3.1-70B",
        "reported": {"kv_gib": -60.0},
        "outcome": "fails",
    }
    starts, fails = found({}, failing).outcomes
    assert (starts.observed, starts.verdict, starts.agrees) == ("ok", "fits", True)
    assert (fails.observed, fails.cause, fails.agrees) == ("fails", "weights_too_big", True)


def test_a_failure_predicted_as_fitting_without_warning_disagrees() -> None:
    (check,) = found({"outcome": "fails"}).outcomes
    assert not check.agrees


def test_failures_for_other_reasons_are_not_checked() -> None:
    assert found({"outcome": "fails_other"}).outcomes == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"engine": None}, "names no engine"),
        ({"engine": "other-engine"}, "engine other-engine is not known"),
        ({"model": None}, "names no model"),
        ({"model": "no-such-model"}, "no file or folder 'no-such-model'"),
        ({"gpu": None}, "names no GPU"),
        ({"gpu": "RTX 5090 + RTX 3090"}, "of different kinds"),
        ({"gpu": "no-such-gpu"}, "no-such-gpu"),
        ({"flags": {"no_such_flag": 1}}, "no flag --no-such-flag"),
        ({"engine_version": "TT plugin"}, "not the engine as released"),
        ({"gpus": 1, "flags": {"tensor_parallel_size": 2}}, "needs 2 GPUs"),
    ],
)
def test_a_row_without_prediction_says_why(change: dict[str, object], said: str) -> None:
    (item,) = found(change).unpredicted
    assert said in item.reason


def test_a_row_of_speed_says_what_its_prediction_lacks() -> None:
    data = {**ROW, "metric": "tpot_ms", "value": 12.0, "outcome": None}
    del data["reported"]
    run = validate((read_row(data, ""),), predictor=Predictor(load=known_only), explanations=NONE)
    (item,) = run.unpredicted
    assert item.reason == "the row states no lengths of prompt and answer (isl, osl)"


def test_a_gpu_that_is_not_named_is_told_by_its_memory() -> None:
    change = {"gpu": None, "reported": {**ROW["reported"], "total_gpu_gib": 79.19}}
    run = found(change)
    assert run.unpredicted == ()
    assert run.comparisons[0].error_pct == pytest.approx(0, abs=0.1)


def test_rows_that_are_no_truth_are_left_out() -> None:
    run = found({"score": False}, {"grade": "D"})
    assert [item.reason.split(":")[0] for item in run.left_out] == ["score is false", "grade D"]
    assert run.comparisons == ()


def test_grade_c_is_tried_and_counted_apart() -> None:
    run = found({}, {"id": "c", "grade": "C"})
    assert {group.grade for group in run.groups} == {"A", "C"}
    assert all(group.n == 1 for group in run.quantities)


def test_one_configuration_counts_once() -> None:
    repeats = Explanations(explained={}, repeats={"a": "a", "b": "a"})
    run = found({"id": "a"}, {"id": "b"}, {"id": "c", "duplicate_of": "a"}, explanations=repeats)
    assert len(run.comparisons) == 15
    assert all(group.n == 1 for group in run.quantities)


def test_a_recorded_cause_is_given_with_the_figure() -> None:
    known = Explanations(explained={ROW["id"]: {"kv_gib": "why"}}, repeats={})
    causes = {
        item.quantity: item.explained_by for item in found({}, explanations=known).comparisons
    }
    assert causes["kv_gib"] == "why"
    assert causes["weights_gib"] is None


def test_a_copy_in_another_layout_is_compared_by_its_cache_alone() -> None:
    change = {"model": "someone/Qwen3-8B-AWQ-4bit", "flags": {"quantization": "awq int4"}}
    run = found(change)
    assert [item.quantity for item in run.comparisons] == ["kv_tokens_from_kv_gib"]
    assert run.comparisons[0].error_pct == 0
    assert run.outcomes == ()
    assert "not known here" in run.partly[0].reason


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("qwen3.6-27b-autoround-int4", "qwen3.6-27b"),
        ("Qwen2.5-32B-Instruct Q4_K_M", "Qwen2.5-32B-Instruct"),
        ("Qwen3-30B-A3B-Thinking-2507 UD-Q8_K_XL", "Qwen3-30B-A3B-Thinking-2507"),
        ("QwQ-32B-unsloth-bnb-4bit", "QwQ-32B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("awq", "awq"),
    ],
)
def test_the_words_of_a_layout_are_told_from_the_name(name: str, base: str) -> None:
    assert without_layout(name)[0] == base


def test_a_gguf_mix_is_computed() -> None:
    model = find_model("Qwen2.5-32B-Instruct Q4_K_M", "llama.cpp", known_only)
    assert model.weights_known
    with pytest.raises(TokenroomError):
        find_model("no-such-model Q4_K_M", "llama.cpp", known_only)


def test_an_interruption_keeps_what_is_done() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    run = validate(
        rows({}, {"id": "second"}),
        predictor=Predictor(load=known_only),
        explanations=NONE,
        on_row=stop,
    )
    assert run.interrupted
    assert run.num_rows == 1
    assert {item.id for item in run.comparisons} == {ROW["id"]}


def test_a_row_given_twice_is_taken_once() -> None:
    assert len(unique_rows(rows({}, {}, {"id": "other"}))) == 2


def comparison(error: float, **change: object) -> Comparison:
    fields = {
        "id": "r",
        "engine": "vllm",
        "engine_version": "0.19.0",
        "quantity": "kv_gib",
        "architecture_class": "dense",
        "grade": "A",
        "predicted": 100 + error,
        "observed": 100.0,
    }
    return Comparison(**{**fields, **change})  # type: ignore[arg-type]


def test_groups_sum_errors_up() -> None:
    (group,) = by_quantity([comparison(error) for error in (-10, 1, 2, 3)])
    assert group.n == 4
    assert group.median_abs_pct == pytest.approx(2.5)
    assert group.p90_abs_pct == pytest.approx(7.9)
    assert group.worst_abs_pct == pytest.approx(10)
    assert group.bias_pct == pytest.approx(-1)


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2), (0.9, 2.8), (1, 3)])
def test_percentiles_lie_between_neighbours(share: float, value: float) -> None:
    assert percentile([1, 2, 3], share) == pytest.approx(value)


def test_published_notes_name_rows_once() -> None:
    known = known_explanations()
    assert known.repeats
    for causes in known.explained.values():
        assert all(cause.strip() for cause in causes.values())
    assert all(version for version in known_versions().values())


@pytest.mark.shared
def test_published_rows_are_predicted_as_well_as_documented(shared: Path) -> None:
    read = list(read_rows(shared / "truth" / "engine_memory.jsonl"))
    assert not [item for item in read if isinstance(item, BadRow)]
    vllm = [item for item in read if isinstance(item, Row) and item.engine == "vllm"]
    run = validate(vllm, predictor=Predictor(load=known_only))
    groups = {group.quantity: group for group in run.quantities}
    assert groups["weights_gib"].median_abs_pct < 1
    assert groups["kv_tokens"].median_abs_pct < 5
    assert groups["kv_tokens"].p90_abs_pct < 12
    assert groups["kv_tokens_from_kv_gib"].median_abs_pct < 0.1
    beyond = {
        item.id
        for item in run.comparisons
        if item.quantity == "kv_tokens_from_kv_gib" and abs(item.error_pct or 0) > 0.1
    }
    assert beyond == {"vllm-21348", "vllm-43308-v021"}, "the rank and the arguments are not known"
    assert all(item.agrees for item in run.outcomes)
    assert len(run.comparisons) > 700
    assert json.dumps([item.reason for item in run.unpredicted])


def test_a_configuration_is_that_of_the_row_s_day() -> None:
    """16 key and value heads in July 2024: 79392 tokens (vLLM issue 6746)."""
    change = {
        "id": "vllm-6746",
        "engine_version": None,
        "model": "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8",
        "gpu": "H100",
        "gpus": 8,
        "flags": {"max_model_len": 131072},
        "reported": {"weights_gib": 57.752, "kv_tokens": 79392},
        "outcome": "fails",
    }
    then, now = found(change), found(change | {"id": "another", "engine_version": "0.5.3"})
    assert {item.quantity: abs(item.error_pct) < 5 for item in then.comparisons} == {
        "weights_gib": True,
        "kv_tokens": True,
    }
    assert then.outcomes[0].agrees
    assert not now.outcomes[0].agrees


def test_small_sizes_are_told_by_their_difference_and_left_out_of_sums() -> None:
    from tokenroom.reports.validation_text import error_text

    small = next(
        item
        for item in found({"reported": {"kv_gib": 0.04, "kv_tokens": 418688}}).comparisons
        if item.quantity == "kv_gib"
    )
    assert error_text(small) == f"{small.predicted - 0.04:+.2f} GiB"
    assert by_quantity([small]) == ()
