"""From a journal to tables: every value of every sample, with any windows, processes or damage."""

from __future__ import annotations

import itertools
import random
import shutil
import sys
from array import array
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from rollbook.errors import ParseError, RecordError
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.state import is_unfinished
from rollbook.journal.survey import Survey, survey
from rollbook.journal.writer import Journal
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import split_pages
from rollbook.records.document import read
from rollbook.records.layout import RecordDirectory
from rollbook.records.record import Record, RecordHosts
from rollbook.sources import catalogue
from rollbook.sql import connection as store
from rollbook.tables import seal as sealing
from rollbook.tables.columns import Column
from rollbook.tables.derive import derive
from rollbook.tables.seal import Sealed, seal
from rollbook.testing.journals import Beats, Script, begin_of, body_of, record_this_machine, synthesise
from tests.support.records import is_whole, lost_gaps
from tests.tables.reference import parse_good_lines

SECOND = 10**9
START = 1_700_000_000 * SECOND
Rows = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of this machine by the real agent: a dozen beats, start facts and end facts."""
    path = tmp_path_factory.mktemp("recorded")
    record_this_machine(path / "raw", beats=12, interval=0.1)
    return path


@pytest.fixture(scope="session")
def bodies(recorded: Path) -> dict[int, bytes]:
    """The text of each sampled source on this machine, by position of the source in the plan."""
    found = survey(recorded / "raw")
    files = Segments(found)
    samples = list(HostSamples(found, found.hosts[0], files))
    files.close()
    return {sample.source: sample.body for sample in samples if sample.body}


def parsed(found: Survey) -> dict[str, Rows]:
    """The rows that tables must hold: every sample parsed in full by its source; rows by host, time and key."""
    tables: dict[str, Rows] = {}
    files = Segments(found)
    for host in found.hosts:
        before: dict[int, bytes] = {}
        for sample in HostSamples(found, host, files):
            source, body = found.plan.sources[sample.source], sample.body
            body = before[sample.source] = before[sample.source] if body is None else body
            found_pages = [
                page for page in split_pages(body) if page[1] == "ok" or (page[1] == "truncated" and page[2])
            ]
            pages = {path: data.decode() for path, _, data in found_pages}
            try:
                records = parse_good_lines(source, pages) if pages else []
            except ParseError:
                continue
            for record in records if isinstance(records, list) else [records]:
                row = msgspec.structs.asdict(record)
                flat = {name: value for name, value in row.items() if value is not None and type(value) is not dict}
                for value in row.values():
                    flat |= value if isinstance(value, dict) else {}
                key = tuple(row[name] for name in _keys(source.name))
                tables.setdefault(source.name, {})[host.name, sample.ts, *key] = {"mono": sample.mono, **flat}
    files.close()
    return tables


def _keys(name: str) -> list[str]:
    from rollbook.sources.base import compare_of

    return [field for field, how in compare_of(catalogue.source(name).row_type).items() if how.mode == "key"]


def sealed_rows(path: Path) -> dict[str, Rows]:
    """The rows of all tables without nulls; asserts that they are sorted by host, key and time."""
    tables: dict[str, Rows] = {}
    for file in sorted(path.glob("*.parquet")):
        found = duckdb.execute(f"SELECT * REPLACE (epoch_ns(ts) AS ts) FROM '{file}'")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        keys = _keys(file.stem)
        order = [(row["host"], *(row[name] for name in keys), row["ts"]) for row in rows]
        assert order == sorted(order), f"{file.stem} is not sorted"
        table = tables[file.stem] = {}
        for row in rows:
            key = (row.pop("host"), row.pop("ts"), *(row[name] for name in keys))
            table[key] = {name: value for name, value in row.items() if value is not None}
        assert len(table) == len(rows)
    return tables


def seal_and_compare(path: Path, **options: Any) -> Sealed:
    """Seal a journal and compare the tables with the results of the parsers."""
    found = survey(path / "raw")
    result = seal(found, path / "series", **options)
    expected, got = parsed(found), sealed_rows(path / "series")
    assert got.keys() == expected.keys()
    for name, rows in expected.items():
        assert got[name] == rows, name
    assert not list((path / "series").glob(".parts*"))
    return result


def test_record_of_this_machine(recorded: Path) -> None:
    """Every value that the real agent sampled on this machine is in the tables."""
    result = seal_and_compare(recorded)
    assert [source.affected() for source in result.losses["here"]] == [0] * len(result.losses["here"])
    assert {"loadavg", "meminfo", "stat", "vmstat", "diskstats", "net_dev"} <= set(result.tables)


def test_a_worker_process_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what could not be done, and only how those ended that failed."""
    script = Script(tmp_path / "raw", ["a", "b"], ["loadavg"])
    for host in (0, 1):
        script.connect(host)
        script.sample(START, {"loadavg": {"/proc/loadavg": "0.1 0.2 0.3 1/2 3\n"}}, host=host)
    script.close()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nmkdir {tmp_path}/first 2>/dev/null && kill -9 $$\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    expected = "cannot build the tables: worker processes ended with exit status -9; killed, perhaps for lack of memory"
    with pytest.raises(RecordError, match=f"^{expected}$"):
        seal(survey(tmp_path / "raw"), tmp_path / "tables", processes=2)


