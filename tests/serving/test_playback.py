"""A run as a moving picture: whole where it is short, bounded where it is long."""

from __future__ import annotations

from itertools import pairwise

from tokenroom.serving.arrivals import OpenLoop
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.playback import Playback, PlaybackRecorder
from tokenroom.serving.record import RequestRecord, StepRecord
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.simulator import simulate


def step(start: float, end: float, used_blocks: int = 1) -> StepRecord:
    return StepRecord(start, end, 1, 1, 1, 0, used_blocks, 0, [])


def record(number: int, at: float) -> RequestRecord:
    return RequestRecord(
        id=number,
        session=None,
        arrival_seconds=at,
        scheduled_seconds=at,
        first_token_seconds=at + 0.5,
        finish_seconds=at + 1.5,
        prompt_tokens=8,
        output_tokens=11,
        cached_tokens=0,
        preemptions=0,
    )


def crowded() -> tuple[Playback, list[RequestRecord]]:
    """Requests on a pool that holds not all of them to their ends, so that some are preempted."""
    config = VllmSchedulerConfig(
        num_blocks=41,
        groups=(KvGroup(kind=Kind.FULL, block_tokens=16, window_tokens=None),),
        max_model_len=512,
        max_num_batched_tokens=256,
        max_num_seqs=8,
        enable_prefix_caching=False,
    )
    requests = (
        Request(id=i, arrival_seconds=0.01 * i, prompt_tokens=64, output_tokens=150)
        for i in range(12)
    )
    recorder = PlaybackRecorder()
    records = []
    for done in simulate(
        OpenLoop(requests), VllmScheduler(config), lambda _: 0.02, observe=recorder.step
    ):
        recorder.request(done)
        records.append(done)
    return recorder.result(), records


def test_every_preemption_is_a_pause_within_the_stay() -> None:
    playback, records = crowded()
    assert sum(done.preemptions for done in records) > 0
    assert {stay.record.id: len(stay.pauses) for stay in playback.stays} == {
        done.id: done.preemptions for done in records
    }
    for stay in playback.stays:
        times = [stay.record.scheduled_seconds]
        for pause in stay.pauses:
            times += pause
        times.append(stay.record.finish_seconds)
        assert times == sorted(times)
        assert all(pause.resumed_seconds > pause.preempted_seconds for pause in stay.pauses)


def test_frames_go_from_empty_to_empty() -> None:
    playback, records = crowded()
    last = playback.frames[-1]
    assert (last.waiting, last.running, last.used_blocks) == (0, 0, 0)
    assert last.seconds == max(done.finish_seconds for done in records)
    assert all(one.seconds < two.seconds for one, two in pairwise(playback.frames))
    assert max(frame.used_blocks for frame in playback.frames) <= 40


def test_an_engine_without_work_is_shown_empty() -> None:
    recorder = PlaybackRecorder()
    recorder.step(step(0.0, 1.0))
    recorder.step(step(5.0, 6.0))
    seen = [(frame.seconds, frame.running) for frame in recorder.result().frames]
    assert seen == [(0.0, 1), (1.0, 0), (5.0, 1), (6.0, 0)]


def test_engines_are_shown_together() -> None:
    recorder = PlaybackRecorder()
    for one in (step(0.0, 1.0), step(0.5, 2.0)._replace(rank=1), step(1.0, 3.0)):
        recorder.step(one)
    seen = [(frame.seconds, frame.running) for frame in recorder.result().frames]
    assert seen == [(0.0, 1), (0.5, 2), (1.0, 2), (2.0, 1), (3.0, 0)]


def test_a_long_run_is_bounded_and_keeps_the_requests_around_its_peak() -> None:
    recorder = PlaybackRecorder()
    for number in range(9_000):
        recorder.step(step(number, number + 1.0, used_blocks=50 if number == 6_000 else 1))
        recorder.request(record(number, float(number)))
    playback = recorder.result()
    assert 1_000 < len(playback.frames) <= 2_000
    assert len(playback.stays) == 2_000
    assert playback.left_out == 7_000
    shown = [stay.record.id for stay in playback.stays]
    assert shown == list(range(shown[0], shown[0] + 2_000))
    assert shown[0] < 6_000 < shown[-1]
    assert playback.quantiles["tpot"] == (0.1,) * 101


def test_refused_requests_have_no_latency() -> None:
    assert PlaybackRecorder().result().quantiles == {"ttft": (), "tpot": (), "e2e": ()}
