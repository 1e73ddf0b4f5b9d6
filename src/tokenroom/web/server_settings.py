"""What the operator of a server decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenroom.watching.watcher import Watcher


def default_database() -> Path:
    """Where jobs are kept: ``$XDG_STATE_HOME/tokenroom/jobs.sqlite3``, by default of the home."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "tokenroom" / "jobs.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and permissions.

    Attributes:
        database: The SQLite file of jobs and their results.
        allow_hub: Models may be named by their Hub id, which the server then fetches.
        cors_origins: Origins whose pages may ask; none by default, ``"*"`` for all.
        hosts: Names that requests may be addressed to, besides addresses and this machine's own;
            ``".example.org"`` is every name below it, ``"*"`` any name.
        job_workers: Jobs that run at once, each in a process of its own.
        max_queued_jobs: Jobs that may wait; beyond them clients are told to come back.
        job_seconds: Longest a job may run.
        question_seconds: Longest a question answered at once may take.
        worker_memory_bytes: Address space of a worker process.
        max_body_bytes: Largest body of a request.
        body_seconds: Longest that sending a body may take.
        keep_seconds: How long finished jobs are kept.
        watcher: Makes what watches servers and GPUs for ``GET /v1/watch``; None where the operator
            names none. Clients cannot name any.
    """

    database: Path = field(default_factory=default_database)
    allow_hub: bool = False
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    job_workers: int = 1
    max_queued_jobs: int = 32
    job_seconds: float = 300.0
    question_seconds: float = 15.0
    worker_memory_bytes: int = 2 * 2**30
    max_body_bytes: int = 16 * 2**20
    body_seconds: float = 60.0
    keep_seconds: float = 7 * 86_400.0
    watcher: Callable[[], Watcher] | None = None
