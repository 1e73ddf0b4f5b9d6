import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.errors import WorkloadError
from tokenroom.serving.distribution import distribution
from tokenroom.serving.metrics import LatencyLimits, MetricsCollector
from tokenroom.serving.record import Refusal, RequestRecord, StepRecord


def record(id: int = 0, **changes: object) -> RequestRecord:
    usual = {
        "session": None,
        "arrival_seconds": 1.0,
        "scheduled_seconds": 1.5,
        "first_token_seconds": 2.0,
        "finish_seconds": 6.0,
        "prompt_tokens": 100,
        "output_tokens": 5,
        "cached_tokens": 40,
        "preemptions": 0,
    }
    return RequestRecord(id=id, **(usual | changes))  # type: ignore[arg-type]


def step(start: float, end: float, running: int = 1, **changes: object) -> StepRecord:
    usual = {"tokens": 8, "sequences": 1, "waiting": 0, "used_blocks": 4, "preempted": 0}
    return StepRecord(
        start_seconds=start,
        end_seconds=end,
        running=running,
        gaps=[],
        **(usual | changes),  # type: ignore[arg-type]
    )


@settings(deadline=None)  # the first example loads numpy
@given(
    st.lists(
        st.tuples(st.floats(0, 1e3), st.integers(1, 4)),
        min_size=1,
        max_size=60,
    )
)
def test_percentiles_are_those_of_numpy(values: list[tuple[float, int]]) -> None:
    numpy = pytest.importorskip("numpy")
    flat = [seconds for seconds, times in values for _ in range(times)]
    found = distribution(values)
    assert found.count == len(flat)
    assert found.mean_seconds == pytest.approx(numpy.mean(flat))
    for share in (50, 90, 95, 99):
        assert getattr(found, f"p{share}_seconds") == pytest.approx(numpy.percentile(flat, share))
    assert found.max_seconds == max(flat)


def test_of_nothing_no_time_is_claimed() -> None:
    result = MetricsCollector().result()
    assert result.ttft.p99_seconds is None
    assert (result.requests_per_second, result.hit_rate, result.goodput_share) == (0.0, 0.0, None)


def test_goodput_counts_who_got_all_that_was_promised() -> None:
    collector = MetricsCollector(LatencyLimits(ttft_seconds=1.0, tpot_seconds=1.0))
    collector.request(record(0))
    collector.request(record(1, first_token_seconds=2.5))  # late at first, fast then
    collector.request(record(2, finish_seconds=6.5))  # slow then
    collector.request(record(3, output_tokens=1, finish_seconds=2.0))  # nothing between tokens
    collector.request(record(4, refused=Refusal.TOO_LONG))
    result = collector.result()
    assert result.within_limits == 2
    assert result.goodput_share == 2 / 5
    assert result.goodput_per_second == 2 / 5.5
    assert (result.requests, result.refused, result.tpot.count) == (4, 1, 3)
    assert result.hit_rate == 0.4
    assert result.queue.max_seconds == 0.5


@pytest.mark.parametrize("name", ["ttft_seconds", "tpot_seconds", "e2e_seconds"])
def test_a_promise_is_a_time(name: str) -> None:
    with pytest.raises(WorkloadError, match=f"{name} is 0"):
        LatencyLimits(**{name: 0})


def test_means_are_over_the_time_of_steps() -> None:
    collector = MetricsCollector()
    collector.step(step(0.0, 1.0, running=2, waiting=3, used_blocks=10))
    collector.step(step(7.0, 10.0, running=6, preempted=2))
    result = collector.result()
    assert (result.mean_running, result.max_running) == (5.0, 6)
    assert (result.mean_waiting, result.max_waiting) == (0.75, 3)
    assert (result.mean_used_blocks, result.max_used_blocks) == (5.5, 10)
    assert (result.busy_seconds, result.preemptions, result.computed_tokens) == (4.0, 2, 16)


@pytest.mark.parametrize("steps", [1, 512, 513, 5000])
def test_a_long_timeline_keeps_its_sums_in_few_points(steps: int) -> None:
    collector = MetricsCollector()
    for index in range(steps):
        collector.step(step(float(index), index + 0.5, running=index % 7))
    result = collector.result()
    assert min(steps, 256) <= len(result.timeline) <= 512
    assert sum(point.tokens for point in result.timeline) == 8 * steps
    starts = [point.start_seconds for point in result.timeline]
    assert starts == sorted(starts)
    assert result.mean_running == pytest.approx(sum(index % 7 for index in range(steps)) / steps)
