"""The summary of a record in a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.records.summary import read_summary


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [(b'{"counts": {"fail": 0, "warn": 0}}', "ok"), (b"{}", "unchecked"), (b'{"counts": "\xff"}', "unchecked")],
)
def test_unreadable_findings_count_as_unchecked(tmp_path: Path, findings: bytes, verdict: str) -> None:
    """The verdict is "ok" only if the findings have counts that can be read."""
    (tmp_path / "record_20260101_000000_metadata.json").write_text("{}")
    (tmp_path / "hosts.json").write_text("{}")
    (tmp_path / "findings.json").write_bytes(findings)
    assert read_summary(tmp_path).verdict == verdict
