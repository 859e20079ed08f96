"""Finishes a record, at the end of a recording or when it is recovered: writes all that follows from the journal.

Only the journal and the files of the benchmark are needed, so a run that ended well and one whose collector was killed
are finished by the same steps. A step that fails leaves a note and does not affect the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollbook import adapters, times
from rollbook.adapters.argv import storable_text
from rollbook.adapters.base import Ran
from rollbook.api.arguments import check_arguments
from rollbook.api.listing import record_path
from rollbook.clean import count_text
from rollbook.errors import RecordError, UsageError
from rollbook.files import remove_leftovers, write_file
from rollbook.journal.history import clock_notes
from rollbook.journal.state import FAILURE, failure_of, is_unfinished, refuse_while_recording
from rollbook.journal.survey import Survey
from rollbook.mlperf.result_directory import benchmark_args, copy_results, is_result_directory, name_logs, result_names
from rollbook.records import signing
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import encode
from rollbook.records.labels import label_of
from rollbook.records.layout import RecordDirectory
from rollbook.records.locate import LOGS, locate_record, not_a_record
from rollbook.records.metadata import metadata
from rollbook.records.outcome import Outcome
from rollbook.records.pushed import read_pushed
from rollbook.records.reading import require_directory
from rollbook.records.record import Record
from rollbook.sql.grids import Tables, open_tables
from rollbook.tables.derive import derive
from rollbook.tables.seal import Sealed

__all__ = ["finish", "open_record", "recover"]

MAX_SAMPLES = 20_000  # of all hosts, up to which MLPerf Storage's timeseries.json is written beside the tables
DROPPED = ".raw"  # a journal that is being removed
MAX_DECLARED = 1e6  # hosts, and GiB of memory of each


@check_arguments
def open_record(path: Path | str) -> Record:
    """Open a record for reading, or the only record in a results directory.

    `path` may also be a name, a time or `latest`, as for `find_record`.
    An unfinished record is finished first if it belongs to the current user; otherwise `RecordError` is raised, because
    reading the records of others never writes.
    """
    path = locate_record(record_path(path))
    if not is_unfinished(path):
        return Record.open(path)
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise RecordError(
            f"{path} is not finished; only its owner (uid {owner}) finishes it: `rollbook recover {path}`"
        )
    with _lock(path):
        # Another process may have finished it while this one waited for the lock.
        return _finish(path) if is_unfinished(path) else Record.open(path)


def finish(path: Path | str, *, drop_raw: bool = False, report: bool = True, sign: Path | str | None = None) -> Record:
    """Write tables, hosts, metadata, findings, page and manifest of a record, and sign it if a key is given.

    With `drop_raw` the journal is removed once the tables are proven to hold all of it. A signed record is finished
    again only with a key to sign it. Raises `RecordError` if there is no journal or the record cannot be written.
    """
    path = locate_record(Path(path))
    if not path.is_dir():
        raise not_a_record(path)
    with _lock(path):
        return _finish(path, drop_raw=drop_raw, report=report, sign=sign)


@check_arguments
def recover(path: Path | str, *, sign: Path | str | None = None) -> Record:
    """Finish a record whose collector died, or rebuild any record from its journal; see `finish`."""
    return finish(path, sign=sign)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other process finishes the record; file systems without locks are used without."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _finish(path: Path, *, drop_raw: bool = False, report: bool = True, sign: Path | str | None = None) -> Record:
    for name in ("raw", "series"):
        require_directory(path / name)  # a symlink would lead the files elsewhere
    _require_key_if_signed(path, sign)
    refuse_while_recording(path)  # before anything is removed
    _remove_leftovers(path)
    found, sealed, hosts = derive(path)
    begin = found.begin
    kind = str(begin.get("type", "record"))
    argv = [storable_text(str(word)) for word in begin.get("argv", [])]
    outcome = _outcome(path, kind, argv, found)
    if outcome.phases:
        hosts.phases = sorted([*hosts.phases, *outcome.phases], key=lambda phase: phase.start_ns)
        write_file(path / "hosts.json", encode(hosts))
    directory, args = _directory(path, kind), _storable(begin.get("args", {}))
    stamp = str(begin.get("stamp"))
    document = metadata(
        stamp=stamp if times.STAMP.fullmatch(stamp) else times.stamp(times.from_ns(found.started_ns)),
        result_dir=str(path),
        argv=argv,
        args=args,
        hosts=hosts,
        outcome=outcome,
        command=found.command,
    )
    document["host_names"] = [host.name for host in hosts.start]
    document["label"] = label_of(_storable(begin.get("label", {})))
    if url := begin.get("push"):
        pushed = document["push"] = read_pushed(path / "raw", storable_text(str(url)))
        document["notes"] += filter(None, [pushed.note])
    each = int(_number(args, "client_host_memory_in_gb") * 1024**3) or None
    cluster = ClusterInformation.of(hosts.start, each) if hosts.start else _declared(args)
    document["system_info"] = document["cluster_information"] = cluster
    if outcome.summary:
        document["dlio_summary"] = outcome.summary
    if is_result_directory(path, kind) and argv:
        with _step("result directory", document["notes"]):
            document |= _result_directory(path, outcome, args, document)
    directory.write("cluster_info.json", cluster)
    record, notes = Record(path, json.loads(encode(document)), hosts), document["notes"]
    notes += _journal_notes(path, found)
    for table, count in sealed.left_out.items():
        notes.append(f"the table {table} lacks {count_text(count, 'column')}: hosts have more names than it may hold")
    if found.end_facts is False:
        notes.append("the end facts were skipped at the user's request")
    notes += clock_notes(hosts.series, hosts.clock_steps)
    _derive_from_tables(record, directory, document, report=report)
    if drop_raw:
        with _step("raw", notes):
            _drop(path, found, sealed)
    directory.write("metadata.json", document)
    directory.write_manifest()
    if sign is not None:
        signing.sign(path, Path(sign))
    return Record(path, json.loads(encode(document)), hosts)


def _journal_notes(path: Path, found: Survey) -> Iterator[str]:
    """What the journal and the logs of the command lack."""
    if reason := failure_of(path / "raw"):
        yield reason
    if found.damaged or found.missing:
        lost = f"damaged entries: {found.damaged}, missing segments: {found.missing}"
        yield f"the journal is not whole ({lost}); marks and the end of the command may be lost"
    for name, why in found.truncated_logs.items():
        yield f"{name} is incomplete: {storable_text(why)}"


def _derive_from_tables(record: Record, directory: RecordDirectory, document: dict[str, Any], *, report: bool) -> None:
    """Write all that follows from the tables and add it to the metadata; the tables are opened once."""
    notes, tables = document["notes"], None
    with contextlib.ExitStack() as stack:
        with _step("tables", notes):
            tables = stack.enter_context(open_tables(record, charts=report))
        with _step("statistics per phase", notes):
            document["phase_statistics"] = tables.phase_statistics() if tables else []
        with _step("timeseries.json", notes):
            document["timeseries_data"] = _small_series(record, directory, notes, tables)
        with _step("checks", notes):
            document |= _checked(record, tables)
        directory.write("metadata.json", document)
        if report:
            with _step("report.html", notes):
                _page(Record(record.path, json.loads(encode(document)), record.hosts), tables)


def _directory(path: Path, kind: str) -> RecordDirectory:
    """The names of the record's files, from the directory: a journal may come from anyone and must not choose them.

    They stay as they are in a finished record. Otherwise the type is that of the journal only if a directory above has
    that very name, and else the name of the directory above.
    """
    finished = sorted(path.glob("*_metadata.json"))
    named = rf"(.+)_({times.STAMP.pattern})_metadata\.json"
    if len(finished) == 1 and (match := re.fullmatch(named, finished[0].name, re.ASCII)):
        return RecordDirectory(path, match[1], match[2])
    above = path.resolve().parent.parts[1:]
    return RecordDirectory(path, kind if kind in above else (above or ("record",))[-1], path.resolve().name)


def _remove_leftovers(path: Path) -> None:
    """Remove what a process left that was killed while it finished this record."""
    remove_leftovers(path)
    if not failure_of(path / "raw"):
        (path / "raw" / FAILURE).unlink(missing_ok=True)
    for name in (".again", DROPPED):
        shutil.rmtree(path / name, ignore_errors=True)
    for scratch in (path / "series").glob(".parts*"):
        shutil.rmtree(scratch, ignore_errors=True)


def _require_key_if_signed(path: Path, key: Path | str | None) -> None:
    """Raise `UsageError` for a signed record without a key that can sign it again."""
    if not signing.is_signed(path):
        return
    if key is None:
        raise UsageError(f"{path} is signed; rebuilding it would invalidate the signature: give a key with --sign")
    signing.try_key(Path(key))


def _storable(args: dict[str, Any]) -> dict[str, Any]:
    """The user's options as text that can be stored: a path need not be UTF-8."""
    storable: dict[str, Any] = json.loads(storable_text(json.dumps(args, ensure_ascii=False)))
    return storable


