"""Recordings over real sshd: every beat on one clock, and faults in the middle that cost only themselves."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import duckdb
import pytest

from rollbook.api.finish import finish, open_record
from rollbook.api.recording import Recording, Settings
from rollbook.collect import stream
from rollbook.hosts import Host
from rollbook.journal.log import read
from rollbook.records.document import encode
from rollbook.records.record import Record, SeriesHost
from rollbook.testing import Lab
from rollbook.testing.lab import LabHost
from rollbook.transports import Options

ROLLBOOK = [sys.executable, "-c", "from rollbook.cli import main; main()"]
During = Callable[[Lab], Awaitable[None]]
Fault = Callable[[LabHost], Awaitable[None]]
TRIES = 3
SHIFTED = """#!/bin/sh
# The agent's command line is -I -S -c CODE ...; its clock is ahead, and may go away from ours.
shift 3
code=$1
shift
off="real() + 3 + {drift} * time.monotonic()"
exec /usr/bin/python3 -I -S -c "import time; real = time.time; time.time = lambda: $off; $code" "$@"
"""


def record(lab: Lab, results: Path, during: During, *, interval: float = 0.5, stop: float = 60.0) -> Record:
    """Record all hosts of a lab while something happens to them; the end must come within `stop` seconds."""
    options = Options(via="ssh", ssh_config=str(lab.ssh_config), timeout=20)
    hosts = [Host(host.name) for host in lab.hosts]
    settings = Settings(hosts=hosts, options=options, results_dir=results, interval=interval, report=False)

    async def main() -> Record:
        recording = Recording(settings)
        await recording.__aenter__()
        await during(lab)
        began = time.monotonic()
        await recording.end(facts=stop > 1)
        assert time.monotonic() - began < stop
        recording.finish()
        return recording.record

    return asyncio.run(main())


def beats(run: Record, name: str) -> list[int]:
    """When a host was sampled, on the collector's clock, in nanoseconds."""
    table = run.series_files()["loadavg"]
    rows = duckdb.execute(
        "SELECT epoch_ns(ts) FROM read_parquet(?) WHERE host = ? ORDER BY ts", [str(table), name]
    ).fetchall()
    return [int(row[0]) for row in rows]


def in_time(results: Path, attempt: Callable[[Path], float]) -> None:
    """Have something recorded whose beats are no more than 20 ms off, once in three: machines are busy at times."""
    off = [attempt(results / "0")]
    while off[-1] >= 20e6 and len(off) < TRIES:
        off.append(attempt(results / str(len(off))))
    assert off[-1] < 20e6, off


def by_name(run: Record) -> dict[str, SeriesHost]:
    """How each host's series went."""
    return {host.name: host for host in run.hosts.series}


