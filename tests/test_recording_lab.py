"""Recordings over real sshd: every beat on one clock, and faults in the middle that cost only themselves."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import duckdb
import pytest

from rollbook.api.finish import finish, open_record
from rollbook.api.recording import Recording, Settings
from rollbook.hosts import Host
from rollbook.records.document import encode
from rollbook.records.run import Run, SeriesHost
from rollbook.series.journal import read
from rollbook.testing import Lab
from rollbook.transports import Options

ROLLBOOK = [sys.executable, "-c", "from rollbook.cli import main; main()"]
Faults = Callable[[Lab], Awaitable[None]]
SHIFTED = """#!/bin/sh
# The agent's command line is -I -S -c CODE ...; its clock is three seconds ahead.
shift 3
code=$1
shift
exec /usr/bin/python3 -I -S -c "import time; real = time.time; time.time = lambda: real() + 3; $code" "$@"
"""


def record(lab: Lab, results: Path, during: Faults, *, interval: float = 0.5, stop: float = 60.0) -> Run:
    """Record all hosts of a lab while something happens to them; the end must come within `stop` seconds."""
    options = Options(via="ssh", ssh_config=str(lab.ssh_config), timeout=20)
    hosts = [Host(host.name) for host in lab.hosts]
    settings = Settings(hosts=hosts, options=options, results=results, interval=interval, report=False)

    async def main() -> Run:
        recording = Recording(settings)
        await recording.__aenter__()
        await during(lab)
        began = time.monotonic()
        await recording.end(facts=stop > 1)
        assert time.monotonic() - began < stop
        recording.finish()
        return recording.run

    return asyncio.run(main())


def beats(run: Run, name: str) -> list[int]:
    """When a host was sampled, on the collector's clock, in nanoseconds."""
    table = run.series_files()["loadavg"]
    rows = duckdb.execute(
        "SELECT epoch_ns(ts) FROM read_parquet(?) WHERE host = ? ORDER BY ts", [str(table), name]
    ).fetchall()
    return [int(row[0]) for row in rows]


def by_name(run: Run) -> dict[str, SeriesHost]:
    """How each host's series went."""
    return {host.name: host for host in run.hosts.series}


