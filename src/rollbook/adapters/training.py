"""MLPerf Storage's training benchmark: DLIO's results under MLPerf Storage's names."""

from __future__ import annotations

from rollbook.adapters.mlpstorage import DlioBenchmark

__all__ = ["ADAPTER"]

ADAPTER = DlioBenchmark("training")
