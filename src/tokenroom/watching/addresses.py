"""Addresses of servers that are watched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tokenroom.errors import WatchError, shown

_PORTS: Final = {"http": 80, "https": 443}
_PAGES: Final = ("/metrics", "/prometheus/metrics", "/v1")
"""What people leave at the end of an address; the pages are found without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server answers.

    Attributes:
        url: Its root, without a slash at its end; what it is called by.
        secure: Whether it is asked over TLS.
        host: Its name or address, without brackets.
        port: Its port.
        path: What every path begins with; empty for none.
    """

    url: str
    secure: bool
    host: str
    port: int
    path: str = ""


def parse_address(text: str) -> Address:
    """The address in ``text``: ``http://HOST[:PORT][/PATH]``, ``HOST:PORT`` or ``:PORT``.

    Raises:
        WatchError: It is no such address.
    """
    asked = text.strip()
    if re.fullmatch(r":?\d{1,5}", asked):
        asked = f"http://127.0.0.1:{asked.lstrip(':')}"
    elif "://" not in asked:
        asked = f"http://{asked}"
    try:
        parts = urlsplit(asked)
        port = parts.port
    except ValueError as error:
        raise _refused(text) from error
    if (
        parts.scheme not in _PORTS
        or not parts.hostname
        or port == 0
        or re.search(r"[\s\x00-\x20\x7f]", asked)
        or not parts.hostname.isascii()
    ):
        raise _refused(text)
    if parts.username is not None or parts.query or parts.fragment:
        raise WatchError(
            f"the address {shown(_without_user(parts))} has a user, a query or a fragment; leave "
            f"them out (a key is given with --api-key)"
        )
    path = parts.path.rstrip("/")
    for page in _PAGES:
        path = path.removesuffix(page)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    number = port or _PORTS[parts.scheme]
    return Address(
        url=f"{parts.scheme}://{host}:{number}{path}",
        secure=parts.scheme == "https",
        host=parts.hostname,
        port=number,
        path=path,
    )


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """Each address of several texts, which may hold more than one between commas, once.

    Raises:
        WatchError: One is none.
    """
    found = [parse_address(part) for text in texts for part in text.split(",") if part.strip()]
    if texts and not found:
        raise _refused(" ".join(texts))
    return tuple({address.url: address for address in found}.values())


def _without_user(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _refused(text: str) -> WatchError:
    return WatchError(
        f"{shown(text)} is no address of a server; give http://HOST:PORT, such as "
        f"http://127.0.0.1:8000"
    )
