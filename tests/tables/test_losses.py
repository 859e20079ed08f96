"""Losses: every sample that was due is stored or counted as lost, with its source, kind and time."""

from __future__ import annotations

import dataclasses
import random
import zlib
from pathlib import Path

import duckdb
import pytest

from rollbook.agent.children import FEW_FILES, UNSTARTED
from rollbook.journal.entries import segment_files
from rollbook.journal.reader import Reader
from rollbook.journal.survey import survey
from rollbook.protocol.varint import put_varint
from rollbook.records.record import Record, RecordHosts, SeriesHost, SourceLoss
from rollbook.sources import catalogue
from rollbook.sql.connection import connect
from rollbook.tables.derive import derive
from rollbook.tables.proof import reasons_to_keep
from rollbook.tables.seal import seal
from rollbook.testing.journals import Beats, Script, body_of

SECOND = 10**9
START = 1_700_000_000 * SECOND
DISK = "8 {0} sd{1} 10 0 80 5 20 0 {2} 7 0 9 12\n"


def load(number: int) -> dict[str, str]:
    """The text of loadavg, different at each beat."""
    return {"/proc/loadavg": f"{number}.00 0.00 0.00 1/{number + 1} {number}\n"}


def disks(number: int) -> dict[str, str]:
    """The text of diskstats, with three devices."""
    return {"/proc/diskstats": "".join(DISK.format(16 * place, name, number) for place, name in enumerate("abc"))}


def record_host(path: Path, count: int, names: tuple[str, ...] = ("loadavg", "diskstats")) -> Script:
    """Record one host with this many beats; the script is not yet closed."""
    script = Script(path / "raw", ["a"], names, started_ns=START)
    script.connect()
    for number in range(count):
        texts = {"loadavg": load(number), "diskstats": disks(number)}
        script.sample(START + number * SECOND, {name: texts[name] for name in names})
    return script


def series_of(path: Path) -> SeriesHost:
    """Derive the tables; returns the series of the only host."""
    return derive(path)[2].series[0]


def losses_by_kind(found: SourceLoss) -> dict[str, tuple[int, int]]:
    """For each kind of loss, the number of samples and of partly stored samples."""
    return {loss.kind: (loss.samples, loss.partly) for loss in found.losses}


def flip_bit(path: Path, number: int) -> None:
    """Change one bit in the sample frame with this number, in the only segment."""
    frames = [entry for entry in Reader(path / "raw") if entry.frame is not None and entry.frame.kind == "S"]
    [segment] = segment_files(path / "raw")
    data = bytearray(segment.read_bytes())
    data[frames[number].offset + len(frames[number].payload) - 2] ^= 4
    segment.write_bytes(data)


def test_nothing_lost(tmp_path: Path) -> None:
    """A host without losses is complete; its samples and rows are counted."""
    record_host(tmp_path, 70).close()
    found, sealed, hosts = derive(tmp_path)
    series = hosts.series[0]
    assert (series.status, series.reason) == ("complete", "")
    assert [(one.source, one.due, one.stored, one.rows, one.losses, one.gaps) for one in series.sources] == [
        ("loadavg", 70, 70, 70, [], []),
        ("diskstats", 70, 70, 210, [], []),
    ]
    assert reasons_to_keep(found, sealed, tmp_path) == []


@pytest.mark.parametrize("how", ["a flipped bit in the journal", "a missing frame"])
def test_lost_frame(tmp_path: Path, how: str) -> None:
    """The frame is lost, frames that depend on it are undecodable; the host is partial and the journal is kept."""
    if how.startswith("a flipped bit"):
        record_host(tmp_path, 90).close()
        flip_bit(tmp_path, 10)
    else:
        script = record_host(tmp_path, 10)
        script._beats[0].payload({0: body_of(load(10)), 1: body_of(disks(10))})
        script._seq[0] += 1
        for number in range(11, 90):
            script.sample(START + number * SECOND, {"loadavg": load(number), "diskstats": disks(number)})
        script.close()
    found, sealed, hosts = derive(tmp_path)
    series = hosts.series[0]
    for one in series.sources:
        assert (one.due, one.stored) == (90, 40)
        assert losses_by_kind(one) == {"lost": (1, 0), "undecodable": (49, 0)}
        assert [(loss.first_ns, loss.last_ns) for loss in one.losses] == [
            (START + 9 * SECOND, START + 11 * SECOND),
            (START + 11 * SECOND, START + 59 * SECOND),
        ]
        assert [(gap.start_ns, gap.end_ns) for gap in one.gaps] == [(START + 9 * SECOND, START + 60 * SECOND)]
    assert series.status == "partial"
    assert "loadavg: 50 of 90 samples lost (lost, undecodable)" in series.reason
    assert any("98 samples could not be turned into rows" in why for why in reasons_to_keep(found, sealed, tmp_path))


