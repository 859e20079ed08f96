"""Shared by tests of launcher transports: take a snapshot, record with a fault, read a journal, kill processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rollbook.collect.gather import gather
from rollbook.collect.recorder import Recorder
from rollbook.hosts import Host
from rollbook.journal.reader import Reader
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import parse_fields
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.testing import Lab, LabHost
from rollbook.testing.lab.processes import living
from rollbook.transports.base import Transport
from rollbook.transports.launch import AgentChannel, Launch
from tests.support.waits import until, until_true

if TYPE_CHECKING:  # benchmarks use this module where pytest may not be installed
    import pytest

PLAN = Plan.of(catalogue.load())
SHORT_PLAN = Plan.of(
    [catalogue.source(name) for name in ("identity", "loadavg", "meminfo", "stat", "net_dev", "uptime")]
)
INTERVAL = 0.5
LONGEST_GAP = 60.0  # seconds until a killed launcher has restarted all agents, on a busy machine
EARLY = 0.05
AGENT = "binascii"  # in the command line of every agent
PROGRAM = Path(__file__).parents[1] / "data" / "mpi" / "allreduce.c"
OPEN_MPI_5 = Path(sys.prefix) / "bin"  # from PyPI, with mpicc
# Sources that depend on the session or the time, not only on the host.
VOLATILE = {
    "addresses", "environment", "limits", "cgroup_stat", "cgroup_limits", "loadavg", "uptime", "stat", "stat_totals",
    "vmstat",
    "diskstats", "net_dev", "net_snmp", "softirqs", "softnet", "pressure", "meminfo", "space", "net_class",
    "time_sync", "cpufreq", "cpuidle", "rapl", "thermal", "ksm", "cgroups", "services", "modules",
    "infiniband_counters", "nfs", "nfs_ops", "lustre_stats", "thermal_throttle", "mountinfo", "mounts",
}  # fmt: skip


HONEST = '#!/bin/sh\n{wait}\nexec /usr/bin/python3 "$@"\n'
# The agent's command line is -I -S -c CODE ...; a second agent gets the name and rank of the second host. The real
# agents wait for it: once all agents have connected, no other is accepted.
IMPOSTOR = """#!/bin/sh
shift 3
code=$1
shift
(
    export SLURMD_NODENAME={name} SLURM_PROCID=1 OMPI_COMM_WORLD_RANK=1 PMIX_RANK=1 PMI_RANK=1
    exec /usr/bin/python3 -I -S -c "import os
true = os.uname()
os.uname = lambda: os.uname_result((true[0], '{name}', *true[2:]))
$code" "$@"
) &
{wait}
exec /usr/bin/python3 -I -S -c "$code" "$@"
"""


@dataclasses.dataclass
class HostProgress:
    """The part of a journal that belongs to one host."""

    beats: list[int] = dataclasses.field(default_factory=list)
    facts: dict[str, int] = dataclasses.field(default_factory=dict)
    lost: list[str] = dataclasses.field(default_factory=list)
    lost_ns: int = 0
    goodbye: bool = False
    missed: int = 0

    def gaps(self) -> int:
        """The number of beats missing between the first and the last, without those that the agent reports as missed.

        A beat may be late by almost an interval, or a little early because clocks are not known exactly. So beats are
        counted, and it is not known which one is missing.
        """
        first, last = min(self.beats) / 1e9 + EARLY, max(self.beats) / 1e9
        return max(0, int(last // INTERVAL) - int(first // INTERVAL) + 1 - len(set(self.beats)) - self.missed)


def snapshot(transport: Transport, names: Sequence[str], **options: Any) -> dict[str, HostResult]:
    """Take a snapshot of the hosts through the transport."""
    records = asyncio.run(gather([Host(name) for name in names], lambda _: transport, PLAN, **options))
    return {record.name: record for record in records}


def record(
    transport: Transport,
    names: Sequence[str],
    seconds: float,
    during: Callable[[], object] | None = None,
    returning: Sequence[str] = (),
    *,
    losing: Sequence[str] = (),
    plan: Plan = SHORT_PLAN,
) -> dict[str, HostProgress]:
    """Record a series for this many seconds after all hosts are ready; halfway, `during` is called.

    If `returning` names hosts, the second half lasts until they were lost and are sampled again, at most two minutes.
    It does not end before the hosts of `losing` were lost.
    """

    async def main(raw: Path) -> None:
        def progress() -> dict[str, HostProgress]:
            return read_progress(raw, names)

        hosts = [Host(name) for name in names]
        about = {"type": "record", "stamp": "", "argv": [], "args": {}}
        recording = Recorder(raw, hosts, lambda _: transport, plan, interval=INTERVAL, about=about, timeout=60)
        async with recording as recorder:
            await recorder.ready()
            await asyncio.sleep(seconds / 2)
            await until_true(lambda: all(host.lost or len(host.beats) >= 3 for host in progress().values()))
            since_ns = 0
            if during is not None:
                since_ns = time.time_ns()
                during()
            await until_true(lambda: all(progress()[name].lost_ns > since_ns for name in losing))
            await asyncio.sleep(0 if returning else seconds / 2)
            for _ in range(240 if returning else 0):
                if have_returned(progress(), returning, since_ns):
                    break
                await asyncio.sleep(0.5)
            await recorder.end(facts=True)

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "raw"))
        return read_progress(Path(directory) / "raw", names)


def have_returned(found: dict[str, HostProgress], returning: Sequence[str], since_ns: int) -> bool:
    """Whether these hosts were lost after this time, and have had a few beats since they were last lost."""
    hosts = [found[name] for name in returning]
    return all(host.lost_ns > since_ns and sum(beat > host.lost_ns for beat in host.beats) >= 4 for host in hosts)


def read_progress(raw: Path, names: Sequence[str]) -> dict[str, HostProgress]:
    """Read what a journal has of each host."""
    found = {name: HostProgress() for name in names}
    for entry in Reader(raw):
        if not entry.host < len(names):
            continue
        host = found[names[entry.host]]
        if (event := entry.event) and event["event"] == "lost":
            host.lost.append(event["reason"])
            host.lost_ns = entry.arrived_ns
        if frame := entry.frame:
            if frame.kind == "S":
                host.beats.append(frame.wall)
            elif frame.kind == "D":
                phase = frame.payload.decode()
                host.facts[phase] = host.facts.get(phase, 0) + 1
            elif frame.kind == "E":
                host.goodbye, host.missed = True, host.missed + int(parse_fields(frame.payload)["missed"])
    return found


def build_mpi_program(directory: Path) -> Path:
    """Compile an MPI program for Open MPI 5."""
    program = directory / "allreduce"
    subprocess.run([OPEN_MPI_5 / "mpicc", "-O2", "-o", program, PROGRAM], check=True)
    return program


def stable_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that do not depend on the time or the transport."""
    return {name: msgspec.to_builtins(fact) for name, fact in facts.items() if name not in VOLATILE}