@contextlib.contextmanager
def _step(what: str, notes: list[str]) -> Iterator[None]:
    """A step that leaves a note if it fails, whatever the reason; the other steps continue."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a record must not be lost to one of its parts
        notes.append(f"{what}: {str(error) or repr(error)}")


def _declared(args: dict[str, Any]) -> ClusterInformation:
    """The cluster as declared by the arguments, for a run that contacted no hosts."""
    hosts = args.get("hosts")
    count = int(_number(args, "num_client_hosts")) or (len(hosts) if isinstance(hosts, list) else 0) or 1
    memory = int(_number(args, "client_host_memory_in_gb") * 1024**3)
    return ClusterInformation(count * memory, 0, count, memory, memory, "args", None)


def _number(args: dict[str, Any], name: str) -> float:
    """An argument of a journal, which may come from anyone; 0 without one, and for one that is not possible."""
    try:
        value = float(args.get(name) or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return value if 0 <= value < MAX_DECLARED else 0.0


def _outcome(path: Path, kind: str, argv: list[str], found: Survey) -> Outcome:
    """What the adapter finds in the benchmark's files; a recording without a command has no results."""
    if not argv:
        return Outcome(benchmark_type=kind)
    ran = Ran(
        argv,
        Path(str(found.begin.get("cwd", "."))),
        path,
        *_logs(path),
        found.command.get("started_ns", found.started_ns),
        found.command.get("ended_ns", found.ended_ns),
        found.command.get("code"),
    )
    notes: list[str] = []
    with _step(f"adapter {kind}", notes):
        return adapters.load(kind).outcome(ran)
    return Outcome(benchmark_type=kind, notes=notes)


