"""Read the command-line flags of SGLang out of its source trees into one compact data file.

Nothing of SGLang is imported: ``add_argument`` calls and annotated fields (``A[int, Arg(...)]``,
since 0.5.13) are read with ``ast``. Run:

    python scripts/extract_sglang_flags.py OUT.json SOURCE_DIR...

Each SOURCE_DIR is an unpacked wheel called ``sglang-VERSION``. The file holds
``{"versions": [...], "flags": [[names, dest, kind, nargs, since, until], ...]}``: ``since`` is the
first version read that has the flag in this form, ``until`` the first that has it no more (null
while it lasts). Kinds: ``flag``, ``switch`` (with ``--no-``), ``int``, ``human-int``, ``float``,
``str``, ``json``.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

Row = tuple[tuple[str, ...], str, str, str | None]


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version, ``0.4.8.post1`` after ``0.4.8``."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def kind_of(annotation: str, parser: str | None, action: str | None) -> str:
    """How a value is read, from its type annotation or ``type=``."""
    if action in ("store_true", "store_false", "store_const") or "StoreTrue" in (action or ""):
        return "flag"
    if action == "BooleanOptionalAction":
        return "switch"
    text = parser or annotation
    for word, kind in (
        ("human_readable_int", "human-int"),
        ("json", "json"),
        ("float", "float"),
        ("int", "int"),
        ("bool", "flag"),
    ):
        if re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", text):
            return kind
    return "str"


def from_call(call: ast.Call) -> Row | None:
    """The flag of a ``parser.add_argument`` call."""
    names = tuple(
        item.value
        for item in call.args
        if isinstance(item, ast.Constant) and str(item.value).startswith("-")
    )
    if not names:
        return None
    given = {word.arg: word.value for word in call.keywords if word.arg}
    action = ast.unparse(given["action"]).strip("'\"").split(".")[-1] if "action" in given else None
    parser = ast.unparse(given["type"]) if "type" in given else None
    nargs = given["nargs"].value if isinstance(given.get("nargs"), ast.Constant) else None
    long = next((name for name in names if name.startswith("--")), names[0])
    dest = given["dest"].value if "dest" in given else long.lstrip("-").replace("-", "_")
    return names, dest, kind_of("", parser or "str", action), nargs


def from_field(item: ast.AnnAssign) -> Row | None:
    """The flag of an annotated field."""
    annotation = item.annotation
    if not (
        isinstance(item.target, ast.Name)
        and isinstance(annotation, ast.Subscript)
        and ast.unparse(annotation.value) == "A"
        and isinstance(annotation.slice, ast.Tuple)
    ):
        return None
    kind_text = ast.unparse(annotation.slice.elts[0])
    given: dict[str | None, ast.expr] = {}
    for extra in annotation.slice.elts[1:]:
        if isinstance(extra, ast.Call) and ast.unparse(extra.func) == "Arg":
            given |= {word.arg: word.value for word in extra.keywords}
    if "no_cli" in given or item.target.id.startswith("_"):
        return None
    name = item.target.id
    cli = given.get("cli_name")
    names = [cli.value if isinstance(cli, ast.Constant) else "--" + name.replace("_", "-")]
    if isinstance(given.get("aliases"), ast.List):
        names += [part.value for part in given["aliases"].elts if isinstance(part, ast.Constant)]
    names = [text if text.startswith("-") else "--" + text for text in names]
    action = ast.unparse(given["action"]).strip("'\"").split(".")[-1] if "action" in given else None
    parser = ast.unparse(given["type_parser"]) if "type_parser" in given else None
    if "Dict" in kind_text and parser is None:
        parser = "json"
    nargs = None
    if isinstance(given.get("nargs"), ast.Constant):
        nargs = given["nargs"].value
    elif "List[" in kind_text and parser is None:
        nargs = "+"
    kind = kind_of(kind_text, parser, action)
    return tuple(names), name, kind, nargs


def flags_of(root: Path) -> dict[str, Row]:
    """Every flag of a version by its destination."""
    files = [root / "sglang/srt/server_args.py", *root.glob("sglang/srt/arg_groups/**/*.py")]
    found: dict[str, Row] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            row = None
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
                row = from_call(node)
            elif isinstance(node, ast.AnnAssign):
                row = from_field(node)
            if row is not None and row[0][0] not in ("-h", "--config"):
                before = found.get(row[1])
                names = tuple(dict.fromkeys((*(before[0] if before else ()), *row[0])))
                found[row[1]] = (names, *(row[1:] if before is None else before[1:]))
    return found


def main(out: str, roots: list[str]) -> None:
    """Write the table of all versions."""
    trees = {Path(root).name.removeprefix("sglang-"): Path(root) for root in roots}
    versions = sorted(trees, key=version_key)
    open_rows: dict[Row, str] = {}
    rows: list[list[object]] = []
    for version in versions:
        present = set(flags_of(trees[version]).values())
        for row in sorted(set(open_rows) - present):
            rows.append([*row, open_rows.pop(row), version])
        for row in present:
            open_rows.setdefault(row, version)
    rows += [[*row, since, None] for row, since in open_rows.items()]
    rows.sort(key=lambda row: (str(row[1]), version_key(str(row[4]))))
    lines = ",\n".join(json.dumps(row) for row in rows)
    Path(out).write_text(f'{{"versions": {json.dumps(versions)},\n"flags": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