def impersonate(lab: Lab, transport: Callable[[str], Transport], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one of three hosts claim to be another: check that both fail with the reason and the third is complete.

    The impostor has only what the launcher passes to its own agent. `transport` takes the Python to use.
    """
    addresses = {host.name: host.address for host in lab.hosts}
    resolve = socket.getaddrinfo
    # The collector knows lab hosts only from its ssh configuration; here their names resolve, as they do at a site.
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *a, **o: resolve(addresses.get(name, name), *a, **o))
    impostor, victim, third = (host.name for host in lab.hosts[:3])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # hosts have their own /tmp
        claimed = Path(directory) / "claimed"
        assign = Launch._assign

        def assign_noticed(launch: Launch, *args: Any) -> AgentChannel | None:
            claimed.touch()
            return assign(launch, *args)

        monkeypatch.setattr(Launch, "_assign", assign_noticed)
        wait = f"for n in $(seq 600); do [ -e {claimed} ] && break; sleep 0.1; done"
        programs = IMPOSTOR.format(name=victim, wait=wait), HONEST.format(wait=wait), HONEST.format(wait=wait)
        for name, program in zip((impostor, victim, third), programs, strict=True):
            lab[name].programs({"agent-python": program})
        found = snapshot(transport("/usr/local/bin/agent-python"), [impostor, victim, third])
    for name in (impostor, victim):
        assert found[name].status in ("failed", "partial"), (name, found[name].reason)
        assert "conflicting claims: " in found[name].reason, (name, found[name].reason)
    assert found[third].status == "complete", found[third].reason
    until_no_agents(lab.hosts)


def agents(host: LabHost) -> list[int]:
    """The process ids of the agents on a lab host, including their children."""
    return [pid for pid, command in host.processes() if AGENT in command]


def kill_agents(host: LabHost) -> None:
    """Kill the agents of a lab host, but not their children, which must end by themselves."""
    found = agents(host)
    parents = {one.pid: one.parent for one in living() if one.pid in found}
    # Children of an agent have sessions of their own.
    started = {pid: parent for pid, parent in parents.items() if parent not in parents or session_of(pid) != pid}
    send_signal(started.keys() - set(started.values()))


def session_of(pid: int) -> int:
    """The session of a process, 0 if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def kill(host: LabHost, *programs: str) -> None:
    """Kill the processes of these programs on a lab host."""
    found = [pid for pid, command in host.processes() if command.partition(" ")[0].rpartition("/")[2] in programs]
    assert found
    send_signal(found)


def kill_children(name: str) -> None:
    """Kill the children of this process that have this name."""
    mine = [one.pid for one in living() if one.parent == os.getpid() and one.name == name[:15]]
    assert mine
    send_signal(mine)


def send_signal(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to processes; those that have ended are ignored."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def until_no_agents(hosts: Sequence[LabHost]) -> None:
    """Wait until no agent and no daemon of a launcher is left on the hosts."""
    words = (AGENT, "orted", "prted", "hydra_pmi_proxy")
    until(lambda: not [c for host in hosts for _, c in host.processes() if any(word in c for word in words)])
