"""Recordings whose interval grows: tables of one interval, exact totals, losses by the interval of their time."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from rollbook.protocol.beats import Schedule
from rollbook.records.record import Record, RecordHosts
from rollbook.sql.connection import connect
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script

SECOND = 10**9
START = 1_700_000_000 * SECOND  # a multiple of 32 s
DOUBLES = (START + 64 * SECOND, START + 128 * SECOND)
SCHEDULE = Schedule(SECOND // 2, DOUBLES)
SOURCES = ("loadavg", "diskstats")


def beats(until: int) -> Iterator[int]:
    """All beats of the schedule."""
    at = START
    while at <= until:
        yield at
        at += SCHEDULE.at(at)


def record_host(path: Path, seconds: int, without: Collection[int] = (), most: int = 3600) -> RecordHosts:
    """Record one host that writes 1 MiB per second; `without` are the numbers of beats that it missed."""
    more = {"doubles_ns": list(DOUBLES), "started_ns": START, "max_samples": most}
    script = Script(path / "raw", ["a"], SOURCES, SECOND // 2, **more)
    script.connect()
    for number, at in enumerate(beats(START + seconds * SECOND)):
        if number in without:
            continue
        sectors = 2048 * (at - START) // SECOND
        disk = f"8 0 sda 10 0 80 5 {sectors // 8} 0 {sectors} 7 0 9 12\n"
        load = f"{number}.00 0.00 0.00 1/{number + 1} {number}\n"
        script.sample(at, {"loadavg": {"/proc/loadavg": load}, "diskstats": {"/proc/diskstats": disk}})
    script.close()
    return derive(path)[2]


def test_adaptive_schedule() -> None:
    """The interval starts at 0.5 s and doubles up to 32 s, so that the samples stay below the limit of a table."""
    schedule = Schedule.adaptive(START + 5 * SECOND)
    elapsed = (0, 1700, 1900, 3700, 7300, 36_000, 86_400)
    assert [schedule.at(START + at * SECOND) / SECOND for at in elapsed] == [0.5, 0.5, 1, 2, 4, 16, 32]
    assert all(at % (32 * SECOND) == 0 for at in schedule.doubles)
    for hours in (0.4, 1, 10, 24, 31):
        length = round(hours * 3600 * SECOND)
        assert length / schedule.at(START + length) <= 3600
    assert schedule.order.split(b"\t")[:2] == [b"sample", b"500000000"]
    assert Schedule(SECOND // 2, DOUBLES, whole_seconds=True).at(START) == SECOND


def test_tables_have_the_last_interval(tmp_path: Path) -> None:
    """Early samples are merged to the last interval, on its beats; totals stay exact and no loss is reported."""
    hosts = record_host(tmp_path, 200)
    assert (hosts.interval_seconds, hosts.first_interval_seconds, hosts.merged) == (2.0, 0.5, 1)
    [series] = hosts.series
    assert (series.status, series.missed, series.late, series.gaps) == ("complete", 0, 0, [])
    assert series.samples == len(list(beats(START + 200 * SECOND))) == 128 + 64 + 37
    assert [(one.due, one.stored, one.losses) for one in series.sources] == [(229, 229, []), (229, 229, [])]
    with connect(Record(tmp_path, {}, hosts)) as connection:
        times = [row[0] for row in connection.execute("SELECT epoch_ns(ts) FROM loadavg ORDER BY ts").fetchall()]
        written = connection.execute("SELECT disk_write FROM rates ORDER BY ts").fetchall()
    assert {after - before for before, after in itertools.pairwise(times)} == {2 * SECOND}
    assert all(at % (2 * SECOND) == 0 for at in times)
    assert [value for (value,) in written][1:] == [pytest.approx(1 << 20)] * 100


def test_losses_are_counted_by_the_interval_at_their_time(tmp_path: Path) -> None:
    """Two beats of 0.5 s, one of 1 s, and two of 2 s across a change of the interval are missed: exactly five."""
    every = list(beats(START + 200 * SECOND))
    change = every.index(DOUBLES[1])
    without = {20, 21, 150, change, change + 1}
    hosts = record_host(tmp_path, 200, without)
    [series] = hosts.series
    assert series.missed == 5
    for source in series.sources:
        assert (source.due, source.stored) == (229, 224)
        assert {loss.kind: loss.samples for loss in source.losses} == {"missed": 5}


def test_short_run_keeps_every_sample(tmp_path: Path) -> None:
    """Before the first change nothing is merged."""
    hosts = record_host(tmp_path, 60)
    assert (hosts.interval_seconds, hosts.first_interval_seconds) == (0.5, None)
    with connect(Record(tmp_path, {}, hosts)) as connection:
        assert connection.execute("SELECT count(*) FROM loadavg").fetchall() == [(121,)]


def test_no_limit_keeps_every_sample(tmp_path: Path) -> None:
    """`max_samples` of 0 merges nothing, and rates are computed at every beat."""
    hosts = record_host(tmp_path, 200, most=0)
    with connect(Record(tmp_path, {}, hosts)) as connection:
        [(rows, rates)] = connection.execute("SELECT count(*), count(disk_write) FROM rates").fetchall()
    assert (rows, rates) == (229, 228)
