"""Errors of DuckDB as text."""

from __future__ import annotations

import duckdb
import pytest

from rollbook.tables.reasons import reason_of


def test_full_disk() -> None:
    """The reason is a sentence without JSON."""
    with pytest.raises(duckdb.Error) as caught:
        duckdb.execute("COPY (SELECT 1 AS a) TO '/dev/full' (FORMAT parquet, USE_TMP_FILE false)")
    assert reason_of(caught.value) == 'Could not write file "/dev/full": No space left on device'


def test_other_errors_are_unchanged() -> None:
    """Messages without JSON are returned unchanged."""
    assert reason_of(duckdb.Error("Catalog Error: no table")) == "Catalog Error: no table"
