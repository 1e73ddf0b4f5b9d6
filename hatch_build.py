"""Builds the calculator's page into the package, where there is Node.js to do it with.

The page is a part of every wheel that is published. An installation from a checkout without
Node.js goes without it: everything but the page works, and ``tokenroom serve`` says so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageBuildHook(BuildHookInterface[Any]):
    """Runs before every build of a wheel, an editable one included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page unless it is newer than its sources."""
        root = Path(self.root)
        sources, built = root / "page", root / "src" / "tokenroom" / "web" / "page" / "index.html"
        if not sources.is_dir() or not _is_older(built, sources):
            return
        npm = shutil.which("npm")
        if npm is None:
            self.app.display_warning("npm is not installed: the page is left out of this build")
            return
        try:
            for words in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
                subprocess.run([npm, *words], cwd=sources, check=True)
        except subprocess.CalledProcessError as failed:
            if version != "editable":
                raise
            self.app.display_warning(f"the page could not be built ({failed}); it is left out")


def _is_older(built: Path, sources: Path) -> bool:
    if not built.is_file():
        return True
    parts = [*(sources / "src").rglob("*"), sources / "package-lock.json", sources / "build.mjs"]
    return built.stat().st_mtime < max(part.stat().st_mtime for part in parts)
