"""From frames to samples: missing frames never result in wrong text; times are those of the collector's clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.journal.clocks import CollectorClock, Timeline
from rollbook.journal.history import clock_notes, facts_of, series_of
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import MAX_CLOCKS, HostJournal, survey
from rollbook.journal.writer import Journal
from rollbook.protocol.frames import Frame
from rollbook.protocol.samples import Sample
from rollbook.records.hosts import HostResult
from rollbook.records.record import ClockJump
from rollbook.testing.journals import Beats, Script, begin_of, body_of

SECOND = 10**9
START = 1_700_000_000 * SECOND
LOAD = "/proc/loadavg"


def samples_of(raw: Path, host: int = 0) -> tuple[list[Sample], HostSamples]:
    """The samples of one host, and their reader."""
    found = survey(raw)
    files = Segments(found)
    reader = HostSamples(found, found.hosts[host], files)
    samples = list(reader)
    files.close()
    return samples, reader


def load(number: int) -> dict[str, dict[str, str]]:
    """A sample of loadavg that differs from every other."""
    return {"loadavg": {LOAD: f"{number}.00 0.00 0.00 1/{number} {number}\n"}}


def texts_of(samples: list[Sample]) -> dict[tuple[int, int], bytes]:
    """The text of every sample by time and source; unchanged text is filled in."""
    found: dict[tuple[int, int], bytes] = {}
    before: dict[int, bytes] = {}
    for sample in samples:
        if sample.body is not None:
            before[sample.source] = sample.body
        found[sample.ts, sample.source] = before[sample.source]
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lost=st.sets(st.integers(0, 29)), cut=st.sets(st.integers(0, 29)), steps=st.lists(st.integers(0, 2)))
def test_missing_and_truncated_frames(
    tmp_path_factory: pytest.TempPathFactory, lost: set[int], cut: set[int], steps: list[int]
) -> None:
    """If any frames are missing or truncated, every decoded text is that of its beat.

    Complete frames are decoded again from the next key frame at the latest.
    """
    raw = tmp_path_factory.mktemp("lost")
    script = Script(raw, ["a"], ["loadavg", "uptime", "version"])
    beats, truth, value = Beats(key_beats=7), {}, 0
    script.connect()
    for number in range(30):
        value += steps[number % len(steps)] if steps else 1
        bodies = {0: body_of(load(value)["loadavg"]), 1: body_of({"/proc/uptime": f"{number} {value}\n" * 50})}
        bodies[2] = bodies[1]  # the frame only refers to the other source
        payload = beats.payload(bodies)
        ts = START + number * SECOND
        truth.update({(ts, source): body for source, body in bodies.items()})
        if number in cut:
            payload = payload[:-3]
        if number in lost:
            script._seq[0] += 1
        else:
            script.frame("S", payload, ts, number * SECOND)
    script.close()
    samples, _ = samples_of(raw)
    found = texts_of(samples)
    bad = lost | cut
    # A truncated frame may still contain its first source completely.
    assert all(truth[at] == body for at, body in found.items())
    since_key = 0
    for number in range(30):
        since_key = number if number % 7 == 0 else since_key
        if not bad & set(range(since_key, number + 1)):
            assert (START + number * SECOND, 0) in found
            assert (START + number * SECOND, 1) in found
            assert (START + number * SECOND, 2) in found


def test_reconnects_start_new_streams(tmp_path: Path) -> None:
    """Each connection starts a new stream and has its own number."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    for first, boot in ((0, "one"), (3, "one"), (6, "two")):
        script.connect(boot=boot)
        for number in range(3):
            script.sample(START + (first + number) * SECOND, load(number))
    script.close()
    found = survey(tmp_path)
    assert found.hosts[0].boots == ["one", "two"]
    assert found.hosts[0].connections == [0, 3, 6]
    files = Segments(found)
    reader = HostSamples(found, found.hosts[0], files)
    assert [reader.connection for _ in reader] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert reader.undecodable == []


