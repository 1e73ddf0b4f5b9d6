import hashlib
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.errors import TokenroomError, WorkloadError
from tokenroom.serving.kv_group import Kind, KvGroup
from tokenroom.serving.request import Request
from tokenroom.serving.schedulers.vllm import VllmScheduler, VllmSchedulerConfig
from tokenroom.serving.simulator import simulate
from tokenroom.serving.workloads import draws, synthetic
from tokenroom.serving.workloads.conversations import Conversation, Talk, begin
from tokenroom.serving.workloads.grammar import is_description, parse_workload
from tokenroom.serving.workloads.limits import TooLong, too_long
from tokenroom.serving.workloads.presets import load_presets
from tokenroom.serving.workloads.reshaping import limited, sped_up, windowed
from tokenroom.serving.workloads.summary import summarise
from tokenroom.serving.workloads.written_values import seconds_of

SHORT = "input=8,output=2"


def times(text: str) -> list[float]:
    return [request.arrival_seconds for request in parse_workload(text)]


def test_the_same_description_gives_the_same_requests_on_every_python() -> None:
    text = "gamma:rate=3,cv=2,input=lognormal(1024,0.8),output=uniform(1,99),requests=200,seed=7"
    written = ";".join(
        f"{one.arrival_seconds:.6f},{one.prompt_tokens},{one.output_tokens}"
        for one in parse_workload(text)
    )
    assert hashlib.sha256(written.encode()).hexdigest()[:16] == "d9715462692b70e4"
    assert list(parse_workload(text)) == list(parse_workload(text))
    assert list(parse_workload(text)) != list(parse_workload(text.replace("seed=7", "seed=8")))


def test_changing_lengths_leaves_the_arrivals_alone() -> None:
    one, two = (
        times(f"poisson:rate=5,input={length},output=3") for length in ("9", "uniform(1,9)")
    )
    assert one == two


@pytest.mark.parametrize("cv", [0.5, 1, 2, 4])
def test_gaps_have_the_rate_and_the_burstiness_asked_for(cv: float) -> None:
    found = times(f"gamma:rate=5,cv={cv},{SHORT},requests=40000")
    gaps = [after - before for before, after in pairwise(found)]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.06)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.06)


def test_counts_by_minute_of_a_poisson_process_vary_like_one() -> None:
    found = summarise(parse_workload(f"poisson:rate=5,{SHORT},duration=20001s")).arrivals
    assert found is not None
    assert found.fano_minute == pytest.approx(1, abs=0.2)
    assert found.fano_all_minutes is not None
    assert found.fano_all_minutes > found.fano_minute  # type: ignore[operator]
    beat = summarise(parse_workload(f"constant:rate=1,{SHORT},requests=601")).arrivals
    assert beat is not None
    assert beat.fano_minute == 0


def test_a_beat_and_a_batch() -> None:
    assert times(f"constant:rate=30/min,{SHORT},requests=3") == [0, 2, 4]
    assert times(f"batch:requests=3,{SHORT}") == [0, 0, 0]


def test_rates_change_over_the_day() -> None:
    found = times(f"diurnal:rate=2,amplitude=0.9,period=1h,{SHORT},duration=2h")
    assert len(found) == pytest.approx(14400, rel=0.05)
    first, second = (
        sum(start <= time % 3600 < start + 1800 for time in found) for start in (0, 1800)
    )
    # the integral of 1 + 0.9 sin over each half of the period
    assert first / second == pytest.approx((1 + 1.8 / 3.14159) / (1 - 1.8 / 3.14159), rel=0.08)
    text = f"diurnal:rates=table(0h:1,1h:9),period=2h,{SHORT},duration=2h"
    quiet = sum(time < 3600 for time in times(text))
    assert quiet == pytest.approx(3600, rel=0.1)
    assert len(times(text)) - quiet == pytest.approx(9 * 3600, rel=0.05)
    scaled = times(text.replace("rates", "rate=2,rates"))
    assert len(scaled) == pytest.approx(2 * 7200, rel=0.05)


