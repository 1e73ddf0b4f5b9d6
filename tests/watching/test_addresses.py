import pytest

from tokenroom.errors import WatchError
from tokenroom.watching.addresses import parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://host:8000/metrics", "http://host:8000"),
        ("http://host:8000/proxy/a/v1/", "http://host:8000/proxy/a"),
        ("host:30000", "http://host:30000"),
        (":8000", "http://127.0.0.1:8000"),
        ("8000", "http://127.0.0.1:8000"),
        ("https://example.org", "https://example.org:443"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("HTTP://Host", "http://host:80"),
    ],
)
def test_addresses_as_people_write_them(text: str, url: str) -> None:
    assert parse_address(text).url == url


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host:1",
        "http://",
        "http://host:99999",
        "http://host:0",
        "http://host:x",
        "http://ho st:1",
        "file:///etc/passwd",
        "http://[::1",
        "http://host:1/a\r\nx: y",
        "http://exämple.org",
    ],
)
def test_what_is_no_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(WatchError, match="is no address of a server"):
        parse_address(text)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(WatchError, match="--api-key") as refusal:
        parse_address("http://user:secret@host:1")
    assert "secret" not in str(refusal.value)


def test_several_between_commas_each_once() -> None:
    found = parse_addresses((":1,:2", "http://127.0.0.1:1"))
    assert [address.port for address in found] == [1, 2]


def test_nothing_between_commas_is_refused() -> None:
    with pytest.raises(WatchError, match="no address"):
        parse_addresses((" , ",))
    assert parse_addresses(()) == ()
