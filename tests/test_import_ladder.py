"""Imports go down one ladder only, and importing the library costs the standard library alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenroom

PACKAGE = Path(tokenroom.__file__).parent

# A module may import its own package and what stands on lower rungs.
LADDER = (
    {"errors"},
    {"units", "files"},
    {"hardware", "models", "benchmarks", "execution"},
    {"memory"},
    {"engines"},
    {"performance"},
    {"fitting", "serving_drafting", "profiles"},
    {"borderline", "growth", "serving_terms", "step_ledger", "profile_files"},
    {"serving_speed"},
    {"serving"},
    {"calibrating", "objectives", "comparing"},
    {"measuring"},
    {"regimes", "planning"},
    {"lookup"},
    {"claims"},
    {"validation"},
    {"diagnosis"},
    {"watching"},
    {"reports"},
    {"web"},
    {"cli"},
    {"__main__"},
)
RUNG = {name: height for height, names in enumerate(LADDER) for name in names}
# Libraries that modules of a package may import when they are loaded.
LIBRARIES = {
    "cli": {"click"},
    "web": {"fastapi", "pebble", "prometheus_client", "pydantic", "pydantic_core", "starlette"}
    | {"uvicorn"},
    "serving/compiled": {"numba", "numpy"},
    "measuring/in_torch": {"torch", "transformers"},
}
LOADED_FIRST = {"serving/compiled/__init__.py", "serving/compiled/coverage.py"}
"""Modules there that say whether the others can be loaded."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.Module, path: Path) -> Iterator[tuple[str, bool]]:
    """Every absolute module name imported, and whether that happens when the file is loaded."""
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} line {node.lineno}: relative import"
            assert node.module is not None
            if node.module == "tokenroom":
                for alias in node.names:
                    yield f"tokenroom.{alias.name}", id(node) not in late
            else:
                yield node.module, id(node) not in late


def part_of(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_downwards_only(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    if own == "__init__":
        return  # the front door offers names of every rung
    for name, _ in imported(ast.parse(path.read_text(encoding="utf-8")), path):
        if name.split(".")[0] != "tokenroom":
            continue
        other = part_of(name)
        assert other in RUNG, f"{relative} imports {name}, which has no rung"
        assert own in RUNG, f"{relative} has no rung"
        assert other == own or RUNG[other] < RUNG[own], f"{relative} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_edges_load_other_libraries_at_once(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    allowed = LIBRARIES.get(relative.parts[0], set())
    if relative.as_posix() not in LOADED_FIRST:
        allowed = allowed | LIBRARIES.get(relative.parent.as_posix(), set())
    for name, at_once in imported(ast.parse(path.read_text(encoding="utf-8")), path):
        top = name.split(".")[0]
        if at_once and top != "tokenroom" and top not in sys.stdlib_module_names:
            assert top in allowed, f"{relative} imports {name} when it is loaded"


def test_help_loads_neither_tables_nor_models() -> None:
    code = (
        "import sys; from tokenroom.cli.main import main; main(['--help']); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('rich', 'yaml', 'matplotlib', 'numpy', 'httpx', 'huggingface_hub', 'pydantic') or "
        "name.startswith(('tokenroom.models', 'tokenroom.engines', 'tokenroom.hardware'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_public_names_are_these_and_no_submodule_hides_one() -> None:
    import importlib

    import tokenroom

    assert tokenroom.__all__ == [
        "Accelerator",
        "FitResult",
        "ModelSpec",
        "Node",
        "ServingSpeed",
        "TokenroomError",
        "find_accelerator",
        "fit",
        "load_limits",
        "load_model",
        "speed",
        "sweep",
    ]
    for module in set(tokenroom._HOMES.values()):
        importlib.import_module(module)
    for name in tokenroom.__all__:
        assert callable(getattr(tokenroom, name)), name


def test_every_public_name_is_listed() -> None:
    assert set(tokenroom.__all__) <= set(dir(tokenroom))
