"""What this machine offers to a lab, and the connection to the lab's supervisor."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollbook.errors import RollbookError
from rollbook.testing.lab.processes import started

__all__ = ["Ground", "LabCannot", "find", "free_network", "missing_namespaces", "missing_programs"]

_PREFIX = "rollbook-lab-"


class LabCannot(RollbookError):
    """This machine cannot do what was requested; the message names what is missing."""


def find(program: str) -> str | None:
    """The full path of a program; sbin is not in every user's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def missing_programs() -> list[str]:
    """Programs without which there is no lab of any kind, with the packages that hold them."""
    packages = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
    return [f"{name}: package {package}" for name, package in packages.items() if find(name) is None]


def missing_namespaces() -> list[str]:
    """Why this process cannot create hosts from namespaces, and how to allow it."""
    packages = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2"}
    lacking = [f"{name}: package {package}" for name, package in packages.items() if not shutil.which(name)]
    if lacking:
        return lacking
    trial = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "mount", "-t", "sysfs", "sysfs", "/sys"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [
        f"namespaces: root with CAP_SYS_ADMIN and CAP_NET_ADMIN, in a container --privileged ({done.stderr.strip()})"
    ]


@contextlib.contextmanager
def free_network(start: int) -> Iterator[str]:
    """The first three numbers of an unused private /24: 10.213.x, the search for x begins at `start`.

    Labs that are built at the same time wait for each other here; they could choose the same network.
    """
    turn = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield _unused(start)
    finally:
        os.close(turn)


def _unused(start: int) -> str:
    taken = []
    for what, field in (("addr", "local"), ("route", "dst")):
        rows = json.loads(subprocess.run(["ip", "-4", "-j", what], capture_output=True, check=True).stdout or "[]")
        for row in rows:
            for entry in row.get("addr_info", [row]):
                network = ipaddress.ip_network(entry.get(field, "default").replace("default", "0.0.0.0/0"))
                # A wide route, such as a site's 10.0.0.0/8, may contain the lab's narrow one.
                if network.prefixlen > 16:
                    taken.append(network)
    for x in range(start, start + 256):
        network = ipaddress.ip_network(f"10.213.{x % 256}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return f"10.213.{x % 256}"
    raise LabCannot("no free network in 10.213.0.0/16")


class Ground:
    """A directory for a lab, and a supervisor that outlives this process just long enough to remove all of it."""

    def __init__(self) -> None:
        _remove_stale()
        owner = f"{os.getpid()}-{started(os.getpid())}-"
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX + owner))
        self._lock = threading.Lock()
        with (self.directory / "supervisor.log").open("wb") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "rollbook.testing.lab.supervisor", self.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests: the supervisor tidies up after them
            )

    @property
    def pid(self) -> int:
        """The supervisor's process; its network namespace holds the switch ends of all links."""
        return self._supervisor.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        """Send a request to the supervisor; its error is raised here."""
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with self._lock:
            try:
                self._supervisor.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                self._supervisor.stdin.flush()
            except BrokenPipeError:
                raise OSError("the lab's supervisor is gone") from None
            answer = json.loads(self._supervisor.stdout.readline() or b'{"error": "the lab\'s supervisor died"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """Let the supervisor take everything down, and wait until it has."""
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        log = (self.directory / "supervisor.log").open()
        self._supervisor.stdin.close()
        code = self._supervisor.wait(timeout=60)
        self._supervisor.stdout.close()
        with log:
            if code:
                shutil.rmtree(self.directory, ignore_errors=True)
                raise OSError(f"the lab was not taken down: {log.read()}")


def _remove_stale() -> None:
    """Remove directories of labs whose owner and supervisor were both killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = re.fullmatch(rf"{_PREFIX}(\d+)-(\d+)-.*", path.name)
        if owner and started(int(owner[1])) != owner[2]:
            shutil.rmtree(path, ignore_errors=True)
