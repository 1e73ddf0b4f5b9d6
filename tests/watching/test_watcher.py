"""Servers and GPUs together, in threads of their own."""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from page_server import VLLM_PAGES, PageServer, vllm_page

from tokenroom.watching.addresses import parse_address
from tokenroom.watching.endpoint_watch import LookSettings
from tokenroom.watching.gpus import GpuReader
from tokenroom.watching.observation import Gpu, Observation
from tokenroom.watching.watcher import Watched, Watcher, WatchSettings


class OneGpu(GpuReader):
    def read(self) -> tuple[Gpu, ...]:
        return (
            Gpu(
                index="0",
                uuid="u",
                name="L4",
                mig=None,
                total_bytes=24 * 2**30,
                used_bytes=2**30,
                free_bytes=23 * 2**30,
            ),
        )


def watcher(*urls: str, gpus: bool = False, interval: float = 0.05, timeout: float = 5) -> Watcher:
    return Watcher(
        [Watched(address=parse_address(url)) for url in urls],
        WatchSettings(
            look=LookSettings(interval_seconds=interval, timeout_seconds=timeout), gpus=gpus
        ),
        OneGpu(),
    )


def until(seen: Callable[[], Observation], good: Callable[[Observation], bool]) -> Observation:
    end = time.monotonic() + 20
    while not good(found := seen()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_one_look_at_everything() -> None:
    with PageServer(VLLM_PAGES) as server, PageServer({}) as gone:
        gone.close()
        seen = watcher(server.url, gone.url, gpus=True).look_once()
    assert [one.status for one in seen.endpoints] == ["up", "down"]
    assert [gpu.name for gpu in seen.gpus] == ["L4"]
    assert [alert.key for alert in seen.alerts] == ["endpoint_down"]


def test_a_slow_server_holds_nobody_up() -> None:
    with PageServer(VLLM_PAGES) as fast, PageServer(VLLM_PAGES) as slow:
        slow.delay_seconds = 30
        one = watcher(fast.url, slow.url, timeout=60)
        one.start()
        seen = until(one.observe, lambda found: found.endpoints[0].status == "up")
        assert seen.endpoints[1].status == "waiting"
        one.stop()
        slow_threads = [thread for thread in one._threads if thread.is_alive()]
        assert all(thread.daemon for thread in slow_threads)  # the process may end


def test_a_watch_over_the_end_and_return_of_a_server() -> None:
    server = PageServer(VLLM_PAGES)
    server.pages["/metrics"] = vllm_page(output=100, started=1000)
    one = watcher(server.url)
    one.start()
    try:
        until(one.observe, lambda found: found.endpoints[0].status == "up")
        server.close()
        seen = until(one.observe, lambda found: found.endpoints[0].status == "down")
        assert [alert.key for alert in seen.alerts] == ["endpoint_down"]
        with PageServer(VLLM_PAGES, port=server.port) as again:
            again.pages["/metrics"] = vllm_page(output=40, started=2000)
            seen = until(one.observe, lambda found: found.endpoints[0].status == "up")
            one.stop()
    finally:
        one.stop()
    assert seen.endpoints[0].restarts == 1
    assert seen.endpoints[0].replicas[0].totals.generation_tokens == 40
    assert [alert.key for alert in seen.alerts] == ["restarted"]


@pytest.mark.parametrize("duration", [0.01, 0.3])
def test_observations_end_with_their_time(duration: float) -> None:
    with PageServer(VLLM_PAGES) as server:
        one = watcher(server.url)
        one.start()
        seen = list(one.observations(duration))
        one.stop()
    assert seen
    assert seen[-1].time - seen[0].time <= duration + 1
    assert all(a.time < b.time for a, b in pairwise(seen))
