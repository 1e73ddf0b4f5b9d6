"""Read the command-line flags of vLLM out of its source trees into one compact data file.

Nothing of vLLM is imported: ``add_cli_args`` and the config dataclasses are read with ``ast``, and
the rules of ``EngineArgs._compute_kwargs`` turn each field's annotation into an argument kind. Run:

    python scripts/extract_vllm_flags.py OUT.json SOURCE_DIR...

Each SOURCE_DIR is an unpacked source distribution called ``vllm-VERSION``; a post-release stands
for the release it follows.

For every flag the file holds one row per change:
``{"names": [...], "dest": ..., "kind": ..., "nargs"?, "choices"?, "optional"?, "since": ...,
"until"?: ...}``. ``since`` is the first version read that has the row, ``until`` the first that
has it no more.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

CONFIG_SWITCH = "BooleanOptionalAction"


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Source:
    """The aliases, dataclasses and functions of one version that flags are made of."""

    def __init__(self, root: Path) -> None:
        package = root / "vllm"
        files = [
            *package.glob("config.py"),
            *package.glob("config/*.py"),
            *package.glob("model_executor/layers/quantization/__init__.py"),
            *package.glob("entrypoints/openai/cli_args.py"),
            *package.glob("entrypoints/launchers/cli_args.py"),
            *package.glob("entrypoints/common/cli_args.py"),
            *package.glob("engine/arg_utils.py"),
        ]
        self.aliases: dict[str, ast.expr] = {}
        self.fields: dict[str, dict[str, ast.expr]] = {}
        self.bases: dict[str, list[str]] = {}
        self.dataclasses: set[str] = set()
        self.trees = {file: ast.parse(file.read_text()) for file in files}
        for tree in self.trees.values():
            self._scan(tree.body)
        self.arg_utils = self.trees[package / "engine" / "arg_utils.py"]
        self.human_ints = self._human_ints()

    def _scan(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.aliases.setdefault(node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if node.value is not None:
                    self.aliases.setdefault(node.target.id, node.value)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                self._scan(node.orelse)
            elif isinstance(node, ast.ClassDef):
                decorators = " ".join(ast.unparse(item) for item in node.decorator_list)
                if "dataclass" in decorators or "config" in decorators:
                    self.dataclasses.add(node.name)
                self.bases[node.name] = [ast.unparse(base) for base in node.bases]
                self.fields[node.name] = {
                    item.target.id: item.annotation
                    for item in node.body
                    if isinstance(item, ast.AnnAssign)
                    and isinstance(item.target, ast.Name)
                    and "ClassVar" not in ast.unparse(item.annotation)
                }

    def _human_ints(self) -> dict[str, str]:
        """Fields whose integers may be written with a suffix, per ``_compute_kwargs``."""
        found: dict[str, str] = {}
        text = ast.unparse(self.arg_utils)
        if "human_readable_int" not in text:
            return found
        for node in ast.walk(self.arg_utils):
            if isinstance(node, ast.Set | ast.Tuple):
                names = [item.value for item in node.elts if isinstance(item, ast.Constant)]
                if len(names) == len(node.elts) and (
                    {"max_num_batched_tokens", "max_model_len"} & set(names)
                ):
                    found.update({str(name): "human-int" for name in names})
        if "human_readable_int_or_auto" in text:
            found["max_model_len"] = "human-int-or-auto"
        return found

    def class_fields(self, name: str) -> dict[str, ast.expr]:
        fields: dict[str, ast.expr] = {}
        for base in self.bases.get(name, []):
            fields.update(self.class_fields(base))
        return {**fields, **self.fields.get(name, {})}

    def _is_dict(self, name: str) -> bool:
        return any(base.startswith(("dict", "Dict")) for base in self.bases.get(name, []))

    def hints(self, node: ast.expr) -> list[ast.expr]:
        """The members of a union, aliases resolved, ``Annotated`` and ``Optional`` opened."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.hints(ast.parse(node.value, mode="eval").body)
        if isinstance(node, ast.BinOp):
            return self.hints(node.left) + self.hints(node.right)
        if isinstance(node, ast.Subscript):
            head = ast.unparse(node.value).split(".")[-1]
            inner = node.slice
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if head == "Annotated" or head == "SkipValidation":
                return self.hints(items[0])
            if head == "Optional":
                return [*self.hints(items[0]), ast.Constant(None)]
            if head == "Union":
                return [hint for item in items for hint in self.hints(item)]
        if isinstance(node, ast.Name) and node.id in self.aliases:
            target = self.aliases[node.id]
            if isinstance(target, ast.Subscript | ast.BinOp | ast.Name):
                return self.hints(target)
        return [node]

    def literals(self, node: ast.expr) -> list[Any]:
        """Values of a ``Literal[...]``, nested aliases included."""
        if not isinstance(node, ast.Subscript):
            return [
                value
                for hint in self.hints(node)
                if hint is not node
                for value in self.literals(hint)
            ]
        inner = node.slice
        values = []
        for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            if isinstance(item, ast.Constant):
                values.append(item.value)
            elif isinstance(item, ast.Name):
                values += self.literals(item)
        return values

    def kind_of(self, name: str, annotation: ast.expr) -> dict[str, Any]:
        """What ``_compute_kwargs`` makes of a field with this annotation."""
        hints = self.hints(annotation)
        heads = []
        for hint in hints:
            text = ast.unparse(hint.value if isinstance(hint, ast.Subscript) else hint)
            heads.append(
                text.split(".")[-1].lower()
                if text.split(".")[-1] in ("List", "Dict", "Tuple", "Set", "Type")
                else text.split(".")[-1]
            )
        optional = "None" in heads
        row: dict[str, Any]
        if any(head in self.dataclasses for head in heads):
            row = {"kind": "config"}
        elif sorted(heads) == ["None", "bool", "str"]:
            return {"kind": "flag-or-str"}
        elif "bool" in heads:
            return {"kind": "switch"}
        elif "Literal" in heads:
            values = [
                v for h in hints if ast.unparse(h).startswith("Literal") for v in self.literals(h)
            ]
            kind = "int" if all(isinstance(value, int) for value in values) else "str"
            row = {"kind": kind}
            if "str" not in heads:
                row["choices"] = sorted(values)
        elif {"tuple", "list", "set", "Sequence", "Collection"} & set(heads):
            hint = next(
                h for h, head in zip(hints, heads, strict=True) if head in ("tuple", "list", "set")
            )
            assert isinstance(hint, ast.Subscript)
            inner = hint.slice
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            element = self.kind_of(name, items[0])["kind"] if ast.unparse(items[0]) else "str"
            if len(self.hints(items[0])) > 1:
                element = "str"
            row = {"kind": element, "nargs": "+"}
        elif "int" in heads:
            row = {"kind": self.human_ints.get(name, "int")}
        elif "float" in heads:
            row = {"kind": "float"}
        elif any(head in ("dict", "Mapping") or self._is_dict(head) for head in heads):
            others = {h for h in heads if not self._is_dict(h)} - {"dict", "Mapping", "None"}
            row = {"kind": "json-or-str" if others else "json"}
        else:
            row = {"kind": "str"}
        if optional:
            row["optional"] = True
        return row


