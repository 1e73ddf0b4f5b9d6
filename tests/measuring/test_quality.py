import math

import pytest

from tokenroom.errors import MeasurementError
from tokenroom.measuring.quality import Quality, Score, Window, verdict_of, windows_of


def quality(changes: dict[str, list[float]], **fields: object) -> Quality:
    """Losses of 2 nats and these changes of them, window by window; names end in their bytes."""
    windows = windows_of(10_000, 100)[: max(map(len, changes.values()))]
    scores = []
    for number, window in enumerate(windows):
        base = 2.0 + number / 10
        scores.append(score(window, "full", base, 16))
        for name, own in changes.items():
            scores.append(score(window, name, base + own[number], float(name.split("-")[1])))
    given = {"random_weights": False, "interrupted": False} | fields
    return Quality(
        model="tiny",
        device="cpu",
        dtype="float32",
        text="text",
        text_tokens=10_000,
        seed=0,
        confidence=0.95,
        scores=tuple(scores),
        windows_asked=len(windows),
        identical=True,
        unquantised=False,
        versions={},
        **given,  # type: ignore[arg-type]
    )


def score(window: Window, scheme: str, loss: float, size: float) -> Score:
    return Score(
        window=window,
        scheme=scheme,
        loss=loss,
        divergence=0.01,
        agreement=0.9,
        bytes_per_token=size,
    )


def test_windows_score_every_token_once() -> None:
    windows = windows_of(1000, 100, stride=30)
    scored = [
        token
        for window in windows
        for token in range(window.start + 100 - window.scored_tokens, window.start + 100)
    ]
    assert scored == list(range(70, 1000))
    assert {window.scored_tokens for window in windows} == {30}
    assert windows_of(100, 100)[0].scored_tokens == 50


def test_windows_are_drawn_by_the_seed() -> None:
    drawn = windows_of(10_000, 100, most=5, seed=3)
    assert drawn == windows_of(10_000, 100, most=5, seed=3)
    assert drawn != windows_of(10_000, 100, most=5, seed=4)
    assert len(drawn) == 5
    assert [window.start for window in drawn] == sorted(window.start for window in drawn)
    assert set(drawn) <= set(windows_of(10_000, 100))


@pytest.mark.parametrize(
    ("tokens", "context", "stride", "sentence"),
    [
        (99, 100, None, "the text has 99 tokens and a window of --context 100 needs as many"),
        (99, 1, None, "needs 2 tokens or more"),
        (999, 100, 100, "predicts from 1 to 99"),
    ],
)
def test_impossible_windows_are_refused(
    tokens: int, context: int, stride: int | None, sentence: str
) -> None:
    with pytest.raises(MeasurementError, match=sentence):
        windows_of(tokens, context, stride=stride)


def test_differences_are_paired() -> None:
    """Windows differ by far more than the scheme; the interval does not see that."""
    (result,) = quality({"a-8": [0.010, 0.012, 0.011, 0.009]}).results
    assert result.full_perplexity == pytest.approx(math.exp(2.15))
    assert result.change == pytest.approx(math.expm1(0.0105))
    low, high = result.change_range or (0, 0)
    assert 0.008 < low < result.change < high < 0.013
    assert result.saved_share == 0.5


def test_the_smallest_that_keeps_the_tolerance_is_named() -> None:
    found = quality(
        {
            "large-12": [0.0] * 4,
            "good-8": [0.004, 0.005, 0.006, 0.005],
            "unsure-6": [-0.05, 0.06, -0.04, 0.05],
            "bad-4": [0.2, 0.21, 0.19, 0.2],
            "none-16": [0.0] * 4,
        }
    )
    verdict = verdict_of(found, 0.01)
    assert (verdict.key, verdict.scheme) == ("keeps", "good-8")
    assert verdict_of(found, 0.005).scheme == "large-12"  # good-8's interval ends above
    assert verdict_of(found, 0.5).scheme == "bad-4"


def test_a_larger_cache_is_no_answer() -> None:
    assert verdict_of(quality({"none-16": [0.0] * 4}), 0.01).key == "none_keeps"


def test_nothing_is_concluded_from_one_window_or_random_weights() -> None:
    assert verdict_of(quality({"a-8": [0.0]}), 0.01).key == "one_window"
    assert verdict_of(quality({"a-8": [0.0] * 4}, random_weights=True), 0.01).key == "random"
