"""The page without a server: files for any web host, with Python in the browser.

The formulas are the library's own: its modules go along, and Pyodide runs them there.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from tokenroom.errors import CommandLineError
from tokenroom.web import catalogues
from tokenroom.web.bridge import DEFAULTS
from tokenroom.web.questions import FORMS

_WEB: Final = Path(__file__).parent
_PACKAGE: Final = _WEB.parent
_SERVER_ONLY: Final = frozenset({"cli", "page", "runtime", "__pycache__"})
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def write_site(out: Path) -> int:
    """Write the files of a server-less page.

    Args:
        out: Folder to make; an empty one may be there.

    Returns:
        Bytes written.

    Raises:
        CommandLineError: The folder holds something, cannot be written, or the page was not built
            into this installation.
    """
    page, runtime = _WEB / "page", _WEB / "runtime"
    if not (page / "index.html").is_file() or not runtime.is_dir():
        raise CommandLineError(
            "the page was not built into this installation; with Node.js, scripts/build_page "
            "builds it"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CommandLineError(f"{out} is there already and not an empty folder; name a new one")
    try:
        shutil.copytree(page, out, dirs_exist_ok=True)
        shutil.copytree(runtime, out / "runtime")
        _write_index(out / "index.html")
        _write_lists(out / "data")
        _write_package(out / "tokenroom.zip")
    except OSError as error:
        raise CommandLineError(
            f"{out} cannot be written: {error.strerror or error}; name another folder"
        ) from error
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def _write_index(index: Path) -> None:
    """The page's frame, told that it has no server."""
    marks = (
        f'<meta http-equiv="content-security-policy" content="{_POLICY}" />\n    '
        '<meta name="tokenroom" content="alone" />\n    '
    )
    text = index.read_text("utf-8")
    index.write_text(text.replace("<title>", marks + "<title>", 1), encoding="utf-8")


def _write_lists(folder: Path) -> None:
    folder.mkdir()
    for name, text in (
        ("models", catalogues.models_text()),
        ("gpus", catalogues.gpus_text()),
        ("engines", catalogues.engines_text()),
        ("workloads", catalogues.workloads_text()),
        ("accuracy", catalogues.accuracy_text()),
        ("claims", catalogues.claims_text()),
    ):
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _write_package(archive: Path) -> None:
    """The library and what reads YAML, as one archive."""
    defaults = {kind: _defaults_of(form) for kind, form in FORMS.items()}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for file in _library():
            packed.write(file, Path("tokenroom") / file.relative_to(_PACKAGE))
        packed.writestr(f"tokenroom/web/{DEFAULTS}", json.dumps(defaults))
        import yaml

        for file in sorted(Path(yaml.__file__).parent.glob("*.py")):
            packed.write(file, Path("yaml") / file.name)


def _defaults_of(form: type[BaseModel]) -> dict[str, Any]:
    """What a form's fields hold unasked; a form within a form is an object under ``forms``."""
    found = {
        name: field.get_default(call_default_factory=True)
        for name, field in form.model_fields.items()
        if not field.is_required()
    }
    forms = {name: value for name, value in found.items() if isinstance(value, BaseModel)}
    return {
        "fields": {name: value for name, value in found.items() if name not in forms},
        "forms": {name: value.model_dump() for name, value in forms.items()},
    }


def _library() -> Iterator[Path]:
    for file in sorted(_PACKAGE.rglob("*")):
        inside = file.relative_to(_PACKAGE)
        if file.is_file() and _SERVER_ONLY.isdisjoint(inside.parts):
            yield file
