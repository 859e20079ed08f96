"""`rollbook` over real sshd: each host's own values, every failure named, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.collect.gather import gather
from rollbook.hosts import Host, fold
from rollbook.protocol.plan import Plan
from rollbook.sources import catalogue
from rollbook.testing import Lab, LabHost
from rollbook.transports.base import Transport
from rollbook.transports.local import Local
from rollbook.transports.ssh import Ssh
from tests.support.commands import ROLLBOOK
from tests.support.waits import is_running, until

MEMINFO = "MemTotal: {} kB\nMemFree: 1000 kB\nMemAvailable: 1500 kB\nBuffers: 10 kB\nCached: 100 kB\n"
MORE = ["nosuch.invalid"]


def arguments(lab: Lab, command: str, hosts: list[str], *more: str) -> list[str]:
    """A command line that reaches lab hosts over ssh."""
    return [*ROLLBOOK, command, "--ssh-config", str(lab.ssh_config), "--via", "ssh", "-w", fold(hosts), *more]


def rollbook(lab: Lab, command: str, hosts: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(arguments(lab, command, hosts, *more), capture_output=True, text=True, check=False)


def by_name(document: str) -> dict[str, dict[str, Any]]:
    """The hosts of a JSON document."""
    return {host["name"]: host for host in json.loads(document)["hosts"]}


def names(lab: Lab) -> list[str]:
    """The lab's hosts."""
    return [host.name for host in lab.hosts]


def only(transport: Transport) -> Callable[[Host], Transport]:
    """The same way to every host."""
    return lambda _: transport


def nothing_left(hosts: list[LabHost]) -> None:
    """No process of ours is left on a host."""
    until(lambda: not any(host.processes() for host in hosts))


def test_each_host_has_its_own_values(lab: Lab) -> None:
    """Eight hosts with different memory, kernel, MTU and disks: the snapshot has each one's own."""
    for number, host in enumerate(lab.hosts, 1):
        host.overlay({
            "/proc/meminfo": MEMINFO.format(number * 1_000_000),
            "/proc/sys/kernel/osrelease": f"5.{number}.0-lab\n",
            "/proc/diskstats": f"   8 0 disk{number} {number} 0 0 0 0 0 0 0 0 0 0\n",
        })  # fmt: skip
        host.mtu(1400 + number)
    done = rollbook(lab, "snapshot", names(lab), "--json")
    assert done.returncode == 0, done.stderr
    hosts = by_name(done.stdout)
    for number, name in enumerate(names(lab), 1):
        facts = hosts[name]["facts"]
        mtu = {row["interface_name"]: row["mtu"] for row in facts["net_class"]}
        assert hosts[name]["hostname"] == name
        assert facts["meminfo"]["total_kib"] == number * 1_000_000
        assert facts["identity"]["kernel_release"] == f"5.{number}.0-lab"
        assert [row["device_name"] for row in facts["diskstats"]] == [f"disk{number}"]
        assert 1400 + number in mtu.values()
    assert len({host["machine_id"] for host in hosts.values()}) == 8
    assert json.loads(done.stdout)["cluster"]["total_memory_bytes"] == 36_000_000 * 1024


class Inside(Local):
    """The local transport's own command, run in the namespaces of a lab host by the Python installed there."""

    def __init__(self, host: LabHost) -> None:
        super().__init__()
        object.__setattr__(self, "pid", host.pid)

    def argv(self, host: Host) -> list[str]:
        """Enter the host, then as Local does."""
        return ["nsenter", "-t", str(vars(self)["pid"]), "-a", "--", "python3", *super().argv(host)[1:]]


def test_every_transport_gives_the_same_fields(lab: Lab) -> None:
    """One host asked locally, through ssh and through the stand-in: the same sources with the same fields."""
    host = lab.hosts[0]
    config = str(lab.ssh_config)
    ways = {"local": Inside(host), "ssh": Ssh(ssh_config=config), "stand-in": Ssh(ssh_config=config, python="none")}
    plan = Plan.of(catalogue.load())
    shapes = {}
    for way, transport in ways.items():
        [result] = asyncio.run(gather([Host(host.name)], only(transport), plan))
        assert result.status == "complete", (way, result.reason)
        shapes[way] = {name: _shape(msgspec.to_builtins(fact)) for name, fact in result.facts.items()}
        # What belongs to the session, not the host: its environment, limits and control group.
        for own in ("environment", "limits", "cgroup_stat", "cgroup_limits"):
            shapes[way].pop(own, None)
    assert shapes["ssh"] == shapes["local"]
    assert shapes["stand-in"] == shapes["local"]


def _shape(fact: Any) -> Any:
    """The field names of a fact, and of its rows by key."""
    if isinstance(fact, dict):
        return {
            name: _shape(value) if isinstance(value, dict) else type(value).__name__ for name, value in fact.items()
        }
    return [sorted(row) if isinstance(row, dict) else type(row).__name__ for row in fact]


