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
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.sources import catalogue
from rollbook.testing import Lab, LabHost
from rollbook.transports.base import Transport
from rollbook.transports.local import Local
from rollbook.transports.ssh import Ssh
from tests.support.commands import ROLLBOOK, over_ssh
from tests.support.launchers import agents
from tests.support.waits import SECONDS, is_running, until, until_no_processes

MEMINFO = "MemTotal: {} kB\nMemFree: 1000 kB\nMemAvailable: 1500 kB\nBuffers: 10 kB\nCached: 100 kB\n"
UNKNOWN_HOSTS = ["nosuch.invalid"]


def rollbook(lab: Lab, command: str, hosts: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command for lab hosts over ssh."""
    return subprocess.run(over_ssh(lab, command, hosts, *more), capture_output=True, text=True, check=False)


def by_name(document: str) -> dict[str, dict[str, Any]]:
    """The hosts of a JSON document by name."""
    return {host["name"]: host for host in json.loads(document)["hosts"]}


def only(transport: Transport) -> Callable[[Host], Transport]:
    """Use the same transport for every host."""
    return lambda _: transport


def test_each_host_has_its_own_values(lab: Lab) -> None:
    """Eight hosts with different memory, kernel, MTU and disks: the snapshot has the values of each host."""
    for number, host in enumerate(lab.hosts, 1):
        host.overlay({
            "/proc/meminfo": MEMINFO.format(number * 1_000_000),
            "/proc/sys/kernel/osrelease": f"5.{number}.0-lab\n",
            "/proc/diskstats": f"   8 0 disk{number} {number} 0 0 0 0 0 0 0 0 0 0\n",
        })  # fmt: skip
        host.mtu(1400 + number)
    done = rollbook(lab, "snapshot", lab.names, "--json")
    assert done.returncode == 0, done.stderr
    hosts = by_name(done.stdout)
    for number, name in enumerate(lab.names, 1):
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
    """The command of the local transport, run in the namespaces of a lab host with the Python installed there."""

    def __init__(self, host: LabHost) -> None:
        super().__init__()
        object.__setattr__(self, "pid", host.pid)

    def argv(self, host: Host) -> list[str]:
        """Enter the namespaces, then run the command of `Local`."""
        return ["nsenter", "-t", str(vars(self)["pid"]), "-a", "--", "python3", *super().argv(host)[1:]]


def test_transports_return_the_same_fields(lab: Lab) -> None:
    """One host, read locally, over ssh and by the stand-in, has the same sources with the same fields."""
    host = lab.hosts[0]
    config = str(lab.ssh_config)
    transports = {
        "local": Inside(host),
        "ssh": Ssh(ssh_config=config),
        "stand-in": Ssh(ssh_config=config, python="none"),
    }
    plan = Plan.of(catalogue.load())
    shapes = {}
    for name, transport in transports.items():
        [result] = asyncio.run(gather([Host(host.name)], only(transport), plan))
        assert result.status == "complete", (name, result.reason)
        shapes[name] = {source: _shape(msgspec.to_builtins(fact)) for source, fact in result.facts.items()}
        # These belong to the session, not to the host.
        for source in ("environment", "limits", "cgroup_stat", "cgroup_limits"):
            shapes[name].pop(source, None)
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
    """Ten kinds of host in one run: healthy ones are complete, the others have their status and reason in time."""
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
    # The agent is killed after the child that reads its files has ended.
    read = 'until [ "$(pgrep -c -f binascii)" = 1 ]; do sleep 0.5; done'
    dying.programs({"nvidia-smi": f"#!/bin/sh\n{read}\nsleep 2\npkill -KILL -f binascii\n"})
    unplugged.link(up=False)
    began = time.monotonic()
    done = rollbook(lab, "snapshot", [*lab.names, *UNKNOWN_HOSTS], "--json", "--timeout", "60")
    took = time.monotonic() - began
    hosts = by_name(done.stdout)
    outcome = {name: (host["status"], host.get("reason", "")) for name, host in hosts.items()}
    assert outcome[fine.name] == outcome[noisy.name] == outcome[bare.name] == ("complete", "")
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
    for name, (status, reason) in expected.items():
        assert outcome[name][0] == status, (name, outcome[name])
        assert reason in outcome[name][1], (name, outcome[name])
    assert outcome[unplugged.name][0] in ("unreachable", "timed-out")
    assert hosts[dying.name]["facts"]["meminfo"], "facts from before the agent died are kept"
    assert done.returncode == 3
    assert took < 60 + SECONDS, "bounded by the timeout"
    silent.cont_sshd()
    until_no_processes(lab.hosts)


def test_no_host_reached(lab: Lab) -> None:
    """The exit code is 4, and there is one result per host."""
    lab.hosts[0].close_port()
    done = rollbook(lab, "snapshot", [lab.hosts[0].name, *UNKNOWN_HOSTS], "--json")
    assert done.returncode == 4
    assert set(by_name(done.stdout)) == {lab.hosts[0].name, *UNKNOWN_HOSTS}


def test_hosts_check(lab: Lab) -> None:
    """`hosts --check` reports Python, round trip and clock offset of a host, or the reason for a failure."""
    lab.hosts[1].close_port()
    done = rollbook(lab, "hosts", lab.names, "--check", "--json")
    hosts = by_name(done.stdout)
    good = hosts[lab.names[0]]
    assert done.returncode == 3
    assert good["agent"].startswith("python 3.")
    assert 0 < good["clock"]["round_trip_ns"] < 1e9
    assert abs(good["clock"]["offset_ns"]) <= good["clock"]["bound_ns"] + 1e6, "one machine, one clock"
    assert "connection refused" in hosts[lab.names[1]]["reason"]


def test_hung_mount_makes_the_host_partial(lab: Lab) -> None:
    """A file system that blocks statvfs in the kernel affects only its own row; all other sources are read."""
    host, *others = lab.hosts[:3]
    host.hang_mount("/srv")
    done = rollbook(lab, "snapshot", [host.name, *(o.name for o in others)], "--json", "--timeout", "600")
    hosts = by_name(done.stdout)
    assert hosts[host.name]["status"] == "partial"
    assert "space timed-out" in hosts[host.name]["reason"]
    whole = set(hosts[others[0].name]["facts"])
    assert set(hosts[host.name]["facts"]) == whole
    mount_points = {row["mount_point"] for row in hosts[host.name]["facts"]["space"]}
    assert "/" in mount_points
    assert "/srv" not in mount_points
    assert hosts[host.name]["cost"]["stuck_children"] == 1
    host.unhang_mount("/srv")
    until_no_processes([host])


def test_rejected_logins_are_retried(make_lab: Callable[..., Lab]) -> None:
    """Behind a gateway with a small MaxStartups every host is reached in the end, and retries are recorded."""
    lab = make_lab(2, max_startups="1:100:1")
    host = lab.hosts[0]
    config = lab.ssh_config.read_text()
    aliases = [f"alias{number}" for number in range(12)]
    entry = config[config.index(f"Host {host.name}") :].split("\nHost ")[0]
    path = lab.ssh_config.with_name("gateway_config")
    path.write_text("".join(f"Host {alias}\n" + entry.partition("\n")[2] + "\n" for alias in aliases) + config)
    argv = [*ROLLBOOK, "hosts", "--check", "--json", "--ssh-config", str(path), "-w", ",".join(aliases)]
    argv += ["--timeout", "600"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    hosts = by_name(done.stdout)
    assert {result["status"] for result in hosts.values()} == {"complete"}, done.stdout
    assert any(result.get("attempts") for result in hosts.values())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_stopped_by_a_signal(lab: Lab, number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM write the facts so far; after these and after SIGKILL no process is left on either side."""
    chosen = lab.hosts[:4]
    for host in chosen:
        host.programs({"nvidia-smi": "#!/bin/sh\nsleep 300\n"})  # its timeout is longer than that of most programs
    output = tmp_path / "so-far.json"
    running = subprocess.Popen(
        over_ssh(lab, "snapshot", [host.name for host in chosen], "-o", str(output)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: all(any("sleep 300" in line for _, line in host.processes()) for host in chosen))
    until(lambda: all(len(agents(host)) == 1 for host in chosen))  # the child that reads files has ended
    running.send_signal(number)
    _, messages = running.communicate(timeout=600)
    assert running.returncode == code, messages
    until_no_processes(lab.hosts)
    until(lambda: not is_running(str(lab.ssh_config)))
    if code == 130:
        hosts = by_name(output.read_text())
        assert {host["status"] for host in hosts.values()} == {"partial"}
        assert all("interrupted" in host["reason"] and host["facts"]["meminfo"] for host in hosts.values())
