"""Rollbook records every host of a cluster.

    snapshot(...)                    read the facts of every host; snapshot_async in an event loop
    execute(command, ...)            run a command on every host; execute_async in an event loop
    with record(...) as recording:   record all hosts while the block runs, also `async with`; recording.mark("phase")
    run(argv, ...)                   run a command and record all hosts around it
    mark(name)                       start a phase, from inside a command that `run` runs
    take_bundle(...)                 collect an issue report from every node; take_bundle_async in an event loop
    upload_bundle(bundle, to)        upload an issue report to S3
    open_record(path)                open a record for reading, by its path, name or time, or as `latest`
    list_records(results_dir)        the records of a results directory, newest first
    find_record(text)                the record that a name, a time or `latest` means
    query(record, sql)               run SQL over it
    export(record, output, format)   write it in another format
    write_report(record)             write its page
    check(record)                    apply every rule to it
    diff(record, other)              compare it with another, or its start with its end
    compare(record, other, ...)      compare results, metrics and facts of runs or groups of repeated runs
    describe(record)                 write the MLPerf Storage description of the system
    verify(record)                   compare it with its manifest
    recover(path)                    finish a record whose collector died

Names are loaded when they are first used, so importing the package is fast. `__init__.pyi` lists them, for type
checkers and for this module.
"""

from __future__ import annotations

import importlib

_ORIGINS: dict[str, tuple[str, str]] = {}


def _origins() -> dict[str, tuple[str, str]]:
    """Module and name of every public name, from the lines `from MODULE import NAME as PUBLIC` of the stub."""
    if not _ORIGINS:
        stub = __loader__.get_data(f"{__path__[0]}/__init__.pyi")  # also inside a zip file
        for line in stub.decode().splitlines():
            if line.startswith("from "):
                _, module, _, name, _, public = line.split()
                _ORIGINS[public] = (module, name)
    return _ORIGINS


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_origins())
    if (name.startswith("_") and name != "__version__") or name not in _origins():
        raise AttributeError(f"module 'rollbook' has no attribute {name!r}")
    module, attribute = _origins()[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_origins()})
