"""Jobs and their results in a SQLite file, which outlives workers and the server.

Several servers may share a file: each job that runs has the server that works on it as its owner,
which says every few seconds that it lives. What an owner left running that has been silent is
queued again.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tokenroom.errors import TokenroomError

State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
ENDED: Final = frozenset({"done", "failed", "cancelled"})
SILENT_SECONDS: Final = 30.0
"""A server that has not said so long that it lives has ended."""

_WAIT_SECONDS: Final = 30.0  # for another process's write to end
_VERSION: Final = 4
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
    result TEXT,
    owner TEXT,
    seen REAL,
    figures TEXT,
    partial TEXT,
    partials INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, created);
"""
_ADDED: Final = {  # since version 1
    "owner": "TEXT",
    "seen": "REAL",
    "figures": "TEXT",
    "partial": "TEXT",
    "partials": "INTEGER NOT NULL DEFAULT 0",
}
_SEEN: Final = "id, kind, state, done, total, attempts, created, ended, error, figures, partials"


class DatabaseError(TokenroomError):
    """The file of jobs cannot be used; the message says why and what to do."""


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
        figures: What a simulation or a search has found so far, by name; None of other kinds.
        partials: How many results that are not whole yet it has given; the newest is kept.
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
    figures: dict[str, float] | None
    partials: int


class JobStore:
    """The jobs in one file.

    Args:
        path: The file.
        owner: Name of the server that works on jobs it takes; a new one when not given.
    """

    def __init__(self, path: Path, *, owner: str | None = None) -> None:
        self.path = path
        self.owner = owner if owner is not None else secrets.token_hex(8)

    def open(self) -> None:
        """Make the file, or bring one that an older release made to this one's form.

        Raises:
            DatabaseError: It cannot be made, read or written, or a newer release made it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._connection() as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                self._bring_up(connection)
        except (OSError, sqlite3.Error) as error:
            said = getattr(error, "strerror", None) or error
            raise DatabaseError(
                f"database is {self.path}, which cannot be used as a file of jobs ({said}); name "
                f"another one with --database"
            ) from error
        self.release_silent()

    def _bring_up(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")  # fails where the file cannot be written
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > _VERSION:
            raise DatabaseError(
                f"database is {self.path}, which a newer release of tokenroom made (form {found}, "
                f"this one reads up to {_VERSION}); upgrade, or name another file with --database"
            )
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        columns = {row[1] for row in connection.execute("PRAGMA table_info(jobs)")}
        for name, kind in _ADDED.items():
            if name not in columns:
                connection.execute(f"ALTER TABLE jobs ADD COLUMN {name} {kind}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute(f"SELECT {_SEEN}, question, result FROM jobs LIMIT 1")

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
        """Make the job that waits longest this server's, with its question; None if none waits."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "SELECT id, question FROM jobs WHERE state = 'queued' ORDER BY created LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            connection.execute(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1, owner = ?, seen = ? "
                "WHERE id = ?",
                (self.owner, time.time(), row[0]),
            )
            job = self._get(connection, row[0])
            assert job is not None
            return job, json.loads(row[1])

    def progress(
        self,
        job_id: str,
        done: int,
        total: int,
        figures: Mapping[str, float] | None = None,
        partial: str | None = None,
    ) -> None:
        """Note how far a running job is, and what it has found; a new partial result replaces."""
        text = None if figures is None else json.dumps(dict(figures))
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET done = ?, total = ?, figures = ?, "
                "partial = coalesce(?, partial), partials = partials + (? IS NOT NULL) "
                "WHERE id = ? AND state = 'running'",
                (done, total, text, partial, partial, job_id),
            )

    def finish(self, job_id: str, result: str) -> None:
        """Keep the result of a job of this server, unless it was cancelled meanwhile."""
        self._end(job_id, "done", owner=self.owner, result=result)

    def fail(self, job_id: str, error: str) -> None:
        """Note why a job of this server has no result."""
        self._end(job_id, "failed", owner=self.owner, error=error)

    def cancel(self, job_id: str) -> bool:
        """End a job that has not ended, whoever works on it; False when it had."""
        return self._end(job_id, "cancelled")

    def requeue(self, job_id: str) -> None:
        """Let a job of this server wait for another worker."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'queued' WHERE id = ? AND state = 'running' AND owner = ?",
                (job_id, self.owner),
            )

    def keep(self) -> frozenset[str]:
        """Say that this server lives, and which running jobs are still its own."""
        with self._connection() as connection:
            mine = ("running", self.owner)
            rows = connection.execute("SELECT id FROM jobs WHERE state = ? AND owner = ?", mine)
            found = frozenset(row[0] for row in rows)
            if found:
                connection.execute(
                    "UPDATE jobs SET seen = ? WHERE state = ? AND owner = ?", (time.time(), *mine)
                )
            return found

    def release(self) -> None:
        """Queue again what this server leaves running; it was not the job's fault."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'queued', attempts = attempts - 1 "
                "WHERE state = 'running' AND owner = ?",
                (self.owner,),
            )

    def release_silent(self) -> None:
        """Queue again what servers left running that have ended."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'queued' "
                "WHERE state = 'running' AND (seen IS NULL OR seen < ?)",
                (time.time() - SILENT_SECONDS,),
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

    def partial(self, job_id: str) -> str | None:
        """The JSON text of what a job has found so far, or had when it was ended early."""
        with self._connection() as connection:
            row = connection.execute(
                "SELECT coalesce(result, partial) FROM jobs WHERE id = ?", (job_id,)
            ).fetchone()
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
        self,
        job_id: str,
        state: State,
        *,
        owner: str | None = None,
        result: str | None = None,
        error: str | None = None,
    ) -> bool:
        """End a job; its question, which may hold a client's own trace, is dropped."""
        with self._connection() as connection:
            changed = connection.execute(
                "UPDATE jobs SET state = ?, ended = ?, result = ?, error = ?, question = '{}', "
                "partial = iif(? IS NULL, partial, NULL) "
                "WHERE id = ? AND state IN ('queued', 'running') AND (? IS NULL OR owner = ?)",
                (state, time.time(), result, error, result, job_id, owner, owner),
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
        found = dict(zip(names, row, strict=True))
        figures = found.pop("figures")
        return Job(**found, figures=None if figures is None else json.loads(figures))

    def _count(self, connection: sqlite3.Connection, state: State) -> int:
        row = connection.execute("SELECT count(*) FROM jobs WHERE state = ?", (state,)).fetchone()
        return int(row[0])