def test_every_beat_on_one_clock(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Sixteen hosts at half a second: no beat lost, all within 20 ms of the grid, and the end comes at once."""
    lab = make_lab(16)

    async def wait(_: Lab) -> None:
        await asyncio.sleep(12)

    run = record(lab, tmp_path, wait, stop=1.0)
    step = 500_000_000
    for host in lab.hosts:
        times = beats(run, host.name)
        numbers = [round(at / step) for at in times]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "a beat is missing"
        assert len(times) >= 22
        off = sorted(abs(at - number * step) for at, number in zip(times, numbers, strict=True))
        assert off[int(len(off) * 0.9)] < 20e6, off[-3:]
    assert {host.status for host in run.hosts.series} == {"complete"}


def test_a_clock_that_is_off_is_measured_and_corrected(lab: Lab, tmp_path: Path) -> None:
    """A host whose clock is three seconds ahead samples on our grid all the same, and its series is aligned."""
    ahead = lab.hosts[0]
    ahead.programs({"python3": SHIFTED})

    async def wait(_: Lab) -> None:
        await asyncio.sleep(4)

    run = record(lab, tmp_path, wait)
    host = by_name(run)[ahead.name]
    assert host.clocks
    for point in host.clocks:
        assert abs(point.clock.offset_ns + 3_000_000_000) < 5e6
    for at in beats(run, ahead.name)[1:-1]:
        assert abs(at - round(at / 5e8) * 5e8) < 20e6
    assert abs(beats(run, ahead.name)[2] - beats(run, lab.hosts[1].name)[2]) < 2e9


async def _sshd_killed(lab: Lab) -> None:
    await asyncio.sleep(3)
    lab.hosts[0].kill_sshd()
    await asyncio.sleep(2)
    lab.hosts[0].start_sshd()
    await asyncio.sleep(6)


async def _agent_killed(lab: Lab) -> None:
    await asyncio.sleep(3)
    lab.hosts[0].run(["pkill", "-KILL", "-f", "binascii"])
    await asyncio.sleep(5)


async def _link_down(lab: Lab) -> None:
    await asyncio.sleep(3)
    lab.hosts[0].link(up=False)
    await asyncio.sleep(22)
    lab.hosts[0].link(up=True)
    await asyncio.sleep(12)


async def _rebooted(lab: Lab) -> None:
    await asyncio.sleep(3)
    lab.hosts[0].reboot()
    await asyncio.sleep(8)


@pytest.mark.parametrize("fault", [_sshd_killed, _agent_killed, _link_down, _rebooted], ids=lambda f: f.__name__[1:])
def test_a_fault_costs_only_its_host(lab: Lab, tmp_path: Path, fault: Faults) -> None:
    """The host comes back, its gap is recorded with the reason, and no other host loses a beat."""
    run = record(lab, tmp_path, fault)
    hit, *others = (by_name(run)[host.name] for host in lab.hosts)
    assert hit.status == "partial"
    assert [gap.why for gap in hit.gaps] == ["rebooted" if fault is _rebooted else "connection lost"]
    times = beats(run, hit.name)
    longest = max(after - before for before, after in itertools.pairwise(times))
    assert longest > 1e9, "there was a gap"
    assert times[-1] > run.hosts.ended_ns - 5e9, "it came back"
    assert len(hit.boot_ids) == (2 if fault is _rebooted else 1)
    for other in others:
        assert other.status == "complete", (other.name, other.reason)
        assert not other.gaps


async def _stopped(lab: Lab) -> None:
    await asyncio.sleep(3)
    host = lab.hosts[0]
    host.run(["pkill", "-STOP", "-f", "binascii"])
    await asyncio.sleep(20)
    host.run(["pkill", "-CONT", "-f", "binascii"])
    await asyncio.sleep(8)


def test_a_stopped_agent_comes_back(lab: Lab, tmp_path: Path) -> None:
    """SIGSTOP for twenty seconds: a gap, and samples again after it."""
    run = record(lab, tmp_path, _stopped)
    hit = by_name(run)[lab.hosts[0].name]
    assert hit.status == "partial"
    assert sum(gap.end_ns - gap.start_ns for gap in hit.gaps) > 14e9
    assert beats(run, hit.name)[-1] > run.hosts.ended_ns - 5e9


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
        assert Run.open(path).hosts.series[0].samples >= 5
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
        assert Run.open(path).metadata["exit_code"] in (9, None)  # the end may not have come to the disk any more
    finally:
        subprocess.run(["umount", disk], check=True)


def test_killed_at_any_moment(lab: Lab, tmp_path: Path) -> None:
    """SIGKILL at twenty moments: every flushed beat is recovered, and nothing is left on the hosts."""
    names = ",".join(host.name for host in lab.hosts[:2])
    for number in range(20):
        results = tmp_path / str(number)
        argv = [*ROLLBOOK, "record", "--ssh-config", str(lab.ssh_config), "--via", "ssh", "-w", names,
                "--results-dir", str(results), "--timeseries-interval", "0.1", "--no-report"]  # fmt: skip
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            time.sleep(0.6 + number * 0.17)
            process.kill()
        paths = list(results.glob("record/*"))
        if not paths or not list((paths[0] / "raw").glob("*.seg")):
            continue  # killed before there was anything to record
        frames = [entry.frame for entry in read(paths[0] / "raw")]
        flushed = sum(frame is not None and frame.kind == "S" for frame in frames)
        run = finish(paths[0], report=False)
        assert sum(host.samples for host in run.hosts.series) == flushed
        assert encode(run.hosts) == (paths[0] / "hosts.json").read_bytes()
    deadline = time.monotonic() + 5
    while any(host.processes() for host in lab.hosts[:2]):
        assert time.monotonic() < deadline, [host.processes() for host in lab.hosts[:2]]
        time.sleep(0.1)