def test_every_failure_is_named(make_lab: Callable[..., Lab]) -> None:
    """Ten kinds of host in one run: the fine ones complete, the others named rightly, in bounded time."""
    lab = make_lab(10)
    fine, refusing, rejecting, changed, silent, bare, noisy, garbage, dying, unplugged = lab.hosts
    refusing.close_port()
    rejecting.reject_keys()
    changed.change_host_key()
    silent.stop_sshd()
    bare.hide("python3")
    noisy.login_noise(stdout="Welcome!\n" * 3000, stderr="rc noise\n" * 100)
    noisy.banner("Authorised use only.\n" * 40)
    garbage.login_noise(stdout="garbage ", forever=True)
    dying.programs({"nvidia-smi": "#!/bin/sh\nsleep 5\npkill -KILL -f binascii\n"})
    unplugged.link(up=False)
    began = time.monotonic()
    done = rollbook(lab, "snapshot", [*names(lab), *MORE], "--json", "--timeout", "24")
    took = time.monotonic() - began
    hosts = by_name(done.stdout)
    said = {name: (host["status"], host.get("reason", "")) for name, host in hosts.items()}
    assert said[fine.name] == said[noisy.name] == said[bare.name] == ("complete", "")
    assert hosts[bare.name]["agent"] == "sh"
    assert hosts[fine.name]["agent"].startswith("python 3.")
    expected = {
        refusing.name: ("refused", "connection refused"),
        rejecting.name: ("refused", "key rejected"),
        changed.name: ("refused", "host key changed"),
        silent.name: ("timed-out", "timed out"),
        garbage.name: ("failed", "garbage"),
        dying.name: ("partial", "ended early"),
        "nosuch.invalid": ("unreachable", "does not resolve"),
    }
    for name, (status, words) in expected.items():
        assert said[name][0] == status, (name, said[name])
        assert words in said[name][1], (name, said[name])
    assert said[unplugged.name][0] in ("unreachable", "timed-out")
    assert hosts[dying.name]["facts"]["meminfo"], "what came before its death is kept"
    assert done.returncode == 3
    assert took < 24 + 20, "bounded by the timeout"
    silent.cont_sshd()
    nothing_left(lab.hosts)


def test_no_host_reached(lab: Lab) -> None:
    """Exit code 4, and still one result per host."""
    lab.hosts[0].close_port()
    done = rollbook(lab, "snapshot", [lab.hosts[0].name, *MORE], "--json")
    assert done.returncode == 4
    assert set(by_name(done.stdout)) == {lab.hosts[0].name, *MORE}


def test_check_measures_and_explains(lab: Lab) -> None:
    """`hosts --check` gives python, round trip and clock offset, or the reason."""
    lab.hosts[1].close_port()
    done = rollbook(lab, "hosts", names(lab), "--check", "--json")
    hosts = by_name(done.stdout)
    good = hosts[names(lab)[0]]
    assert done.returncode == 3
    assert good["agent"].startswith("python 3.")
    assert 0 < good["clock"]["round_trip_ns"] < 1e9
    assert abs(good["clock"]["offset_ns"]) <= good["clock"]["bound_ns"] + 1e6, "one machine, one clock"
    assert "connection refused" in hosts[names(lab)[1]]["reason"]


def test_a_hung_mount_makes_the_host_partial(lab: Lab) -> None:
    """A file system that blocks statvfs in the kernel affects only its own row; every other source is there."""
    host, *others = lab.hosts[:3]
    host.hang_mount("/srv")
    began = time.monotonic()
    done = rollbook(lab, "snapshot", [host.name, *(o.name for o in others)], "--json", "--timeout", "60")
    assert time.monotonic() - began < 50
    hosts = by_name(done.stdout)
    assert hosts[host.name]["status"] == "partial"
    assert "space timed-out" in hosts[host.name]["reason"]
    whole = set(hosts[others[0].name]["facts"])
    assert set(hosts[host.name]["facts"]) == whole
    there = {row["mount_point"] for row in hosts[host.name]["facts"]["space"]}
    assert "/" in there
    assert "/srv" not in there
    assert hosts[host.name]["cost"]["stuck_children"] == 1
    host.unhang_mount("/srv")
    nothing_left([host])


def test_logins_that_are_turned_away_are_tried_again(make_lab: Callable[..., Lab]) -> None:
    """A gateway with a small MaxStartups: every host comes through in the end, and says that it was turned away."""
    lab = make_lab(2, max_startups="1:100:1")
    host = lab.hosts[0]
    config = lab.ssh_config.read_text()
    aliases = [f"alias{number}" for number in range(12)]
    entry = config[config.index(f"Host {host.name}") :].split("\nHost ")[0]
    path = lab.ssh_config.with_name("gateway_config")
    path.write_text("".join(f"Host {alias}\n" + entry.partition("\n")[2] + "\n" for alias in aliases) + config)
    argv = [*ROLLBOOK, "hosts", "--check", "--json", "--ssh-config", str(path), "-w", ",".join(aliases)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    hosts = by_name(done.stdout)
    assert {result["status"] for result in hosts.values()} == {"complete"}, done.stdout
    assert any(result.get("attempts") for result in hosts.values())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_interrupted_leaves_nothing(lab: Lab, number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM give what came so far; after those and after SIGKILL no process is left on either side."""
    for host in lab.hosts:
        host.programs({"nvidia-smi": "#!/bin/sh\nsleep 300\n"})  # it has more time than most programs
    output = tmp_path / "so-far.json"
    running = subprocess.Popen(
        arguments(lab, "snapshot", names(lab), "-o", str(output)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: all(any("sleep 300" in line for _, line in host.processes()) for host in lab.hosts))
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == code, said
    nothing_left(lab.hosts)
    until(lambda: not is_running(str(lab.ssh_config)))
    if code == 130:
        hosts = by_name(output.read_text())
        assert {host["status"] for host in hosts.values()} == {"partial"}
        assert all("interrupted" in host["reason"] and host["facts"]["meminfo"] for host in hosts.values())
