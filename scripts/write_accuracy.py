"""Write docs/accuracy.md: how far predictions are from what engines printed, and why.

    python scripts/write_accuracy.py ROWS

ROWS is a file of rows (docs/validation.md). Causes of large errors are recorded in
src/tokenroom/validation/data/explanations.json; a figure beyond 15% without one is listed as such.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from tokenroom.models.hub import HubOptions
from tokenroom.models.resolve import load_model
from tokenroom.reports.messages import Language
from tokenroom.reports.validation_markdown import group_table, row_table
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.statistics import by_class
from tokenroom.validation.validate import Validation, validate

TARGET = Path(__file__).parent.parent / "docs" / "accuracy.md"
LARGE_PCT = 15
INTRODUCTION = """\
# Accuracy

How far predictions are from what engines printed, over rows of measurements that were published
by people who ran them (`docs/validation.md` says what a row is). Everything here is written by
`python scripts/write_accuracy.py ROWS`, from the same code as `tokenroom validate ROWS`.

Every prediction is made from the model, the GPU, the engine's version and the flags alone; only
`kv_tokens_from_kv_gib` starts from the memory that the engine itself says it has for its cache.
Errors are in percent of the printed figure. Rows of grade A state model, GPU, number and the share
of memory; B leave the share at the engine's default; both count. C lack a model or GPU and are
shown apart. One configuration measured several times counts once.
"""


def known_only(name: str):  # type: ignore[no-untyped-def]
    return load_model(name, hub=HubOptions(offline=True))


def lines(found: Validation) -> Iterator[str]:
    english = Language.ENGLISH
    yield INTRODUCTION
    yield (
        f"{found.num_rows} rows, {len(found.comparisons)} figures compared, "
        f"{len(found.unpredicted)} rows not predicted, {len(found.partly)} in part, "
        f"{len(found.left_out)} left out."
    )
    yield from ("", "## By quantity (grades A and B)", "")
    yield from group_table(found.quantities, None, english)
    yield from ("", "## By version (grades A and B)", "")
    yield from group_table(found.versions, "version", english)
    yield from ("", "## By kind of model (grades A and B)", "")
    counted = by_class(item for item in found.comparisons if item.counts)
    yield from group_table(counted, "kind", english)
    yield from ("", "## Grade C, not counted", "")
    yield from group_table([item for item in found.groups if item.grade == "C"], "kind", english)
    yield from ("", f"## Every figure beyond {LARGE_PCT}%", "")
    large = [
        item
        for item in found.comparisons
        if item.error_pct is not None and abs(item.error_pct) > LARGE_PCT
    ]
    yield from row_table(large, english)
    yield from ("", "## Starts and failures", "")
    foreseen = sum(item.agrees for item in found.outcomes)
    yield f"{foreseen} of {len(found.outcomes)} foreseen. The others:"
    yield ""
    for item in found.outcomes:
        if not item.agrees:
            cause = f" ({item.cause})" if item.cause else ""
            why = f": {item.explained_by}" if item.explained_by else ""
            yield f"- `{item.id}`: observed {item.observed}, predicted {item.verdict}{cause}{why}"
    for title, items in (
        ("Not predicted", found.unpredicted),
        ("Predicted in part", found.partly),
        ("Left out", found.left_out),
    ):
        yield from ("", f"## {title}", "")
        for one in items:
            reason = " ".join(one.reason.split()).replace("<", "&lt;")
            yield f"- `{one.id}` ({one.engine}, {one.grade}): {reason}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    read = list(read_rows(Path(sys.argv[1])))
    bad = [item for item in read if isinstance(item, BadRow)]
    if bad:
        print(bad[0].reason, file=sys.stderr)
        return 2
    rows = [item for item in read if isinstance(item, Row)]
    found = validate(rows, predictor=Predictor(load=known_only))
    TARGET.write_text("\n".join(lines(found)) + "\n", encoding="utf-8")
    missing = [
        item
        for item in found.comparisons
        if item.counts
        and item.error_pct is not None
        and abs(item.error_pct) > LARGE_PCT
        and item.explained_by is None
    ]
    for item in missing:
        print(f"no cause recorded: {item.id} {item.quantity} {item.error_pct:+.1f}%")
    for check in found.outcomes:
        if not check.agrees and check.counts and check.explained_by is None:
            print(f"no cause recorded: {check.id} outcome")
    return 0


if __name__ == "__main__":
    sys.exit(main())
