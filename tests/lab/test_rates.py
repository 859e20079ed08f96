"""Rates compared with known values: lab hosts write and send a given number of bytes, sampled over real sshd."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.records.record import Record
from rollbook.sql import connection as store
from rollbook.testing import Lab, LabCannot
from tests.lab.test_recording import progress, record
from tests.support.waits import until_true

pytestmark = pytest.mark.alone
MIB = 1 << 20
WRITTEN = 256 * MIB
SENT = 100_000_000
INTERVAL = 0.5
PORT = 7000
SINK = f"""
import socket
with socket.create_server(("0.0.0.0", {PORT})) as server:
    with server.accept()[0] as connection:
        while connection.recv(1 << 20):
            pass
"""
SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as connection:
    connection.sendall(bytes({SENT}))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A block device that nothing else uses."""
    if os.geteuid():
        raise LabCannot("a loop device, which needs root")
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(WRITTEN)
    device = subprocess.check_output(["losetup", "--find", "--show", "--direct-io=on", str(image)], text=True).strip()
    yield Path(device)
    subprocess.run(["losetup", "--detach", device], check=True)


async def settle(lab: Lab, results: Path) -> None:
    """Wait for two more samples of each host, so that the load is entirely between two samples."""
    before = {name: len(host.beats) for name, host in progress(lab, results).items()}
    await until_true(lambda: all(len(host.beats) > before[name] + 1 for name, host in progress(lab, results).items()))


def bytes_by_host(run: Record, table: str, device: str, column: str) -> list[tuple[str, float]]:
    """The sum of each host's rates of a device over the run, in bytes."""
    with store.connect(run) as connection:
        return connection.execute(
            f"SELECT host, sum({column} * seconds) FROM {table}_rates WHERE {device} GROUP BY host ORDER BY host"
        ).fetchall()


@pytest.mark.needs("losetup", "dd")
def test_disk_rates_add_up_to_the_bytes_written(lab: Lab, tmp_path: Path, disk: Path) -> None:
    """Every byte of a direct write is in the rates of the loop device; the totals do not include loop devices."""
    writing = ["dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=256", "oflag=direct", "status=none"]

    async def write(lab: Lab) -> None:
        await settle(lab, tmp_path / "results")
        await asyncio.to_thread(lab.hosts[0].run, writing, check=True)
        await settle(lab, tmp_path / "results")

    run = record(lab, tmp_path / "results", write, interval=INTERVAL)
    # Lab hosts share the disks of this machine, so all of them must have the same values.
    found = bytes_by_host(run, "diskstats", f"device_name = '{disk.name}'", "512 * sectors_written")
    assert dict(found) == pytest.approx(dict.fromkeys(lab.names, WRITTEN), rel=1e-9)
    with store.connect(run) as connection:
        assert connection.execute("SELECT count(*) FROM disks WHERE device = ?", [disk.name]).fetchall() == [(0,)]


def test_network_rates_add_up_to_the_bytes_sent(lab: Lab, tmp_path: Path) -> None:
    """The bytes are in the sender's tx rates and the receiver's rx rates; headers and our own traffic add little."""
    sender, receiver, *others = lab.hosts

    def listens() -> bool:
        return f":{PORT:04X} 00000000:0000 0A" in receiver.run(["cat", "/proc/net/tcp"]).stdout

    async def send(lab: Lab) -> None:
        sink = asyncio.create_task(asyncio.to_thread(receiver.run, ["python3", "-c", SINK], check=True))
        await until_true(listens)
        await settle(lab, tmp_path)
        await asyncio.to_thread(sender.run, ["python3", "-c", SEND, receiver.address], check=True)
        await sink
        await settle(lab, tmp_path)

    run = record(lab, tmp_path, send, interval=INTERVAL)
    for direction, host, peer in (("tx", sender, receiver), ("rx", receiver, sender)):
        found = dict(bytes_by_host(run, "net_dev", "interface_name <> 'lo'", f"{direction}_bytes"))
        assert SENT <= found[host.name] < 1.02 * SENT
        assert all(found[other.name] < 0.05 * SENT for other in (peer, *others))
    with store.connect(run) as connection:
        totals = connection.execute("SELECT host, max(net_tx) FROM rates GROUP BY host").fetchall()
    assert max(totals, key=lambda row: row[1])[0] == sender.name
