"""OpenMetrics text: Prometheus and VictoriaMetrics import it and then have the same values as DuckDB."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from rollbook.cli import cli
from rollbook.exports import openmetrics
from rollbook.exports.families import families
from rollbook.exports.openmetrics import help_of
from rollbook.metrics import catalogue
from rollbook.records.layout import RecordDirectory
from rollbook.records.record import Record
from rollbook.sql import connection as store
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script, record_this_machine
from tests.support.metric_servers import Series, ask, victoria

SECOND = 10**9
START = 1_700_000_000 * SECOND
ODD = 'n"1\\x01\x01\n\t<script>\u202e{},='
HEAD = "Inter-|   Receive          |  Transmit\n face |bytes    packets errs drop fifo|bytes    packets\n"
NAMES = ("loadavg", "meminfo", "stat", "vmstat", "diskstats", "net_dev", "pressure")
Reader = Callable[[Path, Path], AbstractContextManager[Callable[[str], Series]]]
# The SQL of the expected labels, milliseconds and values of a metric.
EXPECTED = {
    "node_load1": "SELECT {'host': host}, epoch_ms(ts), load_1min FROM loadavg",
    "node_memory_Active_anon_bytes": "SELECT {'host': host}, epoch_ms(ts), \"Active(anon)\" * 1024 FROM meminfo",
    "node_memory_HugePages_Total": "SELECT {'host': host}, epoch_ms(ts), \"HugePages_Total\" FROM meminfo",
    "node_vmstat_pgmajfault": "SELECT {'host': host}, epoch_ms(ts), pgmajfault FROM vmstat",
    "node_disk_read_bytes_total": "SELECT {'host': host, 'device': device_name}, epoch_ms(ts), "
    "sectors_read::HUGEINT * 512 FROM diskstats",
    "node_disk_io_time_seconds_total": "SELECT {'host': host, 'device': device_name}, epoch_ms(ts), "
    "time_doing_ios_ms / 1000 FROM diskstats",
    "node_network_receive_bytes_total": "SELECT {'host': host, 'device': interface_name}, epoch_ms(ts), rx_bytes "
    "FROM net_dev",
    "node_cpu_seconds_total": "SELECT {'host': host, 'cpu': cpu[4:], 'mode': mode}, epoch_ms(ts), ticks / 100 "
    'FROM (UNPIVOT (FROM stat SELECT host, ts, cpu, "user", nice, system, idle, iowait, irq, softirq, steal) '
    "ON * EXCLUDE (host, ts, cpu) INTO NAME mode VALUE ticks) WHERE cpu <> 'cpu'",
    "node_pressure_io_stalled_seconds_total": "SELECT {'host': host}, epoch_ms(ts), full_total_us / 1e6 "
    "FROM pressure WHERE resource = 'io'",
}


def pages(beat: int, device: str) -> dict[str, dict[str, str]]:
    """The content of a host's files at a beat; one counter is near its maximum, and one line is repeated."""
    rx = (1 << 64) - 1000 + 100 * beat
    return {
        "loadavg": {"/proc/loadavg": f"0.{beat} 0.2 0.3 1/100 7\n"},
        "meminfo": {"/proc/meminfo": f"MemTotal: 100 kB\nActive(anon): {50 + beat} kB\nHugePages_Total: {beat}\n"},
        "stat": {"/proc/stat": "".join(f"cpu{n} {beat} 2 3 {4 * beat} 5 6 7 8 9 10\n" for n in ("", 0, 1))},
        "vmstat": {"/proc/vmstat": f"nr_free_pages 5\npgmajfault {1000 * beat}\n"},
        "diskstats": {"/proc/diskstats": 2 * f"8 0 {device} 1 2 {8 * beat} 4 5 6 7 8 9 {125 * beat} 11\n"},
        "net_dev": {"/proc/net/dev": f"{HEAD}eth0: {rx} 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"},
        "pressure": {
            f"/proc/pressure/{name}": "".join(
                f"{kind} avg10=0.50 avg60=0.00 avg300=0.00 total={beat * 1500}\n" for kind in ("some", "full")
            )
            for name in ("cpu", "io", "memory")
        },
    }


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record of two hosts, one with a hostile name; two samples are 1 ms apart, as at the start of a phase."""
    script = Script(tmp_path / "record" / "raw", ["a", ODD], NAMES)
    for host, device in enumerate(["sda", 'd"\\']):
        script.connect(host)
        for beat in range(6):
            script.sample(START + beat * SECOND + 37_000_000, pages(beat, device), host=host)
        script.sample(START + 5 * SECOND + 38_000_000, pages(6, device), host=host)
    script.close()
    derive(tmp_path / "record")
    (tmp_path / "record" / "test_20261115_000000_metadata.json").write_text("{}")
    RecordDirectory(tmp_path / "record", "test", "20261115_000000").write_manifest()
    return tmp_path / "record"


def export_text(record: Path) -> Path:
    """Export the record as OpenMetrics text."""
    path = record.parent / "metrics.txt"
    result = CliRunner().invoke(cli, ["export", str(record), "--format", "openmetrics", "-o", str(path)])
    assert result.exit_code == 0, result.output
    return path


@contextlib.contextmanager
def in_prometheus(metrics: Path, scratch: Path) -> Iterator[Callable[[str], Series]]:
    """Import the text with promtool; yield a function that returns the series of a metric."""
    blocks = scratch / "blocks"
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(blocks)]
    subprocess.run(made, check=True, capture_output=True, text=True)
    (blocks / "wal").mkdir()  # promtool cannot dump without it

    def dump(name: str) -> Series:
        found: Series = {}
        argv = ["promtool", "tsdb", "dump", f"--match={name}", str(blocks)]
        for line in subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines():
            labels, value, at = line.rsplit(" ", 2)
            pairs = re.findall(r'(\w+)=("(?:\\.|[^"\\])*")', labels)
            key = tuple(sorted((label, go_text(text)) for label, text in pairs if label != "__name__"))
            found.setdefault(key, []).append((int(at), float(value)))
        return found

    yield dump


def go_text(quoted: str) -> str:
    """Decode a string that Go's %q wrote; JSON lacks only its hexadecimal escapes."""
    return str(json.loads(re.sub(r"(?<!\\)((?:\\\\)*)\\x(..)", r"\1\\u00\2", quoted)))


