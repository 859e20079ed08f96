"""Rollbook: the record of every host in a cluster.

    snapshot(...)              the facts of every host, now; snapshot_async for an event loop
    with record(...) as rec:   all hosts recorded while the block runs, also `async with`; rec.mark("phase")
    run(argv, ...)             a command with a record around it
    mark(name)                 start a phase, from inside a command that is run so
    open_record(path)          a record on disk, opened for reading
    query(record, sql)         SQL over it
    export(record, ...)        the same in other forms
    write_report(record)       its page
    check(record)              what every rule says of it
    diff(record, other)        what differs from another, or from start to end
    describe(record)           the MLPerf Storage description of the system
    verify(record)             whether it is still what was written
    recover(path)              finish a record whose collector died

Names are loaded when they are used: importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rollbook.version import __version__

if TYPE_CHECKING:
    from rollbook.api.checking import check, verify
    from rollbook.api.diff import diff
    from rollbook.api.finish import finish as recover
    from rollbook.api.finish import open_record
    from rollbook.api.outputs import describe, export, query, write_report
    from rollbook.api.recording import record
    from rollbook.api.running import run
    from rollbook.api.snapshot import snapshot, snapshot_async
    from rollbook.collect.marks import send_mark as mark
    from rollbook.records.record import Record

__all__ = [
    "Record",
    "__version__",
    "check",
    "describe",
    "diff",
    "export",
    "mark",
    "open_record",
    "query",
    "record",
    "recover",
    "run",
    "snapshot",
    "snapshot_async",
    "verify",
    "write_report",
]

_HOMES = {
    "Record": ("rollbook.records.record", "Record"),
    "check": ("rollbook.api.checking", "check"),
    "describe": ("rollbook.api.outputs", "describe"),
    "diff": ("rollbook.api.diff", "diff"),
    "export": ("rollbook.api.outputs", "export"),
    "mark": ("rollbook.collect.marks", "send_mark"),
    "open_record": ("rollbook.api.finish", "open_record"),
    "query": ("rollbook.api.outputs", "query"),
    "record": ("rollbook.api.recording", "record"),
    "recover": ("rollbook.api.finish", "finish"),
    "run": ("rollbook.api.running", "run"),
    "snapshot": ("rollbook.api.snapshot", "snapshot"),
    "snapshot_async": ("rollbook.api.snapshot", "snapshot_async"),
    "verify": ("rollbook.api.checking", "verify"),
    "write_report": ("rollbook.api.outputs", "write_report"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rollbook' has no attribute {name!r}")
    module, there = _HOMES[name]
    return getattr(importlib.import_module(module), there)
