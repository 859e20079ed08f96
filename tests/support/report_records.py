"""Records for tests and benchmarks of the page: hosts with similar load, and problems of some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from rollbook.checks.rules.host_outlier import ID, findings_of
from rollbook.metrics import catalogue
from rollbook.metrics.host_outliers import find_outliers
from rollbook.metrics.views import host_view
from rollbook.records.document import encode
from rollbook.records.findings import Findings, RuleResult
from rollbook.records.hosts import Clock, Cost, HostResult
from rollbook.records.record import ClockPoint, Gap, Phase, Record, RecordHosts, SeriesHost
from rollbook.sources import catalogue as sources
from rollbook.sources.base import compare_of, counter, gauge
from rollbook.sql.grids import Tables

START_NS = 1_794_744_000 * 10**9  # 2026-11-15 12:00:00 UTC
SECOND = 10**9

# The value of each column at sample s; a, b and c are noise, uniform in 0..1 and different in every cell.
# The run warms up, reads for four fifths and writes checkpoints in the last fifth and every tenth of the run.
RATES = """
CREATE TABLE rates AS
WITH cells AS (
    SELECT printf('node%0{digits}d', h) AS host, h, s, s / {samples} AS part,
        hash(h, s, 1) / 18446744073709551615 AS a, hash(h, s, 2) / 18446744073709551615 AS b,
        hash(h, s, 3) / 18446744073709551615 AS c, hash(h, s // 20, 4) / 18446744073709551615 AS slow,
        least(1, s / ({samples} * 0.06)) * CASE WHEN s > {samples} * 0.96 THEN 0.1 ELSE 1 END AS warm
    FROM range(1, {hosts} + 1) hosts(h), range({samples}) samples(s)
), phases AS (
    SELECT *, part > 0.8 OR (part * 10) % 1 > 0.9 AS saving,
        coalesce((SELECT max(factor) FROM trouble t WHERE t.h = cells.h AND part BETWEEN since AND til), 1) AS slower
    FROM cells
)
SELECT host, make_timestamp_ns({start} + s * {interval} + ((a - 0.5) * 4e6)::BIGINT) AS ts,
    warm * (CASE WHEN saving THEN 22 ELSE 61 END + 14 * slow + 9 * b) / sqrt(slower) AS cpu_busy,
    warm * (CASE WHEN saving THEN 8 ELSE 1.5 END * (0.5 + b) * slower) AS cpu_iowait,
    warm * (38 + 10 * slow + 3 * a) AS load_1min,
    CASE WHEN saving THEN 0.02 ELSE 1 END * warm * (2.1e9 + 5e8 * slow + 3e8 * c) / slower AS disk_read,
    CASE WHEN saving THEN 1 ELSE 0.01 END * warm * (1.4e9 + 4e8 * slow + 2e8 * b) / slower AS disk_write,
    warm * (0.35 + 0.15 * slow + 0.1 * b + 0.2 * pow(c, 12)) * slower AS disk_read_latency,
    warm * (CASE WHEN saving THEN 2.6 ELSE 0.8 END + slow + 0.5 * a + 2 * pow(b, 14)) * slower AS disk_write_latency,
    least(100, warm * (58 + 14 * slow + 8 * c) * sqrt(slower)) AS disk_util,
    warm * (CASE WHEN saving THEN 1.1e9 ELSE 2.6e8 END + 2e8 * slow + 5e7 * a) AS net_rx,
    warm * (CASE WHEN saving THEN 1.3e9 ELSE 2.2e8 END + 2e8 * slow + 5e7 * b) AS net_tx,
    4.9e11 - warm * (1.1e11 + 4e10 * part + 2e9 * slow) AS mem_available,
    2e10 + 1.8e11 * least(1, part * 3) + 1e9 * slow AS page_cache,
    warm * CASE WHEN saving THEN 6e9 * (0.4 + b) ELSE 2e7 * a END AS dirty,
    warm * (3 + 4 * slow * b) AS psi_cpu,
    0.0 AS psi_memory,
    warm * (CASE WHEN saving THEN 14 ELSE 3 END) * (0.4 + c) * sqrt(slower) AS psi_io,
    warm * CASE WHEN saving THEN 12 ELSE 88 END + 8 * warm * c AS gpu_util
FROM phases
WHERE NOT EXISTS (SELECT 1 FROM gaps WHERE gaps.h = phases.h AND s BETWEEN since AND til)
"""

DISKS = """
CREATE TABLE disks AS
SELECT host, ts, printf('nvme%dn1', d) AS device,
    disk_read / 4 * (0.9 + 0.2 * hash(host, ts, d) / 18446744073709551615) AS disk_read,
    disk_write / 4 * (0.9 + 0.2 * hash(host, ts, d + 9) / 18446744073709551615) AS disk_write,
    CASE WHEN sick AND d <> 1 THEN 0.45 ELSE disk_read_latency END AS disk_read_latency,
    CASE WHEN sick AND d <> 1 THEN 1.6 ELSE disk_write_latency END AS disk_write_latency,
    disk_util
FROM (SELECT *, host IN (SELECT printf('node%0{digits}d', h) FROM trouble) AS sick FROM rates),
    range({disks}) devices(d)
"""

# Tables of the series with counters that result in these rates, as queries over `rates` and `disks`.
COUNTED = """SELECT host, ts, epoch_ns(ts) - {start} + 10**12 AS mono, {columns} FROM {table}
    WINDOW until AS (PARTITION BY {keys} ORDER BY ts) ORDER BY {keys}, ts"""
TICKS = 6400  # per second: 64 CPUs
SERIES = {
    "stat": (
        "rates",
        {"cpu": "'cpu'", "user": f"{TICKS / 100} * cpu_busy", "iowait": f"{TICKS / 100} * cpu_iowait"}
        | {"idle": f"{TICKS} - {TICKS / 100} * (cpu_busy + cpu_iowait)"}
        | dict.fromkeys(("nice", "system", "irq", "softirq", "steal"), "0")
        | {"extra": "[]"},
    ),
    "loadavg": ("rates", {"load_1min": "load_1min"}),
    "meminfo": (
        "rates",
        {"total_kib": "536870912", "MemAvailable": "mem_available / 1024", "Cached": "page_cache / 1024"}
        | {"Dirty": "dirty / 1024"},
    ),
    "pressure": (
        "(UNPIVOT rates ON psi_cpu AS cpu, psi_memory AS memory, psi_io AS io INTO NAME kind VALUE share)",
        {"resource": "kind", "some_total_us": "1e4 * share", "full_total_us": "5e3 * share"},
    ),
    "net_dev": (
        "rates",
        {"interface_name": "'eth0'", "rx_bytes": "net_rx", "tx_bytes": "net_tx"}
        | {"rx_packets": "net_rx / 9000", "tx_packets": "net_tx / 9000"}
        | dict.fromkeys(("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"), "0"),
    ),
    "diskstats": (
        "disks",
        {"device_name": "device", "sectors_read": "disk_read / 512", "sectors_written": "disk_write / 512"}
        | {"reads_completed": "disk_read / 131072", "writes_completed": "disk_write / 131072"}
        | {"time_reading_ms": "disk_read_latency * disk_read / 131072"}
        | {"time_writing_ms": "disk_write_latency * disk_write / 131072"}
        | {"time_doing_ios_ms": "10 * disk_util", "weighted_time_doing_ios_ms": "20 * disk_util"},
    ),
    "vmstat": ("rates", dict.fromkeys(("pgmajfault", "pswpin", "pswpout"), "0")),
}


def tables(
    hosts: int,
    samples: int,
    *,
    interval: float = 1.0,
    slow: tuple[tuple[int, float, float, float], ...] = (),
    gaps: tuple[tuple[int, int, int], ...] = (),
    lost: Collection[int] = (),
    disks: int = 4,
    renamed: Mapping[int, str] = {},
) -> duckdb.DuckDBPyConnection:
    """Rates of some hosts. `slow` holds (host, factor, from, to) in parts of the run, `gaps` (host, from, to)."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE trouble (h BIGINT, factor DOUBLE, since DOUBLE, til DOUBLE)")
    connection.execute("CREATE TABLE gaps (h BIGINT, since BIGINT, til BIGINT)")
    for one in slow:
        connection.execute("INSERT INTO trouble VALUES (?, ?, ?, ?)", list(one))
    for gap in (*gaps, *((number, 0, samples) for number in lost)):
        connection.execute("INSERT INTO gaps VALUES (?, ?, ?)", list(gap))
    numbers = {
        "hosts": hosts,
        "samples": samples,
        "digits": len(str(hosts)),
        "start": START_NS,
        "interval": int(interval * SECOND),
        "disks": disks,
    }
    connection.execute(RATES.format_map(numbers))
    connection.execute(DISKS.format_map(numbers))
    for part in catalogue.parts():
        connection.execute(f"CREATE VIEW {host_view(part)} AS FROM rates")
    for number, called in renamed.items():
        for table in ("rates", "disks"):
            connection.execute(f"UPDATE {table} SET host = ? WHERE host = ?", [called, name(number, hosts)])
    return connection


