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

Names are loaded when they are first used; `__init__.pyi` lists them.
"""

from __future__ import annotations

from rollbook.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