def test_missing_end_frame(tmp_path: Path) -> None:
    """A host without an end frame is partial even if no beat is missing."""
    record_host(tmp_path, 20).close(cut=True)
    series = series_of(tmp_path)
    assert (series.status, series.reason) == ("partial", "the end is missing: no end frame")


def test_frames_lost_before_the_end_frame(tmp_path: Path) -> None:
    """The number of the end frame shows that frames are missing before it."""
    script = record_host(tmp_path, 20)
    script._seq[0] += 2
    script.close()
    series = series_of(tmp_path)
    assert (series.status, series.reason) == ("partial", "frames after the last sample are lost")


@pytest.mark.parametrize(("every", "status"), [(40, "complete"), (10, "partial")])
def test_missed_beats(tmp_path: Path, every: int, status: str) -> None:
    """A host that misses a few single beats is complete; one that misses more than 5 % is partial, with the reason."""
    script = Script(tmp_path / "raw", ["a"], ("loadavg",), started_ns=START)
    script.connect()
    for number in range(90):
        if number % every != every - 1:
            script.sample(START + number * SECOND, {"loadavg": load(number)})
    script.close()
    series = series_of(tmp_path)
    reason = "8 of 89 beats without samples: the host was busy" if status == "partial" else ""
    assert (series.status, series.reason) == (status, reason)


def test_losses_and_gaps_in_sql(tmp_path: Path) -> None:
    """The tables `losses` and `gaps` name the source; a gap of the whole host has none."""
    script = record_host(tmp_path, 30)
    for number in range(40, 70):
        script.sample(START + number * SECOND, {"loadavg": load(number), "diskstats": disks(number)})
    script.close()
    flip_bit(tmp_path, 10)
    hosts = derive(tmp_path)[2]
    with connect(Record(tmp_path, {}, hosts)) as connection:
        query = 'SELECT host, source, kind, samples, partly, due, stored, epoch_ns("first") // 1000000000 FROM losses'
        found = connection.execute(f"{query} ORDER BY source, kind").fetchall()
        gaps = 'SELECT source, epoch_ns("start"), epoch_ns("end"), why FROM gaps ORDER BY source NULLS FIRST'
        first, *others = connection.execute(gaps).fetchall()
    start = START // SECOND
    expected = [("lost", 1, start + 9), ("missed", 10, start + 29), ("undecodable", 49, start + 11)]
    counted = [(kind, samples, at) for _, source, kind, samples, _, _, _, at in found if source == "diskstats"]
    assert counted == expected
    assert {(due, stored) for _, _, _, _, _, due, stored, _ in found} == {(70, 10)}
    assert (first[0], first[3]) == (None, "no samples: the host was stopped or overloaded")
    assert [gap[0] for gap in others] == ["diskstats", "loadavg"]


