"""Metrics computed live and in SQL over a record are equal, even with gaps, resets, counter wraps and hot-plug."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec
import msgspec.structs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from rollbook.metrics import catalogue, totals
from rollbook.metrics.frames import ROW, HostFrames
from rollbook.metrics.live import HostMetrics, Values
from rollbook.metrics.metric import Table
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult
from rollbook.records.record import Record, RecordHosts
from rollbook.sources import catalogue as sources
from rollbook.sources.base import U32, Compare, Facts, compare_of
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sql import connection as store
from rollbook.testing.journals import Beats, body_of

SECOND = 10**9
START = 1_700_000_000 * SECOND
KEYS: dict[str, list[dict[str, Any]]] = {
    "stat": [{"cpu": "cpu"}, {"cpu": "cpu0"}],
    "diskstats": [{"device_name": name} for name in ("sda", "sda1", "nvme0n1", "loop0")],
    "net_dev": [{"interface_name": name} for name in ("lo", "eth0", "eth1")],
    "pressure": [{"resource": name} for name in ("cpu", "io", "memory", "irq")],
    "infiniband_counters": [{"port": name} for name in ("mlx5_0:1", "mlx5_1:1")],
    "nfs": [{"mount_point": name} for name in ("/a", "/b", "/c")],
    "nfs_ops": [
        {"mount_point": at, "operation": what}
        for at in ("/a", "/b", "/c")
        for what in ("READ", "READ_PLUS", "WRITE", "X")
    ],
    "lustre_stats": [
        {"file_system": "fs", "instance": at, "operation": what}
        for at in "xy"
        for what in ("read_bytes", "write_bytes")
    ],
    "gpu": [{"index": 0}, {"index": 1}],
    "amdgpu": [{"card": "card0"}],
}
DICTS = {"meminfo": "kib", "vmstat": "counters", "infiniband_counters": "counters"}
FACTS: dict[str, Any] = {
    "mountinfo": [MountInfo(at, "nfs4", "srv:/x", "/", True, [], [], "0:50") for at in ("/a", "/b")],
    "block": [Block("sda", "disk", partitions=["sda1"]), Block("nvme0n1", "disk"), Block("loop0", "loop")],
}
TABLES = {table.source.name: table for part in catalogue.parts().values() for table in part.tables}
HELD = {metric.name for part in catalogue.parts().values() if part.is_held for metric in part.metrics}
MetricsByTime = dict[tuple[str, int], tuple[Values, dict[str, Values]]]
"""By host and time: the metrics of the host, and those of its devices that are read on every beat."""


class Host:
    """A simulated host with random values in every column of every device."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.random = name, random.Random(seed)
        self.now: dict[tuple[str, int, str], int] = {}
        self.out: set[tuple[str, int]] = set()
        self.rows: dict[str, list[tuple[int, int, dict[str, Any]]]] = {name: [] for name in TABLES}

    def sample(self, name: str, ts: int, mono: int) -> list[dict[str, Any]]:
        """The next rows of a table, columns by name; they are also kept for the record."""
        table, found = TABLES[name], []
        for device, keys in enumerate(KEYS.get(name, [{}])):
            if name not in ("loadavg", "stat") and self.random.random() < 0.08:  # plugged in, or out
                self.out ^= {(name, device)}
            if (name, device) not in self.out:
                values = {column: self._next(table, device, column) for column in table.columns}
                found.append(keys | {column: value for column, value in values.items() if value is not None})
                self.rows[name].append((ts, mono, found[-1]))
        return found

    def reboot(self) -> None:
        """Reset all counters."""
        self.now.clear()

    def _next(self, table: Table, device: int, column: str) -> int | None:
        if optional(table, column) and self.random.random() < 0.05:
            return None
        key, compare = (table.source.name, device, column), compare_of_column(table, column)
        if compare.mode == "gauge":
            return self.random.randrange(1000)
        if key not in self.now:
            near = self.random.choice([0, 0, U32 - 5000, 3_300_000_000, (1 << 62) if compare.wraps == 0 else 0])
            self.now[key] = near + self.random.randrange(1000)
        elif self.random.random() < 0.05:
            self.now[key] = self.random.randrange(1000)  # reset
        elif compare.unit == "ticks" and self.random.random() < 0.1:
            self.now[key] = max(0, self.now[key] - 1)
        else:
            self.now[key] += self.random.choice([0, 0, 7, 1000, 4000, 123_456])
        if compare.wraps:
            self.now[key] %= U32
        return self.now[key]


