import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "plan.md"


def test_the_page_s_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert int(capsys.readouterr().out) >= 1
