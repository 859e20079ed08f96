"""The tables of a record besides the series: hosts, facts, phases, gaps, findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.records.findings import Findings
from rollbook.records.hosts import HostResult
from rollbook.records.record import Phase, RecordHosts, SeriesHost
from rollbook.sources import catalogue
from rollbook.sources.base import Facts, compare_of
from rollbook.tables.arrow import Batches, Texts

__all__ = ["add_facts", "add_findings", "add_hosts", "add_texts"]

CHUNK = 50_000


HOSTS = """CREATE TABLE hosts (host VARCHAR, hostname VARCHAR, status VARCHAR, reason VARCHAR, method VARCHAR,
    machine_id VARCHAR, boot_id VARCHAR, end_status VARCHAR, end_reason VARCHAR, series_status VARCHAR,
    series_reason VARCHAR, samples BIGINT, late BIGINT, missed BIGINT, "first" TIMESTAMP_NS, "last" TIMESTAMP_NS,
    boots BIGINT, cpu_share DOUBLE, clock_offset_ms DOUBLE, clock_bound_ms DOUBLE)"""


def add_hosts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts) -> None:
    """Create the tables `hosts`, `phases` and `gaps`."""
    connection.execute(HOSTS)
    start, end = ({one.name: one for one in records} for records in (hosts.start, hosts.end))
    series = {one.name: one for one in hosts.series}
    marks = ", ".join(["?"] * 14 + ["make_timestamp_ns(?)"] * 2 + ["?"] * 4)
    for name in start | end | series:
        row = _host(name, start.get(name), end.get(name), series.get(name))
        connection.execute(f"INSERT INTO hosts VALUES ({marks})", row)  # noqa: S608 - question marks
    connection.execute('CREATE TABLE phases (number BIGINT, name VARCHAR, "start" TIMESTAMP_NS, "end" TIMESTAMP_NS)')
    phases = hosts.phases or [Phase("run", hosts.started_ns, hosts.ended_ns + 1)]
    for number, phase in enumerate(phases):
        connection.execute(
            "INSERT INTO phases VALUES (?, ?, make_timestamp_ns(?), make_timestamp_ns(?))",
            [number, phase.name, phase.start_ns, phase.end_ns],
        )
    connection.execute('CREATE TABLE gaps (host VARCHAR, "start" TIMESTAMP_NS, "end" TIMESTAMP_NS, why VARCHAR)')
    for one in hosts.series:
        for gap in one.gaps:
            connection.execute(
                "INSERT INTO gaps VALUES (?, make_timestamp_ns(?), make_timestamp_ns(?), ?)",
                [one.name, gap.start_ns, gap.end_ns, gap.why],
            )


def add_facts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts, *, made: bool) -> None:
    """Create `facts`, thousands of rows for each host; if not `made`, a view that fails with the reason when read."""
    columns = ("host", "phase", "source", "key", "field", "value")
    if made:
        add_texts(connection, "facts", columns, _facts(hosts))
        return
    nothing = ", ".join(f"NULL::VARCHAR AS {name}" for name in columns)
    why = "error('the record was opened without its facts')"
    connection.execute(f"CREATE VIEW facts AS SELECT {nothing} WHERE {why} IS NULL")


def add_findings(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create the table `findings` from the record's `findings.json`; empty for a record that was not checked."""
    connection.execute(
        """CREATE TABLE findings (rule VARCHAR, severity VARCHAR, hosts VARCHAR[], "group" VARCHAR, message VARCHAR,
            advice VARCHAR, silenced VARCHAR)"""
    )
    try:
        checked = msgspec.json.decode((path / "findings.json").read_bytes(), type=Findings)
    except (OSError, msgspec.MsgspecError):
        return
    for rule in checked.rules:
        for one in rule.findings:
            silenced = one.silenced.reason if one.silenced else None
            row = [rule.id, one.severity, one.hosts, one.group, one.message, one.advice, silenced]
            connection.execute("INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def add_texts(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], rows: Iterator[tuple[str | None, ...]]
) -> None:
    """Create a table of texts from any number of rows."""
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} VARCHAR' for name in columns)})")
    while chunk := list(islice(rows, CHUNK)):
        texts = [Texts([(value, 1) for value in values]) for values in zip(*chunk, strict=True)]
        batches = Batches([dict(zip(columns, texts, strict=True))])
        connection.register("batches", batches)
        connection.execute(f"INSERT INTO {table} SELECT * FROM batches")  # noqa: S608 - our own names
        connection.unregister("batches")


def _host(name: str, start: HostResult | None, end: HostResult | None, series: SeriesHost | None) -> list[Any]:
    first = start or end
    clock = series.clocks[-1].clock if series and series.clocks else first.clock if first else None
    return [
        name,
        *_of(first, "hostname", "status", "reason", "method", "machine_id", "boot_id"),
        *_of(end, "status", "reason"),
        *_of(series, "status", "reason", "samples", "late", "missed", "first_ns", "last_ns"),
        len(series.boot_ids) if series else None,
        *_of(series, "cpu_share"),
        *((clock.offset_ns / 1e6, clock.bound_ns / 1e6) if clock else (None, None)),
    ]


def _of(one: object | None, *names: str) -> list[Any]:
    return [getattr(one, name, None) for name in names]


def _facts(hosts: RecordHosts) -> Iterator[tuple[str | None, ...]]:
    for phase, records in (("start", hosts.start), ("end", hosts.end)):
        for record in records:
            for source, key, field, value in _values(record):
                yield record.name, phase, source, key, field, value


def _values(record: HostResult) -> Iterator[tuple[str, str, str, str | None]]:
    """Every value of every fact as a text: texts as they are, all else as JSON; dicts by name, as `field.name`."""
    for source, fact in record.facts.items():
        for row in fact if isinstance(fact, list) else [fact]:
            if not isinstance(row, Facts) or catalogue.known(source) is None:
                yield source, "", "", _text(row)
                continue
            notes = compare_of(type(row))
            values = msgspec.structs.asdict(row)
            key = " ".join(str(values[name]) for name, how in notes.items() if how.mode == "key")
            for field, value in values.items():
                if isinstance(value, dict):
                    for name, one in value.items():
                        yield source, key, f"{field}.{name}", _text(one)
                elif notes[field].mode != "key":
                    yield source, key, field, _text(value)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