def test_processes_and_windows_do_not_change_tables(
    tmp_path: Path, bodies: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process with large windows and several with small ones write the same values, merged or not."""
    raw, merged = tmp_path / "raw", 40
    synthesise(raw, Plan.of(catalogue.load()), bodies, hosts=3, beats=80)  # more than one key frame
    seal_and_compare(tmp_path, processes=2)
    seal(survey(raw), tmp_path / "merged", max_samples=merged)
    monkeypatch.setattr(sealing, "WINDOW", 20_000)
    monkeypatch.setattr(sealing, "TURN", 100)
    monkeypatch.setattr("rollbook.tables.parquet.BUDGET", 50_000)
    for whole, limit in ((tmp_path / "series", 0), (tmp_path / "merged", merged)):
        pieces = tmp_path / f"pieces of {whole.name}"
        seal(survey(raw), pieces, max_samples=limit, processes=1)
        for table in sorted(whole.iterdir()):
            files = [f"FROM '{directory / table.name}'" for directory in (pieces, whole)]
            counts = [duckdb.execute(f"SELECT count(*), count(DISTINCT host) {file}").fetchall() for file in files]
            assert counts[0] == counts[1]
            assert counts[0][0][1] == 3
            assert duckdb.execute(" EXCEPT ".join(files)).fetchall() == []


DISK = "{0} {1} {2} 10 0 80 5 20 0 {3} 7 0 9 12\n"


@pytest.mark.parametrize("one_part", [True, False], ids=["one part", "a part for each host"])
def test_hot_plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_part: bool) -> None:
    """Devices that appear and disappear, new columns, 64-bit counters and absent files are stored correctly."""
    if not one_part:
        monkeypatch.setattr("rollbook.tables.parquet.BUDGET", 1)
    script = Script(tmp_path / "raw", ["b", "a"], ["diskstats", "net_snmp", "amdgpu", "infiniband_counters"])
    for host in (0, 1):
        script.connect(host)
        for number in range(40):
            counter = (1 << 63) + number if number > 20 else number
            disks = DISK.format(8, 0, "sda", number if host else counter)
            disks += DISK.format(8, 16, "sdb", number) if 10 < number < 30 else ""
            disks += DISK.format(8, 32, "sdc", number).replace("\n", f" 1 2 3 4 5 6 7 {number}\n")  # two unknown
            samples: dict[str, dict[str, str]] = {
                "diskstats": {"/proc/diskstats": disks},
                "net_snmp": {"/proc/net/snmp": f"Tcp: InSegs Retrans{host}\nTcp: {number} {counter}\n"},
                "amdgpu": {"/sys/class/drm/card0/device/gpu_busy_percent": f"{number}\n"} if number % 3 else {},
                "infiniband_counters": {"/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": f"{number}\n"},
            }
            script.sample(START + number * SECOND, samples, host=host)
    script.close()
    seal_and_compare(tmp_path)
    types = duckdb.execute(f"DESCRIBE FROM '{tmp_path}/series/net_snmp.parquet'").fetchall()
    assert {row[0]: row[1] for row in types}["Tcp.Retrans0"] == "DECIMAL(20,0)"
    extra = duckdb.execute(f"SELECT DISTINCT extra[1] FROM '{tmp_path}/series/diskstats.parquet'").fetchall()
    assert set(extra) == {(None,), (7,)}


@pytest.mark.parametrize("seed", range(8))
def test_hosts_with_different_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Different counters per host, new counters during the run, numbers and parts of any size, missing samples."""
    rng = random.Random(seed)
    monkeypatch.setattr("rollbook.tables.parquet.BUDGET", rng.choice([1, 50, 500]))
    hosts = [f"h{number}" for number in range(rng.randrange(2, 5))]
    script = Script(tmp_path / "raw", hosts, ["vmstat", "meminfo", "diskstats"])
    for host in range(len(hosts)):
        counters = {f"k{number}_x{number % 3}": 0 for number in rng.sample(range(30), rng.randrange(1, 20))}
        script.connect(host)
        for beat in range(rng.randrange(3, 40)):
            for name in counters:
                counters[name] += rng.choice([0, 0, 1, 10**6, 10**17])
            if rng.random() < 0.1:
                counters[rng.choice(list(counters))] = rng.choice([0, 10**18, 1 << 63, (1 << 64) - 1])
            if rng.random() < 0.1:
                script.connect(host)
                counters[f"new{beat}"] = beat
            counts = "".join(f"{name} {min(value, (1 << 64) - 1)}\n" for name, value in counters.items())
            levels = "".join(f"{name}: {value % 10**beat:8} kB\n" for name, value in counters.items())
            disks = "".join(DISK.format(8, number, f"sd{number}", beat * number) for number in range(host + 1))
            texts = {
                "vmstat": {"/proc/vmstat": counts},
                "meminfo": {"/proc/meminfo": f"MemTotal: 1000 kB\n{levels}"},
                "diskstats": {"/proc/diskstats": disks},
            }
            if rng.random() < 0.2:
                del texts[rng.choice(list(texts))]
            script.sample(START + beat * SECOND, texts, host=host)
    script.close()
    seal_and_compare(tmp_path)


def test_null_and_zero_differ_in_a_widened_column(tmp_path: Path) -> None:
    """A column that is widened for a 64-bit value keeps nulls, and does not turn them into zero."""
    script = Script(tmp_path / "raw", ["a"], ["vmstat"])
    for number, text in enumerate(("pgfault 1\n", "nr_dirty 0\n", f"pgfault {1 << 63}\n")):
        script.connect()  # the values of one connection are one piece of a column
        script.sample(START + number * SECOND, {"vmstat": {"/proc/vmstat": text}})
    script.close()
    seal_and_compare(tmp_path)


@pytest.mark.parametrize("cells", [[(1 << 64) - 1, None], [None, "text"], [None, 7], [None, 0.5], [None]])
def test_column_widened_by_values_with_nulls(cells: list[Any]) -> None:
    """Existing values and new nulls keep their positions."""
    column = Column()
    column.add(array("q", [51]))
    column.add(list(cells))
    column.widen("o")
    assert column.data == [51, *cells]
    column.add(list(cells))
    assert column.data == [51, *cells, *cells]


@pytest.mark.parametrize("inventors", [1, 3])
@pytest.mark.parametrize("one_part", [True, False], ids=["one part", "a part for each host"])
def test_invented_names_do_not_displace_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_part: bool, inventors: int
) -> None:
    """Hosts that invent names do not take the columns of other hosts, and their excess is reported."""
    monkeypatch.setattr("rollbook.tables.parquet.MAX_COLUMNS", 40)
    monkeypatch.setattr("rollbook.tables.columns.HOST_COLUMNS", 20)
    if not one_part:
        monkeypatch.setattr("rollbook.tables.parquet.BUDGET", 1)
    script = Script(tmp_path / "raw", ["a", "b", "c", "d", "e"], ["vmstat"])
    for host in range(5):
        script.connect(host)
        invented = "".join(f"made_up_{host}_{number} 1\n" for number in range(50)) if host < inventors else ""
        for number in range(3):
            text = {"/proc/vmstat": f"nr_dirty {number}\npgfault {number}\nonly_{host} 1\n{invented}"}
            script.sample(START + number * SECOND, {"vmstat": text}, host=host)
    script.close()
    result = seal(survey(tmp_path / "raw"), tmp_path / "series")
    for (host, *_), row in sealed_rows(tmp_path / "series")["vmstat"].items():
        assert {"nr_dirty", "pgfault", f"only_{'abcde'.index(host)}"} <= row.keys()
    excess = {host: [(loss.kind, loss.partly) for loss in losses[0].losses] for host, losses in result.losses.items()}
    assert excess == {host: [("excess", 3)] if number < inventors else [] for number, host in enumerate("abcde")}
    # Each host has 20 names, of which `nr_dirty` and `pgfault` are shared: with three inventors 58 instead of 40.
    assert result.left_out == ({"vmstat": 18} if inventors == 3 else {})


