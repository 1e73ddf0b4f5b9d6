"""Write docs/accuracy.md: how far predictions are from what engines printed, and why.

Figures by engine and quantity go to src/tokenroom/validation/data/accuracy.json, which the page
shows.

    python scripts/write_accuracy.py ROWS [SPEEDS...]

ROWS is a file of rows of memory (docs/validation.md), to which the rows that come with the package
are added (src/tokenroom/validation/data/*_rows.jsonl); SPEEDS are files of rows of speeds. Causes
of large errors of memory are recorded in src/tokenroom/validation/data/explanations.json; a figure
beyond 15% without one is listed as such.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenroom.models.hub import HubOptions
from tokenroom.models.resolve import load_model
from tokenroom.reports.messages import Language
from tokenroom.reports.validation_markdown import group_table, text_table
from tokenroom.reports.validation_speed import TextTable, speed_tables
from tokenroom.reports.validation_speed import group_table as speed_group_table
from tokenroom.reports.validation_text import error_text, figure_text, observed_text
from tokenroom.validation.comparison import Comparison
from tokenroom.validation.prediction import Predictor
from tokenroom.validation.reading import BadRow, read_rows
from tokenroom.validation.rows import Row
from tokenroom.validation.speed_statistics import SpeedGroup, speed_groups
from tokenroom.validation.statistics import by_class, percentile
from tokenroom.validation.validate import Unpredicted, Validation, validate

TARGET = Path(__file__).parent.parent / "docs" / "accuracy.md"
BUNDLED = Path(__file__).parent.parent / "src" / "tokenroom" / "validation" / "data"
FIGURES = BUNDLED / "accuracy.json"
LARGE_PCT = 15
SMALL_DIFFERENCE_GIB = 0.05
INTRODUCTION = """\
# Accuracy