def explicit_kind(source: Source, keywords: dict[str, ast.expr]) -> dict[str, Any]:
    """The kind that the literal keywords of an ``add_argument`` call say."""
    row: dict[str, Any] = {}
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    if CONFIG_SWITCH in action:
        return {"kind": "switch"}
    if "store_true" in action:
        return {"kind": "flag"}
    if "StoreBoolean" in action:
        return {"kind": "bool-value"}
    if "append" in action:
        row["append"] = True
    if "type" in keywords:
        text = ast.unparse(keywords["type"])
        names = {
            "int": "int",
            "float": "float",
            "str": "str",
            "json.loads": "json",
            "nullable_kvs": "key-values",
            "human_readable_int": "human-int",
            "human_readable_int_or_auto": "human-int-or-auto",
        }
        if text.startswith("optional_type(") or text == "nullable_str":
            row["optional"] = True
            text = text.removeprefix("optional_type(").removesuffix(")")
        if ".lower().replace(" in text:
            names[text] = "lower-str"
        row["kind"] = names.get(text, "json" if "from_cli" in text or "json" in text else "str")
    if "nargs" in keywords and isinstance(keywords["nargs"], ast.Constant):
        row["nargs"] = keywords["nargs"].value
    if "choices" in keywords:
        choices = keywords["choices"]
        if isinstance(choices, ast.List) and all(isinstance(c, ast.Constant) for c in choices.elts):
            row["choices"] = [c.value for c in choices.elts if isinstance(c, ast.Constant)]
        elif "get_args(" in ast.unparse(choices):
            assert isinstance(choices, ast.Call)
            row["choices"] = source.literals(choices.args[0])
    return row


