"""A server over a real connection that goes away and comes back."""

import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_server import VLLM_PAGES, PageServer, vllm_page

from tokenroom.errors import WatchError
from tokenroom.watching.addresses import parse_address
from tokenroom.watching.endpoint_watch import EndpointWatch, LookSettings, Planner
from tokenroom.watching.metric_names import NAMES as METRIC_NAMES
from tokenroom.watching.observation import Facts, Observation, Planned
from tokenroom.watching.observation_json import observation_json

FIXTURES = Path(__file__).parents[1] / "fixtures" / "watching"


@pytest.fixture(scope="module")
def anything() -> Iterator[PageServer]:
    with PageServer(VLLM_PAGES) as server:
        yield server


def watch(
    url: str, planner: Planner | None = None, *, interval: float = 1.0, timeout: float = 5.0
) -> EndpointWatch:
    return EndpointWatch(
        parse_address(url),
        LookSettings(interval_seconds=interval, timeout_seconds=timeout),
        planner,
    )


def test_up_down_and_up_again_with_nothing_lost() -> None:
    server = PageServer(VLLM_PAGES)
    server.pages["/metrics"] = vllm_page(prompt=1000, output=100, started=1000)
    one = watch(server.url)
    assert one.state().status == "waiting"
    assert one.look().status == "up"
    server.pages["/metrics"] = vllm_page(prompt=1500, output=160, running=2, started=1000)
    seen = one.look()
    assert seen.replicas[0].totals.prompt_tokens == 500
    server.close()
    seen = one.look()
    assert seen.status == "down"
    assert "refused" in (seen.error or "")
    assert seen.replicas == ()
    assert seen.facts is not None  # what it was is still known
    began = seen.since
    assert one.look().since == began
    with PageServer(VLLM_PAGES, port=server.port) as again:
        again.pages["/metrics"] = vllm_page(prompt=2000, output=50, started=2000)
        seen = one.look()
    assert (seen.status, seen.restarts, seen.error) == ("up", 1, None)
    # The new process counts more by now; all of it is new.
    assert seen.replicas[0].totals.prompt_tokens == 2500
    assert seen.replicas[0].totals.generation_tokens == 110


def test_a_connection_lost_is_no_restart() -> None:
    with PageServer(VLLM_PAGES) as server:
        server.pages["/metrics"] = vllm_page(prompt=100, started=1000)
        one = watch(server.url)
        one.look()
        server.pages["/metrics"] = (500, "busy")
        assert one.look().status == "down"
        server.pages["/metrics"] = vllm_page(prompt=160, started=1000)
        seen = one.look()
    assert (seen.status, seen.restarts) == ("up", 0)
    assert seen.replicas[0].totals.prompt_tokens == 60


def test_a_restart_shows_in_counters_where_no_start_is_told() -> None:
    def page(prompt: int) -> str:
        labels = '{model_name="m"}'
        return f"sglang:num_running_reqs{labels} 1\nsglang:prompt_tokens_total{labels} {prompt}\n"

    with PageServer({"/metrics": page(100)}) as server:
        one = watch(server.url)
        one.look()
        server.pages["/metrics"] = page(30)
        seen = one.look()
    assert seen.restarts == 1
    assert seen.replicas[0].totals.prompt_tokens == 30


def test_a_restart_shows_in_the_head_of_llama_server_s_page() -> None:
    with PageServer({"/props": "{}", "/slots": "[]"}) as server:
        one = watch(server.url)
        for mark, tokens in (("1000000", 10), ("1000000", 15), ("9000000", 20)):
            server.headers["Process-Start-Time-Unix"] = mark
            server.pages["/metrics"] = (
                f"llamacpp:requests_processing 0\nllamacpp:tokens_predicted_total {tokens}\n"
            )
            seen = one.look()
    assert seen.restarts == 1
    assert seen.replicas[0].totals.generation_tokens == 5 + 20


def test_another_engine_may_come_back_at_the_same_place() -> None:
    with PageServer(VLLM_PAGES) as server:
        one = watch(server.url)
        one.look()
        server.pages.clear()
        assert one.look().status == "down"
        server.pages["/metrics"] = (FIXTURES / "sglang-0.4.6.txt").read_text("utf-8")
        seen = one.look()
    assert seen.facts is not None
    assert seen.facts.engine == "sglang"


def test_looks_come_later_and_later_while_it_is_down() -> None:
    with PageServer({}) as server:
        url = server.url
    one = watch(url)
    pauses = []
    for _ in range(8):
        one.look()
        pauses.append(one.pause_seconds())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    slow = watch(url, interval=60)
    slow.look()
    slow.look()
    assert slow.pause_seconds() == 60


def test_one_request_at_a_time_however_slow_the_server_is() -> None:
    with PageServer(VLLM_PAGES) as server:
        server.delay_seconds = 0.05
        one = watch(server.url, interval=0.01)
        stop = threading.Event()
        thread = threading.Thread(target=one.run, args=(stop,))
        thread.start()
        while len(server.asked) < 8:
            time.sleep(0.01)
        stop.set()
        thread.join()
        assert server.most_at_once == 1
        assert set(server.asked) <= {"/metrics", "/version", "/v1/models"}