@pytest.mark.parametrize("again", [False, True], ids=["in the next segment", "in the same segment"])
def test_damaged_begin_event(tmp_path: Path, again: bool) -> None:
    """Samples before the first intact `begin` event are found as well."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    script.connect()
    for number in range(9):
        script.sample(START + number * SECOND, load(number))
        if number == 4 and again:
            script.journal.begin()
    script.close()
    path, began = tmp_path / "000001.seg", survey(tmp_path).started_ns
    path.write_bytes(path.read_bytes().replace(b'"hosts"', b'"hasts"', 1))
    if not again:
        with pytest.raises(RecordError, match="no journal that can be read"):
            survey(tmp_path)
        Script(tmp_path, ["a"], ["loadavg"], started_ns=began).close()
    found = survey(tmp_path)
    assert (found.damaged, found.started_ns) == (1, began)
    assert [len(host.places) for host in found.hosts] == [9]
    assert found.hosts[0].boots == ["boot-1"]


def test_stand_in_samples(tmp_path: Path) -> None:
    """Readings of one round have the time stamp of the first one, and each has its own monotonic time."""
    script = Script(tmp_path, ["a"], ["loadavg", "meminfo", "version"])
    script.connect(kind="sh")
    for number in range(3):
        for source, text in ((0, load(number)["loadavg"]), (1, {"/proc/meminfo": "MemTotal: 1 kB\n"})):
            wall = START + number * SECOND + source * 20_000_000
            head = f"{source} sample - 1000 \n".encode()
            script.frame("R", head + body_of(text), wall, wall - 10**18)
    script.close()
    samples, _ = samples_of(tmp_path)
    assert [(s.source, s.ts - START, s.mono - START + 10**18) for s in samples] == [
        (source, number * SECOND, number * SECOND + source * 20_000_000) for number in range(3) for source in (0, 1)
    ]


def test_frames_out_of_range(tmp_path: Path) -> None:
    """Frames with impossible clocks, malformed numbers or sources outside the plan are rejected."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    script.connect()
    script.frame("S", b"", 1 << 63, 1 << 63)
    for payload in (b"\xff" * 30, b"\x05\x01\x00\x00\x01x", b"\x00\x01\x00\x00\x02xx", b"\x00\x02\x00\x00\x00"):
        script.frame("S", payload, START, 0)
    script.sample(START + SECOND, load(1))
    script.close()
    samples, reader = samples_of(tmp_path)
    assert [s.ts for s in samples] == [START + SECOND]
    assert len(reader.undecodable) == 4


def test_unknown_host_numbers_and_events(tmp_path: Path) -> None:
    """Entries of unknown hosts and events of later versions are ignored."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    script.journal.frame(9, 1, Frame("S", 0, 0, 0, b""))
    script.journal.event({"event": "something new", "deep": [1]}, host=0)
    script.journal.event({"event": "phase", "name": "warm-up"})
    script.connect()
    script.sample(START, load(1))
    script.close()
    found = survey(tmp_path)
    assert [len(host.places) for host in found.hosts] == [1]
    assert [phase.name for phase in found.phases] == ["warm-up"]


def test_a_plan_of_a_later_version(tmp_path: Path) -> None:
    """An unknown source keeps its place in the plan, and does not affect other sources."""
    script = Script(tmp_path / "old", ["a"], ["loadavg", "meminfo"])
    begin = {**begin_of(["a"], script.plan, SECOND), "sources": ["from_the_future", "loadavg"]}
    with Journal(tmp_path / "new", begin) as journal:
        payload = Beats().payload({0: b"ok 3 /x\nabc", 1: body_of(load(4)["loadavg"])})
        journal.frame(0, START, Frame("S", 0, 0, START, payload))
    samples, _ = samples_of(tmp_path / "new")
    assert samples[1].body == body_of(load(4)["loadavg"])


@pytest.mark.parametrize("drift", [0, 200, -200])
def test_clock_drift(drift: int) -> None:
    """Between two measurements the offset is interpolated, so times are exact within 2 µs."""
    timeline, walls = Timeline(), []
    timeline.connect()
    for second in range(61):
        true = START + second * SECOND
        offset = 3 * SECOND + second * drift * 1000
        walls.append(timeline.steady(second * SECOND, true - offset, true))
        if second % 30 == 0:
            timeline.measured(true, offset)
    times = timeline.times(walls, [0])
    assert all(abs(ts - START - second * SECOND) < 2000 for second, ts in enumerate(times))


def test_set_clock() -> None:
    """A step of the host's clock between two measurements is detected and moves no sample."""
    timeline, walls = Timeline(), []
    timeline.connect()
    for second in range(61):
        true = START + second * SECOND
        offset = -7 * SECOND if second < 17 else 2 * SECOND
        walls.append(timeline.steady(second * SECOND, true - offset, true + 300_000))
        if second in (0, 30, 60):
            timeline.measured(true, offset)
    times = timeline.times(walls, [0])
    assert timeline.steps == [(START + 17 * SECOND + 300_000, -9 * SECOND)]
    assert all(abs(ts - START - second * SECOND) < 2000 for second, ts in enumerate(times))