def test_five_thousand_invented_names(tmp_path: Path) -> None:
    """With the default limits, the other host keeps every column, and the inventor is partial with the reason."""
    script = Script(tmp_path / "raw", ["inventor", "other"], ["vmstat"], started_ns=START)
    real = "".join(f"nr_{number} {number}\n" for number in range(150))
    invented = "".join(f"name_{number * 7919 % 5003:x} {number}\n" for number in range(5000))
    for host, text in enumerate((real.upper() + invented + real, real)):
        script.connect(host)
        for number in range(2):
            script.sample(START + number * SECOND, {"vmstat": {"/proc/vmstat": text}}, host=host)
    script.close()
    inventor, other = derive(tmp_path)[2].series
    assert (inventor.status, inventor.reason) == ("partial", "vmstat: 2 of 2 samples incomplete (excess)")
    assert (other.status, other.reason) == ("complete", "")
    rows = [row for key, row in sealed_rows(tmp_path / "series")["vmstat"].items() if key[0] == "other"]
    assert len(rows) == 2
    for row in rows:
        assert {name: row[name] for name in row if name.startswith("nr_")} == {f"nr_{n}": n for n in range(150)}


def test_few_segments_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal with many segments is read with a few file descriptors."""
    monkeypatch.setattr("rollbook.journal.samples.MAX_OPEN", 3)
    plan, beats, count = Plan((catalogue.source("loadavg"),)), Beats(), 50
    with Journal(tmp_path / "raw", begin_of(["a"], plan, SECOND), segment_bytes=600) as journal:
        journal.event({"event": "connected", "hello": {"boot_id": "1"}, "method": "local"}, host=0)
        for number in range(count):
            payload = beats.payload({0: body_of({"/proc/loadavg": f"{number}.00 0.00 0.00 1/2 3\n"})})
            wall = START + number * SECOND
            journal.frame(0, wall, Frame("S", number + 1, number * SECOND, wall, payload))
            journal.flush()
        journal.event({"event": "end"})
    assert len(list((tmp_path / "raw").iterdir())) > 3
    before = set(Path("/proc/self/fd").iterdir())
    found = survey(tmp_path / "raw")
    files = Segments(found)
    assert len(list(HostSamples(found, found.hosts[0], files))) == count
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 3
    files.close()


def test_rejected_texts_are_counted(tmp_path: Path) -> None:
    """A text that the parser rejects has no row, is counted, and does not affect later samples."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"])
    script.connect()
    for number in range(9):
        text = "nonsense\n" if number in (3, 4) else f"{number}.5 0.1 0.2 1/2 3\n"
        script.sample(START + number * SECOND, {"loadavg": {"/proc/loadavg": text}})
    script.close()
    result = seal_and_compare(tmp_path)
    [loss] = result.losses["a"][0].losses
    assert (loss.kind, loss.samples, loss.partly) == ("rejected", 2, 0)
    assert (loss.first_ns, loss.last_ns) == (START + 3 * SECOND, START + 4 * SECOND)
    assert result.tables["loadavg"] == 7


