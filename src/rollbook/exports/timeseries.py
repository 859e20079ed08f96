"""The series as MLPerf Storage's `TimeSeriesData` JSON, written as a stream: some hosts in memory at a time."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import duckdb
import msgspec

from rollbook.files import PRIVATE, atomic_file
from rollbook.records.record import Record
from rollbook.records.timeseries import NOT_IN_TOOL, SAMPLED
from rollbook.sources.base import Facts
from rollbook.sources.diskstats import Disk
from rollbook.sources.loadavg import LoadAvg
from rollbook.sources.net_dev import Interface
from rollbook.sql.connection import connect_internal
from rollbook.tables.quoting import quoted
from rollbook.times import from_ns, iso_time

__all__ = ["write_timeseries"]

# By key of a sample, the type of its rows; without one, all columns of the table are written.
ROW_TYPES: dict[str, type[Facts]] = {"diskstats": Disk, "loadavg": LoadAvg, "netdev": Interface}
LISTS = ("diskstats", "netdev")  # keys with a list of rows; the others have one row
TOGETHER = 10_000  # samples of hosts that are read together
REPEATED = ("total_kib", "swap_total_kib", "huge_pages_total", "huge_page_kib")  # values that are there by kernel name


def write_timeseries(
    record: Record, path: Path, *, mode: int = PRIVATE, connection: duckdb.DuckDBPyConnection | None = None
) -> int:
    """Write the file atomically, with the keys that MLPerf Storage's tools read; returns the number of samples.

    A source that a host never had is left out of its samples. A `connection` to the record stays open. Raises
    `RecordError` if the file cannot be written or a table is damaged.
    """
    tables = contextlib.nullcontext(connection) if connection else connect_internal(record, whole=False)
    with tables as found, atomic_file(path, mode=mode) as file:
        return _write(record, found, file)


def _write(record: Record, connection: duckdb.DuckDBPyConnection, file: IO[bytes]) -> int:
    counted = connection.execute("SELECT host, count(*), min(ts), max(ts) FROM samples GROUP BY host ORDER BY host")
    hosts = {host: (count, first, last) for host, count, first, last in counted.fetchall()}
    started = min((first for _, first, _ in hosts.values()), default=from_ns(record.hosts.started_ns))
    ended = max((last for _, _, last in hosts.values()), default=from_ns(record.hosts.ended_ns))
    head = {
        "collection_interval_seconds": (record.hosts.interval_seconds or 0.0) * record.hosts.merged,
        "start_time": iso_time(started),
        "end_time": iso_time(ended),
        "num_samples": sum(count for count, _, _ in hosts.values()),
    }
    methods = {host.name: host.method or "unknown" for host in record.hosts.series if host.name in hosts}
    tail = {
        "collection_method": "+".join(sorted(set(methods.values()))) or "unknown",
        "collection_methods": methods,
        "hosts_requested": [host.name for host in record.hosts.start],
        "hosts_collected": list(hosts),
    }
    file.write(msgspec.json.encode(head)[:-1] + b',"samples_by_host":{')
    written = 0
    for group in _groups({host: count for host, (count, _, _) in hosts.items()}):
        for host, samples in _samples(connection, group):
            file.write((b"," if written else b"") + msgspec.json.encode(host) + b":[")
            for place, sample in enumerate(samples):
                file.write((b"," if place else b"") + b"\n" + msgspec.json.encode(sample))
            file.write(b"]")
            written += 1
    file.write(b"}," + msgspec.json.encode(tail)[1:] + b"\n")
    return sum(count for count, _, _ in hosts.values())


def _groups(counts: dict[str, int]) -> Iterator[list[str]]:
    """Hosts that are read together: a query takes as long for one host with few samples as for many."""
    group, total = list[str](), 0
    for host, count in counts.items():
        if group and total + count > TOGETHER:
            yield group
            group, total = [], 0
        group.append(host)
        total += count
    if group:
        yield group


def _samples(
    connection: duckdb.DuckDBPyConnection, hosts: Sequence[str]
) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """Yield consecutive hosts with their samples in order of time; what was not read is left out."""
    between = [hosts[0], hosts[-1]]
    named = dict(connection.execute("SELECT host, hostname FROM hosts WHERE host BETWEEN ? AND ?", between).fetchall())
    found = connection.execute("SELECT host, ts FROM samples WHERE host BETWEEN ? AND ? ORDER BY host, ts", between)
    times: dict[str, list[dt.datetime]] = {}
    for host, ts in found.fetchall():
        times.setdefault(host, []).append(ts)
    tables = {key: _Rows(connection, hosts, table, ROW_TYPES.get(key)) for key, table in SAMPLED.items()}

    def samples(host: str) -> Iterator[dict[str, Any]]:
        for ts in times[host]:
            sample: dict[str, Any] = {"timestamp": iso_time(ts), "hostname": named.get(host) or host}
            for key, rows in tables.items():
                if found := rows.at(host, ts):
                    sample[key] = found if key in LISTS else found[0]
            yield sample

    for host in hosts:
        yield host, samples(host)
    for rows in tables.values():
        rows.close()


class _Rows:
    """Reads the rows of one table and some consecutive hosts in order of host and time."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, hosts: Sequence[str], table: str, row_type: type[Facts] | None
    ) -> None:
        self._cursor = connection.cursor()
        self._places = {host: place for place, host in enumerate(hosts)}
        columns = [row[0] for row in self._cursor.execute(f"DESCRIBE {quoted(table)}").fetchall()]
        fields = row_type.__struct_fields__ if row_type else columns[3:]
        # Merged gauges have their minimum and maximum beside them. A source that no host had has no columns.
        left_out = {f"{name}_{part}" for name in columns for part in ("min", "max")} | set(fields) - set(columns)
        self._names = [name for name in fields if name not in left_out and name not in (*NOT_IN_TOOL, *REPEATED)]
        chosen = ", ".join(["host", "ts", *map(quoted, self._names)])
        order = ", ".join(["host", "ts", *map(quoted, columns[3:4])])
        self._cursor.execute(
            f"SELECT {chosen} FROM {quoted(table)} WHERE host BETWEEN ? AND ? ORDER BY {order}",  # noqa: S608
            [hosts[0], hosts[-1]],
        )
        self._whole = table != "loadavg"
        self._next = self._cursor.fetchone()

    def close(self) -> None:
        """Release the query."""
        self._cursor.close()

    def at(self, host: str, ts: dt.datetime) -> list[dict[str, Any]]:
        """Return the rows of that time; must be called with rising hosts and times."""
        found, wanted = [], (self._places[host], ts)
        while self._next is not None and (place := (self._places.get(self._next[0], -1), self._next[1])) <= wanted:
            if place == wanted:
                found.append(
                    {n: self._plain(v) for n, v in zip(self._names, self._next[2:], strict=True) if v is not None}
                )
            self._next = self._cursor.fetchone()
        return found

    def _plain(self, value: Any) -> Any:
        """Round the means of merged samples where the tool has whole numbers."""
        return round(value) if self._whole and not isinstance(value, str) else value
