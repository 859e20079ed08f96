"""Rollbook: the record of every host in a cluster.

    snapshot(...)              the facts of every host, now
    with record(...) as run:   all hosts recorded while the block runs; run.mark("phase")
    open_record(path)          a record on disk, opened for reading

Names are loaded when they are used: importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbook.api.recording import record
    from rollbook.api.snapshots import snapshot, snapshot_async
    from rollbook.records.run import Run

__all__ = ["Run", "__version__", "record", "snapshot", "snapshot_async"]

__version__ = "0.1.0"

_HOMES = {
    "Run": "rollbook.records.run",
    "record": "rollbook.api.recording",
    "snapshot": "rollbook.api.snapshots",
    "snapshot_async": "rollbook.api.snapshots",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rollbook' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