@pytest.mark.parametrize(
    ("page", "kind", "partly"),
    [
        (b"timed-out 0 /proc/loadavg\n", "timed-out", 0),
        (b"failed 0 /proc/loadavg\n", "failed", 0),
        (b"denied 0 /proc/loadavg\n", "denied", 0),
        (b"truncated 0 /proc/loadavg\n", "truncated", 0),
        (b"truncated 23 /proc/loadavg\n1.00 0.00 0.00 1/2 300\n", "truncated", 3),
        (b"ok 9 /proc/loadavg\nnonsense\n", "rejected", 0),
        (b"absent 0 /proc/loadavg\n", None, 0),
        (b"", None, 0),
    ],
)
def test_statuses_of_pages(tmp_path: Path, page: bytes, kind: str | None, partly: int) -> None:
    """A page that the host reports as unreadable is a loss; an absent page is not."""
    script, beats = Script(tmp_path / "raw", ["a"], ["loadavg"], started_ns=START), Beats()
    script.connect()
    for number in range(20):
        body = page if 5 <= number < 8 else body_of(load(number))
        script.frame("S", beats.payload({0: body}), START + number * SECOND, number * SECOND)
    script.close()
    series = series_of(tmp_path)
    [found] = series.sources
    assert losses_by_kind(found) == ({kind: (3, partly)} if kind else {})
    assert (found.due, found.stored) == (20 if kind else 17, 17 + partly)
    assert series.status == ("partial" if kind else "complete")
    if kind:
        state = "incomplete" if partly else "lost"
        assert series.reason == f"loadavg: 3 of 20 samples {state} ({kind})"
        assert [(loss.first_ns, loss.last_ns) for loss in found.losses] == [(START + 5 * SECOND, START + 7 * SECOND)]


def test_source_that_fails_from_the_start(tmp_path: Path) -> None:
    """A file that can never be read, for example without free descriptors, is a loss although it never had text."""
    script, beats = Script(tmp_path / "raw", ["a"], ["loadavg", "softnet"], started_ns=START), Beats()
    script.connect()
    for number in range(20):
        bodies = {0: body_of(load(number))}
        if number % 10 == 0:
            bodies[1] = b"failed 0 /proc/net/softnet_stat\n"
        script.frame("S", beats.payload(bodies), START + number * SECOND, number * SECOND)
    script.close()
    assert series_of(tmp_path).reason == "softnet: 2 of 2 samples lost (failed)"


@pytest.mark.parametrize(
    ("pages", "counted"),
    [
        (["failed 0", "failed 0", "denied 0"], {}),  # a sensor that is never readable
        (["ok 3", "ok 3", "failed 0"], {"failed": (1, 1)}),  # a sensor that becomes unreadable
        (["ok 3", "ok 3", "timed-out 0"], {"timed-out": (1, 1)}),
        (["ok 3", "ok 3", "absent 0"], {}),
    ],
)
def test_one_unreadable_page_of_several(tmp_path: Path, pages: list[str], counted: dict[str, tuple[int, int]]) -> None:
    """A page that was readable and becomes unreadable makes a sample incomplete."""
    script, beats = Script(tmp_path / "raw", ["a"], ["amdgpu"], started_ns=START), Beats()
    script.connect()
    device = "/sys/class/drm/card{0}/device/gpu_busy_percent\n"
    for number, page in enumerate(pages):
        good = f"ok 3 {device.format(0)}{number + 10}\n"
        other = f"{page} {device.format(1)}" + ("20\n" if page == "ok 3" else "")
        script.frame("S", beats.payload({0: (good + other).encode()}), START + number * SECOND, number * SECOND)
    script.close()
    [found] = series_of(tmp_path).sources
    assert losses_by_kind(found) == counted
    assert (found.due, found.stored) == (3, 3)


def test_device_that_is_never_read_for_want_of_descriptors(tmp_path: Path) -> None:
    """Samples that lack a device for lack of resources are incomplete, although it was never readable."""
    script, beats = Script(tmp_path / "raw", ["a"], ["amdgpu"], started_ns=START), Beats()
    script.connect()
    device = "/sys/class/drm/card{0}/device/gpu_busy_percent\n"
    reason = "too many open files on the host"
    for number in range(3):
        body = f"ok 3 {device.format(0)}{number + 10}\nfailed {len(reason)} {device.format(1)}{reason}"
        script.frame("S", beats.payload({0: body.encode()}), START + number * SECOND, number * SECOND)
    script.close()
    [found] = series_of(tmp_path).sources
    assert losses_by_kind(found) == {"failed": (3, 3)}