def test_bursts_keep_the_mean_and_reach_their_peak() -> None:
    found = times(f"bursts:rate=10,factor=3,every=10m,lasting=1m,{SHORT},duration=100m")
    peak = sum(time % 600 >= 540 for time in found)
    assert len(found) == pytest.approx(60_000, rel=0.03)
    assert peak == pytest.approx(30 * 60 * 10, rel=0.05)


def test_lengths_follow_their_distribution(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("3 5\n7,9\n")
    text = f"batch:requests=30000,input=lognormal(1k,0.5,2k),output=empirical({tmp_path}/numbers)"
    found = summarise(parse_workload(text))
    assert found.prompt.p50 == pytest.approx(1024, rel=0.03)
    assert found.prompt.largest == 2048
    assert found.prompt.p90 == pytest.approx(1024 * 2.718281828 ** (0.5 * 1.2816), rel=0.04)
    assert found.output.mean == pytest.approx(6, rel=0.02)
    quantiles = "quantiles(0:10,50:100,90:1000,100:5000)"
    found = summarise(parse_workload(f"batch:requests=30000,input={quantiles},output=geometric(7)"))
    assert found.prompt.p50 == pytest.approx(100, rel=0.04)
    assert found.prompt.p90 == pytest.approx(1000, rel=0.06)
    assert found.output.mean == pytest.approx(7, rel=0.04)
    assert found.output.smallest == 1


def test_lengths_of_a_trace_are_drawn_in_pairs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("input,output\n3,30\n5,50\n")
    found = {
        (one.prompt_tokens, one.output_tokens)
        for one in parse_workload(f"poisson:rate=1,lengths=trace({tmp_path}/t.csv)")
    }
    assert found == {(3, 30), (5, 50)}


def test_system_prompts_are_shared_by_their_groups() -> None:
    text = "poisson:rate=1,system=shared(3,100),input=50,output=5,requests=300"
    found = list(parse_workload(text, block_tokens=16))
    assert {one.prompt_tokens for one in found} == {150}
    assert {len(one.block_hashes) for one in found} == {6}
    assert len({one.block_hashes for one in found}) == 3
    sharing = summarise(found, block_tokens=16).sharing
    assert sharing is not None
    assert sharing.hit_blocks == (300 - 3) * 6


def test_a_conversation_grows_by_what_was_said() -> None:
    text = "poisson:rate=1,system=20,turns=4,gap=10s,input=30,output=10,requests=200"
    talks: dict[int | None, list[Request]] = {}
    for one in parse_workload(text, block_tokens=16):
        talks.setdefault(one.session, []).append(one)
    whole = [turns for turns in talks.values() if len(turns) == 4]
    assert whole
    for turns in whole:
        assert [one.prompt_tokens for one in turns] == [50, 90, 130, 170]
        assert [one.arrival_seconds for one in turns] == pytest.approx(
            [turns[0].arrival_seconds + 10 * number for number in range(4)]
        )
        for before, after in pairwise(turns):
            # the next turn finds every full block of prompt and answer
            assert len(before.block_hashes) == (before.prompt_tokens + 10) // 16
            assert after.block_hashes[: len(before.block_hashes)] == before.block_hashes
    ends = [turns[-1].block_hashes for turns in talks.values()]
    assert len({names[1] for names in ends}) == len(ends)  # past the system prompt all are apart
    assert len({names[0] for names in ends}) == 1


def test_a_conversation_ends_before_it_exceeds_the_context() -> None:
    text = "poisson:rate=1,turns=99,gap=1s,input=100,output=20,context=500,requests=500"
    found = list(parse_workload(text))
    assert max(one.prompt_tokens + one.output_tokens for one in found) == 480


def served(text: str, service: float) -> list[Request]:
    """The requests of a run in which every answer takes the same time."""
    run = parse_workload(text).start()
    running: list[tuple[float, Request]] = []
    found = []
    while True:
        arrival = run.next_seconds()
        if running and (arrival is None or running[0][0] <= arrival):
            seconds, request = running.pop(0)
            run.ended(request.id, seconds)
            continue
        if arrival is None:
            return found
        request = run.pop()
        assert request.arrival_seconds == arrival
        found.append(request)
        running.append((arrival + service, request))
        if text.startswith("users:count="):
            assert len(running) <= int(text.removeprefix("users:count=").partition(",")[0])


@given(st.floats(0, 50), st.integers(1, 9), st.integers(1, 60))
def test_users_have_one_request_in_flight_each(service: float, users: int, requests: int) -> None:
    text = f"users:count={users},think=exponential(3s),{SHORT},requests={requests}"
    found = served(text, service)
    assert sorted(one.id for one in found) == list(range(requests))
    assert all(a.arrival_seconds <= b.arrival_seconds for a, b in pairwise(found))


def test_what_is_said_does_not_depend_on_how_fast_answers_are() -> None:
    lengths = "turns=3,think=1s,input=uniform(1,99),output=uniform(1,99),requests=90"

    def said(text: str, service: float) -> set[tuple[int | None, int, int]]:
        found = served(text, service)
        assert len(found) == 90
        return {(one.session, one.prompt_tokens, one.output_tokens) for one in found}

    text = f"users:count=1,{lengths}"
    assert said(text, 0.1) == said(text, 33.0)
    fast, slow = (said(f"poisson:rate=1,{lengths}", service) for service in (0.1, 33.0))
    common = {number for number, _, _ in fast} & {number for number, _, _ in slow}
    assert common
    for number in common:  # the one may be further in a conversation than the other
        one, two = (sorted(row for row in rows if row[0] == number) for rows in (fast, slow))
        assert one[: len(two)] == two[: len(one)]


def test_a_slow_engine_meets_fewer_requests_of_users_in_a_time() -> None:
    text = f"users:count=4,think=1s,{SHORT},duration=100s"
    assert len(served(text, 1)) == pytest.approx(200, abs=4)
    assert len(served(text, 9)) == pytest.approx(40, abs=4)
    with pytest.raises(WorkloadError, match="give requests=1000 to list them"):
        iter(parse_workload(text))


@given(st.lists(st.floats(0, 1e4), min_size=1), st.floats(0.1, 10))
def test_a_workload_may_be_cut_and_sped_up(arrivals: list[float], factor: float) -> None:
    requests = [
        Request(id=at, arrival_seconds=time, prompt_tokens=1, output_tokens=1)
        for at, time in enumerate(sorted(arrivals))
    ]
    faster = list(sped_up(requests, factor))
    assert [one.arrival_seconds * factor for one in faster] == pytest.approx(sorted(arrivals))
    inside = [time for time in sorted(arrivals) if 100 <= time < 5000]
    if inside:
        cut = list(windowed(requests, 100, 5000))
        assert [one.arrival_seconds + 100 for one in cut] == pytest.approx(inside)
    else:
        with pytest.raises(WorkloadError, match="no request arrives"):
            list(windowed(requests, 100, 5000))
    assert len(list(limited(requests, 2))) == min(2, len(requests))


@pytest.mark.parametrize(("start", "end"), [(5, 5), (9, 3), (-1, 2)])
def test_a_window_without_time_is_refused(start: float, end: float) -> None:
    with pytest.raises(WorkloadError, match="holds no time"):
        list(windowed([], start, end))


def test_long_requests_are_told_apart_as_engines_do() -> None:
    def asked(prompt: int, output: int) -> TooLong | None:
        one = Request(id=0, arrival_seconds=0, prompt_tokens=prompt, output_tokens=output)
        return too_long(one, 100)

    assert asked(90, 10) is None
    assert asked(90, 11) is TooLong.ANSWER
    assert asked(99, 1) is None
    assert asked(100, 1) is TooLong.PROMPT


def test_the_simulator_finds_what_earlier_turns_left_in_its_cache() -> None:
    text = "users:count=3,turns=5,think=1s,system=40,input=30,output=20,requests=60"
    scheduler = VllmScheduler(
        VllmSchedulerConfig(
            groups=(KvGroup(kind=Kind.FULL, block_tokens=16),),
            num_blocks=10_000,
            max_model_len=4096,
            max_num_batched_tokens=2048,
            max_num_seqs=8,
        )
    )
    run = parse_workload(text, block_tokens=16).start()
    records = list(simulate(run, scheduler, lambda _: 0.01))
    assert len(records) == 60
    for record in records:
        turn = (record.prompt_tokens - 70) // 50
        if turn:  # the last token of an answer is never computed, so its block may stay open
            assert record.cached_tokens == (record.prompt_tokens - 30 - 1) // 16 * 16
        else:
            assert record.cached_tokens in (0, 32)  # of the system prompt


@pytest.mark.parametrize("name", sorted(load_presets()))
def test_presets_can_be_drawn_and_say_where_they_come_from(name: str) -> None:
    preset = load_presets()[name]
    assert all(len(source) > 10 for source in preset.sources)
    assert len(preset.sources_chinese) == len(preset.sources)
    assert all("。" in source for source in preset.sources_chinese)
    assert is_description(name)
    found = list(islice(parse_workload(name), 300))
    assert len(found) == 300
    overridden = parse_workload(
        f"{name}:process=users,think=1s,input=7,output=3,requests=20,seed=2"
    )
    assert len(list(overridden)) == 20
    assert len(list(parse_workload(f"{name}:process=batch,requests=5"))) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poison:rate=5", "begins with neither a process"),
        ("poisson", "poisson needs rate"),
        ("poisson:rate=5", "poisson needs input; write it as in input=lognormal"),
        (f"poisson:rate=0,{SHORT}", "rate is 0; it must be above 0"),
        (f"poisson:rate=fast,{SHORT}", "rate is 'fast'; write a number"),
        (f"poisson:rate=5/week,{SHORT}", "write a rate, as 5, 5/s or 300/min"),
        (f"poisson:rate=5,cv=2,{SHORT}", "poisson has no 'cv'; it takes rate"),
        (f"poisson:rate=5,rate=6,{SHORT}", "rate is written twice"),
        (f"poisson:rate=5,seed,{SHORT}", "'seed' is no KEY=VALUE"),
        (f"poisson:rate=5,process=users,{SHORT}", "process belongs to a preset"),
        ("chat:process=walk", "process is 'walk'"),
        (f"gamma:rate=5,cv=900,{SHORT}", "cv is 900; it may be 0.01 to 100"),
        ("poisson:rate=5,input=normal(5,2),output=2", "distributions are constant"),
        ("poisson:rate=5,input=lognormal(5),output=2", "lognormal takes 2 or 3 numbers"),
        ("poisson:rate=5,input=lognormal(5,99),output=2", "which is at most 10"),
        ("poisson:rate=5,input=uniform(9,5),output=2", "ends before it begins"),
        ("poisson:rate=5,input=uniform(9,5,output=2", "do not match"),
        ("poisson:rate=5,input=quantiles(0:5,50:9),output=2", "rising shares from 0 to 100"),
        ("poisson:rate=5,input=quantiles(0,50),output=2", "no pair such as"),
        ("poisson:rate=5,input=9T,output=2", "input is '9T'; give a positive whole number"),
        ("poisson:rate=5,input=0,output=2", "input is '0'; give a positive whole number"),
        ("poisson:rate=5,input=300M,output=2", "a length is at most 100,000,000"),
        ("poisson:rate=5,input=empirical(/no),output=2", "input of no cannot be read"),
        ("poisson:rate=5,lengths=trace(/no)", "No such file"),
        ("poisson:rate=5,lengths=7", "write trace"),
        ("poisson:rate=5,lengths=trace(x),input=3", "lengths says input and output"),
        (f"poisson:rate=5,duration=10,{SHORT}", "write a time with a unit"),
        (f"poisson:rate=5,duration=0,{SHORT}", "it must be a time above 0"),
        (f"poisson:rate=5,requests=0,{SHORT}", "requests is 0; it must be at least 1"),
        (f"poisson:rate=5,seed=1.5,{SHORT}", "seed is '1.5'; write a whole number"),
        (f"poisson:rate=5,turns=3,{SHORT}", "give think=20s or gap=40s"),
        (f"poisson:rate=5,gap=3s,{SHORT}", "gap is the pause after a message"),
        (f"poisson:rate=5,system=shared(0,9),{SHORT}", "shares nothing"),
        (f"poisson:rate=5,system=twice(1,9),{SHORT}", "shared"),
        (f"users:count=0,{SHORT}", "there are 0 users"),
        (f"users:count=999999999999,{SHORT}", "there may be 1,000,000"),
        (f"batch:duration=10m,{SHORT}", "need a number; give requests=1000"),
        (f"bursts:rate=5,factor=20,{SHORT}", "factor may be 1 to 10"),
        (f"bursts:rate=5,every=1m,lasting=2m,{SHORT}", "lasting must be shorter"),
        (f"diurnal:rate=5,amplitude=2,{SHORT}", "it is a share of the rate, up to 1"),
        (f"diurnal:rates=9,{SHORT}", "write table"),
        (f"diurnal:rates=table(),{SHORT}", "an empty table"),
        (f"diurnal:rates=table(1h:3),{SHORT}", "begins at 0 and its times rise"),
        (f"diurnal:rates=table(0h:0),{SHORT}", "one of them above 0"),
    ],
)
def test_a_description_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        parse_workload(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [f"poisson:rate=1e-12,{SHORT}", f"users:count=1,think=9e9s,requests=3,{SHORT}"],
)
def test_times_that_no_clock_tells_apart_are_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="span at most 100 years"):
        list(parse_workload(text))


