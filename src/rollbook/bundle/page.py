"""The page of an issue report."""

from __future__ import annotations

from pathlib import Path

from rollbook.bundle.evidence import BundleData
from rollbook.records.findings import Findings


def write_page(run: BundleData, findings: Findings, path: Path) -> None:
    """Write it."""
    del run, findings, path
