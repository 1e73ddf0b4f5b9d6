"""Write docs/engines.md: which engine reserves what, when, and of what.

Every row comes from the ``reserves`` of an engine's policy, so that the page cannot say anything
else than the code. Run after changing one:
    python scripts/write_engine_table.py
"""

from __future__ import annotations

from pathlib import Path

from tokenroom.engines.registry import engine_named, engine_names, engine_title

PAGE = Path(__file__).parent.parent / "docs" / "engines.md"
_HEAD = """\
# Which engine reserves what, when, and of what

Engines differ less in how many bytes a token takes than in what they set aside before the first
request: a share of the whole card, a share of what is left after the weights, the exact size of
their buffers, or nothing. The same "0.9" therefore means four different things. The tables below
are written by `scripts/write_engine_table.py` from the policies that `tokenroom fit --engine NAME`
runs.
"""


def engine_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for name in engine_names():
        policy, _ = engine_named(name)
        reserves = getattr(policy, "reserves", ())
        if not reserves:
            continue
        parts.append(f"\n## {engine_title(name)} (`--engine {name}`)\n\n")
        parts.append("| what | when | of what | setting and default | source |\n")
        parts.append("|---|---|---|---|---|\n")
        for item in reserves:
            cells = (item.what, item.when, item.of_what, item.default, item.source)
            parts.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(engine_page(), encoding="utf-8")