How far predictions are from what engines printed, over rows of measurements that were published
by people who ran them (`docs/validation.md` says what a row is). Everything here is written by
`python scripts/write_accuracy.py ROWS [SPEEDS...]`, from the same code as `tokenroom validate`.
Memory comes first, [speed](#speed) at the end.

Two sets of rows: a collection that is not distributed, and rows that this project collected itself
and carries with it, for engines of which that collection has few
([listed below](#rows-of-this-project)).

## Summary

Errors are in percent of the printed figure, over rows of grades A and B.
"""
READING = """\
**How to read this.** Every prediction is made from the model, the GPU, the engine's version and the
flags alone; only `kv_tokens_from_kv_gib` starts from the memory that the engine itself says it has
for its cache, `kv_tokens_from_avail_for_kv_gib` from what TensorRT-LLM says is free before it takes
its share, and `kv_tokens_from_avail_gib` from what SGLang says is free before and after its
weights. Causes of errors were looked for, and rules corrected, with some of these rows in hand: the
figures describe how well the model fits them and are no blind test. What other processes held of a
GPU is told by no flag: in the rows named under "Memory that others held" it is taken from what the
engine itself prints as free ([validation.md](validation.md#how-flags-are-read)). For the tokens of
a pool the median is what to expect of a version and kind of model that was measured; the worst
value stands for a row listed below with its cause.

Rows of grade A state model, GPU, number and the share of memory; B leave the share at the engine's
default; both count. C lack a model or GPU and are shown apart. One configuration measured several
times counts once. Sizes printed below 0.1 GiB are left out of every percentage and are compared by
their difference in GiB.
"""
SPEED = """\
## Speed

Measured speeds against predictions, by `tokenroom validate`. Errors are in percent of the observed;
predicted/observed is the median; "in range" is the share of figures inside the predicted range.
Measurements that a coefficient was set on are in the last table alone, and each measurement counts
once. How speed is predicted and where it falls short is in [speed.md](speed.md).
"""
SUMMARY = {
    "tokens of the pool": "kv_tokens",
    "tokens from the printed memory": "kv_tokens_from_kv_gib",
    "tokens from the free memory printed": "kv_tokens_from_avail_(for_kv_)?gib",
    "memory of the pool": "kv_gib|kv_total_mib",
    "weights": "weights_gib",
    "activation": "activation_gib|[a-z]+[0-9]_compute_mib",
    "graphs": "graph_gib",
}
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
THIN = 10


def known_only(name: str):  # type: ignore[no-untyped-def]
    return load_model(name, hub=HubOptions(offline=True))


def summary_lines(found: Validation) -> Iterator[str]:
    """What to expect of each engine, and how many rows that rests on."""
    counted = [item for item in found.comparisons if item.counts]
    yield "| engine | figure | quantity | n | median | p90 | worst |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for engine in ENGINES:
        for label, pattern in SUMMARY.items():
            items = [
                item
                for item in counted
                if item.engine == engine
                and re.fullmatch(pattern, item.quantity)
                and not item.is_small
                and item.error_pct is not None
            ]
            if not items:
                continue
            names = ", ".join(sorted({f"`{item.quantity}`" for item in items}))
            if names.count("`") > 4:
                names = "compute buffers of the devices"
            errors = sorted(abs(item.error_pct or 0.0) for item in items)
            shown = [f"{percentile(errors, 0.5):.2f}%", f"{percentile(errors, 0.9):.2f}%"]
            shown.append(f"{errors[-1]:.2f}%")
            if len(errors) == 1:
                shown[:2] = ["", ""]
            yield f"| {engine} | {label} | {names} | {len(items)} | {' | '.join(shown)} |"
    rows = {
        engine: len({item.id for item in counted if item.engine == engine}) for engine in ENGINES
    }
    thin = [f"{engine} ({count})" for engine, count in rows.items() if count < THIN]
    yield ""
    yield f"Rows that count: {', '.join(f'{engine} {count}' for engine, count in rows.items())}."
    if thin:
        yield (
            f"Too few to say what to expect, and only examples: {', '.join(thin)}. What the table "
            "does not name was compared in no row; several figures may be of one row's devices."
        )
    yield ""
    agree = sum(item.agrees for item in found.outcomes)
    yield (
        f"Of {len(found.outcomes)} starts and failures for want of memory {agree} were foreseen. "
        f"{found.num_rows} rows in all, {len(found.comparisons)} figures compared; "
        f"{len(found.unpredicted)} rows were not predicted, {len(found.partly)} in part, and "
        f"{len(found.left_out)} left out (reasons at the end)."
    )


def large_lines(items: Sequence[Comparison], error: Callable[[Comparison], str]) -> Iterator[str]:
    """Figures under their cause."""
    by_cause: dict[str, list[Comparison]] = {}
    for item in items:
        by_cause.setdefault(item.explained_by or "no cause recorded", []).append(item)
    for cause, members in by_cause.items():
        yield f"- {plain(cause)}"
        for item in members:
            grade = "" if item.counts else f", grade {item.grade}"
            yield (
                f"  - `{item.id}` ({item.engine} {item.engine_version}{grade}) {item.quantity}: "
                f"predicted {figure_text(item.predicted)}, observed {observed_text(item)}, "
                f"{error(item)}"
            )


def reason_lines(items: Sequence[Unpredicted]) -> Iterator[str]:
    """Rows under the reason that they share."""
    by_reason: dict[str, list[Unpredicted]] = {}
    for item in items:
        by_reason.setdefault(plain(item.reason), []).append(item)
    for reason, members in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        names = ", ".join(f"`{one.id}` ({one.engine}, {one.grade})" for one in members)
        yield f"- {reason}: {names}"


def own_lines(rows: Sequence[Row]) -> Iterator[str]:
    """The rows that come with the package, and where each was read."""
    yield from ("", "## Rows of this project", "")
    yield (
        "`src/tokenroom/validation/data/*_rows.jsonl`, which `tokenroom validate` reads like any "
        "file: facts of public threads, posts and pages, every one found that states a pool or "
        "what is free for it, whether it is predicted well or not."
    )
    yield ""
    for row in rows:
        where = "; ".join(part for part in (row.url, plain(row.note)) if part)
        yield f"- `{row.id}` (grade {row.grade}): {where}"


def plain(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")


def lines(found: Validation, own: Sequence[Row]) -> Iterator[str]:
    english = Language.ENGLISH
    yield INTRODUCTION
    yield from summary_lines(found)
    yield ""
    yield READING
    yield from (f"## Every figure beyond {LARGE_PCT}%, by its cause", "")
    large = [item for item in found.comparisons if is_large(item)]
    yield from large_lines([item for item in large if item.counts], error_text)
    yield from ("", "Of grade C, or repeating another row:", "")
    yield from large_lines([item for item in large if not item.counts], error_text)
    small = [item for item in found.comparisons if item.is_small]
    far = [item for item in small if abs(item.predicted - item.observed) > SMALL_DIFFERENCE_GIB]
    near = len(small) - len(far)
    yield from ("", "### Sizes below 0.1 GiB", "")
    yield (
        f"{near} of {len(small)} are within {SMALL_DIFFERENCE_GIB} GiB of the printed figure"
        + (". The others:" if far else ".")
    )
    yield ""
    yield from large_lines(far, error_text)
    yield from ("", "## Memory that others held", "")
    for remark in found.remarks:
        if remark.key == "held":
            yield f"- `{remark.id}`: {remark.values['held']} of each GPU"
    yield from ("", "## Starts and failures that were not foreseen", "")
    for item in found.outcomes:
        if not item.agrees:
            cause = f" ({item.cause})" if item.cause else ""
            why = f": {item.explained_by}" if item.explained_by else ""
            yield f"- `{item.id}`: observed {item.observed}, predicted {item.verdict}{cause}{why}"
    if all(item.agrees for item in found.outcomes):
        yield "None."
    warned = [item for item in found.outcomes if item.agrees and item.by_warning]
    yield ""
    yield "Failures of which only a warning beside the verdict told:"
    yield ""
    for item in warned:
        yield f"- `{item.id}`: {', '.join(item.warnings)}"
    counted = by_class(item for item in found.comparisons if item.counts)
    tables = (
        ("By quantity", found.quantities, None),
        ("By version", found.versions, "version"),
        ("By kind of model", counted, "kind"),
    )
    for title, groups, column in tables:
        yield from ("", f"## {title} (grades A and B, two figures or more)", "")
        yield from group_table([item for item in groups if item.n > 1], column, english)
    yield from ("", "## Grade C, not counted", "")
    yield from group_table([item for item in found.groups if item.grade == "C"], "kind", english)
    for title, items in (
        ("Not predicted", found.unpredicted),
        ("Predicted in part", found.partly),
        ("Left out", found.left_out),
    ):
        yield from ("", f"## {title}", "")
        yield from reason_lines(items)
    yield from ("", "## Groups of a single figure", "")
    yield "Quantities, and versions of others, of which one figure was compared."
    single = {(item.engine, item.quantity) for item in found.quantities if item.n == 1}
    yield ""
    yield from group_table([item for item in found.quantities if item.n == 1], None, english)
    yield ""
    others = [
        item
        for item in found.versions
        if item.n == 1 and (item.engine, item.quantity) not in single
    ]
    yield from group_table(others, "version", english)
    yield from own_lines(own)


def speed_lines(found: Validation) -> Iterator[str]:
    """Errors of speeds, and how many rows have no prediction for which reason."""
    english = Language.ENGLISH
    yield from ("", SPEED)
    yield (
        f"{found.num_rows:,} rows, {len(found.speeds):,} figures compared, of which "
        f"{len(found.counted_speeds):,} count; {len(found.unpredicted):,} rows have no prediction."
    )
    for table in speed_tables(found, english):
        yield from ("", f"### {table.title}", "", *text_table(table))
    stated = [item for item in found.counted_speeds if not item.derived]
    groups = speed_groups(stated, "engine", "engine_version", "gpu")
    by = ("engine", "engine_version", "gpu")
    table = group_table_of_speeds("By version and GPU, ten figures or more", groups, by)
    yield from ("", f"### {table.title}", "", *text_table(table))
    yield from ("", "### Speeds without a prediction", "")
    by_reason = Counter(plain(item.reason) for item in found.unpredicted)
    for reason, count in by_reason.most_common():
        yield f"- {count} rows: {reason}"


def group_table_of_speeds(title: str, groups: Sequence[SpeedGroup], by: Sequence[str]) -> TextTable:
    large = [group for group in groups if group.n >= THIN]
    return speed_group_table(title, large, by, Language.ENGLISH)


def is_large(item: Comparison) -> bool:
    error = item.error_pct
    return not item.is_small and error is not None and abs(error) > LARGE_PCT


def figures(found: Validation) -> dict[str, Any]:
    """Errors by engine and quantity, and how many ends of starts were foreseen."""
    counted = [check for check in found.outcomes if check.counts]
    return {
        "num_rows": found.num_rows,
        "outcomes": {"n": len(counted), "foreseen": sum(check.agrees for check in counted)},
        "by_quantity": [
            {
                "engine": group.engine,
                "quantity": group.quantity,
                "n": group.n,
                "median_abs_pct": round(group.median_abs_pct, 4),
                "p90_abs_pct": round(group.p90_abs_pct, 4),
                "worst_abs_pct": round(group.worst_abs_pct, 4),
            }
            for group in found.quantities
        ],
    }


def speed_figures(found: Validation) -> list[dict[str, Any]]:
    """Errors of measured speeds that count, by engine and quantity."""
    stated = [item for item in found.counted_speeds if not item.derived]
    return [
        {
            "engine": group.engine,
            "quantity": group.quantity,
            "n": group.n,
            "median_abs_pct": round(group.median_abs_pct, 4),
            "p90_abs_pct": round(group.p90_abs_pct, 4),
            "median_ratio": round(group.bias, 4),
            "inside_share": round(group.inside_share, 4),
        }
        for group in speed_groups(stated, "engine")
    ]


def read_files(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for path in paths:
        for item in read_rows(path):
            if isinstance(item, BadRow):
                raise SystemExit(item.reason)
            rows.append(item)
    return rows


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    given, speeds = read_files([Path(sys.argv[1])]), read_files(map(Path, sys.argv[2:]))
    own = read_files(sorted(BUNDLED.glob("*_rows.jsonl")))
    predictor = Predictor(load=known_only)
    found = validate([*given, *own], predictor=predictor)
    text = "\n".join(lines(found, own)) + "\n"
    told = figures(found) | {"speeds": []}
    if speeds:
        measured = validate(speeds, predictor=predictor)
        text += "\n".join(speed_lines(measured)) + "\n"
        told["speeds"] = speed_figures(measured)
    TARGET.write_text(text, encoding="utf-8")
    FIGURES.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    missing = [
        item
        for item in found.comparisons
        if item.counts and is_large(item) and item.explained_by is None
    ]
    for item in missing:
        print(f"no cause recorded: {item.id} {item.quantity} {error_text(item)}")
    for check in found.outcomes:
        if not check.agrees and check.counts and check.explained_by is None:
            print(f"no cause recorded: {check.id} outcome")
    return 0


if __name__ == "__main__":
    sys.exit(main())
