"""Data that is read once for the cluster: output of programs on this machine, within its limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rollbook.bundle.cluster import ClusterPart, Query


def test_output_beyond_the_limit_is_truncated(tmp_path: Path) -> None:
    """The file has the first bytes and is marked as truncated."""
    argv = ("sh", "-c", "head -c 2000000 /dev/zero | tr '\\0' x")

    async def read() -> list[tuple[str, str, int]]:
        items = await ClusterPart(tmp_path, b"salt").run([Query("item", "file.txt", argv, limit=1 << 20)])
        return [(item.status, file.truncated, file.size) for item in items for file in item.files]

    assert asyncio.run(read()) == [("truncated", "after the first 1 MiB", 1 << 20)]
    assert (tmp_path / "cluster" / "item" / "file.txt").stat().st_size == 1 << 20
