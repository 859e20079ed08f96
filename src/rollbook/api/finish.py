"""The end of a recording, and the recovery of one: everything in a record that follows from what lies in it.

Only the journal and the files of the benchmark are needed, so a run that ended well and one whose collector was killed
are finished by the same steps. Each step that fails leaves a note and costs the others nothing.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollbook import adapters
from rollbook.adapters.argv import shown
from rollbook.adapters.base import Ran
from rollbook.errors import RecordError, UsageError
from rollbook.files import write_file
from rollbook.journal.history import clock_notes
from rollbook.journal.state import is_unfinished
from rollbook.journal.survey import Survey
from rollbook.records import signing
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import encode
from rollbook.records.layout import Leaf
from rollbook.records.metadata import metadata
from rollbook.records.outcome import Outcome
from rollbook.records.record import Record
from rollbook.tables.derive import derive
from rollbook.tables.seal import Sealed

__all__ = ["finish", "open_record"]

MOST_SAMPLES = 20_000  # in all, that are still written as the seeds' JSON beside the tables


def open_record(path: Path | str) -> Record:
    """A record for reading; one that nobody finished is finished first."""
    return finish(path) if is_unfinished(Path(path)) else Record.open(Path(path))


def finish(path: Path | str, *, drop_raw: bool = False, report: bool = True, sign: Path | str | None = None) -> Record:
    """Make tables, hosts, metadata, findings, page and manifest of the record at `path`; sign it if a key is given.

    With `drop_raw` the journal is removed once the tables are proven to hold all of it (`series.proof`). A record that
    is signed is made anew only with a key to sign it again.
    """
    path = Path(path)
    _keep_signed(path / "manifest.json", sign)
    found, sealed, hosts = derive(path)
    begin = found.begin
    kind, stamp = str(begin.get("type", "record")), str(begin.get("stamp", path.name))
    argv = [shown(str(word)) for word in begin.get("argv", [])]
    outcome = _outcome(path, kind, argv, found)
    if outcome.phases:
        hosts.phases = sorted([*hosts.phases, *outcome.phases], key=lambda phase: phase.start_ns)
        write_file(path / "hosts.json", encode(hosts))
    leaf, args = Leaf(path, kind, stamp), _storable(begin.get("args", {}))
    document = metadata(
        stamp=stamp, result_dir=str(path), argv=argv, args=args, hosts=hosts, outcome=outcome, command=found.command
    )
    memory = args.get("client_host_memory_in_gb")
    each = int(float(memory) * 1024**3) if memory else None
    cluster = ClusterInformation.of(hosts.start, each) if hosts.start else _declared(args)
    document["system_info"] = document["cluster_information"] = cluster
    leaf.write("cluster_info.json", cluster)
    run, notes = Record(path, json.loads(encode(document)), hosts), document["notes"]
    if found.end_facts is False:
        notes.append("the end facts were skipped: nobody wanted to wait for them")
    notes += clock_notes(hosts.series, hosts.clock_steps)
    with _step("statistics per phase", notes):
        document["phase_statistics"] = _phase_statistics(run)
    with _step("timeseries.json", notes):
        document["timeseries_data"] = _small_series(run, leaf)
    with _step("checks", notes):
        document |= _checked(run)
    leaf.write("metadata.json", document)
    run = Record(path, json.loads(encode(document)), hosts)
    if report:
        with _step("report.html", notes):
            _page(run)
    if drop_raw:
        with _step("raw", notes):
            _drop(path, found, sealed)
    leaf.write("metadata.json", document)
    leaf.write_manifest()
    if sign is not None:
        signing.sign(path / "manifest.json", Path(sign))
    return Record(path, json.loads(encode(document)), hosts)


def _keep_signed(manifest: Path, key: Path | str | None) -> None:
    """Raise for a record that is signed: its signature may go only where a new one is sure to take its place."""
    if not (manifest.exists() and signing.signature_file(manifest).exists()):
        return
    if key is None:
        raise UsageError(f"{manifest.parent} is signed, and made anew it is not: give a key to sign it again (--sign)")
    signing.try_key(Path(key))


def _storable(args: dict[str, Any]) -> dict[str, Any]:
    """What the user said, as text that can be stored: a path may be no UTF-8."""
    storable: dict[str, Any] = json.loads(shown(json.dumps(args, ensure_ascii=False)))
    return storable


@contextlib.contextmanager
def _step(what: str, notes: list[str]) -> Iterator[None]:
    """A part of the work that leaves a note where it fails, whatever it is: the others go on without it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a record must not be lost to one of its parts
        notes.append(f"{what}: {str(error) or repr(error)}")