@pytest.mark.parametrize(
    ("before", "reason", "counted"),
    [
        (0, b"", {}),
        (2, b"", {"failed": (4, 0)}),
        (0, FEW_FILES, {"failed": (6, 0)}),
        (0, UNSTARTED, {"failed": (6, 0)}),
    ],
)
def test_program_that_fails(tmp_path: Path, before: int, reason: bytes, counted: dict[str, tuple[int, int]]) -> None:
    """A program that never had output is not a loss; one that stops working or lacks resources is."""
    script, beats = Script(tmp_path / "raw", ["a"], ["gpu"], started_ns=START), Beats()
    script.connect()
    from rollbook.sources.gpu import PROGRAM

    command, line = " ".join(PROGRAM), "GPU-1, 00000000:01:00.0, 7, 1, 100, 50, 40, 70.5, 1000, 2000, 0x0, 0\n"
    for number in range(6):
        failed = f"failed {len(reason)} {command}\n{reason.decode()}"
        body = f"ok {len(line)} {command}\n{line}" if number < before else failed
        script.frame("S", beats.payload({0: body.encode()}), START + number * SECOND, number * SECOND)
    script.close()
    found = series_of(tmp_path).sources
    assert {kind: count for one in found for kind, count in losses_by_kind(one).items() if kind == "failed"} == counted


def test_sources_that_are_due_less_often(tmp_path: Path) -> None:
    """A source is due on every tenth beat; if it is missing although the host was sampled, it is skipped."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg", "softirqs"], started_ns=START)
    script.connect()
    for number in range(60):
        texts = {"loadavg": load(number)}
        if number % 10 == 0 and number != 30:
            texts["softirqs"] = {"/proc/softirqs": f"      CPU0\n HI: {number}\n"}
        script.sample(START + number * SECOND, texts)
    script.close()
    series = series_of(tmp_path)
    assert [(one.source, one.due, one.stored, losses_by_kind(one)) for one in series.sources] == [
        ("loadavg", 60, 60, {}),
        ("softirqs", 6, 5, {"skipped": (1, 0)}),
    ]
    assert series.reason == "softirqs: 1 of 6 samples lost (skipped)"
    assert [(gap.start_ns, gap.end_ns, gap.why) for gap in series.sources[1].gaps] == [
        (START + 20 * SECOND, START + 40 * SECOND, "skipped")
    ]


def test_stand_in_sources_are_due_on_every_beat(tmp_path: Path) -> None:
    """The stand-in sends one reading at a time: a missing reading and one with only a status are losses."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg", "softirqs"], started_ns=START)
    script.connect(kind="sh")
    for number in range(12):
        at = START + number * SECOND
        script.frame("R", b"0 sample - 1000 \n" + body_of(load(number)), at, at - 10**18)
        body = body_of({"/proc/softirqs": f"      CPU0\n HI: {number}\n"})
        if number == 8:
            script.frame("R", b"1 sample timed-out 1000 \n", at + 10**7, at + 10**7 - 10**18)
        elif number != 4:
            script.frame("R", b"1 sample - 1000 \n" + body, at + 10**7, at + 10**7 - 10**18)
    script.close()
    series = series_of(tmp_path)
    assert [(one.source, one.due, one.stored, losses_by_kind(one)) for one in series.sources] == [
        ("loadavg", 12, 12, {}),
        ("softirqs", 12, 10, {"skipped": (1, 0), "timed-out": (1, 0)}),
    ]


def test_source_appears_or_disappears(tmp_path: Path) -> None:
    """A source that appears during the run, or disappears for good, is due only while it exists."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg", "diskstats", "amdgpu"], started_ns=START)
    script.connect()
    busy = {"/sys/class/drm/card0/device/gpu_busy_percent": "7\n"}
    for number in range(30):
        texts = {"loadavg": load(number)}
        texts |= {"diskstats": disks(number)} if number >= 10 else {}
        texts |= {"amdgpu": busy} if number < 10 else {}
        script.sample(START + number * SECOND, texts)
    script.close()
    series = series_of(tmp_path)
    assert [(one.due, one.stored, one.losses) for one in series.sources] == [(30, 30, []), (20, 20, []), (10, 10, [])]
    assert series.status == "complete"


def test_thinned_out_samples_are_missed(tmp_path: Path) -> None:
    """A slow connection halves the samples: they count as missed for every source, and the host is partial."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"], started_ns=START)
    script.connect()
    for number in range(40):
        at = START + number * SECOND
        if number < 20 or number % 2:
            script.sample(at, {"loadavg": load(number)}, mono=number * SECOND)
        else:
            script.frame("G", b"", at, number * SECOND)
    script.close()
    series = series_of(tmp_path)
    [found] = series.sources
    assert (found.due, found.stored, losses_by_kind(found)) == (40, 30, {"missed": (10, 0)})
    assert (series.status, series.reason) == ("partial", "10 of 40 beats without samples: connection too slow")


