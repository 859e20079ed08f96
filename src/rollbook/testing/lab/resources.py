"""What a lab needs of this machine: programs, namespaces and a free network."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from rollbook.errors import RollbookError

__all__ = ["LabCannot", "find", "free_network", "missing_namespaces", "missing_programs"]


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