@contextlib.contextmanager
def in_victoria(metrics: Path, scratch: Path) -> Iterator[Callable[[str], Series]]:
    """Import the text into VictoriaMetrics; yield a function that returns the series of a metric."""
    with victoria(scratch) as server:
        ask(f"{server.address}/api/v1/import/prometheus", metrics.read_bytes())
        yield server.series


def in_duckdb(record: Path, sql: str) -> Series:
    """The series of the record, without samples that follow another within 1 ms."""
    found: Series = {}
    with store.connect(Record.open(record)) as connection:
        rows: list[Any] = connection.execute(f"{sql} ORDER BY ALL").fetchall()
    for labels, at, value in sorted(rows, key=lambda row: row[1]):
        key = tuple(sorted((name, escaped(text)) for name, text in labels.items()))
        series = found.setdefault(key, [])
        if not series or at - series[-1][0] > 1:
            series.append((at, float(value)))
    return found


def escaped(text: str) -> str:
    """A text as it is exported: characters that the format does not allow are backslash escapes."""
    return text.replace("\\", "\\\\").replace("\x01", "\\x01").replace("\t", "\\x09")


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(in_prometheus, marks=pytest.mark.needs("promtool")),
        pytest.param(in_victoria, marks=pytest.mark.needs("victoria-metrics")),
    ],
)
def test_imported_values_equal_the_record(record: Path, tmp_path: Path, reader: Reader) -> None:
    """All series, labels and values are equal; times differ by at most 1 ms, because Prometheus truncates them."""
    with reader(export_text(record), tmp_path) as imported:
        for name, sql in EXPECTED.items():
            expected, found = in_duckdb(record, sql), imported(name)
            assert found.keys() == expected.keys(), name
            for key, samples in expected.items():
                assert len(samples) == 6
                assert [at for at, _ in found[key]] == pytest.approx([at for at, _ in samples], abs=1), name
                values = [value for _, value in samples]
                assert [value for _, value in found[key]] == pytest.approx(values, rel=1e-12), name


