"""Recordings over real sshd: every beat on one clock, and faults that affect only their host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import itertools
import random
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import duckdb
import pytest

from rollbook.agent.loop import KEY_BEATS
from rollbook.api.finish import finish, open_record
from rollbook.api.recording import Recording
from rollbook.api.settings import Settings
from rollbook.collect import stream
from rollbook.hosts import Host
from rollbook.journal.reader import Reader
from rollbook.records.document import encode
from rollbook.records.record import Record, SeriesHost
from rollbook.tables.derive import derive
from rollbook.testing import Lab
from rollbook.testing.lab import LabHost
from rollbook.transports.routing import Options
from tests.support.commands import ROLLBOOK
from tests.support.launchers import HostProgress, have_returned, read_progress
from tests.support.records import is_whole, lost_gaps
from tests.support.waits import SECONDS, until_no_processes, until_sampled, until_true

During = Callable[[Lab], Awaitable[None]]
Noticed = Callable[[], Awaitable[None]]
Fault = Callable[[LabHost, Noticed], Awaitable[None]]
SHIFTED = """#!/bin/sh
# The agent's command line is -I -S -c CODE ...; its clock is 3 s ahead and may drift.
shift 3
code=$1
shift
off="real() + 3 + {drift} * time.monotonic()"
exec /usr/bin/python3 -I -S -c "import time; real = time.time; time.time = lambda: $off; $code" "$@"
"""


def record(
    lab: Lab, results: Path, during: During, *, interval: float = 0.5, facts: bool = True, ssh: Sequence[str] = ()
) -> Record:
    """Record all hosts of a lab and call `during` meanwhile; the end must not wait for a host's timeout."""
    options = Options.of(via="ssh", ssh_config=str(lab.ssh_config), ssh_options=tuple(ssh), timeout=180)
    hosts = [Host(host.name) for host in lab.hosts]
    settings = Settings(hosts=hosts, options=options, results_dir=results, interval=interval, report=False)

    async def main() -> Record:
        recording = Recording(settings)
        await recording.__aenter__()
        await during(lab)
        began = time.monotonic()
        await recording.end(facts=facts)
        assert time.monotonic() - began < 2 * SECONDS, "the end waited for a host"
        recording.finish()
        return recording.record

    return asyncio.run(main())


def beats(run: Record, name: str) -> list[int]:
    """The times of a host's samples on the collector's clock, in nanoseconds."""
    table = run.series_files()["loadavg"]
    rows = duckdb.execute(
        "SELECT epoch_ns(ts) FROM read_parquet(?) WHERE host = ? ORDER BY ts", [str(table), name]
    ).fetchall()
    return [int(row[0]) for row in rows]


