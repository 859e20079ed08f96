"""SQL over a record: rates with known results, statistics of phases, exports, and no access to other files."""

from __future__ import annotations

import csv
import datetime as dt
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import rollbook
from rollbook.cli import cli
from rollbook.errors import RecordError, RollbookError, UsageError
from rollbook.exports.timeseries import write_timeseries
from rollbook.journal import writer
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import survey
from rollbook.records.document import encode
from rollbook.records.findings import Finding, Findings, RuleResult, Silenced
from rollbook.records.hosts import HostResult
from rollbook.records.layout import RecordDirectory, list_files
from rollbook.records.record import Record, RecordHosts
from rollbook.sources.block import Block
from rollbook.sql import connection as store
from rollbook.sql import record_tables as known_tables
from rollbook.tables import seal
from rollbook.tables.derive import derive
from rollbook.tables.parquet import in_order
from rollbook.testing.journals import Script, record_this_machine, synthesise
from tests.metrics.test_totals import mounted

SECOND = 10**9
START = 1_700_000_000 * SECOND
HEAD = "Inter-|   Receive          |  Transmit\n face |bytes    packets errs drop fifo|bytes    packets\n"
Samples = list[tuple[float, dict[str, dict[str, str]]]]


def net(**received: int) -> dict[str, dict[str, str]]:
    """A sample of net_dev with these received bytes, and half as many sent."""
    lines = [f"{name}: {value} 1 0 0 0 0 0 0 {value // 2} 1 0 0 0 0 0 0\n" for name, value in received.items()]
    return {"net_dev": {"/proc/net/dev": HEAD + "".join(lines)}}


def stat(*ticks: int) -> dict[str, dict[str, str]]:
    """A sample of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    return {"stat": {"/proc/stat": f"cpu  {' '.join(map(str, ticks))} 0 0\n"}}


def make_record(
    path: Path, names: list[str], samples: Samples, *, monos: list[float] | None = None, **more: Any
) -> Record:
    """Make a record of one host from samples at seconds after its start, and open it."""
    script = Script(path / "raw", ["a"], names, **more)
    script.connect()
    for number, (second, texts) in enumerate(samples):
        mono = monos[number] if monos else second + 5000
        script.sample(START + round(second * SECOND), texts, mono=round(mono * SECOND))
    script.close()
    derive(path)
    (path / "test_20261115_000000_metadata.json").write_text("{}")
    RecordDirectory(path, "test", "20261115_000000").write_manifest()
    return Record.open(path)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Record]:
    """A function that makes a record of one host, as `make_record` does."""
    return functools.partial(make_record, tmp_path / "record")


def rows(run: Record, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query, which are the same whether rates are computed for some hosts or for all."""
    found = []
    for whole in (False, True):
        with store.connect(run, whole=whole) as connection:
            found.append(store.query(connection, sql).fetchall())
    assert found[0] == found[1]
    return found[0]


WRAP32, WRAP64 = 1 << 32, 1 << 64
# Ground truth: the values of a counter at each second, and the expected rates.
TRUTH: dict[str, tuple[list[tuple[float, int]], list[float | None]]] = {
    "steady": ([(0, 10), (1, 110), (2, 310)], [None, 100, 200]),
    "uneven beats": ([(0, 0), (1.5, 150), (2, 250)], [None, 100, 200]),
    "falls at 32 bits": ([(0, WRAP32 - 50), (1, 50), (2, 150)], [None, None, 100]),
    "falls at 64 bits": ([(0, WRAP64 - 50), (1, 50), (2, 150)], [None, None, 100]),
    "was reset near 32 bits": ([(0, 3_300_000_000), (1, 1000)], [None, None]),
    "crosses 63 bits": ([(0, (1 << 63) - 50), (1, (1 << 63) + 50)], [None, 100]),
    "crosses 32 bits": ([(0, WRAP32 - 50), (1, WRAP32 + 50)], [None, 100]),
    "was reset": ([(0, 10_000), (1, 40), (2, 140)], [None, None, 100]),
    "gap": ([(0, 0), (1, 100), (4, 400), (5, 500)], [None, 100, None, 100]),
    "one missed beat is not a gap": ([(0, 0), (1, 100), (3, 300)], [None, 100, 100]),
}


def test_rates(tmp_path: Path) -> None:
    """A rate is computed only between values of the same uninterrupted count; otherwise it is NULL."""
    script = Script(tmp_path / "raw", list(TRUTH), ["net_dev"])
    for host, (reads, _) in enumerate(TRUTH.values()):
        script.connect(host)
        for second, value in reads:
            at = round(second * SECOND)
            script.sample(START + at, net(eth0=value), host=host, mono=5000 * SECOND + at)
    script.close()
    run = Record(tmp_path, {}, derive(tmp_path)[2])
    found: dict[str, list[float | None]] = {name: [] for name in TRUTH}
    for name, rate in rows(run, "SELECT host, rx_bytes FROM net_dev_rates ORDER BY host, ts"):
        found[name].append(rate)
    assert found == {name: expected for name, (_, expected) in TRUTH.items()}