def compare_of_column(table: Table, column: str) -> Compare:
    """How a column is compared; for a column of a dict field, how that field is compared."""
    fields = dict(table.fields[column])
    return fields.get(column) or fields[DICTS[table.source.name]]


def optional(table: Table, column: str) -> bool:
    """Whether a row may lack the column."""
    field = fields_of(table.source.row_type).get(column)
    return field is None or not field.required


@functools.cache
def fields_of(kind: type[Facts]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a row by name."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


def facts(name: str, columns: dict[str, Any]) -> Facts:
    """The typed row of a source."""
    kind = TABLES[name].source.row_type
    fields = fields_of(kind)
    empty: dict[Any, Any] = {dict: {}, list: [], str: "", float: 0.0, int: 0}
    arguments = {field: value for field, value in columns.items() if field in fields}
    if name in DICTS:
        arguments[DICTS[name]] = {column: value for column, value in columns.items() if column not in fields}
    for field in fields.values():
        if field.required and field.name not in arguments:
            hint = str(field.type)
            arguments[field.name] = next((value for type_, value in empty.items() if type_.__name__ in hint), None)
    return msgspec.convert(arguments, kind)


def write(path: Path, hosts: list[Host]) -> Record:
    """Write the record of the hosts' samples."""
    (path / "series").mkdir()
    for name, table in TABLES.items():
        fields = list(compare_of(table.source.row_type).items())
        plain = [(field, how) for field, how in fields if not how.columns]
        wide = [column for column in table.columns if column not in dict(fields)]
        about = {field: [how.mode, how.unit] for field, how in plain}
        about |= {column: [compare_of_column(table, column).mode, ""] for column in wide}
        values = []
        for host in hosts:
            for ts, mono, columns in host.rows[name]:
                row = [columns.get(column) for column in about]
                cells = [f"'{v}'" if isinstance(v, str) else f"{'NULL' if v is None else v}::BIGINT" for v in row]
                values.append(f"('{host.name}', make_timestamp_ns({ts}), {mono}::BIGINT, {', '.join(cells)})")
        if not values:
            continue
        names = ", ".join(["host", "ts", "mono", *(f'"{column}"' for column in about)])
        keys = ", ".join(f'"{field}"' for field, how in plain if how.mode == "key")
        order = ", ".join(filter(None, ("host", keys, "ts")))
        metadata = f"{{rollbook_columns: '{json.dumps(about)}', rollbook_order: 'host, key, time'}}"
        query = f"SELECT * FROM (VALUES {', '.join(values)}) t({names}) ORDER BY {order}"
        duckdb.execute(f"COPY ({query}) TO '{path}/series/{name}.parquet' (FORMAT parquet, KV_METADATA {metadata})")
    start = [HostResult(name=host.name, status="complete", facts=FACTS) for host in hosts]
    return Record(path, {}, RecordHosts(started_ns=START, ended_ns=START, interval_seconds=1.0, start=start))


def stored_metrics(run: Record, *, whole: bool) -> MetricsByTime:
    """The metrics that SQL computes from the record."""
    found: MetricsByTime = {}
    with store.connect(run, whole=whole) as connection:
        names = list(catalogue.load())
        for host, ts, *row in connection.execute(
            f"SELECT host, epoch_ns(ts), {', '.join(names)} FROM rates"
        ).fetchall():
            found[host, ts] = ({name: v for name, v in zip(names, row, strict=True) if v is not None}, {})
        for part in catalogue.parts().values():
            if part.shows_devices and not part.is_held:
                names = [metric.name for metric in part.metrics]
                query = f"SELECT host, epoch_ns(ts), device, {', '.join(names)} FROM {part.name}"
                for host, ts, device, *row in connection.execute(query).fetchall():
                    known = {name: value for name, value in zip(names, row, strict=True) if value is not None}
                    if known:
                        found[host, ts][1][device] = known
    return found


def rates_of_the_next_sample(sampled: set[str]) -> set[str]:
    """The metrics that a record takes from the next sample, if these tables were sampled now."""
    parts = [part for part in catalogue.parts().values() if part.is_held and part.has_rates]
    now = {part.name for part in parts for table in part.tables if table.source.name in sampled}
    return {metric.name for part in parts if part.name not in now for metric in part.metrics}


def live_metrics(host: Host, later: dict[tuple[str, int], set[str]]) -> MetricsByTime:
    """The metrics that the live view computes from some beats of a host.

    Those that a record takes from the next sample, which the live view cannot know, are left out and added to `later`.
    """
    live, found = HostMetrics(1.0, catalogue.parts()), MetricsByTime()
    for source, fact in FACTS.items():
        live.learn(source, fact)
    ts, mono = START, 5000 * SECOND
    for beat in range(host.random.randrange(4, 24)):
        live.begin()
        sampled = set()
        for name, table in TABLES.items():
            if beat % table.source.every == 0 and (not table.is_held or host.random.random() < 0.9):
                read = mono + host.random.randrange(SECOND // 100)
                rows = [facts(name, columns) for columns in host.sample(name, ts, read)]
                if rows:
                    sampled.add(name)
                    live.take(name, rows if table.source.is_table else rows[0], ts, read)
        live.end(ts)
        devices = {device: {n: v for n, v in rest.items() if n not in HELD} for device, rest in live.devices.items()}
        unknown = later[host.name, ts] = rates_of_the_next_sample(sampled)
        values = {name: value for name, value in live.values.items() if name not in unknown}
        found[host.name, ts] = values, {device: rest for device, rest in devices.items() if rest}
        step = host.random.choice([1, 1, 1, 1, 1, 2, 3, 12]) * SECOND
        ts += step
        event = host.random.random()
        mono += 0 if event < 0.03 else step  # suspended
        if event > 0.96:
            mono = SECOND
            host.reboot()
    return found


@settings(
    max_examples=2, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # shrinking a seed is useless
@given(st.integers(0, 10**9))
@example(0)  # the last host has a mount with operations but no bytes
def test_live_and_stored_agree(seed: int) -> None:
    """Equal over gaps, reboots, suspends, resets, wraps, hot-plug, missed beats and sources that are read rarely."""
    hosts = [Host(f"n{number}", seed + number) for number in range(12)]
    seen, later = MetricsByTime(), dict[tuple[str, int], set[str]]()
    for host in hosts:
        seen |= live_metrics(host, later)
    with TemporaryDirectory() as directory:
        run = write(Path(directory), hosts)
        for whole in (False, True):
            found = stored_metrics(run, whole=whole)
            assert found.keys() == seen.keys()
            for key, (values, devices) in seen.items():
                stored = {name: value for name, value in found[key][0].items() if name not in later[key]}
                assert values == pytest.approx(stored), key
                assert devices.keys() == found[key][1].keys(), key
                for device, rest in devices.items():
                    assert rest == pytest.approx(found[key][1][device]), key


def test_every_table_with_keys_is_compared() -> None:
    """The test above has rows for every table with keys that a metric is computed from."""
    assert {name for name, table in TABLES.items() if table.keys} == set(KEYS)


def test_many_devices_are_compared_with_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host may report 40,000 devices, different ones on every beat: the work must not grow quadratically."""
    sets = list[set[str]]()

    def like_a_disk(_: str, names: set[str]) -> bool:
        sets.append(names)
        return True

    monkeypatch.setattr(totals, "_like_a_disk", like_a_disk)
    names = [f"d{number}" for number in range(5)]
    assert totals.counted_disks([*names, "sda", "loop0"], [HostResult(name="a", status="complete", facts=FACTS)]) == [
        *names,
        "sda",
    ]
    assert len(sets) == 5
    assert all(one is sets[0] for one in sets)


def test_admit_gets_the_size_of_all_work() -> None:
    """`admit` is called for text that is parsed and for rows that metrics are computed from, even if unchanged."""
    sizes = list[int]()
    plan = Plan((sources.source("loadavg"), sources.source("mountinfo")))
    frames, beats = HostFrames(plan, 1.0, admit=sizes.append), Beats()
    body = body_of({"/proc/loadavg": "0.1 0.2 0.3 1/2 3\n"})
    for number in range(2):
        frames.frame(Frame("S", number, number * SECOND, START, beats.payload({0: body})), START + number * SECOND)
    frames.frame(Frame("R", 2, 2 * SECOND, START, b"1 start ok 0 \n" + body), START)
    assert sizes == [len(body), ROW, ROW, len(body)]