def test_suspended_host() -> None:
    """A suspend stops only the monotonic clock: later samples have the time of the wall clock."""
    timeline, walls = Timeline(), []
    timeline.connect()
    timeline.measured(START, 0)
    for second in (0, 1, 2, 600, 601):
        mono = second * SECOND if second < 600 else (second - 597) * SECOND
        walls.append(timeline.steady(mono, START + second * SECOND, START + second * SECOND + 200_000))
    timeline.measured(START + 602 * SECOND, 0)
    assert [(ts - START) // SECOND for ts in timeline.times(walls, [0])] == [0, 1, 2, 600, 601]
    assert timeline.steps == []
    assert timeline.suspends == [(START + 600 * SECOND + 200_000, 597 * SECOND)]


def test_agent_delayed_between_clock_reads() -> None:
    """One frame with a delay between its clocks is neither a suspend nor a set clock."""
    timeline = Timeline()
    timeline.connect()
    for second in range(5):
        late = SECOND // 5 if second == 2 else 0
        at = START + second * SECOND + late
        assert timeline.steady(second * SECOND, at, at) == at
    assert (timeline.steps, timeline.suspends) == ([], [])


def test_impossible_clocks(tmp_path: Path) -> None:
    """Impossible clocks of a hostile host raise no error and do not affect the times of other hosts."""
    script = Script(tmp_path, ["evil", "past", "fine"], ["loadavg"], started_ns=START)
    for host in range(3):
        script.connect(host)
    far = 1 << 61
    for number, (mono, wall) in enumerate(((0, 0), (far, far), (0, far), (far, 0)) * 10):
        script.frame("S", b"", wall, mono, host=0, arrived=START + number)
    for offset in (-(1 << 64), 1 << 62, -far - 1):
        clock = {"event": "clock", "offset_ns": offset, "bound_ns": 1, "round_trip_ns": 1}
        script.journal.event(clock, host=0)
    for number in range(10):
        # The second host's clock is in 1970 and was never measured.
        script.frame("S", b"", number * SECOND, number * SECOND, host=1, arrived=START + number * SECOND)
        script.sample(START + number * SECOND, load(number), host=2)
    script.close()
    found = survey(tmp_path)
    evil, _, fine = found.hosts
    assert len(evil.times()) == 40
    assert list(fine.times()) == [START + number * SECOND for number in range(10)]
    series = [series_of(found, host, HostResult(name=host.name, status="complete"), ()) for host in found.hosts]
    assert [host.status for host in series] == ["partial", "partial", "complete"]


def test_set_clocks_and_suspends_are_reported(tmp_path: Path) -> None:
    """A set clock and a suspended host are in the series and in the notes."""
    script = Script(tmp_path, ["a", "b"], ["loadavg"], started_ns=START)
    script.connect(0)
    script.connect(1)
    for second in (0, 1, 2, 60, 61):
        at, woken = START + second * SECOND, second > 2
        script.frame("B", b"", at + woken * 5 * SECOND, second * SECOND, host=0, arrived=at)
        script.sample(at, load(second), mono=(second - woken * 55) * SECOND, host=1)
    script.close()
    found = survey(tmp_path)
    series = [series_of(found, host, HostResult(name=host.name, status="complete"), ()) for host in found.hosts]
    assert series[0].clock_steps == [ClockJump(START + 60 * SECOND, 5 * SECOND)]
    assert series[1].suspends == [ClockJump(START + 60 * SECOND, 55 * SECOND)]
    assert [gap.why for gap in series[1].gaps] == ["the host was suspended"]
    assert clock_notes(series, ()) == [
        "clock set during the run, by up to 5.000 s, on a",
        "suspended during the run, for up to 55.0 s: b",
    ]


def test_a_lost_sample_before_another_frame(tmp_path: Path) -> None:
    """The loss is detected although the next frame is not a sample: samples up to the next key frame are lost."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    script.connect()
    beats = Beats(key_beats=4)
    for number in range(8):
        payload = beats.payload({0: body_of(load(number)["loadavg"])})
        at = START + number * SECOND
        if number == 1:
            script._seq[0] += 1
            script.frame("B", b"", at, number)
        else:
            script.frame("S", payload, at, number)
    script.close()
    samples, reader = samples_of(tmp_path)
    assert [(sample.ts - START) // SECOND for sample in samples] == [0, 4, 5, 6, 7]
    assert [ts for _, ts in reader.undecodable] == [START + 2 * SECOND, START + 3 * SECOND]
    assert survey(tmp_path).hosts[0].lost_frames == 1


@pytest.mark.parametrize(("kind", "lost"), [("python", (1, 3)), ("sh", (0, 0))])
def test_frames_lost_after_the_last_sample(tmp_path: Path, kind: str, lost: tuple[int, int]) -> None:
    """They count even if the host reconnects; the numbers of the stand-in's two processes have no meaning here."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    for first, missing in ((0, 1), (10, 2)):
        script.connect(kind=kind)
        script.sample(START + first * SECOND, load(first))
        script._seq[0] += missing
        script.frame("B", b"", START + (first + 2) * SECOND, first + 2)
    script.close()
    found = survey(tmp_path)
    host = found.hosts[0]
    files = Segments(found)
    _, end = facts_of(found, host, files)
    files.close()
    assert (host.lost_frames, end.lost_frames) == lost


@pytest.mark.parametrize(
    ("events", "code"), [(["started"], None), (["started", "ended"], 3), (["ended"], 3), ([], None)]
)
def test_exit_status_is_unknown_until_the_command_ended(tmp_path: Path, events: list[str], code: int | None) -> None:
    """A collector that died does not leave the exit status of a success."""
    script = Script(tmp_path, ["a"], ["loadavg"])
    for state in events:
        script.journal.event({"event": "command", "state": state, **({"code": 3} if state == "ended" else {})})
    script.close()
    assert survey(tmp_path).command.get("code") == code


def test_clock_offsets_of_connections() -> None:
    """Each connection uses its own measurements; one without any uses the previous offset."""
    timeline = Timeline()
    for offset in (5, None, 9):
        timeline.connect()
        if offset:
            timeline.measured(START, offset)
    assert list(timeline.times([0, 10, 20], [0, 1, 2])) == [5, 15, 29]
    assert list(Timeline().times([7], [])) == [7]


def test_clock_measurements_of_a_week_are_thinned_out() -> None:
    """The most exact of neighbouring measurements, the first and the last are kept; sample times use all of them."""
    log, step = HostJournal("a"), 30 * 10**9
    for number in range(20_160):
        bound = 1000 if number % 100 == 7 else 10**6
        measured = {"event": "clock", "offset_ns": number, "bound_ns": bound, "round_trip_ns": 2 * bound}
        log.event(measured, number * step, CollectorClock())
    points = log.clock_points()
    assert MAX_CLOCKS / 2 < len(points) <= MAX_CLOCKS
    assert [points[end].clock.offset_ns for end in (0, -1)] == [0, 20_159]
    assert sum(point.clock.bound_ns == 1000 for point in points) == 202
    assert [point.at_ns for point in points] == sorted(point.at_ns for point in points)
    few = HostJournal("b")
    for number in range(MAX_CLOCKS):
        few.event({"event": "clock", "offset_ns": number, "bound_ns": 1, "round_trip_ns": 2}, number, CollectorClock())
        assert len(few.clock_points()) == number + 1
    wall = 12_345 * step - 12_345
    assert list(log.timeline.times([wall], [])) == [12_345 * step]