def _declared(args: dict[str, Any]) -> ClusterInformation:
    """The cluster as the arguments say it is: nobody was asked."""
    count = int(args.get("num_client_hosts") or len(args.get("hosts", [])) or 1)
    memory = int(float(args.get("client_host_memory_in_gb") or 0) * 1024**3)
    return ClusterInformation(count * memory, 0, count, memory, memory, "args", None)


def _outcome(path: Path, kind: str, argv: list[str], found: Survey) -> Outcome:
    """What the benchmark's adapter makes of the files it left; a recording without a command has none."""
    if not argv:
        return Outcome(benchmark_type=kind)
    ran = Ran(
        argv,
        Path(str(found.begin.get("cwd", "."))),
        path,
        path / "stdout.log",
        path / "stderr.log",
        found.command.get("started_ns", found.started_ns),
        found.command.get("ended_ns", found.ended_ns),
        found.command.get("code", 0),
    )
    notes: list[str] = []
    with _step(f"adapter {kind}", notes):
        return adapters.load(kind).outcome(ran)
    return Outcome(benchmark_type=kind, notes=notes)


def _checked(run: Record) -> dict[str, Any]:
    """Write what all rules find; return MLPerf Storage's verdict on a benchmark of theirs, for the metadata."""
    from rollbook.checks.engine import check  # noqa: PLC0415 - rules are loaded only when a run is over
    from rollbook.checks.run_data import RunData  # noqa: PLC0415
    from rollbook.mlperf import rounds  # noqa: PLC0415

    findings = check(RunData(run.hosts, metadata=run.metadata, path=run.path, mlperf_round=rounds.load()))
    write_file(run.path / "findings.json", encode(findings))
    return {
        "verification": findings.verdict,
        "verification_text": findings.verdict_text,
        "verification_missing": findings.not_judged,
        "verification_round": findings.round,
    }


def _phase_statistics(run: Record) -> list[dict[str, Any]]:
    """What every rate was in every phase, over time and over hosts; empty without phases or series."""
    if not run.hosts.phases or not run.series_files():
        return []
    from rollbook.sql.connection import connect  # noqa: PLC0415 - needs DuckDB

    with connect(run, whole=True) as connection:
        found = connection.execute("SELECT * FROM phase_stats")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _small_series(run: Record, leaf: Leaf) -> dict[str, Any] | None:
    """The seeds' timeseries.json, while it is small, and what the metadata say of it; None without samples."""
    sampled = [host for host in run.hosts.series if host.samples]
    if not sampled:
        return None
    from rollbook.exports.timeseries import write_timeseries  # noqa: PLC0415 - needs DuckDB

    count, name = sum(host.samples for host in sampled) // run.hosts.merged, f"{leaf.kind}_{leaf.stamp}_timeseries.json"
    written = count <= MOST_SAMPLES
    if written:
        count = write_timeseries(run, leaf.path / name)
    return {
        "file": name if written else None,
        "num_samples": count,
        "interval_seconds": (run.hosts.interval_seconds or 0.0) * run.hosts.merged,
        "hosts_collected": [host.name for host in sampled],
    }


def _drop(path: Path, found: Survey, sealed: Sealed) -> None:
    """Remove the journal, or raise why it stays."""
    from rollbook.tables.proof import reasons_to_keep  # noqa: PLC0415 - few records are made without their journal

    if why := reasons_to_keep(found, sealed, path):
        raise RecordError(f"kept: {'; '.join(why)}")
    shutil.rmtree(path / "raw")


def _page(run: Record) -> None:
    from rollbook.report import write_report  # noqa: PLC0415 - see above

    write_report(run, run.path / "report.html")