def check(run: Record, tables: Tables, *others: RuleResult) -> Record:
    """Write the findings of the record: its outliers, and those of other rules."""
    everything = tables.all_grids(run.hosts)
    grids = everything.select(lambda metric: metric.compared) if everything else None
    outliers = list(findings_of(find_outliers(grids.by_host, grids.by_device, {}))) if grids else []
    for finding in outliers:
        finding.severity = "warn"
    rule = RuleResult(id=ID, outcome="warn" if outliers else "pass", findings=outliers)
    (run.path / "findings.json").write_bytes(encode(Findings.of("now", [], [*others, rule])))
    return run


def write_series(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write tables of counters that result in these rates into the record at `path`."""
    (path / "series").mkdir(exist_ok=True)
    for source, (table, columns) in SERIES.items():
        known = compare_of(sources.source(source).row_type)
        rest = gauge("KiB") if source == "meminfo" else counter("pages")
        about = {column: known.get(column, rest) for column in columns}
        wanted = [f"{_counted(about[column].mode, value)} AS {column}" for column, value in columns.items()]
        named = (columns[column] for column in columns if about[column].mode == "key")
        keys = ", ".join(["host", *(value for value in named if not value.startswith("'"))])
        query = COUNTED.format(start=START_NS, columns=", ".join(wanted), table=table, keys=keys)
        metadata = json.dumps({column: [how.mode, how.unit] for column, how in about.items()})
        options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{rollbook_columns: '{metadata}'}}"
        connection.execute(f"COPY ({query}) TO '{path}/series/{source}.parquet' ({options})")


def _counted(mode: str, value: str) -> str:
    if mode == "counter":
        return f"(1e6 + sum({value}) OVER until)::BIGINT"
    return f"({value})::{ {'key': 'VARCHAR', 'info': 'BIGINT[]'}.get(mode, 'DOUBLE') }"


def name(number: int, hosts: int) -> str:
    """The name of a host in `tables`."""
    return f"node{number:0{len(str(hosts))}d}"


def run(
    path: Path,
    hosts: int,
    samples: int,
    *,
    interval: float = 1.0,
    gaps: tuple[tuple[int, int, int], ...] = (),
    lost: Mapping[int, str] = {},
    renamed: Mapping[int, str] = {},
    facts: Callable[[int], dict[str, Any]] = lambda _: {},
    end_facts: Callable[[int], dict[str, Any]] | None = None,
    findings: Findings | None = None,
    code: int = 0,
    phase_statistics: Sequence[Mapping[str, Any]] = (),
) -> Record:
    """Write a record that matches such tables; `lost` are hosts that never answered, with the reason."""
    step = int(interval * SECOND)
    end = START_NS + samples * step
    results, ends, series = [], [], []
    for number in range(1, hosts + 1):
        called = renamed.get(number, name(number, hosts))
        cost = Cost(cpu_seconds=0.0004 * samples, peak_memory_bytes=14 << 20, sent_bytes=900 * samples)
        if number in lost:
            results.append(HostResult(name=called, status="unreachable", reason=lost[number], method="ssh"))
            continue
        clock = Clock(offset_ns=(number * 7919) % 900_000 - 300_000, bound_ns=41_000, round_trip_ns=330_000)
        here = HostResult(name=called, status="complete", method="ssh", clock=clock, cost=cost, facts=facts(number))
        results.append(here)
        if end_facts is not None:
            ends.append(HostResult(name=called, status="complete", method="ssh", facts=end_facts(number)))
        holes = [Gap(START_NS + a * step, START_NS + b * step, "connection lost") for n, a, b in gaps if n == number]
        missing = sum(hole.end_ns - hole.start_ns for hole in holes) // step
        series.append(
            SeriesHost(
                name=called,
                status="partial" if holes else "complete",
                reason="the connection was lost and came back" if holes else "",
                method="ssh",
                samples=samples - missing,
                late=number % 3,
                missed=missing,
                first_ns=START_NS,
                last_ns=end - step,
                boot_ids=["6c1b6c2f"],
                gaps=holes,
                clocks=[ClockPoint(START_NS, clock)],
                cost=cost,
                cpu_share=0.0004 + (number % 7) * 2e-5,
            )
        )
    at = [START_NS + int(part * samples) * step for part in (0, 0.06, 0.8, 0.96, 1)]
    phases = [
        Phase(phase, a, b)
        for phase, a, b in zip(("command", "epoch 1", "checkpoint", "after"), at[:-1], at[1:], strict=True)
    ]
    known = RecordHosts(
        started_ns=START_NS,
        ended_ns=end,
        interval_seconds=interval,
        start=results,
        end=ends,
        series=series,
        phases=phases,
    )
    path.mkdir(parents=True, exist_ok=True)
    (path / "hosts.json").write_bytes(encode(known))
    metadata = {
        "benchmark_type": "training",
        "run_datetime": "20261115_120000",
        "executed_command": "mlpstorage training run --model unet3d --num-accelerators 64 --data-dir /mnt/scratch/data",
        "exit_code": code,
        "phase_statistics": list(phase_statistics),
    }
    if findings is not None:
        (path / "findings.json").write_bytes(encode(findings))
    (path / "training_20261115_120000_metadata.json").write_text(json.dumps(metadata))
    return Record.open(path)
