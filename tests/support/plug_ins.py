"""Packages with plug-ins, installed for the programs that a test starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PACKAGE", "ROOT", "generated_docs", "install", "install_package", "run", "with_python_path"]

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "site_fabric"
ENTRY_POINTS = """
[rollbook.sources]
site_fabric = site_fabric.source
[rollbook.rules]
site = site_fabric.rule
[rollbook.metrics]
site = site_fabric.metric:METRIC
[rollbook.transports]
site = site_fabric.transport:Site
"""
DOCS = """
from importlib.machinery import SourceFileLoader
docs = SourceFileLoader("docs", {path!r}).load_module()
print({expressions})
"""


def install(site: Path, package: str, entry_points: str) -> Path:
    """Install the metadata of a package with these entry points below `site`; returns the metadata directory."""
    metadata = site / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    return metadata


def install_package(site: Path) -> None:
    """Install the package `site_fabric`, which has a plug-in of each kind, below `site`."""
    install(site, "site-fabric", ENTRY_POINTS)
    shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))


def with_python_path(*paths: Path) -> dict[str, str]:
    """The environment of this process, with these directories first in the path of Python."""
    path = os.pathsep.join(filter(None, (*map(str, paths), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def run(argv: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def generated_docs(expressions: str, environ: Mapping[str, str]) -> str:
    """The pages that `scripts/docs` generates, given as expressions over its module `docs`."""
    code = DOCS.format(path=str(ROOT / "scripts" / "docs"), expressions=expressions)
    done = run([sys.executable, "-W", "ignore", "-c", code], environ)
    assert done.returncode == 0, done.stderr
    return done.stdout
