"""docs/engines.md is what the engines' own policies say."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_engine_table.py"


def test_the_page_is_up_to_date() -> None:
    script = runpy.run_path(str(SCRIPT))
    page: Path = script["PAGE"]
    assert page.read_text(encoding="utf-8") == script["engine_page"](), (
        "run python scripts/write_engine_table.py"
    )