@pytest.mark.parametrize("one_part", [True, False], ids=["one part", "a part for each host"])
def test_names_that_differ_only_in_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_part: bool) -> None:
    """The name that most hosts have stays, the others get a number, as SQL ignores case; no value is lost."""
    if not one_part:
        monkeypatch.setattr("rollbook.tables.parquet.BUDGET", 1)
    script = Script(tmp_path / "raw", ["a", "b", "c"], ["vmstat"])
    texts = {
        0: 'PGMAJFAULT 7\nhost 3\nodd"name 4\nno\0thing 5\n',
        1: "pgmajfault 1\nPGMAJFAULT_2 6\n",
        2: "pgmajfault 2\n",
    }
    for host, text in texts.items():
        script.connect(host)
        script.sample(START, {"vmstat": {"/proc/vmstat": text}}, host=host)
    script.close()
    seal(survey(tmp_path / "raw"), tmp_path / "series")
    rows = {key[0]: row for key, row in sealed_rows(tmp_path / "series")["vmstat"].items()}
    assert [row.pop("mono") > 0 for row in rows.values()] == [True] * 3
    assert rows == {
        "a": {"PGMAJFAULT_3": 7, "counters.host": 3, 'odd"name': 4, "no\\0thing": 5},
        "b": {"pgmajfault": 1, "PGMAJFAULT_2": 6},
        "c": {"pgmajfault": 2},
    }


