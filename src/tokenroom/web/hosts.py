"""Which hosts a request may be addressed to.

A page of another site can have its own name lead to this server (DNS rebinding), and its browser
then sends that name as ``Host``. A request to an address, or to a name of the machine, is no such
request; others are let in by ``--allowed-host``.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

ANY: Final = "*"


def host_of(header: str) -> str | None:
    """The name in a ``Host`` header without its port, in lower case; None when there is none."""
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    return name.rstrip(".") or None


def own_names(allowed: Iterable[str]) -> frozenset[str]:
    """Names that are the server's own: the machine's, and those its operator allows."""
    return frozenset(
        {"localhost", socket.gethostname().lower(), *(name.lower() for name in allowed)}
    )


def is_own(name: str, names: frozenset[str]) -> bool:
    """Whether a request to that host is one to this server."""
    if name in names or ANY in names or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return any(own.startswith(".") and name.endswith(own) for own in names)
    return True
