"""The file of jobs: whose jobs are whose, older and newer forms, and files that cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tokenroom.web.jobs import SILENT_SECONDS, DatabaseError, JobStore

QUESTION = {"model": "Llama-3.1-8B-Instruct", "gpu": "h100", "sweep": "concurrency=1..64"}
VERSION_1 = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, question TEXT NOT NULL, state TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, ended REAL, error TEXT, result TEXT
);
INSERT INTO jobs (id, kind, question, state, attempts, created)
    VALUES ('left', 'sweep', '{}', 'running', 1, 1.0);
INSERT INTO jobs (id, kind, question, state, attempts, created, ended, result)
    VALUES ('done', 'sweep', '{}', 'done', 1, 1.0, 2.0, '{"points": []}');
"""


def begun(store: JobStore) -> str:
    job = store.add("sweep", QUESTION, most=9)
    assert job is not None
    taken = store.take()
    assert taken is not None
    return taken[0].id


def test_a_server_that_starts_leaves_alone_what_another_works_on(tmp_path: Path) -> None:
    first, second = (JobStore(tmp_path / "jobs.sqlite3") for _ in range(2))
    first.open()
    job = begun(first)
    second.open()
    assert second.take() is None
    second.fail(job, "not mine")
    second.requeue(job)
    second.release()
    assert first.keep() == {job}
    assert second.keep() == frozenset()
    first.finish(job, "{}")
    assert second.result(job) == "{}"


def test_what_a_silent_server_left_is_queued_again(tmp_path: Path) -> None:
    first, second = (JobStore(tmp_path / "jobs.sqlite3") for _ in range(2))
    first.open()
    job = begun(first)
    with sqlite3.connect(first.path) as connection:
        connection.execute("UPDATE jobs SET seen = seen - ?", (SILENT_SECONDS + 1,))
    second.open()
    taken = second.take()
    assert taken is not None
    assert (taken[0].id, taken[0].attempts) == (job, 2)
    first.finish(job, "late")  # the silent server wakes up
    assert first.keep() == frozenset()
    assert second.result(job) is None


def test_a_server_that_ends_leaves_its_jobs_without_a_failed_attempt(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite3")
    store.open()
    job = begun(store)
    store.release()
    found = store.get(job)
    assert found is not None
    assert (found.state, found.attempts) == ("queued", 0)


def test_a_file_of_an_older_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.close()
    for _ in range(2):
        store = JobStore(path)
        store.open()
        assert store.result("done") == '{"points": []}'
    taken = store.take()
    assert taken is not None
    assert taken[0].id == "left"


def test_a_file_that_cannot_be_used_gets_one_sentence(tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite3"
    JobStore(newer).open()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    text, other = tmp_path / "text.sqlite3", tmp_path / "other.sqlite3"
    text.write_text("no database " * 500)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE jobs (title TEXT)")
    connection.close()
    damaged = tmp_path / "damaged.sqlite3"
    JobStore(damaged).open()
    damaged.write_bytes(damaged.read_bytes()[:4096] + b"\xff" * 8192)
    (tmp_path / "file").write_text("")
    for path, words in (
        (newer, "newer release"),
        (text, "not a database"),
        (other, "no such column"),
        (damaged, "malformed"),
        (tmp_path / "file" / "jobs.sqlite3", "File exists"),
        (tmp_path, "unable to open"),
    ):
        with pytest.raises(DatabaseError) as caught:
            JobStore(path).open()
        said = str(caught.value)
        assert str(path) in said
        assert words in said
        assert "--database" in said
        assert "\n" not in said


def test_a_large_result_is_kept(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite3")
    store.open()
    job = begun(store)
    text = "[" + "1234567890," * 5_000_000 + "0]"
    store.finish(job, text)
    assert store.result(job) == text


def test_a_partial_result_is_replaced_and_gives_way_to_the_whole_one(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite3")
    store.open()
    job = begun(store)
    assert store.partial(job) is None
    for text in ("[1]", "[1, 2]"):
        store.progress(job, 1, 3, None, text)
    store.progress(job, 2, 3)
    stand = store.get(job)
    assert stand is not None
    assert (stand.partials, store.partial(job)) == (2, "[1, 2]")
    other = begun(store)
    store.progress(other, 1, 3, None, "[9]")
    assert store.cancel(other)
    assert store.partial(other) == "[9]"
    store.finish(job, "[1, 2, 3]")
    assert store.partial(job) == "[1, 2, 3]"
