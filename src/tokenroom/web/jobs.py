"""Jobs and their results in a SQLite file, which outlives workers and the server."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
ENDED: Final = frozenset({"done", "failed", "cancelled"})
_WAIT_SECONDS: Final = 30.0  # for another process's write to end
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    question TEXT NOT NULL,
    state TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    ended REAL,
    error TEXT,
    result TEXT
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, created);
"""
_SEEN: Final = "id, kind, state, done, total, attempts, created, ended, error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where a job stands.

    Attributes:
        id: Its name, which only who asked for it knows.
        kind: Which question it answers.
        state: Where it stands.
        done: Parts that are done.
        total: Parts in all, 0 while that is not known.
        attempts: How often it was begun.
        created: When it was asked for, in seconds since 1970.
        ended: When it ended, None while it has not.
        error: Why it failed, None when it has not.
    """

    id: str
    kind: str
    state: State
    done: int
    total: int
    attempts: int
    created: float
    ended: float | None
    error: str | None


class JobStore:
    """The jobs of a server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Make the file, and queue again what a server that stopped left running.

        Raises:
            OSError: The folder or file cannot be made.
            sqlite3.Error: The file is no database of jobs.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            connection.execute("UPDATE jobs SET state = 'queued' WHERE state = 'running'")

    def add(self, kind: str, question: dict[str, Any], *, most: int) -> Job | None:
        """Queue a job; None when ``most`` wait already."""
        job_id = secrets.token_urlsafe(16)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._count(connection, "queued") >= most:
                return None
            connection.execute(
                "INSERT INTO jobs (id, kind, question, state, created) VALUES (?, ?, ?, ?, ?)",
                (job_id, kind, json.dumps(question), "queued", time.time()),
            )
            return self._get(connection, job_id)

    def take(self) -> tuple[Job, dict[str, Any]] | None:
        """Mark the job that waits longest as running, and its question; None when none waits."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "SELECT id, question FROM jobs WHERE state = 'queued' ORDER BY created LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            connection.execute(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = ?", row[:1]
            )
            job = self._get(connection, row[0])
            assert job is not None
            return job, json.loads(row[1])

    def progress(self, job_id: str, done: int, total: int) -> None:
        """Note how far a running job is."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET done = ?, total = ? WHERE id = ? AND state = 'running'",
                (done, total, job_id),
            )

    def finish(self, job_id: str, result: str) -> None:
        """Keep the result of a job, unless it was cancelled meanwhile."""
        self._end(job_id, "done", result=result)

    def fail(self, job_id: str, error: str) -> None:
        """Note why a job has no result."""
        self._end(job_id, "failed", error=error)

    def cancel(self, job_id: str) -> bool:
        """End a job that has not ended; False when it had."""
        return self._end(job_id, "cancelled")

    def requeue(self, job_id: str) -> None:
        """Let a job whose worker died wait for another one."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'queued' WHERE id = ? AND state = 'running'", (job_id,)
            )

    def get(self, job_id: str) -> Job | None:
        """Where a job stands, None when there is no such job."""
        with self._connection() as connection:
            return self._get(connection, job_id)

    def result(self, job_id: str) -> str | None:
        """The JSON text of a finished job's result."""
        with self._connection() as connection:
            row = connection.execute("SELECT result FROM jobs WHERE id = ?", (job_id,)).fetchone()
            return None if row is None else row[0]

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        with self._connection() as connection:
            rows = connection.execute("SELECT state, count(*) FROM jobs GROUP BY state")
            return dict(rows.fetchall())

    def forget(self, seconds: float) -> None:
        """Drop jobs that ended longer ago than that."""
        with self._connection() as connection:
            connection.execute("DELETE FROM jobs WHERE ended < ?", (time.time() - seconds,))

    def _end(
        self, job_id: str, state: State, *, result: str | None = None, error: str | None = None
    ) -> bool:
        with self._connection() as connection:
            changed = connection.execute(
                "UPDATE jobs SET state = ?, ended = ?, result = ?, error = ? "
                "WHERE id = ? AND state IN ('queued', 'running')",
                (state, time.time(), result, error, job_id),
            )
            return changed.rowcount > 0

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of this thread alone; what it did is kept unless it raised."""
        connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def _get(self, connection: sqlite3.Connection, job_id: str) -> Job | None:
        row = connection.execute(f"SELECT {_SEEN} FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            return None
        names = [name.strip() for name in _SEEN.split(",")]
        return Job(**dict(zip(names, row, strict=True)))

    def _count(self, connection: sqlite3.Connection, state: State) -> int:
        row = connection.execute("SELECT count(*) FROM jobs WHERE state = ?", (state,)).fetchone()
        return int(row[0])