def _logs(path: Path) -> tuple[Path, Path]:
    """The logs of the command, by our names or by those of MLPerf Storage's tool."""
    found = [next(iter(sorted(path.glob(f"*_*.{name}"))), path / name) for name in LOGS]
    return found[0], found[1]


def _result_directory(path: Path, outcome: Outcome, args: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Make a record a complete result directory of MLPerf Storage; returns the metadata that differ."""
    logs = name_logs(path, outcome)
    copy_results(result_names(outcome.result_files, outcome.benchmark_type), path)
    return {
        "command_output_files": [{"command": document["executed_command"], **logs}],
        "args": benchmark_args(outcome, args),
        "rollbook_args": args,
    }


def _checked(record: Record, tables: Tables | None) -> dict[str, Any]:
    """Write the findings of all rules; returns MLPerf Storage's verdict for its benchmarks, as metadata."""
    from rollbook.checks.engine import check  # noqa: PLC0415 - rules are loaded only when a run is over
    from rollbook.checks.run_data import RunData  # noqa: PLC0415
    from rollbook.mlperf import rounds  # noqa: PLC0415

    findings = check(
        RunData(record.hosts, metadata=record.metadata, path=record.path, mlperf_round=rounds.load(), tables=tables)
    )
    write_file(record.path / "findings.json", encode(findings))
    return {
        "verification": findings.verdict,
        "verification_text": findings.verdict_text,
        "verification_missing": findings.not_judged,
        "verification_round": findings.round,
    }


def _small_series(
    record: Record, directory: RecordDirectory, notes: list[str], tables: Tables | None
) -> dict[str, Any] | None:
    """Write MLPerf Storage's timeseries.json if it is small; returns its metadata entry, None without samples.

    If it is not, a note names the command that writes it.
    """
    sampled = [host for host in record.hosts.series if host.samples]
    if not sampled:
        return None
    from rollbook.exports.timeseries import write_timeseries  # noqa: PLC0415 - needs DuckDB

    count, path = sum(host.samples for host in sampled) // record.hosts.merged, directory.file("timeseries.json")
    written = count <= MAX_SAMPLES
    if written:
        count = write_timeseries(record, path, connection=tables.connection if tables else None)
    else:
        command = f"rollbook export --format timeseries -o timeseries.json {shlex.quote(str(record.path))}"
        notes.append(f"timeseries.json not written, {count} samples exceed the limit of {MAX_SAMPLES}: {command}")
    return {
        "file": path.name if written else None,
        "num_samples": count,
        "interval_seconds": (record.hosts.interval_seconds or 0.0) * record.hosts.merged,
        "hosts_collected": [host.name for host in sampled],
    }


def _drop(path: Path, found: Survey, sealed: Sealed) -> None:
    """Remove the journal; raises `RecordError` with the reason if it has to stay."""
    from rollbook.tables.proof import reasons_to_keep  # noqa: PLC0415 - most records keep their journal

    if why := reasons_to_keep(found, sealed, path):
        raise RecordError(f"kept: {'; '.join(why)}")
    (path / "raw").rename(path / DROPPED)  # at once: a part of it must not be taken for the journal
    shutil.rmtree(path / DROPPED)


def _page(record: Record, tables: Tables | None) -> None:
    from rollbook.report import write_report  # noqa: PLC0415 - rich pages are built only when a run is over

    write_report(record, record.path / "report.html", tables=tables)