@pytest.mark.parametrize(("limit", "merged"), [(0, 1), (100, 1), (99, 2), (34, 4), (10, 12), (7, 17), (2, 100)])
def test_merging(tmp_path: Path, limit: int, merged: int) -> None:
    """No host has more samples than the limit; counters keep their totals, gauges have mean, minimum and maximum."""
    script = Script(tmp_path / "raw", ["a"], ["vmstat"], max_samples=limit)
    script.connect()
    rng = random.Random(limit)
    levels = [rng.randrange(1000) for _ in range(100)]
    for number, level in enumerate(levels):
        jitter = rng.randrange(-200, 200) * 1_000_000
        text = f"nr_dirty {level}\npgfault {number * number}\n"
        script.sample(START + number * SECOND + jitter, {"vmstat": {"/proc/vmstat": text}})
    script.close()
    result = seal(survey(tmp_path / "raw"), tmp_path / "series", max_samples=limit)
    assert result.merged == merged
    rows = list(sealed_rows(tmp_path / "series")["vmstat"].values())
    starts = sorted({0, 1, *range(0, 100, merged)}) if merged > 1 else range(100)
    groups = [levels[first:last] for first, last in itertools.pairwise([*starts, 100])]
    assert len(rows) == len(groups) <= (limit or 100)
    assert [row["pgfault"] for row in rows] == [(last - 1) ** 2 for last in [*starts, 100][1:]]
    assert rows[-1]["pgfault"] - rows[0]["pgfault"] == 99**2, "the total of the run is exact"
    assert [row["nr_dirty"] for row in rows] == [pytest.approx(sum(group) / len(group)) for group in groups]
    if merged > 1:
        assert [row["nr_dirty_min"] for row in rows] == [min(group) for group in groups]
        assert [row["nr_dirty_max"] for row in rows] == [max(group) for group in groups]
        assert "pgfault_min" not in rows[0]


def test_merging_ignores_a_clock_of_1970(tmp_path: Path) -> None:
    """A host whose clock is decades off and was never measured does not change the length of the run."""
    script = Script(tmp_path / "raw", ["a", "old"], ["vmstat"], started_ns=START)
    for host, begin in enumerate((START, 5 * SECOND)):
        script.connect(host)
        for number in range(20):
            text = {"/proc/vmstat": f"pgfault {number}\n"}
            script.sample(begin + number * SECOND, {"vmstat": text}, mono=number * SECOND, host=host)
    script.close()
    result = seal(survey(tmp_path / "raw"), tmp_path / "series", max_samples=11)
    assert (result.merged, result.tables["vmstat"]) == (2, 2 * 11)


def test_merge_groups_follow_beats(tmp_path: Path) -> None:
    """If a run starts between two beats, jitter does not move a beat of any host into another group."""
    script = Script(tmp_path / "raw", ["a", "b"], ["vmstat"], started_ns=START)
    for host, late in enumerate((0.1, -0.1)):
        script.connect(host)
        times = [0.5, *(beat + late * (-1) ** beat for beat in range(1, 20))]
        for number, second in enumerate(times):
            text = {"/proc/vmstat": f"pgfault {number}\n"}
            script.sample(START + round(second * SECOND), {"vmstat": text}, host=host)
    script.close()
    result = seal(survey(tmp_path / "raw"), tmp_path / "series", max_samples=11)
    assert result.merged == 2
    kept: dict[str, list[int]] = {"a": [], "b": []}
    for key, row in sealed_rows(tmp_path / "series")["vmstat"].items():
        kept[key[0]].append(row["pgfault"])
    assert kept["a"] == kept["b"] == [0, *range(2, 20, 2), 19]