def assert_on_the_grid(times: list[int], step: int, error: float, missed: int) -> None:
    """Check that beats are at multiples of `step`, none twice, none lost; times are known up to an `error`.

    On a busy machine a beat may be late and the next one missed, which the agent reports. But no beat is early, and at
    least one in ten is at most 20 ms late on any machine.
    """
    numbers: list[int] = []
    for at in reversed(times):
        number = int((at + error) // step)
        if numbers and number == numbers[-1]:
            number = int((at - error) // step)  # late by almost a step
        numbers.append(number)
    numbers.reverse()
    assert sorted(set(numbers)) == numbers, "a beat came twice"
    assert numbers[-1] - numbers[0] + 1 - len(numbers) <= missed, "a beat is missing"
    behind = sorted(at - number * step for at, number in zip(times, numbers, strict=True))
    assert behind[len(behind) // 10] < 20e6 + error, behind


def missed(run: Record, name: str) -> int:
    """The number of beats that the agent of the host reports as missed."""
    return read_progress(run.path / "raw", [host.name for host in run.hosts.series])[name].missed


def progress(lab: Lab, results: Path) -> dict[str, HostProgress]:
    """Read what the only recording below a directory has of each host so far."""
    (raw,) = results.glob("*/*/raw")
    return read_progress(raw, lab.names)


def by_name(run: Record) -> dict[str, SeriesHost]:
    """The series of each host by name."""
    return {host.name: host for host in run.hosts.series}


def test_every_beat_on_one_clock(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Sixteen hosts, an interval of 0.25 s, more beats than between key frames: none is lost, all are on the grid."""
    lab = make_lab(16)

    async def wait(lab: Lab) -> None:
        await until_true(lambda: min(len(host.beats) for host in progress(lab, tmp_path).values()) > KEY_BEATS)

    run = record(lab, tmp_path, wait, interval=0.25, facts=False)
    assert [host for host in run.hosts.series if not is_whole(host)] == []
    for name in lab.names:
        times, error = beats(run, name), max(point.clock.bound_ns for point in by_name(run)[name].clocks)
        assert len(times) > KEY_BEATS
        assert_on_the_grid(times, 250_000_000, error + 2e6, missed(run, name))


def test_wrong_clocks_are_measured_and_corrected(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts whose clocks are three seconds off and drift sample on the collector's grid; their series are aligned.

    Lab hosts share the monotonic clock of this machine, which gives the true time of each sample.
    """
    monkeypatch.setattr(stream, "CLOCK_EVERY", 2.0)
    drifts = dict(zip(lab.names, (0.0, 0.001, -0.001), strict=False))
    for host in lab.hosts[: len(drifts)]:
        host.programs({"python3": SHIFTED.format(drift=drifts[host.name])})

    def measured(name: str) -> int:
        (raw,) = tmp_path.glob("*/*/raw")
        events = (entry.event for entry in Reader(raw) if entry.host == lab.names.index(name))
        return sum(event is not None and event["event"] == "clock" for event in events)

    async def wait(lab: Lab) -> None:
        await until_true(lambda: all(measured(name) >= 4 for name in drifts))
        await until_true(lambda: min(len(progress(lab, tmp_path)[name].beats) for name in drifts) > 15)

    run = record(lab, tmp_path, wait)
    to_wall = time.time_ns() - time.monotonic_ns()
    table = str(run.series_files()["loadavg"])
    for name, drift in drifts.items():
        clocks = by_name(run)[name].clocks
        assert len(clocks) >= 4
        # On a busy machine round trips are long and clocks are measured less exactly; each bound gives the error.
        error = max(point.clock.bound_ns for point in clocks) + 5e6
        assert error < 0.5e9
        for point in clocks:
            true = -3e9 - drift * (point.at_ns - to_wall)
            assert abs(point.clock.offset_ns - true) < point.clock.bound_ns + 2e6
        query = "SELECT epoch_ns(ts), mono FROM read_parquet(?) WHERE host = ? ORDER BY ts"
        rows = duckdb.execute(query, [table, name]).fetchall()
        assert len(rows) > 15
        assert max(abs(ts - mono - to_wall) for ts, mono in rows) < error
        assert_on_the_grid([ts for ts, _ in rows[1:-1]], 500_000_000, error, missed(run, name))


async def _sshd_killed(host: LabHost, noticed: Noticed) -> None:
    host.kill_sshd()
    await noticed()
    host.start_sshd()


async def _agent_killed(host: LabHost, noticed: Noticed) -> None:
    host.run(["pkill", "-KILL", "-f", "binascii"])
    await noticed()


async def _link_down(host: LabHost, noticed: Noticed) -> None:
    host.link(up=False)
    await noticed()
    host.link(up=True)


async def _rebooted(host: LabHost, noticed: Noticed) -> None:
    host.reboot()
    await noticed()


async def _stopped(host: LabHost, _: Noticed) -> None:
    host.run(["pkill", "-STOP", "-f", "binascii"])
    await asyncio.sleep(STOPPED)  # the length of the gap is tested; other faults last longer
    host.run(["pkill", "-CONT", "-f", "binascii"])


STOPPED = 5.0
FAULTS = (_sshd_killed, _agent_killed, _link_down, _rebooted, _stopped)


@pytest.fixture(scope="module")
def faulty_record(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A recording in which each of the first hosts has another fault."""
    results = tmp_path_factory.mktemp("faulty_record")

    async def cause_all_faults(lab: Lab) -> None:
        *lost, stopped = lab.names[: len(FAULTS)]
        await until_true(lambda: min(len(host.beats) for host in progress(lab, results).values()) >= 4)
        faults = zip(FAULTS, lab.hosts, strict=False)
        await asyncio.gather(*(fault(host, functools.partial(noticed, lab, host.name)) for fault, host in faults))
        over = time.time_ns()
        await until_true(lambda: have_returned(progress(lab, results), lost, 0))
        await until_true(lambda: max(progress(lab, results)[stopped].beats) > over)

    async def noticed(lab: Lab, name: str) -> None:
        await until_true(lambda: progress(lab, results)[name].lost)

    try:
        return record(session_lab, results, cause_all_faults, interval=0.25, ssh=["ServerAliveInterval=2"])
    finally:
        session_lab.restore()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__[1:])
def test_fault_is_reported_and_ends(session_lab: Lab, faulty_record: Record, fault: Fault) -> None:
    """The host is sampled again after the fault, and its gap is recorded with the reason."""
    hit = by_name(faulty_record)[session_lab.names[FAULTS.index(fault)]]
    assert hit.status == "partial"
    times = beats(faulty_record, hit.name)
    # On a busy machine the last sample may be long before the end. Times are exact to less than 0.1 s.
    ends = [gap.end_ns for gap in hit.gaps if gap.why != "no more samples"]
    assert times[-1] > max(ends) - 0.1e9, "it came back"
    assert len(hit.boot_ids) == (2 if fault is _rebooted else 1)
    if fault is _stopped:
        assert sum(gap.end_ns - gap.start_ns for gap in hit.gaps) > (STOPPED - 1) * 1e9
    else:
        assert lost_gaps(hit) == ["rebooted" if fault is _rebooted else "connection lost"]
        # The pause before the next connection is at least half a second: longer than one interval and a half.
        assert max(after - before for before, after in itertools.pairwise(times)) > 0.5e9, "there was a gap"


def test_faults_do_not_affect_other_hosts(session_lab: Lab, faulty_record: Record) -> None:
    """No other host loses a beat, apart from those that its agent reports as missed."""
    others = [by_name(faulty_record)[name] for name in session_lab.names[len(FAULTS) :]]
    assert len(others) == 3
    assert [other for other in others if not is_whole(other)] == []
    for other in others:
        error = max(point.clock.bound_ns for point in other.clocks) + 2e6
        assert_on_the_grid(beats(faulty_record, other.name), 250_000_000, error, missed(faulty_record, other.name))


def test_slow_and_lossy_link_loses_no_beat(lab: Lab, tmp_path: Path) -> None:
    """With 200 ms each way and 30 % packet loss, every beat is stored with its own time."""
    lab.hosts[0].delay(0.2)

    async def loss(lab: Lab) -> None:
        far = lab.names[0]
        await until_true(lambda: len(progress(lab, tmp_path)[far].beats) >= 4)
        lab.hosts[0].loss(30)
        await until_true(lambda: len(progress(lab, tmp_path)[far].beats) >= 24)
        lab.hosts[0].loss(0)
        await until_true(lambda: len(progress(lab, tmp_path)[far].beats) >= 28)

    run = record(lab, tmp_path, loss, interval=0.25)
    hit = by_name(run)[lab.hosts[0].name]
    assert is_whole(hit)
    assert_on_the_grid(beats(run, hit.name), 250_000_000, 0.05e9, missed(run, hit.name))
    assert all(clock.clock.round_trip_ns > 0.4e9 for clock in hit.clocks)
    first = hit.clocks[0].clock
    assert abs(first.offset_ns) < 0.05e9 < first.bound_ns, "the clock is correct, as the delay is symmetric"
    assert [host for host in run.hosts.series if not is_whole(host)] == []


def record_and_fill(disk: Path, after: str) -> subprocess.CompletedProcess[str]:
    """Record a command that fills the disk of its record after a few samples, then runs the shell command `after`."""
    full = disk.with_name("full")
    script = f"while [ ! -e {full} ]; do sleep 0.1; done; head -c 80m /dev/zero > {disk}/filler; {after}"
    argv = [*ROLLBOOK, "run", "--results-dir", str(disk), "--timeseries-interval", "0.1", "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until_sampled(disk, hosts=1, samples=5)
        full.touch()
        out, err = running.communicate()
    return subprocess.CompletedProcess(argv, running.returncode, out, err)


def test_full_disk_ends_the_recording_but_not_the_command(tmp_path: Path) -> None:
    """The command continues and its exit code is returned; what was written becomes a record."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", disk], check=True)
    try:
        noticed = f"for n in $(seq 300); do grep -qs space {disk}/*/*/raw/failure && break; sleep 0.1; done"
        done = record_and_fill(disk, f"{noticed}; rm {disk}/filler; exit 9")
        assert done.returncode == 9, done.stderr
        assert "recording ended early" in done.stderr
        assert "No space left" in done.stderr
        assert "not finished" not in done.stderr, done.stderr
        [path] = (disk / "generic").iterdir()
        assert Record.open(path).hosts.series[0].samples >= 5
    finally:
        subprocess.run(["umount", disk], check=True)


def test_disk_that_stays_full_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """The record cannot be finished; the journal is kept, and becomes a record when there is space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", disk], check=True)
    try:
        done = record_and_fill(disk, "exit 9")
        assert done.returncode == 9, done.stderr
        assert "the record is not finished" in done.stderr
        assert "rollbook recover" in done.stderr
        assert "Traceback" not in done.stderr
        (disk / "filler").unlink()
        [path] = (disk / "generic").iterdir()
        # The end of the command may not have been written to the full disk.
        events = [entry.event or {} for entry in Reader(path / "raw")]
        codes = [event["code"] for event in events if event.get("state") == "ended"]
        assert open_record(path).hosts.series[0].samples >= 5
        assert Record.open(path).metadata["exit_code"] == (codes[0] if codes else None)
        assert codes in ([], [9])
    finally:
        subprocess.run(["umount", disk], check=True)


def test_collector_killed_at_random_times(lab: Lab, tmp_path: Path) -> None:
    """After SIGKILL at twenty random times, every flushed beat is recovered and no process is left on the hosts.

    Half of them are soon after the start, when the journal may not exist yet, the others after the first samples.
    """
    host_sets = [",".join(lab.names[:2]), ",".join(lab.names[2:4])]

    def kill(number: int) -> list[Path]:
        """Start a collector and kill it; returns its record, or nothing if it had no journal yet."""
        results = tmp_path / str(number)
        argv = [*ROLLBOOK, "record", "--ssh-config", str(lab.ssh_config), "--via", "ssh", "-w", host_sets[number % 2],
                "--results-dir", str(results), "--timeseries-interval", "0.1", "--no-report"]  # fmt: skip
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            if number < 10:
                time.sleep(0.3 + 2 * random.random())
            else:
                until_sampled(results, hosts=2, samples=1)
                time.sleep(random.random())
            process.kill()
        # The first segment is empty until the event that begins the journal is written.
        return [path for path in results.glob("record/*") if any(entry.event for entry in Reader(path / "raw"))]

    with concurrent.futures.ThreadPoolExecutor(len(host_sets)) as pool:
        killed = [path for paths in pool.map(kill, range(20)) for path in paths]
    until_no_processes(lab.hosts[:4])
    flushed = []
    for path in killed:
        frames = [entry.frame for entry in Reader(path / "raw")]
        flushed.append(sum(frame is not None and frame.kind == "S" for frame in frames))
        _, _, hosts = derive(path)
        assert sum(host.samples for host in hosts.series) == flushed[-1]
        assert encode(hosts) == (path / "hosts.json").read_bytes()
    finished = finish(killed[-1], report=False)
    assert sum(host.samples for host in finished.hosts.series) == flushed[-1]
    assert sum(count > 0 for count in flushed[-10:]) == 10, flushed