def test_host_connected_late_and_lost_early(tmp_path: Path) -> None:
    """Samples are due from the first of any host to the end of the run."""
    script = Script(tmp_path / "raw", ["a", "b"], ["loadavg", "diskstats"], started_ns=START)
    script.connect(0)
    for number in range(60):
        script.sample(START + number * SECOND, {"loadavg": load(number)}, host=0)
        if number == 20:
            script.connect(1)
        if 20 <= number < 40:
            script.sample(START + number * SECOND, {"diskstats": disks(number)}, host=1)
    script.close()
    _, _, hosts = derive(tmp_path)
    [found] = hosts.series[1].sources
    assert (found.due, found.stored, losses_by_kind(found)) == (59, 20, {"missed": (39, 0)})
    assert hosts.series[1].gaps
    assert [(host.samples, host.missed) for host in hosts.series] == [(60, 0), (20, 40)], "20 of 60, not 20 of 20"


def test_samples_are_due_once_all_hosts_are_ready(tmp_path: Path) -> None:
    """Samples are due from the time at which all hosts were ready; the first one may be a little later."""
    record_host(tmp_path, 20, ("loadavg",)).close()
    for late, expected in ((2, {}), (10, {"missed": (10, 0)})):
        found = survey(tmp_path / "raw")
        found.ready_ns = START - late * SECOND
        [loss] = seal(found, tmp_path / "series").losses["a"]
        assert (loss.stored, losses_by_kind(loss)) == (20, expected)
    found.ended_ns = START - 5 * SECOND  # the clock of the host is wrong, and was not measured
    [loss] = seal(found, tmp_path / "series").losses["a"]
    assert (loss.stored, losses_by_kind(loss)) == (20, {})


