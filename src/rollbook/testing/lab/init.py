"""The init of a lab host: process 1 of its namespaces, forked from the supervisor.

It makes the host's own view of the machine: hostname, network, `/proc` and `/sys` of its namespaces, empty `/run`,
`/tmp`, `/dev/shm` and `/mnt`. The rest of the file system is the machine's own. Then it reaps what ends. When it
dies the kernel kills all of its PID namespace and drops the mounts and the network (pid_namespaces(7)).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import rollbook
from rollbook.testing.lab import file_overlays, syscalls
from rollbook.testing.lab.processes import reap

__all__ = ["INSIDE", "Boot", "ip"]

INSIDE = "/run/rollbook-lab"
"""Where a host sees its own directory of the lab."""
SHARED = (sys.prefix, sys.base_prefix, str(Path(rollbook.__file__).parents[1]))
"""This Python, its packages and Rollbook: hosts have them even where their own empty `/tmp` would hide them."""


def ip(*commands: str) -> None:
    """Run commands of the program ip in the caller's network namespace."""
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip: {done.stderr.strip()}")


class Boot:
    """A host that boots in two steps: its namespaces and, once its network link exists, its network."""

    def __init__(
        self, name: str, address: str, directory: str, files: Mapping[str, str], hidden: Sequence[str]
    ) -> None:
        self.name, self.address, self.directory = name, address, directory
        self._files, self._hidden = files, hidden
        self._mine, self._its = socket.socketpair()
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        # The new PID namespace is for the next child only: setns brings the supervisor's own one back.
        syscalls.unshare(syscalls.CLONE_NEWPID)
        self.pid = os.fork()
        if self.pid == 0:
            self._live()
        syscalls.setns(own, syscalls.CLONE_NEWPID)
        os.close(own)
        self._its.close()

    def wait(self) -> None:
        """Wait until the host has done its step; raises what went wrong there."""
        answer = self._mine.recv(4096)
        if answer != b"done":
            raise OSError(f"{self.name} did not boot: {answer.decode() or 'its init died'}")

    def go_on(self) -> None:
        """Let the host take its second step."""
        self._mine.send(b"go")

    def _live(self) -> NoReturn:
        """Run as process 1; never returns to the supervisor's code."""
        try:
            syscalls.die_with_parent()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            self._leave_descriptors()
            self._enter_namespaces()
            file_overlays.cover(self._files)
            for program in self._hidden:
                file_overlays.hide(program)
            self._its.send(b"done")
            if self._its.recv(16):
                ip("link set lo up", f"addr add {self.address} dev eth0", "link set eth0 up")
                self._its.send(b"done")
                self._its.close()
                while True:
                    reap()
                    signal.sigwait({signal.SIGCHLD})
        except OSError as error:
            self._its.send(str(error).encode())
        finally:
            os._exit(1)

    def _leave_descriptors(self) -> None:
        """Close the supervisor's descriptors: its pipes and the sockets of other hosts must end with it."""
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, self._its.fileno())
        os.closerange(self._its.fileno() + 1, 4096)

    def _enter_namespaces(self) -> None:
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWNET)
        socket.sethostname(self.name)
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        # Opened before an empty /tmp may cover them, and in this mount namespace, as a bind mount requires.
        directory = os.open(self.directory, os.O_PATH)
        shared = {path: os.open(path, os.O_PATH) for path in SHARED}
        for path, mode in file_overlays.OWN.items():
            if Path(path).is_dir():
                syscalls.mount("tmpfs", path, "tmpfs", data=f"mode={mode}")
        for path in (INSIDE, "/run/sshd", "/run/cgroup"):
            Path(path).mkdir()
        syscalls.mount(f"/proc/self/fd/{directory}", INSIDE, flags=syscalls.MS_BIND)
        os.close(directory)
        for path, opened in shared.items():
            if not Path(path).exists():
                Path(path).mkdir(parents=True)
                syscalls.mount(f"/proc/self/fd/{opened}", path, flags=syscalls.MS_BIND)
            os.close(opened)
        _own_sys()
        syscalls.umount("/proc", syscalls.MNT_DETACH)
        syscalls.mount("proc", "/proc", "proc")


def _own_sys() -> None:
    """A sysfs that shows this network namespace's devices, with the machine's cgroups kept below it."""
    syscalls.mount("/sys/fs/cgroup", "/run/cgroup", flags=syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.umount("/sys", syscalls.MNT_DETACH)
    syscalls.mount("sysfs", "/sys", "sysfs")
    syscalls.mount("/run/cgroup", "/sys/fs/cgroup", flags=syscalls.MS_MOVE)
    Path("/run/cgroup").rmdir()