class CountingConnection:
    """A connection that counts its queries."""

    def __init__(self, connection: Any) -> None:
        self._connection, self.queries = connection, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, *args: Any) -> Any:
        """Run and count a query."""
        self.queries += 1
        return self._connection.execute(*args)


def test_queries_per_table(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are read together; a table that is too long is read column by column and gives the same text."""
    texts, queries = [], []
    for held in (openmetrics.HELD, 50, 1):
        counted = CountingConnection(store.connect(Record.open(record), wanted=()))
        monkeypatch.setattr(openmetrics, "HELD", held)
        monkeypatch.setattr(openmetrics, "connect", lambda *_, counted=counted, **__: counted)
        openmetrics.write_openmetrics(Record.open(record), record.parent / "text")
        texts.append((record.parent / "text").read_text())
        queries.append(counted.queries)
    assert texts[0] == texts[1] == texts[2]
    assert queries[0] <= 2 + 3 * len(NAMES) < queries[1] < queries[2]


@pytest.mark.needs("promtool")
def test_prometheus_imports_all_samples(tmp_path: Path) -> None:
    """Prometheus imports all samples of all sources of a real kernel, and each family is declared once."""
    record = tmp_path / "record"
    record_this_machine(record / "raw")
    derive(record)
    (record / "test_20261115_000000_metadata.json").write_text("{}")
    RecordDirectory(record, "test", "20261115_000000").write_manifest()
    metrics = export_text(record)
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(tmp_path / "blocks")],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = metrics.read_text().splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    # promtool makes a block per two hours; a recording across a boundary makes two.
    assert sum(int(row.split()[4]) for row in made.stdout.splitlines()[1:]) == len(samples)
    named = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(named) == len(set(named))
    assert lines[-1] == "# EOF"


def test_names() -> None:
    """Names of node_exporter, base units, and column names from hosts that give the same metric name."""
    found = families(
        {
            "diskstats": {"device_name": ("key", ""), "sectors_written": ("counter", "sectors"), "extra": ("info", "")},
            "meminfo": {"a-b": ("gauge", "KiB"), "a_b": ("gauge", "KiB"), "x\n# EOF": ("gauge", "pages")},
            "rapl": {"energy_uj": ("counter", "µJ")},
            "gpu": {"memory_used_mib": ("gauge", "MiB")},
        }
    )
    assert {one.metric: (one.table, one.name) for columns in found.values() for one in columns} == {
        "node_disk_written_bytes_total": ("diskstats", "sectors_written"),
        "node_memory_a_b_bytes": ("meminfo", "a-b"),
        "node_memory_a_b_bytes_2": ("meminfo", "a_b"),
        "node_memory_x___EOF": ("meminfo", "x\n# EOF"),
        "rollbook_rapl_energy_joules_total": ("rapl", "energy_uj"),
        "rollbook_gpu_memory_used_bytes": ("gpu", "memory_used_mib"),
    }


@pytest.mark.parametrize(
    ("table", "column", "family", "text"),
    [
        (
            "loadavg",
            "load_1min",
            "node_load1",
            "From loadavg.load_1min. Running and blocked tasks, average over one minute. Used for load_1min.",
        ),
        ("loadavg", "load_5min", "node_load5", "From loadavg.load_5min."),
        (
            "pressure",
            "full_total_us",
            "node_pressure_io_stalled_seconds",
            f"From pressure.full_total_us. {catalogue.load()['psi_io_full'].description}. Used for psi_io_full.",
        ),
        ("stat", "iowait", "node_cpu_seconds", "From stat.iowait. Used for cpu_busy, cpu_user, "),
    ],
)
def test_help(table: str, column: str, family: str, text: str) -> None:
    """The help names the columns, describes a metric that equals the column, and lists all metrics that use it."""
    kind = "gauge" if table == "loadavg" else "counter"
    unit = {"pressure": "µs", "stat": "ticks"}.get(table, "")
    assert help_of(families({table: {column: (kind, unit)}})[family]).startswith(text)


def test_help_of_odd_names() -> None:
    """Column names may come from hosts: line breaks, quotes and backslashes are replaced."""
    columns = next(iter(families({"vmstat": {'odd"\n\\name': ("counter", "")}}).values()))
    assert help_of(columns) == "From vmstat.odd???name."