def test_malformed_line_affects_only_its_row(tmp_path: Path) -> None:
    """The other devices of that beat are stored; the sample is incomplete and the journal is kept."""
    script = Script(tmp_path / "raw", ["a"], ["diskstats"], started_ns=START)
    script.connect()
    for number in range(9):
        texts = disks(number)
        if number == 4:
            texts = {path: text.replace("sdb 10", "sdb ten") for path, text in texts.items()}
        script.sample(START + number * SECOND, {"diskstats": texts})
    script.close()
    found, sealed, hosts = derive(tmp_path)
    [source] = hosts.series[0].sources
    assert (source.due, source.stored, source.rows, losses_by_kind(source)) == (9, 9, 26, {"rejected": (1, 1)})
    rows = duckdb.execute(
        f"SELECT device_name FROM '{tmp_path}/series/diskstats.parquet' WHERE epoch_ns(ts) = {START + 4 * SECOND}"
    ).fetchall()
    assert rows == [("sda",), ("sdc",)]
    assert hosts.series[0].reason == "diskstats: 1 of 9 samples incomplete (rejected)"
    assert reasons_to_keep(found, sealed, tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_duplicated_regions_make_no_extra_rows(tmp_path: Path, seed: int) -> None:
    """A range of entries that is repeated anywhere later in the segment changes nothing."""
    rng = random.Random(seed)
    script = Script(tmp_path / "raw", ["a", "b"], ["loadavg"], started_ns=START)
    for number in range(40):
        if number % 15 == 0:
            for host in (0, 1):
                at = START + number * SECOND - SECOND // 2
                script.connect(host, boot=f"boot-{number // 30}")
                script.frame("H", b"", at, (number + 9) * SECOND, host=host)
                script.journal.event({"event": "clock", "offset_ns": 0, "bound_ns": 1, "round_trip_ns": 2}, host=host)
        if number == 20:
            script.journal.event({"event": "phase", "name": "main"})
        for host in (0, 1):
            script.sample(START + number * SECOND, {"loadavg": load(number)}, mono=(number + 10) * SECOND, host=host)
    script.close()
    _, expected, before = derive(tmp_path)
    [segment] = segment_files(tmp_path / "raw")
    data = segment.read_bytes()
    edges = [entry.offset - 24 for entry in Reader(tmp_path / "raw")] + [len(data)]
    first, last, target = sorted(rng.choices(edges[1:], k=3))
    if rng.random() < 0.3:
        target = last
    segment.write_bytes(data[:target] + data[first:last] + data[target:])
    _, sealed, hosts = derive(tmp_path)
    assert sealed.tables == expected.tables == {"loadavg": 80}
    assert hosts.series == before.series
    assert hosts.phases == before.phases


def step_clocks(path: Path, monkeypatch: pytest.MonkeyPatch, by_ns: int, *, host_too: bool) -> RecordHosts:
    """Derive a run of 60 s in which the collector's clock is set after 20 s, and optionally the host's clock too."""
    now = [START, 10**15]
    monkeypatch.setattr("rollbook.journal.writer._clocks", lambda: tuple(now))
    script = Script(path / "raw", ["a"], ["loadavg"], started_ns=START)
    script.connect()
    for number in range(60):
        by = by_ns if number >= 20 else 0
        now[:] = START + number * SECOND + by, 10**15 + number * SECOND
        wall = START + number * SECOND + (by if host_too else 0)
        payload = script._beats[0].payload({0: body_of(load(number))})
        script.frame("S", payload, wall, 10**14 + number * SECOND, arrived=now[0] + 1000)
        if number % 15 == 0:
            offset = now[0] - wall
            script.journal.event({"event": "clock", "offset_ns": offset, "bound_ns": 9, "round_trip_ns": 18}, host=0)
        if number == 30:
            script.journal.event({"event": "phase", "name": "main"})
    script.close()
    return derive(path)[2]


@pytest.mark.parametrize("by", [3600.25, -3600.25, 0.2, -0.2])
@pytest.mark.parametrize("host_too", [True, False], ids=["both clocks", "the collector's clock"])
def test_steps_of_the_collectors_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: float, host_too: bool
) -> None:
    """Samples and phases keep their true times; the steps are reported, and none is reported as a suspend."""
    by_ns = round(by * SECOND)
    hosts = step_clocks(tmp_path, monkeypatch, by_ns, host_too=host_too)
    rows = duckdb.execute(f"SELECT epoch_ns(ts) FROM '{tmp_path}/series/loadavg.parquet'").fetchall()
    assert [(ts - START) / SECOND for (ts,) in rows] == pytest.approx(list(range(60)), abs=1e-3)
    assert [(step.at_ns, step.by_ns) for step in hosts.clock_steps] == [(START + 20 * SECOND, by_ns)]
    series = hosts.series[0]
    assert series.suspends == []
    assert [step.by_ns for step in series.clock_steps] == ([by_ns] if host_too else [])
    assert [phase.start_ns for phase in hosts.phases] == [START + 30 * SECOND]
    assert (series.status, series.gaps, series.missed) == ("complete", [], 0)
    assert series.sources[0].losses == []


