"""The end of a recording, and the recovery of one: everything in a record that follows from what lies in it.

Only the journal and the files of the benchmark are needed, so a run that ended well and one whose collector was killed
are finished by the same steps. Each step that fails leaves a note and costs the others nothing.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from rollbook import adapters
from rollbook.adapters.base import Outcome, Ran
from rollbook.errors import RollbookError
from rollbook.records import signing
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import encode
from rollbook.records.layout import Leaf, write_file
from rollbook.records.metadata import metadata
from rollbook.records.run import Run, RunHosts
from rollbook.series.finish import derive
from rollbook.series.survey import Survey

__all__ = ["finish", "open_record"]

MOST_SAMPLES = 20_000  # in all, that are still written as the seeds' JSON beside the tables


def open_record(path: Path) -> Run:
    """A record for reading; one that nobody finished is finished first."""
    from rollbook.series.finish import unfinished  # noqa: PLC0415 - see `finish`

    return finish(path) if unfinished(path) else Run.open(path)


def finish(path: Path, *, drop_raw: bool = False, report: bool = True, sign: Path | None = None) -> Run:
    """Make tables, hosts, metadata, findings, page and manifest of the record at `path`; sign it if a key is given."""
    found, sealed, hosts = derive(path)
    begin = found.begin
    kind, stamp, argv = (
        str(begin.get("type", "record")),
        str(begin.get("stamp", path.name)),
        list(begin.get("argv", [])),
    )
    outcome = _outcome(path, kind, argv, found)
    if outcome.phases:
        hosts.phases = sorted([*hosts.phases, *outcome.phases], key=lambda phase: phase.start_ns)
        write_file(path / "hosts.json", encode(hosts))
    leaf = Leaf(path, kind, stamp)
    args = dict(begin.get("args", {}))
    document = metadata(stamp=stamp, result_dir=str(path), argv=argv, args=args, hosts=hosts, outcome=outcome)
    document["exit_code"] = found.command.get("code") if "ended_ns" in found.command else None
    memory = args.get("client_host_memory_in_gb")
    each = int(float(memory) * 1024**3) if memory else None
    cluster = ClusterInformation.of(hosts.start, each) if hosts.start else declared(args)
    document["system_info"] = document["cluster_information"] = cluster
    leaf.write("cluster_info.json", cluster)
    leaf.write("metadata.json", document)
    run = Run(path, json.loads(encode(document)), hosts)
    document["phase_statistics"] = _phase_statistics(run)
    leaf.write("metadata.json", document)
    notes = [*_checked(run), *_small_series(run, leaf, hosts), *(_page(run) if report else [])]
    if notes:
        document["notes"] = [*outcome.notes, *notes]
        leaf.write("metadata.json", document)
    if drop_raw and not sealed.lost.total() and not sealed.refused.total():
        shutil.rmtree(path / "raw")
    leaf.write_manifest()
    if sign is not None:
        signing.sign(path / "manifest.json", sign)
    return run


def declared(args: dict[str, Any]) -> ClusterInformation:
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
    try:
        return adapters.load(kind).outcome(ran)
    except RollbookError as error:
        return Outcome(benchmark_type=kind, notes=[str(error)])


def _checked(run: Run) -> list[str]:
    from rollbook.checks.engine import check  # noqa: PLC0415 - rules are loaded only when a run is over
    from rollbook.checks.subject import Subject  # noqa: PLC0415

    try:
        findings = check(Subject(run.hosts, metadata=run.metadata, path=run.path))
    except RollbookError as error:
        return [f"checks: {error}"]
    write_file(run.path / "findings.json", encode(findings))
    return []


def _phase_statistics(run: Run) -> list[dict[str, Any]]:
    """What every rate was in every phase, over time and over hosts; empty without phases or series."""
    if not run.hosts.phases or not run.series_files():
        return []
    from rollbook.series.store import connect  # noqa: PLC0415 - needs DuckDB

    with connect(run) as connection:
        found = connection.execute("SELECT * FROM phase_stats")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _small_series(run: Run, leaf: Leaf, hosts: RunHosts) -> list[str]:
    """The seeds' timeseries.json, while it is small; `rollbook export` writes it at any size."""
    if not 0 < sum(host.samples for host in hosts.series) <= MOST_SAMPLES:
        return []
    try:
        from rollbook.series.timeseries import write_timeseries  # noqa: PLC0415 - needs DuckDB

        write_timeseries(run, leaf.path / f"{leaf.kind}_{leaf.stamp}_timeseries.json")
    except (RollbookError, ImportError) as error:
        return [f"timeseries.json: {error}"]
    return []


def _page(run: Run) -> list[str]:
    from rollbook.report import write_report  # noqa: PLC0415 - see above

    with contextlib.suppress(FileNotFoundError):
        try:
            write_report(run, run.path / "report.html")
        except RollbookError as error:
            return [f"report.html: {error}"]
    return []