def test_files_of_numbers_are_refused_by_line(tmp_path: Path) -> None:
    for text, message in (("1\n2 x\n", "line 2: 'x' is no number"), ("", "holds no number")):
        (tmp_path / "n").write_text(text)
        with pytest.raises(WorkloadError, match=message):
            parse_workload(f"batch:requests=1,output=1,input=empirical({tmp_path}/n)")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("250ms", 0.25), ("10m", 600), ("1.5h", 5400), ("1d", 86400), ("0", 0)],
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert seconds_of(text, "t") == seconds


@given(st.text(alphabet="poisn:rate=5,input(1)gmua0.h ", max_size=40))
def test_any_text_is_a_workload_or_one_sentence(text: str) -> None:
    try:
        parse_workload(text)
    except TokenroomError as problem:
        sentence = str(problem)
    else:
        sentence = ""
    assert "\n" not in sentence.replace(repr(text), "")


def test_draws_have_their_moments() -> None:
    random = draws.stream(1, "test")
    normals = [draws.normal(random) for _ in range(40_000)]
    assert fmean(normals) == pytest.approx(0, abs=0.02)
    assert pstdev(normals) == pytest.approx(1, rel=0.02)
    for shape in (0.3, 1.0, 5.0):
        gammas = [draws.gamma(random, shape, 2.0) for _ in range(40_000)]
        assert fmean(gammas) == pytest.approx(2 * shape, rel=0.04)
        assert pstdev(gammas) == pytest.approx(2 * shape**0.5, rel=0.05)
    assert draws.geometric(random, 1.0) == 1


def test_users_are_drawn_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million who all come at once only those are drawn who send one of 20 requests."""
    drawn: list[int] = []

    def counted(talk: Talk, number: int, *rest: Any) -> Conversation:
        drawn.append(number)
        return begin(talk, number, *rest)

    monkeypatch.setattr(synthetic, "begin", counted)
    run = parse_workload("users:count=1000000,input=uniform(1,999),output=2,requests=20").start()
    many = [run.pop().prompt_tokens for _ in range(20)]
    assert run.next_seconds() is None
    assert drawn == list(range(1, 22))  # one more is drawn before the end is seen
    other = parse_workload("users:count=20,input=uniform(1,999),output=2,requests=20").start()
    assert [other.pop().prompt_tokens for _ in range(20)] == many
