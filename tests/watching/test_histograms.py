import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.watching.exposition import read_exposition
from tokenroom.watching.histograms import Histogram, added, latency, read_histogram

BOUNDS = (0.1, 0.2, 0.4, math.inf)


def of(*counts: float, total: float = 0.0) -> Histogram:
    return Histogram(bounds=BOUNDS, counts=counts, total_seconds=total)


def test_quantiles_are_interpolated_within_their_bucket() -> None:
    histogram = of(0, 10, 20, 20)
    assert histogram.quantile(0.25) == (pytest.approx(0.15), False)
    assert histogram.quantile(0.5) == (pytest.approx(0.2), False)
    assert histogram.quantile(0.75) == (pytest.approx(0.3), False)
    assert of(10, 10, 10, 10).quantile(0.5) == (pytest.approx(0.05), False)


def test_beyond_the_last_bound_only_that_much_is_known() -> None:
    assert of(0, 0, 5, 10).quantile(0.99) == (0.4, True)
    found = latency(of(0, 0, 5, 10, total=9.0))
    assert found is not None
    assert found.beyond
    assert found.p99_seconds == 0.4
    assert found.mean_seconds == pytest.approx(0.9)


def test_what_came_between_two_scrapes() -> None:
    step = of(3, 7, 9, 10, total=2.5).since(of(3, 3, 4, 4, total=1.0))
    assert step.counts == (0, 4, 5, 6)
    assert step.total_seconds == pytest.approx(1.5)


@pytest.mark.parametrize(
    "after",
    [
        of(1, 1, 1, 1, total=0.1),  # began anew
        of(2, 9, 9, 9, total=5.0),  # counts more by now, but one bucket fell
        Histogram(bounds=(0.1, math.inf), counts=(9, 9), total_seconds=3.0),  # other buckets
    ],
)
def test_a_server_that_began_anew_counts_from_nothing(after: Histogram) -> None:
    assert after.since(of(3, 3, 4, 4, total=1.0)) is after


def test_steps_of_other_buckets_are_left_out() -> None:
    other = Histogram(bounds=(0.1, math.inf), counts=(5, 5), total_seconds=1.0)
    assert added([other, of(1, 2, 2, 2), of(1, 1, 1, 1)]) == of(2, 3, 3, 3)
    assert added([]) is None


def test_nothing_measured_has_no_latency() -> None:
    assert latency(of(0, 0, 0, 0)) is None
    assert latency(None) is None


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.sampled_from([0.1, 0.5, 0.9, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = of(*(sum(value <= bound for value in values) for bound in BOUNDS))
    found, beyond = histogram.quantile(share)
    true = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    index = next(i for i, bound in enumerate(BOUNDS) if true <= bound)
    if beyond:
        assert index == len(BOUNDS) - 1
    else:
        low = 0.0 if index == 0 else BOUNDS[index - 1]
        assert low - 1e-9 <= found <= BOUNDS[index] + 1e-9


def test_deltas_add_up_to_the_whole() -> None:
    draw = random.Random(0)
    scrapes = [of(0, 0, 0, 0)]
    for _ in range(50):
        values = [draw.expovariate(5) for _ in range(draw.randint(0, 9))]
        last = scrapes[-1]
        counts = [
            count + sum(value <= bound for value in values)
            for bound, count in zip(BOUNDS, last.counts, strict=True)
        ]
        scrapes.append(of(*counts, total=last.total_seconds + sum(values)))
    steps = [after.since(before) for before, after in pairwise(scrapes)]
    whole = added(steps)
    assert whole is not None
    assert whole.counts == scrapes[-1].counts
    assert whole.total_seconds == pytest.approx(scrapes[-1].total_seconds)


def test_series_that_the_labels_leave_open_are_summed() -> None:
    page = read_exposition(
        "\n".join(
            f'h_{part}{{model="{model}",stream="{stream}"{le}}} {value}'
            for model in "ab"
            for stream in "xy"
            for part, le, value in (
                ("bucket", ',le="0.1"', 1),
                ("bucket", ',le="+Inf"', 3),
                ("count", "", 3),
                ("sum", "", 0.5),
            )
        )
        + "\n"
    )
    found = read_histogram(page, ["none", "h"], {"model": "a"})
    assert found == Histogram(bounds=(0.1, math.inf), counts=(2, 6), total_seconds=1.0)
    assert read_histogram(page, ["h"], {"model": "c"}) is None


def test_buckets_that_fall_are_no_histogram() -> None:
    page = read_exposition('h_bucket{le="0.1"} 5\nh_bucket{le="+Inf"} 3\nh_count 3\nh_sum 1\n')
    assert read_histogram(page, ["h"], {}) is None
