"""Verdicts that lie within the range of the estimates."""

import json

import pytest

from tokenroom.borderline import borderline, longest_at_best
from tokenroom.cli.main import main
from tokenroom.fitting import FitResult, fit

TIGHT = ("llama-3.1-70b", "2x4090")
MODEL = "llama-3.1-8b-instruct"


def at_end_of_range(result: FitResult) -> tuple[int, int]:
    """What the pool would have at the ends of the range, in bytes."""
    stage = result.governing_stage
    worse, better = stage.estimate_errors
    return stage.available_bytes - worse, stage.available_bytes + better


def test_what_does_not_start_may_where_the_range_holds_one_request() -> None:
    short = fit(*TIGHT, weights="awq", context=4096)
    assert short.verdict == "does_not_fit"
    assert short.plan.kv_bytes_of(4096) <= at_end_of_range(short)[1]
    end = borderline(short)
    assert end is not None
    assert end.verdict == "fits"
    assert 4096 <= end.kv_pool_tokens <= 6500
    long = fit(*TIGHT, weights="awq", context=8192)
    assert long.plan.kv_bytes_of(8192) > at_end_of_range(long)[1]
    assert borderline(long) is None
    best = longest_at_best(long)
    assert best is not None
    assert long.plan.kv_bytes_of(best - 16) <= at_end_of_range(long)[1]
    assert long.plan.kv_bytes_of(best + 16) > at_end_of_range(long)[1]


def test_what_no_estimate_decides_is_sure() -> None:
    assert borderline(fit("llama-3.1-70b", "h100", context=1024)) is None  # weights are exact
    assert borderline(fit(MODEL, "h100", context=4096)) is None
    exact = fit(MODEL, "h100", context=4096, kv_cache_memory_bytes=2**30, concurrency=2)
    assert borderline(exact) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_count_near_what_the_pool_holds_may_be_more_or_less(engine: str) -> None:
    settings = {"max_num_seqs": 1024} if engine == "vllm" else {}
    held = fit(MODEL, "l40s", engine=engine, context=2048, **settings).requests_running
    enough = fit(MODEL, "l40s", engine=engine, context=2048, concurrency=held, **settings)
    more = fit(MODEL, "l40s", engine=engine, context=2048, concurrency=held + 1, **settings)
    assert (enough.verdict, more.verdict) == ("fits", "fits_with_less")
    for result, other in ((enough, "fits_with_less"), (more, "fits")):
        end = borderline(result)
        if held == result.plan.max_num_seqs and other == "fits":  # no pool helps
            assert end is None
        else:
            assert end is not None, engine
            assert end.verdict == other
    assert borderline(fit(MODEL, "l40s", engine=engine, context=2048, concurrency=2)) is None


def test_what_starts_may_not_at_the_cautious_end() -> None:
    longest = fit(MODEL, "4090", context="1k").max_model_len_that_fits
    result = fit(MODEL, "4090", context=longest)
    assert result.verdict == "fits"
    end = borderline(result)
    assert end is not None
    assert end.verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("arguments", "english", "chinese"),
    [
        (["--context", "4k"], "it may start, with up to about 5,", "也可能启动"),
        (["--context", "32"], "it may not start", "也可能无法启动"),
    ],
)
def test_reports_say_so_beside_the_verdict(
    capsys: pytest.CaptureFixture[str], arguments: list[str], english: str, chinese: str
) -> None:
    asked = ["fit", TIGHT[0], "--gpu", TIGHT[1], "--weights", "awq", *arguments]
    codes = set()
    codes.add(main(asked))
    text = " ".join(capsys.readouterr().out.split())
    assert english in text
    codes.add(main([*asked, "--lang", "zh"]))
    assert chinese in "".join(capsys.readouterr().out.split())
    codes.add(main([*asked, "--json"]))
    data = json.loads(capsys.readouterr().out)
    assert data["borderline"]["verdict"] != data["verdict"]
    assert codes == {0 if data["verdict"] == "fits" else 1}


def test_nothing_that_is_missing_is_negative_or_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["fit", TIGHT[0], "--gpu", TIGHT[1], "--weights", "awq"])
    text = " ".join(capsys.readouterr().out.split())
    assert "-0.00" not in text
    assert "the engine wants 0.00" not in text
    assert "MiB more a GPU" in text
    assert "32 tokens; within the range of the estimates up to about 5,900" in text
