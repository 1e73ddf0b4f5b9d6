"""Pages over a real connection, with every way in which a server can keep one waiting."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from page_server import PageServer

from tokenroom.errors import WatchError
from tokenroom.watching import fetching
from tokenroom.watching.addresses import parse_address
from tokenroom.watching.fetching import Fetcher


def fetcher(url: str, seconds: float = 5.0, key: str | None = None) -> Fetcher:
    return Fetcher(parse_address(url), timeout_seconds=seconds, api_key=key)


@contextlib.contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does with a connection whatever ``answer`` does."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_page_with_its_status_and_the_key() -> None:
    with PageServer({"/metrics": (503, "busy"), "/p/x": '{"a": 1}'}) as server:
        assert fetcher(server.url).get("/metrics").status == 503
        assert fetcher(server.url + "/p", key="k").get("/x").json == {"a": 1}
        assert server.keys == [None, "Bearer k"]


def test_nobody_listens() -> None:
    with PageServer({}) as server:
        url = server.url
    with pytest.raises(WatchError, match="refused"):
        fetcher(url).get("/metrics")


def test_a_server_that_says_nothing_is_left_at_the_deadline() -> None:
    with raw_server(lambda _: time.sleep(0.6)) as url, pytest.raises(WatchError, match="within"):
        fetcher(url, 0.2).get("/metrics")


def trickle(connection: socket.socket, head: bytes, part: bytes) -> None:
    connection.sendall(head)
    for _ in range(40):
        time.sleep(0.05)
        connection.sendall(part)


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"x"),
    ],
)
def test_a_page_that_trickles_in_is_left_at_the_deadline(head: bytes, part: bytes) -> None:
    with (
        raw_server(lambda connection: trickle(connection, head, part)) as url,
        pytest.raises(WatchError, match="no answer within"),
    ):
        fetcher(url, 0.3).get("/metrics")


def test_a_page_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_PAGE_BYTES", 1000)
    with PageServer({"/metrics": "x" * 2000}) as server, pytest.raises(WatchError, match="MiB"):
        fetcher(server.url).get("/metrics")


def test_no_redirect_is_followed() -> None:
    with PageServer({"/metrics": (302, "elsewhere")}) as server:
        assert fetcher(server.url).get("/metrics").status == 302
        assert server.asked == ["/metrics"]


def test_what_is_no_http_is_an_error_in_a_sentence() -> None:
    with (
        raw_server(lambda connection: connection.sendall(b"SSH-2.0-x\r\n")) as url,
        pytest.raises(WatchError, match="SSH"),
    ):
        fetcher(url).get("/metrics")


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with PageServer({"/metrics": "a 1"}) as server:
        assert fetcher(server.url).get("/metrics").body == "a 1"