def test_a_host_without_python_has_rates(tmp_path: Path) -> None:
    """The shell agent samples once a second at most: for it, 1 s is not a gap; for the Python agent at 0.2 s, it is."""
    script = Script(tmp_path / "raw", ["a", "b"], ["net_dev"], interval_ns=SECOND // 5)
    for host, kind in enumerate(("sh", "python")):
        script.connect(host, kind=kind)
        for second in (0, 1, 2, 5):
            script.sample(START + second * SECOND, net(eth0=100 * second), host=host)
    script.close()
    _, _, hosts = derive(tmp_path)
    found = rows(Record(tmp_path, {}, hosts), "SELECT host, rx_bytes FROM net_dev_rates ORDER BY host, ts")
    assert found == [*(("a", rate) for rate in (None, 100, 100, None)), *[("b", None)] * 4]


@pytest.mark.parametrize(
    ("top", "expected"),
    [("1000", [None, 30.0, 20.0, 40.0]), (None, [None, 30.0, None, 40.0])],
    ids=["range known", "range unknown"],
)
def test_energy_wraps_at_the_range_of_its_zone(
    record: Callable[..., Record], top: str | None, expected: list[float | None]
) -> None:
    """The counter of a RAPL zone wraps at its own range; if the range was not read, there is no rate."""
    place = "/sys/class/powercap/intel-rapl:0"
    more = {f"{place}/max_energy_range_uj": f"{top}\n"} if top else {}
    reads = [(0, 600), (10, 900), (20, 100), (30, 500)]
    samples: Samples = [
        (second, {"rapl": {f"{place}/name": "package-0\n", f"{place}/energy_uj": f"{value}\n", **more}})
        for second, value in reads
    ]
    run = record(["rapl"], samples)
    assert [row[0] for row in rows(run, "SELECT energy_uj FROM rapl_rates ORDER BY ts")] == expected


def test_no_rate_across_a_reboot(record: Callable[..., Record]) -> None:
    """There is no rate across a reboot, even if the counter rose."""
    samples = [(second, net(eth0=100 * second)) for second in range(1, 7)]
    run = record(["net_dev"], samples, monos=[1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    assert [row[0] for row in rows(run, "SELECT rx_bytes FROM net_dev_rates ORDER BY ts")] == [
        None,
        100,
        100,
        None,
        100,
        100,
    ]


def test_hot_plug(record: Callable[..., Record]) -> None:
    """A new device has no rate at its first sample, and none across its absence."""
    interfaces = {0: {"lo": 1}, 1: {"lo": 1, "eth1": 900}, 2: {"lo": 1, "eth1": 1000}, 3: {"lo": 1}}
    interfaces |= {4: {"lo": 1}, 5: {"lo": 1, "eth1": 5000}}
    run = record(["net_dev"], [(second, net(**links)) for second, links in interfaces.items()])
    found = rows(run, "SELECT rx_bytes FROM net_dev_rates WHERE interface_name = 'eth1' ORDER BY ts")
    assert [row[0] for row in found] == [None, 100, None]


def test_decreasing_iowait(record: Callable[..., Record]) -> None:
    """The time of iowait may decrease by a tick (proc_stat(5)): it counts as zero, and other times still count."""
    run = record(["stat"], [(0, stat(0, 0, 0, 0, 10, 0, 0, 0)), (1, stat(30, 0, 20, 50, 9, 0, 0, 0))])
    assert rows(run, "SELECT cpu_busy, cpu_iowait FROM rates ORDER BY ts") == [(None, None), (50.0, 0.0)]


def test_one_host_with_absurd_numbers(tmp_path: Path) -> None:
    """Numbers that overflow in 64 bits take away neither the metrics of other hosts nor the totals."""
    top = (1 << 63) - 1
    script = Script(tmp_path / "raw", ["a", "b"], ["meminfo", "vmstat"])
    for host, (size, faults) in enumerate([(50, (0, 100)), (top, (-top, top))]):
        script.connect(host)
        for second, value in enumerate(faults):
            memory = f"MemTotal: {2 * size if size < top else top} kB\nMemAvailable: {size} kB\n"
            texts = {"meminfo": {"/proc/meminfo": memory}, "vmstat": {"/proc/vmstat": f"pgmajfault {value}\n"}}
            script.sample(START + second * SECOND, texts, host=host)
    script.close()
    run = Record(tmp_path, {}, derive(tmp_path)[2])
    huge = pytest.approx(1024.0 * top)
    found = rows(run, "SELECT host, mem_available, major_faults FROM rates ORDER BY host, ts")
    assert found == [("a", 51200, None), ("a", 51200, 100), ("b", huge, None), ("b", huge, None)]
    assert rows(run, "SELECT host, max(mem_total) FROM samples GROUP BY host ORDER BY host") == [
        ("a", 102400),
        ("b", huge),
    ]


def test_columns_that_a_host_invents(tmp_path: Path) -> None:
    """Rates of all hosts are the same whatever names one of them sends."""
    names = ["seconds", "Passed", "alike", "STEADY", "c0", "c0_before", "pgfault"]
    script = Script(tmp_path / "raw", ["a", "b"], ["vmstat"])
    for host, sent in enumerate([["pgfault"], names]):
        script.connect(host)
        for second in range(3):
            text = "".join(f"{name} {second * 100 * (place + 1)}\n" for place, name in enumerate(sent))
            script.sample(START + second * SECOND, {"vmstat": {"/proc/vmstat": text}}, host=host)
    script.close()
    run = Record(tmp_path, {}, derive(tmp_path)[2])
    found = rows(run, f"SELECT host, seconds, {', '.join(names[1:])} FROM vmstat_rates ORDER BY host, ts")
    none, invented = (None,) * 5, (200.0, 300.0, 400.0, 500.0, 600.0)
    assert found[:3] == [("a", None, *none, None), *[("a", 1.0, *none, 100.0)] * 2]
    assert found[3:] == [("b", None, *none, None), *[("b", 1.0, *invented, 700.0)] * 2]
    assert rows(run, 'SELECT max("counters.seconds") FROM vmstat') == [(200,)]


def test_a_table_with_a_column_that_its_rates_have(record: Callable[..., Record]) -> None:
    """A table of an earlier version may have a column `seconds`: its rates leave it out."""
    run = record(["net_dev"], [(second, net(eth0=100 * second)) for second in range(3)])
    path = run.path / "series" / "net_dev.parquet"
    metadata = duckdb.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')").fetchall()
    about = {key: value for key, value in metadata if key.startswith("rollbook")}
    described = json.loads(about["rollbook_columns"]) | {"seconds": ["counter", "s"]}
    texts = {**about, "rollbook_columns": json.dumps(described)}
    pairs = ", ".join(f"{key}: '{value}'" for key, value in texts.items())
    new = path.with_name("new")
    copied = f"(SELECT *, 7 AS seconds FROM '{path}') TO '{new}'"
    duckdb.execute(f"COPY {copied} (FORMAT parquet, KV_METADATA {{{pairs}}})")
    new.replace(path)
    found = rows(run, "SELECT seconds, rx_bytes FROM net_dev_rates ORDER BY ts")
    assert found == [(None, None), (1.0, 100.0), (1.0, 100.0)]


def test_rates_of_merged_samples(record: Callable[..., Record]) -> None:
    """Merged samples give the mean rate over their step; the maximum gap grows with the step."""
    samples = [(second, net(eth0=second * second)) for second in range(100)]
    run = record(["net_dev"], samples, max_samples=10)
    found = [row[0] for row in rows(run, "SELECT rx_bytes FROM net_dev_rates ORDER BY ts")]
    assert found[0] is None
    kept = [0, *range(11, 99, 12), 99]
    assert found[1:] == [pytest.approx((b * b - a * a) / (b - a)) for a, b in itertools.pairwise(kept)]


DISKS = "{} 0 {} 100 0 {} 50 0 0 0 0 0 25 50\n"


def test_one_row_per_host_and_beat(record: Callable[..., Record]) -> None:
    """`rates` and `samples` have one row per beat; each byte is counted once; missing metrics are NULL."""
    texts = [
        {
            "diskstats": "".join(DISKS.format(8, name, 8 * second) for name in ("sda", "sda1", "dm-0", "loop0")),
            "meminfo": "MemTotal: 100 kB\nMemAvailable: 50 kB\n",
            "loadavg": "0.5 0.4 0.3 2/100 7\n",
        }
        for second in range(3)
    ]
    paths = {"diskstats": "/proc/diskstats", "meminfo": "/proc/meminfo", "loadavg": "/proc/loadavg"}
    samples = [
        (second, {name: {paths[name]: text} for name, text in beat.items()}) for second, beat in enumerate(texts)
    ]
    run = record(["loadavg", "meminfo", "diskstats"], samples)
    assert rows(
        run, "SELECT disk_read, disk_read_latency, mem_available, load_1min, net_rx FROM rates ORDER BY ts"
    ) == [
        (None, None, 51200, 0.5, None),
        (4096.0, None, 51200, 0.5, None),
        (4096.0, None, 51200, 0.5, None),
    ]
    assert rows(run, "SELECT DISTINCT device FROM disks") == [("sda",)]
    assert rows(run, "SELECT count(*), max(mem_total) FROM samples") == [(3, 102400)]
    assert rows(run, "SELECT count(*) FROM nfs") == [(0,)]


def test_phases(tmp_path: Path) -> None:
    """Each phase has its own statistics; the slowest host is the one with the lowest throughput."""
    script = Script(tmp_path / "raw", ["a", "b"], ["net_dev", "loadavg"])
    for host in (0, 1):
        script.connect(host)
        for second in range(21):
            texts = {**net(eth0=second * 100 * (host + 1)), "loadavg": {"/proc/loadavg": f"{host}.5 0 0 1/2 3\n"}}
            script.sample(START + second * SECOND, texts, host=host)
    script.close()
    _, _, hosts = derive(tmp_path)
    hosts.phases = [_phase("one", 0, 10), _phase("two", 10, 21)]
    run = Record(tmp_path, {}, hosts)
    columns = "phase, samples, mean, p95, max, hosts_min, hosts_max, slowest_host"
    found = rows(run, f"SELECT {columns} FROM phase_stats WHERE metric = 'net_rx'")
    assert found == [
        ("one", 20, 150.0, 200.0, 200.0, 100.0, 200.0, "a"),
        ("two", 20, 150.0, 200.0, 200.0, 100.0, 200.0, "a"),
    ]


def test_phases_of_what_is_read_rarely(tmp_path: Path) -> None:
    """A rate over several beats belongs to the phase before the mark at which it was read, not to the next one."""
    script = Script(tmp_path / "raw", ["a"], ["nfs", "loadavg"])
    script.connect()
    for second in range(31):
        texts = {"loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}}
        if second % 10 == 0 or second == 14:  # a mark reads all sources
            page = MOUNT.format("home", 100 * (min(second, 14)), 0, 0)
            texts["nfs"] = {"/proc/self/mountstats": page}
        script.sample(START + second * SECOND, texts)
    script.close()
    _, _, hosts = derive(tmp_path)
    hosts.phases = [_phase("read", 0, 14), _phase("idle", 14, 30)]
    found = rows(Record(tmp_path, {}, hosts), "SELECT phase, mean, max FROM phase_stats WHERE metric = 'nfs_read'")
    assert found == [("read", 100.0, 100.0), ("idle", 0.0, 0.0)]


def test_a_sample_soon_after_a_beat_is_no_peak(tmp_path: Path) -> None:
    """A counter that grows in steps has an impossible rate in the sample of a mark 2 ms after a beat."""
    script = Script(tmp_path / "raw", ["a"], ["net_dev", "loadavg"])
    script.connect()
    for at in sorted([*range(11), 5.002]):
        moved = 1000 * at if at != 5.002 else 5500
        texts = {**net(eth0=round(moved)), "loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}}
        script.sample(START + round(at * SECOND), texts)
    script.close()
    _, _, hosts = derive(tmp_path)
    hosts.phases = [_phase("one", 0, 10)]
    found = rows(Record(tmp_path, {}, hosts), "SELECT round(mean), max FROM phase_stats WHERE metric = 'net_rx'")
    assert found == [(1000, 1000.0)]


def test_hosts_have_equal_weight_in_phases(tmp_path: Path) -> None:
    """The mean of a phase times the number of hosts is the sum of all hosts, even if one has few samples."""
    script = Script(tmp_path / "raw", ["a", "b"], ["net_dev", "loadavg"])
    for host, seconds in enumerate((21, 4)):
        script.connect(host)
        for second in range(seconds):
            texts = {**net(eth0=second * 100 * (1 - host)), "loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}}
            script.sample(START + second * SECOND, texts, host=host)
    script.close()
    _, _, hosts = derive(tmp_path)
    hosts.phases = [_phase("one", 0, 21)]
    found = rows(Record(tmp_path, {}, hosts), "SELECT mean, hosts, max FROM phase_stats WHERE metric = 'net_rx'")
    assert found == [(50.0, 2, 100.0)]


@pytest.mark.parametrize("max_samples", [0, 8])
def test_phases_end_at_their_marks(tmp_path: Path, max_samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic in a phase counts for that phase only, even if samples are merged."""
    script = Script(tmp_path / "raw", ["a"], ["net_dev", "loadavg"], interval_ns=10 * SECOND, max_samples=max_samples)
    script.connect()
    marks = {0: "before", 35: "work", 65: "after"}
    wall, boot = writer._clocks()
    clock_offset = wall - boot
    for second in sorted({*range(0, 121, 10), *marks}):
        # The recorder writes the mark, then takes a sample of every host.
        edge = 0.002 if second in marks else 0.0
        if second in marks:
            with monkeypatch.context() as context:
                context.setattr(
                    writer, "_clocks", lambda at=second: (START + at * SECOND, START + at * SECOND - clock_offset)
                )
                script.journal.event({"event": "phase", "name": marks[second]})
        moved = 1000 * round(min(max(second - 35, 0), 30))
        texts = {**net(eth0=moved), "loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}}
        script.sample(START + round((second + edge) * SECOND), texts)
    script.close()
    _, _, hosts = derive(tmp_path)
    assert (hosts.merged > 1) == bool(max_samples)
    statistics = "SELECT phase, round(mean), round(max) FROM phase_stats WHERE metric = 'net_rx'"
    found = rows(Record(tmp_path, {}, hosts), statistics)
    assert found == [("before", 0, 0), ("work", 1000, 1000), ("after", 0, 0)]


def test_rates_of_a_table_written_in_windows(record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with more values than fit into a window is not sorted and is marked so, but has every rate."""
    monkeypatch.setattr(seal, "WINDOW", 500)
    monkeypatch.setattr(seal, "TURN", 16)
    run = record(["net_dev"], [(second, net(eth0=second, eth1=second)) for second in range(200)])
    with store.connect(run) as connection:
        order = connection.execute("SELECT interface_name FROM net_dev").fetchall()
        assert not in_order(connection, run.series_files()["net_dev"])
    assert sum(one != other for one, other in itertools.pairwise(order)) > 2
    assert rows(run, "SELECT count(*), count(rx_bytes) FROM net_dev_rates") == [(400, 398)]


def test_merged_gpus_that_missed_a_beat(record: Callable[..., Record]) -> None:
    """The value of a group of merged beats is known even if the last beat of the group has none."""
    samples: Samples = []
    for second in range(50):
        texts = {"loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}}
        if second % 5 != 4:
            texts["amdgpu"] = {"/sys/class/drm/card0/device/gpu_busy_percent": "50\n"}
        samples.append((second, texts))
    run = record(["loadavg", "amdgpu"], samples, max_samples=11)
    assert run.hosts.merged == 5
    assert rows(run, "SELECT count(*), count(gpu_util), max(gpu_util) FROM rates") == [(11, 11, 50.0)]


def _phase(name: str, first: int, last: int) -> Any:
    from rollbook.records.record import Phase

    return Phase(name, START + first * SECOND, START + last * SECOND)


MOUNT = """device srv:/x mounted on /{} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2\n\tage:\t100\n\tbytes:\t0 0 0 0 {} 0 0 0
\tper-op statistics\n\t        READ: {} 0 0 0 0 0 0 {} 0\n"""


def test_nfs_bytes_of_many_mounts(record: Callable[..., Record]) -> None:
    """The bytes of a file system with two mounts count once, even while only one of them exists."""
    samples: Samples = []
    for second in range(0, 50, 10):
        mounts = {"home1": (100, 1, 4), "home2": (100, 1, 4), "data": (7, 1, 2)}  # per second: bytes, requests, ms
        if second > 20:
            del mounts["home1"]
        page = "".join(
            MOUNT.format(name, *(value * second for value in (moved, ops, ms)))
            for name, (moved, ops, ms) in mounts.items()
        )
        samples.append(
            (
                second,
                {
                    "nfs": {"/proc/self/mountstats": page},
                    "nfs_ops": {"/proc/self/mountstats": page},
                    "loadavg": {"/proc/loadavg": "1.5 0.5 0.25 1/2 3\n"},
                },
            )
        )
    run = record(["nfs", "nfs_ops", "loadavg"], samples, interval_ns=SECOND)
    sql = "SELECT nfs_read, nfs_read_latency FROM rates ORDER BY ts"
    assert rows(run, sql)[1:3] == [(207, 10 / 3)] * 2, "without facts"
    run.hosts.start = [mounted(home1="0:50", home2="0:50", data="0:51")]
    assert rows(run, sql) == [(None, None)] + [(107, 3)] * 4
    assert rows(run, "SELECT count(DISTINCT device) FROM nfs_mounts") == [(3,)]


def test_nfs_reads_of_two_kinds(record: Callable[..., Record]) -> None:
    """NFS 4.2 reads with READ and READ_PLUS: requests are added, the latency is the mean of all of them."""
    samples: Samples = []
    for second in range(0, 30, 10):
        page = MOUNT.format("home", 0, second, 2 * second)
        page += f"\t   READ_PLUS: {3 * second} 0 0 0 0 0 0 {18 * second} 0\n"
        texts = {"nfs_ops": {"/proc/self/mountstats": page}, "loadavg": {"/proc/loadavg": "1.5 0.5 0.25 1/2 3\n"}}
        samples.append((second, texts))
    run = record(["nfs_ops", "loadavg"], samples, interval_ns=SECOND)
    assert rows(run, "SELECT nfs_reads, nfs_read_latency FROM rates ORDER BY ts")[1:] == [(4, 5)] * 2
    assert rows(run, "SELECT DISTINCT device, nfs_reads FROM nfs_operations WHERE nfs_reads > 0") == [("/home", 4)]


@pytest.fixture(scope="module")
def shared_small(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record with a name that a spreadsheet would run as a formula."""
    return make_record(
        tmp_path_factory.mktemp("small") / "record",
        ["net_dev", "loadavg"],
        [
            (second, {**net(**{"eth0": 5 * second, "=cmd()": 1}), "loadavg": {"/proc/loadavg": "1.5 0.5 0.25 1/2 3\n"}})
            for second in range(4)
        ],
    )


@pytest.fixture
def small(shared_small: Record, tmp_path: Path) -> Record:
    """A copy of that record that a test may change."""
    return Record.open(Path(shutil.copytree(shared_small.path, tmp_path / "record")))


OUTSIDE = [
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('{path}/../*.parquet')",
    "COPY (SELECT 1) TO '{path}/out.csv'",
    "COPY (SELECT 1) TO '{path}/series/net_dev.parquet'",
    "ATTACH '{path}/other.db'",
    "SET enable_external_access = true",
    "INSTALL httpfs",
    "CREATE TABLE x AS SELECT 1",
    "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}/series/net_dev.parquet' (FORMAT csv, USE_TMP_FILE false)",
    "SELECT 1; SELECT 2",
    "",
]


def test_query_errors_contain_no_tabs(shared_small: Record) -> None:
    """DuckDB indents candidate functions with tabs, which are replaced."""
    with store.connect(shared_small) as connection, pytest.raises(UsageError, match="Candidate functions") as caught:
        store.query(connection, "SELECT round(INTERVAL 1 SECOND)")
    assert "\t" not in str(caught.value)


def test_queries_cannot_access_other_files(small: Record) -> None:
    """A query can read the record and nothing else, and write nothing."""
    before = {path: path.read_bytes() for path in list_files(small.path).values()}
    with store.connect(small) as connection:
        for sql in OUTSIDE:
            with pytest.raises(UsageError):
                store.query(connection, sql.format(path=small.path)).fetchall()
            assert {path: path.read_bytes() for path in list_files(small.path).values()} == before, sql


def test_duckdb_denies_external_access(shared_small: Record) -> None:
    """SQL that does not go through `query` cannot read other files or change that setting either."""
    with store.connect(shared_small) as connection:
        for sql in ("SELECT * FROM read_text('/etc/hostname')", "SET enable_external_access = true", "LOAD httpfs"):
            with pytest.raises(duckdb.Error):
                connection.execute(sql).fetchall()


def invoke(*args: str) -> str:
    """Run a command and return its standard output."""
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_decimals_are_numbers_in_json(shared_small: Record) -> None:
    """A number with a decimal point in a query is a DECIMAL in SQL."""
    printed = invoke("query", str(shared_small.path), "SELECT round(3.14159, 2) AS r, 5 * 0.5 AS x", "--format", "json")
    assert json.loads(printed) == {"r": 3.14, "x": 2.5}


@pytest.mark.parametrize("sql", ["SELECT now() AS at", "SELECT host::INT AS number FROM hosts"])
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_query_that_fails_prints_nothing(shared_small: Record, form: str, sql: str) -> None:
    """It does not even print column names, which would be an empty result in CSV."""
    ran = CliRunner().invoke(cli, ["query", str(shared_small.path), sql, "--format", form])
    assert isinstance(ran.exception, UsageError)
    assert ran.stdout == ""


@pytest.mark.parametrize("place", [["RECORD"], ["--all", "DIRECTORY"]])
def test_times_are_utc_in_any_time_zone(shared_small: Record, place: list[str]) -> None:
    """A time with a zone, cast as the error message advises, is in UTC like the times of a record."""
    paths = {"RECORD": str(shared_small.path), "DIRECTORY": str(shared_small.path.parent)}
    where = [paths.get(argument, argument) for argument in place]
    sql = "SELECT abs(epoch(now()::TIMESTAMP) - epoch(now())) < 1 AS same"
    command = [sys.executable, "-m", "rollbook", "query", *where, sql, "--format", "json"]
    environment = {**os.environ, "TZ": "America/New_York"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert json.loads(ran.stdout) == {"same": True}, ran.stderr


def test_query_command(shared_small: Record) -> None:
    """The same rows as a table, as CSV without formulas, and as JSON lines."""
    sql = "SELECT interface_name, max(rx_bytes) AS most FROM net_dev GROUP BY ALL ORDER BY 1"
    assert invoke("query", str(shared_small.path), sql).split() == [
        "interface_name",
        "most",
        "=cmd()",
        "1",
        "eth0",
        "15",
    ]
    lines = list(csv.reader(invoke("query", str(shared_small.path), sql, "--format", "csv").splitlines()))
    assert lines == [["interface_name", "most"], ["'=cmd()", "1"], ["eth0", "15"]]
    objects = [
        json.loads(line) for line in invoke("query", str(shared_small.path), sql, "--format", "json").splitlines()
    ]
    assert objects == [{"interface_name": "=cmd()", "most": 1}, {"interface_name": "eth0", "most": 15}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1199550000.0", "1199550000"), ("-123456.7", "-123457"), ("0.123456789", "0.123457"), ("99999.5", "99999.5")],
)
def test_numbers_without_exponents(shared_small: Record, value: str, shown: str) -> None:
    """Numbers have six significant digits, and all digits before the decimal point."""
    assert invoke("query", str(shared_small.path), f"SELECT {value}::DOUBLE AS a").split() == ["a", shown]


def test_rows_wider_than_the_terminal(shared_small: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is printed in full as lines of name and value; narrow rows, and rows in a pipe, stay a table."""
    wide = "SELECT 'x' AS first, repeat('y', 90) AS second, NULL AS third UNION ALL SELECT 'z', '', 1.5"
    lines = ["first   x", f"second  {'y' * 90}", "third", "", "first   z", "second", "third   1.5"]
    assert invoke("query", str(shared_small.path), wide).splitlines()[1].split() == ["x", "y" * 90]
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke("query", str(shared_small.path), wide).splitlines() == lines
    assert len(invoke("query", str(shared_small.path), "SELECT 1 AS a, 2 AS b").splitlines()) == 2
    done = CliRunner().invoke(cli, ["query", str(shared_small.path), "SELECT * FROM rates WHERE false"])
    assert (done.stdout, done.stderr) == ("", "no rows\n")


@pytest.mark.parametrize(
    ("sql", "message", "forms"),
    [
        ("SELEC 1", "syntax error", ["table"]),
        ("SELECT nothing FROM rates", "nothing", ["table"]),
        ("SELECT * FROM nowhere", "nowhere", ["table"]),
        ("DROP VIEW rates", "only a single SELECT", ["table"]),
        # These errors occur while rows are fetched.
        ("SELECT CAST(interface_name AS INTEGER) FROM net_dev", "Could not convert", ["table", "csv", "json"]),
        ("SELECT ts::TIMESTAMPTZ FROM net_dev", "cast it to TIMESTAMP", ["table", "csv", "json"]),
    ],
)
def test_invalid_queries(shared_small: Record, sql: str, message: str, forms: list[str]) -> None:
    """The message gives the reason, whether it is found while parsing or while running."""
    for form in forms:
        with pytest.raises(UsageError, match=message):
            CliRunner().invoke(cli, ["query", str(shared_small.path), sql, "--format", form], catch_exceptions=False)


def test_facts_are_loaded_only_if_needed(small: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the facts of many hosts is slow. Only queries of facts load them; unloaded facts are an error."""
    small.hosts.start = [HostResult(name="a", status="complete", facts={"block": [Block("sda", "disk")]})]
    sql = "SELECT host, phase, source, key, value FROM Facts WHERE field = 'kind'"
    assert rollbook.query(small, sql) == [
        {"host": "a", "phase": "start", "source": "block", "key": "sda", "value": "disk"}
    ]
    monkeypatch.setattr(known_tables, "_facts", None)
    assert {row["name"] for row in rollbook.query(small, "SHOW TABLES")} > {"facts", "hosts", "rates"}
    with store.connect(small) as connection:
        assert store.query(connection, "DESCRIBE facts").fetchall()[5][:2] == ("value", "VARCHAR")
        for sql in ("SELECT count(*) FROM facts", "FROM query_table('fac' || 'ts')"):
            with pytest.raises(UsageError, match="opened without its facts"):
                store.query(connection, sql).fetchall()


def test_findings(small: Record) -> None:
    """Findings are a table, which is empty if the record was not checked."""
    sql = "SELECT rule, severity, hosts, message, silenced FROM findings ORDER BY rule"
    assert rows(small, sql) == []
    silenced = Finding(message="n", severity="fail", silenced=Silenced("known", dt.date(2030, 1, 1)))
    found = [
        RuleResult(id="b", outcome="warn", findings=[Finding(message="m", hosts=["a"], severity="warn")]),
        RuleResult(id="c", outcome="pass"),
        RuleResult(id="d", outcome="pass", findings=[silenced]),
    ]
    (small.path / "findings.json").write_bytes(encode(Findings.of("now", [], found)))
    assert rows(small, sql) == [("b", "warn", ["a"], "m", None), ("d", "fail", [], "n", "known")]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_export_round_trip(small: Record, tmp_path: Path, form: str) -> None:
    """Exported tables have the same values; names that look like formulas get a quote in CSV."""
    output, hosts = tmp_path / "out", small.path / "hosts.json"
    times = {
        "started_ns": START,
        "ended_ns": START + 4 * SECOND,
    }  # those of the samples, so that they belong to a phase
    hosts.write_text(json.dumps(json.loads(hosts.read_text()) | times))
    invoke("export", str(small.path), "--format", form, "-o", str(output))
    others = {"rates", "hosts", "facts", "phases", "phase_stats", "gaps", "losses", "findings", "results"}
    assert {path.stem for path in output.iterdir()} == {"net_dev", "loadavg", *others}
    sql = f"SELECT phase, mean FROM '{output}/phase_stats.{form}' WHERE metric = 'net_rx'"
    assert duckdb.execute(sql).fetchall() == [("run", 5.0)]
    wanted = "interface_name, epoch_us(ts::TIMESTAMP) AS at, rx_bytes, tx_bytes"
    expected = rows(small, f"SELECT {wanted} FROM net_dev ORDER BY ALL")
    found = duckdb.execute(f"SELECT {wanted} FROM '{output}/net_dev.{form}' ORDER BY ALL").fetchall()
    if form == "csv":
        expected = sorted((f"'{name}" if name.startswith("=") else name, *rest) for name, *rest in expected)
    assert found == expected


def test_a_table_whose_source_is_not_installed(small: Record, tmp_path: Path) -> None:
    """It can be queried and exported, with rates by its file's metadata; so can tables of other programs."""
    series = small.path / "series"
    shutil.copy(series / "net_dev.parquet", series / "site_links.parquet")
    for name in ("hosts", "facts"):
        shutil.copy(series / "loadavg.parquet", series / f"{name}.parquet")
    duckdb.execute(f"COPY (SELECT 5 AS x) TO '{series}/other.parquet'")
    sql = "SELECT * FROM {} WHERE interface_name = 'eth0' ORDER BY ts"
    assert rows(small, sql.format("site_links")) == rows(small, sql.format("net_dev"))
    assert rows(small, sql.format("site_links_rates")) == rows(small, sql.format("net_dev_rates"))
    assert rows(small, "SELECT x FROM other") == [(5,)]
    assert rows(small, "SELECT status FROM hosts") == [("failed",)], "built-in tables keep their names"
    invoke("export", str(small.path), "-o", str(tmp_path / "out"))
    assert {path.stem for path in (tmp_path / "out").iterdir()} >= {"net_dev", "site_links", "other", "rates", "hosts"}
    invoke("export", str(small.path), "--format", "openmetrics", "-o", str(tmp_path / "metrics.txt"))
    line = 'rollbook_site_links_rx_bytes_total{host="a",interface_name="eth0"} 15 '
    assert line in (tmp_path / "metrics.txt").read_text()


HOSTILE = '=n<script>alert("1")</script>\x1b[31m\x07\u202e\u2066\u200b'
HARMLESS = '\'=n<script>alert("1")</script>?[31m????'


def test_hostile_text_in_csv(record: Callable[..., Record], tmp_path: Path) -> None:
    """Names with markup, quotes, terminal escapes and direction marks are harmless in spreadsheets and terminals."""
    run = record(["net_dev"], [(second, net(**{HOSTILE: second})) for second in range(2)])
    invoke("export", str(run.path), "--format", "csv", "-o", str(tmp_path / "out"), "--table", "net_dev")
    with (tmp_path / "out" / "net_dev.csv").open(newline="", encoding="utf-8") as file:
        assert {row["interface_name"] for row in csv.DictReader(file)} == {HARMLESS}
    printed = invoke("query", str(run.path), "SELECT interface_name FROM net_dev", "--format", "csv")
    assert {row["interface_name"] for row in csv.DictReader(printed.splitlines())} == {HARMLESS}
    shown = invoke("query", str(run.path), "SELECT interface_name FROM net_dev")
    assert HARMLESS[1:] in shown
    invoke("export", str(run.path), "--format", "json", "-o", str(tmp_path / "out"), "--table", "net_dev")
    kept = json.loads((tmp_path / "out" / "net_dev.json").read_text())
    assert {row["interface_name"] for row in kept} == {HOSTILE}, "JSON keeps the original name"


def test_export_of_selected_tables(small: Record, tmp_path: Path) -> None:
    """Only the selected tables are written; the error for an unknown name has a suggestion or a hint."""
    invoke("export", str(small.path), "-o", str(tmp_path / "out"), "--table", "rates")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rates.parquet"]
    with pytest.raises(UsageError, match="no table called 'loadavgs'; did you mean loadavg"):
        invoke("export", str(small.path), "-o", str(tmp_path / "out"), "--table", "loadavgs")
    with pytest.raises(UsageError, match=r"no table called 'zzz' .*SHOW TABLES"):
        invoke("export", str(small.path), "-o", str(tmp_path / "out"), "--table", "zzz")


@pytest.mark.parametrize("form", ["csv", "openmetrics", "timeseries", "mlpstorage"])
def test_export_to_an_unwritable_path(small: Record, tmp_path: Path, form: str) -> None:
    """The error has the path and the reason of the system."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "out"
    with pytest.raises(RollbookError) as raised:
        invoke("export", str(small.path), "--format", form, "-o", str(path))
    assert str(raised.value).startswith("cannot ")
    assert str(raised.value).endswith(f"{path}: Not a directory")


@pytest.mark.parametrize("form", ["openmetrics", "timeseries"])
def test_export_without_samples(tmp_path: Path, form: str) -> None:
    """A snapshot has no samples: the export fails and leaves no file."""
    began = dt.datetime(2026, 8, 1, tzinfo=dt.UTC)
    leaf = RecordDirectory.create(tmp_path, "snapshot", began)
    leaf.write_snapshot([], began)
    with pytest.raises(RecordError, match="has no samples to write"):
        invoke("export", str(leaf.path), "--format", form, "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("json", ""),
        ("csv", "."),
        ("parquet", "series"),
        ("timeseries", "hosts.json"),
        ("openmetrics", "new.txt"),
        ("mlpstorage", "new"),
    ],
)
def test_export_into_the_record_is_rejected(small: Record, form: str, place: str) -> None:
    """An output path inside the record is rejected before anything is written."""
    before = {path: path.read_bytes() for path in list_files(small.path).values()}
    with pytest.raises(UsageError, match="lies inside the record; write elsewhere"):
        invoke("export", str(small.path), "--format", form, "-o", str(small.path / place))
    assert {path: path.read_bytes() for path in list_files(small.path).values()} == before


def test_timeseries_json(record: Callable[..., Record], tmp_path: Path) -> None:
    """The file has the keys of MLPerf Storage's TimeSeriesData, and the transport of each host."""
    names = {"diskstats": "/proc/diskstats", "vmstat": "/proc/vmstat", "meminfo": "/proc/meminfo"}
    names |= {"loadavg": "/proc/loadavg", "net_dev": "/proc/net/dev"}
    texts = {
        "diskstats": "8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n",
        "vmstat": "nr_dirty 5\npgfault 6\n",
        "meminfo": "MemTotal: 100 kB\nHugePages_Total: 3\n",
        "loadavg": "0.5 0.25 0.125 1/50 99\n",
        "net_dev": net(eth0=7)["net_dev"]["/proc/net/dev"],
    }
    samples: Samples = [
        (10 * second, {name: {names[name]: text} for name, text in texts.items()}) for second in range(3)
    ]
    run = record(list(names), samples, interval_ns=10 * SECOND)
    invoke("export", str(run.path), "--format", "timeseries", "-o", str(tmp_path / "timeseries.json"))
    found = json.loads((tmp_path / "timeseries.json").read_text())
    by_host = found.pop("samples_by_host")
    assert found == {
        "collection_methods": {"a": "local"},
        "collection_interval_seconds": 10.0,
        "start_time": "2023-11-14T22:13:20Z",
        "end_time": "2023-11-14T22:13:40Z",
        "num_samples": 3,
        "collection_method": "local",
        "hosts_requested": ["a"],
        "hosts_collected": ["a"],
    }
    assert list(by_host) == ["a"]
    sample = by_host["a"][1]
    assert sample["timestamp"] == "2023-11-14T22:13:30Z"
    assert sample["hostname"] == "h0"
    assert sample["vmstat"] == {"nr_dirty": 5, "pgfault": 6}
    assert sample["meminfo"] == {"MemTotal": 100, "HugePages_Total": 3}
    assert sample["loadavg"] == {
        "load_1min": 0.5,
        "load_5min": 0.25,
        "load_15min": 0.125,
        "running_processes": 1,
        "total_processes": 50,
    }
    disk, part = sample["diskstats"]
    assert (disk["device_name"], disk["reads_completed"], disk["time_flushing_ms"]) == ("sda", 1, 17)
    assert len(disk) == 18
    assert len(part) == 12
    assert sample["netdev"][0]["rx_bytes"] == 7
    assert len(sample["netdev"][0]) == 17
    assert set(sample) == {"timestamp", "hostname", "diskstats", "vmstat", "meminfo", "loadavg", "netdev"}


def test_timeseries_json_is_streamed(tmp_path: Path) -> None:
    """The export never needs memory for more than half of the file."""
    names = ("loadavg", "meminfo", "vmstat", "diskstats", "net_dev")
    record_this_machine(tmp_path / "here" / "raw", 3, 0.1, names)
    found = survey(tmp_path / "here" / "raw")
    files = Segments(found)
    bodies = {one.source: one.body for one in HostSamples(found, found.hosts[0], files) if one.body}
    files.close()
    synthesise(tmp_path / "raw", found.plan, bodies, hosts=8, beats=100, distinct=2)
    derive(tmp_path)
    (tmp_path / "test_metadata.json").write_text("{}")
    record = Record.open(tmp_path)
    tracemalloc.start()
    try:
        assert write_timeseries(record, tmp_path / "out.json") == 100 * 8
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (tmp_path / "out.json").stat().st_size / 2


def test_a_record_without_series(tmp_path: Path) -> None:
    """A snapshot can be queried: it has hosts, and its series is empty."""
    hosts = RecordHosts(
        started_ns=START, ended_ns=START, start=[HostResult(name="a", status="refused", reason="no key")]
    )
    run = Record(tmp_path, {}, hosts)
    assert rows(run, "SELECT host, status, reason FROM hosts") == [("a", "refused", "no key")]
    assert rows(run, "SELECT count(*) FROM rates") == [(0,)]