def calls_of(source: Source, function: ast.FunctionDef) -> list[dict[str, Any]]:
    """The flags one ``add_cli_args`` (or ``make_arg_parser``) adds, in order."""
    kwargs_of: dict[str, str] = {}
    field_of: dict[str, tuple[str, str]] = {}
    overridden: dict[tuple[str, str], ast.expr] = {}
    rows = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], ast.unparse(node.value)
            if isinstance(target, ast.Name) and value.startswith("get_kwargs("):
                name, _, rest = value.removeprefix("get_kwargs(").partition(")")
                if rest.startswith("['"):
                    field_of[target.id] = (name, rest[2:-2])
                else:
                    kwargs_of[target.id] = name
            elif isinstance(target, ast.Name) and isinstance(node.value, ast.Subscript):
                owner = ast.unparse(node.value.value)
                if owner in kwargs_of and isinstance(node.value.slice, ast.Constant):
                    field_of[target.id] = (kwargs_of[owner], str(node.value.slice.value))
            elif isinstance(target, ast.Subscript) and ast.unparse(target.slice) == "'type'":
                inner = target.value
                if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
                    owner = kwargs_of.get(ast.unparse(inner.value), "")
                    overridden[(owner, str(inner.slice.value))] = node.value
                elif ast.unparse(inner) in field_of:
                    overridden[field_of[ast.unparse(inner)]] = node.value
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument")):
            continue
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        if not names or not str(names[0]).startswith("-"):
            continue
        keywords = {item.arg: item.value for item in node.keywords if item.arg}
        row: dict[str, Any] = {"kind": "str"}
        for item in node.keywords:
            if item.arg is not None:
                continue
            spread, extra = item.value, {}
            if isinstance(spread, ast.Dict):
                extra = {
                    key.value: value
                    for key, value in zip(spread.keys, spread.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                spread = next(
                    v for k, v in zip(spread.keys, spread.values, strict=True) if k is None
                )
            if isinstance(spread, ast.Subscript) and isinstance(spread.slice, ast.Constant):
                place = (kwargs_of[ast.unparse(spread.value)], str(spread.slice.value))
            else:
                place = field_of[ast.unparse(spread)]
            annotation = source.class_fields(place[0]).get(place[1])
            if annotation is not None:
                row = source.kind_of(place[1], annotation)
            if place in overridden:
                changed = explicit_kind(source, {"type": overridden[place]})
                row = {**row, **changed}
            keywords = {**keywords, **extra}
        row.update(explicit_kind(source, keywords))
        long_names = [str(name) for name in names if str(name).startswith("--")]
        dest = long_names[0] if long_names else str(names[0])
        if "dest" in keywords:
            row["dest"] = ast.literal_eval(keywords["dest"])
        else:
            row["dest"] = dest.lstrip("-").replace("-", "_")
        row["names"] = [str(name) for name in names]
        rows.append(row)
    return rows


def frontend_rows(source: Source) -> list[dict[str, Any]]:
    rows = []
    if "FrontendArgs" not in source.fields:
        return rows
    for name, annotation in source.class_fields("FrontendArgs").items():
        row = source.kind_of(name, annotation)
        if name in ("allowed_origins", "allowed_methods", "allowed_headers"):
            row = {"kind": "json"}
        elif name == "middleware":
            row = {"kind": "str", "append": True}
        elif name == "lora_modules":
            row = {"kind": "str", "nargs": "+"}
        elif name == "disable_access_log_for_endpoints":
            row = {"kind": "str"}
        rows.append({**row, "dest": name, "names": [f"--{name.replace('_', '-')}"]})
    return rows


def read_version(root: Path) -> dict[str, dict[str, Any]]:
    """Every flag of ``vllm serve`` in one source tree, by its destination."""
    source = Source(root)
    rows = frontend_rows(source)
    for tree in source.trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in (
                "add_cli_args",
                "make_arg_parser",
                "_add_frontend_args",
            ):
                rows += calls_of(source, node)
    inverse = "EnableDisableAction" in "".join(
        path.read_text() for path in (root / "vllm/utils").glob("argparse_utils.py")
    )
    flags = {}
    for row in rows:
        if inverse and row["kind"] == "switch":
            row["kind"] = "enable-disable"
        flags[row["names"][0] if len(row["names"]) == 1 else max(row["names"], key=len)] = row
    return flags


def merge(versions: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per change of each flag over the versions, oldest first."""
    ordered = sorted(versions, key=version_key)
    merged: list[dict[str, Any]] = []
    current: dict[str, dict[str, Any]] = {}
    for version in ordered:
        flags = versions[version]
        for key, row in list(current.items()):
            plain = {name: value for name, value in row.items() if name != "since"}
            if flags.get(key) != plain:
                row["until"] = version
                del current[key]
        for key, row in flags.items():
            if key not in current:
                current[key] = {**row, "since": version}
                merged.append(current[key])
    return sorted(merged, key=lambda row: (row["dest"], version_key(row["since"])))


def main() -> None:
    out, *roots = sys.argv[1:]
    versions = {
        Path(root).name.removeprefix("vllm-").split(".post")[0]: read_version(Path(root))
        for root in roots
    }
    rows = merge(versions)
    header = {"versions": sorted(versions, key=version_key)}
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    Path(out).write_text(
        f'{{"versions": {json.dumps(header["versions"])},\n"flags": [\n{lines}\n]}}\n'
    )
    print(f"{len(rows)} rows, {[(v, len(versions[v])) for v in header['versions']]}")


if __name__ == "__main__":
    main()
