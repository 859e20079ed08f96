"""A real Slurm on one machine: munged, slurmctld and a slurmd for each node, in a directory of their own.

    with SlurmLab(["n1", "n2"]) as slurm:
        subprocess.run(["srun", "-N2", "hostname"], env=slurm.environ)

The nodes are processes on this machine, distinguished by their node names; given hosts of a `Lab`, each slurmd runs in
the namespaces of its host instead. Nothing of the system's own Slurm or MUNGE is used or touched, and everything is
taken down at the end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rollbook.testing.lab.host import LabHost
from rollbook.testing.lab.processes import Process, living
from rollbook.testing.lab.resources import LabCannot, find
from rollbook.testing.ports import free_ports

__all__ = ["SlurmLab"]

PROGRAMS = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "srun": "slurm-wlm"}
SECONDS = 60.0  # a busy machine may need long
# As few plugins as possible: no control groups, no accounting, nothing that needs the whole machine.
CONFIG = """\
ClusterName=rollbook
SlurmctldHost={controller}({address})
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
InactiveLimit=0
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class SlurmLab:
    """A cluster of the nodes named, from `__enter__` to `__exit__`; `environ` makes Slurm's programs use it."""

    def __init__(self, nodes: Sequence[str | LabHost]) -> None:
        self._hosts = {str(getattr(node, "name", node)): node for node in nodes}
        self.nodes = list(self._hosts)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @staticmethod
    def missing() -> list[str]:
        """The programs that are missing, each with its package."""
        lacking = [f"{name}: package {package}" for name, package in PROGRAMS.items() if find(name) is None]
        return lacking if os.getuid() == 0 else [*lacking, "root: slurmd starts tasks as other users"]

    def __enter__(self) -> Self:
        if lacking := self.missing():
            raise LabCannot(f"no Slurm without {', '.join(lacking)}")
        # Lab hosts have a /tmp of their own, and share this.
        self.directory = Path(tempfile.mkdtemp(prefix="rollbook-slurm-", dir="/var/tmp"))
        self.directory.chmod(0o755)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SRUN_", "SALLOC_"))}
        self.environ["SLURM_CONF"] = str(self.directory / "slurm.conf")
        try:
            self._start()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def allocate(self, *options: str) -> dict[str, str]:
        """The environment that a job of its own, made by `salloc OPTIONS`, gives to its programs."""
        argv = ["salloc", "--no-shell", "--immediate=60", *options]
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=True, timeout=SECONDS)
        job = done.stderr.rpartition("allocation ")[2].split()[0].strip(".")
        nodes = self.ask("squeue", "-h", "-j", job, "-o", "%N").strip()
        return {**self.environ, "SLURM_JOB_ID": job, "SLURM_JOBID": job, "SLURM_JOB_NODELIST": nodes}

    def ask(self, *argv: str) -> str:
        """The output of one of Slurm's programs."""
        return subprocess.run(
            argv, env=self.environ, capture_output=True, text=True, check=True, timeout=SECONDS
        ).stdout

    def state(self, node: str) -> str:
        """The node's state in Slurm's words, such as `idle` or `down*`."""
        return self.ask("sinfo", "-h", "-n", node, "-o", "%T").strip()

    def kill_slurmd(self, node: str) -> None:
        """Kill the node's slurmd and whatever it started, as a power cut would."""
        mark = f"ROLLBOOK_SLURM_NODE={node}"
        for one in self._running():
            if one.has_environment(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
        self._daemons[node].wait(SECONDS)

    def start_slurmd(self, node: str) -> None:
        """Start the node's slurmd, and wait until the controller can use it."""
        host = self._hosts[node]
        argv = [_found("slurmd"), "-D", "-N", node, "-f", self.environ["SLURM_CONF"]]
        self._daemon(node, host.entered(argv) if isinstance(host, LabHost) else argv, ROLLBOOK_SLURM_NODE=node)
        self._until(lambda: self.state(node) in {"idle", "mixed", "allocated"}, f"slurmd of {node}")

    def _start(self) -> None:
        (self.directory / "state").mkdir()
        key, socket_path = self.directory / "munge.key", self.directory / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for name in ("log", "seed", "pid"):
            (self.directory / f"munge.{name}").touch(mode=0o600)
        files = {"key-file": key, "socket": socket_path} | {
            option: self.directory / f"munge.{name}"
            for option, name in (("log-file", "log"), ("seed-file", "seed"), ("pid-file", "pid"))
        }
        options = [f"--{option}={path}" for option, path in files.items()]
        # --force: a directory below /var/tmp is writable for others, which munged rejects.
        self._daemon("munged", [_found("munged"), "--foreground", "--force", "--num-threads=2", *options])
        self._until(socket_path.exists, "munged")
        Path(self.environ["SLURM_CONF"]).write_text(self._config())
        self._daemon("slurmctld", [_found("slurmctld"), "-D", "-f", self.environ["SLURM_CONF"]])
        self._until(lambda: "UP" in self._ping(), "slurmctld")
        for node in self.nodes:
            self.start_slurmd(node)

    def _ping(self) -> str:
        done = subprocess.run(["scontrol", "ping"], env=self.environ, capture_output=True, text=True, check=False)
        return done.stdout

    def _config(self) -> str:
        ports = free_ports(len(self.nodes) + 1, "")
        lines, address = [], "127.0.0.1"
        for (name, host), port in zip(self._hosts.items(), ports[1:], strict=True):
            where = "127.0.0.1"
            if isinstance(host, LabHost):
                where, address = host.address, f"{host.address.rpartition('.')[0]}.254"
            lines.append(f"NodeName={name} NodeAddr={where} Port={port} CPUs=2 RealMemory=1000 State=UNKNOWN")
        return CONFIG.format(
            controller=socket.gethostname(),
            address=address,
            controller_port=ports[0],
            directory=self.directory,
            nodes="\n".join(lines),
        )

    def _daemon(self, name: str, argv: list[str], **more: str) -> None:
        """Start a daemon in the foreground; the kernel ends it with us."""
        with (self.directory / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environ, **more},
            )

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not ready():
            if time.monotonic() > end:
                logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.directory.glob("*.log"))]
                raise OSError(f"{what} does not answer: {''.join(logs)}")
            time.sleep(0.02)

    def _running(self) -> list[Process]:
        """Every process with our configuration, except this one; another lab may have nodes of the same names."""
        mark = f"SLURM_CONF={self.environ['SLURM_CONF']}"
        return [one for one in living() if one.pid != os.getpid() and one.has_environment(mark)]

    def _take_down(self) -> None:
        """End every process that runs with our configuration, then remove the directory."""
        end = time.monotonic() + SECONDS
        while left := self._running():
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            if time.monotonic() > end:
                raise OSError(f"still running: {[one.cmdline for one in left]}")
            time.sleep(0.02)
        for daemon in self._daemons.values():
            daemon.wait(SECONDS)
        shutil.rmtree(self.directory)


def _found(program: str) -> str:
    path = find(program)
    assert path is not None
    return path