@pytest.mark.alone
def test_every_beat_on_one_clock(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Sixteen hosts, half a second, a minute: no beat lost, within 20 ms of the grid, and the end comes at once."""
    lab, step = make_lab(16), 500_000_000

    async def wait(_: Lab) -> None:
        await asyncio.sleep(60)

    def attempt(results: Path) -> float:
        run = record(lab, results, wait, stop=1.0)
        assert {host.status for host in run.hosts.series} == {"complete"}
        worst = 0.0
        for host in lab.hosts:
            times = beats(run, host.name)
            numbers = [round(at / step) for at in times]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a beat is missing"
            assert len(times) >= 118
            off = sorted(abs(at - number * step) for at, number in zip(times, numbers, strict=True))
            worst = max(worst, off[int(len(off) * 0.95)])
        return worst

    in_time(tmp_path, attempt)


@pytest.mark.alone
def test_a_clock_that_is_off_is_measured_and_corrected(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts whose clocks are three seconds off, and drift, sample on our grid all the same; their series are aligned.

    Hosts of a lab share the machine's monotonic clock, which therefore tells when a sample was truly taken.
    """
    monkeypatch.setattr(stream, "CLOCK_EVERY", 2.0)
    drifts = dict(zip(lab.names, (0.0, 0.001, -0.001), strict=False))
    for host in lab.hosts[: len(drifts)]:
        host.programs({"python3": SHIFTED.format(drift=drifts[host.name])})

    async def wait(_: Lab) -> None:
        await asyncio.sleep(9)

    def attempt(results: Path) -> float:
        run = record(lab, results, wait)
        to_wall, worst = time.time_ns() - time.monotonic_ns(), 0.0
        table = str(run.series_files()["loadavg"])
        for name, drift in drifts.items():
            clocks = by_name(run)[name].clocks
            assert len(clocks) >= 4
            asked = "SELECT epoch_ns(ts), mono FROM read_parquet(?) WHERE host = ?"
            rows = duckdb.execute(asked, [table, name]).fetchall()
            assert len(rows) > 15
            # Offsets and alignment within 5 ms, beats within 20: all on one scale.
            worst = max(
                worst,
                *(4 * abs(point.clock.offset_ns + 3e9 + drift * (point.at_ns - to_wall)) for point in clocks),
                *(4 * abs(ts - mono - to_wall) for ts, mono in rows),
                *(abs(ts - round(ts / 5e8) * 5e8) for ts, _ in rows[1:-1]),
            )
        return worst

    in_time(tmp_path, attempt)


async def _sshd_killed(host: LabHost) -> None:
    host.kill_sshd()
    await asyncio.sleep(2)
    host.start_sshd()


async def _agent_killed(host: LabHost) -> None:
    host.run(["pkill", "-KILL", "-f", "binascii"])


async def _link_down(host: LabHost) -> None:
    host.link(up=False)
    await asyncio.sleep(22)
    host.link(up=True)


async def _rebooted(host: LabHost) -> None:
    host.reboot()


async def _stopped(host: LabHost) -> None:
    host.run(["pkill", "-STOP", "-f", "binascii"])
    await asyncio.sleep(20)
    host.run(["pkill", "-CONT", "-f", "binascii"])


FAULTS = (_sshd_killed, _agent_killed, _link_down, _rebooted, _stopped)


@pytest.fixture(scope="module")
def troubled(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A recording in which each of the first hosts has a fault of its own."""

    async def all_at_once(lab: Lab) -> None:
        await asyncio.sleep(3)
        await asyncio.gather(*(fault(host) for fault, host in zip(FAULTS, lab.hosts, strict=False)))
        await asyncio.sleep(12)

    try:
        return record(session_lab, tmp_path_factory.mktemp("troubled"), all_at_once)
    finally:
        session_lab.restore()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__[1:])
def test_a_fault_is_told_and_over(session_lab: Lab, troubled: Record, fault: Fault) -> None:
    """The host comes back, and its gap is recorded with the reason."""
    hit = by_name(troubled)[session_lab.names[FAULTS.index(fault)]]
    assert hit.status == "partial"
    times = beats(troubled, hit.name)
    assert times[-1] > troubled.hosts.ended_ns - 5e9, "it came back"
    assert len(hit.boot_ids) == (2 if fault is _rebooted else 1)
    if fault is _stopped:  # for how long its stream was quiet
        assert sum(gap.end_ns - gap.start_ns for gap in hit.gaps) > 14e9
    else:
        assert [gap.why for gap in hit.gaps] == ["rebooted" if fault is _rebooted else "connection lost"]
        assert max(after - before for before, after in itertools.pairwise(times)) > 1e9, "there was a gap"


def test_faults_cost_no_other_host(session_lab: Lab, troubled: Record) -> None:
    """Nobody else loses a beat."""
    others = [by_name(troubled)[name] for name in session_lab.names[len(FAULTS) :]]
    assert len(others) == 3
    assert [(other.status, other.reason, other.gaps) for other in others] == [("complete", "", [])] * 3


def test_a_far_and_lossy_link_loses_no_beat(lab: Lab, tmp_path: Path) -> None:
    """200 ms each way and a third of all packets lost: late on the wire, but every beat is there, at its own time."""
    lab.hosts[0].delay(0.2)

    async def loss(lab: Lab) -> None:
        await asyncio.sleep(2)
        lab.hosts[0].loss(30)
        await asyncio.sleep(10)
        lab.hosts[0].loss(0)
        await asyncio.sleep(5)

    run = record(lab, tmp_path, loss)
    hit = by_name(run)[lab.hosts[0].name]
    assert (hit.status, hit.gaps) == ("complete", [])
    numbers = [round(at / 5e8) for at in beats(run, hit.name)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all(clock.clock.round_trip_ns > 0.4e9 for clock in hit.clocks)
    first = hit.clocks[0].clock
    assert abs(first.offset_ns) < 0.05e9 < first.bound_ns, "the clock is ours, and both ways take as long"
    for host in lab.hosts[1:]:
        assert by_name(run)[host.name].status == "complete"


def test_a_full_disk_ends_the_recording_not_the_command(tmp_path: Path) -> None:
    """The command goes on and its code is returned; what was written stays good and can be made a record of."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", disk], check=True)
    try:
        script = f"sleep 1; head -c 80m /dev/zero > {disk}/filler; sleep 4; rm {disk}/filler; sleep 1; exit 9"
        argv = [*ROLLBOOK, "run", "--results-dir", str(disk), "--timeseries-interval", "0.1", "--", "sh", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 9, done.stderr
        assert "recording ended early" in done.stderr
        assert "No space left" in done.stderr
        assert "not finished" not in done.stderr, done.stderr
        [path] = (disk / "generic").iterdir()
        assert Record.open(path).hosts.series[0].samples >= 5
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_disk_that_stays_full_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """No record can be made then; what was recorded is kept, and made into one when there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=68m", "tmpfs", disk], check=True)
    try:
        argv = [*ROLLBOOK, "run", "--results-dir", str(disk), "--timeseries-interval", "0.1", "--", "sh", "-c"]
        script = f"sleep 2; head -c 80m /dev/zero > {disk}/filler; exit 9"
        done = subprocess.run([*argv, script], capture_output=True, text=True, check=False)
        assert done.returncode == 9, done.stderr
        assert "the record is not finished" in done.stderr
        assert "rollbook recover" in done.stderr
        assert "Traceback" not in done.stderr
        (disk / "filler").unlink()
        [path] = (disk / "generic").iterdir()
        assert open_record(path).hosts.series[0].samples >= 5
        assert Record.open(path).metadata["exit_code"] in (9, None)  # the end may not have come to the disk any more
    finally:
        subprocess.run(["umount", disk], check=True)


def test_killed_at_any_moment(lab: Lab, tmp_path: Path) -> None:
    """SIGKILL at twenty random moments: every flushed beat is recovered, and nothing is left on the hosts."""
    sides = [",".join(lab.names[:2]), ",".join(lab.names[2:4])]

    def kill(number: int) -> list[Path]:
        """The record of a collector that was killed, or none that had anything to record by then."""
        results = tmp_path / str(number)
        argv = [*ROLLBOOK, "record", "--ssh-config", str(lab.ssh_config), "--via", "ssh", "-w", sides[number % 2],
                "--results-dir", str(results), "--timeseries-interval", "0.1", "--no-report"]  # fmt: skip
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            time.sleep(0.8 + 0.2 * (number + random.random()))
            process.kill()
        return [path for path in results.glob("record/*") if list((path / "raw").glob("*.seg"))]

    with concurrent.futures.ThreadPoolExecutor(len(sides)) as pool:
        killed = [path for paths in pool.map(kill, range(20)) for path in paths]
    deadline = time.monotonic() + 5
    while any(host.processes() for host in lab.hosts[:4]):
        assert time.monotonic() < deadline, [host.processes() for host in lab.hosts[:4]]
        time.sleep(0.1)
    flushed = []
    for path in killed:
        frames = [entry.frame for entry in read(path / "raw")]
        flushed.append(sum(frame is not None and frame.kind == "S" for frame in frames))
        run = finish(path, report=False)
        assert sum(host.samples for host in run.hosts.series) == flushed[-1]
        assert encode(run.hosts) == (path / "hosts.json").read_bytes()
    assert sum(count > 0 for count in flushed) >= 10, flushed