def test_a_server_too_slow_is_down_and_in_time() -> None:
    with PageServer(VLLM_PAGES) as server:
        server.delay_seconds = 0.5
        seen = watch(server.url, timeout=0.1).look()
    assert seen.status == "down"
    assert "within 0.1 s" in (seen.error or "")


def planned_for(facts: Facts) -> Planned:
    return Planned(
        told_by="endpoint",
        model=facts.model or "",
        gpu="l4",
        gpus=1,
        engine=facts.engine,
        version=facts.version or "",
        starts=True,
        weights_bytes=1,
        activation_bytes=1,
        graphs_bytes=1,
        other_bytes=1,
        kv_pool_bytes=1,
        peak_bytes=5,
        kv_pool_tokens=2048,
        kv_pool_tokens_low=2048,
        kv_pool_tokens_high=2048,
        max_num_seqs=1,
        max_model_len=1,
    )


def test_a_plan_is_made_once_for_what_the_server_tells() -> None:
    asked: list[Facts] = []

    def planner(facts: Facts) -> Planned:
        asked.append(facts)
        return planned_for(facts)

    with PageServer(VLLM_PAGES) as server:
        one = watch(server.url, planner)
        assert one.look().planned is not None
        assert one.look().planned is not None
        assert len(asked) == 1
        server.pages["/metrics"] = (500, "no")
        assert one.look().planned is not None
        server.pages |= VLLM_PAGES | {"/version": '{"version": "0.33.0"}'}
        seen = one.look()
    assert [facts.version for facts in asked] == ["0.32.0", "0.33.0"]
    assert seen.planned is not None
    assert seen.planned.version == "0.33.0"


def test_no_plan_says_why() -> None:
    def planner(_: Facts) -> Planned:
        raise WatchError("nobody knows")

    with PageServer(VLLM_PAGES) as server:
        seen = watch(server.url, planner).look()
    assert (seen.planned, seen.no_plan) == (None, "nobody knows")


SLOTS = [
    {"id": 0, "n_ctx": 512, "is_processing": True, "n_prompt_tokens": 300},
    {"id": 1, "n_ctx": 512, "is_processing": True, "n_prompt_tokens": 100},
    {"id": 2, "n_ctx": 512, "is_processing": False, "n_prompt_tokens": 500},
]


@pytest.mark.parametrize("with_metrics", [True, False])
def test_slots_of_llama_server_tell_what_is_held(with_metrics: bool) -> None:
    pages = {
        "/props": json.dumps({"default_generation_settings": {"n_ctx": 512}, "total_slots": 3}),
        "/slots": json.dumps(SLOTS),
    }
    if with_metrics:
        pages["/metrics"] = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 4\n"
    with PageServer(pages) as server:
        (alone,) = watch(server.url).look().replicas
        one = watch(server.url, planned_for)
        one.look()
        (found,) = one.look().replicas
    assert (alone.running, alone.waiting) == (2, 4 if with_metrics else None)
    assert alone.kv_used_tokens == 400  # what a slot keeps of an earlier prompt gives way
    assert alone.kv_share == 300 / 512  # of the fullest slot, where no pool is known
    assert (found.kv_pool_tokens, found.kv_share) == (2048, 400 / 2048)


VALUES = st.sampled_from(["0", "1", "-5", "1e300", "NaN", "+Inf", "-Inf", "2.5", "1e-320"])
NAMES = sorted(
    {
        name
        for names in METRIC_NAMES.values()
        for field in dataclasses.fields(names)
        if isinstance(value := getattr(names, field.name), tuple)
        for name in value
    }
)
HISTOGRAMS = [f"{name}_{part}" for name in NAMES for part in ("bucket", "sum", "count")]


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from([*NAMES, *HISTOGRAMS, "process_start_time_seconds"]),
            st.sampled_from(
                ["", 'le="0.1"', 'le="+Inf"', 'le="x"', 'engine="1"', 'model_name="m"']
            ),
            VALUES,
        ),
        max_size=40,
    ),
    body=st.none() | st.sampled_from(["[]", "[{}]", '{"a": [', "\x00", "[" * 5000]),
)
def test_no_page_ends_a_watch(
    lines: list[tuple[str, str, str]], body: str | None, anything: PageServer
) -> None:
    text = "\n".join(f"{name}{{{labels}}} {value}" for name, labels, value in lines) + "\n"
    one = watch(anything.url)
    for page in (vllm_page(prompt=5), body if body is not None else text, vllm_page(), text):
        anything.pages["/metrics"] = page
        seen = one.look()
        assert seen.status in ("up", "down")
        json.dumps(
            observation_json(
                Observation(time=0, interval_seconds=1, window_seconds=1, endpoints=(seen,))
            ),
            allow_nan=False,
        )