def test_merging_stops_at_a_reboot(tmp_path: Path) -> None:
    """Samples before and after a reboot are never merged: the counters started again."""
    script = Script(tmp_path / "raw", ["a"], ["vmstat"])
    for boot in range(2):
        script.connect(boot=f"boot-{boot}")
        for number in range(10):
            ts = START + (10 * boot + number) * SECOND
            text = {"/proc/vmstat": f"pgfault {1000 * (1 - boot) + number}\n"}
            script.sample(ts, {"vmstat": text}, mono=number * SECOND)
    script.close()
    seal(survey(tmp_path / "raw"), tmp_path / "series", max_samples=3)
    rows = sealed_rows(tmp_path / "series")["vmstat"].values()
    assert [row["pgfault"] for row in rows] == [1000, 1009, 9]


def test_derive(recorded: Path, tmp_path: Path) -> None:
    """Tables and hosts with their facts are derived from the journal alone; the manifest finishes the record."""
    shutil.copytree(recorded / "raw", tmp_path / "raw")
    assert is_unfinished(tmp_path)
    _, sealed, hosts = derive(tmp_path)
    assert is_unfinished(tmp_path)
    RecordDirectory(tmp_path, "test", "20261115_000000").write_manifest()
    assert not is_unfinished(tmp_path)
    (start,), (end,), (series,) = hosts.start, hosts.end, hosts.series
    assert (start.status, end.status) == ("complete", "complete"), (start.reason, end.reason)
    assert is_whole(series), series.reason
    assert start.facts.keys() >= {"meminfo", "cpuinfo", "block"}
    assert start.boot_id
    assert end.cost is not None
    assert series.samples == sealed.tables["loadavg"] >= 12
    step, beats = SECOND // 10, dict[int, int]()
    for ts in survey(tmp_path / "raw").hosts[0].times():
        beat = (ts + step // 2) // step
        beats[beat] = min(abs(ts - beat * step), beats.get(beat, step))
    assert series.late == sum(distance > SECOND // 100 for distance in beats.values())
    assert series.missed == max(beats) - min(beats) + 1 - len(beats)
    assert lost_gaps(series) == []
    again = read(tmp_path / "hosts.json", RecordHosts)
    assert msgspec.to_builtins(again) == msgspec.to_builtins(hosts)


def test_directory_names_with_equals_signs_and_wildcards(tmp_path: Path) -> None:
    """Names such as `cpu=16` do not become columns, and a name with wildcards does not match other records."""
    first = tmp_path / "run1"
    record_this_machine(first / "raw", beats=6, interval=0.1, names=("stat", "loadavg"))
    derive(first)
    for name in ("host=other/cpu=16", "ts=1", "run[1]", "run?*"):
        shutil.copytree(first / "raw", tmp_path / name / "raw")
        derive(tmp_path / name)
        record = Record(tmp_path / name, {}, read(tmp_path / name / "hosts.json", RecordHosts))
        for path in (tmp_path / name / "series").iterdir():
            assert path.read_bytes() == (first / "series" / path.name).read_bytes()
        with store.connect(record) as connection:
            (found,) = connection.execute("SELECT count(DISTINCT host), count(cpu_busy) > 3 FROM rates").fetchall()
            assert found == (1, True)
            assert connection.execute("DESCRIBE stat").fetchall()[3][0] == "cpu"


def test_running_record_cannot_be_derived(tmp_path: Path) -> None:
    """While the recorder is writing, another process cannot finish the record."""
    with Journal(tmp_path / "raw", begin_of(["a"], Plan(()), SECOND)), pytest.raises(RecordError, match="still being"):
        derive(tmp_path)


def test_truncated_journal(recorded: Path, tmp_path: Path) -> None:
    """A collector that was killed at any time leaves a record with every sample that was written."""
    data = (recorded / "raw" / "000001.seg").read_bytes()
    rng = random.Random(4)
    ends = sorted(rng.sample(range(2000, len(data)), 6))
    counts = []
    for number, end in enumerate(ends):
        path = tmp_path / str(number)
        (path / "raw").mkdir(parents=True)
        (path / "raw" / "000001.seg").write_bytes(data[:end])
        whole = survey(path / "raw").hosts[0]
        _, sealed, hosts = derive(path)
        assert sealed.tables.get("loadavg", 0) == len(whole.places) == hosts.series[0].samples
        counts.append(len(whole.places))
    assert counts == sorted(counts)
    assert counts[-1] >= 12


def test_lost_hosts_gaps_and_reboots(tmp_path: Path) -> None:
    """Gaps have their reason: a reboot, a lost connection and a stopped host are distinguished."""
    script = Script(
        tmp_path / "raw",
        ["steady", "cut", "rebooted", "stopped", "late", "dead", "never"],
        ["loadavg"],
        started_ns=START,
    )
    text = {"loadavg": {"/proc/loadavg": "1.5 0.1 0.2 1/2 3\n"}}
    present = {
        0: [(0, 60)],
        1: [(0, 20), (40, 60)],
        2: [(0, 20), (40, 60)],
        3: [(0, 20), (40, 60)],
        4: [(30, 60)],
        5: [(0, 20)],
    }
    for second in range(60):
        for host, spans in present.items():
            for number, (first, last) in enumerate(spans):
                if second == first and (number == 0 or host != 3):
                    script.connect(host, boot=f"boot-{number}" if host == 2 else "boot")
                if first <= second < last:
                    script.sample(START + second * SECOND, text, host=host)
    script.journal.event({"event": "lost", "reason": "the host does not answer", "status": "timed-out"}, host=5)
    script.journal.event({"event": "lost", "reason": "no route", "status": "unreachable"}, host=6)
    script.close()
    _, _, hosts = derive(tmp_path)
    found = {host.name: (host.status, [gap.why.partition(":")[0] for gap in host.gaps]) for host in hosts.series}
    assert found == {
        "steady": ("complete", []),
        "cut": ("partial", ["connection lost"]),
        "rebooted": ("partial", ["rebooted"]),
        "stopped": ("partial", ["no samples"]),
        "late": ("partial", ["not connected yet"]),
        "dead": ("partial", ["connection lost"]),
        "never": ("unreachable", []),
    }
    assert [host.missed for host in hosts.series[:5]] == [0, 20, 20, 20, 30]
    assert hosts.series[5].missed >= 40  # until the journal was closed
    assert hosts.series[6].reason == hosts.start[6].reason == "no route"
    assert hosts.start[6].status == "unreachable"
    assert hosts.series[2].boot_ids == ["boot-0", "boot-1"]
    assert hosts.end == []


def test_reboot_between_two_beats_is_reported(tmp_path: Path) -> None:
    """A reboot that costs no beat is a gap, so that its time is known; a short loss of the connection is not."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"], started_ns=START)
    text = {"loadavg": {"/proc/loadavg": "1.5 0.1 0.2 1/2 3\n"}}
    for second in range(30):
        if second in {0, 10, 20}:
            script.connect(boot="old" if second < 20 else "new")
        script.sample(START + second * SECOND, text)
    script.close()
    _, _, hosts = derive(tmp_path)
    (gap,) = hosts.series[0].gaps
    assert gap.why == "rebooted"
    assert (gap.start_ns, gap.end_ns) == (START + 19 * SECOND, START + 20 * SECOND)
    assert hosts.series[0].missed == 0


@pytest.mark.parametrize("visits", [["new"], ["new", "new"], ["", "new"], ["new", "", "new"]])
def test_reboot_is_reported_despite_connections_without_samples(tmp_path: Path, visits: list[str]) -> None:
    """The boot ids of the samples before and after a gap are compared; connections without samples do not count.

    A connection with the name "" only has a hello that was not understood.
    """
    script = Script(tmp_path / "raw", ["a"], ["loadavg"], started_ns=START)
    script.connect(boot="old")
    text = {"loadavg": {"/proc/loadavg": "1.5 0.1 0.2 1/2 3\n"}}
    for first, boots in ((0, []), (20, visits), (40, ["new"])):
        for boot in boots:
            script.frame("H", b"", START + first * SECOND, first * SECOND)
            if boot:
                script.connect(boot=boot)
        for second in range(first, first + 10):
            script.sample(START + second * SECOND, text, mono=second * SECOND)
    script.close()
    _, _, hosts = derive(tmp_path)
    assert [gap.why for gap in hosts.series[0].gaps] == ["rebooted", "connection lost"]
    assert hosts.series[0].boot_ids == ["old", "new"]
