from pathlib import Path

import pytest

from tokenroom.errors import StoreError
from tokenroom.execution.store import Store


def test_answers_are_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    store.put("q1", "one", {"value": 0.1 + 0.2})
    store.close()
    again = Store(tmp_path / "runs")
    assert again.get("q1") == {"value": 0.1 + 0.2}
    assert again.get("q2") is None
    again.close()


def test_a_line_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    for number in range(2):
        store = Store(tmp_path)
        store.put(f"q{number}", "a", {"value": number})
        store.put("cut", "b", {"value": 2})
        store.close()
        file.write_bytes(file.read_bytes()[:-9])
    store = Store(tmp_path)
    assert [store.get(key) for key in ("q0", "q1", "cut")] == [{"value": 0}, {"value": 1}, None]
    store.put("cut", "b", {"value": 2})
    store.close()
    store = Store(tmp_path)
    assert store.get("cut") == {"value": 2}
    store.close()


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"question": "a", "answer": 1}\n{"id": 5}\n')
    with pytest.raises(StoreError, match=r"line 2 of .* is no answer of tokenroom"):
        Store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "file")