def test_text_beyond_the_budget_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sends more text than its budget is read up to the budget; the rest is reported as lost."""
    monkeypatch.setattr("rollbook.journal.samples.INFLATED", 100_000)
    monkeypatch.setattr("rollbook.journal.samples.INFLATED_PER_FRAME", 1000)
    script = Script(tmp_path / "raw", ["good", "bad"], ["loadavg", "diskstats"], started_ns=START)
    script.connect(0)
    script.connect(1)
    for number in range(50):
        at = START + number * SECOND
        script.sample(at, {"loadavg": load(number)}, host=0)
        script.sample(at, {"loadavg": {"/proc/loadavg": f"{number}.0 0 0 1/2 3" + " " * 5000 + "\n"}}, host=1)
    script.close()
    _, _, hosts = derive(tmp_path)
    good, bad = hosts.series
    assert (good.status, good.sources[0].stored) == ("complete", 50)
    assert bad.status == "partial"
    assert losses_by_kind(bad.sources[0]) == {"excess": (20, 0)}
    assert (bad.sources[0].due, bad.sources[0].stored) == (50, 30)
    assert bad.reason == "loadavg: 20 of 50 samples lost (excess)"


def test_source_repeated_in_one_frame(tmp_path: Path) -> None:
    """A frame may have one entry per source, of limited size, so that deflate bombs cannot be multiplied."""
    script = Script(tmp_path / "raw", ["a"], ["loadavg"], started_ns=START)
    script.connect()
    for number in range(3):
        script.sample(START + number * SECOND, {"loadavg": load(number)})
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = (stream.compress(bytes(16 << 20)) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
    payload = bytearray()
    for _ in range(50):
        for value in (0, 1, 0, 0, len(bomb)):
            put_varint(payload, value)
        payload += bomb
    script.frame("S", bytes(payload), START + 3 * SECOND, START + 3 * SECOND - 10**18)
    script.sample(START + 4 * SECOND, {"loadavg": load(4)})
    script.close()
    found = survey(tmp_path / "raw")
    from rollbook.journal.samples import HostSamples, Segments

    samples = HostSamples(found, found.hosts[0], Segments(found))
    assert len(list(samples)) == 3
    assert samples._unpacker.inflated < 2 << 20
    assert losses_by_kind(series_of(tmp_path).sources[0]) == {"undecodable": (2, 0)}


@pytest.mark.parametrize("seed", range(30))
def test_every_beat_is_accounted_for_with_random_faults(tmp_path: Path, seed: int) -> None:
    """With lost, truncated or damaged frames and pages of any status, each beat of a source is stored or lost.

    A host is complete only if every row that it should have is in the table.
    """
    rng = random.Random(seed)
    count, beats = 130, Beats()
    script = Script(tmp_path / "raw", ["a"], ["loadavg", "diskstats"], started_ns=START)
    script.connect()
    faults = rng.choice([0.0, 0.01, 0.05])
    rows = 0
    for number in range(count):
        body, fault = body_of(disks(number)), ""
        if 0 < number < count - 1 and rng.random() < faults:
            fault = rng.choice(["lost", "truncated", "timed-out", "failed", "line", "nonsense"])
        if fault in ("timed-out", "failed"):
            body = f"{fault} 0 /proc/diskstats\n".encode()
        elif fault == "line":
            body = body.replace(b"sdb 10", b"sdb xx")
        elif fault == "nonsense":
            body = body_of({"/proc/diskstats": "nonsense\n" * 100})
        payload = beats.payload({0: body_of(load(number)), 1: body})
        rows += {"": 3, "line": 2}.get(fault, 0)
        if fault == "lost":
            script._seq[0] += 1
        else:
            payload = payload[:-3] if fault == "truncated" else payload
            script.frame("S", payload, START + number * SECOND, number * SECOND)
    script.close()
    series = series_of(tmp_path)
    for one in series.sources:
        assert one.due == count, one
        assert one.stored + sum(loss.samples - loss.partly for loss in one.losses) == count
    assert (series.status == "complete") == (not any(one.losses for one in series.sources))
    if series.status == "complete":
        assert [one.rows for one in series.sources] == [count, rows] == [count, 3 * count]


@pytest.mark.parametrize("error", [TypeError("a bug"), RecursionError(), AssertionError()], ids=repr)
def test_any_exception_in_a_parser_rejects_only_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """If the parser of a plug-in raises, its samples are rejected; other sources are stored."""
    script = record_host(tmp_path, 20)
    script.close()

    def fail(_: object) -> None:
        raise error

    broken = dataclasses.replace(catalogue.source("diskstats"), pages_to_facts=fail)
    monkeypatch.setattr(catalogue, "find", lambda name: broken if name == broken.name else catalogue.source(name))
    found = {source.source: source for source in series_of(tmp_path).sources}
    assert losses_by_kind(found["diskstats"]) == {"rejected": (20, 0)}
    assert (found["loadavg"].stored, losses_by_kind(found["loadavg"])) == (20, {})
